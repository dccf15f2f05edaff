//! English words that say nothing about what a text is about.

use foldhash::fast::RandomState;
use std::collections::HashSet;
use std::sync::LazyLock;

/// English stop words: Lucene's 33 plus more function and question words. With the 33 alone,
/// retrieval in two-person conversations loses 1.4 points of R@10.
static STOP_WORDS: LazyLock<HashSet<&'static str, RandomState>> = LazyLock::new(|| {
    "a an and are as at be but by for if in into is it no not of on or such that the their then
    there these they this to was will with
    i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she
    her hers herself its itself them themselves
    what which who whom whose when where why how am were been being have has had having do does
    did doing would should could can may might must shall
    about against between through during before after above below from up down out off over under
    again further once here all any both each few
    more most other some only own same so than too very s t just don now d ll m o re ve y ain aren
    couldn didn doesn hadn hasn haven isn ma mightn
    mustn needn shan shouldn wasn weren won wouldn also because while until nor"
        .split_whitespace()
        .collect()
});

/// Tests a lower-case word against the English stop words.
pub fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.contains(word)
}

//! Lists the English patterns that `reading.rs` searches for in lower-case ASCII text. Words may be
//! added freely; `parts.rs` decides the value of a match.
//!
//! Invariant: every pattern is compiled without Unicode classes, which keeps the regex engine on
//! its fast path.

use regex::{Regex, RegexBuilder};
use std::sync::LazyLock;

pub const WEEKDAYS: &str = "(?:mon|tues|wednes|thurs|fri|satur|sun)days?";
/// Without May, which lower case cannot distinguish from the verb.
pub const MONTHS: &str =
    "january|february|march|april|june|july|august|september|october|november|december";

pub static FIRST_PERSON: LazyLock<Regex> =
    LazyLock::new(|| any_word(&["i(?:'m|'ve|'d|'ll)?", "my|mine|me", "we(?:'re|'ve)?", "our|us"]));
pub static SECOND_PERSON: LazyLock<Regex> =
    LazyLock::new(|| any_word(&["you(?:'re|'ve|'d|'ll)?", "your", "ya"]));

/// Requests such as "can you help", whose "you" is no remark about the other speaker.
pub static REQUEST: LazyLock<Regex> = LazyLock::new(|| {
    any_word(&[
        concat!(
            "(?:can|could|would|will|should|do|did|have|are) (?:you|i|we)",
            "(?: (?:please|also|maybe|just))? ",
            "(?:help|explain|give|show|provide|suggest|recommend|review|check|write|remind|offer",
            "|walk|break|clarify|make|create",
            "|verify|point|guide|list|summari[sz]e|describe|assist|validate|think)",
        ),
        "help me",
    ])
});

pub static PRAISE: LazyLock<Regex> = LazyLock::new(|| {
    at_start(&[
        "thanks?|thank you|thx|congrats|congratulations|wow|whoa|awesome|amazing|cool|nice|great",
        "perfect|sounds",
        "that(?:'s| is| sounds| must| seems)|glad|good (?:luck|job|idea|for you)|way to go",
        "you(?:'re| are)|love (?:that|it)",
        "so (?:happy|glad|proud|excited)|aww+|haha+|lol|got it|makes sense|no (?:problem|worries)",
        "of course|absolutely|exactly",
        "definitely|totally|i agree|appreciate",
        "i'm (?:so |really )?(?:glad|happy|proud|sorry|excited) (?:for|to hear|that you|you)",
        "way|keep (?:it )?up|best of luck|can't wait to (?:see|hear)",
    ])
});

pub static GREETING_FIRST: LazyLock<Regex> = LazyLock::new(|| {
    at_start(&[
        "hi|hey|hello|bye|goodbye|good (?:morning|afternoon|night|evening)|take care",
        "see (?:you|ya)|catch (?:you|ya)",
        "talk (?:to you )?(?:soon|later)|ttyl|long time no",
    ])
});
pub static GREETING: LazyLock<Regex> = LazyLock::new(|| {
    any_word(&[
        "how are you|how have you been|what's up|talk (?:to you )?(?:soon|later)|see (?:you|ya)",
        "take care|catch (?:you|ya) later",
        "good to (?:see|hear)|nice to (?:see|hear|meet)",
    ])
});

pub static TIME: LazyLock<Regex> = LazyLock::new(|| {
    any_word(&[
        "yesterday|today|tonight|tomorrow|last|next|ago|weekends?|weeks?|months?|years?|recently",
        "since|deadline|due|birthday|anniversary",
        WEEKDAYS,
        MONTHS,
        "jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec",
        r"(?:19|20)\d\d|\d{1,2}(?::\d\d)? ?[ap]\.?m",
    ])
});

pub static NUMBER: LazyLock<Regex> = LazyLock::new(|| {
    any_word(&[
        "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty",
        "hundred|thousand|dozen|couple",
        "once|twice|first|second|third",
    ])
});

/// Beginnings of facts about the speaker: "I moved", "we bought", "I'm a".
pub static FACT: LazyLock<Regex> = LazyLock::new(|| {
    any_word(&[
        concat!(
            r"(?:i|we)(?:'m| am| was|'ve| have| had| are|'re| were)?",
            r"(?: \w+ly| just| also| never| always| still| already| kinda| now| even| both)* ",
            r"(?:am|was|have|had|has|been|live|lived|work|worked|working|moved|moving|prefer|love",
            r"|loved|like|hate|enjoy|enjoyed",
            r"|started|stopped|quit|bought|got|own|use|used|using|study|studied|studying|teach",
            r"|went|visited|met|joined|attended",
            r"|signed|finished|completed|made|built|wrote|read|watched|learned|adopted|married",
            r"|born|plan|planned|planning|going",
            r"|decided|scheduled|booked|switched|changed|updated|added|need|want|hope|found|took",
            r"|saw|won|lost|set|grew|named",
            r"|allergic|vegan|vegetarian)",
        ),
        concat!(
            "i'm (?:a|an|the|from|in|on|at|into|not a|based|trying|allergic|vegan|vegetarian",
            "|married|single|scared|afraid)",
        ),
        "call me|my name",
    ])
});

pub static MINE: LazyLock<Regex> = LazyLock::new(|| compiled(r"\b(?:my|our)\s+\w+"));
pub static CORRECTION: LazyLock<Regex> = LazyLock::new(|| {
    any_word(&[
        "actually|no longer|not anymore|any ?more|instead|changed my mind|correction|i meant",
        "i was wrong|turns out|used to|rather than",
        "switch(?:ed|ing)? (?:to|from)|(?:mov|chang)ed (?:to|from)|rescheduled|postponed",
        "pushed back|updated? to",
        "(?:is|are|was|has been|been) now",
        "new (?:deadline|date|address|number|job|phone|email|plan|target|goal)",
        "(?:increas|reduc|dropp|improv|extend)ed to|extended by",
    ])
});

pub static ORDER_FIRST: LazyLock<Regex> = LazyLock::new(|| {
    at_start(&[
        concat!(
            "(?:please )?(?:always|never|remember|note|don't forget|do not forget|make sure",
            "|from now on|keep in mind|important)",
        ),
        "(?:please )?for (?:the )?(?:future|record)",
        // How to answer: "please answer in English", "keep answers short", "use British spelling".
        "(?:please )?(?:answer|reply|respond|speak|talk|write)(?: to me| me| everything)? (?:only |always )?(?:in|with|without|like)",
        "(?:please )?keep (?:all |the )?(?:your |my )?(?:answers|replies|responses|explanations|messages|summaries|it)",
        r"(?:please )?use (?:the )?[\w-]+ (?:spelling|units|english|format|currency|notation|pronouns|dates|time)",
        r"(?:please )?(?:stop|avoid) \w+ing",
        "(?:please )?(?:call|address) me",
        "(?:shorter|longer|briefer|simpler|more detailed|less formal) (?:answers?|replies|responses)",
        r"\w+ (?:units|spelling) only",
    ])
});
/// Orders anywhere in a text. The group `recollection` matches in "I remember that day".
pub static ORDER: LazyLock<Regex> = LazyLock::new(|| {
    any_word(&[
        concat!(
            r"(?<recollection>(?:i|you|we|they|he|she|to|still|always|can't|don't|'ll) )?",
            r"(?:remember (?:that|this|to)|keep in mind)",
        ),
        "from now on|don't forget|for future reference|when(?:ever)? i ask|i want you to",
        "please (?:always|never|remember|note|use)",
    ])
});

pub static STRONG: LazyLock<Regex> = LazyLock::new(|| {
    any_word(&[
        "always|never|must|important|crucial|critical|essential|urgent|remember|don't forget",
        "allergic|favou?rite",
    ])
});
/// Matches any of the alternatives as whole words.
pub fn any_word(alternatives: &[&str]) -> Regex {
    compiled(&format!(r"\b(?:{})\b", alternatives.join("|")))
}

/// Matches any of the alternatives at the beginning of the text.
pub fn at_start(alternatives: &[&str]) -> Regex {
    compiled(&format!(r"^(?:{})\b", alternatives.join("|")))
}

pub fn compiled(pattern: &str) -> Regex {
    RegexBuilder::new(pattern)
        .unicode(false)
        .build()
        .expect("the patterns are constants, and the tests compile each of them")
}

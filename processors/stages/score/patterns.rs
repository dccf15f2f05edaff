//! The wordings that `reading.rs` looks for, in lower-case ASCII. Word lists and nothing else: `mod.rs` says what a match is worth.

use regex::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};
use std::sync::LazyLock;

/// What a text is searched for anywhere, as places in `ANYWHERE`.
#[derive(Clone, Copy)]
pub enum Wording {
    FirstPerson,
    Greeting,
    Time,
    Number,
    Fact,
    State,
    Mine,
    Never,
    Decision,
    Correction,
    Order,
    Strong,
    Emphatic,
}

/// All of them in one pass over the text: one by one each would be a pass of its own.
pub static ANYWHERE: LazyLock<RegexSet> = LazyLock::new(|| {
    let wordings = [
        &FIRST_PERSON,
        &GREETING,
        &TIME,
        &NUMBER,
        &FACT,
        &STATE,
        &MINE,
        &NEVER,
        &DECISION,
        &CORRECTION,
        &ORDER,
        &STRONG,
        &EMPHATIC,
    ];
    let wordings = wordings.map(|wording| wording.as_str());
    RegexSetBuilder::new(wordings).unicode(false).build().expect("each of them was compiled before")
});

pub static FIRST_PERSON: LazyLock<Regex> =
    LazyLock::new(|| words(&["i(?:'m|'ve|'d|'ll)?", "my|mine|me", "we(?:'re|'ve)?", "our|us"]));
pub static SECOND_PERSON: LazyLock<Regex> =
    LazyLock::new(|| words(&["you(?:'re|'ve|'d|'ll)?", "your", "ya"]));

/// "Can you help" says nothing about the other.
pub static REQUEST: LazyLock<Regex> = LazyLock::new(|| {
    words(&[
        concat!(
            "(?:can|could|would|will|should|do|did|have|are) (?:you|i|we)(?: (?:please|also|maybe|just))? ",
            "(?:help|explain|give|show|provide|suggest|recommend|review|check|write|remind|offer|walk|break|clarify|make|create",
            "|verify|point|guide|list|summari[sz]e|describe|assist|validate|think)",
        ),
        "help me",
    ])
});

pub static PRAISE: LazyLock<Regex> = LazyLock::new(|| {
    first(&[
        "thanks?|thank you|thx|congrats|congratulations|wow|whoa|awesome|amazing|cool|nice|great|perfect|sounds",
        "that(?:'s| is| sounds| must| seems)|glad|good (?:luck|job|idea|for you)|way to go|you(?:'re| are)|love (?:that|it)",
        "so (?:happy|glad|proud|excited)|aww+|haha+|lol|got it|makes sense|no (?:problem|worries)|of course|absolutely|exactly",
        "definitely|totally|i agree|appreciate|i'm (?:so |really )?(?:glad|happy|proud|sorry|excited) (?:for|to hear|that you|you)",
        "way|keep (?:it )?up|best of luck|can't wait to (?:see|hear)",
    ])
});

pub static GREETING_FIRST: LazyLock<Regex> = LazyLock::new(|| {
    first(&[
        "hi|hey|hello|bye|goodbye|good (?:morning|afternoon|night|evening)|take care|see (?:you|ya)|catch (?:you|ya)",
        "talk (?:to you )?(?:soon|later)|ttyl|long time no",
    ])
});
pub static GREETING: LazyLock<Regex> = LazyLock::new(|| {
    words(&[
        "how are you|how have you been|what's up|talk (?:to you )?(?:soon|later)|see (?:you|ya)|take care|catch (?:you|ya) later",
        "good to (?:see|hear)|nice to (?:see|hear|meet)",
    ])
});

pub static TIME: LazyLock<Regex> = LazyLock::new(|| {
    words(&[
        "yesterday|today|tonight|tomorrow|last|next|ago|weekends?|weeks?|months?|years?|recently|since|deadline|due|birthday|anniversary",
        "(?:mon|tues|wednes|thurs|fri|satur|sun)days?",
        "january|february|march|april|june|july|august|september|october|november|december",
        "jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec",
        r"(?:19|20)\d\d|\d{1,2}(?::\d\d)? ?[ap]\.?m",
    ])
});

pub static NUMBER: LazyLock<Regex> = LazyLock::new(|| {
    words(&[
        "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|hundred|thousand|dozen|couple",
        "once|twice|first|second|third",
    ])
});

pub static FACT: LazyLock<Regex> = LazyLock::new(|| {
    words(&[
        concat!(
            r"(?:i|we)(?:'m| am| was|'ve| have| had| are|'re| were)?",
            r"(?: \w+ly| just| also| never| always| still| already| kinda| now| even| both)* ",
            r"(?:am|was|have|had|has|been|live|lived|work|worked|working|moved|moving|prefer|love|loved|like|hate|enjoy|enjoyed",
            r"|started|stopped|quit|bought|got|own|use|used|using|study|studied|studying|teach|went|visited|met|joined|attended",
            r"|signed|finished|completed|made|built|wrote|read|watched|learned|adopted|married|born|plan|planned|planning|going",
            r"|decided|scheduled|booked|switched|changed|updated|added|need|want|hope|found|took|saw|won|lost|set|grew|named",
            r"|allergic|vegan|vegetarian)",
        ),
        "i'm (?:a|an|the|from|in|on|at|into|not a|based|trying|allergic|vegan|vegetarian|married|single|scared|afraid)",
        "call me|my name",
    ])
});

pub static STATE: LazyLock<Regex> = LazyLock::new(|| {
    words(&[
        concat!(
            r"(?:i|we)(?:'m| am|'ve|'re| are| have)?(?: \w+ly| just| also| now| still| never| always| no longer| don't)* ",
            r"(?:live|living|moved|work|prefer|own|use|speak|teach|study|based|born|allergic|vegan|vegetarian|married|single|divorced)",
        ),
        "i'm (?:an?|the|from|not an?)|call me|my name|(?:my|our) favou?rite",
        r"(?:my|our) \w+(?: \w+)?(?:'s| is| are) (?:called|named)|my \w+'s name",
    ])
});

pub static MINE: LazyLock<Regex> = LazyLock::new(|| compiled(r"\b(?:my|our)\s+\w+"));
pub static NEVER: LazyLock<Regex> = LazyLock::new(|| words(&["(?:i|we)(?:'ve| have)? never"]));

pub static DECISION: LazyLock<Regex> = LazyLock::new(|| {
    words(&[
        "(?:we|i)(?:'ve| have)? (?:decided|agreed|chose|picked|settled|resolved|committed)",
        "let's (?:use|go with|stick|keep|do|make|switch|call|move)",
        "(?:i|we)(?:'ll| will|'m going to|'m gonna|'re going to) (?:use|go with|take|start|keep|buy|move|switch|stay)",
        "decided (?:to|on|against)",
    ])
});

pub static CORRECTION: LazyLock<Regex> = LazyLock::new(|| {
    words(&[
        "actually|no longer|not anymore|any ?more|instead|changed my mind|correction|i meant|i was wrong|turns out|used to|rather than",
        "switch(?:ed|ing)? (?:to|from)|(?:mov|chang)ed (?:to|from)|rescheduled|postponed|pushed back|updated? to",
        "(?:is|are|was|has been|been) now|new (?:deadline|date|address|number|job|phone|email|plan|target|goal)",
        "(?:increas|reduc|dropp|improv|extend)ed to|extended by",
    ])
});

pub static ORDER_FIRST: LazyLock<Regex> = LazyLock::new(|| {
    first(&[
        "(?:please )?(?:always|never|remember|note|don't forget|do not forget|make sure|from now on|keep in mind|important)",
        "(?:please )?for (?:the )?(?:future|record)",
    ])
});
pub static ORDER: LazyLock<Regex> = LazyLock::new(|| {
    words(&[
        r"(?<told>(?:i|you|we|they|he|she|to|still|always|can't|don't|'ll) )?(?:remember (?:that|this|to)|keep in mind)",
        "from now on|don't forget|for future reference|when(?:ever)? i ask|i want you to",
        "please (?:always|never|remember|note|use)",
    ])
});

const STRONG_WORDS: &str = "always|never|must|important|crucial|critical|essential|urgent|remember|don't forget|allergic|favou?rite";
pub static STRONG: LazyLock<Regex> = LazyLock::new(|| words(&[STRONG_WORDS]));
pub static EMPHATIC: LazyLock<Regex> = LazyLock::new(|| {
    words(&[
        STRONG_WORDS,
        "best|worst|hate|love|absolutely|extremely|really|so much|definitely|seriously",
    ])
});

/// Any of these, as whole words.
pub fn words(alternatives: &[&str]) -> Regex {
    compiled(&format!(r"\b(?:{})\b", alternatives.join("|")))
}

/// Any of these at the very beginning.
pub fn first(alternatives: &[&str]) -> Regex {
    compiled(&format!(r"^(?:{})\b", alternatives.join("|")))
}

pub fn compiled(wording: &str) -> Regex {
    RegexBuilder::new(wording)
        .unicode(false)
        .build()
        .expect("the wordings are constants that every test compiles")
}

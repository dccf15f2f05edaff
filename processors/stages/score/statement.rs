//! Recognises an English statement about the speaker or what is theirs, however short: "I have diabetes.", "no peppers", "she works at
//! the NHS", "the deadline is Friday". Reads clause by clause, each with a fixed number of patterns, so the time is linear in the text.

use super::patterns::{compiled, first, words};
use super::reading::{asks, opening, sentences};
use regex::Regex;
use std::sync::LazyLock;

/// Kinds of a text's clauses, together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statements {
    /// One clause or more states something of the speaker or of theirs.
    pub states: bool,
    /// Nothing but questions and requests.
    pub only_asks: bool,
}

enum Clause {
    /// Says nothing by itself: "oh well".
    Empty,
    States,
    Asks,
    Other,
}

/// Of a text in lower-case ASCII.
pub fn statements(plain: &str) -> Statements {
    let (mut asked, mut other) = (false, false);
    for sentence in sentences(plain) {
        let is_question = asks(sentence);
        let mut clauses =
            BORDER.split(sentence).filter(|clause| !opening(clause).is_empty()).peekable();
        let mut asks_here = false;
        while let Some(clause) = clauses.next() {
            let is_last = clauses.peek().is_none();
            match read(opening(clause), is_question && is_last) {
                Clause::States => return Statements { states: true, only_asks: false },
                Clause::Asks => asks_here = true,
                // A question may go on: "is there a bus, or a train".
                Clause::Other => other |= !asks_here && (is_last || !is_question),
                Clause::Empty => {}
            }
        }
        asked |= asks_here;
    }
    Statements { states: false, only_asks: asked && !other }
}

fn read(whole: &str, is_asked: bool) -> Clause {
    let clause = match OPENERS.find(whole) {
        Some(openers) => opening(&whole[openers.end()..]),
        None => whole,
    };
    // "no peppers": what opens many a clause may be its very point.
    let without_and = AND.find(whole).map_or(whole, |and| &whole[and.end()..]);
    if !is_asked && leaves_out_the_subject(without_and) {
        return Clause::States;
    }
    if clause.is_empty() || ECHO.is_match(clause) {
        return Clause::Empty;
    }
    let is_request = REQUEST.is_match(clause);
    if is_request || QUESTION.is_match(clause) || is_asked && !SUBJECT.is_match(clause) {
        return if tells_in_asking(clause) { Clause::States } else { Clause::Asks };
    }
    if speaks_of_self(clause) {
        return Clause::States;
    }
    if SECOND_PERSON.is_match(clause) || PRAISES.is_match(clause) && !has_digit(clause) {
        return Clause::Other;
    }
    let states = leaves_out_the_subject(clause)
        || THIRD_PERSON.is_match(clause) && !JUDGES.is_match(clause)
        || has_digit(clause)
        || SPECIFIC.is_match(clause);
    if states { Clause::States } else { Clause::Other }
}

/// "I", "we", "my" or "me" is left when what only keeps a talk going has been taken away.
fn speaks_of_self(clause: &str) -> bool {
    if !SELF.is_match(clause) || PRAISES.is_match(clause) {
        return false;
    }
    SELF.is_match(&PHATIC.replace_all(clause, " "))
        || next_word(&OPINION, clause).is_some_and(|word| !OF_NOTHING.contains(&word))
}

/// "can my 3-year-old eat honey?"
fn tells_in_asking(clause: &str) -> bool {
    OWN_IN_QUESTION.is_match(clause)
        || MY.captures_iter(clause).any(|found| !NOT_OWNED.contains(&&found[1]))
}

/// "don't eat meat", "allergic to nuts", "moved to Leeds".
fn leaves_out_the_subject(clause: &str) -> bool {
    let begins = || {
        ELLIPTIC.is_match(clause)
            || next_word(&NEGATED, clause).is_some_and(|word| !SAYS_NOTHING.contains(&word))
            || next_word(&WANTED, clause).is_some_and(|word| !WANTED_NOW.contains(&word))
    };
    (STATE.is_match(clause) || begins()) && !SECOND_PERSON.is_match(clause)
}

fn next_word<'c>(wording: &Regex, clause: &'c str) -> Option<&'c str> {
    if !wording.is_match(clause) {
        return None;
    }
    wording.captures(clause)?.get(1).map(|word| word.as_str())
}

fn has_digit(clause: &str) -> bool {
    clause.bytes().any(|byte| byte.is_ascii_digit())
}

static BORDER: LazyLock<Regex> = LazyLock::new(|| compiled(r",\s|\s-+\s|[()]|:\s"));

static OPENERS: LazyLock<Regex> = LazyLock::new(|| {
    compiled(&format!(
        r"^(?:(?:{})\b[\x00-\x26\x28-\x2f\x3a-\x5e\x60\x7b-\x7f]*)+",
        [
            "oh|ooh|ah|aha|wow|whoa|yay|hey|hi|hiya|hello|morning|evening|good (?:morning|evening|afternoon|night)|yes|yeah|yep|yup|ya|yea",
            "no|nope|nah|ok|okay|k|well|so|and|but|also|plus|or|then|now|right|alright|sure|thanks|thank you|thx|ta|cheers|please|pls",
            "haha+|lol|lmao|hmm+|hm|mmm*|um+|uh|er|actually|honestly|anyway|btw|by the way|fyi|cool|nice|great|awesome|perfect|good|neat|fine",
            "sorry|oops|aww*|ugh|phew|because|cause|cos|since|though|although|maybe|luckily|sadly|unfortunately|basically|apparently",
            "like|still|just|same|me|exactly|absolutely|definitely|totally|of course|no (?:worries|problem)|speaking of(?: which)?",
            "that's (?:great|cool|awesome|nice|good|neat|amazing|interesting|fun|funny)|sounds (?:good|great|fun|nice|cool)",
        ]
        .join("|")
    ))
});

static AND: LazyLock<Regex> = LazyLock::new(|| {
    compiled(r"^(?:(?:and|but|so|also|oh|well|ok|okay|yes|yeah|actually|btw)\b[, ]*)+")
});
static SELF: LazyLock<Regex> = LazyLock::new(|| {
    words(&["i|we|my|our|mine|ours|myself|me|us|im|ive|id (?:rather|like|love|prefer)"])
});
static SUBJECT: LazyLock<Regex> =
    LazyLock::new(|| first(&["i|i'm|i've|i'd|i'll|we|we're|we've|my|our|im|ive"]));
static SECOND_PERSON: LazyLock<Regex> = LazyLock::new(|| words(&["you|your|u|ur|ya"]));

/// "I will", "he was": repeats what the other said, and says nothing by itself.
static ECHO: LazyLock<Regex> = LazyLock::new(|| {
    compiled(concat!(
        r"^(?:i|we|he|she|they|it)(?:'ll|'d|'m|'re|'s|'ve)?",
        r"(?: (?:will|might|may|was|were|did|do|does|have|has|had|can|shall|could|would|should|must|am|is|are|really|too|not|so|do (?:that|it|so)))*[\x00-\x2f\x3a-\x60\x7b-\x7f]*$",
    ))
});

/// In the first person, and nothing of the speaker.
static PHATIC: LazyLock<Regex> = LazyLock::new(|| {
    words(&[
        concat!(
            r"i(?:'m| am| do| can| could| will|'ll|'d| would| just| really| totally| completely| also| don't| do not| didn't| did not| can't",
            r"| cannot| couldn't| wouldn't| never| always| often| was| did| have to| must| should| shall| might)*",
            r" ?(?:think|guess|hope|know|see|mean|agree|understand|bet|wonder|wondering|believe|suppose|imagine|appreciate|hear|got it",
            r"|get it|get that|feel you|relate|figured?|say|said|tell|told|ask|asked|asking|remember|forget|forgot|thought|sure|glad|sorry",
            r"|good|fine|ok|okay|great|well|all right|alright|happy (?:for|to|that)|excited (?:for|to hear|to see)|proud of|doing|thank",
            r"|wish you|let you|love (?:that|it|this|you)|like (?:that|it|this)|check|keep|try|look|have a look|take a look|give it",
            r"|be (?:there|here|back)|see you|talk|chat|catch|miss you|wait|noticed|go now|gotta|back|here|confused|lost|ready|done",
            r"|kidding|joking|cried|cry)",
        ),
        r"i(?:'d| would) (?:have (?:said|guessed)|guess|suggest|recommend|(?:love|like) to (?:hear|see|know|help|chat|ask))",
        "(?:if|should|can|could|may|do|am|shall) i(?: may| can| could)?|i shouldn't|i needn't",
        "my (?:god|gosh|pleasure|bad|goodness|friend|dear|question|turn|point|guess|fault|word|mistake|apologies|message|mind)",
        concat!(
            "(?:tell|give|let|help|show|remind|ask|send|write|find|excuse|trust|believe|explain|teach|get|bring|walk|talk|pass|hand",
            "|read|text|ping|bear with|forgive|pardon|correct|remember|for|beats|reminds|surprises?|kill|killing|love|to|tells|told) (?:me|us)",
        ),
        "(?:me|us) (?:too|neither|either)",
    ])
});

/// "I think running is fun", "I believe in God": an opinion, which is the speaker's. "I think so" is none.
static OPINION: LazyLock<Regex> =
    LazyLock::new(|| compiled(r"\bi (?:do |really |also |don't |do not )?(?:think|believe) (\w+)"));
const OF_NOTHING: &[&str] = &[
    "so", "it", "that", "this", "you", "not", "the", "they", "i", "we", "he", "she", "there", "of",
    "about", "its", "i'll", "i'd", "me", "these", "those", "maybe",
];

static QUESTION: LazyLock<Regex> = LazyLock::new(|| {
    first(&[
        "what(?:'?s)?|how(?:'?s)?|who(?:'?s)?|where(?:'?s)?|why|which|whose|when (?:is|are|do|does|did|was|were|can|will|should)",
        "is (?:it|there|that|this|an?|the|he|she)|is \\w+ (?:ok|okay|good|better|worth|safe|bad|enough|free)|are (?:there|they|you|those|these|the)",
        "do (?:they|you|i|we|the|people)|does|did|can (?:you|i|we|it|they|a)|could (?:you|i|we)|would (?:you|it|that)|will (?:it|you|they|that)",
        "should (?:i|we)|shall (?:i|we)|have you|any (?:idea|chance|tips|ideas|suggestions)|isn't|aren't|doesn't|won't|am i",
    ])
});
static REQUEST: LazyLock<Regex> = LazyLock::new(|| {
    first(&[
        "give|write|make|tell|show|help|explain|translate|check|list|find|suggest|recommend|summari[sz]e|fix|turn|name|draft|rewrite|proofread",
        "convert|calculate|compare|describe|define|spell|correct|pick|another|again|go on|continue|remind",
    ])
});
static MY: LazyLock<Regex> = LazyLock::new(|| compiled(r"\b(?:my|our) (\w+)"));
const NOT_OWNED: &[&str] = &[
    "god",
    "gosh",
    "bad",
    "question",
    "questions",
    "turn",
    "point",
    "message",
    "mind",
    "word",
    "own",
    "guess",
    "text",
    "sentence",
    "email",
    "essay",
];
static OWN_IN_QUESTION: LazyLock<Regex> = LazyLock::new(|| {
    words(&[
        "i'm|i've|i am|i have|we have|we're|we've|i live|i work|i own|i got|we got|i take|i use|i had|as an? \\w+|for an? \\w+ like me",
    ])
});

static PRAISES: LazyLock<Regex> = LazyLock::new(|| {
    first(&[
        "thanks?|thank you|congrats|congratulations|sounds|that(?:'s| is| sounds| must| seems)|glad|good (?:luck|job|idea|for you)|way to go",
        "you(?:'re| are)|love (?:that|it)|so (?:happy|glad|proud|excited)|got it|makes sense|i agree|keep (?:it )?up|best of luck",
        "i'm (?:so |really )?(?:glad|happy|proud|sorry|excited) (?:for|to hear|that you|you)|can't wait to (?:see|hear)|have a",
    ])
});

/// Of other people and of named things: whoever tells an assistant of them means to be known by it.
static THIRD_PERSON: LazyLock<Regex> = LazyLock::new(|| {
    first(&[
        r"(?:he|she|they)(?:'s|'d|'ve|'re| \w+)|(?:his|her|their) \w+",
        concat!(
            r"[a-z_]+(?:'s \w+| and \w+)? (?:works?|lives?|lived|likes|loves|hates|has|owns?|plays?|studies|teaches|drives?|drove|wants|needs",
            r"|moved|bought|got|started|quit|died|married|born|speaks|eats|drinks|says|uses|runs|goes|comes|came|left|turned|turns|was born",
            r"|is (?:called|named|in|at|on|from|allergic|an?|my|our|the)|can't|doesn't|won't|isn't)",
        ),
        r"the [\w-]+(?: [\w-]+)? (?:is|are|was|runs?|uses?|costs?|starts?|ends?|closes?|opens?|expires?|moved|has|lives?|must) (?:in|at|on|an?|from|under|called|named|now|due)",
    ])
});
/// Says how the speaker likes it, or what may come of it.
static JUDGES: LazyLock<Regex> = LazyLock::new(|| {
    first(&[
        "it|that|this|what|who|how|there|here|everyone|nobody|everything|nothing|you|sounds|which|where|when|why|life|time|one|someone|somebody",
        "luck|is|are|do|does|did|can|if|(?:he|she|they)(?:'ll|'d| will| would| must| should)",
        concat!(
            r"(?:he|she|they)(?:'s| is| was|'re| are| were| sounds?| looks?| seems?)(?: \w+ly| so| very| such| too| an?| still| quite| just)*",
            " (?:great|good|nice|cute|adorable|lovely|sweet|amazing|awesome|funny|fun|beautiful|cool|happy|saint|star|angel|legend|right|wrong",
            "|fine|ok|okay|going to|gonna|gorgeous|himself|herself)",
        ),
    ])
});
static SPECIFIC: LazyLock<Regex> = LazyLock::new(|| {
    words(&[
        "(?:mon|tues|wednes|thurs|fri|satur|sun)days?|christmas|easter|midnight|noon|called|named",
        "january|february|march|april|june|july|august|september|october|november|december",
    ])
});

/// Words for what a person is.
static STATE: LazyLock<Regex> = LazyLock::new(|| {
    words(&[
        "allergic|allergy|intolerant|vegetarian|vegan|coeliac|celiac|diabetic|pregnant|left-handed",
    ])
});
static ELLIPTIC: LazyLock<Regex> = LazyLock::new(|| {
    first(&[
        "not (?:an?|into|keen on|fond of|married) \\w+",
        "live|lived|living|work|worked|working|moved|born|grew up|bought|sold|own|drive|drove|quit|married|divorced|studied|studying|teach",
        "teaching|prefer|hate|speak|smoke|play|played|retired|widowed|single|engaged|self-employed|unemployed|deaf|blind|based|from|currently",
        "trying to|used to|just (?:got|came|moved|started|finished|bought|back from)|watching|signed|enrolled|diagnosed|lactose|getting married",
        "started|expecting|renting|saving for|training for|learning|had (?:my|an?|the|to|our)|wished|have (?:two|three|four|no|to)",
        "got (?:an?|the|two|three|four|my|our|married|divorced|promoted|fired|engaged|back|in|off|done)|need(?:ed)? (?:an?|my|new|two)",
    ])
});
static NEGATED: LazyLock<Regex> = LazyLock::new(|| {
    compiled(
        r"^(?:don't|doesn't|do not|can't|cannot|won't|didn't|never|haven't|wasn't|isn't|no|have an?) ([a-z_]+)",
    )
});
static WANTED: LazyLock<Regex> = LazyLock::new(|| compiled(r"^(?:want|need)(?:ed)? to ([a-z_]+)"));
/// "need to go" is over as soon as it is said.
const WANTED_NOW: &[&str] = &[
    "go", "run", "sleep", "eat", "leave", "know", "hear", "ask", "see", "say", "check", "think",
    "be",
];
/// Behind one of those: a phrase that people use without saying anything by it, "don't worry", "no idea", "have a nice day".
const SAYS_NOTHING: &[&str] = &[
    "know",
    "wait",
    "worry",
    "mind",
    "forget",
    "complain",
    "think",
    "see",
    "remember",
    "bother",
    "get",
    "say",
    "tell",
    "thought",
    "sure",
    "heard",
    "it",
    "that",
    "this",
    "you",
    "the",
    "they",
    "he",
    "she",
    "there",
    "be",
    "seem",
    "sound",
    "matter",
    "care",
    "ask",
    "imagine",
    "believe",
    "help",
    "hurt",
    "problem",
    "problems",
    "worries",
    "idea",
    "thanks",
    "thank",
    "way",
    "rush",
    "doubt",
    "need",
    "joke",
    "kidding",
    "clue",
    "really",
    "i",
    "not",
    "stress",
    "biggie",
    "probs",
    "wonder",
    "offence",
    "offense",
    "more",
    "one",
    "but",
    "yes",
    "no",
    "sorry",
    "never",
    "point",
    "chance",
    "luck",
    "pressure",
    "hurry",
    "a",
    "been",
    "even",
    "quite",
    "yet",
    "good",
    "nice",
    "great",
    "lovely",
    "safe",
    "fun",
    "blessed",
    "wonderful",
    "fantastic",
    "look",
    "go",
    "hear",
    "is",
    "are",
    "its",
    "we",
    "and",
    "or",
    "so",
    "wow",
    "lol",
    "please",
    "surprise",
    "comment",
    "longer",
    "blame",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, states: bool, only_asks: bool) {
        assert_eq!(statements(&text.to_lowercase()), Statements { states, only_asks }, "{text:?}");
    }

    #[test]
    fn what_states_nothing_is_no_statement() {
        for text in [
            "I see.",
            "I think so",
            "I'm so happy for you!",
            "Nice to hear that",
            "Never mind",
            "no idea",
            "don't worry about it",
            "That's lovely!",
            "I hope so too",
            "my pleasure",
            "me too!",
            "have a nice day",
            "Oh well, sounds good",
            "you're the best",
            "can't wait!",
            "He's so cute!",
        ] {
            check(text, false, false);
        }
    }

    #[test]
    fn a_question_without_a_mark_is_one() {
        for text in [
            "how do you spell necessary",
            "is there a word for that",
            "translate this into French",
            "and what about the second one?",
        ] {
            check(text, false, true);
        }
    }
}

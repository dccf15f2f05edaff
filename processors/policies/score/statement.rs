//! Finds English statements about the speaker, and about people and things of theirs, however
//! short: "I have diabetes.", "no peppers", "she works at the NHS", "the deadline is Friday".
//!
//! 1. Split the text into sentences, and each sentence at commas, dashes, brackets and colons into
//!    clauses.
//! 2. Strip openers such as "oh well, " from the clause.
//! 3. Classify the clause by the first rule that holds: a subject left out ("no peppers"), an echo
//!    ("I will"), a question or request, the first person, the second person or praise, the third
//!    person, a digit or a date. Questions count as statements if they mention something of the
//!    speaker's: "can my 3-year-old eat honey?".
//! 4. One clause that states makes the text a statement. Else the text only asks if a clause asks
//!    and no clause remains unexplained.
//!
//! Limit: each clause is matched against a fixed number of patterns, and the `regex` crate runs in
//! linear time (<https://docs.rs/regex/latest/regex/#untrusted-input>), so the whole does too.
//! Patterns may be added freely; the order of the rules in [`classify`] is part of their meaning.

use super::patterns::{MONTHS, WEEKDAYS, any_word, at_start, compiled};
use super::reading::{asks, opening, sentences};
use regex::Regex;
use std::collections::HashSet;
use std::sync::LazyLock;

/// The result for a whole text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statements {
    /// A clause or more states something.
    pub states: bool,
    /// The text consists of questions and requests.
    pub only_asks: bool,
}

enum Clause {
    /// Carries no information: "oh well".
    Empty,
    States,
    Asks,
    Other,
}

/// Classifies a text in lower-case ASCII.
pub fn statements(plain: &str) -> Statements {
    let mut asked = false;
    let mut other = false;
    for sentence in sentences(plain) {
        let is_question = asks(sentence);
        let mut clauses =
            BORDER.split(sentence).filter(|clause| !opening(clause).is_empty()).peekable();
        let mut asks_here = false;
        while let Some(clause) = clauses.next() {
            let is_last = clauses.peek().is_none();
            match classify(opening(clause), is_question && is_last) {
                Clause::States => return Statements { states: true, only_asks: false },
                Clause::Asks => asks_here = true,
                // "is there a bus, or a train": the second clause continues the question.
                Clause::Other => other |= !asks_here && (is_last || !is_question),
                Clause::Empty => {}
            }
        }
        asked |= asks_here;
    }
    Statements { states: false, only_asks: asked && !other }
}

/// True if a clause of a text in lower-case ASCII has a phatic phrase with an object.
pub fn has_phatic_object(plain: &str) -> bool {
    sentences(plain).any(|sentence| BORDER.split(sentence).any(has_object))
}

/// `is_asked`: a question mark ends the clause.
fn classify(whole: &str, is_asked: bool) -> Clause {
    let clause = match OPENERS.find(whole) {
        Some(openers) => opening(&whole[openers.end()..]),
        None => whole,
    };
    // "no peppers": `OPENERS` would strip the "no" that makes the statement.
    let without_and = AND.find(whole).map_or(whole, |and| &whole[and.end()..]);
    if !is_asked && leaves_out_the_subject(without_and) {
        return Clause::States;
    }
    if clause.is_empty() || ECHO.is_match(clause) {
        return Clause::Empty;
    }
    if REMINDER.is_match(clause) {
        return Clause::States;
    }
    let is_request = REQUEST.is_match(clause);
    let asks = is_request || QUESTION.is_match(clause);
    // A proposal: "dates: 8 to 15 March?"
    if is_asked && !asks && has_digit(clause) && SPECIFIC.is_match(clause) {
        return Clause::States;
    }
    if asks || is_asked && !SUBJECT.is_match(clause) {
        return if mentions_own(clause) { Clause::States } else { Clause::Asks };
    }
    if speaks_of_self(clause) {
        return Clause::States;
    }
    // In a group "you" may name who was paid: "Wren sent you 118.80".
    if (SECOND_PERSON.is_match(clause) || PRAISES.is_match(clause)) && !has_digit(clause) {
        return Clause::Other;
    }
    let states = leaves_out_the_subject(clause)
        || THIRD_PERSON.is_match(clause) && !JUDGES.is_match(clause)
        || TECHNICAL.is_match(clause) && !NO_THING.is_match(clause)
        || has_digit(clause)
        || SPECIFIC.is_match(clause);
    if states { Clause::States } else { Clause::Other }
}

/// True if "I", "we", "my" or "me" remains once the phatic phrases ("I see") are removed, or if the
/// clause gives an opinion.
fn speaks_of_self(clause: &str) -> bool {
    if !SELF.is_match(clause) || PRAISES.is_match(clause) {
        return false;
    }
    SELF.is_match(&PHATIC.replace_all(clause, " "))
        || next_word(&OPINION, clause).is_some_and(|word| !NO_OPINION.contains(&word))
        || LOST_SENSE.is_match(clause)
        || has_object(clause)
}

/// True if content words follow a phatic phrase: "I see a therapist", unlike "I see that now".
/// A clause about the other speaker ("I hear you moved") is no such object.
fn has_object(clause: &str) -> bool {
    let Some(phrase) = PHATIC_SELF.find(clause) else { return false };
    let rest = &clause[phrase.end()..];
    let rest = PHATIC.replace_all(rest, " ");
    !SECOND_PERSON.is_match(&rest) && text::words(&rest).any(|word| !LIGHT.contains(word))
}

/// True for a question that reveals something of the speaker's: "can my 3-year-old eat honey?"
fn mentions_own(clause: &str) -> bool {
    OWN_IN_QUESTION.is_match(clause) || MY.is_match(clause)
}

/// True for "don't eat meat", "allergic to nuts", "moved to Leeds".
fn leaves_out_the_subject(clause: &str) -> bool {
    let is_elliptic = STATE.is_match(clause)
        || ELLIPTIC.is_match(clause)
        || next_word(&NEGATED, clause).is_some_and(|word| !IDIOM_REST.contains(&word))
        || next_word(&USE, clause).is_some_and(|word| !POINTS.contains(&word))
        || next_word(&DECIDED, clause).is_some_and(|word| !POINTS.contains(&word))
        || next_word(&NOT_DOING, clause).is_some_and(|word| !JOKING.contains(&word))
        || next_word(&WANTED, clause).is_some_and(|word| !WANTED_NOW.contains(&word));
    is_elliptic && !SECOND_PERSON.is_match(clause)
}

/// Returns the word that the first group of `wording` captures.
fn next_word<'c>(wording: &Regex, clause: &'c str) -> Option<&'c str> {
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
            "oh|ooh|ah|aha|wow|whoa|yay|hey|hi|hiya|hello|morning|evening",
            "good (?:morning|evening|afternoon|night)|yes|yeah|yep|yup|ya|yea",
            "no|nope|nah|ok|okay|k|well|so|and|but|also|plus|or|then|now|right|alright|sure",
            "thanks|thank you|thx|ta|cheers|please|pls",
            "haha+|lol|lmao|hmm+|hm|mmm*|um+|uh|er|actually|honestly|anyway|btw|by the way|fyi",
            "cool|nice|great|awesome|perfect|good|neat|fine",
            "sorry|oops|aww*|ugh|phew|because|cause|cos|since|though|although|maybe|luckily|sadly",
            "unfortunately|basically|apparently",
            "like|still|just|same|me|exactly|absolutely|definitely|totally|of course",
            "no (?:worries|problem)|speaking of(?: which)?",
            "that's (?:great|cool|awesome|nice|good|neat|amazing|interesting|fun|funny)",
            "sounds (?:good|great|fun|nice|cool)",
        ]
        .join("|")
    ))
});

static AND: LazyLock<Regex> = LazyLock::new(|| {
    compiled(r"^(?:(?:and|but|so|also|oh|well|ok|okay|yes|yeah|actually|btw)\b[, ]*)+")
});
static SELF: LazyLock<Regex> = LazyLock::new(|| {
    any_word(&["i|we|my|our|mine|ours|myself|me|us|im|ive|id (?:rather|like|love|prefer)"])
});
static SUBJECT: LazyLock<Regex> =
    LazyLock::new(|| at_start(&["i|i'm|i've|i'd|i'll|we|we're|we've|my|our|im|ive"]));
static SECOND_PERSON: LazyLock<Regex> = LazyLock::new(|| any_word(&["you|your|u|ur|ya"]));

/// "I will", "he was": an echo of the other speaker, without information of its own.
static ECHO: LazyLock<Regex> = LazyLock::new(|| {
    compiled(concat!(
        r"^(?:i|we|he|she|they|it)(?:'ll|'d|'m|'re|'s|'ve)?",
        r"(?: (?:will|might|may|was|were|did|do|does|have|has|had|can|shall|could|would|should",
        r"|must|am|is|are|really|too|not|so|do (?:that|it|so)))*[\x00-\x2f\x3a-\x60\x7b-\x7f]*$",
    ))
});

/// First-person phrases that keep a conversation going and reveal nothing about the speaker, unless
/// an object follows ([`has_object`]).
static PHATIC_SELF: LazyLock<Regex> = LazyLock::new(|| any_word(SELF_PHRASES));
static PHATIC: LazyLock<Regex> =
    LazyLock::new(|| any_word(&[SELF_PHRASES, OTHER_PHRASES].concat()));
const SELF_PHRASES: &[&str] = &[
    concat!(
        r"i(?:'m| am| do| can| could| will|'ll|'d| would| just| really| totally| completely",
        r"| also| don't| do not| didn't| did not| can't",
        r"| cannot| couldn't| wouldn't| never| always| often| was| did| have to| must| should",
        r"| shall| might| so| very| still| a bit)*",
        r" ?(?:think|guess|hope|know|see|mean|agree|understand|bet|wonder|wondering|believe",
        r"|suppose|imagine|appreciate|hear|got it",
        r"|get it|get that|feel you|relate|figured?|say|said|tell|told|ask|asked|asking",
        r"|remember|forget|forgot|thought|sure|glad|sorry",
        r"|good|fine|ok|okay|great|well|all right|alright|happy (?:for|to|that)",
        r"|excited (?:for|to hear|to see)|proud of|doing|thank",
        r"|wish you|let you|love (?:that|it|this|you)|like (?:that|it|this)|check|keep|try",
        r"|look|have a look|take a look|give it",
        r"|be (?:right )?(?:there|here|back)|see you|talk|chat|catch|miss you|wait|noticed|go now|gotta",
        r"|back|here|confused|lost|ready|done",
        r"|kidding|joking|cried|cry)",
    ),
    concat!(
        r"i(?:'d| would) (?:have (?:said|guessed)|guess|suggest|recommend",
        r"|(?:love|like) to (?:hear|see|know|help|chat|ask))",
    ),
];
const OTHER_PHRASES: &[&str] = &[
    "(?:if|should|can|could|may|do|am|shall) i(?: may| can| could)?|i shouldn't|i needn't",
    concat!(
        "my (?:god|gosh|pleasure|bad|goodness|friend|dear|question|turn|point|guess|fault|word",
        "|mistake|apologies|message|mind)",
    ),
    concat!(
        "(?:tell|give|let|help|show|remind|ask|send|write|find|excuse|trust|believe|explain",
        "|teach|get|bring|walk|talk|pass|hand",
        "|read|text|ping|bear with|forgive|pardon|correct|remember|for|beats|reminds",
        "|surprises?|kill|killing|love|to|tells|told) (?:me|us)",
    ),
    "(?:me|us) (?:too|neither|either)",
];
/// "I can't see": a phatic verb that states a disability when nothing follows.
static LOST_SENSE: LazyLock<Regex> = LazyLock::new(|| {
    compiled(r"^i (?:can't|cannot|can not|can hardly|can barely) (?:see|hear)[\x00-\x2f]*$")
});
/// Words after a phatic phrase that name no object. `text::words` cuts at apostrophes: "don't" is
/// "don" and "t".
static LIGHT: LazyLock<HashSet<&str>> =
    LazyLock::new(|| include_str!("light.txt").split_whitespace().collect());

/// True for a word that adds nothing to a phatic phrase. `word` is in lower case.
pub fn is_light(word: &str) -> bool {
    LIGHT.contains(word)
}

/// "I think running is fun", "I believe in God": an opinion of the speaker's. "I think so" is none.
static OPINION: LazyLock<Regex> =
    LazyLock::new(|| compiled(r"\bi (?:do |really |also |don't |do not )?(?:think|believe) (\w+)"));
/// Words after "I think" that begin no opinion of substance.
const NO_OPINION: &[&str] = &[
    "so", "it", "that", "this", "you", "not", "the", "they", "i", "we", "he", "she", "there", "of",
    "about", "its", "i'll", "i'd", "me", "these", "those", "maybe",
];

static QUESTION: LazyLock<Regex> = LazyLock::new(|| {
    at_start(&[
        "what(?:'?s)?|how(?:'?s)?|who(?:'?s)?|where(?:'?s)?|why|which|whose",
        "when (?:is|are|do|does|did|was|were|can|will|should)",
        "is (?:it|there|that|this|an?|the|he|she)",
        "is \\w+ (?:ok|okay|good|better|worth|safe|bad|enough|free)",
        "are (?:there|they|you|those|these|the)",
        "do (?:they|you|i|we|the|people)|does|did|can (?:you|i|we|it|they|a)|could (?:you|i|we)",
        "would (?:you|it|that)|will (?:it|you|they|that)",
        "should (?:i|we)|shall (?:i|we)|have you|any (?:idea|chance|tips|ideas|suggestions)",
        "isn't|aren't|doesn't|won't|am i",
    ])
});
static REQUEST: LazyLock<Regex> = LazyLock::new(|| {
    at_start(&[
        "give|write|make|tell|show|help|explain|translate|check|list|find|suggest|recommend",
        "summari[sz]e|fix|turn|name|draft|rewrite|proofread",
        "convert|calculate|compare|describe|define|spell|correct|pick|another|again|go on",
        "continue|remind",
    ])
});
/// Plans of the speaker's in the form of a request: "remind me to call Bob". "Remind me what" asks.
static REMINDER: LazyLock<Regex> = LazyLock::new(|| {
    at_start(&[concat!(
        r"(?:(?:can|could|will|would) (?:you|u) (?:please )?)?remind (?:me|us) (?:please )?",
        r"(?:to|not|that \w+ \w+|(?:on|at|in|by|before|after|every|each|next) \w+",
        r"|tomorrow|tonight|(?:mon|tues|wednes|thurs|fri|satur|sun)day)",
    )])
});
static MY: LazyLock<Regex> = LazyLock::new(|| compiled(r"\b(?:my|our) \w"));
static OWN_IN_QUESTION: LazyLock<Regex> = LazyLock::new(|| {
    any_word(&[
        "i'm|i've|i am|i have|we have|we're|we've|i live|i work|i own|i got|we got|i take|i use",
        "i had|as an? \\w+|for an? \\w+ like me",
    ])
});

static PRAISES: LazyLock<Regex> = LazyLock::new(|| {
    at_start(&[
        "thanks?|thank you|congrats|congratulations|sounds",
        "that(?:'s| is| sounds| must| seems)|glad|good (?:luck|job|idea|for you)|way to go",
        "you(?:'re| are)|love (?:that|it)|so (?:happy|glad|proud|excited)|got it|makes sense",
        "i agree|keep (?:it )?up|best of luck",
        "i'm (?:so |really )?(?:glad|happy|proud|sorry|excited) (?:for|to hear|that you|you)",
        "can't wait to (?:see|hear)|have a",
    ])
});

/// Sentences about other people and named things: a user who mentions them to an assistant expects
/// the assistant to know them later.
static THIRD_PERSON: LazyLock<Regex> = LazyLock::new(|| {
    at_start(&[
        r"(?:he|she|they)(?:'s|'d|'ve|'re| \w+)|(?:his|her|their) \w+",
        concat!(
            r"[a-z_]+(?:'s \w+| and \w+)? (?:works?|lives?|lived|likes|loves|hates|has|owns?",
            r"|plays?|studies|teaches|drives?|drove|wants|needs",
            r"|moved|bought|got|started|quit|died|married|born|speaks|eats|drinks|says|uses|runs",
            r"|goes|comes|came|left|turned|turns|was born",
            r"|is (?:called|named|in|at|on|from|allergic|an?|my|our|the)|can't|doesn't|won't",
            r"|isn't)",
        ),
        concat!(
            r"the [\w-]+(?: [\w-]+)? (?:is|are|was|runs?|uses?|costs?|starts?|ends?|closes?",
            r"|opens?|expires?|moved|has|lives?|must) ",
            r"(?:in|at|on|an?|from|under|called|named|now|due)",
        ),
        concat!(
            r"the [\w-]+(?: [\w-]+)? (?:ha(?:s|ve) \w+|(?:was|were|got|has been|have been) \w+ed",
            r"|went \w+)",
        ),
        concat!(
            r"(?:mum|mom|mummy|mommy|dad|daddy|grandma|grandpa|granny|nan|auntie|hubby|wifey)",
            r"(?:'s| is| was| has| had| needs| went)",
        ),
        concat!(
            r"[a-z_]+'s (?:been|gone|given|left|moved|quit|retired|had|bought|sold|lost|won|having",
            r"|getting|expecting) \w+",
        ),
        r"[a-z_]+(?: \w+)? (?:is|are) (?:not )?\w+ now",
        // Things of the speaker's work and home: "the client is Japanese".
        r"the (?:client|customer|boss|tenant|landlord|password|code|pin|deadline|budget)(?:'s| is| was)",
    ])
});
/// Things of a project and what they do: "auth.js depends on jwt.js", "this API uses port 3000".
static TECHNICAL: LazyLock<Regex> = LazyLock::new(|| {
    at_start(&[concat!(
        r"(?:(?:the|this|our|each|every) )?[\w./-]+(?: [\w./-]+){0,2} (?:uses?|depends? on|requires?",
        r"|contains?|imports?|extends|implements|inherits|supports|runs? on|listens? on",
        r"|connects? to|writes? to|reads? from|handles?|exposes?|returns?|creates?|validates?",
        r"|proxies to|is migrating|are migrating|migrated|is written in|lives? in) [\w./-]+",
    )])
});
/// Words in the place of a thing: "it uses a lot", "that handles it".
static NO_THING: LazyLock<Regex> = LazyLock::new(|| {
    at_start(&["it|that|there|he|she|they|everyone|everything|nothing|something|life|which"])
});
/// Third-person sentences that only give a judgement or a guess: "he's so cute".
static JUDGES: LazyLock<Regex> = LazyLock::new(|| {
    at_start(&[
        "it|that|this|what|who|how|there|here|everyone|nobody|everything|nothing|you|sounds|which",
        "where|when|why|life|time|one|someone|somebody",
        "luck|is|are|do|does|did|can|if|(?:he|she|they)(?:'ll|'d| will| would| must| should)",
        concat!(
            r"(?:he|she|they)(?:'s| is| was|'re| are| were| sounds?| looks?| seems?)",
            r"(?: \w+ly| so| very| such| too| an?| still| quite| just)*",
            " (?:great|good|nice|cute|adorable|lovely|sweet|amazing|awesome|funny|fun|beautiful",
            "|cool|happy|saint|star|angel|legend|right|wrong",
            "|fine|ok|okay|going to|gonna|gorgeous|himself|herself)",
        ),
    ])
});
static SPECIFIC: LazyLock<Regex> =
    LazyLock::new(|| any_word(&[WEEKDAYS, "christmas|easter|midnight|noon|called|named", MONTHS]));

/// Traits and conditions of a person.
static STATE: LazyLock<Regex> = LazyLock::new(|| {
    any_word(&[
        "allergic|allergy|intolerant|vegetarian|vegan|coeliac|celiac|diabetic|pregnant|left-handed",
    ])
});
/// Beginnings of a clause whose left-out subject is the speaker.
static ELLIPTIC: LazyLock<Regex> = LazyLock::new(|| {
    at_start(&[
        "not (?:an?|into|keen on|fond of|married) \\w+",
        "live|lived|living|work|worked|working|moved|born|grew up|bought|sold|own|drive|drove",
        "quit|married|divorced|studied|studying|teach",
        "teaching|prefer|hate|speak|smoke|play|played|retired|widowed|single|engaged",
        "self-employed|unemployed|deaf|blind|based|from|currently",
        "trying to|used to|just (?:got|came|moved|started|finished|bought|back from)|watching",
        "signed|enrolled|diagnosed|lactose|getting married",
        "started|expecting|renting|saving for|training for|learning|had (?:my|an?|the|to|our)",
        "wished|have (?:two|three|four|no|to)|(?:it's|its|having) (?:an? (?:girl|boy)|twins)|sent \\w+$",
        concat!(
            "(?:finished|updated|cancelled|canceled|removed|deleted|dropped|changed|switched|renewed",
            "|submitted|installed|passed|failed|booked|ordered|paid|sent|adopted|hired|chose|picked)",
            " (?:my|our|the|an?|to|off|it|in|\\w+ (?:to|for|with|in|on|from|with))",
        ),
        "(?:keeping|sending|selling|dropping|skipping|going with|sticking with|switching to) \\w+",
        r"(?:two|three|four|five|six|seven|eight|nine|ten) \w+$",
        concat!(
            "got (?:an?|the|two|three|four|my|our|married|divorced|promoted|fired|engaged|back|in",
            "|off|done)|need(?:ed)? (?:an?|my|new|two)",
        ),
    ])
});
static NEGATED: LazyLock<Regex> = LazyLock::new(|| {
    compiled(concat!(
        r"^(?:don'?t|doesn'?t|do not|can'?t|cannot|won't|didn'?t|never|haven'?t|hasn'?t|wasn't|isn't|no",
        r"|have an?) ([a-z_]+)",
    ))
});
/// An order of one word or two: "use Serie".
static USE: LazyLock<Regex> =
    LazyLock::new(|| compiled(r"^(?:use|avoid|stick to|stick with) ([a-z_]+)(?: \w+)?$"));
/// A decision of several: "let's use PostgreSQL", "decided to use React".
static DECIDED: LazyLock<Regex> = LazyLock::new(|| {
    compiled(concat!(
        r"^(?:let'?s|decided to) (?:use|adopt|drop|go with|stick with|stick to|switch to",
        r"|migrate to|move to|deploy to|host on|build on|store \w+ in) ([a-z_]+)",
    ))
});
/// Words that name nothing by themselves.
const POINTS: &[&str] =
    &["it", "that", "this", "them", "those", "these", "one", "both", "whatever", "yours"];
static NOT_DOING: LazyLock<Regex> = LazyLock::new(|| compiled(r"^(?:still )?not ([a-z]+ing)\b"));
/// Words after "not" that begin an idiom: "not going to lie".
const JOKING: &[&str] = &[
    "kidding",
    "joking",
    "lying",
    "saying",
    "going",
    "bothering",
    "complaining",
    "judging",
    "feeling",
    "anything",
    "something",
    "everything",
    "nothing",
    "bring",
    "thing",
];
static WANTED: LazyLock<Regex> = LazyLock::new(|| compiled(r"^(?:want|need)(?:ed)? to ([a-z_]+)"));
/// Wishes of the moment, such as "need to go", which are no lasting facts.
const WANTED_NOW: &[&str] = &[
    "go", "run", "sleep", "eat", "leave", "know", "hear", "ask", "see", "say", "check", "think",
    "be",
];
/// Words after a match of [`NEGATED`] that make an idiom without information: "don't worry",
/// "no idea", "have a nice day".
const IDIOM_REST: &[&str] = &[
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
    fn phatic_phrases_are_no_statements() {
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
    fn a_question_without_a_question_mark_asks() {
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

//! Extracts memories and an episode from the last messages of a conversation, with an importance
//! and a confidence for each memory. Pure.
//!
//! Regular expressions replace the language model of Alma's article. A model with the same input
//! (`&[Message]`) and output ([`Extracted`], [`Episode`]) could take their place.

use crate::shared::pattern;
use crate::shared::wording::{
    content, is_courtesy, is_frame, only_asks, overlap, specifics, stems,
};
use domain::{Kind, Memory, MemoryId, Role};
use regex::Regex;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gate {
    /// Messages of the assistant between two extractions.
    pub every_answers: usize,
    /// Last messages, of user and assistant, that an extraction reads.
    pub messages: usize,
    pub memories_max: usize,
    /// Days after which the read messages of other conversations are removed.
    pub window_days: f32,
    /// Importance: critical, then useful by category, then minor, then noise: a mere mention. Below
    /// `importance_min` a sentence makes no memory.
    pub critical: f32,
    pub project: f32,
    pub decision: f32,
    pub preference: f32,
    pub fact: f32,
    pub minor: f32,
    pub noise: f32,
    pub importance_min: f32,
    /// Confidence in the user's own statements (`stated`) and in the assistant's (`inferred`).
    pub stated: f32,
    pub inferred: f32,
    /// Smallest share of common keywords that makes a duplicate, and the fewest keywords for which
    /// the share is computed.
    pub same_overlap: f32,
    pub same_keywords_min: usize,
}

/// A sentence of a message, or a larger part of a long one.
#[derive(Clone, Debug)]
pub struct Message<'a> {
    pub role: Role,
    pub content: &'a str,
    /// The kind that the sender gave. A hint overrides the category found in the text.
    pub hint: Option<&'a Kind>,
    /// False for a message that has been extracted: no second memory is made of its words.
    pub is_open: bool,
    /// CandidateInput since the last extraction.
    pub is_new: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Extracted {
    /// Index of the message.
    pub message: usize,
    pub category: Kind,
    pub importance: f32,
    pub confidence: f32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Episode {
    /// Index of the user's new message with the most recurring keywords, which serves as the
    /// summary.
    pub message: usize,
    pub topics: Vec<String>,
    /// Index of the last new message that reports a result.
    pub outcome: Option<usize>,
}

/// Field of an episode's metadata with the topics, separated by commas.
pub const TOPICS: &str = "topics";
const TOPICS_MAX: usize = 3;
/// A word of fewer letters names no topic.
const TOPIC_LETTERS_MIN: usize = 3;

/// Words that recur in talk about anything.
const NO_TOPIC: &[&str] = &[
    "always",
    "any",
    "bit",
    "come",
    "day",
    "does",
    "don't",
    "every",
    "fine",
    "first",
    "get",
    "give",
    "going",
    "hmm",
    "it's",
    "i'm",
    "i've",
    "just",
    "know",
    "last",
    "let's",
    "look",
    "lot",
    "made",
    "make",
    "maybe",
    "much",
    "need",
    "never",
    "new",
    "next",
    "now",
    "one",
    "right",
    "said",
    "see",
    "some",
    "something",
    "still",
    "take",
    "tell",
    "that's",
    "thing",
    "things",
    "think",
    "time",
    "today",
    "tomorrow",
    "try",
    "two",
    "user",
    "want",
    "way",
    "week",
    "work",
    "works",
    "yesterday",
];

/// Content words from which on a mere mention is worth a memory.
const MENTION_WORDS: usize = 3;

static PROJECT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?i)\b(migrat|build|develop|launch|refactor|deploy|redesign)(e|es|ed|ing)?\b",
        r"|\b(project|roadmap|sprint|milestone|release)\b",
    ))
});

static DECISION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)\b(decided|agreed|chose|going with|let['’]s (use|go)|we['’]ll use|settled on)\b")
});

static PREFERENCE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)\b(prefer(s|red)?|favou?rite|(like|love|hate|dislike)s?|always|never)\b")
});

static FACT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?i)\b(i|we|my|our|user)\b.*",
        r"\b(am|is|are|was|have|has|lives?|works?|uses?|owns?|moved)\b|\bi['’]m\b",
    ))
});

static MINOR: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)\b(mentioned|said|told|talked about|tried|bought|saw|met)\b"));

/// Matches critical information: a deadline, a danger, or a change in progress.
static CRITICAL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?i)\b(allerg\w+|deadline|critical|must|never|migrat\w+|production|emergency|password",
        r"|this quarter)\b",
    ))
});

static ENDED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)\b(root cause|fixed|solved|resolved|works now|it works|done|decided|agreed)\b")
});

/// Returns up to `memories_max` memories, the most important first; ties keep the messages' order.
pub fn extract(gate: &Gate, messages: &[Message<'_>]) -> Vec<Extracted> {
    let open = messages.iter().enumerate().filter(|(_, message)| message.is_open);
    let found = open.filter_map(|(place, message)| {
        let category =
            message.hint.cloned().or_else(|| category(message.content).map(Kind::new))?;
        let importance = importance(gate, message.content, category.as_str());
        let confidence = if message.role == Role::User { gate.stated } else { gate.inferred };
        (importance >= gate.importance_min).then_some(Extracted {
            message: place,
            category,
            importance,
            confidence,
        })
    });
    let mut found: Vec<Extracted> = found.collect();
    found.sort_by(|a, b| b.importance.total_cmp(&a.importance).then(a.message.cmp(&b.message)));
    found.truncate(gate.memories_max);
    found
}

/// Summarises the new messages as an episode, with the topics of all messages, or returns `None` if
/// no keyword occurs twice. The windows overlap, and two episodes should not quote the same message.
pub fn episode(messages: &[Message<'_>]) -> Option<Episode> {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for message in messages {
        keywords(message.content).into_iter().for_each(|word| *times.entry(word).or_default() += 1);
    }
    let new = messages.iter().enumerate().filter(|(_, message)| message.is_new);
    let of_user = new.filter(|(_, message)| message.role == Role::User);
    let (message, _) = of_user.max_by_key(|(place, message)| {
        let recurring: usize = keywords(message.content).iter().map(|word| times[word]).sum();
        (recurring, usize::MAX - place)
    })?;
    let mut topics: Vec<(usize, String)> =
        times.into_iter().filter(|(_, count)| *count > 1).map(|(word, n)| (n, word)).collect();
    topics.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    let topics: Vec<String> = topics.into_iter().take(TOPICS_MAX).map(|(_, word)| word).collect();
    let outcome = messages.iter().rposition(|message| {
        message.is_new && ENDED.is_match(message.content) && !message.content.ends_with('?')
    });
    (!topics.is_empty()).then_some(Episode { message, topics, outcome })
}

/// Returns the words of a text that may name a topic.
fn keywords(text: &str) -> BTreeSet<String> {
    let words = content(text).into_iter().map(|word| word.to_lowercase().replace('’', "'"));
    words
        .filter(|word| {
            word.chars().count() >= TOPIC_LETTERS_MIN
                && !is_frame(word)
                && !NO_TOPIC.contains(&word.as_str())
        })
        .collect()
}

/// Returns the topics of an episode.
pub fn topics_of(memory: &Memory) -> impl Iterator<Item = &str> {
    let topics = memory.metadata.get(TOPICS).into_iter().flat_map(|topics| topics.split(','));
    topics.map(str::trim).filter(|topic| !topic.is_empty())
}

/// Finds the newest memory whose keywords have a Jaccard similarity of at least `same_overlap` with
/// the text (<https://en.wikipedia.org/wiki/Jaccard_index>).
pub fn same(gate: &Gate, content: &str, memories: &[Memory]) -> Option<MemoryId> {
    let keywords = stems(content);
    let same = memories.iter().rev().find(|memory| {
        let known = stems(&memory.content);
        keywords.len().min(known.len()) >= gate.same_keywords_min
            && overlap(&known, &keywords) >= gate.same_overlap
    });
    same.map(|memory| memory.id)
}

fn importance(gate: &Gate, content: &str, category: &str) -> f32 {
    match category {
        _ if CRITICAL.is_match(content) => gate.critical,
        "project" => gate.project,
        "decision" => gate.decision,
        "preference" => gate.preference,
        "fact" if FACT.is_match(content) => gate.fact,
        "fact" if is_noise(content) => gate.noise,
        _ => gate.minor,
    }
}

/// True for a few words around a name that state nothing. A number may be an appointment.
fn is_noise(text: &str) -> bool {
    !MINOR.is_match(text)
        && !text.contains(|c: char| c.is_ascii_digit())
        && content(text).len() < MENTION_WORDS
}

/// Returns the category of a text, or `None` for a question, a courtesy or a text without content.
pub fn category(text: &str) -> Option<&'static str> {
    match () {
        () if is_courtesy(text) || only_asks(text) => None,
        () if PROJECT.is_match(text) => Some("project"),
        () if DECISION.is_match(text) => Some("decision"),
        () if PREFERENCE.is_match(text) => Some("preference"),
        () if CRITICAL.is_match(text) || FACT.is_match(text) || MINOR.is_match(text) => {
            Some("fact")
        }
        () if !specifics(text).is_empty() => Some("fact"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::samples::{memory, shipped_gate};

    fn gate() -> Gate {
        shipped_gate("alma")
    }

    fn message(role: Role, content: &str) -> Message<'_> {
        Message { role, content, hint: None, is_open: true, is_new: true }
    }

    fn extracted(content: &str) -> Option<(String, f32)> {
        let found = extract(&gate(), &[message(Role::User, content)]);
        found.first().map(|one| (one.category.as_str().to_owned(), one.importance))
    }

    #[test]
    fn every_5_answers_the_last_20_messages_are_read_for_0_to_10_memories() {
        assert_eq!((gate().every_answers, gate().messages, gate().memories_max), (5, 20, 10));
        let many: Vec<String> = (0..20).map(|n| format!("I prefer plan number {n}")).collect();
        let messages: Vec<Message<'_>> =
            many.iter().map(|text| message(Role::User, text)).collect();
        let found = extract(&gate(), &messages);
        assert_eq!(
            found.iter().map(|one| one.message).collect::<Vec<_>>(),
            (0..10).collect::<Vec<_>>()
        );
        assert_eq!(
            extract(&gate(), &[message(Role::User, "ok"), message(Role::Assistant, "What else?")]),
            []
        );
    }

    /// Holds alma 4, 5.
    #[test]
    fn critical_is_0_9_or_more_useful_0_5_to_0_8_and_minor_below_0_5() {
        for (content, category, importance) in [
            ("User is migrating to PostgreSQL this quarter", "project", 0.9),
            ("Migrating auth to PostgreSQL", "project", 0.9),
            ("Prefers concise code reviews", "preference", 0.7),
            ("User mentioned coffee", "fact", 0.3),
        ] {
            assert_eq!(extracted(content), Some((category.to_owned(), importance)), "{content:?}");
        }
        let gate = gate();
        assert!(gate.critical >= 0.9 && gate.minor < 0.5);
        for useful in [gate.project, gate.decision, gate.preference, gate.fact] {
            assert!((0.5..=0.8).contains(&useful), "{useful}");
        }
        assert_eq!(extracted("We decided on tea"), Some(("decision".to_owned(), gate.decision)));
    }

    /// Holds alma 8.
    #[test]
    fn a_mere_mention_is_below_the_threshold() {
        assert!(gate().noise < gate().importance_min && gate().importance_min <= gate().minor);
        assert_eq!(extracted("So, TypeScript again"), None);
        for said in ["User mentioned coffee", "Flight LH1234", "TypeScript services in Porto"] {
            assert!(extracted(said).is_some(), "{said}");
        }
        let mention = [message(Role::User, "So, TypeScript again")];
        let all = Gate { importance_min: 0.0, ..gate() };
        assert_eq!(extract(&all, &mention)[0].importance, gate().noise);
    }

    #[test]
    fn a_message_that_was_extracted_makes_no_second_memory() {
        let said = Message { is_open: false, ..message(Role::User, "I prefer TypeScript") };
        assert_eq!(extract(&gate(), &[said]), []);
    }

    #[test]
    fn an_episode_quotes_what_was_said_since_the_last_one() {
        fn read(role: Role, content: &str) -> Message<'_> {
            Message { is_new: false, ..message(role, content) }
        }
        let messages = [
            read(Role::User, "The auth middleware rejects every token of the middleware"),
            read(Role::Assistant, "The auth middleware is fixed"),
            message(Role::User, "Now the auth test fails"),
            message(Role::Assistant, "I see"),
        ];
        let episode = episode(&messages).expect("keywords recur in these messages");
        assert_eq!((episode.message, episode.outcome), (2, None));
        assert_eq!(episode.topics, ["auth", "middleware"], "of the whole window");
    }

    #[test]
    fn beyond_10_memories_the_most_important_ones_are_kept() {
        let many: Vec<String> = (0..10)
            .map(|n| format!("User mentioned Plan{n}"))
            .chain(["The deadline is in May".into()])
            .collect();
        let messages: Vec<Message<'_>> =
            many.iter().map(|text| message(Role::User, text)).collect();
        let found = extract(&gate(), &messages);
        assert_eq!((found.len(), found[0].message), (10, 10));
    }

    /// Holds alma 21.
    #[test]
    fn confidence_is_1_0_for_stated_and_0_7_for_inferred_memories() {
        fn of(role: Role) -> f32 {
            extract(&gate(), &[message(role, "I prefer TypeScript")])[0].confidence
        }
        assert_eq!((of(Role::User), of(Role::Assistant)), (1.0, 0.7));
    }

    /// Holds alma 12, 13.
    #[test]
    fn duplicates_have_60_percent_of_their_keywords_in_common_and_at_least_3() {
        fn same_at(overlap: f32, known: &str, new: &str) -> bool {
            same(&Gate { same_overlap: overlap, ..gate() }, new, &[memory(1, "preference", known)])
                .is_some()
        }
        assert_eq!((gate().same_overlap, gate().same_keywords_min), (0.60, 3));
        let distinct = ("User prefers TypeScript", "User prefers functional patterns");
        assert!(same_at(0.40, distinct.0, distinct.1), "40 % merges distinct memories");
        assert!(!same_at(0.60, distinct.0, distinct.1));
        let printed = ("prefers TypeScript", "prefers functional patterns");
        assert!(!same_at(0.40, printed.0, printed.1), "as printed, they have too few keywords");
        let obvious = (
            "User prefers TypeScript in new services",
            "User strongly prefers TypeScript in services",
        );
        assert!(same_at(0.60, obvious.0, obvious.1));
        assert!(!same_at(0.80, obvious.0, obvious.1), "80 % lets obvious duplicates through");
        assert!(
            !same_at(0.60, "prefers TypeScript", "prefers TypeScript"),
            "two keywords are too few to compare"
        );
    }

    /// Holds alma 9.
    #[test]
    fn an_episode_has_a_summary_topics_and_an_outcome() {
        let messages = [
            message(Role::User, "The auth middleware rejects every token"),
            message(Role::Assistant, "Let me look at the middleware"),
            message(Role::User, "auth was fine yesterday"),
            message(Role::Assistant, "Root cause was a missing await"),
        ];
        let episode = episode(&messages).expect("keywords recur in these messages");
        assert_eq!((episode.message, episode.outcome), (0, Some(3)));
        assert_eq!(episode.topics, ["auth", "middleware"]);
        assert_eq!(
            super::episode(&[message(Role::User, "hm"), message(Role::Assistant, "ok")]),
            None
        );
    }
}

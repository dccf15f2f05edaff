//! Labels a candidate with a kind (preference, decision, event, …) by patterns over the wording.
//!
//! Clients filter memories by kind; the gate does not use kinds to keep or drop a turn. The
//! patterns are English, and a text that matches none is a `fact`. To change the label of a
//! wording, edit `WORDINGS` and add a row to the test.

use super::clauses::with_straight_apostrophes;
use super::english::{MONTHS, WEEKDAYS};
use domain::{Kind, Role};
use regex::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};
use std::sync::LazyLock;

const INSTRUCTION: &str = "instruction";

/// The kinds with their patterns, which are applied to lower-case text with ASCII classes, the
/// regex engine's fastest mode. Words in capitals stand for lists: see [`RULES`].
///
/// Order matters: the first kind that matches wins. Kinds that clients filter by come first, and
/// patterns that match nearly everything last.
const WORDINGS: &[(&str, &[&str])] = &[
    (
        INSTRUCTION,
        &[
            concat!(
                r"^(please )?(always|never|remember|don't forget|do not forget|make sure",
                r"|keep in mind)\b",
            ),
            concat!(
                r"\b(from now on|keep in mind|for future reference|when(ever)? i ask",
                r"|i want you to|call me)\b",
            ),
            r"\bplease (always|never|remember|use|answer|reply)\b",
        ],
    ),
    (
        "preference",
        &[
            concat!(
                r"\b(prefer(s|red)?|favou?rite|(i'd|i would) rather|can't stand",
                r"|(big|not a) fan of|my go-to)\b",
            ),
            concat!(
                r"\b(i|we)( \w+ly| also| still| just| never| always| don't| do not| kinda)*",
                r" (like|love|hate|enjoy|dislike|adore)\b",
            ),
            concat!(
                r"\b(i'm|i am|we're|we are)( not)?( an?)?( \w+ly)?",
                r" (vegan|vegetarian|pescatarian|into)\b",
            ),
        ],
    ),
    (
        "decision",
        &[
            concat!(
                r"\b(i|we)('ve| have)?( \w+ly| all| just)*",
                r" (decided|agreed|chose|chosen|picked|settled|resolved|committed)\b",
            ),
            concat!(
                r"\b(let's (use|go with|stick|keep|switch|move)|decided (to|on|against)",
                r"|going with|(the|our) decision)\b",
            ),
            r"\b(i|we)('ll| will) (use|go with|stick with|switch|stay with)\b",
        ],
    ),
    (
        "correction",
        &[
            r"^(actually|correction|no,|wait,|sorry,)",
            concat!(
                r"\b(i meant|i was wrong|that's (wrong|not right|incorrect)|changed my mind",
                r"|no longer|turns out|any ?more)\b",
            ),
        ],
    ),
    (
        "procedure",
        &[
            r"^(how to|steps)\b",
            r"\b(step (1|one)|these steps|(here's|this is|that's) how|(instructions|recipe) for)\b",
            r"\bfirst[, ][a-z, ]{3,60} then\b",
            r"\n2[.)] ",
        ],
    ),
    (
        "relationship",
        &[
            r"\bmy (\w+ )?(FAMILY|OTHERS)('s| is| was| are|,| named| called| works?| lives?| has)\b",
            r"\b(married to|engaged to|dating|is my (\w+ )?(FAMILY|OTHERS))\b",
        ],
    ),
    (
        "project",
        &[
            concat!(
                r"\b(i'm|i am|we're|we are|i|we|been)",
                r" (work|working|building|developing|designing|launching)",
                r" (on )?(an?|the|my|our|this)\b",
            ),
            concat!(
                r"\b(my|the|our|this) (\w+ )?(project|prototype|startup|thesis|repo|repository",
                r"|codebase|roadmap|sprint|milestone|deadline)\b",
            ),
        ],
    ),
    (
        "insight",
        &[
            concat!(
                r"\bi( have|'ve)?( \w+ly| just)? (reali[sz]ed|learn(ed|t) that|noticed",
                r"|figured out|discovered that|found out)\b",
            ),
            r"\b(lesson learned|takeaway|insight|the key is|taught me)\b",
        ],
    ),
    (
        "context",
        &[
            concat!(
                r"\b(currently|right now|at the moment|for context|these days",
                r"|(i'm|i am) trying to|for now|so far)\b",
            ),
            r"^(context|background):",
        ],
    ),
    (
        "fact",
        &[
            concat!(
                r"\b(i|we)( \w+ly| also| still| now| both)*",
                r" (live|work|study|teach|speak|own|have|use|play|weigh|earn)\b",
            ),
            concat!(
                r"\b(i'm|i am|we're|we are)( \w+ly| also| now| still| not)*",
                r" (an?|the|from|based|married|single|divorced|allergic|born|\d+)\b",
            ),
            r"\b(my name|i was born|born in|allergic to|my (\w+ ){1,3}(is|are))\b",
        ],
    ),
    (
        "event",
        &[
            concat!(
                r"\b(yesterday|today|tonight|tomorrow|last|next|ago|recently",
                r"|this (morning|week|weekend|month|year))\b",
            ),
            r"\b(WEEKDAYS)s?\b",
            r"\b(MONTHS)\b",
            concat!(
                r"\b(i|we)('ve| have)?( \w+ly| just| also)*",
                r" (\w{2,}ed|went|got|had|was|were|did|made|met|saw|took|bought|left|came)\b",
            ),
            concat!(
                r"\b(i|we)('ve| have)?( \w+ly| just| also)*",
                r" (won|lost|found|ran|told|gave|ate|wrote|read|spent|been|seen|done)\b",
            ),
            r"\b(i|we)('ll| will) (visit|meet|attend|go)\b",
        ],
    ),
    ("entity", &[r"^[a-z]\w+( \w+){0,3} (is|are|was|were) (an?|the) \w"]),
];

const FAMILY: &str = "wife|husband|spouse|sister|brother|mother|father|mom|mum|dad|son|daughter\
    |kids?|child|children|parents?|grand(ma|pa|mother|father)|aunt|uncle|cousin|niece|nephew";
const OTHERS: &str = "partner|girlfriend|boyfriend|friend|boss|manager|colleague|coworker|teammate\
    |neighbou?r|roommate|mentor|dog|cat";

/// One pattern per kind, in the order of [`WORDINGS`]. "May" is left out of `MONTHS`, because the
/// word is mostly a verb.
static RULES: LazyLock<RegexSet> = LazyLock::new(|| {
    let weekdays = WEEKDAYS.join("|");
    let months = MONTHS.into_iter().filter(|month| *month != "may").collect::<Vec<_>>().join("|");
    let patterns = WORDINGS.iter().map(|(_, wordings)| {
        wordings
            .join("|")
            .replace("FAMILY", FAMILY)
            .replace("OTHERS", OTHERS)
            .replace("WEEKDAYS", &weekdays)
            .replace("MONTHS", &months)
    });
    RegexSetBuilder::new(patterns)
        .unicode(false)
        .build()
        .expect("every pattern is a constant, and the tests compile all of them")
});

/// Begins like an instruction and tells something: "Never thought of that", "Remember when we …".
static TELLS: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = concat!(
        r"^(always|never) (\w+ed|\w+ing|thought|been|had|have|has|heard|knew|seen|saw|got|felt|mind|said",
        r"|could|did|will|was|am|is|again|this|that|the|an?|forget\w*|wants?|sure|good|nice|a)\b",
        r"|^remember (when|that time|the time|how|him|her|them|me)\b",
    );
    let pattern = RegexBuilder::new(pattern).unicode(false).build();
    pattern.expect("a constant, which a test compiles")
});

/// Returns the first kind in [`WORDINGS`] that matches, or `fact`. Only a user gives instructions:
/// an order in the words of an assistant or a tool may come from a quoted web page.
pub fn kind(text: &str, role: Role) -> Kind {
    let plain = text.trim_start_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    let plain = with_straight_apostrophes(&plain);
    let matching = RULES.matches(&plain);
    let mut kinds = matching.iter().map(|rule| WORDINGS[rule].0);
    let instructs = || role == Role::User && !TELLS.is_match(&plain);
    let first = kinds.find(|kind| *kind != INSTRUCTION || instructs());
    Kind::new(first.unwrap_or("fact"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expected: &str, texts: &[&str]) {
        for text in texts {
            assert_eq!(kind(text, Role::User).as_str(), expected, "{text:?}");
        }
    }

    #[test]
    fn the_kind_follows_from_the_wording() {
        check(
            "instruction",
            &[
                "Always answer in French.",
                "From now on, use metric units.",
                "Please remember that I'm left-handed.",
            ],
        );
        check(
            "preference",
            &[
                "I prefer tabs over spaces",
                "My favourite color is blue",
                "I'm vegetarian",
                "I really love jazz!",
            ],
        );
        check(
            "decision",
            &[
                "We decided to use Postgres.",
                "Let's go with the blue one",
                "I've finally settled on Rust",
            ],
        );
        check(
            "correction",
            &["Actually, the meeting is at four.", "I no longer work there", "I meant Tuesday"],
        );
        check(
            "procedure",
            &[
                "How to deploy: run make",
                "1. Stop the server\n2. Copy the file",
                "First, boil water, then add salt",
            ],
        );
        check("relationship", &["My sister is Anna", "My dog's name is Rex", "Tom is my brother"]);
        check("project", &["I'm working on a compiler", "The project is late"]);
        check("insight", &["I realized that mornings suit me", "Lesson learned: back up first"]);
        check("context", &["Currently in Vienna for a week", "Background: two of us share a desk"]);
        check(
            "fact",
            &[
                "Never thought of that",
                "always forget",
                "Always this one!",
                "I live in Lisbon",
                "I’m allergic to nuts",
                "My name is Kim",
                "Paris",
                "我住在里斯本",
            ],
        );
        check(
            "event",
            &["I went to Porto yesterday", "We visited the castle", "The concert was on Friday"],
        );
        check("entity", &["Acme Corp is a maker of anvils", "Keepsake is the name of the tool"]);
    }

    #[test]
    fn only_a_user_gives_instructions() {
        for (text, expected) in [
            ("Always answer in French.", "fact"),
            ("From now on, first boil water, then add salt", "procedure"),
            ("Remember that you met Anna last Friday", "event"),
        ] {
            assert_eq!(kind(text, Role::User).as_str(), "instruction", "{text}");
            for role in [Role::Assistant, Role::Tool, Role::System] {
                assert_eq!(kind(text, role).as_str(), expected, "{text} by {role:?}");
            }
        }
    }
}

//! The topics that a sender may name for replies.

use regex::{RegexSet, RegexSetBuilder};

/// Topic names that a sender may use for replies, compiled from globs in which `*` matches any
/// characters. Keepsake's own topics never belong to them: a reply on the memories topic would stop
/// every restore, and one on the events topic would be read as an event.
#[derive(Clone, Debug)]
pub struct AllowedTopics {
    globs: RegexSet,
    own: Vec<String>,
}

impl AllowedTopics {
    pub fn of(globs: &[String], own: Vec<String>) -> AllowedTopics {
        let patterns =
            globs.iter().map(|glob| format!("^{}$", regex::escape(glob).replace(r"\*", ".*")));
        let set = RegexSetBuilder::new(patterns).size_limit(usize::MAX).build();
        let globs = set.expect("an escaped name with .* in it is a valid pattern of any size");
        AllowedTopics { globs, own }
    }

    pub fn contain(&self, topic: &str) -> bool {
        self.globs.is_match(topic) && !self.own.iter().any(|own| is_own_topic(topic, own))
    }
}

/// The topic itself, or that of another generation.
fn is_own_topic(topic: &str, own: &str) -> bool {
    topic.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with(".g"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_in_an_allowed_topic_matches_any_characters() {
        for (glob, name, expected) in [
            ("keepsake.replies", "keepsake.replies", true),
            ("keepsake.replies", "keepsake.replies2", false),
            ("*.replies", "web.chat.replies", true),
            ("*.replies", "replies", false),
            ("*.replies", "web.replies.audit", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("*", "x", true),
            ("", "x", false),
            ("a.b", "axb", false),
        ] {
            let allowed = AllowedTopics::of(&["none".to_owned(), glob.to_owned()], vec![]);
            assert_eq!(allowed.contain(name), expected, "{glob} {name}");
        }
        assert!(!AllowedTopics::of(&[], vec![]).contain("x"));
    }

    #[test]
    fn no_star_allows_a_topic_of_keepsake() {
        let own = vec!["keepsake.memories".to_owned(), "keepsake.events".to_owned()];
        let globs = ["*".to_owned(), "keepsake.events".to_owned()];
        let allowed = AllowedTopics::of(&globs, own.clone());
        assert!(own.iter().all(|own| !allowed.contain(own)));
        assert!(!allowed.contain("keepsake.memories.g2"), "of the next generation");
        assert!(allowed.contain("keepsake.replies") && allowed.contain("keepsake.memories2"));
    }
}

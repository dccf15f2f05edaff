//! Conditions of a request on the memories that it returns: their metadata, session and age.

use super::{Memory, Time};
use std::cmp::Ordering;

/// Conditions that all hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter(pub Vec<Condition>);

#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// On the value that the metadata has under a name.
    Metadata(String, Test),
    Session(Test),
    CreatedAt(Bound, Time),
}

/// A test of a text, or of the number that it spells. Only `Differs` holds where there is no text.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    Equals(String),
    Differs(String),
    Among(Vec<String>),
    /// By number if the limit is one, and otherwise by characters.
    Within(Bound, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    Above,
    AtLeast,
    Below,
    AtMost,
}

impl Filter {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn holds(&self, memory: &Memory) -> bool {
        self.0.iter().all(|condition| condition.holds(memory))
    }
}

impl Condition {
    pub fn holds(&self, memory: &Memory) -> bool {
        match self {
            Condition::Metadata(name, test) => {
                test.holds(memory.metadata.get(name).map(String::as_str))
            }
            Condition::Session(test) => test.holds(memory.session.as_deref()),
            Condition::CreatedAt(bound, time) => bound.holds(memory.created_at.cmp(time)),
        }
    }
}

impl Test {
    fn holds(&self, found: Option<&str>) -> bool {
        let Some(found) = found else { return matches!(self, Test::Differs(_)) };
        match self {
            Test::Equals(wanted) => found == wanted,
            Test::Differs(other) => found != other,
            Test::Among(several) => several.iter().any(|one| one == found),
            Test::Within(bound, limit) => match limit.parse::<f64>() {
                Ok(limit) => {
                    let order = found.parse::<f64>().ok().and_then(|it| it.partial_cmp(&limit));
                    order.is_some_and(|order| bound.holds(order))
                }
                Err(_) => bound.holds(found.cmp(limit)),
            },
        }
    }
}

impl Bound {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Bound::Above => order.is_gt(),
            Bound::AtLeast => order.is_ge(),
            Bound::Below => order.is_lt(),
            Bound::AtMost => order.is_le(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_by_value_and_other_texts_by_their_characters() {
        let within = |bound, limit: &str| Test::Within(bound, limit.to_owned());
        for (test, found, expected) in [
            (within(Bound::Above, "9"), "10", true),
            (within(Bound::Above, "9"), "9.0", false),
            (within(Bound::AtLeast, "9"), "9.0", true),
            (within(Bound::Below, "9"), "ten", false),
            (within(Bound::Below, "2026-02-01"), "2026-01-31", true),
            (within(Bound::AtMost, "2026-02-01"), "2026-02-01", true),
            (within(Bound::AtMost, "2026-02-01"), "2026-02-02", false),
            (Test::Among(vec!["a".into(), "b".into()]), "b", true),
            (Test::Differs("a".into()), "b", true),
            (Test::Differs("a".into()), "a", false),
        ] {
            assert_eq!(test.holds(Some(found)), expected, "{test:?} of {found}");
        }
    }

    #[test]
    fn where_nothing_is_only_a_difference_holds() {
        assert!(Test::Differs("a".into()).holds(None));
        for test in [
            Test::Equals(String::new()),
            Test::Among(vec![String::new()]),
            Test::Within(Bound::AtLeast, String::new()),
        ] {
            assert!(!test.holds(None), "{test:?}");
        }
    }
}

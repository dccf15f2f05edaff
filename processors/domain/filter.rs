//! Conditions of a request on the returned memories: metadata, session and age.

use super::{Memory, Metadata, Time};
use std::cmp::Ordering;

/// Conditions that all hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter(pub Vec<Condition>);

/// A comparison, or a condition that is made of others.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    One(Comparison),
    All(Vec<Condition>),
    Any(Vec<Condition>),
    /// None of them holds.
    Neither(Vec<Condition>),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Comparison {
    /// The value that the metadata has under a name.
    Metadata(String, Test),
    Session(Test),
    CreatedAt(Bound, Time),
}

/// A test of a text, or of the number that the text spells. Where there is no text, only `Differs`
/// and `Exists(false)` hold.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    Equals(String),
    Differs(String),
    Among(Vec<String>),
    Contains(String),
    /// The same, whatever the case of the letters.
    ContainsAnyCase(String),
    Exists(bool),
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
        self.holds_for(&Filtered::of(memory))
    }

    pub fn holds_for(&self, filtered: &Filtered<'_>) -> bool {
        self.holds_by(&|comparison| comparison.holds_for(filtered))
    }

    /// True if the filter reads more of a memory than its metadata and its session.
    pub fn reads_times(&self) -> bool {
        self.0.iter().any(Condition::reads_times)
    }

    /// A value that each memory must have, and the name in its metadata; without a name it is that of
    /// its session.
    pub fn required(&self) -> Option<(Option<&str>, &str)> {
        self.0.iter().find_map(Condition::required)
    }

    /// Joins the verdicts of a function on the comparisons.
    pub fn holds_by(&self, is_met: &dyn Fn(&Comparison) -> bool) -> bool {
        self.0.iter().all(|condition| condition.holds_by(is_met))
    }
}

impl Condition {
    fn reads_times(&self) -> bool {
        match self {
            Condition::One(comparison) => matches!(comparison, Comparison::CreatedAt(..)),
            Condition::All(parts) | Condition::Any(parts) | Condition::Neither(parts) => {
                parts.iter().any(Condition::reads_times)
            }
        }
    }

    fn required(&self) -> Option<(Option<&str>, &str)> {
        match self {
            Condition::One(Comparison::Metadata(name, Test::Equals(value))) => {
                Some((Some(name), value))
            }
            Condition::One(Comparison::Session(Test::Equals(value))) => Some((None, value)),
            Condition::All(parts) => parts.iter().find_map(Condition::required),
            _ => None,
        }
    }

    fn holds_by(&self, is_met: &dyn Fn(&Comparison) -> bool) -> bool {
        let holds = |part: &Condition| part.holds_by(is_met);
        match self {
            Condition::One(comparison) => is_met(comparison),
            Condition::All(parts) => parts.iter().all(holds),
            Condition::Any(parts) => parts.iter().any(holds),
            Condition::Neither(parts) => !parts.iter().any(holds),
        }
    }
}

impl Comparison {
    pub fn holds(&self, memory: &Memory) -> bool {
        self.holds_for(&Filtered::of(memory))
    }

    fn holds_for(&self, filtered: &Filtered<'_>) -> bool {
        match self {
            Comparison::Metadata(name, test) => {
                test.holds(filtered.metadata.get(name).map(String::as_str))
            }
            Comparison::Session(test) => test.holds(filtered.session),
            Comparison::CreatedAt(bound, time) => bound.holds(filtered.created_at.cmp(time)),
        }
    }
}

/// The parts of a memory that a filter reads.
pub struct Filtered<'m> {
    pub metadata: &'m Metadata,
    pub session: Option<&'m str>,
    pub created_at: Time,
}

impl<'m> Filtered<'m> {
    fn of(memory: &'m Memory) -> Filtered<'m> {
        let Memory { metadata, session, created_at, .. } = memory;
        Filtered { metadata, session: session.as_deref(), created_at: *created_at }
    }
}

impl Test {
    fn holds(&self, found: Option<&str>) -> bool {
        let Some(found) = found else {
            return matches!(self, Test::Differs(_) | Test::Exists(false));
        };
        match self {
            Test::Equals(wanted) => found == wanted,
            Test::Differs(other) => found != other,
            Test::Among(several) => several.iter().any(|one| one == found),
            Test::Contains(part) => found.contains(part),
            Test::ContainsAnyCase(part) => found.to_lowercase().contains(&part.to_lowercase()),
            Test::Exists(wanted) => *wanted,
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
            (Test::Contains("Lisbon".into()), "in Lisbon", true),
            (Test::Contains("lisbon".into()), "in Lisbon", false),
            (Test::ContainsAnyCase("ÉVORA".into()), "in Évora", true),
            (Test::ContainsAnyCase("Faro".into()), "in Évora", false),
            (Test::Exists(true), "", true),
            (Test::Exists(false), "", false),
        ] {
            assert_eq!(test.holds(Some(found)), expected, "{test:?} of {found}");
        }
    }

    #[test]
    fn where_nothing_is_only_a_difference_and_absence_hold() {
        assert!(Test::Differs("a".into()).holds(None));
        assert!(Test::Exists(false).holds(None));
        for test in [
            Test::Equals(String::new()),
            Test::Among(vec![String::new()]),
            Test::Within(Bound::AtLeast, String::new()),
            Test::Contains(String::new()),
            Test::ContainsAnyCase(String::new()),
            Test::Exists(true),
        ] {
            assert!(!test.holds(None), "{test:?}");
        }
    }

    #[test]
    fn conditions_are_joined_at_every_level() {
        use Condition::{All, Any, Neither, One};
        let yes = || One(Comparison::CreatedAt(Bound::AtMost, Time(0)));
        let no = || One(Comparison::CreatedAt(Bound::Above, Time(0)));
        let is_met =
            |comparison: &Comparison| matches!(comparison, Comparison::CreatedAt(Bound::AtMost, _));
        for (condition, expected) in [
            (All(vec![yes(), no()]), false),
            (All(vec![yes(), yes()]), true),
            (Any(vec![no(), yes()]), true),
            (Any(vec![no(), no()]), false),
            (Neither(vec![no(), yes()]), false),
            (Neither(vec![no(), no()]), true),
            (Neither(vec![All(vec![yes(), no()])]), true),
            (Any(vec![no(), Neither(vec![Neither(vec![yes()])])]), true),
        ] {
            let filter = Filter(vec![yes(), condition]);
            assert_eq!(filter.holds_by(&is_met), expected, "{filter:?}");
        }
        assert!(Filter::default().holds_by(&is_met));
    }

    #[test]
    fn a_value_is_required_where_nothing_else_can_hold() {
        let is = |name: &str, value: &str| {
            Condition::One(Comparison::Metadata(name.into(), Test::Equals(value.into())))
        };
        let session = Condition::One(Comparison::Session(Test::Equals("monday".into())));
        let required = |conditions: Vec<Condition>| {
            let filter = Filter(conditions);
            let found = filter.required();
            found.map(|(name, value)| (name.map(str::to_owned), value.to_owned()))
        };
        let a1 = Some((Some("agent".to_owned()), "a1".to_owned()));
        assert_eq!(required(vec![is("agent", "a1")]), a1);
        let either = Condition::Any(vec![is("agent", "a1"), is("agent", "a2")]);
        assert_eq!(required(vec![either.clone()]), None);
        assert_eq!(required(vec![Condition::Neither(vec![is("agent", "a1")])]), None);
        assert_eq!(required(vec![either, Condition::All(vec![is("agent", "a1")])]), a1);
        assert_eq!(required(vec![session]), Some((None, "monday".to_owned())));
    }
}

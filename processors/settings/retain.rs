//! Decides how long a memory and a context window are kept, by kind and tenant (`[retain]`). Pure;
//! the compaction worker proposes older ones for erasure.
//!
//! The age counts from `created_at`, the time that the memory's event gave, unless that time is
//! still to come: neither use nor repetition makes a memory younger, so the limit is an upper
//! bound. A text that a user repeats after the erasure is a new memory.

use domain::{Memory, Time};
use std::collections::BTreeMap;
use std::fmt;

/// An hour in days. A shorter limit is taken for a mistake in the unit, and would erase everything.
pub const DAYS_MIN: f64 = 1.0 / 24.0;

const DAY_MS: f64 = 86_400_000.0;

/// Days by kind, and for every other kind. 0 is no limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    pub days: f64,
    pub kinds: BTreeMap<String, f64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    pub standard: Limits,
    /// Take the place of `standard` as a whole, so that a tenant without a limit has none.
    pub by_tenant: BTreeMap<String, Limits>,
}

/// The rule that covers a memory. The text names the option.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub days: f64,
    pub option: String,
}

impl Rule {
    pub fn is_over(&self, created_at: Time, now: Time) -> bool {
        now.ms_since(created_at) as f64 > self.days * DAY_MS
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "older than {} days ({})", self.days, self.option)
    }
}

impl Rules {
    /// Returns the rule by which a memory of the time `made` is too old at this time.
    pub fn outlived(&self, memory: &Memory, made: Time, now: Time) -> Option<Rule> {
        let rule = self.rule(memory.key.tenant(), memory.kind.as_str())?;
        rule.is_over(made, now).then_some(rule)
    }

    /// Returns the rule for context windows. A turn that became no memory has no kind.
    pub fn of_windows(&self, tenant: &str) -> Option<Rule> {
        self.rule(tenant, "")
    }

    fn rule(&self, tenant: &str, kind: &str) -> Option<Rule> {
        let (limits, table) = match self.by_tenant.get(tenant) {
            Some(own) => (own, format!("retain.tenants.{tenant}")),
            None => (&self.standard, "retain".to_owned()),
        };
        let rule = match limits.kinds.get(kind) {
            Some(days) => Rule { days: *days, option: format!("{table}.kinds.{kind}") },
            None => Rule { days: limits.days, option: format!("{table}.days") },
        };
        Some(rule).filter(|rule| rule.days > 0.0)
    }

    /// Explains each rule in a sentence, for `config check`. Empty if everything is kept.
    pub fn explained(&self) -> Vec<String> {
        let mut lines =
            explained(&self.standard, "retain", "every tenant without a table of its own");
        for (tenant, limits) in &self.by_tenant {
            let whose = format!("tenant \"{tenant}\"");
            lines.extend(explained(limits, &format!("retain.tenants.{tenant}"), &whose));
        }
        if self.by_tenant.is_empty() && self.standard == Limits::default() {
            lines.clear();
        }
        lines
    }
}

fn explained(limits: &Limits, table: &str, whose: &str) -> Vec<String> {
    let kinds = limits.kinds.iter().map(|(kind, days)| {
        let what = format!("memories of kind \"{kind}\" of {whose}");
        format!("{table}.kinds.{kind} = {days}: {what} {}", fate(*days))
    });
    let what = match limits.kinds.is_empty() {
        true => format!("all memories of {whose}"),
        false => format!("memories of any other kind of {whose}"),
    };
    let rest = format!("{table}.days = {}: {what} {}", limits.days, fate(limits.days));
    kinds.chain([rest]).collect()
}

fn fate(days: f64) -> String {
    match days {
        0.0 => "are kept until somebody forgets them".to_owned(),
        days => format!("are erased {days} days after they were made"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(days: f64, kinds: &[(&str, f64)]) -> Limits {
        let kinds = kinds.iter().map(|(kind, days)| ((*kind).to_owned(), *days)).collect();
        Limits { days, kinds }
    }

    fn rules() -> Rules {
        Rules {
            standard: limits(365.0, &[("health", 30.0), ("preference", 0.0)]),
            by_tenant: [
                ("acme".to_owned(), limits(7.0, &[])),
                ("keeper".to_owned(), limits(0.0, &[("health", 1.0)])),
            ]
            .into(),
        }
    }

    #[test]
    fn the_kind_comes_before_the_rest_and_a_tenants_table_takes_the_place_of_the_whole() {
        for (tenant, kind, expected) in [
            ("default", "fact", Some("older than 365 days (retain.days)")),
            ("default", "health", Some("older than 30 days (retain.kinds.health)")),
            ("default", "preference", None),
            ("acme", "health", Some("older than 7 days (retain.tenants.acme.days)")),
            ("keeper", "fact", None),
            ("keeper", "health", Some("older than 1 days (retain.tenants.keeper.kinds.health)")),
        ] {
            let found = rules().rule(tenant, kind).map(|rule| rule.to_string());
            assert_eq!(found.as_deref(), expected, "{tenant} {kind}");
        }
    }

    #[test]
    fn a_memory_is_too_old_only_after_its_last_millisecond() {
        let rule = Rule { days: 0.5, option: String::new() };
        let half_a_day = 43_200_000;
        for (age, expected) in
            [(0, false), (half_a_day, false), (half_a_day + 1, true), (-1, false)]
        {
            assert_eq!(rule.is_over(Time(7), Time(7 + age)), expected, "{age}");
        }
    }

    #[test]
    fn each_rule_is_explained_and_nothing_where_there_is_none() {
        assert_eq!(Rules::default().explained(), Vec::<String>::new());
        let lines = rules().explained();
        assert_eq!(lines.len(), 6, "{lines:#?}");
        assert_eq!(
            lines[0],
            "retain.kinds.health = 30: memories of kind \"health\" of every tenant without a table \
             of its own are erased 30 days after they were made"
        );
        assert_eq!(
            lines[5],
            "retain.tenants.keeper.days = 0: memories of any other kind of tenant \"keeper\" are \
             kept until somebody forgets them"
        );
    }
}

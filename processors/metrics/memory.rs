//! Measures memory itself: changes of memories and links, feedback, relevance, and the decisions
//! and recalls of each tenant that the operator named.

use super::registered::{RATIOS, Registered, from_zero};
use domain::{Match, Outcome, Signal};
use prometheus::{Histogram, IntCounterVec};
use std::collections::BTreeSet;

/// The label of all tenants that `metrics.tenants` does not name. A tenant may have any name; the
/// parentheses distinguish this label from most.
const OTHERS: &str = "(other)";
/// The label of dead letters whose record names no tenant.
const UNREADABLE: &str = "(unreadable)";

/// The effect of one batch on the memories of a shard, in numbers of memories and of links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub created: u64,
    /// Closed by a newer value.
    pub superseded: u64,
    pub archived: u64,
    /// Taken back from the archive.
    pub unarchived: u64,
    pub erased: u64,
    pub supersedes: u64,
    pub revises: u64,
    pub conflicts: u64,
}

/// A reply to a recall.
pub struct Recalled<'a> {
    pub tenant: &'a str,
    pub memories: usize,
    pub tokens: usize,
    /// `None` if the policy computes no relevance.
    pub matched: Option<Match>,
    /// The relevance of the memory that has the most, if any memory has one.
    pub relevance: Option<f32>,
}

pub struct MemoryMetrics {
    changes: IntCounterVec,
    links: IntCounterVec,
    feedback: IntCounterVec,
    relevance: Histogram,
    tenants: BTreeSet<String>,
    tenant_decisions: IntCounterVec,
    tenant_recalls: IntCounterVec,
    tenant_letters: IntCounterVec,
}

impl MemoryMetrics {
    pub fn new(r: &mut Registered, tenants: &[String]) -> MemoryMetrics {
        let metrics = MemoryMetrics {
            changes: r.counters(
                "keepsake_memory_changes_total",
                "Memories created, superseded, archived, unarchived and erased, by change. A memory \
                 of a tenant counts on the tenant's own partition only",
                &["change"],
            ),
            links: r.counters(
                "keepsake_links_total",
                "Links that were made between memories, by kind: supersedes, revises or conflicts",
                &["kind"],
            ),
            feedback: r.counters(
                "keepsake_feedback_total",
                "Feedback events applied, by signal",
                &["signal"],
            ),
            relevance: r.histogram(
                "keepsake_recall_relevance_ratio",
                "Relevance of the most relevant memory in the reply to a recall",
                RATIOS,
            ),
            tenants: tenants.iter().cloned().collect(),
            tenant_decisions: r.counters(
                "keepsake_tenant_decisions_total",
                "Decisions, by outcome and by tenant. (other): all that metrics.tenants does not \
                 name",
                &["tenant", "outcome"],
            ),
            tenant_recalls: r.counters(
                "keepsake_tenant_recalls_total",
                "Replies to recalls, by match and by tenant. (other): all that metrics.tenants does \
                 not name",
                &["tenant", "match"],
            ),
            tenant_letters: r.counters(
                "keepsake_tenant_dead_letters_total",
                "Dead letters, by topic of the record and by tenant. (other): all that \
                 metrics.tenants does not name; (unreadable): the record names none",
                &["topic", "tenant"],
            ),
        };
        metrics.changed(&Changes::default());
        let signals =
            [Signal::Used, Signal::Confirmed, Signal::Wrong, Signal::Irrelevant, Signal::Returned];
        from_zero(&metrics.feedback, signals.map(Signal::as_str));
        for tenant in metrics.tenants.iter().map(String::as_str).chain([OTHERS]) {
            for outcome in Outcome::ALL {
                metrics.tenant_decisions.with_label_values(&[tenant, outcome.as_str()]);
            }
            for matched in Match::ALL.map(Match::as_str).into_iter().chain(["unknown"]) {
                metrics.tenant_recalls.with_label_values(&[tenant, matched]);
            }
        }
        metrics
    }

    pub fn changed(&self, changes: &Changes) {
        for (change, memories) in [
            ("created", changes.created),
            ("superseded", changes.superseded),
            ("archived", changes.archived),
            ("unarchived", changes.unarchived),
            ("erased", changes.erased),
        ] {
            self.changes.with_label_values(&[change]).inc_by(memories);
        }
        for (kind, links) in [
            ("supersedes", changes.supersedes),
            ("revises", changes.revises),
            ("conflicts", changes.conflicts),
        ] {
            self.links.with_label_values(&[kind]).inc_by(links);
        }
    }

    pub fn feedback(&self, signal: Signal) {
        self.feedback.with_label_values(&[signal.as_str()]).inc();
    }

    pub fn decided(&self, tenant: &str, outcome: Outcome) {
        self.tenant_decisions.with_label_values(&[self.label(tenant), outcome.as_str()]).inc();
    }

    pub fn dead_letter(&self, topic: &str, tenant: Option<&str>) {
        let tenant = tenant.map_or(UNREADABLE, |tenant| self.label(tenant));
        self.tenant_letters.with_label_values(&[topic, tenant]).inc();
    }

    pub fn recalled(&self, tenant: &str, matched: &str, relevance: Option<f32>) {
        self.tenant_recalls.with_label_values(&[self.label(tenant), matched]).inc();
        if let Some(relevance) = relevance {
            self.relevance.observe(f64::from(relevance));
        }
    }

    fn label<'a>(&self, tenant: &'a str) -> &'a str {
        if self.tenants.contains(tenant) { tenant } else { OTHERS }
    }
}

#[cfg(test)]
mod tests {
    use crate::Metrics;
    use domain::Outcome;

    #[test]
    fn only_the_tenants_that_the_operator_names_are_labels() {
        let metrics = Metrics::with_tenants(&["acme".to_owned()]);
        for tenant in ["acme", "globex", "initech"] {
            metrics.memory.decided(tenant, Outcome::Kept);
        }
        for tenant in [Some("acme"), Some("globex"), None] {
            metrics.dead_letter("not-json", "k.events", tenant);
        }
        let page = metrics.page();
        for line in [
            "keepsake_tenant_decisions_total{outcome=\"kept\",tenant=\"acme\"} 1",
            "keepsake_tenant_decisions_total{outcome=\"kept\",tenant=\"(other)\"} 2",
            "keepsake_tenant_dead_letters_total{tenant=\"acme\",topic=\"k.events\"} 1",
            "keepsake_tenant_dead_letters_total{tenant=\"(other)\",topic=\"k.events\"} 1",
            "keepsake_tenant_dead_letters_total{tenant=\"(unreadable)\",topic=\"k.events\"} 1",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
        assert!(!page.contains("globex"));
    }
}

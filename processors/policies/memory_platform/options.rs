//! The options of the Memory Platform's page by their own names.

use crate::options::{DocumentOption, DocumentOptions};

pub const OPTIONS: DocumentOptions = DocumentOptions {
    environment: None,
    options: &[
        of("w1", &["rank.rule.memory-platform.similarity"]),
        of("w2", &["rank.rule.memory-platform.salience"]),
        of("w3", &["rank.rule.memory-platform.confidence"]),
        of("Fact", &["rank.rule.memory-platform.decay.fact"]),
        of("Preference", &["rank.rule.memory-platform.decay.preference"]),
        of("Insight", &["rank.rule.memory-platform.decay.insight"]),
        of("Summary", &["rank.rule.memory-platform.decay.summary"]),
    ],
};

const fn of(name: &'static str, paths: &'static [&'static str]) -> DocumentOption {
    DocumentOption { name, paths }
}

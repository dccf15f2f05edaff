//! The options of Alma's article by their own names.

use crate::options::{DocumentOption, DocumentOptions};

pub const OPTIONS: DocumentOptions = DocumentOptions {
    environment: None,
    options: &[
        of("relevance", &["rank.rule.alma.weights.relevance"]),
        of("importance", &["rank.rule.alma.weights.importance"]),
        of("recency", &["rank.rule.alma.weights.recency"]),
        of("frequency", &["rank.rule.alma.weights.frequency"]),
        of("halfLifeHours", &["rank.rule.alma.recency_half_life_hours"]),
    ],
};

const fn of(name: &'static str, paths: &'static [&'static str]) -> DocumentOption {
    DocumentOption { name, paths }
}

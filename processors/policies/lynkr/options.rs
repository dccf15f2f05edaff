//! The options of Lynkr's guide by their own names.

use crate::options::{DocumentOption, DocumentOptions};

pub const OPTIONS: DocumentOptions = DocumentOptions {
    environment: Some("MEMORY_"),
    options: &[
        of("MEMORY_ENABLED", &["gate.rule.lynkr.enabled", "rank.rule.lynkr.enabled"]),
        of("MEMORY_RETRIEVAL_LIMIT", &["rank.rule.lynkr.limit"]),
        of("MEMORY_SURPRISE_THRESHOLD", &["gate.rule.lynkr.threshold"]),
        of("MEMORY_MAX_AGE_DAYS", &["prune.age_days"]),
        of("MEMORY_MAX_COUNT", &["prune.count_max"]),
        of("MEMORY_DECAY_ENABLED", &["fade.enabled"]),
        of("MEMORY_DECAY_HALF_LIFE", &["fade.half_life_days.default"]),
        of("MEMORY_INCLUDE_GLOBAL", &["rank.rule.lynkr.include_global"]),
        of("MEMORY_INJECTION_FORMAT", &["rank.rule.lynkr.injection"]),
        of("MEMORY_EXTRACTION_ENABLED", &["gate.rule.lynkr.extraction_enabled"]),
        of("MEMORY_FORMAT", &["rank.rule.lynkr.format"]),
        of("MEMORY_DEDUP_ENABLED", &["gate.rule.lynkr.dedup_enabled"]),
        of("MEMORY_DEDUP_LOOKBACK", &["gate.rule.lynkr.dedup_lookback"]),
    ],
};

const fn of(name: &'static str, paths: &'static [&'static str]) -> DocumentOption {
    DocumentOption { name, paths }
}

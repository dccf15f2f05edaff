//! Options under the names that the documents give them, each with the keys of the profile that it
//! stands for.

use policies::options::{DocumentOptions, of};

/// The options of Alma's article.
pub const ALMA: DocumentOptions = DocumentOptions {
    environment: None,
    options: &[
        of("relevance", &["rank.rule.alma.weights.relevance"]),
        of("importance", &["rank.rule.alma.weights.importance"]),
        of("recency", &["rank.rule.alma.weights.recency"]),
        of("frequency", &["rank.rule.alma.weights.frequency"]),
        of("halfLifeHours", &["rank.rule.alma.recency_half_life_hours"]),
    ],
};

/// The options of Lynkr's guide.
pub const LYNKR: DocumentOptions = DocumentOptions {
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

/// The options of the Memory Logic Specification.
pub const MEMORY_SPEC: DocumentOptions = DocumentOptions {
    environment: None,
    options: &[
        of("MIN_CHUNK_TOKENS", &["split.tokens_min"]),
        of("MAX_CHUNK_TOKENS", &["split.tokens_max"]),
        of("top_k", &["rank.rule.memory-spec.top_k"]),
        of("top_k_candidates", &["rank.rule.memory-spec.top_k_candidates"]),
        of("token_budget", &["rank.rule.memory-spec.token_budget"]),
        of("reranker_enabled", &["rank.rule.memory-spec.reranker_enabled"]),
        of("compression_threshold", &["summary.sessions_max"]),
        of("sessions_to_compress", &["summary.sessions_together"]),
    ],
};

/// The options of the Memory Platform's page.
pub const MEMORY_PLATFORM: DocumentOptions = DocumentOptions {
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

/// The options of Talome's decision record.
pub const TALOME: DocumentOptions = DocumentOptions {
    environment: None,
    options: &[
        of("recencyWeight", &["rank.rule.talome.recency"]),
        of("accessWeight", &["rank.rule.talome.access"]),
        of("confidenceWeight", &["rank.rule.talome.confidence"]),
    ],
};

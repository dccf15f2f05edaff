//! The options of the Memory Logic Specification by their own names.

use crate::options::{DocumentOption, DocumentOptions};

pub const OPTIONS: DocumentOptions = DocumentOptions {
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

const fn of(name: &'static str, paths: &'static [&'static str]) -> DocumentOption {
    DocumentOption { name, paths }
}

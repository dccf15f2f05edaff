//! Measures the questions to the language model.

use super::registered::{CALLS, families};
use domain::Authorship;
use std::time::Duration;

families! {
    pub struct LanguageMetrics {
        calls: counters(
            "keepsake_llm_calls_total",
            "Questions to the language model, by outcome: answered, declined, truncated, \
             invalid, slow, busy, unavailable, rejected, oversized; paused by the breaker and \
             spent by the budget were never sent",
            &["outcome"],
        );
        seconds: histogram(
            "keepsake_llm_seconds",
            "Time of one question to the language model with its retries and the second try",
            CALLS,
        );
        requests: counter(
            "keepsake_llm_requests_total",
            "Requests sent to the language model, retries and second tries included",
        );
        tokens: counters(
            "keepsake_llm_tokens_total",
            "Tokens that the language model reported, by direction: in or out",
            &["direction"],
        );
        written: counters(
            "keepsake_llm_written_total",
            "Summaries in profiles that ask the language model, by who wrote them: model, or \
             rules where its answer was missing or unfaithful",
            &["by"],
        );
    }
}

impl LanguageMetrics {
    /// A question that was sent.
    pub fn asked(&self, outcome: &str, took: Duration, requests: u32, tokens: [u64; 2]) {
        self.calls.with_label_values(&[outcome]).inc();
        self.seconds.observe(took.as_secs_f64());
        self.requests.inc_by(u64::from(requests));
        for (direction, tokens) in ["in", "out"].into_iter().zip(tokens) {
            self.tokens.with_label_values(&[direction]).inc_by(tokens);
        }
    }

    /// A text that the language model was to write.
    pub fn wrote(&self, made: Option<&Authorship>) {
        if let Some(made) = made {
            self.written.with_label_values(&[made.by.as_str()]).inc();
        }
    }

    /// A question that was not sent.
    pub fn refused(&self, outcome: &str) {
        self.calls.with_label_values(&[outcome]).inc();
    }
}

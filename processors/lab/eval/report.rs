//! Holds the result of an evaluation and formats its numbers. Also prints progress.

use serde_json::{Value, json};

/// Result of an evaluation, for a program and for a person.
pub struct EvalReport {
    pub json: Value,
    pub text: String,
}

/// Prints a progress message on standard error.
pub fn progress(message: impl std::fmt::Display) {
    anstream::eprintln!("eval: {message}");
}

/// A share or a score as JSON; null if there was nothing to measure.
pub fn number(value: f64) -> Value {
    if value.is_finite() { json!((value * 1e6).round() / 1e6) } else { Value::Null }
}

/// A share as written for a person.
pub fn percent(share: f64) -> String {
    if share.is_finite() { format!("{:.1} %", 100.0 * share) } else { "–".to_owned() }
}

/// A score with three decimals.
pub fn decimal(value: f64) -> String {
    if value.is_finite() { format!("{value:.3}") } else { "–".to_owned() }
}

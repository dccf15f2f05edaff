//! Builds the JSON messages that the benchmarks publish and ask, in the form any client would use.

use serde_json::{Value, json};

pub fn turn(user: &str, content: &str) -> Value {
    json!({"type": "turn", "user": user, "session": "bench", "content": content})
}

pub fn remember(user: &str, content: &str) -> Value {
    json!({"type": "remember", "user": user, "content": content})
}

pub fn recall(user: &str, query: &str) -> Value {
    json!({"type": "recall", "user": user, "query": query})
}

/// Name of the `n`-th of `users` users, taken round robin.
pub fn user(n: usize, users: usize) -> String {
    format!("user-{}", n % users)
}

//! Asks a language model: one prompt in, one checked JSON value or a named refusal out.
//!
//! [`ChatModel`] asks an OpenAI-compatible endpoint. [`Scripted`] gives answers that a test wrote.
//! Both hold the same conversation (`conversation.rs`), and neither knows memories or tenants: the
//! caller redacts the texts, and keeps a [`Breaker`] and a [`Budget`].

mod breaker;
mod budget;
mod chat;
mod completion;
mod conversation;
mod dialect;
mod model;
mod scripted;

pub use breaker::Breaker;
pub use budget::Budget;
pub use chat::{ChatModel, ChatOptions};
pub use model::{Cost, LanguageModel, Prompt, Refusal, Reply, Shape};
pub use scripted::Scripted;

//! Runs models that read two texts together: a [`Reranker`] scores how well a text answers a
//! question, a [`Judge`] whether a later statement changes an earlier one.
//!
//! Both are one kind of model, opened by `onnx.rs`. No module here knows memories or time; the
//! caller decides which pairs are worth reading.

mod judge;
mod onnx;
mod reranker;
#[cfg(test)]
mod samples;

pub use judge::{Judge, JudgeModel};
pub use onnx::CrossEncoderOptions;
pub use reranker::{Reranker, RerankerModel};

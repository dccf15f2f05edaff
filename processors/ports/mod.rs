//! The ports to the outside world. Each is a trait, with its real implementation and its stand-in
//! next to each other. `broker.rs` is the largest; `onnx.rs` is shared by the two kinds of models.

pub mod broker;
pub mod clock;
pub mod cross_encoder;
pub mod embedder;
pub mod kafka;
pub mod memory;
mod onnx;
pub mod summarizer;

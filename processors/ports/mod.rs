//! The outside world: each port is a trait, with the real one and its stand-in side by side.

pub mod broker;
pub mod clock;
pub mod cross_encoder;
pub mod embedder;
pub mod kafka;
pub mod memory;
mod onnx;
pub mod summarizer;

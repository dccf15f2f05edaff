//! The models: an encoder turns texts into vectors, a cross-encoder compares two texts, a language
//! model answers a prompt. The first two run in ONNX Runtime, the third behind HTTP, and each has a
//! stand-in that needs no model.

pub mod cross_encoder;
pub mod embedder;
pub mod language;
mod onnx;

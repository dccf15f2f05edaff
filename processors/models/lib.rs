//! The models: an encoder turns texts into vectors, a cross-encoder compares two texts. Both run in
//! ONNX Runtime, and each has a stand-in that needs no model.

pub mod cross_encoder;
pub mod embedder;
mod onnx;

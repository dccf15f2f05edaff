//! The laboratory: the demo, the benchmarks, the evaluations and `whatif`, which run the service's own
//! code on an embedded broker or on evaluation files.

pub mod bench;
pub mod demo;
pub mod eval;
pub mod preview;
pub mod whatif;

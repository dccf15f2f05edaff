//! The laboratory: the demo, the benchmarks, the evaluations and `whatif`, which run the service's own
//! code on an embedded broker or on evaluation files; and `plan`, which computes what machines are needed.

pub mod bench;
pub mod demo;
pub mod eval;
pub mod plan;
pub mod whatif;

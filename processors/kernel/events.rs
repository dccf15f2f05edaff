//! One file for each event: a function that reads the staged state, stages the changes and returns
//! the decisions in `Handled`.

pub mod extracted;
pub mod feedback;
pub mod forget;
pub mod prune;
pub mod remember;
pub mod revise;
pub mod summary;
pub mod turn;
pub mod update;

//! The path of a record, stage by stage. Stages know the domain and nothing of each other, of a port, or of who calls them.

pub mod decode;
pub mod index;
pub mod rank;
pub mod redact;
pub mod reply;
pub mod score;
pub mod split;
pub mod store;

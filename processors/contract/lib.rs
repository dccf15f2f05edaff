//! The messages of every topic.
//!
//! `decode` reads an event or a request from a record, `reply` builds the records that answer,
//! `wire` has their JSON types.

pub mod decode;
pub mod reply;
pub mod wire;

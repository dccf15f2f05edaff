//! The log and its records: the interface of a broker, the JSON of every message, and the steps
//! between them.
//!
//! `decode` reads an event or a request from a record, `reply` builds the records that answer,
//! `wire` has their JSON types, `broker` is the interface that Kafka and the tests' broker
//! implement.

pub mod broker;
pub mod clock;
pub mod decode;
pub mod reply;
pub mod wire;

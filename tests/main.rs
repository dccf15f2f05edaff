//! Integration tests, all in one program, so that one Kafka and one service per broker serve them.
//!
//! Each file covers one subject. `support/` starts brokers and services and speaks the contract of
//! `schemas/`. Skipped tests report themselves, see `support/skips.rs`.

mod subject;
mod support;

mod backup;
mod broker;
mod cli;
mod conflict;
mod conformance;
mod connect;
mod contract;
mod dlq;
mod documents;
mod embedded;
mod eval;
mod examples;
mod extracted;
mod faults;
mod full_disk;
mod fuzz;
mod gateway;
mod generation;
mod handover;
mod hooks;
mod imports;
mod language;
mod languages;
mod laws;
mod layers;
mod map;
mod mcp;
mod old_events;
mod prometheus;
mod quality;
mod readable;
mod recall;
mod redaction;
mod registry;
mod rerank;
mod rights;
mod schemas;
mod secrets;
mod security;
mod seeds;
mod sim;
mod tenants;
mod torture;
mod tracing;
mod upgrade;
mod verify;
mod worst;
mod written;

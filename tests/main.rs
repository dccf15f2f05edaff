//! The integration program: one binary, so that one Kafka and one service per broker serve all stories. Each file is one subject;
//! `support/` starts things and speaks the contract.

mod support;

mod broker;
mod cli;
mod conflict;
mod contract;
mod dlq;
mod documents;
mod eval;
mod examples;
mod faults;
mod fuzz;
mod handover;
mod languages;
mod laws;
mod layers;
mod quality;
mod readable;
mod recall;
mod redaction;
mod rerank;
mod schemas;
mod seeds;
mod sim;
mod torture;
mod upgrade;
mod verify;
mod worst;

/// Tests run in the order of their names, so this one comes when every other has at least begun to be skipped.
mod zz_summary {
    #[test]
    fn what_was_skipped_is_said_at_the_end() {
        super::support::skips::say_what_was_skipped();
    }
}

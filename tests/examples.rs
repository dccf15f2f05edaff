//! Runs the examples of processors/examples against a service: `publish` writes a turn, `recall`
//! finds it.

use crate::support::{Broker, Running};

#[allow(dead_code)] // `main`, which `cargo run --example publish` calls
#[path = "../processors/examples/publish.rs"]
mod publish;
#[allow(dead_code)] // `main`, which `cargo run --example recall` calls
#[path = "../processors/examples/recall.rs"]
mod recall;

#[test]
fn the_examples_publish_a_turn_and_find_it() {
    let running = Running::start(Broker::Embedded, &[]);
    let brokers = &running.service.servers;
    let prefix = &running.place.prefix;
    let decision = publish::publish(brokers, prefix, "ada", "I live in Lisbon.")
        .unwrap_or_else(|e| panic!("the example publishes: {e}"));
    assert_eq!(decision["outcome"], "kept", "{decision}");
    let reply = recall::recall(brokers, prefix, "ada", "Where in Lisbon do I live?")
        .unwrap_or_else(|e| panic!("the example recalls: {e}"));
    assert_eq!(reply["memories"][0]["content"], "I live in Lisbon.", "{reply}");
    running.stop();
}

//! What the stories share: a broker, a service on it, and a client that knows nothing but the contract.

pub mod changelog;
pub mod client;
pub mod in_process;
pub mod kafka;
pub mod service;
pub mod skips;
pub mod store;
pub mod story;
pub mod validator;

pub use client::{Message, User, Wire};
pub use service::{Broker, Child, Running};

use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long anything may take that should take milliseconds: two busy cores, a broker in Java.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Asks again until there is an answer; fails with what was waited for.
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < give_up, "waited {} s in vain: {what}", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The project's own folder.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The story once for each broker.
macro_rules! on_both_brokers {
    ($($story:ident)*) => {
        $(mod $story {
            #[test]
            fn on_embedded() {
                super::$story(crate::support::Broker::Embedded);
            }

            #[test]
            fn on_kafka() {
                if crate::support::kafka::is_wanted(concat!(module_path!(), "::on_kafka")) {
                    super::$story(crate::support::Broker::Kafka);
                }
            }
        })*
    };
}
pub(crate) use on_both_brokers;

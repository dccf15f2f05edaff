//! Remembers which reply topics exist. A topic is looked up in the broker's metadata by a separate
//! thread, since a topic that is not there must neither be created nor delay the other replies.

use super::Shared;
use broker::Broker;
use broker::clock::Clock;
use crossbeam_channel::{Receiver, Sender, TrySendError};
use domain::fault::{Fault, Result};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Reply topics of which the service remembers whether they exist. Above, the one that was looked up
/// longest ago is looked up again.
const KNOWN_MAX: usize = 1000;
/// Milliseconds for which this is remembered: an application whose reply topic is created late is
/// answered on its topic after this time.
const KNOWN_MS: i64 = 10_000;
/// Milliseconds that a lookup may take, its place in the queue included.
const LOOKED_UP_MS: i64 = 5_000;

/// The known state of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicState {
    /// The topic exists, with this number of partitions.
    There(i32),
    Missing,
    /// The lookup is not finished.
    Asked,
    /// The lookup failed, or too many others wait.
    Unknown,
}

pub struct ReplyTopics {
    known: Mutex<HashMap<String, KnownTopic>>,
    asked: Sender<String>,
    clock: Arc<dyn Clock>,
}

struct KnownTopic {
    /// The last answer, if there is one, with its time.
    answer: Option<(Option<i32>, i64)>,
    /// The time of the lookup that is not answered yet.
    asked_ms: Option<i64>,
}

impl ReplyTopics {
    /// Returns the topics and the queue of those to look up.
    pub fn new(clock: Arc<dyn Clock>) -> (Arc<ReplyTopics>, Receiver<String>) {
        let (asked, to_look_up) = crossbeam_channel::bounded(KNOWN_MAX);
        let known = Mutex::default();
        (Arc::new(ReplyTopics { known, asked, clock }), to_look_up)
    }

    /// Returns the known state of a topic, and has the topic looked up if that is too old. An old
    /// answer counts until the new one comes, unless the topic was missing.
    pub fn state(&self, topic: &str) -> TopicState {
        let now = self.clock.steady_ms();
        let mut known = self.known.lock();
        if !known.contains_key(topic) && known.len() >= KNOWN_MAX {
            forget_oldest(&mut known);
        }
        let entry =
            known.entry(topic.to_owned()).or_insert(KnownTopic { answer: None, asked_ms: None });
        match entry.answer {
            Some((answer, at)) if now - at < KNOWN_MS => {
                return answer.map_or(TopicState::Missing, TopicState::There);
            }
            _ => {}
        }
        let state = match entry.asked_ms {
            None => match self.asked.try_send(topic.to_owned()) {
                Ok(()) => {
                    entry.asked_ms = Some(now);
                    TopicState::Asked
                }
                Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => TopicState::Unknown,
            },
            Some(asked) if now - asked < LOOKED_UP_MS => TopicState::Asked,
            Some(_) => TopicState::Unknown,
        };
        let before = entry.answer.and_then(|(answer, _)| answer).map(TopicState::There);
        if state == TopicState::Unknown && before.is_none() {
            known.remove(topic);
        }
        before.unwrap_or(state)
    }

    fn answer(&self, topic: &str, partitions: Option<i32>) {
        let now = self.clock.steady_ms();
        if let Some(entry) = self.known.lock().get_mut(topic) {
            *entry = KnownTopic { answer: Some((partitions, now)), asked_ms: None };
        }
    }

    fn failed(&self, topic: &str) {
        let mut known = self.known.lock();
        if let Some(entry) = known.get_mut(topic) {
            entry.asked_ms = None;
        }
    }

    /// Looks up the topics in the order in which they were asked for, until the process stops.
    pub fn look_up(
        &self,
        to_look_up: &Receiver<String>,
        broker: &dyn Broker,
        shared: &Shared,
    ) -> Result<()> {
        while let Some(topic) = shared.receive(to_look_up) {
            self.look_up_one(&topic, broker);
        }
        Ok(())
    }

    pub fn look_up_one(&self, topic: &str, broker: &dyn Broker) {
        match broker.partitions_of(topic) {
            Ok(partitions) => self.answer(topic, partitions),
            // Nobody can be answered there before an operator grants the right.
            Err(Fault::Stop(stop)) => {
                tracing::warn!(what = stop.what, "a reply topic cannot be used");
                self.answer(topic, None);
            }
            Err(fault) => {
                tracing::warn!(%fault, "cannot look up a reply topic");
                self.failed(topic);
            }
        }
    }
}

/// Drops the topic that was looked up longest ago, missing ones first.
fn forget_oldest(known: &mut HashMap<String, KnownTopic>) {
    let oldest = known
        .iter()
        .min_by_key(|(_, entry)| match (entry.answer, entry.asked_ms) {
            (Some((None, at)), None) => (0, at),
            (Some((Some(_), at)), None) => (1, at),
            (_, asked) => (2, asked.unwrap_or(i64::MIN)),
        })
        .map(|(topic, _)| topic.clone());
    if let Some(topic) = oldest {
        known.remove(&topic);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::clock::ManualClock;
    use simulated::Cluster;

    fn topics() -> (Arc<ReplyTopics>, Receiver<String>, ManualClock) {
        let clock = ManualClock::default();
        let (topics, asked) = ReplyTopics::new(Arc::new(clock.clone()));
        (topics, asked, clock)
    }

    #[test]
    fn a_topic_is_looked_up_once_and_again_after_a_while() {
        let (topics, asked, clock) = topics();
        let cluster = Cluster::new();
        cluster.create("web.replies", 3);
        let broker = cluster.connect("test");
        let look_up = || asked.try_iter().map(|topic| topics.look_up_one(&topic, &broker)).count();
        for (topic, state) in [("web.replies", TopicState::There(3)), ("typo", TopicState::Missing)]
        {
            assert_eq!(
                (topics.state(topic), topics.state(topic)),
                (TopicState::Asked, TopicState::Asked)
            );
            assert_eq!(look_up(), 1);
            assert_eq!((topics.state(topic), look_up()), (state, 0));
        }
        cluster.create("typo", 1);
        clock.advance(10_000);
        assert_eq!(
            topics.state("web.replies"),
            TopicState::There(3),
            "an old answer counts meanwhile"
        );
        assert_eq!(topics.state("typo"), TopicState::Asked);
        assert_eq!((look_up(), topics.state("typo")), (2, TopicState::There(1)));
    }

    #[test]
    fn a_lookup_that_takes_too_long_fails_and_the_number_of_topics_is_bounded() {
        let (topics, asked, clock) = topics();
        assert_eq!(topics.state("slow"), TopicState::Asked);
        clock.advance(LOOKED_UP_MS);
        assert_eq!(topics.state("slow"), TopicState::Unknown);
        for n in 0..2 * KNOWN_MAX {
            topics.state(&format!("t{n}"));
            assert!(topics.known.lock().len() <= KNOWN_MAX);
        }
        assert_eq!(topics.state("one more"), TopicState::Unknown, "the queue of lookups is full");
        assert_eq!(asked.len(), KNOWN_MAX);
    }
}

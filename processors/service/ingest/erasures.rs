//! The places that the receipt of a `forget` names: where bytes of an erased text may still be, and
//! for how long.

use crate::run::old_events;
use contract::wire::Place;
use deployment::topics::{DEAD_LETTERS_MS, DECISIONS_MS, REQUESTS_MS, SEGMENT_MS};
use settings::Config;

#[derive(Clone, Debug)]
pub struct Options {
    pub topic: String,
    pub places: Vec<Place>,
}

/// Lists the places with their time limits as Keepsake sets them. A topic that somebody else made
/// may keep its records longer.
pub fn places(config: &Config) -> Vec<Place> {
    let topics = &config.topics;
    let within = i64::try_from(config.forget.within_ms).unwrap_or(i64::MAX);
    let mut places = vec![
        place(
            "store and index".into(),
            Some(within),
            "the files of the process that owns the user, until they are written anew",
        ),
        place(
            "copies on other machines".into(),
            Some(within),
            "stand-by copies and disks of former owners, until their processes, which must run, have \
             followed or removed them",
        ),
        place(
            topics.memories(),
            Some(within),
            "earlier states of the memories, until the broker compacts the topic",
        ),
        place(
            topics.tenants(),
            Some(within),
            "earlier states of memories of the tenant, until the broker compacts the topic",
        ),
        of_events(config),
        place(
            topics.decisions(),
            Some(DECISIONS_MS + SEGMENT_MS),
            "decisions about the erased texts",
        ),
        place(
            topics.dead_letters(),
            Some(DEAD_LETTERS_MS + SEGMENT_MS),
            "records that were refused",
        ),
        place(topics.recalls(), Some(2 * REQUESTS_MS), "requests that quote the erased texts"),
        place(topics.replies(), Some(2 * REQUESTS_MS), "replies that quote the erased texts"),
        place(
            "logs, and the memory of running processes".into(),
            None,
            "log lines of faults, which name users and quote up to 200 characters of a refused \
             record, and vectors of recently encoded texts, until the process ends",
        ),
        place(
            "backups, mirrors and reply topics of applications".into(),
            None,
            "outside of Keepsake, which neither knows nor reaches them; `keepsake restore` applies this \
             receipt if it is given the receipt",
        ),
    ];
    if config.kafka.generation > 1 {
        let before = config.of_generation(config.kafka.generation - 1);
        places.push(place(
            format!(
                "{}, {}, and the directories of its processes",
                before.topics.memories(),
                before.topics.tenants()
            ),
            None,
            "the generation before, until `keepsake generation drop` deletes the topics and somebody \
             removes the directories",
        ));
    }
    places
}

fn of_events(config: &Config) -> Place {
    let events = config.topics.events();
    if config.events.keep_ms == 0 {
        let what = "the sender's own records, and the summaries that Keepsake proposed";
        return place(events, None, what);
    }
    place(
        events,
        Some(old_events::within_ms(config.events.keep_ms)),
        "the sender's own records, and the summaries that Keepsake proposed, until events.keep_ms \
         deletes them; a partition that gets no more events keeps the bytes on the brokers' disks \
         until its next event",
    )
}

fn place(place: String, within_ms: Option<i64>, what: &'static str) -> Place {
    Place { place, within_ms, what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::Layers;

    #[test]
    fn a_later_generation_names_what_the_one_before_has_left() {
        for (generation, is_named) in [("1", false), ("2", true)] {
            let mut layers = Layers::defaults();
            layers.set("kafka.bootstrap_servers", "x:1", "test").expect("an option");
            layers.set("kafka.generation", generation, "test").expect("an option");
            let places = places(&layers.checked().expect("valid"));
            let before = "keepsake.memories, keepsake.tenants, and";
            let found = places.iter().any(|place| place.place.starts_with(before));
            assert_eq!(found, is_named, "{generation}");
        }
    }

    #[test]
    fn the_events_have_a_time_limit_only_if_old_ones_are_deleted() {
        for (keep_ms, is_limited) in [("0", false), ("3600000", true)] {
            let mut layers = Layers::defaults();
            layers.set("kafka.bootstrap_servers", "x:1", "test").expect("an option");
            layers.set("events.keep_ms", keep_ms, "test").expect("an option");
            let config = layers.checked().expect("valid");
            let places = places(&config);
            let events = places.iter().find(|place| place.place == config.topics.events());
            let within_ms = events.expect("the receipt names the events topic").within_ms;
            assert_eq!(within_ms.is_some(), is_limited, "{keep_ms}");
            assert!(within_ms.is_none_or(|ms| ms > config.events.keep_ms + SEGMENT_MS));
        }
    }
}

//! The places that the receipt of a `forget` names: where bytes of an erased text may still be, and
//! for how long.

use crate::config::Config;
use crate::run::options;
use crate::run::topics::{DEAD_LETTERS_MS, DECISIONS_MS, REQUESTS_MS, SEGMENT_MS};
use log::wire::Place;

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
    vec![
        place(
            "store and index".into(),
            Some(within),
            "the files of the process that owns the user, until they are written anew",
        ),
        place(
            "copies on other machines".into(),
            options::has_changelog(config).then_some(within),
            "stand-by copies and disks of former owners, until their processes, which must run, have \
             followed or removed them",
        ),
        place(
            topics.memories(),
            Some(within),
            "earlier states of the memories, until the broker compacts the topic",
        ),
        place(
            topics.events(),
            None,
            "the sender's own records, and the summaries that Keepsake proposed",
        ),
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
            "outside of Keepsake, which neither knows nor reaches them",
        ),
    ]
}

fn place(place: String, within_ms: Option<i64>, what: &'static str) -> Place {
    Place { place, within_ms, what }
}

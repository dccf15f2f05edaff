//! The numbers that a plan assumes: each with its default, its bounds and its meaning. Each is an
//! option of the command line under the same name.

use clap::{Arg, ArgMatches, Command, FromArgMatches, value_parser};
use std::collections::BTreeMap;

pub struct Assumption {
    /// Name of the option, without the dashes.
    pub name: &'static str,
    pub default: f64,
    pub least: f64,
    pub most: f64,
    pub meaning: &'static str,
}

const fn assume(
    name: &'static str,
    default: f64,
    (least, most): (f64, f64),
    meaning: &'static str,
) -> Assumption {
    Assumption { name, default, least, most, meaning }
}

const BYTES: (f64, f64) = (1.0, 1e9);
const RATE: (f64, f64) = (0.01, 1e6);

/// Sizes and rates were measured as `deploy/SIZING.md` describes, which has the same values: a test
/// compares them.
pub const ASSUMPTIONS: [Assumption; 19] = [
    assume("turn-bytes", 2000.0, (1.0, 1e6), "text of a turn, the mean of questions and answers"),
    assume(
        "memories-per-turn",
        4.0,
        (0.0, 64.0),
        "memories that a turn leaves, repetitions merged",
    ),
    assume("recalls-per-turn", 0.5, (0.0, 100.0), "questions to Keepsake for each turn"),
    assume("days", 365.0, (0.05, 36_500.0), "days for which memories are kept"),
    assume(
        "events-days",
        365.0,
        (0.05, 36_500.0),
        "days for which events are kept (events.keep_ms)",
    ),
    assume("peak-factor", 3.0, (1.0, 1000.0), "busiest second of a day, as a multiple of the mean"),
    assume(
        "text-bytes-per-core-second",
        28_000.0,
        (1.0, 1e9),
        "text that one core encodes and applies",
    ),
    assume("recalls-per-core-second", 180.0, RATE, "questions that one core encodes and answers"),
    assume("utilisation", 0.6, (0.01, 1.0), "share of cores and disks that is used at the peak"),
    assume("cores-per-process", 2.0, (0.1, 1024.0), "cores of one process"),
    assume("spare-processes", 1.0, (0.0, 1024.0), "processes that may be away at the peak"),
    assume("store-bytes-per-memory", 5000.0, BYTES, "store and index, on the disk of a process"),
    assume("changelog-bytes-per-memory", 3500.0, BYTES, "its records of the memories topic"),
    assume("event-overhead-bytes", 150.0, BYTES, "an event besides its text"),
    assume("decision-bytes-per-turn", 5000.0, BYTES, "records of the decisions topic, kept a week"),
    assume("replication", 3.0, (1.0, 100.0), "copies of each topic"),
    assume(
        "process-bytes",
        1.9e8,
        BYTES,
        "memory of a process without its caches, encoder included",
    ),
    assume("resident-share", 0.1, (0.0, 1.0), "share of the store that the system keeps in memory"),
    assume("memories-per-partition", 1e7, (1.0, 1e9), "memories of one partition at most"),
];

/// The value of every assumption: as given, or its default.
#[derive(Clone)]
pub struct Assumptions(BTreeMap<&'static str, f64>);

impl Assumptions {
    #[cfg(test)]
    pub fn with(changed: &[(&'static str, f64)]) -> Assumptions {
        let mut all = Assumptions(ASSUMPTIONS.iter().map(|one| (one.name, one.default)).collect());
        all.0.extend(changed.iter().copied());
        all
    }

    pub fn of(&self, name: &str) -> f64 {
        *self.0.get(name).expect("a test asks for each name that the arithmetic uses")
    }

    /// Names the first value outside of its bounds.
    pub fn check(&self) -> Result<(), String> {
        let wrong =
            ASSUMPTIONS.iter().find(|one| !(one.least..=one.most).contains(&self.of(one.name)));
        match wrong {
            None => Ok(()),
            Some(one) => Err(format!(
                "--{}: must be {} to {}, not {}",
                one.name,
                one.least,
                one.most,
                self.of(one.name)
            )),
        }
    }
}

impl clap::Args for Assumptions {
    fn augment_args(command: Command) -> Command {
        ASSUMPTIONS.iter().fold(command, |command, one| {
            let help = format!("Assumed {}: {}", one.default, one.meaning);
            command.arg(
                Arg::new(one.name)
                    .long(one.name)
                    .value_name("NUMBER")
                    .value_parser(value_parser!(f64))
                    .allow_negative_numbers(true)
                    .help_heading("Assumptions")
                    .help(help),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Assumptions::augment_args(command)
    }
}

impl FromArgMatches for Assumptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Assumptions, clap::Error> {
        let mut values = BTreeMap::new();
        for one in ASSUMPTIONS {
            values.insert(one.name, matches.get_one(one.name).copied().unwrap_or(one.default));
        }
        Ok(Assumptions(values))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Assumptions::from_arg_matches(matches)?;
        Ok(())
    }
}

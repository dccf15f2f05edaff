//! The simulator: the production parts of two processes on the broker in memory, and thousands of stories in which everything goes wrong.
//! Whatever happened, in the end the laws hold. `make sim` tells more of them; a failure prints how to tell that one again.

mod bugs;
mod instance;
mod laws;
mod stream;
mod unsteady;
mod world;

use bugs::Bug;
use instance::Kit;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use world::{Happened, Story, tell};

const SEEDS: u64 = 2000;
const SEEDS_FOR_A_BUG: u64 = 200;
/// Enough for everything to happen that can.
const SEEDS_FOR_EVERYTHING: u64 = 500;
/// Ends of events, and of processes. A simulator in which one of them never happens proves nothing about it.
const HAPPENS: [&str; 27] = [
    "kept",
    "merged",
    "superseded",
    "dropped",
    "refused",
    "duplicate",
    "updated",
    "forgotten",
    "noted",
    "outdated",
    "shadowed",
    "pruned",
    "summarised",
    "revised",
    "dead letter",
    "forwarded",
    "told everywhere",
    "receipt",
    "restored",
    "died restoring",
    "died at work",
    "killed",
    "stopped",
    "lost its disk",
    "a week",
    "stood by",
    "the clock goes back",
];
/// Of the trace of a failure.
const LAST_STEPS: usize = 60;

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}")))
}

/// All stories of some seeds: those that do not end well, in the order of their seeds, and what happened in all of them.
#[derive(Default)]
struct Stories {
    badly: Vec<(u64, Story)>,
    happened: Happened,
}

/// On all cores; stops early when enough end badly.
fn stories(seeds: std::ops::Range<u64>, bug: Option<Bug>, enough: usize) -> Stories {
    let (next, all) = (AtomicU64::new(seeds.start), Mutex::new(Stories::default()));
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let kit = Kit::new();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end
                        || all.lock().expect("nobody panics with it").badly.len() >= enough
                    {
                        break;
                    }
                    let story = tell(&kit, seed, bug);
                    let mut all = all.lock().expect("nobody panics with it");
                    for (what, times) in &story.happened {
                        *all.happened.entry(what.clone()).or_default() += times;
                    }
                    if story.end.is_err() {
                        all.badly.push((seed, story));
                    }
                }
            });
        }
    });
    let mut all = all.into_inner().expect("nobody panics with it");
    all.badly.sort_by_key(|(seed, _)| *seed);
    all
}

fn shown(seed: u64, story: &Story, steps: usize) -> String {
    let skipped = story.trace.len().saturating_sub(steps);
    let trace = story.trace[skipped..].join("\n  ");
    let end = match &story.end {
        Ok(digest) => format!("seed {seed} ends well: {digest:016x}"),
        Err(what) => format!(
            "seed {seed} ends badly: {what}\n\nTo see it again: KEEPSAKE_SIM_SEED={seed} make sim"
        ),
    };
    format!("  {trace}\n\n{end}\n")
}

#[test]
fn whatever_goes_wrong_the_laws_hold() {
    if let Some(seed) = number("KEEPSAKE_SIM_SEED") {
        let story = tell(&Kit::new(), seed, None);
        println!("{}", shown(seed, &story, usize::MAX));
        assert!(story.end.is_ok(), "it ends badly, see above");
        return;
    }
    let seeds = number("KEEPSAKE_SIM_SEEDS").unwrap_or(SEEDS);
    let stories = stories(0..seeds, None, 3);
    let badly: Vec<String> =
        stories.badly.iter().map(|(seed, story)| shown(*seed, story, LAST_STEPS)).collect();
    assert!(
        badly.is_empty(),
        "of {seeds} seeds these end badly, and perhaps others:\n{}",
        badly.join("\n")
    );
    println!("{seeds} seeds end well: {:?}", stories.happened);
    let never: Vec<&str> =
        HAPPENS.into_iter().filter(|what| !stories.happened.contains_key(*what)).collect();
    assert!(
        never.is_empty() || seeds < SEEDS_FOR_EVERYTHING,
        "in {seeds} seeds these never happen: {never:?}"
    );
}

#[test]
fn a_seed_is_always_the_same_story() {
    let kit = Kit::new();
    for seed in 0..5 {
        let [once, again] = [(); 2].map(|()| tell(&kit, seed, None));
        assert_eq!((once.end, once.trace), (again.end, again.trace), "seed {seed}");
    }
}

#[test]
fn the_simulator_finds_planted_bugs() {
    for bug in [
        Bug::UnknownIsCommitted,
        Bug::UnknownIsAborted,
        Bug::MetaOfTheBatchBefore,
        Bug::NoTombstones,
    ] {
        let found = stories(0..SEEDS_FOR_A_BUG, Some(bug), 1).badly;
        let (seed, story) = found
            .first()
            .unwrap_or_else(|| panic!("{bug:?} is not found in {SEEDS_FOR_A_BUG} seeds"));
        let what = story.end.as_ref().expect_err("it is one of those that end badly");
        println!("{bug:?} is found by seed {seed}: {}", what.lines().next().unwrap_or_default());
    }
}

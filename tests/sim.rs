//! The simulator: the production parts of two processes on the broker in memory, and thousands of stories in which everything goes wrong.
//! Whatever happened, in the end the laws hold. `make sim` tells more of them; a failure prints how to tell that one again.

mod bugs;
mod instance;
mod laws;
mod stream;
mod world;

use bugs::Bug;
use instance::Kit;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use world::{Story, tell};

const SEEDS: u64 = 2000;
const SEEDS_FOR_A_BUG: u64 = 200;
/// Of the trace of a failure.
const LAST_STEPS: usize = 60;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|e| panic!("{name}={text}: {e}")))
}

/// The stories that do not end well, in the order of their seeds. All cores; stops early when there is enough to look at.
fn failures(seeds: std::ops::Range<u64>, bug: Option<Bug>, enough: usize) -> Vec<(u64, Story)> {
    let (next, found) = (AtomicU64::new(seeds.start), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let kit = Kit::new();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || found.lock().expect("nobody panics with it").len() >= enough {
                        break;
                    }
                    let story = tell(&kit, seed, bug);
                    if story.end.is_err() {
                        found.lock().expect("nobody panics with it").push((seed, story));
                    }
                }
            });
        }
    });
    let mut found = found.into_inner().expect("nobody panics with it");
    found.sort_by_key(|(seed, _)| *seed);
    found
}

fn shown(seed: u64, story: &Story, steps: usize) -> String {
    let skipped = story.trace.len().saturating_sub(steps);
    let trace = story.trace[skipped..].join("\n  ");
    let end = match &story.end {
        Ok(digest) => format!("seed {seed} ends well: {digest:016x}"),
        Err(what) => format!("seed {seed} ends badly: {what}\n\nTo see it again: KEEPSAKE_SIM_SEED={seed} make sim"),
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
    let failures: Vec<String> = failures(0..seeds, None, 3).iter().map(|(seed, story)| shown(*seed, story, LAST_STEPS)).collect();
    assert!(failures.is_empty(), "of {seeds} seeds these end badly, and perhaps others:\n{}", failures.join("\n"));
    println!("{seeds} seeds end well");
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
    for bug in [Bug::UnknownIsCommitted, Bug::UnknownIsAborted, Bug::MetaOfTheBatchBefore, Bug::NoTombstones] {
        let found = failures(0..SEEDS_FOR_A_BUG, Some(bug), 1);
        let (seed, story) = found.first().unwrap_or_else(|| panic!("{bug:?} is not found in {SEEDS_FOR_A_BUG} seeds"));
        let what = story.end.as_ref().expect_err("it is one of those that end badly");
        println!("{bug:?} is found by seed {seed}: {}", what.lines().next().unwrap_or_default());
    }
}

//! Processes of the last release and of this version share a group while events arrive. Each is
//! replaced by one of the other version at the same store, both ways, in good order or by `kill -9`.
//!
//! Needs both versions to decide alike: the memories are compared with those of this version alone.

use super::{PROCESSES, Torture, Tortured, seed, torture};
use crate::support::skips::skipped;
use crate::support::{Child, kafka, number_from_env, on_kafka, root, scratch};
use std::path::PathBuf;

const BLOWS: u64 = 12;

on_kafka! { law_nothing_twice_with_the_last_release_in_the_group }

/// The program of the commit in `tests/data/last-release`, built from the history.
fn last_release() -> Option<PathBuf> {
    let program = std::env::var("KEEPSAKE_TEST_LAST_RELEASE").ok();
    if program.is_none() {
        let why = "the last release beside this version (make torture builds its program and \
                   sets KEEPSAKE_TEST_LAST_RELEASE)";
        skipped("torture::versions", why);
    }
    program.map(|program| root().join(program))
}

fn law_nothing_twice_with_the_last_release_in_the_group() {
    let Some(release) = last_release() else { return };
    let blows = number_from_env("KEEPSAKE_TORTURE_VERSIONS").unwrap_or(BLOWS) as usize;
    let seed = seed();
    let broker = scratch::root().join("versions-kafka");
    let servers = kafka::start_in(&broker).unwrap_or_else(|why| panic!("{why}"));
    let processes = Tortured::start(&servers, seed % 2 == 1);
    let mut is_old = [false; PROCESSES];
    torture(&servers, processes, Torture { seed, blows }, |processes, dice, n| {
        let (victim, signal) = (n % PROCESSES, ["-TERM", "-KILL"][dice.below(2) as usize]);
        let (place, child) = (&processes.places[victim], &mut processes.children[victim]);
        child.wait_until_ready();
        child.signal(signal);
        child.wait();
        is_old[victim] = !is_old[victim];
        *child = match is_old[victim] {
            true => Child::start_program(&release, place),
            false => Child::start(place),
        };
        let version = if is_old[victim] { "the last release" } else { "this version" };
        format!("{signal} to {victim}, which goes on as {version}")
    });
}

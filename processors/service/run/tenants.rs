//! The tenants thread: follows the tenants topic while homes of tenants are elsewhere.

use super::Shared;
use super::loops::rewrite_after_ms;
use crate::ownership::ShardRegistry;
use crate::ownership::tenants::Followed;
use domain::fault::{Fault, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause between two looks at the topic: a user elsewhere sees a change so much later at most.
const LOOK: Duration = Duration::from_millis(100);
/// Pause between two looks at the shards while there is nothing to follow.
const IDLE: Duration = Duration::from_secs(1);
/// Pause between two flushes.
const TEND: Duration = Duration::from_secs(10);
/// Time without need after which the copy is removed: a rebalance may bring the need back.
const UNNEEDED: Duration = Duration::from_secs(600);
/// Pause after a topic that could not be followed.
const AFTER_FAULT: Duration = Duration::from_secs(1);

pub struct TenantsLoop {
    pub shards: Arc<ShardRegistry>,
    pub from: Followed,
}

impl TenantsLoop {
    pub fn run(self, shared: &Shared) -> Result<()> {
        let TenantsLoop { shards, from } = self;
        let mut needed = Instant::now();
        while !shared.is_stopping() {
            let mut pause = IDLE;
            if shards.follows_tenants() {
                needed = Instant::now();
                let followed = shards.follow_tenants(&from, &|| !shared.is_stopping());
                pause = if retried(followed, "follow")? { AFTER_FAULT } else { LOOK };
            } else if needed.elapsed() >= UNNEEDED {
                shards.remove_tenants(&from)?;
            }
            shared.wait(pause);
        }
        shards.close_tenants()
    }
}

/// Flushes the copy, and removes forgotten bytes from its files: on a thread of its own, because a
/// rewrite may take a minute.
pub fn tend(shards: &ShardRegistry, within: Duration, shared: &Shared) -> Result<()> {
    while !shared.is_stopping() {
        shared.wait(TEND);
        retried(shards.tend_tenants(rewrite_after_ms(within), &|| !shared.is_stopping()), "flush")?;
    }
    Ok(())
}

/// Returns true after a fault that a later try may not meet.
fn retried(outcome: Result<()>, what: &str) -> Result<bool> {
    match outcome {
        Err(Fault::Retry(retry)) => {
            tracing::warn!(why = retry.what, "cannot {what} the memories of tenants: retrying");
            Ok(true)
        }
        outcome => outcome.map(|()| false),
    }
}

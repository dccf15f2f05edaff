//! Tests the kernel over a shard in memory (`tests/shard.rs`), with a policy that keeps every part of
//! a turn (`tests/world.rs`). Each story runs twice, with a batch for each event and with one batch
//! for all: where a batch ends must change nothing.

mod changes;
mod forgetting;
mod proposals;
mod remembering;
mod shard;
mod tenant;
mod turns;
mod world;

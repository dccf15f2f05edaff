//! The contract, story by story, each on both brokers. Most share one service per broker: every story has users of its own.

mod compaction;
mod events;
mod forgetting;
mod marks;
mod refusals;
mod requests;
mod routing;
mod scopes;
mod shadow;

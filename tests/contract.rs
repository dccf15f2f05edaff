//! The contract of `schemas/`, each scenario on both brokers.
//!
//! Most scenarios share one service per broker, so each uses tenants of its own.

mod changes;
pub(crate) mod compaction;
mod conditions;
mod events;
mod expiry;
mod forgetting;
mod marks;
mod policies;
mod quota;
mod refusals;
mod requests;
mod routing;
mod scopes;
mod shadow;
pub(crate) mod tenant_keys;

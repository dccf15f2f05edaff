//! The vocabulary of Keepsake as plain values: keys, events, requests, decisions, memories,
//! vectors.
//!
//! Every other crate uses these types, so none of them does I/O or knows a serialised form: JSON
//! is in `contract/wire.rs`, the store's bytes are in `storage/store/format.rs`. The two pure algorithms
//! that all sides must compute alike are here too: the partitioner and the quantisation of vectors.

mod bearer_key;
mod chatter;
mod cosine_scale;
mod decision;
mod erasure;
mod event;
pub mod fault;
mod filter;
mod generation;
mod key;
mod memory;
pub mod panics;
mod partition;
mod position;
mod request;
mod role;
mod signature;
mod surprise;
mod tenant_signature;
mod time;
mod vector;
mod word_counts;

pub use bearer_key::BearerKey;
pub use chatter::Chatter;
pub use cosine_scale::CosineScale;
pub use decision::{Decision, Outcome};
pub use erasure::{ErasedText, Erasure, Salt, Target};
pub use event::{
    Action, Author, Authorship, Category, Content, Event, Extracted, Fact, Forget,
    ForgetContinuation, ForwardReason, IdleSession, JudgedMemory, MemoryVersion, Remember, Revise,
    SENDER_LIMITS, SenderLimits, Signal, Step, Turn, Update,
};
pub use filter::{Bound, Comparison, Condition, Filter, Filtered, Test};
pub use generation::{Closed, GENERATION, HandOver, HandOverStep};
pub use key::{InvalidName, NAME_BYTES_MAX, UserKey};
pub use memory::{
    ContextTurn, Cursor, Kind, Memory, MemoryId, Metadata, NeighbourTurn, NeighbourTurns,
    ProbableLink, Revision, Scope, unknown_memory,
};
pub use partition::partition_of;
pub use position::Position;
pub use request::{
    About, Assembly, Duplicates, Explain, Format, Levels, List, Match, Period, Purpose, Recall,
    ReplyTo, Request, RequestKind, UnsetFields,
};
pub use role::Role;
pub use signature::{KEY_BYTES_MIN, SIGNATURE, SignedParts, SigningKey};
pub use surprise::Surprise;
pub use tenant_signature::{AGE_MS_MAX, REDRIVEN, SIGNED_HEADERS, TENANT_SIGNATURE, TenantKeys};
pub use time::{Now, Time};
pub use vector::{Vector, dot, for_this_processor, product};
pub use word_counts::UserWordCounts;

//! The tables of a profile that the kernel follows: the treatment of each role, the effects of
//! feedback, and who may write tenant memories.

use domain::{Role, Signal};
use serde::Deserialize;
use std::collections::BTreeSet;

/// The users who may write and change tenant memories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TenantWriters {
    Everybody,
    Named(BTreeSet<String>),
}

impl TenantWriters {
    pub fn allow(&self, user: &str) -> bool {
        *self == TenantWriters::Everybody || self.name(user)
    }

    /// True if an operator chose this user.
    pub fn name(&self, user: &str) -> bool {
        matches!(self, TenantWriters::Named(names) if names.contains(user))
    }
}

/// Treatment of a role's turns: always stored, stored if the gate keeps them, or context only.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Treatment {
    Keep,
    Gate,
    Context,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Roles {
    user: Treatment,
    assistant: Treatment,
    system: Treatment,
    tool: Treatment,
}

impl Roles {
    pub fn treatment(&self, role: Role) -> Treatment {
        match role {
            Role::User => self.user,
            Role::Assistant => self.assistant,
            Role::System => self.system,
            Role::Tool => self.tool,
        }
    }
}

/// Smallest probabilities that a statement revises an earlier one.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// From here on the newer statement ranks first.
    pub order: f32,
    /// From here on the older statement carries a note.
    pub mark: f32,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Effect {
    pub importance: f32,
    pub confidence: f32,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Feedback {
    used: Effect,
    confirmed: Effect,
    wrong: Effect,
    irrelevant: Effect,
    returned: Effect,
    returned_counts: bool,
    /// A profile from before this option renews.
    #[serde(default = "yes")]
    renews: bool,
}

impl Feedback {
    pub fn effect(&self, signal: Signal) -> Effect {
        match signal {
            Signal::Used => self.used,
            Signal::Confirmed => self.confirmed,
            Signal::Wrong => self.wrong,
            Signal::Irrelevant => self.irrelevant,
            Signal::Returned => self.returned,
        }
    }

    /// True if a use or a confirmation renews the memory.
    pub fn renews(&self) -> bool {
        self.renews
    }

    pub fn returned_counts(&self) -> bool {
        self.returned_counts
    }
}

fn yes() -> bool {
    true
}

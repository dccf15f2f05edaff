//! The part of a profile that the kernel follows: the policy, the treatment of each role, and the
//! effects of feedback.

use crate::Policy;
use domain::{Category, Role, Signal};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::sync::Arc;
use text::split;

#[derive(Clone)]
pub struct Rules {
    /// The name of the profile, which every memory and decision carries.
    pub name: Arc<str>,
    pub policy: Arc<dyn Policy>,
    pub roles: Roles,
    /// Categories that are never kept, whoever speaks.
    pub never: Vec<Category>,
    pub change: Change,
    pub feedback: Feedback,
    pub tenant_writers: TenantWriters,
    /// How a text becomes statements.
    pub split: split::Options,
}

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

impl Rules {
    pub fn treatment(&self, role: Role) -> Treatment {
        match role {
            Role::User => self.roles.user,
            Role::Assistant => self.roles.assistant,
            Role::System => self.roles.system,
            Role::Tool => self.roles.tool,
        }
    }

    pub fn effect(&self, signal: Signal) -> Effect {
        match signal {
            Signal::Used => self.feedback.used,
            Signal::Confirmed => self.feedback.confirmed,
            Signal::Wrong => self.feedback.wrong,
            Signal::Irrelevant => self.feedback.irrelevant,
            Signal::Returned => self.feedback.returned,
        }
    }

    /// True if a use or a confirmation renews the memory.
    pub fn renews(&self) -> bool {
        self.feedback.renews
    }

    pub fn returned_counts(&self) -> bool {
        self.feedback.returned_counts
    }

    /// Returns true if both give every candidate the same total. A shadow can use the
    /// user's totals for its threshold only then.
    pub fn weighs_as(&self, other: &Rules) -> bool {
        let totals = &self.policy.traits().totals;
        let is_same = *totals == other.policy.traits().totals;
        totals.is_some() && is_same && self.roles == other.roles
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

fn yes() -> bool {
    true
}

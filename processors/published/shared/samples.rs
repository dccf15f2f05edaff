//! Provides plain memories, turns and profile numbers for the tests of the published policies.

use super::Ground;
use domain::{ContextTurn, Kind, Memory, Role, Time, Vector};
use policies::rank::samples;
use serde::de::DeserializeOwned;
use std::sync::LazyLock;
use text::Rarity;

pub static RARITY: LazyLock<Rarity> = LazyLock::new(Rarity::flat);

/// The inputs of a gate for a user's first turn: no memories, no earlier turns.
pub fn ground(rarity: &Rarity) -> Ground<'_> {
    Ground {
        memories: &[],
        recent: &[],
        nearness_to_all: None,
        rarity,
        role: Role::User,
        hint: None,
    }
}

pub fn memory(number: u32, kind: &str, content: &str) -> Memory {
    let at = Time(i64::from(number));
    let kind = Kind::new(kind);
    let plain = samples::memory(number, content);
    Memory { kind, created_at: at, valid_from: at, fresh_at: at, ..plain }
}

pub fn said(content: &str) -> ContextTurn {
    ContextTurn {
        role: Role::User,
        speaker: "user".into(),
        content: content.into(),
        vector: Vector::default(),
        source: None,
        question: 0.0,
        memory: None,
    }
}

/// The built-in profile with this name.
pub fn profile(name: &str) -> toml::Table {
    let entry = crate::POLICIES.iter().find(|entry| entry.name == name).expect("it is built in");
    entry.profile.parse().expect("the built-in profiles are valid TOML")
}

/// Reads `[gate.rule.RULE]` from the text of a built-in profile.
pub fn shipped_gate<T: DeserializeOwned>(rule: &str) -> T {
    shipped("gate", rule)
}

/// Reads `[rank.rule.RULE]` from the text of a built-in profile.
pub fn shipped_rank<T: DeserializeOwned>(rule: &str) -> T {
    shipped("rank", rule)
}

fn shipped<T: DeserializeOwned>(table: &str, rule: &str) -> T {
    let numbers = profile(rule)[table]["rule"][rule].clone();
    numbers.try_into().unwrap_or_else(|e| panic!("{rule}: {e}"))
}

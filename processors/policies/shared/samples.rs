//! Provides plain memories, turns and profile numbers for the tests of the published policies.

use super::Ground;
use domain::{
    ContextTurn, Kind, Memory, MemoryId, Metadata, NeighbourTurns, Position, Role, Scope, Time,
    UserKey, Vector,
};
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
    let source =
        Position { topic: "keepsake.events".into(), partition: 0, offset: i64::from(number) };
    let at = Time(i64::from(number));
    Memory {
        around: NeighbourTurns::default(),
        id: MemoryId::of(&source, 0),
        key: UserKey::new("default", "anna").expect("a valid name"),
        author: None,
        scope: Scope::User,
        session: None,
        kind: Kind::new(kind),
        content: content.to_owned(),
        role: Role::User,
        speaker: None,
        importance: 0.5,
        confidence: 1.0,
        created_at: at,
        valid_from: at,
        valid_to: None,
        expires_at: None,
        source,
        event_id: None,
        metadata: Metadata::new(),
        supersedes: vec![],
        superseded_by: None,
        revises: vec![],
        revised_by: None,
        conflicts_with: vec![],
        archived: false,
        version: 1,
        changed: i64::from(number),
        uses: 0,
        confirmed: 0,
        fresh_at: at,
        surprise: None,
        threshold: None,
        reason: String::new(),
        profile: "keepsake".into(),
        covers: vec![],
        compressed_by: None,
        disabled: false,
        stability: None,
        sources: vec![],
        history: vec![],
    }
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
    let text = crate::built_in(name).expect("the profile is built in");
    text.parse().expect("the built-in profiles are valid TOML")
}

/// Reads `[gate.rule.RULE]` from the text of a built-in profile.
pub fn shipped<T: serde::de::DeserializeOwned>(rule: &str) -> T {
    let profile = profile(rule);
    profile["gate"]["rule"][rule].clone().try_into().unwrap_or_else(|e| panic!("{rule}: {e}"))
}

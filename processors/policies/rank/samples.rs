//! Sample memories, hits and questions for the tests of this folder and of the published policies.

use super::{Fade, RankOptions, WrittenRank};
use domain::{
    Filter, Format, Kind, Memory, MemoryId, Metadata, NeighbourTurns, Period, Position,
    ProbableLink, Purpose, Recall, Role, Scope, Time, UnsetFields, UserKey,
};
use kernel::policy::Room;
use kernel::ranking::{Hit, HitScore, Question, Ranked};
use std::sync::Arc;

pub fn memory(number: u32, content: &str) -> Memory {
    let source =
        Position { topic: "keepsake.events".into(), partition: 0, offset: i64::from(number) };
    Memory {
        id: MemoryId::of(&source, 0),
        key: UserKey::new("default", "anna").expect("a plain name"),
        author: None,
        scope: Scope::User,
        session: None,
        kind: Kind::new("fact"),
        content: content.to_owned(),
        role: Role::User,
        speaker: None,
        importance: 0.5,
        confidence: 1.0,
        created_at: Time(0),
        valid_from: Time(0),
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
        fresh_at: Time(0),
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
        around: NeighbourTurns::default(),
    }
}

/// A link to the memory of this number.
pub fn revision(number: u32, probability: f32) -> ProbableLink {
    ProbableLink { memory: memory(number, "").id, probability }
}

pub fn hit(number: u32, content: &str, words: f32, cosine: f32) -> Hit {
    Hit {
        memory: memory(number, content).into(),
        own: HitScore { words, cosine },
        shared: Some(1.0),
        nearest_word: 0.0,
        before: HitScore::default(),
        after: HitScore::default(),
    }
}

/// Changes the memory of a sample.
pub trait MemoryMut {
    fn memory_mut(&mut self) -> &mut Memory;
}

impl MemoryMut for Hit {
    fn memory_mut(&mut self) -> &mut Memory {
        Arc::make_mut(&mut self.memory)
    }
}

impl MemoryMut for Ranked {
    fn memory_mut(&mut self) -> &mut Memory {
        Arc::make_mut(&mut self.memory)
    }
}

pub fn nothing() -> Filter {
    Filter::default()
}

pub fn ask<'a>(text: &'a str, filter: &'a Filter) -> Question<'a> {
    Question {
        text,
        session: None,
        kinds: &[],
        filter,
        as_of: None,
        period: Period::default(),
        as_of_offset: None,
        include_archived: false,
        searches_archive: false,
        include_compressed: false,
        explain: false,
        limit: 100,
        purpose: Purpose::default(),
        speaker: None,
        information: 0.0,
        min_relevance: 0.0,
        is_reranked: false,
        is_blank: kernel::ranking::is_blank(text),
        asks_past: text::asks_for_the_past(text),
        bound: None,
    }
}

pub fn recall(query: &str) -> Recall {
    Recall {
        queries: vec![query.to_owned()],
        session: None,
        limit: 5,
        token_budget: 2000,
        kinds: vec![],
        filter: nothing(),
        as_of: None,
        period: Period::default(),
        as_of_offset: None,
        include_archived: false,
        searches_archive: false,
        include_compressed: false,
        format: Format::Markdown,
        profile: None,
        explain: false,
        history: vec![],
        min_relevance: 0.0,
        purpose: Purpose::default(),
        unsaid: UnsetFields::default(),
    }
}

/// The room of a block with this budget.
pub fn room(budget: usize, count_tokens: &dyn Fn(&str) -> usize) -> Room<'_> {
    Room { limit: usize::MAX, budget, count_tokens }
}

/// Reads the weights of the built-in default profile.
pub fn weights() -> RankOptions {
    let profile = profile();
    let mut rank = profile["rank"].clone();
    let index_keys =
        ["k1", "b", "previous", "short_words", "first_person", "rerank", "abstain", "rule"];
    rank.as_table_mut().expect("[rank] is a table").retain(|key, _| !index_keys.contains(&key));
    let fade: Fade = profile["fade"].clone().try_into().expect("[fade] parses");
    rank.try_into::<WrittenRank>().expect("[rank] parses").checked(fade)
}

/// The default profile's policy, as built in.
pub fn policy() -> crate::keepsake::Keepsake {
    let profile = profile();
    let tables = crate::Tables { profile: &profile, name: "keepsake" };
    crate::keepsake::Keepsake::read(&tables).expect("it is built in")
}

/// The built-in default profile.
pub fn profile() -> toml::Table {
    crate::KEEPSAKE.profile.parse().expect("it is valid TOML")
}

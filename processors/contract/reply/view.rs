//! Maps domain values to the structs of `wire.rs`. Each function maps one value and borrows as much
//! as possible. A new field of the contract is filled here.

use super::parts::{DuplicatePair, FadeCurve, Freshness, Picture, RecalledMemory, Stats};
use crate::wire;
use domain::{
    Assembly, Cursor, Decision, Erasure, JudgedMemory, Levels, Memory, MemoryId, MemoryVersion,
    Position, Surprise, Time,
};

const UNQUOTED: &str = "left out, because it quotes what was said";

pub fn decision(decision: &Decision, with_text: bool) -> wire::Decision<'_> {
    wire::Decision {
        name: "decision",
        outcome: decision.outcome.as_str(),
        reason: reason(decision, with_text),
        event: event_position(&decision.event, decision.event_id.as_deref()),
        tenant: decision.key.tenant(),
        user: decision.key.user(),
        session: decision.session.as_deref(),
        candidate: decision.candidate.as_deref().filter(|_| with_text),
        kind: decision.kind.as_ref().map(|kind| kind.as_str()),
        surprise: decision.surprise.as_ref().map(surprise),
        threshold: decision.threshold.map(wire::Number),
        memory: decision.memory.map(id),
        related: ids(&decision.related),
        left: decision.left,
        salt: None,
        profile: &decision.profile,
        at: moment(decision.at),
        misrouted: decision.misrouted,
        warnings: &decision.warnings,
        of_other_event: decision.of_other_event,
        withheld: decision.withheld,
        shadow: false,
    }
}

/// The reason, or, without texts, the fact that the decision quotes a memory: the words around a
/// quotation may be of the memory too.
fn reason(decision: &Decision, with_text: bool) -> &str {
    if with_text || !decision.reason.contains('"') { &decision.reason } else { UNQUOTED }
}

/// The decision as shown to the asker.
pub fn own_decision(decision: &Decision) -> wire::Decision<'_> {
    let salt = decision.salt.as_ref().map(domain::Salt::hex);
    wire::Decision { salt, ..self::decision(decision, true) }
}

/// `listed_max`: texts, turns and sessions that the receipt lists, of each.
pub fn erasure<'a>(
    erasure: &'a Erasure,
    places: &'a [wire::Place],
    listed_max: usize,
) -> wire::Erasure<'a> {
    let listed = erasure.texts.iter().take(listed_max);
    let mut turns: Vec<wire::ErasedTurns<'_>> = Vec::new();
    for Position { topic, partition, offset } in erasure.turns.iter().take(listed_max) {
        match turns.last_mut().filter(|it| it.topic == &**topic && it.partition == *partition) {
            Some(same) => same.offsets.push(*offset),
            None => turns.push(wire::ErasedTurns {
                topic,
                partition: *partition,
                offsets: vec![*offset],
            }),
        }
    }
    wire::Erasure {
        turns,
        name: "erasure",
        event: event_position(&erasure.event, erasure.event_id.as_deref()),
        continues: erasure.continues.as_ref().map(|first| event_position(first, None)),
        tenant: erasure.key.tenant(),
        user: erasure.key.user(),
        target: erasure.target.as_str(),
        count: erasure.count,
        left: erasure.left,
        texts: listed
            .map(|text| wire::ErasedText { memory: id(text.memory), digest: text.digest_hex() })
            .collect(),
        unlisted: [erasure.texts.len(), erasure.turns.len(), erasure.sessions.len()]
            .map(|count| count.saturating_sub(listed_max))
            .iter()
            .sum(),
        sessions: &erasure.sessions[..erasure.sessions.len().min(listed_max)],
        places,
        at: moment(erasure.at),
    }
}

pub fn found(found: &RecalledMemory, explain: bool) -> wire::Memory<'_> {
    wire::Memory {
        score: Some(wire::Number(found.score)),
        note: found.note.as_deref(),
        relevance: found.relevance.map(wire::Number),
        explain: explain.then_some(wire::Numbers(&found.terms)),
        ..memory(&found.memory)
    }
}

pub fn pair(pair: &DuplicatePair) -> wire::Pair<'_> {
    wire::Pair {
        newer: memory(&pair.newer),
        older: memory(&pair.older),
        cosine: wire::Number(pair.cosine),
    }
}

pub fn whole_memory(memory: &Memory) -> wire::Memory<'_> {
    let record = wire::MemoryRecord {
        tenant: memory.key.tenant(),
        user: memory.key.user(),
        version: memory.version,
        uses: memory.uses,
        confirmed: memory.confirmed,
        fresh_at: moment(memory.fresh_at),
        surprise: memory.surprise.as_ref().map(surprise),
        threshold: memory.threshold.map(wire::Number),
        reason: &memory.reason,
        profile: &memory.profile,
    };
    wire::Memory { record: Some(record), ..self::memory(memory) }
}

pub fn memory(memory: &Memory) -> wire::Memory<'_> {
    wire::Memory {
        id: id(memory.id),
        kind: memory.kind.as_str(),
        content: &memory.content,
        score: None,
        relevance: None,
        importance: wire::Number(memory.importance),
        confidence: wire::Number(memory.confidence),
        scope: memory.scope.as_str(),
        state: if memory.archived { "archived" } else { "active" },
        role: memory.role.as_str(),
        created_at: moment(memory.created_at),
        updated_at: memory.history.last().map(|revision| moment(revision.until)),
        valid_from: moment(memory.valid_from),
        valid_to: memory.valid_to.map(moment),
        expires_at: memory.expires_at.map(moment),
        session: memory.session.as_deref(),
        speaker: memory.speaker.as_deref(),
        source: source(memory),
        metadata: &memory.metadata,
        supersedes: ids(&memory.supersedes),
        superseded_by: memory.superseded_by.map(id),
        revises: memory.revises.iter().map(|link| id(link.memory)).collect(),
        revised_by: memory.revised_by.map(id),
        note: None,
        conflicts_with: ids(&memory.conflicts_with),
        covers: ids(&memory.covers),
        compressed_by: memory.compressed_by.map(id),
        enabled: memory.disabled.then_some(false),
        stability: memory.stability.map(wire::Number),
        sources: memory.sources.iter().map(|turn| event_position(turn, None)).collect(),
        explain: None,
        record: None,
    }
}

/// Returns nothing for a policy that has no levels.
pub fn levels(levels: &Levels) -> Option<wire::Levels> {
    let Levels { floor, good } = *levels;
    (floor.is_some() || good.is_some())
        .then(|| wire::Levels { floor: floor.map(wire::Number), good: good.map(wire::Number) })
}

/// The turns before and after the one that the memory was made from, in their order.
pub fn context(memory: &Memory) -> Vec<wire::ContextLine<'_>> {
    let around = &memory.around;
    let turns = around.earlier.iter().chain(&around.before).chain(&around.after);
    turns.map(|turn| wire::ContextLine { speaker: &turn.speaker, words: &turn.words }).collect()
}

pub fn assembly(assembly: &Assembly) -> wire::Assembly<'_> {
    let scores = assembly.top_memory_scores.iter();
    wire::Assembly {
        soul_tokens: assembly.soul_tokens,
        memories_included: assembly.memories_included,
        memories_tokens: assembly.memories_tokens,
        episodes_included: assembly.episodes_included,
        procedures_included: assembly.procedures_included,
        total_tokens: assembly.total_tokens,
        top_memory_scores: scores
            .map(|(content, score)| wire::MemoryScore { content, score: wire::Number(*score) })
            .collect(),
    }
}

pub fn history(memory: &Memory) -> Vec<wire::Revision<'_>> {
    let revisions = memory.history.iter();
    revisions
        .map(|revision| wire::Revision {
            content: &revision.content,
            until: moment(revision.until),
        })
        .collect()
}

pub fn explained<'a>(
    decisions: &'a [Decision],
    memory: Option<&'a Memory>,
    faded: Option<&FadeCurve>,
) -> wire::Explained<'a> {
    let several = if decisions.len() > 1 { decisions } else { &[] };
    wire::Explained {
        decision: decisions.first().map(|first| decision(first, true)),
        decisions: several.iter().map(|each| decision(each, true)).collect(),
        memory: memory.map(whole_memory),
        since: memory.map(since).unwrap_or_default(),
        fade: faded.map(fade),
    }
}

fn fade(fade: &FadeCurve) -> wire::Fade {
    wire::Fade {
        at: moment(fade.at),
        strength: wire::Number(fade.strength),
        shape: fade.shape,
        half_life_days: fade.half_life_days.map(wire::Number),
        prune_below: fade.prune.map(|(strength, _)| wire::Number(strength)),
        prune_after_days: fade.prune.map(|(_, days)| wire::Number(days)),
        points: fade.points.iter().map(|(at, left)| (moment(*at), wire::Number(*left))).collect(),
    }
}

pub fn picture(picture: &Picture) -> wire::Picture<'_> {
    let lines = picture.lines.iter().map(|line| wire::PictureLine {
        section: line.section,
        content: &line.memory.content,
        memory: id(line.memory.id),
        kind: line.memory.kind.as_str(),
        created_at: moment(line.memory.created_at),
        speaker: line.memory.speaker.as_deref(),
    });
    wire::Picture { lines: lines.collect(), prompt: &picture.prompt, tokens: picture.tokens }
}

pub fn stats(stats: &Stats) -> wire::Stats<'_> {
    wire::Stats {
        memories: wire::Counts {
            total: stats.memories,
            in_sessions: stats.in_sessions,
            by_kind: &stats.by_kind,
            by_scope: &stats.by_scope,
            by_state: &stats.by_state,
        },
        importance_average: (stats.memories > 0).then_some(wire::Number(stats.average_importance)),
        oldest: stats.oldest.map(moment),
        bytes: stats.bytes,
        decisions: &stats.decisions,
        sessions: wire::Sessions {
            total: stats.sessions,
            latest: stats.latest_sessions.iter().map(session_turns).collect(),
        },
    }
}

fn session_turns((session, turns, last_at): &(String, u32, Time)) -> wire::SessionTurns<'_> {
    wire::SessionTurns { session, turns: *turns, last_at: moment(*last_at) }
}

pub fn freshness(freshness: &Freshness) -> wire::Freshness<'_> {
    wire::Freshness {
        applied_offset: freshness.applied_offset,
        stale: freshness.stale,
        took_us: freshness.took_us,
        partial: freshness.partial,
        misrouted: freshness.misrouted,
        warnings: &freshness.warnings,
    }
}

pub fn seen(list: &[MemoryVersion]) -> Vec<wire::Seen> {
    list.iter().map(|seen| wire::Seen { id: id(seen.id), version: seen.version }).collect()
}

pub fn judged(list: &[JudgedMemory]) -> Vec<wire::Judged> {
    list.iter()
        .map(|JudgedMemory { memory, probability }| wire::Judged {
            id: id(memory.id),
            version: memory.version,
            probability: *probability,
        })
        .collect()
}

pub fn ids(list: &[MemoryId]) -> Vec<wire::Id> {
    list.iter().copied().map(id).collect()
}

/// Writes a cursor. The text is opaque to clients, which only send the text back.
pub fn cursor(cursor: &Cursor) -> String {
    format!("{}.{}", cursor.created_at.0, cursor.id)
}

pub fn id(id: MemoryId) -> wire::Id {
    wire::Id(id.0)
}

pub fn moment(time: Time) -> wire::Moment {
    wire::Moment(time.0)
}

/// Lists the changes of a memory since the first version, oldest first. Changes without a known
/// time come last.
fn since(memory: &Memory) -> Vec<wire::HistoryEntry> {
    let revisions = memory.history.iter();
    let mut entries: Vec<_> =
        revisions.map(|revision| entry("updated", Some(revision.until))).collect();
    entries.extend(counted("used", memory.uses, memory.confirmed, memory.fresh_at));
    entries.extend(counted("confirmed", memory.confirmed, memory.uses, memory.fresh_at));
    entries.extend(memory.superseded_by.map(|newer| linked("superseded", memory.valid_to, newer)));
    entries.extend(memory.revised_by.map(|newer| linked("revised", None, newer)));
    entries.extend(memory.conflicts_with.iter().map(|other| linked("in_conflict", None, *other)));
    entries.extend(memory.compressed_by.map(|summary| linked("compressed", None, summary)));
    entries.extend(memory.archived.then(|| entry("archived", None)));
    entries.sort_by_key(|entry| entry.at.map_or(i64::MAX, |at| at.0));
    entries
}

fn entry(what: &'static str, at: Option<Time>) -> wire::HistoryEntry {
    wire::HistoryEntry { what, at: at.map(moment), count: None, memory: None }
}

fn linked(what: &'static str, at: Option<Time>, other: MemoryId) -> wire::HistoryEntry {
    wire::HistoryEntry { memory: Some(id(other)), ..entry(what, at) }
}

/// Uses and confirmations share the time `last`, so the time belongs to one of them only if the
/// `other` never happened.
fn counted(what: &'static str, count: u32, other: u32, last: Time) -> Option<wire::HistoryEntry> {
    let at = (other == 0).then_some(last);
    (count > 0).then(|| wire::HistoryEntry { count: Some(count), ..entry(what, at) })
}

fn surprise(surprise: &Surprise) -> wire::Surprise<'_> {
    wire::Surprise {
        total: wire::Number(surprise.total),
        novelty: wire::Number(surprise.novelty),
        contradiction: wire::Number(surprise.contradiction),
        specificity: wire::Number(surprise.specificity),
        emphasis: wire::Number(surprise.emphasis),
        context_switch: wire::Number(surprise.context_switch),
        points: wire::Numbers(&surprise.points),
    }
}

pub fn event_position<'a>(event: &'a Position, id: Option<&'a str>) -> wire::EventPosition<'a> {
    wire::EventPosition {
        topic: &event.topic,
        partition: event.partition,
        offset: event.offset,
        id,
    }
}

fn source(memory: &Memory) -> wire::Source<'_> {
    let Position { topic, partition, offset } = &memory.source;
    wire::Source {
        event_id: memory.event_id.as_deref(),
        topic,
        partition: *partition,
        offset: *offset,
    }
}

//! How what is kept is written: one byte of format version, then postcard. The only place that knows the bytes of a value.
//!
//! Every format written once is read forever: a change is a new struct and a new version beside the old one, never an edited struct.

use super::Identity;

use crate::domain::{
    Around, Kind, Memory, MemoryId, Neighbour, OwnWords, Position, Revision, Role, SaidBefore,
    Scope, Surprise, Time, UserKey, Vector,
};
use crate::fault::{Fault, Result, StopName};
use crate::memory::reads::{GateState, SeenBefore, Session, SlotHolder};
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use uuid::Uuid;

/// Order matters: with the first batch that is written under it the identity is written anew (`Store::apply`), so that an older program
/// stops there.
///
/// 2: the gate's record counts the user's own words; a memory has what was said around it, a session's last turns where they came from.
/// 3: a memory has the ids of the memories that it revises and of the one that revises it.
/// 4: a memory that a whole tenant sees has its author; an event that waits for its order has a record.
pub const VERSION: u8 = 4;
const VERSION_1: u8 = 1;
const VERSION_2: u8 = 2;
const VERSION_3: u8 = 3;

/// What the compact form holds: a place in these lists. Only ever appended to.
const ROLES: [Role; 4] = [Role::User, Role::Assistant, Role::System, Role::Tool];
const SCOPES: [Scope; 3] = [Scope::User, Scope::Session, Scope::Tenant];

// ---------------------------------------------------------------- from and to bytes

fn encode<T: Serialize>(record: &T, bytes_about: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(bytes_about);
    bytes.push(VERSION);
    postcard::to_extend(record, bytes).expect("postcard writes plain structs into memory")
}

/// What is written alike in every version so far.
fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T> {
    from_body(body(bytes)?.1)
}

fn from_body<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T> {
    postcard::from_bytes(body).map_err(|fault| unreadable(fault.to_string()))
}

/// The version and what stands behind it, if it is ours. A record that is the same in several versions need not ask which.
fn body(bytes: &[u8]) -> Result<(u8, &[u8])> {
    match bytes {
        [version @ VERSION_1..=VERSION, body @ ..] => Ok((*version, body)),
        [version, ..] if *version > VERSION => Err(newer(*version)),
        _ => Err(unreadable("no known format")),
    }
}

/// Written by an older program: it would not understand what this one writes.
pub fn is_older(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|version| *version < VERSION)
}

pub fn newer(version: u8) -> Fault {
    Fault::stop(
        StopName::StoreNewer,
        format!(
            "was written in format {version} by a newer keepsake, this one reads up to {VERSION}; start the newer one again"
        ),
    )
}

pub fn unreadable(why: impl Into<String>) -> Fault {
    Fault::stop(StopName::StoreUnreadable, why)
}

fn known<T: Copy>(list: &[T], place: u8) -> Result<T> {
    list.get(usize::from(place))
        .copied()
        .ok_or_else(|| unreadable(format!("no such choice {place}")))
}

fn place_in<T: PartialEq>(list: &[T], choice: T) -> u8 {
    list.iter().position(|known| *known == choice).expect("the lists hold every choice") as u8
}

/// One copy instead of one call a byte. Reads as `&[u8]` again.
fn as_bytes<S: Serializer>(bytes: &[u8], serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

// ---------------------------------------------------------------- memory and vector

/// The vector stands first, so that reading all of a user's vectors does not decode the memories; behind it `MemoryV1`,
/// `AroundV2`, `RevisionsV3` and `AuthorV4`, or nothing yet.
struct Parts<'a> {
    version: u8,
    vector: VectorV1<'a>,
    memory: &'a [u8],
}

fn split(bytes: &[u8]) -> Result<Parts<'_>> {
    let (version, body) = body(bytes)?;
    let (vector, memory) =
        postcard::take_from_bytes(body).map_err(|fault| unreadable(fault.to_string()))?;
    Ok(Parts { version, vector, memory })
}

fn with_vector(vector: &VectorV1<'_>, memory_bytes_about: usize) -> Vec<u8> {
    encode(vector, 8 + vector.values.len() + memory_bytes_about)
}

fn with_memory(bytes: Vec<u8>, memory: &Memory) -> Vec<u8> {
    let bytes = extended(bytes, &memory_v1(memory));
    let bytes = extended(bytes, &around_v2(&memory.around));
    let bytes = extended(bytes, &revisions_v3(memory));
    extended(bytes, &AuthorV4 { author: memory.author.as_deref() })
}

fn extended(bytes: Vec<u8>, record: &impl Serialize) -> Vec<u8> {
    postcard::to_extend(record, bytes).expect("postcard writes plain structs into memory")
}

fn bytes_about(memory: &Memory) -> usize {
    let around = |neighbour: &Neighbour| 64 + neighbour.words.len() + neighbour.vector.values.len();
    384 + memory.content.len() + memory.around.all().map(around).sum::<usize>()
}

/// The record of this memory; its vector is the one in the record so far.
pub fn memory_bytes(memory: &Memory, so_far: Option<&[u8]>) -> Result<Vec<u8>> {
    let vector = so_far
        .map(split)
        .transpose()?
        .map_or(VectorV1 { scale: 0.0, values: &[] }, |parts| parts.vector);
    Ok(with_memory(with_vector(&vector, bytes_about(memory)), memory))
}

pub fn memory_and_vector_bytes(memory: &Memory, vector: &Vector) -> Vec<u8> {
    let vector = VectorV1 { scale: vector.scale, values: &unsigned(vector) };
    with_memory(with_vector(&vector, bytes_about(memory)), memory)
}

/// Nothing if only its vector has come.
pub fn memory(key: &UserKey, id: MemoryId, bytes: &[u8]) -> Result<Option<Memory>> {
    let Parts { version, memory, .. } = split(bytes)?;
    if memory.is_empty() {
        return Ok(None);
    }
    let (record, mut rest) = taken(memory)?;
    let mut memory = memory_of(key, id, &record)?;
    if version >= VERSION_2 {
        let record: AroundV2<'_>;
        (record, rest) = taken(rest)?;
        memory.around = around(&record, &memory.source);
    }
    if version >= VERSION_3 {
        let record: RevisionsV3;
        (record, rest) = taken(rest)?;
        (memory.revises, memory.revised_by) = (ids(&record.revises), record.revised_by.map(id_of));
    }
    if version >= VERSION {
        let AuthorV4 { author } = from_body(rest)?;
        memory.author = author.map(str::to_owned);
    }
    Ok(Some(memory))
}

/// One part, and what stands behind it.
fn taken<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<(T, &'a [u8])> {
    postcard::take_from_bytes(bytes).map_err(|fault| unreadable(fault.to_string()))
}

/// Nothing if only its memory has come.
pub fn vector(bytes: &[u8]) -> Result<Option<Vector>> {
    Ok(Some(signed(&split(bytes)?.vector)).filter(|vector| !vector.is_empty()))
}

/// Without its key and id, which are the record's key.
#[derive(Serialize, Deserialize)]
struct MemoryV1<'a> {
    scope: u8,
    session: Option<&'a str>,
    kind: &'a str,
    content: &'a str,
    role: u8,
    speaker: Option<&'a str>,
    importance: f32,
    confidence: f32,
    created_at: i64,
    valid_from: i64,
    valid_to: Option<i64>,
    #[serde(borrow)]
    source: PositionV1<'a>,
    event_id: Option<&'a str>,
    metadata: Vec<(&'a str, &'a str)>,
    supersedes: Vec<Uuid16>,
    superseded_by: Option<Uuid16>,
    conflicts_with: Vec<Uuid16>,
    archived: bool,
    version: u32,
    changed: i64,
    uses: u32,
    confirmed: u32,
    fresh_at: i64,
    surprise: Option<SurpriseV1<'a>>,
    threshold: Option<f32>,
    reason: &'a str,
    profile: &'a str,
    covers: Vec<Uuid16>,
    history: Vec<(&'a str, i64)>,
}

type Uuid16 = [u8; 16];

#[derive(Serialize, Deserialize)]
struct PositionV1<'a> {
    topic: &'a str,
    partition: i32,
    offset: i64,
}

#[derive(Serialize, Deserialize)]
struct SurpriseV1<'a> {
    total: f32,
    novelty: f32,
    contradiction: f32,
    specificity: f32,
    emphasis: f32,
    context_switch: f32,
    #[serde(borrow)]
    points: Vec<(&'a str, f32)>,
}

fn memory_v1(memory: &Memory) -> MemoryV1<'_> {
    MemoryV1 {
        scope: place_in(&SCOPES, memory.scope),
        session: memory.session.as_deref(),
        kind: memory.kind.as_str(),
        content: &memory.content,
        role: place_in(&ROLES, memory.role),
        speaker: memory.speaker.as_deref(),
        importance: memory.importance,
        confidence: memory.confidence,
        created_at: memory.created_at.0,
        valid_from: memory.valid_from.0,
        valid_to: memory.valid_to.map(|time| time.0),
        source: position_v1(&memory.source),
        event_id: memory.event_id.as_deref(),
        metadata: memory
            .metadata
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect(),
        supersedes: ids_v1(&memory.supersedes),
        superseded_by: memory.superseded_by.map(|id| id.0.into_bytes()),
        conflicts_with: ids_v1(&memory.conflicts_with),
        archived: memory.archived,
        version: memory.version,
        changed: memory.changed,
        uses: memory.uses,
        confirmed: memory.confirmed,
        fresh_at: memory.fresh_at.0,
        surprise: memory.surprise.as_ref().map(surprise_v1),
        threshold: memory.threshold,
        reason: &memory.reason,
        profile: &memory.profile,
        covers: ids_v1(&memory.covers),
        history: memory
            .history
            .iter()
            .map(|earlier| (earlier.content.as_str(), earlier.until.0))
            .collect(),
    }
}

fn memory_of(key: &UserKey, id: MemoryId, record: &MemoryV1<'_>) -> Result<Memory> {
    Ok(Memory {
        id,
        key: key.clone(),
        author: None,
        scope: known(&SCOPES, record.scope)?,
        session: record.session.map(str::to_owned),
        kind: Kind::new(record.kind),
        content: record.content.to_owned(),
        role: known(&ROLES, record.role)?,
        speaker: record.speaker.map(str::to_owned),
        importance: record.importance,
        confidence: record.confidence,
        created_at: Time(record.created_at),
        valid_from: Time(record.valid_from),
        valid_to: record.valid_to.map(Time),
        source: position(&record.source),
        event_id: record.event_id.map(str::to_owned),
        metadata: record
            .metadata
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        supersedes: ids(&record.supersedes),
        superseded_by: record.superseded_by.map(id_of),
        revises: Vec::new(),
        revised_by: None,
        conflicts_with: ids(&record.conflicts_with),
        archived: record.archived,
        version: record.version,
        changed: record.changed,
        uses: record.uses,
        confirmed: record.confirmed,
        fresh_at: Time(record.fresh_at),
        surprise: record.surprise.as_ref().map(surprise),
        threshold: record.threshold,
        reason: record.reason.to_owned(),
        profile: record.profile.into(),
        covers: ids(&record.covers),
        history: record.history.iter().map(|(content, until)| revision(content, *until)).collect(),
        around: Around::default(),
    })
}

fn revision(content: &str, until: i64) -> Revision {
    Revision { content: content.to_owned(), until: Time(until) }
}

#[derive(Default, Serialize, Deserialize)]
struct RevisionsV3 {
    revises: Vec<Uuid16>,
    revised_by: Option<Uuid16>,
}

#[derive(Default, Serialize, Deserialize)]
struct AuthorV4<'a> {
    author: Option<&'a str>,
}

fn revisions_v3(memory: &Memory) -> RevisionsV3 {
    RevisionsV3 {
        revises: ids_v1(&memory.revises),
        revised_by: memory.revised_by.map(|id| id.0.into_bytes()),
    }
}

#[derive(Serialize, Deserialize)]
struct AroundV2<'a> {
    #[serde(borrow)]
    before: Option<NeighbourV2<'a>>,
    #[serde(borrow)]
    earlier: Option<NeighbourV2<'a>>,
    #[serde(borrow)]
    after: Option<NeighbourV2<'a>>,
}

/// Without the topic, which is that of the memory beside it: one log, one topic.
#[derive(Serialize, Deserialize)]
struct NeighbourV2<'a> {
    partition: i32,
    offset: i64,
    speaker: &'a str,
    words: &'a str,
    scale: f32,
    #[serde(borrow, serialize_with = "as_bytes")]
    values: Cow<'a, [u8]>,
    question: f32,
}

fn around_v2(around: &Around) -> AroundV2<'_> {
    AroundV2 {
        before: around.before.as_ref().map(neighbour_v2),
        earlier: around.earlier.as_ref().map(neighbour_v2),
        after: around.after.as_ref().map(neighbour_v2),
    }
}

fn around(record: &AroundV2<'_>, beside: &Position) -> Around {
    let of =
        |record: &Option<NeighbourV2<'_>>| record.as_ref().map(|record| neighbour(record, beside));
    Around { before: of(&record.before), earlier: of(&record.earlier), after: of(&record.after) }
}

fn neighbour_v2(neighbour: &Neighbour) -> NeighbourV2<'_> {
    NeighbourV2 {
        partition: neighbour.source.partition,
        offset: neighbour.source.offset,
        speaker: &neighbour.speaker,
        words: &neighbour.words,
        scale: neighbour.vector.scale,
        values: unsigned(&neighbour.vector).into(),
        question: neighbour.question,
    }
}

fn neighbour(record: &NeighbourV2<'_>, beside: &Position) -> Neighbour {
    Neighbour {
        source: Position {
            topic: beside.topic.clone(),
            partition: record.partition,
            offset: record.offset,
        },
        speaker: record.speaker.into(),
        words: record.words.into(),
        vector: signed(&VectorV1 { scale: record.scale, values: &record.values }),
        question: record.question,
    }
}

fn position_v1(position: &Position) -> PositionV1<'_> {
    PositionV1 { topic: &position.topic, partition: position.partition, offset: position.offset }
}

fn position(record: &PositionV1<'_>) -> Position {
    Position { topic: record.topic.into(), partition: record.partition, offset: record.offset }
}

fn ids_v1(ids: &[MemoryId]) -> Vec<Uuid16> {
    ids.iter().map(|id| id.0.into_bytes()).collect()
}

fn ids(records: &[Uuid16]) -> Vec<MemoryId> {
    records.iter().copied().map(id_of).collect()
}

fn id_of(record: Uuid16) -> MemoryId {
    MemoryId(Uuid::from_bytes(record))
}

fn surprise_v1(surprise: &Surprise) -> SurpriseV1<'_> {
    SurpriseV1 {
        total: surprise.total,
        novelty: surprise.novelty,
        contradiction: surprise.contradiction,
        specificity: surprise.specificity,
        emphasis: surprise.emphasis,
        context_switch: surprise.context_switch,
        points: surprise.points.clone(),
    }
}

fn surprise(record: &SurpriseV1<'_>) -> Surprise {
    Surprise {
        total: record.total,
        novelty: record.novelty,
        contradiction: record.contradiction,
        specificity: record.specificity,
        emphasis: record.emphasis,
        context_switch: record.context_switch,
        points: record.points.iter().map(|(name, points)| (point_name(name), *points)).collect(),
    }
}

/// Limit: names of points live as long as the process; they are words of the score stage, today's or an older version's, a few dozen.
const POINT_NAMES_MAX: usize = 1024;

/// The same word with the lifetime that the score stage gives its own.
fn point_name(name: &str) -> &'static str {
    static NAMES: LazyLock<Mutex<BTreeSet<&'static str>>> = LazyLock::new(Mutex::default);
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    match names.get(name) {
        Some(known) => known,
        None if names.len() == POINT_NAMES_MAX => "other",
        None => {
            let known: &'static str = Box::leak(name.into());
            names.insert(known);
            known
        }
    }
}

// ---------------------------------------------------------------- tail, session, gate, seen, slot

#[derive(Serialize, Deserialize)]
struct VectorV1<'a> {
    scale: f32,
    #[serde(serialize_with = "as_bytes")]
    values: &'a [u8],
}

fn unsigned(vector: &Vector) -> Vec<u8> {
    vector.values.iter().map(|value| *value as u8).collect()
}

fn signed(record: &VectorV1<'_>) -> Vector {
    Vector { scale: record.scale, values: record.values.iter().map(|value| *value as i8).collect() }
}

#[derive(Serialize, Deserialize)]
struct SaidV1<'a> {
    /// Counts the session's turns, so that a ring of records can be put in order.
    number: u64,
    speaker: &'a str,
    content: &'a str,
    #[serde(borrow)]
    vector: VectorV1<'a>,
}

/// The same, with where it came from and what became of it.
#[derive(Serialize, Deserialize)]
struct SaidV2<'a> {
    #[serde(borrow)]
    said: SaidV1<'a>,
    #[serde(borrow)]
    source: Option<PositionV1<'a>>,
    question: f32,
    memory: Option<Uuid16>,
    role: u8,
}

pub fn said_bytes(number: u64, said: &SaidBefore) -> Vec<u8> {
    let vector = VectorV1 { scale: said.vector.scale, values: &unsigned(&said.vector) };
    let record = SaidV2 {
        said: SaidV1 { number, speaker: &said.speaker, content: &said.content, vector },
        source: said.source.as_ref().map(position_v1),
        question: said.question,
        memory: said.memory.map(|id| id.0.into_bytes()),
        role: place_in(&ROLES, said.role),
    };
    encode(&record, 80 + said.speaker.len() + said.content.len() + said.vector.values.len())
}

pub fn said(bytes: &[u8]) -> Result<(u64, SaidBefore)> {
    let record = match body(bytes)? {
        (VERSION_1, body) => SaidV2 {
            said: from_body(body)?,
            source: None,
            question: 0.0,
            memory: None,
            role: place_in(&ROLES, Role::User),
        },
        (_, body) => from_body(body)?,
    };
    let SaidV2 {
        said: SaidV1 { number, speaker, content, vector },
        source,
        question,
        memory,
        role,
    } = record;
    let said = SaidBefore {
        speaker: speaker.into(),
        role: known(&ROLES, role)?,
        content: content.into(),
        vector: signed(&vector),
        source: source.as_ref().map(position),
        question,
        memory: memory.map(id_of),
    };
    Ok((number, said))
}

#[derive(Serialize, Deserialize)]
struct SessionV1 {
    turns: u32,
    first_at: i64,
    last_at: i64,
    summarised: u32,
}

pub fn session_bytes(session: &Session) -> Vec<u8> {
    let Session { turns, first_at, last_at, summarised } = *session;
    encode(&SessionV1 { turns, first_at: first_at.0, last_at: last_at.0, summarised }, 24)
}

pub fn session(bytes: &[u8]) -> Result<Session> {
    let SessionV1 { turns, first_at, last_at, summarised } = decode(bytes)?;
    Ok(Session { turns, first_at: Time(first_at), last_at: Time(last_at), summarised })
}

#[derive(Deserialize)]
struct GateV1<'a> {
    ids: u64,
    thousandths: &'a [u8],
}

#[derive(Serialize, Deserialize)]
struct GateV2<'a> {
    ids: u64,
    /// Two bytes each: a threshold taken from them needs no more.
    #[serde(serialize_with = "as_bytes")]
    thousandths: &'a [u8],
    words_total: u32,
    /// `OwnWords::packed`
    #[serde(serialize_with = "as_bytes")]
    words: &'a [u8],
}

pub fn gate_bytes(gate: &GateState) -> Vec<u8> {
    let thousandths: Vec<u8> =
        gate.thousandths.iter().flat_map(|score| score.to_le_bytes()).collect();
    let words = gate.words.packed();
    let record = GateV2 {
        ids: gate.ids,
        thousandths: &thousandths,
        words_total: gate.words.total(),
        words: &words,
    };
    encode(&record, thousandths.len() + words.len() + 20)
}

pub fn gate(bytes: &[u8]) -> Result<GateState> {
    let (ids, thousandths, words) = match body(bytes)? {
        (VERSION_1, body) => {
            let GateV1 { ids, thousandths } = from_body(body)?;
            (ids, thousandths, Some(OwnWords::default()))
        }
        (_, body) => {
            let GateV2 { ids, thousandths, words_total, words } = from_body(body)?;
            (ids, thousandths, OwnWords::unpacked(words_total, words))
        }
    };
    let words = words.ok_or_else(|| unreadable("no counts of words"))?;
    let thousandths =
        thousandths.chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect();
    Ok(GateState { ids, thousandths, words: Arc::new(words) })
}

#[derive(Serialize, Deserialize)]
struct SeenV1<'a> {
    /// Counts the user's ids, so that the oldest can be told.
    number: u64,
    #[serde(borrow)]
    source: PositionV1<'a>,
    memories: Vec<Uuid16>,
}

pub fn seen_bytes(number: u64, seen: &SeenBefore) -> Vec<u8> {
    encode(
        &SeenV1 { number, source: position_v1(&seen.source), memories: ids_v1(&seen.memories) },
        64,
    )
}

pub fn seen(bytes: &[u8]) -> Result<(u64, SeenBefore)> {
    let SeenV1 { number, source, memories } = decode(bytes)?;
    Ok((number, SeenBefore { source: position(&source), memories: ids(&memories) }))
}

#[derive(Serialize, Deserialize)]
struct SlotV1<'a> {
    memory: Uuid16,
    value: &'a str,
}

pub fn slot_bytes(holder: &SlotHolder) -> Vec<u8> {
    encode(
        &SlotV1 { memory: holder.memory.0.into_bytes(), value: &holder.value },
        24 + holder.value.len(),
    )
}

pub fn slot(bytes: &[u8]) -> Result<SlotHolder> {
    let record: SlotV1 = decode(bytes)?;
    Ok(SlotHolder { memory: id_of(record.memory), value: record.value.to_owned() })
}

// ---------------------------------------------------------------- the shard's own

#[derive(Serialize, Deserialize)]
struct IdentityV1<'a> {
    cluster: &'a str,
    topic: &'a str,
    partition: i32,
    partitions: i32,
    model: &'a str,
    dimensions: u32,
}

pub fn identity_bytes(identity: &Identity) -> Vec<u8> {
    let Identity { cluster, topic, partition, partitions, model, dimensions } = identity;
    let (partition, partitions, dimensions) = (*partition, *partitions, *dimensions);
    encode(&IdentityV1 { cluster, topic, partition, partitions, model, dimensions }, 128)
}

pub fn identity(bytes: &[u8]) -> Result<Identity> {
    let record: IdentityV1 = decode(bytes)?;
    Ok(Identity {
        cluster: record.cluster.to_owned(),
        topic: record.topic.to_owned(),
        partition: record.partition,
        partitions: record.partitions,
        model: record.model.to_owned(),
        dimensions: record.dimensions,
    })
}

pub fn offset_bytes(offset: i64) -> Vec<u8> {
    encode(&offset, 11)
}

pub fn offset(bytes: &[u8]) -> Result<i64> {
    decode(bytes)
}

/// A place in the changelog, and when it was reached.
pub fn place_bytes(offset: i64, at: Time) -> Vec<u8> {
    encode(&(offset, at.0), 21)
}

pub fn place(bytes: &[u8]) -> Result<(i64, Time)> {
    decode(bytes).map(|(offset, at)| (offset, Time(at)))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{a_memory, a_neighbour, a_vector, key};
    use super::*;

    fn read(bytes: &[u8]) -> (Option<Memory>, Option<Vector>) {
        (memory(&key("zoe"), a_memory(7, "").id, bytes).unwrap(), vector(bytes).unwrap())
    }

    #[test]
    fn a_memory_and_its_vector_come_back_as_they_were() {
        let full = a_memory(7, "Zoë moved to Lisbon");
        let bare = Memory {
            metadata: Default::default(),
            surprise: None,
            session: None,
            valid_to: Some(Time(-5)),
            ..a_memory(7, "")
        };
        for was in [full, bare] {
            assert_eq!(read(&memory_bytes(&was, None).unwrap()), (Some(was), None));
        }
    }

    #[test]
    fn a_memory_changes_and_its_vector_stays() {
        let one = a_memory(7, "one");
        let other = a_memory(7, "other");
        let both = memory_and_vector_bytes(&one, &a_vector(1));
        assert_eq!(read(&both), (Some(one.clone()), Some(a_vector(1))));
        let changed = memory_bytes(&other, Some(&both)).unwrap();
        assert_eq!(read(&changed), (Some(other), Some(a_vector(1))));
        let without = memory_bytes(&one, None).unwrap();
        assert_eq!(read(&without), (Some(one), None));
    }

    #[test]
    fn the_small_records_come_back_as_they_were() {
        let was = SaidBefore {
            speaker: "zoë".into(),
            role: Role::Assistant,
            content: "hello".into(),
            vector: a_vector(3),
            source: Some(a_memory(1, "").source),
            question: 0.25,
            memory: Some(a_memory(1, "").id),
        };
        assert_eq!(said(&said_bytes(9, &was)).unwrap(), (9, was));
        let was = Session { turns: 4, first_at: Time(1), last_at: Time(2), summarised: 3 };
        assert_eq!(session(&session_bytes(&was)).unwrap(), was);
        let was = SeenBefore { source: a_memory(1, "").source, memories: vec![a_memory(1, "").id] };
        assert_eq!(seen(&seen_bytes(5, &was)).unwrap(), (5, was));
        let was = SlotHolder { memory: a_memory(1, "").id, value: "Lisbon".into() };
        assert_eq!(slot(&slot_bytes(&was)).unwrap(), was);
        assert_eq!(offset(&offset_bytes(-1)).unwrap(), -1);
    }

    fn a_gate(ids: u64, scores: &[f32], words: &[&str]) -> GateState {
        let mut gate = GateState { ids, ..GateState::default() };
        scores.iter().for_each(|score| gate.push(*score));
        words.iter().for_each(|word| Arc::make_mut(&mut gate.words).add(word));
        gate
    }

    #[test]
    fn scores_keep_three_digits_and_never_wrap() {
        let was = a_gate(7, &[0.4567, -0.1, 1e9, f32::NAN], &["tea", "boat", "tea"]);
        let is = gate(&gate_bytes(&was)).unwrap();
        assert_eq!(is.scores().collect::<Vec<_>>(), [0.457, -0.1, 32.767, 0.0]);
        assert_eq!(is, was);
    }

    #[test]
    fn a_gate_of_format_1_has_counted_no_words_yet() {
        assert_eq!(gate(&[1, 0x82, 0x01, 2, 1, 0]).unwrap(), a_gate(130, &[0.001], &[]));
    }

    #[test]
    fn a_newer_format_stops_by_its_name_and_nonsense_by_another() {
        let stopped = |bytes: &[u8]| match memory(&key("zoe"), a_memory(1, "").id, bytes) {
            Err(Fault::Stop(stop)) => stop.name,
            other => panic!("{other:?}"),
        };
        assert_eq!(stopped(&[VERSION + 1, 1, 2, 3]), StopName::StoreNewer);
        assert_eq!(stopped(&[VERSION, 1]), StopName::StoreUnreadable);
        assert_eq!(stopped(&[]), StopName::StoreUnreadable);
        assert_eq!(stopped(&[0]), StopName::StoreUnreadable);
    }

    /// The records of an older version, made from today's structs that have not changed.
    fn first(version_1: &impl Serialize, more: &[u8]) -> Vec<u8> {
        [&[1], &postcard::to_stdvec(version_1).unwrap()[..], more].concat()
    }

    #[test]
    fn what_format_1_says_is_read_and_carried_over() {
        let was = Memory {
            author: None,
            around: Around::default(),
            revises: vec![],
            revised_by: None,
            ..a_memory(7, "one")
        };
        let values = unsigned(&a_vector(1));
        let vector_1 = VectorV1 { scale: 0.003, values: &values };
        let old = first(&vector_1, &postcard::to_stdvec(&memory_v1(&was)).unwrap());
        assert_eq!(read(&old), (Some(was.clone()), Some(a_vector(1))));
        let other = a_memory(7, "other");
        assert_eq!(
            read(&memory_bytes(&other, Some(&old)).unwrap()),
            (Some(other), Some(a_vector(1)))
        );
        let (number, before) = said(&first(
            &SaidV1 { number: 9, speaker: "zoë", content: "hello", vector: vector_1 },
            &[],
        ))
        .unwrap();
        assert_eq!(
            (number, &*before.content, &before.vector, before.source),
            (9, "hello", &a_vector(1), None)
        );
    }

    #[test]
    fn what_format_2_says_is_read_and_carried_over() {
        let was = Memory { author: None, revises: vec![], revised_by: None, ..a_memory(7, "one") };
        let old = second(&was, &a_vector(1));
        assert_eq!(read(&old), (Some(was.clone()), Some(a_vector(1))));
        let other = a_memory(7, "other");
        assert_eq!(
            read(&memory_bytes(&other, Some(&old)).unwrap()),
            (Some(other), Some(a_vector(1)))
        );
    }

    #[test]
    fn what_format_3_says_is_read_and_carried_over() {
        let was = a_memory(7, "one");
        let old = extended(second(&was, &a_vector(1)), &revisions_v3(&was));
        let old = [&[3], &old[1..]].concat();
        assert_eq!(read(&old), (Some(Memory { author: None, ..was.clone() }), Some(a_vector(1))));
        assert_eq!(read(&memory_bytes(&was, Some(&old)).unwrap()), (Some(was), Some(a_vector(1))));
    }

    /// The record of a memory as format 2 wrote it.
    fn second(memory: &Memory, vector: &Vector) -> Vec<u8> {
        let vector = VectorV1 { scale: vector.scale, values: &unsigned(vector) };
        let body = extended(extended(vec![2], &vector), &memory_v1(memory));
        extended(body, &around_v2(&memory.around))
    }

    #[test]
    fn the_bytes_of_a_format_are_the_same_forever() {
        let was = Session { turns: 300, first_at: Time(-1), last_at: Time(64), summarised: 0 };
        for version in [1, 2, 3, 4] {
            assert_eq!(session(&[version, 0xac, 0x02, 0x01, 0x80, 0x01, 0x00]).unwrap(), was);
        }
        assert_eq!(session_bytes(&was), [4, 0xac, 0x02, 0x01, 0x80, 0x01, 0x00]);
        let vector = Vector { scale: 1.0, values: [-1, 2].into() };
        let with_vector = memory_and_vector_bytes(&a_memory(7, "one"), &vector);
        assert_eq!(with_vector[..8], [4, 0, 0, 0x80, 0x3f, 2, 0xff, 2]);
        let words = [2, 2, 0x02, 0x35, 0x01, 0x3e]; // two of them: "tea" twice in place 848, "boat" once in 992
        assert_eq!(
            gate_bytes(&a_gate(130, &[0.001], &["tea", "boat", "tea"])),
            [&[4, 0x82, 0x01, 2, 1, 0, 3, 4][..], &words[2..]].concat()
        );
        let around = Around {
            before: None,
            earlier: None,
            after: Some(a_neighbour(&a_memory(1, "").source)),
        };
        let written = postcard::to_stdvec(&around_v2(&around)).unwrap();
        assert_eq!(written[..13], [0, 0, 1, 6, 0, 4, b'z', b'o', 0xc3, 0xab, 5, b'h', b'e']);
        assert_eq!(written[16..], [0, 0, 0x80, 0x3f, 2, 0xff, 2, 0, 0, 0, 0x3f]);
    }
}

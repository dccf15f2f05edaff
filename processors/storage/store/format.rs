//! Encodes and decodes the values of the store: one byte of format version, then
//! [postcard](https://postcard.jamesmunns.com/wire-format). The only file that knows the bytes of a
//! value.
//!
//! ```text
//! memory     version │ VectorRecord │ MemoryRecord │ StandingRecord
//!                      MemoryRecord is missing until the memory is put,
//!                      StandingRecord where it would say nothing
//! turn       version │ TurnRecord     session  version │ four numbers
//! gate       version │ GateRecord     seen id  version │ SeenRecord
//! slot       version │ (id, value)    identity version │ Identity
//! offset     version │ i64            position version │ (i64, i64)
//! forgets    version │ list of (time, ForgotRecord)
//! ```
//!
//! Format 1 is open until a release is tagged. Until then: to change a record, edit its struct, raise
//! [`VERSION`] and write the sample anew (`tests/readable.rs`). A shard of an earlier state stops as
//! `store-older`. From the tag on, every version that was written is read forever: a change adds a
//! struct instead of editing one, a record is written in the oldest version that can hold it, and a
//! shard's identity and meta records have the newest version before its first record has, so that
//! programs of two versions can share a group.

use super::identity::Identity;
use super::listing::{Labels, Row, Turn};

use domain::fault::{Fault, Result, StopName};
use domain::{
    Closed, ContextTurn, Kind, Memory, MemoryId, Metadata, NeighbourTurn, NeighbourTurns, Position,
    ProbableLink, Revision, Role, Scope, Surprise, Time, UserKey, UserWordCounts, Vector,
};
use kernel::reads::{ForgetRecord, Forgot, GateState, SeenBefore, Session, SlotHolder, Spoken};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use uuid::Uuid;

/// The first byte of every record. The bytes 1 to 8 were earlier states of format 1.
pub const VERSION: u8 = 10;
/// The oldest version that this program reads.
const OLDEST: u8 = VERSION;

/// Roles and scopes are stored as indexes into these lists. Invariant: lists are only appended to.
const ROLES: [Role; 4] = [Role::User, Role::Assistant, Role::System, Role::Tool];
const SCOPES: [Scope; 3] = [Scope::User, Scope::Session, Scope::Tenant];

// ---------------------------------------------------------------- from and to bytes

fn encode<T: Serialize>(record: &T, bytes_about: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(bytes_about);
    bytes.push(VERSION);
    postcard::to_extend(record, bytes).expect("postcard writes plain structs into memory")
}

fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T> {
    from_body(body(bytes)?)
}

fn from_body<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T> {
    postcard::from_bytes(body).map_err(|fault| unreadable(fault.to_string()))
}

/// Returns the body of a record; an error if this program does not read its version.
fn body(bytes: &[u8]) -> Result<&[u8]> {
    match bytes {
        [version, body @ ..] if *version > 0 => check_version(*version).map(|()| body),
        _ => Err(unreadable("a record has an unknown format")),
    }
}

/// Stops at a version that another program wrote and this one does not read.
pub fn check_version(version: u8) -> Result<()> {
    let (name, what) = match version {
        OLDEST..=VERSION => return Ok(()),
        ..OLDEST => {
            let what = format!(
                "was written in version {version} of the format, before the first release, and this \
                 keepsake reads from {OLDEST} on; run `keepsake export --all --memories` with the program \
                 that wrote it and `keepsake import` with this one, on another topics.prefix and an \
                 empty store.dir"
            );
            (StopName::StoreOlder, what)
        }
        _ => {
            let what = format!(
                "was written in version {version} of the format by a newer keepsake, this one reads up \
                 to {VERSION}; start the newer one again"
            );
            (StopName::StoreNewer, what)
        }
    };
    Err(Fault::stop(name, what))
}

pub fn unreadable(why: impl Into<String>) -> Fault {
    Fault::stop(StopName::StoreUnreadable, why)
}

fn choice_at<T: Copy>(list: &[T], index: u8) -> Result<T> {
    list.get(usize::from(index))
        .copied()
        .ok_or_else(|| unreadable(format!("a record has the unknown choice {index}")))
}

fn index_in<T: PartialEq>(list: &[T], choice: T) -> u8 {
    list.iter().position(|other| *other == choice).expect("the lists hold every variant") as u8
}

/// Serializes bytes as one slice instead of one call for each byte. Deserializes as `&[u8]`.
fn as_bytes<S: Serializer>(bytes: &[u8], serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

// ---------------------------------------------------------------- memory and vector

/// The record of a memory. The vector stands first, so that a scan of a user's vectors does not
/// decode the memories. `memory` holds the two parts behind, or nothing yet.
struct Parts<'a> {
    vector: VectorRecord<'a>,
    memory: &'a [u8],
}

fn split(bytes: &[u8]) -> Result<Parts<'_>> {
    let (vector, memory) = taken(body(bytes)?)?;
    Ok(Parts { vector, memory })
}

fn with_vector(vector: &VectorRecord<'_>, memory_bytes_about: usize) -> Vec<u8> {
    encode(vector, 8 + vector.values.len() + memory_bytes_about)
}

fn with_memory(bytes: Vec<u8>, memory: &Memory) -> Vec<u8> {
    let bytes = extended(bytes, &memory_record(memory));
    let standing = standing_record(memory);
    if standing == StandingRecord::default() { bytes } else { extended(bytes, &standing) }
}

fn extended(bytes: Vec<u8>, record: &impl Serialize) -> Vec<u8> {
    postcard::to_extend(record, bytes).expect("postcard writes plain structs into memory")
}

fn bytes_about(memory: &Memory) -> usize {
    let neighbours = memory.around.all();
    let around: usize = neighbours.map(|one| 64 + one.words.len() + one.vector.values.len()).sum();
    384 + memory.content.len() + around
}

/// Encodes a memory and keeps the vector of the former record.
pub fn memory_bytes(memory: &Memory, former: Option<&[u8]>) -> Result<Vec<u8>> {
    let vector = former
        .map(split)
        .transpose()?
        .map_or(VectorRecord { scale: 0.0, values: &[] }, |parts| parts.vector);
    Ok(with_memory(with_vector(&vector, bytes_about(memory)), memory))
}

pub fn memory_and_vector_bytes(memory: &Memory, vector: &Vector) -> Vec<u8> {
    let vector = VectorRecord { scale: vector.scale, values: &unsigned(vector) };
    with_memory(with_vector(&vector, bytes_about(memory)), memory)
}

/// Decodes a memory; `None` if the record holds only a vector.
pub fn memory(key: &UserKey, id: MemoryId, bytes: &[u8]) -> Result<Option<Memory>> {
    let Parts { memory, .. } = split(bytes)?;
    if memory.is_empty() {
        return Ok(None);
    }
    let (record, rest) = taken(memory)?;
    let mut memory = memory_of(key, id, &record)?;
    if !rest.is_empty() {
        let StandingRecord { compressed_by, disabled, stability, sources } = from_body(rest)?;
        memory.compressed_by = compressed_by.map(id_of);
        memory.disabled = disabled;
        memory.stability = stability;
        memory.sources = sources.iter().map(position).collect();
    }
    Ok(Some(memory))
}

/// True if the record holds a memory that no newer value has superseded.
pub fn is_live(bytes: &[u8]) -> Result<bool> {
    let Parts { memory, .. } = split(bytes)?;
    if memory.is_empty() {
        return Ok(false);
    }
    let (record, _): (MemoryRecord<'_>, _) = taken(memory)?;
    Ok(record.valid_to.is_none())
}

/// Decodes the row of a memory in a listing; `None` if the record holds only a vector.
pub fn row(id: MemoryId, bytes: &[u8]) -> Result<Option<Row>> {
    let Parts { memory, .. } = split(bytes)?;
    if memory.is_empty() {
        return Ok(None);
    }
    let (record, _): (MemoryRecord<'_>, _) = taken(memory)?;
    let turn = Turn::at(record.source.partition, record.source.offset);
    let before = record.around[0].as_ref();
    Ok(Some(Row {
        id,
        turn,
        turn_before: before.map_or(turn, |it| Turn::at(it.partition, it.offset)),
        created_at: Time(record.created_at),
        valid_from: Time(record.valid_from),
        expires_at: record.expires_at.map(Time),
        importance: record.importance,
        content_bytes: record.content.len() as u32,
        is_archived: record.archived,
        is_superseded: record.superseded_by.is_some(),
        labels: Arc::new(Labels {
            scope: choice_at(&SCOPES, record.scope)?,
            kind: Kind::new(record.kind),
            session: record.session.map(str::to_owned),
            author: record.author.map(str::to_owned),
            metadata: metadata(&record),
        }),
    }))
}

fn metadata(record: &MemoryRecord<'_>) -> Metadata {
    let pairs = record.metadata.iter();
    pairs.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// The speaker of a memory, and its vector. `None` if the record holds only a vector.
pub fn spoken(bytes: &[u8]) -> Result<Option<Spoken>> {
    let Parts { vector, memory, .. } = split(bytes)?;
    if memory.is_empty() {
        return Ok(None);
    }
    let (record, _): (MemoryBeginning<'_>, _) = taken(memory)?;
    let vector = Some(signed(&vector)).filter(|vector| !vector.is_empty());
    Ok(Some(Spoken {
        role: choice_at(&ROLES, record.role)?,
        speaker: record.speaker.map(str::to_owned),
        vector,
    }))
}

/// The first fields of [`MemoryRecord`]. Ingest reads the speakers of some fifty memories for a turn,
/// and the other fields take most of the time of decoding.
#[derive(Deserialize)]
#[expect(dead_code, reason = "every field before `speaker` has to be decoded")]
struct MemoryBeginning<'a> {
    scope: u8,
    session: Option<&'a str>,
    kind: &'a str,
    content: &'a str,
    role: u8,
    speaker: Option<&'a str>,
}

/// Decodes one part and returns the bytes behind.
fn taken<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<(T, &'a [u8])> {
    postcard::take_from_bytes(bytes).map_err(|fault| unreadable(fault.to_string()))
}

/// Decodes a vector; `None` if the record holds only a memory.
pub fn vector(bytes: &[u8]) -> Result<Option<Vector>> {
    Ok(Some(signed(&split(bytes)?.vector)).filter(|vector| !vector.is_empty()))
}

/// A memory without key and id, which are in the key of the record.
#[derive(Serialize, Deserialize)]
struct MemoryRecord<'a> {
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
    source: PositionRecord<'a>,
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
    surprise: Option<SurpriseRecord<'a>>,
    threshold: Option<f32>,
    reason: &'a str,
    profile: &'a str,
    covers: Vec<Uuid16>,
    history: Vec<(&'a str, i64)>,
    #[serde(borrow)]
    around: [Option<NeighbourRecord<'a>>; 3],
    revises: Vec<(Uuid16, f32)>,
    revised_by: Option<Uuid16>,
    author: Option<&'a str>,
    expires_at: Option<i64>,
}

type Uuid16 = [u8; 16];

#[derive(PartialEq, Serialize, Deserialize)]
struct PositionRecord<'a> {
    topic: &'a str,
    partition: i32,
    offset: i64,
}

#[derive(Serialize, Deserialize)]
struct SurpriseRecord<'a> {
    total: f32,
    novelty: f32,
    contradiction: f32,
    specificity: f32,
    emphasis: f32,
    context_switch: f32,
    #[serde(borrow)]
    points: Vec<(&'a str, f32)>,
}

fn memory_record(memory: &Memory) -> MemoryRecord<'_> {
    let around = &memory.around;
    MemoryRecord {
        scope: index_in(&SCOPES, memory.scope),
        session: memory.session.as_deref(),
        kind: memory.kind.as_str(),
        content: &memory.content,
        role: index_in(&ROLES, memory.role),
        speaker: memory.speaker.as_deref(),
        importance: memory.importance,
        confidence: memory.confidence,
        created_at: memory.created_at.0,
        valid_from: memory.valid_from.0,
        valid_to: memory.valid_to.map(|time| time.0),
        source: position_record(&memory.source),
        event_id: memory.event_id.as_deref(),
        metadata: memory
            .metadata
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect(),
        supersedes: ids_record(&memory.supersedes),
        superseded_by: memory.superseded_by.map(|id| id.0.into_bytes()),
        conflicts_with: ids_record(&memory.conflicts_with),
        archived: memory.archived,
        version: memory.version,
        changed: memory.changed,
        uses: memory.uses,
        confirmed: memory.confirmed,
        fresh_at: memory.fresh_at.0,
        surprise: memory.surprise.as_ref().map(surprise_record),
        threshold: memory.threshold,
        reason: &memory.reason,
        profile: &memory.profile,
        covers: ids_record(&memory.covers),
        history: memory
            .history
            .iter()
            .map(|earlier| (earlier.content.as_str(), earlier.until.0))
            .collect(),
        around: [&around.before, &around.earlier, &around.after]
            .map(|turn| turn.as_ref().map(neighbour_record)),
        revises: memory
            .revises
            .iter()
            .map(|link| (link.memory.0.into_bytes(), link.probability))
            .collect(),
        revised_by: memory.revised_by.map(|id| id.0.into_bytes()),
        author: memory.author.as_deref(),
        expires_at: memory.expires_at.map(|time| time.0),
    }
}

fn memory_of(key: &UserKey, id: MemoryId, record: &MemoryRecord<'_>) -> Result<Memory> {
    let source = position(&record.source);
    let [before, earlier, after] =
        record.around.each_ref().map(|turn| turn.as_ref().map(|turn| neighbour(turn, &source)));
    Ok(Memory {
        id,
        key: key.clone(),
        author: record.author.map(str::to_owned),
        scope: choice_at(&SCOPES, record.scope)?,
        session: record.session.map(str::to_owned),
        kind: Kind::new(record.kind),
        content: record.content.to_owned(),
        role: choice_at(&ROLES, record.role)?,
        speaker: record.speaker.map(str::to_owned),
        importance: record.importance,
        confidence: record.confidence,
        created_at: Time(record.created_at),
        valid_from: Time(record.valid_from),
        valid_to: record.valid_to.map(Time),
        expires_at: record.expires_at.map(Time),
        source,
        event_id: record.event_id.map(str::to_owned),
        metadata: metadata(record),
        supersedes: ids(&record.supersedes),
        superseded_by: record.superseded_by.map(id_of),
        revises: record
            .revises
            .iter()
            .map(|(id, probability)| ProbableLink { memory: id_of(*id), probability: *probability })
            .collect(),
        revised_by: record.revised_by.map(id_of),
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
        compressed_by: None,
        disabled: false,
        stability: None,
        sources: Vec::new(),
        history: record
            .history
            .iter()
            .map(|(content, until)| Revision {
                content: (*content).to_owned(),
                until: Time(*until),
            })
            .collect(),
        around: NeighbourTurns { before, earlier, after },
    })
}

#[derive(Default, PartialEq, Serialize, Deserialize)]
struct StandingRecord<'a> {
    compressed_by: Option<Uuid16>,
    disabled: bool,
    stability: Option<f32>,
    #[serde(borrow)]
    sources: Vec<PositionRecord<'a>>,
}

fn standing_record(memory: &Memory) -> StandingRecord<'_> {
    StandingRecord {
        compressed_by: memory.compressed_by.map(|id| id.0.into_bytes()),
        disabled: memory.disabled,
        stability: memory.stability,
        sources: memory.sources.iter().map(position_record).collect(),
    }
}

/// A neighbouring turn without the topic, which is that of the memory: one log has one topic.
#[derive(Serialize, Deserialize)]
struct NeighbourRecord<'a> {
    partition: i32,
    offset: i64,
    speaker: &'a str,
    words: &'a str,
    scale: f32,
    #[serde(borrow, serialize_with = "as_bytes")]
    values: Cow<'a, [u8]>,
    question: f32,
}

fn neighbour_record(neighbour: &NeighbourTurn) -> NeighbourRecord<'_> {
    NeighbourRecord {
        partition: neighbour.source.partition,
        offset: neighbour.source.offset,
        speaker: &neighbour.speaker,
        words: &neighbour.words,
        scale: neighbour.vector.scale,
        values: unsigned(&neighbour.vector).into(),
        question: neighbour.question,
    }
}

fn neighbour(record: &NeighbourRecord<'_>, beside: &Position) -> NeighbourTurn {
    NeighbourTurn {
        source: Position {
            topic: beside.topic.clone(),
            partition: record.partition,
            offset: record.offset,
        },
        speaker: record.speaker.into(),
        words: record.words.into(),
        vector: signed(&VectorRecord { scale: record.scale, values: &record.values }),
        question: record.question,
    }
}

fn position_record(position: &Position) -> PositionRecord<'_> {
    PositionRecord {
        topic: &position.topic,
        partition: position.partition,
        offset: position.offset,
    }
}

fn position(record: &PositionRecord<'_>) -> Position {
    Position { topic: record.topic.into(), partition: record.partition, offset: record.offset }
}

fn ids_record(ids: &[MemoryId]) -> Vec<Uuid16> {
    ids.iter().map(|id| id.0.into_bytes()).collect()
}

fn ids(records: &[Uuid16]) -> Vec<MemoryId> {
    records.iter().copied().map(id_of).collect()
}

fn id_of(record: Uuid16) -> MemoryId {
    MemoryId(Uuid::from_bytes(record))
}

fn surprise_record(surprise: &Surprise) -> SurpriseRecord<'_> {
    SurpriseRecord {
        total: surprise.total,
        novelty: surprise.novelty,
        contradiction: surprise.contradiction,
        specificity: surprise.specificity,
        emphasis: surprise.emphasis,
        context_switch: surprise.context_switch,
        points: surprise.points.clone(),
    }
}

fn surprise(record: &SurpriseRecord<'_>) -> Surprise {
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

/// Limit of the names of points, which live as long as the process. The score stage
/// has a few dozen.
const POINT_NAMES_MAX: usize = 1024;

/// Interns the name of a point, because the score stage uses `&'static str`.
fn point_name(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock();
    match names.get(name) {
        Some(interned) => interned,
        None if names.len() == POINT_NAMES_MAX => "other",
        None => {
            let interned: &'static str = Box::leak(name.into());
            names.insert(interned);
            interned
        }
    }
}

// ---------------------------------------------------------------- turn, session, gate, seen, slot

#[derive(Serialize, Deserialize)]
struct VectorRecord<'a> {
    scale: f32,
    #[serde(serialize_with = "as_bytes")]
    values: &'a [u8],
}

fn unsigned(vector: &Vector) -> Vec<u8> {
    vector.values.iter().map(|value| *value as u8).collect()
}

fn signed(record: &VectorRecord<'_>) -> Vector {
    Vector { scale: record.scale, values: record.values.iter().map(|value| *value as i8).collect() }
}

/// A turn of a context window, with its source and the resulting memory.
#[derive(Serialize, Deserialize)]
struct TurnRecord<'a> {
    /// Number of the turn in the session: the order of the records in the ring.
    number: u64,
    speaker: &'a str,
    content: &'a str,
    #[serde(borrow)]
    vector: VectorRecord<'a>,
    #[serde(borrow)]
    source: Option<PositionRecord<'a>>,
    question: f32,
    memory: Option<Uuid16>,
    role: u8,
}

pub fn said_bytes(number: u64, said: &ContextTurn) -> Vec<u8> {
    let record = TurnRecord {
        number,
        speaker: &said.speaker,
        content: &said.content,
        vector: VectorRecord { scale: said.vector.scale, values: &unsigned(&said.vector) },
        source: said.source.as_ref().map(position_record),
        question: said.question,
        memory: said.memory.map(|id| id.0.into_bytes()),
        role: index_in(&ROLES, said.role),
    };
    encode(&record, 80 + said.speaker.len() + said.content.len() + said.vector.values.len())
}

pub fn said(bytes: &[u8]) -> Result<(u64, ContextTurn)> {
    let TurnRecord { number, speaker, content, vector, source, question, memory, role } =
        decode(bytes)?;
    let said = ContextTurn {
        speaker: speaker.into(),
        role: choice_at(&ROLES, role)?,
        content: content.into(),
        vector: signed(&vector),
        source: source.as_ref().map(position),
        question,
        memory: memory.map(id_of),
    };
    Ok((number, said))
}

pub fn session_bytes(session: &Session) -> Vec<u8> {
    let Session { turns, first_at, last_at, summarised } = *session;
    encode(&(turns, first_at.0, last_at.0, summarised), 24)
}

pub fn session(bytes: &[u8]) -> Result<Session> {
    let (turns, first_at, last_at, summarised) = decode(bytes)?;
    Ok(Session { turns, first_at: Time(first_at), last_at: Time(last_at), summarised })
}

#[derive(Serialize, Deserialize)]
struct GateRecord<'a> {
    ids: u64,
    /// Two bytes for each total, which is precise enough for a threshold.
    #[serde(serialize_with = "as_bytes")]
    thousandths: &'a [u8],
    words_total: u32,
    /// [`UserWordCounts::packed`].
    #[serde(serialize_with = "as_bytes")]
    words: &'a [u8],
    signed: Option<i64>,
}

pub fn gate_bytes(gate: &GateState) -> Vec<u8> {
    let thousandths: Vec<u8> =
        gate.thousandths.iter().flat_map(|score| score.to_le_bytes()).collect();
    let words = gate.words.packed();
    let record = GateRecord {
        ids: gate.ids,
        thousandths: &thousandths,
        words_total: gate.words.total(),
        words: &words,
        signed: gate.signed.map(|time| time.0),
    };
    encode(&record, thousandths.len() + words.len() + 31)
}

pub fn gate(bytes: &[u8]) -> Result<GateState> {
    let GateRecord { ids, thousandths, words_total, words, signed } = decode(bytes)?;
    let words = UserWordCounts::unpacked(words_total, words);
    let words = words.ok_or_else(|| unreadable("the word counts of a gate state are damaged"))?;
    let thousandths =
        thousandths.chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect();
    Ok(GateState { ids, thousandths, words: Arc::new(words), signed: signed.map(Time) })
}

#[derive(Serialize, Deserialize)]
struct SeenRecord<'a> {
    /// Number of the id among the user's ids: the oldest have the lowest numbers.
    number: u64,
    #[serde(borrow)]
    source: PositionRecord<'a>,
    memories: Vec<Uuid16>,
    /// Type and target of the event (`kernel/seen.rs`).
    tag: u32,
}

pub fn seen_bytes(number: u64, seen: &SeenBefore) -> Vec<u8> {
    let record = SeenRecord {
        number,
        source: position_record(&seen.source),
        memories: ids_record(&seen.memories),
        tag: seen.tag,
    };
    encode(&record, 64)
}

pub fn seen(bytes: &[u8]) -> Result<(u64, SeenBefore)> {
    let SeenRecord { number, source, memories, tag } = decode(bytes)?;
    Ok((number, SeenBefore { source: position(&source), memories: ids(&memories), tag }))
}

pub fn slot_bytes(holder: &SlotHolder) -> Vec<u8> {
    encode(&(holder.memory.0.into_bytes(), &holder.value), 24 + holder.value.len())
}

pub fn slot(bytes: &[u8]) -> Result<SlotHolder> {
    let (memory, value) = decode(bytes)?;
    Ok(SlotHolder { memory: id_of(memory), value })
}

// ---------------------------------------------------------------- remembered forgets

/// Invariant: variants are only appended, because postcard stores their number.
#[derive(Serialize, Deserialize)]
enum ForgotRecord {
    Everything,
    Session(u64),
    Query(Vec<Vec<u64>>),
    Text(u64),
}

pub fn forget_records_bytes(records: &[ForgetRecord]) -> Vec<u8> {
    let all = records.iter().map(|record| {
        let forgot = match &record.forgot {
            Forgot::Everything => ForgotRecord::Everything,
            Forgot::Session(session) => ForgotRecord::Session(*session),
            Forgot::Query(stems) => ForgotRecord::Query(stems.clone()),
            Forgot::Text(text) => ForgotRecord::Text(*text),
        };
        (record.at.0, forgot)
    });
    encode(&all.collect::<Vec<(i64, ForgotRecord)>>(), 64)
}

pub fn forget_records(bytes: &[u8]) -> Result<Vec<ForgetRecord>> {
    let all: Vec<(i64, ForgotRecord)> = decode(bytes)?;
    let all = all.into_iter().map(|(at, forgot)| ForgetRecord {
        at: Time(at),
        forgot: match forgot {
            ForgotRecord::Everything => Forgot::Everything,
            ForgotRecord::Session(session) => Forgot::Session(session),
            ForgotRecord::Query(stems) => Forgot::Query(stems),
            ForgotRecord::Text(text) => Forgot::Text(text),
        },
    });
    Ok(all.collect())
}

// ---------------------------------------------------------------- the shard's own

pub fn identity_bytes(identity: &Identity) -> Vec<u8> {
    encode(identity, 128)
}

pub fn identity(bytes: &[u8]) -> Result<Identity> {
    decode(bytes)
}

pub fn offset_bytes(offset: i64) -> Vec<u8> {
    encode(&offset, 11)
}

pub fn offset(bytes: &[u8]) -> Result<i64> {
    decode(bytes)
}

/// The partition and the offset of an event.
pub fn sent_on_bytes(sent: (i32, i64)) -> Vec<u8> {
    encode(&sent, 16)
}

pub fn sent_on(bytes: &[u8]) -> Result<(i32, i64)> {
    decode(bytes)
}

/// The id of a topic.
pub fn topic_bytes(id: u128) -> Vec<u8> {
    encode(&id.to_be_bytes(), 17)
}

pub fn topic(bytes: &[u8]) -> Result<u128> {
    decode(bytes).map(u128::from_be_bytes)
}

/// The end of a generation: the next one, the number of its partitions, the last offset applied.
pub fn closed_bytes(closed: &Closed) -> Vec<u8> {
    encode(&(closed.generation, closed.partitions, closed.offset), 17)
}

pub fn closed(bytes: &[u8]) -> Result<Closed> {
    let (generation, partitions, offset) = decode(bytes)?;
    Ok(Closed { generation, partitions, offset })
}

/// A position in the changelog, and the time when the store reached that position.
pub fn changelog_position_bytes(offset: i64, at: Time) -> Vec<u8> {
    encode(&(offset, at.0), 21)
}

pub fn changelog_position(bytes: &[u8]) -> Result<(i64, Time)> {
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
    fn a_memory_decodes_to_the_encoded_one() {
        let full = a_memory(7, "Zoë moved to Lisbon");
        let bare = Memory {
            metadata: Default::default(),
            surprise: None,
            session: None,
            valid_to: Some(Time(-5)),
            expires_at: None,
            compressed_by: None,
            disabled: false,
            stability: None,
            sources: vec![],
            ..a_memory(7, "")
        };
        for was in [full, bare] {
            assert_eq!(read(&memory_bytes(&was, None).unwrap()), (Some(was), None));
        }
    }

    #[test]
    fn the_end_of_a_generation_decodes_to_the_encoded_one() {
        let was = Closed { generation: 2, partitions: 24, offset: 300_000 };
        let bytes = closed_bytes(&was);
        assert_eq!(bytes, [VERSION, 2, 48, 192, 207, 36]);
        assert_eq!(closed(&bytes).unwrap(), was);
        assert!(closed(&bytes[..3]).is_err());
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
    fn small_records_decode_to_the_encoded_ones() {
        let was = ContextTurn {
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
        let (source, memories) = (a_memory(1, "").source, vec![a_memory(1, "").id]);
        let was = SeenBefore { source, memories, tag: 7 << 16 | 3 };
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
        let was = GateState { signed: Some(Time(-9)), ..was };
        let is = gate(&gate_bytes(&was)).unwrap();
        assert_eq!(is.scores().collect::<Vec<_>>(), [0.457, -0.1, 32.767, 0.0]);
        assert_eq!(is, was);
    }

    #[test]
    fn newer_older_and_unreadable_bytes_stop_under_different_names() {
        for (bytes, expected) in [
            (&[VERSION + 1, 1, 2, 3][..], StopName::StoreNewer),
            (&[OLDEST - 1, 1, 2, 3], StopName::StoreOlder),
            (&[1], StopName::StoreOlder),
            (&[VERSION, 1], StopName::StoreUnreadable),
            (&[], StopName::StoreUnreadable),
            (&[0], StopName::StoreUnreadable),
        ] {
            match memory(&key("zoe"), a_memory(1, "").id, bytes) {
                Err(Fault::Stop(stop)) => assert_eq!(stop.name, expected, "{bytes:?}"),
                other => panic!("{other:?}"),
            }
        }
    }

    /// A change of these bytes is a change of the format: see the head of this file.
    #[test]
    fn the_bytes_of_a_version_never_change() {
        let was = Session { turns: 300, first_at: Time(-1), last_at: Time(64), summarised: 0 };
        assert_eq!(session_bytes(&was), [10, 0xac, 0x02, 0x01, 0x80, 0x01, 0x00]);
        let vector = Vector { scale: 1.0, values: [-1, 2].into() };
        let with_vector = memory_and_vector_bytes(&a_memory(7, "one"), &vector);
        assert_eq!(with_vector[..8], [10, 0, 0, 0x80, 0x3f, 2, 0xff, 2]);
        // Two words: "tea" twice at 848, "boat" once at 992.
        let words = [2, 2, 0x02, 0x35, 0x01, 0x3e];
        assert_eq!(
            gate_bytes(&a_gate(130, &[0.001], &["tea", "boat", "tea"])),
            [&[10, 0x82, 0x01, 2, 1, 0, 3, 4][..], &words[2..], &[0]].concat()
        );
        let standing = StandingRecord {
            compressed_by: Some([7; 16]),
            disabled: true,
            stability: Some(0.5),
            sources: vec![PositionRecord { topic: "e", partition: 3, offset: -1 }],
        };
        assert_eq!(
            postcard::to_stdvec(&standing).unwrap(),
            [&[1][..], &[7; 16], &[1, 1, 0, 0, 0, 0x3f, 1, 1, b'e', 6, 1]].concat()
        );
        let source = a_memory(1, "").source;
        let written = postcard::to_stdvec(&neighbour_record(&a_neighbour(&source))).unwrap();
        assert_eq!(written[..10], [6, 0, 4, b'z', b'o', 0xc3, 0xab, 5, b'h', b'e']);
        assert_eq!(written[13..], [0, 0, 0x80, 0x3f, 2, 0xff, 2, 0, 0, 0, 0x3f]);
    }
}

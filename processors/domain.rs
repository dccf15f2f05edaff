//! The words of Keepsake: who, when, what was said, what is remembered and how surprising it was. No serde, no I/O.

mod mark;
mod own_words;
mod spread;

pub use mark::{KEY_BYTES_MIN, MARK, MarkKey, Marked};
pub use own_words::OwnWords;
pub use spread::Spread;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use uuid::Uuid;

/// Milliseconds since 1970, UTC. Whose clock it is (event or wall) is said by the name of the field that holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

impl Time {
    pub fn plus_ms(self, ms: i64) -> Time {
        Time(self.0.saturating_add(ms))
    }

    pub fn ms_since(self, earlier: Time) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    pub fn days_since(self, earlier: Time) -> f32 {
        self.ms_since(earlier) as f32 / 86_400_000.0
    }
}

/// Both clocks at one instant. Deadlines are on the wall; what is remembered fades by the events' own time, so that a replay repeats it.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    pub wall: Time,
    pub events: Time,
}

/// A part of a key that is not allowed there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAName {
    pub field: &'static str,
    pub why: &'static str,
}

pub const NAME_BYTES_MAX: usize = 128;

/// `tenant/user`: whose memories they are. The only way to any memory leads through one of these.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserKey {
    text: Arc<str>,
    slash: usize,
}

impl UserKey {
    pub fn new(tenant: &str, user: &str) -> Result<UserKey, NotAName> {
        check_name("tenant", tenant)?;
        check_name("user", user)?;
        Ok(UserKey::joined(tenant, user))
    }

    /// What every user of a tenant sees. Its user is empty, which no real user's name is.
    pub fn everyone_of(tenant: &str) -> Result<UserKey, NotAName> {
        check_name("tenant", tenant)?;
        Ok(UserKey::joined(tenant, ""))
    }

    /// Whether these are the names of a key: what spares making one that is only looked at.
    pub fn are_names(tenant: &str, user: &str) -> bool {
        check_name("tenant", tenant).is_ok()
            && (user.is_empty() || check_name("user", user).is_ok())
    }

    /// The shared key of this user's tenant.
    pub fn everyone(&self) -> UserKey {
        UserKey::joined(self.tenant(), "")
    }

    /// The key that `as_str` writes so, if it is one.
    pub fn parse(text: &str) -> Option<UserKey> {
        let (tenant, user) = text.split_once('/')?;
        UserKey::are_names(tenant, user).then(|| UserKey::joined(tenant, user))
    }

    fn joined(tenant: &str, user: &str) -> UserKey {
        UserKey { text: format!("{tenant}/{user}").into(), slash: tenant.len() }
    }

    pub fn tenant(&self) -> &str {
        &self.text[..self.slash]
    }

    pub fn user(&self) -> &str {
        &self.text[self.slash + 1..]
    }

    pub fn is_everyone(&self) -> bool {
        self.user().is_empty()
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The partition Kafka's own default partitioner chooses for this key.
    pub fn partition(&self, partitions: i32) -> i32 {
        partition_of(self.text.as_bytes(), partitions)
    }
}

impl fmt::Debug for UserKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for UserKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn check_name(field: &'static str, name: &str) -> Result<(), NotAName> {
    let why = if name.is_empty() {
        "is empty"
    } else if name.len() > NAME_BYTES_MAX {
        "is longer than 128 bytes"
    } else if name.contains('/') {
        "contains '/'"
    } else if name.chars().any(char::is_control) {
        "contains a control character"
    } else {
        return Ok(());
    };
    Err(NotAName { field, why })
}

/// The partition of a record's key: murmur2 as Kafka's Java client computes it, sign bit off, modulo the count.
pub fn partition_of(key: &[u8], partitions: i32) -> i32 {
    (murmur2(key) & 0x7fff_ffff) as i32 % partitions.max(1)
}

/// MurmurHash2 with Kafka's seed. Must agree with `org.apache.kafka.common.utils.Utils.murmur2` to the bit: see the test.
fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash: u32 = 0x9747_b28c ^ data.len() as u32;
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let mut k = u32::from_le_bytes([word[0], word[1], word[2], word[3]]).wrapping_mul(M);
        k = (k ^ (k >> 24)).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        for (n, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * n);
        }
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

/// Where a record stands in the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    pub topic: Arc<str>,
    pub partition: i32,
    pub offset: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemoryId(pub Uuid);

impl MemoryId {
    /// From the place in the log, never from chance or a clock: a replay makes the same id.
    pub fn of(source: &Position, span: u32) -> MemoryId {
        let name = format!("{}/{}/{}/{}", source.topic, source.partition, source.offset, span);
        MemoryId(Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()))
    }

    pub fn parse(text: &str) -> Option<MemoryId> {
        Uuid::parse_str(text).ok().map(MemoryId)
    }
}

impl fmt::Debug for MemoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for MemoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What sort of thing a memory is. An open word: a profile lists the ones it knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind(pub Arc<str>);

impl Kind {
    pub fn new(word: &str) -> Kind {
        Kind(word.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    #[default]
    User,
    Assistant,
    System,
    Tool,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::System => "system",
            Role::Tool => "tool",
        }
    }
}

/// Who may see a memory besides its own session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scope {
    #[default]
    User,
    Session,
    Tenant,
}

impl Scope {
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::User => "user",
            Scope::Session => "session",
            Scope::Tenant => "tenant",
        }
    }
}

pub type Metadata = BTreeMap<String, String>;

// ---------------------------------------------------------------- what comes in

/// One change, checked: what a record on the events topic means.
#[derive(Clone, Debug)]
pub struct Event<A = Action> {
    pub key: UserKey,
    pub session: Option<String>,
    /// The sender's own id: the same id again from the same user changes nothing.
    pub id: Option<String>,
    pub at: Time,
    pub metadata: Metadata,
    /// Where the sender put it: a forwarded record keeps the place it came from.
    pub source: Position,
    pub action: A,
}

#[derive(Clone, Debug)]
pub enum Action {
    Turn(Turn),
    Remember(Remember),
    Update(Update),
    Forget(Forget),
    Feedback { memories: Vec<MemoryId>, signal: Signal },
    Tick,
    Prune { memories: Vec<Seen>, reason: String },
    Summary { content: String, covers: Vec<Seen> },
    Revise(Revise),
}

impl Action {
    pub fn name(&self) -> &'static str {
        match self {
            Action::Turn(_) => "turn",
            Action::Remember(_) => "remember",
            Action::Update(_) => "update",
            Action::Forget(_) => "forget",
            Action::Feedback { .. } => "feedback",
            Action::Tick => "tick",
            Action::Prune { .. } => "prune",
            Action::Summary { .. } => "summary",
            Action::Revise(_) => "revise",
        }
    }
}

/// A memory as a plan saw it. If the version has moved on, the plan is outdated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub id: MemoryId,
    pub version: u32,
}

/// A proposal that a memory probably revises earlier ones.
#[derive(Clone, Debug)]
pub struct Revise {
    pub memory: Seen,
    pub revises: Vec<Seen>,
    pub probability: f32,
    pub reason: String,
}

#[derive(Clone, Debug)]
pub struct Turn {
    pub role: Role,
    pub speaker: Option<String>,
    pub content: String,
    /// The sender's word for the kind, which wins over ours.
    pub kind: Option<Kind>,
    /// False: context for the turns around it, never a memory.
    pub remember: bool,
}

/// Categories that a profile may forbid to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Category {
    Health,
    Politics,
    Religion,
    Sexuality,
    Money,
}

impl Category {
    pub const ALL: [Category; 5] = [
        Category::Health,
        Category::Politics,
        Category::Religion,
        Category::Sexuality,
        Category::Money,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Category::Health => "health",
            Category::Politics => "politics",
            Category::Religion => "religion",
            Category::Sexuality => "sexuality",
            Category::Money => "money",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Remember {
    pub content: String,
    pub kind: Option<Kind>,
    pub importance: f32,
    /// Where the sender does not say, the profile may.
    pub confidence: Option<f32>,
    pub scope: Scope,
}

#[derive(Clone, Debug)]
pub struct Update {
    pub memory: MemoryId,
    pub content: Option<String>,
    pub kind: Option<Kind>,
    pub importance: Option<f32>,
    pub confidence: Option<f32>,
    pub metadata: Option<Metadata>,
}

#[derive(Clone, Debug)]
pub enum Forget {
    Memory(MemoryId),
    Session(String),
    Query(String),
    Everything,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    Used,
    Confirmed,
    Wrong,
    Irrelevant,
    Returned,
}

impl Signal {
    pub fn as_str(self) -> &'static str {
        match self {
            Signal::Used => "used",
            Signal::Confirmed => "confirmed",
            Signal::Wrong => "wrong",
            Signal::Irrelevant => "irrelevant",
            Signal::Returned => "returned",
        }
    }
}

/// Where an answer goes and what it must carry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplyTo {
    pub topic: String,
    pub partition: Option<i32>,
    pub key: Option<Vec<u8>>,
    /// Echoed byte for byte: the correlation id in the header it came in, and the trace context.
    pub echo: Vec<(String, Vec<u8>)>,
}

/// One question, checked: what a record on the recalls topic means.
#[derive(Clone, Debug)]
pub struct Request {
    pub key: UserKey,
    pub deadline: Time,
    pub min_offset: Option<i64>,
    pub ask: Ask,
}

#[derive(Clone, Debug)]
pub enum Ask {
    Recall(Box<Recall>),
    List(List),
    Get { memory: MemoryId, history: bool },
    Explain(Explain),
    Stats,
}

impl Ask {
    pub fn name(&self) -> &'static str {
        match self {
            Ask::Recall(_) => "recall",
            Ask::List(_) => "list",
            Ask::Get { .. } => "get",
            Ask::Explain(_) => "explain",
            Ask::Stats => "stats",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Recall {
    /// The question and, if there are several, the others. Never empty.
    pub queries: Vec<String>,
    pub session: Option<String>,
    pub limit: usize,
    pub token_budget: usize,
    pub kinds: Vec<Kind>,
    pub metadata: Metadata,
    pub as_of: Option<Time>,
    pub as_of_offset: Option<i64>,
    pub include_archived: bool,
    pub format: Format,
    pub profile: Option<String>,
    pub explain: bool,
    /// The last turns before the question, oldest first.
    pub history: Vec<String>,
    /// Leaves out memories that are less likely to answer.
    pub min_relevance: f32,
    pub unsaid: Unsaid,
}

/// Judges whether the memories found speak of the question at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Match {
    None,
    Weak,
    Good,
}

impl Match {
    pub const ALL: [Match; 3] = [Match::None, Match::Weak, Match::Good];

    pub fn as_str(self) -> &'static str {
        match self {
            Match::None => "none",
            Match::Weak => "weak",
            Match::Good => "good",
        }
    }
}

/// What the sender of a recall did not say, so that a profile's own word counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unsaid {
    pub limit: bool,
    pub format: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    #[default]
    Markdown,
    Xml,
    Compact,
    Json,
    /// As the profile's own author wrote it.
    Template,
    None,
}

#[derive(Clone, Debug, Default)]
pub struct List {
    pub session: Option<String>,
    pub kinds: Vec<Kind>,
    pub limit: usize,
    pub after: Option<Cursor>,
}

/// Where a page of a list ended: the next one holds what is older. Stays right when the memory itself is forgotten meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub created_at: Time,
    pub id: MemoryId,
}

#[derive(Clone, Debug)]
pub enum Explain {
    Memory(MemoryId),
    Event(Position),
}

// ---------------------------------------------------------------- what is decided

/// How surprising a candidate is: five factors, each 0 to 1, and the points that made the total.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Surprise {
    pub total: f32,
    pub novelty: f32,
    pub contradiction: f32,
    pub specificity: f32,
    pub emphasis: f32,
    pub context_switch: f32,
    /// Every part that is not zero, as weighted points. They sum to `total`.
    pub points: Vec<(&'static str, f32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    Kept,
    Merged,
    Superseded,
    Dropped,
    Refused,
    Updated,
    Forgotten,
    Noted,
    Duplicate,
    Pruned,
    Summarised,
    Revised,
    Outdated,
}

impl Outcome {
    pub const ALL: [Outcome; 13] = [
        Outcome::Kept,
        Outcome::Merged,
        Outcome::Superseded,
        Outcome::Dropped,
        Outcome::Refused,
        Outcome::Updated,
        Outcome::Forgotten,
        Outcome::Noted,
        Outcome::Duplicate,
        Outcome::Pruned,
        Outcome::Summarised,
        Outcome::Revised,
        Outcome::Outdated,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Kept => "kept",
            Outcome::Merged => "merged",
            Outcome::Superseded => "superseded",
            Outcome::Dropped => "dropped",
            Outcome::Refused => "refused",
            Outcome::Updated => "updated",
            Outcome::Forgotten => "forgotten",
            Outcome::Noted => "noted",
            Outcome::Duplicate => "duplicate",
            Outcome::Pruned => "pruned",
            Outcome::Summarised => "summarised",
            Outcome::Revised => "revised",
            Outcome::Outdated => "outdated",
        }
    }

    /// Of a candidate: it is in a memory now, a new one or an old one.
    pub fn keeps(self) -> bool {
        matches!(self, Outcome::Kept | Outcome::Merged | Outcome::Superseded)
    }
}

/// What became of one candidate, or of one event that is no turn, with the numbers that made it so.
#[derive(Clone, Debug)]
pub struct Decision {
    pub outcome: Outcome,
    pub reason: String,
    pub event: Position,
    pub event_id: Option<String>,
    pub key: UserKey,
    pub session: Option<String>,
    pub candidate: Option<String>,
    pub kind: Option<Kind>,
    pub surprise: Option<Surprise>,
    pub threshold: Option<f32>,
    pub memory: Option<MemoryId>,
    pub related: Vec<MemoryId>,
    /// Counts the memories that a forget means and leaves, because one forget may erase no more at once.
    pub left: Option<usize>,
    pub profile: Arc<str>,
    pub at: Time,
    pub misrouted: bool,
}

/// A memory, whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    pub id: MemoryId,
    pub key: UserKey,
    /// The user who created this memory, if the whole tenant sees it. None for a user's own memory, and for a record of store format 3 or older.
    pub author: Option<String>,
    pub scope: Scope,
    pub session: Option<String>,
    pub kind: Kind,
    pub content: String,
    pub role: Role,
    pub speaker: Option<String>,
    pub importance: f32,
    pub confidence: f32,
    pub created_at: Time,
    pub valid_from: Time,
    /// When a newer value of the same fact took over.
    pub valid_to: Option<Time>,
    pub source: Position,
    pub event_id: Option<String>,
    pub metadata: Metadata,
    pub supersedes: Vec<MemoryId>,
    pub superseded_by: Option<MemoryId>,
    /// Earlier memories about the same thing that this one probably revises. They stay valid and stand behind this one.
    pub revises: Vec<MemoryId>,
    /// The newest memory that probably revises this one.
    pub revised_by: Option<MemoryId>,
    pub conflicts_with: Vec<MemoryId>,
    pub archived: bool,
    /// Counts changes, so that a plan made from a snapshot can tell what has moved on.
    pub version: u32,
    /// The event offset on this shard at which it last changed: what a derived index compares its own mark with.
    pub changed: i64,
    pub uses: u32,
    pub confirmed: u32,
    /// The last time it was used or confirmed; decay counts from here. Never rewritten by time itself.
    pub fresh_at: Time,
    pub surprise: Option<Surprise>,
    pub threshold: Option<f32>,
    pub reason: String,
    pub profile: Arc<str>,
    /// For a summary: the memories it stands for.
    pub covers: Vec<MemoryId>,
    /// Earlier contents, oldest first, bounded.
    pub history: Vec<Revision>,
    /// What was said around the turn it came from. Nothing, if it came from none.
    pub around: Around,
}

impl Memory {
    pub fn cursor(&self) -> Cursor {
        Cursor { created_at: self.created_at, id: self.id }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    pub content: String,
    pub until: Time,
}

/// What a memory knows of the turns next to its own, whether they were kept or not: a dropped question still says what its answer is about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Around {
    pub before: Option<Neighbour>,
    /// The one before that, without its vector.
    pub earlier: Option<Neighbour>,
    /// Only if it became no memory: one that did knows who came before it.
    pub after: Option<Neighbour>,
}

impl Around {
    pub fn all(&self) -> impl Iterator<Item = &Neighbour> {
        self.before.iter().chain(&self.earlier).chain(&self.after)
    }

    /// Lets go of the neighbours that are meant. False: there were none.
    pub fn forget(&mut self, meant: impl Fn(&Neighbour) -> bool) -> bool {
        let before = self.all().count();
        for place in [&mut self.before, &mut self.earlier, &mut self.after] {
            place.take_if(|neighbour| meant(neighbour));
        }
        self.all().count() < before
    }
}

/// A turn as the memories beside it know it.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbour {
    pub source: Position,
    pub speaker: Arc<str>,
    /// Its first words.
    pub words: Arc<str>,
    pub vector: Vector,
    /// How much it is a question: 1 for a short one, less the more is said besides.
    pub question: f32,
}

/// What a session said last: the ground on which the next turn is new, an answer, or a change of subject.
#[derive(Clone, Debug, PartialEq)]
pub struct SaidBefore {
    pub speaker: Arc<str>,
    /// Of a turn that an older version heard: a user's.
    pub role: Role,
    pub content: Arc<str>,
    pub vector: Vector,
    /// Not known of a turn that an older version heard.
    pub source: Option<Position>,
    pub question: f32,
    /// The last memory that was made of it.
    pub memory: Option<MemoryId>,
}

/// A unit vector in eight bits a dimension with one scale: 0.4 ms instead of 1.5 for ten thousand, and a quarter of the memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vector {
    pub scale: f32,
    /// Shared: a turn's vector becomes a memory's, its neighbours' and the index's.
    pub values: Arc<[i8]>,
}

impl Vector {
    pub fn of(exact: &[f32]) -> Vector {
        let peak = exact.iter().fold(0f32, |peak, x| peak.max(x.abs()));
        if peak == 0.0 {
            return Vector { scale: 0.0, values: vec![0; exact.len()].into() };
        }
        let scale = peak / 127.0;
        Vector { scale, values: exact.iter().map(|x| rounded(x / scale)).collect() }
    }

    /// The cosine of two vectors that were of unit length before they were rounded. Invariant: to the bit the same both ways round and
    /// in the index's blocks, so the scales are multiplied first: else a score would depend on where a batch ended.
    pub fn cosine(&self, other: &Vector) -> f32 {
        dot(&self.values, &other.values) as f32 * (self.scale * other.scale)
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

/// `x.round() as i8`, which without a processor's newer instructions is a call for each number. Invariant: a half goes away from zero; the
/// largest float below a half is added, so that what is below a half does not.
fn rounded(x: f32) -> i8 {
    (x + 0.5f32.next_down().copysign(x)) as i8
}

/// In whole numbers, and so the same to the bit on every processor: 32 bits hold it up to 130,000 dimensions.
pub fn dot(a: &[i8], b: &[i8]) -> i32 {
    for_this_processor(
        #[inline(always)]
        || product(a, b),
    )
}

/// As plain as it stands the compiler makes four times as quick a loop of it for newer processors.
#[inline(always)]
pub fn product<A: Copy + Into<i32>, B: Copy + Into<i32>>(a: &[A], b: &[B]) -> i32 {
    a.iter().zip(b).map(|(x, y)| (*x).into() * (*y).into()).sum()
}

/// Compiled twice: which processor this is, is asked when it runs. Not worth asking for each of many products.
#[inline(always)]
pub fn for_this_processor<R>(what: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_agrees_with_kafkas_java_client() {
        // The vectors of Kafka's own UtilsTest.testMurmur2.
        for (text, hash) in [
            ("21", -973_932_308i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(text.as_bytes()) as i32, hash, "{text}");
        }
    }

    #[test]
    fn names_that_could_break_a_key_are_refused() {
        for bad in ["", "a/b", "a\u{0}b", "tab\tbed", &"x".repeat(129)] {
            assert!(UserKey::new("default", bad).is_err(), "{bad:?}");
        }
        let key = UserKey::new("acme", "zoë").expect("a plain name");
        assert_eq!((key.tenant(), key.user(), key.as_str()), ("acme", "zoë", "acme/zoë"));
        for key in [key.clone(), key.everyone()] {
            assert_eq!(UserKey::parse(key.as_str()), Some(key));
        }
        for bad in ["", "/", "acme", "/zoë", "acme/zoë/", "acme/z\u{1f}"] {
            assert_eq!(UserKey::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn eight_bit_vectors_keep_the_cosine() {
        let unit = |seed: f32| {
            let raw: Vec<f32> = (0..384).map(|n| (n as f32 * seed).sin()).collect();
            let length = raw.iter().map(|x| x * x).sum::<f32>().sqrt();
            raw.iter().map(|x| x / length).collect::<Vec<_>>()
        };
        let (a, b) = (unit(0.37), unit(0.41));
        let exact: f32 = a.iter().zip(&b).map(|(x, y)| x * y).sum();
        assert!((Vector::of(&a).cosine(&Vector::of(&b)) - exact).abs() < 0.01);
        assert!((Vector::of(&a).cosine(&Vector::of(&a)) - 1.0).abs() < 0.01);
    }

    #[test]
    fn numbers_are_rounded_as_the_library_rounds_them() {
        let halves = (-260..=260).map(|n| n as f32 / 2.0);
        let beside = halves.flat_map(|half| [half.next_down(), half, half.next_up()]);
        let between = (-128_000..128_000).map(|n| n as f32 / 1000.0);
        for x in beside.chain(between).chain([f32::NAN, -0.0, f32::INFINITY, f32::NEG_INFINITY]) {
            assert_eq!(rounded(x), x.round() as i8, "{x}");
        }
    }
}

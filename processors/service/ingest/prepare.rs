//! Prepares records for the kernel: decode → route → redact → split, for several records, so that
//! their texts are encoded together. Then each text is joined with its vector. A record that panics
//! here, or that has a text that the encoder refuses, is rejected as poison: nothing of the record
//! is staged.

use super::Ingest;
use super::batch::Count;
use broker::Record;
use contract::decode::{self, Hop};
use domain::fault::{Reject, RejectCode};
use domain::panics::caught;
use domain::{Action, Event, Forget, ForwardReason, ReplyTo, Role, Signal, Time, Vector};
use kernel::encoded;
use kernel::prepared::{Sent, Withheld};
use kernel::rules::Treatment;
use kernel::withheld::withheld;
use kernel::{Command, Part, Prepared, PreparedTurn};
use models::embedder::pool::Refusal;
use text::split::{self, Candidate};

/// Records that are prepared and encoded before the first of them is applied: enough for every
/// encoder thread. While the last ones of a batch are applied, the encoder has nothing to do.
const GROUP_MAX: usize = 64;
/// Bytes of text that are encoded together, without the last record's: about a quarter of a
/// second's work for one thread with the default encoder.
const GROUP_BYTES_MAX: usize = 8192;

/// A record whose texts wait for their vectors.
pub type Draft<'r> = OnItsWay<'r, Undecided>;

/// A record that can be applied.
pub type Ready<'r> = OnItsWay<'r, Prepared>;

/// The vector of a text, or why there is none.
pub type TextVector = Result<Vector, Refusal>;

pub struct OnItsWay<'r, P> {
    pub record: &'r Record,
    pub reply: Option<ReplyTo>,
    pub hop: Option<Hop>,
    pub route: Route<P>,
    pub counts: Vec<Count>,
    /// Number of texts of the record.
    texts: usize,
}

/// Where a record goes.
pub enum Route<P> {
    /// Applied by this shard.
    Apply(P),
    /// The record belongs to another partition: that of the user, or of the tenant.
    Forward(i32, ForwardReason),
    Reject(Reject),
}

/// A decoded event, split and not yet encoded.
pub struct Undecided {
    event: Event,
    candidates: Vec<Candidate>,
    parts: usize,
    withheld: Option<Withheld>,
    part: Part,
    is_home: bool,
    is_ordered_here: bool,
    signed: Option<Time>,
}

impl Ingest {
    /// Prepares the next records of a group, and lists their texts in the order of the records.
    pub(super) fn draft_group<'r>(
        &mut self,
        records: &mut impl Iterator<Item = &'r Record>,
    ) -> (Vec<Draft<'r>>, Vec<String>) {
        let mut drafts = Vec::new();
        let mut texts: Vec<String> = Vec::new();
        let mut bytes = 0;
        while drafts.len() < GROUP_MAX && bytes < GROUP_BYTES_MAX {
            let Some(record) = records.next() else { break };
            let drafted = caught(|| {
                let draft = self.draft(record);
                let texts = match &draft.route {
                    Route::Apply(undecided) => undecided.texts(),
                    _ => Vec::new(),
                };
                (draft, texts)
            });
            let (draft, own) = drafted.unwrap_or_else(|panic| {
                let what = format!("Keepsake panics when it reads this record: {}", panic.message);
                (self.rejected(record, Reject::poison(what, Some(panic.stack))), Vec::new())
            });
            bytes += own.iter().map(String::len).sum::<usize>();
            drafts.push(Draft { texts: own.len(), ..draft });
            texts.extend(own);
        }
        (drafts, texts)
    }

    fn rejected<'r>(&self, record: &'r Record, reject: Reject) -> Draft<'r> {
        let reply = caught(|| decode::reply_to(record, &self.options.decode)).unwrap_or_default();
        let route = Route::Reject(reject);
        Draft { record, reply, hop: None, route, counts: Vec::new(), texts: 0 }
    }

    fn draft<'r>(&mut self, record: &'r Record) -> Draft<'r> {
        if self.options.skip.contains(&(record.partition, record.offset)) {
            let what = "ingest.skip names this record";
            return self.rejected(record, Reject::new(RejectCode::Skipped, what));
        }
        let decoded = decode::event(record, &self.options.decode);
        let mut counts = Vec::new();
        let hop = decoded.hop;
        let route = match decoded.outcome {
            Err(reject) => Route::Reject(reject),
            Ok(event) => {
                counts.push(Count::EventRead(event.action.name()));
                self.route(event, record, hop.as_ref(), &mut counts)
            }
        };
        Draft { record, reply: decoded.reply, hop, route, counts, texts: 0 }
    }

    fn route(
        &mut self,
        mut event: Event,
        record: &Record,
        hop: Option<&Hop>,
        counts: &mut Vec<Count>,
    ) -> Route<Undecided> {
        if hop.is_none()
            && let Err(reject) = decode::may_be_forwarded(record)
        {
            return Route::Reject(reject);
        }
        let partitions = self.shards.partitions();
        let home = event.key.partition(partitions);
        let is_home = matches!(event.action, Action::Tick) || home == record.partition;
        let way = hop.map(|hop| hop.way);
        let tenants_home = event.key.tenant_key().partition(partitions);
        let (is_ours, to) = match way {
            None | Some(ForwardReason::ToUser) => (is_home, home),
            Some(ForwardReason::ToOrder) => (tenants_home == record.partition, tenants_home),
            Some(ForwardReason::InOrder) => (true, record.partition),
        };
        // A record that an earlier generation forwarded may need one hop more.
        let is_of_before = self.options.generation > 1 && decode::may_be_forwarded(record).is_ok();
        if !is_ours && hop.is_some() && !is_of_before {
            let why = "still on a wrong partition after one hop";
            return Route::Reject(Reject::new(RejectCode::Misrouted, why));
        }
        if !is_ours {
            return Route::Forward(to, way.unwrap_or(ForwardReason::ToUser));
        }
        let is_first = matches!(way, None | Some(ForwardReason::ToUser));
        if is_first && !event.warnings.is_empty() {
            counts.push(Count::Warned(event.action.name()));
        }
        if is_first && let Err(reject) = self.may_be_applied_now(&event, record) {
            counts.push(Count::OverQuota("events-per-second"));
            return Route::Reject(reject);
        }
        // The shard that forwarded a copy has counted the findings.
        self.redact(&mut event, is_first.then_some(counts));
        let profile = self.profiles.of(&event.key);
        let withheld = match &event.action {
            Action::Turn(turn) => withheld(turn, &profile.rules),
            _ => None,
        };
        let mut candidates = if withheld.is_none() { self.candidates(&event) } else { Vec::new() };
        let parts = candidates.len();
        // Order matters: cut before encoding, because 64 KiB may hold a thousand parts.
        candidates.truncate(self.options.candidates_max);
        let tenant = event.key.tenant();
        let signed = decode::signed_at(tenant, record, &self.options.decode);
        Route::Apply(Undecided {
            signed,
            event,
            candidates,
            parts,
            withheld,
            part: if is_first { Part::First } else { Part::InOrder },
            is_home,
            is_ordered_here: way == Some(ForwardReason::ToOrder),
        })
    }

    /// Rejects an event of a tenant over its quota. Order matters: before redaction and encoding,
    /// which are the cost. A `forget` is a right, and the records that Keepsake writes to itself
    /// are no cost of the tenant's choice: these are never rejected or counted.
    fn may_be_applied_now(&mut self, event: &Event, record: &Record) -> Result<(), Reject> {
        let tenant = event.key.tenant();
        let Some(limit) = self.rate.limit(tenant) else { return Ok(()) };
        let is_limited = match &event.action {
            Action::Turn(_) | Action::Remember(_) | Action::Update(_) => true,
            Action::Feedback { signal, .. } => *signal != Signal::Returned,
            Action::Forget(_)
            | Action::Prune { .. }
            | Action::Summary { .. }
            | Action::Revise(_)
            | Action::Extracted(_)
            | Action::Tick => false,
        };
        if !is_limited {
            return Ok(());
        }
        self.rate.take(tenant, record).map_err(|wait_ms| {
            let message = format!(
                "the tenant sends more than {limit} events a second (quota.events_per_second): \
                 send it again in {wait_ms} ms"
            );
            Reject::new(RejectCode::Overloaded, message)
        })
    }

    fn candidates(&self, event: &Event) -> Vec<Candidate> {
        let profile = self.profiles.of(&event.key);
        match &event.action {
            Action::Turn(turn)
                if turn.remember && profile.rules.treatment(turn.role) != Treatment::Context =>
            {
                let split = |options: &split::Options| {
                    let kind = turn.kind.as_ref();
                    split::candidates(&turn.content, turn.role, kind, options, &|text| {
                        self.tokens.count(text)
                    })
                };
                let parts = split(&profile.split);
                if parts.len() <= self.options.candidates_max {
                    return parts;
                }
                // Too many statements: larger parts, of which more is looked at.
                split(&split::Options { statements: Vec::new(), ..profile.split.clone() })
            }
            // A text to remember is stored whole, so only kind and slots of the candidate are used.
            Action::Remember(asked) => {
                let (content, kind) = (&asked.content, asked.kind.as_ref());
                let whole = split::Options { statements: Vec::new(), ..profile.split.clone() };
                let mut parts = split::candidates(content, Role::User, kind, &whole, &|_| 0);
                parts.truncate(1);
                parts
            }
            _ => Vec::new(),
        }
    }
}

impl Undecided {
    /// The texts to encode. `prepared` takes their vectors in the same order.
    fn texts(&self) -> Vec<String> {
        match &self.event.action {
            Action::Turn(turn) => {
                let speaker = turn.speaker.as_deref().unwrap_or(turn.role.as_str());
                let texts = self.candidates.iter();
                texts.map(|candidate| encoded::of_turn(speaker, &candidate.text)).collect()
            }
            Action::Remember(asked) => vec![asked.content.clone()],
            Action::Update(update) => update.content.iter().cloned().collect(),
            Action::Forget(Forget::Query(query)) => vec![query.clone()],
            Action::Summary { content, .. } => vec![content.clone()],
            Action::Extracted(extracted) => {
                extracted.facts.iter().map(|fact| fact.content.clone()).collect()
            }
            _ => Vec::new(),
        }
    }

    fn prepared(
        self,
        record: &Record,
        hop: Option<&Hop>,
        vectors: &mut impl Iterator<Item = Vector>,
    ) -> Prepared {
        let mut next = || vectors.next().expect("each text was encoded");
        let Event { key, session, id, at, metadata, source, warnings, limits, action } = self.event;
        let action = match action {
            Action::Turn(turn) => Command::Turn(PreparedTurn {
                turn,
                candidates: self.candidates.into_iter().map(|part| (part, next())).collect(),
                parts: self.parts,
                withheld: self.withheld,
            }),
            Action::Remember(asked) => Command::Remember {
                asked,
                candidate: self.candidates.into_iter().next(),
                vector: next(),
            },
            Action::Update(update) => {
                let vector = update.content.is_some().then(&mut next);
                Command::Update { update, vector }
            }
            Action::Forget(forget) => {
                let vector = matches!(forget, Forget::Query(_)).then(&mut next);
                Command::Forget { forget, vector }
            }
            Action::Feedback { memories, signal } => Command::Feedback { memories, signal },
            Action::Prune { memories, reason, erases, idle } => {
                Command::Prune { memories, reason, erases, idle }
            }
            Action::Summary { content, covers, compresses_as, made } => {
                Command::Summary { content, vector: next(), covers, compresses_as, made }
            }
            Action::Revise(revise) => Command::Revise(revise),
            Action::Extracted(extracted) => {
                let vectors = extracted.facts.iter().map(|_| next()).collect();
                Command::Extracted { extracted, vectors }
            }
            Action::Tick => Command::Tick,
        };
        Prepared {
            event: Event { key, session, id, at, metadata, source, warnings, limits, action },
            partition: record.partition,
            offset: record.offset,
            part: self.part,
            is_home: self.is_home,
            is_ordered_here: self.is_ordered_here,
            is_sent_again: hop.is_none() && decode::is_repetition(record),
            sent: Sent {
                at: Time(record.timestamp_ms),
                is_late: hop.is_some() || decode::is_repetition(record),
                signed: self.signed,
            },
        }
    }
}

impl<'r> Draft<'r> {
    /// The same record, rejected. Its texts keep their place in the order of the vectors.
    pub fn poisoned(self, reject: Reject) -> Draft<'r> {
        Draft { route: Route::Reject(reject), ..self }
    }

    /// Joins each text with its vector.
    pub fn with_vectors(self, vectors: &mut impl Iterator<Item = TextVector>) -> Ready<'r> {
        let Draft { record, reply, hop, counts, texts, route } = self;
        // Order matters: all vectors of this record are taken, also behind a refused text.
        let own: Vec<TextVector> = vectors.take(texts).collect();
        let own: Result<Vec<Vector>, Refusal> = own.into_iter().collect();
        let route = match (route, own) {
            (Route::Apply(undecided), Ok(own)) => {
                Route::Apply(undecided.prepared(record, hop.as_ref(), &mut own.into_iter()))
            }
            (Route::Apply(_), Err(refusal)) => {
                let what =
                    format!("the encoder refuses a text of this record: {}", refusal.message);
                Route::Reject(Reject::poison(what, refusal.stack))
            }
            (Route::Forward(home, way), _) => Route::Forward(home, way),
            (Route::Reject(reject), _) => Route::Reject(reject),
        };
        Ready { record, reply, hop, route, counts, texts }
    }
}

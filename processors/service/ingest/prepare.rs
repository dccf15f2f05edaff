//! Prepares records for the kernel: decode → route → redact → split, for several records, so that
//! their texts are encoded together. Then each text is joined with its vector. A record that panics
//! here, or that has a text that the encoder refuses, is rejected as poison: nothing of the record
//! is staged.

use super::Ingest;
use super::count::Count;
use super::in_flight::{Drafted, InFlight, Ready, Route};
use broker::Record;
use contract::decode::{self, Hop};
use domain::fault::{Reject, RejectCode};
use domain::panics::caught;
use domain::{Action, Event, ForwardReason, REDRIVEN, Signal, Step, Time, Turn, Vector};
use kernel::encoded;
use kernel::prepared::Sent;
use kernel::rules::Treatment;
use kernel::withheld::withheld;
use kernel::{Part, Prepared, Rules, Statements};
use models::embedder::TokenCounter;
use models::embedder::pool::Refusal;
use text::split::{self, Candidate};

/// Records that are prepared and encoded before the first of them is applied: enough for every
/// encoder thread. While the last ones of a batch are applied, the encoder has nothing to do.
const GROUP_MAX: usize = 64;
/// Bytes of text that are encoded together, without the last record's: about a quarter of a
/// second's work for one thread with the default encoder.
const GROUP_BYTES_MAX: usize = 8192;

/// The vector of a text, or why there is none.
pub type TextVector = Result<Vector, Refusal>;

impl Ingest {
    /// Prepares the next records of a group, and lists their texts in the order of the records.
    pub(super) fn draft_group<'r>(
        &self,
        records: &mut impl Iterator<Item = &'r Record>,
    ) -> (Vec<Drafted<'r>>, Vec<String>) {
        let mut drafted = Vec::new();
        let mut texts: Vec<String> = Vec::new();
        let mut bytes = 0;
        while drafted.len() < GROUP_MAX && bytes < GROUP_BYTES_MAX {
            let Some(record) = records.next() else { break };
            let first = texts.len();
            let one = caught(|| self.draft(record, &mut texts)).unwrap_or_else(|panic| {
                texts.truncate(first);
                let what = format!("Keepsake panics when it reads this record: {}", panic.message);
                self.rejected(record, Reject::poison(what, Some(panic.stack)))
            });
            bytes += texts[first..].iter().map(String::len).sum::<usize>();
            drafted.push(InFlight { texts: first..texts.len(), ..one });
        }
        (drafted, texts)
    }

    fn rejected<'r>(&self, record: &'r Record, reject: Reject) -> Drafted<'r> {
        let reply = caught(|| decode::reply_to(record, &self.options.decode)).unwrap_or_default();
        let hop = caught(|| decode::hop(record, &self.options.decode).0).unwrap_or_default();
        let route = Route::Reject(reject);
        InFlight { record, reply, hop, route, counts: Vec::new(), texts: 0..0 }
    }

    /// Adds the record's texts to `texts`.
    fn draft<'r>(&self, record: &'r Record, texts: &mut Vec<String>) -> Drafted<'r> {
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
                self.route(event, record, hop.as_ref(), (&mut counts, texts))
            }
        };
        InFlight { record, reply: decoded.reply, hop, route, counts, texts: 0..0 }
    }

    fn route(
        &self,
        mut event: Event,
        record: &Record,
        hop: Option<&Hop>,
        (counts, texts): (&mut Vec<Count>, &mut Vec<String>),
    ) -> Route<usize> {
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
            Some(ForwardReason::ToTenant | ForwardReason::RestToTenant) => {
                (tenants_home == record.partition, tenants_home)
            }
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
        // The shard that sent the event on has counted the findings.
        self.redact(&mut event, is_first.then_some(counts));
        let mut splitting = Splitting {
            rules: &self.profiles.of(&event.key).rules,
            candidates_max: self.options.candidates_max,
            tokens: &self.tokens,
            texts,
        };
        let event = event.step(&mut splitting);
        let tenant = event.key.tenant();
        let signed = decode::signed_at(tenant, record, &self.options.decode);
        Route::Apply(Box::new(Prepared {
            partition: record.partition,
            offset: record.offset,
            part: match way {
                None | Some(ForwardReason::ToUser) => Part::First,
                Some(ForwardReason::ToTenant) => Part::Home,
                Some(ForwardReason::RestToTenant) => Part::Rest,
            },
            sent: Sent {
                at: Time(record.timestamp_ms),
                is_late: is_late(&event, record, hop, partitions),
                signed,
            },
            event,
        }))
    }

    /// Rejects an event of a tenant over its quota. Order matters: before redaction and encoding,
    /// which are the cost. A `forget` is a right, and the records that Keepsake writes to itself
    /// are no cost of the tenant's choice: these are never rejected or counted.
    fn may_be_applied_now(&self, event: &Event, record: &Record) -> Result<(), Reject> {
        let tenant = event.key.tenant();
        let Some(limit) = self.rate.lock().limit(tenant) else { return Ok(()) };
        let is_limited = match &event.action {
            Action::Turn(..) | Action::Remember(_) | Action::Update(_) => true,
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
        self.rate.lock().take(tenant, record).map_err(|wait_ms| {
            let message = format!(
                "the tenant sends more than {limit} events a second (quota.events_per_second): \
                 send it again in {wait_ms} ms"
            );
            Reject::new(RejectCode::Overloaded, message)
        })
    }
}

/// True if newer records of the user may have been applied before: the record was a dead letter, or
/// the sender wrote to a wrong partition. That an event was sent on to the tenant's home makes it
/// no later.
fn is_late<V, S>(
    event: &domain::Event<Action<V, S>>,
    record: &Record,
    hop: Option<&Hop>,
    partitions: i32,
) -> bool {
    match hop {
        None => decode::is_repetition(record),
        Some(hop) => {
            hop.way == ForwardReason::ToUser || record.header(REDRIVEN).is_some() || {
                let users = event.key.partition(partitions);
                event.source.partition != users
            }
        }
    }
}

/// Splits a turn, and lists the texts that are to be encoded. The vector of each is its place.
struct Splitting<'a> {
    rules: &'a Rules,
    candidates_max: usize,
    tokens: &'a TokenCounter,
    texts: &'a mut Vec<String>,
}

impl Step<(), ()> for Splitting<'_> {
    type Vector = usize;
    type Statements = Statements<usize>;

    fn vector(&mut self, text: &str, (): ()) -> usize {
        self.texts.push(text.to_owned());
        self.texts.len() - 1
    }

    fn statements(&mut self, turn: &Turn, (): ()) -> Statements<usize> {
        let withheld = withheld(turn, self.rules);
        let mut candidates = if withheld.is_none() { self.candidates(turn) } else { Vec::new() };
        let parts = candidates.len();
        // Order matters: cut before encoding, because 64 KiB may hold a thousand parts.
        candidates.truncate(self.candidates_max);
        let speaker = turn.speaker.as_deref().unwrap_or(turn.role.as_str());
        let candidates = candidates.into_iter().map(|candidate| {
            let text = encoded::of_turn(speaker, &candidate.text);
            (candidate, self.vector(&text, ()))
        });
        Statements { candidates: candidates.collect(), parts, withheld }
    }
}

impl Splitting<'_> {
    fn candidates(&self, turn: &Turn) -> Vec<Candidate> {
        if !turn.remember || self.rules.treatment(turn.role) == Treatment::Context {
            return Vec::new();
        }
        let split = |options: &split::Options| {
            let kind = turn.kind.as_ref();
            split::candidates(&turn.content, turn.role, kind, options, &|text| {
                self.tokens.count(text)
            })
        };
        let parts = split(&self.rules.split);
        if parts.len() <= self.candidates_max {
            return parts;
        }
        // Too many statements: larger parts, of which more is looked at.
        split(&split::Options { statements: Vec::new(), ..self.rules.split.clone() })
    }
}

/// Puts the vectors in their places.
struct Joining {
    first: usize,
    vectors: Vec<Vector>,
}

impl Step<usize, Statements<usize>> for Joining {
    type Vector = Vector;
    type Statements = Statements;

    fn vector(&mut self, _: &str, place: usize) -> Vector {
        std::mem::take(&mut self.vectors[place - self.first])
    }

    fn statements(&mut self, _: &Turn, said: Statements<usize>) -> Statements {
        let Statements { candidates, parts, withheld } = said;
        let candidates =
            candidates.into_iter().map(|(candidate, place)| (candidate, self.vector("", place)));
        Statements { candidates: candidates.collect(), parts, withheld }
    }
}

impl<'r> Drafted<'r> {
    /// The same record, rejected. Its texts keep their places.
    pub fn poisoned(self, reject: Reject) -> Drafted<'r> {
        InFlight { route: Route::Reject(reject), ..self }
    }

    /// Joins each text with its vector.
    pub fn with_vectors(self, vectors: &mut impl Iterator<Item = TextVector>) -> Ready<'r> {
        let InFlight { record, reply, hop, counts, texts, route } = self;
        // Order matters: all vectors of this record are taken, also behind a refused text.
        let own: Vec<TextVector> = vectors.take(texts.len()).collect();
        let own: Result<Vec<Vector>, Refusal> = own.into_iter().collect();
        let route = match (route, own) {
            (Route::Apply(prepared), Ok(vectors)) => {
                let mut joining = Joining { first: texts.start, vectors };
                Route::Apply(Box::new(prepared.step(&mut joining)))
            }
            (Route::Apply(_), Err(refusal)) => {
                let what =
                    format!("the encoder refuses a text of this record: {}", refusal.message);
                Route::Reject(Reject::poison(what, refusal.stack))
            }
            (Route::Forward(home, way), _) => Route::Forward(home, way),
            (Route::Reject(reject), _) => Route::Reject(reject),
        };
        InFlight { record, reply, hop, route, counts, texts }
    }
}

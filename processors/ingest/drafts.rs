//! Drafts the records of a batch: decode → redact → split, for several records, so that all their texts are encoded together.

use super::tenant::Part;
use super::withheld::Withheld;
use super::{Ingest, withheld};
use crate::domain::{Action, Event, Forget, ReplyTo};
use crate::fault::Reject;
use crate::ports::broker::Record;
use crate::profile::Treatment;
use crate::stages::decode::{self, Hop, Way};
use crate::stages::split::{self, Candidate};
use std::ops::Range;

/// A record on its way: decoded and split, waiting for its vectors.
pub struct Draft {
    pub record: Record,
    pub reply: Option<ReplyTo>,
    pub hop: Option<Hop>,
    pub event: std::result::Result<Event, Reject>,
    /// The first ones, as many as the limit allows.
    pub candidates: Vec<Candidate>,
    /// How many there were.
    pub parts: usize,
    /// Why nothing of a turn may be kept.
    pub withheld: Option<Withheld>,
    /// Which of the vectors are its own.
    pub texts: Range<usize>,
}

/// Records of a batch that are drafted and encoded before the first of them is decided: enough for every thread that encodes, and few enough to
/// be in the processor's cache when they are decided.
const DRAFTED_TOGETHER: usize = 256;
/// Bytes of text that are encoded together at most, but for the last record's: about a second's work for one thread with the default encoder.
const ENCODED_BYTES_MAX: usize = 32_768;

impl Draft {
    pub fn part(&self) -> Part {
        match self.hop.as_ref().map(|hop| hop.way) {
            None | Some(Way::ToUser) => Part::First,
            Some(Way::ToOrder | Way::InOrder) => Part::InOrder,
        }
    }
}

impl Ingest {
    /// With the texts to encode.
    pub(super) fn draft(
        &self,
        records: &mut impl Iterator<Item = Record>,
    ) -> (Vec<Draft>, Vec<String>) {
        let (mut drafts, mut texts, mut bytes) = (Vec::new(), Vec::new(), 0);
        while drafts.len() < DRAFTED_TOGETHER && bytes < ENCODED_BYTES_MAX {
            let Some(record) = records.next() else { break };
            let first = texts.len();
            drafts.push(self.draft_one(record, &mut texts));
            bytes += texts[first..].iter().map(String::len).sum::<usize>();
        }
        (drafts, texts)
    }

    fn draft_one(&self, record: Record, texts: &mut Vec<String>) -> Draft {
        let mut decoded = decode::event(&record, &self.options.decode);
        let first = texts.len();
        let (mut candidates, mut parts, mut withheld) = (Vec::new(), 0, None);
        if let Ok(event) = &mut decoded.outcome {
            self.metrics.event_read(event.action.name());
            if self.belongs_here(event, &record) || decoded.hop.is_some() {
                self.redact(event, decoded.hop.as_ref().is_none_or(|hop| hop.way == Way::ToUser));
                withheld = withheld::of(event, self.profiles.of(&event.key));
                candidates = if withheld.is_none() { self.split(event) } else { Vec::new() };
                parts = candidates.len();
                // Before they are encoded, which takes most of the time: 64 KiB may hold a thousand.
                candidates.truncate(self.options.candidates_max);
                texts.extend(texts_of(event, &candidates));
            }
        }
        Draft {
            record,
            reply: decoded.reply,
            hop: decoded.hop,
            event: decoded.outcome,
            candidates,
            parts,
            withheld,
            texts: first..texts.len(),
        }
    }

    fn split(&self, event: &Event) -> Vec<Candidate> {
        let Action::Turn(turn) = &event.action else { return Vec::new() };
        let profile = self.profiles.of(&event.key);
        if !turn.remember || profile.treatment(turn.role) == Treatment::Context {
            return Vec::new();
        }
        split::candidates(&turn.content, turn.kind.as_ref(), &profile.split, &|text| {
            self.tokens.count(text)
        })
    }
}

/// Returns the texts of an event that are encoded, in the order its handler expects.
fn texts_of(event: &Event, candidates: &[Candidate]) -> Vec<String> {
    match &event.action {
        Action::Turn(turn) => {
            let speaker = turn.speaker.as_deref().unwrap_or(turn.role.as_str());
            candidates.iter().map(|candidate| format!("{speaker}: {}", candidate.text)).collect()
        }
        Action::Remember(remember) => vec![remember.content.clone()],
        Action::Update(update) => update.content.iter().cloned().collect(),
        Action::Forget(Forget::Query(query)) => vec![query.clone()],
        Action::Summary { content, .. } => vec![content.clone()],
        _ => Vec::new(),
    }
}

//! Refuses stragglers: events that were sent before a `forget` and arrive after. A straggler was
//! sent to a wrong partition and forwarded late, or became a dead letter and was sent again.
//!
//! A `forget` is remembered by its time and by keyed digests: of the session's name, of the stems
//! of the query, of the erased text. No word of the forgotten text is stored.
//!
//! The rule prefers to let pass. An event that reaches its user's partition directly, after the
//! `forget`, is never a straggler, whatever time the sender gives: the log is the only clock that
//! both share, a phone may be slow, and an import of old conversations after a `forget` is a wish.
//! A straggler is refused only if the record is older than that of the `forget`.
//!
//! A signed event is the exception: the time of signing is compared wherever the event comes from,
//! because a copy of an event from before the `forget` can reach the partition directly.

use super::context::Context;
use super::prepared::Sent;
use super::reads::{ForgetRecord, Forgot, Reads};
use super::staged::Staged;
use domain::fault::Result;
use domain::{Forget, Memory, SigningKey, Time, Vector};
use std::collections::{BTreeMap, BTreeSet};
use text::{Language, Words};

/// Stems of a query that are remembered. A query of more words is remembered not at all: no other
/// text has all of them.
const QUERY_STEMS_MAX: usize = 64;

pub const REASON: &str = "was said before a forget that covers it, and came after it: forgotten";

/// Remembers a `forget`, and removes records that are too old or too many.
pub fn remember(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    forget: &Forget<Vector>,
    erased: &[Memory],
) -> Result<()> {
    let key = cx.settings.signing_key;
    // The time of the record, as for late events: an `at` that lies further back would let
    // everything in between return.
    let at = cx.sent.earliest();
    let forgot: Vec<Forgot> = match forget {
        Forget::Everything => vec![Forgot::Everything],
        Forget::Session(session) => vec![Forgot::Session(short(key, &["session", session]))],
        Forget::Query(query) => {
            query_stems(key, &query.text).map(Forgot::Query).into_iter().collect()
        }
        // The event that this one continues is remembered already.
        Forget::ForgetContinuation(_) => return Ok(()),
        Forget::Memory(_) => {
            erased.iter().map(|memory| Forgot::Text(text_digest(key, &memory.content))).collect()
        }
    };
    if forgot.is_empty() {
        return Ok(());
    }
    let mut records = staged.forget_records(cx.key())?;
    let newest = records.iter().map(|record| record.at).fold(at, Time::max);
    let oldest = newest.plus_ms(-cx.settings.limits.remember_ms);
    let is_everything = matches!(forget, Forget::Everything);
    records.retain(|record| {
        record.at >= oldest
            && !(is_everything && record.at <= at)
            && !(record.at <= at && forgot.contains(&record.forgot))
    });
    records.extend(forgot.into_iter().map(|forgot| ForgetRecord { at, forgot }));
    records.sort_by_key(|record| record.at);
    // The record of everything is the last to go: it covers the most.
    while records.len() > cx.settings.limits.remembered_max {
        let first = records.iter().position(|record| record.forgot != Forgot::Everything);
        records.remove(first.unwrap_or(0));
    }
    staged.put_forget_records(cx.key(), records);
    Ok(())
}

/// The `forget`s that were sent after an event and applied before. Empty for an event that is no
/// straggler.
#[derive(Default)]
pub struct Newer {
    records: Vec<ForgetRecord>,
    key: Option<SigningKey>,
    is_covered: bool,
}

pub fn newer_forgets(cx: &Context<'_>, staged: &Staged<'_>) -> Result<Newer> {
    let at = match cx.sent {
        Sent { is_late: true, .. } => cx.sent.earliest(),
        Sent { signed: Some(signed), .. } => signed,
        _ => return Ok(Newer::default()),
    };
    forgets_after(cx, staged, at)
}

/// The `forget`s that were sent after this time.
pub fn forgets_after(cx: &Context<'_>, staged: &Staged<'_>, at: Time) -> Result<Newer> {
    let key = cx.settings.signing_key;
    let mut records = staged.forget_records(cx.key())?;
    records.retain(|record| at < record.at);
    let session = cx.session().map(|session| Forgot::Session(short(key, &["session", session])));
    let is_covered = records.iter().any(|record| {
        record.forgot == Forgot::Everything || session.as_ref() == Some(&record.forgot)
    });
    Ok(Newer { records, key: Some(key.clone()), is_covered })
}

impl Newer {
    /// True if one of them covers the event, whatever the contents.
    pub fn cover_all(&self) -> bool {
        self.is_covered
    }

    /// True if one of them covers this text.
    pub fn cover(&self, content: &str) -> bool {
        if self.is_covered {
            return true;
        }
        let Some(key) = self.key.as_ref().filter(|_| !self.records.is_empty()) else {
            return false;
        };
        let text = text_digest(key, content);
        let words = Words::of(content);
        let language = words.language().unwrap_or(Language::ENGLISH);
        let stems: BTreeSet<u64> =
            words.stems_in(language).iter().map(|stem| stem_digest(key, language, stem)).collect();
        self.records.iter().any(|record| match &record.forgot {
            Forgot::Everything | Forgot::Session(_) => false,
            Forgot::Text(erased) => *erased == text,
            Forgot::Query(by_language) => {
                by_language.iter().any(|query| query.iter().all(|stem| stems.contains(stem)))
            }
        })
    }
}

/// The stems of a query in each language, since the language of a later text is not known yet.
fn query_stems(key: &SigningKey, query: &str) -> Option<Vec<Vec<u64>>> {
    let words = Words::of(query);
    let languages = std::iter::once(Language::ENGLISH).chain(Language::others());
    let stems: Vec<Vec<u64>> = languages
        .map(|language| {
            let stems = words.stems_in(language);
            let digests: BTreeMap<&str, u64> =
                stems.iter().map(|stem| (stem, stem_digest(key, language, stem))).collect();
            digests.into_values().collect()
        })
        .collect();
    stems.iter().all(|stems| (1..=QUERY_STEMS_MAX).contains(&stems.len())).then_some(stems)
}

fn stem_digest(key: &SigningKey, language: Language, stem: &str) -> u64 {
    short(key, &["stem", &language.to_string(), stem])
}

/// Two texts with the same words have the same digest.
fn text_digest(key: &SigningKey, content: &str) -> u64 {
    let words = Words::of(content);
    short(key, &["text", words.stems_in(Language::ENGLISH).joined()])
}

/// Eight bytes distinguish some thousand digests of a user.
fn short(key: &SigningKey, parts: &[&str]) -> u64 {
    let digest = key.secret_digest(parts);
    u64::from_be_bytes(*digest.first_chunk().expect("a digest has 32 bytes"))
}

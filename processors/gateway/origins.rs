//! Counts the newest dead letters by tenant and origin, for the list of shards.

use crate::calls::{Calls, ranges};
use crate::refusal::{Result, unavailable};
use client::letter::DeadLetter;
use client::reading::{self, OffsetRange};
use contract::reply::tenant_of;
use domain::fault::{self, Fault};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// For how long a count of letters is shown again.
const COUNTED_FOR: Duration = Duration::from_secs(15);
/// Bytes and time after which a count ends incomplete.
const COUNTED_BYTES_MAX: usize = 64 << 20;
const COUNTED_WITHIN: Duration = Duration::from_secs(5);

/// Tenant and origin of a letter: topic and partition, if Keepsake wrote the letter.
pub struct Origin {
    pub tenant: Option<String>,
    pub place: Option<(String, i64)>,
}

/// The origins of the newest letters.
pub struct Origins {
    pub letters: Vec<Origin>,
    /// There are no older letters.
    pub is_complete: bool,
}

/// The last count. The explorer asks every few seconds, and a count reads whole records.
#[derive(Default)]
pub struct LetterCount(tokio::sync::Mutex<Option<(Instant, Arc<Origins>)>>);

impl LetterCount {
    /// Counts the newest letters, at most once in [`COUNTED_FOR`], and keeps nothing but their origins.
    pub async fn origins(&self, calls: &Arc<Calls>, read_max: usize) -> Result<Arc<Origins>> {
        let mut last = self.0.lock().await;
        if let Some((at, origins)) = &*last
            && at.elapsed() < COUNTED_FOR
        {
            return Ok(origins.clone());
        }
        let calls = calls.clone();
        let read = tokio::task::spawn_blocking(move || counted(&calls, read_max)).await;
        let read = read.unwrap_or_else(|e| Err(Fault::retry(e.to_string())));
        let origins = Arc::new(read.map_err(|fault| unavailable(&fault))?);
        *last = Some((Instant::now(), origins.clone()));
        Ok(origins)
    }
}

fn counted(calls: &Calls, read_max: usize) -> fault::Result<Origins> {
    let topic = &calls.topics.dead_letters;
    let all = ranges(calls, topic, None)?;
    let share = (read_max / all.len().max(1)).max(1) as i64;
    let newest = all.iter().map(|it| OffsetRange { from: it.from.max(it.end - share), ..*it });
    let newest: Vec<OffsetRange> = newest.collect();
    let mut is_complete = newest == all;
    let (mut letters, mut bytes) = (Vec::new(), 0);
    let began = Instant::now();
    let read = reading::read(&calls.connection, topic, &newest, &mut |record| {
        bytes += record.bytes();
        if bytes > COUNTED_BYTES_MAX || began.elapsed() > COUNTED_WITHIN {
            is_complete = false;
            return Err(Fault::retry("counted enough"));
        }
        let letter = DeadLetter(record);
        letters.push(Origin { tenant: tenant_of(&letter.0), place: letter.origin() });
        Ok(())
    });
    if is_complete || letters.is_empty() {
        read?;
    }
    Ok(Origins { letters, is_complete })
}

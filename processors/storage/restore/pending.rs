//! Collects the records of one shard that were read from its changelog and not written yet. A
//! restore writes them ahead of its checkpoint, a tail replay as one batch.

use crate::changelog::{
    Evidence, META, Meta, STATE_HEADER, Writers, is_signing_key, meta_of, named, without_state,
};
use crate::store::{Changes, Digest, Identity, Store};
use broker::Record;
use domain::fault::Result;

pub struct Pending<'a> {
    identity: &'a Identity,
    writers: &'a Writers,
    /// Only the last value of each record.
    pub changes: Changes,
    pub evidence: Evidence,
    /// Offset of the last event applied, by the last meta record.
    pub applied: i64,
    /// The offset behind the last record taken.
    pub next: i64,
    /// Number of records taken.
    pub count: u64,
}

impl<'a> Pending<'a> {
    /// `digest`: of the store before the record at offset `from`.
    pub fn new(
        store: &'a Store,
        from: i64,
        digest: Option<Digest>,
        writers: &'a Writers,
    ) -> Pending<'a> {
        Pending {
            identity: store.identity(),
            writers,
            changes: Changes::default(),
            evidence: Evidence::new(digest),
            applied: store.applied(),
            next: from,
            count: 0,
        }
    }

    /// Takes the next record. Returns the meta record, if it is one.
    pub fn take(&mut self, mut record: Record) -> Result<Option<Meta>> {
        self.next = record.offset + 1;
        self.count += 1;
        let name = record.key.take().unwrap_or_default();
        if name == META.as_bytes() {
            let meta = meta_of(record.value.as_deref().unwrap_or_default(), self.identity)?;
            // Order matters: no checkpoint passes a record of another group, so that every later
            // restore meets the record again.
            self.writers.check(&meta, record.offset)?;
            self.evidence.saw_meta(&meta);
            self.applied = meta.applied;
            return Ok(Some(meta));
        }
        if is_signing_key(&name) {
            return Ok(None); // belongs to the service, not to this shard
        }
        match named(name) {
            Ok(key) => {
                self.evidence.saw_state();
                self.changes.records.insert(key, state_of(record)?);
            }
            Err(why) => {
                let offset = record.offset;
                tracing::warn!(offset, %why, "leaving out a record of the changelog");
                self.evidence.saw_unknown(why);
            }
        }
        Ok(None)
    }
}

/// The bytes that a record puts into the store. `None` for a removal.
fn state_of(record: Record) -> Result<Option<Vec<u8>>> {
    let state = record.headers.into_iter().find(|(name, _)| name == STATE_HEADER);
    match (record.value, state) {
        (None, _) => Ok(None),
        (Some(_), Some((_, state))) => Ok(Some(state)),
        (Some(_), None) => Err(without_state(record.offset)),
    }
}

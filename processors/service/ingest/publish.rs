//! Publishes a shard's tenant memories on a tenants topic that lacks them: at the first start, after
//! a restore from a backup, in a new generation, or if the topic was made anew. The shard notes the
//! id of the topic with the last part. After a crash before that, all comes again.

use super::batch::Batch;
use super::traced::EventSpans;
use super::{Effects, Ingest};
use domain::fault::Result;
use std::sync::Arc;
use storage::changelog::tenants;
use storage::shard::Shard;
use storage::store::before_users;

/// Where the next part of a shard begins.
pub type Next = Option<Vec<u8>>;

/// True for a shard without a record of any event, user or tenant.
fn is_empty(shard: &Shard) -> Result<bool> {
    let first = shard.store.tenant_memory_after(&before_users())?;
    Ok(shard.applied() < 0 && first.is_none())
}

impl Ingest {
    /// Returns true if the topic lacks tenant memories of this shard.
    pub fn must_publish(&self, shard: &Shard) -> Result<bool> {
        let Some(topic) = &self.options.tenants else { return Ok(false) };
        Ok(shard.closed().is_none() && shard.store.published()? != Some(topic.id))
    }

    /// The records of the next part, to be carried out before any event of the shard is applied.
    /// Behind the last part, `must_publish` is false.
    pub fn publish(&self, shard: &Arc<Shard>, next: Next) -> Result<(Effects, Next)> {
        let mut effects = Effects::default();
        let Some(topic) = &self.options.tenants else { return Ok((effects, None)) };
        let part = tenants::of_store(&shard.store, &topic.name, next)?;
        let mut batch = Batch::of(shard, EventSpans::of(&self.tracer, None));
        batch.outputs = part.records;
        if part.next.is_none() {
            batch.published = Some(topic.id);
        }
        self.finish(&mut effects, batch, shard.clone())?;
        if is_empty(shard)? {
            // The memories topic stays without a record: a restore may still come.
            effects.outputs.retain(|output| output.topic == topic.name);
            effects.writes.iter_mut().for_each(|write| write.logged = 0);
        }
        Ok((effects, part.next))
    }
}

//! Changes of tenant memories get one order: the tenant's partition orders them, and every shard applies them in that order. So all shards hold
//! the same, also after several users changed a memory at the same time.
//!
//! An event that changes it comes to its user's partition first, which applies what is the user's own, sends the event on to the tenant's
//! partition, and tells the sender what became of it once it has come back in its turn. A `forget` is told at once: its user's partition removes
//! what it has, and all remove it again in its turn.

use super::work::Work;
use super::{Here, Ingest};
use crate::domain::{Forget, Memory, MemoryId, UserKey};
use crate::fault::Result;
use crate::stages::decode::{self, Way};
use crate::stages::store::Reading;

#[cfg(test)]
mod tests;

/// Which part of an event is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// On its user's partition: the user's own memories, and those of the tenant where this partition is the tenant's too.
    First,
    /// On every other one: the tenant's memories, in their order.
    InOrder,
}

impl Ingest {
    /// Whether this partition gives the changes of this tenant's memories their order.
    pub(super) fn gives_order(&self, key: &UserKey, partition: i32) -> bool {
        key.everyone().partition(self.shards.partitions()) == partition
    }

    /// Whether the tenant's memories may be changed now.
    pub(super) fn may_change_tenant(&self, here: &Here<'_>) -> bool {
        here.part == Part::InOrder || self.gives_order(here.key(), here.draft.record.partition)
    }

    /// On the tenant's partition: to all others, in the order in which it comes here. Whatever this partition makes of it, since it may differ.
    pub(super) fn copy_to_all(&self, work: &mut Work<'_>, here: &Here<'_>) {
        let record = &here.draft.record;
        for partition in
            (0..self.shards.partitions()).filter(|partition| *partition != record.partition)
        {
            work.outputs.push(decode::forwarded(
                record,
                partition,
                Way::InOrder,
                &self.options.decode,
            ));
        }
    }

    /// On its user's partition: sends an event that changes the tenant's memories on its way, once. Returns whether they may be changed now, because
    /// this is the tenant's partition, too.
    pub(super) fn send_on(&self, work: &mut Work<'_>, here: &Here<'_>) -> bool {
        let record = &here.draft.record;
        let orders = self.gives_order(here.key(), record.partition);
        if orders {
            self.copy_to_all(work, here);
        } else {
            let home = here.key().everyone().partition(self.shards.partitions());
            work.outputs.push(decode::forwarded(record, home, Way::ToOrder, &self.options.decode));
        }
        orders
    }

    /// Whether an event that changes a memory of the tenant has its turn. If not it is on its way now, and its sender is told when it has come back.
    pub(super) fn has_its_turn(
        &self,
        work: &mut Work<'_>,
        here: &Here<'_>,
        memory: MemoryId,
    ) -> bool {
        if here.part == Part::InOrder || self.send_on(work, here) {
            return true;
        }
        work.overlay.put_awaited(here.key(), here.source(), here.offset());
        work.remember_id(here.event, &here.draft.record, vec![memory]);
        false
    }
}

/// Finds the tenant memories that a `forget` means: the one with its id; for a session or everything, those that this user created.
pub fn meant_of_tenant(work: &Work<'_>, key: &UserKey, forget: &Forget) -> Result<Vec<Memory>> {
    let is_own = |memory: &Memory| memory.author.as_deref() == Some(key.user());
    let is_meant = |memory: &Memory| match forget {
        Forget::Session(session) => is_own(memory) && memory.session.as_ref() == Some(session),
        _ => is_own(memory),
    };
    let (everyone, mut meant) = (key.everyone(), Vec::new());
    match forget {
        Forget::Query(_) => {}
        Forget::Memory(id) => meant.extend(work.overlay.memory(&everyone, *id)?),
        Forget::Session(_) | Forget::Everything => {
            work.overlay.memories(&everyone, &mut |memory| {
                if is_meant(&memory) {
                    meant.push(memory);
                }
                true
            })?
        }
    }
    Ok(meant)
}

/// Whether something that the user told the tenant is on its way, so that a `forget` has to go after it.
pub fn is_on_its_way(work: &Work<'_>, key: &UserKey, forget: &Forget) -> Result<bool> {
    Ok(matches!(forget, Forget::Session(_) | Forget::Everything)
        && work.overlay.awaits(key, i64::MAX)?)
}

//! Opens a shard from its home, in this order:
//!
//! 1. Open the store. An unreadable store is moved aside and an empty one begun.
//! 2. Move a store aside that was written without a changelog, as `store.durability = "local"` of
//!    former versions did: the shard is rebuilt from the events.
//! 3. With a changelog: remove a store that cannot be continued, then restore
//!    ([`restore`]). A store that then differs from the writer's digest is moved aside and
//!    restored from the beginning; if that differs too, the changelog is incomplete.
//! 4. Open the index, and index each memory that changed since the index was last flushed: those
//!    that the restore wrote, and after a crash those that the changelog names since. Where it may
//!    not name all, every memory is compared. The [`Shard`] is ready for readers afterwards.

use super::{Shard, ShardOptions, document};
use crate::checkpoint::Checkpoint;
use crate::home::Home;
use crate::restore::{self, ChangedMemories, Proof, RestoreOptions, Restored, Restoring};
use crate::store::{Identity, Store};
use domain::Time;
use domain::fault::Result;
use kernel::Reads;
use std::collections::HashSet;
use std::path::PathBuf;

/// Users whose memories are indexed before the next page of users is read.
const USERS_PAGE: usize = 1000;

/// Findings of opening a shard that an operator should see.
#[derive(Debug, Default)]
pub struct Opened {
    /// The directory to which an unreadable store was moved.
    pub set_aside: Option<PathBuf>,
    /// Why a store was removed and restored from the beginning of the changelog.
    pub outdated: Option<&'static str>,
    /// Number of records read from the changelog, and how far they are proven to be complete.
    pub restored: Restored,
    /// A store that was continued and differed from the writer's digest: why, and the
    /// directory to which the store was moved.
    pub replaced: Option<(String, Option<PathBuf>)>,
    /// Number of memories that the index on disk lacked.
    pub caught_up: usize,
    /// Why the index on disk was thrown away, if one was.
    pub index_discarded: Option<String>,
}

impl Shard {
    /// Opens a shard as it lies in `home`, then restores it from its changelog if `from` is given.
    pub fn open(
        home: &Home,
        options: &ShardOptions,
        identity: &Identity,
        now: Time,
        from: Option<&Restoring<'_>>,
    ) -> Result<(Shard, Opened)> {
        open(home, options, identity, now, from).map_err(|fault| {
            fault.about(format!("opens the shard of partition {}", identity.partition))
        })
    }

    /// Brings the index up to the store's position, and returns the number of memories indexed. The
    /// index is derived, and a crash may have taken its last seconds: what these had is read from the
    /// changelog. `changed`: what the restore wrote, from the offset `behind` on. Ends early,
    /// under the old checkpoint, if `goes_on` returns false.
    fn catch_up(
        &self,
        mut changed: Option<ChangedMemories>,
        behind: Option<i64>,
        from: Option<&Restoring<'_>>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<usize> {
        let indexed = self.index.text.checkpoint().unwrap_or(Checkpoint::NOTHING);
        if indexed == self.store.checkpoint() {
            return Ok(0);
        }
        if indexed.changelog != behind {
            let missed = match (indexed.changelog, behind, from) {
                (Some(indexed), Some(behind), Some(from)) if indexed < behind => {
                    restore::changed_between(from, self.partition, (indexed, behind))?
                }
                _ => None,
            };
            changed = changed.zip(missed).map(|(mut changed, missed)| {
                changed.extend(missed);
                changed
            });
        }
        match changed.filter(|_| indexed.changelog.is_some()) {
            Some(changed) => self.index_changed(&changed, indexed, goes_on),
            None => self.compare_index(indexed, goes_on),
        }
    }

    /// Indexes the memories that a restore has changed since `indexed`.
    fn index_changed(
        &self,
        changed: &ChangedMemories,
        indexed: Checkpoint,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<usize> {
        for (key, id) in changed {
            self.index.vectors.forget(key);
            match self.store.memory(key, *id)? {
                Some(memory) => self.index.text.put(document(memory)),
                None => self.index.text.remove(key, *id),
            }
            if self.index.text.is_flush_due() {
                self.index.text.flush(indexed)?;
            }
            if !goes_on() {
                return Ok(0);
            }
        }
        // Order matters: what a cancelled reading names is not all.
        if !goes_on() {
            return Ok(0);
        }
        self.index.text.flush(self.store.checkpoint())?;
        Ok(changed.len())
    }

    /// Indexes every memory that is newer than `indexed`, and removes memories that the store no
    /// longer has.
    fn compare_index(&self, indexed: Checkpoint, goes_on: &dyn Fn() -> bool) -> Result<usize> {
        self.index.vectors.remove_files();
        let present = self.store.checkpoint();
        // Ahead of the store: derived from a store that was moved aside. Every memory is indexed
        // again.
        let indexed = if indexed.is_ahead_of(&present) { Checkpoint::NOTHING } else { indexed };
        let mut gone: HashSet<_> = self.index.text.ids()?.into_iter().collect();
        let mut count = 0;
        let mut after = None;
        loop {
            let users = self.store.users(after.as_ref(), USERS_PAGE)?;
            let Some(last) = users.last().cloned() else { break };
            for key in users {
                let mut flushed = Ok(false);
                self.store.memories(&key, &mut |memory| {
                    gone.remove(&(memory.key.clone(), memory.id));
                    if memory.changed > indexed.applied {
                        self.index.text.put(document(memory));
                        count += 1;
                    }
                    // Documents of a whole shard would not fit in memory. The checkpoint stays, so a
                    // restart before the end indexes them again.
                    if self.index.text.is_flush_due() {
                        flushed = self.index.text.flush(indexed);
                    }
                    flushed.is_ok() && goes_on()
                })?;
                flushed?;
                if !goes_on() {
                    return Ok(count);
                }
            }
            after = Some(last);
        }
        gone.iter().for_each(|(key, id)| self.index.text.remove(key, *id));
        self.index.text.flush(present)?;
        Ok(count)
    }
}

fn open(
    home: &Home,
    options: &ShardOptions,
    identity: &Identity,
    now: Time,
    from: Option<&Restoring<'_>>,
) -> Result<(Shard, Opened)> {
    let mut opened = home.store(&options.store, identity, now.0)?;
    let mut found = Opened::default();
    if let Some(from @ Restoring { log, options: limits, .. }) = from {
        if opened.store.changelog().is_none() && opened.store.applied() >= 0 {
            drop(opened);
            let why = "the changelog lacks its records: it was written without one";
            let aside = home.move_aside(identity, now.0, why)?;
            opened = home.store(&options.store, identity, now.0)?;
            opened.rebuilt = aside;
        }
        found.outdated = restore::outdated(&opened.store, *log, now.0, limits)?;
        if found.outdated.is_some() {
            // Order matters: sled keeps its files locked until the store is dropped.
            drop(opened);
            home.wipe(identity)?;
            opened = home.store(&options.store, identity, now.0)?;
        }
        let was_new = opened.store.changelog().is_none();
        found.restored = restore::restore(&opened.store, from)?;
        let is_from_beginning =
            was_new || opened.store.claim().is_some_and(|claim| claim.is_from_beginning);
        if let Proof::Differs(mismatch) = found.restored.proof
            && !is_from_beginning
        {
            // The store may be at fault, and not the changelog.
            drop(opened);
            let why = mismatch.to_string();
            let aside = home.move_aside(identity, now.0, &why)?;
            found.replaced = Some((why, aside));
            opened = home.store(&options.store, identity, now.0)?;
            found.restored = restore::restore(&opened.store, from)?;
        }
        accept_or_stop(&opened.store, &found.restored, limits)?;
    }
    found.set_aside = opened.rebuilt;
    let index = home.index(options.index, options.vector_blocks.clone(), identity)?;
    let mut shard = Shard::of(identity.partition, opened.store, index)?;
    if found.set_aside.is_some() {
        // They may be made from what was damaged.
        shard.index.vectors.remove_files();
    }
    if shard.applied() < 0 {
        shard.lost_store = home.set_aside(identity);
    }
    let goes_on = || from.is_none_or(|from| !from.progress.is_cancelled());
    let (changed, behind) = (found.restored.changed.take(), found.restored.behind);
    found.caught_up = shard.catch_up(changed, behind, from, &goes_on)?;
    found.index_discarded = shard.index.text.discarded().map(str::to_owned);
    Ok((shard, found))
}

/// Stops if the shard differs from the writer's digest. The store keeps its `ahead` marker, so
/// that the next start compares again.
fn accept_or_stop(store: &Store, restored: &Restored, options: &RestoreOptions) -> Result<()> {
    let Proof::Differs(mismatch) = &restored.proof else { return Ok(()) };
    if !options.accept_incomplete {
        return Err(mismatch.fault());
    }
    store.caught_up()
}

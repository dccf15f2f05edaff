//! Checks a shard's text index against the store: both must hold the same memories, and the same
//! number of words for each user.

use domain::fault::Result;
use kernel::Reads;
use std::collections::HashSet;
use std::path::Path;
use storage::index::{Index, IndexOptions, VectorBlocks};
use storage::shard;
use storage::store::Store;

pub struct IndexCheck {
    pub state: IndexState,
    /// The first differences.
    pub first: Vec<String>,
    pub total: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexState {
    Equal,
    Different,
    /// The index has not applied all of the store, as after a crash; the next start catches up.
    Behind,
    /// There is no usable index; the next start rebuilds one.
    None,
}

impl IndexState {
    pub fn as_str(self) -> &'static str {
        match self {
            IndexState::Equal => "equal",
            IndexState::Different => "different",
            IndexState::Behind => "behind",
            IndexState::None => "none",
        }
    }
}

impl IndexCheck {
    fn add(&mut self, difference: String, first_max: usize) {
        self.total += 1;
        if self.first.len() < first_max {
            self.first.push(difference);
        }
    }
}

/// Compares the index in `dir` with the store, and lists at most `first_max` differences.
///
/// Opens the index as the next start would: an unusable index is replaced by an empty one, and
/// nothing else is written.
pub fn check(
    dir: &Path,
    options: IndexOptions,
    store: &Store,
    first_max: usize,
) -> Result<IndexCheck> {
    let mut result = IndexCheck { state: IndexState::None, first: Vec::new(), total: 0 };
    if !dir.exists() {
        return Ok(result);
    }
    let index = Index::open(dir, options, VectorBlocks::new(0), &store.identity().log())?;
    let present = store.checkpoint();
    // Without a checkpoint, or with the checkpoint of a store that was set aside, the next start
    // indexes everything again.
    let Some(checkpoint) =
        index.text.checkpoint().filter(|checkpoint| !checkpoint.is_ahead_of(&present))
    else {
        return Ok(result);
    };
    // An interrupted restore has written to the store ahead of its checkpoint, and not to the
    // index.
    let is_current = checkpoint == present && !store.is_ahead();
    result.state = if is_current { IndexState::Equal } else { IndexState::Behind };
    let mut only_in_index: HashSet<_> = index.text.ids()?.into_iter().collect();
    let mut after = None;
    loop {
        let users = store.users(after.as_ref(), 1000)?;
        let Some(last) = users.last().cloned() else { break };
        for key in users {
            let mut memories = 0;
            let mut words = 0;
            store.memories(&key, &mut |memory| {
                let id = memory.id;
                let changed = memory.changed;
                memories += 1;
                words += u64::from(shard::document(memory).text().lengths().own);
                let is_indexed = only_in_index.remove(&(key.clone(), id));
                // The next start indexes memories that changed after the checkpoint.
                let is_due = is_current || changed <= checkpoint.applied;
                if is_due && !is_indexed {
                    let difference =
                        format!("{key} memory {id} is in the store and not in the index");
                    result.add(difference, first_max);
                }
                true
            })?;
            let (documents, length) = index.text.documents(&key)?;
            if is_current && documents == memories && length != words {
                let difference =
                    format!("{key} has {words} words in the store and {length} in the index");
                result.add(difference, first_max);
            }
        }
        after = Some(last);
    }
    if is_current {
        for (key, id) in only_in_index {
            let difference = format!("{key} memory {id} is in the index and not in the store");
            result.add(difference, first_max);
        }
    }
    if result.total > 0 {
        result.state = IndexState::Different;
    }
    Ok(result)
}

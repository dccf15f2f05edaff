//! Whether a shard's index finds what its store holds: the same memories, and of each user as many words.

use crate::fault::Result;
use crate::home;
use crate::memory::Reads;
use crate::shard;
use crate::stages::index::{self, Index, Room};
use crate::stages::store::Store;
use std::collections::HashSet;
use std::path::Path;

pub struct Checked {
    pub state: State,
    /// The first differences.
    pub first: Vec<String>,
    pub total: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Equal,
    Different,
    /// It has not seen all of the store, as after a crash, and does so at the next start.
    Behind,
    /// There is none that could be used. It is made again at the next start.
    None,
}

impl State {
    pub fn as_str(self) -> &'static str {
        match self {
            State::Equal => "equal",
            State::Different => "different",
            State::Behind => "behind",
            State::None => "none",
        }
    }
}

/// Changes nothing but what the next start would change too: an index that cannot be used is begun anew.
pub fn check(
    dir: &Path,
    options: index::Options,
    store: &Store,
    first_max: usize,
) -> Result<Checked> {
    let mut checked = Checked { state: State::None, first: Vec::new(), total: 0 };
    if !dir.exists() {
        return Ok(checked);
    }
    let index = Index::open(dir, options, Room::new(0), &home::generation(store.identity()))?;
    let applied = store.applied();
    // Without a mark, or with one of a store that was set aside, all is looked at again at the next start.
    let Some(mark) = index.text.mark().filter(|mark| *mark <= applied) else { return Ok(checked) };
    // What a restore has put or removed ahead of the store's mark, the index has not seen either.
    let is_current = mark == applied && !store.is_ahead();
    checked.state = if is_current { State::Equal } else { State::Behind };
    let mut differs = |what: String| {
        checked.total += 1;
        if checked.first.len() < first_max {
            checked.first.push(what);
        }
    };
    let (mut rest, mut after) = (index.text.ids()?.into_iter().collect::<HashSet<_>>(), None);
    loop {
        let users = store.users(after.as_ref(), 1000)?;
        let Some(last) = users.last().cloned() else { break };
        for key in users {
            let (mut memories, mut words) = (0, 0);
            store.memories(&key, &mut |memory| {
                let (id, changed) = (memory.id, memory.changed);
                memories += 1;
                words += u64::from(shard::document(memory).text().lengths().own);
                let is_indexed = rest.remove(&(key.clone(), id));
                // What has changed since the mark is put at the next start.
                if changed <= mark && !is_indexed {
                    differs(format!("{key} memory {id} is in the store and not in the index"));
                }
                true
            })?;
            let (documents, length) = index.text.documents(&key)?;
            if is_current && documents == memories && length != words {
                differs(format!("{key} has {words} words in the store and {length} in the index"));
            }
        }
        after = Some(last);
    }
    if is_current {
        rest.iter().for_each(|(key, id)| {
            differs(format!("{key} memory {id} is in the index and not in the store"))
        });
    }
    if checked.total > 0 {
        checked.state = State::Different;
    }
    Ok(checked)
}

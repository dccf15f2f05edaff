//! Two stores of one shard, record by record: whose record differs, and in what, as a person reads it. Repairs nothing.

use super::Store;
use super::format;
use super::keys;
use crate::domain::{Memory, MemoryId, UserKey};
use crate::fault::Result;
use crate::text::shortened;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

/// A record that only one of the two has, or that they have differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub user: UserKey,
    /// What it is of the user's: `memory 5f0c…`, `fact lives_in`.
    pub record: String,
    /// What the one holds of it, and what the other does; nothing where it is not there.
    pub ours: Option<String>,
    pub theirs: Option<String>,
}

/// The first ones, in the order of users, and how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    pub first: Vec<Difference>,
    pub total: u64,
}

/// Holds one user's records of both at a time. What may differ is passed over.
pub fn differences(
    ours: &Store,
    theirs: &Store,
    may_differ: &BTreeSet<Vec<u8>>,
    first_max: usize,
) -> Result<Differences> {
    let mut found = Differences::default();
    let users: BTreeSet<UserKey> = all_users(ours)?.into_iter().chain(all_users(theirs)?).collect();
    for user in users {
        let (ours, theirs) = (records_of(ours, &user)?, records_of(theirs, &user)?);
        let keys: BTreeSet<&Vec<u8>> = ours.keys().chain(theirs.keys()).collect();
        for key in keys {
            let (one, other) = (ours.get(key), theirs.get(key));
            if one == other || may_differ.contains(key) {
                continue;
            }
            found.total += 1;
            if found.first.len() < first_max {
                found.first.push(told(
                    &user,
                    key,
                    one.map(Vec::as_slice),
                    other.map(Vec::as_slice),
                ));
            }
        }
    }
    Ok(found)
}

fn all_users(store: &Store) -> Result<Vec<UserKey>> {
    let mut all = Vec::new();
    loop {
        let some = store.users(all.last(), 1000)?;
        if some.is_empty() {
            return Ok(all);
        }
        all.extend(some);
    }
}

fn records_of(store: &Store, user: &UserKey) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut records = BTreeMap::new();
    store.records(&keys::user(user), &mut |key, value| {
        records.insert(key.to_vec(), value.to_vec());
        true
    })?;
    Ok(records)
}

fn told(user: &UserKey, key: &[u8], ours: Option<&[u8]>, theirs: Option<&[u8]>) -> Difference {
    let (tag, rest) = key[keys::user(user).len()..].split_first().unwrap_or((&0, &[]));
    let record = name(*tag, rest);
    let (ours, theirs) = match (ours, theirs) {
        (Some(one), Some(other)) => {
            let (one, other) = both(user, *tag, rest, one, other);
            (Some(one), Some(other))
        }
        (one, other) => {
            let alone = |bytes: &[u8]| shortened(&content(user, *tag, rest, bytes), LONGEST);
            (one.map(alone), other.map(alone))
        }
    };
    Difference { user: user.clone(), record, ours, theirs }
}

/// Characters that are shown of a record.
const LONGEST: usize = 160;
/// Fields of a memory that are shown of those that differ.
const FIELDS: usize = 3;

fn name(tag: u8, rest: &[u8]) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).escape_debug().to_string();
    match tag {
        keys::MEMORY => keys::memory_id(rest)
            .map_or_else(|| "memory without an id".to_owned(), |id| format!("memory {id}")),
        keys::TAIL => format!(
            "last turns of session {:?}",
            text(rest.get(4..rest.len().saturating_sub(1)).unwrap_or_default())
        ),
        keys::SESSION => format!("session {:?}", text(rest)),
        keys::GATE => "last totals".to_owned(),
        keys::SLOT => format!("fact {}", text(rest)),
        keys::SEEN => format!("event id {:?}", text(rest)),
        other => format!("record {:?}", char::from(other)),
    }
}

/// What it says, for people; its bytes where it says nothing.
fn content(user: &UserKey, tag: u8, rest: &[u8], bytes: &[u8]) -> String {
    let debug = |record: Result<&dyn Debug>| record.map(|record| format!("{record:?}"));
    let told = match tag {
        keys::MEMORY => match memory(user, rest, bytes) {
            Some(memory) => Ok(format!(
                "{} {:?}, version {}",
                memory.kind.as_str(),
                memory.content,
                memory.version
            )),
            None => Ok("a vector without a memory".to_owned()),
        },
        keys::TAIL => {
            format::said(bytes).map(|(number, said)| format!("turn {number}: {:?}", said.content))
        }
        keys::SESSION => format::session(bytes).and_then(|record| debug(Ok(&record))),
        keys::GATE => format::gate(bytes).and_then(|record| debug(Ok(&record))),
        keys::SLOT => format::slot(bytes).and_then(|record| debug(Ok(&record))),
        keys::SEEN => format::seen(bytes).and_then(|record| debug(Ok(&record))),
        _ => Ok(format!("{} bytes", bytes.len())),
    };
    told.unwrap_or_else(|fault| format!("{} bytes that cannot be read: {fault}", bytes.len()))
}

fn memory(user: &UserKey, rest: &[u8], bytes: &[u8]) -> Option<Memory> {
    let id: MemoryId = keys::memory_id(rest)?;
    format::memory(user, id, bytes).ok()?
}

/// Of two memories only the fields that differ.
fn both(user: &UserKey, tag: u8, rest: &[u8], one: &[u8], other: &[u8]) -> (String, String) {
    if tag == keys::MEMORY
        && let (Some(one), Some(other)) = (memory(user, rest, one), memory(user, rest, other))
    {
        let pairs: Vec<(String, String)> = fields(&one)
            .into_iter()
            .zip(fields(&other))
            .filter(|(one, other)| one != other)
            .collect();
        if pairs.is_empty() {
            return ("another vector".to_owned(), "another vector".to_owned());
        }
        let (ours, theirs): (Vec<String>, Vec<String>) = pairs.into_iter().take(FIELDS).unzip();
        return (ours.join(", "), theirs.join(", "));
    }
    let of = |bytes| shortened(&content(user, tag, rest, bytes), LONGEST);
    (of(one), of(other))
}

/// `importance: 0.5` and so on: the form for debugging has a line for each field, and the parts of a field are indented further.
fn fields(memory: &Memory) -> Vec<String> {
    let mut fields: Vec<String> = Vec::new();
    for line in format!("{memory:#?}").lines().skip(1).take_while(|line| *line != "}") {
        let inner = line.trim_start();
        match fields.last_mut() {
            Some(field) if line.len() - inner.len() > 4 || inner.starts_with(['}', ']', ')']) => {
                *field = format!("{field} {inner}")
            }
            _ => fields.push(inner.to_owned()),
        }
    }
    fields.iter().map(|field| shortened(field.trim_end_matches(','), LONGEST)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::staged;
    use super::super::tests::{a_memory, a_vector, identity, key, mark};
    use super::*;
    use crate::memory::{SlotHolder, Staged};

    fn store(fill: impl Fn(&mut Staged<'_>)) -> Store {
        let store = Store::in_memory(&identity());
        let mut staged = staged(&store);
        fill(&mut staged);
        let (batch, _) = store.encode(staged.into_changes()).unwrap();
        store.apply(batch, mark(9)).unwrap();
        store
    }

    fn found(
        ours: impl Fn(&mut Staged<'_>),
        theirs: impl Fn(&mut Staged<'_>),
    ) -> Vec<(String, Option<String>, Option<String>)> {
        let found = differences(&store(ours), &store(theirs), &BTreeSet::new(), 20).unwrap();
        assert_eq!(found.first.len() as u64, found.total);
        found
            .first
            .into_iter()
            .map(|one| (format!("{} {}", one.user, one.record), one.ours, one.theirs))
            .collect()
    }

    #[test]
    fn equal_stores_have_no_differences_whatever_their_offsets() {
        let fill = |staged: &mut Staged<'_>| {
            staged.put_memory_and_vector(a_memory(1, "Lisbon"), &a_vector(1))
        };
        let (one, other) = (store(fill), store(fill));
        other.apply(Default::default(), mark(77)).unwrap();
        assert_eq!(
            differences(&one, &other, &BTreeSet::new(), 20).unwrap(),
            Differences::default()
        );
        assert_eq!(one.digest().unwrap(), other.digest().unwrap());
    }

    #[test]
    fn a_changed_memory_is_told_field_by_field() {
        let memory = a_memory(1, "Lisbon");
        let changed = Memory {
            importance: 0.9,
            metadata: [("app".to_owned(), "other".to_owned())].into(),
            ..memory.clone()
        };
        let found = found(|o| o.put_memory(memory.clone()), |o| o.put_memory(changed.clone()));
        let (record, ours, theirs) = found.into_iter().next().expect("one");
        assert_eq!(record, format!("acme/zoe memory {}", memory.id));
        assert_eq!(ours.as_deref(), Some(r#"importance: 0.5, metadata: { "app": "demo", }"#));
        assert_eq!(theirs.as_deref(), Some(r#"importance: 0.9, metadata: { "app": "other", }"#));
    }

    #[test]
    fn what_only_one_has_and_a_vector_alone_are_told() {
        let memory = a_memory(1, "Lisbon \u{1b}[2J");
        let holder = SlotHolder { memory: memory.id, value: "Lisbon".into() };
        let found = found(
            |o| o.put_memory_and_vector(memory.clone(), &a_vector(1)),
            |o| {
                o.put_memory_and_vector(memory.clone(), &a_vector(2));
                o.put_slot(&key("adam"), "lives_in", &holder);
            },
        );
        assert_eq!((found[0].0.as_str(), found[0].1.is_none()), ("acme/adam fact lives_in", true));
        assert!(found[0].2.as_ref().is_some_and(|held| held.contains("Lisbon")), "{found:?}");
        assert_eq!(found[1].1.as_deref(), Some("another vector"));
    }

    #[test]
    fn no_more_than_asked_for_and_all_are_counted() {
        let many =
            |staged: &mut Staged<'_>| (0..30).for_each(|n| staged.put_memory(a_memory(n, "x")));
        let found = differences(&store(many), &store(|_| ()), &BTreeSet::new(), 20).unwrap();
        assert_eq!((found.first.len(), found.total), (20, 30));
    }
}

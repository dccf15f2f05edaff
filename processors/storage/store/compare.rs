//! Compares two stores of one shard record by record and describes the differences for a person,
//! for `keepsake verify`. Nothing is repaired.

use super::{Store, format, keys};
use domain::fault::Result;
use domain::{Memory, MemoryId, UserKey};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use text::shortened;

/// A record that only one store has, or that differs between the two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub user: UserKey,
    /// Sort and name of the record: `memory 5f0c…`, `fact lives_in`.
    pub record: String,
    /// The content in either store; `None` where the record is missing.
    pub ours: Option<String>,
    pub theirs: Option<String>,
}

/// The first differences in the order of users, and the number of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    pub first: Vec<Difference>,
    pub total: u64,
}

/// Compares the stores user by user, with the records of one user in memory at a time. Records with
/// a key in `may_differ` are skipped.
pub fn differences(
    ours: &Store,
    theirs: &Store,
    may_differ: &BTreeSet<Vec<u8>>,
    first_max: usize,
) -> Result<Differences> {
    let mut found = Differences::default();
    let users: BTreeSet<UserKey> = all_users(ours)?.into_iter().chain(all_users(theirs)?).collect();
    for user in users {
        let ours = records_of(ours, &user)?;
        let theirs = records_of(theirs, &user)?;
        let keys: BTreeSet<&Vec<u8>> = ours.keys().chain(theirs.keys()).collect();
        for key in keys {
            let one = ours.get(key).map(Vec::as_slice);
            let other = theirs.get(key).map(Vec::as_slice);
            if one == other || may_differ.contains(key) {
                continue;
            }
            found.total += 1;
            if found.first.len() < first_max {
                found.first.push(difference(&user, key, one, other));
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

fn difference(
    user: &UserKey,
    key: &[u8],
    ours: Option<&[u8]>,
    theirs: Option<&[u8]>,
) -> Difference {
    let (tag, rest) = key[keys::user(user).len()..].split_first().unwrap_or((&0, &[]));
    let record = record_name(*tag, rest);
    let differing_fields = ours.zip(theirs).and_then(|(ours, theirs)| {
        let ours = memory(user, rest, ours).filter(|_| *tag == keys::MEMORY)?;
        Some(both(&ours, &memory(user, rest, theirs)?))
    });
    let (ours, theirs) = match differing_fields {
        Some((ours, theirs)) => (Some(ours), Some(theirs)),
        None => (
            ours.map(|bytes| content(user, *tag, rest, bytes)),
            theirs.map(|bytes| content(user, *tag, rest, bytes)),
        ),
    };
    Difference { user: user.clone(), record, ours, theirs }
}

/// Number of characters that are shown of a record.
const LENGTH_MAX: usize = 160;
/// Number of differing fields that are shown of a memory.
const FIELDS_MAX: usize = 3;

fn record_name(tag: u8, rest: &[u8]) -> String {
    match tag {
        keys::MEMORY => keys::memory_id(rest)
            .map_or_else(|| "memory without an id".to_owned(), |id| format!("memory {id}")),
        keys::TURN => format!(
            "last turns of session {:?}",
            escaped(rest.get(4..rest.len().saturating_sub(1)).unwrap_or_default())
        ),
        keys::SESSION => format!("session {:?}", escaped(rest)),
        keys::GATE => "last totals".to_owned(),
        keys::SLOT => format!("fact {}", escaped(rest)),
        keys::SEEN => format!("event id {:?}", escaped(rest)),
        other => format!("record {:?}", char::from(other)),
    }
}

fn escaped(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).escape_debug().to_string()
}

/// Describes the content of a record; the number of bytes if the record cannot be decoded.
fn content(user: &UserKey, tag: u8, rest: &[u8], bytes: &[u8]) -> String {
    let described = match tag {
        keys::MEMORY => match memory(user, rest, bytes) {
            Some(memory) => Ok(format!(
                "{} {:?}, version {}",
                memory.kind.as_str(),
                memory.content,
                memory.version
            )),
            None => Ok("a vector without a memory".to_owned()),
        },
        keys::TURN => {
            format::said(bytes).map(|(number, said)| format!("turn {number}: {:?}", said.content))
        }
        keys::SESSION => format::session(bytes).map(debug),
        keys::GATE => format::gate(bytes).map(debug),
        keys::SLOT => format::slot(bytes).map(debug),
        keys::SEEN => format::seen(bytes).map(debug),
        _ => Ok(format!("{} bytes", bytes.len())),
    };
    let described = described
        .unwrap_or_else(|fault| format!("{} bytes that cannot be read: {fault}", bytes.len()));
    shortened(&described, LENGTH_MAX)
}

fn debug(record: impl Debug) -> String {
    format!("{record:?}")
}

fn memory(user: &UserKey, rest: &[u8], bytes: &[u8]) -> Option<Memory> {
    let id: MemoryId = keys::memory_id(rest)?;
    format::memory(user, id, bytes).ok()?
}

/// Describes two different memories by the fields that differ.
fn both(ours: &Memory, theirs: &Memory) -> (String, String) {
    let pairs = fields(ours).into_iter().zip(fields(theirs));
    let differing = pairs.filter(|(ours, theirs)| ours != theirs).take(FIELDS_MAX);
    let (ours, theirs): (Vec<String>, Vec<String>) = differing.unzip();
    if ours.is_empty() {
        return ("another vector".to_owned(), "another vector".to_owned());
    }
    (ours.join(", "), theirs.join(", "))
}

/// The fields of a memory as `importance: 0.5`. The `{:#?}` form has a line for each field, and
/// indents the parts of a field further.
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
    fields.iter().map(|field| shortened(field.trim_end_matches(','), LENGTH_MAX)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{a_memory, a_vector, at_event, identity, key, staged};
    use super::*;
    use kernel::{SlotHolder, Staged};

    fn store(fill: impl Fn(&mut Staged<'_>)) -> Store {
        let store = Store::in_memory(&identity());
        let mut staged = staged(&store);
        fill(&mut staged);
        let batch = store.encode(staged.into_changes()).unwrap();
        store.commit(batch, at_event(9)).unwrap();
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
        let [one, other] = [(); 2].map(|()| {
            store(|staged| staged.put_memory_and_vector(a_memory(1, "Lisbon"), &a_vector(1)))
        });
        other.commit(Default::default(), at_event(77)).unwrap();
        assert_eq!(
            differences(&one, &other, &BTreeSet::new(), 20).unwrap(),
            Differences::default()
        );
        assert_eq!(one.digest().unwrap(), other.digest().unwrap());
    }

    #[test]
    fn a_changed_memory_is_described_field_by_field() {
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
    fn a_record_of_one_store_and_another_vector_are_described() {
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
    fn at_most_the_limit_is_described_and_all_are_counted() {
        let many = store(|staged| (0..30).for_each(|n| staged.put_memory(a_memory(n, "x"))));
        let found = differences(&many, &store(|_| ()), &BTreeSet::new(), 20).unwrap();
        assert_eq!((found.first.len(), found.total), (20, 30));
    }
}

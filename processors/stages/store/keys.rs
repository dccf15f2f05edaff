//! Where each record lies: `tenant/user/`, a tag, the rest. It does not know what a record says.
//!
//! Invariant: a scan of one user's prefix meets nobody else's record. Names hold no `/` and no control character, so no user's prefix begins
//! another's; the byte 0x00 before the shard's own records and 0xff before the pieces of long values (`disk.rs`) begin no name.

use crate::domain::{MemoryId, Position, UserKey};
use uuid::Uuid;

pub const SHARD: u8 = 0x00;
/// A memory and its vector: one record, because sled's price is by the record.
pub const MEMORY: u8 = b'm';
pub const TAIL: u8 = b't';
pub const SESSION: u8 = b's';
pub const GATE: u8 = b'g';
pub const SLOT: u8 = b'f';
/// The sender's ids: what outlives `forget`, so that a replay does not bring the forgotten back.
pub const SEEN: u8 = b'x';

/// The places of events that change what the whole tenant sees and have not come back in their order.
pub const AWAITED: u8 = b'w';

pub fn identity() -> Vec<u8> {
    vec![SHARD, b'i']
}

pub fn applied() -> Vec<u8> {
    vec![SHARD, b'a']
}

/// How far the changelog has been read or written.
pub fn changelog() -> Vec<u8> {
    vec![SHARD, b'c']
}

/// There while a restore has not ended: records may be ahead of what the shard says of its changelog.
pub fn ahead() -> Vec<u8> {
    vec![SHARD, b'r']
}

pub fn via(source_partition: i32) -> Vec<u8> {
    let mut key = vec![SHARD, b'v'];
    key.extend(source_partition.to_be_bytes());
    key
}

/// All of a user's records.
pub fn user(key: &UserKey) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(key.as_str().len() + 1);
    bytes.extend(key.as_str().as_bytes());
    bytes.push(b'/');
    bytes
}

/// All of a user's records of one sort.
pub fn all(key: &UserKey, tag: u8) -> Vec<u8> {
    tagged(key, tag, &[])
}

pub fn memory(key: &UserKey, id: MemoryId) -> Vec<u8> {
    tagged(key, MEMORY, &[id.0.as_bytes()])
}

/// The last turns of a session. The length goes first, so that no session's name begins another's.
pub fn tail(key: &UserKey, session: &str) -> Vec<u8> {
    tagged(key, TAIL, &[&length(session), session.as_bytes()])
}

pub fn session(key: &UserKey, session: &str) -> Vec<u8> {
    tagged(key, SESSION, &[session.as_bytes()])
}

pub fn gate(key: &UserKey) -> Vec<u8> {
    all(key, GATE)
}

pub fn slot(key: &UserKey, name: &str) -> Vec<u8> {
    tagged(key, SLOT, &[name.as_bytes()])
}

pub fn awaited(key: &UserKey, event: &Position) -> Vec<u8> {
    tagged(key, AWAITED, &[&event.partition.to_be_bytes(), &event.offset.to_be_bytes()])
}

pub fn seen(key: &UserKey, id: &str) -> Vec<u8> {
    tagged(key, SEEN, &[id.as_bytes()])
}

/// The session of a context window, from the key behind the tag: length, name, place in the ring.
pub fn session_of_tail(rest: &[u8]) -> Option<String> {
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let name = rest.get(..u32::from_be_bytes(*length) as usize)?;
    String::from_utf8(name.to_vec()).ok()
}

/// Partition and offset of a waiting event, from the key behind the tag.
pub fn event_of_awaited(rest: &[u8]) -> Option<(i32, i64)> {
    let (partition, rest) = rest.split_first_chunk::<4>()?;
    let offset = rest.first_chunk::<8>()?;
    Some((i32::from_be_bytes(*partition), i64::from_be_bytes(*offset)))
}

pub fn is_gate(record: &[u8]) -> bool {
    tag_of(record).is_some_and(|(_, tag, rest)| tag == GATE && rest.is_empty())
}

/// The ring of a context window, from the key of one of its turns.
pub fn ring_of(record: &[u8]) -> Option<&[u8]> {
    tag_of(record).filter(|(_, tag, _)| *tag == TAIL)?;
    record.split_last().map(|(_place, ring)| ring)
}

/// What all slots of its user have in common, and the slot's own name.
pub fn slot_of(record: &[u8]) -> Option<(&[u8], &[u8])> {
    tag_of(record)
        .filter(|(_, tag, _)| *tag == SLOT)
        .map(|(user, _, name)| (&record[..=user.len()], name))
}

/// What lies under the user's prefix: the tag and the rest.
fn tag_of(record: &[u8]) -> Option<(&[u8], u8, &[u8])> {
    let mut slashes =
        record.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(place, _)| place);
    let (user, behind) = record.split_at(slashes.nth(1)? + 1);
    behind.split_first().map(|(tag, rest)| (user, *tag, rest))
}

/// The same where a user's prefix is at hand: it becomes the key.
pub fn under(mut user: Vec<u8>, tag: u8, rest: impl IntoIterator<Item = u8>) -> Vec<u8> {
    user.push(tag);
    user.extend(rest);
    user
}

fn tagged(key: &UserKey, tag: u8, rest: &[&[u8]]) -> Vec<u8> {
    // One byte more than needed now: the place in a ring is often added.
    let mut bytes = Vec::with_capacity(
        key.as_str().len() + 3 + rest.iter().map(|part| part.len()).sum::<usize>(),
    );
    bytes.extend(key.as_str().as_bytes());
    bytes.extend([b'/', tag]);
    rest.iter().for_each(|part| bytes.extend(*part));
    bytes
}

/// Four bytes: a session's name is bounded by the longest message only.
fn length(name: &str) -> [u8; 4] {
    (name.len() as u32).to_be_bytes()
}

/// Whether a memory lies there, with its vector.
pub fn is_memory(bytes: &[u8]) -> bool {
    user_of(bytes).is_some_and(|key| bytes[user(&key).len()..].first() == Some(&MEMORY))
}

/// Which memory lies there. What is no memory's key may look like one.
pub fn id_of_memory(bytes: &[u8]) -> Option<MemoryId> {
    let (front, id) = bytes.split_last_chunk::<16>()?;
    let user = front.strip_suffix(&[MEMORY])?;
    user.ends_with(b"/").then(|| MemoryId(Uuid::from_bytes(*id)))
}

/// Whose record this is. Nothing for the shard's own records, and for what is no key of ours.
pub fn user_of(bytes: &[u8]) -> Option<UserKey> {
    let mut parts = bytes.splitn(3, |byte| *byte == b'/');
    let tenant = std::str::from_utf8(parts.next()?).ok()?;
    let user = std::str::from_utf8(parts.next()?).ok()?;
    parts.next()?;
    if user.is_empty() {
        UserKey::everyone_of(tenant).ok()
    } else {
        UserKey::new(tenant, user).ok()
    }
}

/// A key behind every record of the user and before the next user's.
pub fn behind(key: &UserKey) -> Vec<u8> {
    all(key, 0xff)
}

/// A key behind the shard's own records and before the first user's.
pub fn before_users() -> Vec<u8> {
    vec![SHARD + 1]
}

pub fn memory_id(rest: &[u8]) -> Option<MemoryId> {
    Uuid::from_slice(rest).ok().map(MemoryId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_users_prefix_begins_anothers() {
        let keys = [
            UserKey::new("a", "b").unwrap(),
            UserKey::new("a", "bc").unwrap(),
            UserKey::new("ab", "c").unwrap(),
            UserKey::new("a", "b!").unwrap(),
            UserKey::everyone_of("a").unwrap(),
        ];
        for one in &keys {
            for other in keys.iter().filter(|other| *other != one) {
                assert!(!user(other).starts_with(&user(one)), "{one} begins {other}");
            }
        }
    }

    #[test]
    fn a_session_named_like_the_beginning_of_another_is_apart() {
        let key = UserKey::new("t", "u").unwrap();
        assert!(!tail(&key, "monday/2").starts_with(&tail(&key, "monday")));
        assert!(!tail(&key, "x").starts_with(&tail(&key, "")));
    }

    #[test]
    fn which_memory_it_is_can_be_read_from_its_key() {
        let (zoe, id) = (UserKey::new("acme", "zoë").unwrap(), MemoryId(Uuid::from_u128(7)));
        for key in [zoe.clone(), zoe.everyone()] {
            assert_eq!(id_of_memory(&memory(&key, id)), Some(id));
        }
        for bytes in
            [&identity()[..], &applied(), &gate(&zoe), &session(&zoe, "monday at the harbour"), b""]
        {
            assert_eq!(id_of_memory(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn whose_a_record_is_can_be_read_from_its_key() {
        let zoe = UserKey::new("acme", "zoë").unwrap();
        for key in [zoe.clone(), zoe.everyone()] {
            assert_eq!(user_of(&session(&key, "a/b\u{0}c")), Some(key.clone()));
            assert_eq!(user_of(&behind(&key)), Some(key));
        }
        for bytes in [&identity()[..], &applied(), &via(3), b"acme", b"acme/zoe", b"", b"\xff/a/"] {
            assert_eq!(user_of(bytes), None, "{bytes:?}");
        }
    }
}

//! The key of each record: `tenant/user/`, one byte for the sort of record, the rest. This file
//! does not know the bytes of a value.
//!
//! ```text
//! 00 'i' | 'a' | 'c' | 'r' | 'e'  shard: identity, applied, changelog position, restore runs,
//!                                 erased since
//! 00 'd'                          shard: digest of the records that the changelog carries
//! 00 'v' partition                shard: highest offset forwarded from that partition
//! 00 'j'                          shard: offset up to which `conflict.model` has judged
//! 00 'q'                          shard: the next generation applies the further events
//! tenant/user/ 'm' id             memory and vector
//! tenant/user/ 't' len session n  the last turns of a session, n = number of the turn modulo 6
//! tenant/user/ 's' session        session
//! tenant/user/ 'g'                gate state
//! tenant/user/ 'f' name           slot
//! tenant/user/ 'x' id             id of an event that was seen
//! tenant/user/ 'w' position       event on its way to the tenant's memories
//! tenant/user/ 'o'                records of recent `forget`s
//! ff key number                   pieces of long values, see `disk.rs`
//! ```
//!
//! Invariant: a scan of one user's prefix meets no record of another user. Names hold no `/` and no
//! control character, so no user's prefix begins another's. No name begins with the byte 0x00 (the
//! shard's own records) or 0xff (pieces of long values).

use domain::{MemoryId, UserKey};
use uuid::Uuid;

pub const SHARD: u8 = 0x00;
/// A memory and its vector in one record, because the cost of sled is by the record.
pub const MEMORY: u8 = b'm';
/// One of the last turns of a session.
pub const TURN: u8 = b't';
pub const SESSION: u8 = b's';
pub const GATE: u8 = b'g';
pub const SLOT: u8 = b'f';
/// An id that a sender gave to an event. Survives `forget`, so that a replay does not bring the
/// forgotten memories back.
pub const SEEN: u8 = b'x';
/// The last event that was sent on to the tenant's home.
pub const SENT_ON: u8 = b'w';

/// The records of recent `forget`s, by which stragglers are refused. Survive `forget`.
pub const FORGET_MARKS: u8 = b'o';

pub fn identity() -> Vec<u8> {
    vec![SHARD, b'i']
}

pub fn applied() -> Vec<u8> {
    vec![SHARD, b'a']
}

/// The position up to which the changelog has been read or written.
pub fn changelog() -> Vec<u8> {
    vec![SHARD, b'c']
}

/// Exists while a restore runs or a long batch is written: records may be ahead of the changelog
/// position. The value is a `PartMark`, or the `Claim` that the store is still to be compared with.
pub fn ahead() -> Vec<u8> {
    vec![SHARD, b'r']
}

/// When the first record was erased since the files were last rewritten.
pub fn erased() -> Vec<u8> {
    vec![SHARD, b'e']
}

/// The offset up to which each change of a memory has been judged by `conflict.model`. Of this disk
/// alone: a shard that is restored elsewhere is judged again, and what is linked already stays.
pub fn judged() -> Vec<u8> {
    vec![SHARD, b'j']
}

/// The digest of the shard, with its checkpoint.
pub fn digest() -> Vec<u8> {
    vec![SHARD, b'd']
}

pub fn via(source_partition: i32) -> Vec<u8> {
    let mut key = vec![SHARD, b'v'];
    key.extend(source_partition.to_be_bytes());
    key
}

/// Up to which offset the home of a tenant has applied events of a partition, in a copy of the
/// tenants topic.
pub fn home_via(home: i32, source_partition: i32) -> Vec<u8> {
    let mut key = self::home(home);
    key.extend(source_partition.to_be_bytes());
    key
}

/// Exists in a copy of the tenants topic that has all memories of this home.
pub fn home(home: i32) -> Vec<u8> {
    let mut key = vec![SHARD, b'h'];
    key.extend(home.to_be_bytes());
    key
}

/// True for the records of homes in a copy of the tenants topic.
pub fn is_of_home(record: &[u8]) -> bool {
    record.starts_with(&[SHARD, b'h'])
}

/// The source partition of forwarded records, from the key of their offset.
pub fn partition_of_via(record: &[u8]) -> Option<i32> {
    let partition = record.strip_prefix(&[SHARD, b'v'])?;
    Some(i32::from_be_bytes(partition.try_into().ok()?))
}

/// The id of the tenants topic that has all tenant memories of the shard. The changelog has it in the
/// meta records.
pub fn published() -> Vec<u8> {
    vec![SHARD, b't']
}

/// Exists in a shard whose further events the next generation applies.
pub fn closed() -> Vec<u8> {
    vec![SHARD, b'q']
}

/// The prefix of all records of a user.
pub fn user(key: &UserKey) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(key.as_str().len() + 1);
    bytes.extend(key.as_str().as_bytes());
    bytes.push(b'/');
    bytes
}

/// The prefix of all records of a user of one sort.
pub fn all(key: &UserKey, tag: u8) -> Vec<u8> {
    tagged(key, tag, &[])
}

pub fn memory(key: &UserKey, id: MemoryId) -> Vec<u8> {
    tagged(key, MEMORY, &[id.0.as_bytes()])
}

/// The prefix of the ring of a session's last turns. The length of the name goes first, so that no
/// name of a session begins another's.
pub fn turn_ring(key: &UserKey, session: &str) -> Vec<u8> {
    // Four bytes, because only the longest message bounds the name of a session.
    let length = (session.len() as u32).to_be_bytes();
    tagged(key, TURN, &[&length, session.as_bytes()])
}

pub fn session(key: &UserKey, session: &str) -> Vec<u8> {
    tagged(key, SESSION, &[session.as_bytes()])
}

pub fn gate(key: &UserKey) -> Vec<u8> {
    all(key, GATE)
}

pub fn forget_records(key: &UserKey) -> Vec<u8> {
    all(key, FORGET_MARKS)
}

pub fn slot(key: &UserKey, name: &str) -> Vec<u8> {
    tagged(key, SLOT, &[name.as_bytes()])
}

pub fn sent_on(key: &UserKey) -> Vec<u8> {
    all(key, SENT_ON)
}

pub fn seen(key: &UserKey, id: &str) -> Vec<u8> {
    tagged(key, SEEN, &[id.as_bytes()])
}

/// The session of a context window, from the key behind the tag: length, name, index in the ring.
pub fn session_of_ring(rest: &[u8]) -> Option<String> {
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let name = rest.get(..u32::from_be_bytes(*length) as usize)?;
    String::from_utf8(name.to_vec()).ok()
}

pub fn is_gate(record: &[u8]) -> bool {
    tag_of(record).is_some_and(|(_, tag, rest)| tag == GATE && rest.is_empty())
}

pub fn is_forget_records(record: &[u8]) -> bool {
    record.first() != Some(&SHARD)
        && tag_of(record).is_some_and(|(_, tag, rest)| tag == FORGET_MARKS && rest.is_empty())
}

/// The ring of a context window, from the key of one of the turns.
pub fn ring_of(record: &[u8]) -> Option<&[u8]> {
    tag_of(record).filter(|(_, tag, _)| *tag == TURN)?;
    record.split_last().map(|(_place, ring)| ring)
}

/// Splits the key of a slot into the common prefix of the user's slots and the name of the slot.
pub fn slot_of(record: &[u8]) -> Option<(&[u8], &[u8])> {
    tag_of(record)
        .filter(|(_, tag, _)| *tag == SLOT)
        .map(|(user, _, name)| (&record[..=user.len()], name))
}

/// Splits a key into the user's prefix, the tag and the rest.
fn tag_of(record: &[u8]) -> Option<(&[u8], u8, &[u8])> {
    let mut slashes =
        record.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let (user, behind) = record.split_at(slashes.nth(1)? + 1);
    behind.split_first().map(|(tag, rest)| (user, *tag, rest))
}

/// Extends the prefix of a user to the key of a record.
pub fn under(mut user: Vec<u8>, tag: u8, rest: impl IntoIterator<Item = u8>) -> Vec<u8> {
    user.push(tag);
    user.extend(rest);
    user
}

fn tagged(key: &UserKey, tag: u8, rest: &[&[u8]]) -> Vec<u8> {
    // One byte more than needed now, for the number of a turn in a ring.
    let mut bytes = Vec::with_capacity(
        key.as_str().len() + 3 + rest.iter().map(|part| part.len()).sum::<usize>(),
    );
    bytes.extend(key.as_str().as_bytes());
    bytes.extend([b'/', tag]);
    rest.iter().for_each(|part| bytes.extend(*part));
    bytes
}

/// True if the changelog carries the record: all of users, and of the shard's own the offsets of
/// forwarded records and the end of its generation.
pub fn is_in_changelog(bytes: &[u8]) -> bool {
    bytes.first() != Some(&SHARD) || matches!(bytes.get(1), Some(b'v' | b'q'))
}

/// True if the record holds somebody's words, or numbers made of them, and is removed only to
/// forget them.
pub fn is_erased_with_words(bytes: &[u8]) -> bool {
    bytes.first() != Some(&SHARD)
        && tag_of(bytes).is_some_and(|(_, tag, _)| matches!(tag, MEMORY | TURN | GATE))
}

/// True if the record holds somebody's words. A gate state counts words in a sketch.
pub fn holds_words(bytes: &[u8]) -> bool {
    bytes.first() != Some(&SHARD)
        && tag_of(bytes).is_some_and(|(_, tag, _)| matches!(tag, MEMORY | TURN | SLOT))
}

/// True if this is the key of a memory with a vector.
pub fn is_memory(bytes: &[u8]) -> bool {
    user_of(bytes).is_some_and(|key| bytes[user(&key).len()..].first() == Some(&MEMORY))
}

/// The prefix of all records of a tenant.
pub fn tenant(name: &str) -> Vec<u8> {
    [name.as_bytes(), b"/"].concat()
}

/// The tenant, from the key of a memory.
pub fn tenant_of_memory(bytes: &[u8]) -> Option<&str> {
    let tenant = bytes.split(|byte| *byte == b'/').next()?;
    std::str::from_utf8(tenant).ok().filter(|_| is_memory(bytes))
}

/// The id in the key of a memory. Limit: another key may happen to look like one, so the result
/// only serves to drop cached memories.
pub fn id_of_memory(bytes: &[u8]) -> Option<MemoryId> {
    let (front, id) = bytes.split_last_chunk::<16>()?;
    let user = front.strip_suffix(&[MEMORY])?;
    user.ends_with(b"/").then(|| MemoryId(Uuid::from_bytes(*id)))
}

/// The user of a record. `None` for the shard's own records and for a key in another form.
pub fn user_of(bytes: &[u8]) -> Option<UserKey> {
    let mut parts = bytes.splitn(3, |byte| *byte == b'/');
    let tenant = std::str::from_utf8(parts.next()?).ok()?;
    let user = std::str::from_utf8(parts.next()?).ok()?;
    parts.next()?;
    if user.is_empty() { UserKey::of_tenant(tenant).ok() } else { UserKey::new(tenant, user).ok() }
}

/// A key greater than every record of the user and less than those of the next user.
pub fn behind(key: &UserKey) -> Vec<u8> {
    all(key, 0xff)
}

/// A key greater than every record of the tenant and less than those behind.
pub fn behind_tenant(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[b'/' + 1]].concat()
}

/// A key greater than the shard's own records and less than those of the first user.
pub fn before_users() -> Vec<u8> {
    vec![SHARD + 1]
}

pub fn memory_id(rest: &[u8]) -> Option<MemoryId> {
    Uuid::from_slice(rest).ok().map(MemoryId)
}

/// The user and the id of a memory's record. `None` for any other record.
pub fn memory_of(record: &[u8]) -> Option<(UserKey, MemoryId)> {
    let key = user_of(record)?;
    let id = record.strip_prefix(&all(&key, MEMORY)[..])?;
    Some((key, memory_id(id)?))
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
            UserKey::of_tenant("a").unwrap(),
        ];
        for one in &keys {
            for other in keys.iter().filter(|other| *other != one) {
                assert!(!user(other).starts_with(&user(one)), "{one} begins {other}");
            }
        }
    }

    #[test]
    fn no_sessions_ring_begins_anothers() {
        let key = UserKey::new("t", "u").unwrap();
        assert!(!turn_ring(&key, "monday/2").starts_with(&turn_ring(&key, "monday")));
        assert!(!turn_ring(&key, "x").starts_with(&turn_ring(&key, "")));
    }

    #[test]
    fn the_key_of_a_memory_gives_the_id() {
        let zoe = UserKey::new("acme", "zoë").unwrap();
        let id = MemoryId(Uuid::from_u128(7));
        for key in [zoe.clone(), zoe.tenant_key()] {
            assert_eq!(id_of_memory(&memory(&key, id)), Some(id));
        }
        for bytes in
            [&identity()[..], &applied(), &gate(&zoe), &session(&zoe, "monday at the harbour"), b""]
        {
            assert_eq!(id_of_memory(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn the_key_of_a_record_gives_the_user() {
        let zoe = UserKey::new("acme", "zoë").unwrap();
        for key in [zoe.clone(), zoe.tenant_key()] {
            assert_eq!(user_of(&session(&key, "a/b\u{0}c")), Some(key.clone()));
            assert_eq!(user_of(&behind(&key)), Some(key));
        }
        for bytes in [&identity()[..], &applied(), &via(3), b"acme", b"acme/zoe", b"", b"\xff/a/"] {
            assert_eq!(user_of(bytes), None, "{bytes:?}");
        }
    }
}

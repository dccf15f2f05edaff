//! Maps the key of a store record to the key of its changelog record, and back.

use super::meta::{META, unknown};
use crate::store::keys;
use broker::Record;
use domain::UserKey;
use domain::fault::Result;
use uuid::Uuid;

const VIA: &str = "via";
const HOME: &str = "home";
const CLOSED: &str = "closed";
/// Prefix of the records that hold the signing key of a service. Such a key has no slash; the key
/// of every user's record has one, so the two never collide.
pub const SIGNING_KEY_PREFIX: &str = "marks-key.";

/// The changelog key of a record. `None` for memories, whose key is their id, and for the records
/// that the meta record covers.
pub fn state_name(key: &[u8]) -> Option<String> {
    if let [keys::SHARD, b'v', partition @ ..] = key {
        return Some(format!("{VIA}.{}", i32::from_be_bytes(partition.try_into().ok()?)));
    }
    if let [keys::SHARD, b'h', places @ ..] = key {
        let (home, partition) = places.split_first_chunk::<4>()?;
        if partition.is_empty() {
            return Some(format!("{HOME}.{}", i32::from_be_bytes(*home)));
        }
        let partition = i32::from_be_bytes(partition.try_into().ok()?);
        return Some(format!("{VIA}.{}.{partition}", i32::from_be_bytes(*home)));
    }
    if *key == keys::closed() {
        return Some(CLOSED.to_owned());
    }
    let user = keys::user_of(key)?;
    let (tag, rest) = key[keys::user(&user).len()..].split_first()?;
    if *tag == keys::MEMORY {
        return None;
    }
    // The full stop distinguishes this key from that of a memory, whatever the name of a session.
    Some(format!("{user}/{}.{}", char::from(*tag), hex::encode(rest)))
}

/// Returns user and session of a record that holds a turn of a context window.
pub fn session_of(record: &Record) -> Option<(UserKey, String)> {
    let key = named(record.key.clone()?).ok()?;
    let user = keys::user_of(&key)?;
    let ring = key.strip_prefix(&keys::all(&user, keys::TURN)[..])?;
    Some((user, keys::session_of_ring(ring)?))
}

pub fn is_signing_key(name: &[u8]) -> bool {
    name.starts_with(SIGNING_KEY_PREFIX.as_bytes()) && !name.contains(&b'/')
}

/// Maps a changelog key to the key of the store. A restore maps a million keys, so the bytes of the
/// name are reused for the result.
pub fn named(mut name: Vec<u8>) -> Result<Vec<u8>> {
    let Some(parsed) = std::str::from_utf8(&name).ok().and_then(parsed_name) else {
        return Err(unknown(format!(
            "the changelog has a record named {:?}",
            String::from_utf8_lossy(&name)
        )));
    };
    Ok(match parsed {
        ParsedName::Via(partition) => keys::via(partition),
        ParsedName::HomeVia(home, partition) => keys::home_via(home, partition),
        ParsedName::Home(home) => keys::home(home),
        ParsedName::Closed => keys::closed(),
        ParsedName::Memory { user_bytes, id } => {
            name.truncate(user_bytes);
            keys::under(name, keys::MEMORY, id.into_bytes())
        }
        ParsedName::State { user_bytes, tag, rest } => {
            name.truncate(user_bytes);
            keys::under(name, tag, rest)
        }
    })
}

/// A parsed changelog key. The first `user_bytes` bytes of the name are the prefix of the user's
/// records.
enum ParsedName {
    Via(i32),
    HomeVia(i32, i32),
    Home(i32),
    Closed,
    Memory { user_bytes: usize, id: Uuid },
    State { user_bytes: usize, tag: u8, rest: Vec<u8> },
}

fn parsed_name(name: &str) -> Option<ParsedName> {
    let Some((key, rest)) = name.rsplit_once('/') else {
        if name == CLOSED {
            return Some(ParsedName::Closed);
        }
        if let Some((HOME, home)) = name.split_once('.') {
            return home.parse().ok().map(ParsedName::Home);
        }
        let (VIA, partition) = name.split_once('.')? else { return None };
        return match partition.split_once('.') {
            None => partition.parse().ok().map(ParsedName::Via),
            Some((home, partition)) => {
                Some(ParsedName::HomeVia(home.parse().ok()?, partition.parse().ok()?))
            }
        };
    };
    let (tenant, user) = key.split_once('/')?;
    if !UserKey::are_names(tenant, user) {
        return None;
    }
    let user_bytes = key.len() + 1;
    match rest.split_once('.') {
        None => rest.parse().ok().map(|id| ParsedName::Memory { user_bytes, id }),
        Some((tag, rest)) => {
            let &[tag] = tag.as_bytes() else { return None };
            Some(ParsedName::State { user_bytes, tag, rest: hex::decode(rest).ok()? })
        }
    }
}

/// To whom a changelog record belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    Meta,
    SigningKey,
    /// The offset of forwarded records.
    Via,
    /// The end of the generation.
    Closed,
    /// A user, or a tenant with all its users.
    User(UserKey),
}

pub fn owner(name: &[u8]) -> Result<Owner> {
    if name == META.as_bytes() {
        return Ok(Owner::Meta);
    }
    if is_signing_key(name) {
        return Ok(Owner::SigningKey);
    }
    let key = named(name.to_vec())?;
    Ok(match keys::user_of(&key) {
        Some(user) => Owner::User(user),
        None if key == keys::closed() => Owner::Closed,
        None => Owner::Via,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::key;
    use domain::MemoryId;

    #[test]
    fn the_changelog_key_of_a_record_maps_back_to_the_record() {
        let zoe = key("zo\u{eb}");
        let turn = [keys::turn_ring(&zoe, "a/b.c \u{1f600}"), vec![5]].concat();
        let keys = [
            turn,
            keys::session(&zoe, "monday"),
            keys::gate(&zoe),
            keys::slot(&zoe, "home"),
            keys::seen(&zoe.tenant_key(), "id-1"),
            keys::via(12),
            keys::home_via(3, 12),
            keys::home(3),
            keys::sent_on(&zoe),
            keys::closed(),
        ];
        for key in keys {
            let name = state_name(&key).unwrap();
            assert_eq!(named(name.clone().into_bytes()).unwrap(), key, "{name}");
        }
    }

    #[test]
    fn the_changelog_key_of_a_memory_is_its_readable_id() {
        let id = MemoryId(uuid::Uuid::from_u128(7));
        for user in [key("zoe"), key("zoe").tenant_key()] {
            assert_eq!(state_name(&keys::memory(&user, id)), None);
            let key = keys::memory(&user, id);
            assert_eq!(named(format!("{user}/{id}").into_bytes()).unwrap(), key);
        }
        assert_eq!(state_name(&keys::applied()), None);
    }

    #[test]
    fn an_unknown_changelog_key_is_an_error_and_not_skipped() {
        for name in [
            "",
            "meta2",
            "a",
            "a/b",
            "a/b/c",
            "a/b/s.f",
            "a/b/s.zz",
            "a/b/xy.00",
            "via.x",
            "//s.00",
        ] {
            assert!(named(name.as_bytes().to_vec()).is_err(), "{name}");
        }
    }
}

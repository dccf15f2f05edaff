//! API keys: a file of digests, each bound to a tenant, to rights, and perhaps to one user.
//!
//! A key is 256 random bits, so a plain SHA-256 suffices: a slow hash protects secrets that people
//! choose, and nobody finds 256 random bits by trying. The file never holds a key itself.

use crate::refusal::{Refusal, Result};
use axum::http::StatusCode;
use domain::UserKey;
use domain::fault::{self, Fault, StopName};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use subtle::ConstantTimeEq;

const PREFIX: &str = "ksk";
/// Pause between two looks at the file: a key that was revoked is refused from then on.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    Read,
    Write,
    Forget,
    Admin,
}

impl Right {
    pub fn parse(text: &str) -> Option<Right> {
        match text {
            "read" => Some(Right::Read),
            "write" => Some(Right::Write),
            "forget" => Some(Right::Forget),
            "admin" => Some(Right::Admin),
            _ => None,
        }
    }
}

/// A key in the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    pub id: String,
    pub tenant: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    pub rights: Vec<Right>,
    pub sha256: String,
    pub created_at: String,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    key: Vec<Key>,
}

/// The caller: the tenant, user and rights of the key that came with a request.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Id of the key; empty without keys.
    pub key: String,
    pub tenant: String,
    pub user: Option<String>,
    pub rights: Vec<Right>,
}

impl Caller {
    /// The caller of a gateway without keys, which listens on loopback only.
    pub fn local(tenant: &str) -> Caller {
        let rights = vec![Right::Read, Right::Write, Right::Forget, Right::Admin];
        Caller { key: String::new(), tenant: tenant.to_owned(), user: None, rights }
    }

    pub fn may(&self, right: Right) -> Result<()> {
        if self.rights.contains(&right) {
            return Ok(());
        }
        let name = format!("{right:?}").to_lowercase();
        Err(Refusal::forbidden(format!(
            "this key has no right to {name}: make one with `keepsake keys new --rights {name}`"
        )))
    }

    /// Returns the user that a call is about: the key's own, or the one that the call names.
    pub fn user(&self, named: Option<&str>) -> Result<UserKey> {
        self.user_in("user_id", named)
    }

    /// The same where the call names the user in this field.
    pub fn user_in(&self, field: &str, named: Option<&str>) -> Result<UserKey> {
        let user = match (&self.user, named) {
            (Some(own), Some(named)) if own != named => {
                return Err(Refusal::forbidden(format!(
                    "this key is for one user, and the call names another, {named:?}"
                )));
            }
            (Some(own), _) => own,
            (None, Some(named)) => named,
            (None, None) => {
                return Err(Refusal::invalid(field, format!("{field} is missing: name the user")));
            }
        };
        UserKey::new(&self.tenant, user)
            .map_err(|e| Refusal::invalid(field, format!("{field} {}", e.why)))
    }
}

pub fn read(path: &Path) -> fault::Result<Vec<Key>> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| wrong(format!("cannot read the keys in {}: {e}", path.display())))?;
    let file: File = toml::from_str(&text)
        .map_err(|e| wrong(format!("{} is no file of keys: {e}", path.display())))?;
    Ok(file.key)
}

/// Makes a key, adds it to the file and returns the key, which nothing can show again.
pub fn new(
    path: &Path,
    tenant: &str,
    user: Option<&str>,
    rights: Vec<Right>,
) -> fault::Result<(Key, String)> {
    UserKey::new(tenant, user.unwrap_or("any"))
        .map_err(|e| wrong(format!("--{}: {}", e.field, e.why)))?;
    let mut keys = if path.exists() { read(path)? } else { Vec::new() };
    let mut random = [0; 36];
    getrandom::fill(&mut random).map_err(|e| Fault::retry(format!("random bytes: {e}")))?;
    let (id, secret) = random.split_at(4);
    let id = hex::encode(id);
    let shown = format!("{PREFIX}_{id}_{}", hex::encode(secret));
    let key = Key {
        id,
        tenant: tenant.to_owned(),
        user: user.map(str::to_owned),
        rights,
        sha256: hex::encode(Sha256::digest(&shown)),
        created_at: jiff::Timestamp::now().to_string(),
    };
    keys.push(key.clone());
    write(path, keys)?;
    Ok((key, shown))
}

pub fn revoke(path: &Path, id: &str) -> fault::Result<()> {
    let mut keys = read(path)?;
    let before = keys.len();
    keys.retain(|key| key.id != id);
    if keys.len() == before {
        return Err(wrong(format!("no key has the id {id}: `keepsake keys list` shows them")));
    }
    write(path, keys)
}

/// Replaces the file in one step, readable by its owner only.
fn write(path: &Path, key: Vec<Key>) -> fault::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let about = |e: std::io::Error| wrong(format!("cannot write {}: {e}", path.display()));
    let text = toml::to_string(&File { key }).map_err(|e| wrong(e.to_string()))?;
    let made = path.with_extension("new");
    let mut open = std::fs::OpenOptions::new();
    let mut file =
        open.write(true).create(true).truncate(true).mode(0o600).open(&made).map_err(about)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(about)?;
    std::fs::rename(&made, path).map_err(about)
}

fn wrong(what: String) -> Fault {
    Fault::stop(StopName::ConfigInvalid, what)
}

/// The keys of a running gateway, read again when the file changes.
pub struct Keys {
    path: PathBuf,
    read: Mutex<Read>,
}

struct Read {
    keys: Vec<Key>,
    changed: Option<SystemTime>,
    looked: Instant,
}

impl Keys {
    pub fn open(path: &Path) -> fault::Result<Keys> {
        let read = Read { keys: read(path)?, changed: changed(path), looked: Instant::now() };
        Ok(Keys { path: path.to_owned(), read: Mutex::new(read) })
    }

    /// Returns who has this key. Compares the digest in constant time with that of the one key that
    /// has the id.
    pub fn caller(&self, shown: &str) -> Result<Caller> {
        let mut read = self.read.lock();
        if read.looked.elapsed() >= LOOK {
            read.looked = Instant::now();
            let changed = changed(&self.path);
            if changed != read.changed {
                match self::read(&self.path) {
                    Ok(keys) => (read.keys, read.changed) = (keys, changed),
                    Err(fault) => tracing::error!(%fault, "the keys stay as they were"),
                }
            }
        }
        let digest = hex::encode(Sha256::digest(shown));
        let id = shown.split('_').nth(1).unwrap_or_default();
        let found = read.keys.iter().find(|key| key.id == id);
        match found.filter(|key| bool::from(key.sha256.as_bytes().ct_eq(digest.as_bytes()))) {
            Some(key) => Ok(Caller {
                key: key.id.clone(),
                tenant: key.tenant.clone(),
                user: key.user.clone(),
                rights: key.rights.clone(),
            }),
            None => Err(Refusal::new(
                StatusCode::UNAUTHORIZED,
                "unauthorized",
                "this key does not exist or was revoked: `keepsake keys new` makes one",
            )),
        }
    }
}

fn changed(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|found| found.modified()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_opens_its_tenant_until_it_is_revoked() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("gateway.keys");
        let (key, shown) = new(&path, "acme", Some("ada"), vec![Right::Read]).expect("made");
        let (_, other) = new(&path, "else", None, vec![Right::Write]).expect("made");
        let text = std::fs::read_to_string(&path).expect("written");
        assert!(!text.contains(&shown) && text.contains(&key.sha256));
        let keys = Keys::open(&path).expect("read");
        let caller = keys.caller(&shown).expect("known");
        assert_eq!((caller.tenant.as_str(), caller.user.as_deref()), ("acme", Some("ada")));
        assert!(caller.may(Right::Write).is_err());
        assert_eq!(caller.user(Some("bob")).expect_err("another user").code, "forbidden");
        let mut wrong = shown.clone();
        wrong.replace_range(wrong.len() - 1.., if shown.ends_with('0') { "1" } else { "0" });
        for wrong in [wrong.as_str(), "", "ksk_", &key.id] {
            assert_eq!(keys.caller(wrong).expect_err(wrong).code, "unauthorized");
        }
        assert_eq!(keys.caller(&other).expect("known").tenant, "else");
        revoke(&path, &key.id).expect("there");
        assert!(revoke(&path, &key.id).is_err());
        let again = Keys::open(&path).expect("read");
        assert!(again.caller(&shown).is_err() && again.caller(&other).is_ok());
    }
}

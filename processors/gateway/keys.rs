//! API keys: a file of digests, each bound to a tenant, to rights, and perhaps to one user.
//!
//! A key is 256 random bits, so a plain SHA-256 suffices: a slow hash protects secrets that people
//! choose, and nobody finds 256 random bits by trying. The file never holds a key itself.

use crate::refusal::{INSUFFICIENT_SCOPE, Refusal, Result};
use axum::http::StatusCode;
use domain::fault::{self, Fault, StopName};
use domain::{SenderLimits, UserKey};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use subtle::ConstantTimeEq;

/// How a key begins. A token of an issuer, which is JSON in base64, begins with `ey`.
pub const PREFIX: &str = "ksk";
/// Pause between two looks at the file: a key that was revoked is refused from then on.
const LOOK: Duration = Duration::from_secs(1);
/// Time for which the keys stay as they were while the file cannot be read. An editor replaces a file
/// in a moment; after a minute a key may stay open that somebody wants to revoke.
const UNREADABLE_MAX: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Permission {
    Read,
    Write,
    Forget,
    Admin,
}

impl Permission {
    pub fn parse(text: &str) -> Option<Permission> {
        match text {
            "read" => Some(Permission::Read),
            "write" => Some(Permission::Write),
            "forget" => Some(Permission::Forget),
            "admin" => Some(Permission::Admin),
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
    pub rights: Vec<Permission>,
    pub sha256: String,
    pub created_at: String,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    key: Vec<Key>,
}

impl Key {
    fn caller(&self) -> Caller {
        Caller {
            key: self.id.clone(),
            tenant: self.tenant.clone(),
            user: self.user.clone(),
            rights: self.rights.clone(),
            token: None,
        }
    }
}

/// The scopes of an issuer that give rights.
pub type Scopes = Vec<(Permission, String)>;

/// The part of a token that the gateway keeps, which is not the token.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// The second of the epoch from which on the token opens nothing.
    pub until: i64,
    pub scopes: Arc<Scopes>,
}

/// The caller: the tenant, user and rights of the key or the token that came with a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Caller {
    /// Id of the key, or the user of a token; empty without keys.
    pub key: String,
    pub tenant: String,
    pub user: Option<String>,
    pub rights: Vec<Permission>,
    pub token: Option<Token>,
}

impl Caller {
    /// The caller of a gateway without keys, which listens on loopback only.
    pub fn local(tenant: &str) -> Caller {
        let rights =
            vec![Permission::Read, Permission::Write, Permission::Forget, Permission::Admin];
        Caller { key: String::new(), tenant: tenant.to_owned(), user: None, rights, token: None }
    }

    /// The limits of the key, by which the service judges the events.
    pub fn limits(&self) -> SenderLimits {
        let no_forget = !self.rights.contains(&Permission::Forget);
        SenderLimits { one_user: self.user.is_some(), no_forget }
    }

    pub fn may(&self, right: Permission) -> Result<()> {
        if self.rights.contains(&right) {
            return Ok(());
        }
        let name = format!("{right:?}").to_lowercase();
        if let Some(token) = &self.token {
            let scope = token.scopes.iter().find(|(of, _)| *of == right).map(|(_, scope)| scope);
            let Some(scope) = scope else {
                return Err(Refusal::forbidden(format!("no token has the right to {name}")));
            };
            let what = format!("this token has no right to {name}: get one with the scope {scope}");
            let refusal = Refusal::new(StatusCode::FORBIDDEN, INSUFFICIENT_SCOPE, what);
            return Err(Refusal { scope: Some(scope.clone()), ..refusal });
        }
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
                    "this {} is for one user, and the call names another, {named:?}",
                    if self.token.is_some() { "token" } else { "key" }
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
    let text = std::fs::read_to_string(path).map_err(|e| {
        let make = match e.kind() {
            ErrorKind::NotFound => {
                format!("; make one with `keepsake keys new --set gateway.keys={}`", path.display())
            }
            _ => String::new(),
        };
        wrong(format!("gateway.keys: cannot read the keys in {}: {e}{make}", path.display()))
    })?;
    let file: File = toml::from_str(&text)
        .map_err(|e| wrong(format!("{} is no file of keys: {e}", path.display())))?;
    Ok(file.key)
}

/// Makes a key, adds it to the file and returns the key, which nothing can show again.
pub fn new(
    path: &Path,
    tenant: &str,
    user: Option<&str>,
    rights: Vec<Permission>,
) -> fault::Result<(Key, String)> {
    UserKey::new(tenant, user.unwrap_or("any"))
        .map_err(|e| wrong(format!("--{}: {}", e.field, e.why)))?;
    let _lock = lock(path)?;
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
    let _lock = lock(path)?;
    let mut keys = read(path)?;
    let before = keys.len();
    keys.retain(|key| key.id != id);
    if keys.len() == before {
        return Err(wrong(format!("no key has the id {id}: `keepsake keys list` shows them")));
    }
    write(path, keys)
}

/// A path beside the file of keys.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// Waits until no other command changes the file: otherwise the other's write could bring a revoked
/// key back. The lock is on a file of its own, since each change replaces the key file.
fn lock(path: &Path) -> fault::Result<std::fs::File> {
    let path = beside(path, ".lock");
    let locked = std::fs::File::create(&path).and_then(|file| file.lock().map(|()| file));
    locked.map_err(|e| wrong(format!("cannot lock {}: {e}", path.display())))
}

/// Replaces the file in one step, readable by the owner only. The temporary file is new: one that
/// somebody else put there would stay theirs.
fn write(path: &Path, key: Vec<Key>) -> fault::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let about = |e: std::io::Error| wrong(format!("cannot write {}: {e}", path.display()));
    let text = toml::to_string(&File { key }).map_err(|e| wrong(e.to_string()))?;
    let made = beside(path, &format!(".{}.new", uuid::Uuid::new_v4().simple()));
    let mut open = std::fs::OpenOptions::new();
    let mut file = open.write(true).create_new(true).mode(0o600).open(&made).map_err(about)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    let replaced = written.and_then(|()| std::fs::rename(&made, path));
    if replaced.is_err() {
        let _ = std::fs::remove_file(&made);
    }
    replaced.map_err(about)
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
    /// When the file was first found missing or broken.
    unreadable: Option<Instant>,
}

impl Read {
    fn is_known(&self, now: Instant) -> bool {
        self.unreadable.is_none_or(|since| now.duration_since(since) < UNREADABLE_MAX)
    }
}

impl Keys {
    pub fn open(path: &Path) -> fault::Result<Keys> {
        let (keys, changed) = (read(path)?, changed(path));
        let read = Read { keys, changed, looked: Instant::now(), unreadable: None };
        Ok(Keys { path: path.to_owned(), read: Mutex::new(read) })
    }

    /// Returns who has this key. Compares the digest in constant time with that of the one key that
    /// has the id.
    pub fn caller(&self, shown: &str) -> Result<Caller> {
        self.caller_at(shown, Instant::now())
    }

    /// True while the key of this caller is in the file and has the same tenant, user and rights.
    pub fn still_has(&self, caller: &Caller) -> bool {
        let now = Instant::now();
        let read = self.looked(now);
        read.is_known(now)
            && read.keys.iter().any(|key| key.id == caller.key && key.caller() == *caller)
    }

    /// False once the file has been missing or broken for a minute.
    pub fn are_known(&self) -> bool {
        self.looked(Instant::now()).is_known(Instant::now())
    }

    /// Reads the file again after a change since the last look.
    fn looked(&self, now: Instant) -> MutexGuard<'_, Read> {
        let mut read = self.read.lock();
        if now.duration_since(read.looked) < LOOK {
            return read;
        }
        read.looked = now;
        let changed = changed(&self.path);
        if changed == read.changed && read.unreadable.is_none() {
            return read;
        }
        match self::read(&self.path) {
            Ok(keys) => {
                *read = Read { keys, changed, looked: now, unreadable: None };
            }
            Err(fault) if read.unreadable.is_none() => {
                tracing::error!(%fault, "the keys stay as they were for a minute, then none opens");
                read.unreadable = Some(now);
            }
            Err(_) => {}
        }
        read
    }

    fn caller_at(&self, shown: &str, now: Instant) -> Result<Caller> {
        let read = self.looked(now);
        if !read.is_known(now) {
            return Err(Refusal::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "keys_unreadable",
                "the gateway cannot read its file of keys: the operator must restore gateway.keys",
            ));
        }
        let digest = hex::encode(Sha256::digest(shown));
        let id = shown.split('_').nth(1).unwrap_or_default();
        let found = read.keys.iter().find(|key| key.id == id);
        match found.filter(|key| bool::from(key.sha256.as_bytes().ct_eq(digest.as_bytes()))) {
            Some(key) => Ok(key.caller()),
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
        let (key, shown) = new(&path, "acme", Some("ada"), vec![Permission::Read]).expect("made");
        let (_, other) = new(&path, "else", None, vec![Permission::Write]).expect("made");
        let text = std::fs::read_to_string(&path).expect("written");
        assert!(!text.contains(&shown) && text.contains(&key.sha256));
        let keys = Keys::open(&path).expect("read");
        let caller = keys.caller(&shown).expect("known");
        assert_eq!((caller.tenant.as_str(), caller.user.as_deref()), ("acme", Some("ada")));
        assert!(caller.may(Permission::Write).is_err());
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

    #[test]
    fn keys_made_and_revoked_at_once_are_neither_lost_nor_back() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = &dir.path().join("gateway.keys");
        let made = || new(path, "acme", None, vec![Permission::Read]).expect("made").0.id;
        for _ in 0..10 {
            let old = made();
            let mut ids = std::thread::scope(|scope| {
                let news = [(); 3].map(|()| scope.spawn(made));
                scope.spawn(|| revoke(path, &old).expect("there"));
                news.map(|new| new.join().expect("made"))
            });
            let mut there: Vec<String> =
                read(path).expect("keys").into_iter().map(|key| key.id).collect();
            there.sort();
            ids.sort();
            assert_eq!(there, ids);
            ids.iter().for_each(|id| revoke(path, id).expect("there"));
        }
        let files = std::fs::read_dir(dir.path()).expect("a directory").count();
        assert_eq!(files, 2, "the keys and their lock");
    }

    #[test]
    fn a_missing_or_broken_file_opens_no_door_after_a_minute() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("gateway.keys");
        let (_, shown) = new(&path, "acme", None, vec![Permission::Read]).expect("made");
        let whole = std::fs::read(&path).expect("written");
        let keys = Keys::open(&path).expect("read");
        let mut now = Instant::now();
        for break_it in
            [(|path| std::fs::remove_file(path)) as fn(&Path) -> std::io::Result<()>, |path| {
                std::fs::write(path, "[[key]")
            }]
        {
            break_it(&path).expect("writable");
            now += Duration::from_secs(2);
            assert!(keys.caller_at(&shown, now).is_ok(), "a moment");
            now += Duration::from_secs(59);
            assert!(keys.caller_at(&shown, now).is_ok(), "less than a minute");
            now += Duration::from_secs(2);
            let refused = keys.caller_at(&shown, now).expect_err("closed");
            assert_eq!(refused.code, "keys_unreadable");
            std::fs::write(&path, &whole).expect("writable");
            now += Duration::from_secs(2);
            assert!(keys.caller_at(&shown, now).is_ok(), "the file is back");
        }
    }
}

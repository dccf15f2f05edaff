//! The key `tenant/user`: the owner of memories, and the key of every Kafka record about them.
//!
//! Invariant: code reaches a memory only through a `UserKey`, so that no user reads another's data.

use super::partition_of;
use std::fmt;
use std::sync::Arc;

/// A tenant's or user's name that no key can hold, with the field and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidName {
    pub field: &'static str,
    pub why: &'static str,
}

pub const NAME_BYTES_MAX: usize = 128;

/// `tenant/user` in one string; `slash` is the offset of the separator.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserKey {
    text: Arc<str>,
    slash: usize,
}

impl UserKey {
    pub fn new(tenant: &str, user: &str) -> Result<UserKey, InvalidName> {
        check_name("tenant", tenant)?;
        check_name("user", user)?;
        Ok(UserKey::joined(tenant, user))
    }

    /// Builds the key of a tenant's shared memories. The user part is empty, and no user's name is.
    pub fn of_tenant(tenant: &str) -> Result<UserKey, InvalidName> {
        check_name("tenant", tenant)?;
        Ok(UserKey::joined(tenant, ""))
    }

    /// Checks whether `tenant` and `user` could form a key, without allocating one.
    pub fn are_names(tenant: &str, user: &str) -> bool {
        check_name("tenant", tenant).is_ok()
            && (user.is_empty() || check_name("user", user).is_ok())
    }

    /// Returns the key of the shared memories of this user's tenant.
    pub fn tenant_key(&self) -> UserKey {
        UserKey::joined(self.tenant(), "")
    }

    /// Reads a key in the form of `as_str`.
    pub fn parse(text: &str) -> Option<UserKey> {
        let (tenant, user) = text.split_once('/')?;
        UserKey::are_names(tenant, user).then(|| UserKey::joined(tenant, user))
    }

    fn joined(tenant: &str, user: &str) -> UserKey {
        UserKey { text: format!("{tenant}/{user}").into(), slash: tenant.len() }
    }

    pub fn tenant(&self) -> &str {
        &self.text[..self.slash]
    }

    pub fn user(&self) -> &str {
        &self.text[self.slash + 1..]
    }

    pub fn is_tenant(&self) -> bool {
        self.user().is_empty()
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the partition that Kafka's default partitioner chooses for this key.
    pub fn partition(&self, partitions: i32) -> i32 {
        partition_of(self.text.as_bytes(), partitions)
    }
}

impl fmt::Debug for UserKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for UserKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn check_name(field: &'static str, name: &str) -> Result<(), InvalidName> {
    let why = if name.is_empty() {
        "is empty"
    } else if name.len() > NAME_BYTES_MAX {
        "is longer than 128 bytes"
    } else if name.contains('/') {
        "contains '/'"
    } else if name.chars().any(char::is_control) {
        "contains a control character"
    } else {
        return Ok(());
    };
    Err(InvalidName { field, why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_break_a_key_are_refused() {
        for bad in ["", "a/b", "a\u{0}b", "tab\tbed", &"x".repeat(129)] {
            assert!(UserKey::new("default", bad).is_err(), "{bad:?}");
        }
        let key = UserKey::new("acme", "zoë").expect("a plain name");
        assert_eq!((key.tenant(), key.user(), key.as_str()), ("acme", "zoë", "acme/zoë"));
        for key in [key.clone(), key.tenant_key()] {
            assert_eq!(UserKey::parse(key.as_str()), Some(key));
        }
        for bad in ["", "/", "acme", "/zoë", "acme/zoë/", "acme/z\u{1f}"] {
            assert_eq!(UserKey::parse(bad), None, "{bad:?}");
        }
    }
}

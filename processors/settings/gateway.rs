//! The options of the gateway, and of the tokens that it accepts.

use super::endpoint;
use super::ranges::{at_least_1, not_negative};
use serde::Deserialize;
use std::path::Path;
use std::time::Duration;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gateway {
    pub listen: String,
    pub keys: String,
    pub tenant: String,
    pub hosts: Vec<String>,
    #[serde(deserialize_with = "at_least_1")]
    pub connections_max: usize,
    #[serde(deserialize_with = "at_least_1")]
    pub in_flight_max: usize,
    #[serde(deserialize_with = "at_least_1")]
    pub body_bytes_max: usize,
    #[serde(deserialize_with = "at_least_1")]
    pub reply_ms: u64,
    #[serde(deserialize_with = "at_least_1")]
    pub idle_ms: u64,
    #[serde(deserialize_with = "not_negative")]
    pub requests_per_second: f64,
    #[serde(deserialize_with = "at_least_1")]
    pub streams_max: usize,
    #[serde(deserialize_with = "at_least_1")]
    pub followed_max: usize,
    pub oauth: Oauth,
}

/// The issuer whose tokens the gateway accepts, and how their claims become tenant, user and rights.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Oauth {
    pub issuer: String,
    pub resource: String,
    pub audience: String,
    pub jwks_url: String,
    pub user_claim: String,
    pub tenant_claim: String,
    pub read_scope: String,
    pub write_scope: String,
    pub forget_scope: String,
    #[serde(deserialize_with = "at_least_1")]
    pub refetch_ms: u64,
}

impl Oauth {
    pub fn is_on(&self) -> bool {
        !self.issuer.is_empty()
    }

    /// The `aud` that a token must have.
    pub fn audience(&self) -> &str {
        if self.audience.is_empty() { &self.resource } else { &self.audience }
    }

    pub(super) fn checked(&self) -> Result<(), String> {
        if !self.is_on() {
            let set = [
                ("resource", &self.resource),
                ("audience", &self.audience),
                ("jwks_url", &self.jwks_url),
                ("tenant_claim", &self.tenant_claim),
            ];
            return match set.into_iter().find(|(_, value)| !value.is_empty()) {
                Some((name, _)) => Err(format!(
                    "gateway.oauth.{name}: is set, and gateway.oauth.issuer is empty, so no token \
                     would be accepted: set gateway.oauth.issuer"
                )),
                None => Ok(()),
            };
        }
        endpoint::check_secure("gateway.oauth.issuer", &self.issuer)?;
        if self.resource.is_empty() {
            return Err(
                "gateway.oauth.resource: is empty: give the address by which clients reach \
                        MCP, such as https://memory.example.com/mcp; tokens must be made for it"
                    .into(),
            );
        }
        endpoint::check_secure("gateway.oauth.resource", &self.resource)?;
        let names = [("issuer", &self.issuer), ("resource", &self.resource)];
        if let Some((name, _)) = names.into_iter().find(|(_, url)| url.contains('?')) {
            return Err(format!("gateway.oauth.{name}: may hold no query: leave it out"));
        }
        if !self.jwks_url.is_empty() {
            endpoint::check_secure("gateway.oauth.jwks_url", &self.jwks_url)?;
        }
        if self.user_claim.is_empty() {
            return Err(
                "gateway.oauth.user_claim: is empty: name the claim with the user, such as \
                        \"sub\""
                    .into(),
            );
        }
        let scopes = [
            ("read_scope", &self.read_scope),
            ("write_scope", &self.write_scope),
            ("forget_scope", &self.forget_scope),
        ];
        // https://www.rfc-editor.org/rfc/rfc6749#section-3.3
        let is_of_scope = |byte: u8| (0x21..0x7f).contains(&byte) && !b"\"\\".contains(&byte);
        for (name, scope) in scopes {
            if !scope.bytes().all(is_of_scope) {
                return Err(format!(
                    "gateway.oauth.{name}: must be one scope, in ASCII and without spaces, quotes \
                     and backslashes, not {scope:?}"
                ));
            }
        }
        if scopes.iter().all(|(_, scope)| scope.is_empty()) {
            return Err(
                "gateway.oauth.read_scope: is empty like write_scope and forget_scope, so no \
                        token would have a right: name the scope of at least one"
                    .into(),
            );
        }
        Ok(())
    }
}

impl Gateway {
    /// True if each call needs a key or a token. Otherwise every caller on this machine is served.
    pub fn is_guarded(&self) -> bool {
        !self.keys.is_empty() || self.oauth.is_on()
    }

    pub fn keys_file(&self) -> Option<&Path> {
        Some(Path::new(&self.keys)).filter(|file| !file.as_os_str().is_empty())
    }

    pub fn reply_within(&self) -> Duration {
        Duration::from_millis(self.reply_ms)
    }

    pub fn idle_max(&self) -> Duration {
        Duration::from_millis(self.idle_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Layers;

    #[test]
    fn half_set_tokens_are_refused_by_the_option_that_is_missing_or_unsafe() {
        let whole = [
            ("issuer", "https://login.example.com"),
            ("resource", "https://memory.example.com/mcp"),
        ];
        for (changed, expected) in [
            (("issuer", ""), "gateway.oauth.resource: is set, and gateway.oauth.issuer is empty"),
            (("resource", ""), "gateway.oauth.resource: is empty"),
            (("issuer", "http://login.example.com"), "gateway.oauth.issuer: must begin with https"),
            (("issuer", "http://127.0.0.1:9"), ""),
            (("issuer", "http://localhost.example.com"), "gateway.oauth.issuer: must begin with"),
            (("resource", "memory.example.com"), "gateway.oauth.resource: must begin with https"),
            (("resource", "https://a/mcp?x"), "gateway.oauth.resource: may hold no query"),
            (("jwks_url", "ftp://a/keys"), "gateway.oauth.jwks_url: must begin with https"),
            (("jwks_url", "https://b@a/keys"), "gateway.oauth.jwks_url: may hold no password"),
            (("jwks_url", "https://a/keys?policy=1"), ""),
            (("user_claim", ""), "gateway.oauth.user_claim: is empty"),
            (("read_scope", "a b"), "gateway.oauth.read_scope: must be one scope"),
            (("refetch_ms", "0"), "gateway.oauth.refetch_ms"),
            (("tenant_claim", "org"), ""),
        ] {
            let mut layers = Layers::defaults();
            for (name, value) in whole.into_iter().chain([changed]) {
                layers.set(&format!("gateway.oauth.{name}"), value, "test").expect("an option");
            }
            let told = layers.checked().err().map(|fault| fault.to_string()).unwrap_or_default();
            assert!(told.contains(expected), "{changed:?}: {told}");
            assert_eq!(told.is_empty(), expected.is_empty(), "{changed:?}: {told}");
        }
    }
}

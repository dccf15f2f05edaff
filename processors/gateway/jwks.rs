//! The keys of an OAuth issuer ([JWKS](https://www.rfc-editor.org/rfc/rfc7517)): fetches, checks and caches
//! them.
//!
//! One fetch at a time, which only the request that began it waits for, and at most one in
//! `gateway.oauth.refetch_ms`: tokens with invented keys cannot flood the issuer, and a slow issuer
//! delays nobody whose key is known.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use outbound::{Endpoint, Failure};
use parking_lot::Mutex;
use serde_json::Value;
use settings::{Oauth, check_secure};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time after which keys are fetched anew, in the background: so long opens a key that the issuer withdrew.
const FRESH: Duration = Duration::from_secs(300);
/// Time for which the keys stay while the issuer does not answer: an outage of an issuer is over sooner,
/// and a withdrawn key must not stay open for ever to somebody who can keep the issuer from answering.
const STALE_MAX: Duration = Duration::from_secs(3600);
/// Time for the whole fetch, metadata included. The caller whose key is unknown waits as long.
const WITHIN: Duration = Duration::from_secs(5);
/// Bytes of the metadata and of the keys. 64 keys with their chains of certificates are 250 KiB.
const BYTES_MAX: u64 = 256 << 10;
const KEYS_MAX: usize = 64;
/// [NIST SP 800-131A](https://doi.org/10.6028/NIST.SP.800-131Ar2) asks for 2,048 bits. Verifying takes
/// longer with the square of the length.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

/// The one key, by which a token is verified.
pub struct Key {
    id: String,
    /// The algorithms that fit the key's type.
    pub algorithms: Vec<Algorithm>,
    pub decoding: DecodingKey,
    pub is_weak: bool,
}

/// Why there is no such key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Missing {
    /// The issuer's keys are known, and this one is not among them.
    Unknown,
    /// Another request fetches the keys now.
    Pending,
    /// The issuer did not answer.
    Away,
    /// The issuer's answer was not acceptable.
    Refused,
}

pub struct Jwks {
    options: Oauth,
    state: Mutex<State>,
    /// Held by the one fetch.
    fetching: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct State {
    keys: Arc<Vec<Key>>,
    fetched: Option<Instant>,
    tried: Option<Instant>,
    failure: Option<Failed>,
}

#[derive(Debug, PartialEq)]
struct Failed {
    missing: Missing,
    why: String,
}

impl State {
    fn is_due(&self, now: Instant, refetch: Duration) -> bool {
        self.tried.is_none_or(|tried| now.duration_since(tried) >= refetch)
    }

    fn is_younger(&self, than: Duration, now: Instant) -> bool {
        self.fetched.is_some_and(|fetched| now.duration_since(fetched) < than)
    }

    fn keys(&self, id: &str, now: Instant) -> Result<Arc<Vec<Key>>, Missing> {
        if !self.is_younger(STALE_MAX, now) {
            return Err(self.failure.as_ref().map_or(Missing::Pending, |failed| failed.missing));
        }
        match self.keys.iter().any(|key| key.id == id) {
            true => Ok(self.keys.clone()),
            false => Err(Missing::Unknown),
        }
    }

    /// Notes the outcome of a fetch. The keys stay as they were when it failed.
    fn note(&mut self, fetched: Result<Vec<Key>, Failed>, now: Instant) {
        match fetched {
            Ok(keys) => {
                (self.keys, self.fetched, self.failure) = (Arc::new(keys), Some(now), None);
            }
            Err(failed) => {
                if self.failure.as_ref() != Some(&failed) {
                    tracing::warn!(why = failed.why, "cannot get the keys of gateway.oauth.issuer");
                }
                self.failure = Some(failed);
            }
        }
    }
}

impl Jwks {
    pub fn new(options: Oauth) -> Arc<Jwks> {
        Arc::new(Jwks { options, state: Mutex::default(), fetching: Arc::default() })
    }

    /// Returns the keys among which is one with this id.
    pub async fn keys(self: &Arc<Self>, id: &str) -> Result<Arc<Vec<Key>>, Missing> {
        let now = Instant::now();
        let (keys, is_fresh) = {
            let state = self.state.lock();
            (state.keys(id, now), state.is_younger(FRESH, now))
        };
        if keys.is_ok() && is_fresh {
            return keys;
        }
        let Ok(one) = self.fetching.clone().try_lock_owned() else {
            return keys.map_err(|_| Missing::Pending);
        };
        if !self.state.lock().is_due(now, Duration::from_millis(self.options.refetch_ms)) {
            return keys;
        }
        let jwks = self.clone();
        // Goes on to its end when the caller leaves.
        let fetch = tokio::task::spawn_blocking(move || {
            let _one = one;
            jwks.state.lock().tried = Some(Instant::now());
            let fetched = fetched(&jwks.options);
            jwks.state.lock().note(fetched, Instant::now());
        });
        if keys.is_ok() {
            return keys;
        }
        let _ = fetch.await;
        self.state.lock().keys(id, Instant::now())
    }
}

/// Returns the key with this id that fits the algorithm, or any with this id.
pub fn find<'a>(keys: &'a [Key], id: &str, algorithm: Algorithm) -> Option<&'a Key> {
    let mut named = keys.iter().filter(|key| key.id == id);
    let fitting = named.clone().find(|key| key.algorithms.contains(&algorithm));
    fitting.or_else(|| named.next())
}

fn fetched(options: &Oauth) -> Result<Vec<Key>, Failed> {
    let until = Instant::now() + WITHIN;
    if !options.jwks_url.is_empty() {
        return read(&get(&options.jwks_url, until)?);
    }
    let issuer = options.issuer.trim_end_matches('/');
    let path = issuer.splitn(4, '/').nth(3).map(|path| format!("/{path}")).unwrap_or_default();
    let origin = issuer.strip_suffix(&path).unwrap_or(issuer);
    // Of OpenID Connect Discovery and of RFC 8414.
    let metadata =
        get(&format!("{issuer}/.well-known/openid-configuration"), until).or_else(|_| {
            get(&format!("{origin}/.well-known/oauth-authorization-server{path}"), until)
        })?;
    if metadata["issuer"] != *options.issuer {
        return Err(refused(format!("the metadata of {issuer} are of another issuer")));
    }
    let url = metadata["jwks_uri"].as_str().unwrap_or_default();
    check_secure("jwks_uri", url)
        .map_err(|why| refused(format!("the metadata of {issuer}: {why}")))?;
    read(&get(url, until)?)
}

fn get(url: &str, until: Instant) -> Result<Value, Failed> {
    let away = |why: String| Failed { missing: Missing::Away, why: format!("{url}: {why}") };
    let endpoint = Endpoint::new(url.to_owned(), Vec::new(), BYTES_MAX);
    let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let answer = endpoint.get("", left).map_err(|failure| away(failure.to_string()))?;
    if answer.status != 200 {
        return Err(away(format!("answered {}", answer.status)));
    }
    let body = answer.body().map_err(|failure| match failure {
        Failure::Oversized => refused(format!("{url}: the answer has more than {BYTES_MAX} bytes")),
        other => away(other.to_string()),
    })?;
    serde_json::from_slice(&body).map_err(|_| refused(format!("{url}: the answer is no JSON")))
}

fn refused(why: String) -> Failed {
    Failed { missing: Missing::Refused, why }
}

/// Reads a set of keys. Keys of other types and for other purposes are left out, as
/// [RFC 7517](https://www.rfc-editor.org/rfc/rfc7517#section-5) asks.
fn read(set: &Value) -> Result<Vec<Key>, Failed> {
    match set["keys"].as_array() {
        Some(keys) if keys.len() <= KEYS_MAX => Ok(keys.iter().filter_map(key).collect()),
        Some(keys) => Err(refused(format!("{} keys, at most {KEYS_MAX} are allowed", keys.len()))),
        None => Err(refused("no set of keys".into())),
    }
}

fn key(value: &Value) -> Option<Key> {
    let jwk: Jwk = serde_json::from_value(value.clone()).ok()?;
    if jwk.common.public_key_use.as_ref().is_some_and(|of| *of != PublicKeyUse::Signature) {
        return None;
    }
    let mut algorithms = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => vec![
            Algorithm::RS256,
            Algorithm::RS384,
            Algorithm::RS512,
            Algorithm::PS256,
            Algorithm::PS384,
            Algorithm::PS512,
        ],
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
            vec![Algorithm::ES256]
        }
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P384 => {
            vec![Algorithm::ES384]
        }
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            vec![Algorithm::EdDSA]
        }
        _ => return None,
    };
    if let Some(only) = jwk.common.key_algorithm {
        algorithms.retain(|algorithm| KeyAlgorithm::from(*algorithm) == only);
    }
    let decoding = DecodingKey::from_jwk(&jwk).ok()?;
    let is_weak = match decoding.kind() {
        DecodingKeyKind::RsaModulusExponent { n, e } => {
            let bytes = n.iter().skip_while(|byte| **byte == 0).count();
            let exponent: Vec<&u8> = e.iter().skip_while(|byte| **byte == 0).collect();
            // With the exponent 1 anybody can sign.
            !RSA_BYTES.contains(&bytes) || exponent.len() > 8 || matches!(exponent[..], [] | [1])
        }
        DecodingKeyKind::SecretOrDer(_) => false,
    };
    Some(Key { id: jwk.common.key_id?, algorithms, decoding, is_weak })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const REFETCH: Duration = Duration::from_secs(30);

    fn set(ids: &[&str]) -> Value {
        let keys = ids.iter().map(|id| {
            json!({"kty": "OKP", "crv": "Ed25519", "kid": id,
                "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"})
        });
        json!({"keys": keys.collect::<Vec<_>>()})
    }

    #[test]
    fn keys_stay_for_an_hour_while_the_issuer_is_away_and_are_asked_for_at_most_every_interval() {
        let mut state = State::default();
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let away = || Err(Failed { missing: Missing::Away, why: "refused".into() });
        assert!(state.is_due(began, REFETCH));
        state.tried = Some(began);
        state.note(away(), began);
        assert_eq!(state.keys("a", at(1)).err(), Some(Missing::Away), "nothing is known yet");
        assert!(!state.is_due(at(29), REFETCH) && state.is_due(at(30), REFETCH));
        state.note(read(&set(&["a"])), at(40));
        assert!(state.keys("a", at(41)).is_ok());
        assert_eq!(state.keys("b", at(41)).err(), Some(Missing::Unknown));
        assert!(state.is_younger(FRESH, at(339)) && !state.is_younger(FRESH, at(340)));
        state.note(away(), at(340));
        assert!(state.keys("a", at(40 + 3599)).is_ok(), "stale, and used");
        assert_eq!(state.keys("a", at(40 + 3600)).err(), Some(Missing::Away));
        state.note(read(&set(&["b"])), at(9000));
        assert_eq!(state.keys("a", at(9001)).err(), Some(Missing::Unknown), "withdrawn");
    }

    #[test]
    fn only_keys_that_can_verify_are_read_and_too_many_are_refused() {
        let mut mixed = set(&["good", "for-nothing-else"]);
        mixed["keys"][1]["use"] = "enc".into();
        let (long, short) = ("_".repeat(341) + "w", "_".repeat(170) + "w");
        let others = [
            json!({"kty": "oct", "kid": "secret", "k": "c2VjcmV0"}),
            json!({"kty": "EC", "kid": "bitcoin", "crv": "secp256k1", "x": "AA", "y": "AA"}),
            json!({"kty": "RSA", "kid": "one", "n": long, "e": "AQ"}),
            json!({"kty": "RSA", "kid": "short", "n": short, "e": "AQAB"}),
            json!({"kty": "RSA", "kid": "whole", "n": long, "e": "AQAB", "alg": "PS256"}),
            json!(7),
        ];
        mixed["keys"].as_array_mut().expect("a list").extend(others);
        let keys = read(&mixed).unwrap_or_else(|failed| panic!("{failed:?}"));
        let found: Vec<_> = keys.iter().map(|key| (&*key.id, key.is_weak)).collect();
        assert_eq!(found, [("good", false), ("one", true), ("short", true), ("whole", false)]);
        assert_eq!(keys[3].algorithms, [Algorithm::PS256]);
        let many: Vec<String> = (0..=KEYS_MAX).map(|n| n.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(read(&set(&many)).err().map(|it| it.missing), Some(Missing::Refused));
        assert!(read(&set(&many[1..])).is_ok() && read(&json!({"keys": 1})).is_err());
    }
}

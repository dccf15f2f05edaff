//! Tokens for the log-in with SASL OAUTHBEARER
//! ([RFC 7628](https://www.rfc-editor.org/rfc/rfc7628)). librdkafka asks for one at the start and
//! whenever four fifths of a token's life are over, inside `poll`.
//!
//! The token is read from a file that something else keeps fresh, such as a projected token of
//! Kubernetes or a helper beside the process, or made without a signature for a trial broker. No
//! message of this module has any part of a token.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rdkafka::client::OAuthToken;
use serde_json::{Value, json};
use std::error::Error;
use std::time::{SystemTime, UNIX_EPOCH};

/// `sasl.oauthbearer.config` of clients that read their token from a file begins with this.
pub const TOKEN_FILE: &str = "token_file=";
/// Life of a token without an expiry time: the file is read again every four minutes.
const LIFE_MS: i64 = 5 * 60_000;
/// Life of a token without signature: librdkafka's own default.
const UNSIGNED_LIFE_MS: i64 = 3_600_000;

pub type Result = std::result::Result<OAuthToken, Box<dyn Error>>;

/// Returns the next token that `sasl.oauthbearer.config` asks for.
pub fn token(config: Option<&str>) -> Result {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
    let config = config.unwrap_or_default();
    if let Some(path) = config.strip_prefix(TOKEN_FILE) {
        let read = std::fs::read_to_string(path);
        let text = read.map_err(|e| format!("kafka.token_file: cannot read {path}: {e}"))?;
        return of_text(text.trim(), now_ms).map_err(|why| format!("{path}: {why}").into());
    }
    let principal = config.split_whitespace().find_map(|word| word.strip_prefix("principal="));
    let principal = principal.ok_or(
        "set kafka.token_file, or a principal in \
                                     sasl.oauthbearer.config for a token without signature",
    )?;
    Ok(unsigned(principal, now_ms))
}

/// Reads the text of a token file. A JSON web token holds the expiry time.
fn of_text(text: &str, now_ms: i64) -> std::result::Result<OAuthToken, &'static str> {
    if text.is_empty() {
        return Err("has no token");
    }
    let claims = text.split('.').nth(1).and_then(|part| BASE64_URL_SAFE_NO_PAD.decode(part).ok());
    let claims = claims.and_then(|json| serde_json::from_slice::<Value>(&json).ok());
    let claims = claims.unwrap_or_default();
    let expires = claims["exp"].as_f64().map(|seconds| (seconds * 1000.0) as i64);
    if expires.is_some_and(|expires| expires <= now_ms) {
        return Err("the token has expired: whatever writes this file has stopped");
    }
    Ok(OAuthToken {
        token: text.to_owned(),
        principal_name: claims["sub"].as_str().unwrap_or("token").to_owned(),
        lifetime_ms: expires.unwrap_or(now_ms + LIFE_MS),
    })
}

fn unsigned(principal: &str, now_ms: i64) -> OAuthToken {
    let lifetime_ms = now_ms + UNSIGNED_LIFE_MS;
    let claims = json!({"sub": principal, "iat": now_ms / 1000, "exp": lifetime_ms / 1000});
    OAuthToken {
        token: format!("{}.{}.", encoded(&json!({"alg": "none"})), encoded(&claims)),
        principal_name: principal.to_owned(),
        lifetime_ms,
    }
}

fn encoded(part: &Value) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(part.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 1_764_000_000_000;

    #[test]
    fn a_token_without_signature_says_who_and_until_when() {
        let made = unsigned("keepsake", NOW_MS);
        let read = of_text(&made.token, NOW_MS).expect("a valid token");
        assert_eq!(
            (read.principal_name.as_str(), read.lifetime_ms),
            ("keepsake", NOW_MS + UNSIGNED_LIFE_MS)
        );
        let later = of_text(&made.token, NOW_MS + UNSIGNED_LIFE_MS).err();
        assert!(later.is_some_and(|why| why.contains("expired")));
    }

    #[test]
    fn a_token_that_is_no_json_web_token_is_read_again_soon() {
        let read = of_text("opaque", NOW_MS).expect("any text may be a token");
        assert_eq!((read.token.as_str(), read.lifetime_ms), ("opaque", NOW_MS + LIFE_MS));
        assert!(of_text("", NOW_MS).is_err());
    }

    #[test]
    fn a_missing_file_is_named() {
        let why = token(Some("token_file=/not/there")).err().expect("no such file").to_string();
        assert!(why.contains("/not/there") && why.contains("kafka.token_file"), "{why}");
        assert!(token(None).is_err());
    }
}

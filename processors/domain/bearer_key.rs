//! The key of an endpoint, sent in one header and shown nowhere.

use std::fmt;

#[derive(Clone)]
pub struct BearerKey(String);

impl BearerKey {
    /// Takes the text of a file or a variable. The error does not quote the text.
    pub fn of(text: &str) -> Result<BearerKey, &'static str> {
        let text = text.trim();
        if text.is_empty() {
            return Err("is empty");
        }
        if !text.chars().all(|c| c.is_ascii_graphic()) {
            return Err("has characters that no HTTP header may have");
        }
        Ok(BearerKey(text.to_owned()))
    }

    pub fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

/// Hides the key from logs and panic messages.
impl fmt::Debug for BearerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_shown_nowhere_and_an_unusable_one_is_not_quoted() {
        let key = BearerKey::of(" sk-secret\n").expect("a key");
        assert_eq!(
            (format!("{key:?}").as_str(), key.bearer().as_str()),
            ("Key(…)", "Bearer sk-secret")
        );
        for text in ["", " \n", "sk secret", "sk-secrét", "sk\r\nx: y"] {
            let error = BearerKey::of(text).expect_err(text);
            assert!(!error.contains("secr"), "{error}");
        }
    }
}

//! Maps the options to those of the decoder of events and requests, with which the service accepts
//! a record and a client refuses one before sending.

use super::config::Config;
use contract::decode::{self, DecodeOptions};
use domain::{KEY_BYTES_MIN, SigningKey};
use std::sync::LazyLock;

/// A sender's clock may be wrong by a time zone. A day is more than any.
const AT_AHEAD_MS_MAX: i64 = 86_400_000;

/// The signing key where none is given and none is kept: simulator, evaluation. Signatures of one
/// process are worthless to the next, and there is no next.
static OF_THIS_PROCESS: LazyLock<String> = LazyLock::new(random_key);

impl Config {
    /// Returns the key of the configuration, or else a random key of this process.
    pub fn signing_key(&self) -> SigningKey {
        let given = &self.topics.marks_key;
        SigningKey::of(if given.is_empty() { &OF_THIS_PROCESS } else { given })
    }

    /// The limits and keys by which records are decoded.
    pub fn decoding(&self) -> DecodeOptions {
        DecodeOptions {
            message_bytes_max: self.limits.message_bytes_max,
            content_bytes_max: self.limits.content_bytes_max,
            reply_allowed: decode::AllowedTopics::of(
                &self.topics.reply_allowed,
                self.topics.all_but_replies(),
            ),
            replies_topic: self.topics.replies(),
            default_deadline_ms: self.recall.deadline_ms,
            trust_proposals: self.topics.trust_proposals,
            signing_key: self.signing_key(),
            tenants: self.auth.keys().expect("the keys were checked at start"),
            recall_limit: self.recall.limit,
            limit_max: self.recall.limit_max,
            token_budget: self.recall.token_budget,
            at_ahead_ms_max: if self.clock.from_events { i64::MAX } else { AT_AHEAD_MS_MAX },
            schemas: self.schemas.reader(self.limits.message_bytes_max),
        }
    }
}

/// 64 hexadecimal digits from the system's source of randomness.
pub fn random_key() -> String {
    let mut bytes = [0; KEY_BYTES_MIN];
    getrandom::fill(&mut bytes).expect("every supported system has a source of randomness");
    hex::encode(bytes)
}

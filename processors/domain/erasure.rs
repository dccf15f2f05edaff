//! The receipt of a `forget`: digests of the erased texts, without a word of them.

use super::{MemoryId, Position, SigningKey, Time, UserKey};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::collections::BTreeSet;

/// The receipt of one `forget`.
#[derive(Clone, Debug)]
pub struct Erasure {
    pub key: UserKey,
    pub event: Position,
    pub event_id: Option<String>,
    /// The event of the `forget` that this one goes on with.
    pub continues: Option<Position>,
    pub target: Target,
    /// Number of erased memories.
    pub count: usize,
    /// Each erased text: the contents of the memories, and their earlier contents.
    pub texts: Vec<ErasedText>,
    /// Digest in hexadecimal of each session whose context window was cleared though no memory was
    /// made of the session: a restore has nothing else by which to clear the window again.
    pub sessions: Vec<String>,
    /// The turns that they came from, with those of which no memory was made, in order.
    pub turns: BTreeSet<Position>,
    /// Number of memories that the `forget` matched and did not erase.
    pub left: usize,
    pub at: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Memory,
    Session,
    Query,
    Everything,
    /// The turn before, which the user takes back.
    Turn,
}

impl Target {
    pub fn as_str(self) -> &'static str {
        match self {
            Target::Memory => "memory",
            Target::Session => "session",
            Target::Query => "query",
            Target::Everything => "everything",
            Target::Turn => "turn",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErasedText {
    pub memory: MemoryId,
    pub digest: [u8; 32],
}

impl ErasedText {
    pub fn digest_hex(&self) -> String {
        hex::encode(self.digest)
    }
}

/// The salt of one receipt. Only the reply to the `forget` carries it, so the asker can prove which
/// texts a receipt covers, and a reader of the topic cannot find a short text by trying.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Salt([u8; 32]);

impl Salt {
    pub fn of(bytes: [u8; 32]) -> Salt {
        Salt(bytes)
    }

    /// Derives the salt of a `forget` from the service's key and the place of the sender's event,
    /// so that a repeated `forget` has the same receipt, and all parts of a `forget` have one salt.
    pub fn of_forget(signing_key: &SigningKey, topic: &str, partition: i32, offset: i64) -> Salt {
        let place = [partition.to_string(), offset.to_string()];
        Salt::of(signing_key.secret_digest(&["salt", topic, &place[0], &place[1]]))
    }

    /// HMAC-SHA256 of the text under the salt.
    pub fn digest(&self, text: &str) -> [u8; 32] {
        let mut digest =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        digest.update(text.as_bytes());
        digest.finalize().into_bytes().into()
    }

    pub fn digest_hex(&self, text: &str) -> String {
        hex::encode(self.digest(text))
    }

    pub fn hex(&self) -> String {
        hex::encode(self.0)
    }
}

/// Hides the salt from logs and panic messages.
impl std::fmt::Debug for Salt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Salt(…)")
    }
}

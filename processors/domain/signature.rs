//! Signs the records that Keepsake writes to itself, and verifies the signature when one is read.
//!
//! The signature is an HMAC-SHA256 ([RFC 2104](https://www.rfc-editor.org/rfc/rfc2104)) over the
//! record and its place, under a key that only the service has. A signature is valid for one record
//! on one partition, and signatures read from the log do not help anybody to make another. The
//! signed bytes must not change, or the processes of one service refuse each other's records; a new
//! layout needs a new `VERSION`.

use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::fmt;
use std::sync::Arc;

pub const SIGNATURE: &str = "keepsake-mark";

/// Minimum length of the key. A shorter key could be guessed.
pub const KEY_BYTES_MIN: usize = 32;

/// First bytes of the data of a secret digest, which can so never pass as a signature.
const DIGEST: &[u8] = b"keepsake digest 1";

/// First bytes of the signed data, so that a later layout cannot be mistaken for this one.
const VERSION: &[u8] = b"keepsake mark 1";

#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey(Arc<[u8]>);

/// The signed parts of a record, and the place.
#[derive(Clone, Copy)]
pub struct SignedParts<'a> {
    pub topic: &'a str,
    pub partition: i32,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    /// All headers in their order. The signature's own header [`SIGNATURE`] is skipped.
    pub headers: &'a [(String, Vec<u8>)],
}

impl SigningKey {
    pub fn of(text: &str) -> SigningKey {
        SigningKey(text.as_bytes().into())
    }

    pub fn sign(&self, marked: &SignedParts<'_>) -> Vec<u8> {
        hex::encode(self.digest(marked).finalize().into_bytes()).into_bytes()
    }

    /// Verifies a signature in constant time: an almost correct one takes as long as any other.
    pub fn fits(&self, mark: &[u8], marked: &SignedParts<'_>) -> bool {
        hex::decode(mark).is_ok_and(|mark| self.digest(marked).verify_slice(&mark).is_ok())
    }

    /// Signs bytes that someone else laid out. Invariant: they begin with the name of their layout,
    /// so that none of them is taken for a record of [`SigningKey::sign`].
    pub fn sign_bytes(&self, bytes: &[u8]) -> String {
        hex::encode(self.digest_of_bytes(bytes).finalize().into_bytes())
    }

    /// Verifies the signature of bytes in constant time.
    pub fn fits_bytes(&self, signature: &[u8], bytes: &[u8]) -> bool {
        hex::decode(signature)
            .is_ok_and(|signature| self.digest_of_bytes(bytes).verify_slice(&signature).is_ok())
    }

    fn digest_of_bytes(&self, bytes: &[u8]) -> Hmac<Sha256> {
        let mut digest =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        digest.update(bytes);
        digest
    }

    /// Digests parts of text so that only a holder of the key can find them by trying: the plain
    /// digest of a short text can be guessed.
    pub fn secret_digest(&self, parts: &[&str]) -> [u8; 32] {
        let mut digest =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        digest.update(DIGEST);
        parts.iter().for_each(|part| add(&mut digest, Some(part.as_bytes())));
        digest.finalize().into_bytes().into()
    }

    /// Digests a record and the place.
    ///
    /// Invariant: two different records, or two places, never give the same bytes, since the length
    /// precedes each part.
    fn digest(&self, marked: &SignedParts<'_>) -> Hmac<Sha256> {
        let mut digest =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        digest.update(VERSION);
        digest.update(&marked.partition.to_be_bytes());
        for part in [Some(marked.topic.as_bytes()), marked.key, marked.value] {
            add(&mut digest, part);
        }
        for (name, value) in marked.headers.iter().filter(|(name, _)| name != SIGNATURE) {
            add(&mut digest, Some(name.as_bytes()));
            add(&mut digest, Some(value));
        }
        digest
    }
}

/// Adds one part behind the length. `u64::MAX` in place of the length means that the part is
/// absent.
fn add(digest: &mut Hmac<Sha256>, part: Option<&[u8]>) {
    digest.update(&part.map_or(u64::MAX, |part| part.len() as u64).to_be_bytes());
    digest.update(part.unwrap_or_default());
}

/// Hides the key from logs and panic messages.
impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MarkKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&str, &str)]) -> Vec<(String, Vec<u8>)> {
        all.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())).collect()
    }

    #[test]
    fn law_nobody_suffers_from_a_forged_signature_since_each_is_valid_for_one_record_at_one_place()
    {
        let ours = SigningKey::of("a key of at least thirty-two bytes");
        let via = headers(&[("keepsake-via", "1:5"), ("x", "y")]);
        let record = SignedParts {
            topic: "events",
            partition: 2,
            key: Some(b"acme/zoe"),
            value: Some(b"{}"),
            headers: &via,
        };
        let mark = ours.sign(&record);
        assert_eq!(mark.len(), 64);
        let with_mark = [via.clone(), headers(&[(SIGNATURE, "whatever")])].concat();
        assert!(
            ours.fits(&mark, &record)
                && ours.fits(&mark, &SignedParts { headers: &with_mark, ..record })
        );
        let other_via = headers(&[("keepsake-via", "1:6"), ("x", "y")]);
        let moved = headers(&[("keepsake-via", "1:5x"), ("", "y")]);
        for other in [
            SignedParts { topic: "event", ..record },
            SignedParts { partition: 3, ..record },
            SignedParts { key: Some(b"acme/zo"), ..record },
            SignedParts { key: None, ..record },
            SignedParts { value: Some(b"{} "), ..record },
            SignedParts { value: None, ..record },
            SignedParts { headers: &other_via, ..record },
            SignedParts { headers: &moved, ..record },
            SignedParts { headers: &[], ..record },
        ] {
            assert!(!ours.fits(&mark, &other));
        }
        assert!(!SigningKey::of("another key of at least 32 bytes..").fits(&mark, &record));
        for forged in [&b""[..], b"keepsake", &mark[..62], &[b'0'; 64], b"\xff\xff"] {
            assert!(!ours.fits(forged, &record));
        }
    }

    #[test]
    fn a_key_is_never_shown() {
        assert_eq!(format!("{:?}", SigningKey::of("secret")), "MarkKey(…)");
    }
}

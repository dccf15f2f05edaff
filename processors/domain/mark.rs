//! The mark on a record that Keepsake wrote to itself: an HMAC-SHA256 over the record and its place, under a key that only the service knows.
//! A mark fits one record on one partition, and reading marks in the log does not help to make another.

use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::fmt;
use std::sync::Arc;

pub const MARK: &str = "keepsake-mark";

/// Shorter keys could be guessed.
pub const KEY_BYTES_MIN: usize = 32;

/// Begins what is signed, so that a later way of signing cannot be taken for this one.
const VERSION: &[u8] = b"keepsake mark 1";

#[derive(Clone, PartialEq, Eq)]
pub struct MarkKey(Arc<[u8]>);

/// The parts of a record that are signed.
#[derive(Clone, Copy)]
pub struct Marked<'a> {
    pub topic: &'a str,
    pub partition: i32,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    /// All of them but the mark itself, in their order.
    pub headers: &'a [(String, Vec<u8>)],
}

impl MarkKey {
    pub fn of(text: &str) -> MarkKey {
        MarkKey(text.as_bytes().into())
    }

    pub fn sign(&self, marked: &Marked<'_>) -> Vec<u8> {
        to_hex(&self.digest(marked).finalize().into_bytes()).into_bytes()
    }

    /// Takes as long for a mark that is nearly right as for any other.
    pub fn fits(&self, mark: &[u8], marked: &Marked<'_>) -> bool {
        from_hex(mark).is_some_and(|mark| self.digest(marked).verify_slice(&mark).is_ok())
    }

    /// Invariant: two different records, or two places, are never the same bytes, since each part has its length before it.
    fn digest(&self, marked: &Marked<'_>) -> Hmac<Sha256> {
        let mut digest =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        digest.update(VERSION);
        digest.update(&marked.partition.to_be_bytes());
        let mut add = |part: Option<&[u8]>| {
            digest.update(&part.map_or(u64::MAX, |part| part.len() as u64).to_be_bytes());
            digest.update(part.unwrap_or_default());
        };
        [Some(marked.topic.as_bytes()), marked.key, marked.value].into_iter().for_each(&mut add);
        for (name, value) in marked.headers.iter().filter(|(name, _)| name != MARK) {
            add(Some(name.as_bytes()));
            add(Some(value));
        }
        digest
    }
}

/// No log and no panic may show it.
impl fmt::Debug for MarkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MarkKey(…)")
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&str, &str)]) -> Vec<(String, Vec<u8>)> {
        all.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())).collect()
    }

    #[test]
    fn law_nobody_suffers_from_a_forged_mark_since_it_fits_one_record_at_one_place() {
        let ours = MarkKey::of("a key of at least thirty-two bytes");
        let via = headers(&[("keepsake-via", "1:5"), ("x", "y")]);
        let record = Marked {
            topic: "events",
            partition: 2,
            key: Some(b"acme/zoe"),
            value: Some(b"{}"),
            headers: &via,
        };
        let mark = ours.sign(&record);
        assert_eq!(mark.len(), 64);
        let with_mark = [via.clone(), headers(&[(MARK, "whatever")])].concat();
        assert!(
            ours.fits(&mark, &record)
                && ours.fits(&mark, &Marked { headers: &with_mark, ..record })
        );
        let (other_via, moved) = (
            headers(&[("keepsake-via", "1:6"), ("x", "y")]),
            headers(&[("keepsake-via", "1:5x"), ("", "y")]),
        );
        for other in [
            Marked { topic: "event", ..record },
            Marked { partition: 3, ..record },
            Marked { key: Some(b"acme/zo"), ..record },
            Marked { key: None, ..record },
            Marked { value: Some(b"{} "), ..record },
            Marked { value: None, ..record },
            Marked { headers: &other_via, ..record },
            Marked { headers: &moved, ..record },
            Marked { headers: &[], ..record },
        ] {
            assert!(!ours.fits(&mark, &other));
        }
        assert!(!MarkKey::of("another key of at least 32 bytes..").fits(&mark, &record));
        for forged in [&b""[..], b"keepsake", &mark[..62], &[b'0'; 64], b"\xff\xff"] {
            assert!(!ours.fits(forged, &record));
        }
    }

    #[test]
    fn a_key_is_never_shown() {
        assert_eq!(format!("{:?}", MarkKey::of("secret")), "MarkKey(…)");
    }
}

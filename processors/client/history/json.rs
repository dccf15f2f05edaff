//! Reads JSON piece by piece: the elements of one list with their places in the file, and lines
//! within a bound. No more than one element or one line is in memory.

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::cell::Cell;
use std::fmt;
use std::io::{self, BufRead, Read};
use std::ops::Range;

/// Fields under which exports wrap their list.
const LISTS: [&str; 4] = ["results", "conversations", "memories", "data"];
/// Bytes of a line. Transcripts have images in lines of some megabytes.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// Calls `each` with every element of the list, and with its bytes, which may begin with a comma.
/// The list is the value, or a field of [`LISTS`].
pub fn elements(
    source: impl BufRead,
    each: &mut dyn FnMut(Value, Range<u64>),
) -> serde_json::Result<()> {
    let at = Cell::new(0);
    let counted = Counted { source, at: &at };
    let mut deserializer = serde_json::Deserializer::from_reader(counted);
    Elements { at: &at, each }.deserialize(&mut deserializer)?;
    deserializer.end()
}

/// Parses the bytes of one element.
pub fn element(bytes: &[u8]) -> serde_json::Result<Value> {
    let start = bytes.iter().position(|byte| !byte.is_ascii_whitespace() && *byte != b',');
    serde_json::from_slice(&bytes[start.unwrap_or(bytes.len())..])
}

/// Counts the bytes that were read.
struct Counted<'a, R> {
    source: R,
    at: &'a Cell<u64>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(into)?;
        self.at.set(self.at.get() + read as u64);
        Ok(read)
    }
}

struct Elements<'a> {
    at: &'a Cell<u64>,
    each: &'a mut dyn FnMut(Value, Range<u64>),
}

impl<'de> DeserializeSeed<'de> for Elements<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Elements<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        // serde_json reads a byte at a time and peeks at none behind an object.
        let mut start = self.at.get();
        while let Some(element) = list.next_element()? {
            (self.each)(element, start..self.at.get());
            start = self.at.get();
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut has_list = false;
        while let Some(name) = fields.next_key::<String>()? {
            if LISTS.contains(&name.as_str()) {
                fields.next_value_seed(Elements { at: self.at, each: &mut *self.each })?;
                has_list = true;
            } else {
                fields.next_value::<IgnoredAny>()?;
            }
        }
        match has_list {
            true => Ok(()),
            false => Err(A::Error::custom("the object has no list of results")),
        }
    }
}

/// Calls `each` with every line that is not empty; `None` for one of more than [`LINE_BYTES_MAX`].
pub fn lines(mut source: impl BufRead, each: &mut dyn FnMut(Option<&[u8]>)) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if source.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.len() as u64 == LINE_BYTES_MAX && !line.ends_with(b"\n") {
            line.clear();
            source.skip_until(b'\n')?;
            each(None);
            continue;
        }
        let text = line.trim_ascii();
        if !text.is_empty() {
            each(Some(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_is_read_again_from_its_bytes() {
        for text in [
            " [ {\"a\": 1} ,\n {\"a\": [2, \"]\"]},{\"a\":{}} ]\n",
            "{\"relations\": [], \"results\":[{\"a\": 1},{\"a\":[2,\"]\"]}, {\"a\":{}}], \"n\": 3}",
        ] {
            let mut count = 0;
            elements(text.as_bytes(), &mut |value, bytes| {
                let bytes = &text.as_bytes()[bytes.start as usize..bytes.end as usize];
                assert_eq!(element(bytes).expect("an element"), value);
                count += 1;
            })
            .expect("a list");
            assert_eq!(count, 3, "{text}");
        }
    }

    #[test]
    fn a_list_that_ends_early_or_is_none_is_an_error() {
        for text in ["[{\"a\":1},", "", "{\"a\":[]}", "7", "[] x"] {
            assert!(elements(text.as_bytes(), &mut |_, _| {}).is_err(), "{text}");
        }
    }
}

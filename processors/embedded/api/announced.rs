//! Decodes requests, and refuses those that announce more entries than their bytes can hold. The
//! decoders of `kafka-protocol` reserve room for the announced entries before they read the first,
//! and a reservation that fails ends the process.

use bytes::{Buf, Bytes, TryGetError};
use kafka_protocol::protocol::Decodable;
use kafka_protocol::protocol::buf::ByteBuf;
use std::ops::Range;

/// Why a connection is closed.
pub struct Hangup(pub String);

impl<E: std::fmt::Display> From<E> for Hangup {
    fn from(error: E) -> Hangup {
        Hangup(error.to_string())
    }
}

/// Decodes twice: first with the counts bounded, and nothing of that is kept. Records and texts are
/// slices of the frame both times.
pub fn decode<Q: Decodable>(frame: &mut Bytes, version: i16) -> Result<Q, Hangup> {
    Q::decode(&mut Bounded { left: frame.clone(), varint: 0, shift: 0 }, version)?;
    Ok(Q::decode(frame, version)?)
}

/// Bounds each number that may be a count to one more than the bytes that are left. Every entry
/// takes a byte or more, so the entries of such a list run out of bytes.
struct Bounded {
    left: Bytes,
    /// The varint that is being read, and the number of bits so far.
    varint: u64,
    shift: u32,
}

impl Buf for Bounded {
    fn remaining(&self) -> usize {
        self.left.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.left
    }

    fn advance(&mut self, count: usize) {
        self.left.advance(count);
    }

    /// A count, a length or any other number: the others matter to nobody here.
    fn try_get_i32(&mut self) -> Result<i32, TryGetError> {
        let number = self.left.try_get_i32()?;
        Ok(number.min(i32::try_from(self.left.len()).unwrap_or(i32::MAX).saturating_add(1)))
    }

    /// A byte of a varint, or a boolean, which is a varint as well. All varints of requests are
    /// counts and lengths, most of them plus one.
    fn try_get_u8(&mut self) -> Result<u8, TryGetError> {
        let byte = self.left.try_get_u8()?;
        self.varint |= u64::from(byte & 0x7f) << self.shift;
        let (requested, available) = (self.varint as usize, self.left.len());
        if requested > available + 1 {
            return Err(TryGetError { requested, available });
        }
        (self.varint, self.shift) = match byte {
            0x80.. if self.shift < 28 => (self.varint, self.shift + 7),
            _ => (0, 0),
        };
        Ok(byte)
    }
}

impl ByteBuf for Bounded {
    fn peek_bytes(&mut self, range: Range<usize>) -> Bytes {
        self.left.peek_bytes(range)
    }

    fn get_bytes(&mut self, size: usize) -> Bytes {
        self.left.get_bytes(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::{BufMut as _, BytesMut};
    use kafka_protocol::messages::{MetadataRequest, ProduceRequest};

    #[test]
    fn a_request_that_announces_more_entries_than_it_holds_is_refused() {
        for version in [1, 8, 9, 12] {
            let mut frame = BytesMut::new();
            match version {
                ..9 => frame.put_i32(i32::MAX),
                _ => frame.put_slice(&[0xff, 0xff, 0xff, 0xff, 0x0f]),
            }
            frame.put_bytes(0, 100);
            let refused = decode::<MetadataRequest>(&mut frame.freeze(), version);
            assert!(refused.is_err(), "version {version}");
        }
    }

    #[test]
    fn a_large_honest_request_is_decoded() {
        for version in [3, 8, 9, 11] {
            let records = vec![0xff; 12 << 20];
            let mut frame = BytesMut::new();
            if version < 9 {
                frame.put_slice(&[0xff, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]);
                frame.put_slice(&[0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 7]);
                frame.put_i32(records.len() as i32);
                frame.put_slice(&records);
            } else {
                frame.put_slice(&[0, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]);
                frame.put_slice(&[2, 2, b't', 2, 0, 0, 0, 7]);
                frame.put_slice(&[0x81, 0x80, 0x80, 0x06]); // the length of the records plus one
                frame.put_slice(&records);
                frame.put_slice(&[0, 0, 0]); // no tagged fields
            }
            let decoded = decode::<ProduceRequest>(&mut frame.freeze(), version);
            let decoded = decoded.unwrap_or_else(|refused| panic!("{version}: {}", refused.0));
            let partition = &decoded.topic_data[0].partition_data[0];
            assert_eq!((decoded.timeout_ms, partition.index), (i32::MAX, 7));
            assert_eq!(partition.records.as_ref().map(Bytes::len), Some(records.len()));
        }
    }
}

//! Reads and stamps the header of a record batch
//! ([format v2](https://kafka.apache.org/documentation/#recordbatch)). The records inside stay as the
//! producer wrote them; `records` reads those where the broker has to.

/// Bytes before the first record of a batch.
pub const HEADER_BYTES: usize = 61;
/// Bytes before the part that the length of a batch counts: base offset and length.
const PREFIX_BYTES: usize = 12;
/// Bytes before the part that the checksum covers.
const CHECKED_FROM: usize = 21;

/// Position of each field of the header.
mod at {
    pub const BASE_OFFSET: usize = 0;
    pub const LENGTH: usize = 8;
    pub const LEADER_EPOCH: usize = 12;
    pub const MAGIC: usize = 16;
    pub const CRC: usize = 17;
    pub const ATTRIBUTES: usize = 21;
    pub const LAST_OFFSET_DELTA: usize = 23;
    pub const BASE_TIMESTAMP: usize = 27;
    pub const MAX_TIMESTAMP: usize = 35;
    pub const PRODUCER_ID: usize = 43;
    pub const PRODUCER_EPOCH: usize = 51;
    pub const BASE_SEQUENCE: usize = 53;
    pub const RECORDS: usize = 57;
}

/// Bits of the attributes.
pub const COMPRESSION: i16 = 0b111;
pub const LOG_APPEND_TIME: i16 = 1 << 3;
pub const TRANSACTIONAL: i16 = 1 << 4;
pub const CONTROL: i16 = 1 << 5;
pub const DELETE_HORIZON: i16 = 1 << 6;

/// The header of a batch, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub base_offset: i64,
    /// Bytes of the whole batch.
    pub bytes: usize,
    pub crc: u32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub records: i32,
}

/// Why bytes are no batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// The bytes end before the batch does.
    Truncated,
    /// Another version of the format than 2.
    Magic(i8),
    /// The checksum is of other bytes.
    Crc,
    /// A field contradicts another one.
    Field,
}

impl Header {
    /// Reads the header at the beginning of these bytes.
    pub fn read(bytes: &[u8]) -> Result<Header, Invalid> {
        if bytes.len() < HEADER_BYTES {
            return Err(Invalid::Truncated);
        }
        let magic = bytes[at::MAGIC] as i8;
        if magic != 2 {
            return Err(Invalid::Magic(magic));
        }
        let length = i32_at(bytes, at::LENGTH);
        let header = Header {
            base_offset: i64_at(bytes, at::BASE_OFFSET),
            bytes: usize::try_from(length).map_err(|_| Invalid::Field)? + PREFIX_BYTES,
            crc: i32_at(bytes, at::CRC) as u32,
            attributes: i16_at(bytes, at::ATTRIBUTES),
            last_offset_delta: i32_at(bytes, at::LAST_OFFSET_DELTA),
            base_timestamp: i64_at(bytes, at::BASE_TIMESTAMP),
            max_timestamp: i64_at(bytes, at::MAX_TIMESTAMP),
            producer_id: i64_at(bytes, at::PRODUCER_ID),
            producer_epoch: i16_at(bytes, at::PRODUCER_EPOCH),
            base_sequence: i32_at(bytes, at::BASE_SEQUENCE),
            records: i32_at(bytes, at::RECORDS),
        };
        let is_whole = header.bytes >= HEADER_BYTES && header.last_offset_delta >= 0;
        if is_whole { Ok(header) } else { Err(Invalid::Field) }
    }

    /// Reads the batch at the beginning of these bytes, and compares the checksum.
    pub fn checked(bytes: &[u8]) -> Result<Header, Invalid> {
        let header = Header::read(bytes)?;
        let batch = bytes.get(..header.bytes).ok_or(Invalid::Truncated)?;
        if crc32c::crc32c(&batch[CHECKED_FROM..]) == header.crc {
            Ok(header)
        } else {
            Err(Invalid::Crc)
        }
    }

    pub fn last_offset(&self) -> i64 {
        self.base_offset + i64::from(self.last_offset_delta)
    }

    pub fn next_offset(&self) -> i64 {
        self.last_offset() + 1
    }

    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }

    /// The batch is the marker that ends a transaction.
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    pub fn is_idempotent(&self) -> bool {
        self.producer_id >= 0
    }

    pub fn last_sequence(&self) -> i32 {
        sequence_after(self.base_sequence, self.last_offset_delta)
    }
}

/// Sequences continue at 0 behind the largest number.
pub fn sequence_after(sequence: i32, by: i32) -> i32 {
    ((i64::from(sequence) + i64::from(by)) % (1 << 31)) as i32
}

/// Writes the offset of a batch, which the checksum does not cover. `LEADER_EPOCH` is always 0: the
/// log has one leader.
pub fn set_offset(batch: &mut [u8], base_offset: i64) {
    batch[at::BASE_OFFSET..at::LENGTH].copy_from_slice(&base_offset.to_be_bytes());
    batch[at::LEADER_EPOCH..at::MAGIC].copy_from_slice(&0_i32.to_be_bytes());
}

/// Gives all records of a batch the time of the append, for topics with `LogAppendTime`.
pub fn stamp(batch: &mut [u8], now_ms: i64) {
    let attributes = i16_at(batch, at::ATTRIBUTES) | LOG_APPEND_TIME;
    batch[at::ATTRIBUTES..at::LAST_OFFSET_DELTA].copy_from_slice(&attributes.to_be_bytes());
    batch[at::MAX_TIMESTAMP..at::PRODUCER_ID].copy_from_slice(&now_ms.to_be_bytes());
    seal(batch);
}

/// Writes length and checksum of a batch whose other fields are set.
pub fn seal(batch: &mut [u8]) {
    let length = (batch.len() - PREFIX_BYTES) as i32;
    batch[at::LENGTH..at::LEADER_EPOCH].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&batch[CHECKED_FROM..]);
    batch[at::CRC..at::ATTRIBUTES].copy_from_slice(&crc.to_be_bytes());
}

/// Writes a header whose length and checksum [`seal`] sets.
pub fn write_header(header: &Header) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    set_offset(&mut bytes, header.base_offset);
    bytes[at::MAGIC] = 2;
    bytes[at::ATTRIBUTES..at::LAST_OFFSET_DELTA].copy_from_slice(&header.attributes.to_be_bytes());
    bytes[at::LAST_OFFSET_DELTA..at::BASE_TIMESTAMP]
        .copy_from_slice(&header.last_offset_delta.to_be_bytes());
    bytes[at::BASE_TIMESTAMP..at::MAX_TIMESTAMP]
        .copy_from_slice(&header.base_timestamp.to_be_bytes());
    bytes[at::MAX_TIMESTAMP..at::PRODUCER_ID].copy_from_slice(&header.max_timestamp.to_be_bytes());
    bytes[at::PRODUCER_ID..at::PRODUCER_EPOCH].copy_from_slice(&header.producer_id.to_be_bytes());
    bytes[at::PRODUCER_EPOCH..at::BASE_SEQUENCE]
        .copy_from_slice(&header.producer_epoch.to_be_bytes());
    bytes[at::BASE_SEQUENCE..at::RECORDS].copy_from_slice(&header.base_sequence.to_be_bytes());
    bytes[at::RECORDS..].copy_from_slice(&header.records.to_be_bytes());
    bytes
}

/// Writes the marker that ends a transaction
/// ([control batches](https://kafka.apache.org/documentation/#controlbatch)).
pub fn marker(
    base_offset: i64,
    producer_id: i64,
    producer_epoch: i16,
    is_commit: bool,
    now_ms: i64,
) -> Vec<u8> {
    let mut batch = write_header(&Header {
        base_offset,
        bytes: 0,
        crc: 0,
        attributes: TRANSACTIONAL | CONTROL,
        last_offset_delta: 0,
        base_timestamp: now_ms,
        max_timestamp: now_ms,
        producer_id,
        producer_epoch,
        base_sequence: -1,
        records: 1,
    });
    // Attributes, deltas of time and offset, then key and value with their lengths as zigzag
    // varints.
    let key = [0, 0, 0, u8::from(is_commit)];
    let value = [0; 6];
    let mut record = vec![0, 0, 0, 2 * key.len() as u8];
    record.extend(key);
    record.push(2 * value.len() as u8);
    record.extend(value);
    record.push(0);
    batch.push(2 * record.len() as u8);
    batch.extend(record);
    seal(&mut batch);
    batch
}

/// Returns whether a marker commits: the second number of the key is the type.
pub fn is_commit(marker: &[u8]) -> bool {
    marker.get(HEADER_BYTES + 8) == Some(&1)
}

fn i64_at(bytes: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(*bytes[at..].first_chunk().expect("the caller has checked the length"))
}

fn i32_at(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(*bytes[at..].first_chunk().expect("the caller has checked the length"))
}

fn i16_at(bytes: &[u8], at: usize) -> i16 {
    i16::from_be_bytes(*bytes[at..].first_chunk().expect("the caller has checked the length"))
}

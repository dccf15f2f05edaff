//! Batches of records, written and read by another hand than the code that is tested.

use super::*;
use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records::{
    Compression, Record, RecordBatchDecoder, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};

const CODECS: [Compression; 5] = [
    Compression::None,
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
    Compression::Zstd,
];

/// Small pseudo-random numbers ([splitmix64](https://prng.di.unimi.it/splitmix64.c)).
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// A record of producer 7 with a header, at offset and time 1,000 times that.
pub(crate) fn record(offset: i64, key: Option<&str>, value: Option<&str>) -> Record {
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    Record {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: 0,
        producer_id: 7,
        producer_epoch: 1,
        timestamp_type: TimestampType::Creation,
        offset,
        sequence: offset as i32,
        timestamp: offset * 1_000,
        key: key.map(bytes),
        value: value.map(bytes),
        headers: [(StrBytes::from_static_str("name"), Some(bytes("value")))].into_iter().collect(),
    }
}

/// The batch of these records. `codec` is 0 to 4.
pub(crate) fn encode(records: &[Record], codec: usize) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    let options = RecordEncodeOptions { version: 2, compression: CODECS[codec] };
    RecordBatchEncoder::encode(&mut bytes, records, &options).unwrap();
    bytes.to_vec()
}

pub(crate) fn decode(batch: &[u8]) -> Vec<Record> {
    Header::checked(batch).unwrap();
    RecordBatchDecoder::decode(&mut Bytes::copy_from_slice(batch)).unwrap().records
}

fn three() -> Vec<Record> {
    vec![
        record(40, Some("a"), Some("one")),
        record(41, None, Some("two")),
        record(42, Some("b"), None),
    ]
}

#[test]
fn records_are_read_whatever_the_codec() {
    for codec in 0..CODECS.len() {
        let batch = encode(&three(), codec);
        let records = Records::read(&batch).unwrap();
        let views: Vec<_> = records
            .iter()
            .map(|record| record.unwrap())
            .map(|r| (r.offset, r.timestamp_ms, r.key, r.has_value))
            .collect();
        let expected = [
            (40, 40_000, Some(b"a" as &[u8]), true),
            (41, 41_000, None, true),
            (42, 42_000, Some(b"b" as &[u8]), false),
        ];
        assert_eq!(views, expected, "codec {codec}");
    }
}

#[test]
fn a_producer_sends_one_record_for_each_offset_and_keys_to_a_compacted_topic() {
    let check = |batch: &[u8], is_compacted| {
        super::check(batch, &Header::read(batch).unwrap(), is_compacted)
    };
    for codec in 0..CODECS.len() {
        let batch = encode(&three(), codec);
        assert_eq!(check(&batch, false), Ok(()));
        assert_eq!(check(&batch, true), Err(Invalid::Field), "a key is missing");
        let keyed: Vec<Record> =
            three().into_iter().map(|r| Record { key: Some(Bytes::new()), ..r }).collect();
        assert_eq!(check(&encode(&keyed, codec), true), Ok(()));
    }
    let mut gap = three();
    gap.remove(1);
    assert_eq!(check(&encode(&gap, 0), false), Err(Invalid::Field), "an offset is missing");
    let mut batch = encode(&three(), 0);
    batch[53..57].copy_from_slice(&(-1_i32).to_be_bytes());
    assert_eq!(check(&batch, false), Err(Invalid::Field), "no sequence");
    assert_eq!(check(&batch::marker(0, 7, 1, true, 9), false), Err(Invalid::Field), "a marker");
    let cut = &encode(&three(), 0)[..100];
    assert_eq!(check(cut, false), Err(Invalid::Truncated));
}

#[test]
fn retained_records_and_the_rest_of_the_batch_stay_as_they_were() {
    for codec in 0..CODECS.len() {
        let batch = encode(&three(), codec);
        assert_eq!(retain(&batch, |_| true), Ok(Retained::Whole));
        assert_eq!(retain(&batch, |_| false), Ok(Retained::Nothing));
        let Retained::Part(part) = retain(&batch, |r| r.offset == 41).unwrap() else {
            panic!("one of three records")
        };
        assert_eq!(decode(&part), three()[1..2], "codec {codec}");
        let before = Header::checked(&batch).unwrap();
        let after = Header::checked(&part).unwrap();
        let expected = Header {
            bytes: part.len(),
            crc: after.crc,
            records: 1,
            max_timestamp: 41_000,
            ..before
        };
        assert_eq!(after, expected);
        assert_eq!(retain(&part, |_| true), Ok(Retained::Whole));
    }
}

#[test]
fn the_time_of_the_append_stays() {
    let mut batch = encode(&three(), 0);
    batch::stamp(&mut batch, 99);
    let Retained::Part(part) = retain(&batch, |r| r.timestamp_ms == 99 && r.offset < 41).unwrap()
    else {
        panic!("one of three records")
    };
    assert_eq!(Header::checked(&part).unwrap().max_timestamp, 99);
}

#[test]
fn an_empty_batch_keeps_offsets_and_sequence() {
    let header = Header::read(&encode(&three(), 4)).unwrap();
    let empty = empty(&header);
    let read = Header::checked(&empty).unwrap();
    assert_eq!((read.records, read.bytes), (0, HEADER_BYTES));
    assert_eq!(read.last_offset(), 42);
    assert_eq!(read.last_sequence(), header.last_sequence());
    assert_eq!(retain(&empty, |_| true), Ok(Retained::Nothing));
    assert_eq!(decode(&empty), []);
}

#[test]
fn a_marker_is_read() {
    let batch = batch::marker(5, 7, 1, true, 9);
    let records = Records::read(&batch).unwrap();
    let record = records.iter().next().unwrap().unwrap();
    assert_eq!((record.offset, record.key), (5, Some(&[0, 0, 0, 1][..])));
}

#[test]
fn damaged_records_are_an_error_and_never_a_panic() {
    let originals: Vec<Vec<u8>> = (0..CODECS.len()).map(|c| encode(&three(), c)).collect();
    let mut refused = 0;
    for seed in 0..20_000 {
        let mut random = Random(seed);
        let mut batch = originals[seed as usize % CODECS.len()].clone();
        for _ in 0..=random.below(3) {
            // All but the length and the magic number.
            let at = 17 + random.below(batch.len() as u64 - 17) as usize;
            batch[at] = random.below(256) as u8;
        }
        if random.below(4) == 0 {
            batch.truncate(random.below(batch.len() as u64) as usize);
        }
        let read = retain(&batch, |record| record.offset % 2 == 0);
        refused += u64::from(read.is_err());
        if let Ok(Retained::Part(part)) = read {
            Header::checked(&part).unwrap();
            retain(&part, |_| true).unwrap();
        }
    }
    assert!(refused > 10_000, "{refused}");
}

#[test]
fn a_small_batch_that_decompresses_to_too_much_is_refused() {
    for codec in [1, 3, 4] {
        let header = Header::read(&encode(&three(), codec)).unwrap();
        let zeros = vec![0; DECOMPRESSED_MAX + 1];
        let mut bomb = batch::write_header(&header);
        bomb.extend_from_slice(&Codec::of(codec as i16).unwrap().compress(&zeros).unwrap());
        batch::seal(&mut bomb);
        assert!(Header::checked(&bomb).is_ok() && bomb.len() < 1 << 20);
        assert_eq!(retain(&bomb, |_| true), Err(Invalid::Field));
    }
}

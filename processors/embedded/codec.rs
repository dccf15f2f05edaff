//! Compresses and decompresses the records of a batch by the codec that its attributes name. The
//! decompressed size is bounded, because the bytes come from a client.

use crate::batch::{COMPRESSION, Invalid};
use std::borrow::Cow;
use std::io::{self, Read};

/// Largest records of a batch in bytes, decompressed. Kafka bounds only the compressed batch, by
/// default to 1 MiB.
pub const DECOMPRESSED_MAX: usize = 64 << 20;

/// Begins the stream of [snappy-java](https://github.com/xerial/snappy-java), which Kafka's clients
/// write: a magic number, then the version, and the oldest version that can read the stream.
const SNAPPY_MAGIC: &[u8] = b"\x82SNAPPY\0";
const SNAPPY_VERSIONS: &[u8] = &[0, 0, 0, 1, 0, 0, 0, 1];
/// Bytes of a block that snappy-java compresses at once.
const SNAPPY_BLOCK: usize = 32 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Codec {
    /// Reads the codec from the attributes of a batch.
    pub fn of(attributes: i16) -> Result<Codec, Invalid> {
        match attributes & COMPRESSION {
            0 => Ok(Codec::None),
            1 => Ok(Codec::Gzip),
            2 => Ok(Codec::Snappy),
            3 => Ok(Codec::Lz4),
            4 => Ok(Codec::Zstd),
            _ => Err(Invalid::Field),
        }
    }

    /// Returns an error if the bytes are damaged or decompress to more than `bytes_max`.
    pub fn decompress(self, bytes: &[u8], bytes_max: usize) -> Result<Cow<'_, [u8]>, Invalid> {
        match self {
            Codec::None => return Ok(Cow::Borrowed(bytes)),
            Codec::Gzip => read_bounded(Ok(flate2::read::MultiGzDecoder::new(bytes)), bytes_max),
            Codec::Snappy => unsnap(bytes, bytes_max),
            Codec::Lz4 => read_bounded(lz4::Decoder::new(bytes), bytes_max),
            Codec::Zstd => read_bounded(zstd::Decoder::with_buffer(bytes), bytes_max),
        }
        .map(Cow::Owned)
        .ok_or(Invalid::Field)
    }

    pub fn compress(self, bytes: &[u8]) -> io::Result<Cow<'_, [u8]>> {
        let compressed = match self {
            Codec::None => return Ok(Cow::Borrowed(bytes)),
            Codec::Gzip => {
                let mut compressed = Vec::new();
                flate2::read::GzEncoder::new(bytes, flate2::Compression::default())
                    .read_to_end(&mut compressed)?;
                compressed
            }
            Codec::Snappy => snap(bytes)?,
            Codec::Lz4 => {
                // Kafka's clients in Java read independent blocks only.
                let mut encoder = lz4::EncoderBuilder::new()
                    .block_mode(lz4::BlockMode::Independent)
                    .build(Vec::new())?;
                io::Write::write_all(&mut encoder, bytes)?;
                let (compressed, finished) = encoder.finish();
                finished?;
                compressed
            }
            Codec::Zstd => zstd::encode_all(bytes, zstd::DEFAULT_COMPRESSION_LEVEL)?,
        };
        Ok(Cow::Owned(compressed))
    }
}

fn read_bounded(decoder: io::Result<impl Read>, bytes_max: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    decoder.ok()?.take(bytes_max as u64 + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() <= bytes_max).then_some(bytes)
}

/// Reads a stream of snappy-java, or else one bare block, which other clients write.
fn unsnap(bytes: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    let mut decompressed = Vec::new();
    let Some(stream) = bytes.strip_prefix(SNAPPY_MAGIC) else {
        unsnap_block(bytes, &mut decompressed, bytes_max)?;
        return Some(decompressed);
    };
    let mut rest = stream.get(SNAPPY_VERSIONS.len()..)?;
    while let Some((length, behind)) = rest.split_first_chunk() {
        let (block, behind) = behind.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        unsnap_block(block, &mut decompressed, bytes_max)?;
        rest = behind;
    }
    rest.is_empty().then_some(decompressed)
}

fn unsnap_block(block: &[u8], decompressed: &mut Vec<u8>, bytes_max: usize) -> Option<()> {
    let from = decompressed.len();
    let to = from + snap::raw::decompress_len(block).ok()?;
    if to > bytes_max {
        return None;
    }
    decompressed.resize(to, 0);
    snap::raw::Decoder::new().decompress(block, &mut decompressed[from..]).ok()?;
    Some(())
}

fn snap(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut compressed = [SNAPPY_MAGIC, SNAPPY_VERSIONS].concat();
    for block in bytes.chunks(SNAPPY_BLOCK) {
        let block = snap::raw::Encoder::new().compress_vec(block)?;
        compressed.extend((block.len() as u32).to_be_bytes());
        compressed.extend(block);
    }
    Ok(compressed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decompresses_what_it_compressed_up_to_the_bound() {
        let bytes: Vec<u8> = (0..100_000_u32).flat_map(|n| (n % 977).to_le_bytes()).collect();
        for attributes in 0..=4 {
            let codec = Codec::of(attributes).unwrap();
            let compressed = codec.compress(&bytes).unwrap();
            assert_eq!(codec.decompress(&compressed, bytes.len()).unwrap(), bytes, "{codec:?}");
            assert_eq!(codec.decompress(&codec.compress(&[]).unwrap(), 0).unwrap(), b"" as &[u8]);
            if codec != Codec::None {
                let beyond = codec.decompress(&compressed, bytes.len() - 1);
                assert_eq!(beyond, Err(Invalid::Field), "{codec:?}");
            }
        }
        assert_eq!(Codec::of(5), Err(Invalid::Field));
    }

    #[test]
    fn a_bare_block_of_snappy_is_read() {
        let block =
            snap::raw::Encoder::new().compress_vec(b"sixteen bytes or more of text").unwrap();
        let read = Codec::Snappy.decompress(&block, 100).unwrap();
        assert_eq!(read, b"sixteen bytes or more of text" as &[u8]);
        // A block that claims 4 GiB.
        let claim = [0xff, 0xff, 0xff, 0xff, 0x0f, 0];
        assert_eq!(Codec::Snappy.decompress(&claim, 100), Err(Invalid::Field));
    }
}

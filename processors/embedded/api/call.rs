//! One request with its peer, and the answer to it.

use super::announced::{Hangup, decode};
use crate::node::Node;
use bytes::{BufMut as _, Bytes, BytesMut};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{BrokerId, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, StrBytes};

/// The only node.
pub const NODE: BrokerId = BrokerId(1);

/// The peer of a connection.
pub struct Peer {
    pub host: String,
    /// The peer has given the secret, or needs none.
    pub is_trusted: bool,
}

/// The answer to a request.
pub enum Answer {
    Now(Bytes),
    /// Sent when the journal is durable up to this number.
    When(u64, Bytes),
    /// A producer that wants no acknowledgement.
    None,
}

/// The context of a request that a handler may need besides the body.
pub struct Call<'a> {
    pub node: &'a Node,
    pub header: &'a RequestHeader,
    pub version: i16,
    pub peer: &'a mut Peer,
}

impl Call<'_> {
    pub fn with<Q: Decodable, A: Encodable + HeaderVersion>(
        &self,
        mut frame: Bytes,
        handle: impl FnOnce(&Self, Q) -> A,
    ) -> Result<Answer, Hangup> {
        let request = decode(&mut frame, self.version)?;
        Ok(Answer::Now(self.encode(&handle(self, request))?))
    }

    pub fn encode<A: Encodable + HeaderVersion>(&self, answer: &A) -> Result<Bytes, Hangup> {
        encode(self.header.correlation_id, self.version, answer)
    }

    pub fn client_id(&self) -> &str {
        self.header.client_id.as_deref().unwrap_or_default()
    }
}

/// Length, correlation id and no tags.
const ANSWER_HEADER_BYTES: usize = 9;

/// Writes a response, length prefix included.
pub fn encode<A: Encodable + HeaderVersion>(
    correlation: i32,
    version: i16,
    answer: &A,
) -> Result<Bytes, Hangup> {
    // Not grown while megabytes of records are copied.
    let mut bytes = BytesMut::with_capacity(ANSWER_HEADER_BYTES + answer.compute_size(version)?);
    bytes.put_i32(0);
    let header = ResponseHeader::default().with_correlation_id(correlation);
    header.encode(&mut bytes, A::header_version(version))?;
    answer.encode(&mut bytes, version)?;
    let length = (bytes.len() - 4) as i32;
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    Ok(bytes.freeze())
}

pub fn code(result: &Result<(), ResponseError>) -> i16 {
    result.as_ref().map_or_else(ResponseError::code, |()| 0)
}

pub fn text(text: impl Into<String>) -> StrBytes {
    StrBytes::from_string(text.into())
}

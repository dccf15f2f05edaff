//! Connections: one thread each, requests in turn, as Kafka answers them. A client has other
//! connections for requests that must not wait.

use super::api::{self, Answer, Hangup, Peer};
use super::node::Node;
use super::request_memory::{RequestMemory, Share};
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of one request: twelve megabytes of records with room for the rest.
const REQUEST_BYTES_MAX: usize = 40 << 20;
const BUFFER_BYTES: usize = 16 << 10;
/// Room for the announced bytes of a request before their arrival.
const ANNOUNCED_BYTES_MAX: usize = 1 << 20;
/// Requests up to this size need no share of the memory.
const SMALL_BYTES: usize = 128 << 10;
/// A peer that takes nothing of an answer, or sends nothing of a large request, for this long is
/// cut off.
const STALLED_FOR: Duration = Duration::from_secs(30);
const STACK_BYTES: usize = 512 << 10;

/// The open connections, so that a stop can end them.
#[derive(Default)]
pub struct Connections {
    open: Mutex<BTreeMap<u64, TcpStream>>,
}

impl Connections {
    /// Accepts until the listener fails or the broker stops.
    pub fn accept(self: &Arc<Self>, listener: &TcpListener, node: &Arc<Node>) {
        for number in 0.. {
            let (stream, address) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(_) if node.is_stopping() => return,
                Err(error) => {
                    // Out of file descriptors: some connection will end.
                    tracing::warn!(%error, "accepts a connection");
                    std::thread::sleep(Duration::from_millis(100));
                    continue;
                }
            };
            if node.is_stopping() {
                return;
            }
            self.serve(number, stream, address, node);
        }
    }

    fn serve(
        self: &Arc<Self>,
        number: u64,
        stream: TcpStream,
        address: SocketAddr,
        node: &Arc<Node>,
    ) {
        let mut open = self.open.lock();
        if open.len() >= node.options.connections_max {
            tracing::warn!(%address, max = open.len(), "refuses a connection: too many are open");
            return;
        }
        let Ok(other) = stream.try_clone() else { return };
        open.insert(number, other);
        drop(open);
        let (connections, node) = (self.clone(), node.clone());
        let spawned = std::thread::Builder::new()
            .name("log-connection".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let peer = Peer {
                    host: address.ip().to_string(),
                    is_trusted: node.options.secret.is_none(),
                };
                if let Err(Hangup(why)) = converse(&node, stream, peer) {
                    tracing::debug!(%address, why, "closes a connection");
                }
                connections.open.lock().remove(&number);
            });
        if spawned.is_err() {
            self.open.lock().remove(&number);
        }
    }

    pub fn close_all(&self) {
        for stream in self.open.lock().values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Answers in order. Answers that wait for the disk are held back while further requests are there
/// already, so that one fsync serves all of them.
fn converse(node: &Node, stream: TcpStream, mut peer: Peer) -> Result<(), Hangup> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(STALLED_FOR))?;
    let mut frames = Frames { stream, buffer: BytesMut::new() };
    let mut held: Vec<Bytes> = Vec::new();
    let mut wait_for = 0;
    loop {
        if !held.is_empty() && !frames.has_produce() {
            node.make_durable(wait_for).map_err(|error| Hangup(format!("{error:?}")))?;
            frames.write(&held)?;
            held.clear();
        }
        // Order matters: the share of a large request ends with the answer.
        let Some((frame, _share)) = frames.next(&node.memory)? else { return Ok(()) };
        match api::answer(node, &mut peer, frame)? {
            Answer::When(number, bytes) => {
                wait_for = number;
                held.push(bytes);
            }
            Answer::Now(bytes) if held.is_empty() => frames.write(&[bytes])?,
            Answer::Now(bytes) => held.push(bytes),
            Answer::None => {}
        }
    }
}

struct Frames {
    stream: TcpStream,
    buffer: BytesMut,
}

impl Frames {
    fn length(&self) -> Option<usize> {
        let length = i32::from_be_bytes(*self.buffer.first_chunk()?);
        Some(usize::try_from(length).unwrap_or(usize::MAX))
    }

    fn has_one(&self) -> bool {
        self.length().is_some_and(|length| self.buffer.len() >= 4 + length)
    }

    /// The next request is here and writes records: `ApiKey` 0.
    fn has_produce(&self) -> bool {
        self.has_one() && self.buffer.get(4..6) == Some(&[0, 0])
    }

    fn next<'a>(
        &mut self,
        memory: &'a RequestMemory,
    ) -> Result<Option<(Bytes, Option<Share<'a>>)>, Hangup> {
        let mut share = None;
        while !self.has_one() {
            let wanted = self.length().map_or(BUFFER_BYTES, |length| 4 + length);
            if wanted > REQUEST_BYTES_MAX {
                return Err(Hangup(format!("a request of {wanted} bytes")));
            }
            if wanted > SMALL_BYTES && share.is_none() {
                // Whoever has a share must go on sending.
                self.stream.set_read_timeout(Some(STALLED_FOR))?;
                share = Some(memory.take(wanted));
            }
            let had = self.buffer.len();
            let missing = wanted.saturating_sub(had);
            if missing > BUFFER_BYTES {
                // Whole, because the buffer is filled with zeros before each read.
                self.buffer.resize(had + missing.min(ANNOUNCED_BYTES_MAX), 0);
                self.stream.read_exact(&mut self.buffer[had..])?;
                continue;
            }
            self.buffer.resize(had + BUFFER_BYTES, 0);
            let read = self.stream.read(&mut self.buffer[had..]);
            self.buffer.truncate(had + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        if share.is_some() {
            self.stream.set_read_timeout(None)?;
        }
        let length = self.length().unwrap_or_default();
        let mut frame = self.buffer.split_to(4 + length);
        Ok(Some((frame.split_off(4).freeze(), share)))
    }

    fn write(&mut self, answers: &[Bytes]) -> Result<(), Hangup> {
        if let [answer] = answers {
            return Ok(self.stream.write_all(answer)?);
        }
        Ok(self.stream.write_all(&answers.concat())?)
    }
}

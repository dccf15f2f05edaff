//! A Kafka broker of one node, inside the process, on a directory. The broker speaks Kafka's
//! protocol to any client on this machine, so the service and its clients stay Kafka clients.
//!
//! ```text
//!   connection → frame → decode → handler ─► state ─► journal (one fsync for a group) → answer
//!                                              └────► segments of each partition → fetch
//! ```
//!
//! - `journal` orders all changes: records, offsets of groups, transactions, topics. A change is
//!   acknowledged when the journal is on the disk, and the next start cuts a torn end.
//! - `segments` keeps the record batches of a partition byte for byte as they were sent. They are
//!   written beside the journal and synced by a checkpoint, behind which the journal is emptied.
//! - `state` is the fold of the journal. `groups` holds the members of groups, which a restart
//!   forgets: they join again.
//!
//! The broker listens on loopback only, without replicas, ACLs or TLS. An unsupported request gets
//! Kafka's error code.

mod api;
pub mod batch;
mod change;
mod clean;
mod codec;
mod coordinator;
mod disk;
mod fault;
mod groups;
mod journal;
mod node;
mod options;
mod partition;
#[cfg(test)]
mod power_loss;
mod records;
mod request_memory;
mod segments;
mod server;
mod settings;
mod state;
mod upkeep;
mod waiter;

pub use options::EmbeddedOptions;

use domain::fault::{Fault, Result, StopName};
use node::Node;
use parking_lot::Mutex;
use server::Connections;
use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;

/// A running broker, which stops when dropped. Acknowledged changes are on the disk.
pub struct Embedded {
    node: Arc<Node>,
    connections: Arc<Connections>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    _lock: File,
}

impl Embedded {
    /// Opens the log in the directory and begins to listen.
    pub fn start(mut options: EmbeddedOptions) -> Result<Embedded> {
        if !options.listen.ip().is_loopback() {
            let what = format!("embedded.listen: {} is not a loopback address", options.listen);
            return Err(Fault::stop(StopName::ConfigInvalid, what));
        }
        let dir = &options.dir;
        options.disk.make_dir(dir).map_err(|e| fault::unwritable("makes", dir, &e))?;
        let lock = node::lock(dir)?;
        let listener = TcpListener::bind(options.listen).map_err(|error| {
            let what = format!("cannot listen on {}: {error}", options.listen);
            Fault::stop(StopName::AddressTaken, what)
        })?;
        options.listen = listener
            .local_addr()
            .map_err(|error| Fault::retry(format!("asks for the port: {error}")))?;
        let embedded = Embedded {
            node: Arc::new(Node::open(options)?),
            connections: Arc::default(),
            threads: Mutex::default(),
            _lock: lock,
        };
        let node = embedded.node.clone();
        embedded.spawn("log-checkpoint", move || node.run_checkpoints())?;
        let node = embedded.node.clone();
        embedded.spawn("log-timer", move || upkeep::run(&node))?;
        let (node, connections) = (embedded.node.clone(), embedded.connections.clone());
        embedded.spawn("log-listener", move || connections.accept(&listener, &node))?;
        Ok(embedded)
    }

    fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
        let thread =
            thread.map_err(|error| Fault::retry(format!("cannot start thread {name}: {error}")))?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// The address on which the broker listens, with the port that was taken.
    pub fn address(&self) -> SocketAddr {
        self.node.options.listen
    }

    /// Calls once with the fault that ends the broker, such as a full disk.
    pub fn on_fault(&self, notify: impl FnOnce(Fault) + Send + 'static) {
        self.node.on_fault(Box::new(notify));
    }

    /// Returns, for each partition of a topic, the highest offset of a tombstone that compaction
    /// has removed: a store that has read less may still hold the deleted records. -1: none was
    /// removed.
    pub fn tombstones_gone(&self, topic: &str) -> impl Fn(i32) -> i64 + Send + Sync + use<> {
        let (node, topic) = (self.node.clone(), topic.to_owned());
        move |partition| {
            let core = node.core();
            let number = core.state.topic(&topic).map(|(number, _)| number);
            let found = number.and_then(|number| core.state.partition(number, partition));
            found.map_or(-1, |found| found.tombstones_gone)
        }
    }

    /// Writes a checkpoint and closes the log.
    pub fn stop(self) -> Result<()> {
        self.close();
        self.node.fault().map_or(Ok(()), Err)
    }

    fn close(&self) {
        self.node.stop();
        // The listener waits for a connection.
        let _ = TcpStream::connect(self.address());
        self.connections.close_all();
        for thread in self.threads.lock().drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.close();
    }
}

//! Runs the service: opens all parts, starts the threads, and drains them at the end. The only
//! module that spawns threads of the service, and the only one that knows every part.
//!
//! ```text
//!   events topic ──► ingest ──► outputs, memories (one transaction) ──► shards ──► replies
//!                      │ texts          │ tick
//!                      ▼                ▼
//!                   encoder × n      compact ──► events topic
//!   recalls topic ─► recall ──► answer × n ────────────────────────────────────► replies
//!   memories topic ► restore × n, standby ──► shards
//!                    index: flushes the text indexes      http: /livez /readyz /metrics
//!                    old events: deletes events behind the applied offsets
//! ```
//!
//! - `assemble` opens the models, the broker and the shards, in the order in which a fault is
//!   cheapest to find, and spawns the threads.
//! - `ingesting` and `loops` hold one loop per thread. A loop polls, calls `step` of a processor
//!   and carries out the result.
//! - [`Shared`] holds the state that all threads read: the stop flag, the first fault, the clock.
//!
//! Invariant: a thread that returns a fault or panics stops all others; the first fault decides
//! the exit code.

pub mod aborts;
mod answered;
mod applied_times;
mod assemble;
mod http;
pub mod ingesting;
pub mod lag;
pub mod loops;
pub mod old_events;
pub mod pace;
mod recalling;
pub mod replier;
pub mod reply_topics;
pub mod requests;
mod shared;
pub mod stalled;
mod standby;
mod tenants;
mod unowned;

pub use assemble::pool_size;
pub use shared::Shared;

use crate::compact::Stated;
use crate::ownership::ShardRegistry;
use deployment::DataDir;
use deployment::presence::Description;
use domain::Time;
use domain::fault::{Fault, Result, StopName};
use embedded::Embedded;
use metrics::Metrics;
use models::embedder::pool::{self, Pool};
use std::fs::File;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A running Keepsake.
pub struct Service {
    /// Address of the brokers, the embedded one included.
    pub servers: String,
    /// Address of the HTTP page; the port is known even if `http.listen` asks for port 0.
    pub http: SocketAddr,
    pub metrics: Arc<Metrics>,
    pub shards: Arc<ShardRegistry>,
    /// The encoder pool of ingest. Benchmarks compare their own encoding with these counts.
    pub encoder: Pool,
    /// Starts a round of the compaction worker.
    pub compactor: crossbeam_channel::Sender<Time>,
    stated: Option<crossbeam_channel::Sender<Stated>>,
    shared: Arc<Shared>,
    threads: Vec<(&'static str, JoinHandle<()>)>,
    shutdown_ms: u64,
    // Order matters: these end last, the broker before its directory is unlocked.
    embedded: Option<Embedded>,
    _lock: File,
    data: Option<DataDir>,
}

impl Service {
    /// Starts a named thread. A fault or a panic of `work` stops the service.
    fn spawn(
        &mut self,
        name: &'static str,
        work: impl FnOnce(Arc<Shared>) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let result = catch_unwind(AssertUnwindSafe(|| work(shared.clone())));
            let result = result.unwrap_or_else(|_| {
                let what = format!("thread {name} panicked: its message is in the log above");
                Err(Fault::stop(StopName::ThreadDied, what))
            });
            if let Err(fault) = result {
                shared.fail(fault.about(name));
            }
        });
        let thread =
            thread.map_err(|error| Fault::retry(format!("cannot start thread {name}: {error}")))?;
        self.threads.push((name, thread));
        Ok(())
    }

    pub fn handle(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Blocks until this process owns partitions and has read each of them to the end. For callers
    /// that use a service right after the start.
    pub fn wait_until_ready(&self, within: Duration) -> Result<()> {
        let give_up = Instant::now() + within;
        while !self.is_ready() {
            self.fault()?;
            if Instant::now() > give_up {
                return Err(Fault::retry(format!("not ready after {} s", within.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.announce(None, false)
    }

    /// Returns whether this process answers for every owned partition.
    pub fn is_ready(&self) -> bool {
        http::is_ready(&self.shared, &self.shards)
    }

    /// Counts the memories of this process's shards and the users who have them: in the text
    /// indexes, which look up each user once and read no memory.
    pub fn memories_and_users(&self) -> Result<(usize, usize)> {
        let (mut memories, mut users) = (0, 0);
        for shard in self.shards.all() {
            let counts = shard.index.text.counts()?;
            memories += counts.values().sum::<usize>();
            users += counts.keys().filter(|key| !key.is_tenant()).count();
        }
        Ok((memories, users))
    }

    /// Notes for clients, in the data directory, that the service is ready and where its pages are.
    pub fn announce(&self, explorer: Option<String>, is_for_clients: bool) -> Result<()> {
        let Some(data) = &self.data else { return Ok(()) };
        let ready = Description {
            is_ready: true,
            explorer,
            is_for_clients,
            ..Description::of_this_process()
        };
        data.describe(&ready)
    }

    fn fault(&self) -> Result<()> {
        self.shared.fault().map_or(Ok(()), Err)
    }

    /// Blocks until the service is stopped or a thread fails, then drains like [`Service::stop`].
    pub fn wait(self) -> Result<()> {
        self.shared.await_stop();
        self.stop()
    }

    /// Lets every thread finish its present step, leave the consumer group and close the shards.
    /// Takes at most `limits.shutdown_ms`; threads that need longer are left behind.
    pub fn stop(mut self) -> Result<()> {
        self.drain();
        let (fault, embedded) = (self.fault(), self.embedded.take());
        let _data = self.data.take();
        // Order matters: the last clients end, then their broker, then the directory is unlocked.
        drop(self);
        let stopped = embedded.map_or(Ok(()), Embedded::stop);
        fault.and(stopped)
    }

    fn drain(&mut self) {
        self.shared.stop();
        let give_up = Instant::now() + Duration::from_millis(self.shutdown_ms);
        let mut waiting = std::mem::take(&mut self.threads);
        // The encoder threads end with the last handle of their pool, which may be this one.
        let (idle, _) = pool::pool(1);
        drop(std::mem::replace(&mut self.encoder, idle));
        while !waiting.is_empty() && Instant::now() < give_up {
            waiting.retain(|(_, thread)| !thread.is_finished());
            std::thread::sleep(Duration::from_millis(5));
        }
        for (name, _) in &waiting {
            tracing::warn!(
                thread = name,
                "thread did not finish in time: the log still has its unfinished work"
            );
        }
        self.shards.close_all();
    }
}

/// Drains a service that nobody holds any longer, as [`Service::stop`] does.
impl Drop for Service {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.drain();
        }
    }
}

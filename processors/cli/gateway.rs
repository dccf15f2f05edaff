//! `keepsake gateway`: serves HTTP and MCP over the topics until a signal, by itself or beside the
//! service.

use super::signals::Signals;
use ::gateway::Options;
use ::gateway::calls::{Calls, TopicNames};
#[cfg(not(feature = "mem0"))]
use ::gateway::dialect::LACKING_MEM0 as DIALECT;
use ::gateway::serve::Bound;
use client::letter::SourceTopics;
use client::rules::Rules;
use deployment::growth::check_not_retired;
use domain::fault::{Fault, Result, Stop, StopName};
#[cfg(feature = "mem0")]
use mem0::DIALECT;
use settings::Config;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

/// Pause between two looks whether the generation is retired.
const RETIRED_LOOK: Duration = Duration::from_secs(10);

/// Longest wait for the brokers at a start.
const CONNECT_MAX: Duration = Duration::from_secs(10);

pub const WHERE: &str = "\
Listens at gateway.listen, 127.0.0.1:8765 unless set. It asks for keys if gateway.keys names a file of \
them, which `keepsake keys new` makes, and for tokens if gateway.oauth.issuer names who issues them; \
without either every caller has all rights.

Example:
  keepsake gateway --brokers localhost:9092 --set gateway.keys=gateway.keys";

pub fn run(config: &Config) -> Result<ExitCode> {
    let options = options(config);
    let bound = ::gateway::serve::bind(&options)?;
    let runtime = runtime()?;
    let mut signals = Signals::handled_by(&runtime)?;
    let calls = connect(config, &options, CONNECT_MAX)?;
    let watched = calls.clone();
    tracing::info!(http = %bound.address, "the gateway serves");
    announce(bound.address);
    let stopped = async {
        tokio::select! {
            _ = signals.next() => Ok(()),
            fault = retired(config, || Some(watched.clone())) => Err(fault),
        }
    };
    runtime.block_on(::gateway::serve::run(bound, calls, &options, &DIALECT, stopped))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the address, and the page that shows the memories.
fn announce(address: SocketAddr) {
    anstream::eprintln!("gateway: http://{address}\nexplorer: http://{address}/ in a browser");
}

/// A gateway on a thread of the process that runs the service.
pub struct Beside {
    pub address: SocketAddr,
    calls: Arc<Calls>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Beside {
    /// Calls of HTTP and MCP since the start.
    pub fn calls(&self) -> u64 {
        self.calls.made()
    }

    /// Finishes the calls that have begun.
    pub fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.thread.join();
    }
}

/// Reads the keys of the gateway and binds the address.
pub fn bind(config: &Config) -> Result<Bound> {
    ::gateway::serve::bind(&options(config))
}

/// Starts the gateway beside the service, on an address that was taken before.
pub fn beside(config: &Config, bound: Bound) -> Result<Beside> {
    let options = options(config);
    let runtime = runtime()?;
    let calls = connect(config, &options, CONNECT_MAX)?;
    let (address, asked) = (bound.address, calls.clone());
    tracing::info!(http = %address, "the gateway serves");
    let (stop, stopped) = oneshot::channel();
    let thread = std::thread::Builder::new()
        .name("gateway".into())
        .spawn(move || {
            let stopped = async {
                // A sender that is dropped stops the gateway as well.
                let _ = stopped.await;
                Ok(())
            };
            let ended =
                runtime.block_on(::gateway::serve::run(bound, calls, &options, &DIALECT, stopped));
            // The service goes on.
            if let Err(fault) = ended {
                tracing::error!(%fault, "the gateway stopped: HTTP and MCP do not answer");
            }
        })
        .map_err(|e| Fault::retry(format!("start a thread: {e}")))?;
    Ok(Beside { address, calls: asked, stop, thread })
}

/// Waits until the next generation of shards has taken the events. A gateway that went on would look for
/// memories, and erase them, in a topic that nobody writes any more.
pub async fn retired(config: &Config, connected: impl Fn() -> Option<Arc<Calls>>) -> Fault {
    let mut last = String::new();
    loop {
        let (config, calls) = (config.clone(), connected());
        match tokio::task::spawn_blocking(move || match calls {
            Some(calls) => check_not_retired(&config, &calls.connection),
            None => Ok(()),
        })
        .await
        {
            Ok(Err(fault @ Fault::Stop(Stop { name: StopName::GenerationRetired, .. }))) => {
                return fault;
            }
            Ok(Err(fault)) if fault.to_string() != last => {
                last = fault.to_string();
                tracing::warn!(%fault, "cannot find out whether the next generation has taken over");
            }
            _ => {}
        }
        tokio::time::sleep(RETIRED_LOOK).await;
    }
}

pub fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Fault::retry(format!("start the runtime: {e}")))
}

/// Connects, and gives up after `away_max` if no broker can be connected to.
pub fn connect(config: &Config, options: &Options, away_max: Duration) -> Result<Arc<Calls>> {
    let topics = TopicNames {
        events: config.topics.events(),
        recalls: config.topics.recalls(),
        replies: config.topics.replies(),
        memories: config.topics.memories(),
        decisions: config.topics.decisions(),
        erasures: config.topics.erasures(),
        dead_letters: config.topics.dead_letters(),
    };
    let tenants = config.auth.keys().expect("the keys were checked at start");
    let connection = client::connection(config)?;
    // Names the address and the section of the runbook where nothing answers.
    let within = Duration::from_millis(config.kafka.connect_ms).min(CONNECT_MAX);
    connection.cluster_id_unless_away(within, away_max)?;
    let has_login = connection.options.iter().any(|(name, _)| name == "sasl.password");
    if options.gateway.is_guarded() && config.kafka.is_embedded() && !has_login {
        tracing::warn!(
            "every process on this machine reads and writes the embedded log without a key or a token \
             of the gateway: start `keepsake serve` with the same options, or with embedded.secret"
        );
    }
    Calls::connect(connection, topics, tenants, options)
}

/// The profiles that a recall of the gateway's tenants may name, in the order of a list to choose from.
fn profiles(config: &Config) -> Vec<String> {
    let own = std::iter::once(config.profile.clone()).chain(config.tenant_profiles().into_values());
    let named = own.filter(|name| !name.contains('/')).chain(config.recall.profiles.clone());
    let mut seen = BTreeSet::new();
    named.filter(|name| seen.insert(name.clone())).collect()
}

pub fn options(config: &Config) -> Options {
    Options {
        gateway: config.gateway.clone(),
        profiles: profiles(config),
        group: config.kafka.group_id.clone(),
        sources: SourceTopics::of(config),
        rules: Rules::of(config),
        drain_within: Duration::from_millis(config.limits.shutdown_ms),
    }
}

//! `keepsake serve`: runs the service until SIGTERM, SIGINT or a fault that must stop the process.

use super::gateway::{self, Beside};
use super::signals::Signals;
use clap::Args;
use client::show::grouped;
use deployment::{TemporaryData, presence};
use domain::fault::{Fault, Result, StopName};
use service::run::{Service, Shared};
use settings::Config;
use std::fs::File;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Pause between two attempts to start.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Pause between two looks until the service is ready.
const READY_LOOK: Duration = Duration::from_millis(20);

/// Longest pause between two looks whether a client is there.
const CLIENTS_LOOK: Duration = Duration::from_secs(1);

const WHERE: &str = "\
Everything runs in this process: the service, MCP and HTTP at gateway.listen, and the explorer, whose \
address is the last line. `keepsake service install` starts it with your session.

Where it keeps things:
  Without --brokers everything lies in one directory: --data DIR, else KEEPSAKE_DATA, else the data \
directory of this account. It is readable by this account only. Kafka clients reach the log at \
embedded.listen, on loopback. Every account and every process on this machine can read and write \
there, unless embedded.secret, gateway.keys or gateway.oauth.issuer is set: then clients need the \
password in DIR/secret, which the commands of this account read by themselves. With embedded.secret \
and neither keys nor an issuer, MCP, HTTP and the explorer stay closed: they would let every account in.
  With --brokers the topics of the cluster keep everything, and store.dir has a copy.";

#[derive(Args)]
#[command(after_help = WHERE)]
pub struct ServeCommand {
    /// Serve MCP, HTTP and the explorer in this process with --brokers too; without --brokers it does
    /// [gateway.listen]
    #[arg(long)]
    gateway: bool,
    /// Serve Kafka clients only
    #[arg(long, conflicts_with = "gateway")]
    no_gateway: bool,
    /// Keep nothing: a temporary directory, removed at the end, and free ports where the usual ones are
    /// taken
    #[arg(long, conflicts_with_all = ["data", "brokers"])]
    ephemeral: bool,
    /// `keepsake mcp` starts it: on free ports if the usual ones are taken, until the last client has
    /// been gone for mcp.idle_ms.
    #[arg(long, hide = true, conflicts_with_all = ["brokers", "ephemeral", "no_gateway"])]
    for_clients: bool,
}

impl ServeCommand {
    pub fn run(self, config: &Config) -> Result<ExitCode> {
        let mut config = config.clone();
        if self.ephemeral && !config.kafka.is_embedded() {
            let what = "--ephemeral: is for the log in this process, and kafka.bootstrap_servers \
                        names a cluster";
            return Err(Fault::stop(StopName::ConfigInvalid, what));
        }
        let temporary = self.ephemeral.then(|| TemporaryData::of(&mut config)).transpose()?;
        let is_embedded = config.kafka.is_embedded();
        // Order matters: a service that runs there already has the ports, too.
        if is_embedded && presence::running(&config.data.dir)?.is_some() {
            return Err(presence::in_use(&config.data.dir));
        }
        if self.for_clients || self.ephemeral {
            take_free_ports(&mut config);
        }
        // A password of the log means nothing beside a gateway that asks for no key.
        let is_open = !config.embedded.secret || config.gateway.is_guarded();
        // On a cluster many processes serve, and fewer gateways are enough.
        let is_usual = is_embedded && !self.no_gateway && !self.gateway;
        if is_usual && !is_open {
            anstream::eprintln!(
                "no gateway: embedded.secret asks for a password, and MCP and HTTP would let every \
                 account in; set gateway.keys, or open them with --gateway"
            );
        }
        let with_gateway = self.gateway || is_usual && is_open;
        run(&config, with_gateway, temporary.is_some(), self.for_clients)
    }
}

/// Replaces the port of each address that is in use. Clients find the service by its directory.
fn take_free_ports(config: &mut Config) {
    let addresses =
        [&mut config.embedded.listen, &mut config.http.listen, &mut config.gateway.listen];
    for address in addresses {
        if let Ok(mut wanted) = address.parse::<SocketAddr>()
            && TcpListener::bind(wanted).is_err()
        {
            wanted.set_port(0);
            *address = wanted.to_string();
        }
    }
}

fn run(
    config: &Config,
    with_gateway: bool,
    is_ephemeral: bool,
    is_for_clients: bool,
) -> Result<ExitCode> {
    let runtime = gateway::runtime()?;
    // Order matters: the signal handlers are installed before the service starts, so that a signal
    // during the start still leads to an orderly stop.
    let mut signals = Signals::handled_by(&runtime)?;
    tracing::info!("keepsake starts");
    // Order matters: a taken address is found before the work of a start.
    let bound = with_gateway.then(|| gateway::bind(config)).transpose()?;
    let service = start(config)?;
    tracing::info!(
        brokers = service.servers,
        http = %service.http,
        profile = config.profile,
        "keepsake serves"
    );
    let gateway = bound.map(|bound| gateway::beside(config, bound)).transpose()?;
    let mut without_clients = None;
    let shared = service.handle();
    let cause = runtime.block_on(async {
        let fault = async {
            // A stop before the service is ready is a fault, too.
            while !service.is_ready() && !shared.is_stopping() {
                tokio::time::sleep(READY_LOOK).await;
            }
            if !shared.is_stopping() {
                announce(&service, config, gateway.as_ref(), is_ephemeral);
                let explorer = gateway.as_ref().map(|gateway| explorer(gateway.address));
                if let Err(fault) = service.announce(explorer, is_for_clients) {
                    tracing::error!(%fault, "clients do not find the service");
                }
                if is_for_clients {
                    without_clients = idle(config, gateway.as_ref(), &shared).await;
                    return "the last client is gone";
                }
            }
            shared.until_stopped().await;
            "a fault"
        };
        tokio::select! {
            name = signals.next() => name,
            cause = fault => cause,
        }
    });
    tracing::info!(by = cause, "stopping: draining");
    // Order matters: calls that wait are answered before the service stops.
    if let Some(gateway) = gateway {
        gateway.stop();
    }
    service.stop()?;
    tracing::info!("stopped");
    // Order matters: a client that comes meanwhile waits, then starts another service.
    drop(without_clients);
    Ok(ExitCode::SUCCESS)
}

/// Waits until no client and no call has come for `mcp.idle_ms`, or the service stops. While the
/// returned file is open, no client can come.
async fn idle(config: &Config, gateway: Option<&Beside>, shared: &Shared) -> Option<File> {
    let idle_max = Duration::from_millis(config.mcp.idle_ms);
    let calls = || gateway.map_or(0, Beside::calls);
    let (mut since, mut before) = (Instant::now(), calls());
    while !shared.is_stopping() {
        tokio::time::sleep(CLIENTS_LOOK.min(idle_max)).await;
        // A directory that is gone has no clients.
        let without = match presence::without_clients(config) {
            Ok(Some(without)) => Some(without),
            Ok(None) => None,
            Err(_) if since.elapsed() > idle_max => return None,
            Err(_) => continue,
        };
        let is_used = without.is_none() || calls() != before;
        if is_used {
            (since, before) = (Instant::now(), calls());
        } else if since.elapsed() > idle_max {
            return without;
        }
    }
    None
}

fn explorer(address: SocketAddr) -> String {
    format!("http://{address}/")
}

/// Prints how much is remembered and where, and the addresses; the explorer's is the last line.
fn announce(service: &Service, config: &Config, gateway: Option<&Beside>, is_ephemeral: bool) {
    let is_embedded = config.kafka.is_embedded();
    let dir = if is_embedded { &config.data.dir } else { &config.store.dir };
    let counted = match service.memories_and_users() {
        Ok((memories, users)) => {
            format!(
                "{} of {} ",
                counted(memories, "memory", "memories"),
                counted(users, "user", "users")
            )
        }
        Err(fault) => {
            tracing::warn!(%fault, "cannot count the memories");
            String::new()
        }
    };
    let fate = if is_ephemeral { "; keeps nothing: the end removes the directory" } else { "" };
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
    // A reader that has gone is no reason to stop.
    let _ = writeln!(
        std::io::stdout(),
        "ready: {counted}in {}, Kafka at {}{fate}",
        dir.display(),
        service.servers
    );
    if let Some(Beside { address, .. }) = gateway {
        let explorer = explorer(*address);
        let _ = writeln!(
            std::io::stdout(),
            "gateway: http://{address} (MCP at /mcp/{{user}}/, HTTP calls at /docs)\n\
             explorer: {explorer}"
        );
    }
}

/// Formats a count: "1 user", "1,204 memories".
fn counted(count: usize, one: &str, several: &str) -> String {
    format!("{} {}", grouped(count as i64), if count == 1 { one } else { several })
}

/// Starts the service, and retries for `kafka.connect_ms` if a broker is unreachable. That covers a
/// broker that goes away during the start.
fn start(config: &Config) -> Result<Service> {
    let deadline = Instant::now() + Duration::from_millis(config.kafka.connect_ms);
    loop {
        match Service::start(config) {
            Err(Fault::Retry(retry)) if Instant::now() < deadline => {
                tracing::warn!(what = retry.what, "cannot start yet: trying again")
            }
            outcome => return outcome,
        }
        std::thread::sleep(RETRY_PAUSE);
    }
}

//! `keepsake serve`: runs the service until SIGTERM, SIGINT or a fault that must stop the process.

use super::gateway;
use clap::Args;
use domain::fault::{Fault, Result, StopName};
use service::config::Config;
use service::run::{Service, TemporaryData};
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// Pause between two attempts to start.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Pause between two looks until the service is ready.
const READY_LOOK: Duration = Duration::from_millis(20);

const WHERE: &str = "\
Where it keeps things:
  Without --brokers everything lies in one directory: --data DIR, else KEEPSAKE_DATA, else the data \
directory of this account. It is readable by this account only. Kafka clients reach the log at \
embedded.listen, on loopback. Every account and every process on this machine can read and write \
there, unless embedded.secret or gateway.keys is set: then clients need the password in DIR/secret, \
which the commands of this account read by themselves.
  With --brokers the topics of the cluster keep everything, and store.dir has a copy.";

#[derive(Args)]
#[command(after_help = WHERE)]
pub struct ServeCommand {
    /// Run the gateway in this process too, for one machine [gateway.listen]
    #[arg(long)]
    gateway: bool,
    /// Keep nothing: a temporary directory, removed at the end, and a free port
    #[arg(long, conflicts_with_all = ["data", "brokers"])]
    ephemeral: bool,
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
        run(&config, self.gateway, temporary.is_some())
    }
}

fn run(config: &Config, with_gateway: bool, is_ephemeral: bool) -> Result<ExitCode> {
    fn about(e: std::io::Error) -> Fault {
        Fault::retry(format!("listen for signals: {e}"))
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(about)?;
    // Order matters: the signal handlers are installed before the service starts, so that a signal
    // during the start still leads to an orderly stop.
    let handlers = async {
        std::io::Result::Ok((signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
    };
    let (mut terminate, mut interrupt) = runtime.block_on(handlers).map_err(about)?;
    tracing::info!("keepsake starts");
    let service = start(config)?;
    tracing::info!(
        brokers = service.servers,
        http = %service.http,
        profile = config.profile,
        "keepsake serves"
    );
    let gateway = with_gateway.then(|| gateway::beside(config)).transpose()?;
    if let Some(gateway) = &gateway {
        gateway::announce(gateway.address);
    }
    let shared = service.handle();
    let cause = runtime.block_on(async {
        let fault = async {
            // A stop before the service is ready is a fault, too.
            while !service.is_ready() && !shared.is_stopping() {
                tokio::time::sleep(READY_LOOK).await;
            }
            if !shared.is_stopping() {
                announce(&service, config, is_ephemeral);
            }
            shared.until_stopped().await;
        };
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
            () = fault => "a fault",
        }
    });
    tracing::info!(by = cause, "stopping: draining");
    // Order matters: calls that wait are answered before the service stops.
    if let Some(gateway) = gateway {
        gateway.stop();
    }
    service.stop()?;
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Prints the first line of standard output: how much is remembered, and where.
fn announce(service: &Service, config: &Config, is_ephemeral: bool) {
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
}

/// Formats a count: "1 user", "1,204 memories".
fn counted(count: usize, one: &str, several: &str) -> String {
    let digits = count.to_string();
    let mut grouped = String::new();
    for (n, digit) in digits.char_indices() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{grouped} {}", if count == 1 { one } else { several })
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

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn counts_are_grouped_by_thousands() {
        for (count, expected) in [
            (0, "0 users"),
            (1, "1 user"),
            (999, "999 users"),
            (1204, "1,204 users"),
            (1_000_000, "1,000,000 users"),
        ] {
            assert_eq!(counted(count, "user", "users"), expected);
        }
    }
}

//! `keepsake serve`: runs the service until SIGTERM, SIGINT or a fault that must stop the process.

use super::gateway;
use clap::Args;
use domain::fault::{Fault, Result};
use service::config::Config;
use service::run::Service;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// Pause between two attempts to start.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

#[derive(Args)]
pub struct ServeCommand {
    /// Run the gateway in this process too, for one machine [gateway.listen]
    #[arg(long)]
    gateway: bool,
}

impl ServeCommand {
    pub fn run(self, config: &Config) -> Result<ExitCode> {
        run(config, self.gateway)
    }
}

fn run(config: &Config, with_gateway: bool) -> Result<ExitCode> {
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
    let shared = service.handle();
    let gateway = with_gateway.then(|| gateway::beside(config)).transpose()?;
    if let Some(gateway) = &gateway {
        gateway::announce(gateway.address);
    }
    let cause = runtime.block_on(async {
        loop {
            tokio::select! {
                _ = terminate.recv() => return "SIGTERM",
                _ = interrupt.recv() => return "SIGINT",
                () = tokio::time::sleep(Duration::from_millis(20)) => {
                    if shared.is_stopping() {
                        return "a fault";
                    }
                }
            }
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

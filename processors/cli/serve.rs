//! `keepsake serve`: runs until it is told to stop, or until going on would be wrong.

use crate::config::Config;
use crate::fault::{Fault, Result};
use crate::run::Service;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// Between two attempts to start.
const AGAIN: Duration = Duration::from_millis(500);

pub fn run(config: &Config) -> Result<ExitCode> {
    let about = |e: std::io::Error| Fault::retry(format!("listens for signals: {e}"));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(about)?;
    // Before anything else: who is told to stop while it starts still leaves in good order.
    let listens = async {
        std::io::Result::Ok((signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
    };
    let (mut terminate, mut interrupt) = runtime.block_on(listens).map_err(about)?;
    tracing::info!("keepsake starts");
    let service = started(config)?;
    tracing::info!(brokers = service.servers, http = %service.http, profile = config.profile, "keepsake serves");
    let shared = service.handle();
    let told = runtime.block_on(async {
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
    tracing::info!(by = told, "told to stop: draining");
    service.stop()?;
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// A broker that goes away while a service starts is waited for as long as one that is not there yet.
fn started(config: &Config) -> Result<Service> {
    let give_up = Instant::now() + Duration::from_millis(config.kafka.connect_ms);
    loop {
        match Service::start(config) {
            Err(Fault::Retry(retry)) if Instant::now() < give_up => {
                tracing::warn!(what = retry.what, "cannot start yet: tries again")
            }
            outcome => return outcome,
        }
        std::thread::sleep(AGAIN);
    }
}

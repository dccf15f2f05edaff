//! `keepsake serve`: runs until it is told to stop, or until going on would be wrong.

use crate::config::Config;
use crate::fault::{Fault, Result};
use crate::run::Service;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

pub fn run(config: &Config) -> Result<ExitCode> {
    let about = |e: std::io::Error| Fault::retry(format!("listens for signals: {e}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(about)?;
    // Before anything else: who is told to stop while it starts still leaves in good order.
    let listens = async { std::io::Result::Ok((signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)) };
    let (mut terminate, mut interrupt) = runtime.block_on(listens).map_err(about)?;
    tracing::info!("keepsake starts");
    let service = Service::start(config)?;
    tracing::info!(brokers = service.servers, http = %service.http, profile = config.profile, "keepsake serves");
    let shared = service.handle();
    let told = runtime.block_on(async {
        loop {
            tokio::select! {
                _ = terminate.recv() => return "SIGTERM",
                _ = interrupt.recv() => return "SIGINT",
                () = tokio::time::sleep(std::time::Duration::from_millis(20)) => {
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

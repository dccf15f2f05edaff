//! Waits for the signals that stop a process in good order.

use domain::fault::{Fault, Result};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Installs the handlers: from now on a signal does not end the process by itself.
    pub fn handled_by(runtime: &Runtime) -> Result<Signals> {
        let _entered = runtime.enter();
        let handler =
            |kind| signal(kind).map_err(|e| Fault::retry(format!("listen for signals: {e}")));
        Ok(Signals {
            terminate: handler(SignalKind::terminate())?,
            interrupt: handler(SignalKind::interrupt())?,
        })
    }

    /// Returns the name of the next signal.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

//! Brings the service of a data directory for a client: joins the one that runs there, or starts one
//! that ends some minutes after its last client (`mcp.idle_ms`).

use deployment::presence::{self, Description};
use domain::fault::{Fault, Result};
use settings::Config;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// The flag of `serve` with which a service ends after its last client.
pub const FOR_CLIENTS: &str = "--for-clients";
/// Time for a service to become ready. Clients give up a call after 60 s, and would not show why.
const WITHIN: Duration = Duration::from_secs(45);
/// Time for a starting service to write its version: until then the description is the last
/// service's.
const SETTLED: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(50);
/// Bytes of the log in which the reason of a failed start is looked for.
const REASON_MAX: u64 = 16 << 10;

/// Keeps the service while this process lives.
#[derive(Default)]
pub struct Stay(Option<File>);

/// Returns the description of the service, once the service answers.
pub fn service(config: &Config, arguments: &[String], stay: &mut Stay) -> Result<Description> {
    let dir = &config.data.dir;
    let began = Instant::now();
    let mut started: Option<Started> = None;
    while began.elapsed() < WITHIN {
        // Order matters: a service that was seen before this could end.
        if stay.0.is_none() {
            stay.0 = presence::stay_for_this_process(config)?;
        }
        match presence::running(dir)? {
            _ if stay.0.is_none() => {}
            Some(found) if !found.is_of_this_version() && began.elapsed() > SETTLED => {
                // A service of another version may end.
                stay.0 = None;
                return Err(presence::another_version(dir, &found));
            }
            Some(found) if found.is_ready && found.is_of_this_version() => return Ok(found),
            Some(_) => {}
            None => match &started {
                Some(it) => it.check(config)?,
                None => started = start(config, arguments)?,
            },
        }
        std::thread::sleep(LOOK);
    }
    Err(Fault::retry(format!(
        "the keepsake service on {} is not ready after {} s: try again in a minute; its log is {}",
        dir.display(),
        WITHIN.as_secs(),
        dir.join(presence::LOG).display()
    )))
}

/// A service that this process started.
struct Started {
    ended: Receiver<std::io::Result<ExitStatus>>,
    /// Length of the log before.
    log_from: u64,
}

/// Starts a service, detached. `None`: another client does, or one runs already.
fn start(config: &Config, arguments: &[String]) -> Result<Option<Started>> {
    let dir = &config.data.dir;
    let Some(right) = presence::may_start(config)? else { return Ok(None) };
    // Another client may have started one and be done.
    if presence::running(dir)?.is_some() {
        return Ok(None);
    }
    let log = presence::open_log(config)?;
    let about = |error: std::io::Error| Fault::retry(format!("cannot start a service: {error}"));
    let log_from = log.metadata().map_err(about)?.len();
    let mut command = Command::new(std::env::current_exe().map_err(about)?);
    // The service needs neither this client's terminal nor its signals. The child inherits the
    // right to start, so nobody starts a second service, even if this client is killed at this
    // moment.
    command.args(arguments).args(["serve", FOR_CLIENTS]).process_group(0).stdin(right);
    command.stdout(log.try_clone().map_err(about)?).stderr(log);
    let mut child = command.spawn().map_err(about)?;
    let (sender, ended) = mpsc::channel();
    // Waits, so that a service that ends before this process leaves no entry in the process table.
    std::thread::spawn(move || sender.send(child.wait()));
    Ok(Some(Started { ended, log_from }))
}

impl Started {
    /// Fails with the reason if the service has ended.
    fn check(&self, config: &Config) -> Result<()> {
        let Ok(ended) = self.ended.try_recv() else { return Ok(()) };
        let log = config.data.dir.join(presence::LOG);
        let reason = reason(&log, self.log_from).unwrap_or_else(|| match ended {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        });
        Err(Fault::retry(format!(
            "the keepsake service on {} does not start: {reason} (its log is {})",
            config.data.dir.display(),
            log.display()
        )))
    }
}

/// Returns the last line of the log that begins with `error:`.
fn reason(log: &std::path::Path, from: u64) -> Option<String> {
    let mut file = File::open(log).ok()?;
    let end = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(from.max(end.saturating_sub(REASON_MAX)))).ok()?;
    let mut bytes = Vec::new();
    file.take(REASON_MAX).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    text.lines().rev().find_map(|line| line.strip_prefix("error: ")).map(str::to_owned)
}

//! `keepsake mcp`: serves MCP on standard input and output for one user, over the service of the
//! data directory, which the command starts if none runs there.
//!
//! The program that starts this one shows only the answers of the tools, so each failure is such an
//! answer: that the service does not start, and even that the command line is wrong.

use super::bring::{self, Stay};
use super::gateway::{connect, options, retired, runtime};
use ::gateway::calls::Calls;
use ::gateway::keys::Caller;
use ::gateway::mcp::{self, Bound, Client, Connect, Server};
use clap::Args;
use client::capture::{Capture, real};
use deployment::presence::Description;
use domain::UserKey;
use domain::fault::{Fault, Result};
use settings::Config;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Time after which a call answers that no broker can be connected to. A person waits for the answer, and
/// the next call tries again. With a look each half second, the answer comes within three.
const AWAY_MAX: Duration = Duration::from_secs(2);

#[derive(Args)]
pub struct McpCommand {
    /// The user whose memories the tools read and change: a name, or tenant/name. Without it the name
    /// of this account. In a project with hooks the tools have the memories of the project
    #[arg(long, value_name = "USER")]
    user: Option<String>,
}

impl McpCommand {
    pub fn run(self, config: &Config, arguments: Vec<String>) -> Result<ExitCode> {
        let user = client::parse_user(&self.user.clone().unwrap_or_else(account))?;
        let user = of_project(config, user);
        let link = Arc::new(Mutex::new(Link::default()));
        let gone = Arc::new(OnceLock::<Fault>::new());
        let (its, held, is_gone) = (config.clone(), link.clone(), gone.clone());
        let connect: Connect = Arc::new(move || match is_gone.get() {
            Some(fault) => Err(fault.clone()),
            None => {
                let asked = Instant::now();
                let mut link = held.lock().unwrap_or_else(PoisonError::into_inner);
                link.attempt(asked, &its, &arguments)
            }
        });
        // Starts the service while the client still lists the tools. A failure comes again, as the
        // answer to the first call.
        let ahead = connect.clone();
        std::thread::spawn(move || ahead());
        let runtime = runtime()?;
        let ended = runtime.block_on(async {
            let watched = async {
                let _ = gone.set(
                    retired(config, || link.try_lock().ok().and_then(|link| link.connected()))
                        .await,
                );
                std::future::pending().await
            };
            tokio::select! {
                ended = serve(connect, user) => ended,
                never = watched => never,
            }
        });
        // A call may still wait for a broker that is gone.
        runtime.shutdown_background();
        ended?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The user of the project around this directory, if hooks are on there for this user: a tool finds
/// what hooks have captured.
fn of_project(config: &Config, user: UserKey) -> UserKey {
    let found = std::env::current_dir().ok().zip(Capture::of(config).state().ok());
    let found = found.and_then(|(dir, state)| {
        let project = state.project_of(&real(&dir))?.user.clone();
        let is_of_user = project.starts_with(&format!("{}@", user.as_str()));
        is_of_user.then(|| client::parse_user(&project).ok()).flatten()
    });
    found.unwrap_or(user)
}

async fn serve(connect: Connect, user: UserKey) -> Result<()> {
    let bound = Some(Bound { caller: Caller::local(user.tenant()), user });
    mcp::stdio(Server { client: Arc::new(Client::OnDemand(connect)), bound }).await
}

/// The name under which this account remembers.
pub fn account() -> String {
    let names = ["USER", "LOGNAME"].into_iter().filter_map(|name| std::env::var(name).ok());
    names.map(|name| name.replace('/', "-")).find(|name| !name.is_empty()).unwrap_or("me".into())
}

/// Returns true if an MCP client started this process. A person at a terminal reads the error instead.
pub fn is_asked() -> bool {
    std::env::args_os().nth(1).is_some_and(|name| name == "mcp") && !std::io::stdin().is_terminal()
}

/// Serves tools that answer why this program cannot serve them.
pub fn refuse(fault: &Fault) -> Result<ExitCode> {
    let (why, user) = (fault.clone(), UserKey::new("default", "nobody"));
    let user = user.map_err(|_| fault.clone())?;
    runtime()?.block_on(serve(Arc::new(move || Err(why.clone())), user))?;
    Ok(ExitCode::from(fault.exit_code()))
}

/// The connection to the service, made anew when another service has replaced the last one.
#[derive(Default)]
struct Link {
    stay: Stay,
    calls: Option<(Arc<Calls>, Option<Description>)>,
    /// The last failed attempt: the time of its end, and the fault.
    failed: Option<(Instant, Fault)>,
}

impl Link {
    fn connected(&self) -> Option<Arc<Calls>> {
        self.calls.as_ref().map(|(calls, _)| calls.clone())
    }

    /// Connects. A call that waited for a failed attempt gets the same fault and makes no second
    /// attempt.
    fn attempt(
        &mut self,
        asked: Instant,
        config: &Config,
        arguments: &[String],
    ) -> Result<Arc<Calls>> {
        if let Some((_, fault)) = self.failed.as_ref().filter(|(ended, _)| *ended >= asked) {
            return Err(fault.clone());
        }
        let connected = self.calls(config, arguments);
        self.failed = connected.as_ref().err().map(|fault| (Instant::now(), fault.clone()));
        connected
    }

    fn calls(&mut self, config: &Config, arguments: &[String]) -> Result<Arc<Calls>> {
        let service = match config.kafka.is_embedded() {
            true => Some(bring::service(config, arguments, &mut self.stay)?),
            false => None,
        };
        if let Some((calls, of)) = &self.calls {
            if *of == service {
                return Ok(calls.clone());
            }
            calls.stop();
        }
        let calls = connect(config, &options(config), AWAY_MAX)?;
        self.calls = Some((calls.clone(), service));
        Ok(calls)
    }
}

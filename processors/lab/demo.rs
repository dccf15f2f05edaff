//! `keepsake demo`: runs the whole service on an embedded broker and shows a scripted conversation,
//! questions and compaction; then stays up for the explorer and for other programs.
//!
//! The demo is an ordinary client over Kafka and decides nothing itself: any other client gets the
//! same replies.

mod compaction;
mod lines;
mod play;
mod screen;
mod script;
mod stage;

use clap::Args;
use client::show::Output;
use domain::fault::Result;
use play::Play;
use screen::Screen;
use settings::Config;
use stage::Stage;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

/// Pause between two lines for a person who reads along. A turn takes one to ten milliseconds and
/// would scroll past.
const PACE: Duration = Duration::from_millis(100);

#[derive(Args)]
pub struct DemoCommand {
    /// Exit after the script instead of staying up until Ctrl-C
    #[arg(long)]
    exit: bool,
    /// Stay up after the script where no person watches, too
    #[arg(long, conflicts_with = "exit")]
    gateway: bool,
}

/// A gateway that runs.
pub struct OpenDoor {
    pub address: SocketAddr,
    /// Returns with a signal to stop.
    pub wait: Box<dyn FnOnce() -> Result<()>>,
    pub stop: Box<dyn FnOnce()>,
}

impl DemoCommand {
    pub fn run(
        self,
        config: &Config,
        output: Output,
        open_gateway: fn(&Config) -> Result<OpenDoor>,
    ) -> Result<ExitCode> {
        let screen = Screen::new(output);
        let is_watched = std::io::stdout().is_terminal() && output == Output::Person;
        let stays = self.gateway || (is_watched && std::io::stdin().is_terminal() && !self.exit);
        let mut play = Play {
            stage: Stage::open(config, &screen)?,
            screen,
            pace: if is_watched { PACE } else { Duration::ZERO },
        };
        let played = play.script().and_then(|()| {
            let OpenDoor { address, wait, stop } = open_gateway(&play.stage.config)?;
            let Stage { service, config, .. } = &play.stage;
            let topics = [&*config.topics.events(), &*config.topics.recalls()];
            play.screen.doors(&service.servers, topics, address, service.http);
            let done = if stays { wait() } else { Ok(()) };
            stop();
            done
        });
        // Order matters: the fault that stopped the service explains a missing reply, and is
        // reported first.
        play.stage.close().and(played)?;
        play.screen.end(&config.data.dir);
        Ok(ExitCode::SUCCESS)
    }
}

//! `keepsake compact`: a tick for every process, so that each compaction worker goes round now.

use super::Output;
use super::client::Client;
use crate::config::Config;
use crate::fault::Result;
use clap::Args;
use serde_json::json;
use std::process::ExitCode;

#[derive(Args)]
pub struct Compact {
    /// The time that the workers take as now, RFC 3339; only where the service runs with clock.from_events
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
}

impl Compact {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let mut client = Client::connect(config)?;
        let mut tick = json!({"type": "tick"});
        if let Some(at) = self.at {
            tick["at"] = at.into();
        }
        client.publish_everywhere(&tick)?;
        match output {
            Output::Json => println!("{}", json!({"status": "ok", "ticks": client.partitions})),
            Output::Person => println!(
                "asked the workers of {} partitions; watch keepsake_proposals_total",
                client.partitions
            ),
        }
        Ok(ExitCode::SUCCESS)
    }
}

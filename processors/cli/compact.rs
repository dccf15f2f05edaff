//! `keepsake compact`: publishes a tick to every partition, so that the compaction worker of every
//! process runs a round now.

use clap::Args;
use client::Client;
use client::show::Output;
use domain::fault::Result;
use serde_json::json;
use settings::Config;
use std::process::ExitCode;

#[derive(Args)]
pub struct CompactCommand {
    /// Current time for the workers, RFC 3339; only if the service runs with clock.from_events
    #[arg(long, value_name = "TIME", value_parser = super::events::time)]
    at: Option<String>,
}

impl CompactCommand {
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
                "woke the workers of {} partitions; watch keepsake_proposals_total",
                client.partitions
            ),
        }
        Ok(ExitCode::SUCCESS)
    }
}

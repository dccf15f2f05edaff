//! `keepsake topics create|check`: the topics as they should be, on a cluster of yours.

use super::{Output, client, show};
use crate::config::Config;
use crate::fault::Result;
use crate::run;
use clap::Subcommand;
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Subcommand)]
pub enum Topics {
    /// Make the topics that are missing; what is there is left as it is
    Create,
    /// Say which topics are there and whether they fit together
    Check,
}

impl Topics {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let connection = client::connection(config)?;
        connection.cluster_id(Duration::from_millis(config.kafka.connect_ms))?;
        let wanted = run::topics(config);
        if matches!(self, Topics::Create) {
            connection.create_topics(&wanted)?;
        }
        let names: Vec<String> = wanted.iter().map(|topic| topic.name.clone()).collect();
        let mut found = connection.partitions(&names)?;
        // A topic just made takes a moment to be seen by every broker.
        for _ in 0..50 {
            if matches!(self, Topics::Check) || found.len() == names.len() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
            found = connection.partitions(&names)?;
        }
        match output {
            Output::Json => println!("{}", json!({"topics": found})),
            Output::Person => {
                let cell = |name: &String| {
                    found
                        .get(name)
                        .map_or("missing".to_owned(), |count| format!("{count} partitions"))
                };
                let rows: Vec<Vec<String>> =
                    names.iter().map(|name| vec![name.clone(), cell(name)]).collect();
                print!("{}", show::table(&["topic", "state"], &rows));
            }
        }
        run::check_topics(config, &found)?;
        Ok(ExitCode::SUCCESS)
    }
}

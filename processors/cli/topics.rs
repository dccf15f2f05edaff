//! `keepsake topics create|check|acls`: creates the topics on a cluster, checks them, or prints the
//! rights that each principal needs.

mod acls;

use clap::Subcommand;
use client::show::{self, Output};
use deployment::topic_settings::{Difference, Finding, Verdict, differences, findings, first_stop};
use deployment::topics;
use domain::fault::Result;
use serde_json::json;
use settings::Config;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Subcommand)]
pub enum TopicsCommand {
    /// Create missing topics, and fail if an existing one, which is not changed, is otherwise
    Create,
    /// Show which topics exist and how they are set, and check that they fit together
    Check,
    /// Print the least rights at Kafka of the service, publishers, askers and operators
    #[command(after_help = acls::EXAMPLES)]
    Acls(Box<acls::Acls>),
}

fn cells(found: &Finding) -> Vec<String> {
    let Finding { topic, setting, value, expected, verdict, .. } = found;
    let value = if value == "9223372036854775807" { "no limit" } else { value };
    [topic.as_str(), setting, value, expected, &verdict.to_string()].map(str::to_owned).to_vec()
}

impl TopicsCommand {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        if let TopicsCommand::Acls(acls) = self {
            acls.run(config, output);
            return Ok(ExitCode::SUCCESS);
        }
        let connection = client::connection(config)?;
        connection.cluster_id(Duration::from_millis(config.kafka.connect_ms))?;
        let wanted = topics::topics(config);
        let names: Vec<String> = wanted.iter().map(|topic| topic.name.clone()).collect();
        let mut found = connection.partitions(&names)?;
        if matches!(self, TopicsCommand::Create) {
            let mut missing = wanted.clone();
            missing.retain(|topic| !found.contains_key(&topic.name));
            if !missing.is_empty() {
                topics::create_topics(config, &connection, &missing)?;
                found = connection.partitions(&names)?;
            }
        }
        // Every broker needs a moment to list a new topic.
        for _ in 0..50 {
            if matches!(self, TopicsCommand::Check) || found.len() == names.len() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
            found = connection.partitions(&names)?;
        }
        let facts = connection.cluster_facts(&names)?;
        let settings = findings(config, &facts);
        let differences = match self {
            TopicsCommand::Create => differences(config, &wanted, &found, &facts),
            _ => Vec::new(),
        };
        match output {
            Output::Json => {
                let report =
                    json!({"topics": found, "settings": settings, "differences": differences});
                println!("{report}");
            }
            Output::Person => {
                let rows: Vec<Vec<String>> = names
                    .iter()
                    .map(|name| {
                        let state = found
                            .get(name)
                            .map_or("missing".to_owned(), |count| format!("{count} partitions"));
                        vec![name.clone(), state]
                    })
                    .collect();
                print!("{}", show::table(&["topic", "state"], &rows));
                let rows: Vec<Vec<String>> = settings.iter().map(cells).collect();
                let head = ["topic", "setting", "value", "expected", "verdict"];
                print!("\n{}", show::table(&head, &rows));
                for found in settings.iter().filter(|found| found.verdict != Verdict::Fine) {
                    println!("{} of {}: {}", found.setting, found.topic, found.why);
                }
            }
        }
        topics::check_topics(config, &found)?;
        first_stop(&settings)?;
        for Difference { topic, setting, value, asked, cure } in &differences {
            eprintln!("topic {topic} has {setting} = {value}, and {asked} is asked for: {cure}");
        }
        Ok(if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

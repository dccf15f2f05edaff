//! `keepsake config check|show`: what is wrong with the configuration, or all of it with where each value came from.

use super::{Output, show};
use crate::config::Layers;
use crate::fault::Result;
use crate::profile::Profiles;
use clap::Subcommand;
use serde_json::{Value, json};
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum Configuration {
    /// Say what is wrong and exit 2, or say that it is fine
    Check,
    /// Show every effective value and where it came from
    Show,
}

impl Configuration {
    pub fn run(self, layers: &Layers, output: Output) -> Result<ExitCode> {
        match self {
            Configuration::Check => {
                Profiles::load(&layers.checked()?)?;
                match output {
                    Output::Json => println!("{}", json!({"status": "ok"})),
                    Output::Person => println!("the configuration is fine"),
                }
            }
            Configuration::Show => show_all(layers, output),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Passwords of brokers and the key of the marks.
fn is_secret(path: &str) -> bool {
    ["password", "secret", "ssl.key", "marks_key"].iter().any(|word| path.contains(word))
}

fn show_all(layers: &Layers, output: Output) {
    let shown = layers.shown().into_iter().map(|(path, value, origin)| {
        let value = if is_secret(&path) && value != "\"\"" { "\"…\"".to_owned() } else { value };
        (path, value, origin)
    });
    match output {
        Output::Json => {
            let all: serde_json::Map<String, Value> = shown
                .map(|(path, value, origin)| (path, json!({"value": value, "from": origin})))
                .collect();
            println!("{}", Value::Object(all));
        }
        Output::Person => {
            let rows: Vec<Vec<String>> =
                shown.map(|(path, value, origin)| vec![path, value, origin]).collect();
            print!("{}", show::table(&["option", "value", "from"], &rows));
        }
    }
}

//! `keepsake config check|show`: validates the configuration, or prints every value with the
//! origin.

use clap::Subcommand;
use client::show::{self, Output};
use domain::fault::Result;
use profiles::Profiles;
use serde_json::{Value, json};
use settings::{Layers, is_secret, may_be_secret};
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum ConfigCommand {
    /// Validate the configuration; exits 2 with the reason if it is invalid
    Check,
    /// Show every effective value and its origin
    Show,
}

impl ConfigCommand {
    pub fn run(self, layers: &Layers, output: Output) -> Result<ExitCode> {
        match self {
            ConfigCommand::Check => {
                let config = layers.checked()?;
                Profiles::load(&config)?;
                let warnings = Profiles::warnings(&config)?;
                // A limit erases, and nothing brings back: each is shown before the start.
                let retain = config.retain.rules().expect("checked above").explained();
                match output {
                    Output::Json => println!(
                        "{}",
                        json!({"status": "ok", "retain": retain, "warnings": warnings})
                    ),
                    Output::Person => {
                        warnings.iter().for_each(|warning| println!("warning: {warning}"));
                        retain.iter().for_each(|rule| println!("{rule}"));
                        println!("the configuration is fine");
                    }
                }
            }
            ConfigCommand::Show => show_all(layers, output),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints all options, and those of the chosen profile under the names of its policy's document.
fn show_all(layers: &Layers, output: Output) {
    // An invalid configuration is shown, too: `config check` names the fault.
    let of_document = layers.checked().and_then(|config| Profiles::document_options(&config));
    let of_document = of_document
        .unwrap_or_default()
        .into_iter()
        .map(|option| (format!("options.{}", option.name), option.value, option.origin));
    let shown = layers.shown().into_iter().chain(of_document).map(|(path, value, origin)| {
        let is_hidden = is_secret(&path) && value != "\"\"" || may_be_secret(&path, &value);
        let value = if is_hidden { "\"…\"".to_owned() } else { value };
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

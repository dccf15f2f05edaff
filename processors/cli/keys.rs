//! `keepsake keys`: makes, lists and revokes the keys of the gateway.

use ::gateway::keys::{self, Key, Permission};
use clap::Subcommand;
use client::show::{self, Output};
use domain::fault::{Fault, Result, StopName};
use serde_json::json;
use settings::Config;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum KeysCommand {
    /// Make a key and print it, once
    New {
        /// Tenant whose memories the key opens
        #[arg(long, default_value = "default")]
        tenant: String,
        /// The only user that the key is for [default: all users of the tenant]
        #[arg(long)]
        user: Option<String>,
        /// read, write, forget, admin, with commas between
        #[arg(long, value_delimiter = ',', value_parser = right, default_value = "read,write")]
        rights: Vec<Permission>,
        /// Do nothing where the file has a key already, as after a restart of a container
        #[arg(long)]
        once: bool,
    },
    /// List the keys by their ids
    List,
    /// Revoke a key by its id; a running gateway refuses it within a second
    Revoke { id: String },
}

fn right(text: &str) -> std::result::Result<Permission, String> {
    Permission::parse(text).ok_or_else(|| "must be read, write, forget or admin".to_owned())
}

impl KeysCommand {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        if config.gateway.keys.is_empty() {
            let what = "gateway.keys is empty: name the file of the keys, as in --set \
                        gateway.keys=gateway.keys";
            return Err(Fault::stop(StopName::ConfigInvalid, what));
        }
        let path = PathBuf::from(&config.gateway.keys);
        match self {
            KeysCommand::New { once: true, .. }
                if path.exists() && !keys::read(&path)?.is_empty() => {}
            KeysCommand::New { tenant, user, rights, once: _ } => {
                let (key, shown) = keys::new(&path, &tenant, user.as_deref(), rights)?;
                match output {
                    Output::Json => anstream::println!("{}", json!({"id": key.id, "key": shown})),
                    Output::Person => anstream::println!("{shown}"),
                }
            }
            KeysCommand::List => {
                let keys = keys::read(&path)?;
                match output {
                    Output::Json => anstream::println!("{}", json!(keys)),
                    Output::Person => {
                        let rows: Vec<Vec<String>> = keys.iter().map(row).collect();
                        let head = ["id", "tenant", "user", "rights", "made"];
                        anstream::print!("{}", show::table(&head, &rows));
                    }
                }
            }
            KeysCommand::Revoke { id } => keys::revoke(&path, &id)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn row(key: &Key) -> Vec<String> {
    let rights: Vec<String> =
        key.rights.iter().map(|right| format!("{right:?}").to_lowercase()).collect();
    vec![
        key.id.clone(),
        key.tenant.clone(),
        key.user.clone().unwrap_or_else(|| "all".into()),
        rights.join(","),
        key.created_at.clone(),
    ]
}

//! `keepsake bench`.
use super::Output;
use crate::config::Config;
use crate::fault::Result;
use std::process::ExitCode;
#[derive(clap::Subcommand)]
pub enum Bench {
    /// Recall
    Recall,
}
impl Bench {
    pub fn run(self, _config: &Config, _output: Output) -> Result<ExitCode> {
        Ok(ExitCode::SUCCESS)
    }
}

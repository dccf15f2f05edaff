//! `keepsake demo`.
use super::Output;
use crate::config::Config;
use crate::fault::Result;
use std::process::ExitCode;
#[derive(clap::Args)]
pub struct Demo {
    /// End after the script instead of going on as a chat
    #[arg(long)]
    exit: bool,
}
impl Demo {
    pub fn run(self, _config: &Config, _output: Output) -> Result<ExitCode> {
        let _ = self.exit;
        Ok(ExitCode::SUCCESS)
    }
}

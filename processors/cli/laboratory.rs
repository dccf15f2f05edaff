//! The commands of the crate `lab`, and the gateway that a demo opens.

use super::gateway;
use super::signals::Signals;
use clap::Subcommand;
use client::show::Output;
use domain::fault::{Fault, Result, StopName};
use lab::{bench, demo, eval, whatif};
use serde_json::Value;
use settings::Config;
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum LabCommand {
    /// Show all features with a scripted conversation, and keep nothing
    Demo(demo::DemoCommand),
    /// Measure quality on conversations whose questions have known answers
    Eval(eval::EvalCommand),
    /// Try another profile on the same turns: which memories would be gained and lost
    #[command(after_help = whatif::EXAMPLES)]
    Whatif(whatif::WhatIfCommand),
    /// Measure speed, as ratios to the bare parts measured in the same run
    #[command(subcommand)]
    Bench(bench::BenchCommand),
}

impl LabCommand {
    /// Returns whether `--data` is an option of the command itself, the file to read.
    pub fn reads_data(&self) -> bool {
        matches!(self, LabCommand::Eval(_) | LabCommand::Whatif(_))
    }

    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        match self {
            LabCommand::Demo(demo) => demo.run(config, output, of_demo),
            LabCommand::Eval(eval) => eval.run(config, output),
            LabCommand::Whatif(whatif) => whatif.run(config, output),
            LabCommand::Bench(bench) => bench.run(config, output),
        }
    }
}

/// Counts by kind the events that an import would keep.
pub fn preview(config: &Config, events: &[Value]) -> Result<Option<Value>> {
    lab::preview::of(config, events).map(Some)
}

/// Starts the gateway of a demo, on another port if the one of the configuration is in use.
fn of_demo(config: &Config) -> Result<demo::OpenDoor> {
    let bound = gateway::bind(config).or_else(|fault| match fault {
        Fault::Stop(stop) if stop.name == StopName::AddressTaken => {
            let mut config = config.clone();
            config.gateway.listen = "127.0.0.1:0".to_owned();
            gateway::bind(&config)
        }
        other => Err(other),
    })?;
    let running = gateway::beside(config, bound)?;
    Ok(demo::OpenDoor {
        address: running.address,
        wait: Box::new(signalled),
        stop: Box::new(move || running.stop()),
    })
}

/// Returns with SIGTERM or SIGINT.
fn signalled() -> Result<()> {
    let runtime = gateway::runtime()?;
    let mut signals = Signals::handled_by(&runtime)?;
    runtime.block_on(signals.next());
    Ok(())
}

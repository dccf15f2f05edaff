//! `keepsake plan`: computes the partitions, processes, memory and disks that a number of users needs.
//!
//! Every number that is not asked for is an [`Assumption`] with its default in [`ASSUMPTIONS`], the only
//! place; `deploy/SIZING.md` says where each was measured. Sizes of caches come from the configuration.

mod arithmetic;
mod assumptions;

use arithmetic::{Demand, Plan};
use assumptions::Assumptions;
pub use assumptions::{ASSUMPTIONS, Assumption};
use clap::Args;
use client::show::{self, Output};
use domain::fault::{Fault, Result, StopName};
use serde_json::{Value, json};
use service::config::Config;
use std::process::ExitCode;

pub const EXAMPLES: &str = "\
Each assumption is an option of its own and is printed with the plan. deploy/SIZING.md says on which \
machine it was measured: measure your own with `keepsake bench` before you buy machines.

Examples:
  keepsake plan --users 100000 --turns-per-day 30
  keepsake plan --users 100000 --turns-per-day 30 --days 90 --turn-bytes 160 --memories-per-turn 0.7 --json";

#[derive(Args)]
pub struct PlanCommand {
    /// Users who have conversations
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    users: f64,
    /// Turns of one user in a day, answers included
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    turns_per_day: f64,
    #[command(flatten)]
    assumptions: Assumptions,
}

impl PlanCommand {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let demand = Demand { users: self.users, turns_per_day: self.turns_per_day };
        self.assumptions.check().map_err(refused)?;
        let plan = Plan::new(&demand, &self.assumptions, config).map_err(refused)?;
        match output {
            Output::Json => println!("{}", json(&plan, &self.assumptions)),
            Output::Person => print!("{}", text(&plan, &self.assumptions)),
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn refused(what: String) -> Fault {
    Fault::stop(StopName::ConfigInvalid, what)
}

fn json(plan: &Plan, assumptions: &Assumptions) -> Value {
    let named = |values: Vec<(&str, f64)>| -> serde_json::Map<String, Value> {
        values.into_iter().map(|(name, value)| (name.replace('-', "_"), value.into())).collect()
    };
    let rows = plan.rows().into_iter().map(|row| (row.name, row.value)).collect();
    let assumed = ASSUMPTIONS.iter().map(|one| (one.name, assumptions.of(one.name))).collect();
    json!({"plan": named(rows), "assumptions": named(assumed)})
}

fn text(plan: &Plan, assumptions: &Assumptions) -> String {
    let rows: Vec<Vec<String>> = plan
        .rows()
        .into_iter()
        .map(|row| vec![row.name.replace('-', " "), row.shown(), row.how.to_owned()])
        .collect();
    let assumed: Vec<Vec<String>> = ASSUMPTIONS
        .iter()
        .map(|one| {
            let value = assumptions.of(one.name);
            let origin = if value == one.default { "assumed" } else { "given" };
            vec![format!("--{}", one.name), value.to_string(), origin.into(), one.meaning.into()]
        })
        .collect();
    format!(
        "{}\n{}",
        show::table(&["plan", "", "how"], &rows),
        show::table(&["assumption", "value", "", "meaning"], &assumed)
    )
}

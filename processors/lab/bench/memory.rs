//! `keepsake bench recall --memory`: measures the resident memory of the process with 10,000
//! memories loaded, before and after 10,000 recalls.

use super::machine;
use super::messages::{recall, remember, user};
use super::report::{BenchReport, progress};
use super::speech::ChatGenerator;
use super::trial::{Trial, publish_all, wait_until_applied};
use domain::fault::Result;
use settings::Config;
use std::time::Duration;

const MEMORIES: usize = 10_000;
const RECALLS: usize = 10_000;
const PARTITIONS: i32 = 6;
/// Enough users that every partition has some.
const USERS: usize = 60;
const TIMEOUT: Duration = Duration::from_secs(10);

/// Order matters: runs before any other measurement of the process, so that no memory of another
/// measurement is counted.
pub fn measure(config: &Config, report: &mut BenchReport) -> Result<()> {
    let mut config = config.clone();
    config.topics.partitions = PARTITIONS;
    let trial = Trial::new(&config)?;
    trial.serving(|service| {
        let mut client = trial.client()?;
        let mut speech = ChatGenerator::new(4);
        progress(format!("loading {MEMORIES} memories of {USERS} users"));
        let memories = (0..MEMORIES).map(|n| remember(&user(n, USERS), &speech.statement()));
        publish_all(&mut client, memories)?;
        wait_until_applied(service, MEMORIES)?;
        report.figure("rss_anon_loaded_bytes", machine::rss_anon_bytes()? as f64);
        progress(format!("{RECALLS} recalls"));
        for n in 0..RECALLS {
            client.ask(&recall(&user(n, USERS), &speech.question()), TIMEOUT)?;
        }
        report.figure("rss_anon_bytes", machine::rss_anon_bytes()? as f64);
        Ok(())
    })
}

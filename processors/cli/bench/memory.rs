//! `keepsake bench recall --memory`: what the process holds when it knows much and has been asked much.

use super::machine;
use super::recall::{question, remember};
use super::report::Report;
use super::say;
use super::speech::Speech;
use super::trial::{Trial, publish_all, wait_until_applied};
use crate::config::Config;
use crate::fault::Result;
use std::time::Duration;

const MEMORIES: usize = 10_000;
const RECALLS: usize = 10_000;
const PARTITIONS: i32 = 6;
/// So many that every partition has some.
const USERS: usize = 60;
const PATIENCE: Duration = Duration::from_secs(10);

/// First in its process, so that nothing measured before is counted.
pub fn measure(config: &Config, report: &mut Report) -> Result<()> {
    let mut config = config.clone();
    config.topics.partitions = PARTITIONS;
    let trial = Trial::new(&config)?;
    trial.serving(|service| {
        let mut client = trial.client()?;
        let mut speech = Speech::new(4);
        say(format!("loads {MEMORIES} memories of {USERS} users"));
        publish_all(&mut client, (0..MEMORIES).map(|n| remember(&user(n), &speech.statement())))?;
        wait_until_applied(service, MEMORIES)?;
        report.figure("rss_anon_loaded_bytes", machine::rss_anon_bytes()? as f64);
        say(format!("{RECALLS} recalls"));
        for n in 0..RECALLS {
            client.ask(&question(&user(n), &speech.question()), PATIENCE)?;
        }
        report.figure("rss_anon_bytes", machine::rss_anon_bytes()? as f64);
        Ok(())
    })
}

fn user(n: usize) -> String {
    format!("user-{}", n % USERS)
}

//! Times recalls on one shard while another one takes batches and is rewritten, against recalls on a
//! machine that is otherwise idle.

use super::lone::{LoneShard, Noise, TrialDir};
use clap::Args;
use domain::fault::{Fault, Result};
use lab::bench::messages::user;
use lab::bench::report::{BenchReport, RatioTarget, progress};
use settings::Config;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const USERS: usize = 1_000;
/// Recalls before the first one that counts.
const WARM_UP: usize = 200;
/// Time between two recalls: some ten times as long as one takes.
const PERIOD: Duration = Duration::from_millis(4);

#[derive(Args)]
pub struct NeighboursBench {
    /// Memories of a thousand users on each of the two shards
    #[arg(long, default_value_t = 50_000, value_name = "COUNT")]
    memories: usize,
    /// Recalls of each kind
    #[arg(long, default_value_t = 2_000, value_name = "COUNT")]
    recalls: usize,
    /// Events in a batch of the neighbour
    #[arg(long, default_value_t = 4_000, value_name = "COUNT")]
    batch: usize,
}

impl NeighboursBench {
    pub fn measure(&self, config: &Config, report: &mut BenchReport) -> Result<()> {
        // A recall of another user each time reads the store.
        let mut config = config.clone();
        config.store.recalled_bytes_max = 0;
        let (dir, beside) = (TrialDir::new(&config), TrialDir::new(&config));
        let open = |dir: &TrialDir| LoneShard::open(&config, &dir.path, &|| Ok(Box::new(Noise)));
        let (mut shard, mut neighbour) = (open(&dir)?, open(&beside)?);
        progress(format!("loading {} memories on each of two shards", self.memories));
        for shard in [&mut shard, &mut neighbour] {
            shard.load(self.memories, |n| user(n, USERS))?;
        }
        let idle = shard.ask_every(PERIOD, |n| user(n, USERS), WARM_UP, self.recalls)?;
        report.latency("recall_idle", &idle);
        for (kind, ratio) in
            [("batches", "recall_beside_batches_p99"), ("rewrites", "recall_beside_rewrites_p99")]
        {
            progress(format!("recalls while the other shard has {kind}"));
            let stop = AtomicBool::new(false);
            let (beside, longest) = std::thread::scope(|scope| {
                let busy = scope.spawn(|| self.keep_busy(kind, &mut neighbour, &stop));
                let beside = shard.ask_every(PERIOD, |n| user(n, USERS), 0, self.recalls);
                stop.store(true, Ordering::Release);
                let longest = busy.join().map_err(|_| Fault::retry("a thread panicked"))??;
                Ok::<_, Fault>((beside?, longest))
            })?;
            let grown = beside.percentile_us(99) / idle.percentile_us(99);
            report.ratio(ratio, grown, RatioTarget::AtMost(1.5));
            report.latency(&format!("recall_beside_{kind}"), &beside);
            report.figure(&format!("longest_of_{kind}_us"), longest.as_secs_f64() * 1e6);
        }
        Ok(())
    }

    /// Returns the longest time that one of them took.
    fn keep_busy(&self, kind: &str, shard: &mut LoneShard, stop: &AtomicBool) -> Result<Duration> {
        let mut longest = Duration::ZERO;
        while !stop.load(Ordering::Acquire) {
            let began = Instant::now();
            if kind == "batches" {
                shard.load_in(self.batch, self.batch, |n| user(n, USERS))?;
            } else {
                shard.shards.all().iter().try_for_each(|it| it.rewrite(&|| true).map(drop))?;
            }
            longest = longest.max(began.elapsed());
        }
        Ok(longest)
    }
}

//! The arithmetic of a plan, on plain numbers: the demand and the assumptions in, rows out.

use super::assumptions::Assumptions;
use service::config::Config;

const DAY_SECONDS: f64 = 86_400.0;
/// Days that decisions are kept in the topic that Keepsake creates.
const DECISIONS_DAYS: f64 = 7.0;
/// Up to half of a compacted topic may be records that newer ones replace (Kafka's default
/// `min.cleanable.dirty.ratio` is .5).
const NOT_YET_COMPACTED: f64 = 2.0;
/// Partitions for each process, so that there is room to add processes: topics in use get no more.
const GROWTH: f64 = 2.0;
const PARTITIONS_MAX: f64 = 1024.0;

pub struct Demand {
    pub users: f64,
    pub turns_per_day: f64,
}

pub struct Plan {
    turns_per_second: f64,
    recalls_per_second: f64,
    memories: f64,
    ingest_cores: f64,
    recall_cores: f64,
    processes: f64,
    partitions: f64,
    process_memory_bytes: f64,
    process_disk_bytes: f64,
    changelog_bytes: f64,
    events_bytes: f64,
    decisions_bytes: f64,
}

/// One line of a plan. The last word of the name is the unit, as in a benchmark.
pub struct Row {
    pub name: &'static str,
    pub value: f64,
    pub how: &'static str,
}

impl Plan {
    /// Refuses a demand that is none, or that no number of partitions can meet.
    pub fn new(demand: &Demand, assumed: &Assumptions, config: &Config) -> Result<Plan, String> {
        for (name, value, most) in
            [("users", demand.users, 1e10), ("turns-per-day", demand.turns_per_day, 1e6)]
        {
            if !(value > 0.0 && value <= most) {
                return Err(format!(
                    "--{name}: must be more than 0 and at most {most}, not {value}"
                ));
            }
        }
        let of = |name| assumed.of(name);
        let turns_a_day = demand.users * demand.turns_per_day;
        let turns_per_second = turns_a_day / DAY_SECONDS * of("peak-factor");
        let recalls_per_second = turns_per_second * of("recalls-per-turn");
        let memories = (turns_a_day * of("memories-per-turn") * of("days")).ceil();

        let ingest_cores = turns_per_second * of("turn-bytes") / of("text-bytes-per-core-second");
        let recall_cores = recalls_per_second / of("recalls-per-core-second");
        let usable = of("cores-per-process") * of("utilisation");
        let busy = ((ingest_cores + recall_cores) / usable).ceil().max(1.0);
        let processes = busy + of("spare-processes").ceil();
        let partitions = partitions(processes, memories / of("memories-per-partition"));
        if partitions > PARTITIONS_MAX {
            return Err(format!(
                "topics.partitions: {partitions} are needed, and {PARTITIONS_MAX} are the most; use \
                 several clusters, keep memories for fewer --days, or take processes with more cores"
            ));
        }

        // While spare processes are away, the others have all shards.
        let shards = (partitions / busy).ceil();
        let store_bytes = memories * of("store-bytes-per-memory");
        let its_store = store_bytes * shards / partitions;
        // A shard is written anew beside the old one (forget.within_ms), one at a time.
        let rewritten = store_bytes / partitions;
        let copies = of("replication").ceil();
        Ok(Plan {
            turns_per_second,
            recalls_per_second,
            memories,
            ingest_cores,
            recall_cores,
            processes,
            partitions,
            process_memory_bytes: of("process-bytes")
                + caches(config, shards)
                + its_store * of("resident-share"),
            process_disk_bytes: (its_store + rewritten) / of("utilisation"),
            changelog_bytes: memories
                * of("changelog-bytes-per-memory")
                * NOT_YET_COMPACTED
                * copies,
            events_bytes: turns_a_day
                * of("events-days")
                * (of("turn-bytes") + of("event-overhead-bytes"))
                * copies,
            decisions_bytes: turns_a_day * DECISIONS_DAYS * of("decision-bytes-per-turn") * copies,
        })
    }

    pub fn rows(&self) -> Vec<Row> {
        fn row(name: &'static str, value: f64, how: &'static str) -> Row {
            Row { name, value, how }
        }
        vec![
            row("turns-per-second", self.turns_per_second, "at the peak"),
            row("recalls-per-second", self.recalls_per_second, "at the peak"),
            row("memories", self.memories, "of all users, after --days"),
            row("ingest-cores", self.ingest_cores, "fully used at the peak"),
            row("recall-cores", self.recall_cores, "fully used at the peak"),
            row("processes", self.processes, "spare ones included"),
            row("partitions", self.partitions, "topics.partitions; room for twice the processes"),
            row("process-memory-bytes", self.process_memory_bytes, "with the configured caches"),
            row(
                "process-disk-bytes",
                self.process_disk_bytes,
                "store.dir, room to rewrite a shard",
            ),
            row(
                "memories-topic-bytes",
                self.changelog_bytes,
                "all brokers, compaction half behind",
            ),
            row("events-topic-bytes", self.events_bytes, "all brokers, uncompressed"),
            row("decisions-topic-bytes", self.decisions_bytes, "all brokers, uncompressed"),
        ]
    }
}

/// The smallest multiple of the processes, so that all have equally many, with room to grow.
fn partitions(processes: f64, for_memories: f64) -> f64 {
    (for_memories / processes).ceil().max(GROWTH) * processes
}

/// Bytes of the bounded caches of a process with so many shards.
fn caches(config: &Config, shards: f64) -> f64 {
    let of_shards = config.store.cache_bytes as f64 * shards;
    let of_process = config.index.vector_cache_bytes
        + config.index.document_cache_bytes
        + config.store.recalled_bytes_max;
    of_shards + of_process as f64
}

impl Row {
    /// The value for a person: bytes in GB, large counts without decimals.
    pub fn shown(&self) -> String {
        if self.name.ends_with("bytes") {
            format!("{:.1} GB", self.value / 1e9)
        } else if self.value < 100.0 && self.value.fract() != 0.0 {
            format!("{:.1}", self.value)
        } else {
            format!("{:.0}", self.value)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::assumptions::ASSUMPTIONS;
    use super::*;
    use service::config::Layers;

    fn plan(demand: (f64, f64), changed: &[(&'static str, f64)]) -> Result<Plan, String> {
        let config = Layers::defaults().checked().expect("the defaults are valid");
        let assumed = Assumptions::with(changed);
        assumed.check()?;
        let demand = Demand { users: demand.0, turns_per_day: demand.1 };
        Plan::new(&demand, &assumed, &config)
    }

    /// Round numbers, so that each row can be computed by hand.
    const ROUND: [(&str, f64); 19] = [
        ("turn-bytes", 100.0),
        ("memories-per-turn", 0.5),
        ("recalls-per-turn", 0.25),
        ("days", 100.0),
        ("events-days", 10.0),
        ("peak-factor", 2.0),
        ("text-bytes-per-core-second", 1000.0),
        ("recalls-per-core-second", 5.0),
        ("utilisation", 0.5),
        ("cores-per-process", 4.0),
        ("spare-processes", 2.0),
        ("store-bytes-per-memory", 1000.0),
        ("changelog-bytes-per-memory", 100.0),
        ("event-overhead-bytes", 50.0),
        ("decision-bytes-per-turn", 20.0),
        ("replication", 3.0),
        ("process-bytes", 1e8),
        ("resident-share", 0.25),
        ("memories-per-partition", 1e7),
    ];

    #[test]
    fn each_row_is_the_product_of_its_numbers() {
        // 864,000 turns a day: 10 a second, 20 at the peak, and 5 questions.
        let plan = plan((86_400.0, 10.0), &ROUND).expect("a possible demand");
        let row = |name: &str| {
            plan.rows().into_iter().find(|row| row.name == name).expect("there is such a row").value
        };
        assert_eq!(row("turns-per-second"), 20.0);
        assert_eq!(row("recalls-per-second"), 5.0);
        assert_eq!(row("memories"), 43_200_000.0);
        assert_eq!(row("ingest-cores"), 2.0);
        assert_eq!(row("recall-cores"), 1.0);
        // 3 cores of 2 usable ones each: 2 processes, and 2 that may be away.
        assert_eq!(row("processes"), 4.0);
        // 43.2 million memories need 5 partitions, in multiples of 4.
        assert_eq!(row("partitions"), 8.0);
        // Four shards in each of the two that are left: half of 43.2 GB, and a shard of 5.4 GB.
        assert_eq!(row("process-disk-bytes"), 2.0 * (21.6e9 + 5.4e9));
        let caches = 4.0 * 33_554_432.0 + 67_108_864.0 + 33_554_432.0 + 33_554_432.0;
        assert_eq!(row("process-memory-bytes"), 1e8 + caches + 5.4e9);
        assert_eq!(row("memories-topic-bytes"), 43.2e6 * 100.0 * 2.0 * 3.0);
        assert_eq!(row("events-topic-bytes"), 864_000.0 * 10.0 * 150.0 * 3.0);
        assert_eq!(row("decisions-topic-bytes"), 864_000.0 * 7.0 * 20.0 * 3.0);
    }

    #[test]
    fn every_assumption_changes_a_row() {
        let base = plan((86_400.0, 10.0), &ROUND).expect("a possible demand");
        assert_eq!(ROUND.map(|(name, _)| name), ASSUMPTIONS.map(|one| one.name));
        for (name, value) in ROUND {
            let mut changed = ROUND.to_vec();
            let other = if name == "memories-per-partition" { 1e6 } else { value / 2.0 };
            changed.push((name, if name == "peak-factor" { 4.0 } else { other }));
            let other = plan((86_400.0, 10.0), &changed).expect("a possible demand");
            let differs =
                base.rows().iter().zip(other.rows()).any(|(one, other)| one.value != other.value);
            assert!(differs, "{name} changes nothing");
        }
    }

    #[test]
    fn more_users_never_need_less() {
        let mut before = plan((1.0, 30.0), &[]).expect("a possible demand");
        for users in [10.0, 1e3, 1e4, 1e5] {
            let now = plan((users, 30.0), &[]).expect("a possible demand");
            for name in ["memories", "processes", "partitions", "memories-topic-bytes"] {
                let of =
                    |plan: &Plan| plan.rows().iter().find(|row| row.name == name).map(|r| r.value);
                assert!(of(&now) >= of(&before), "{name} of {users} users");
            }
            before = now;
        }
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        fn of_demand(users: f64, turns: f64) -> String {
            plan((users, turns), &[]).err().unwrap_or_default()
        }
        fn of(name: &'static str, value: f64) -> String {
            plan((100.0, 30.0), &[(name, value)]).err().unwrap_or_default()
        }
        for (refused, name) in [
            (of_demand(0.0, 30.0), "--users"),
            (of_demand(-1.0, 30.0), "--users"),
            (of_demand(f64::NAN, 30.0), "--users"),
            (of_demand(100.0, f64::INFINITY), "--turns-per-day"),
            (of("memories-per-turn", -0.1), "--memories-per-turn"),
            (of("utilisation", 1.5), "--utilisation"),
            (of("days", f64::NAN), "--days"),
            (of_demand(1e9, 1e3), "topics.partitions"),
        ] {
            assert!(refused.starts_with(name), "{name}: {refused:?}");
        }
    }
}

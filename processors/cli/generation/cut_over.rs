//! Hands the events over from the old generation to the new one.
//!
//! 1. `close` marks on the old partitions. Each old shard applies up to its mark, notes that it is
//!    closed, and goes on answering. Events behind the marks wait.
//! 2. The builder writes the rest and the last meta records of the new shards. They are compared with
//!    the old ones ([`Comparison`]); most of that is read before step 1.
//! 3. The events topic gets the new partitions.
//! 4. Offsets for the new groups, the one of the events last: the new generation is open from here on.
//!    Its processes join and open their shards.
//! 5. `open` marks on all new partitions. Once they are applied, every new shard is open.
//! 6. The recalls topic gets the new partitions, and the new processes begin to answer, from where the
//!    old ones had answered. Until step 7 both do.
//! 7. `retire` marks on the old partitions: the old processes stop.
//!
//! Order matters: no event and no request reaches a new partition before the old shards are closed, so
//! no old shard takes an offset of a new partition for one of its own.
//!
//! Each step first checks whether it was done, so a command that was interrupted or timed out is
//! given again.

use super::compare::Comparison;
use super::progress::{Generations, Progress};
use broker::Broker;
use broker::clock::{Clock, SystemClock};
use client::Client;
use contract::reply;
use domain::fault::{Fault, Result};
use domain::{HandOver, HandOverStep, SigningKey, UserKey};
use serde_json::json;
use settings::Config;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use storage::changelog::last_meta;

/// Pause between two looks at the progress of others.
const LOOK: Duration = Duration::from_millis(100);
/// Records that the builder may be behind at the begin: seconds of its work.
const BEHIND_MAX: i64 = 50_000;
/// The limit with another encoder, which makes some hundred vectors a second on a core.
const BEHIND_MAX_ANEW: i64 = 2000;
/// Looks at both generations before the old one is closed. A difference that stays the same in all of
/// them is none of events that are on their way.
const COMPARED_TIMES: u32 = 5;
const COMPARED_EVERY: Duration = Duration::from_millis(200);
/// Time for one answer of a new shard, which is asked again.
const ANSWER: Duration = Duration::from_millis(500);
/// Requests of this time before the hand-over are answered by both generations: more than a request
/// waits for an old process, with the difference of two clocks.
const RECENT_MS: i64 = 3000;
/// Time for the new processes to answer these, before the old ones stop.
const BOTH_ANSWER: Duration = Duration::from_secs(1);
/// Names that are tried to find a user of a partition: of 1,024 partitions each is met by then.
const NAMES_MAX: u32 = 100_000;

pub struct CutOver<'a> {
    pub generations: &'a Generations,
    pub marks: SigningKey,
    /// For each of the steps that wait for others.
    pub within: Duration,
    /// Goes on without processes of the new generation.
    pub force: bool,
}

/// Milliseconds that each part of the hand-over took.
pub struct HandedOver {
    pub closed_ms: u64,
    pub opened_ms: u64,
    pub answered_ms: u64,
}

impl CutOver<'_> {
    pub fn run(&self) -> Result<HandedOver> {
        let progress = self.generations.progress()?;
        let rekeying = self.generations.rekeying()?;
        let began = Instant::now();
        if !progress.is_open {
            self.check(&progress)?;
            let mut comparison = Comparison::of(self.generations)?;
            self.compare(&mut comparison)?;
            let progress = self.close(&progress)?;
            self.compare_closed(&mut comparison)?;
            eprintln!("the old shards are closed, the new ones are built and equal");
            self.add_partitions(&self.generations.new.topics.events(), rekeying.to)?;
            self.open(&progress)?;
        }
        let closed_ms = ms(began);
        self.send(HandOverStep::Open, rekeying.to).and_then(|sent| self.await_applied(&sent))?;
        eprintln!("the new shards are open");
        let opened_ms = ms(began);
        // Order matters: connected before, because from then on askers wait for the new shards.
        let mut client = Client::connect(&self.generations.new)?;
        self.open_recalls(rekeying.to)?;
        self.await_answers(&mut client, rekeying.from, rekeying.to)?;
        let answered_ms = ms(began);
        std::thread::sleep(BOTH_ANSWER);
        eprintln!("the new generation answers");
        self.send(HandOverStep::Retire, rekeying.from)?;
        self.await_retired()?;
        Ok(HandedOver { closed_ms, opened_ms, answered_ms })
    }

    /// Refuses a hand-over that would leave events waiting.
    fn check(&self, progress: &Progress) -> Result<()> {
        let number = self.generations.number();
        let is_anew = self.generations.encoder_before()? != self.generations.encoder_after()?;
        let behind_max = if is_anew { BEHIND_MAX_ANEW } else { BEHIND_MAX };
        if progress.behind > behind_max {
            return Err(self.generations.refused(format!(
                "the builder is {} records behind: let `keepsake generation build --to {number}` go on",
                progress.behind
            )));
        }
        if progress.waiting == 0 && !self.force {
            return Err(self.generations.refused(format!(
                "no process waits for it, so nobody would apply events: start processes with \
                 kafka.generation = {number}, or give --force"
            )));
        }
        Ok(())
    }

    /// Refuses shards that differ, while nothing has happened yet. Also reads nearly everything that
    /// is compared, so that events wait for little of it.
    fn compare(&self, comparison: &mut Comparison<'_>) -> Result<()> {
        let mut differing: Option<BTreeMap<i32, (u64, u128, u64)>> = None;
        for _ in 0..COMPARED_TIMES {
            comparison.read_on()?;
            let now = differences(comparison);
            let mut same = now.clone();
            if let Some(before) = &differing {
                same.retain(|partition, difference| before.get(partition) == Some(difference));
            }
            if same.is_empty() {
                return Ok(());
            }
            differing = Some(same);
            std::thread::sleep(COMPARED_EVERY);
        }
        // Without those that still follow the last events.
        let differing: Vec<i32> = differing.into_iter().flatten().map(|(at, _)| at).collect();
        let number = self.generations.number();
        let why = format!(
            "{}: begin the build again after `keepsake generation drop --to {number}`",
            described(comparison, &differing)
        );
        Err(self.generations.refused(why))
    }

    /// Compares all shards when nothing is on its way any more.
    fn compare_closed(&self, comparison: &mut Comparison<'_>) -> Result<()> {
        comparison.read_on()?;
        let differing: Vec<i32> = differences(comparison).into_keys().collect();
        if differing.is_empty() {
            return Ok(());
        }
        let number = self.generations.number();
        let why = format!(
            "{}, and events wait because the old shards are closed: stop the processes of generation \
             {number}, remove their store.dir, and build it again with the same number of partitions \
             after `keepsake generation drop --to {number}`",
            described(comparison, &differing)
        );
        Err(self.generations.refused(why))
    }

    /// Ends every old shard and waits until the builder has everything of them.
    fn close(&self, progress: &Progress) -> Result<Progress> {
        let rekeying = self.generations.rekeying()?;
        let open: Vec<i32> =
            (0..rekeying.from).filter(|old| !progress.build.ends.contains_key(old)).collect();
        self.send_to(HandOverStep::Close, &open)?;
        let log = self.generations.connection.log(&self.generations.new.topics.memories())?;
        // The builder completes all shards in one transaction.
        let done = self.wait(|| {
            let build = last_meta(&*log, 0, log.end(0)?)?.and_then(|(_, meta)| meta.build);
            Ok(build.is_some_and(|build| build.is_complete))
        })?;
        let progress = self.generations.progress()?;
        if done && progress.build.is_complete {
            return Ok(progress);
        }
        let missing: Vec<String> = (0..rekeying.from)
            .filter(|old| !progress.build.ends.contains_key(old))
            .map(|old| old.to_string())
            .collect();
        Err(self.generations.refused(format!(
            "the old partitions {} were not closed and built within {} s: are the builder and all \
             processes of the old generation running? Give the command again",
            missing.join(", "),
            self.within.as_secs()
        )))
    }

    /// Opens the new generation by committing the offsets from which it goes on.
    fn open(&self, progress: &Progress) -> Result<()> {
        let Generations { new, connection, .. } = self.generations;
        let rekeying = self.generations.rekeying()?;
        if rekeying.from == rekeying.to {
            self.take_over_recalls()?;
        }
        let ends = &progress.build.ends;
        let offsets: BTreeMap<i32, i64> =
            (0..rekeying.to).map(|new| (new, ends.get(&new).map_or(0, |end| end + 1))).collect();
        connection.commit(&new.kafka.group_id, &new.topics.events(), &offsets)
    }

    /// Lets the new processes answer from where the old ones have answered. They begin once the topic
    /// has all partitions, so this is done once.
    fn open_recalls(&self, partitions: i32) -> Result<()> {
        let recalls = self.generations.new.topics.recalls();
        let found = self.generations.connection.partitions_of(&recalls)?;
        if found.is_some_and(|found| found >= partitions) {
            return Ok(());
        }
        self.take_over_recalls()?;
        self.add_partitions(&recalls, partitions)
    }

    /// The old processes go on answering, so the new ones begin with the requests of the last seconds:
    /// offsets of answered requests are committed up to a minute late.
    fn take_over_recalls(&self) -> Result<()> {
        let Generations { old, new, connection, from, .. } = self.generations;
        let kept: Vec<i32> = (0..*from).collect();
        let recalls = old.topics.recalls();
        let answered = connection.committed(&recalls_group(old), &recalls, &kept)?;
        let recent = SystemClock.wall().plus_ms(-RECENT_MS);
        let mut next = BTreeMap::new();
        for partition in kept {
            let recent = connection.offset_at(&recalls, partition, recent.0)?;
            let answered = answered.get(&partition).copied().unwrap_or_default();
            next.insert(partition, recent.max(answered));
        }
        connection.commit(&recalls_group(new), &recalls, &next)
    }

    fn add_partitions(&self, topic: &str, partitions: i32) -> Result<()> {
        let connection = &self.generations.connection;
        connection.add_partitions(topic, partitions)?;
        let done = self.wait(|| {
            Ok(connection.partitions_of(topic)?.is_some_and(|found| found >= partitions))
        })?;
        if done { Ok(()) } else { Err(self.too_late(&format!("{topic} gets no partitions"))) }
    }

    fn send(&self, step: HandOverStep, partitions: i32) -> Result<BTreeMap<i32, i64>> {
        self.send_to(step, &(0..partitions).collect::<Vec<i32>>())
    }

    /// Writes a mark to each partition. Returns their offsets.
    fn send_to(&self, step: HandOverStep, partitions: &[i32]) -> Result<BTreeMap<i32, i64>> {
        let Generations { new, connection, .. } = self.generations;
        let topic = new.topics.events();
        let to = self.generations.rekeying()?.to;
        let mark = HandOver { step, generation: self.generations.number(), partitions: to };
        let mut writer = connection.bulk_writer("keepsake-generation", &topic)?;
        for partition in partitions {
            writer.send(&reply::hand_over(mark, &topic, *partition, &self.marks))?;
        }
        writer.flush()
    }

    fn await_applied(&self, sent: &BTreeMap<i32, i64>) -> Result<()> {
        let Generations { new, connection, .. } = self.generations;
        let (group, topic) = (&new.kafka.group_id, new.topics.events());
        let partitions: Vec<i32> = sent.keys().copied().collect();
        let done = self.wait(|| {
            let read = connection.committed(group, &topic, &partitions)?;
            Ok(sent.iter().all(|(partition, at)| read.get(partition).is_some_and(|to| to > at)))
        })?;
        if done { Ok(()) } else { Err(self.too_late("not all of the new shards are open")) }
    }

    /// Repeats a request to each added partition until answered: only the new generation can
    /// answer.
    fn await_answers(&self, client: &mut Client, from: i32, to: i32) -> Result<()> {
        for partition in from..to {
            let Some(user) = user_of(partition, to) else { continue };
            let request = json!({"type": "stats", "user": user.user(), "tenant": user.tenant()});
            let done = self.wait(|| {
                match client.ask(&request, ANSWER) {
                    // Any other refusal, such as that of an unsigned request, comes from the new shard.
                    Ok(answer) => Ok(answer.value["status"] != "unavailable"),
                    Err(Fault::Stop(stop)) => Err(Fault::Stop(stop)),
                    Err(_) => Ok(false),
                }
            })?;
            if !done {
                return Err(self.too_late(&format!("the new shard {partition} does not answer")));
            }
        }
        Ok(())
    }

    /// Old processes that do not stop in time hold nothing up: their shards are closed.
    fn await_retired(&self) -> Result<()> {
        let Generations { old, connection, .. } = self.generations;
        let (group, topic) = (&old.kafka.group_id, old.topics.events());
        let done = self.wait(|| Ok(connection.members(group, &topic)? == 0))?;
        if !done {
            eprintln!("processes of the old generation are still running: stop them");
        }
        Ok(())
    }

    /// Calls `is_done` until true or until the time is over. Returns the last result.
    fn wait(&self, mut is_done: impl FnMut() -> Result<bool>) -> Result<bool> {
        let give_up = Instant::now() + self.within;
        loop {
            if is_done()? {
                return Ok(true);
            }
            if Instant::now() >= give_up {
                return Ok(false);
            }
            std::thread::sleep(LOOK);
        }
    }

    fn too_late(&self, what: &str) -> Fault {
        let seconds = self.within.as_secs();
        Fault::retry(format!("{what} within {seconds} s: give the command again"))
    }
}

fn differences(comparison: &Comparison<'_>) -> BTreeMap<i32, (u64, u128, u64)> {
    let shards = (0..).zip(&comparison.shards).filter(|(_, shard)| !shard.is_equal());
    shards.map(|(partition, shard)| (partition, shard.difference())).collect()
}

/// The first shard that differs, and how many others do.
fn described(comparison: &Comparison<'_>, differing: &[i32]) -> String {
    let shards = &comparison.shards;
    match differing.first().and_then(|at| Some((at, shards.get(*at as usize)?))) {
        Some((at, shard)) => format!(
            "{} of {} shards differ from the old ones; shard {at} has {}, {} vectors of other \
             dimensions, and should have {}",
            differing.len(),
            shards.len(),
            shard.found.digest,
            shard.misfits,
            shard.expected.digest
        ),
        None => "all shards are equal".to_owned(),
    }
}

/// The group under which answered requests are committed.
fn recalls_group(config: &Config) -> String {
    format!("{}-recalls", config.kafka.group_id)
}

/// A user whose shard is that of the partition.
fn user_of(partition: i32, partitions: i32) -> Option<UserKey> {
    let mut names =
        (0..NAMES_MAX).filter_map(|n| UserKey::new("keepsake", &format!("hand-over-{n}")).ok());
    names.find(|user| user.partition(partitions) == partition)
}

fn ms(began: Instant) -> u64 {
    began.elapsed().as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_partition_has_a_user_to_ask_for() {
        for partitions in [1, 24, 1024] {
            for partition in 0..partitions {
                let user = user_of(partition, partitions).expect("a user of each partition");
                assert_eq!(user.partition(partitions), partition);
            }
        }
    }
}

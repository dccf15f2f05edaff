//! A world of two processes and one log. Random steps run the processes and inject faults; then
//! the faults stop, both processes catch up, and the laws are checked.
//!
//! Invariant: a seed determines the run. Nothing here reads a real clock, starts a thread or takes
//! random numbers from elsewhere.

use super::bugs::Bug;
use super::instance::{Kit, Process, StartOptions};
use super::interruptions::{Interruption, Interruptions};
use super::laws;
use super::stream::{self, NOON_MS, PARTITIONS, Sent};
use crate::support::workload::Dice;
use domain::fault::{Fault, StopName};
use domain::{Time, UserKey};
use log::broker::{Broker, Record};
use log::clock::{Clock, ManualClock};
use serde_json::{Value, json};
use simulated::{Cluster, Connection, InjectedFault, Tombstones};
use std::collections::BTreeMap;
use storage::home::MemoryHome;

const NAMES: [&str; 2] = ["ann", "bob"];
const STEPS: usize = 100;
/// Some runs are short: many faults need only one event.
const EVENTS_MIN: u64 = 10;
const EVENTS_MAX: u64 = 36;
/// Rounds that are enough for any backlog of [`EVENTS_MAX`] events.
const STEPS_TO_REST: usize = 400;
const HOUR_MS: i64 = 3_600_000;
const WEEK_MS: i64 = 7 * 24 * HOUR_MS;

/// The result of one simulation.
pub struct Run {
    /// The digest of the final state if every law holds, otherwise the broken law.
    pub end: Result<u64, String>,
    pub trace: Vec<String>,
    pub counts: Counts,
}

/// How often each outcome and fault occurred.
pub type Counts = BTreeMap<String, usize>;

pub struct World<'k> {
    pub kit: &'k Kit,
    pub cluster: Cluster,
    pub sent: Vec<Sent>,
    /// Number of events to send.
    events: usize,
    /// Number of users who send them.
    users: usize,
    pub dice: Dice,
    clock: ManualClock,
    client: Connection,
    machines: [Machine; 2],
    bug: Option<Bug>,
    trace: Vec<String>,
    counts: Counts,
}

/// A machine with a disk, and the process on the machine if one runs.
struct Machine {
    name: &'static str,
    home: MemoryHome,
    /// Disks that this machine has lost. A new disk gets a new transactional id.
    homes_lost: usize,
    interruptions: Interruptions,
    process: Option<Process>,
}

type Step = Result<(), String>;

/// Runs the world of one seed.
pub fn simulate(kit: &Kit, seed: u64, bug: Option<Bug>) -> Run {
    let mut world = World::new(kit, seed, bug);
    let end = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run()));
    let end = end.unwrap_or_else(|_| Err("a panic, see above".to_owned()));
    Run { end, trace: world.trace, counts: world.counts }
}

impl<'k> World<'k> {
    fn new(kit: &'k Kit, seed: u64, bug: Option<Bug>) -> World<'k> {
        let clock = ManualClock::at(Time(NOON_MS));
        let cluster = Cluster::with_clock(std::sync::Arc::new(clock.clone()));
        let topics = &kit.config.topics;
        for topic in [
            topics.events(),
            topics.memories(),
            topics.decisions(),
            topics.erasures(),
            topics.dead_letters(),
            topics.replies(),
        ] {
            cluster.create(&topic, PARTITIONS);
        }
        let machines = NAMES.map(|name| Machine {
            name,
            home: MemoryHome::default(),
            homes_lost: 0,
            interruptions: Interruptions::to(name, &cluster),
            process: None,
        });
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d);
        dice.below(2);
        let events = (EVENTS_MIN + dice.below(EVENTS_MAX - EVENTS_MIN)) as usize;
        let users = 1 + dice.below(stream::USERS.len() as u64) as usize;
        World {
            kit,
            client: cluster.connect("client"),
            cluster,
            sent: Vec::new(),
            events,
            users,
            dice,
            clock,
            machines,
            bug,
            trace: Vec::new(),
            counts: Counts::new(),
        }
    }

    fn run(&mut self) -> Result<u64, String> {
        for which in 0..NAMES.len() {
            self.start(which)?;
        }
        for _ in 0..STEPS {
            self.step()?;
        }
        self.catch_up()?;
        let shards: Vec<_> = self.processes().map(|process| process.shards.clone()).collect();
        laws::check(self, &shards)
    }

    fn processes(&self) -> impl Iterator<Item = &Process> {
        self.machines.iter().filter_map(|machine| machine.process.as_ref())
    }

    fn step(&mut self) -> Step {
        let which = self.dice.below(2) as usize;
        match self.dice.below(110) {
            0..=17 => self.send(),
            18..=20 => self.plan_interruption(which),
            21..=54 => self.round(which),
            55..=68 => self.restore(which),
            69..=71 => self.stand_by(which),
            72..=78 => self.plan_mishap(),
            79..=80 => self.kill(which),
            81..=85 => self.start(which),
            86 => self.stop(which),
            87..=88 => self.expel(which),
            89..=91 => self.expire(),
            92..=93 => self.compact_log(),
            94..=95 => self.compact(which),
            96 => self.let_hours_pass(),
            97 => self.set_clock_back(),
            98 => self.let_a_week_pass(),
            99 => self.lose_home(which),
            100..=105 => self.ask(which),
            106..=108 => self.flush_index(which),
            _ => self.fill_disk(which),
        }
    }

    // ---------------------------------------------------------------- steps

    fn send(&mut self) -> Step {
        for _ in 0..=self.dice.below(3) {
            if self.sent.len() == self.events {
                break;
            }
            let topic = self.kit.config.topics.events();
            let next = stream::next(&mut self.dice, self.users, &topic, &self.sent);
            let offset =
                self.client.log(&topic).and_then(|log| log.end(next.partition)).map_err(text_of)?;
            let mut producer = self.client.producer("client").map_err(text_of)?;
            producer.send(&next.outgoing).map_err(text_of)?;
            let sent = next.sent_at(offset);
            self.say(format!("send {}/{}: {}", sent.place.0, sent.place.1, sent.event));
            self.sent.push(sent);
        }
        Ok(())
    }

    fn round(&mut self, which: usize) -> Step {
        self.work(which, "runs a round", Process::round)
    }

    fn compact(&mut self, which: usize) -> Step {
        self.work(which, "plans a compaction", Process::compact)
    }

    fn work(
        &mut self,
        which: usize,
        what: &str,
        work: impl Fn(&mut Process) -> domain::fault::Result<()>,
    ) -> Step {
        let machine = &mut self.machines[which];
        let Some(process) = &mut machine.process else { return Ok(()) };
        let before = applied(process);
        let done = work(process);
        let after = applied(process);
        let is_dead = process.connection.is_dead();
        let name = machine.name;
        self.say(format!(
            "{name} {what}: {before:?} → {after:?}{}",
            if is_dead { ", and dies" } else { "" }
        ));
        if is_dead {
            self.machines[which].process = None;
            self.count("died at work", 1);
            return Ok(());
        }
        if let Err(Fault::Stop(stop)) = &done
            && stop.name == StopName::StoreUnwritable
        {
            // A full disk ends the process, which somebody starts again with room.
            self.count("the disk was full", 1);
            return self.kill(which);
        }
        done.map_err(|fault| format!("{name} {what}: {fault}"))
    }

    fn restore(&mut self, which: usize) -> Step {
        let machine = &mut self.machines[which];
        let name = machine.name;
        let Some(process) = &mut machine.process else { return Ok(()) };
        let Some(partition) = process.restore() else { return Ok(()) };
        if process.connection.is_dead() {
            machine.process = None;
            self.say(format!("{name} restores {partition}, and dies"));
            self.count("died restoring", 1);
            return Ok(());
        }
        let applied = process.shards.get(partition).map(|shard| shard.applied());
        self.say(format!("{name} restores {partition}: {applied:?}"));
        self.count("restored", 1);
        Ok(())
    }

    fn stand_by(&mut self, which: usize) -> Step {
        let chosen = self.dice.below(PARTITIONS as u64) as usize;
        let machine = &mut self.machines[which];
        let name = machine.name;
        let Some(process) = &mut machine.process else { return Ok(()) };
        let outcome = process.stand_by(chosen);
        if process.connection.is_dead() {
            machine.process = None;
            self.say(format!("{name} stands by, and dies"));
            return Ok(());
        }
        match outcome {
            Ok(Some(partition)) => {
                self.count("stood by", 1);
                self.say(format!("{name} stands by for {partition}"));
            }
            Ok(None) => {}
            Err(Fault::Retry(retry)) => {
                self.say(format!("{name} cannot stand by now: {}", retry.what))
            }
            Err(Fault::Stop(stop)) if stop.name == StopName::StoreUnwritable => {
                self.count("the disk was full", 1);
                return self.kill(which);
            }
            Err(stop) => return Err(format!("{name} stands by: {stop}")),
        }
        Ok(())
    }

    /// Law fresh-or-says-so: a user who asks for a memory, and names the offset of the event that
    /// made it, gets the memory or an error that says why not.
    fn ask(&mut self, which: usize) -> Step {
        let topics = &self.kit.config.topics;
        let made: Vec<&Sent> = self.sent.iter().filter(|sent| self.must_be_there(sent)).collect();
        let Some(sent) = made.get(self.dice.below(made.len().max(1) as u64) as usize) else {
            return Ok(());
        };
        let user = stream::USERS[sent.user];
        let memory = sent.memory(&topics.events()).to_string();
        let event = sent.event.clone();
        let (partition, offset) = sent.place;
        let request =
            json!({"type": "get", "tenant": stream::TENANT, "user": user, "memory": memory});
        let request = Record {
            topic: topics.recalls(),
            partition,
            timestamp_ms: self.clock.wall().0,
            value: Some(request.to_string().into_bytes()),
            headers: if self.bug == Some(Bug::RequestsDoNotWait) {
                Vec::new()
            } else {
                vec![("keepsake-min-offset".into(), offset.to_string().into_bytes())]
            },
            ..Record::default()
        };
        // Mostly the owner of the partition, sometimes a process that has lost it.
        let owner = self.machines.iter().position(|machine| {
            machine.process.as_ref().is_some_and(|it| it.shards.get(partition).is_some())
        });
        let machine = &mut self.machines[owner.unwrap_or(which)];
        let name = machine.name;
        let Some(reply) = machine.process.as_mut().and_then(|process| process.ask(request)) else {
            return Ok(());
        };
        let reply: Value = serde_json::from_slice(reply.value.as_deref().unwrap_or_default())
            .map_err(|error| format!("{name} replies without JSON: {error}"))?;
        let applied = reply["applied_offset"].as_i64().unwrap_or(-1);
        match reply["status"].as_str() {
            Some("ok") if applied >= offset => self.count("read its own write", 1),
            Some("unavailable" | "stale" | "expired") => self.count("could not read now", 1),
            _ => return Err(format!("{name} answers {reply} for {event} at {offset}")),
        }
        self.say(format!("{name} answers {} for {memory}", reply["status"]));
        Ok(())
    }

    /// True if the event made a memory that nothing sent so far can have removed.
    fn must_be_there(&self, sent: &Sent) -> bool {
        let event = &sent.event;
        let key = UserKey::new(stream::TENANT, stream::USERS[sent.user]).expect("a valid name");
        let is_repeated = !event["id"].is_null()
            && self.sent.iter().any(|other| {
                other.place != sent.place
                    && other.user == sent.user
                    && other.event["id"] == event["id"]
            });
        event["type"] == "remember"
            && event["scope"].is_null()
            && !sent.is_broken
            && !is_repeated
            && sent.place.0 == key.partition(PARTITIONS)
            && !self.sent.iter().any(|other| other.event["type"] == "forget")
    }

    fn flush_index(&mut self, which: usize) -> Step {
        let machine = &self.machines[which];
        let Some(process) = &machine.process else { return Ok(()) };
        process.flush_index().map_err(text_of)
    }

    fn fill_disk(&mut self, which: usize) -> Step {
        let batches = self.dice.below(4) as usize;
        let machine = &self.machines[which];
        machine.home.fill_up_after(batches);
        let name = machine.name;
        self.say(format!("the disk of {name} is full after {batches} batches"));
        Ok(())
    }

    fn plan_mishap(&mut self) -> Step {
        let mishap = match self.dice.below(12) {
            0..=1 => InjectedFault::LoseAcknowledgement,
            2..=3 => InjectedFault::TimeOutBefore,
            4 => InjectedFault::CommitLate,
            5 => InjectedFault::Abort,
            6 => InjectedFault::DieAfterRecords(self.dice.below(12) as usize),
            7 => InjectedFault::DieBeforeCommit,
            8 => InjectedFault::DieAfterCommit,
            9 => InjectedFault::RefusePoll,
            10 => InjectedFault::DuplicateDelivery,
            _ => InjectedFault::LoseDelivery,
        };
        // The sending client is not under test: its events must be at the offsets that it records.
        if matches!(mishap, InjectedFault::LoseDelivery) && self.sent.len() < self.events {
            return Ok(());
        }
        self.say(format!("next: {mishap:?}"));
        self.cluster.next(mishap);
        Ok(())
    }

    fn plan_interruption(&mut self, which: usize) -> Step {
        let interruption = match self.dice.below(4) {
            0 => Interruption::ExpelledBeforeCommit,
            1 => Interruption::DiesRestoring { polls: self.dice.below(30) as usize },
            _ => {
                let who = NAMES[self.dice.below(2) as usize];
                Interruption::ExpelledWhilePolling { polls: self.dice.below(6) as usize, who }
            }
        };
        let machine = &self.machines[which];
        machine.interruptions.plan(interruption.clone());
        let name = machine.name;
        self.say(format!("next for {name}: {interruption:?}"));
        Ok(())
    }

    fn kill(&mut self, which: usize) -> Step {
        let lost = self.batches_lost();
        let machine = &mut self.machines[which];
        if machine.process.is_none() {
            return Ok(());
        }
        let name = machine.name;
        self.cluster.kill(name);
        machine.home.crash(lost);
        machine.process = None;
        self.count("killed", 1);
        self.say(format!("kill -9 of {name}; the disk loses {lost} batches"));
        Ok(())
    }

    fn start(&mut self, which: usize) -> Step {
        if self.machines[which].process.is_some() {
            return Ok(());
        }
        let batches_lost = self.batches_lost();
        let batch_records_max = [1, 3, 500][self.dice.below(3) as usize];
        let machine = &mut self.machines[which];
        let name = machine.name;
        let process = Process::start(&StartOptions {
            kit: self.kit,
            cluster: &self.cluster,
            clock: &self.clock,
            name,
            transactional_id: &format!("{name}-{}", machine.homes_lost),
            home: &machine.home,
            batch_records_max,
            batches_lost,
            interruptions: &machine.interruptions,
            bug: self.bug,
        });
        machine.process = Some(process.map_err(|fault| format!("{name} starts: {fault}"))?);
        self.say(format!("{name} starts with batches of up to {batch_records_max} records"));
        Ok(())
    }

    fn stop(&mut self, which: usize) -> Step {
        let machine = &mut self.machines[which];
        let Some(process) = machine.process.take() else { return Ok(()) };
        process.stop();
        let name = machine.name;
        self.count("stopped", 1);
        self.say(format!("{name} shuts down cleanly"));
        Ok(())
    }

    fn expel(&mut self, which: usize) -> Step {
        let name = self.machines[which].name;
        self.cluster.expel(name);
        self.say(format!("{name} is expelled from its group"));
        Ok(())
    }

    fn expire(&mut self) -> Step {
        self.cluster.expire_transactions();
        self.say("open transactions expire".into());
        Ok(())
    }

    fn compact_log(&mut self) -> Step {
        self.say("the changelog is compacted".into());
        self.cluster.compact(&self.kit.config.topics.memories(), Tombstones::Keep).map_err(text_of)
    }

    fn let_hours_pass(&mut self) -> Step {
        let hours = 1 + self.dice.below(48) as i64;
        self.clock.advance(hours * HOUR_MS);
        self.say(format!("{hours} hours pass"));
        Ok(())
    }

    fn set_clock_back(&mut self) -> Step {
        let minutes = 1 + self.dice.below(600) as i64;
        self.clock.advance(-minutes * 60_000);
        self.count("the clock goes back", 1);
        self.say(format!("the clock goes back by {minutes} minutes"));
        Ok(())
    }

    /// After a week the changelog topic drops its tombstones. No transaction stays open so long.
    fn let_a_week_pass(&mut self) -> Step {
        self.expire()?;
        self.clock.advance(WEEK_MS);
        self.count("a week", 1);
        self.say("a week passes, and the changelog drops its tombstones".into());
        self.cluster.compact(&self.kit.config.topics.memories(), Tombstones::Drop).map_err(text_of)
    }

    fn lose_home(&mut self, which: usize) -> Step {
        let machine = &mut self.machines[which];
        if machine.process.is_some() {
            return Ok(());
        }
        machine.home = MemoryHome::default();
        machine.homes_lost += 1;
        let name = machine.name;
        self.count("lost its disk", 1);
        self.say(format!("{name} loses its disk"));
        Ok(())
    }

    fn batches_lost(&mut self) -> usize {
        [0, 1, 5][self.dice.below(3) as usize]
    }

    // ---------------------------------------------------------------- catching up

    fn catch_up(&mut self) -> Step {
        self.cluster.heal();
        self.machines.iter().for_each(|machine| machine.interruptions.cancel());
        self.say("no more faults from here on".into());
        for _ in 0..STEPS_TO_REST {
            for which in 0..NAMES.len() {
                self.start(which)?;
                self.round(which)?;
                self.restore(which)?;
            }
            // A machine that lost its disk writes under a new transactional id, so it cannot end
            // its open transaction. Readers get nothing behind that until it expires.
            self.cluster.expire_transactions();
            if self.has_caught_up()? {
                return Ok(());
            }
        }
        Err(format!("the processes do not catch up: {}", self.unfinished()))
    }

    fn has_caught_up(&self) -> Result<bool, String> {
        for partition in 0..PARTITIONS {
            if self.applied_of(partition) != [self.last_event(partition)?] {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The applied offsets of all open shards of a partition. More than one shard is a mistake.
    fn applied_of(&self, partition: i32) -> Vec<i64> {
        self.processes()
            .filter_map(|process| process.shards.get(partition))
            .map(|shard| shard.applied())
            .collect()
    }

    fn last_event(&self, partition: i32) -> Result<i64, String> {
        let records =
            self.cluster.records(&self.kit.config.topics.events(), partition).map_err(text_of)?;
        Ok(records.last().map_or(-1, |record| record.offset))
    }

    fn unfinished(&self) -> String {
        let states = (0..PARTITIONS).map(|partition| {
            let applied = self.applied_of(partition);
            let last = self.last_event(partition);
            format!("partition {partition} has applied {applied:?} of {last:?}")
        });
        states.collect::<Vec<_>>().join("; ")
    }

    pub fn count(&mut self, what: &str, times: usize) {
        *self.counts.entry(what.to_owned()).or_default() += times;
    }

    fn say(&mut self, what: String) {
        self.trace.push(what);
    }
}

pub fn text_of(fault: Fault) -> String {
    fault.to_string()
}

fn applied(process: &Process) -> Vec<(i32, i64)> {
    process.shards.all().iter().map(|shard| (shard.partition, shard.applied())).collect()
}

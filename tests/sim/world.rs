//! A world of two processes and one log. Random steps run the processes and inject faults; then
//! the faults stop, both processes catch up, and the laws are checked.
//!
//! Invariant: a seed determines the run. Nothing here reads a real clock or takes random numbers from
//! elsewhere, and of the threads of all processes one runs at a time, when the world lets it.

use super::bugs::Bug;
use super::instance::{FlushInABatch, Kit, Process, StartOptions, Turned};
use super::interruptions::{Interruption, Interruptions, SilentUntil};
use super::laws;
use super::stream::{self, NOON_MS, PARTITIONS, Sent};
use super::threads::UNTIL_IT_WAITS;
use crate::support::workload::Dice;
use broker::clock::{Clock, ManualClock};
use broker::{Broker, Record};
use domain::fault::{Fault, StopName};
use domain::{Time, UserKey};
use serde_json::{Value, json};
use simulated::{Cluster, Connection, InjectedFault, Tombstones};
use std::collections::BTreeMap;
use storage::home::MemoryHome;

const NAMES: [&str; 2] = ["ann", "bob"];
const STEPS: usize = 130;
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
    /// The memories of a user in every reply so far, by user and applied offset.
    listed: BTreeMap<(usize, i64), Value>,
}

/// A machine with a disk, and the process on the machine if one runs.
struct Machine {
    name: &'static str,
    home: MemoryHome,
    /// Disks that this machine has lost. A new disk gets a new transactional id.
    homes_lost: usize,
    /// The disk takes only some batches more. A restore is then not interrupted, because its writer
    /// decides when it fails.
    disk_is_limited: bool,
    flush: FlushInABatch,
    interruptions: Interruptions,
    process: Option<Process>,
    /// Batches that the disk loses if the process dies by itself.
    batches_lost: usize,
    /// The highest offset that the process has answered with, by partition.
    answered: BTreeMap<i32, i64>,
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
        cluster.create(&topics.tenants(), 1);
        let machines = NAMES.map(|name| {
            let interruptions = Interruptions::to(name, &cluster);
            let flush = FlushInABatch::default();
            Machine {
                name,
                home: flush.home(&interruptions),
                homes_lost: 0,
                disk_is_limited: false,
                flush,
                interruptions,
                process: None,
                batches_lost: 0,
                answered: BTreeMap::new(),
            }
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
            listed: BTreeMap::new(),
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
        match self.dice.below(143) {
            0..=17 => self.send(),
            18..=20 => self.plan_interruption(which),
            21..=58 => self.round(which),
            59..=84 => self.restore(which),
            85..=90 => self.stand_by(which),
            91..=98 => self.plan_mishap(),
            99..=100 => self.kill(which),
            101..=105 => self.start(which),
            106 => self.stop(which),
            107..=108 => self.expel(which),
            109..=111 => self.expire(),
            112..=113 => self.compact_log(),
            114..=116 => self.compact(which),
            117 => self.let_hours_pass(),
            118 => self.set_clock_back(),
            119 => self.let_a_week_pass(),
            120 => self.lose_home(which),
            121..=126 => self.ask(which),
            127..=130 => self.list(which),
            131..=133 => self.flush_index(which),
            134..=136 => self.plan_flush(which),
            137..=141 => self.write_markers(),
            _ => self.fill_disk(which),
        }?;
        self.note_happened();
        Ok(())
    }

    /// Points after which a thread is interrupted; mostly it goes on until it waits.
    fn points(&mut self) -> usize {
        if self.dice.below(2) == 0 { UNTIL_IT_WAITS } else { 1 + self.dice.below(12) as usize }
    }

    /// Counts what the parts of the processes have noted.
    fn note_happened(&mut self) {
        for which in 0..NAMES.len() {
            for what in self.machines[which].interruptions.take_happened() {
                self.count(what, 1);
            }
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
        let points = self.points();
        self.work(which, "runs a round", |process| process.ingest(points))?;
        // Often the next owner restores before the markers of the last commit are written.
        if self.cluster.has_late_markers() && self.dice.below(2) == 0 {
            return self.expel(which);
        }
        Ok(())
    }

    fn compact(&mut self, which: usize) -> Step {
        let points = self.points();
        self.work(which, "plans a compaction", |process| process.compact(points))
    }

    fn work(
        &mut self,
        which: usize,
        what: &str,
        work: impl Fn(&mut Process) -> Option<domain::fault::Result<()>>,
    ) -> Step {
        let machine = &mut self.machines[which];
        let Some(process) = &mut machine.process else { return Ok(()) };
        let before = applied(process);
        let done = work(process);
        let after = applied(process);
        let is_dead = process.connection.is_dead();
        let name = machine.name;
        let how = match (is_dead, &done) {
            (true, _) => ", and dies",
            (_, None) => ", and is interrupted",
            _ => "",
        };
        self.say(format!("{name} {what}: {before:?} → {after:?}{how}"));
        if is_dead {
            return self.bury(which, "died at work");
        }
        match done {
            None | Some(Ok(())) => Ok(()),
            Some(Err(fault)) => self.fault(which, what, fault),
        }
    }

    /// A full disk ends the process, which somebody starts again with room. Every other fault is a
    /// mistake.
    fn fault(&mut self, which: usize, what: &str, fault: Fault) -> Step {
        let name = self.machines[which].name;
        match fault {
            Fault::Stop(stop) if stop.name == StopName::StoreUnwritable => {
                self.count("the disk was full", 1);
                self.kill(which)
            }
            fault => Err(format!("{name} {what}: {fault}")),
        }
    }

    /// Ends the threads of a process whose connection is dead.
    fn bury(&mut self, which: usize, how: &str) -> Step {
        let machine = &mut self.machines[which];
        let Some(process) = machine.process.take() else { return Ok(()) };
        let is_mid_batch = process.round.is_some();
        process.die(&machine.home, machine.batches_lost);
        machine.disk_is_limited = false;
        self.count(how, 1);
        if is_mid_batch {
            self.count("died in the middle of a batch", 1);
        }
        Ok(())
    }

    fn restore(&mut self, which: usize) -> Step {
        let points = self.points();
        let thread = self.dice.below(2) as usize;
        self.turn_restore(which, thread, points)
    }

    fn turn_restore(&mut self, which: usize, thread: usize, points: usize) -> Step {
        let machine = &mut self.machines[which];
        let name = machine.name;
        let Some(process) = &mut machine.process else { return Ok(()) };
        let points = if machine.disk_is_limited {
            if !process.is_decided() {
                return Ok(());
            }
            UNTIL_IT_WAITS
        } else {
            points
        };
        let turned = process.restore(thread, points);
        let is_dead = process.connection.is_dead();
        let both: Vec<i32> = process.restores.iter().flatten().map(|(it, _)| *it).collect();
        let is_standing_by = process.standing_by.as_ref().is_some_and(|(it, _)| both.contains(it));
        if both.len() == 2 {
            self.count("two restores at once", 1);
            if both[0] == both[1] {
                self.count("a restore waits for the one before", 1);
            }
        }
        if is_standing_by {
            self.count("a restore ends a stand-by", 1);
        }
        if is_dead {
            self.say(format!("{name} restores, and dies"));
            return self.bury(which, "died restoring");
        }
        match turned {
            Turned::Idle => Ok(()),
            Turned::GoesOn => {
                self.say(format!("{name} restores {both:?}"));
                // Often the markers are written while the reader has the old end in its queue.
                if self.cluster.has_late_markers() && self.dice.below(2) == 0 {
                    return self.write_markers();
                }
                Ok(())
            }
            Turned::Done(partition, Err(fault)) => {
                self.fault(which, &format!("restores {partition}"), fault)
            }
            Turned::Done(partition, Ok(())) => {
                let process = self.machines[which].process.as_ref().expect("it did not die");
                let applied = process.shards.get(partition).map(|shard| shard.applied());
                let what = process.restored(thread, partition);
                self.say(format!("{name}, {partition}: {what}: {applied:?}"));
                self.count(what, 1);
                Ok(())
            }
        }
    }

    fn stand_by(&mut self, which: usize) -> Step {
        let chosen = self.dice.below(PARTITIONS as u64 + 1) as usize;
        let points = self.points();
        self.turn_stand_by(which, chosen, points)
    }

    fn turn_stand_by(&mut self, which: usize, chosen: usize, points: usize) -> Step {
        let machine = &mut self.machines[which];
        let name = machine.name;
        let Some(process) = &mut machine.process else { return Ok(()) };
        let points = if machine.disk_is_limited {
            if !process.is_decided() {
                return Ok(());
            }
            UNTIL_IT_WAITS
        } else {
            points
        };
        let turned = process.stand_by(chosen, points);
        if process.connection.is_dead() {
            self.say(format!("{name} stands by, and dies"));
            return self.bury(which, "died standing by");
        }
        match turned {
            Turned::Idle => Ok(()),
            Turned::GoesOn => {
                self.say(format!("{name} begins to stand by"));
                Ok(())
            }
            Turned::Done(partition, Ok(())) => {
                self.count("stood by", 1);
                self.say(format!("{name} stands by for {partition}"));
                Ok(())
            }
            Turned::Done(_, Err(Fault::Retry(retry))) => {
                self.say(format!("{name} cannot stand by now: {}", retry.what));
                Ok(())
            }
            Turned::Done(_, Err(stop)) => self.fault(which, "stands by", stop),
        }
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
        let Some((name, reply)) = self.reply(which, request)? else { return Ok(()) };
        let applied = reply["applied_offset"].as_i64().unwrap_or(-1);
        match reply["status"].as_str() {
            Some("ok") if applied >= offset => self.count("read its own write", 1),
            Some("unavailable" | "stale" | "expired") => self.count("could not read now", 1),
            _ => return Err(format!("{name} answers {reply} for {event} at {offset}")),
        }
        self.say(format!("{name} answers {} for {memory}", reply["status"]));
        Ok(())
    }

    /// Law fresh-or-says-so: replies that state the same offset list the same memories, whichever
    /// process gives them, and whatever else it is doing.
    fn list(&mut self, which: usize) -> Step {
        let user = self.dice.below(self.users as u64) as usize;
        let partition = key_of(user).partition(PARTITIONS);
        let request = json!({"type": "list", "tenant": stream::TENANT, "user": stream::USERS[user],
            "limit": 100});
        let request = Record {
            topic: self.kit.config.topics.recalls(),
            partition,
            timestamp_ms: self.clock.wall().0,
            value: Some(request.to_string().into_bytes()),
            ..Record::default()
        };
        let Some((name, reply)) = self.reply(which, request)? else { return Ok(()) };
        if reply["status"] != "ok" {
            self.count("could not list now", 1);
            return Ok(());
        }
        let applied = reply["applied_offset"].as_i64().ok_or("a reply states its offset")?;
        self.say(format!("{name} lists the memories of {} at {applied}", stream::USERS[user]));
        // Memories of the tenant are left out: when others see a change of them is not promised.
        let mut now = reply["memories"].clone();
        let memories = now.as_array_mut().ok_or("a list has memories")?;
        memories.retain(|memory| memory["scope"] != "tenant");
        let before = self.listed.entry((user, applied)).or_insert_with(|| now.clone());
        if *before == now {
            return Ok(());
        }
        Err(format!("{name} lists {now:#} at {applied}, and before were {before:#}"))
    }

    /// Gives a request to the owner of the partition, or sometimes to a process that has lost it,
    /// between two turns of its threads. What one process answers never gets older.
    fn reply(
        &mut self,
        which: usize,
        request: Record,
    ) -> Result<Option<(&'static str, Value)>, String> {
        let partition = request.partition;
        let owner = self.machines.iter().position(|machine| {
            machine.process.as_ref().is_some_and(|it| it.shards.get(partition).is_some())
        });
        let machine = &mut self.machines[owner.unwrap_or(which)];
        let name = machine.name;
        let Some(process) = &mut machine.process else { return Ok(None) };
        let Some(reply) = process.ask(request) else { return Ok(None) };
        let reply: Value = serde_json::from_slice(reply.value.as_deref().unwrap_or_default())
            .map_err(|error| format!("{name} replies without JSON: {error}"))?;
        if reply["status"] != "ok" {
            return Ok(Some((name, reply)));
        }
        let is_mid_batch = process.round.is_some();
        let restores = process.restores.iter().any(Option::is_some);
        let applied = reply["applied_offset"].as_i64().unwrap_or(-1);
        let newest = machine.answered.entry(partition).or_insert(applied);
        if applied < *newest {
            return Err(format!("{name} answers at {applied}, after an answer at {newest}"));
        }
        *newest = applied;
        if is_mid_batch {
            self.count("read in the middle of a batch", 1);
        }
        if restores {
            self.count("read during a restore", 1);
        }
        Ok(Some((name, reply)))
    }

    /// True if the event made a memory that nothing sent so far can have removed.
    fn must_be_there(&self, sent: &Sent) -> bool {
        let event = &sent.event;
        let key = key_of(sent.user);
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

    fn plan_flush(&mut self, which: usize) -> Step {
        let machine = &self.machines[which];
        let Some(process) = &machine.process else { return Ok(()) };
        let memories = self.kit.config.topics.memories();
        let log = self.cluster.connect("flush").log(&memories).map_err(text_of)?;
        machine.flush.plan(&process.shards, self.bug, log);
        Ok(())
    }

    fn write_markers(&mut self) -> Step {
        let transactions = self.cluster.write_markers();
        if transactions > 0 {
            self.count("markers came late", transactions);
            self.say(format!("the markers of {transactions} transactions are written"));
        }
        Ok(())
    }

    fn fill_disk(&mut self, which: usize) -> Step {
        let batches = self.dice.below(4) as usize;
        let machine = &mut self.machines[which];
        let is_restoring = machine.process.as_ref().is_some_and(|process| {
            process.standing_by.is_some() || process.restores.iter().any(Option::is_some)
        });
        if is_restoring {
            return Ok(());
        }
        machine.disk_is_limited = true;
        machine.home.fill_up_after(batches);
        let name = machine.name;
        self.say(format!("the disk of {name} is full after {batches} batches"));
        Ok(())
    }

    fn plan_mishap(&mut self) -> Step {
        let mishap = match self.dice.below(15) {
            0..=1 => InjectedFault::LoseAcknowledgement,
            2..=3 => InjectedFault::TimeOutBefore,
            4 => InjectedFault::CommitLate,
            5 => InjectedFault::Abort,
            6 => InjectedFault::DieAfterRecords(self.dice.below(12) as usize),
            7 => InjectedFault::DieBeforeCommit,
            8 => InjectedFault::DieAfterCommit,
            9 => InjectedFault::RefusePoll,
            10 => InjectedFault::DuplicateDelivery,
            11..=13 => InjectedFault::MarkLate,
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
        let interruption = match self.dice.below(5) {
            0 => Interruption::ExpelledBeforeCommit,
            4 => {
                let until = [SilentUntil::Resumed, SilentUntil::JoinedAgain];
                Interruption::FallsSilent { until: until[self.dice.below(2) as usize] }
            }
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
        machine.batches_lost = lost;
        self.say(format!("kill -9 of {name}; the disk loses {lost} batches"));
        self.bury(which, "killed")
    }

    fn start(&mut self, which: usize) -> Step {
        if self.machines[which].process.is_some() {
            return Ok(());
        }
        let batches_lost = self.batches_lost();
        let batch_records_max = [1, 3, 500][self.dice.below(3) as usize];
        let machine = &mut self.machines[which];
        let name = machine.name;
        machine.batches_lost = batches_lost;
        machine.answered.clear();
        let process = Process::start(&StartOptions {
            kit: self.kit,
            cluster: &self.cluster,
            clock: &self.clock,
            name,
            transactional_id: &format!("{name}-{}", machine.homes_lost),
            home: &machine.home,
            batch_records_max,
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
        let name = machine.name;
        if let Some(died) = process.stop(&self.cluster) {
            self.machines[which].process = Some(died);
            self.say(format!("{name} dies while it shuts down"));
            return self.bury(which, "died stopping");
        }
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
        self.compact_topics(Tombstones::Keep)
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
        self.compact_topics(Tombstones::Drop)
    }

    fn compact_topics(&self, tombstones: Tombstones) -> Step {
        let topics = &self.kit.config.topics;
        self.cluster.compact(&topics.memories(), tombstones).map_err(text_of)?;
        self.cluster.compact(&topics.tenants(), tombstones).map_err(text_of)
    }

    fn lose_home(&mut self, which: usize) -> Step {
        let machine = &mut self.machines[which];
        if machine.process.is_some() {
            return Ok(());
        }
        machine.home = machine.flush.home(&machine.interruptions);
        machine.disk_is_limited = false;
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
                self.work(which, "runs a round", |process| process.ingest(UNTIL_IT_WAITS))?;
                for thread in 0..2 {
                    self.turn_restore(which, thread, UNTIL_IT_WAITS)?;
                }
                if self.machines[which].process.as_ref().is_some_and(|it| it.standing_by.is_some())
                {
                    self.turn_stand_by(which, 0, UNTIL_IT_WAITS)?;
                }
            }
            self.note_happened();
            // A machine that lost its disk writes under a new transactional id, so it cannot end
            // its open transaction. Readers get nothing behind that until it expires.
            self.cluster.expire_transactions();
            // A partition whose broker did not answer is resumed after a pause.
            self.clock.advance(1000);
            if self.has_caught_up()? && self.has_ended() {
                return Ok(());
            }
        }
        Err(format!("the processes do not catch up: {}", self.unfinished()))
    }

    /// True if no thread is in the middle of its work.
    fn has_ended(&self) -> bool {
        self.processes().all(|process| process.round.is_none())
    }

    fn has_caught_up(&self) -> Result<bool, String> {
        for partition in 0..PARTITIONS {
            if self.applied_of(partition) != [self.last_event(partition)?] {
                return Ok(false);
            }
            let mut open = self.processes().filter_map(|process| process.shards.get(partition));
            if open.any(|shard| matches!(shard.store.published(), Ok(None))) {
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

fn key_of(user: usize) -> UserKey {
    UserKey::new(stream::TENANT, stream::USERS[user]).expect("tenant and user are valid names")
}

pub fn text_of(fault: Fault) -> String {
    fault.to_string()
}

fn applied(process: &Process) -> Vec<(i32, i64)> {
    process.shards.all().iter().map(|shard| (shard.partition, shard.applied())).collect()
}

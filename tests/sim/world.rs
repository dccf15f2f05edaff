//! A world of two processes, one log and everything that can go wrong between them, step by step as the dice say. A seed is a world:
//! nothing here looks at a real clock, starts a thread or asks anybody for chance.

use super::bugs::Bug;
use super::instance::{Birth, Kit, Running};
use super::laws;
use super::stream::{self, NOON_MS, PARTITIONS, Sent};
use super::unsteady::{Blow, Blows};
use crate::support::story::Dice;
use keepsake::domain::Time;
use keepsake::fault::Fault;
use keepsake::home::MemoryHome;
use keepsake::ports::broker::Broker;
use keepsake::ports::clock::ManualClock;
use keepsake::ports::memory::{Cluster, Connection, Mishap, Tombstones};
use std::collections::BTreeMap;

const NAMES: [&str; 2] = ["ann", "bob"];
const STEPS: usize = 100;
/// Some stories are short: what goes wrong in one event needs no other.
const EVENTS_MIN: u64 = 10;
const EVENTS_MAX: u64 = 36;
/// Enough for any backlog that so few events can make.
const STEPS_TO_REST: usize = 400;
const HOUR_MS: i64 = 3_600_000;
const WEEK_MS: i64 = 7 * 24 * HOUR_MS;

/// How one ended, and how it came to that.
pub struct Story {
    /// The digest of all that is left, if every law holds; else what does not.
    pub end: Result<u64, String>,
    pub trace: Vec<String>,
    /// What it was a story of.
    pub happened: Happened,
}

/// How often what happened, so that nobody believes in a simulator in which nothing does.
pub type Happened = BTreeMap<String, usize>;

pub struct World<'k> {
    pub kit: &'k Kit,
    pub cluster: Cluster,
    pub sent: Vec<Sent>,
    /// How many there will be, and of how many users.
    events: usize,
    users: usize,
    pub dice: Dice,
    clock: ManualClock,
    client: Connection,
    processes: [Process; 2],
    bug: Option<Bug>,
    trace: Vec<String>,
    happened: Happened,
}

/// A machine, and the process on it if one runs.
struct Process {
    name: &'static str,
    home: MemoryHome,
    /// Who loses the disk loses the name it wrote under.
    homes_before: usize,
    blows: Blows,
    running: Option<Running>,
}

type Step = Result<(), String>;

/// Things go wrong, then nothing does, then the laws are held against what is left.
pub fn tell(kit: &Kit, seed: u64, bug: Option<Bug>) -> Story {
    let mut world = World::new(kit, seed, bug);
    let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.live()));
    let end = lived.unwrap_or_else(|_| Err("a panic, see above".to_owned()));
    Story { end, trace: world.trace, happened: world.happened }
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
            topics.dead_letters(),
            topics.replies(),
        ] {
            cluster.create(&topic, PARTITIONS);
        }
        let process = |name| {
            let (home, blows) = (MemoryHome::default(), Blows::to(name, &cluster));
            Process { name, home, homes_before: 0, blows, running: None }
        };
        let processes = NAMES.map(process);
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
            processes,
            bug,
            trace: Vec::new(),
            happened: Happened::new(),
        }
    }

    fn live(&mut self) -> Result<u64, String> {
        for which in 0..NAMES.len() {
            self.start(which)?;
        }
        for _ in 0..STEPS {
            self.step()?;
        }
        self.come_to_rest()?;
        let shards = self
            .processes
            .iter()
            .filter_map(|process| process.running.as_ref())
            .map(|running| &running.shards);
        laws::hold(self, &shards.cloned().collect::<Vec<_>>())
    }

    fn step(&mut self) -> Step {
        let which = self.dice.below(2) as usize;
        match self.dice.below(100) {
            0..=17 => self.send(),
            18..=20 => self.expect_blow(which),
            21..=54 => self.round(which),
            55..=68 => self.restore(which),
            69..=71 => self.stand_by(which),
            72..=78 => self.expect_mishap(),
            79..=80 => self.kill(which),
            81..=85 => self.start(which),
            86 => self.stop(which),
            87..=88 => self.expel(which),
            89..=91 => self.expire(),
            92..=93 => self.compact_log(),
            94..=95 => self.compact(which),
            96 => self.pass(),
            97 => self.go_back(),
            98 => self.pass_a_week(),
            _ => self.lose_home(which),
        }
    }

    // ---------------------------------------------------------------- what may happen

    fn send(&mut self) -> Step {
        for _ in 0..=self.dice.below(3) {
            if self.sent.len() == self.events {
                break;
            }
            let topic = self.kit.config.topics.events();
            let next = stream::next(&mut self.dice, self.users, &topic, &self.sent);
            let offset =
                self.client.log(&topic).and_then(|log| log.end(next.partition)).map_err(said)?;
            let mut producer = self.client.producer("client").map_err(said)?;
            producer.send(&next.outgoing).map_err(said)?;
            let sent = next.sent_at(offset);
            self.say(format!("sends {}/{}: {}", sent.place.0, sent.place.1, sent.event));
            self.sent.push(sent);
        }
        Ok(())
    }

    fn round(&mut self, which: usize) -> Step {
        self.let_work(which, "goes round", Running::round)
    }

    fn compact(&mut self, which: usize) -> Step {
        self.let_work(which, "plans a compaction", Running::compact)
    }

    fn let_work(
        &mut self,
        which: usize,
        what: &str,
        work: impl Fn(&mut Running) -> keepsake::fault::Result<()>,
    ) -> Step {
        let process = &mut self.processes[which];
        let Some(running) = &mut process.running else { return Ok(()) };
        let before = applied(running);
        let done = work(running);
        let after = applied(running);
        let is_dead = running.connection.is_dead();
        let name = process.name;
        self.say(format!(
            "{name} {what}: {before:?} → {after:?}{}",
            if is_dead { ", and dies" } else { "" }
        ));
        if is_dead {
            self.processes[which].running = None;
            self.note("died at work", 1);
            return Ok(());
        }
        done.map_err(|fault| format!("{name} {what}: {fault}"))
    }

    fn restore(&mut self, which: usize) -> Step {
        let process = &mut self.processes[which];
        let name = process.name;
        let Some(running) = &mut process.running else { return Ok(()) };
        let Some(partition) = running.restore() else { return Ok(()) };
        if running.connection.is_dead() {
            process.running = None;
            self.say(format!("{name} restores {partition}, and dies"));
            self.note("died restoring", 1);
            return Ok(());
        }
        let applied = running.shards.get(partition).map(|shard| shard.applied());
        self.say(format!("{name} restores {partition}: {applied:?}"));
        self.note("restored", 1);
        Ok(())
    }

    fn stand_by(&mut self, which: usize) -> Step {
        let chosen = self.dice.below(PARTITIONS as u64) as usize;
        let process = &mut self.processes[which];
        let name = process.name;
        let Some(running) = &mut process.running else { return Ok(()) };
        let outcome = running.stand_by(chosen);
        if running.connection.is_dead() {
            process.running = None;
            self.say(format!("{name} stands by, and dies"));
            return Ok(());
        }
        match outcome {
            Ok(Some(partition)) => {
                self.note("stood by", 1);
                self.say(format!("{name} stands by for {partition}"));
            }
            Ok(None) => {}
            Err(Fault::Retry(retry)) => {
                self.say(format!("{name} cannot stand by now: {}", retry.what))
            }
            Err(stop) => return Err(format!("{name} stands by: {stop}")),
        }
        Ok(())
    }

    fn expect_mishap(&mut self) -> Step {
        let mishap = match self.dice.below(12) {
            0..=1 => Mishap::LoseAcknowledgement,
            2..=3 => Mishap::TimeOutBefore,
            4 => Mishap::CommitLate,
            5 => Mishap::Abort,
            6 => Mishap::DieAfterRecords(self.dice.below(12) as usize),
            7 => Mishap::DieBeforeCommit,
            8 => Mishap::DieAfterCommit,
            9 => Mishap::RefusePoll,
            10 => Mishap::DuplicateDelivery,
            _ => Mishap::LoseDelivery,
        };
        // The client is not what is tested: what it sends must stand where it believes.
        if matches!(mishap, Mishap::LoseDelivery) && self.sent.len() < self.events {
            return Ok(());
        }
        self.say(format!("next: {mishap:?}"));
        self.cluster.next(mishap);
        Ok(())
    }

    fn expect_blow(&mut self, which: usize) -> Step {
        let blow = match self.dice.below(4) {
            0 => Blow::ExpelledBeforeCommit,
            1 => Blow::DiesRestoring { polls: self.dice.below(30) as usize },
            _ => {
                let who = NAMES[self.dice.below(2) as usize];
                Blow::ExpelledWhilePolling { polls: self.dice.below(6) as usize, who }
            }
        };
        let process = &self.processes[which];
        process.blows.expect(blow.clone());
        let name = process.name;
        self.say(format!("next for {name}: {blow:?}"));
        Ok(())
    }

    fn kill(&mut self, which: usize) -> Step {
        let lost = self.batches_lost();
        let process = &mut self.processes[which];
        if process.running.is_none() {
            return Ok(());
        }
        let name = process.name;
        self.cluster.kill(name);
        process.home.crash(lost);
        process.running = None;
        self.note("killed", 1);
        self.say(format!("kill -9 of {name}; its disk loses {lost} batches"));
        Ok(())
    }

    fn start(&mut self, which: usize) -> Step {
        if self.processes[which].running.is_some() {
            return Ok(());
        }
        let batches_lost = self.batches_lost();
        let batch_records_max = [1, 3, 500][self.dice.below(3) as usize];
        let process = &mut self.processes[which];
        let birth = Birth {
            kit: self.kit,
            cluster: &self.cluster,
            clock: &self.clock,
            name: process.name,
            writes_as: &format!("{}-{}", process.name, process.homes_before),
            home: &process.home,
            batch_records_max,
            batches_lost,
            blows: &process.blows,
            bug: self.bug,
        };
        let name = process.name;
        process.running =
            Some(Running::start(&birth).map_err(|fault| format!("{name} starts: {fault}"))?);
        self.say(format!("{name} starts; reads {batch_records_max} together"));
        Ok(())
    }

    fn stop(&mut self, which: usize) -> Step {
        let process = &mut self.processes[which];
        let Some(running) = process.running.take() else { return Ok(()) };
        running.stop();
        let name = process.name;
        self.note("stopped", 1);
        self.say(format!("{name} stops in good order"));
        Ok(())
    }

    fn expel(&mut self, which: usize) -> Step {
        let name = self.processes[which].name;
        self.cluster.expel(name);
        self.say(format!("{name} is expelled from its group"));
        Ok(())
    }

    fn expire(&mut self) -> Step {
        self.cluster.expire_transactions();
        self.say("what is open expires".into());
        Ok(())
    }

    fn compact_log(&mut self) -> Step {
        self.say("the changelog is compacted".into());
        self.cluster.compact(&self.kit.config.topics.memories(), Tombstones::Keep).map_err(said)
    }

    fn pass(&mut self) -> Step {
        let hours = 1 + self.dice.below(48) as i64;
        self.clock.advance(hours * HOUR_MS);
        self.say(format!("{hours} hours pass"));
        Ok(())
    }

    /// Somebody sets the clock.
    fn go_back(&mut self) -> Step {
        let minutes = 1 + self.dice.below(600) as i64;
        self.clock.advance(-minutes * 60_000);
        self.note("the clock goes back", 1);
        self.say(format!("the clock goes back by {minutes} minutes"));
        Ok(())
    }

    /// After so long the topic forgets what is gone. No transaction is open so long.
    fn pass_a_week(&mut self) -> Step {
        self.expire()?;
        self.clock.advance(WEEK_MS);
        self.note("a week", 1);
        self.say("a week passes, and the changelog forgets what is gone".into());
        self.cluster.compact(&self.kit.config.topics.memories(), Tombstones::Drop).map_err(said)
    }

    fn lose_home(&mut self, which: usize) -> Step {
        let process = &mut self.processes[which];
        if process.running.is_some() {
            return Ok(());
        }
        process.home = MemoryHome::default();
        process.homes_before += 1;
        let name = process.name;
        self.note("lost its disk", 1);
        self.say(format!("{name} loses its disk"));
        Ok(())
    }

    fn batches_lost(&mut self) -> usize {
        [0, 1, 5][self.dice.below(3) as usize]
    }

    // ---------------------------------------------------------------- and then nothing does

    fn come_to_rest(&mut self) -> Step {
        self.cluster.heal();
        self.processes.iter().for_each(|process| process.blows.forget());
        self.say("nothing goes wrong any more".into());
        for _ in 0..STEPS_TO_REST {
            for which in 0..NAMES.len() {
                self.start(which)?;
                self.round(which)?;
                self.restore(which)?;
            }
            // What a process left open that writes under another name now: until it expires nobody is given what is behind it.
            self.cluster.expire_transactions();
            if self.is_at_rest()? {
                return Ok(());
            }
        }
        Err(format!("does not come to rest: {}", self.unfinished()))
    }

    fn is_at_rest(&self) -> Result<bool, String> {
        for partition in 0..PARTITIONS {
            let applied: Vec<i64> = self.shards_of(partition);
            if applied != [self.last_event(partition)?] {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn shards_of(&self, partition: i32) -> Vec<i64> {
        let running = self.processes.iter().filter_map(|process| process.running.as_ref());
        running
            .filter_map(|running| running.shards.get(partition))
            .map(|shard| shard.applied())
            .collect()
    }

    fn last_event(&self, partition: i32) -> Result<i64, String> {
        let records =
            self.cluster.records(&self.kit.config.topics.events(), partition).map_err(said)?;
        Ok(records.last().map_or(-1, |record| record.offset))
    }

    fn unfinished(&self) -> String {
        let state = |p: i32| {
            format!("partition {p} is applied {:?} of {:?}", self.shards_of(p), self.last_event(p))
        };
        (0..PARTITIONS).map(state).collect::<Vec<_>>().join("; ")
    }

    pub fn note(&mut self, what: &str, times: usize) {
        *self.happened.entry(what.to_owned()).or_default() += times;
    }

    fn say(&mut self, what: String) {
        self.trace.push(what);
    }
}

pub fn said(fault: Fault) -> String {
    fault.to_string()
}

fn applied(running: &Running) -> Vec<(i32, i64)> {
    running.shards.all().iter().map(|shard| (shard.partition, shard.applied())).collect()
}

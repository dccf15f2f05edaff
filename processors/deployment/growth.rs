//! Partitions that were added to the events topic while a process runs, and the wait of a process
//! whose generation of shards is not open yet.
//!
//! A generation is open once its group has committed offsets of the events topic: the cut-over
//! commits them when the old generation has closed its shards and the new ones are complete.

use broker::{Broker, Consumer, Membership, Polled, RebalanceListener, Start};
use domain::fault::{Fault, Result, StopName};
use kafka::Connection;
use settings::Config;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause between two looks whether the generation is open.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// To whom partitions belong that this process does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    OfLaterGeneration,
    OfNobody,
}

/// Finds out whether a later generation has more partitions than this one.
pub fn growth(config: &Config, connection: &Connection, partitions: i32) -> Result<Growth> {
    let later = config.of_generation(config.kafka.generation + 1);
    let found = connection.partitions_of(&later.topics.memories())?;
    Ok(match found {
        Some(of_later) if of_later > partitions => Growth::OfLaterGeneration,
        _ => Growth::OfNobody,
    })
}

/// The group in which processes wait until their generation is open. `keepsake generation cut-over`
/// counts its members.
pub fn waiting_group(config: &Config) -> String {
    format!("{}-waiting", config.kafka.group_id)
}

/// The transactional id of the builder of this generation, and the group in which that process
/// identifies itself.
pub fn builder_id(config: &Config) -> String {
    format!("{}-build", config.kafka.group_id)
}

/// Returns whether the generation of these options applies events.
pub fn is_open(config: &Config, connection: &Connection) -> Result<bool> {
    if config.kafka.generation == 1 {
        return Ok(true);
    }
    let committed = connection.committed(&config.kafka.group_id, &config.topics.events(), &[0])?;
    Ok(!committed.is_empty())
}

/// Stops a process whose generation has been cut over to the next.
pub fn check_not_retired(config: &Config, connection: &Connection) -> Result<()> {
    let next = config.of_generation(config.kafka.generation + 1);
    let is_built = connection.partitions_of(&next.topics.memories())?.is_some();
    if !is_built || !is_open(&next, connection)? {
        return Ok(());
    }
    let what = format!(
        "generation {} has taken the events since its cut-over, and this process serves generation \
         {}: remove the process, or set kafka.generation = {}",
        next.kafka.generation, config.kafka.generation, next.kafka.generation
    );
    Err(Fault::stop(StopName::GenerationRetired, what))
}

type Ask<T> = Box<dyn Fn() -> Result<T> + Send>;

/// A member of the consumer group that joins once the generation is open.
pub struct AwaitingConsumer {
    member: Option<Box<dyn Consumer>>,
    /// The membership in the group of those that wait.
    waiting: Option<Box<dyn Consumer>>,
    is_open: Ask<bool>,
    join: Ask<Box<dyn Consumer>>,
    looked: Option<Instant>,
}

/// Reads nothing of the partitions that the group of waiting processes assigns.
struct ReadsNothing;

impl RebalanceListener for ReadsNothing {
    fn assigned(&self, partitions: &[(i32, Option<i64>)]) -> Vec<(i32, Start)> {
        partitions.iter().map(|(partition, _)| (*partition, Start::Paused)).collect()
    }

    fn revoked(&self, _partitions: &[i32]) {}
}

impl AwaitingConsumer {
    pub fn new(
        config: &Config,
        connection: &Connection,
        join: Ask<Box<dyn Consumer>>,
    ) -> Result<AwaitingConsumer> {
        let group = waiting_group(config);
        let waiting = connection.join(&group, &config.topics.memories(), Arc::new(ReadsNothing))?;
        let (config, connection) = (config.clone(), connection.clone());
        Ok(AwaitingConsumer {
            member: None,
            waiting: Some(waiting),
            is_open: Box::new(move || is_open(&config, &connection)),
            join,
            looked: None,
        })
    }

    /// Joins the group if the generation is open.
    fn look(&mut self) -> Result<()> {
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY) {
            return Ok(());
        }
        let is_open = (self.is_open)();
        self.looked = Some(Instant::now());
        if is_open? {
            tracing::info!("the generation is open: joins its group");
            self.member = Some((self.join)()?);
            // Leaving a group may take as long as a rebalance of it, and the events must not wait.
            if let Some(waiting) = self.waiting.take() {
                std::thread::spawn(move || waiting.close());
            }
        }
        Ok(())
    }

    fn member(&mut self) -> Result<&mut Box<dyn Consumer>> {
        let what = "the generation is not open yet";
        self.member.as_mut().ok_or_else(|| Fault::retry(what))
    }
}

impl Consumer for AwaitingConsumer {
    fn poll(&mut self, wait: Duration) -> Result<Polled> {
        if let Some(member) = &mut self.member {
            return member.poll(wait);
        }
        if let Some(waiting) = &mut self.waiting {
            waiting.poll(wait)?;
        }
        self.look()?;
        Ok(Polled::Nothing)
    }

    fn assign(&mut self, partitions: &[(i32, Start)]) -> Result<()> {
        self.member()?.assign(partitions)
    }

    fn unassign(&mut self, partitions: &[i32]) -> Result<()> {
        self.member()?.unassign(partitions)
    }

    fn commit(&mut self, offsets: &[(i32, i64)]) -> Result<()> {
        self.member()?.commit(offsets)
    }

    fn pause(&mut self, partitions: &[i32]) -> Result<()> {
        self.member()?.pause(partitions)
    }

    fn resume(&mut self, partition: i32, offset: i64) -> Result<()> {
        self.member()?.resume(partition, offset)
    }

    fn membership(&self) -> Option<Membership> {
        self.member.as_ref()?.membership()
    }

    fn join_again(&mut self) -> Result<()> {
        self.member()?.join_again()
    }

    fn close(self: Box<Self>) {
        for consumer in [self.member, self.waiting].into_iter().flatten() {
            consumer.close();
        }
    }
}

//! Joins the group again: where the broker has expelled a static member, and where the caller asks
//! for a new client.
//!
//! A broker expels the member whose `instance.id` somebody else joins with. That is a second
//! process with a copy of the store, or this process itself: if the answer to the join was lost
//! while a broker failed, the broker knows a member that this process does not know. Neither side
//! can distinguish the two. So an expelled member joins again, but not for ever: two processes
//! expel each other again and again until one of them stops by name.

use super::consumer::KafkaConsumer;
use broker::{Consumer, Membership, Polled, Start};
use domain::fault::{Fault, Result, Stop, StopName};
use std::time::{Duration, Instant};

/// Expulsions within this time that count together, and how many of them a member survives. Brokers
/// that fail one after the other expelled a member three times in a minute; two processes with
/// copies of a store expel each other every few seconds.
const TOGETHER: Duration = Duration::from_secs(60);
const SURVIVED: usize = 4;

pub type Join = Box<dyn Fn() -> Result<KafkaConsumer> + Send>;

pub struct RejoiningConsumer {
    /// Missing only while this process joins again.
    member: Option<KafkaConsumer>,
    join: Join,
    /// When the last expulsions were.
    expelled: Vec<Instant>,
}

impl RejoiningConsumer {
    pub fn new(join: Join) -> Result<RejoiningConsumer> {
        Ok(RejoiningConsumer { member: Some(join()?), join, expelled: Vec::new() })
    }

    fn member(&mut self) -> Result<&mut KafkaConsumer> {
        let member = match self.member.take() {
            Some(member) => member,
            None => (self.join)()?,
        };
        Ok(self.member.insert(member))
    }

    /// Gives up the partitions of an expelled member. Returns false for one that was expelled too
    /// often.
    fn leave_expelled(&mut self) -> bool {
        self.expelled.retain(|at| at.elapsed() < TOGETHER);
        if self.expelled.len() == SURVIVED {
            return false;
        }
        self.expelled.push(Instant::now());
        tracing::warn!("the broker expelled this process from its group: joining again");
        self.leave();
        true
    }

    /// The next call joins with a new client.
    fn leave(&mut self) {
        if let Some(member) = self.member.take() {
            member.leave();
        }
    }
}

impl Consumer for RejoiningConsumer {
    fn poll(&mut self, wait: Duration) -> Result<Polled> {
        match self.member()?.poll(wait) {
            Err(Fault::Stop(Stop { name: StopName::InstanceTaken, .. }))
                if self.leave_expelled() =>
            {
                Ok(Polled::Nothing)
            }
            polled => polled,
        }
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
        self.leave();
        Ok(())
    }

    fn close(self: Box<Self>) {
        if let Some(member) = self.member {
            Box::new(member).close();
        }
    }
}

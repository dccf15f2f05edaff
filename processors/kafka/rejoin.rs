//! Joins the group again, once, after the broker has expelled a static member.
//!
//! A broker expels the member whose `instance.id` somebody else joins with. That is a second process
//! with a copy of the store, or this process itself: if the answer to its join was lost while the
//! broker restarted, the broker knows a member that this process has never heard of. The two cannot
//! be told apart, so the first time this process joins again. Of two processes that do so in turn
//! one is expelled again soon, and stops.

use super::consumer::KafkaConsumer;
use domain::fault::{Fault, Result, Stop, StopName};
use log::broker::{Consumer, Membership, Polled, Start};
use std::time::{Duration, Instant};

/// Time in which a second expulsion stops the process. Two processes expel each other at every
/// heartbeat, within a few seconds.
const EXPELLED_AGAIN: Duration = Duration::from_secs(60);

pub type Join = Box<dyn Fn() -> Result<KafkaConsumer> + Send>;

pub struct RejoiningConsumer {
    /// Missing only while this process joins again.
    member: Option<KafkaConsumer>,
    join: Join,
    expelled: Option<Instant>,
}

impl RejoiningConsumer {
    pub fn new(join: Join) -> Result<RejoiningConsumer> {
        Ok(RejoiningConsumer { member: Some(join()?), join, expelled: None })
    }

    fn member(&mut self) -> Result<&mut KafkaConsumer> {
        let member = match self.member.take() {
            Some(member) => member,
            None => (self.join)()?,
        };
        Ok(self.member.insert(member))
    }
}

impl Consumer for RejoiningConsumer {
    fn poll(&mut self, wait: Duration) -> Result<Polled> {
        match self.member()?.poll(wait) {
            Err(Fault::Stop(Stop { name: StopName::InstanceTaken, .. }))
                if self.expelled.is_none_or(|at| at.elapsed() > EXPELLED_AGAIN) =>
            {
                tracing::warn!(
                    "the broker expelled this process from its group, as it does when another \
                     process joins with the same instance.id: joining again, once"
                );
                self.expelled = Some(Instant::now());
                if let Some(member) = self.member.take() {
                    member.leave_expelled();
                }
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

    fn close(self: Box<Self>) {
        if let Some(member) = self.member {
            Box::new(member).close();
        }
    }
}

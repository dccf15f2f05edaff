//! Joins the group again where the broker has expelled a static member after an outage.
//!
//! A broker expels the member whose `instance.id` somebody else joins with. That is a second process
//! with a copy of the store, or this process itself: if the answer to its join was lost while the
//! broker restarted, the broker knows a member that this process has never heard of. Only after an
//! outage can it be the latter, so only then this process joins again. If there is a second process,
//! one of the two is expelled again at the next heartbeat, without an outage, and stops.

use super::consumer::KafkaConsumer;
use domain::fault::{Fault, Result, Stop, StopName};
use log::broker::{Consumer, Membership, Polled, Start};
use std::time::Duration;

/// Time after an outage in which an expulsion may come from it: a member that could not reach its
/// broker notices at its next heartbeat or join.
const AFTER_OUTAGE: Duration = Duration::from_secs(60);

pub type Join = Box<dyn Fn() -> Result<KafkaConsumer> + Send>;

pub struct RejoiningConsumer {
    /// Missing only while this process joins again.
    member: Option<KafkaConsumer>,
    join: Join,
}

impl RejoiningConsumer {
    pub fn new(join: Join) -> Result<RejoiningConsumer> {
        Ok(RejoiningConsumer { member: Some(join()?), join })
    }

    fn member(&mut self) -> Result<&mut KafkaConsumer> {
        let member = match self.member.take() {
            Some(member) => member,
            None => (self.join)()?,
        };
        Ok(self.member.insert(member))
    }

    /// Gives up the partitions of a member that was expelled after an outage. Returns false for any
    /// other member.
    fn leave(&mut self) -> bool {
        match self.member.take_if(|member| member.had_outage_within(AFTER_OUTAGE)) {
            Some(member) => {
                tracing::warn!("the broker expelled this process after an outage: joining again");
                member.leave_expelled();
                true
            }
            None => false,
        }
    }
}

impl Consumer for RejoiningConsumer {
    fn poll(&mut self, wait: Duration) -> Result<Polled> {
        match self.member()?.poll(wait) {
            Err(Fault::Stop(Stop { name: StopName::InstanceTaken, .. })) if self.leave() => {
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

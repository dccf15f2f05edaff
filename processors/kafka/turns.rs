//! Reads the partitions of a consumer in turn, so that a backlog of one partition does not delay
//! the records of the others.
//!
//! By default a consumer has one queue for all partitions: the records fetched ahead of one
//! partition, some 30,000 short ones, stand before every newer record of the others. Here each
//! partition has a queue of its own, and each call of [`Turns::poll`] goes on with the next of
//! them.
//!
//! Rebalances, errors and commits stay in the queue of the consumer, which is looked at once before
//! each round over the partitions.

use super::consumer::ConsumerCallbacks;
use broker::Polled;
use domain::fault::Result;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaResult;
use rdkafka::message::BorrowedMessage;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

pub struct Turns {
    queues: Vec<PartitionQueue<ConsumerCallbacks>>,
    /// Number of `queues` that have not had their turn in this round.
    waiting: usize,
    /// Number of assignments at which `queues` was made.
    assignments: u64,
    /// Gets an entry when a queue that was empty has a record.
    filled: SyncSender<()>,
    is_filled: Receiver<()>,
}

impl Turns {
    pub fn of(consumer: &mut BaseConsumer<ConsumerCallbacks>) -> Turns {
        let (filled, is_filled) = sync_channel(1);
        let of_consumer = filled.clone();
        consumer.set_nonempty_callback(move || wake(&of_consumer));
        Turns { queues: Vec::new(), waiting: 0, assignments: 0, filled, is_filled }
    }

    /// Returns the first message of the next queue, or waits until one of them has a message.
    pub fn poll(
        &mut self,
        consumer: &Arc<BaseConsumer<ConsumerCallbacks>>,
        topic: &str,
        wait: Duration,
        polled: &dyn Fn(Option<KafkaResult<BorrowedMessage<'_>>>) -> Result<Polled>,
    ) -> Result<Polled> {
        let until = Instant::now() + wait;
        loop {
            // Partitions whose turn came in an earlier call may hold records by now.
            let is_whole_round = self.waiting == 0;
            if is_whole_round {
                match polled(consumer.poll(Duration::ZERO))? {
                    Polled::Nothing if self.follow(consumer, topic) => return Ok(Polled::Nothing),
                    Polled::Nothing => {}
                    found => return Ok(found),
                }
                self.waiting = self.queues.len();
            }
            while self.waiting > 0 {
                self.waiting -= 1;
                match polled(self.queues[self.waiting].poll(Duration::ZERO))? {
                    Polled::Nothing => {}
                    found => return Ok(found),
                }
            }
            if !is_whole_round {
                continue;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.is_filled.recv_timeout(left).is_err() {
                return Ok(Polled::Nothing);
            }
        }
    }

    /// Takes the queues of the assigned partitions after a rebalance. Returns false if there was
    /// none. A partition that comes back needs its queue anew.
    fn follow(&mut self, consumer: &Arc<BaseConsumer<ConsumerCallbacks>>, topic: &str) -> bool {
        let assignments = consumer.context().assignments();
        if assignments == self.assignments {
            return false;
        }
        // Order matters: the old queues are given up before the same ones are taken again.
        self.queues.clear();
        let assigned = consumer.assignment().unwrap_or_default();
        for assigned in assigned.elements() {
            let Some(mut queue) = consumer.split_partition_queue(topic, assigned.partition())
            else {
                continue;
            };
            let filled = self.filled.clone();
            queue.set_nonempty_callback(move || wake(&filled));
            self.queues.push(queue);
        }
        self.waiting = 0;
        self.assignments = assignments;
        true
    }
}

fn wake(waiting: &SyncSender<()>) {
    // Full: whoever waits looks at all queues anyway.
    let _ = waiting.try_send(());
}

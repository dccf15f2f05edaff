//! Ends the transaction that a dead owner left open in the changelog of a shard.
//!
//! No reader gets a record behind an open transaction. The broker would end that transaction after
//! the timeout of three seconds and at the next look for expired ones, by default every ten
//! seconds. The last meta record names the transactional id of its writer, so the new owner ends
//! the transaction itself: it initialises a producer of that id
//! ([KIP-98](https://cwiki.apache.org/confluence/display/KAFKA/KIP-98+-+Exactly+Once+Delivery+and+Transactional+Messaging)),
//! for which the coordinator aborts the open transaction and raises the epoch of the id.
//!
//! Invariant: nothing is lost or applied twice, also if the owner before is not dead but suspended.
//! The abort and a commit of the old owner are decided by one coordinator: whichever comes first
//! counts, and the restore reads on only once the outcome is in the log. After the abort the old
//! owner has an old epoch, with which no broker takes a record, an offset or a commit. The old
//! owner finds itself fenced, opens a newer epoch and reads the log again, and by then its place in
//! the group is of an old generation: the coordinator takes no offsets for this partition from the
//! old owner, none of whose transactions commits before the loss is noticed.
//!
//! Order matters: a live owner has nothing open here, because the thread that commits also gives
//! partitions up. Still, the id belongs to its whole process, whose other partitions would pay with
//! one fenced transaction. So an id is fenced only after [`HELD_BACK`].
//!
//! Limit: a writer that died in its very first transaction of the partition is named by no decided
//! record. The broker ends its transaction.

use crate::changelog::last_meta;
use broker::Log;
use domain::fault::Result;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// Time for an owner that lives to end its transaction. A commit takes some ten milliseconds, on a busy
/// machine a hundred.
const HELD_BACK: Duration = Duration::from_millis(300);
/// Pause between two looks whether the changelog is still held back.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

pub type Fence = dyn Fn(&str) -> Result<()> + Send + Sync;

/// The process that takes a shard over, and its means to end the transactions of the owner before.
#[derive(Clone)]
pub struct TakeOver {
    /// The transactional id of this process, which its own ingest thread renews.
    pub ours: String,
    /// Prefix of the ids of this group. Anybody who may write to the changelog could name another
    /// service's id.
    pub prefix: String,
    /// Ends the open transaction of an id, and fences its producer.
    pub fence: Arc<Fence>,
}

impl fmt::Debug for TakeOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TakeOver {{ ours: {}, … }}", self.ours)
    }
}

impl TakeOver {
    /// Starts a thread that ends an open transaction below `end`. The thread ends with the returned
    /// value, which the caller keeps while it reads.
    pub(super) fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        log: &'scope dyn Log,
        partition: i32,
        end: i64,
    ) -> Sender<Infallible> {
        let (reading, is_read) = channel();
        scope.spawn(move || self.end_open(log, partition, end, &is_read));
        reading
    }

    fn end_open(&self, log: &dyn Log, partition: i32, end: i64, is_read: &Receiver<Infallible>) {
        let began = Instant::now();
        // A broker that does not answer is the reader's trouble.
        while log.stable_end(partition).is_ok_and(|stable| stable < end) {
            if began.elapsed() >= HELD_BACK {
                return self.fence_last(log, partition);
            }
            if is_read.recv_timeout(LOOK_AGAIN) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    fn fence_last(&self, log: &dyn Log, partition: i32) {
        let last = log.stable_end(partition).and_then(|end| last_meta(log, partition, end));
        let outcome = last.and_then(|last| {
            let writer = last.and_then(|(_, meta)| meta.transactional_id);
            let Some(writer) = writer.filter(|id| *id != self.ours && id.starts_with(&self.prefix))
            else {
                return Ok(());
            };
            tracing::info!(partition, id = writer, "ends the transaction of the owner before");
            (self.fence)(&writer)
        });
        if let Err(fault) = outcome {
            tracing::warn!(
                partition,
                %fault,
                "cannot end the transaction of the owner before: the broker does, after its timeout"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changelog::source::tests::Queued;
    use crate::changelog::{META, Meta, meta_bytes};
    use crate::store::tests::identity;
    use broker::{Consumer, Polled, Record};
    use parking_lot::Mutex;
    use std::thread::scope;

    /// A changelog of many aborted records behind one meta record, held back until `open` is false.
    struct HeldBack {
        writer: Option<&'static str>,
        is_open: Mutex<bool>,
    }

    const META_AT: i64 = 100;
    const STABLE: i64 = 1000;
    const END: i64 = 1010;

    impl Log for HeldBack {
        fn end(&self, _partition: i32) -> Result<i64> {
            Ok(END)
        }

        fn stable_end(&self, _partition: i32) -> Result<i64> {
            Ok(if *self.is_open.lock() { STABLE } else { END })
        }

        fn beginning(&self, _partition: i32) -> Result<i64> {
            Ok(0)
        }

        fn first_since(&self, _partition: i32, _time_ms: i64) -> Result<i64> {
            Ok(0)
        }

        fn read(&self, partition: i32, from: i64) -> Result<Box<dyn Consumer>> {
            let meta = Meta { transactional_id: self.writer.map(str::to_owned), ..Meta::default() };
            let record = Record {
                partition,
                offset: META_AT,
                key: Some(META.as_bytes().to_vec()),
                value: Some(meta_bytes(&identity(), &meta)),
                ..Record::default()
            };
            let mut queued = vec![Polled::End { partition }];
            queued.extend((from <= META_AT).then_some(Polled::Record(record)));
            Ok(Box::new(Queued(queued)))
        }
    }

    /// The ids that a new owner fences within two seconds, with the time until the first.
    fn fenced(log: HeldBack) -> (Vec<String>, Duration) {
        let log = Arc::new(log);
        let (ids, opened) = (Arc::<Mutex<Vec<String>>>::default(), log.clone());
        let noted = ids.clone();
        let take_over = TakeOver {
            ours: "keepsake-1".to_owned(),
            prefix: "keepsake-".to_owned(),
            fence: Arc::new(move |id| {
                noted.lock().push(id.to_owned());
                *opened.is_open.lock() = false;
                Ok(())
            }),
        };
        let began = Instant::now();
        let (_reading, is_read) = channel();
        let (take_over, log) = (&take_over, &*log);
        scope(|scope| scope.spawn(move || take_over.end_open(log, 0, END, &is_read)).join())
            .expect("it does not panic");
        let ids = ids.lock().clone();
        (ids, began.elapsed())
    }

    #[test]
    fn a_new_owner_ends_the_transaction_of_the_one_before_and_no_other() {
        for (writer, is_open, expected) in [
            (Some("keepsake-2"), true, vec!["keepsake-2"]),
            (Some("keepsake-2"), false, vec![]),
            // Renewed by its own ingest thread.
            (Some("keepsake-1"), true, vec![]),
            // Written by somebody who may write to the changelog and not end payments.
            (Some("payments-1"), true, vec![]),
            // Written by somebody without a transactional id.
            (None, true, vec![]),
        ] {
            let (ids, after) = fenced(HeldBack { writer, is_open: Mutex::new(is_open) });
            assert_eq!(ids, expected, "{writer:?} {is_open}");
            assert_eq!(after >= HELD_BACK, is_open, "a living owner has time to commit: {after:?}");
        }
    }

    #[test]
    fn the_watch_ends_with_the_restore() {
        let log = HeldBack { writer: None, is_open: Mutex::new(true) };
        let fence: Arc<Fence> = Arc::new(|_| panic!("too early"));
        let take_over = TakeOver { ours: String::new(), prefix: String::new(), fence };
        let began = Instant::now();
        scope(|scope| drop(take_over.start(scope, &log, 0, END)));
        assert!(began.elapsed() < HELD_BACK, "{:?}", began.elapsed());
    }
}

//! A mirror of the old events topic: finds where the backup ends there, and appends what follows.
//!
//! MirrorMaker 2 copies key, value, headers and timestamp, in order, under other offsets: markers of
//! transactions and deleted records have none. So the last records before the end of the backup are
//! searched for, with the records before them, because a sender may repeat one. What follows them is
//! appended to the numbered topic, with two exceptions:
//!
//! - Records of the old service to itself are left out. The new one reads the originals, forwards
//!   them and proposes itself.
//! - An event that names a memory made behind the backup cannot be applied. The id of a memory
//!   follows from the offset of its event, which the mirror does not have. A `forget` among them
//!   would be lost, so the restore stops, unless the operator takes these events over.

use super::{PROGRESS_EVERY, Restore, outgoing};
use domain::fault::{Fault, RejectCode, Result, StopName};
use domain::{Action, Event, Forget, MARK, MemoryId, Position, SignedParts, SigningKey};
use log::broker::{Broker, Log, Record};
use log::decode;
use service::run::options;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use storage::backup::events::WITNESSES_MAX;
use storage::backup::manifest::{Shard, Witness};
use storage::backup::{self, fold, segment};
use storage::restore::{Progress, Span, each_whole};

/// A mirror whose place behind the backup is known.
pub struct Mirror {
    topic: String,
    log: Arc<dyn Log>,
    /// For each partition the first offset behind the backup.
    begins: Vec<i64>,
    key: Option<SigningKey>,
    /// Memories of the backup, and those that its waiting events will make.
    known: BTreeSet<MemoryId>,
    decode: decode::Options,
    /// The topic for which the old service signed.
    signed_for: String,
}

/// Candidates of one event whose memories have ids: `limits.candidates_max` allows as many.
const SPANS: u32 = 64;
/// Events that are shown; all are counted.
const SHOWN_MAX: usize = 20;

impl Restore<'_> {
    /// `leaves_out`: events that name unknown memories are left out instead of stopping the restore.
    pub fn mirror(&self, topic: &str, leaves_out: bool) -> Result<Mirror> {
        if topic == self.config.topics.events() {
            let what = format!(
                "--as-mirror {topic} is the events topic of the target, whose offsets must be those of \
                 the backup: set another topics.prefix, and let the senders publish there"
            );
            return Err(Fault::stop(StopName::MirrorUnusable, what));
        }
        let found = self.connection.partitions(&[topic.to_owned()])?.get(topic).copied();
        if found != Some(self.manifest.partitions) {
            let what = match found {
                None => format!("--as-mirror {topic}: the topic does not exist"),
                Some(found) => format!(
                    "--as-mirror {topic} has {found} partitions, the backup {}",
                    self.manifest.partitions
                ),
            };
            return Err(Fault::stop(StopName::MirrorUnusable, what));
        }
        let log = self.connection.log(topic)?;
        let mut begins = Vec::new();
        for shard in &self.manifest.shards {
            begins.push(self.begin(topic, &*log, shard)?);
        }
        let key = self.signing_key()?;
        let mut mirror = Mirror {
            topic: topic.to_owned(),
            log,
            begins,
            key,
            known: BTreeSet::new(),
            decode: options::decode(self.config),
            signed_for: self.manifest.events_topic.clone(),
        };
        self.note_known(&mut mirror)?;
        self.check_named(&mirror, leaves_out)?;
        Ok(mirror)
    }

    /// Limit: 16 bytes of memory for each memory of the backup.
    fn note_known(&self, mirror: &mut Mirror) -> Result<()> {
        for shard in &self.manifest.shards {
            let folded = fold(self.dir, shard)?;
            backup::live(self.dir, shard, &folded, &mut |record| {
                let name = String::from_utf8(record.key.unwrap_or_default()).unwrap_or_default();
                let id = name.rsplit('/').next().and_then(MemoryId::parse);
                mirror.known.extend(id);
                Ok(())
            })?;
            let Some(file) = &shard.events.file else { continue };
            segment::each(&self.dir.join(&file.file), &file.facts, &mut |record| {
                let place = Position {
                    topic: self.manifest.events_topic.as_str().into(),
                    partition: shard.partition,
                    offset: record.offset,
                };
                let origin = mirror.event(record, shard.partition)?.map(|event| event.source);
                for source in [Some(place), origin].iter().flatten() {
                    mirror.known.extend((0..SPANS).map(|span| MemoryId::of(source, span)));
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn check_named(&self, mirror: &Mirror, leaves_out: bool) -> Result<()> {
        let mut unknown = Vec::new();
        let mut count = 0;
        for (shard, begin) in self.manifest.shards.iter().zip(&mirror.begins) {
            let partition = shard.partition;
            mirror.each_behind(partition, *begin, &mut |record| {
                let offset = record.offset;
                if let Some(event) = mirror.names_unknown(record)? {
                    count += 1;
                    if unknown.len() < SHOWN_MAX {
                        let name = event.action.name();
                        unknown.push(format!("{partition}:{offset} a {name} of {}", event.key));
                    }
                }
                Ok(())
            })?;
        }
        if count == 0 {
            return Ok(());
        }
        let shown = unknown.join(", ");
        if leaves_out {
            eprintln!("{count} events of the mirror name memories made behind the backup: {shown}");
            eprintln!("they are left out: ask their senders to send them again with the new ids");
            return Ok(());
        }
        let what = format!(
            "{count} events of {} behind the backup name memories that were made behind it: {shown}. The \
             ids follow from the old offsets, which a mirror does not have. If the old cluster lives, \
             take a newer backup; --leave-out-unknown goes on without these events",
            mirror.topic
        );
        Err(Fault::stop(StopName::MirrorUnusable, what))
    }

    /// The offset behind the record that was the last one of the backup.
    fn begin(&self, topic: &str, log: &dyn Log, shard: &Shard) -> Result<i64> {
        let partition = shard.partition;
        let unusable = |why: String| {
            let what = format!("partition {partition} of {topic}: {why}");
            Fault::stop(StopName::MirrorUnusable, what)
        };
        let (beginning, end) = (log.beginning(partition)?, log.end(partition)?);
        if shard.events.end == 0 {
            return Ok(beginning);
        }
        let Some(last) = shard.events.witnesses.last() else {
            return Err(unusable(
                "the old topic had no records left by which the place could be found: take a newer \
                 backup"
                    .to_owned(),
            ));
        };
        let at = self.connection.offset_at(topic, partition, last.timestamp_ms)?;
        let from = beginning.max(at - 2 * WITNESSES_MAX as i64);
        let span = Span { partition, from, end, until: Some(end - 1) };
        let mut before: VecDeque<String> = VecDeque::new();
        let mut best = (0, Vec::new());
        let mut newest = i64::MIN;
        each_whole(log, &span, &Progress::default(), &mut |record| {
            newest = newest.max(record.timestamp_ms);
            let hash = Witness::of(&record).hash;
            if before.len() == WITNESSES_MAX {
                before.pop_front();
            }
            before.push_back(hash);
            let expected = shard.events.witnesses.iter().rev();
            let same =
                before.iter().rev().zip(expected).take_while(|(it, other)| **it == other.hash);
            match same.count() {
                0 => {}
                count if count > best.0 => best = (count, vec![record.offset]),
                count if count == best.0 => best.1.push(record.offset),
                _ => {}
            }
            Ok(())
        })?;
        match best.1[..] {
            [offset] => Ok(offset + 1),
            [] if newest < last.timestamp_ms => Err(unusable(format!(
                "the last event of the backup, of {}, is not there yet: let the mirror catch up",
                client::show::rfc_3339(last.timestamp_ms)
            ))),
            [] => Err(unusable(format!(
                "the last event of the backup, of {}, is not there: it is not a mirror of {}, or has \
                 lost its older records; take a newer backup",
                client::show::rfc_3339(last.timestamp_ms),
                self.manifest.events_topic
            ))),
            _ => Err(unusable(format!(
                "the last events of the backup are there {} times, so their place is unknown: take a \
                 newer backup",
                best.1.len()
            ))),
        }
    }

    /// Appends the records that the mirror has behind the backup and the target has not. Returns the
    /// number of appended events.
    pub fn append(&self, mirror: &Mirror) -> Result<u64> {
        let topic = self.config.topics.events();
        let mut writer = self.connection.bulk_writer("keepsake-restore", &topic)?;
        let mut appended = 0;
        for (shard, begin) in self.manifest.shards.iter().zip(&mirror.begins) {
            let partition = shard.partition;
            // Behind the end of the backup are the events that an earlier run has appended.
            let mut there =
                self.events.end(partition)? - shard.events.end.max(shard.applied_offset + 1);
            let before = appended;
            mirror.each_behind(partition, *begin, &mut |record| {
                if mirror.names_unknown(record.clone())?.is_some() {
                    return Ok(());
                }
                if there > 0 {
                    there -= 1;
                    return Ok(());
                }
                writer.send(&outgoing(record, &topic, partition))?;
                appended += 1;
                if appended % PROGRESS_EVERY == 0 {
                    writer.flush()?;
                    eprintln!("partition {partition}: {appended} events of the mirror appended");
                }
                Ok(())
            })?;
            writer.flush()?;
            if there > 0 {
                let what = format!(
                    "partition {partition} of {topic} has {there} events more than {} has behind the \
                     backup: somebody else writes there",
                    mirror.topic
                );
                return Err(Fault::stop(StopName::TargetNotEmpty, what));
            }
            eprintln!("partition {partition}: {} events of the mirror appended", appended - before);
        }
        Ok(appended)
    }
}

impl Mirror {
    /// Passes the records of senders behind the backup to `visit`.
    fn each_behind(
        &self,
        partition: i32,
        begin: i64,
        visit: &mut dyn FnMut(Record) -> Result<()>,
    ) -> Result<()> {
        let end = self.log.end(partition)?;
        let span = Span { partition, from: begin, end, until: Some(end - 1) };
        each_whole(&*self.log, &span, &Progress::default(), &mut |record| {
            if self.is_own(&record) { Ok(()) } else { visit(record) }
        })
    }

    /// True if the old service wrote the record, by its signature: a sender may use a header of the
    /// same name.
    fn is_own(&self, record: &Record) -> bool {
        let (Some(mark), Some(key)) = (record.header(MARK), &self.key) else { return false };
        let parts = SignedParts {
            topic: &self.signed_for,
            partition: record.partition,
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: &record.headers,
        };
        key.fits(mark, &parts)
    }

    /// Returns the event of a record, or `None` if the service would put the record aside. A schema
    /// that cannot be had now ends the command: what the record names would stay unknown.
    fn event(&self, mut record: Record, partition: i32) -> Result<Option<Event>> {
        record.topic.clone_from(&self.signed_for);
        record.partition = partition;
        match decode::event(&record, &self.decode).outcome {
            Ok(event) => Ok(Some(event)),
            Err(reject) if reject.code == RejectCode::SchemaUnavailable => {
                let what = format!("reads partition {partition} at {}: {reject}", record.offset);
                Err(Fault::stop(StopName::ReplayNeedsSchema, what))
            }
            Err(_) => Ok(None),
        }
    }

    /// The event of a record that names a memory which the new service will not have.
    fn names_unknown(&self, record: Record) -> Result<Option<Event>> {
        let partition = record.partition;
        let Some(event) = self.event(record, partition)? else { return Ok(None) };
        let is_known = match &event.action {
            Action::Update(update) => self.known.contains(&update.memory),
            Action::Forget(Forget::Memory(id)) => self.known.contains(id),
            Action::Feedback { memories, .. } => memories.iter().all(|id| self.known.contains(id)),
            _ => true,
        };
        Ok((!is_known).then_some(event))
    }
}

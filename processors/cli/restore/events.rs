//! The events topic of a restore: recognised as the same log, or numbered as the old one was.

use super::forgotten;
use super::target::{PROGRESS_EVERY, Restore};
use broker::{Broker, OutgoingRecord, Record};
use domain::SIGNATURE;
use domain::TENANT_SIGNATURE;
use domain::fault::{Fault, Result, StopName};
use kafka::BulkWriter;
use std::collections::BTreeMap;
use std::path::Path;
use storage::backup::events::is_same_log;
use storage::backup::manifest::Shard;
use storage::backup::segment::Reader;
use storage::changelog::{Source, tenants};

/// The value that stands where the old topic had another record. A tick that is read changes
/// nothing.
const FILLER: &[u8] = br#"{"type":"tick"}"#;

/// The work of a restore on one partition of the events topic.
pub enum EventsPlan {
    /// The log of the backup itself: the service reads on.
    Same,
    /// A new partition, with these events behind the end of the backup.
    Numbered { then: Vec<OutgoingRecord> },
}

impl EventsPlan {
    pub fn name(&self) -> &'static str {
        match self {
            EventsPlan::Same => "the same log",
            EventsPlan::Numbered { .. } => "numbered as the old one",
        }
    }

    /// Events that are published besides the ticks.
    pub fn to_publish(&self, shard: &Shard) -> u64 {
        match self {
            EventsPlan::Same => 0,
            EventsPlan::Numbered { then } => {
                shard.events.file.as_ref().map_or(0, |file| file.facts.records) + then.len() as u64
            }
        }
    }
}

impl Restore<'_> {
    /// Decides about each partition, and stops where nothing right can be done.
    pub fn plan_events(&self, erasures: Option<&Path>) -> Result<Vec<EventsPlan>> {
        let shards = &self.manifest.shards;
        let mut same = Vec::new();
        for shard in shards {
            same.push(is_same_log(&*self.events, shard.partition, &shard.events)?);
        }
        if shards.iter().any(|shard| shard.events.end > 0) && same.iter().any(|same| *same) {
            return self.continued(&same);
        }
        self.check_signed_names()?;
        self.check_tenants()?;
        let mut then = forgotten::forgets(self, erasures)?;
        let mut plan = Vec::new();
        for shard in shards {
            let then = then.remove(&shard.partition).unwrap_or_default();
            let plan_of_shard = EventsPlan::Numbered { then };
            self.check_numbered(shard, &plan_of_shard)?;
            plan.push(plan_of_shard);
        }
        Ok(plan)
    }

    /// A tenants topic of the service before has states that no shard of the backup has.
    fn check_tenants(&self) -> Result<()> {
        let topic = self.config.topics.tenants();
        if self.connection.partitions_of(&topic)?.is_none() {
            return Ok(());
        }
        let log = self.connection.log(&topic)?;
        let is_memory =
            |record: &Record| Ok(record.key.as_deref().is_some_and(|key| key.contains(&b'/')));
        if Source::since(&*log, tenants::PARTITION, None)?.find(&is_memory)?.is_none() {
            return Ok(());
        }
        let what = format!(
            "{topic} has memories of tenants, and the events topic is new: delete {topic}, too; the \
             service makes it again and fills it from the restored shards"
        );
        Err(Fault::stop(StopName::TargetNotEmpty, what))
    }

    /// The target has the events of the backup at their offsets, in every partition that had any.
    fn continued(&self, same: &[bool]) -> Result<Vec<EventsPlan>> {
        let topic = self.config.topics.events();
        for (shard, same) in self.manifest.shards.iter().zip(same) {
            let (partition, next) = (shard.partition, shard.applied_offset + 1);
            if !same && shard.events.end > 0 && !shard.events.witnesses.is_empty() {
                let what = format!(
                    "partition {partition} of {topic} is not the log of the backup, others are: the \
                     topic was changed"
                );
                return Err(Fault::stop(StopName::TargetNotEmpty, what));
            }
            let first = self.events.beginning(partition)?;
            if first > next {
                let what = format!(
                    "partition {partition} of {topic} begins at offset {first}, and the backup has \
                     applied events up to {next}: those between are in neither; take a newer backup, \
                     or restore into new topics (another topics.prefix), which loses them"
                );
                return Err(Fault::stop(StopName::EventsGone, what));
            }
        }
        Ok(same.iter().map(|_| EventsPlan::Same).collect())
    }

    /// Signatures contain the name of the topic, so signed events need the old one.
    fn check_signed_names(&self) -> Result<()> {
        let (ours, theirs) = (self.config.topics.events(), &self.manifest.events_topic);
        if ours == *theirs {
            return Ok(());
        }
        let mut is_signed = false;
        for shard in &self.manifest.shards {
            self.each_waiting(shard, &mut |record| {
                is_signed |= record.header(SIGNATURE).or(record.header(TENANT_SIGNATURE)).is_some();
                Ok(())
            })?;
        }
        if !is_signed {
            return Ok(());
        }
        let what = format!(
            "events that were not applied yet are signed for the topic {theirs}, and the target's is \
             {ours}: set topics.prefix to the old one, or back up again once the service has applied \
             everything"
        );
        Err(Fault::stop(StopName::ConfigInvalid, what))
    }

    fn each_waiting(
        &self,
        shard: &Shard,
        visit: &mut dyn FnMut(Record) -> Result<()>,
    ) -> Result<()> {
        let Some(file) = &shard.events.file else { return Ok(()) };
        storage::backup::segment::each(&self.dir.join(&file.file), &file.facts, visit)
    }

    /// Checks that the partition holds only records of an interrupted restore.
    fn check_numbered(&self, shard: &Shard, plan: &EventsPlan) -> Result<()> {
        let partition = shard.partition;
        let source = Source::since(&*self.events, partition, None)?;
        let mut numbered = Numbered::of(self, shard, plan)?;
        let mut is_ours = source.from <= shard.applied_offset + 1;
        let mut next = source.from;
        source.each_whole(&mut |record| {
            let expected = numbered.at(record.offset)?;
            is_ours &= record.offset == next && expected.is_some_and(|it| is_same(&it, &record));
            next += 1;
            Ok(())
        })?;
        if is_ours {
            return Ok(());
        }
        let what = format!(
            "partition {partition} of {} has other events: it is neither the log of the backup nor \
             empty; delete the topics of this prefix or set another topics.prefix",
            self.config.topics.events()
        );
        Err(Fault::stop(StopName::TargetNotEmpty, what))
    }

    /// Brings each new partition up to the end of the backup. Returns the number of ticks that this
    /// took, for each partition.
    pub fn number_events(&self, plan: &[EventsPlan]) -> Result<Vec<u64>> {
        let topic = self.config.topics.events();
        let mut writer = self.connection.bulk_writer("keepsake-restore", &topic)?;
        let mut ticks = Vec::new();
        for (shard, plan) in self.manifest.shards.iter().zip(plan) {
            ticks.push(match plan {
                EventsPlan::Same => 0,
                EventsPlan::Numbered { .. } => self.number(shard, plan, &mut writer)?,
            });
        }
        Ok(ticks)
    }

    fn begin_at(&self, shard: &Shard, offset: i64) -> std::result::Result<i64, String> {
        let offset = offset.min(shard.applied_offset + 1);
        let asked = BTreeMap::from([(shard.partition, offset)]);
        let begun = self.connection.delete_before(&self.config.topics.events(), &asked);
        let mut begun = begun.map_err(|fault| fault.to_string())?;
        begun.remove(&shard.partition).unwrap_or(Ok(offset))
    }

    /// Has the partition begin behind the applied offset. The embedded log lets a new one begin
    /// anywhere. A cluster is sent a tick for each offset, and they are deleted again while more
    /// follow, so that they never fill its disks.
    fn number(&self, shard: &Shard, plan: &EventsPlan, writer: &mut BulkWriter) -> Result<u64> {
        let partition = shard.partition;
        let topic = self.config.topics.events();
        let mut numbered = Numbered::of(self, shard, plan)?;
        if self.events.end(partition)? == 0 && shard.applied_offset >= 0 {
            // Refused by a cluster.
            let _ = self.begin_at(shard, i64::MAX);
        }
        let begin = self.events.end(partition)?;
        let mut offset = begin;
        while let Some(mut record) = numbered.at(offset)? {
            record.topic.clone_from(&topic);
            writer.send(&record)?;
            offset += 1;
            if ((offset - begin) as u64).is_multiple_of(20 * PROGRESS_EVERY) {
                writer.flush()?;
                let _ = self.begin_at(shard, offset);
                eprintln!("partition {partition}: offset {offset} of {} events", numbered.end());
            }
        }
        if let Some(left) = &numbered.next {
            let what = format!("an event of offset {} in the backup has no place", left.offset);
            return Err(Fault::stop(StopName::BackupDamaged, what));
        }
        let written = writer.flush()?.get(&partition).map_or(begin, |last| last + 1);
        let end = self.events.end(partition)?;
        if written.max(begin) != offset || end != offset {
            let what = format!(
                "somebody else wrote to partition {partition} of {topic} during the restore: it ends at \
                 {end}, not at {offset}; stop the senders, delete the topics and restore again"
            );
            return Err(Fault::stop(StopName::TargetInUse, what));
        }
        if numbered.ticks > 0
            && let Err(why) = self.begin_at(shard, i64::MAX)
        {
            eprintln!("the ticks of partition {partition} stay, and do no harm: {why}");
        }
        Ok(numbered.ticks)
    }
}

/// The records of a new partition by their offsets. Offsets are asked for in rising order.
struct Numbered<'a> {
    shard: &'a Shard,
    then: &'a [OutgoingRecord],
    waiting: Option<Reader>,
    next: Option<Record>,
    ticks: u64,
}

impl<'a> Numbered<'a> {
    fn of(restore: &Restore<'_>, shard: &'a Shard, plan: &'a EventsPlan) -> Result<Numbered<'a>> {
        let file = shard.events.file.as_ref();
        let waiting = file.map(|file| Reader::open(&restore.dir.join(&file.file))).transpose()?;
        let then: &[OutgoingRecord] = match plan {
            EventsPlan::Same => &[],
            EventsPlan::Numbered { then } => then,
        };
        let mut numbered = Numbered { shard, then, waiting, next: None, ticks: 0 };
        numbered.advance()?;
        Ok(numbered)
    }

    fn end(&self) -> i64 {
        self.shard.events.end.max(self.shard.applied_offset + 1) + self.then.len() as i64
    }

    fn advance(&mut self) -> Result<()> {
        self.next = match &mut self.waiting {
            Some(waiting) => waiting.next_record()?,
            None => None,
        };
        Ok(())
    }

    fn at(&mut self, offset: i64) -> Result<Option<OutgoingRecord>> {
        if offset >= self.end() {
            return Ok(None);
        }
        let behind = self.end() - self.then.len() as i64;
        if offset >= behind {
            return Ok(self.then.get((offset - behind) as usize).cloned());
        }
        while self.next.as_ref().is_some_and(|next| next.offset < offset) {
            self.advance()?;
        }
        let partition = self.shard.partition;
        Ok(Some(match self.next.take_if(|next| next.offset == offset) {
            Some(record) => {
                self.advance()?;
                record.outgoing("", partition)
            }
            None => {
                self.ticks += 1;
                OutgoingRecord {
                    partition: Some(partition),
                    value: Some(FILLER.to_vec()),
                    ..OutgoingRecord::default()
                }
            }
        }))
    }
}

/// A tenant's signature holds the time when it was made.
fn is_same(expected: &OutgoingRecord, found: &Record) -> bool {
    fn unsigned(headers: &[(String, Vec<u8>)]) -> Vec<(String, Vec<u8>)> {
        headers.iter().filter(|(name, _)| name != TENANT_SIGNATURE).cloned().collect()
    }
    expected.key == found.key
        && expected.value == found.value
        && unsigned(&expected.headers) == unsigned(&found.headers)
        && expected.timestamp_ms.is_none_or(|at| at == found.timestamp_ms)
}

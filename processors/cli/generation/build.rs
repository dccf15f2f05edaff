//! Builds the shards of a new generation from the changelog of the old one, and follows that
//! changelog until the old generation has ended.
//!
//! One round:
//!
//! 1. Read the new records of each partition of the old memories topic, committed ones only.
//! 2. If the new generation has another encoder, make the vectors of some hundred records anew
//!    ([`Encoding`]).
//! 3. Give each record to the new shards that it belongs to ([`Rekeying`]).
//! 4. Write them in one transaction, with a meta record for each shard that was touched: number and
//!    digest of its records, and the position in the old topic.
//!
//! The position is in the same transaction as the records before it, so a builder that was killed
//! goes on where it was, and a second builder ends the first. The first finds out by [`Rivalry`].
//!
//! A partition of the old generation has ended once the changelog has the closing record and the
//! meta record behind that. When all have ended, the last meta records give the offsets from which
//! the new shards read events.
//!
//! Limit: compaction removes the tombstones of forgotten records after a time. A builder that was
//! away for half that time does not go on ([`is_away_too_long`]), because some tombstones may be
//! gone unread.
//!
//! Limit: keeps about 80 bytes of memory for each record of all shards ([`Fold`]).

use super::encoding::Encoding;
use super::progress::Generations;
use super::rivalry::Rivalry;
use broker::clock::{Clock, SystemClock};
use broker::{Broker, Log, OutgoingRecord, Record, TransactError};
use deployment::growth::builder_id;
use domain::Time;
use domain::fault::{Fault, Result, StopName};
use kafka::ChangelogWriter;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::changelog::{
    Build, Destination, Fold, META, Meta, Owner, Source, any_meta, closed_of, last_meta, owner,
};
use storage::rekeying::Rekeying;
use storage::store::Identity;

/// Records and bytes of one transaction: some tenths of a second.
const BATCH_RECORDS: usize = 2000;
const BATCH_BYTES: usize = 4 << 20;
/// Records and bytes whose texts are encoded together: some seconds with the default encoder.
const ENCODED_RECORDS: usize = 512;
const ENCODED_BYTES: usize = 1 << 20;
/// Pause between two rounds that found nothing new.
const IDLE: Duration = Duration::from_millis(100);
/// Pause before something that the broker refused is tried again.
const AGAIN: Duration = Duration::from_millis(500);
/// Failures in a row after which the builder gives up: about a minute, longer than a broker's restart.
const FAILURES_MAX: u32 = 60;
/// Time after which the builder writes its position even if there was nothing to read, in parts of
/// the longest time that a builder may be away.
const NOTES_WHILE_AWAY: i64 = 12;
/// Time between two reports.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// The result of a build that is complete.
pub struct Built {
    pub records: u64,
    pub memories: u64,
    /// Records that this builder has read and written.
    pub read: u64,
    pub written: u64,
    /// Vectors that this builder has made anew, and texts that the encoder refused.
    pub encoded: u64,
    pub refused: u64,
}

pub struct Builder<'a> {
    generations: &'a Generations,
    rekeying: Rekeying,
    cluster: String,
    encoding: Encoding,
    /// The encoder of the old generation's vectors, once a record was read.
    encoder_before: Option<(String, u32)>,
    source: Arc<dyn Log>,
    target: Arc<dyn Log>,
    topic: String,
    writer: ChangelogWriter,
    rivalry: Rivalry,
    state: State,
    /// Half of the time for which the old memories topic keeps tombstones.
    away_ms_max: i64,
    /// When a builder has last read the old topic to its end. `None` before the first.
    read_to_end: Option<Time>,
    /// When that was written to the new topic.
    noted: Time,
    read: u64,
    written: u64,
    reported: Instant,
}

/// The positions of a builder in both generations. Read again from the new topic after a failure.
#[derive(Default)]
struct State {
    build: Build,
    /// Number and digest of each new shard, with the records that are not written yet.
    folds: Vec<Fold>,
    /// Records that were read, with their old partition, in the order of the log.
    waiting: Vec<(i32, Record)>,
    waiting_bytes: usize,
    pending: Vec<OutgoingRecord>,
    pending_bytes: usize,
    touched: BTreeSet<i32>,
    /// Offset of the mark that ends an old partition, whose meta record was not read yet.
    ending: BTreeMap<i32, i64>,
}

/// True if tombstones may be gone that were written since the old topic was read.
fn is_away_too_long(read_to_end: Option<Time>, now: Time, away_ms_max: i64) -> bool {
    read_to_end.is_some_and(|read| now.ms_since(read) > away_ms_max)
}

impl<'a> Builder<'a> {
    pub fn new(
        generations: &'a Generations,
        cluster: String,
        encoding: Encoding,
    ) -> Result<Builder<'a>> {
        let (old, new) = (&generations.old, &generations.new);
        let topic = new.topics.memories();
        let connection = &generations.connection;
        Ok(Builder {
            rekeying: generations.rekeying()?,
            cluster,
            encoding,
            encoder_before: None,
            source: connection.log(&old.topics.memories())?,
            target: connection.log(&topic)?,
            writer: connection.changelog_writer(&builder_id(new), &topic),
            rivalry: Rivalry::new(connection.clone(), builder_id(new), topic.clone()),
            topic,
            generations,
            state: State::default(),
            away_ms_max: service::ownership::options::restore(old).away_ms_max,
            read_to_end: None,
            noted: SystemClock.wall(),
            read: 0,
            written: 0,
            reported: Instant::now(),
        })
    }

    /// Blocks until the generation is complete. Goes on after failures of the broker.
    pub fn run(mut self) -> Result<Built> {
        let mut failures = 0;
        loop {
            let read = self.read;
            match self.begin().and_then(|()| self.follow()) {
                Ok(()) => break,
                Err(Fault::Retry(retry)) => {
                    failures = if self.read > read { 1 } else { failures + 1 };
                    if failures > FAILURES_MAX {
                        return Err(Fault::Retry(retry));
                    }
                    eprintln!("{}: trying again", retry.what);
                    std::thread::sleep(AGAIN);
                }
                Err(fault) => return Err(fault),
            }
        }
        // The built records stand, whatever the broker answers now.
        self.tell().ok();
        Ok(Built {
            records: self.state.folds.iter().map(|fold| fold.digest.records).sum(),
            memories: self.state.folds.iter().map(|fold| fold.memories).sum(),
            read: self.read,
            written: self.written,
            encoded: self.encoding.encoded,
            refused: self.encoding.refused,
        })
    }

    /// Takes over where the last builder was. Order matters: the note comes before the end of the last
    /// builder's transaction, which makes that builder read the note; and that end before the reading, so
    /// that the transaction is a part of the topic or not.
    fn begin(&mut self) -> Result<()> {
        self.rivalry.check()?;
        self.rivalry.note()?;
        self.writer.renew()?;
        self.state = State::default();
        let mut complete = 0;
        let target = self.target.clone();
        for partition in 0..self.rekeying.to {
            let mut fold = Fold::default();
            Source::since(&*target, partition, None)?.to_whole_batch().each(&mut |record| {
                if record.key.as_deref() == Some(META.as_bytes()) {
                    self.read_to_end = self.read_to_end.max(Some(Time(record.timestamp_ms)));
                }
                fold.take(&record)
            })?;
            if let Some((identity, meta)) = &fold.last {
                self.check_own(partition, identity, meta)?;
                let build = meta.build.clone().unwrap_or_default();
                complete += i32::from(build.is_complete);
                self.state.build.add(build);
            }
            fold.proven().map_err(|fault| fault.about(format!("{}/{partition}", self.topic)))?;
            self.state.folds.push(fold);
        }
        self.state.build.is_complete = complete == self.rekeying.to;
        Ok(())
    }

    /// A topic of another build is left alone.
    fn check_own(&self, partition: i32, theirs: &Identity, meta: &Meta) -> Result<()> {
        let ours = self.identity(partition);
        if *theirs == ours && meta.build.is_some() {
            return Ok(());
        }
        if meta.build.is_some()
            && (&theirs.model, theirs.dimensions) != (&ours.model, ours.dimensions)
        {
            return Err(self.generations.refused(format!(
                "it was begun with the encoder {}, and embedder.model is {}: go on with that of the \
                 beginning, or begin again after `keepsake generation drop`",
                theirs.model, ours.model
            )));
        }
        let why = format!(
            "{} is not of this build, or its generation has applied events already; \
             `keepsake generation drop` removes what is not cut over",
            self.topic
        );
        Err(self.generations.refused(why))
    }

    fn follow(&mut self) -> Result<()> {
        while !self.state.build.is_complete {
            let before = self.read;
            let now = SystemClock.wall();
            self.check_not_away(now)?;
            for at in 0..self.rekeying.from {
                if !self.state.build.ends.contains_key(&at) {
                    self.read_on(at)?;
                }
            }
            if self.state.build.ends.len() == self.rekeying.from as usize {
                self.state.build.is_complete = true;
                self.state.touched = (0..self.rekeying.to).collect();
            }
            self.read_to_end = Some(now);
            if now.ms_since(self.noted) > self.away_ms_max / NOTES_WHILE_AWAY {
                self.state.touched.insert(0);
            }
            self.write()?;
            self.report()?;
            if self.read == before && !self.state.build.is_complete {
                std::thread::sleep(IDLE);
            }
        }
        Ok(())
    }

    fn check_not_away(&self, now: Time) -> Result<()> {
        if !is_away_too_long(self.read_to_end, now, self.away_ms_max) {
            return Ok(());
        }
        let number = self.generations.number();
        let why = format!(
            "no builder has read {} for more than half of topics.tombstones_ms, so what was \
             forgotten meanwhile could come back: begin the build again, after `keepsake generation \
             drop --to {number}`",
            self.generations.old.topics.memories()
        );
        Err(self.generations.refused(why))
    }

    /// Reads an old partition to the present end.
    fn read_on(&mut self, at: i32) -> Result<()> {
        let log = self.source.clone();
        let known = self.state.build.positions.get(&at).copied();
        // Nothing is read behind the end, because that becomes the position.
        let source = Source::since(&*log, at, known)?;
        if source.from < log.beginning(at)? {
            let why = format!(
                "{} no longer has what follows in partition {at}, because compaction has removed it: \
                 begin the build again, after `keepsake generation drop --to {}`",
                self.generations.old.topics.memories(),
                self.generations.number()
            );
            return Err(self.generations.refused(why));
        }
        source.each_whole(&mut |record| self.wait(at, record))?;
        self.take_waiting()?;
        self.state.build.positions.insert(at, source.end.max(source.from));
        Ok(())
    }

    /// Keeps a record until there are enough to be encoded together.
    fn wait(&mut self, at: i32, record: Record) -> Result<()> {
        self.state.waiting_bytes += record.bytes();
        self.state.waiting.push((at, record));
        if self.state.waiting.len() < ENCODED_RECORDS && self.state.waiting_bytes < ENCODED_BYTES {
            return Ok(());
        }
        self.take_waiting()
    }

    fn take_waiting(&mut self) -> Result<()> {
        self.state.waiting_bytes = 0;
        let (partitions, mut records): (Vec<i32>, Vec<Record>) =
            std::mem::take(&mut self.state.waiting).into_iter().unzip();
        if self.is_encoded_anew(&partitions)? {
            self.encoding.anew(&mut records)?;
        }
        partitions.into_iter().zip(records).try_for_each(|(at, record)| self.take(at, record))
    }

    /// Returns whether the vectors of these partitions are of another encoder.
    fn is_encoded_anew(&mut self, partitions: &[i32]) -> Result<bool> {
        if self.encoder_before.is_none()
            && let Some(at) = partitions.first()
            && let Some((identity, _)) = last_meta(&*self.source, *at, self.source.end(*at)?)?
        {
            self.encoder_before = Some((identity.model, identity.dimensions));
        }
        let before = self.encoder_before.as_ref();
        let before = before.map(|(model, dimensions)| (model.as_str(), *dimensions));
        Ok(before.is_some_and(|before| before != self.encoding.model()))
    }

    fn take(&mut self, at: i32, record: Record) -> Result<()> {
        self.read += 1;
        let next = record.offset + 1;
        let name = record.key.as_deref().unwrap_or_default();
        match owner(name)? {
            Owner::Meta => self.take_meta(at, &record)?,
            Owner::Closed => self.take_end(at, &record)?,
            owner => {
                for shard in self.rekeying.shards_of(&owner, at) {
                    self.give(&record, shard)?;
                }
            }
        }
        self.state.build.positions.insert(at, next);
        let is_full =
            self.state.pending.len() >= BATCH_RECORDS || self.state.pending_bytes >= BATCH_BYTES;
        if is_full {
            self.write()?;
            self.report()?;
        }
        Ok(())
    }

    fn take_meta(&mut self, at: i32, record: &Record) -> Result<()> {
        let (identity, meta) = any_meta(record.value.as_deref().unwrap_or_default())?;
        let encoder = (identity.model, identity.dimensions);
        if self.encoder_before.as_ref() != Some(&encoder) {
            let what = format!(
                "the old generation has vectors of several encoders, of {} in partition {at}: nobody \
                 but Keepsake may write {}",
                encoder.0,
                self.generations.old.topics.memories()
            );
            return Err(Fault::stop(StopName::ModelChanged, what));
        }
        if let Some(end) = self.state.ending.get(&at).filter(|end| meta.applied >= **end) {
            self.state.build.ends.insert(at, *end);
            self.state.touched.insert(at);
        }
        Ok(())
    }

    fn take_end(&mut self, at: i32, record: &Record) -> Result<()> {
        let closed = closed_of(record)?;
        let number = self.generations.number();
        if (closed.generation, closed.partitions) != (number, self.rekeying.to) {
            let why = format!(
                "partition {at} of the old generation ended for generation {} of {} partitions",
                closed.generation, closed.partitions
            );
            return Err(self.generations.refused(why));
        }
        self.state.ending.insert(at, closed.offset);
        Ok(())
    }

    fn give(&mut self, record: &Record, shard: i32) -> Result<()> {
        self.state.folds[shard as usize].take(record)?;
        let outgoing = record.clone().outgoing(&self.topic, shard);
        self.state.pending_bytes += outgoing.bytes();
        self.state.pending.push(outgoing);
        self.state.touched.insert(shard);
        Ok(())
    }

    /// Writes the records taken, with the meta records of their shards behind them.
    fn write(&mut self) -> Result<()> {
        if self.state.touched.is_empty() {
            return Ok(());
        }
        let mut records = std::mem::take(&mut self.state.pending);
        for shard in std::mem::take(&mut self.state.touched) {
            let to = Destination { topic: &self.topic, partition: shard };
            records.push(to.meta(&self.identity(shard), &self.meta(shard)));
        }
        let mut tries = 0;
        loop {
            match self.writer.write(&records) {
                Ok(()) => break,
                Err(TransactError::Nothing(_)) if tries < FAILURES_MAX => {
                    tries += 1;
                    std::thread::sleep(AGAIN);
                }
                Err(TransactError::Nothing(why) | TransactError::Unknown(why)) => {
                    return Err(Fault::retry(format!("writes {}: {why}", self.topic)));
                }
                Err(TransactError::Fenced(why)) => return Err(self.rivalry.fenced(&why)),
                Err(TransactError::Fault(fault)) => return Err(fault),
            }
        }
        self.rivalry.written();
        self.written += records.len() as u64;
        self.state.pending_bytes = 0;
        self.noted = SystemClock.wall();
        Ok(())
    }

    fn meta(&self, shard: i32) -> Meta {
        let end = self.state.build.ends.get(&shard).copied();
        Meta {
            applied: end.filter(|_| self.state.build.is_complete).unwrap_or(-1),
            group: Some(self.generations.new.kafka.group_id.clone()),
            epoch: Some(0),
            digest: Some(self.state.folds[shard as usize].digest),
            build: Some(self.state.build.clone()),
            transactional_id: None,
            tenants: None,
        }
    }

    fn identity(&self, partition: i32) -> Identity {
        let (model, dimensions) = self.encoding.model();
        Identity {
            cluster: self.cluster.clone(),
            topic: self.generations.new.topics.events(),
            partition,
            partitions: self.rekeying.to,
            model: model.to_owned(),
            dimensions,
        }
    }

    fn report(&mut self) -> Result<()> {
        if self.reported.elapsed() < REPORT_EVERY {
            return Ok(());
        }
        self.reported = Instant::now();
        self.tell()
    }

    /// Prints how far the work is.
    fn tell(&self) -> Result<()> {
        let mut behind = 0;
        for at in 0..self.rekeying.from {
            let position = self.state.build.positions.get(&at).copied().unwrap_or_default();
            behind += (self.source.end(at)? - position).max(0);
        }
        eprintln!("{} records read, {} written, {behind} behind", self.read, self.written);
        let Encoding { encoded, refused, .. } = self.encoding;
        if encoded > 0 {
            let rate = self.encoding.rate();
            eprintln!("{encoded} vectors made anew, {rate:.0} a second, {refused} texts refused");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_builder_that_was_away_for_half_the_life_of_a_tombstone_does_not_go_on() {
        let now = Time(100_000);
        for (read_to_end, is_refused) in
            [(None, false), (Some(99_000), false), (Some(90_000), false), (Some(89_999), true)]
        {
            let read_to_end = read_to_end.map(Time);
            assert_eq!(is_away_too_long(read_to_end, now, 10_000), is_refused, "{read_to_end:?}");
        }
    }
}

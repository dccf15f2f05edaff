//! Keeps the log in bounds: ends segments by time, deletes those that a topic no longer keeps, and
//! compacts. Whatever is overdue, as after a month off, is done at the start.
//!
//! Order matters: files are read and written without the lock, the new ones are synced before the
//! state names them, and the old ones go with the next checkpoint. So a crash leaves either.

use super::api::transactions;
use super::batch::{Header, Invalid};
use super::clean::{AbortedRanges, Cleaner, Latest, Report};
use super::disk::File;
use super::fault;
use super::node::Node;
use super::partition::Partition;
use super::records::Retained;
use super::segments::{Files, Position, SEGMENT_BYTES, SavedIndex, Segment, read_batches};
use super::settings::Settings;
use super::state::{PartitionId, State};
use domain::fault::{Fault, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Keys of one pass: about 64 MB during the pass. A partition with more takes several passes.
const KEYS_MAX: usize = 1_000_000;
const READ_BYTES: usize = 1 << 20;

/// Ends expired transactions and group sessions, and looks after the partitions from time to time,
/// until the node stops.
pub fn run(node: &Node) {
    let mut next_clean = None;
    while !node.is_stopping() && node.fault().is_none() {
        transactions::end_expired(node);
        let now = node.now_ms();
        if next_clean.is_none_or(|at| at <= now) {
            if let Err(fault) = clean(node) {
                node.fail(fault);
                return;
            }
            next_clean = Some(now + node.options.clean_every.as_millis() as i64);
        }
        let expiry = node.core().state.next_expiry_ms();
        // The wall clock may be set, or the machine sleep: no deadline is older than a minute.
        let soon = [expiry, next_clean, Some(now + 60_000)].into_iter().flatten().min();
        let mut wait = Duration::from_millis((soon.unwrap_or(now) - now).max(1) as u64);
        wait = node.groups.tick().map_or(wait, |groups| groups.min(wait));
        node.timer_at_ms.store(now + wait.as_millis() as i64, Ordering::Relaxed);
        node.timer.wait(Instant::now() + wait);
    }
}

/// Looks after all partitions once.
pub fn clean(node: &Node) -> Result<()> {
    let now_ms = node.now_ms();
    let ids: Vec<PartitionId> =
        node.core().state.all_partitions().map(|(topic, index, ..)| (topic, index)).collect();
    let mut has_changed = false;
    for id in ids {
        if node.is_stopping() {
            return Ok(());
        }
        has_changed |= delete_old(node, id, now_ms)?;
        if let Some(job) = Job::due(node, id, now_ms)? {
            has_changed |= job.run(node)?;
        }
    }
    if has_changed {
        node.want_checkpoint();
    }
    Ok(())
}

fn find(state: &mut State, (topic, index): PartitionId) -> Option<(Settings, &mut Partition)> {
    let topic = state.topics.get_mut(&topic)?;
    let partition = topic.partitions.get_mut(usize::try_from(index).ok()?)?;
    Some((topic.settings.clone(), partition))
}

/// Ends the active segment if due, and drops those that the topic no longer keeps.
fn delete_old(node: &Node, id: PartitionId, now_ms: i64) -> Result<bool> {
    let mut core = node.core();
    let Some((settings, partition)) = find(&mut core.state, id) else { return Ok(false) };
    let lag_ms = if settings.is_compacted { settings.compaction_lag_ms_max } else { i64::MAX };
    let is_due = partition.log.list().last().is_some_and(|last| {
        let until = last.since_ms.saturating_add(settings.segment_ms.min(lag_ms));
        last.bytes > 0 && (until <= now_ms || is_expired(last, &settings, now_ms))
    });
    if is_due {
        partition.log.roll(&node.files, now_ms)?;
    }
    let sealed = partition.log.list().split_last().map_or(&[][..], |(_, sealed)| sealed);
    let (mut bytes, stable, mut start) = (partition.log.bytes(), partition.stable(), None);
    for segment in sealed.iter().take_while(|segment| segment.next <= stable) {
        let kept = bytes - segment.bytes;
        let is_over = settings.is_deleted
            && u64::try_from(settings.retention_bytes).is_ok_and(|most| kept >= most);
        if !is_expired(segment, &settings, now_ms) && !is_over {
            break;
        }
        (bytes, start) = (kept, Some(segment.next));
    }
    let gone = start.map(|start| partition.begin_at(start)).unwrap_or_default();
    let has_changed = is_due || !gone.is_empty();
    core.state.doomed.extend(gone);
    Ok(has_changed)
}

fn is_expired(segment: &Segment, settings: &Settings, now_ms: i64) -> bool {
    settings.is_deleted
        && settings.retention_ms >= 0
        && segment.max_timestamp.saturating_add(settings.retention_ms) < now_ms
}

/// One pass of compaction over a partition.
struct Job {
    id: PartitionId,
    settings: Settings,
    /// The segments that are no longer written, with their files.
    segments: Vec<(Segment, PathBuf)>,
    cleaned_to: i64,
    aborted: AbortedRanges,
    removable_below: i64,
    now_ms: i64,
}

impl Job {
    fn due(node: &Node, id: PartitionId, now_ms: i64) -> Result<Option<Job>> {
        let mut core = node.core();
        let Some((settings, partition)) = find(&mut core.state, id) else { return Ok(None) };
        if !settings.is_compacted {
            return Ok(None);
        }
        let stable = partition.stable();
        let sealed = partition.log.list().split_last().map_or(&[][..], |(_, sealed)| sealed);
        let young_ms = now_ms.saturating_sub(settings.compaction_lag_ms_min);
        let segments: Vec<(Segment, PathBuf)> = sealed
            .iter()
            .take_while(|segment| segment.next <= stable && segment.max_timestamp <= young_ms)
            .map(|segment| (segment.clone(), partition.log.path(segment)))
            .collect();
        let unclean = segments.iter().filter(|(segment, _)| segment.next > partition.cleaned_to);
        let all: u64 = segments.iter().map(|(segment, _)| segment.bytes).sum();
        let dirty: u64 = unclean.clone().map(|(segment, _)| segment.bytes).sum();
        let is_late = unclean.clone().any(|(segment, _)| {
            segment.since_ms.saturating_add(settings.compaction_lag_ms_max) <= now_ms
        });
        let removable_below =
            partition.passes.removable_below(now_ms, settings.delete_retention_ms);
        let is_removable = partition.waiting.is_some_and(|offset| offset < removable_below);
        let is_due = all > 0
            && (is_late
                || is_removable
                || dirty > 0 && dirty as f64 >= settings.dirty_ratio_min * all as f64);
        Ok(is_due.then(|| Job {
            id,
            settings,
            cleaned_to: partition.cleaned_to,
            aborted: partition.aborted.iter().copied().collect(),
            segments,
            removable_below,
            now_ms,
        }))
    }

    fn run(self, node: &Node) -> Result<bool> {
        let files = &node.files;
        let mut latest = Latest::new(self.cleaned_to, KEYS_MAX);
        for (segment, path) in &self.segments {
            if segment.next <= self.cleaned_to {
                continue;
            }
            for_each_batch(files, segment, path, |batch| {
                let header = Header::read(batch)?;
                Ok(header.next_offset() <= self.cleaned_to || latest.add(batch, &self.aborted)?)
            })?;
        }
        let mut cleaner = Cleaner::new(&latest, &self.aborted, self.removable_below);
        let mut written = Vec::new();
        let mut output: Option<Output> = None;
        let covered = self.segments.iter().filter(|(segment, _)| segment.base < latest.end());
        let covered: Vec<_> = covered.collect();
        for (segment, path) in &covered {
            if output.as_ref().is_some_and(|output| output.is_full(segment)) {
                written.extend(output.take().map(|output| output.finish(files)).transpose()?);
            }
            let mut failed = None;
            for_each_batch(files, segment, path, |batch| {
                let kept = match cleaner.clean(batch)? {
                    Retained::Whole => batch.to_vec(),
                    Retained::Part(part) => part,
                    Retained::Nothing => return Ok(true),
                };
                let open = match &mut output {
                    Some(output) => Ok(output),
                    None => Output::begin(files, segment, path).map(|begun| output.insert(begun)),
                };
                failed = open.and_then(|output| output.write(&kept)).err();
                Ok(failed.is_none())
            })?;
            if let Some(fault) = failed {
                return Err(fault);
            }
        }
        written.extend(output.map(|output| output.finish(files)).transpose()?);
        let report = cleaner.finish();
        let old = covered.iter().map(|(segment, _)| (segment.base, segment.round)).collect();
        Ok(self.finish(node, latest.end(), report, old, written))
    }

    fn finish(
        &self,
        node: &Node,
        end: i64,
        report: Report,
        old: Vec<(i64, u32)>,
        written: Vec<Segment>,
    ) -> bool {
        let mut core = node.core();
        let Some((_, partition)) = find(&mut core.state, self.id) else { return true };
        // A deletion that came meanwhile goes first: the new files are strays then.
        let Some(gone) = partition.log.replace(&old, written) else { return true };
        partition.cleaned_to = partition.cleaned_to.max(end);
        partition.passes.add(end, self.now_ms, self.settings.delete_retention_ms);
        partition.waiting = report.waiting;
        partition.tombstones_gone =
            partition.tombstones_gone.max(report.tombstone_removed.unwrap_or(-1));
        partition.aborted.retain(|aborted| !report.aborted_gone.contains(aborted));
        core.state.doomed.extend(gone);
        let (before, after) = (report.bytes_before, report.bytes_after);
        tracing::debug!(topic = self.id.0, partition = self.id.1, before, after, "compacted");
        true
    }
}

/// A segment that a pass writes.
struct Output {
    segment: Segment,
    path: PathBuf,
    file: Arc<dyn File>,
}

impl Output {
    fn begin(files: &Files, first: &Segment, path: &Path) -> Result<Output> {
        let segment = Segment::new(first.base, first.round + 1, first.since_ms);
        let path = path.with_file_name(segment.file_name());
        let file = files.file(&path)?;
        // A crash may have left one of this name.
        file.truncate(0).map_err(|e| fault::unwritable("cuts", &path, &e))?;
        Ok(Output { segment, path, file })
    }

    fn is_full(&self, next: &Segment) -> bool {
        self.segment.bytes + next.bytes > SEGMENT_BYTES
    }

    fn write(&mut self, batch: &[u8]) -> Result<()> {
        let header = Header::read(batch).expect("the batch was read before");
        let written = self.file.write_at(batch, self.segment.bytes);
        written.map_err(|e| fault::unwritable("writes", &self.path, &e))?;
        self.segment.add(&header);
        Ok(())
    }

    fn finish(self, files: &Files) -> Result<Segment> {
        SavedIndex::new(&self.path, &self.segment).write(files)?;
        self.file.sync().map_err(|e| fault::unwritable("syncs", &self.path, &e))?;
        Ok(self.segment)
    }
}

/// Calls `each` with each batch of a segment, until `each` returns false.
fn for_each_batch(
    files: &Files,
    segment: &Segment,
    path: &Path,
    mut each: impl FnMut(&[u8]) -> std::result::Result<bool, Invalid>,
) -> Result<()> {
    let broken = |at: u64, why: Invalid| -> Fault {
        fault::damaged(path, at, &format!("compaction cannot read a batch: {why:?}"))
    };
    let mut position =
        Position { file: files.file(path)?, path: path.to_owned(), at: 0, end: segment.bytes };
    while position.at < position.end {
        let bytes = read_batches(&position, i64::MAX, READ_BYTES)?;
        let mut at = 0;
        while at < bytes.len() {
            let header = Header::read(&bytes[at..]).map_err(|why| broken(position.at, why))?;
            let batch = &bytes[at..at + header.bytes];
            if !each(batch).map_err(|why| broken(position.at + at as u64, why))? {
                return Ok(());
            }
            at += header.bytes;
        }
        position.at += bytes.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests;

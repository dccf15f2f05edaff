//! A topic from one place to another, record by record. Decides nothing about any of them.

use crate::config::Config;
use crate::fault::{Fault, Result, StopName};
use crate::ports::broker::{Broker, Polled, Record, Start};
use crate::ports::kafka::Connection;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Records of one partition, from an offset to before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub partition: i32,
    pub from: i64,
    pub end: i64,
}

const LOOK: Duration = Duration::from_millis(100);
/// A broker that restarts is back by then.
const SILENCE: Duration = Duration::from_secs(30);

/// Everything that is in the topic now, partition by partition.
pub fn everything(connection: &Connection, config: &Config, topic: &str) -> Result<Vec<Span>> {
    connection.cluster_id(Duration::from_millis(config.kafka.connect_ms.min(10_000)))?;
    let Some(partitions) = connection.partitions(&[topic.to_owned()])?.get(topic).copied() else {
        let what = format!(
            "topic {topic} is not there: run `keepsake serve` or `keepsake topics create`, or see topics.prefix"
        );
        return Err(Fault::stop(StopName::TopicMissing, what));
    };
    let offsets = connection.all_offsets(topic, partitions)?;
    Ok((0..partitions)
        .zip(offsets)
        .map(|(partition, (from, end))| Span { partition, from, end })
        .collect())
}

/// Hands out each record of the spans, in order within a partition.
pub fn read(
    connection: &Connection,
    topic: &str,
    spans: &[Span],
    visit: &mut dyn FnMut(Record) -> Result<()>,
) -> Result<()> {
    let mut left: BTreeMap<i32, i64> = spans
        .iter()
        .filter(|span| span.from < span.end)
        .map(|span| (span.partition, span.end))
        .collect();
    if left.is_empty() {
        return Ok(());
    }
    let mut reader = connection.reader("keepsake-reading", topic)?;
    let starts: Vec<(i32, Start)> = spans
        .iter()
        .filter(|span| span.from < span.end)
        .map(|span| (span.partition, Start::At(span.from)))
        .collect();
    reader.assign(&starts)?;
    let mut heard = Instant::now();
    while !left.is_empty() {
        match reader.poll(LOOK) {
            Ok(Polled::Record(record)) => {
                heard = Instant::now();
                let (partition, offset) = (record.partition, record.offset);
                let Some(end) = left.get(&partition).copied() else { continue };
                if offset < end {
                    visit(record)?;
                }
                if offset + 1 >= end {
                    left.remove(&partition);
                }
            }
            // The end of a transaction has an offset too, so the last record need not be at the last offset.
            Ok(Polled::End { partition }) => {
                heard = Instant::now();
                left.remove(&partition);
            }
            Ok(Polled::Nothing) | Err(Fault::Retry(_)) if heard.elapsed() < SILENCE => {}
            Ok(Polled::Nothing) => {
                let partitions: Vec<i32> = left.into_keys().collect();
                let what = format!(
                    "{topic}: nothing more came for {} s from partitions {partitions:?}",
                    SILENCE.as_secs()
                );
                return Err(Fault::retry(format!("{what}; are all brokers up? Try again")));
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(())
}

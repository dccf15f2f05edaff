//! Deletes the oldest records of a topic, and keeps notes about the deletion beside a group's
//! offsets.

use super::consumer::known_offset;
use super::fault::{failed, is_denied, of_code};
use super::{Connection, of_group};
use domain::fault::Result;
use rdkafka::consumer::{CommitMode, Consumer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList, TopicPartitionListElem};
use std::collections::BTreeMap;
use std::time::Duration;

/// Time for the brokers of all replicas to delete records.
const DELETED_WITHIN: Duration = Duration::from_secs(5);

/// An offset of a group, with the text in its metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    pub offset: i64,
    pub text: String,
}

impl Connection {
    /// Deletes the records of each partition before an offset
    /// ([KIP-107](https://cwiki.apache.org/confluence/display/KAFKA/KIP-107%3A+Add+deleteRecordsBefore%28%29+API+in+AdminClient)).
    /// Returns the first offset of each partition that is still there, or why the broker refuses.
    pub fn delete_before(
        &self,
        topic: &str,
        offsets: &BTreeMap<i32, i64>,
    ) -> Result<BTreeMap<i32, std::result::Result<i64, String>>> {
        let mut list = TopicPartitionList::new();
        for (partition, offset) in offsets {
            list.add_partition_offset(topic, *partition, Offset::Offset(*offset))
                .expect("librdkafka accepts every offset from 0");
        }
        let (admin, runtime, options) = self.admin()?;
        let options =
            options.operation_timeout(Some(DELETED_WITHIN)).request_timeout(Some(DELETED_WITHIN));
        let done = runtime
            .block_on(admin.delete_records(&list, &options))
            .map_err(|e| failed(format!("deletes old records of {topic}"), &e))?;
        let denied = done.elements().iter().find_map(|element| {
            let code = element.error().err()?.rdkafka_error_code()?;
            is_denied(code).then_some(code)
        });
        if let Some(code) = denied {
            return Err(of_code(format!("deletes old records of {topic}"), code));
        }
        let outcome = |element: &TopicPartitionListElem<'_>| {
            element.error().map_err(|e| e.to_string())?;
            known_offset(element.offset()).ok_or_else(|| "the broker names no offset".to_owned())
        };
        Ok(done.elements().iter().map(|done| (done.partition(), outcome(done))).collect())
    }

    /// Returns the notes of the group on these partitions. A partition without one has no entry.
    pub fn noted(
        &self,
        group: &str,
        topic: &str,
        partitions: &[i32],
    ) -> Result<BTreeMap<i32, Noted>> {
        let found = self.committed_list(group, topic, partitions)?;
        let elements = found.elements();
        Ok(elements
            .iter()
            .filter_map(|element| {
                let offset = known_offset(element.offset())?;
                Some((element.partition(), Noted { offset, text: element.metadata().to_owned() }))
            })
            .collect())
    }

    /// Commits offsets with a text of at most 4 KiB each, for a group that has no members.
    pub fn note(&self, group: &str, topic: &str, notes: &BTreeMap<i32, Noted>) -> Result<()> {
        let mut list = TopicPartitionList::new();
        for (partition, noted) in notes {
            let mut element = list.add_partition(topic, *partition);
            element
                .set_offset(Offset::Offset(noted.offset))
                .expect("librdkafka accepts every offset from 0");
            if !noted.text.is_empty() {
                element.set_metadata(&noted.text);
            }
        }
        let client = self.group_client(group)?;
        let done = client.commit(&list, CommitMode::Sync);
        done.map_err(|e| of_group(&client, format!("commits {topic} for group {group}"), &e))
    }
}

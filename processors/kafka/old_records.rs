//! Deletes the oldest records of a topic.

use super::connection::Connection;
use super::consumer::known_offset;
use super::fault::{failed, is_denied, of_code};
use super::offsets::at_offsets;
use domain::fault::Result;
use rdkafka::topic_partition_list::TopicPartitionListElem;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time for the brokers of all replicas to delete records.
const DELETED_WITHIN: Duration = Duration::from_secs(5);

impl Connection {
    /// Deletes the records of each partition before an offset
    /// ([KIP-107](https://cwiki.apache.org/confluence/display/KAFKA/KIP-107%3A+Add+deleteRecordsBefore%28%29+API+in+AdminClient)).
    /// Returns the first offset of each partition that is still there, or why the broker refuses.
    pub fn delete_before(
        &self,
        topic: &str,
        offsets: &BTreeMap<i32, i64>,
    ) -> Result<BTreeMap<i32, std::result::Result<i64, String>>> {
        let list =
            at_offsets(topic, offsets.iter().map(|(partition, offset)| (*partition, *offset)));
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
}

//! The log and the encoder that a store was made from.

use domain::fault::{Fault, Result, StopName};
use serde::{Deserialize, Serialize};

/// A store is refused under any other identity,
/// because its offsets and vectors would be wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub cluster: String,
    pub topic: String,
    pub partition: i32,
    pub partitions: i32,
    pub model: String,
    pub dimensions: u32,
}

impl Identity {
    /// Names the log, and so the store that an index is derived from.
    pub fn log(&self) -> String {
        format!("{}/{}/{}", self.cluster, self.topic, self.partition)
    }

    fn encoder(&self) -> String {
        format!("{} ({} dimensions)", self.model, self.dimensions)
    }
}

/// Stops at the first difference, by name.
pub fn check_identity(theirs: &Identity, ours: &Identity) -> Result<()> {
    let (name, difference) = if theirs.log() != ours.log() {
        (
            StopName::StoreOfAnotherLog,
            format!("it is made from {}, not from {}", theirs.log(), ours.log()),
        )
    } else if theirs.partitions != ours.partitions {
        (
            StopName::PartitionsDiffer,
            format!(
                "it was made when the topic had {} partitions, now the topic has {}",
                theirs.partitions, ours.partitions
            ),
        )
    } else if theirs.encoder() != ours.encoder() {
        (
            StopName::ModelChanged,
            format!("its vectors are from {}, not from {}", theirs.encoder(), ours.encoder()),
        )
    } else {
        return Ok(());
    };
    Err(Fault::stop(
        name,
        format!(
            "{difference}; move the directory away to have it rebuilt from the log, \
             or undo the change"
        ),
    ))
}

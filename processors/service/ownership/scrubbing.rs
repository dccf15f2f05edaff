//! Compares the records of an open shard with the digest that its batches keep up.

use super::ShardRegistry;
use domain::fault::{Fault, Result, StopName};
use storage::store::Scrubbed;

impl ShardRegistry {
    /// Reads all records of an open shard in use. If they are not those that were written,
    /// marks the store as damaged, so that the next start sets the store aside and restores the
    /// shard, and stops. Ends early if the shard is closed or `goes_on` returns false.
    pub fn scrub(&self, partition: i32, goes_on: &dyn Fn() -> bool) -> Result<()> {
        let Some(shard) = self.get(partition) else { return Ok(()) };
        let scrubbed = shard.store.scrub(&|| goes_on() && self.is_open(&shard))?;
        let Some(scrubbed) = scrubbed else { return Ok(()) };
        let Scrubbed { kept, found } = scrubbed;
        self.metrics.scrubbed(if kept == found { "equal" } else { "different" });
        if kept == found {
            return Ok(());
        }
        let what = format!(
            "the store of partition {partition} has other records than were written to it: \
             {kept} were written, {found} are there"
        );
        shard.store.note_damage(&what);
        Err(Fault::stop(StopName::StoreUnreadable, what))
    }
}

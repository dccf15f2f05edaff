//! Refuses a new memory of a tenant that has as many on this shard as the quota allows. Merges, new
//! values of a fact, updates and summaries add no memory, so they are never refused.

use crate::context::Context;
use crate::staged::Staged;
use domain::fault::Result;

/// Why the tenant may have no further memory, or `None`.
pub fn refusal(cx: &Context<'_>, staged: &mut Staged<'_>) -> Result<Option<String>> {
    let Some(max) = cx.settings.memories_max else { return Ok(None) };
    let count = staged.live_memories(cx.key().tenant())?;
    Ok((count >= max).then(|| {
        format!(
            "the tenant has {count} memories on this partition, and \
             quota.memories_per_partition allows {max}: forget some, or raise the quota"
        )
    }))
}

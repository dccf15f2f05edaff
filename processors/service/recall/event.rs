//! Looks up the time of the event by which a question is bounded: "before the move" becomes the time
//! of the memory that answers best to "the move".
//!
//! Step 2 of a search: only a question that names such an event pays for this second look.

use super::answer::Answerer;
use super::hits::PreparedQuestion;
use domain::fault::Fault;
use domain::{Now, UserKey};
use kernel::ranking::{Question, TimeBound};
use profiles::Profile;
use storage::shard::Shard;
use text::EventBound;

/// The least relevance of a memory of the event.
const RELEVANCE_MIN: f32 = 0.2;

impl Answerer {
    /// Returns the time before or after the event, if this request may see a memory of it.
    pub(super) fn time_bound(
        &mut self,
        now: Now,
        shard: &Shard,
        key: &UserKey,
        (asked, profile): (&domain::Recall, &Profile),
        event: &EventBound<'_>,
        left_ms: &dyn Fn() -> i64,
    ) -> Result<Option<TimeBound>, Fault> {
        let sought = self.sought(event.event, event.event, false, profile)?;
        let sought = PreparedQuestion { at: asked.as_of.unwrap_or(now.events), ..sought };
        let found = self.collect(shard, key, asked, profile, &sought, left_ms)?;
        let question = Question {
            limit: 1,
            explain: false,
            ..Question::of(asked, event.event, None, found.information)
        };
        let order = profile.rules.policy.rank(found.hits, &question, now.events);
        let best = order.ranked.first().filter(|one| one.relevance >= Some(RELEVANCE_MIN));
        Ok(best.map(|one| TimeBound { at: one.memory.created_at, is_before: event.is_before }))
    }
}

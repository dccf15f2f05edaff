//! Rejects an event that was signed long before another event of the same user that came earlier: a
//! copy that somebody sent again. The time of a record proves nothing, because the writer chooses
//! that time; the time of signing cannot be changed without the tenant's key.
//!
//! Events of a user may change places by [`AGE_MS_MAX`]. A younger copy has its id among the
//! user's last ids.

use super::context::Context;
use super::prepared::{Action, Part};
use super::reads::Reads;
use super::staged::Staged;
use domain::fault::{Reject, RejectCode, Result};
use domain::{AGE_MS_MAX, Forget, Time};

/// When the event was signed, on the partition that compares the user's times.
fn signed(cx: &Context<'_>) -> Option<Time> {
    let is_of_user = cx.part == Part::First && !matches!(cx.event.action, Action::Tick);
    cx.sent.signed.filter(|_| is_of_user)
}

pub fn refusal(cx: &Context<'_>, staged: &Staged<'_>) -> Result<Option<Reject>> {
    let Some(signed) = signed(cx) else { return Ok(None) };
    let latest = staged.gate(cx.key())?.signed;
    if latest.is_none_or(|latest| signed >= latest.plus_ms(-AGE_MS_MAX)) {
        return Ok(None);
    }
    Ok(Some(Reject::new(
        RejectCode::Forbidden,
        format!(
            "was signed more than {AGE_MS_MAX} ms before the user's last event, \
             or before everything of the user was forgotten: sign it again to send it again"
        ),
    )))
}

/// Remembers the time of signing. A `forget` of everything raises the time so far that all events
/// signed before it are rejected, also when the `forget` itself is no longer remembered.
pub fn note(cx: &Context<'_>, staged: &mut Staged<'_>) -> Result<()> {
    let Some(signed) = signed(cx) else { return Ok(()) };
    let is_everything = matches!(cx.event.action, Action::Forget(Forget::Everything));
    let latest =
        if is_everything { signed.max(cx.sent.earliest().plus_ms(AGE_MS_MAX)) } else { signed };
    staged.note_signed(cx.key(), latest)
}

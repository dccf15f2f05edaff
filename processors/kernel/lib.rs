//! The kernel: applies one prepared event to the staged state of a shard and returns the decisions.
//! The kernel does no I/O and reads no clock: `Reads` and `Neighbours` are its only view of a
//! shard, and all changes are in `Staged`. The same code runs in ingest, in the simulator and in
//! evaluations.
//!
//!   Prepared → apply → Handled (decisions, copies) + Staged (records)

pub mod context;
pub mod encoded;
pub mod erase;
pub mod events;
pub mod handled;
pub mod links;
pub mod live;
pub mod policy;
pub mod prepared;
mod quota;
pub mod ranking;
pub mod reads;
pub mod rules;
mod seen;
mod shadow;
mod signed;
pub mod staged;
pub mod straggler;
pub mod summaries;
mod tenant;
#[cfg(test)]
mod tests;
pub mod withheld;

pub use context::{Context, Limits, Rules, Settings};
pub use handled::{Forgotten, Handled};
pub use policy::Policy;
pub use prepared::{Action, Event, Part, Prepared, Statements};
pub use reads::{Neighbours, Reads, SeenBefore, Session, SlotHolder};
pub use staged::{LINKS_MAX, Staged};

use domain::fault::Result;
use domain::{Decision, Forget, ForwardReason, MemoryId, Outcome};
use events::{extracted, feedback, forget, prune, remember, revise, summary, turn, update};

/// The profiles under which an event is judged.
#[derive(Clone, Copy)]
pub struct ActiveRules<'a> {
    pub rules: &'a Rules,
    pub shadow: Option<&'a Rules>,
}

/// Applies an event: looks up the id, handles the event, and remembers the id.
pub fn apply(
    settings: Settings<'_>,
    judges: ActiveRules<'_>,
    staged: &mut Staged<'_>,
    prepared: &Prepared,
) -> Result<Handled> {
    let event = &prepared.event;
    let cx = &Context {
        settings,
        event,
        rules: judges.rules,
        partition: prepared.partition,
        offset: prepared.offset,
        part: prepared.part,
        sent: prepared.sent,
    };
    if settings.memories_max.is_some() {
        // Counted at every event: a batch that changes memories without counting loses the count.
        staged.live_memories(event.key.tenant())?;
    }
    let duplicate = if cx.part == Part::Rest { None } else { duplicate(cx, staged)? };
    let mut handled = match duplicate {
        Some(handled) => handled,
        None => handle(cx, staged, judges.shadow)?,
    };
    if handled.rejected.is_none() {
        signed::note(cx, staged)?;
    }
    handled.links_cut = staged.take_links_cut();
    if handled.links_cut > 0 {
        let cut = format!("{} links left out: a memory has {LINKS_MAX}", handled.links_cut);
        handled.decisions.iter_mut().for_each(|decision| decision.warnings.push(cut.clone()));
    }
    if let Some(memories) = handled.sent_on.take() {
        remember_id(cx, staged, memories, seen::SENT_ON)?;
    } else if cx.part != Part::Rest
        && !handled.decisions.is_empty()
        && handled.decisions.iter().all(|decision| decision.outcome != Outcome::Duplicate)
        // An event of which the quota let nothing in may come again under the same id.
        && (handled.over_quota == 0 || handled.decisions.iter().any(|one| one.outcome.keeps()))
    {
        let memories = handled.decisions.iter().filter_map(|decision| decision.memory);
        remember_id(cx, staged, memories.collect(), 0)?;
    }
    Ok(handled)
}

fn handle(cx: &Context<'_>, staged: &mut Staged<'_>, shadow: Option<&Rules>) -> Result<Handled> {
    let event = cx.event;
    if cx.part != Part::Rest && is_straggler(cx, staged)? {
        let refused = cx.withholding(Outcome::Refused, straggler::REASON);
        return Ok(Handled { decisions: vec![refused], ..Handled::default() });
    }
    // Order matters: a dead letter would hold the words that a `forget` covers.
    if let Some(reject) = signed::refusal(cx, staged)? {
        return Ok(Handled { rejected: Some(reject), ..Handled::default() });
    }
    match &event.action {
        Action::Turn(turn, statements) => turn::turn(cx, staged, (turn, statements), shadow),
        Action::Remember(asked) => remember::remember(cx, staged, asked),
        Action::Update(update) => update::update(cx, staged, update),
        Action::Forget(forget) => forget::forget(cx, staged, forget),
        Action::Feedback { memories, signal } => feedback::feedback(cx, staged, memories, *signal),
        Action::Prune { memories, reason, erases: false, .. } => {
            prune::prune(cx, staged, memories, reason)
        }
        Action::Prune { memories, reason, erases: true, idle } => {
            prune::erase(cx, staged, memories, idle, reason)
        }
        Action::Summary { content, covers, compresses_as, made } => {
            let proposed = summary::Proposed { content, covers, made: made.as_ref() };
            match compresses_as {
                None => summary::summary(cx, staged, proposed),
                Some(kind) => summary::compress(cx, staged, proposed, kind),
            }
        }
        Action::Revise(proposed) => revise::revise(cx, staged, proposed),
        Action::Extracted(extracted) => extracted::extracted(cx, staged, extracted),
        Action::Tick => {
            let noted = cx.decision(Outcome::Noted, "the compaction worker is awake");
            let compact_at = Some(event.at);
            Ok(Handled { decisions: vec![noted], compact_at, ..Handled::default() })
        }
    }
}

/// True if nothing of the event may be applied, because a `forget` covers the contents.
fn is_straggler(cx: &Context<'_>, staged: &Staged<'_>) -> Result<bool> {
    let content = match &cx.event.action {
        // The parts of a turn are looked at one by one.
        Action::Turn(turn, said) => said.candidates.is_empty().then_some(&turn.content),
        Action::Remember(asked) => Some(&asked.content.text),
        Action::Update(update) => update.content.as_ref().map(|content| &content.text),
        Action::Summary { content, .. } => Some(&content.text),
        Action::Forget(_)
        | Action::Feedback { .. }
        | Action::Prune { .. }
        | Action::Revise(_)
        // The facts are looked at one by one.
        | Action::Extracted(_)
        | Action::Tick => return Ok(false),
    };
    let newer = straggler::newer_forgets(cx, staged)?;
    Ok(newer.cover_all() || content.is_some_and(|content| newer.cover(content)))
}

/// Recognises the id of an event that this user sent before: nothing changes, and the decision
/// names the first one. The home of the tenant remembers the ids of what was sent on to it, too.
fn duplicate(cx: &Context<'_>, staged: &mut Staged<'_>) -> Result<Option<Handled>> {
    let Some(id) = &cx.event.id else { return Ok(None) };
    let Some(seen) = staged.seen(cx.key(), id)? else { return Ok(None) };
    let source = &seen.source;
    let is_other = seen.tag & !seen::SENT_ON != seen::tag(&cx.event.action);
    let place = format!("offset {} of partition {}", source.offset, source.partition);
    if is_other {
        let reason = format!("the id was used by another event, at {place}: nothing is changed");
        let decision = cx.decision(Outcome::Duplicate, reason);
        return Ok(Some(Handled::decided(Decision { of_other_event: true, ..decision })));
    }
    let mut handled = Handled::default();
    // The home may not have decided it: a dead letter there is sent again by way of this partition.
    if seen.tag & seen::SENT_ON != 0 && !cx.is_home_of_tenant() {
        tenant::is_left_to_home(cx, staged, &mut handled, seen.memories);
        return Ok(Some(handled));
    }
    if let Action::Forget(forget) = &cx.event.action
        && tenant::has_elsewhere(cx, staged, forget)?
    {
        tenant::send_on(cx, staged, &mut handled, ForwardReason::RestToTenant);
    }
    let reason = format!("the same id came with {place}");
    let forgets_at = match &cx.event.action {
        Action::Forget(Forget::ForgetContinuation(rest)) => Some(&rest.continues),
        Action::Forget(_) => Some(source),
        _ => None,
    };
    handled.decide(Decision {
        memory: seen.memories.first().copied(),
        related: seen.memories.iter().skip(1).copied().collect(),
        // The first reply may be lost, and without the salt a receipt proves nothing.
        salt: forgets_at.map(|place| events::forget::salt(cx, place)),
        ..cx.decision(Outcome::Duplicate, reason)
    });
    Ok(Some(handled))
}

fn remember_id(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    memories: Vec<MemoryId>,
    mark: u32,
) -> Result<()> {
    let Some(id) = &cx.event.id else { return Ok(()) };
    let (source, tag) = (cx.source().clone(), seen::tag(&cx.event.action) | mark);
    staged.put_seen(cx.key(), id, &SeenBefore { source, memories, tag })
}

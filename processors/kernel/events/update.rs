//! Changes a memory as the sender asks: the words, kind, scores, metadata, or the switch that hides
//! the memory from all answers.

use crate::context::{Context, no_such_memory};
use crate::handled::Handled;
use crate::links::{revisions, slots};
use crate::staged::Staged;
use crate::summaries::retract_summaries;
use crate::{tenant, withheld};
use domain::fault::Result;
use domain::{Content, Decision, Memory, Outcome, Revision, Scope, Update, Vector};
use text::split;

pub fn update(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    update: &Update<Vector>,
) -> Result<Handled> {
    let mut handled = Handled::default();
    let Some(memory) = cx.named(staged, update.memory)? else {
        if tenant::is_left_to_home(cx, staged, &mut handled, vec![update.memory]) {
            return Ok(handled);
        }
        let reject = no_such_memory(update.memory);
        handled.decide(cx.decision(Outcome::Refused, reject.message.clone()));
        handled.not_found = Some(reject);
        return Ok(handled);
    };
    let forbidden =
        update.content.as_ref().and_then(|content| withheld::never(&content.text, cx.rules));
    if let Some(category) = forbidden {
        // Nothing of the update is applied: half of the changes would look like all of them.
        let reason = withheld::never_reason(category);
        let refused = cx.decision_about(&memory, Outcome::Refused, reason);
        handled.decide(Decision { withheld: true, ..refused });
        return Ok(handled);
    }
    if memory.key.is_tenant()
        && let Some(why) = tenant::refusal(cx, None)
    {
        handled.decide(cx.decision_about(&memory, Outcome::Refused, why));
        return Ok(handled);
    }
    let memory = change(cx, staged, memory, update)?;
    handled.decide(cx.decision_about(&memory, Outcome::Updated, "changed as asked"));
    Ok(handled)
}

/// Applies an update to a memory.
pub fn change(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    mut memory: Memory,
    update: &Update<Vector>,
) -> Result<Memory> {
    if let Some(content) = &update.content {
        if content.text != memory.content {
            change_content(cx, staged, &mut memory, content)?;
        }
        // The sender states that these words hold: a memory that superseded them did so wrongly.
        revisions::reopen(cx, staged, &mut memory)?;
    }
    if let Some(kind) = &update.kind {
        memory.kind = kind.clone();
    }
    memory.importance = update.importance.unwrap_or(memory.importance);
    memory.confidence = update.confidence.unwrap_or(memory.confidence);
    if let Some(enabled) = update.enabled {
        if !enabled {
            // A summary quotes the covered memories.
            retract_summaries(cx, staged, &memory.key, memory.id)?;
            memory.compressed_by = None;
        }
        memory.disabled = !enabled;
    }
    memory.stability = match update.stability {
        None if update.content.is_some() => cx.rules.policy.traits().stability_of(&memory.content),
        None => memory.stability,
        sent => sent,
    };
    if update.replaces_metadata {
        memory.metadata = cx.event.metadata.clone();
    }
    memory.fresh_at = memory.fresh_at.max(cx.event.at);
    cx.touch(&mut memory);
    staged.put(memory.clone(), update.content.as_ref().map(|content| &content.vector));
    Ok(memory)
}

fn change_content(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    memory: &mut Memory,
    Content { text, vector }: &Content<Vector>,
) -> Result<()> {
    slots::release(staged, memory)?;
    retract_summaries(cx, staged, &memory.key, memory.id)?;
    memory.compressed_by = None;
    revisions::unlink_old_words(cx, staged, memory, text, Some(vector))?;
    let old = std::mem::replace(&mut memory.content, text.to_owned());
    memory.history.push(Revision { content: old, until: cx.event.at });
    let surplus = memory.history.len().saturating_sub(cx.settings.limits.history_max);
    memory.history.drain(..surplus);
    let mut bytes: usize = memory.history.iter().map(|earlier| earlier.content.len()).sum();
    while bytes > cx.settings.history_bytes_max {
        bytes -= memory.history.remove(0).content.len();
    }
    if memory.scope == Scope::User && !memory.stands_alone() {
        slots::hold(staged, memory, &split::slots(text));
    }
    Ok(())
}

//! Remembers a text that somebody asked to remember. The gate has no part; a policy may find the
//! text already known, and choose the memories that the text replaces.

use crate::context::Context;
use crate::events::turn::{confirm, link};
use crate::events::update::change;
use crate::handled::Handled;
use crate::links::slots;
use crate::policy::{Links, RememberInput};
use crate::prepared::Part;
use crate::reads::Reads;
use crate::staged::Staged;
use crate::{quota, tenant, withheld};
use domain::fault::Result;
use domain::{
    Content, Decision, Kind, Memory, MemoryId, Outcome, Remember, Role, Scope, Update, Vector,
};
use text::split::{self, Candidate};

/// Nearest memories that are compared with a text that may have been remembered before. Equal texts
/// have equal vectors, so more than one only where a text has several kinds or sessions.
const REPEATED_AMONG: usize = 8;

const EXPIRED_BEFORE: &str = "expires_at is not later than the event itself: nothing is kept";

pub fn remember(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    asked: &Remember<Vector>,
) -> Result<Handled> {
    let Content { text, vector } = &asked.content;
    // At home the user's partition has judged the event, whatever the profile is by now.
    let is_judged = cx.part == Part::Home;
    if let Some(category) = withheld::never(text, cx.rules).filter(|_| !is_judged) {
        let reason = withheld::never_reason(category);
        return Ok(Handled::decided(cx.withholding(Outcome::Dropped, reason)));
    }
    let Some(candidate) = whole(cx, asked) else {
        return Ok(Handled::decided(cx.decision(Outcome::Dropped, "nothing was said")));
    };
    if let Some(refused) = refusal(cx, staged, asked, is_judged)? {
        return Ok(refused);
    }
    let mut handled = Handled::default();
    let id = MemoryId::of(cx.source(), 0);
    let is_of_tenant = asked.scope == Scope::Tenant;
    if is_of_tenant && tenant::is_left_to_home(cx, staged, &mut handled, vec![id]) {
        return Ok(handled);
    }
    let mut judged =
        cx.rules.policy.remember(cx, staged, RememberInput { asked, candidate: &candidate })?;
    let is_lasting = asked.expires_at.is_none();
    if is_lasting && !is_of_tenant {
        let same = judged.same.take();
        let again = same.as_ref().filter(|same| is_again(cx, asked, &judged.kind, same)).cloned();
        let again = match again {
            None => asked_before(cx, staged, asked, &judged.kind)?,
            again => again,
        };
        match (again, same) {
            (Some(again), _) => {
                return Ok(Handled::decided(asked_again(cx, staged, asked, again)));
            }
            (None, Some(same)) => return Ok(Handled::decided(merge(cx, staged, asked, same)?)),
            (None, None) => {}
        }
    }
    let mut memory = Memory {
        scope: asked.scope,
        importance: asked.importance,
        confidence: asked.confidence.unwrap_or(judged.confidence),
        stability: asked.stability.or_else(|| cx.rules.policy.traits().stability_of(text)),
        expires_at: asked.expires_at,
        reason: "asked to remember".into(),
        ..cx.memory(0, text, judged.kind)
    };
    if is_of_tenant {
        tenant::note_shared(cx, staged)?;
        memory.author = Some(cx.key().user().to_owned());
        memory.key = cx.key().tenant_key();
    }
    let mut decision = Decision {
        candidate: Some(memory.content.clone()),
        kind: Some(memory.kind.clone()),
        memory: Some(memory.id),
        ..cx.decision(Outcome::Kept, "asked to remember")
    };
    // A memory of a session or of the tenant replaces none of the user's, nor does one that
    // expires.
    let may_link = asked.scope == Scope::User && is_lasting;
    let links = if may_link { judged.links } else { Links::default() };
    if links.replaced.iter().any(|old| slots::closes(cx, memory.valid_from, &memory.content, old)) {
        decision.outcome = Outcome::Superseded;
    }
    if !is_of_tenant
        && decision.outcome == Outcome::Kept
        && let Some(why) = quota::refusal(cx, staged)?
    {
        return Ok(over_quota(cx, why));
    }
    decision.related = links.related().collect();
    if let Some(revised) = links.revised.first().filter(|_| links.replaced.is_empty()) {
        decision.reason = revised.why.clone();
    }
    link(cx, staged, &mut memory, links)?;
    staged.put_memory_and_vector(memory, vector);
    handled.decide(decision);
    Ok(handled)
}

/// True for the same words with the same kind, scope and session, if they still hold. Words that a
/// newer memory replaced are news again.
fn is_again(cx: &Context<'_>, asked: &Remember<Vector>, kind: &Kind, old: &Memory) -> bool {
    let holds = old.valid_to.is_none() && old.revised_by.is_none() && !old.stands_alone();
    holds
        && old.content == asked.content.text
        && (&old.kind, old.scope) == (kind, asked.scope)
        && old.session.as_deref() == cx.session()
}

/// Finds what the user asked to remember before.
fn asked_before(
    cx: &Context<'_>,
    staged: &Staged<'_>,
    asked: &Remember<Vector>,
    kind: &Kind,
) -> Result<Option<Memory>> {
    // For one of a session all memories of the user would be read, of which few are the session's.
    if asked.scope != Scope::User || cx.rules.policy.traits().stores_repeats {
        return Ok(None);
    }
    for (id, _) in cx.nearest(staged, &asked.content.vector, REPEATED_AMONG)? {
        let memory = staged.memory(cx.key(), id)?;
        let memory = memory.filter(|old| is_again(cx, asked, kind, old));
        if memory.is_some() {
            return Ok(memory);
        }
    }
    Ok(None)
}

/// Counts the request as a confirmation. What the sender gives this time wins.
fn asked_again(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    asked: &Remember<Vector>,
    mut same: Memory,
) -> Decision {
    let reason = format!("remembered before on {}", text::day(same.created_at));
    same.metadata.extend(cx.event.metadata.clone());
    same.importance = same.importance.max(asked.importance);
    same.stability = asked.stability.or(same.stability);
    same.disabled = false;
    let mut same = confirm(cx, same);
    same.confidence = asked.confidence.unwrap_or(same.confidence);
    staged.put_memory(same.clone());
    let decision = cx.decision_about(&same, Outcome::Merged, reason);
    Decision { candidate: Some(asked.content.text.clone()), ..decision }
}

/// The text as one candidate: it is stored whole, and only kind and slots of the candidate are used.
fn whole(cx: &Context<'_>, asked: &Remember<Vector>) -> Option<Candidate> {
    let options = split::Options { statements: Vec::new(), ..cx.rules.split.clone() };
    let (text, kind) = (&asked.content.text, asked.kind.as_ref());
    split::candidates(text, Role::User, kind, &options, &|_| 0).into_iter().next()
}

/// Refuses a request that the sender may not make, before anything is kept.
fn refusal(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    asked: &Remember<Vector>,
    is_judged: bool,
) -> Result<Option<Handled>> {
    let is_of_tenant = asked.scope == Scope::Tenant;
    if !is_judged {
        let refused = match tenant::refusal(cx, None).filter(|_| is_of_tenant) {
            // The event's own time counts: the sender's clock gave both.
            None if asked.expires_at.is_some_and(|end| end <= cx.event.at) => {
                Some(EXPIRED_BEFORE.to_owned())
            }
            refused => refused,
        };
        if let Some(why) = refused {
            return Ok(Some(Handled::decided(cx.decision(Outcome::Refused, why))));
        }
    }
    let is_counted = is_of_tenant && cx.is_home_of_tenant();
    let why = if is_counted { quota::refusal(cx, staged)? } else { None };
    Ok(why.map(|why| over_quota(cx, why)))
}

fn over_quota(cx: &Context<'_>, why: String) -> Handled {
    Handled { over_quota: 1, ..Handled::decided(cx.decision(Outcome::Refused, why)) }
}

/// Gives a memory with nearly the same statement the new words and their time.
fn merge(
    cx: &Context<'_>,
    staged: &mut Staged<'_>,
    asked: &Remember<Vector>,
    same: Memory,
) -> Result<Decision> {
    let reason = format!("nearly the same as \"{}\"", text::shortened(&same.content, 60));
    let update = Update {
        memory: same.id,
        content: Some(asked.content.clone()),
        kind: None,
        importance: None,
        // A field that the sender does not give stays.
        confidence: asked.confidence,
        stability: asked.stability,
        // Somebody asks for the text again: a memory that stays switched off would be in no answer.
        enabled: Some(true),
        replaces_metadata: false,
    };
    let memory = change(cx, staged, same, &update)?;
    let decision = cx.decision_about(&memory, Outcome::Merged, reason);
    Ok(Decision { candidate: Some(asked.content.text.clone()), ..decision })
}

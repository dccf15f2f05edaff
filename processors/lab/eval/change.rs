//! `keepsake eval change`: measures how many planted updates and contradictions are linked when the
//! later turn arrives, how many other turns are linked, whether the newest value comes first, and
//! whether memories that still hold are marked as superseded.

use super::data::{Conversation, EvalQuestion};
use super::figures::share;
use super::harness::{AnsweredMemory, Harness, RecallAnswer, SimulatedUser};
use super::report::{EvalReport, number, percent};
use super::states::{LinkKind, MemoryStates, TurnLink};
use super::traps::{self, TrapResult};
use client::show;
use domain::fault::Result;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Memories of a prompt block by default.
const IN_BLOCK: usize = 5;
const UPDATE: &str = "knowledge_update";
/// Kind of an update that returns to an earlier value.
const REVERSAL: &str = "reversal";

/// A planted conflict. A link between any of its pairs counts as finding the conflict.
struct PlantedConflict<'c> {
    kind: &'c str,
    /// Positions of the earlier and the later turn. They are ordered by position: the `earlier` of
    /// a file is not always the turn that comes first.
    pairs: BTreeSet<(usize, usize)>,
}

/// A question about a value that changed.
struct UpdateResult {
    id: String,
    /// The kind of change, if a file of kinds lists the question.
    kind: Option<String>,
    is_newest_first: bool,
    /// An old value is among the first [`IN_BLOCK`] memories, without a note of its revision and
    /// without the newest value.
    is_old_alone: bool,
}

/// Results of one conversation.
pub struct ChangeResult {
    pairs: Vec<Value>,
    links: Vec<Value>,
    /// Kind of each planted conflict, and whether it was linked.
    linked: Vec<(String, bool)>,
    /// Kinds of link of each user turn that is in no planted conflict.
    others: Vec<BTreeSet<LinkKind>>,
    updates: Vec<UpdateResult>,
    traps: Vec<TrapResult>,
}

/// Measures and reports. `kinds` maps a question to the kind of its change, or of its trap.
pub fn measure(
    harness: &Harness,
    conversations: &[Conversation],
    kinds: &HashMap<String, String>,
) -> Result<EvalReport> {
    Ok(report(&found_in(harness, conversations, kinds)?))
}

pub fn found_in(
    harness: &Harness,
    conversations: &[Conversation],
    kinds: &HashMap<String, String>,
) -> Result<Vec<ChangeResult>> {
    harness.each(conversations, |encoder, conversation| {
        let mut user =
            SimulatedUser::begin(harness, &harness.profiles, encoder, &conversation.name)?;
        let positions = conversation.positions();
        let decisions = user.publish_turns(&conversation.turns)?;
        let memories = user.memories()?;
        let states = MemoryStates::of(&decisions, &memories, &positions);
        let planted = planted(conversation);
        let mut updates = Vec::new();
        let mut traps = Vec::new();
        for question in &conversation.questions {
            let kind = kinds.get(&question.id);
            if question.category == UPDATE
                && let Some((newest, outdated)) = versions(question, kind, &planted, &positions)
            {
                let answer = user.answer(&question.text)?;
                let is_newest_first =
                    is_newest_first(&answer.ranking(), &newest, &outdated, &positions);
                let is_old_alone = is_old_alone(&answer, &newest, &outdated, &positions);
                updates.push(UpdateResult {
                    id: question.id.clone(),
                    kind: kind.cloned(),
                    is_newest_first,
                    is_old_alone,
                });
            } else if question.category == traps::CATEGORY {
                traps.push(TrapResult::of(question, kind, &user.ask(&question.text)?, &states));
            }
        }
        Ok(ChangeResult { updates, traps, ..found(conversation, &states.links, &planted) })
    })
}

fn planted(conversation: &Conversation) -> Vec<PlantedConflict<'_>> {
    let positions = conversation.positions();
    let conflicts = conversation.conflicts.iter().map(|conflict| {
        let earlier = positions_of(&conflict.earlier, &positions);
        let later = positions_of(&conflict.later, &positions);
        let pairs = earlier
            .iter()
            .flat_map(|a| later.iter().map(move |b| (*a.min(b), *a.max(b))))
            .filter(|(a, b)| a != b);
        PlantedConflict { kind: &conflict.kind, pairs: pairs.collect() }
    });
    // A turn that contradicts itself has no earlier turn to be linked to.
    conflicts.filter(|conflict| !conflict.pairs.is_empty()).collect()
}

fn positions_of(ids: &[String], positions: &HashMap<&str, usize>) -> BTreeSet<usize> {
    ids.iter().filter_map(|id| positions.get(id.as_str()).copied()).collect()
}

fn found(
    conversation: &Conversation,
    links: &[TurnLink],
    planted: &[PlantedConflict<'_>],
) -> ChangeResult {
    let in_conflict: BTreeSet<usize> =
        planted.iter().flat_map(|conflict| &conflict.pairs).flat_map(|(a, b)| [*a, *b]).collect();
    let others = conversation
        .turns
        .iter()
        .enumerate()
        .filter(|(n, turn)| turn.is_users() && !in_conflict.contains(n));
    ChangeResult {
        pairs: planted.iter().map(|conflict| conflict.json(conversation, links)).collect(),
        links: links.iter().map(|link| link_json(conversation, link)).collect(),
        linked: planted
            .iter()
            .map(|conflict| (conflict.kind.to_owned(), conflict.surest_link(links).is_some()))
            .collect(),
        others: others
            .map(|(n, _)| {
                links.iter().filter(|link| link.later == n).map(|link| link.how).collect()
            })
            .collect(),
        updates: Vec::new(),
        traps: Vec::new(),
    }
}

impl PlantedConflict<'_> {
    /// Returns the surest link between any pair of the conflict.
    fn surest_link<'l>(&self, links: &'l [TurnLink]) -> Option<&'l TurnLink> {
        links
            .iter()
            .filter(|link| self.pairs.contains(&(link.earlier, link.later)))
            .min_by_key(|link| link.how)
    }

    fn json(&self, conversation: &Conversation, links: &[TurnLink]) -> Value {
        let link = self.surest_link(links);
        let (earlier, later) = link
            .map(|link| (link.earlier, link.later))
            .or(self.pairs.first().copied())
            .expect("`planted` leaves out conflicts without pairs");
        json!({
            "conversation": conversation.name,
            "kind": self.kind,
            "earlier": conversation.turns[earlier].id,
            "later": conversation.turns[later].id,
            "linked": link.is_some(),
            "how": link.map(|link| link.how.as_str()),
        })
    }
}

fn link_json(conversation: &Conversation, link: &TurnLink) -> Value {
    json!({
        "conversation": conversation.name,
        "earlier": conversation.turns[link.earlier].id,
        "later": conversation.turns[link.later].id,
        "how": link.how.as_str(),
    })
}

/// Returns the positions of the turns with the newest value, and of those with an outdated one.
///
/// With a kind, they are the question's evidence, oldest first. For a `reversal`, the first and the
/// last turn have the same value, and only the turn before the last is outdated. Without a kind,
/// they are the turns of the planted update that shares most pairs with the evidence.
fn versions(
    question: &EvalQuestion,
    kind: Option<&String>,
    planted: &[PlantedConflict<'_>],
    positions: &HashMap<&str, usize>,
) -> Option<(BTreeSet<usize>, BTreeSet<usize>)> {
    let evidence = positions_of(&question.evidence, positions);
    if let Some(kind) = kind {
        let mut outdated = evidence;
        let newest = outdated.pop_last()?;
        if kind == REVERSAL {
            outdated = outdated.pop_last().into_iter().collect();
        }
        return Some((BTreeSet::from([newest]), outdated));
    }
    let (update, _) = planted
        .iter()
        .filter(|conflict| conflict.kind == UPDATE)
        .map(|conflict| {
            let pairs = conflict.pairs.iter();
            (conflict, pairs.filter(|(a, b)| evidence.contains(a) && evidence.contains(b)).count())
        })
        .filter(|(_, shared)| *shared > 0)
        .max_by_key(|(_, shared)| *shared)?;
    let (earlier, later) = update.pairs.iter().copied().unzip();
    Some((later, earlier))
}

/// A turn with the newest value is in the ranking, before any turn with an outdated value.
fn is_newest_first(
    ranking: &[String],
    newest: &BTreeSet<usize>,
    outdated: &BTreeSet<usize>,
    positions: &HashMap<&str, usize>,
) -> bool {
    let [newest, outdated] = [newest, outdated].map(|wanted| {
        ranking.iter().position(|id| {
            positions.get(id.as_str()).is_some_and(|position| wanted.contains(position))
        })
    });
    match (newest, outdated) {
        (Some(newest), Some(outdated)) => newest < outdated,
        (newest, _) => newest.is_some(),
    }
}

fn is_old_alone(
    answer: &RecallAnswer,
    newest: &BTreeSet<usize>,
    outdated: &BTreeSet<usize>,
    positions: &HashMap<&str, usize>,
) -> bool {
    let is_of = |memory: &AnsweredMemory, turns: &BTreeSet<usize>| {
        memory.turn().and_then(|id| positions.get(id)).is_some_and(|turn| turns.contains(turn))
    };
    let block = || answer.memories.iter().take(IN_BLOCK);
    block().any(|one| is_of(one, outdated) && one.note.is_none())
        && !block().any(|one| is_of(one, newest))
}

/// The results of all conversations together.
pub struct ChangeTotals<'f> {
    linked: BTreeMap<&'f str, Vec<bool>>,
    pub others: Vec<&'f BTreeSet<LinkKind>>,
    updates: Vec<&'f UpdateResult>,
    pub traps: Vec<&'f TrapResult>,
}

impl<'f> ChangeTotals<'f> {
    pub fn of(found: &'f [ChangeResult]) -> ChangeTotals<'f> {
        let mut linked: BTreeMap<&str, Vec<bool>> = BTreeMap::new();
        for (kind, is_linked) in found.iter().flat_map(|one| &one.linked) {
            linked.entry(kind).or_default().push(*is_linked);
        }
        ChangeTotals {
            linked,
            others: found.iter().flat_map(|one| &one.others).collect(),
            updates: found.iter().flat_map(|one| &one.updates).collect(),
            traps: found.iter().flat_map(|one| &one.traps).collect(),
        }
    }

    pub fn newest_first(&self) -> Vec<bool> {
        self.updates.iter().map(|update| update.is_newest_first).collect()
    }

    fn old_alone(&self) -> Vec<bool> {
        self.updates.iter().map(|update| update.is_old_alone).collect()
    }

    /// For each turn outside planted conflicts: has the turn a link of one of these kinds?
    pub fn others_linked(&self, ways: &[LinkKind]) -> Vec<bool> {
        self.others.iter().map(|links| links.iter().any(|how| ways.contains(how))).collect()
    }

    fn newest_first_by_kind(&self) -> BTreeMap<&str, Vec<bool>> {
        let mut kinds: BTreeMap<&str, Vec<bool>> = BTreeMap::new();
        for update in &self.updates {
            if let Some(kind) = &update.kind {
                kinds.entry(kind).or_default().push(update.is_newest_first);
            }
        }
        kinds
    }
}

fn report(found: &[ChangeResult]) -> EvalReport {
    let changes = ChangeTotals::of(found);
    let newest_first = changes.newest_first();
    let by_kind = changes.newest_first_by_kind();
    let others = changes.others_linked(&LinkKind::ALL);
    let others_by_how: Vec<(LinkKind, Vec<bool>)> =
        LinkKind::ALL.iter().map(|how| (*how, changes.others_linked(&[*how]))).collect();
    let closing = changes.others_linked(&[LinkKind::Superseded, LinkKind::Revised]);
    let mut metrics = json!({
        "linked": shares(changes.linked.iter().map(|(kind, of)| (*kind, of))),
        "false": share_json(&others),
        "false_by_link": shares(others_by_how.iter().map(|(how, of)| (how.as_str(), of))),
        "false_closing": share_json(&closing),
        "newest_first": share_json(&newest_first),
        "old_alone": share_json(&changes.old_alone()),
    });
    if !by_kind.is_empty() {
        metrics["newest_first_by_kind"] = shares(by_kind.iter().map(|(kind, of)| (*kind, of)));
    }
    if !changes.traps.is_empty() {
        metrics["traps"] = traps::json(&changes.traps);
    }
    let json = json!({
        "pairs": found.iter().flat_map(|one| &one.pairs).collect::<Vec<_>>(),
        "links": found.iter().flat_map(|one| &one.links).collect::<Vec<_>>(),
        "updates": changes.updates.iter().map(|update| update.json()).collect::<Vec<_>>(),
        "traps": changes.traps.iter().map(|trap| trap.json()).collect::<Vec<_>>(),
        "metrics": metrics,
    });
    let mut rows: Vec<Vec<String>> =
        changes.linked.iter().map(|(kind, of)| row(format!("linked: {kind}"), of)).collect();
    rows.push(row("linked: other turns of the user".to_owned(), &others));
    rows.extend(others_by_how.iter().map(|(how, of)| row(format!("  {}", how.as_str()), of)));
    rows.push(row("the newest first".to_owned(), &newest_first));
    rows.push(row("an old value alone in the first five".to_owned(), &changes.old_alone()));
    rows.extend(by_kind.iter().map(|(kind, of)| row(format!("  {kind}"), of)));
    rows.extend(traps::rows(&changes.traps));
    EvalReport { json, text: show::table(&["change", "", ""], &rows) }
}

impl UpdateResult {
    fn json(&self) -> Value {
        json!({"id": self.id, "kind": self.kind, "newest_first": self.is_newest_first})
    }
}

fn share_json(of: &[bool]) -> Value {
    number(share(of.iter().copied()))
}

fn shares<'n>(named: impl Iterator<Item = (&'n str, &'n Vec<bool>)>) -> Value {
    named.map(|(name, of)| (name.to_owned(), share_json(of))).collect::<Map<_, _>>().into()
}

fn row(name: String, of: &[bool]) -> Vec<String> {
    let holds = of.iter().filter(|holds| **holds).count();
    vec![name, percent(share(of.iter().copied())), format!("{holds} of {}", of.len())]
}

//! `keepsake eval change`: measures which planted updates and contradictions were linked when they were said, how many other turns were,
//! whether the newest value comes first, and whether anything that still holds is marked as outdated.

use super::data::{Conversation, Question};
use super::harness::{Kit, Life};
use super::metrics::share;
use super::states::{How, Link, States};
use super::traps::{self, Trap};
use super::{Report, number, percent, show};
use crate::fault::Result;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};

const UPDATE: &str = "knowledge_update";
/// A value that came back.
const REVERSAL: &str = "reversal";

/// A planted conflict: any of its pairs counts as finding it.
struct Planted<'c> {
    kind: &'c str,
    /// Earlier and later by position: which of two is called the earlier one in a file says nothing of when it was said.
    pairs: BTreeSet<(usize, usize)>,
}

/// A question for a value that changed.
struct Update {
    id: String,
    /// The kind of change, if a file of kinds lists the question.
    kind: Option<String>,
    is_newest_first: bool,
}

/// What came of one conversation.
pub struct Found {
    pairs: Vec<Value>,
    links: Vec<Value>,
    /// Of each planted conflict: its kind, and whether it was linked.
    linked: Vec<(String, bool)>,
    /// The link of each user turn that is in no conflict, if it has one.
    others: Vec<BTreeSet<How>>,
    updates: Vec<Update>,
    traps: Vec<Trap>,
}

/// `kinds`: by question, how its value changed, or what makes it a trap.
pub fn measure(
    kit: &Kit,
    conversations: &[Conversation],
    kinds: &HashMap<String, String>,
) -> Result<Report> {
    Ok(report(&found_in(kit, conversations, kinds)?))
}

pub fn found_in(
    kit: &Kit,
    conversations: &[Conversation],
    kinds: &HashMap<String, String>,
) -> Result<Vec<Found>> {
    kit.each(conversations, |encoder, conversation| {
        let mut life = Life::begin(kit, &kit.profiles, encoder, &conversation.name)?;
        let positions = conversation.positions();
        let decisions = life.hear(&conversation.turns)?;
        let memories = life.memories()?;
        let states = States::of(&decisions, &memories, &positions);
        let planted = planted(conversation);
        let (mut updates, mut traps) = (Vec::new(), Vec::new());
        for question in &conversation.questions {
            let kind = kinds.get(&question.id);
            if question.category == UPDATE
                && let Some((newest, outdated)) = versions(question, kind, &planted, &positions)
            {
                let is_newest_first =
                    is_newest_first(&life.ask(&question.text)?, &newest, &outdated, &positions);
                updates.push(Update {
                    id: question.id.clone(),
                    kind: kind.cloned(),
                    is_newest_first,
                });
            } else if question.category == traps::CATEGORY {
                traps.push(Trap::of(question, kind, &life.ask(&question.text)?, &states));
            }
        }
        Ok(Found { updates, traps, ..found(conversation, &states.links, &planted) })
    })
}

fn planted(conversation: &Conversation) -> Vec<Planted<'_>> {
    let positions = conversation.positions();
    let at = |ids: &[String]| -> Vec<usize> {
        ids.iter().filter_map(|id| positions.get(id.as_str()).copied()).collect()
    };
    let conflicts = conversation.conflicts.iter().map(|conflict| {
        let (earlier, later) = (at(&conflict.earlier), at(&conflict.later));
        let pairs = earlier
            .iter()
            .flat_map(|a| later.iter().map(move |b| (*a.min(b), *a.max(b))))
            .filter(|(a, b)| a != b);
        Planted { kind: &conflict.kind, pairs: pairs.collect() }
    });
    // A turn that contradicts itself has no earlier one to be linked to.
    conflicts.filter(|conflict| !conflict.pairs.is_empty()).collect()
}

fn found(conversation: &Conversation, links: &[Link], planted: &[Planted<'_>]) -> Found {
    let id = |position: usize| &conversation.turns[position].id;
    let how = |conflict: &Planted<'_>| {
        let hits = links.iter().filter(|link| conflict.pairs.contains(&(link.earlier, link.later)));
        hits.min_by_key(|link| link.how).map(|link| ((link.earlier, link.later), link.how))
    };
    let pairs = planted.iter().map(|conflict| {
        let found = how(conflict);
        let (earlier, later) = found
            .map(|(pair, _)| pair)
            .or(conflict.pairs.first().copied())
            .expect("conflicts without pairs were left out");
        json!({
            "conversation": conversation.name,
            "kind": conflict.kind,
            "earlier": id(earlier),
            "later": id(later),
            "linked": found.is_some(),
            "how": found.map(|(_, how)| how.as_str()),
        })
    });
    let link = |link: &Link| json!({"conversation": conversation.name, "earlier": id(link.earlier), "later": id(link.later), "how": link.how.as_str()});
    let in_conflict: BTreeSet<usize> =
        planted.iter().flat_map(|conflict| &conflict.pairs).flat_map(|(a, b)| [*a, *b]).collect();
    let ways =
        |n: usize| links.iter().filter(|link| link.later == n).map(|link| link.how).collect();
    let others = conversation
        .turns
        .iter()
        .enumerate()
        .filter(|(n, turn)| turn.is_users() && !in_conflict.contains(n));
    Found {
        pairs: pairs.collect(),
        links: links.iter().map(link).collect(),
        linked: planted
            .iter()
            .map(|conflict| (conflict.kind.to_owned(), how(conflict).is_some()))
            .collect(),
        others: others.map(|(n, _)| ways(n)).collect(),
        updates: Vec::new(),
        traps: Vec::new(),
    }
}

/// The turns that hold the newest value of what is asked for, and those that hold an outdated one.
///
/// With a kind these are the question's evidence, oldest first; where a value came back (`reversal`), the first statement says the same as the
/// last, and only the one before the last is wrong. Without, they are those of the planted update that shares most pairs with the evidence.
fn versions(
    question: &Question,
    kind: Option<&String>,
    planted: &[Planted<'_>],
    positions: &HashMap<&str, usize>,
) -> Option<(BTreeSet<usize>, BTreeSet<usize>)> {
    let evidence: BTreeSet<usize> =
        question.evidence.iter().filter_map(|id| positions.get(id.as_str()).copied()).collect();
    if let Some(kind) = kind {
        let mut outdated = evidence;
        let newest = outdated.pop_last()?;
        if kind == REVERSAL {
            outdated = outdated.pop_last().into_iter().collect();
        }
        return Some((BTreeSet::from([newest]), outdated));
    }
    let shared = |conflict: &Planted<'_>| {
        conflict.pairs.iter().filter(|(a, b)| evidence.contains(a) && evidence.contains(b)).count()
    };
    let updates = planted.iter().filter(|conflict| conflict.kind == UPDATE && shared(conflict) > 0);
    let (earlier, later) =
        updates.max_by_key(|conflict| shared(conflict))?.pairs.iter().copied().unzip();
    Some((later, earlier))
}

/// A newest turn is in the reply, and no outdated one stands before it.
fn is_newest_first(
    ranking: &[String],
    newest: &BTreeSet<usize>,
    outdated: &BTreeSet<usize>,
    positions: &HashMap<&str, usize>,
) -> bool {
    let place = |wanted: &BTreeSet<usize>| {
        ranking.iter().position(|id| {
            positions.get(id.as_str()).is_some_and(|position| wanted.contains(position))
        })
    };
    match (place(newest), place(outdated)) {
        (Some(newest), Some(outdated)) => newest < outdated,
        (newest, _) => newest.is_some(),
    }
}

/// The figures of all conversations together.
pub struct Changes<'f> {
    linked: BTreeMap<&'f str, Vec<bool>>,
    pub others: Vec<&'f BTreeSet<How>>,
    updates: Vec<&'f Update>,
    pub traps: Vec<&'f Trap>,
}

impl<'f> Changes<'f> {
    pub fn of(found: &'f [Found]) -> Changes<'f> {
        let mut linked: BTreeMap<&str, Vec<bool>> = BTreeMap::new();
        for (kind, is_linked) in found.iter().flat_map(|one| &one.linked) {
            linked.entry(kind).or_default().push(*is_linked);
        }
        Changes {
            linked,
            others: found.iter().flat_map(|one| &one.others).collect(),
            updates: found.iter().flat_map(|one| &one.updates).collect(),
            traps: found.iter().flat_map(|one| &one.traps).collect(),
        }
    }

    pub fn newest_first(&self) -> Vec<bool> {
        self.updates.iter().map(|update| update.is_newest_first).collect()
    }

    /// Counts the turns in no conflict that have one of these links.
    pub fn others_linked(&self, ways: &[How]) -> Vec<bool> {
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

fn report(found: &[Found]) -> Report {
    let changes = Changes::of(found);
    let part = |of: &[bool]| share(of.iter().copied());
    let shares = |of: &BTreeMap<&str, Vec<bool>>| -> Map<String, Value> {
        of.iter().map(|(name, of)| ((*name).to_owned(), number(part(of)))).collect()
    };
    let (newest_first, by_kind) = (changes.newest_first(), changes.newest_first_by_kind());
    let others = changes.others_linked(&How::ALL);
    let others_by_how: Vec<(How, Vec<bool>)> =
        How::ALL.iter().map(|how| (*how, changes.others_linked(&[*how]))).collect();
    let closing = changes.others_linked(&[How::Superseded, How::Revised]);
    let update = |update: &&Update| json!({"id": update.id, "kind": update.kind, "newest_first": update.is_newest_first});
    let mut metrics = json!({
        "linked": shares(&changes.linked),
        "false": number(part(&others)),
        "false_by_link": others_by_how.iter().map(|(how, of)| (how.as_str().to_owned(), number(part(of)))).collect::<Map<_, _>>(),
        "false_closing": number(part(&closing)),
        "newest_first": number(part(&newest_first)),
    });
    if !by_kind.is_empty() {
        metrics["newest_first_by_kind"] = Value::Object(shares(&by_kind));
    }
    if !changes.traps.is_empty() {
        metrics["traps"] = traps::json(&changes.traps);
    }
    let json = json!({
        "pairs": found.iter().flat_map(|one| &one.pairs).collect::<Vec<_>>(),
        "links": found.iter().flat_map(|one| &one.links).collect::<Vec<_>>(),
        "updates": changes.updates.iter().map(update).collect::<Vec<_>>(),
        "traps": changes.traps.iter().map(|trap| trap.json()).collect::<Vec<_>>(),
        "metrics": metrics,
    });
    let row = |name: String, of: &[bool]| {
        vec![
            name,
            percent(part(of)),
            format!("{} of {}", of.iter().filter(|holds| **holds).count(), of.len()),
        ]
    };
    let mut rows: Vec<Vec<String>> =
        changes.linked.iter().map(|(kind, of)| row(format!("linked: {kind}"), of)).collect();
    rows.push(row("linked: other turns of the user".to_owned(), &others));
    rows.extend(others_by_how.iter().map(|(how, of)| row(format!("  {}", how.as_str()), of)));
    rows.push(row("the newest first".to_owned(), &newest_first));
    rows.extend(by_kind.iter().map(|(kind, of)| row(format!("  {kind}"), of)));
    rows.extend(traps::rows(&changes.traps));
    Report { json, text: show::table(&["change", "", ""], &rows) }
}

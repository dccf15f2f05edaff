//! `keepsake eval change`: which of the planted updates and contradictions were noticed when they were said, how many other turns were taken
//! for one, and whether the newer value comes first.

use super::data::{Conversation, Question};
use super::harness::{Kit, Life};
use super::metrics::share;
use super::{Report, number, percent, show};
use crate::domain::{Decision, MemoryId, Outcome};
use crate::fault::Result;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};

const UPDATE: &str = "knowledge_update";

/// What a turn's decision says of an earlier one, by their positions in the conversation.
struct Link {
    earlier: usize,
    later: usize,
    how: &'static str,
}

/// A planted conflict: any of its pairs counts as finding it.
struct Planted<'c> {
    kind: &'c str,
    /// Earlier and later by position: which of two is called the earlier one in a file says nothing of when it was said.
    pairs: BTreeSet<(usize, usize)>,
}

/// What came of one conversation.
struct Found {
    pairs: Vec<Value>,
    links: Vec<Value>,
    /// Of each planted conflict: its kind, and whether it was linked.
    linked: Vec<(String, bool)>,
    /// Of each turn of the user that is in no conflict: whether it was linked to anything.
    others: Vec<bool>,
    newest_first: Vec<bool>,
}

pub fn measure(kit: &Kit, conversations: &[Conversation]) -> Result<Report> {
    let found = kit.each(conversations, |encoder, conversation| {
        let mut life = Life::begin(kit, &kit.profiles, encoder, &conversation.name)?;
        let links = links(&life.hear(&conversation.turns)?, &conversation.positions());
        let planted = planted(conversation);
        let mut newest_first = Vec::new();
        for (question, conflict) in updates(conversation, &planted) {
            newest_first.push(is_newest_first(&life.ask(&question.text)?, conflict, &conversation.positions()));
        }
        Ok(Found { newest_first, ..found(conversation, &links, &planted) })
    })?;
    Ok(report(&found))
}

/// Every decision that names an earlier memory, as a link between turns.
fn links(decisions: &[Decision], positions: &HashMap<&str, usize>) -> Vec<Link> {
    let position = |decision: &Decision| positions.get(decision.event_id.as_deref()?).copied();
    // A turn that was merged into a memory is one of those that the memory stands for.
    let mut turns_of: HashMap<MemoryId, Vec<usize>> = HashMap::new();
    let mut links = Vec::new();
    for decision in decisions {
        let Some(later) = position(decision) else { continue };
        let how = if decision.outcome == Outcome::Superseded { "superseded" } else { "conflict" };
        for earlier in decision.related.iter().flat_map(|memory| turns_of.get(memory).into_iter().flatten()) {
            links.push(Link { earlier: *earlier, later, how });
        }
        if let Some(memory) = decision.memory {
            turns_of.entry(memory).or_default().push(later);
        }
    }
    links
}

fn planted(conversation: &Conversation) -> Vec<Planted<'_>> {
    let positions = conversation.positions();
    let at = |ids: &[String]| -> Vec<usize> { ids.iter().filter_map(|id| positions.get(id.as_str()).copied()).collect() };
    let conflicts = conversation.conflicts.iter().map(|conflict| {
        let (earlier, later) = (at(&conflict.earlier), at(&conflict.later));
        let pairs = earlier.iter().flat_map(|a| later.iter().map(move |b| (*a.min(b), *a.max(b)))).filter(|(a, b)| a != b);
        Planted { kind: &conflict.kind, pairs: pairs.collect() }
    });
    // A turn that contradicts itself has no earlier one to be linked to.
    conflicts.filter(|conflict| !conflict.pairs.is_empty()).collect()
}

fn found(conversation: &Conversation, links: &[Link], planted: &[Planted<'_>]) -> Found {
    let id = |position: usize| &conversation.turns[position].id;
    let how = |conflict: &Planted<'_>| {
        let hits = links.iter().filter(|link| conflict.pairs.contains(&(link.earlier, link.later)));
        hits.max_by_key(|link| link.how == "superseded").map(|link| ((link.earlier, link.later), link.how))
    };
    let pairs = planted.iter().map(|conflict| {
        let found = how(conflict);
        let (earlier, later) =
            found.map(|(pair, _)| pair).or(conflict.pairs.first().copied()).expect("conflicts without pairs were left out");
        json!({
            "conversation": conversation.name,
            "kind": conflict.kind,
            "earlier": id(earlier),
            "later": id(later),
            "linked": found.is_some(),
            "how": found.map(|(_, how)| how),
        })
    });
    let link = |link: &Link| json!({"conversation": conversation.name, "earlier": id(link.earlier), "later": id(link.later), "how": link.how});
    let in_conflict: BTreeSet<usize> = planted.iter().flat_map(|conflict| &conflict.pairs).flat_map(|(a, b)| [*a, *b]).collect();
    let linked: BTreeSet<usize> = links.iter().map(|link| link.later).collect();
    let others = conversation.turns.iter().enumerate().filter(|(n, turn)| turn.is_users() && !in_conflict.contains(n));
    Found {
        pairs: pairs.collect(),
        links: links.iter().map(link).collect(),
        linked: planted.iter().map(|conflict| (conflict.kind.to_owned(), how(conflict).is_some())).collect(),
        others: others.map(|(n, _)| linked.contains(&n)).collect(),
        newest_first: Vec::new(),
    }
}

/// Questions for a value that was updated, each with the update whose turns are its evidence.
fn updates<'c, 'p>(
    conversation: &'c Conversation,
    planted: &'p [Planted<'c>],
) -> impl Iterator<Item = (&'c Question, &'p Planted<'c>)> {
    let positions = conversation.positions();
    conversation.questions.iter().filter(|question| question.category == UPDATE).filter_map(move |question| {
        let evidence: BTreeSet<usize> = question.evidence.iter().filter_map(|id| positions.get(id.as_str()).copied()).collect();
        let shared =
            |conflict: &Planted<'_>| conflict.pairs.iter().filter(|(a, b)| evidence.contains(a) && evidence.contains(b)).count();
        let updates = planted.iter().filter(|conflict| conflict.kind == UPDATE && shared(conflict) > 0);
        Some((question, updates.max_by_key(|conflict| shared(conflict))?))
    })
}

/// The later turn is in the reply, and the earlier one behind it or not at all.
fn is_newest_first(ranking: &[String], conflict: &Planted<'_>, positions: &HashMap<&str, usize>) -> bool {
    let place = |wanted: &BTreeSet<usize>| {
        ranking.iter().position(|id| positions.get(id.as_str()).is_some_and(|position| wanted.contains(position)))
    };
    let (earlier, later) = conflict.pairs.iter().copied().unzip();
    match (place(&later), place(&earlier)) {
        (Some(later), Some(earlier)) => later < earlier,
        (later, _) => later.is_some(),
    }
}

fn report(found: &[Found]) -> Report {
    let mut by_kind: BTreeMap<&str, Vec<bool>> = BTreeMap::new();
    for (kind, linked) in found.iter().flat_map(|one| &one.linked) {
        by_kind.entry(kind).or_default().push(*linked);
    }
    let others: Vec<bool> = found.iter().flat_map(|one| one.others.iter().copied()).collect();
    let newest_first: Vec<bool> = found.iter().flat_map(|one| one.newest_first.iter().copied()).collect();
    let part = |of: &[bool]| share(of.iter().copied());
    let linked: Map<String, Value> = by_kind.iter().map(|(kind, of)| ((*kind).to_owned(), number(part(of)))).collect();
    let json = json!({
        "pairs": found.iter().flat_map(|one| &one.pairs).collect::<Vec<_>>(),
        "links": found.iter().flat_map(|one| &one.links).collect::<Vec<_>>(),
        "metrics": {"linked": linked, "false": number(part(&others)), "newest_first": number(part(&newest_first))},
    });
    let row = |name: String, of: &[bool]| {
        vec![name, percent(part(of)), format!("{} of {}", of.iter().filter(|holds| **holds).count(), of.len())]
    };
    let mut rows: Vec<Vec<String>> = by_kind.iter().map(|(kind, of)| row(format!("linked: {kind}"), of)).collect();
    rows.push(row("linked: other turns of the user".to_owned(), &others));
    rows.push(row("the newest first".to_owned(), &newest_first));
    Report { json, text: show::table(&["change", "", ""], &rows) }
}

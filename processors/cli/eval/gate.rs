//! `keepsake eval gate`: measures what of a user's turns is kept, whether the surprising ones are those that matter later, what the gate costs
//! recall, and how much is stored for it.

use super::cache::Encoder;
use super::data::{Conversation, Turn};
use super::harness::{Kit, Life};
use super::metrics::{Figures, Interval, auc, share};
use super::{Report, number, percent, show};
use crate::domain::{Decision, Outcome, Surprise};
use crate::fault::Result;
use crate::profile::Profiles;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A turn whose candidates were many is judged by the one that surprised most.
#[derive(Debug, Default)]
struct Judged {
    outcome: Option<Outcome>,
    reason: String,
    surprise: Surprise,
}

/// A turn of the user's with what became of it.
struct Row<'c> {
    conversation: &'c str,
    turn: &'c Turn,
    /// How many of the user's turns came before it.
    place: usize,
    is_evidence: bool,
    /// It holds something that is worth keeping, as a person labelled it. None: nobody did.
    is_durable: Option<bool>,
    judged: Judged,
    /// Its memory would be archived if the user might have half as many.
    is_archived_by_half: bool,
}

/// Memories of one user after the last turn.
pub struct Stored {
    memories: usize,
    bytes: usize,
    by_kind: BTreeMap<String, usize>,
}

/// Decisions, rankings and stored bytes of one user.
struct Lived {
    decisions: Vec<Decision>,
    figures: Vec<Figures>,
    stored: Stored,
    archived_by_half: HashSet<String>,
}

/// The user's first turns: there a gate knows little of them.
const FIRST: usize = 50;

/// `labels`: by turn, whether it holds something durable.
pub fn measure(
    kit: &Kit,
    conversations: &[Conversation],
    labels: &HashMap<String, bool>,
) -> Result<Report> {
    Ok(report(&gated(kit, conversations, labels)?))
}

pub fn gated<'c>(
    kit: &Kit,
    conversations: &'c [Conversation],
    labels: &HashMap<String, bool>,
) -> Result<Gated<'c>> {
    let open = kit.profiles.with_open_gate();
    let lives = kit.each(conversations, |encoder, conversation| {
        let gated = live(kit, &kit.profiles, encoder, conversation)?;
        // Only what is found differs: without a question there is nothing to compare.
        let is_asked = conversation.headline().next().is_some();
        let ungated =
            if is_asked { live(kit, &open, encoder, conversation)?.figures } else { Vec::new() };
        Ok((gated, ungated))
    })?;
    let mut measured =
        Gated { rows: Vec::new(), stored: Vec::new(), gated: Vec::new(), ungated: Vec::new() };
    for (conversation, (with, without)) in conversations.iter().zip(lives) {
        measured.rows.extend(of_the_user(
            conversation,
            judged(&with.decisions),
            &with.archived_by_half,
            labels,
        ));
        measured.stored.push((conversation.name.as_str(), with.stored));
        measured.gated.extend(with.figures);
        measured.ungated.extend(without);
    }
    Ok(measured)
}

fn live(
    kit: &Kit,
    profiles: &Profiles,
    encoder: &Encoder,
    conversation: &Conversation,
) -> Result<Lived> {
    let mut life = Life::begin(kit, profiles, encoder, &conversation.name)?;
    let decisions = life.hear(&conversation.turns)?;
    let figures = conversation
        .headline()
        .map(|question| Ok(Figures::of(&life.ask(&question.text)?, &question.evidence)));
    let figures = figures.collect::<Result<_>>()?;
    let archived_by_half = life.archived_by_half(profiles)?;
    Ok(Lived { decisions, figures, stored: Stored::of(&life.memories()?), archived_by_half })
}

impl Stored {
    fn of(memories: &[Value]) -> Stored {
        let mut by_kind: BTreeMap<String, usize> = BTreeMap::new();
        for memory in memories {
            *by_kind.entry(show::text(memory, "kind").to_owned()).or_default() += 1;
        }
        let bytes = memories.iter().map(|memory| show::text(memory, "content").len()).sum();
        Stored { memories: memories.len(), bytes, by_kind }
    }
}

/// By turn: the best that became of any of its candidates, and the greatest surprise.
fn judged(decisions: &[Decision]) -> HashMap<String, Judged> {
    let mut turns: HashMap<String, Judged> = HashMap::new();
    for decision in decisions {
        let Some(id) = &decision.event_id else { continue };
        let judged = turns.entry(id.clone()).or_default();
        let is_better =
            judged.outcome.is_none_or(|outcome| worth(decision.outcome) > worth(outcome));
        if is_better {
            (judged.outcome, judged.reason) = (Some(decision.outcome), decision.reason.clone());
        }
        if let Some(surprise) = &decision.surprise
            && (judged.surprise.points.is_empty() || surprise.total > judged.surprise.total)
        {
            judged.surprise = surprise.clone();
        }
    }
    turns
}

fn worth(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Superseded => 4,
        Outcome::Kept => 3,
        Outcome::Merged => 2,
        Outcome::Dropped => 1,
        _ => 0,
    }
}

fn of_the_user<'c>(
    conversation: &'c Conversation,
    mut judged: HashMap<String, Judged>,
    archived_by_half: &HashSet<String>,
    labels: &HashMap<String, bool>,
) -> impl Iterator<Item = Row<'c>> {
    // What asks in vain is no evidence; what asks for an order or a summary still is.
    let asked = conversation.questions.iter().filter(|question| question.category != "adversarial");
    let evidence: HashSet<&String> = asked.flat_map(|question| &question.evidence).collect();
    let turns = conversation.turns.iter().filter(|turn| turn.is_users()).enumerate();
    turns.map(move |(place, turn)| Row {
        conversation: &conversation.name,
        turn,
        place,
        is_evidence: evidence.contains(&turn.id),
        is_durable: labels.get(&turn.id).copied(),
        judged: judged.remove(&turn.id).unwrap_or_default(),
        is_archived_by_half: archived_by_half.contains(&turn.id),
    })
}

impl Row<'_> {
    /// One that was merged made no memory: what stands for it is of another turn.
    fn is_kept(&self) -> bool {
        matches!(self.judged.outcome, Some(Outcome::Kept | Outcome::Superseded))
    }

    /// A memory says what the turn says: its own, or the one that it was merged into.
    fn is_known(&self) -> bool {
        self.is_kept() || self.judged.outcome == Some(Outcome::Merged)
    }

    fn total(&self) -> f64 {
        f64::from(self.judged.surprise.total)
    }

    fn json(&self) -> Value {
        let Surprise {
            novelty, contradiction, specificity, emphasis, context_switch, points, ..
        } = &self.judged.surprise;
        let exact = |value: &f32| number(f64::from(*value));
        let points: Map<String, Value> =
            points.iter().map(|(name, value)| ((*name).to_owned(), exact(value))).collect();
        json!({
            "conversation": self.conversation,
            "id": self.turn.id,
            "total": number(self.total()),
            "factors": {
                "novelty": exact(novelty),
                "contradiction": exact(contradiction),
                "specificity": exact(specificity),
                "emphasis": exact(emphasis),
                "context_switch": exact(context_switch),
            },
            "points": points,
            "outcome": self.judged.outcome.map_or("refused", Outcome::as_str),
            "durable": self.is_durable,
        })
    }

    /// For somebody who wants to see what went wrong.
    fn quoted(&self) -> Value {
        json!({
            "conversation": self.conversation,
            "id": self.turn.id,
            "text": self.turn.content,
            "outcome": self.judged.outcome.map_or("refused", Outcome::as_str),
            "reason": self.judged.reason,
        })
    }
}

/// Holds for so many of so many.
#[derive(Clone, Copy, Default)]
pub struct Part {
    pub holds: usize,
    pub of: usize,
}

impl Part {
    pub fn of(holds: impl Iterator<Item = bool>) -> Part {
        holds.fold(Part::default(), |part, holds| Part {
            holds: part.holds + usize::from(holds),
            of: part.of + 1,
        })
    }

    pub fn share(self) -> f64 {
        self.holds as f64 / self.of as f64
    }
}

/// Shares of the user's turns. A merged turn counts as kept where it is to be kept, since a memory says the same, and not where it is not,
/// since it made none.
#[derive(Clone, Copy)]
pub struct Kept {
    pub stored: Part,
    /// Turns that are evidence for a question.
    pub evidence: Part,
    pub rest: Part,
    /// The rest with merged turns.
    pub rest_known: Part,
    /// Turns labelled durable.
    pub durable: Part,
    pub chatter: Part,
    /// Memories of durable turns that a bound of half the user's memories would archive; and memories of chatter.
    pub durable_archived: Part,
    pub chatter_archived: Part,
    /// Mean bytes of content in a user's memories.
    pub bytes: f64,
}

impl Kept {
    fn of(rows: &[&Row<'_>], bytes: f64) -> Kept {
        let known = |of: &dyn Fn(&Row<'_>) -> bool| {
            Part::of(rows.iter().filter(|row| of(row)).map(|row| row.is_known()))
        };
        let kept = |of: &dyn Fn(&Row<'_>) -> bool| {
            Part::of(rows.iter().filter(|row| of(row)).map(|row| row.is_kept()))
        };
        let archived = |is_durable: bool| {
            let labelled =
                rows.iter().filter(move |row| row.is_durable == Some(is_durable) && row.is_kept());
            Part::of(labelled.map(|row| row.is_archived_by_half))
        };
        Kept {
            stored: kept(&|_| true),
            evidence: known(&|row| row.is_evidence),
            rest: kept(&|row| !row.is_evidence),
            rest_known: known(&|row| !row.is_evidence),
            durable: known(&|row| row.is_durable == Some(true)),
            chatter: kept(&|row| row.is_durable == Some(false)),
            durable_archived: archived(true),
            chatter_archived: archived(false),
            bytes,
        }
    }

    fn json(self) -> Value {
        json!({
            "facts_kept": number(self.evidence.share()), "rest_kept": number(self.rest.share()),
            "durable": self.durable.of, "durable_kept": number(self.durable.share()),
            "chatter": self.chatter.of, "chatter_kept": number(self.chatter.share()),
            "durable_archived_by_half": number(self.durable_archived.share()),
            "chatter_archived_by_half": number(self.chatter_archived.share()),
            "bytes_a_user": number(self.bytes),
        })
    }
}

/// Everything that was measured.
pub struct Gated<'c> {
    rows: Vec<Row<'c>>,
    stored: Vec<(&'c str, Stored)>,
    /// Question by question.
    gated: Vec<Figures>,
    /// The same with a gate that keeps everything.
    ungated: Vec<Figures>,
}

impl Gated<'_> {
    pub fn kept(&self) -> Kept {
        Kept::of(&self.rows.iter().collect::<Vec<_>>(), self.bytes().mean)
    }

    /// Bytes of content in a user's memories.
    pub fn bytes(&self) -> Interval {
        Interval::of(&self.stored.iter().map(|(_, stored)| stored.bytes as f64).collect::<Vec<_>>())
    }

    /// Recall at `k` that a gate which keeps everything would have more.
    pub fn lost(&self, k: usize) -> Interval {
        let differences = self
            .ungated
            .iter()
            .zip(&self.gated)
            .map(|(open, gated)| open.recall_at(k) - gated.recall_at(k));
        Interval::of(&differences.collect::<Vec<_>>())
    }

    pub fn by_conversation(&self) -> impl Iterator<Item = (&str, Kept, &Stored)> {
        self.stored.iter().map(|(name, stored)| {
            let rows: Vec<&Row<'_>> =
                self.rows.iter().filter(|row| row.conversation == *name).collect();
            (*name, Kept::of(&rows, stored.bytes as f64), stored)
        })
    }

    fn by_kind(&self) -> BTreeMap<&str, usize> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for (kind, count) in self.stored.iter().flat_map(|(_, stored)| &stored.by_kind) {
            *counts.entry(kind).or_default() += count;
        }
        counts
    }
}

fn report(measured: &Gated<'_>) -> Report {
    let rows = &measured.rows;
    let [gated, ungated] = [&measured.gated, &measured.ungated].map(|rows| Figures::mean(rows));
    let area = |rows: &mut dyn Iterator<Item = &Row<'_>>| {
        auc(&rows.map(|row| (row.is_evidence, row.total())).collect::<Vec<_>>())
    };
    let (all, first) =
        (area(&mut rows.iter()), area(&mut rows.iter().filter(|row| row.place < FIRST)));
    let gold_kept = share(rows.iter().filter(|row| row.is_evidence).map(Row::is_kept));
    let kept = measured.kept();
    let mut metrics = json!({
        "turns": rows.len(),
        "gold": kept.evidence.of,
        "stored": number(kept.stored.share()),
        "gold_kept": number(gold_kept),
        "auc": number(all),
        "auc_first_50": number(first),
        "R@10": number(gated.recall_at(10)),
        "R@10_ungated": number(ungated.recall_at(10)),
        "NDCG@10": number(gated.ndcg_10),
        "NDCG@10_ungated": number(ungated.ndcg_10),
        "memories_by_kind": measured.by_kind(),
    });
    with(&mut metrics, kept.json());
    let by_conversation: Map<String, Value> = measured
        .by_conversation()
        .map(|(name, kept, stored)| {
            let mut figures = kept.json();
            with(
                &mut figures,
                json!({"stored": number(kept.stored.share()), "memories": stored.memories}),
            );
            (name.to_owned(), figures)
        })
        .collect();
    let quoted = |of: &dyn Fn(&Row<'_>) -> bool| {
        rows.iter().filter(|row| of(row)).map(Row::quoted).collect::<Vec<_>>()
    };
    let json = json!({
        "turns": rows.iter().map(Row::json).collect::<Vec<_>>(),
        "metrics": metrics,
        "by_conversation": by_conversation,
        "durable_dropped": quoted(&|row| row.is_durable == Some(true) && !row.is_known()),
        "chatter_kept": quoted(&|row| row.is_durable == Some(false) && row.is_kept()),
    });
    let three = |area: f64| if area.is_finite() { format!("{area:.3}") } else { "–".to_owned() };
    let table = [
        [
            "turns of the user",
            &rows.len().to_string(),
            &format!("{} of them are evidence", kept.evidence.of),
        ],
        ["stored", &percent(kept.stored.share()), "less is better, as long as the next two hold"],
        [
            "evidence kept",
            &percent(gold_kept),
            &format!("{} with turns merged into a memory", percent(kept.evidence.share())),
        ],
        ["other turns kept", &percent(kept.rest.share()), ""],
        [
            "R@10",
            &percent(gated.recall_at(10)),
            &format!("{} with a gate that keeps everything", percent(ungated.recall_at(10))),
        ],
        [
            "NDCG@10",
            &percent(gated.ndcg_10),
            &format!("{} with a gate that keeps everything", percent(ungated.ndcg_10)),
        ],
        ["AUC", &three(all), "how well the surprise tells evidence from the rest; 0.5 is chance"],
        ["AUC, first 50", &three(first), "of each user's first 50 turns"],
        [
            "bytes a user",
            &format!("{:.0}", kept.bytes),
            "content of the memories, without vectors and words",
        ],
    ];
    let table: Vec<Vec<String>> =
        table.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect();
    let kinds = measured
        .by_kind()
        .iter()
        .map(|(kind, count)| format!("{kind} {count}"))
        .collect::<Vec<_>>()
        .join(", ");
    let mut text = format!("{}memories by kind: {kinds}\n", show::table(&["gate", "", ""], &table));
    if kept.durable.of + kept.chatter.of > 0 {
        text.push_str(&labelled(measured));
    }
    Report { json, text }
}

/// Shares of labelled turns, all together and by conversation.
fn labelled(measured: &Gated<'_>) -> String {
    let row = |name: &str, kept: Kept| {
        let part =
            |part: Part| format!("{} ({} of {})", percent(part.share()), part.holds, part.of);
        vec![name.to_owned(), part(kept.durable), part(kept.chatter), format!("{:.0}", kept.bytes)]
    };
    let single = measured.by_conversation().map(|(name, kept, _)| row(name, kept));
    let rows: Vec<Vec<String>> =
        std::iter::once(row("all", measured.kept())).chain(single).collect();
    format!("\n{}", show::table(&["conversation", "durable kept", "chatter kept", "bytes"], &rows))
}

fn with(object: &mut Value, more: Value) {
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
}

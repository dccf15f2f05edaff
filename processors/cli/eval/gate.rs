//! `keepsake eval gate`: what of a user's turns is kept, whether the surprising ones are those that matter later, and what it costs recall.

use super::cache::Encoder;
use super::data::{Conversation, Turn};
use super::harness::{Kit, Life};
use super::metrics::{Figures, auc, share};
use super::{Report, number, percent, show};
use crate::domain::{Decision, Outcome, Surprise};
use crate::fault::Result;
use crate::profile::Profiles;
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};

/// A turn whose candidates were many is judged by the one that surprised most.
#[derive(Debug, Default)]
struct Judged {
    outcome: Option<Outcome>,
    surprise: Surprise,
}

/// A turn of the user's with what became of it.
struct Row<'c> {
    conversation: &'c str,
    turn: &'c Turn,
    /// How many of the user's turns came before it.
    place: usize,
    is_evidence: bool,
    judged: Judged,
}

/// The user's first turns: there a gate knows little of them.
const FIRST: usize = 50;

pub fn measure(kit: &Kit, conversations: &[Conversation]) -> Result<Report> {
    let open = kit.profiles.with_open_gate();
    let lives = kit.each(conversations, |encoder, conversation| {
        let (decisions, gated) = live(kit, &kit.profiles, encoder, conversation)?;
        let (_, ungated) = live(kit, &open, encoder, conversation)?;
        Ok((judged(&decisions), gated, ungated))
    })?;
    let (mut rows, mut gated, mut ungated) = (Vec::new(), Vec::new(), Vec::new());
    for (conversation, (judged, with, without)) in conversations.iter().zip(lives) {
        rows.extend(of_the_user(conversation, judged));
        gated.extend(with);
        ungated.extend(without);
    }
    Ok(report(&rows, &Figures::mean(&gated), &Figures::mean(&ungated)))
}

fn live(kit: &Kit, profiles: &Profiles, encoder: &Encoder, conversation: &Conversation) -> Result<(Vec<Decision>, Vec<Figures>)> {
    let mut life = Life::begin(kit, profiles, encoder, &conversation.name)?;
    let decisions = life.hear(&conversation.turns)?;
    let figures = conversation.headline().map(|question| Ok(Figures::of(&life.ask(&question.text)?, &question.evidence)));
    let figures = figures.collect::<Result<_>>()?;
    Ok((decisions, figures))
}

/// By turn: the best that became of any of its candidates, and the greatest surprise.
fn judged(decisions: &[Decision]) -> HashMap<String, Judged> {
    let mut turns: HashMap<String, Judged> = HashMap::new();
    for decision in decisions {
        let Some(id) = &decision.event_id else { continue };
        let judged = turns.entry(id.clone()).or_default();
        let is_better = judged.outcome.is_none_or(|outcome| worth(decision.outcome) > worth(outcome));
        judged.outcome = if is_better { Some(decision.outcome) } else { judged.outcome };
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

fn of_the_user(conversation: &Conversation, mut judged: HashMap<String, Judged>) -> impl Iterator<Item = Row<'_>> {
    // What asks in vain is no evidence; what asks for an order or a summary still is.
    let asked = conversation.questions.iter().filter(|question| question.category != "adversarial");
    let evidence: HashSet<&String> = asked.flat_map(|question| &question.evidence).collect();
    let turns = conversation.turns.iter().filter(|turn| turn.is_users()).enumerate();
    turns.map(move |(place, turn)| Row {
        conversation: &conversation.name,
        turn,
        place,
        is_evidence: evidence.contains(&turn.id),
        judged: judged.remove(&turn.id).unwrap_or_default(),
    })
}

impl Row<'_> {
    /// One that was merged made no memory: what stands for it is of another turn.
    fn is_kept(&self) -> bool {
        matches!(self.judged.outcome, Some(Outcome::Kept | Outcome::Superseded))
    }

    fn total(&self) -> f64 {
        f64::from(self.judged.surprise.total)
    }

    fn json(&self) -> Value {
        let Surprise { novelty, contradiction, specificity, emphasis, context_switch, points, .. } = &self.judged.surprise;
        let exact = |value: &f32| number(f64::from(*value));
        let points: Map<String, Value> = points.iter().map(|(name, value)| ((*name).to_owned(), exact(value))).collect();
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
        })
    }
}

fn report(rows: &[Row<'_>], gated: &Figures, ungated: &Figures) -> Report {
    let area =
        |rows: &mut dyn Iterator<Item = &Row<'_>>| auc(&rows.map(|row| (row.is_evidence, row.total())).collect::<Vec<_>>());
    let (all, first) = (area(&mut rows.iter()), area(&mut rows.iter().filter(|row| row.place < FIRST)));
    let stored = share(rows.iter().map(Row::is_kept));
    let gold: Vec<&Row<'_>> = rows.iter().filter(|row| row.is_evidence).collect();
    let gold_kept = share(gold.iter().map(|row| row.is_kept()));
    let json = json!({
        "turns": rows.iter().map(Row::json).collect::<Vec<_>>(),
        "metrics": {
            "turns": rows.len(),
            "gold": gold.len(),
            "stored": number(stored),
            "gold_kept": number(gold_kept),
            "auc": number(all),
            "auc_first_50": number(first),
            "R@10": number(gated.recall_10),
            "R@10_ungated": number(ungated.recall_10),
            "NDCG@10": number(gated.ndcg_10),
            "NDCG@10_ungated": number(ungated.ndcg_10),
        },
    });
    let three = |area: f64| if area.is_finite() { format!("{area:.3}") } else { "–".to_owned() };
    let table = [
        ["turns of the user", &rows.len().to_string(), &format!("{} of them are evidence", gold.len())],
        ["stored", &percent(stored), "less is better, as long as the next two hold"],
        ["evidence kept", &percent(gold_kept), ""],
        ["R@10", &percent(gated.recall_10), &format!("{} with a gate that keeps everything", percent(ungated.recall_10))],
        ["NDCG@10", &percent(gated.ndcg_10), &format!("{} with a gate that keeps everything", percent(ungated.ndcg_10))],
        ["AUC", &three(all), "how well the surprise tells evidence from the rest; 0.5 is chance"],
        ["AUC, first 50", &three(first), "of each user's first 50 turns"],
    ];
    let table: Vec<Vec<String>> = table.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect();
    Report { json, text: show::table(&["gate", "", ""], &table) }
}

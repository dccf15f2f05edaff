//! `keepsake eval gate`: measures the share of a user's turns that is kept, whether surprise
//! separates turns that matter later from the others, the cost of the gate in recall, and the
//! stored bytes.

use super::cache::CachedEncoder;
use super::data::{Conversation, EvalTurn};
use super::figures::{Figures, Fraction, Interval, auc, share};
use super::harness::{Harness, SimulatedUser};
use super::report::{EvalReport, decimal, number, percent};
use client::show;
use domain::fault::Result;
use domain::{Decision, Outcome, Surprise};
use profiles::Profiles;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Best outcome and greatest surprise among the candidates of a turn.
#[derive(Debug, Default)]
struct TurnJudgement {
    outcome: Option<Outcome>,
    reason: String,
    surprise: Surprise,
}

/// A turn of the user with its judgement.
struct TurnRow<'c> {
    conversation: &'c str,
    turn: &'c EvalTurn,
    /// Number of earlier turns of the user.
    position: usize,
    is_evidence: bool,
    /// Label of a person: the turn holds something durable. `None` without a label.
    is_durable: Option<bool>,
    judged: TurnJudgement,
    /// Compaction would archive the turn's memory if the user were limited to half as many.
    is_archived_by_half: bool,
    /// Compaction archives the turn's memory within a year of silence.
    is_archived_in_a_year: bool,
}

/// Memories of one user after the last turn.
pub struct StoredMemories {
    memories: usize,
    bytes: usize,
    by_kind: BTreeMap<String, usize>,
}

/// Decisions, rankings and stored bytes of one user.
struct UserResults {
    decisions: Vec<Decision>,
    figures: Vec<Figures>,
    stored: StoredMemories,
    archived_by_half: HashSet<String>,
    archived_in_a_year: HashSet<String>,
    /// Figures of the same questions after that year.
    figures_in_a_year: Vec<Figures>,
}

/// First turns of a user, for which the gate has little history.
const FIRST: usize = 50;

/// Measures and reports. `labels` maps a turn to whether the turn holds something durable.
pub fn measure(
    harness: &Harness,
    conversations: &[Conversation],
    labels: &HashMap<String, bool>,
) -> Result<EvalReport> {
    Ok(report(&gated(harness, conversations, labels)?))
}

pub fn gated<'c>(
    harness: &Harness,
    conversations: &'c [Conversation],
    labels: &HashMap<String, bool>,
) -> Result<GateResults<'c>> {
    let open = harness.profiles.with_open_gate();
    let results = harness.each(conversations, |encoder, conversation| {
        let gated = user_results(harness, &harness.profiles, encoder, conversation)?;
        // The second run, with an open gate, is only needed for questions.
        let is_asked = conversation.headline().next().is_some();
        let ungated = if is_asked {
            user_results(harness, &open, encoder, conversation)?.figures
        } else {
            Vec::new()
        };
        Ok((gated, ungated))
    })?;
    let mut measured = GateResults::default();
    for (conversation, (with, without)) in conversations.iter().zip(results) {
        measured.rows.extend(user_rows(
            conversation,
            judged(&with.decisions),
            [&with.archived_by_half, &with.archived_in_a_year],
            labels,
        ));
        measured.in_a_year.extend(with.figures_in_a_year);
        measured.stored.push((conversation.name.as_str(), with.stored));
        measured.gated.extend(with.figures);
        measured.ungated.extend(without);
    }
    Ok(measured)
}

fn user_results(
    harness: &Harness,
    profiles: &Profiles,
    encoder: &CachedEncoder,
    conversation: &Conversation,
) -> Result<UserResults> {
    let mut user = SimulatedUser::begin(harness, profiles, encoder, &conversation.name)?;
    let decisions = user.publish_turns(&conversation.turns)?;
    let asked = |user: &mut SimulatedUser<'_>| -> Result<Vec<Figures>> {
        let questions = conversation.headline();
        questions
            .map(|question| Ok(Figures::of(&user.ask(&question.text)?, &question.evidence)))
            .collect()
    };
    let figures = asked(&mut user)?;
    let archived_by_half = user.archived_by_half(profiles)?;
    let stored = StoredMemories::of(&user.memories()?);
    let archived_in_a_year = user.archived_in_a_year()?;
    let figures_in_a_year = asked(&mut user)?;
    Ok(UserResults {
        decisions,
        figures,
        stored,
        archived_by_half,
        archived_in_a_year,
        figures_in_a_year,
    })
}

impl StoredMemories {
    fn of(memories: &[Value]) -> StoredMemories {
        let mut by_kind: BTreeMap<String, usize> = BTreeMap::new();
        for memory in memories {
            *by_kind.entry(show::text(memory, "kind").to_owned()).or_default() += 1;
        }
        let bytes = memories.iter().map(|memory| show::text(memory, "content").len()).sum();
        StoredMemories { memories: memories.len(), bytes, by_kind }
    }
}

/// Combines the decisions on the candidates of each turn.
fn judged(decisions: &[Decision]) -> HashMap<String, TurnJudgement> {
    let mut turns: HashMap<String, TurnJudgement> = HashMap::new();
    for decision in decisions {
        let Some(id) = &decision.event_id else { continue };
        let judged = turns.entry(id.clone()).or_default();
        let is_better =
            judged.outcome.is_none_or(|outcome| worth(decision.outcome) > worth(outcome));
        if is_better {
            judged.outcome = Some(decision.outcome);
            judged.reason = decision.reason.clone();
        }
        if let Some(surprise) = &decision.surprise
            && (judged.surprise.points.is_empty() || surprise.total > judged.surprise.total)
        {
            judged.surprise = surprise.clone();
        }
    }
    turns
}

/// Orders outcomes from worst to best.
fn worth(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Superseded => 4,
        Outcome::Kept => 3,
        Outcome::Merged => 2,
        Outcome::Dropped => 1,
        _ => 0,
    }
}

fn user_rows<'c>(
    conversation: &'c Conversation,
    mut judged: HashMap<String, TurnJudgement>,
    [by_half, in_a_year]: [&HashSet<String>; 2],
    labels: &HashMap<String, bool>,
) -> impl Iterator<Item = TurnRow<'c>> {
    // The evidence of an adversarial question does not answer that question. Questions about an
    // order or a summary have real evidence, although no single turn answers them.
    let asked = conversation.questions.iter().filter(|question| question.category != "adversarial");
    let evidence: HashSet<&String> = asked.flat_map(|question| &question.evidence).collect();
    let turns = conversation.turns.iter().filter(|turn| turn.is_users()).enumerate();
    turns.map(move |(position, turn)| TurnRow {
        conversation: &conversation.name,
        turn,
        position,
        is_evidence: evidence.contains(&turn.id),
        is_durable: labels.get(&turn.id).copied(),
        judged: judged.remove(&turn.id).unwrap_or_default(),
        is_archived_by_half: by_half.contains(&turn.id),
        is_archived_in_a_year: in_a_year.contains(&turn.id),
    })
}

impl TurnRow<'_> {
    /// The turn made a memory of its own. A merged turn did not.
    fn is_kept(&self) -> bool {
        matches!(self.judged.outcome, Some(Outcome::Kept | Outcome::Superseded))
    }

    /// Some memory has the content of the turn: its own, or the one that the turn was merged into.
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
        let points: Map<String, Value> =
            points.iter().map(|(name, value)| ((*name).to_owned(), exact(*value))).collect();
        json!({
            "conversation": self.conversation,
            "id": self.turn.id,
            "total": number(self.total()),
            "factors": {
                "novelty": exact(*novelty),
                "contradiction": exact(*contradiction),
                "specificity": exact(*specificity),
                "emphasis": exact(*emphasis),
                "context_switch": exact(*context_switch),
            },
            "points": points,
            "outcome": self.judged.outcome.map_or("refused", Outcome::as_str),
            "durable": self.is_durable,
        })
    }

    /// Returns the turn with its text, for the lists of wrong judgements.
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

fn exact(value: f32) -> Value {
    number(f64::from(value))
}

/// Shares of the user's turns.
///
/// A merged turn is not worse than a kept one among the turns that should be kept, because a memory
/// has the same content; there merged turns count as kept. Among the turns that should not be kept,
/// a merged turn did no harm, because no memory was added; there merged turns do not count as kept.
#[derive(Clone, Copy)]
pub struct KeptShares {
    pub stored: Fraction,
    /// Turns that are evidence for a question.
    pub evidence: Fraction,
    pub rest: Fraction,
    /// The rest, where merged turns count as kept.
    pub rest_known: Fraction,
    /// Turns labelled durable.
    pub durable: Fraction,
    pub chatter: Fraction,
    /// Memories of durable turns that a limit of half the user's memories would archive.
    pub durable_archived: Fraction,
    /// The same for memories of chatter.
    pub chatter_archived: Fraction,
    /// Memories of durable turns that are archived within a year of silence.
    pub durable_in_a_year: Fraction,
    pub chatter_in_a_year: Fraction,
    /// Mean bytes of content in a user's memories.
    pub bytes: f64,
}

impl KeptShares {
    fn of(rows: &[&TurnRow<'_>], bytes: f64) -> KeptShares {
        KeptShares {
            stored: kept(rows, |_| true),
            evidence: known(rows, |row| row.is_evidence),
            rest: kept(rows, |row| !row.is_evidence),
            rest_known: known(rows, |row| !row.is_evidence),
            durable: known(rows, |row| row.is_durable == Some(true)),
            chatter: kept(rows, |row| row.is_durable == Some(false)),
            durable_archived: archived(rows, true, |row| row.is_archived_by_half),
            chatter_archived: archived(rows, false, |row| row.is_archived_by_half),
            durable_in_a_year: archived(rows, true, |row| row.is_archived_in_a_year),
            chatter_in_a_year: archived(rows, false, |row| row.is_archived_in_a_year),
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
            "durable_archived_in_a_year": number(self.durable_in_a_year.share()),
            "chatter_archived_in_a_year": number(self.chatter_in_a_year.share()),
            "bytes_a_user": number(self.bytes),
        })
    }
}

fn known(rows: &[&TurnRow<'_>], of: fn(&TurnRow<'_>) -> bool) -> Fraction {
    Fraction::count(rows.iter().filter(|row| of(row)).map(|row| row.is_known()))
}

fn kept(rows: &[&TurnRow<'_>], of: fn(&TurnRow<'_>) -> bool) -> Fraction {
    Fraction::count(rows.iter().filter(|row| of(row)).map(|row| row.is_kept()))
}

fn archived(rows: &[&TurnRow<'_>], is_durable: bool, is: fn(&TurnRow<'_>) -> bool) -> Fraction {
    let labelled = rows.iter().filter(|row| row.is_durable == Some(is_durable) && row.is_kept());
    Fraction::count(labelled.map(|row| is(row)))
}

/// Results over all conversations.
#[derive(Default)]
pub struct GateResults<'c> {
    rows: Vec<TurnRow<'c>>,
    stored: Vec<(&'c str, StoredMemories)>,
    /// Figures per question.
    gated: Vec<Figures>,
    /// Figures per question with a gate that keeps everything.
    ungated: Vec<Figures>,
    /// Figures per question after a year of silence.
    in_a_year: Vec<Figures>,
}

impl GateResults<'_> {
    fn gold_kept(&self) -> f64 {
        share(self.rows.iter().filter(|row| row.is_evidence).map(TurnRow::is_kept))
    }

    /// Area under the ROC curve of each user's first turns.
    fn auc_first(&self) -> f64 {
        auc_of_surprise(self.rows.iter().filter(|row| row.position < FIRST))
    }

    pub fn kept(&self) -> KeptShares {
        KeptShares::of(&self.rows.iter().collect::<Vec<_>>(), self.bytes().mean)
    }

    /// Mean bytes of content in a user's memories.
    pub fn bytes(&self) -> Interval {
        Interval::of(&self.stored.iter().map(|(_, stored)| stored.bytes as f64).collect::<Vec<_>>())
    }

    /// Recall at `k` that the gate costs, compared with a gate that keeps everything.
    pub fn lost(&self, k: usize) -> Interval {
        let differences = self
            .ungated
            .iter()
            .zip(&self.gated)
            .map(|(open, gated)| open.recall_at(k) - gated.recall_at(k));
        Interval::of(&differences.collect::<Vec<_>>())
    }

    pub fn by_conversation(&self) -> impl Iterator<Item = (&str, KeptShares, &StoredMemories)> {
        self.stored.iter().map(|(name, stored)| {
            let rows: Vec<&TurnRow<'_>> =
                self.rows.iter().filter(|row| row.conversation == *name).collect();
            (*name, KeptShares::of(&rows, stored.bytes as f64), stored)
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

fn report(measured: &GateResults<'_>) -> EvalReport {
    let rows = &measured.rows;
    let gated = Figures::mean(&measured.gated);
    let ungated = Figures::mean(&measured.ungated);
    let kept = measured.kept();
    let mut metrics = json!({
        "turns": rows.len(),
        "gold": kept.evidence.of,
        "stored": number(kept.stored.share()),
        "gold_kept": number(measured.gold_kept()),
        "auc": number(auc_of_surprise(rows.iter())),
        "auc_first_50": number(measured.auc_first()),
        "R@10": number(gated.recall_at(10)),
        "R@10_ungated": number(ungated.recall_at(10)),
        "R@10_in_a_year": number(Figures::mean(&measured.in_a_year).recall_at(10)),
        "NDCG@10": number(gated.ndcg_10),
        "NDCG@10_ungated": number(ungated.ndcg_10),
        "memories_by_kind": measured.by_kind(),
    });
    extend(&mut metrics, kept.json());
    let by_conversation: Map<String, Value> = measured
        .by_conversation()
        .map(|(name, kept, stored)| {
            let mut figures = kept.json();
            extend(
                &mut figures,
                json!({"stored": number(kept.stored.share()), "memories": stored.memories}),
            );
            (name.to_owned(), figures)
        })
        .collect();
    let json = json!({
        "turns": rows.iter().map(TurnRow::json).collect::<Vec<_>>(),
        "metrics": metrics,
        "by_conversation": by_conversation,
        "durable_archived": quoted(rows, |row| row.is_durable == Some(true) && row.is_archived_in_a_year),
        "durable_dropped": quoted(rows, |row| row.is_durable == Some(true) && !row.is_known()),
        "chatter_kept": quoted(rows, |row| row.is_durable == Some(false) && row.is_kept()),
    });
    let kinds = measured
        .by_kind()
        .iter()
        .map(|(kind, count)| format!("{kind} {count}"))
        .collect::<Vec<_>>()
        .join(", ");
    let mut text =
        format!("{}memories by kind: {kinds}\n", show::table(&["gate", "", ""], &table(measured)));
    if kept.durable.of + kept.chatter.of > 0 {
        text.push_str(&labelled(measured));
    }
    EvalReport { json, text }
}

fn table(measured: &GateResults<'_>) -> Vec<Vec<String>> {
    let rows = &measured.rows;
    let gated = Figures::mean(&measured.gated);
    let ungated = Figures::mean(&measured.ungated);
    let kept = measured.kept();
    let table = [
        [
            "turns of the user",
            &rows.len().to_string(),
            &format!("{} of them are evidence", kept.evidence.of),
        ],
        ["stored", &percent(kept.stored.share()), "less is better, if evidence is still kept"],
        [
            "evidence kept",
            &percent(measured.gold_kept()),
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
        [
            "AUC",
            &decimal(auc_of_surprise(rows.iter())),
            "surprise of evidence against other turns; 0.5 is chance",
        ],
        ["AUC, first 50", &decimal(measured.auc_first()), "of each user's first 50 turns"],
        [
            "bytes a user",
            &format!("{:.0}", kept.bytes),
            "content of the memories, without vectors and words",
        ],
    ];
    table.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect()
}

/// Area under the ROC curve of the surprise: evidence against other turns.
fn auc_of_surprise<'r>(rows: impl Iterator<Item = &'r TurnRow<'r>>) -> f64 {
    auc(&rows.map(|row| (row.is_evidence, row.total())).collect::<Vec<_>>())
}

fn quoted(rows: &[TurnRow<'_>], of: fn(&TurnRow<'_>) -> bool) -> Vec<Value> {
    rows.iter().filter(|row| of(row)).map(TurnRow::quoted).collect()
}

/// Formats the shares of labelled turns, all together and by conversation.
fn labelled(measured: &GateResults<'_>) -> String {
    let single = measured.by_conversation().map(|(name, kept, _)| labelled_row(name, kept));
    let rows: Vec<Vec<String>> =
        std::iter::once(labelled_row("all", measured.kept())).chain(single).collect();
    format!("\n{}", show::table(&["conversation", "durable kept", "chatter kept", "bytes"], &rows))
}

fn labelled_row(name: &str, kept: KeptShares) -> Vec<String> {
    let [durable, chatter] = [kept.durable, kept.chatter].map(|fraction| {
        format!("{} ({} of {})", percent(fraction.share()), fraction.holds, fraction.of)
    });
    vec![name.to_owned(), durable, chatter, format!("{:.0}", kept.bytes)]
}

/// Adds the fields of `more` to an object.
fn extend(object: &mut Value, more: Value) {
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
}

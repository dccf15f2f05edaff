//! `keepsake eval recall`: which turns are found by the questions of a file, how high they stand, and when the answer is silence.

use super::data::{Conversation, Question};
use super::harness::{Kit, Life};
use super::metrics::{Figures, share};
use super::{Report, number, percent, show};
use crate::fault::Result;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Questions of the other conversations that each one is asked: what they are about was never said here.
const FOREIGN: usize = 50;

/// One question with the turns that answer it, best first.
struct Asked<'c> {
    conversation: &'c str,
    question: &'c Question,
    ranking: Vec<String>,
}

pub fn measure(kit: &Kit, conversations: &[Conversation]) -> Result<Report> {
    let rankings = kit.each(conversations, |encoder, conversation| {
        let mut life = Life::begin(kit, &kit.profiles, encoder, &conversation.name)?;
        life.hear(&conversation.turns)?;
        let rankings = conversation.questions.iter().map(|question| life.ask(&question.text)).collect::<Result<Vec<_>>>()?;
        let foreign = foreign(conversations, conversation);
        let foreign = foreign.map(|question| Ok(life.ask(&question.text)?.is_empty())).collect::<Result<Vec<bool>>>()?;
        Ok((rankings, foreign))
    })?;
    let (mut asked, mut foreign) = (Vec::new(), Vec::new());
    for (conversation, (rankings, silent)) in conversations.iter().zip(rankings) {
        foreign.extend(silent);
        for (question, ranking) in conversation.questions.iter().zip(rankings) {
            asked.push(Asked { conversation: &conversation.name, question, ranking });
        }
    }
    Ok(report(kit, &asked, &foreign))
}

/// Evenly from all of them.
fn foreign<'c>(conversations: &'c [Conversation], here: &Conversation) -> impl Iterator<Item = &'c Question> {
    let others = conversations.iter().filter(|other| other.name != here.name);
    let questions: Vec<&Question> = others.flat_map(|other| &other.questions).filter(|question| question.is_headline()).collect();
    let step = questions.len().div_ceil(FOREIGN).max(1);
    questions.into_iter().step_by(step)
}

fn report(kit: &Kit, asked: &[Asked<'_>], foreign: &[bool]) -> Report {
    let mut by_category: BTreeMap<&str, Vec<Figures>> = BTreeMap::new();
    for Asked { question, ranking, .. } in asked.iter().filter(|asked| asked.question.is_headline()) {
        by_category.entry(&question.category).or_default().push(Figures::of(ranking, &question.evidence));
    }
    let all: Vec<Figures> = by_category.values().flatten().copied().collect();
    let questions = asked.iter().map(|Asked { conversation, question, ranking }| {
        json!({"conversation": conversation, "id": question.id, "category": question.category, "ranking": ranking})
    });
    let categories: Map<String, Value> = by_category.iter().map(|(name, rows)| ((*name).to_owned(), figures(rows))).collect();
    let silent =
        |of: &dyn Fn(&Question) -> bool| share(asked.iter().filter(|one| of(one.question)).map(|one| one.ranking.is_empty()));
    let silent = [
        ("headline", silent(&Question::is_headline)),
        ("adversarial", silent(&|question| question.category == "adversarial")),
        ("foreign", share(foreign.iter().copied())),
    ];
    let silent_json: Map<String, Value> = silent.iter().map(|(name, share)| ((*name).to_owned(), number(*share))).collect();
    let json = json!({
        "questions": questions.collect::<Vec<_>>(),
        "metrics": {"all": figures(&all), "by_category": categories, "silent": silent_json},
        "config": {
            "profile": kit.config.profile,
            "model": kit.model_name(),
            "candidates": kit.config.recall.candidates,
            "tokens_max": kit.config.embedder.tokens_max,
        },
    });
    let rows = std::iter::once(row("all", &all)).chain(by_category.iter().map(|(name, rows)| row(name, rows)));
    let mut text = show::table(&["questions", "R@5", "R@10", "R@20", "NDCG@10", "MRR", "n"], &rows.collect::<Vec<_>>());
    let [headline, adversarial, foreign] = silent.map(|(_, share)| percent(share));
    text.push_str(&format!(
        "\nnothing is returned for {headline} of these, {adversarial} of the adversarial ones, {foreign} of other conversations' questions\n"
    ));
    Report { json, text }
}

fn figures(rows: &[Figures]) -> Value {
    let mut named: Map<String, Value> =
        Figures::mean(rows).named().into_iter().map(|(name, value)| (name.to_owned(), number(value))).collect();
    named.insert("n".to_owned(), rows.len().into());
    Value::Object(named)
}

fn row(name: &str, rows: &[Figures]) -> Vec<String> {
    let cells = Figures::mean(rows).named().map(|(_, value)| percent(value));
    std::iter::once(name.to_owned()).chain(cells).chain([rows.len().to_string()]).collect()
}

//! `keepsake eval all`: measures every set of a directory and lays the figures side by side, each with its 95 % interval.

use super::change::{self, Changes};
use super::data::{self, Conversation};
use super::gate::{self, Gated, Kept, Part};
use super::harness::Kit;
use super::metrics::{Figures, Interval};
use super::recall::{self, Measured};
use super::states::How;
use super::{Report, number, percent, precision, say, show, traps};
use crate::fault::{Fault, Result, StopName};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Folders of a directory of sets: conversations on their own, beside it, and the same texts in several languages.
const FOLDERS: [&str; 3] = ["", "plain", PARALLEL];
const PARALLEL: &str = "parallel";
const PRECISION: &str = "precision";
/// Categories whose questions something that was said plainly answers.
const PLAIN: [&str; 2] = ["plain", "plain-multi"];
const NEVER_SAID: &str = "never-said";

/// One file of conversations, with what a person noted about it in files beside it.
struct Set {
    name: String,
    conversations: Vec<Conversation>,
    labels: HashMap<String, bool>,
    kinds: HashMap<String, String>,
}

/// One figure. A share, unless it says otherwise.
struct Line {
    name: String,
    value: Interval,
    /// The figure of a bare cosine, and the difference of the service to it.
    cosine: Option<(f64, Interval)>,
    unit: Unit,
}

#[derive(Clone, Copy, PartialEq)]
enum Unit {
    Share,
    Score,
    Bytes,
}

pub fn measure(kit: &Kit, dir: &Path) -> Result<Report> {
    let (mut found, mut cases): (BTreeMap<String, Vec<Line>>, Vec<Value>) = Default::default();
    for folder in FOLDERS {
        for file in files(&dir.join(folder))? {
            let set = Set::read(folder, &file)?;
            say(format!("set {}", set.name));
            found.insert(
                set.name.clone(),
                if folder == PARALLEL { set.searched(kit)? } else { set.measured(kit)? },
            );
        }
    }
    if dir.join(PRECISION).join(precision::BELIEFS).is_file() {
        let measured = precision::measure(kit, &dir.join(PRECISION))?;
        let lines =
            vec![Line::of("precision", measured.precision), Line::of("recall", measured.recall)];
        found.insert(PRECISION.to_owned(), lines);
        cases = measured.cases;
    }
    if found.is_empty() {
        let why = format!(
            "finds no evaluation set (*.jsonl, plain/, parallel/, precision/) in {}",
            dir.display()
        );
        return Err(Fault::stop(StopName::ConfigInvalid, why));
    }
    Ok(report(kit, &found, cases))
}

fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let about = |error: std::io::Error| {
        Fault::stop(StopName::ConfigInvalid, format!("reads {}: {error}", dir.display()))
    };
    if !dir.is_dir() {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(about)? {
        let path = entry.map_err(about)?.path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

impl Set {
    /// `NAME-labels.json` and `NAME-kinds.json` are read where they lie beside `NAME.jsonl`.
    fn read(folder: &str, file: &Path) -> Result<Set> {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let beside = |what: &str| -> Vec<PathBuf> {
            let path = file.with_file_name(format!("{stem}-{what}.json"));
            if path.is_file() { vec![path] } else { Vec::new() }
        };
        Ok(Set {
            name: if folder == PARALLEL { format!("{PARALLEL}/{stem}") } else { stem.clone() },
            conversations: data::read(&[file.to_path_buf()])?,
            labels: data::by_id(&beside("labels"))?,
            kinds: data::by_id(&beside("kinds"))?,
        })
    }

    /// The questions of a set of parallel texts are in another language than most of its texts.
    fn searched(&self, kit: &Kit) -> Result<Vec<Line>> {
        Ok(vec![recall_line("R@10", &recall::figures(kit, &self.conversations)?.all(), 10)])
    }

    fn measured(&self, kit: &Kit) -> Result<Vec<Line>> {
        let mut lines = Vec::new();
        let has_questions =
            self.conversations.iter().any(|conversation| conversation.headline().next().is_some());
        if has_questions {
            lines.extend(recalled(&recall::figures(kit, &self.conversations)?));
        }
        lines.extend(
            self.kept(&gate::gated(kit, &self.conversations, &self.labels)?, has_questions),
        );
        if self.conversations.iter().any(|conversation| !conversation.conflicts.is_empty()) {
            lines.extend(changed(&change::found_in(kit, &self.conversations, &self.kinds)?));
        }
        Ok(lines)
    }

    fn kept(&self, gated: &Gated<'_>, has_questions: bool) -> Vec<Line> {
        let kept = gated.kept();
        let mut lines = vec![Line::part("stored", kept.stored)];
        if self.labels.is_empty() && kept.evidence.of == 0 {
            // Nothing is marked: every turn is to be kept, by a memory of its own or one that says the same.
            lines.push(Line::part("every turn kept", kept.rest_known));
        } else if self.labels.is_empty() {
            lines.extend([
                Line::part("facts kept", kept.evidence),
                Line::part("rest kept", kept.rest),
            ]);
        } else {
            lines.extend([
                Line::part("durable kept", kept.durable),
                Line::part("chatter kept", kept.chatter),
            ]);
            // With room for half of the memories: the most durable ones should stay.
            lines.extend([
                Line::part("durable archived by half the room", kept.durable_archived),
                Line::part("chatter archived by half the room", kept.chatter_archived),
            ]);
            lines.extend(by_user(gated));
        }
        if has_questions {
            lines.push(Line::of("R@10 lost to the gate", gated.lost(10)));
        }
        lines.push(Line { unit: Unit::Bytes, ..Line::of("bytes a user", gated.bytes()) });
        lines.retain(|line| line.value.count > 0);
        lines
    }
}

fn by_user(gated: &Gated<'_>) -> Vec<Line> {
    let part = |name: &str, what: &str, part: Part| Line::part(&format!("{what}: {name}"), part);
    let users: Vec<(&str, Kept)> =
        gated.by_conversation().map(|(name, kept, _)| (name, kept)).collect();
    let durable = users.iter().map(|(name, kept)| part(name, "durable kept", kept.durable));
    durable
        .chain(users.iter().map(|(name, kept)| part(name, "chatter kept", kept.chatter)))
        .collect()
}

fn recalled(measured: &Measured) -> Vec<Line> {
    let mut lines = Vec::new();
    let all = measured.all();
    for k in [1, 3, 10] {
        lines.push(recall_line(&format!("R@{k}"), &all, k));
    }
    lines.push(Line {
        cosine: Some(compared(&all, |figures| figures.ndcg_10)),
        ..Line::of(
            "NDCG@10",
            Interval::of(&all.iter().map(|[service, _]| service.ndcg_10).collect::<Vec<_>>()),
        )
    });
    for category in PLAIN {
        let rows = measured.of_category(category);
        if !rows.is_empty() {
            lines.extend([1, 3, 10].map(|k| recall_line(&format!("{category} R@{k}"), rows, k)));
        }
    }
    let answerable = measured.nothing_matches(&PLAIN);
    if answerable.of > 0 {
        lines.push(Line::part("plain questions with match none", answerable));
        lines.push(Line::part(
            "never said with match none",
            measured.nothing_matches(&[NEVER_SAID]),
        ));
    } else {
        lines.push(Line::part("questions with match none", measured.nothing_matches_headline()));
    }
    let reliability = &measured.reliability;
    if reliability.error.is_finite() {
        let score = |name: &str, value: f64| Line {
            unit: Unit::Score,
            ..Line::of(name, Interval::exactly(value))
        };
        lines.extend([
            score("relevance: calibration error", reliability.error),
            score("relevance: Brier skill", reliability.skill),
            Line::of(
                "relevance: answerable with some .5",
                Interval::exactly(reliability.answered_well),
            ),
            score("relevance: AUC of the best", reliability.auc),
        ]);
    }
    lines.retain(|line| line.value.mean.is_finite());
    lines
}

fn changed(found: &[change::Found]) -> Vec<Line> {
    let changes = Changes::of(found);
    let mut lines = vec![
        Line::part("newest first", Part::of(changes.newest_first().into_iter())),
        Line::part(
            "other turns superseding or revising",
            Part::of(changes.others_linked(&[How::Superseded, How::Revised]).into_iter()),
        ),
        Line::part(
            "other turns linked at all",
            Part::of(changes.others_linked(&How::ALL).into_iter()),
        ),
    ];
    if !changes.traps.is_empty() {
        let first: Vec<f64> = changes.traps.iter().map(|trap| trap.among_first).collect();
        let part = |holds: usize, of: usize| Part { holds, of };
        lines.push(Line::of("traps: still true, in the first five", Interval::of(&first)));
        lines.push(Line::part(
            "traps: with something outdated",
            part(traps::hurt(&changes.traps), changes.traps.len()),
        ));
    }
    lines
}

fn recall_line(name: &str, rows: &[[Figures; 2]], k: usize) -> Line {
    let service: Vec<f64> = rows.iter().map(|[service, _]| service.recall_at(k)).collect();
    Line {
        cosine: Some(compared(rows, |figures| figures.recall_at(k))),
        ..Line::of(name, Interval::of(&service))
    }
}

/// The bare cosine's mean, and the paired difference to it.
fn compared(rows: &[[Figures; 2]], figure: impl Fn(&Figures) -> f64) -> (f64, Interval) {
    let cosine: Vec<f64> = rows.iter().map(|[_, cosine]| figure(cosine)).collect();
    let differences: Vec<f64> =
        rows.iter().map(|[service, cosine]| figure(service) - figure(cosine)).collect();
    (Interval::of(&cosine).mean, Interval::of(&differences))
}

impl Line {
    fn of(name: &str, value: Interval) -> Line {
        Line { name: name.to_owned(), value, cosine: None, unit: Unit::Share }
    }

    fn part(name: &str, part: Part) -> Line {
        Line::of(name, Interval::of_share(part.holds, part.of))
    }

    fn json(&self) -> Value {
        let Interval { mean, low, high, count } = self.value;
        let mut found =
            json!({"value": number(mean), "low": number(low), "high": number(high), "n": count});
        if let Some((cosine, difference)) = &self.cosine {
            found["cosine"] = number(*cosine);
            found["minus_cosine"] = recall::difference_json(difference);
        }
        found
    }

    fn cells(&self) -> Vec<String> {
        let Interval { mean, low, high, count } = self.value;
        let shown = |value: f64| match self.unit {
            Unit::Share => percent(value),
            Unit::Score => format!("{value:.3}"),
            Unit::Bytes => format!("{value:.0}"),
        };
        let interval = if low.is_finite() {
            format!("{} … {}", shown(low), shown(high))
        } else {
            String::new()
        };
        let (cosine, difference) = match &self.cosine {
            Some((cosine, difference)) => (shown(*cosine), recall::points(difference)),
            None => Default::default(),
        };
        vec![
            format!("  {}", self.name),
            shown(mean),
            interval,
            count.to_string(),
            cosine,
            difference,
        ]
    }
}

fn report(kit: &Kit, found: &BTreeMap<String, Vec<Line>>, precision_cases: Vec<Value>) -> Report {
    let set = |lines: &Vec<Line>| -> Value {
        lines.iter().map(|line| (line.name.clone(), line.json())).collect::<Map<_, _>>().into()
    };
    let sets: Map<String, Value> =
        found.iter().map(|(name, lines)| (name.clone(), set(lines))).collect();
    let json = json!({"sets": sets, "precision_cases": precision_cases, "config": {"profile": kit.config.profile, "model": kit.model_name()}});
    let rows = found.iter().flat_map(|(name, lines)| {
        let head = [name.as_str(), "", "", "", "", ""].map(str::to_owned).to_vec();
        std::iter::once(head).chain(lines.iter().map(Line::cells))
    });
    let head =
        ["set", "value", "95 % interval", "n", "bare cosine", "service minus bare cosine, points"];
    Report { json, text: show::table(&head, &rows.collect::<Vec<_>>()) }
}

//! `keepsake eval all`: measures every set of a directory, and prints the figures in one table,
//! each with its 95 % interval.

use super::change::{self, ChangeTotals};
use super::data::{self, Conversation};
use super::figures::{Figures, Fraction, Interval};
use super::gate::{self, GateResults};
use super::harness::Harness;
use super::recall::{self, RecallResults};
use super::report::{EvalReport, number, percent, progress};
use super::states::LinkKind;
use super::{precision, traps};
use client::show;
use domain::fault::{Fault, Result, StopName};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Folders of sets: the directory itself, plainly worded conversations, and the same texts in
/// several languages.
const FOLDERS: [&str; 3] = ["", "plain", PARALLEL];
const PARALLEL: &str = "parallel";
const PRECISION: &str = "precision";
/// Categories of questions that a plainly worded turn answers.
const PLAIN: [&str; 2] = ["plain", "plain-multi"];
const NEVER_SAID: &str = "never-said";

/// One file of conversations, with the labels from the neighbouring files.
struct EvalSet {
    name: String,
    conversations: Vec<Conversation>,
    labels: HashMap<String, bool>,
    kinds: HashMap<String, String>,
}

/// One figure of a set.
struct ResultLine {
    name: String,
    value: Interval,
    /// The figure of a bare cosine, and the difference "service minus bare cosine".
    cosine: Option<(f64, Interval)>,
    unit: FigureUnit,
}

#[derive(Clone, Copy, PartialEq)]
enum FigureUnit {
    Share,
    Score,
    Bytes,
}

pub fn measure(harness: &Harness, dir: &Path) -> Result<EvalReport> {
    let mut found: BTreeMap<String, Vec<ResultLine>> = BTreeMap::new();
    let mut cases = Vec::new();
    for folder in FOLDERS {
        for file in files(&dir.join(folder))? {
            let set = EvalSet::read(folder, &file)?;
            progress(format!("set {}", set.name));
            let lines = if folder == PARALLEL {
                set.measure_parallel(harness)?
            } else {
                set.measure(harness)?
            };
            found.insert(set.name, lines);
        }
    }
    if dir.join(PRECISION).join(precision::BELIEFS).is_file() {
        let measured = precision::measure(harness, &dir.join(PRECISION))?;
        let lines = vec![
            ResultLine::of("precision", measured.precision),
            ResultLine::of("recall", measured.recall),
        ];
        found.insert(PRECISION.to_owned(), lines);
        cases = measured.cases;
    }
    if found.is_empty() {
        let why = format!(
            "there is no evaluation set (*.jsonl, plain/, parallel/, precision/) in {}",
            dir.display()
        );
        return Err(Fault::stop(StopName::ConfigInvalid, why));
    }
    Ok(report(harness, &found, cases))
}

/// Lists the `.jsonl` files of a directory in order; none if there is no such directory.
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let about = |error: std::io::Error| {
        Fault::stop(StopName::ConfigInvalid, format!("read {}: {error}", dir.display()))
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

impl EvalSet {
    /// Reads `NAME.jsonl` with `NAME-labels.json` and `NAME-kinds.json`, if these exist.
    fn read(folder: &str, file: &Path) -> Result<EvalSet> {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(EvalSet {
            name: if folder == PARALLEL { format!("{PARALLEL}/{stem}") } else { stem.clone() },
            conversations: data::read(&[file.to_path_buf()])?,
            labels: data::by_id(&existing(file.with_file_name(format!("{stem}-labels.json"))))?,
            kinds: data::by_id(&existing(file.with_file_name(format!("{stem}-kinds.json"))))?,
        })
    }

    /// Measures only retrieval: the questions are in another language than most of the texts.
    fn measure_parallel(&self, harness: &Harness) -> Result<Vec<ResultLine>> {
        Ok(vec![recall_line("R@10", &recall::figures(harness, &self.conversations)?.all(), 10)])
    }

    fn measure(&self, harness: &Harness) -> Result<Vec<ResultLine>> {
        let mut lines = Vec::new();
        let has_questions =
            self.conversations.iter().any(|conversation| conversation.headline().next().is_some());
        if has_questions {
            lines.extend(recall_lines(&recall::figures(harness, &self.conversations)?));
        }
        let gated = gate::gated(harness, &self.conversations, &self.labels)?;
        lines.extend(self.gate_lines(&gated, has_questions));
        if self.conversations.iter().any(|conversation| !conversation.conflicts.is_empty()) {
            lines.extend(change_lines(&change::found_in(
                harness,
                &self.conversations,
                &self.kinds,
            )?));
        }
        Ok(lines)
    }

    fn gate_lines(&self, gated: &GateResults<'_>, has_questions: bool) -> Vec<ResultLine> {
        let kept = gated.kept();
        let mut lines = vec![ResultLine::share("stored", kept.stored)];
        if self.labels.is_empty() && kept.evidence.of == 0 {
            // Without any label, every turn should be kept, as a memory of its own or merged.
            lines.push(ResultLine::share("every turn kept", kept.rest_known));
        } else if self.labels.is_empty() {
            lines.extend([
                ResultLine::share("facts kept", kept.evidence),
                ResultLine::share("rest kept", kept.rest),
            ]);
        } else {
            lines.extend([
                ResultLine::share("durable kept", kept.durable),
                ResultLine::share("chatter kept", kept.chatter),
            ]);
            // With a limit of half the memories, the most durable ones should stay.
            lines.extend([
                ResultLine::share("durable archived by half the room", kept.durable_archived),
                ResultLine::share("chatter archived by half the room", kept.chatter_archived),
                ResultLine::share("durable archived in a year", kept.durable_in_a_year),
                ResultLine::share("chatter archived in a year", kept.chatter_in_a_year),
            ]);
            lines.extend(by_user(gated));
        }
        if has_questions {
            lines.push(ResultLine::of("R@10 lost to the gate", gated.lost(10)));
        }
        lines.push(ResultLine {
            unit: FigureUnit::Bytes,
            ..ResultLine::of("bytes a user", gated.bytes())
        });
        lines.retain(|line| line.value.count > 0);
        lines
    }
}

fn by_user(gated: &GateResults<'_>) -> Vec<ResultLine> {
    let durable = gated
        .by_conversation()
        .map(|(name, kept, _)| ResultLine::share(&format!("durable kept: {name}"), kept.durable));
    let chatter = gated
        .by_conversation()
        .map(|(name, kept, _)| ResultLine::share(&format!("chatter kept: {name}"), kept.chatter));
    durable.chain(chatter).collect()
}

fn existing(path: PathBuf) -> Vec<PathBuf> {
    if path.is_file() { vec![path] } else { Vec::new() }
}

fn recall_lines(measured: &RecallResults) -> Vec<ResultLine> {
    let mut lines = Vec::new();
    let all = measured.all();
    for k in [1, 3, 10] {
        lines.push(recall_line(&format!("R@{k}"), &all, k));
    }
    lines.push(ResultLine {
        cosine: Some(compared(&all, |figures| figures.ndcg_10)),
        ..ResultLine::of(
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
        lines.push(ResultLine::share("plain questions with match none", answerable));
        lines.push(ResultLine::share(
            "never said with match none",
            measured.nothing_matches(&[NEVER_SAID]),
        ));
    } else {
        let headline = measured.nothing_matches_headline();
        lines.push(ResultLine::share("questions with match none", headline));
    }
    let reliability = &measured.reliability;
    if reliability.error.is_finite() {
        lines.extend([
            ResultLine::score("relevance: calibration error", reliability.error),
            ResultLine::score("relevance: Brier skill", reliability.skill),
            ResultLine::of(
                "relevance: answerable with some .5",
                Interval::exactly(reliability.answered_well),
            ),
            ResultLine::score("relevance: AUC of the best", reliability.auc),
        ]);
    }
    lines.retain(|line| line.value.mean.is_finite());
    lines
}

fn change_lines(found: &[change::ChangeResult]) -> Vec<ResultLine> {
    let changes = ChangeTotals::of(found);
    let closing = changes.others_linked(&[LinkKind::Superseded, LinkKind::Revised]);
    let linked = changes.others_linked(&LinkKind::ALL);
    let mut lines = vec![
        ResultLine::share("newest first", Fraction::count(changes.newest_first().into_iter())),
        ResultLine::share(
            "other turns superseding or revising",
            Fraction::count(closing.into_iter()),
        ),
        ResultLine::share("other turns linked at all", Fraction::count(linked.into_iter())),
    ];
    if !changes.traps.is_empty() {
        let first: Vec<f64> = changes.traps.iter().map(|trap| trap.among_first).collect();
        lines.push(ResultLine::of("traps: still true, in the first five", Interval::of(&first)));
        let hurt = Fraction { holds: traps::hurt(&changes.traps), of: changes.traps.len() };
        lines.push(ResultLine::share("traps: with something outdated", hurt));
    }
    lines
}

fn recall_line(name: &str, rows: &[[Figures; 2]], k: usize) -> ResultLine {
    let service: Vec<f64> = rows.iter().map(|[service, _]| service.recall_at(k)).collect();
    ResultLine {
        cosine: Some(compared(rows, |figures| figures.recall_at(k))),
        ..ResultLine::of(name, Interval::of(&service))
    }
}

/// Returns the mean figure of the bare cosine, and the paired difference "service minus bare
/// cosine".
fn compared(rows: &[[Figures; 2]], figure: impl Fn(&Figures) -> f64) -> (f64, Interval) {
    let cosine: Vec<f64> = rows.iter().map(|[_, cosine]| figure(cosine)).collect();
    let differences: Vec<f64> =
        rows.iter().map(|[service, cosine]| figure(service) - figure(cosine)).collect();
    (Interval::of(&cosine).mean, Interval::of(&differences))
}

impl ResultLine {
    fn of(name: &str, value: Interval) -> ResultLine {
        ResultLine { name: name.to_owned(), value, cosine: None, unit: FigureUnit::Share }
    }

    fn share(name: &str, fraction: Fraction) -> ResultLine {
        ResultLine::of(name, Interval::of_share(fraction))
    }

    fn score(name: &str, value: f64) -> ResultLine {
        let unit = FigureUnit::Score;
        ResultLine { unit, ..ResultLine::of(name, Interval::exactly(value)) }
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
        let interval = if low.is_finite() {
            format!("{} … {}", self.unit.format(low), self.unit.format(high))
        } else {
            String::new()
        };
        let (cosine, difference) = match &self.cosine {
            Some((cosine, difference)) => (self.unit.format(*cosine), recall::points(difference)),
            None => Default::default(),
        };
        vec![
            format!("  {}", self.name),
            self.unit.format(mean),
            interval,
            count.to_string(),
            cosine,
            difference,
        ]
    }
}

impl FigureUnit {
    fn format(self, value: f64) -> String {
        match self {
            FigureUnit::Share => percent(value),
            FigureUnit::Score => format!("{value:.3}"),
            FigureUnit::Bytes => format!("{value:.0}"),
        }
    }
}

fn report(
    harness: &Harness,
    found: &BTreeMap<String, Vec<ResultLine>>,
    precision_cases: Vec<Value>,
) -> EvalReport {
    let sets: Map<String, Value> = found
        .iter()
        .map(|(name, lines)| {
            let figures: Map<String, Value> =
                lines.iter().map(|line| (line.name.clone(), line.json())).collect();
            (name.clone(), figures.into())
        })
        .collect();
    let json = json!({
        "sets": sets,
        "precision_cases": precision_cases,
        "config": {"profile": harness.config.profile, "model": harness.model_name()},
    });
    let rows = found.iter().flat_map(|(name, lines)| {
        let head = [name.as_str(), "", "", "", "", ""].map(str::to_owned).to_vec();
        std::iter::once(head).chain(lines.iter().map(ResultLine::cells))
    });
    let head =
        ["set", "value", "95 % interval", "n", "bare cosine", "service minus bare cosine, points"];
    EvalReport { json, text: show::table(&head, &rows.collect::<Vec<_>>()) }
}

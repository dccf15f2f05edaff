//! What the demo prints: for a person in at most 100 columns, for a program one JSON object a line. Asks nobody anything.

use super::lines::{FACTOR, FACTORS, LEFT, WIDTH, day, decided, found, moment, wrapped};
use super::script::{Question, Session};
use super::stage::Figures;
use crate::cli::Output;
use crate::cli::client::Reply;
use crate::cli::show::*;
use crate::text::shortened;
use serde_json::{Value, json};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// The numbers of a recalled memory: what matched, what that is worth, and what nudges it.
const TERMS: [&str; 19] = [
    "cosine",
    "bm25",
    "dense",
    "words",
    "answer",
    "neighbour",
    "beyond_word",
    "literal",
    "speaker",
    "when",
    "question",
    "month",
    "specificity",
    "role",
    "superseded",
    "recency",
    "importance",
    "confidence",
    "nudge",
];

pub struct Screen {
    output: Output,
}

impl Screen {
    pub fn new(output: Output) -> Screen {
        Screen { output }
    }

    /// A reader who has gone away (`| head`) does not stop the play: it ends by itself.
    pub fn line(&self, text: &str) {
        if self.output == Output::Person {
            let mut out = anstream::stdout().lock();
            let _ = writeln!(out, "{}", text.trim_end()).and_then(|()| out.flush());
        }
    }

    fn record(&self, what: &str, mut record: Value) {
        if self.output == Output::Json {
            record["what"] = what.into();
            let mut out = std::io::stdout().lock();
            let _ = writeln!(out, "{record}").and_then(|()| out.flush());
        }
    }

    pub fn note(&self, text: &str) {
        self.row("note", text, 6);
        self.record("note", json!({"text": text}));
    }

    pub fn title(&self, model: &str, profile: &str) {
        self.line(&format!(
            "{BOLD}Keepsake{PLAIN}: a broker, the service and a client in one process; the client knows only Kafka."
        ));
        self.line(&format!("{DIM}model {model}, profile {profile}; starting …{PLAIN}"));
        self.record("start", json!({"model": model, "profile": profile}));
    }

    pub fn ready(&self, servers: &str, partitions: i32, store: &Path, took: Duration) {
        let text = format!(
            "broker {servers}, {partitions} partitions; ready after {:.1} s; store {}",
            took.as_secs_f32(),
            store.display()
        );
        wrapped(&text, WIDTH).iter().for_each(|part| self.line(&format!("{DIM}{part}{PLAIN}")));
        let ms = took.as_millis() as u64;
        self.record(
            "ready",
            json!({"servers": servers, "partitions": partitions, "store": store, "took_ms": ms}),
        );
    }

    /// A name and what there is to say about it, in as many lines as it takes.
    pub fn row(&self, name: &str, said: &str, left: usize) {
        for (line, part) in wrapped(said, WIDTH - left).iter().enumerate() {
            self.line(&format!("{DIM}{:<left$}{PLAIN}{part}", if line == 0 { name } else { "" }));
        }
    }

    pub fn chapter(&self, title: &str, about: &str) {
        let rule =
            "─".repeat(WIDTH.saturating_sub(title.chars().count() + about.chars().count() + 8));
        self.line(&format!("\n{BOLD}── {title}{PLAIN} {DIM}── {about} {rule}{PLAIN}"));
    }

    pub fn legend(&self) {
        self.chapter(
            "A conversation",
            "published to the events topic, each turn with its decision",
        );
        for text in [
            "Five factors: novelty, contradiction, specificity, emphasis, context switch. Weighted, and with",
            "smaller signs such as a date or a greeting, they make the points; behind / is the threshold.",
        ] {
            self.line(&format!("{DIM}{text}{PLAIN}"));
        }
    }

    pub fn session(&self, number: usize, session: &Session, began_ms: i64) {
        let title = format!("Session {number}, \"{}\", {}", session.name, day(began_ms));
        self.line(&format!("\n{BOLD}{title}{PLAIN}"));
        let heads: String = FACTORS.iter().map(|(_, short)| format!("{short:<FACTOR$} ")).collect();
        self.line(&format!("{DIM}{:LEFT$}{heads}points/needed{PLAIN}", ""));
        self.record("session", json!({"session": session.name, "at": moment(began_ms)}));
    }

    pub fn turn(&self, who: &str, text: &str, event: &Value, reply: &Reply) {
        let style = if who == "assistant" { DIM } else { NAME };
        self.line(&format!("{style}{who:<LEFT$}{PLAIN}{text}"));
        self.decisions(&reply.value);
        self.record("turn", json!({"event": event, "reply": reply.value, "round_trip_us": reply.took.as_micros() as u64}));
    }

    pub fn decisions(&self, receipt: &Value) {
        for decision in receipt["decisions"].as_array().into_iter().flatten() {
            self.line(&decided(decision));
        }
    }

    pub fn question(&self, number: usize, question: &Question, request: &Value, reply: &Reply) {
        self.line(&format!(
            "\n{BOLD}{number}  {}{PLAIN}  {DIM}{}{PLAIN}",
            question.text, question.remark
        ));
        self.recalled(reply);
        if question.block {
            self.block(&reply.value);
        }
        self.record(
            "question",
            json!({"request": request, "reply": reply.value, "round_trip_us": reply.took.as_micros() as u64}),
        );
    }

    /// Memories with their scores, and how long it took.
    pub fn recalled(&self, reply: &Reply) {
        let memories = reply.value["memories"].as_array().map_or(&[][..], Vec::as_slice);
        if memories.is_empty() {
            self.line(&format!("   {DIM}nothing is remembered about that{PLAIN}"));
        }
        memories.iter().for_each(|memory| self.line(&found(memory, memories)));
        let (there_and_back, inside) =
            (reply.took.as_secs_f64() * 1e3, number(&reply.value, "took_us") / 1e3);
        let block = match reply.value["tokens"].as_u64() {
            None | Some(0) => "no prompt block".to_owned(),
            Some(tokens) => format!("prompt block of {tokens} tokens"),
        };
        self.line(&format!(
            "   {DIM}{block} · {there_and_back:.1} ms there and back, {inside:.1} ms of them in the service{PLAIN}"
        ));
    }

    /// The prompt block as a model would read it.
    pub fn block(&self, reply: &Value) {
        for line in text(reply, "prompt").lines() {
            wrapped(line, WIDTH - 5)
                .iter()
                .for_each(|part| self.line(&format!("   {DIM}│{PLAIN} {part}")));
        }
    }

    /// Every number of a decision.
    pub fn explained(&self, decision: &Value) {
        self.line(&format!(
            "  {}{}{PLAIN} {}",
            outcome_style(text(decision, "outcome")),
            text(decision, "outcome"),
            text(decision, "reason")
        ));
        let points = decision["surprise"]["points"].as_object();
        let mut points: Vec<(&String, f64)> = points
            .into_iter()
            .flatten()
            .map(|(name, points)| (name, points.as_f64().unwrap_or_default()))
            .collect();
        points.sort_by(|a, b| b.1.total_cmp(&a.1));
        for (name, points) in &points {
            self.line(&format!("  {DIM}{name:<15} {points:>+6.2}{PLAIN}"));
        }
        if !points.is_empty() {
            let (total, threshold) =
                (number(&decision["surprise"], "total"), number(decision, "threshold"));
            self.line(&format!(
                "  {:<15} {total:>+6.2}  {DIM}kept from {threshold:.2}{PLAIN}",
                "points"
            ));
        }
    }

    /// Every number of an answer.
    pub fn ranked(&self, reply: &Reply) {
        let memories = reply.value["memories"].as_array().map_or(&[][..], Vec::as_slice);
        for memory in memories {
            self.line(&found(memory, memories));
            let terms = TERMS
                .iter()
                .map(|name| (name, number(&memory["explain"], name)))
                .filter(|(_, value)| *value != 0.0);
            let terms: Vec<String> =
                terms.map(|(name, value)| format!("{name} {value:.2}")).collect();
            wrapped(&terms.join(", "), WIDTH - 5)
                .iter()
                .for_each(|part| self.line(&format!("     {DIM}{part}{PLAIN}")));
        }
        if memories.is_empty() {
            self.line("  nothing was found, or nothing near enough to be an answer");
        }
    }

    pub fn compaction(&self, when: &str, at: &str, proposed: usize, decided: &[Value]) {
        let day = at.get(..10).unwrap_or_default();
        self.line(&format!("\n{BOLD}tick {when}{PLAIN} {DIM}({day}): {proposed} proposed{PLAIN}"));
        for decision in decided {
            let outcome = text(decision, "outcome");
            let session = decision["session"]
                .as_str()
                .map_or(String::new(), |name| format!("session \"{name}\", "));
            self.line(&format!(
                "{}{outcome:<LEFT$}{PLAIN}{session}{}",
                outcome_style(outcome),
                text(decision, "reason")
            ));
            for memory in decision["memories"].as_array().into_iter().flatten() {
                for quote in text(memory, "content").lines() {
                    self.line(&format!(
                        "{:LEFT$}{DIM}{}{PLAIN}",
                        "",
                        shortened(quote, WIDTH - LEFT)
                    ));
                }
            }
        }
        if decided.len() < proposed {
            self.line(&format!(
                "{BAD}{} proposals have no decision yet{PLAIN}",
                proposed - decided.len()
            ));
        }
        self.record(
            "compaction",
            json!({"when": when, "at": at, "proposed": proposed, "decisions": decided}),
        );
    }

    pub fn figures(&self, http: SocketAddr, figures: &Figures) {
        let url = format!("http://{http}/metrics");
        self.chapter("Metrics", &url);
        let decisions = figures.by_label("keepsake_decisions_total");
        let words: Vec<String> =
            decisions.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
        let mean_ms = |name: &str| {
            let (sum, count) =
                (figures.sum(&format!("{name}_sum")), figures.sum(&format!("{name}_count")));
            if count > 0.0 { sum / count * 1e3 } else { 0.0 }
        };
        let (encode_ms, apply_ms) =
            (mean_ms("keepsake_encode_seconds"), mean_ms("keepsake_apply_seconds"));
        let bytes = figures.sum("process_resident_memory_bytes");
        let rows = [
            ("keepsake_decisions_total", words.join(", ")),
            ("keepsake_encode_seconds", format!("{encode_ms:.1} ms on average to encode a turn")),
            ("keepsake_apply_seconds", format!("{apply_ms:.2} ms on average to apply a batch")),
            ("process_resident_memory_bytes", format!("{:.0} MB", bytes / 1e6)),
        ];
        rows.iter().for_each(|(name, said)| self.row(name, said, 31));
        let outcomes: Value = decisions
            .iter()
            .map(|(outcome, count)| ((*outcome).to_owned(), json!(count)))
            .collect::<serde_json::Map<_, _>>()
            .into();
        self.record(
            "figures",
            json!({"url": url, "decisions": outcomes, "encode_ms": encode_ms, "apply_ms": apply_ms, "resident_bytes": bytes}),
        );
    }
}

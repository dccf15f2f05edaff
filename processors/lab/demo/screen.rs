//! Prints the demo: lines of at most 100 columns for a person, or one JSON object per line for a
//! program.

use super::lines::{
    BAR, FACTORS, LEFT, OTHERS, WIDTH, day, decided, moment, recalled_memory, wrapped,
};
use super::script::{ScriptQuestion, ScriptSession, USER};
use client::ClientReply;
use client::show::{BAD, BOLD, DIM, NAME, Output, PLAIN, number, outcome_style, text};
use serde_json::{Value, json};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use text::shortened;

pub struct Screen {
    output: Output,
}

impl Screen {
    pub fn new(output: Output) -> Screen {
        Screen { output }
    }

    /// Prints a line. A reader that has closed the pipe (`| head`) is ignored: the demo ends by
    /// itself.
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
            "{BOLD}Keepsake{PLAIN}: a broker, the service and a client in one process; \
             the client uses only Kafka."
        ));
        self.line(&format!("{DIM}model {model}, profile {profile}; starting …{PLAIN}"));
        self.record("start", json!({"model": model, "profile": profile}));
    }

    pub fn ready(&self, servers: &str, partitions: i32, data: &Path, took: Duration) {
        let text = format!(
            "broker {servers}, {partitions} partitions; ready after {:.1} s; in {}, which the end \
             removes",
            took.as_secs_f32(),
            data.display()
        );
        wrapped(&text, WIDTH).iter().for_each(|part| self.line(&format!("{DIM}{part}{PLAIN}")));
        let ms = took.as_millis() as u64;
        self.record(
            "ready",
            json!({"servers": servers, "partitions": partitions, "data": data, "took_ms": ms}),
        );
    }

    /// Prints a name in a column of `left` characters, and a text beside that column, wrapped.
    pub fn row(&self, name: &str, text: &str, left: usize) {
        for (n, part) in wrapped(text, WIDTH - left).iter().enumerate() {
            self.line(&format!("{DIM}{:<left$}{PLAIN}{part}", if n == 0 { name } else { "" }));
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
            "Points for a turn: novelty (new), contradiction (clash), specificity (rare), emphasis",
            "(loud), context switch (topic), and signs such as a date. Points against it: minus, such",
            "as for a greeting. A full bar is .40. The number after / is the threshold.",
        ] {
            self.line(&format!("{DIM}{text}{PLAIN}"));
        }
    }

    /// Prints how other programs reach the same memories while the demo runs.
    pub fn doors(&self, servers: &str, topics: [&str; 2], gateway: SocketAddr, http: SocketAddr) {
        self.chapter("Doors", "the same memories, while this runs");
        for (door, how) in [
            ("Look", format!("http://{gateway}/ in a browser: what is remembered, and why")),
            ("Kafka", format!("{servers}, topics {}", topics.join(" and "))),
            ("HTTP", format!("http://{gateway}, described by http://{gateway}/openapi.json")),
            ("MCP", format!("http://{gateway}/mcp/{USER}/ for Claude, Cursor and other agents")),
            ("Metrics", format!("http://{http}/metrics for Prometheus")),
        ] {
            self.row(door, &how, 9);
        }
        self.line(&format!(
            "{DIM}Until the demo ends, with Ctrl-C. Now:{PLAIN}\n  \
             curl -s http://{gateway}/search -H 'content-type: application/json' \\\n    \
             -d '{{\"user_id\":\"{USER}\",\"query\":\"Where do I live?\"}}'"
        ));
        self.record(
            "doors",
            json!({
                "kafka": servers, "gateway": format!("http://{gateway}"),
                "metrics": format!("http://{http}/metrics"),
            }),
        );
    }

    /// Prints how to keep memories, which the demo does not.
    pub fn end(&self, data: &Path) {
        self.chapter("Keep it", "nothing of this demo is kept");
        for (command, what) in [
            ("keepsake serve", &*format!("everything in one process, kept in {}", data.display())),
            ("keepsake connect claude-code", "or claude-desktop, cursor, codex, vscode: over MCP"),
            ("keepsake remember --user ada 'I am allergic to peanuts.'", ""),
            ("keepsake recall --user ada 'What can I not eat?'", ""),
        ] {
            let command = format!("  {NAME}{command:<30}{PLAIN} {DIM}{what}{PLAIN}");
            self.line(&command);
        }
        self.record("end", json!({"kept_in": data}));
    }

    pub fn session(&self, number: usize, session: &ScriptSession, began_ms: i64) {
        let title = format!("Session {number}, \"{}\", {}", session.name, day(began_ms));
        self.line(&format!("\n{BOLD}{title}{PLAIN}"));
        let heads = FACTORS.iter().map(|(_, short)| *short).chain(OTHERS);
        let heads: String = heads.map(|head| format!("{head:<BAR$} ")).collect();
        self.line(&format!("{DIM}{:LEFT$}{heads}points/threshold{PLAIN}", ""));
        self.record("session", json!({"session": session.name, "at": moment(began_ms)}));
    }

    pub fn turn(&self, who: &str, text: &str, event: &Value, reply: &ClientReply) {
        let style = if who == "assistant" { DIM } else { NAME };
        self.line(&format!("{style}{who:<LEFT$}{PLAIN}{text}"));
        self.decisions(&reply.value);
        self.record(
            "turn",
            json!({
                "event": event, "reply": reply.value,
                "round_trip_us": reply.took.as_micros() as u64,
            }),
        );
    }

    pub fn decisions(&self, receipt: &Value) {
        for decision in receipt["decisions"].as_array().into_iter().flatten() {
            self.line(&decided(decision));
        }
    }

    pub fn question(
        &self,
        number: usize,
        question: &ScriptQuestion,
        request: &Value,
        reply: &ClientReply,
    ) {
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
            json!({
                "request": request, "reply": reply.value,
                "round_trip_us": reply.took.as_micros() as u64,
            }),
        );
    }

    /// Prints the memories of a reply with their scores, and the times.
    pub fn recalled(&self, reply: &ClientReply) {
        let memories = reply.value["memories"].as_array().map_or(&[][..], Vec::as_slice);
        if memories.is_empty() || text(&reply.value, "match") == "none" {
            self.line("   nothing is known about that");
        } else {
            self.line(&format!(
                "   {DIM}  {:<10} {:<12} day        memory{PLAIN}",
                "score", "kind"
            ));
            memories.iter().for_each(|memory| self.line(&recalled_memory(memory, memories)));
        }
        let round_trip_ms = reply.took.as_secs_f64() * 1e3;
        let service_ms = number(&reply.value, "took_us") / 1e3;
        let block = match reply.value["tokens"].as_u64() {
            None | Some(0) => "no prompt block".to_owned(),
            Some(tokens) => format!("prompt block of {tokens} tokens"),
        };
        self.line(&format!(
            "   {DIM}{block} · round trip {round_trip_ms:.1} ms, {service_ms:.1} ms of that in \
             the service{PLAIN}"
        ));
    }

    /// Prints the prompt block as given to a model.
    pub fn block(&self, reply: &Value) {
        for line in text(reply, "prompt").lines() {
            wrapped(line, WIDTH - 5)
                .iter()
                .for_each(|part| self.line(&format!("   {DIM}│{PLAIN} {part}")));
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
}

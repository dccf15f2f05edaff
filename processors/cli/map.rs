//! `keepsake map`: reads the topic of another application as turns, or shows what would become of
//! its last records.

use ::text::shortened;
use broker::{Broker, Record};
use clap::Args;
use client::mapper::{Counts, Mapper};
use client::mapping::{Mapping, suggest};
use client::reading;
use client::show::{self, Output, printable, shown, text};
use deployment::topics::dead_letters;
use domain::fault::{Fault, Result, StopName};
use kafka::Connection;
use serde_json::{Value, json};
use settings::Config;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub const EXAMPLES: &str = "\
The section [map] says which topic, and where its records have user, content, role, session, time and \
id. Every record ends as its turns on the events topic or as one dead letter with the reason, in one \
transaction with the offset of map.group: nothing is lost or doubled by a crash. Start as many \
processes as the topic has partitions; they share it. A new group begins at map.begin, earliest \
unless set. After a change of [map], another map.group reads the topic once more; an event with an \
id that is known changes nothing.

Examples:
  keepsake map --preview --set map.topic=chat.messages     propose paths from the last 10 records
  keepsake map --preview 50 --config keepsake.toml --json  what would be published, one line a record
  keepsake map --once --config keepsake.toml               to the end of the topic as it is now
  keepsake map --config keepsake.toml                      until SIGTERM";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct MapCommand {
    /// Show what the last records would become [10], and propose paths; publishes and commits nothing
    #[arg(long, value_name = "COUNT", num_args = 0..=1, default_missing_value = "10",
        value_parser = clap::value_parser!(u16).range(1..=100))]
    preview: Option<u16>,
    /// End when the topic is read up to its end as it was at the start
    #[arg(long, conflicts_with = "preview")]
    once: bool,
    /// Go on behind records that the topic has deleted before they were read
    #[arg(long, conflicts_with = "preview")]
    skip_gone: bool,
}

/// Characters of a text in a preview.
const TEXT_CHARS_MAX: usize = 100;

impl MapCommand {
    pub fn run(self, config: &Config, output: Output) -> Result<ExitCode> {
        let topic = &config.map.topic;
        if topic.is_empty() {
            let what = "map.topic: is empty; name the topic of the other application, as in \
                        --set map.topic=chat.messages";
            return Err(Fault::stop(StopName::ConfigInvalid, what));
        }
        let unset = Mapping::of(config).unset();
        let lacking = unset.into_iter().find(|field| ["user", "content"].contains(field));
        if let (None, Some(lacking)) = (self.preview, lacking) {
            let what = format!(
                "map.{lacking}: is empty, and a turn needs it; `keepsake map --preview` proposes \
                 paths"
            );
            return Err(Fault::stop(StopName::ConfigInvalid, what));
        }
        let connection = client::connection(config)?;
        connection.cluster_id(Duration::from_millis(config.kafka.connect_ms))?;
        exists(&connection, topic, "check map.topic")?;
        if let Some(count) = self.preview {
            return preview(&connection, config, usize::from(count), output);
        }
        for own in [config.topics.events(), config.topics.dead_letters()] {
            exists(&connection, &own, "run `keepsake serve` or `keepsake topics create`")?;
        }
        let is_stopping = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
            signal_hook::flag::register(signal, is_stopping.clone())
                .map_err(|e| Fault::retry(format!("listen for signals: {e}")))?;
        }
        tracing::info!(topic, group = config.map.group, "keepsake maps");
        let mapper = Mapper::join(connection, config, dead_letters(config), self.skip_gone)?;
        let counts = mapper.run(self.once, &|| is_stopping.load(Ordering::Relaxed))?;
        output.print(&counts.json(), || lines(&counts));
        Ok(ExitCode::SUCCESS)
    }
}

fn exists(connection: &Connection, topic: &str, advice: &str) -> Result<()> {
    match connection.partitions_of(topic)? {
        Some(_) => Ok(()),
        None => {
            let what = format!(
                "topic {topic} does not exist, or this principal may not see it: {advice}, or see \
                 `keepsake topics acls`"
            );
            Err(Fault::stop(StopName::TopicMissing, what))
        }
    }
}

fn lines(counts: &Counts) -> String {
    let letters: u64 = counts.dead_letters.values().sum();
    let reasons = counts.dead_letters.iter().map(|(code, count)| ((*code).to_owned(), *count));
    let left_out = match counts.left_out {
        0 => String::new(),
        count => format!(", left out {count} messages without a text"),
    };
    format!(
        "{} records: turns {}, dead letters {letters}{left_out}\n{}",
        counts.records,
        counts.turns,
        show::tally(&reasons.collect())
    )
}

fn preview(
    connection: &Connection,
    config: &Config,
    count: usize,
    output: Output,
) -> Result<ExitCode> {
    let topic = &config.map.topic;
    let mut records: Vec<Record> = Vec::new();
    // Partition by partition, so that no more than twice the records asked for are in memory.
    for range in reading::whole_topic(connection, config, topic)? {
        records.extend(reading::last(connection, topic, &[range], count)?);
        records.sort_by_key(|it| (it.timestamp_ms, it.partition, it.offset));
        records.drain(..records.len().saturating_sub(count));
    }
    let mapping = Mapping::of(config);
    let mut counts = Counts::default();
    for record in &records {
        let place = format!("{topic}/{}/{}", record.partition, record.offset);
        let mapped = mapping.map(record);
        let json = match &mapped {
            Ok(mapped) => {
                let value = |bytes: &Option<Vec<u8>>| {
                    serde_json::from_slice(bytes.as_deref().unwrap_or_default()).unwrap_or_default()
                };
                let turns: Vec<Value> =
                    mapped.turns.iter().map(|turn| value(&turn.value)).collect();
                json!({"record": place, "turns": turns, "left_out": mapped.left_out})
            }
            Err(reject) => json!({"record": place,
                "dead_letter": {"reason": reject.code.as_str(), "message": reject.to_string()}}),
        };
        counts.add(&mapped.map(|it| (it.turns.len(), it.left_out)).map_err(|it| it.code));
        output.print(&json, || described(&json));
    }
    let bodies: Vec<Value> =
        records.iter().filter_map(|record| mapping.rules.body(record).ok()).collect();
    let proposals =
        mapping.unset().into_iter().map(|field| (field, suggest::paths(field, &bodies)));
    let proposals: Vec<_> = proposals.collect();
    let json = json!({"unset": proposals.iter().map(|(field, paths)| {
        let paths: Vec<Value> =
            paths.iter().map(|(path, value)| json!({"path": path, "value": value})).collect();
        ((*field).to_owned(), Value::from(paths))
    }).collect::<serde_json::Map<_, _>>()});
    output.print(&json, || {
        let mut text = format!("nothing is published; of {}", lines(&counts));
        for (field, paths) in &proposals {
            let found = paths.iter().map(|(path, value)| {
                format!("--set map.{field}={path} ({})", printable(&shortened(value, 40)))
            });
            let found: Vec<String> = found.collect();
            if !found.is_empty() {
                text.push_str(&format!("not mapped: {field}; perhaps {}\n", found.join(" or ")));
            }
        }
        text
    });
    Ok(ExitCode::SUCCESS)
}

/// Formats a record of the preview for a person.
fn described(json: &Value) -> String {
    let mut lines = format!("{}{}{}\n", show::DIM, text(json, "record"), show::PLAIN);
    if let Some(letter) = json.get("dead_letter") {
        let (bad, plain) = (show::BAD, show::PLAIN);
        let reason = text(letter, "reason");
        lines.push_str(&format!(
            "  {bad}dead letter{plain} {reason}: {}\n",
            shown(letter, "message")
        ));
    }
    for turn in json["turns"].as_array().into_iter().flatten() {
        let fields = ["role", "speaker", "session", "at", "id"].into_iter();
        let fields = fields.filter(|field| turn.get(field).is_some());
        let fields: Vec<String> =
            fields.map(|field| format!("{field} {}", shown(turn, field))).collect();
        lines.push_str(&format!(
            "  {}{}/{}{}  {}\n    {}\n",
            show::NAME,
            shown(turn, "tenant"),
            shown(turn, "user"),
            show::PLAIN,
            fields.join("  "),
            printable(&shortened(text(turn, "content"), TEXT_CHARS_MAX)),
        ));
    }
    lines
}

//! `keepsake verify --erased`: searches for remains of a forgotten user or text.
//!
//! 1. The topics, while the service runs or not: records by the user's key, or by the bytes of the
//!    texts.
//! 2. The files below `store.dir`: bytes of the texts, terms of the user in the text indexes, and
//!    records of the user in the stores. The records need the store's lock, so the service must be
//!    stopped for them.
//!
//! 3. The files of the embedded log: segments and journal.
//! 4. The memories and tenants topics and the directory of the generation before, until they are
//!    removed.
//!
//! Reads everything once and keeps nothing of it. Nothing is changed.

use crate::export::key_of;
use aho_corasick::AhoCorasick;
use broker::clock::{Clock, SystemClock};
use broker::{Broker, Record};
use client::reading;
use client::show::{self, GOOD, Output, PLAIN};
use deployment::topics;
use domain::UserKey;
use domain::fault::{Fault, Result, StopName};
use kafka::Connection;
use serde_json::{Value, json};
use settings::Config;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use storage::changelog;
use storage::index::terms_on_disk;
use storage::store;

/// Characters of a longer text that are searched: decisions and proposals quote the beginning only.
const NEEDLE_CHARACTERS: usize = 48;
/// Shorter texts would be found everywhere.
const TEXT_CHARACTERS_MIN: usize = 4;
/// Places named in one row.
const NAMED_MAX: usize = 3;
/// Fields of a message that hold words.
const WORDS: [&str; 6] = ["content", "candidate", "query", "queries", "memories", "memory"];

/// The request of a search.
pub struct Erased<'a> {
    pub user: &'a str,
    pub tenant: Option<&'a str>,
    pub receipt: Option<&'a Path>,
    pub texts: &'a [String],
}

/// One line of the result.
struct Row {
    place: String,
    /// `None`: not searched, for the reason in `where_found`.
    found: Option<u64>,
    where_found: Vec<String>,
    until: String,
}

impl Row {
    fn new(place: impl Into<String>, until: impl Into<String>) -> Row {
        Row { place: place.into(), found: Some(0), where_found: Vec::new(), until: until.into() }
    }

    fn not_searched(place: impl Into<String>, why: impl Into<String>) -> Row {
        Row {
            place: place.into(),
            found: None,
            where_found: vec![format!("not searched: {}", why.into())],
            until: String::new(),
        }
    }

    fn add(&mut self, name: impl FnOnce() -> String) {
        let found = self.found.get_or_insert(0);
        *found += 1;
        if self.where_found.len() < NAMED_MAX {
            self.where_found.push(name());
        }
    }

    fn cells(&self) -> Vec<String> {
        let found = self.found.map_or("?".to_owned(), |found| found.to_string());
        let mut names = self.where_found.join(", ");
        let more = self.found.unwrap_or(0).saturating_sub(self.where_found.len() as u64);
        if more > 0 {
            names.push_str(&format!(" and {more} more"));
        }
        let until = if self.found == Some(0) { String::new() } else { self.until.clone() };
        vec![self.place.clone(), found, names, until]
    }

    fn json(&self) -> Value {
        json!({"place": self.place, "found": self.found, "where": self.where_found,
            "allowed_until": self.until})
    }
}

/// The user and the texts searched for.
struct Wanted {
    key: UserKey,
    /// `None`: without texts, records count by the user's key.
    texts: Option<AhoCorasick>,
    stems: Vec<String>,
    /// Time limits of a receipt, by place.
    limits: BTreeMap<String, String>,
}

impl Erased<'_> {
    pub fn run(&self, config: &Config, output: Output) -> Result<ExitCode> {
        let wanted = self.wanted()?;
        let mut rows = topics(&wanted, config);
        rows.extend(disk(&wanted, &config.store.dir, None)?);
        if config.kafka.is_embedded() {
            rows.push(log_files(&wanted, config));
        }
        if let Some(before) = before(config) {
            for name in [before.topics.memories(), before.topics.tenants()] {
                rows.extend(topic_before(&wanted, &before, name));
            }
            let dir = before.store.dir.clone();
            if dir.is_dir() {
                rows.extend(disk(&wanted, &dir, Some(&config.store.dir))?);
            }
        }
        let found: u64 = rows.iter().filter_map(|row| row.found).sum();
        let unsearched = rows.iter().filter(|row| row.found.is_none()).count();
        let places: Vec<Value> = rows.iter().map(Row::json).collect();
        let report = json!({"user": wanted.key.as_str(), "found": found,
            "not_searched": unsearched, "places": places});
        output.print(&report, || {
            let cells: Vec<Vec<String>> = rows.iter().map(Row::cells).collect();
            let table = show::table(&["place", "found", "where", "allowed until"], &cells);
            let is_clean = found == 0 && unsearched == 0;
            table
                + &if is_clean { format!("{GOOD}nothing is left{PLAIN}\n") } else { String::new() }
        });
        Ok(if found == 0 && unsearched == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn wanted(&self) -> Result<Wanted> {
        let short = self.texts.iter().find(|text| text.chars().count() < TEXT_CHARACTERS_MIN);
        if let Some(short) = short {
            return Err(invalid(format!(
                "--text {short:?}: give at least {TEXT_CHARACTERS_MIN} characters"
            )));
        }
        let texts = (!self.texts.is_empty())
            .then(|| AhoCorasick::new(self.texts.iter().flat_map(|text| needles(text))))
            .transpose()
            .map_err(|error| invalid(format!("--text: {error}")))?;
        let stems = self.texts.iter().flat_map(|text| words(text)).collect();
        let limits = self.receipt.map(limits).transpose()?.unwrap_or_default();
        Ok(Wanted { key: key_of(self.user, self.tenant)?, texts, stems, limits })
    }
}

fn invalid(what: String) -> Fault {
    Fault::stop(StopName::ConfigInvalid, what)
}

/// The beginning of a text in the spellings that a record may have: plain, and in JSON with and
/// without escapes for characters outside ASCII.
fn needles(text: &str) -> Vec<String> {
    let beginning: String = text.chars().take(NEEDLE_CHARACTERS).collect();
    let quoted = Value::from(beginning.as_str()).to_string();
    let escaped = quoted[1..quoted.len() - 1].to_owned();
    let mut ascii = String::new();
    for letter in escaped.chars() {
        if letter.is_ascii() {
            ascii.push(letter);
        } else {
            let mut units = [0; 2];
            for unit in letter.encode_utf16(&mut units) {
                ascii.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    let mut all = vec![beginning, escaped, ascii];
    all.sort();
    all.dedup();
    all
}

/// The words of a text as the index stems them.
fn words(text: &str) -> Vec<String> {
    text::Words::of(text).stems().iter().map(str::to_owned).collect()
}

/// The time limits of an erasure receipt: a record of the erasures topic, as one JSON object.
fn limits(path: &Path) -> Result<BTreeMap<String, String>> {
    let read = fs::read(path).map_err(|e| invalid(format!("--receipt {}: {e}", path.display())))?;
    let receipt: Value = serde_json::from_slice(&read)
        .map_err(|e| invalid(format!("--receipt {}: {e}", path.display())))?;
    let at = receipt["at"].as_str().and_then(|at| at.parse::<jiff::Timestamp>().ok());
    let at_ms = at.map_or_else(|| SystemClock.wall().0, |at| at.as_millisecond());
    let places = receipt["places"].as_array().into_iter().flatten();
    Ok(places
        .filter_map(|place| {
            let name = place["place"].as_str()?.to_owned();
            let until = match place["within_ms"].as_i64() {
                Some(ms) => show::rfc_3339(at_ms.saturating_add(ms)),
                None => "no limit".to_owned(),
            };
            Some((name, until))
        })
        .collect())
}

impl Wanted {
    fn until(&self, place: &str, otherwise: &str) -> String {
        self.limits.get(place).cloned().unwrap_or_else(|| otherwise.to_owned())
    }

    fn is_in(&self, record: &Record) -> bool {
        let value = record.value.as_deref().unwrap_or_default();
        if let Some(texts) = &self.texts {
            let mut headers = record.headers.iter();
            return texts.is_match(value) || headers.any(|(_, value)| texts.is_match(value));
        }
        let Some(key) = &record.key else { return false };
        if key == self.key.as_str().as_bytes() {
            // A forget and its receipt name the user and hold no word.
            return serde_json::from_slice::<Value>(value).map_or(!value.is_empty(), |value| {
                value["type"] != "forget"
                    && value["type"] != "erasure"
                    && WORDS.iter().any(|field| value.get(field).is_some_and(has_words))
            });
        }
        // A record of the memories or the tenants topic; a tombstone has no value.
        !value.is_empty()
            && key.starts_with(format!("{}/", self.key).as_bytes())
            && changelog::named(key.clone()).is_ok_and(|key| store::holds_words(&key))
    }
}

/// True unless the value is an id, or a list of ids as in a decision about a forget.
fn has_words(value: &Value) -> bool {
    match value {
        Value::String(text) => text.parse::<uuid::Uuid>().is_err() && !text.is_empty(),
        Value::Array(all) => all.iter().any(has_words),
        Value::Object(_) => true,
        _ => false,
    }
}

// ---------------------------------------------------------------- topics

/// Searches each topic. Waits once for a broker that is gone, and not for each topic.
fn topics(wanted: &Wanted, config: &Config) -> Vec<Row> {
    let mut connection = client::connection(config);
    let mut rows = Vec::new();
    for spec in topics::topics(config) {
        let kept = spec.settings.iter().find(|(name, _)| *name == "retention.ms");
        let kept_ms = kept.and_then(|(_, ms)| ms.parse::<i64>().ok());
        let searched = match &connection {
            Ok(connection) => topic(wanted, config, connection, &spec.name, kept_ms),
            Err(fault) => Err(fault.clone()),
        };
        rows.push(searched.unwrap_or_else(|fault| {
            let row = Row::not_searched(&spec.name, fault.to_string());
            if matches!(&fault, Fault::Stop(stop) if stop.name == StopName::BrokerUnreachable) {
                connection = Err(fault);
            }
            row
        }));
    }
    rows
}

/// The generation before that of the configuration.
fn before(config: &Config) -> Option<Config> {
    let generation = config.kafka.generation;
    (generation > 1).then(|| config.of_generation(generation - 1))
}

/// A topic of the generation before. `None` once deleted.
fn topic_before(wanted: &Wanted, before: &Config, name: String) -> Option<Row> {
    let searched = client::connection(before).and_then(|connection| {
        if connection.partitions_of(&name)?.is_none() {
            return Ok(None);
        }
        topic(wanted, before, &connection, &name, None).map(Some)
    });
    match searched {
        Ok(row) => {
            row.map(|row| Row { until: "`keepsake generation drop` deletes it".into(), ..row })
        }
        Err(fault) => Some(Row::not_searched(name, fault.to_string())),
    }
}

fn topic(
    wanted: &Wanted,
    config: &Config,
    connection: &Connection,
    name: &str,
    kept_ms: Option<i64>,
) -> Result<Row> {
    let mut row = Row::new(name, "");
    let mut newest_ms = i64::MIN;
    let ranges = reading::whole_topic(connection, config, name)?;
    reading::read(connection, name, &ranges, &mut |record| {
        if wanted.is_in(&record) {
            newest_ms = newest_ms.max(record.timestamp_ms);
            row.add(|| format!("{}:{}", record.partition, record.offset));
        }
        Ok(())
    })?;
    let otherwise = match kept_ms {
        Some(_) if config.events.keep_ms > 0 && name == config.topics.events() => {
            "events.keep_ms after it was applied".to_owned()
        }
        Some(ms) if ms >= 0 && newest_ms > i64::MIN => show::rfc_3339(newest_ms + ms),
        Some(_) => "as long as the topic keeps its records".to_owned(),
        None => "the topic is compacted".to_owned(),
    };
    row.until = wanted.until(name, &otherwise);
    Ok(row)
}

// ---------------------------------------------------------------- disk

/// Searches the segments and the journal of the embedded log. A batch that the sender compressed
/// hides these bytes; for such batches the topics are searched.
fn log_files(wanted: &Wanted, config: &Config) -> Row {
    let dir = deployment::log_dir(config);
    let place = format!("bytes of the log in {}", dir.display());
    if wanted.texts.is_none() {
        return Row::not_searched(place, "give the forgotten text with --text");
    }
    let until = wanted.until(&config.topics.events(), "events.keep_ms after the event");
    let mut row = Row::new(place, until);
    for path in files_below(&dir).iter().filter(|path| holds(wanted, path)) {
        row.add(|| name(&dir, path));
    }
    row
}

/// Searches the files below `dir`, but not those below `other`.
fn disk(wanted: &Wanted, dir: &Path, other: Option<&Path>) -> Result<Vec<Row>> {
    let mut all = files_below(dir);
    all.retain(|path| other.is_none_or(|other| !path.starts_with(other)));
    let until = wanted.until("store and index", "forget.within_ms after the forget");
    let aside = "somebody removes the directory";
    let place = |what: &str| format!("{what} in {}", dir.display());
    let mut rows = Vec::new();
    if wanted.texts.is_some() {
        let mut files = Row::new(place("bytes of files"), until.clone());
        let mut set_aside = Row::new(place("bytes of files set aside"), aside);
        for path in &all {
            if holds(wanted, path) {
                let row = if is_set_aside(path) { &mut set_aside } else { &mut files };
                row.add(|| name(dir, path));
            }
        }
        rows.extend([files, set_aside]);
    } else {
        rows.push(Row::not_searched(
            place("bytes of files"),
            "give the forgotten text with --text",
        ));
    }
    let mut terms = Row::new(place("terms of indexes"), until.clone());
    for meta in all.iter().filter(|path| path.ends_with("meta.json")) {
        let Some(index) = meta.parent() else { continue };
        let found = terms_on_disk(index, &wanted.key)?;
        if wanted.texts.is_none() {
            found.iter().for_each(|_| terms.add(|| name(dir, index)));
        } else {
            let left = wanted.stems.iter().filter(|stem| found.contains(*stem));
            left.for_each(|stem| terms.add(|| format!("{stem} in {}", name(dir, index))));
        }
    }
    rows.push(terms);
    rows.push(records(wanted, dir, until)?);
    Ok(rows)
}

/// Counts the records of the user in every store, of shards of this process and of others.
fn records(wanted: &Wanted, dir: &Path, until: String) -> Result<Row> {
    let place = format!("records of the user in {}", dir.display());
    let mut row = Row::new(&place, until);
    // With a text, other memories of the user may exist by right.
    if wanted.texts.is_some() || !dir.is_dir() {
        return Ok(row);
    }
    let Ok(_lock) = deployment::lock_dir(dir) else {
        return Ok(Row::not_searched(place, "stop the service on this directory first"));
    };
    for store in shards(dir) {
        for _ in 0..store::records_with_words(&store, &wanted.key)? {
            row.add(|| name(dir, &store));
        }
    }
    Ok(row)
}

fn shards(dir: &Path) -> Vec<PathBuf> {
    let shards = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut stores: Vec<PathBuf> = shards.map(|shard| shard.path().join("store")).collect();
    stores.retain(|store| store.is_dir());
    stores.sort();
    stores
}

fn is_set_aside(path: &Path) -> bool {
    path.iter().any(|part| part.to_string_lossy().contains(".corrupt-"))
}

fn name(dir: &Path, path: &Path) -> String {
    path.strip_prefix(dir).unwrap_or(path).display().to_string()
}

/// True if the file contains a text. A file that goes meanwhile contains nothing.
fn holds(wanted: &Wanted, path: &Path) -> bool {
    let Some(texts) = &wanted.texts else { return false };
    let Ok(file) = File::open(path) else { return false };
    texts.stream_find_iter(file).next().is_some_and(|found| found.is_ok())
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_searched_as_any_producer_may_have_written_it() {
        assert_eq!(needles("plain"), ["plain"]);
        assert_eq!(needles("a \"b\" ü"), ["a \"b\" ü", "a \\\"b\\\" \\u00fc", "a \\\"b\\\" ü"]);
        assert_eq!(needles(&"x".repeat(90)), ["x".repeat(NEEDLE_CHARACTERS)]);
    }

    #[test]
    fn an_id_is_no_word() {
        let id = json!("0f8fad5b-d9cb-469f-a165-70867728950e");
        for (value, expected) in [
            (id.clone(), false),
            (json!([id]), false),
            (json!("I live in Lisbon"), true),
            (json!([{"content": "I live in Lisbon"}]), true),
            (json!([]), false),
        ] {
            assert_eq!(has_words(&value), expected, "{value}");
        }
    }
}

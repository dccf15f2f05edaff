//! Reads the files of a history: once to count it and to find the parts, then part by part in the
//! order of their time. A part is a conversation of an export, or a file of lines.

use super::{
    Format, Found, Item, chatgpt, claude, codex, csv, guess, json, left_out, markdown, stores,
};
use domain::fault::{Fault, Result};
use serde_json::Value;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// A piece of a file whose items follow each other.
pub struct Part {
    file: usize,
    /// The bytes of an element of a list; otherwise the part is the file.
    bytes: Option<Range<u64>>,
    /// The earliest time of its items.
    at_ms: Option<i64>,
}

/// Reads all files and returns their parts, the oldest first: a later turn may replace the value of
/// an earlier one, and exports begin with the newest conversation.
pub fn survey(format: Format, files: &[PathBuf], each: &mut dyn FnMut(Found)) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    for (file, path) in files.iter().enumerate() {
        let mut counts = Known::default();
        let read = match list_of(format) {
            Some(reader) => {
                let mut element = |value: Value, bytes: Range<u64>| {
                    let found = counts.of(reader(&value));
                    let at_ms = found.iter().filter_map(time_of).min();
                    parts.push(Part { file, bytes: Some(bytes), at_ms });
                    found.into_iter().for_each(&mut *each);
                };
                json::elements(open(path)?, &mut element).map_err(|e| e.to_string())
            }
            None => {
                let mut at_ms: Option<i64> = None;
                let mut first = |found: Found| {
                    let earlier = time_of(&found).into_iter().chain(at_ms).min();
                    at_ms = earlier;
                    each(found);
                };
                let read = whole(format, path, &mut counts, &mut first)?;
                parts.push(Part { file, bytes: None, at_ms });
                read
            }
        };
        counts.check(format, path, read)?;
    }
    parts.sort_by_key(|part| part.at_ms);
    Ok(parts)
}

/// Reads one part of the files again.
pub fn read(
    format: Format,
    files: &[PathBuf],
    part: &Part,
    each: &mut dyn FnMut(Found),
) -> Result<()> {
    let path = &files[part.file];
    let mut counts = Known::default();
    let changed = |why: String| Fault::retry(format!("{} has changed: {why}", path.display()));
    let (Some(reader), Some(bytes)) = (list_of(format), &part.bytes) else {
        return whole(format, path, &mut counts, each)?.map_err(changed);
    };
    let mut file = File::open(path).map_err(|e| unreadable(path, &e))?;
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(bytes.start))
        .and_then(|_| file.take(bytes.end - bytes.start).read_to_end(&mut text))
        .map_err(|e| unreadable(path, &e))?;
    let value = json::element(&text).map_err(|e| changed(e.to_string()))?;
    counts.of(reader(&value)).into_iter().for_each(each);
    Ok(())
}

/// The messages that were appended to a transcript.
pub struct Tail {
    pub items: Vec<Item>,
    /// The place behind the last whole line.
    pub read_to: u64,
}

/// Bytes of a transcript that are read at once. A line that is longer, which no person has typed,
/// is passed over.
const TAIL_BYTES_MAX: u64 = 16 << 20;

/// Reads the transcript of a session on, up to the last whole line. One that has become shorter was
/// written anew, and is read from its beginning.
pub fn tail(format: Format, path: &Path, session: &str, from: u64) -> Result<Tail> {
    let about = |error: io::Error| unreadable(path, &error);
    let mut file = File::open(path).map_err(about)?;
    let length = file.metadata().map_err(about)?.len();
    let mut read_to = if length < from { 0 } else { from };
    let (mut transcript, mut rollout) =
        (claude::Transcript::new(session), codex::Rollout::new(session));
    let mut items = Vec::new();
    while read_to < length {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(read_to)).map_err(about)?;
        file.by_ref().take(TAIL_BYTES_MAX).read_to_end(&mut bytes).map_err(about)?;
        let whole = match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(last) => last + 1,
            None if bytes.len() as u64 == TAIL_BYTES_MAX => bytes.len(),
            None => break,
        };
        for line in bytes[..whole].split(|byte| *byte == b'\n') {
            let Ok(line) = serde_json::from_slice::<Value>(line) else { continue };
            let found = match format {
                Format::Codex => rollout.line(&line),
                _ => transcript.line(&line),
            };
            items.extend(found.into_iter().flatten().filter_map(|found| match found {
                Found::Item(item) => Some(item),
                _ => None,
            }));
        }
        read_to += whole as u64;
    }
    Ok(Tail { items, read_to })
}

/// Reads an element of a list; `None` for one of an unknown kind.
type ElementReader = fn(&Value) -> Option<Vec<Found>>;

fn list_of(format: Format) -> Option<ElementReader> {
    match format {
        Format::ChatGpt => Some(chatgpt::conversation),
        Format::Claude => Some(claude::conversation),
        Format::Mem0 => Some(stores::mem0),
        _ => None,
    }
}

/// Reads a line; `None` for one of an unknown kind.
type LineReader = Box<dyn FnMut(&Value) -> Option<Vec<Found>>>;

/// Reads a file of lines. The inner error says why its content is not of the format.
fn whole(
    format: Format,
    path: &Path,
    counts: &mut Known,
    each: &mut dyn FnMut(Found),
) -> Result<std::result::Result<(), String>> {
    // A transcript without the id of its session has that id as its name.
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut transcript = claude::Transcript::new(&stem);
    let mut rollout = codex::Rollout::new(&stem);
    let mut line_reader: LineReader = match format {
        Format::ClaudeCode => Box::new(move |line| transcript.line(line)),
        Format::Codex => Box::new(move |line| rollout.line(line)),
        Format::MemoryJsonl => Box::new(stores::graph),
        Format::Markdown | Format::Csv => {
            if let Some(other) = guess::format_of(path)? {
                return Ok(Err(format!("it looks like --from {}", other.name())));
            }
            // A text without a time is as old as its file: an old note must not replace what was
            // said since.
            let written_ms = written_ms(path)?;
            let mut known = |mut found: Found| {
                counts.known += 1;
                if let Found::Item(item) = &mut found {
                    item.at_ms = item.at_ms.or(written_ms);
                }
                each(found);
            };
            let read = match format {
                Format::Csv => csv::read(open(path)?, &mut known),
                _ => markdown::read(open(path)?, &mut known),
            };
            return read_or_reason(path, read);
        }
        Format::ChatGpt | Format::Claude | Format::Mem0 => {
            unreachable!("`list_of` reads the lists")
        }
    };
    let read = json::lines(open(path)?, &mut |line| match line {
        None => each(Found::LeftOut(left_out::TOO_LONG)),
        Some(line) => {
            let value = serde_json::from_slice::<Value>(line).ok();
            let found = value.and_then(|value| line_reader(&value));
            counts.of(found).into_iter().for_each(&mut *each);
        }
    });
    read_or_reason(path, read)
}

/// Separates what is wrong with the content from a file that cannot be read.
fn read_or_reason(path: &Path, read: io::Result<()>) -> Result<std::result::Result<(), String>> {
    match read {
        Ok(()) => Ok(Ok(())),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(Err(error.to_string())),
        Err(error) => Err(unreadable(path, &error)),
    }
}

/// How much of a file the reader of its format knows.
#[derive(Default)]
struct Known {
    known: u64,
    unknown: u64,
}

impl Known {
    fn of(&mut self, found: Option<Vec<Found>>) -> Vec<Found> {
        match found {
            Some(found) => {
                self.known += 1;
                found
            }
            None => {
                self.unknown += 1;
                vec![Found::LeftOut(left_out::UNKNOWN)]
            }
        }
    }

    /// Fails for a file of another format, and for one that ends early: half of an export would
    /// pass for all of it.
    fn check(
        &self,
        format: Format,
        path: &Path,
        read: std::result::Result<(), String>,
    ) -> Result<()> {
        let why = match (self.known, read) {
            (1.., Ok(())) => return Ok(()),
            (1.., Err(why)) => {
                let what = format!("{} is damaged or incomplete: {why}", path.display());
                return Err(Fault::retry(what));
            }
            (0, Err(why)) => why,
            (0, Ok(())) => format!("none of {} lines or objects is known", self.unknown),
        };
        Err(Fault::retry(format!(
            "{} is not of --from {}: expected {}; found {} ({why})",
            path.display(),
            format.name(),
            format.shape(),
            guess::description(path)?,
        )))
    }
}

fn time_of(found: &Found) -> Option<i64> {
    match found {
        Found::Item(item) => item.at_ms,
        _ => None,
    }
}

fn written_ms(path: &Path) -> Result<Option<i64>> {
    let metadata = std::fs::metadata(path).map_err(|e| unreadable(path, &e))?;
    let written = metadata.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    Ok(written.and_then(|age| i64::try_from(age.as_millis()).ok()))
}

fn open(path: &Path) -> Result<BufReader<File>> {
    Ok(BufReader::with_capacity(64 << 10, File::open(path).map_err(|e| unreadable(path, &e))?))
}

pub fn unreadable(path: &Path, error: &io::Error) -> Fault {
    Fault::retry(format!("cannot read {}: {error}", path.display()))
}

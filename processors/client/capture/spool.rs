//! The turns that wait for the service, one event on each line.

use super::{Capture, Project, State};
use crate::rules::Rules;
use crate::{Client, parse_user};
use domain::fault::{Fault, Result};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

const WAITING: &str = "waiting.jsonl";
/// Room for some ten thousand turns.
const BYTES_MAX: u64 = 16 << 20;
/// Events sent together. The service recognises the last 1,000 ids of a user, so a batch whose
/// receipts were lost is sent again without harm.
const TOGETHER: usize = 100;
/// Time between two receipts.
const RECEIPTS_WITHIN: Duration = Duration::from_secs(20);
/// Time between two attempts.
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Gives an event the user of the project.
pub fn of_project(mut event: Value, project: &Project) -> Value {
    if let Ok(key) = parse_user(&project.user) {
        event["tenant"] = json!(key.tenant());
        event["user"] = json!(key.user());
    }
    event
}

/// Appends events; those for which there is no room are lost, and counted.
pub fn append(capture: &Capture, state: &mut State, events: &[Value]) -> Result<()> {
    if events.is_empty() {
        return Ok(());
    }
    let mut file = capture.open(WAITING)?;
    let unusable = |error| capture.unusable(WAITING, &error);
    let length = file.metadata().map_err(unusable)?.len();
    // A hook that was killed, or a full disk, has left half a line, which must not swallow the next.
    let mut lines =
        if ends_a_line(&file, length).map_err(unusable)? { "" } else { "\n" }.to_owned();
    for (place, event) in events.iter().enumerate() {
        let line = format!("{event}\n");
        if length + (lines.len() + line.len()) as u64 > BYTES_MAX {
            state.lose(events.len() - place, "no room: the service was away for too long");
            break;
        }
        lines += &line;
    }
    file.write_all(lines.as_bytes()).and_then(|()| file.sync_data()).map_err(unusable)
}

fn ends_a_line(file: &File, length: u64) -> std::io::Result<bool> {
    let mut last = [b'\n'];
    if length > 0 {
        file.read_exact_at(&mut last, length - 1)?;
    }
    Ok(last == [b'\n'])
}

/// The number of turns that wait.
pub fn count(capture: &Capture) -> Result<usize> {
    Ok(lines(capture)?.iter().filter(|byte| **byte == b'\n').count())
}

fn lines(capture: &Capture) -> Result<Vec<u8>> {
    match std::fs::read(capture.path(WAITING)) {
        Ok(bytes) => Ok(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(capture.unusable(WAITING, &error)),
    }
}

impl Capture {
    /// The number of turns that wait.
    pub fn waiting(&self) -> Result<usize> {
        count(self)
    }

    /// Sends what waits, unless another process is sending. After a fault, of which the end of the
    /// service is one, connects again, until nothing waits or the time is over.
    pub fn send(
        &self,
        rules: &Rules,
        mut connect: impl FnMut() -> Result<Client>,
        within: Duration,
    ) -> Result<()> {
        let end = Instant::now() + within;
        let mut pause = PAUSE_MIN;
        // Order matters: looked at after the right is given back. Whoever adds a turn and finds the
        // right taken relies on this look, and on this process to go on after a failure.
        while self.waiting()? > 0 {
            let Some(_right) = self.right_to_send()? else { return Ok(()) };
            let sent = connect().and_then(|mut client| {
                while Instant::now() < end && self.send_some(rules, &mut client)? {}
                Ok(())
            });
            match sent {
                Err(_) if Instant::now() + pause < end => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                Err(fault) => return Err(fault),
                Ok(()) if Instant::now() < end => pause = PAUSE_MIN,
                Ok(()) => return Ok(()),
            }
        }
        Ok(())
    }

    /// Sends a batch, and returns false if nothing waits.
    fn send_some(&self, rules: &Rules, client: &mut Client) -> Result<bool> {
        let waiting = lines(self)?;
        let batch: Vec<&[u8]> =
            waiting.split_inclusive(|byte| *byte == b'\n').take(TOGETHER).collect();
        let length: usize = batch.iter().map(|line| line.len()).sum();
        if length == 0 {
            return Ok(false);
        }
        let mut refused: Vec<String> = Vec::new();
        let mut events = Vec::new();
        for line in batch {
            // A line that is not whole is that of a hook that was killed: its transcript is read
            // again.
            let Ok(event) = serde_json::from_slice::<Value>(line) else { continue };
            let key = [&event["tenant"], &event["user"]].map(|it| it.as_str().unwrap_or_default());
            match rules.check_event(&key.join("/"), &event) {
                Ok(()) => events.push(event),
                Err(reject) => refused.push(reject.to_string()),
            }
        }
        for receipt in client.publish_all(&events, RECEIPTS_WITHIN)? {
            match receipt["status"].as_str() {
                Some("ok") => {}
                Some("invalid" | "too_large" | "forbidden") => {
                    refused.push(receipt["error"]["message"].to_string());
                }
                _ => return Err(Fault::retry(format!("the service answers {receipt}"))),
            }
        }
        self.change(|state| {
            if let Some(why) = refused.last() {
                state.lose(refused.len(), why);
            }
            // Hooks may have added some meanwhile.
            let waiting = lines(self)?;
            self.replace(WAITING, &waiting[length.min(waiting.len())..])
        })?;
        Ok(true)
    }
}

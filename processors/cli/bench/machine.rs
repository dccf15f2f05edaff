//! What the figures were measured on, and what the process has used of it. Reads Linux's /proc.

use crate::config::Config;
use crate::fault::{Fault, Result};
use serde_json::{Value, json};
use std::time::Duration;

/// Ticks in a second of /proc's processor times: fixed by the kernel's interface, whatever the kernel's own timer does.
const TICKS: u64 = 100;

pub fn described(config: &Config) -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    json!({
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "processor": after(&read("/proc/cpuinfo"), "model name").trim_start_matches(": ").trim(),
        "memory_bytes": kilobytes(&read("/proc/meminfo"), "MemTotal:").unwrap_or(0),
        // Anything else that runs shows here: figures of a busy machine are of that machine.
        "load_one_minute": read("/proc/loadavg").split(' ').next().and_then(|load| load.parse::<f64>().ok()),
        "system": format!("{} {}", std::env::consts::OS, read("/proc/sys/kernel/osrelease").trim()),
        "build": if cfg!(debug_assertions) { "debug" } else { "release" },
        "broker": if config.kafka.is_embedded() { "embedded" } else { "kafka" },
        "model": config.embedder.model,
        "profile": config.profile,
    })
}

/// Resident memory that is the process's own, not a file's.
pub fn rss_anon_bytes() -> Result<u64> {
    let status = proc("/proc/self/status")?;
    kilobytes(&status, "RssAnon:")
        .ok_or_else(|| Fault::retry("reads RssAnon in /proc/self/status: it is not there"))
}

/// Of all threads since the process began, in user mode and in the kernel.
pub fn processor_time() -> Result<Duration> {
    let stat = proc("/proc/self/stat")?;
    // The second field is the program's name in brackets, which may hold blanks; user and system time are 12th and 13th after it.
    let fields: Vec<u64> = stat
        .rsplit(") ")
        .next()
        .unwrap_or_default()
        .split(' ')
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    match fields.get(11..13) {
        Some([user, system]) => Ok(Duration::from_millis((user + system) * 1000 / TICKS)),
        _ => Err(Fault::retry("reads processor time in /proc/self/stat: it is not there")),
    }
}

fn proc(path: &str) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| Fault::retry(format!("reads {path}: {e}")))
}

fn kilobytes(text: &str, name: &str) -> Option<u64> {
    after(text, name)
        .split_whitespace()
        .next()?
        .parse::<u64>()
        .ok()
        .map(|kilobytes| kilobytes * 1024)
}

/// The rest of the first line that begins so.
fn after<'t>(text: &'t str, name: &str) -> &'t str {
    text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_names() {
        let text = "VmRSS:\t    9 kB\nRssAnon:\t  12 kB\n";
        assert_eq!(kilobytes(text, "RssAnon:"), Some(12 * 1024));
        assert_eq!(kilobytes(text, "RssFile:"), None);
    }
}

//! Describes the machine of a benchmark and reads the memory and processor time of this process
//! from Linux's `/proc` ([proc(5)](https://man7.org/linux/man-pages/man5/proc.5.html)).

use domain::fault::{Fault, Result};
use serde_json::{Value, json};
use settings::Config;
use std::time::Duration;

/// Ticks per second of the processor times in `/proc`. The kernel's interface fixes this number,
/// whatever the frequency of the kernel's own timer.
const TICKS_PER_SECOND: u64 = 100;

pub fn description(config: &Config) -> Value {
    let cpuinfo = read_or_empty("/proc/cpuinfo");
    let load = read_or_empty("/proc/loadavg");
    json!({
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "processor": rest_of_line(&cpuinfo, "model name").trim_start_matches(": ").trim(),
        "memory_bytes": bytes_of(&read_or_empty("/proc/meminfo"), "MemTotal:").unwrap_or(0),
        // Shows whether other programs ran during the measurement.
        "load_one_minute": load.split(' ').next().and_then(|load| load.parse::<f64>().ok()),
        "system": format!(
            "{} {}",
            std::env::consts::OS,
            read_or_empty("/proc/sys/kernel/osrelease").trim()
        ),
        "build": if cfg!(debug_assertions) { "debug" } else { "release" },
        "broker": if config.kafka.is_embedded() { "embedded" } else { "kafka" },
        "model": config.embedder.model,
        "profile": config.profile,
    })
}

/// Returns the anonymous resident memory of this process: without pages of mapped files.
pub fn rss_anon_bytes() -> Result<u64> {
    let status = read("/proc/self/status")?;
    bytes_of(&status, "RssAnon:")
        .ok_or_else(|| Fault::retry("read RssAnon in /proc/self/status: no such line"))
}

/// Resets the peak of this process's resident memory to the present size, and returns that size.
/// Needs Linux 4.0.
pub fn reset_peak() -> Result<u64> {
    std::fs::write("/proc/self/clear_refs", "5")
        .map_err(|e| Fault::retry(format!("write /proc/self/clear_refs: {e}")))?;
    resident("VmRSS:")
}

/// Returns the peak of this process's resident memory since the last [`reset_peak`].
pub fn peak() -> Result<u64> {
    resident("VmHWM:")
}

fn resident(name: &str) -> Result<u64> {
    bytes_of(&read("/proc/self/status")?, name)
        .ok_or_else(|| Fault::retry(format!("read {name} in /proc/self/status: no such line")))
}

/// Returns the resident memory of another process.
pub fn resident_of(process: u32) -> Result<u64> {
    let status = read(&format!("/proc/{process}/status"))?;
    bytes_of(&status, "VmRSS:")
        .ok_or_else(|| Fault::retry(format!("read VmRSS of process {process}: no such line")))
}

/// Returns the user and system time of all threads since the process started.
pub fn processor_time() -> Result<Duration> {
    let stat = read("/proc/self/stat")?;
    // The second field is the program's name in brackets, which may contain spaces. User and
    // system time are the 12th and 13th field after the closing bracket.
    let fields: Vec<u64> = stat
        .rsplit(") ")
        .next()
        .unwrap_or_default()
        .split(' ')
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    match fields.get(11..13) {
        Some([user, system]) => {
            Ok(Duration::from_millis((user + system) * 1000 / TICKS_PER_SECOND))
        }
        _ => Err(Fault::retry("read processor time in /proc/self/stat: too few fields")),
    }
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| Fault::retry(format!("read {path}: {e}")))
}

/// Reads a file for the description of the machine, where a missing file only leaves a gap.
fn read_or_empty(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Returns the value of a line such as `RssAnon:  12 kB`, in bytes.
fn bytes_of(text: &str, name: &str) -> Option<u64> {
    let kilobytes: u64 = rest_of_line(text, name).split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Returns the first line that begins with `name`, without `name`.
fn rest_of_line<'t>(text: &'t str, name: &str) -> &'t str {
    text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_names() {
        let text = "VmRSS:\t    9 kB\nRssAnon:\t  12 kB\n";
        assert_eq!(bytes_of(text, "RssAnon:"), Some(12 * 1024));
        assert_eq!(bytes_of(text, "RssFile:"), None);
    }
}

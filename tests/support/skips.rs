//! Tests that were skipped: each is named past the harness, and all are counted at the end. A skip is not a pass.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Mutex;

static SKIPPED: Mutex<BTreeMap<&'static str, usize>> = Mutex::new(BTreeMap::new());

/// `lacks` is what is not tested without it: "nothing of them holds on a real Kafka (KEEPSAKE_TEST_KAFKA=skip)".
pub fn skipped(test: &str, lacks: &'static str) {
    say(&format!("SKIPPED {test}: {lacks}\n"));
    *SKIPPED.lock().expect("no test panics while it holds this").entry(lacks).or_default() += 1;
}

pub fn say_what_was_skipped() {
    for (lacks, count) in SKIPPED.lock().expect("no test panics while it holds this").iter() {
        say(&format!("\n*** {count} SKIPPED: {lacks} ***\n"));
    }
}

/// Past the harness, which would swallow the words of a test that passes.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

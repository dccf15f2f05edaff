//! Reports skipped tests. A skip is not a pass, and libtest has no word for it at run time.
//!
//! Each skip prints one line that counts all skips so far, so the last such line has the total
//! whatever the order of the tests. The same line goes to `skipped-tests.txt` in the scratch
//! directory of the run.

use super::scratch;
use parking_lot::Mutex;
use std::fs::OpenOptions;
use std::io::Write;

static SKIPPED: Mutex<usize> = Mutex::new(0);

/// Reports that `test` was skipped. `untested` is the property that nothing has checked now, with
/// the setting that would change that.
pub fn skipped(test: &str, untested: &str) {
    let mut count = SKIPPED.lock();
    *count += 1;
    let line = format!("*** SKIPPED (number {count} of this run) {test}: {untested} ***\n");
    // Written to standard error directly: libtest swallows `eprintln!` of a test that passes.
    let _ = std::io::stderr().write_all(line.as_bytes());
    let report = scratch::root().join("skipped-tests.txt");
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(&report)
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .unwrap_or_else(|e| panic!("writes {}: {e}", report.display()));
}

/// The directory of the real encoder, from `KEEPSAKE_TEST_MODEL`. Without it `test` is skipped.
pub fn model_or_skip(test: &str, untested: &str) -> Option<String> {
    let model = std::env::var("KEEPSAKE_TEST_MODEL").ok();
    if model.is_none() {
        skipped(test, &format!("{untested} (KEEPSAKE_TEST_MODEL names no model directory)"));
    }
    model
}

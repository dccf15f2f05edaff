//! A memory with an end takes nothing in that has none.

use super::*;

/// A memory without an end takes the turn in; one with an end would take the turn along at expiry.
#[test]
fn a_turn_that_repeats_a_memory_that_expires_is_kept() {
    let content = "We decided to meet in Lisbon on Friday at nine with Anna and her sister from \
                   Porto, who brings the tickets for the boat to Madeira.";
    let outcome = |end: Option<&str>| {
        let mut bench = Bench::new();
        let mut note = remember(content);
        if let Some(end) = end {
            note["expires_at"] = end.into();
        }
        bench.outcomes(&[note, turn(content)])[1]
    };
    assert_eq!(outcome(None), "merged");
    assert_eq!(outcome(Some("2999-01-01T00:00:00Z")), "kept");
}

//! Normalises the text of a turn: composed characters, `\n` line ends, at most one empty line in a
//! row. Lists and fenced code keep their form.

use std::borrow::Cow;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// Returns `content` trimmed, in [NFC](https://unicode.org/reports/tr15/) and with normalised
/// lines.
pub fn clean(content: &str) -> String {
    let composed = match is_nfc_quick(content.chars()) {
        IsNormalized::Yes => Cow::Borrowed(content),
        _ => Cow::Owned(content.nfc().collect()),
    };
    let text = composed.trim();
    if !text.contains(['\n', '\r']) {
        return text.to_owned();
    }
    without_stacked_empty_lines(&text.replace("\r\n", "\n").replace('\r', "\n"))
}

fn without_stacked_empty_lines(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut fence = Fence::default();
    let mut after_empty = false;
    for line in text.split_inclusive('\n') {
        let is_code = fence.holds(line);
        let is_empty = line.trim().is_empty() && !is_code;
        if !is_empty {
            kept.push_str(line);
        } else if !after_empty {
            kept.push('\n');
        }
        after_empty = is_empty;
    }
    kept
}

/// Tracks [code fences](https://spec.commonmark.org/0.31.2/#fenced-code-blocks) line by line. Three
/// or more backticks at the beginning of a line open a fence, and a line of at least as many
/// backticks closes the fence.
#[derive(Default)]
pub struct Fence {
    /// Backticks of the open fence, 0 outside of fences.
    ticks: usize,
}

impl Fence {
    /// Returns true if this line belongs to a fence, including its first and last line. Must be
    /// called with every line in order.
    pub fn holds(&mut self, line: &str) -> bool {
        let line = line.trim();
        let ticks = line.len() - line.trim_start_matches('`').len();
        let was_open = self.ticks > 0;
        if was_open && ticks >= self.ticks && ticks == line.len() {
            self.ticks = 0;
        } else if !was_open && ticks >= 3 && !line[ticks..].contains('`') {
            self.ticks = ticks;
        }
        was_open || self.ticks > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(content: &str, expected: &str) {
        assert_eq!(clean(content), expected, "{content:?}");
    }

    /// Holds memory-spec 2.
    #[test]
    fn letters_and_accents_are_composed() {
        check("cafe\u{301}", "café");
        check("東京", "東京");
    }

    /// Holds memory-spec 2.
    #[test]
    fn empty_lines_do_not_stack() {
        check("\n\n one\n\n\n\ntwo\n \n\t\nthree\nfour \n\n", "one\n\ntwo\n\nthree\nfour");
        check("one\r\n\r\n\r\ntwo", "one\n\ntwo");
    }

    /// Holds memory-spec 2.
    #[test]
    fn lists_and_code_keep_their_form() {
        check("- a\n  - b\n\n1. c", "- a\n  - b\n\n1. c");
        check("see:\n```py\na\n\n\n\nb\n```\n\n\n\ndone", "see:\n```py\na\n\n\n\nb\n```\n\ndone");
    }
}

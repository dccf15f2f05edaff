//! What was typed, made comparable: composed characters, one kind of line end, no stacks of empty lines. Lists and code stay whole.

use std::borrow::Cow;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

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
    let (mut fence, mut after_empty) = (Fence::default(), false);
    for line in text.split_inclusive('\n') {
        let in_code = fence.holds(line);
        let empty = line.trim().is_empty() && !in_code;
        if !empty {
            kept.push_str(line);
        } else if !after_empty {
            kept.push('\n');
        }
        after_empty = empty;
    }
    kept
}

/// Follows code fences line by line, as Markdown has them: opened by three backticks or more that begin a line, closed by as many.
#[derive(Default)]
pub struct Fence {
    ticks: usize,
}

impl Fence {
    /// Whether this line belongs to a fence, its first and last line included.
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

    #[test]
    fn letters_and_accents_are_composed() {
        check("cafe\u{301}", "café");
        check("東京", "東京");
    }

    #[test]
    fn empty_lines_do_not_stack() {
        check("\n\n one\n\n\n\ntwo\n \n\t\nthree\nfour \n\n", "one\n\ntwo\n\nthree\nfour");
        check("one\r\n\r\n\r\ntwo", "one\n\ntwo");
    }

    #[test]
    fn lists_and_code_keep_their_form() {
        check("- a\n  - b\n\n1. c", "- a\n  - b\n\n1. c");
        check("see:\n```py\na\n\n\n\nb\n```\n\n\n\ndone", "see:\n```py\na\n\n\n\nb\n```\n\ndone");
    }
}

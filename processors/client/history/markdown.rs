//! Reads a Markdown file as texts to remember: each list item and each paragraph, with the headings
//! above it in front, because "Vegetarian since 2019" alone says nothing of whom.

use super::{Found, Item, What, hashed, left_out};
use std::io::{self, BufRead};

/// Bytes of a text, of the contract's 65,536 with the headings.
const TEXT_BYTES_MAX: usize = 60_000;
const HEADING_CHARS_MAX: usize = 200;

/// Calls `each` with every text of the file.
pub fn read(source: impl BufRead, each: &mut dyn FnMut(Found)) -> io::Result<()> {
    let mut texts = Texts { headings: Vec::new(), text: String::new(), fence: None, each };
    for (number, line) in source.lines().enumerate() {
        let line = line?;
        // The settings of a page, between two lines of dashes.
        if number == 0 && line.trim_end() == "---" {
            texts.fence = Some("---");
            continue;
        }
        texts.line(&line);
    }
    texts.end();
    Ok(())
}

struct Texts<'a> {
    /// Level and words of the headings above.
    headings: Vec<(usize, String)>,
    text: String,
    /// The end of a block that is left out.
    fence: Option<&'static str>,
    each: &'a mut dyn FnMut(Found),
}

impl Texts<'_> {
    fn line(&mut self, line: &str) {
        let words = line.trim();
        if let Some(end) = self.fence {
            if words.starts_with(end) {
                self.fence = None;
            }
            return;
        }
        if let Some(fence) = ["```", "~~~"].into_iter().find(|fence| words.starts_with(fence)) {
            self.end();
            self.fence = Some(fence);
            return (self.each)(Found::LeftOut(left_out::TOOL));
        }
        if let Some((level, heading)) = heading(words) {
            self.end();
            self.headings.retain(|(above, _)| *above < level);
            return self.headings.push((level, heading));
        }
        let is_rule = words.len() >= 3 && words.chars().all(|it| "-*_= ".contains(it));
        if words.is_empty() || is_rule || words.starts_with("<!--") {
            return self.end();
        }
        let (is_item, words) = match item(words) {
            Some(words) => (true, words),
            None => (false, words),
        };
        if is_item || self.text.len() + words.len() > TEXT_BYTES_MAX {
            self.end();
        }
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        self.text.push_str(words);
    }

    fn end(&mut self) {
        let text = std::mem::take(&mut self.text);
        let text = text.trim();
        if text.is_empty() {
            return;
        }
        let above = self.headings.iter().map(|(_, words)| words.as_str());
        let above: Vec<&str> = above.collect();
        let id = hashed(&[&above.join("\0"), text]);
        let words = match above.is_empty() {
            true => text.to_owned(),
            false => format!("{}: {text}", above.join(", ")),
        };
        (self.each)(Found::Item(Item::new(What::Memory, id, words)));
    }
}

fn heading(line: &str) -> Option<(usize, String)> {
    let level = line.bytes().take_while(|byte| *byte == b'#').count();
    let words = line.get(level..)?.strip_prefix(' ')?.trim().trim_end_matches('#').trim_end();
    let is_heading = (1..=6).contains(&level) && !words.is_empty();
    is_heading.then(|| (level, text::shortened(words, HEADING_CHARS_MAX)))
}

/// The words of a list item, without its bullet, number or box.
fn item(line: &str) -> Option<&str> {
    let bullet = ["- ", "* ", "+ "].into_iter().find_map(|bullet| line.strip_prefix(bullet));
    let numbered = || {
        let digits = line.bytes().take_while(u8::is_ascii_digit).count();
        let rest = line.get(digits..).filter(|_| (1..=9).contains(&digits))?;
        rest.strip_prefix(". ").or_else(|| rest.strip_prefix(") "))
    };
    let words = bullet.or_else(numbered)?.trim_start();
    let boxes = ["[ ] ", "[x] ", "[X] "];
    Some(boxes.into_iter().find_map(|it| words.strip_prefix(it)).unwrap_or(words))
}

#[cfg(test)]
mod tests {
    use super::super::report::{in_short, without_ids};
    use super::*;

    #[test]
    fn items_and_paragraphs_stand_under_their_headings() {
        let sample = include_str!("../../../tests/data/imports/notes.md");
        let mut found = Vec::new();
        read(sample.as_bytes(), &mut |it| found.push(it)).expect("a text");
        let expected = [
            "memory - - About me: I live in Lisbon and work as a nurse.",
            "memory - - About me, Food: Allergic to peanuts",
            "memory - - About me, Food: Likes green tea more than coffee",
            "memory - - About me, Family: Sister Ines lives in Porto",
            "- tool call or output",
        ];
        assert_eq!(without_ids(&in_short(&found)), expected);
    }
}

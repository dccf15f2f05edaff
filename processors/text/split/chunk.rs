//! Cuts cleaned text into chunks that the encoder can read whole.
//!
//! 1. Cut at empty lines into blocks. Empty lines inside fenced code do not count.
//! 2. Join blocks that are short beyond doubt (fewer bytes than `tokens_min`), so that thousands of
//!    one-line blocks are not counted one by one.
//! 3. Count the tokens of each block. One that fits is a piece.
//! 4. Cut a block that does not fit into sentences and fences, halve whatever is still too long,
//!    and pack the parts into pieces of about equal size.
//! 5. Join a piece of fewer than `tokens_min` tokens with the next one, as a heading belongs to the
//!    text below; the last one, or one that does not fit there, joins the piece before.
//!
//! For example, in words for tokens, with `tokens_min` 1 and `tokens_max` 6: "One two. Three four!
//! Five six? Seven eight." has 8, needs two pieces of about 4, and becomes "One two. Three four!"
//! and "Five six? Seven eight."
//!
//! Cost: every byte is counted at most twice, except that a single sentence or line that is too
//! long is counted once more per halving.

use super::Options;
use super::clean::Fence;
use std::ops::Range;
use unicode_segmentation::UnicodeSegmentation;

/// Cuts `text` into chunks of at most `tokens_max` tokens.
///
/// Order matters: blocks are cut before short pieces are joined, because an empty line is the best
/// sign of the end of a thought.
pub fn chunks<'a>(
    text: &'a str,
    options: &Options,
    count_tokens: &dyn Fn(&str) -> usize,
) -> Vec<&'a str> {
    let measure =
        Measure { text, min: options.tokens_min, max: options.tokens_max.max(1), count_tokens };
    let blocks = measure.surely_short_joined(blocks(text));
    let pieces = blocks.into_iter().flat_map(|block| measure.fitting(block)).collect();
    measure
        .short_joined(pieces)
        .into_iter()
        .map(|piece| text[piece.range].trim())
        .filter(|chunk| !chunk.is_empty())
        .collect()
}

/// A range of the text with the number of tokens.
struct Piece {
    range: Range<usize>,
    tokens: usize,
}

/// The text with the limits in tokens.
struct Measure<'a> {
    text: &'a str,
    min: usize,
    max: usize,
    count_tokens: &'a dyn Fn(&str) -> usize,
}

impl Measure<'_> {
    /// Counts the tokens of a range. A text of at most `max` bytes is not counted, because no
    /// tokenizer makes more tokens than bytes: most turns are such a single piece.
    fn piece(&self, range: Range<usize>) -> Piece {
        let is_all = range.len() == self.text.len();
        let tokens = if is_all && range.len() <= self.max {
            range.len()
        } else {
            (self.count_tokens)(&self.text[range.clone()])
        };
        Piece { range, tokens }
    }

    /// Joins neighbours whose bytes already show that they are short, without counting tokens.
    fn surely_short_joined(&self, ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
        let mut joined: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match joined.last_mut() {
                Some(last) if last.len() < self.min && range.end - last.start <= self.max => {
                    last.end = range.end
                }
                _ => joined.push(range),
            }
        }
        joined
    }

    /// Returns the block as one piece, or a block that is too long as several pieces of about equal
    /// size.
    fn fitting(&self, block: Range<usize>) -> Vec<Piece> {
        let whole = self.piece(block.clone());
        if whole.tokens <= self.max {
            return vec![whole];
        }
        let atoms = self.surely_short_joined(self.atoms(block));
        let mut sized = Vec::with_capacity(atoms.len());
        for atom in atoms {
            self.halved(atom, &mut sized);
        }
        self.packed(sized)
    }

    /// Cuts a block into sentences and fences. A fence that is too long by itself is cut into
    /// lines.
    fn atoms(&self, block: Range<usize>) -> Vec<Range<usize>> {
        let mut atoms = Vec::new();
        for (range, code) in code_and_prose(self.text, block) {
            let part = &self.text[range.clone()];
            if !code {
                push_parts(&mut atoms, range.start, part.split_sentence_bounds());
            } else if range.len() > self.max && self.piece(range.clone()).tokens > self.max {
                push_parts(&mut atoms, range.start, part.split_inclusive('\n'));
            } else {
                atoms.push(range);
            }
        }
        atoms
    }

    /// Halves a range until each part fits, and appends the parts to `pieces`.
    fn halved(&self, range: Range<usize>, pieces: &mut Vec<Piece>) {
        let piece = self.piece(range.clone());
        match middle(&self.text[range.clone()]) {
            Some(at) if piece.tokens > self.max => {
                self.halved(range.start..range.start + at, pieces);
                self.halved(range.start + at..range.end, pieces);
            }
            _ => pieces.push(piece),
        }
    }

    /// Packs atoms into the smallest possible number of pieces, filled about equally instead of
    /// full ones and a remainder.
    fn packed(&self, atoms: Vec<Piece>) -> Vec<Piece> {
        let total: usize = atoms.iter().map(|atom| atom.tokens).sum();
        let wanted = total.div_ceil(total.div_ceil(self.max).max(1));
        join(atoms, |last, next| last.tokens < wanted && last.tokens + next.tokens <= self.max)
    }

    /// Joins each short piece with the next one, as a heading belongs to the text below. The last
    /// one, or one that does not fit there, joins the piece before.
    fn short_joined(&self, pieces: Vec<Piece>) -> Vec<Piece> {
        let forward = join(pieces, |last, next| last.tokens < self.min && self.fit(last, next));
        join(forward, |last, next| next.tokens < self.min && self.fit(last, next))
    }

    fn fit(&self, a: &Piece, b: &Piece) -> bool {
        a.tokens + b.tokens <= self.max
    }
}

/// Joins each piece to the one before if `belong` returns true for the two.
fn join(pieces: Vec<Piece>, belong: impl Fn(&Piece, &Piece) -> bool) -> Vec<Piece> {
    let mut joined: Vec<Piece> = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match joined.last_mut() {
            Some(last) if belong(last, &piece) => {
                last.range.end = piece.range.end;
                last.tokens += piece.tokens;
            }
            _ => joined.push(piece),
        }
    }
    joined
}

/// Cuts the text after each empty line outside of fenced code.
fn blocks(text: &str) -> Vec<Range<usize>> {
    let mut blocks = Vec::new();
    let mut fence = Fence::default();
    let mut start = 0;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        at += line.len();
        if !fence.holds(line) && line.trim().is_empty() {
            blocks.push(start..at);
            start = at;
        }
    }
    blocks.push(start..at);
    blocks
}

/// Cuts a block into alternating runs of prose (false) and fenced code (true).
pub(super) fn code_and_prose(text: &str, block: Range<usize>) -> Vec<(Range<usize>, bool)> {
    let mut runs: Vec<(Range<usize>, bool)> = Vec::new();
    let mut fence = Fence::default();
    let mut at = block.start;
    for line in text[block].split_inclusive('\n') {
        let is_code = fence.holds(line);
        let end = at + line.len();
        match runs.last_mut() {
            Some((range, run_is_code)) if *run_is_code == is_code => range.end = end,
            _ => runs.push((at..end, is_code)),
        }
        at = end;
    }
    runs
}

fn push_parts<'a>(
    ranges: &mut Vec<Range<usize>>,
    mut start: usize,
    parts: impl Iterator<Item = &'a str>,
) {
    for part in parts {
        ranges.push(start..start + part.len());
        start += part.len();
    }
}

/// Returns the byte offset at which to cut `text` in two: after the last white space in the second
/// quarter of the text, or between two characters in the middle. `None` for a single character.
fn middle(text: &str) -> Option<usize> {
    let half = match text.floor_char_boundary(text.len() / 2) {
        0 => text.ceil_char_boundary(text.len() / 2),
        half => half,
    };
    let near = &text[text.floor_char_boundary(half / 2)..half];
    let space = near.rfind(char::is_whitespace).map(|at| half - near.len() + at);
    let cut =
        space.and_then(|at| text[at..].chars().next().map(|c| at + c.len_utf8())).unwrap_or(half);
    (cut > 0 && cut < text.len()).then_some(cut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn words(text: &str) -> usize {
        text.split_whitespace().count()
    }

    fn check(text: &str, (tokens_min, tokens_max): (usize, usize), expected: &[&str]) {
        assert_eq!(
            chunks(text, &Options { tokens_min, tokens_max, ..Options::default() }, &words),
            expected,
            "{text:?}"
        );
    }

    /// Holds memory-spec 3.
    #[test]
    fn text_is_cut_at_empty_lines() {
        check(
            "one two three\nfour\n\nfive six seven",
            (2, 9),
            &["one two three\nfour", "five six seven"],
        );
    }

    /// Holds memory-spec 5, 45.
    #[test]
    fn short_pieces_join_a_neighbour() {
        check(
            "# Title\n\none two three\n\nfour five six",
            (3, 9),
            &["# Title\n\none two three", "four five six"],
        );
        check("one two three\n\nend", (3, 9), &["one two three\n\nend"]);
        check("one two three four\n\nend", (3, 4), &["one two three four", "end"]);
    }

    /// Holds memory-spec 4, 46.
    #[test]
    fn a_long_block_is_cut_at_sentence_ends_into_pieces_of_like_size() {
        check(
            "One two. Three four! Five six? Seven eight.",
            (1, 6),
            &["One two. Three four!", "Five six? Seven eight."],
        );
        check("one two three four five six", (1, 3), &["one two three", "four five six"]);
        // By the Unicode rules a small letter begins a sentence behind "!" and "?", not behind ".".
        check("One! two three four.", (1, 3), &["One!", "two three four."]);
        check("One? two three four.", (1, 3), &["One?", "two three four."]);
        check("One. two three four.", (1, 3), &["One. two", "three four."]);
    }

    /// Holds memory-spec 45.
    #[test]
    fn paragraphs_of_any_length_become_chunks_of_50_to_300_words() {
        let lengths = [3, 700, 20, 49, 301, 50, 120, 8, 8, 260, 40, 90];
        let sentence = "We moved the red boats to Porto in May. ";
        let paragraphs = lengths.map(|length| {
            let taken = sentence.split_whitespace().cycle().take(length);
            taken.collect::<Vec<_>>().join(" ")
        });
        let text = paragraphs.join("\n\n");
        let options = Options { tokens_min: 50, tokens_max: 300, ..Options::default() };
        let found: Vec<usize> = chunks(&text, &options, &words).into_iter().map(words).collect();
        assert_eq!(found.iter().sum::<usize>(), lengths.iter().sum::<usize>());
        assert!(found.iter().all(|length| (50..=300).contains(length)), "{found:?}");
    }

    /// Holds memory-spec 46.
    #[test]
    fn fenced_code_is_cut_only_if_it_is_too_long_by_itself() {
        let code = "```\nlet a = 1. B = 2\n\nlet c = 3\n```";
        check(
            &format!("Look at this now.\n{code}\nIt works. Does it not?"),
            (1, 14),
            &["Look at this now.", code, "It works. Does it not?"],
        );
        check("```\na b c\nd e f\ng h i\n```", (1, 7), &["```\na b c\nd e f", "g h i\n```"]);
    }

    #[test]
    fn chinese_and_japanese_are_cut_at_their_own_sentence_ends() {
        let options = Options { tokens_min: 1, tokens_max: 8, ..Options::default() };
        let found = chunks(
            "我住在里斯本。我喜欢喝茶。東京に住んでいます。",
            &options,
            &|text| text.chars().count(),
        );
        assert_eq!(found.first(), Some(&"我住在里斯本。"));
        assert!(found.iter().all(|chunk| chunk.chars().count() <= 8), "{found:?}");
    }

    #[test]
    fn counting_is_bounded_for_the_worst_texts() {
        for text in ["a\n\n", "a. ", "a", "```\na\n", "字", " ", "```\n\n```\n\n"] {
            let text = text.repeat(65_536 / text.len());
            let (calls, bytes) = (Cell::new(0), Cell::new(0));
            chunks(
                &text,
                &Options { tokens_min: 50, tokens_max: 300, ..Options::default() },
                &|part: &str| {
                    calls.set(calls.get() + 1);
                    bytes.set(bytes.get() + part.len());
                    part.len()
                },
            );
            assert!(calls.get() < 4_000, "{} counts of {:?}", calls.get(), &text[..6]);
            assert!(bytes.get() < 16 * text.len(), "{} bytes of {:?}", bytes.get(), &text[..6]);
        }
    }
}

//! Cleaned text to pieces the encoder can read whole: cut at empty lines, then at sentence ends, short neighbours joined.
//! Knows nothing of what the text says.

use super::Options;
use super::clean::Fence;
use std::ops::Range;
use unicode_segmentation::UnicodeSegmentation;

/// Order matters: whoever joins before cutting would lose the empty lines, which say best where a thought ends.
///
/// Every byte is counted at most twice, and only one that is too long in one sentence or line is counted again per halving.
pub fn chunks<'a>(
    text: &'a str,
    options: &Options,
    count_tokens: &dyn Fn(&str) -> usize,
) -> Vec<&'a str> {
    let measure =
        Measure { text, min: options.tokens_min, max: options.tokens_max.max(1), count_tokens };
    let blocks = measure.surely_short_joined(blocks(text));
    let pieces = blocks.into_iter().flat_map(|block| measure.fitting(block)).collect();
    let chunks = measure.short_joined(pieces).into_iter().map(|piece| text[piece.range].trim());
    chunks.filter(|chunk| !chunk.is_empty()).collect()
}

/// A range of the text and its tokens.
struct Piece {
    range: Range<usize>,
    tokens: usize,
}

struct Measure<'a> {
    text: &'a str,
    min: usize,
    max: usize,
    count_tokens: &'a dyn Fn(&str) -> usize,
}

impl Measure<'_> {
    fn piece(&self, range: Range<usize>) -> Piece {
        // No tokenizer makes more tokens than bytes: most turns are one piece whose exact count would change nothing.
        let is_all = range.len() == self.text.len();
        let tokens = if is_all && range.len() <= self.max {
            range.len()
        } else {
            (self.count_tokens)(&self.text[range.clone()])
        };
        Piece { range, tokens }
    }

    /// Joins neighbours that need no counting to be known as short, so that thousands of them cost no thousand counts.
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

    /// The block itself, or if that is too long its sentences and code packed into pieces of like size.
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

    /// Sentences, and each fence as one; the lines of a fence that is too long by itself.
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

    fn halved(&self, range: Range<usize>, found: &mut Vec<Piece>) {
        let piece = self.piece(range.clone());
        match middle(&self.text[range.clone()]) {
            Some(at) if piece.tokens > self.max => {
                self.halved(range.start..range.start + at, found);
                self.halved(range.start + at..range.end, found);
            }
            _ => found.push(piece),
        }
    }

    /// Fills pieces to the size that makes all of them about equal, instead of full ones and a scrap.
    fn packed(&self, atoms: Vec<Piece>) -> Vec<Piece> {
        let total: usize = atoms.iter().map(|atom| atom.tokens).sum();
        let wanted = total.div_ceil(total.div_ceil(self.max).max(1));
        join(atoms, |last, next| last.tokens < wanted && last.tokens + next.tokens <= self.max)
    }

    /// A short piece goes with what follows, as a heading does; the last one, or one that does not fit there, with what is before.
    fn short_joined(&self, pieces: Vec<Piece>) -> Vec<Piece> {
        let fit = |a: &Piece, b: &Piece| a.tokens + b.tokens <= self.max;
        let forward = join(pieces, |last, next| last.tokens < self.min && fit(last, next));
        join(forward, |last, next| next.tokens < self.min && fit(last, next))
    }
}

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

/// Runs of lines between empty lines; an empty line in code does not count.
fn blocks(text: &str) -> Vec<Range<usize>> {
    let (mut blocks, mut fence, mut start, mut at) = (Vec::new(), Fence::default(), 0, 0);
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

/// Alternating runs of prose and code.
fn code_and_prose(text: &str, block: Range<usize>) -> Vec<(Range<usize>, bool)> {
    let mut runs: Vec<(Range<usize>, bool)> = Vec::new();
    let (mut fence, mut at) = (Fence::default(), block.start);
    for line in text[block].split_inclusive('\n') {
        let (code, end) = (fence.holds(line), at + line.len());
        match runs.last_mut() {
            Some((range, same)) if *same == code => range.end = end,
            _ => runs.push((at..end, code)),
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

/// Where to cut in two: after the space nearest before the middle if the half before it has any, else between two characters.
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
        assert_eq!(chunks(text, &Options { tokens_min, tokens_max }, &words), expected, "{text:?}");
    }

    #[test]
    fn an_empty_line_is_the_first_border() {
        check(
            "one two three\nfour\n\nfive six seven",
            (2, 9),
            &["one two three\nfour", "five six seven"],
        );
    }

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

    #[test]
    fn too_long_is_cut_at_sentence_ends_into_like_sizes() {
        check(
            "One two. Three four! Five six? Seven eight.",
            (1, 6),
            &["One two. Three four!", "Five six? Seven eight."],
        );
        check("one two three four five six", (1, 3), &["one two three", "four five six"]);
    }

    #[test]
    fn code_is_cut_only_if_it_is_too_long_alone() {
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
        let options = Options { tokens_min: 1, tokens_max: 8 };
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
            let count = |part: &str| {
                calls.set(calls.get() + 1);
                bytes.set(bytes.get() + part.len());
                part.len()
            };
            chunks(&text, &Options { tokens_min: 50, tokens_max: 300 }, &count);
            assert!(calls.get() < 4_000, "{} counts of {:?}", calls.get(), &text[..6]);
            assert!(bytes.get() < 16 * text.len(), "{} bytes of {:?}", bytes.get(), &text[..6]);
        }
    }
}

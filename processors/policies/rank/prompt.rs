//! Builds the prompt block: chooses the memories that fit the token budget and writes them in the
//! order of their sections.
//!
//! 1. If all memories fit, the block holds all of them; this is nearly always so.
//! 2. Else each section takes memories up to its share of the budget, in ranked order.
//! 3. Memories that still fit take the rest of the budget.
//! 4. While the whole block exceeds the budget, drop memories from the end: its tokens may be more
//!    than the sum of the parts.
//!
//! The caller passes the function that counts tokens. Memories are never cut.

use super::Template;
use super::frame::Frame;
use domain::{Format, Recall};
use kernel::Policy;
use kernel::policy::Room;
use kernel::ranking::PromptBlock;
use kernel::ranking::Ranked;
use std::collections::BTreeMap;

/// A text with more bytes than this for each token of the budget will not fit: prose has about 5.
const BYTES_A_TOKEN: usize = 8;

/// Builds the block in the requested format. Without a requested format, the template of the profile
/// or the format of its policy is used, if there is one.
pub fn block(
    ranked: &[Ranked],
    asked: &Recall,
    template: Option<&Template>,
    policy: &dyn Policy,
    room: &Room<'_>,
) -> PromptBlock {
    let is_open = asked.unsaid.format;
    if let Some(template) = template.filter(|_| is_open || asked.format == Format::Template) {
        return framed(ranked, &template.frame(), room);
    }
    let own = if is_open { policy.render(ranked, room) } else { None };
    own.unwrap_or_else(|| prompt(ranked, asked.format, room))
}

fn prompt(ranked: &[Ranked], format: Format, room: &Room<'_>) -> PromptBlock {
    Frame::of(format).map_or_else(PromptBlock::default, |frame| framed(ranked, &frame, room))
}

/// Builds the block in this frame. A memory that is too long is skipped, and shorter ones after it
/// use the tokens.
pub fn framed(ranked: &[Ranked], frame: &Frame, room: &Room<'_>) -> PromptBlock {
    if let Some(all) = all_of_them(ranked, frame, room) {
        return all;
    }
    let &Room { budget, count_tokens, .. } = room;
    let mut pieces = fitting(ranked, frame, room);
    loop {
        if pieces.is_empty() {
            return PromptBlock::default();
        }
        let text = frame.around(pieces.iter().map(|piece| (piece.section, piece.text.as_str())));
        let tokens = count_tokens(&text);
        if tokens <= budget {
            return PromptBlock { text, tokens, taken: places(&pieces), assembly: None };
        }
        drop_last(&mut pieces, tokens - budget);
    }
}

/// Returns the block with all memories if they fit. Counting each part first would take longer than
/// everything else in a recall except encoding.
fn all_of_them(ranked: &[Ranked], frame: &Frame, room: &Room<'_>) -> Option<PromptBlock> {
    let &Room { budget, count_tokens, .. } = room;
    let texts: Vec<(u8, String)> = in_sections(ranked, frame)
        .into_iter()
        .map(|place| ((frame.section)(&ranked[place]), frame.memory(&ranked[place])))
        .collect();
    let bytes: usize = texts.iter().map(|(_, text)| text.len()).sum();
    if ranked.is_empty() || bytes / BYTES_A_TOKEN > budget {
        return None;
    }
    let text = frame.around(texts.iter().map(|(section, text)| (*section, text.as_str())));
    let tokens = count_tokens(&text);
    let taken = (0..ranked.len()).collect();
    (tokens <= budget).then_some(PromptBlock { text, tokens, taken, assembly: None })
}

struct Piece {
    place: usize,
    section: u8,
    text: String,
    tokens: usize,
}

/// Chooses memories by the sum of their tokens, so that each memory is counted once. The whole may
/// still count more than the sum: the caller must check.
fn fitting(ranked: &[Ranked], frame: &Frame, room: &Room<'_>) -> Vec<Piece> {
    let &Room { budget, count_tokens, .. } = room;
    let around = count_tokens(frame.opening).saturating_add(count_tokens(frame.closing));
    let budget = budget.saturating_sub(around);
    let mut waiting = pieces(ranked, frame, count_tokens);
    let limits = limits(&waiting, frame, budget);
    let (mut taken, mut left, mut used) =
        (Vec::<Piece>::new(), budget, BTreeMap::<u8, usize>::new());
    for is_shared in [true, false] {
        let mut rest = Vec::new();
        for piece in waiting {
            let begun = used.get(&piece.section).copied();
            let heading =
                if begun.is_some() { 0 } else { count_tokens(frame.heading(piece.section)) };
            let tokens = piece.tokens.saturating_add(heading);
            let used_then = begun.unwrap_or_default().saturating_add(tokens);
            if tokens > left || is_shared && used_then > limits[&piece.section] {
                rest.push(piece);
                continue;
            }
            left -= tokens;
            used.insert(piece.section, used_then);
            taken.push(Piece { tokens, ..piece });
        }
        waiting = rest;
    }
    taken.sort_by_key(|piece| (piece.section, piece.place));
    taken
}

fn pieces(ranked: &[Ranked], frame: &Frame, count_tokens: &dyn Fn(&str) -> usize) -> Vec<Piece> {
    let between = count_tokens(frame.between);
    in_sections(ranked, frame)
        .into_iter()
        .map(|place| {
            let section = (frame.section)(&ranked[place]);
            let text = frame.memory(&ranked[place]);
            let tokens = count_tokens(&text).saturating_add(between);
            Piece { place, section, text, tokens }
        })
        .collect()
}

/// Returns the limit of each section in the first round: its share of the budget, or all that the
/// other sections leave unused if that is more.
fn limits(waiting: &[Piece], frame: &Frame, budget: usize) -> BTreeMap<u8, usize> {
    let mut wanted = BTreeMap::<u8, usize>::new();
    for piece in waiting {
        let wanted = wanted.entry(piece.section).or_default();
        *wanted = wanted.saturating_add(piece.tokens);
    }
    let all = wanted.values().fold(0, |sum: usize, tokens| sum.saturating_add(*tokens));
    wanted
        .iter()
        .map(|(section, own)| {
            let share = (frame.share(*section) * budget as f32) as usize;
            (*section, share.max(budget.saturating_sub(all - own)))
        })
        .collect()
}

/// Returns the places of the memories by section, and in ranked order within each section.
fn in_sections(ranked: &[Ranked], frame: &Frame) -> Vec<usize> {
    let mut places: Vec<usize> = (0..ranked.len()).collect();
    places.sort_by_key(|place| (frame.section)(&ranked[*place]));
    places
}

/// Drops as many memories as the excess needs, so that the whole is not counted again for each one;
/// at least one, and at most half, so that one extreme count does not empty the block.
fn drop_last(pieces: &mut Vec<Piece>, excess: usize) {
    let fewest = pieces.len() / 2;
    let mut freed = 0usize;
    while let Some(piece) = pieces.pop() {
        freed = freed.saturating_add(piece.tokens);
        if freed >= excess || pieces.len() <= fewest {
            return;
        }
    }
}

fn places(pieces: &[Piece]) -> Vec<usize> {
    let mut places: Vec<usize> = pieces.iter().map(|piece| piece.place).collect();
    places.sort_unstable();
    places
}

#[cfg(test)]
mod tests {
    use super::super::samples::{MemoryMut as _, memory, room};
    use super::super::template::tests::tags;
    use super::*;
    use domain::Kind;
    use proptest::prelude::*;
    use std::cell::Cell;

    const FORMATS: [Format; 5] =
        [Format::Markdown, Format::Xml, Format::Compact, Format::Json, Format::None];

    fn ranked(kind: &str, content: &str) -> Ranked {
        let mut memory = memory(1, content);
        memory.kind = Kind::new(kind);
        Ranked::new(memory.into(), 1.0, false, vec![])
    }

    fn words(text: &str) -> usize {
        text.split_whitespace().count()
    }

    fn check(list: &[Ranked], budget: usize, expected: &str, taken: &[usize]) {
        let block = prompt(list, Format::Compact, &room(budget, &words));
        assert_eq!(
            (block.text.as_str(), block.taken.as_slice(), block.tokens),
            (expected, taken, words(expected))
        );
    }

    #[test]
    fn one_that_is_too_long_leaves_its_room_to_shorter_ones() {
        let list =
            [ranked("fact", "a b c"), ranked("fact", "a b c d e f g h"), ranked("fact", "z")];
        check(&list, 6, "[fact] a b c\n[fact] z\n", &[0, 2]);
        check(&list, 3, "[fact] z\n", &[2]);
        check(&list, 1, "", &[]);
    }

    #[test]
    fn wishes_come_first_and_summaries_last_but_taken_is_in_ranked_order() {
        let mut list = [
            ranked("summary", "s"),
            ranked("fact", "f"),
            ranked("preference", "p"),
            ranked("instruction", "i"),
        ];
        list[0].memory_mut().covers = vec![list[1].memory.id];
        check(
            &list,
            100,
            "[preference] p\n[instruction] i\n[fact] f\n[summary] s\n",
            &[0, 1, 2, 3],
        );
        list[2].superseded = true;
        check(
            &list,
            100,
            "[instruction] i\n[fact] f\n[preference] p\n[summary] s\n",
            &[0, 1, 2, 3],
        );
    }

    #[test]
    fn no_section_fills_a_block_that_others_want_a_part_of() {
        let mut list: Vec<Ranked> = (0..20).map(|_| ranked("preference", "p")).collect();
        list.extend((0..20).map(|_| ranked("fact", "f")));
        list.extend((0..20).map(|_| ranked("summary", "s")));
        let covered = vec![list[0].memory.id];
        list[40..].iter_mut().for_each(|one| one.memory_mut().covers = covered.clone());
        // .5, .35 and .15 of 40 words. A section that wants less leaves the rest to the others.
        fn block(list: &[Ranked]) -> Vec<usize> {
            prompt(list, Format::Compact, &room(40, &words)).taken
        }
        assert_eq!(block(&list), [0..10, 20..27, 40..43].into_iter().flatten().collect::<Vec<_>>());
        assert_eq!(block(&list[..40]), [0..13, 20..27].into_iter().flatten().collect::<Vec<_>>());
        assert_eq!(
            block(&list[18..]),
            [0..2, 2..17, 22..25].into_iter().flatten().collect::<Vec<_>>()
        );
        assert_eq!(block(&list[..20]), (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn what_others_have_no_use_for_is_no_limit() {
        let list = [ranked("fact", "a b c"), ranked("fact", "z"), ranked("preference", "p")];
        check(&list, 6, "[preference] p\n[fact] a b c\n", &[0, 2]);
    }

    #[test]
    fn nothing_remembered_is_no_block_at_all() {
        for format in FORMATS {
            assert_eq!(prompt(&[], format, &room(1000, &words)), PromptBlock::default());
        }
        assert_eq!(
            prompt(&[ranked("fact", "tea")], Format::None, &room(1000, &words)),
            PromptBlock::default()
        );
    }

    #[test]
    fn counting_stays_linear_even_when_the_whole_is_longer_than_its_parts() {
        let list: Vec<Ranked> = (0..500).map(|_| ranked("fact", "tea")).collect();
        let counted = Cell::new(0);
        let count = |text: &str| {
            counted.set(counted.get() + 1);
            text.lines().count().pow(2)
        };
        let block = prompt(&list, Format::Compact, &room(400, &count));
        assert!(block.tokens <= 400 && !block.taken.is_empty());
        assert!(counted.get() < 1100, "{} counts", counted.get());
    }

    proptest! {
        #[test]
        fn never_over_the_budget_never_cut_always_well_formed(
            contents in prop::collection::vec((any::<String>(), "(fact|preference|\\PC{0,9})", any::<bool>()), 0..12),
            budget in 0usize..400,
            which in 0usize..=FORMATS.len(),
            counting in 0usize..3,
        ) {
            let list: Vec<Ranked> = contents.iter().map(|(content, kind, old)| Ranked { superseded: *old, ..ranked(kind, content) }).collect();
            let count: &dyn Fn(&str) -> usize = match counting {
                0 => &|text| text.chars().count().div_ceil(4),
                1 => &words,
                _ => &|text| text.len() + text.lines().count().pow(2),
            };
            let block = match FORMATS.get(which) {
                Some(format) => prompt(&list, *format, &room(budget, count)),
                None => framed(&list, &tags().frame(), &room(budget, count)),
            };
            prop_assert!(block.tokens <= budget);
            prop_assert!(block.taken.is_sorted());
            if block.text.is_empty() {
                prop_assert_eq!(block, PromptBlock::default());
            } else {
                prop_assert_eq!(block.tokens, count(&block.text));
                let found = match FORMATS.get(which) {
                    Some(format) => super::super::frame::tests::memories_in(&block.text, *format),
                    None => super::super::template::tests::memories_in(&block.text),
                };
                prop_assert_eq!(found, block.taken.len());
            }
        }
    }
}

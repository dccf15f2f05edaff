//! Replaces quoted and pasted passages of a turn by a placeholder, so that only the user's own
//! words can be a wish: quotations, code, block quotes, lists, logs, chat logs and letters.

use std::ops::Range;

/// Stands for a passage that was replaced. No phrase contains it.
pub const PASSAGE: char = '\u{fffc}';

/// Opening marks, each with the marks that close it. „…“ and »…« are German, “…” is English.
const QUOTATIONS: [(char, &[char]); 9] = [
    ('"', &['"']),
    ('“', &['”', '“', '"']),
    ('„', &['“', '”', '"']),
    ('«', &['»']),
    ('»', &['«', '»']),
    ('‹', &['›']),
    ('「', &['」']),
    ('『', &['』']),
    ('`', &['`']),
];
const FENCE: &str = "```";
/// A quotation in single marks is short. The bound keeps the search linear, because each apostrophe
/// may begin one.
const SINGLE_QUOTATION_BYTES_MAX: usize = 200;
/// Words of a label before a colon: "Tom H: ok", "From: Ada".
const LABEL_WORDS_MAX: usize = 3;
/// Words of a salutation or a closing, which end in a comma: "Dear all,".
const SALUTATION_WORDS_MAX: usize = 4;

/// Returns the user's own words. `is_wish` distinguishes the label of a wish ("off the record: …")
/// from that of a speaker.
pub fn own_words(text: &str, is_wish: impl Fn(&str) -> bool) -> String {
    let text = without_quotations(text);
    if !text.contains('\n') {
        return text;
    }
    let lines: Vec<&str> = text.lines().collect();
    let labels = lines.iter().filter(|line| label(line).is_some_and(|said| !is_wish(said))).count();
    let is_pasted = |line: &&str| {
        let is_labelled = labels > 1 && label(line).is_some_and(|said| !is_wish(said));
        begins_like_a_paste(line) || is_labelled || lines.len() > 2 && is_salutation(line, &is_wish)
    };
    let is_verse = verse(&lines);
    let is_pasted = |(place, line): (usize, &&str)| is_pasted(line) || is_verse.contains(&place);
    let Some(first) = lines.iter().enumerate().position(is_pasted) else { return text };
    let last = lines.iter().enumerate().rposition(is_pasted).unwrap_or(first);
    let rest = &lines[last..];
    let end = last + rest.iter().position(|line| line.trim().is_empty()).unwrap_or(rest.len());
    format!("{}\n{PASSAGE}\n{}", lines[..first].join("\n"), lines[end..].join("\n"))
}

/// The lines of the first paragraph of two or more lines beside other paragraphs, as verse has.
fn verse(lines: &[&str]) -> Range<usize> {
    let mut at = 0;
    for paragraph in lines.split(|line| line.trim().is_empty()) {
        if paragraph.len() > 1 && paragraph.len() < lines.len() {
            return at..at + paragraph.len();
        }
        at += paragraph.len() + 1;
    }
    0..0
}

/// Replaces quotations and code. A mark that is not closed stays, and is no part of any phrase.
fn without_quotations(text: &str) -> String {
    let mut own = String::with_capacity(text.len());
    let mut rest = text;
    // Marks that nothing closes from here to the end. Each is searched once.
    let mut unclosed = String::new();
    while let Some(c) = rest.chars().next() {
        let before = own.chars().next_back();
        if let Some(inside) = rest.strip_prefix(FENCE) {
            own.push(PASSAGE);
            rest = inside.find(FENCE).map_or("", |at| &inside[at + FENCE.len()..]);
        } else if !unclosed.contains(c)
            && let Some(length) = quotation(rest, c, before)
        {
            own.push(PASSAGE);
            rest = &rest[length..];
        } else {
            if QUOTATIONS.iter().any(|(opening, _)| *opening == c) && !unclosed.contains(c) {
                unclosed.push(c);
            }
            own.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    own
}

/// The length of the quotation that begins with `c`.
fn quotation(text: &str, c: char, before: Option<char>) -> Option<usize> {
    let inside = &text[c.len_utf8()..];
    if matches!(c, '\'' | '‘' | '’') {
        return single_quotation(inside, before).map(|end| c.len_utf8() + end);
    }
    let (_, closing) = QUOTATIONS.iter().find(|(opening, _)| *opening == c)?;
    let end = inside.find(*closing)?;
    let closed_by = inside[end..].chars().next()?;
    Some(c.len_utf8() + end + closed_by.len_utf8())
}

/// Where a quotation in single marks ends. Such a mark is an apostrophe beside a letter: "don't",
/// "the boys' room".
fn single_quotation(inside: &str, before: Option<char>) -> Option<usize> {
    let begins = inside.chars().next().is_some_and(char::is_alphanumeric);
    if !begins || before.is_some_and(char::is_alphanumeric) {
        return None;
    }
    let near = &inside[..inside.floor_char_boundary(SINGLE_QUOTATION_BYTES_MAX)];
    let line = near.lines().next()?;
    line.match_indices(['\'', '’']).find_map(|(at, mark)| {
        let end = at + mark.len();
        let is_closed = !inside[end..].chars().next().is_some_and(char::is_alphanumeric);
        is_closed.then_some(end)
    })
}

/// True for a line of a list, a log, a block quote, code, a table or a heading.
fn begins_like_a_paste(line: &str) -> bool {
    let trimmed = line.trim_start();
    let digits = trimmed.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_numbered = digits.len() < trimmed.len() && digits.starts_with(['.', ')', ':']);
    let is_indented = line.starts_with("  ") || line.starts_with('\t');
    let mut marks = ["- ", "* ", "+ ", "• ", "– ", "— ", "//", "/*", "--"].into_iter();
    !trimmed.is_empty()
        && (is_indented
            || is_numbered
            || trimmed.starts_with(['>', '♪', '[', '#', '|', '<', '{', '}', '$', '・'])
            || marks.any(|mark| trimmed.starts_with(mark)))
}

/// The label of a line "label: text".
fn label(line: &str) -> Option<&str> {
    let (label, said) = line.split_once([':', '：'])?;
    let words = label.split_whitespace().count();
    let is_label = (1..=LABEL_WORDS_MAX).contains(&words) && !said.trim().is_empty();
    is_label.then_some(label)
}

fn is_salutation(line: &str, is_wish: impl Fn(&str) -> bool) -> bool {
    let line = line.trim_end();
    line.ends_with(',') && line.split_whitespace().count() <= SALUTATION_WORDS_MAX && !is_wish(line)
}

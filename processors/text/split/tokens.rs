//! Splits a clause into tokens (numbers, words, and other characters one by one), for the parsers
//! of numbers and dates. "$1,200.50, not 3." becomes `$` `1,200.50` `,` `not` `3` `.`.

#[derive(Clone, Copy, Debug)]
pub struct Token<'a> {
    pub text: &'a str,
    pub start: usize,
    pub end: usize,
}

/// Tokenizes lower-case text.
pub fn tokens(plain: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut start = 0;
    while let Some(first) = plain[start..].chars().next() {
        let rest = &plain[start..];
        let length = if first.is_ascii_digit() {
            number_length(rest)
        } else if first.is_alphabetic() {
            rest.find(|c: char| !c.is_alphanumeric() && !matches!(c, '\'' | '_'))
                .unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        if !first.is_whitespace() {
            tokens.push(Token { text: &rest[..length], start, end: start + length });
        }
        start += length;
    }
    tokens
}

/// Returns the length of the number at the beginning. Commas and points are part of a number if a
/// digit follows.
fn number_length(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    (0..)
        .find(|&at| {
            let is_part = is_digit_at(bytes, at)
                || matches!(bytes.get(at), Some(b',' | b'.')) && is_digit_at(bytes, at + 1);
            !is_part
        })
        .unwrap_or(bytes.len())
}

fn is_digit_at(bytes: &[u8], at: usize) -> bool {
    bytes.get(at).is_some_and(u8::is_ascii_digit)
}

/// Returns the text of a token, empty behind the last one.
pub fn text_at<'a>(tokens: &[Token<'a>], at: usize) -> &'a str {
    tokens.get(at).map_or("", |token| token.text)
}

/// Returns the text of the token `back` places before `at`, empty before the first one.
pub fn before<'a>(tokens: &[Token<'a>], at: usize, back: usize) -> &'a str {
    at.checked_sub(back).map_or("", |at| tokens[at].text)
}

/// Returns true if no space separates this token from the one before.
pub fn touches(tokens: &[Token<'_>], at: usize) -> bool {
    at > 0 && at < tokens.len() && tokens[at - 1].end == tokens[at].start
}

/// Parses a number in digits or in words.
pub fn value(token: &str) -> Option<f64> {
    if token.starts_with(|c: char| c.is_ascii_digit()) {
        token.replace(',', "").parse().ok()
    } else {
        counting(token)
    }
}

/// Parses a number word. "One" is left out, because the word is mostly a pronoun.
pub fn counting(word: &str) -> Option<f64> {
    Some(match word {
        "two" => 2.0,
        "three" => 3.0,
        "four" => 4.0,
        "five" => 5.0,
        "six" => 6.0,
        "seven" => 7.0,
        "eight" => 8.0,
        "nine" => 9.0,
        "ten" => 10.0,
        "eleven" => 11.0,
        "twelve" => 12.0,
        "thirteen" => 13.0,
        "fourteen" => 14.0,
        "fifteen" => 15.0,
        "sixteen" => 16.0,
        "seventeen" => 17.0,
        "eighteen" => 18.0,
        "nineteen" => 19.0,
        "twenty" => 20.0,
        "thirty" => 30.0,
        "forty" => 40.0,
        "fifty" => 50.0,
        "sixty" => 60.0,
        "seventy" => 70.0,
        "eighty" => 80.0,
        "ninety" => 90.0,
        "hundred" => 100.0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_and_points_belong_to_a_number_if_a_digit_follows() {
        fn texts(plain: &str) -> Vec<String> {
            tokens(plain).iter().map(|token| token.text.to_owned()).collect()
        }
        assert_eq!(texts("$1,200.50, not 3."), ["$", "1,200.50", ",", "not", "3", "."]);
        assert_eq!(
            texts("i'm at 5km/day – größe 7"),
            ["i'm", "at", "5", "km", "/", "day", "–", "größe", "7"]
        );
        assert_eq!(texts(" "), [""; 0]);
    }

    #[test]
    fn small_numbers_may_be_words() {
        assert_eq!(
            ["12", "1,200", "twelve", "forty", "seventy", "eighty", "one", "1.2.3", "x"].map(value),
            [
                Some(12.0),
                Some(1200.0),
                Some(12.0),
                Some(40.0),
                Some(70.0),
                Some(80.0),
                None,
                None,
                None
            ]
        );
    }
}

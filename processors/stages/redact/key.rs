//! What opens doors: private keys, JSON web tokens, bearer tokens, and keys that their issuers gave a shape of its own.

use super::{accepted, digits};
use regex::{Captures, Regex};
use std::ops::Range;
use std::sync::LazyLock;

const FIXED: &str = "a fixed pattern, compiled by the tests";

/// A pattern for each sort, the first to its own end line; where that is missing, as far as the lines look like a key. Order matters not: one
/// pattern for all of them would read to the end of the text behind each PuTTY key without private lines.
static PRIVATE_KEYS: LazyLock<[Regex; 3]> = LazyLock::new(|| {
    [
        r"(?xs)
          -----BEGIN\ [A-Z0-9\ ]*PRIVATE\ KEY(?:\ BLOCK)?-----
            (?: (?: [^-] | -{1,4}[^-] )*? -----END\ [A-Z0-9\ ]*PRIVATE\ KEY(?:\ BLOCK)?-----
              | (?: (?: \s | \\[nr] )* [A-Za-z0-9+/]{24,} )+ (?: (?: \s | \\[nr] )* [A-Za-z0-9+/]* =+ )? )",
        r"(?xs)
          PuTTY-User-Key-File-[0-9] .*? Private-Lines:\ [0-9]+ (?: \s+ [A-Za-z0-9+/]{24,} )+ (?: \s+ [A-Za-z0-9+/]* =+ )?",
        r"AGE-SECRET-KEY-1[0-9A-Z]{50,}",
    ]
    .map(|pattern| Regex::new(pattern).expect(FIXED))
});

/// Header, payload and signature, the first an object in base64; encrypted ones have five parts.
static JWT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?-u:\b)eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*|\.\.[A-Za-z0-9_-]+)(?:\.[A-Za-z0-9_-]+){0,2}")
        .expect(FIXED)
});

/// Behind the header's name and scheme nearly anything is a token; behind the word alone it may be the next word.
static BEARER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r#"(?xi)
          authorization ["']? \s* [:=] \s* ["']? (?: bearer | basic | token | apikey ) \s+
            (?P<told> [A-Z0-9_~+/-]+ (?: \. [A-Z0-9_~+/-]+ )* =* )
        | (?: authorization ["']? \s* [:=] \s* | (?-u:\b) bearer \s* :? \s+ ) ["']?
            (?P<secret> [A-Z0-9_~+/-]+ (?: \. [A-Z0-9_~+/-]+ )* =* )
        "#,
    )
    .expect(FIXED)
});

/// One shape a line, with its issuer. Public halves (`pk_live_`, `AC…`) are no secrets.
const SHAPES: &[&str] = &[
    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16,}", // AWS
    r"gh[pousr]_[A-Za-z0-9]{30,255}|github_pat_[A-Za-z0-9_]{22,255}", // GitHub
    r"gl(?:pat|ptt|dt|rt|cbt|soat|agent)-[A-Za-z0-9_-]{20,}(?:\.[A-Za-z0-9_-]+)*", // GitLab
    r"sk-(?:[a-z]+[0-9]*-)*[A-Za-z0-9_-]{20,}", // OpenAI, Anthropic, OpenRouter, DeepSeek
    r"gsk_[A-Za-z0-9]{40,}|xai-[A-Za-z0-9]{40,}|pplx-[A-Za-z0-9]{40,}", // Groq, xAI, Perplexity
    r"hf_[A-Za-z0-9]{30,}|r8_[A-Za-z0-9]{37,}", // Hugging Face, Replicate
    r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/=]{20,}", // Stripe
    r"xox[abeoprs]-[0-9][A-Za-z0-9-]{9,}|xapp-[0-9]-[A-Za-z0-9-]{20,}", // Slack
    r"AIza[A-Za-z0-9_-]{35,}|GOCSPX-[A-Za-z0-9_-]{28,}|ya29\.[A-Za-z0-9_-]{20,}", // Google
    r"SK[0-9a-f]{32}",                       // Twilio
    r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}", // SendGrid
    r"key-[0-9a-f]{32}|[0-9a-f]{32}-us[0-9]{1,2}", // Mailgun, Mailchimp
    r"npm_[A-Za-z0-9]{36,}|pypi-[A-Za-z0-9_-]{50,}|rubygems_[0-9a-f]{48}|dckr_pat_[A-Za-z0-9_-]{27,}", // registries
    r"dapi[0-9a-f]{32}|do[opr]_v1_[0-9a-f]{64}|HRKU-[A-Za-z0-9_-]{36,}", // Databricks, DigitalOcean, Heroku
    r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}|sq0(?:atp|csp)-[A-Za-z0-9_-]{22,43}", // Shopify, Square
    r"[0-9]{8,10}:AA[A-Za-z0-9_-]{30,}",                                 // Telegram
    r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}", // Discord
    r"glsa_[A-Za-z0-9_]{32,}|glc_[A-Za-z0-9+/=]{32,}|sntry[su]_[A-Za-z0-9+/=_-]{40,}", // Grafana, Sentry
    r"lin_api_[A-Za-z0-9]{32,}|ntn_[A-Za-z0-9]{40,}|figd_[A-Za-z0-9_-]{36,}|PMAK-[0-9a-f]{24}-[0-9a-f]{34}", // Linear, Notion, Figma, Postman
    r"hv[sbr]\.[A-Za-z0-9_-]{24,}|dp\.(?:pt|st|ct)\.(?:[A-Za-z0-9_-]+\.)?[A-Za-z0-9]{40,}|ATATT3[A-Za-z0-9_=-]{50,}", // Vault, Doppler, Atlassian
];

static API_KEY: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(&format!(r"(?-u:\b)(?:{})", SHAPES.join("|"))).expect(FIXED));

/// Any value that is called a key where it stands: `x-api-key: …`, `CLIENT_SECRET=…`, `AccountKey=…`.
static NAMED_KEY: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r#"(?xi)
        (?: api | secret | access | auth | client | account | refresh | signing | encryption ) [_\ -]?
        (?: access[_\ -]? )? (?: key | token | secret ) ["'`]? \s* (?: = | : | => | := | \s is \s ) \s* ["'`]?
        (?P<secret> [A-Z0-9_/+=-]{16,} )
        "#,
    )
    .expect(FIXED)
});

const HEADER_TOKEN_MIN: usize = 8;
const TOKEN_MIN: usize = 12;

pub fn private_keys(text: &str) -> Vec<Range<usize>> {
    PRIVATE_KEYS
        .iter()
        .flat_map(|pattern| pattern.find_iter(text).map(|found| found.range()))
        .collect()
}

pub fn jwts(text: &str) -> Vec<Range<usize>> {
    JWT.find_iter(text).map(|found| found.range()).collect()
}

pub fn api_keys(text: &str) -> Vec<Range<usize>> {
    let shaped = |found: &Captures<'_>| {
        Some(found.get_match()).filter(|found| !is_words(found.as_str())).map(|found| found.range())
    };
    let named = |found: &Captures<'_>| {
        named(found, "secret").filter(|place| looks_random(&text[place.clone()]))
    };
    let mut found = accepted(&API_KEY, text, shaped);
    if digits(text) >= RANDOM_DIGITS_MIN {
        found.extend(accepted(&NAMED_KEY, text, named));
    }
    found
}

pub fn bearer_tokens(text: &str) -> Vec<Range<usize>> {
    accepted(&BEARER, text, |found| match named(found, "told") {
        Some(told) => Some(told)
            .filter(|place| place.len() >= HEADER_TOKEN_MIN && is_mixed(&text[place.clone()])),
        None => named(found, "secret")
            .filter(|place| place.len() >= TOKEN_MIN && looks_random(&text[place.clone()])),
    })
}

fn named(found: &Captures<'_>, group: &str) -> Option<Range<usize>> {
    found.name(group).map(|part| part.range())
}

/// "sk-your-key-goes-right-here"
fn is_words(value: &str) -> bool {
    !value.bytes().any(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase())
}

/// No word of a language, and no placeholder ("your_token").
fn is_mixed(value: &str) -> bool {
    let holds = |is: fn(&u8) -> bool| value.bytes().any(|byte| is(&byte));
    holds(u8::is_ascii_digit) || (holds(u8::is_ascii_uppercase) && holds(u8::is_ascii_lowercase))
}

const RANDOM_DIGITS_MIN: usize = 3;

/// Digits among letters: names of variables and placeholders ("your_api_key_here") have fewer.
fn looks_random(value: &str) -> bool {
    digits(value) >= RANDOM_DIGITS_MIN && value.bytes().any(|byte| byte.is_ascii_alphabetic())
}

//! Finds credentials: private keys, JSON web tokens, bearer tokens and API keys.
//!
//! Private keys, web tokens and keys of known issuers are found by their shape. Other tokens are
//! found by the name before them (`x-api-key: …`), and must look random, so that placeholders like
//! `your_api_key_here` stay. To add an issuer, add a line to `SHAPES` and a sample to the tests.

use super::{accepted, digits};
use regex::{Captures, Regex};
use std::ops::Range;
use std::sync::LazyLock;

const CONSTANT: &str = "the pattern is a constant, and the tests compile it";

/// Patterns for PEM and PGP keys, PuTTY keys and age keys. A PEM key reaches to its end line, or
/// without one as far as the lines look like a key.
///
/// One pattern for all of them would read to the end of the text behind each PuTTY key without
/// private lines.
static PRIVATE_KEYS: LazyLock<[Regex; 3]> = LazyLock::new(|| {
    [
        r"(?xs)
          -----BEGIN\ [A-Z0-9\ ]*PRIVATE\ KEY(?:\ BLOCK)?-----
            (?: (?: [^-] | -{1,4}[^-] )*? -----END\ [A-Z0-9\ ]*PRIVATE\ KEY(?:\ BLOCK)?-----
              | (?: (?: \s | \\[nr] )* [A-Za-z0-9+/]{24,} )+
                (?: (?: \s | \\[nr] )* [A-Za-z0-9+/]* =+ )? )",
        r"(?xs)
          PuTTY-User-Key-File-[0-9] .*? Private-Lines:\ [0-9]+
          (?: \s+ [A-Za-z0-9+/]{24,} )+ (?: \s+ [A-Za-z0-9+/]* =+ )?",
        r"AGE-SECRET-KEY-1[0-9A-Z]{50,}",
    ]
    .map(|pattern| Regex::new(pattern).expect(CONSTANT))
});

/// [JSON web tokens](https://www.rfc-editor.org/rfc/rfc7519): header, payload and signature, the
/// header a JSON object in base64. Encrypted tokens have five parts.
static JWT: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(concat!(
        r"(?-u:\b)eyJ[A-Za-z0-9_-]{8,}",
        r"(?:\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*|\.\.[A-Za-z0-9_-]+)(?:\.[A-Za-z0-9_-]+){0,2}",
    ))
    .expect(CONSTANT)
});

/// Values of an `Authorization` header (`header_token`), and values after the header's name or the
/// word "bearer" alone (`token`), where the next word may be ordinary text.
static BEARER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r#"(?xi)
          authorization ["']? \s* [:=] \s* ["']? (?: bearer | basic | token | apikey ) \s+
            (?P<header_token> [A-Z0-9_~+/-]+ (?: \. [A-Z0-9_~+/-]+ )* =* )
        | (?: authorization ["']? \s* [:=] \s* | (?-u:\b) bearer \s* :? \s+ ) ["']?
            (?P<token> [A-Z0-9_~+/-]+ (?: \. [A-Z0-9_~+/-]+ )* =* )
        "#,
    )
    .expect(CONSTANT)
});

/// The shapes of API keys, with their issuers. Public halves (`pk_live_`, `AC…`) are not secret.
#[rustfmt::skip]
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
    r"SK[0-9a-f]{32}", // Twilio
    r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}", // SendGrid
    r"key-[0-9a-f]{32}|[0-9a-f]{32}-us[0-9]{1,2}", // Mailgun, Mailchimp
    r"npm_[A-Za-z0-9]{36,}|pypi-[A-Za-z0-9_-]{50,}", // npm, PyPI
    r"rubygems_[0-9a-f]{48}|dckr_pat_[A-Za-z0-9_-]{27,}", // RubyGems, Docker
    r"dapi[0-9a-f]{32}|do[opr]_v1_[0-9a-f]{64}", // Databricks, DigitalOcean
    r"HRKU-[A-Za-z0-9_-]{36,}", // Heroku
    r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}|sq0(?:atp|csp)-[A-Za-z0-9_-]{22,43}", // Shopify, Square
    r"[0-9]{8,10}:AA[A-Za-z0-9_-]{30,}", // Telegram
    r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}", // Discord
    r"glsa_[A-Za-z0-9_]{32,}|glc_[A-Za-z0-9+/=]{32,}", // Grafana
    r"sntry[su]_[A-Za-z0-9+/=_-]{40,}", // Sentry
    r"lin_api_[A-Za-z0-9]{32,}|ntn_[A-Za-z0-9]{40,}", // Linear, Notion
    r"figd_[A-Za-z0-9_-]{36,}|PMAK-[0-9a-f]{24}-[0-9a-f]{34}", // Figma, Postman
    r"hv[sbr]\.[A-Za-z0-9_-]{24,}", // Vault
    r"dp\.(?:pt|st|ct)\.(?:[A-Za-z0-9_-]+\.)?[A-Za-z0-9]{40,}", // Doppler
    r"ATATT3[A-Za-z0-9_=-]{50,}", // Atlassian
];

static API_KEY: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(&format!(r"(?-u:\b)(?:{})", SHAPES.join("|"))).expect(CONSTANT));

/// Values with a name that makes them a key: `x-api-key: …`, `CLIENT_SECRET=…`, `AccountKey=…`.
static NAMED_KEY: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r#"(?xi)
        (?: api | secret | access | auth | client | account | refresh | signing | encryption )
        [_\ -]? (?: access[_\ -]? )? (?: key | token | secret ) ["'`]?
        \s* (?: = | : | => | := | \s is \s ) \s* ["'`]?
        (?P<token> [A-Z0-9_/+=-]{16,} )
        "#,
    )
    .expect(CONSTANT)
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
    let mut found = accepted(&API_KEY, text, |found, _| {
        Some(found.get_match()).filter(|found| !is_words(found.as_str())).map(|found| found.range())
    });
    if digits(text) >= RANDOM_DIGITS_MIN {
        found.extend(accepted(&NAMED_KEY, text, |found, text| {
            group(found, "token").filter(|range| looks_random(&text[range.clone()]))
        }));
    }
    found
}

pub fn bearer_tokens(text: &str) -> Vec<Range<usize>> {
    accepted(&BEARER, text, |found, text| match group(found, "header_token") {
        Some(token) => Some(token)
            .filter(|range| range.len() >= HEADER_TOKEN_MIN && is_mixed(&text[range.clone()])),
        None => group(found, "token")
            .filter(|range| range.len() >= TOKEN_MIN && looks_random(&text[range.clone()])),
    })
}

fn group(found: &Captures<'_>, name: &str) -> Option<Range<usize>> {
    found.name(name).map(|group| group.range())
}

/// Returns true for a placeholder without digits and capitals: "sk-your-key-goes-right-here".
fn is_words(value: &str) -> bool {
    !value.bytes().any(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase())
}

/// Returns true if the value has a digit, or letters of both cases. Ordinary words and placeholders
/// ("your_token") have neither.
fn is_mixed(value: &str) -> bool {
    value.bytes().any(|byte| byte.is_ascii_digit())
        || value.bytes().any(|byte| byte.is_ascii_uppercase())
            && value.bytes().any(|byte| byte.is_ascii_lowercase())
}

const RANDOM_DIGITS_MIN: usize = 3;

/// Returns true if the value has letters and at least three digits. Names of variables and
/// placeholders ("your_api_key_here") have fewer.
fn looks_random(value: &str) -> bool {
    digits(value) >= RANDOM_DIGITS_MIN && value.bytes().any(|byte| byte.is_ascii_alphabetic())
}

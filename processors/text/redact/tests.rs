//! Tests each rule on samples that must be found and on look-alikes that must stay, and all rules
//! together on secrets planted in random text.

use super::*;
use proptest::prelude::*;
use proptest::sample::select;

/// Secrets that are made up or published as samples. Each is written in two pieces, so that a
/// secret scanner does not report this file.
const SECRETS: &[(Rule, &str, &str)] = &[
    (Rule::Card, "4111 1111", " 1111 1111"),
    (Rule::Card, "4111-1111", "-1111-1111"),
    (Rule::Card, "42424242", "42424242"),
    (Rule::Card, "5555 5555", " 5555 4444"),
    (Rule::Card, "22230031", "22003222"),
    (Rule::Card, "3782 822463", " 10005"),
    (Rule::Card, "37144963", "5398431"),
    (Rule::Card, "60111111", "11111117"),
    (Rule::Card, "3056 930902", " 5904"),
    (Rule::Card, "35301113", "33300000"),
    (Rule::Card, "62000000", "00000005"),
    (Rule::Card, "67596498", "26438453"),
    (Rule::Card, "42222222", "22222"),
    (Rule::Card, "4111\u{a0}1111", "\u{a0}1111\u{a0}1111"),
    (Rule::Card, "4000.0566", ".5566.5556"),
    (Rule::Card, "41111111", " 11111111"),
    (Rule::Iban, "DE89 3704 0044", " 0532 0130 00"),
    (Rule::Iban, "DE893704004", "40532013000"),
    (Rule::Iban, "de89 37040044", " 0532013000"),
    (Rule::Iban, "GB29 NWBK 6016", " 1331 9268 19"),
    (Rule::Iban, "NO93 8601", " 1117 947"),
    (Rule::Iban, "MT84MALT01100001", "2345MTLCAST001S"),
    (Rule::Iban, "FR14 2004 1010 0505", " 0001 3M02 606"),
    (
        Rule::PrivateKey,
        "-----BEGIN RSA PRIVATE ",
        "KEY-----\nMIIEpAIBAAKCAQEA7bq\n+/xYz==\n-----END RSA PRIVATE KEY-----",
    ),
    (
        Rule::PrivateKey,
        "-----BEGIN OPENSSH PRIVATE ",
        "KEY-----\\nb3BlbnNzaC1r\\n-----END OPENSSH PRIVATE KEY-----",
    ),
    (
        Rule::PrivateKey,
        "-----BEGIN PGP PRIVATE ",
        "KEY BLOCK-----\nVersion: 1\n\nlQdGBF\n-----END PGP PRIVATE KEY BLOCK-----",
    ),
    (
        Rule::PrivateKey,
        "-----BEGIN EC PRIVATE ",
        "KEY-----\nMHcCAQEEIIrYSSNQFaA2Hwf1duRSxKtLYX5C\nAwEHoUQDQgAE==",
    ),
    (Rule::Jwt, "eyJhbGciOiJIUzI1NiJ9", ".eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"),
    (
        Rule::Jwt,
        "eyJhbGciOiJkaXIiLCJlbmMiOiJBMTI4R0NNIn0",
        "..48V1_ALb6US04U3b.5eym8TW_c8SuK0ltJ3rpYIzOeDQz7TALvtu6UG9o",
    ),
    (Rule::ApiKey, "AKIAIOSF", "ODNN7EXAMPLE"),
    (Rule::ApiKey, "ghp_16C7e42F292c", "6912E7710c838347Ae178B4a"),
    (Rule::ApiKey, "github_pat_11ABCDEFG0", "abcdefghijkl_ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    (Rule::ApiKey, "glpat-ABCdef", "GHIjkl012345678"),
    (Rule::ApiKey, "sk-ABCDEFGHIJKLMNOP", "qrstuvwxT3BlbkFJabcdef0123456789"),
    (Rule::ApiKey, "sk-proj-abc", "DEF_ghi-JKL0123456789mnopqrstuv"),
    (Rule::ApiKey, "sk-ant-api03-", "abcdefghijklmnopqrstuvwxyz0123456789-AA"),
    (Rule::ApiKey, "sk_live_", "4eC39HqLyjWDarjtT1zdp7dc"),
    (Rule::ApiKey, "xoxb-123456789012-", "1234567890123-AbCdEfGhIjKlMnOpQrStUvWx"),
    (Rule::ApiKey, "AIzaSyA1234567", "890abcdefghijklmnopqrstuvw-"),
    (Rule::ApiKey, "SG.abcdefghijklmnopqrstuv", ".ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789abcdefg"),
    (Rule::ApiKey, "hf_abcdefghij", "klmnopqrstuvwxyzABCDEFGH"),
    (Rule::ApiKey, "npm_abcdefghij", "klmnopqrstuvwxyz0123456789"),
    (Rule::ApiKey, "110201543:AAHdqTcvCH1", "vGWJxfSeofSAs0K5PALDsaw"),
];

const EVERYTHING: &[(Rule, &str, &str)] = &[
    (Rule::Email, "ada.lovelace+memory", "@mail.example.co.uk"),
    (Rule::Email, "zoë", "@bücher.example"),
    (Rule::Phone, "+49 30", " 1234567"),
    (Rule::Phone, "+1 (415)", " 555-0132"),
    (Rule::Phone, "(415) 555", "-0132"),
    (Rule::Phone, "415-555", "-0132"),
    (Rule::Phone, "0049 30", " 1234567"),
    (Rule::Phone, "01 23 45", " 67 89"),
    (Rule::Phone, "020 7946", " 0958"),
    (Rule::Phone, "089/", "1234567"),
    (Rule::Phone, "+4915112", "345678"),
];

/// Texts that look like secrets and that no rule may match.
const ORDINARY: &[&str] = &[
    "order 4111111111111112 and order no. 4711-0815-2024-1234",
    "ISBN 978-3-16-148410-0, ISBN 9783161484100 and ISBN 0-306-40615-2",
    "550e8400-e29b-41d4-a716-446655440000 and 41111111-1111-4111-8111-111111111111",
    "commit 4111111111111111aebc0123456789abcdef0123 and d41d8cd98f00b204e9800998ecf8427e",
    "at 1700000000000 ms, 1700000000000000000 ns, 2024-05-01T12:30:00.123456+01:00, \
     20240501123000",
    "v1.22.333.4444, 10.0.0.255:8080, 192.168.100.200, 0.1.2-rc.3+build.20240501",
    "4 8 15 16 23 42, 41 11 11 11 11 11 11 11, 45 32 67 89 12 34 56 78",
    "3.14159265358979323846 and 4.1e16 and 0x4111111111111111",
    "5000 3000 2000 1000 steps, rows 2021 2022 2023 2024 2025",
    "is 12 months old, at 20 degrees and no 15 of the list, be 16 forever, DE89 is a room",
    "NO94 8601 1117 947 and GB29 NWBK 6016 1331 9268 18",
    "the bearer of this letter, a bearer unquestionablyresponsible, Bearer YOUR_TOKEN, \
     Authorization: Bearer <token>",
    "api_key = os.environ[\"OPENAI_API_KEY\"], api_key=\"your_api_key_here\", \
     secret_key = generate_secret_key_here()",
    "sk-learn, sk-your-key-goes-right-here, xoxb-your-token-goes-here, \
     risk-assessment-of-the-whole-thing, task-list",
    "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\n-----END PUBLIC KEY-----",
    "a PEM file begins with -----BEGIN PRIVATE KEY----- and has base64 inside",
    "eyJ is how they begin, as in eyJhbGciOiJIUzI1NiJ9",
    "[redacted:card] and [redacted:bearer]",
    "@ada wrote to me @ noon, see user@host and a@b",
    "12 345 678 people, 1 000 000 000 dollars, 0123456789, 00123456789, 100-200-300",
    "on 01.02.2024 and 05-12-2023 at 10-30-45, #0171 234567",
];

fn all() -> Vec<Rule> {
    Rule::ALL.to_vec()
}

fn check(text: &str, expected: &str) {
    let found = redacted(text, &all());
    assert_eq!(found.map_or_else(|| text.to_owned(), |found| found.text), expected, "{text:?}");
}

#[test]
fn each_rule_finds_its_samples() {
    for (rule, begin, end) in SECRETS.iter().chain(EVERYTHING) {
        let secret = format!("{begin}{end}");
        let mark = format!("[redacted:{}]", rule.as_str());
        check(&secret, &mark);
        check(&format!("It is {secret}. And more."), &format!("It is {mark}. And more."));
        check(&format!("(\"{secret}\", mine)"), &format!("(\"{mark}\", mine)"));
        check(&format!("我的号码是{secret}，谢谢"), &format!("我的号码是{mark}，谢谢"));
    }
}

#[test]
fn look_alikes_of_secrets_stay() {
    for text in ORDINARY {
        check(text, text);
    }
}

#[test]
fn tokens_are_found_by_the_name_before_them() {
    for (text, expected) in [
        (
            "curl -H 'Authorization: Bearer abc123def456ghi'",
            "curl -H 'Authorization: Bearer [redacted:bearer]'",
        ),
        (
            "\"authorization\": \"Basic dXNlcjpzZWNyZXQ=\"",
            "\"authorization\": \"Basic [redacted:bearer]\"",
        ),
        ("it wants Bearer mF_9.B5f-4.1JqM.", "it wants Bearer [redacted:bearer]."),
        ("x-api-key: 9f8e7d6c5b4a39281706", "x-api-key: [redacted:api_key]"),
        ("OPENAI_API_KEY=\"abc123def456ghi7\"", "OPENAI_API_KEY=\"[redacted:api_key]\""),
        (
            "{\"client_secret\": \"a1b2c3d4e5f6g7h8\"}",
            "{\"client_secret\": \"[redacted:api_key]\"}",
        ),
        ("my api key is a1b2c3d4e5f6g7h8, ok?", "my api key is [redacted:api_key], ok?"),
        (
            "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPx9fiCY01",
            "aws_secret_access_key = [redacted:api_key]",
        ),
    ] {
        check(text, expected);
    }
}

#[test]
fn a_card_among_other_numbers_leaves_none_of_its_digits() {
    check("4111 1111 1111 1111 12/26 123", "[redacted:card] 12/26 123");
    check("2024 4111 1111 1111 1111", "2024 [redacted:card]");
    check("Visa4111111111111111", "Visa[redacted:card]");
    // Both sequences of four groups have a valid check digit, so neither remains.
    check("4242 4242 4242 4242 4242", "[redacted:card]");
}

#[test]
fn a_telephone_number_with_a_valid_check_digit_is_no_card() {
    let cards = vec![Rule::Card];
    for text in ["call +4915112345678", "call +49 151 12345678"] {
        assert_eq!(redacted(text, &cards), None, "{text}");
    }
}

#[test]
fn overlapping_matches_are_merged_under_the_more_specific_rule() {
    let begin = "eyJhbGciOiJIUzI1NiJ9";
    let end = ".eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N";
    check(&format!("Authorization: Bearer {begin}{end}"), "Authorization: Bearer [redacted:jwt]");
    check(&format!("api_key={begin}{end} "), "api_key=[redacted:jwt] ");
}

#[test]
fn keys_without_a_gap_are_all_found_in_one_pass() {
    let key = concat!("key-0123456789abcdef", "0123456789abcdef");
    let found = once(&format!("{}and more", key.repeat(3)), &all()).expect("keys");
    assert_eq!(found.text, format!("{}and more", "[redacted:api_key]".repeat(3)));
}

/// A secret that only another pass would find goes with everything behind the first placeholder.
#[test]
fn a_text_that_exposes_secrets_one_by_one_keeps_none_of_them() {
    let key = concat!("key-0123456789abcdef", "0123456789abcdef");
    let text = format!("I said {key}+49 30 1234567 and more");
    let cut = redacted_within(1, &text, &all()).expect("a key");
    assert_eq!(cut.text, "I said [redacted:phone]");
    assert_eq!(redacted_within(1, &cut.text, &all()), None);
    let whole = redacted(&text, &all()).expect("both");
    assert_eq!(whole.text, "I said [redacted:api_key][redacted:phone] and more");
}

#[test]
fn a_disabled_rule_finds_nothing() {
    for (rule, begin, end) in SECRETS.iter().chain(EVERYTHING) {
        let others: Vec<Rule> = Rule::ALL.into_iter().filter(|other| other != rule).collect();
        let found =
            redacted(&format!("{begin}{end}"), &others).map_or(Vec::new(), |found| found.found);
        assert!(!found.contains(rule), "{begin}");
        assert_eq!(redacted(&format!("{begin}{end}"), &[]), None);
    }
}

fn filler() -> impl Strategy<Value = String> {
    concat!(
        "([A-Za-zäßЖ中🎉]{3,9}",
        "( (([A-Za-zäßЖ中🎉'-]{1,12}|[0-9]{1,3})[ ,;!?\n]{1,2}){0,8}[A-Za-zäßЖ中🎉]{3,9})?)",
    )
}

fn planted() -> impl Strategy<Value = (String, String, &'static (Rule, &'static str, &'static str))>
{
    let before = select(vec![" ", ": ", " (", " \"", "\n", "，", " = '"]);
    let after = select(vec![" ", ". ", ", ", ") ", "\" ", "\n", "，", "; "]);
    let secret = select(SECRETS.iter().chain(EVERYTHING).collect::<Vec<_>>());
    (before.prop_map(str::to_owned), after.prop_map(str::to_owned), secret)
}

proptest! {
    #[test]
    fn planted_secrets_are_always_found_and_nothing_else_changes(
        parts in prop::collection::vec((filler(), planted()), 1..6), ending in filler(),
    ) {
        let mut text = String::new();
        let mut expected = String::new();
        let mut rules = Vec::new();
        for (words, (before, after, (rule, begin, end))) in &parts {
            text.push_str(&format!("{words}{before}{begin}{end}{after}"));
            expected.push_str(&format!("{words}{before}[redacted:{}]{after}", rule.as_str()));
            rules.push(*rule);
        }
        text.push_str(&ending);
        expected.push_str(&ending);
        let found = redacted(&text, &all()).expect("the text contains a secret");
        prop_assert_eq!(&found.text, &expected);
        prop_assert_eq!(found.found, rules);
        prop_assert_eq!(redacted(&expected, &all()), None);
    }

    #[test]
    fn redacting_a_redacted_text_changes_nothing(
        text in "(\\PC|\n|[0-9]{1,6}[ .-]|eyJ|[A-Z]{2}[0-9]{2}|@|bearer ){0,120}",
    ) {
        if let Some(found) = redacted(&text, &all()) {
            prop_assert!(!found.found.is_empty());
            prop_assert_eq!(redacted(&found.text, &all()), None);
        }
    }
}

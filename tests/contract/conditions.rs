//! Conditions of a request, `where`: by metadata, session and time, in `recall` and in `list`, and
//! pages by number.

use crate::support::client::contents;
use crate::support::{Broker, Running, on_both_brokers};
use serde_json::{Value, json};

on_both_brokers! {
    only_memories_that_meet_all_conditions_are_returned
}

/// Each payment: amount, currency, session and day.
const PAYMENTS: [(&str, &str, &str, &str); 4] = [
    ("9", "EUR", "spring", "2026-03-01"),
    ("10", "USD", "spring", "2026-03-02"),
    ("99.5", "EUR", "autumn", "2026-09-01"),
    ("200", "CHF", "autumn", "2026-09-02"),
];

fn only_memories_that_meet_all_conditions_are_returned(broker: Broker) {
    let running = Running::start(broker, &[]);
    let client = running.client();
    let user = client.user("conditions", "zoe");
    for (n, (amount, currency, session, day)) in PAYMENTS.into_iter().enumerate() {
        let event = json!({"type": "remember", "session": session, "at": format!("{day}T12:00:00Z"),
            "content": format!("Payment {n} was for the vendor {}.", ["Ada", "Bo", "Cy", "Di"][n]),
            "metadata": {"amount": amount, "currency": currency, "day": day}});
        assert_eq!(user.event(event)["status"], "ok");
    }
    user.remember("The vendor list is in the drawer.");
    let found = |conditions: &Value| {
        let ask = |request: Value| {
            let reply = user.ask(request);
            assert_eq!(reply["status"], "ok", "{reply}");
            let mut numbers: Vec<usize> =
                contents(&reply).iter().filter_map(|text| number(text)).collect();
            numbers.sort_unstable();
            numbers
        };
        let listed = ask(json!({"type": "list", "where": conditions}));
        let query = "Which payment was for which vendor?";
        let recalled =
            ask(json!({"type": "recall", "query": query, "limit": 20, "where": conditions}));
        assert_eq!(listed, recalled, "{conditions}");
        listed
    };
    for (conditions, expected) in [
        (json!({}), vec![0, 1, 2, 3]),
        (json!({"currency": "EUR"}), vec![0, 2]),
        (json!({"currency": {"$in": ["USD", "CHF"]}}), vec![1, 3]),
        (json!({"amount": {"$gt": 9}}), vec![1, 2, 3]),
        (json!({"amount": {"$gte": "9", "$lt": 100}}), vec![0, 1, 2]),
        (json!({"day": {"$lte": "2026-03-31"}}), vec![0, 1]),
        (json!({"$session": "autumn", "currency": {"$eq": "EUR"}}), vec![2]),
        (
            json!({"$created_at": {"$gte": "2026-03-02T00:00:00Z"}, "amount": {"$lt": 150}}),
            vec![1, 2],
        ),
        (json!({"currency": "JPY"}), vec![]),
        (json!({"$or": [{"currency": "USD"}, {"amount": {"$gt": 150}}]}), vec![1, 3]),
        (json!({"$or": [{"currency": "JPY"}, {"$session": "winter"}]}), vec![]),
        (json!({"$and": [{"currency": "EUR"}, {"$session": "spring"}]}), vec![0]),
        (json!({"$not": {"currency": "EUR"}, "amount": {"$exists": true}}), vec![1, 3]),
        (
            json!({"amount": {"$exists": true},
                "$not": [{"currency": {"$contains": "U"}}, {"$session": "spring"}]}),
            vec![3],
        ),
        (json!({"currency": {"$contains": "S"}}), vec![1]),
        (json!({"currency": {"$contains": "s"}}), vec![]),
        (json!({"currency": {"$icontains": "u"}}), vec![0, 1, 2]),
        (
            json!({"$or": [{"$and": [{"currency": "EUR"}, {"$not": {"amount": {"$lt": 50}}}]},
                {"$created_at": {"$lt": "2026-03-02T00:00:00Z"}}], "currency": {"$exists": true}}),
            vec![0, 2],
        ),
        (json!({"amount": {"$exists": false}}), vec![]),
    ] {
        assert_eq!(found(&conditions), expected, "{conditions}");
    }
    let differing = user.ask(json!({"type": "list", "where": {"currency": {"$ne": "EUR"}}}));
    assert_eq!(contents(&differing).len(), 3, "also what has no currency: {differing}");
    let without = user.ask(json!({"type": "list", "where": {"currency": {"$exists": false}}}));
    assert_eq!(contents(&without), ["The vendor list is in the drawer."], "{without}");
    let mut deep = json!({"currency": "EUR"});
    for _ in 0..9 {
        deep = json!({"$not": deep});
    }
    for (conditions, status, part) in [
        (json!({"$or": [{"currency": {"$like": "E"}}]}), "invalid", "where.$or[0].currency"),
        (json!({"$nor": [{"currency": "EUR"}]}), "invalid", "where.$nor"),
        (json!({"$or": vec![json!({"currency": "EUR"}); 64]}), "too_large", "where"),
        (deep, "invalid", ".$not"),
    ] {
        for request in [
            json!({"type": "list", "where": conditions}),
            json!({"type": "recall", "query": "vendor", "where": conditions}),
        ] {
            let reply = user.ask(request);
            let field = reply["error"]["field"].as_str().unwrap_or_default();
            assert_eq!(reply["status"], status, "{reply}");
            assert!(field.ends_with(part), "{reply}");
        }
    }

    let page = |offset| user.ask(json!({"type": "list", "limit": 2, "offset": offset}));
    let pages: Vec<Value> = [0, 2, 4, 6].map(page).into();
    let counts: Vec<usize> = pages.iter().map(|page| contents(page).len()).collect();
    assert_eq!(counts, [2, 2, 1, 0], "{pages:?}");
    let mut all: Vec<&str> = pages.iter().flat_map(contents).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 5, "no memory is on two pages: {all:?}");
    running.stop();
}

/// The number of a payment in the text of its memory.
fn number(text: &str) -> Option<usize> {
    text.strip_prefix("Payment ")?.split(' ').next()?.parse().ok()
}

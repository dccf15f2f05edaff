//! The shadow profile: its decisions are published on the decisions topic with `shadow: true`, and
//! nothing else changes.

use crate::support::{Broker, Running, on_both_brokers};
use serde_json::{Value, json};

on_both_brokers! {
    a_shadow_decision_is_published_and_not_applied
}

fn a_shadow_decision_is_published_and_not_applied(broker: Broker) {
    let running = Running::start(broker, &[("shadow.profile", "talome")]);
    let client = running.client();
    let ada = client.user("shadow", "ada");
    let turns =
        ["I live in Berlin with my sister Anna.", "Hi there!", "I moved to Lisbon last month."];
    let receipts: Vec<Value> = turns.iter().map(|content| ada.turn(content)).collect();
    let outcomes: Vec<&Value> =
        receipts.iter().map(|reply| &reply["decisions"][0]["outcome"]).collect();
    assert_eq!(outcomes, ["kept", "dropped", "superseded"]);
    for reply in &receipts {
        let decisions = reply["decisions"].as_array().expect("a receipt has decisions");
        assert!(
            decisions.len() == 1 && decisions[0]["shadow"].is_null(),
            "a receipt has only the applied decision: {reply}"
        );
    }

    let (shadows, real): (Vec<Value>, Vec<Value>) =
        ada.decisions().into_iter().partition(|decision| decision["shadow"] == true);
    assert_eq!(
        real.iter().map(|decision| &decision["outcome"]).collect::<Vec<_>>(),
        ["kept", "dropped", "superseded"]
    );
    assert_eq!(shadows.iter().map(|decision| &decision["candidate"]).collect::<Vec<_>>(), turns);
    for (shadow, real) in shadows.iter().zip(&real) {
        assert_eq!(
            (&shadow["outcome"], &shadow["profile"]),
            (&json!("dropped"), &json!("talome")),
            "{shadow}"
        );
        assert_eq!((&shadow["event"], &shadow["at"]), (&real["event"], &real["at"]));
        let why = ada.ask(json!({"type": "explain", "event": real["event"]}));
        assert!(
            why["decision"] == *real && why["decisions"].is_null(),
            "`explain` returns only the applied decision: {why}"
        );
    }
    assert_eq!(
        ada.ask(json!({"type": "stats"}))["decisions"],
        json!({"kept": 1, "dropped": 1, "superseded": 1})
    );
    assert_eq!(ada.list().len(), 2);
    let page = running.service.metrics.page();
    for line in [
        "keepsake_shadow_total{agrees=\"no\",outcome=\"dropped\"} 2",
        "keepsake_shadow_total{agrees=\"yes\",outcome=\"dropped\"} 1",
        "keepsake_decisions_total{outcome=\"dropped\"} 1",
    ] {
        assert!(page.contains(line), "the metrics page has no line {line}: {page}");
    }
    running.stop();
}

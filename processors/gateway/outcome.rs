//! Judges the receipt of an event for all doors: a change that did not happen is no success, and a
//! key that may not read gets the outcome and the id of the caller's own memory only.

use crate::keys::{Caller, Permission};
use crate::refusal::{Refusal, Result};
use axum::http::StatusCode;
use serde_json::Value;

/// The fields of a decision that say nothing of other memories.
const OWN: [&str; 10] =
    ["type", "outcome", "event", "tenant", "user", "session", "memory", "left", "salt", "at"];

/// Refuses a receipt of which nothing took effect: each decision is a refusal, or the id was used
/// by another event.
pub fn checked(receipt: Value) -> Result<Value> {
    let decisions = receipt["decisions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if decisions.iter().any(|decision| decision["of_other_event"] == true) {
        let what = "this id (Idempotency-Key) was used by another event of the user, so nothing was \
                    done: send the call again with a key of its own";
        return Err(Refusal::new(StatusCode::CONFLICT, "id_used", what));
    }
    match decisions
        .first()
        .filter(|_| decisions.iter().all(|decision| decision["outcome"] == "refused"))
    {
        Some(first) => {
            let reason = first["reason"].as_str().unwrap_or("the service refuses it");
            Err(Refusal::new(StatusCode::CONFLICT, "refused", reason))
        }
        None => Ok(receipt),
    }
}

/// The part of the receipt that the caller may see. A reason quotes memories, and a merged turn
/// names one.
pub fn shown(caller: &Caller, mut receipt: Value) -> Value {
    if caller.rights.contains(&Permission::Read) {
        return receipt;
    }
    for decision in receipt["decisions"].as_array_mut().into_iter().flatten() {
        let is_of_others = decision["outcome"] == "merged";
        if let Some(fields) = decision.as_object_mut() {
            fields.retain(|name, _| {
                OWN.contains(&name.as_str()) && !(name == "memory" && is_of_others)
            });
        }
    }
    receipt
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_did_not_happen_is_no_success() {
        let refused = json!({"outcome": "refused", "reason": "for a reason"});
        let other = json!({"outcome": "duplicate", "of_other_event": true});
        let (kept, duplicate) = (json!({"outcome": "kept"}), json!({"outcome": "duplicate"}));
        for (decisions, expected) in [
            (json!([refused]), Some("refused")),
            (json!([refused, refused]), Some("refused")),
            (json!([other]), Some("id_used")),
            (json!([refused, kept]), None),
            (json!([duplicate]), None),
            (json!([]), None),
        ] {
            let receipt = checked(json!({"decisions": decisions}));
            let code = receipt.as_ref().err().map(|refusal| refusal.code.as_str());
            assert_eq!(code, expected, "{decisions}");
        }
    }

    #[test]
    fn without_the_right_to_read_a_receipt_quotes_nothing() {
        let decision = json!({"outcome": "superseded", "memory": "m-2", "related": ["m-1"],
            "reason": "takes the place of \"My PIN is 4711\"", "surprise": {"total": 1.0}});
        let merged = json!({"outcome": "merged", "memory": "m-1", "reason": "says \"x\""});
        let receipt = json!({"decisions": [decision, merged], "offset": 3});
        let mut caller = Caller::local("acme");
        assert_eq!(shown(&caller, receipt.clone()), receipt);
        caller.rights = vec![Permission::Write];
        let expected = json!({"offset": 3, "decisions": [
            {"outcome": "superseded", "memory": "m-2"}, {"outcome": "merged"}]});
        assert_eq!(shown(&caller, receipt), expected);
    }
}

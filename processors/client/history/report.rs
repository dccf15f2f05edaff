//! Counts a history: what the files have, what of it is sent, and how the service decided.

use super::ledger::{Ledger, Standing};
use super::{Format, Found, Item, What, left_out};
use crate::rules::Rules;
use crate::show;
use domain::fault::RejectCode;
use domain::{Time, UserKey};
use serde_json::{Value, json};
use settings::retain::Rule;
use std::collections::BTreeMap;

/// Refused messages that a report shows; all are counted.
const SHOWN_MAX: usize = 20;
const TOO_LONG: &str = "text longer than the service takes";

/// The conditions under which an item is sent.
pub struct Checks<'a> {
    pub format: Format,
    pub key: &'a UserKey,
    pub rules: &'a Rules,
    /// The age at which the service erases a memory without a kind.
    pub retain: Option<Rule>,
    pub now: Time,
}

#[derive(Default)]
pub struct Report {
    pub conversations: u64,
    pub user_turns: u64,
    pub assistant_turns: u64,
    pub memories: u64,
    pub oldest_ms: Option<i64>,
    pub newest_ms: Option<i64>,
    /// Items older than `retain` allows, of those to send.
    pub outlived: u64,
    pub left_out: BTreeMap<&'static str, u64>,
    /// Sent by an earlier import, by the ledger.
    pub already: u64,
    pub to_send: u64,
    pub sent: u64,
    pub kept: u64,
    pub dropped: u64,
    /// Known to the service by their ids.
    pub duplicates: u64,
    /// Outcomes of the decisions, of which a turn may have several.
    pub outcomes: BTreeMap<String, u64>,
    pub refused: u64,
    pub first_refused: Vec<(String, String)>,
}

impl Report {
    pub fn found(&self) -> u64 {
        self.user_turns + self.assistant_turns + self.memories
    }

    /// Counts a piece of the files.
    pub fn count(&mut self, found: &Found, checks: &Checks<'_>, ledger: &mut Ledger) {
        let item = match found {
            Found::Conversation => return self.conversations += 1,
            Found::LeftOut(why) => return self.leave_out(why),
            Found::Item(item) => item,
        };
        match ledger.standing(&item.message_id(checks.format)) {
            Standing::Repeated => return self.leave_out(left_out::REPEATED),
            Standing::Already => self.already += 1,
            Standing::New => match checks.event(item) {
                Ok(_) => {
                    self.to_send += 1;
                    self.outlived += u64::from(checks.is_outlived(item));
                }
                Err(Refusal::TooLong) => self.leave_out(TOO_LONG),
                Err(Refusal::Other(why)) => self.refuse(item.message_id(checks.format), why),
            },
        }
        match item.what {
            What::UserTurn => self.user_turns += 1,
            What::AssistantTurn => self.assistant_turns += 1,
            What::Memory => self.memories += 1,
        }
        if let Some(at) = item.at_ms {
            self.oldest_ms = Some(self.oldest_ms.map_or(at, |oldest| oldest.min(at)));
            self.newest_ms = Some(self.newest_ms.map_or(at, |newest| newest.max(at)));
        }
    }

    fn leave_out(&mut self, why: &'static str) {
        *self.left_out.entry(why).or_default() += 1;
    }

    fn refuse(&mut self, id: String, why: String) {
        self.refused += 1;
        if self.first_refused.len() < SHOWN_MAX {
            self.first_refused.push((id, why));
        }
    }

    /// Notes the receipt of an event, and returns whether the message is done with. One that was
    /// refused is not: a quota may have room later.
    pub fn note(&mut self, id: &str, receipt: &Value) -> bool {
        let decisions = receipt["decisions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let outcomes: Vec<&str> =
            decisions.iter().filter_map(|decision| decision["outcome"].as_str()).collect();
        if outcomes.is_empty() {
            let message = receipt["error"]["message"].as_str().unwrap_or("no decision");
            self.refuse(id.to_owned(), message.to_owned());
            return false;
        }
        if outcomes.iter().all(|outcome| *outcome == "refused") {
            let reason = decisions[0]["reason"].as_str().unwrap_or_default();
            self.refuse(id.to_owned(), reason.to_owned());
            return false;
        }
        self.sent += 1;
        for outcome in &outcomes {
            *self.outcomes.entry((*outcome).to_owned()).or_default() += 1;
        }
        let is_kept = |outcome: &&str| matches!(*outcome, "kept" | "merged" | "superseded");
        if outcomes.contains(&"duplicate") {
            self.duplicates += 1;
        } else if outcomes.iter().any(is_kept) {
            self.kept += 1;
        } else {
            self.dropped += 1;
        }
        true
    }

    pub fn json(&self) -> Value {
        let refused: Vec<Value> =
            (self.first_refused.iter()).map(|(id, why)| json!({"id": id, "reason": why})).collect();
        json!({
            "conversations": self.conversations,
            "found": self.found(),
            "turns": {"user": self.user_turns, "assistant": self.assistant_turns},
            "memories": self.memories,
            "oldest": self.oldest_ms.map(show::rfc_3339),
            "newest": self.newest_ms.map(show::rfc_3339),
            "older_than_retain": self.outlived,
            "left_out": self.left_out,
            "already": self.already,
            "to_send": self.to_send,
            "sent": self.sent,
            "kept": self.kept,
            "dropped": self.dropped,
            "duplicates": self.duplicates,
            "outcomes": self.outcomes,
            "refused": self.refused,
            "first_refused": refused,
        })
    }

    /// Lists the reasons for which messages were left out.
    pub fn left_out_text(&self) -> String {
        let reasons: Vec<String> =
            self.left_out.iter().map(|(why, count)| format!("{count} {why}")).collect();
        reasons.join(", ")
    }
}

/// Why an item is not sent.
enum Refusal {
    TooLong,
    Other(String),
}

impl Checks<'_> {
    /// The event of an item that the service would accept.
    fn event(&self, item: &Item) -> Result<Value, Refusal> {
        let event = item.event(self.format, self.key);
        match self.rules.check_event(self.key.as_str(), &event) {
            Ok(()) => Ok(event),
            Err(reject) if reject.code == RejectCode::TooLarge => Err(Refusal::TooLong),
            Err(reject) => Err(Refusal::Other(reject.to_string())),
        }
    }

    /// The id and the event of an item that is new and that the service would accept.
    pub fn to_send(&self, item: &Item, ledger: &mut Ledger) -> Option<(String, Value)> {
        let id = item.message_id(self.format);
        let is_new = ledger.standing(&id) == Standing::New;
        let mut event = is_new.then(|| self.event(item).ok()).flatten()?;
        event["id"] = ledger.event_id(&id).into();
        Some((id, event))
    }

    fn is_outlived(&self, item: &Item) -> bool {
        let at = item.at_ms.map(Time);
        at.zip(self.retain.as_ref()).is_some_and(|(at, rule)| rule.is_over(at, self.now))
    }
}

/// Writes what was found as short lines, for tests.
#[cfg(test)]
pub fn in_short(found: &[Found]) -> Vec<String> {
    let line = |found: &Found| match found {
        Found::Conversation => "conversation".to_owned(),
        Found::LeftOut(why) => format!("- {why}"),
        Found::Item(item) => {
            let what = match item.what {
                What::UserTurn => "user",
                What::AssistantTurn => "assistant",
                What::Memory => "memory",
            };
            let at = item.at_ms.map_or("-".to_owned(), show::rfc_3339);
            let session = item.session.as_deref().unwrap_or("-");
            format!("{what} {at} {session}/{} {}", item.id, item.text)
        }
    };
    found.iter().map(line).collect()
}

/// Leaves out the ids of lines that have hashes for ids.
#[cfg(test)]
pub fn without_ids(lines: &[String]) -> Vec<String> {
    let without = |line: &String| {
        let id = line.find('/').filter(|from| line.len() > from + 37);
        match id.filter(|from| uuid::Uuid::parse_str(&line[from + 1..from + 37]).is_ok()) {
            Some(from) => format!("{}{}", &line[..from], &line[from + 37..]),
            None => line.clone(),
        }
    };
    lines.iter().map(without).collect()
}

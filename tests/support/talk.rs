//! What users say over some hours, in one shard in memory, with every record of the log kept for a
//! replay.

use super::in_process::InProcess;
use super::scratch;
use broker::OutgoingRecord;
use contract::wire::Moment;
use domain::{Decision, Now, Time};
use serde_json::{Value, json};
use service::compact::Compact;

const NOW: Time = Time(1_720_000_000_000);
const HOUR_MS: i64 = 3_600_000;

/// The path of a profile that differs from Keepsake's own by this text.
pub fn profile_with(text: &str) -> String {
    let file = scratch::dir("profile").join(format!("p{}.toml", scratch::number()));
    std::fs::write(&file, format!("base = \"keepsake\"\n{text}")).expect("a disk");
    file.display().to_string()
}

/// A record of the log, as whoever wrote it.
enum Logged {
    Event(Value),
    Own(OutgoingRecord),
}

pub struct Talk {
    pub service: InProcess,
    profile: String,
    log: Vec<Logged>,
    pub hours: i64,
}

impl Talk {
    pub fn new(profile: &str) -> Talk {
        let service = InProcess::with_profile_and_hash_model(profile);
        Talk { service, profile: profile.to_owned(), log: Vec::new(), hours: 0 }
    }

    /// A turn that is kept.
    pub fn says(&mut self, user: &str, session: &str, text: &str) {
        let event = json!({"type": "turn", "user": user, "session": session, "content": text});
        assert_eq!(self.event(event)[0].outcome.as_str(), "kept", "{text}");
    }

    pub fn event(&mut self, mut event: Value) -> Vec<Decision> {
        event["at"] = serde_json::to_value(Moment(self.now().0)).expect("a time is a JSON string");
        let decisions = self.service.decisions_of(&event);
        self.log.push(Logged::Event(event));
        decisions
    }

    pub fn now(&self) -> Time {
        NOW.plus_ms(self.hours * HOUR_MS)
    }

    /// The proposals of a round half a day later.
    pub fn proposals(&mut self, worker: &mut Compact) -> Vec<OutgoingRecord> {
        self.hours += 12;
        let now = self.now();
        worker.step(Now { wall: now, events: now }).expect("a shard in memory")
    }

    pub fn apply(&mut self, proposal: OutgoingRecord) -> Vec<Decision> {
        let decisions = self.service.decisions_of_own_record(&proposal);
        self.log.push(Logged::Own(proposal));
        decisions
    }

    /// Runs a round half a day later and applies its proposals. Returns each with its first
    /// decision.
    pub fn round(&mut self, worker: &mut Compact) -> Vec<(Value, Decision)> {
        let mut applied = Vec::new();
        for proposal in self.proposals(worker) {
            applied.push((body(&proposal), self.apply(proposal).remove(0)));
        }
        applied
    }

    /// All memories of a user, archived ones included.
    pub fn memories(&mut self, user: &str) -> Vec<Value> {
        let list = json!({"type": "list", "user": user, "everything": true, "limit": 100});
        let now = self.now();
        self.service.memories(now, &list)
    }

    /// The state that a process without an endpoint makes of the same log.
    pub fn replayed(&self) -> InProcess {
        let mut again = InProcess::with_profile_and_hash_model(&self.profile);
        for record in &self.log {
            match record {
                Logged::Event(event) => drop(again.decisions_of(event)),
                Logged::Own(own) => drop(again.decisions_of_own_record(own)),
            }
        }
        again
    }
}

pub fn body(proposal: &OutgoingRecord) -> Value {
    let body = proposal.value.as_deref().expect("a proposal has a value");
    serde_json::from_slice(body).expect("a proposal is JSON")
}

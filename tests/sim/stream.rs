//! Generates the events of a simulation: they depend on each other, and some are malformed.

use crate::support::workload::Dice;
use broker::{Headers, OutgoingRecord};
use domain::{MemoryId, Position, UserKey};
use serde_json::{Value, json};

pub const TENANT: &str = "sim";
pub const PARTITIONS: i32 = 3;
/// Their keys cover all three partitions.
pub const USERS: [&str; 6] = ["ada", "bob", "mia", "fay", "kim", "eve"];
const CITIES: [&str; 5] = ["Berlin", "Lisbon", "Porto", "Vienna", "Oslo"];
const TENNIS: [&str; 2] =
    ["I have never played tennis in the park.", "I played tennis in the park with Anna."];
const SIGNALS: [&str; 4] = ["used", "confirmed", "wrong", "irrelevant"];
const REPEATED: [&str; 3] = [
    "We decided to use Postgres for the billing service in March.",
    "My flight to Oslo leaves on 12 March at 7:40.",
    "My sister Anna is allergic to peanuts.",
];
/// Header of the signature, which a forged record has too.
const FORGED: &str = "keepsake-mark";
/// 1 January 2026, noon.
pub const NOON_MS: i64 = 1_767_268_800_000;
const DAY_MS: i64 = 86_400_000;

/// An event that was sent, with its partition and offset.
#[derive(Clone, Debug)]
pub struct Sent {
    pub place: (i32, i64),
    pub user: usize,
    pub event: Value,
    /// The record cannot be decoded and must become a dead letter.
    pub is_broken: bool,
    /// A word that no other event contains.
    pub secret: Option<String>,
}

impl Sent {
    /// Id of the memory that the event's first candidate makes, if it makes one.
    pub fn memory(&self, topic: &str) -> MemoryId {
        let (partition, offset) = self.place;
        MemoryId::of(&Position { topic: topic.into(), partition, offset }, 0)
    }
}

/// An event that is not sent yet.
pub struct Next {
    pub outgoing: OutgoingRecord,
    pub partition: i32,
    user: usize,
    event: Value,
    is_broken: bool,
    secret: Option<String>,
}

impl Next {
    pub fn sent_at(self, offset: i64) -> Sent {
        let Next { partition, user, event, is_broken, secret, .. } = self;
        Sent { place: (partition, offset), user, event, is_broken, secret }
    }
}

pub fn next(dice: &mut Dice, users: usize, topic: &str, before: &[Sent]) -> Next {
    let n = before.len();
    let user = dice.below(users as u64) as usize;
    let mut secret = None;
    let mut is_broken = false;
    let kind = dice.below(100);
    let mut event = match kind {
        0..=9 => turn(&format!("I live in {}.", pick(dice, &CITIES))),
        10..=19 => turn(&format!("I moved to {} last month.", pick(dice, &CITIES))),
        20..=28 => turn(pick(dice, &REPEATED)),
        29..=31 => turn(&format!("We now have {} boats in the rental fleet.", 10 + dice.below(5))),
        32..=33 => turn(pick(dice, &TENNIS)),
        34..=44 => {
            let content = format!("The parcel code is {}.", word(&mut secret, n));
            json!({"type": "remember", "content": content})
        }
        45..=52 => turn(&format!("My locker number is {}.", word(&mut secret, n))),
        53..=56 => turn("Hi there!"),
        57..=60 => {
            let content = format!("Noted: the parcel of {n} is on its way to Porto.");
            json!({"type": "turn", "role": "assistant", "content": content})
        }
        61..=65 => {
            let content = format!("Office rule {}: doors close at six.", word(&mut secret, n));
            json!({"type": "remember", "scope": "tenant", "content": content})
        }
        66..=71 => {
            let content = format!("The parcel code has become {}.", pick(dice, &CITIES));
            json!({"type": "update", "content": content})
        }
        72..=79 => json!({"type": "forget"}),
        80..=82 => json!({"type": "forget", "session": session(dice)}),
        83..=84 => json!({"type": "forget", "query": pick(dice, &CITIES)}),
        85 => json!({"type": "forget", "everything": true}),
        86..=91 => json!({"type": "feedback", "signal": pick(dice, &SIGNALS)}),
        92..=93 => json!({"type": "tick"}),
        94 => {
            is_broken = true;
            json!({"type": "turn", "user": "", "content": "nobody says this"})
        }
        95 => {
            // A proposal that only the service itself may make.
            is_broken = true;
            json!({"type": "prune", "tenant": TENANT, "user": USERS[user], "reason": "forged",
                "memories": [{"memory": forged_id(topic), "version": 1}]})
        }
        _ => Value::Null,
    };
    let is_repeated = event.is_null();
    let (user, mut event) = match repeatable(dice, before).filter(|_| is_repeated) {
        Some(sent) => {
            secret = sent.secret.clone();
            (sent.user, sent.event.clone())
        }
        None => {
            if is_repeated {
                event = turn("Hi there!");
            }
            (complete(dice, &mut event, topic, before, user), event)
        }
    };
    if !is_broken {
        event["user"] = USERS[user].into();
    }
    let key = UserKey::new(TENANT, USERS[user]).expect("tenant and user are valid names");
    // Some senders do not partition by murmur2.
    let partition = if dice.below(8) == 0 {
        dice.below(PARTITIONS as u64) as i32
    } else {
        key.partition(PARTITIONS)
    };
    let value = if is_broken && dice.below(2) == 0 {
        b"{\"type\": \"turn\", ".to_vec()
    } else {
        event.to_string().into_bytes()
    };
    let outgoing = OutgoingRecord {
        topic: topic.to_owned(),
        partition: Some(partition),
        key: Some(key.as_str().into()),
        value: Some(value),
        headers: headers(dice, n, topic),
        ..OutgoingRecord::default()
    };
    Next { outgoing, partition, user, event, is_broken, secret }
}

/// Fills in tenant, memory, session, time and id. Returns the user who sends the event, mostly the
/// owner of the memory that the event names.
fn complete(
    dice: &mut Dice,
    event: &mut Value,
    topic: &str,
    before: &[Sent],
    user: usize,
) -> usize {
    let n = before.len();
    let mut user = user;
    event["tenant"] = TENANT.into();
    let is_about_a_memory = event["type"] == "update"
        || event["type"] == "feedback"
        || (event["type"] == "forget"
            && event.as_object().is_some_and(|fields| {
                !fields.keys().any(|f| ["session", "query", "everything"].contains(&f.as_str()))
            }));
    if is_about_a_memory {
        let mut makers: Vec<&Sent> = before
            .iter()
            .filter(|sent| sent.event["type"] == "turn" || sent.event["type"] == "remember")
            .collect();
        let shared = makers.iter().rposition(|sent| sent.event["scope"] == "tenant");
        let prefers_shared = dice.below(10) <= 3;
        // Often the newest tenant memory: concurrent changes of it by several users are a case of
        // their own.
        if let Some(shared) = shared.filter(|_| prefers_shared) {
            makers = vec![makers[shared]];
        }
        let memory = match makers.len() {
            0 => MemoryId::of(&Position { topic: topic.into(), partition: 0, offset: 0 }, 0),
            many => {
                let maker = makers[many - 1 - dice.below(many.min(12) as u64) as usize];
                // Every user of a tenant may change a tenant memory.
                if dice.below(8) != 0 && maker.event["scope"] != "tenant" {
                    user = maker.user;
                }
                maker.memory(topic)
            }
        };
        event["memory"] = memory.to_string().into();
    }
    if event["type"] == "turn" || event["type"] == "remember" {
        if dice.below(4) != 0 {
            event["session"] = session(dice).into();
        }
        if dice.below(3) != 0 {
            // Up to ten minutes early, so that event times are out of order; some come days late.
            let late = if dice.below(20) == 0 { dice.below(40) as i64 * DAY_MS } else { 0 };
            let at = NOON_MS + n as i64 * 60_000 - dice.below(600_000) as i64 - late;
            let at = jiff::Timestamp::from_millisecond(at).expect("the time is in the year 2026");
            event["at"] = at.to_string().into();
        }
    }
    if dice.below(2) == 0 {
        event["id"] = format!("e{n}").into();
    }
    user
}

/// Chooses an earlier event to send again. An event with a secret needs an id: without one the
/// repetition would be a second event that contains the secret.
fn repeatable<'s>(dice: &mut Dice, before: &'s [Sent]) -> Option<&'s Sent> {
    let candidates: Vec<&Sent> = before
        .iter()
        .filter(|sent| !sent.is_broken && (sent.secret.is_none() || !sent.event["id"].is_null()))
        .collect();
    (!candidates.is_empty()).then(|| pick(dice, &candidates))
}

/// Half of the senders ask for a receipt, and some claim that Keepsake forwarded their record.
fn headers(dice: &mut Dice, n: usize, topic: &str) -> Headers {
    let mut headers = Vec::new();
    if dice.below(2) == 0 {
        headers.push(("reply-topic".into(), b"keepsake.replies".to_vec()));
        headers.push(("correlation-id".into(), n.to_string().into_bytes()));
    }
    if dice.below(12) == 0 {
        headers.extend([
            ("keepsake-origin".into(), format!("{topic}:0:0").into_bytes()),
            ("keepsake-via".into(), format!("{}:{}", n % 3, i64::MAX).into_bytes()),
            ("keepsake-hops".into(), b"1".to_vec()),
            (FORGED.into(), b"00112233445566778899aabbccddeeff".to_vec()),
        ]);
    }
    headers
}

fn forged_id(topic: &str) -> String {
    MemoryId::of(&Position { topic: topic.into(), partition: 0, offset: 0 }, 0).to_string()
}

fn turn(content: &str) -> Value {
    json!({"type": "turn", "content": content})
}

/// Makes the secret word of event `n`.
fn word(secret: &mut Option<String>, n: usize) -> String {
    let word = format!("zq{n}x");
    *secret = Some(word.clone());
    word
}

fn session(dice: &mut Dice) -> &'static str {
    pick(dice, &["monday", "tuesday"])
}

fn pick<T: Copy>(dice: &mut Dice, all: &[T]) -> T {
    all[dice.below(all.len() as u64) as usize]
}

//! What the world says to a simulated Keepsake: events that depend on each other, and some that are wrong.

use crate::support::story::Dice;
use keepsake::domain::{MemoryId, Position, UserKey};
use keepsake::ports::broker::{Headers, Outgoing};
use serde_json::{Value, json};

pub const TENANT: &str = "sim";
pub const PARTITIONS: i32 = 3;
/// They live on all three partitions.
pub const USERS: [&str; 6] = ["ada", "bob", "mia", "fay", "kim", "eve"];
const CITIES: [&str; 5] = ["Berlin", "Lisbon", "Porto", "Vienna", "Oslo"];
const REPEATED: [&str; 3] = [
    "We decided to use Postgres for the billing service in March.",
    "My flight to Oslo leaves on 12 March at 7:40.",
    "My sister Anna is allergic to peanuts.",
];
/// 1 January 2026, noon.
pub const NOON_MS: i64 = 1_767_268_800_000;

/// An event as it was sent, and where it stands.
#[derive(Clone, Debug)]
pub struct Sent {
    pub place: (i32, i64),
    pub user: usize,
    pub event: Value,
    /// Nobody can read it: it becomes a dead letter.
    pub is_broken: bool,
    /// A word that no other event says.
    pub secret: Option<String>,
}

impl Sent {
    /// The memory that it makes, if it makes one.
    pub fn memory(&self, topic: &str) -> MemoryId {
        MemoryId::of(
            &Position { topic: topic.into(), partition: self.place.0, offset: self.place.1 },
            0,
        )
    }
}

/// The next event, not sent yet.
pub struct Next {
    pub outgoing: Outgoing,
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
        32..=33 => turn(pick(
            dice,
            &["I have never played tennis in the park.", "I played tennis in the park with Anna."],
        )),
        34..=44 => {
            json!({"type": "remember", "content": format!("The parcel code is {}.", word(&mut secret, n))})
        }
        45..=52 => turn(&format!("My locker number is {}.", word(&mut secret, n))),
        53..=56 => turn("Hi there!"),
        57..=60 => {
            json!({"type": "turn", "role": "assistant", "content": format!("Noted: the parcel of {n} is on its way to Porto.")})
        }
        61..=65 => {
            json!({"type": "remember", "scope": "tenant", "content": format!("Office rule {}: doors close at six.", word(&mut secret, n))})
        }
        66..=71 => {
            json!({"type": "update", "content": format!("The parcel code has become {}.", pick(dice, &CITIES))})
        }
        72..=79 => json!({"type": "forget"}),
        80..=82 => json!({"type": "forget", "session": session(dice)}),
        83..=84 => json!({"type": "forget", "query": pick(dice, &CITIES)}),
        85 => json!({"type": "forget", "everything": true}),
        86..=91 => {
            json!({"type": "feedback", "signal": pick(dice, &["used", "confirmed", "wrong", "irrelevant"])})
        }
        92..=93 => json!({"type": "tick"}),
        94..=95 => {
            is_broken = true;
            json!({"type": "turn", "user": "", "content": "nobody says this"})
        }
        _ => Value::Null,
    };
    let is_told_again = event.is_null();
    let (user, mut event) = match again(dice, before).filter(|_| is_told_again) {
        Some(sent) => {
            secret = sent.secret.clone();
            (sent.user, sent.event.clone())
        }
        None => {
            if is_told_again {
                event = turn("Hi there!");
            }
            (dress(dice, &mut event, topic, before, user, n), event)
        }
    };
    if !is_broken {
        event["user"] = USERS[user].into();
    }
    let key = UserKey::new(TENANT, USERS[user]).expect("a name");
    // Some senders know no murmur2.
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
    let outgoing = Outgoing {
        topic: topic.to_owned(),
        partition: Some(partition),
        key: Some(key.as_str().into()),
        value: Some(value),
        headers: if dice.below(2) == 0 { asks_for_a_receipt(n) } else { Vec::new() },
        ..Outgoing::default()
    };
    Next { outgoing, partition, user, event, is_broken, secret }
}

/// Tenant, session, time, id, and what it is about. Says whose it is: who changes a memory is mostly the one whose it is.
fn dress(
    dice: &mut Dice,
    event: &mut Value,
    topic: &str,
    before: &[Sent],
    user: usize,
    n: usize,
) -> usize {
    let mut user = user;
    event["tenant"] = TENANT.into();
    let is_about_a_memory = event["type"] == "update"
        || event["type"] == "feedback"
        || (event["type"] == "forget"
            && event.as_object().is_some_and(|fields| {
                !fields.keys().any(|f| ["session", "query", "everything"].contains(&f.as_str()))
            }));
    if is_about_a_memory {
        let is_maker = |sent: &&Sent| {
            ["turn", "remember"].contains(&sent.event["type"].as_str().unwrap_or(""))
        };
        let mut makers: Vec<&Sent> = before.iter().filter(is_maker).collect();
        // Often the last one that the whole tenant sees: its changes meet only if several users change it at about the same time.
        if let (Some(shared), 0..=3) =
            (makers.iter().rposition(|sent| sent.event["scope"] == "tenant"), dice.below(10))
        {
            makers = vec![makers[shared]];
        }
        let memory = match makers.len() {
            0 => MemoryId::of(&Position { topic: topic.into(), partition: 0, offset: 0 }, 0),
            many => {
                let maker = makers[many - 1 - dice.below(many.min(12) as u64) as usize];
                // What a whole tenant sees anybody of it may change.
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
            // Late and early ones too.
            let at = NOON_MS + n as i64 * 60_000 - dice.below(600_000) as i64;
            event["at"] = jiff::Timestamp::from_millisecond(at).expect("a time").to_string().into();
        }
    }
    if dice.below(2) == 0 {
        event["id"] = format!("e{n}").into();
    }
    user
}

/// One that was sent before. A secret only under an id: else it would be another event that says it.
fn again<'s>(dice: &mut Dice, before: &'s [Sent]) -> Option<&'s Sent> {
    let can: Vec<&Sent> = before
        .iter()
        .filter(|sent| !sent.is_broken && (sent.secret.is_none() || !sent.event["id"].is_null()))
        .collect();
    if can.is_empty() { None } else { Some(can[dice.below(can.len() as u64) as usize]) }
}

fn asks_for_a_receipt(n: usize) -> Headers {
    vec![
        ("reply-topic".into(), b"keepsake.replies".to_vec()),
        ("correlation-id".into(), n.to_string().into_bytes()),
    ]
}

fn turn(content: &str) -> Value {
    json!({"type": "turn", "content": content})
}

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

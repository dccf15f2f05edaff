//! Law nobody-suffers while much is erased: others are answered between the batches of a `forget` of
//! everything.
//!
//! `KEEPSAKE_WORST_MEMORIES` sets the number of memories, each with three slots, and then the pause
//! is checked too: for a release build.

use crate::support::client::outcome;
use crate::support::service::PATIENT;
use crate::support::{Broker, Client, Running, User, eventually, number_from_env};
use domain::UserKey;
use kernel::Reads;
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Memories in an unoptimised build.
const SMALL: u64 = 600;
/// Longest time for which another user of the partition may wait for a receipt or an answer.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Time to erase everything.
const ERASED_WITHIN: Duration = Duration::from_secs(300);

/// Another user of the partition.
#[derive(Default)]
struct Other {
    calls: AtomicUsize,
    is_over: AtomicBool,
}

impl Other {
    /// Repeats a call until it is over. Returns its longest time.
    fn calls(&self, mut call: impl FnMut()) -> Duration {
        let mut longest = Duration::ZERO;
        while !self.is_over.load(Ordering::Acquire) {
            let began = Instant::now();
            call();
            longest = longest.max(began.elapsed());
            self.calls.fetch_add(1, Ordering::AcqRel);
        }
        longest
    }

    fn count(&self) -> usize {
        self.calls.load(Ordering::Acquire)
    }
}

/// Spells a number with letters, of which the names of facts consist.
fn spelt(mut n: u64) -> String {
    let mut letters = String::new();
    while n > 0 {
        letters.push(char::from(b'a' + (n % 26) as u8));
        n /= 26;
    }
    letters
}

/// Publishes memories that hold three slots each, and waits until all are applied.
fn fill(eve: &User<'_>, count: u64) {
    for n in 0..count {
        let name = spelt(n);
        let content = format!("My x{name} is {n}. My y{name} is {n}. My z{name} is {n}.");
        let event = json!({"type": "remember", "content": content, "session": format!("s{n}")});
        eve.client.post(&eve.message("events", event));
        if n % 1000 == 0 {
            eve.client.flush();
        }
    }
    let last = eve.event(json!({"type": "remember", "content": "The last one."}));
    assert_eq!(outcome(&last), "kept", "{last}");
}

fn slots(running: &Running, eve: &User<'_>) -> usize {
    let key = UserKey::new(&eve.tenant, &eve.user).expect("valid names");
    let shard = running.service.shards.get(0).expect("the only partition");
    shard.store.slots(&key).expect("a disk").len()
}

#[test]
fn law_nobody_suffers_from_a_forget_of_everything() {
    let asked = number_from_env("KEEPSAKE_WORST_MEMORIES");
    let [wait, deadline] = PATIENT;
    let running = Running::start(Broker::Embedded, &[wait, deadline, ("topics.partitions", "1")]);
    let client = running.client();
    let eve = client.user("suffers", "eve");
    let count = asked.unwrap_or(SMALL);
    fill(&eve, count);
    let slots = slots(&running, &eve);
    // A few of the names are words that a fact cannot be about.
    assert!(100 * slots as u64 >= 297 * count, "{slots} slots");
    let own = || Client::connect(&running.service.servers, &running.place.prefix);
    let (speaker, asker) = (Other::default(), Other::default());
    let (receipts, answers, took) = std::thread::scope(|scope| {
        let receipts = scope.spawn(|| {
            let client = own();
            let ada = client.user("suffers", "ada");
            speaker.calls(|| drop(ada.turn("Thanks, that is all.")))
        });
        let answers = scope.spawn(|| {
            let client = own();
            let bob = client.user("suffers", "bob");
            asker.calls(|| drop(bob.recall("Where do I live?")))
        });
        eventually("both are served", || (speaker.count().min(asker.count()) > 2).then_some(()));
        let began = Instant::now();
        let receipt = eve.event(json!({"type": "forget", "everything": true}));
        println!("after {:.2?}: {}", began.elapsed(), receipt["decisions"][0]["reason"]);
        while eve.ask(json!({"type": "stats"}))["memories"]["total"] != 0 {
            assert!(began.elapsed() < ERASED_WITHIN, "the erasure does not end");
        }
        let took = began.elapsed();
        for other in [&speaker, &asker] {
            other.is_over.store(true, Ordering::Release);
        }
        (receipts.join().expect("no panic"), answers.join().expect("no panic"), took)
    });
    assert_eq!(self::slots(&running, &eve), 0);
    let counts = (speaker.count(), asker.count());
    println!(
        "erased in {took:.2?}; the longest of {} receipts took {receipts:.2?}, of {} answers {answers:.2?}",
        counts.0, counts.1
    );
    assert!(asked.is_none() || receipts.max(answers) < PAUSE_MAX, "others had to wait");
    running.stop();
}

//! Tests withheld turns: none of their words is written, published or logged.

use super::{Bench, remember, turn};
use domain::{Decision, Outcome, SENDER_LIMITS};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

const HARP: &str = "My sister Anna plays the harp in Bergen.";
const FLIGHT: &str = "Our flight to Oslo leaves on 12 March at 7:40.";

fn said_by(role: &str, content: &str) -> Value {
    json!({"type": "turn", "user": "ada", "session": "s", "role": role, "content": content})
}

/// Applies events and returns the outcome and reason of each decision, and the text of all outputs.
fn apply(bench: &mut Bench, events: &[Value]) -> (Vec<(Outcome, String)>, String) {
    let records = events.iter().map(|event| bench.record(event)).collect();
    let (outputs, decisions) = bench.step(records);
    let told = outputs.iter().map(|output| {
        String::from_utf8_lossy(output.value.as_deref().unwrap_or_default()).into_owned()
    });
    (
        decisions.into_iter().map(|decision| (decision.outcome, decision.reason)).collect(),
        told.collect(),
    )
}

/// Returns true if any record of the stores contains the words.
pub(super) fn is_stored(bench: &Bench, words: &str) -> bool {
    let mut found = false;
    let mut look = |_: &[u8], value: &[u8]| {
        found |= value.windows(words.len()).any(|window| window == words.as_bytes());
        true
    };
    for partition in 0..super::PARTITIONS {
        let shard = bench.ingest.shards.get(partition).expect("open");
        shard.store.records(&[], &mut look).expect("a disk");
    }
    found
}

fn leaves_nothing(bench: &mut Bench, events: &[Value], words: &str, reason: &str) {
    let (decisions, told) = apply(bench, events);
    assert!(decisions.contains(&(Outcome::Dropped, reason.to_owned())), "{decisions:?}");
    assert!(!is_stored(bench, words), "{words} is in the store");
    assert!(!told.contains(words), "{words}: {told}");
}

#[test]
fn words_of_a_sender_who_may_not_forget_erase_nothing() {
    let mut bench = Bench::of(&[]);
    apply(&mut bench, &[turn(HARP)]);
    assert_eq!(bench.memories("ada").len(), 1);
    let wish = turn("Forget what I just said.");
    let mut record = bench.record(&wish);
    record.headers.push((SENDER_LIMITS.to_owned(), b"one-user,no-forget".to_vec()));
    let (_, decisions) = bench.step(vec![record]);
    assert_eq!(decisions[0].outcome, Outcome::Refused, "{decisions:?}");
    assert_eq!(bench.memories("ada").len(), 1);
    let (decisions, _) = apply(&mut bench, &[turn(FLIGHT), wish]);
    assert_eq!(decisions.last().map(|it| it.0), Some(Outcome::Forgotten), "{decisions:?}");
    assert_eq!(bench.memories("ada").len(), 1);
}

#[test]
fn an_off_the_record_turn_and_its_echo_are_written_nowhere() {
    let secret = "Off the record: I am leaving for Timbuktu in June.";
    let echo = "Understood, I won't remember that you are leaving for Timbuktu.";
    let mut bench = Bench::of(&[]);
    let events = [turn(HARP), turn(secret), said_by("assistant", echo), turn(FLIGHT)];
    leaves_nothing(&mut bench, &events, "Timbuktu", "the user asks not to remember it");
    let contents: Vec<String> =
        bench.memories("ada").into_iter().map(|memory| memory.content).collect();
    assert!(
        contents.contains(&HARP.to_owned()) && contents.contains(&FLIGHT.to_owned()),
        "{contents:?}"
    );
}

#[test]
fn a_retracted_turn_is_erased_and_earlier_turns_stay() {
    let mut bench = Bench::of(&[]);
    let answer = "Timbuktu in June will be about 42 degrees, so the trip needs planning.";
    apply(
        &mut bench,
        &[
            turn(HARP),
            turn("I am leaving for Timbuktu in June."),
            said_by("assistant", answer),
            turn("Is it?"),
        ],
    );
    assert!(is_stored(&bench, "Timbuktu"));
    apply(&mut bench, &[turn("I'm moving to Zanzibar with my cat.")]);
    let (decisions, _) = apply(&mut bench, &[turn("Forget what I just said.")]);
    assert_eq!(
        decisions,
        [(Outcome::Forgotten, "takes back the turn before: one memory is gone".to_owned())]
    );
    assert!(!is_stored(&bench, "Zanzibar") && !is_stored(&bench, "Forget what"));
    assert!(is_stored(&bench, "Timbuktu") && is_stored(&bench, "harp"), "earlier turns stay");
}

#[test]
fn retracting_a_turn_without_a_memory_removes_the_turn_from_its_neighbours() {
    let mut bench = Bench::of(&[]);
    apply(&mut bench, &[turn(HARP), turn("Which coast is that exactly?")]);
    assert!(is_stored(&bench, "coast"));
    let (decisions, _) =
        apply(&mut bench, &[turn("forget what I just said"), turn("forget what i just said")]);
    let reasons: Vec<&str> = decisions.iter().map(|(_, reason)| reason.as_str()).collect();
    let nothing = "takes back what was said before, and there is nothing";
    assert_eq!(reasons, ["takes back the turn before, of which no memory was made", nothing]);
    assert!(!is_stored(&bench, "coast") && is_stored(&bench, "harp"));
}

#[test]
fn a_wish_to_forget_in_doubt_erases_nothing_and_the_decision_says_how_to() {
    let advised = |bench: &mut Bench, events: &[Value], advice: &str| {
        apply(bench, &[turn("I am leaving for Timbuktu in June.")]);
        let (decisions, _) = apply(bench, events);
        let (_, reason) = decisions.last().expect("a decision");
        assert!(reason.contains(advice), "{reason}");
        assert!(is_stored(bench, "Timbuktu"));
    };
    let bench = &mut Bench::of(&[]);
    let correction = "Forget what I said about June, I am leaving for Zanzibar in July.";
    let alone =
        "a wish to forget inside other text erases nothing: send a forget event, or say it alone";
    advised(bench, &[turn(correction)], alone);
    assert!(is_stored(bench, "Zanzibar"));
    let other = "the turn before does not name what is to be forgotten: send a forget event";
    advised(bench, &[turn("Forget what I said about my salary.")], other);
    let question = said_by("assistant", "Shall I delete the old draft of the letter?");
    let file = "this may answer a question or be about a file: send a forget event";
    advised(bench, &[question.clone(), turn("Please delete that.")], file);

    let plain = [question, turn("Forget what I said about June.")];
    let (decisions, _) = apply(bench, &[&[turn("My visa for June came.")], &plain[..]].concat());
    let (outcome, _) = decisions.last().expect("a decision");
    assert_eq!(*outcome, Outcome::Forgotten, "{decisions:?}");
    assert!(!is_stored(bench, "visa"));
}

#[test]
fn a_turn_with_remember_false_is_context_only() {
    let mut bench = Bench::of(&[]);
    let mut event = turn("I keep my boat in Timbuktu.");
    event["remember"] = false.into();
    let (decisions, _) = apply(&mut bench, &[event, turn(FLIGHT)]);
    assert_eq!(
        decisions[0],
        (Outcome::Dropped, "the sender asks not to remember it: context only".to_owned())
    );
    let memories = bench.memories("ada");
    assert_eq!(memories.len(), 1);
    let before = memories[0].around.before.as_ref().expect("context");
    assert!(before.words.contains("Timbuktu"));
}

/// Makes a bench whose profile never keeps anything about health.
fn discreet() -> Bench {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("discreet.toml");
    std::fs::write(&path, "base = \"keepsake\"\n[never]\nhealth = true\n").expect("a disk");
    Bench::of(&[("profile", path.to_str().expect("a path"))])
}

#[test]
fn a_category_that_the_profile_never_keeps_is_written_nowhere() {
    let mut bench = discreet();
    let reason = "about health, which this profile never keeps";
    let events = [
        turn(HARP),
        turn("I have diabetes, says Timbuktu."),
        remember("Insulin from Timbuktu at eight."),
        turn(FLIGHT),
    ];
    leaves_nothing(&mut bench, &events, "Timbuktu", reason);
    assert_eq!(bench.memories("ada").len(), 2);

    let mut open = Bench::of(&[]);
    apply(&mut open, &events);
    assert_eq!(open.memories("ada").len(), 4, "off by default");
}

/// Collects everything that is logged.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no writer panics").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Applies an event whose sender waits for a reply. Returns the decision, the reply, and the text
/// of everything that leaves the process: outputs, changelog, reply, metrics and log.
fn ask(bench: &mut Bench, event: &Value) -> (Decision, Value, String) {
    let mut record = bench.record(event);
    record.headers.push(("kafka_replyTopic".into(), b"keepsake.replies".to_vec()));
    let logged = Logged::default();
    let writer = logged.clone();
    let log = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let (decisions, replied, mut out) = tracing::subscriber::with_default(log, || {
        let effects = bench.ingest.step(vec![record]).expect("no faults");
        let replied = serde_json::from_slice(effects.replies[0].value.as_deref().expect("a reply"))
            .expect("JSON");
        let mut out = bench.ingest.metrics.page();
        for outgoing in effects.outputs.iter().chain(&effects.replies) {
            // The changelog's own form of a record is in a header.
            let parts = outgoing
                .key
                .iter()
                .chain(&outgoing.value)
                .chain(outgoing.headers.iter().map(|(_, value)| value));
            out.extend(parts.map(|part| String::from_utf8_lossy(part).into_owned()));
        }
        let decisions: Vec<Decision> =
            effects.writes.iter().flat_map(|write| write.decisions.clone()).collect();
        for write in effects.writes {
            write.carry_out(None).expect("a disk");
        }
        (decisions, replied, out)
    });
    out.push_str(&String::from_utf8_lossy(&logged.0.lock().expect("no writer panics")));
    (decisions[0].clone(), replied, out)
}

#[test]
fn an_update_to_a_category_that_is_never_kept_is_refused() {
    let mut bench = discreet();
    apply(&mut bench, &[turn(HARP)]);
    let before = bench.memories("ada").remove(0);
    let update = |id: &str, content: &str| {
        let memory = before.id.to_string();
        json!({"type": "update", "user": "ada", "id": id, "memory": memory, "content": content, "importance": 0.9})
    };

    let (decision, reply, out) = ask(&mut bench, &update("1", "Anna has diabetes, says Timbuktu."));
    assert_eq!((decision.outcome, decision.memory), (Outcome::Refused, Some(before.id)));
    assert_eq!(decision.reason, "about health, which this profile never keeps");
    assert_eq!(
        (&reply["status"], &reply["decisions"][0]["outcome"]),
        (&json!("ok"), &json!("refused")),
        "{reply}"
    );
    assert!(!out.contains("Timbuktu"), "{out}");
    assert!(!is_stored(&bench, "Timbuktu"));
    let after = bench.memories("ada").remove(0);
    assert_eq!(
        (&after.content, after.importance, after.version),
        (&before.content, before.importance, before.version)
    );

    // Check of the check: a permitted update is found in every place that was searched.
    let (decision, _, out) = ask(&mut bench, &update("2", "Anna plays the harp in Timbuktu."));
    assert_eq!(decision.outcome, Outcome::Updated);
    assert!(is_stored(&bench, "Timbuktu") && out.contains("Timbuktu"));
}

#[test]
fn a_published_policy_follows_no_wishes() {
    let mut bench = Bench::of(&[("profile", "memory-platform")]);
    apply(&mut bench, &[turn("I prefer tea, just between us.")]);
    assert!(is_stored(&bench, "just between us"));
}

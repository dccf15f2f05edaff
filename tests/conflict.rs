//! Links that the compaction worker proposes with a model that compares statements: what it links, what it leaves alone, and what it may take.

use crate::support::client::contents;
use crate::support::in_process::InProcess;
use crate::support::{Broker, Running, eventually, root};
use keepsake::compact::{Compact, Judging, JudgingOptions};
use keepsake::config::Layers;
use keepsake::domain::{Now, Spread, Time};
use keepsake::fault::{Fault, Result};
use keepsake::ports::broker::Outgoing;
use keepsake::ports::clock::ManualClock;
use keepsake::ports::cross_encoder::Judge;
use keepsake::ports::embedder::{Model, TokenCounter};
use keepsake::run::{Service, options};
use keepsake::wire::Moment;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};

const BUDGET_MS: i64 = 1_000;
const HOUR_MS: i64 = 3_600_000;
const NOW: Time = Time(1_720_000_000_000);

/// Takes two statements for a contradiction if both name a colour, and not the same one; takes its time, or fails.
struct Colours {
    clock: ManualClock,
    pair_ms: i64,
    fails: bool,
    /// The later statement is a contradiction only after the earlier one, not before it.
    one_way: bool,
    asked: Arc<Mutex<Vec<(String, String)>>>,
}

impl Judge for Colours {
    fn contradiction(&mut self, pairs: &[(&str, &str)]) -> Result<Vec<f32>> {
        if self.fails {
            return Err(Fault::retry("it is told to fail"));
        }
        self.clock.advance(self.pair_ms * pairs.len() as i64);
        let mut asked = self.asked.lock().expect("nobody panics with it");
        asked.extend(pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())));
        let colour =
            |text: &str| ["red", "green", "blue"].into_iter().find(|colour| text.contains(colour));
        let differ = |a: Option<&str>, b: Option<&str>| a.is_some() && b.is_some() && a != b;
        let found = pairs.iter().map(|(a, b)| {
            match (differ(colour(a), colour(b)), self.one_way && a < b) {
                (true, false) => 0.97,
                _ => 0.02,
            }
        });
        Ok(found.collect())
    }
}

struct Story {
    service: InProcess,
    clock: ManualClock,
    asked: Arc<Mutex<Vec<(String, String)>>>,
    hours: i64,
}

impl Story {
    fn of(profile: &str) -> Story {
        let mut layers = Layers::defaults();
        layers.set("embedder.model", "hash", "test").expect("an option");
        let model = Model::open(&options::embedder(&layers.checked().expect("options")))
            .expect("needs nothing");
        let service = InProcess::with_profile(
            profile,
            &|| model.session().expect("a session"),
            &TokenCounter::estimate(),
        );
        Story { service, clock: ManualClock::at(NOW), asked: Arc::default(), hours: 0 }
    }

    /// Each event an hour after the one before.
    fn tell(&mut self, mut event: Value) -> &'static str {
        self.hours += 1;
        event["at"] = serde_json::to_value(Moment(self.now().0)).expect("a string");
        event["user"] = "mia".into();
        self.service.outcome_of(&event)
    }

    fn turns(texts: &[&str]) -> Story {
        let mut story = Story::of("keepsake");
        for text in texts {
            assert_eq!(story.tell(json!({"type": "turn", "content": text})), "kept", "{text}");
        }
        story
    }

    fn now(&self) -> Time {
        NOW.plus_ms(self.hours * HOUR_MS)
    }

    fn judge(&self) -> Colours {
        Colours {
            clock: self.clock.clone(),
            pair_ms: 1,
            fails: false,
            one_way: false,
            asked: self.asked.clone(),
        }
    }

    /// A worker that starts now.
    fn worker(&self, judge: Colours) -> Compact {
        let options = JudgingOptions {
            probability: 0.9,
            cosine: 0.35,
            earlier_max: 3,
            days: 7.0,
            budget_ms: BUDGET_MS,
            compared_max: 100,
        };
        let (clock, spread) = (Arc::new(self.clock.clone()), Spread::STANDARD);
        self.service.compaction(Some(Judging { judge: Box::new(judge), clock, spread, options }))
    }

    fn round(&self, worker: &mut Compact) -> Vec<Outgoing> {
        let now = self.now();
        worker.step(Now { wall: now, events: now }).expect("memory")
    }

    /// What a worker that starts now would propose.
    fn proposals(&self) -> Vec<Outgoing> {
        self.round(&mut self.worker(self.judge()))
    }

    fn linked(texts: &[&str]) -> Story {
        let mut story = Story::turns(texts);
        for proposal in story.proposals() {
            assert_eq!(story.service.outcome_of_own_record(&proposal), "revised");
        }
        story
    }

    fn memory(&mut self, text: &str) -> Value {
        let request = json!({"type": "list", "user": "mia", "limit": 50});
        let listed = self.service.reply(self.now(), &request);
        let memories = listed["memories"].as_array().unwrap_or_else(|| panic!("{listed}"));
        memories
            .iter()
            .find(|memory| memory["content"] == text)
            .unwrap_or_else(|| panic!("{text}: {listed}"))
            .clone()
    }

    fn recall(&mut self, query: &str) -> Vec<Value> {
        self.service.memories(self.now(), &json!({"type": "recall", "user": "mia", "query": query}))
    }

    fn check_counted(&self, outcome: &str, count: u64) {
        let (page, name) = (
            self.service.metrics.page(),
            format!("keepsake_conflict_total{{outcome=\"{outcome}\"}} "),
        );
        let counted = page
            .lines()
            .find_map(|line| line.strip_prefix(&name))
            .map_or(0, |value| value.parse().expect("a count"));
        assert_eq!(counted, count, "{outcome}: {page}");
    }
}

/// Makes an event about the two memories.
type About = fn(&Value, &Value) -> Value;

const RED: &str = "The front door of my house is painted red.";
const GREEN: &str = "My house has the front door painted green.";

#[test]
fn a_contradicted_statement_is_revised_and_stays_valid() {
    let mut story = Story::turns(&[RED, GREEN]);
    assert!(
        story.memory(GREEN)["revises"].as_array().is_none_or(Vec::is_empty),
        "or the worker has nothing to do"
    );
    let mut worker = story.worker(story.judge());
    let proposals = story.round(&mut worker);
    assert_eq!(proposals.len(), 1, "{proposals:?}");
    assert_eq!(story.service.outcome_of_own_record(&proposals[0]), "revised");
    let (red, green) = (story.memory(RED), story.memory(GREEN));
    assert_eq!(
        (&green["revises"], &red["revised_by"]),
        (&json!([red["id"]]), &green["id"]),
        "{red} {green}"
    );
    assert!(red["valid_to"].is_null(), "{red}");
    let found = story.recall("front door painted red");
    assert_eq!(
        (&found[0]["content"], &found[1]["content"]),
        (&json!(GREEN), &json!(RED)),
        "the newer one first, whatever the words"
    );
    assert!(
        found[1]["note"]
            .as_str()
            .is_some_and(|note| note.contains("green") && note.contains("2024")),
        "{}",
        found[1]
    );
    assert_eq!(story.service.outcome_of_own_record(&proposals[0]), "duplicate");
    assert!(story.round(&mut worker).is_empty() && story.proposals().is_empty(), "it is linked");
    story.check_counted("done", 3);
}

#[test]
fn what_was_compared_is_compared_again_only_with_other_words() {
    let mut story = Story::turns(&[RED, "My house has the front door painted."]);
    let mut worker = story.worker(story.judge());
    assert!(story.round(&mut worker).is_empty());
    let asked = story.asked.lock().expect("free").len();
    assert!(asked > 0 && story.round(&mut worker).is_empty());
    assert_eq!(story.asked.lock().expect("free").len(), asked);
    let newer = story.memory("My house has the front door painted.")["id"].clone();
    story.tell(json!({"type": "update", "memory": newer, "content": GREEN}));
    assert_eq!(story.round(&mut worker).len(), 1);
}

#[test]
fn a_link_that_somebody_undid_is_not_proposed_again() {
    let undone: [(&str, About); 3] = [
        (
            "the newer one is wrong",
            |_, green| json!({"type": "feedback", "memory": green["id"], "signal": "wrong"}),
        ),
        (
            "the older one holds",
            |red, _| json!({"type": "update", "memory": red["id"], "content": RED}),
        ),
        (
            "the older one is confirmed",
            |red, _| json!({"type": "feedback", "memory": red["id"], "signal": "confirmed"}),
        ),
    ];
    for (what, event) in undone {
        let mut story = Story::linked(&[RED, GREEN]);
        let (red, green) = (story.memory(RED), story.memory(GREEN));
        assert!(!red["revised_by"].is_null(), "{what}: it was linked");
        story.tell(event(&red, &green));
        assert!(story.proposals().is_empty(), "{what}");
    }
}

#[test]
fn a_proposal_about_memories_that_have_changed_is_outdated() {
    let changed: [About; 3] = [
        |red, _| json!({"type": "forget", "memory": red["id"]}),
        |red, _| json!({"type": "update", "memory": red["id"], "content": "The front door of my house is painted blue."}),
        |_, green| json!({"type": "feedback", "memory": green["id"], "signal": "wrong"}),
    ];
    for event in changed {
        let mut story = Story::turns(&[RED, GREEN]);
        let proposal = story.proposals().pop().expect("a proposal");
        let (red, green) = (story.memory(RED), story.memory(GREEN));
        let event = event(&red, &green);
        story.tell(event.clone());
        assert_eq!(story.service.outcome_of_own_record(&proposal), "outdated", "{event}");
        assert!(story.memory(GREEN)["revises"].as_array().is_none_or(Vec::is_empty), "{event}");
    }
}

#[test]
fn only_statements_of_one_person_are_compared() {
    let check = |first: Value, second: Value| {
        let mut story = Story::of("keepsake");
        for event in [&first, &second] {
            assert_eq!(story.tell(event.clone()), "kept", "{event}");
        }
        assert!(story.proposals().is_empty(), "{first} {second}");
        assert!(story.asked.lock().expect("free").is_empty(), "{first} {second}");
    };
    let turn = |content: &str| json!({"type": "turn", "content": content});
    check(turn(RED), json!({"type": "turn", "content": GREEN, "speaker": "Ben"}));
    check(turn(RED), json!({"type": "turn", "content": GREEN, "role": "assistant"}));
    check(
        turn(RED),
        json!({"type": "remember", "content": GREEN, "scope": "session", "session": "s"}),
    );
    check(turn(RED), turn("I bought a green kite in Porto."));
}

#[test]
fn a_contradiction_in_one_order_only_is_none() {
    let story = Story::turns(&[RED, GREEN]);
    let one_way = Colours { one_way: true, ..story.judge() };
    assert!(story.round(&mut story.worker(one_way)).is_empty());
    assert_eq!(story.asked.lock().expect("free").len(), 2, "both orders were read");
}

#[test]
fn an_old_memory_is_not_compared_with_what_came_before_it() {
    let mut story = Story::turns(&[RED, GREEN]);
    story.hours += 8 * 24;
    assert!(story.proposals().is_empty());
    assert_eq!(
        story.tell(
            json!({"type": "turn", "content": "The front door of my house is now painted blue."})
        ),
        "kept"
    );
    assert_eq!(story.proposals().len(), 1, "a new one is compared with all that came before");
}

#[test]
fn what_a_round_leaves_out_waits_for_the_next() {
    let mut story = Story::turns(&[RED, "The garden gate of my house is painted red.", GREEN]);
    story.tell(json!({"type": "turn", "content": "My house has the garden gate painted green."}));
    let mut worker = story.worker(Colours { pair_ms: BUDGET_MS, ..story.judge() });
    let mut rounds = Vec::new();
    while rounds.len() < 10 && rounds.iter().sum::<usize>() < 2 {
        rounds.push(story.round(&mut worker).len());
    }
    assert!(rounds.len() > 2 && rounds.iter().sum::<usize>() == 2, "{rounds:?}");
    story.check_counted("slow", rounds.len() as u64 - 1);
}

#[test]
fn a_model_that_fails_stops_no_compaction() {
    let mut story = Story::of("keepsake");
    for content in [
        RED,
        GREEN,
        "My sister Anna moved to Porto.",
        "I am allergic to peanuts.",
        "Our dog is called Rex.",
    ] {
        story.tell(json!({"type": "turn", "content": content, "session": "s"}));
    }
    story.hours += 12;
    let failing = Colours { fails: true, ..story.judge() };
    let proposals = story.round(&mut story.worker(failing));
    story.check_counted("failed", 1);
    assert_eq!(proposals.len(), 1, "the session that has ended is still summarised: {proposals:?}");
    assert_eq!(story.service.outcome_of_own_record(&proposals[0]), "summarised");
}

#[test]
fn another_systems_rule_gets_no_links() {
    let mut story = Story::of("talome");
    for text in [RED, GREEN] {
        story.tell(json!({"type": "remember", "content": text}));
    }
    assert!(story.proposals().is_empty());
    assert!(story.asked.lock().expect("free").is_empty());
}

#[test]
fn a_directory_without_such_a_model_stops_the_start_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut layers = Layers::defaults();
    let store = folder.path().join("store").display().to_string();
    for (path, value) in [
        ("embedder.model", "hash"),
        ("store.dir", &store),
        ("conflict.model", &folder.path().display().to_string()),
    ] {
        layers.set(path, value, "test").expect("an option");
    }
    let fault = Service::start(&layers.checked().expect("options"))
        .err()
        .expect("there is no model")
        .to_string();
    for part in ["config.json", "conflict.model", "model-unusable"] {
        assert!(fault.contains(part), "{part}: {fault}");
    }
}

/// The small model of the tests knows that Lisbon is not Porto; no rule of the service sees a change in these words.
#[test]
fn a_running_service_links_what_the_model_takes_for_a_contradiction() {
    let Some(model) = std::env::var_os("KEEPSAKE_TEST_MODEL") else {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: KEEPSAKE_TEST_MODEL names no model directory, conflict.model is NOT tested"
        );
        return;
    };
    let library = Path::new(&model).join("libonnxruntime.so").display().to_string();
    let small = root().join("tests/data/conflict/contradiction-last").display().to_string();
    let options = [("embedder.library", library.as_str()), ("conflict.model", &small)];
    let running = Running::start(Broker::Embedded, &options);
    let client = running.client();
    let ada = client.user("conflict", "ada");
    let (lisbon, porto) =
        ("The office of our team is in Lisbon.", "Our team has the office in Porto.");
    for content in [lisbon, porto] {
        ada.remember(content);
    }
    for partition in 0..client.partitions("events") {
        let mut tick = ada.message("events", json!({}));
        (tick.value, tick.partition) =
            (Some(json!({"type": "tick"}).to_string().into_bytes()), Some(partition));
        client.send(&tick);
    }
    let revised = eventually("the link is made", || {
        ada.decisions().into_iter().find(|decision| decision["outcome"] == "revised")
    });
    assert!(
        revised["reason"].as_str().is_some_and(|reason| reason.contains("conflict.model")),
        "{revised}"
    );
    let reply = ada.recall("Is the office of our team in Lisbon?");
    assert_eq!(contents(&reply)[..2], [porto, lisbon], "{reply}");
    assert!(running.service.metrics.page().contains("keepsake_conflict_total{outcome=\"done\"}"));
    running.stop();
}

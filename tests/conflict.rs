//! Contradictions that the compaction worker finds with a model: the links that it proposes, the
//! pairs that it must not compare, and its time budget.

use crate::support::client::contents;
use crate::support::in_process::InProcess;
use crate::support::service::fault_of_empty_model_directory;
use crate::support::skips::model_or_skip;
use crate::support::{Broker, Running, eventually, root};
use broker::OutgoingRecord;
use broker::clock::ManualClock;
use compaction::contradictions::{ConflictOptions, Judging};
use contract::wire::Moment;
use domain::fault::{Fault, Result};
use domain::{Now, Time};
use models::cross_encoder::Judge;
use parking_lot::Mutex;
use serde_json::{Value, json};
use service::compact::Compact;
use std::path::Path;
use std::sync::Arc;

const BUDGET_MS: i64 = 1_000;
const HOUR_MS: i64 = 3_600_000;
const NOW: Time = Time(1_720_000_000_000);

/// A judge for which a statement changes another if both name a colour and not the same one, and
/// "always" is a wish. Each pair takes `pair_ms` on the manual clock, or fails.
struct Colours {
    clock: ManualClock,
    pair_ms: i64,
    fails: bool,
    compared: Arc<Mutex<Vec<(String, String)>>>,
}

impl Judge for Colours {
    fn changes(&mut self, pairs: &[(&str, &str)]) -> Result<Vec<f32>> {
        if self.fails {
            return Err(Fault::retry("a planned failure"));
        }
        self.clock.advance(self.pair_ms * pairs.len() as i64);
        let mut compared = self.compared.lock();
        compared.extend(pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())));
        let probability = |(a, b): &(&str, &str)| {
            let differ = matches!((colour(a), colour(b)), (Some(a), Some(b)) if a != b);
            if differ { 0.97 } else { 0.02 }
        };
        Ok(pairs.iter().map(probability).collect())
    }

    fn standing(&mut self, sentence: &str) -> Result<Option<f32>> {
        Ok(Some(if sentence.contains("always") { 0.9 } else { 0.1 }))
    }
}

fn colour(text: &str) -> Option<&'static str> {
    ["red", "green", "blue"].into_iter().find(|colour| text.contains(colour))
}

/// The memories of one user, and the model that compares them.
struct Statements {
    service: InProcess,
    clock: ManualClock,
    compared: Arc<Mutex<Vec<(String, String)>>>,
    hours: i64,
}

impl Statements {
    fn with_profile(profile: &str) -> Statements {
        let service = InProcess::with_profile_and_hash_model(profile);
        Statements { service, clock: ManualClock::at(NOW), compared: Arc::default(), hours: 0 }
    }

    /// Applies an event one hour after the one before and returns the outcome.
    fn event(&mut self, mut event: Value) -> &'static str {
        self.hours += 1;
        event["at"] = serde_json::to_value(Moment(self.now().0)).expect("a time is a JSON string");
        event["user"] = "mia".into();
        self.service.outcome_of(&event)
    }

    fn of(texts: &[&str]) -> Statements {
        let mut statements = Statements::with_profile("keepsake");
        for text in texts {
            let event = json!({"type": "turn", "content": text});
            assert_eq!(statements.event(event), "kept", "{text}");
        }
        statements
    }

    fn now(&self) -> Time {
        NOW.plus_ms(self.hours * HOUR_MS)
    }

    fn judge(&self) -> Colours {
        Colours {
            clock: self.clock.clone(),
            pair_ms: 1,
            fails: false,
            compared: self.compared.clone(),
        }
    }

    /// A compaction worker that starts now.
    fn worker(&self, judge: Colours) -> Compact {
        let options = ConflictOptions { probability: 0.9, budget_ms: BUDGET_MS, compared_max: 100 };
        self.service.compaction(Some(Judging {
            judge: Box::new(judge),
            clock: Arc::new(self.clock.clone()),
            options,
        }))
    }

    fn round(&self, worker: &mut Compact) -> Vec<OutgoingRecord> {
        let now = self.now();
        worker.step(Now { wall: now, events: now }).expect("a shard in memory is readable")
    }

    /// The proposals of a worker that starts now.
    fn proposals(&self) -> Vec<OutgoingRecord> {
        self.round(&mut self.worker(self.judge()))
    }

    /// Statements whose contradictions are linked already.
    fn linked(texts: &[&str]) -> Statements {
        let mut statements = Statements::of(texts);
        for proposal in statements.proposals() {
            assert_eq!(statements.service.outcome_of_own_record(&proposal), "revised");
        }
        statements
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

    fn assert_count(&self, outcome: &str, count: u64) {
        self.service.assert_count("keepsake_conflict_total", outcome, count);
    }
}

/// Makes an event about two memories, the older and the newer one.
type About = fn(&Value, &Value) -> Value;

const RED: &str = "The front door of my house is painted red.";
const GREEN: &str = "My house has the front door painted green.";
const BLUE: &str = "The front door of my house is painted blue.";

#[test]
fn a_contradicted_statement_is_revised_and_stays_valid() {
    let mut statements = Statements::of(&[RED, GREEN]);
    assert!(
        statements.memory(GREEN)["revises"].as_array().is_none_or(Vec::is_empty),
        "the wording rules must not link these, or nothing is left for the worker"
    );
    let mut worker = statements.worker(statements.judge());
    let proposals = statements.round(&mut worker);
    assert_eq!(proposals.len(), 1, "{proposals:?}");
    assert_eq!(statements.service.outcome_of_own_record(&proposals[0]), "revised");
    let (red, green) = (statements.memory(RED), statements.memory(GREEN));
    assert_eq!(
        (&green["revises"], &red["revised_by"]),
        (&json!([red["id"]]), &green["id"]),
        "{red} {green}"
    );
    assert!(red["valid_to"].is_null(), "{red}");
    let found = statements.recall("front door painted red");
    assert_eq!(
        (&found[0]["content"], &found[1]["content"]),
        (&json!(GREEN), &json!(RED)),
        "the newer memory comes first although the older one matches more words"
    );
    let queries = ["front door painted red", "Is it red?"];
    let asked = json!({"type": "recall", "user": "mia", "queries": queries});
    let of_several = statements.service.memories(statements.now(), &asked);
    assert_eq!(
        (&of_several[0]["content"], &of_several[1]["content"]),
        (&json!(GREEN), &json!(RED)),
        "also where several questions are asked at once"
    );
    assert!(
        found[1]["note"]
            .as_str()
            .is_some_and(|note| note.contains("green") && note.contains("2024")),
        "{}",
        found[1]
    );
    assert_eq!(statements.service.outcome_of_own_record(&proposals[0]), "duplicate");
    assert!(
        statements.round(&mut worker).is_empty() && statements.proposals().is_empty(),
        "a linked pair is not proposed again"
    );
    statements.assert_count("done", 3);
}

#[test]
fn a_pair_is_compared_again_only_after_its_text_changes() {
    let mut statements = Statements::of(&[RED, "My house has the front door painted."]);
    let mut worker = statements.worker(statements.judge());
    assert!(statements.round(&mut worker).is_empty());
    let compared = statements.compared.lock().len();
    assert!(compared > 0 && statements.round(&mut worker).is_empty());
    assert_eq!(statements.compared.lock().len(), compared);
    let newer = statements.memory("My house has the front door painted.")["id"].clone();
    statements.event(json!({"type": "update", "memory": newer, "content": GREEN}));
    assert_eq!(statements.round(&mut worker).len(), 1);
}

#[test]
fn a_link_that_a_user_has_undone_is_not_proposed_again() {
    let undone: [(&str, About); 3] = [
        (
            "feedback says that the newer one is wrong",
            |_, green| json!({"type": "feedback", "memory": green["id"], "signal": "wrong"}),
        ),
        (
            "an update repeats the older one",
            |red, _| json!({"type": "update", "memory": red["id"], "content": RED}),
        ),
        (
            "feedback confirms the older one",
            |red, _| json!({"type": "feedback", "memory": red["id"], "signal": "confirmed"}),
        ),
    ];
    for (what, event) in undone {
        let mut statements = Statements::linked(&[RED, GREEN]);
        let (red, green) = (statements.memory(RED), statements.memory(GREEN));
        assert!(!red["revised_by"].is_null(), "{what}: the pair is linked first");
        statements.event(event(&red, &green));
        assert!(statements.proposals().is_empty(), "{what}");
    }
}

#[test]
fn a_proposal_about_memories_that_have_changed_is_outdated() {
    let changed: [About; 3] = [
        |red, _| json!({"type": "forget", "memory": red["id"]}),
        |red, _| json!({"type": "update", "memory": red["id"], "content": BLUE}),
        |_, green| json!({"type": "feedback", "memory": green["id"], "signal": "wrong"}),
    ];
    for event in changed {
        let mut statements = Statements::of(&[RED, GREEN]);
        let proposal =
            statements.proposals().pop().expect("the two statements contradict each other");
        let (red, green) = (statements.memory(RED), statements.memory(GREEN));
        let event = event(&red, &green);
        statements.event(event.clone());
        assert_eq!(statements.service.outcome_of_own_record(&proposal), "outdated", "{event}");
        assert!(
            statements.memory(GREEN)["revises"].as_array().is_none_or(Vec::is_empty),
            "{event}"
        );
    }
}

#[test]
fn only_statements_of_one_speaker_and_scope_are_compared() {
    for second in [
        json!({"type": "turn", "content": GREEN, "speaker": "Ben"}),
        json!({"type": "turn", "content": GREEN, "role": "assistant"}),
        json!({"type": "remember", "content": GREEN, "scope": "session", "session": "s"}),
    ] {
        let mut statements = Statements::of(&[RED]);
        assert_eq!(statements.event(second.clone()), "kept", "{second}");
        assert!(statements.proposals().is_empty(), "{second}");
        assert!(statements.compared.lock().is_empty(), "the model reads no pair: {second}");
    }
}

#[test]
fn the_judge_reads_who_said_it_and_when_and_the_earlier_one_first() {
    let statements = Statements::of(&[RED, GREEN]);
    assert_eq!(statements.proposals().len(), 1);
    let read = [RED, GREEN].map(|text| format!("user, 3 July, 2024: {text}"));
    assert_eq!(*statements.compared.lock(), [(read[0].clone(), read[1].clone())]);
}

/// A worker that ends before its proposals are in the log has judged nothing.
#[test]
fn what_is_judged_stays_so_after_a_restart_and_nothing_is_skipped() {
    let mut statements = Statements::of(&[RED, GREEN]);
    statements.hours += 8 * 24;
    assert_eq!(statements.proposals().len(), 1, "however old");
    let mut worker = statements.worker(statements.judge());
    let proposals = statements.round(&mut worker);
    assert_eq!(proposals.len(), 1, "the one before ended too early");
    worker.delivered().expect("a store in memory is writable");
    assert_eq!(statements.proposals().len(), 1, "no link is made yet");
    assert_eq!(statements.service.outcome_of_own_record(&proposals[0]), "revised");
    assert!(statements.round(&mut worker).is_empty());
    worker.delivered().expect("a store in memory is writable");
    let compared = statements.compared.lock().len();
    assert!(statements.proposals().is_empty());
    assert_eq!(statements.compared.lock().len(), compared);
    let blue =
        json!({"type": "turn", "content": "The front door of my house is now painted blue."});
    assert_eq!(statements.event(blue), "kept");
    assert_eq!(statements.proposals().len(), 1, "a new memory is compared with all earlier ones");
}

/// The earlier memory changes between the proposal and its link, as under load.
#[test]
fn a_link_whose_proposal_is_outdated_is_proposed_again_a_few_times() {
    let mut statements = Statements::of(&[RED, GREEN]);
    let mut worker = statements.worker(statements.judge());
    let mut tries = 0;
    while let Some(proposal) = statements.round(&mut worker).pop() {
        worker.delivered().expect("a store in memory is writable");
        let red = statements.memory(RED)["id"].clone();
        statements.event(json!({"type": "update", "memory": red, "importance": 0.5}));
        assert_eq!(statements.service.outcome_of_own_record(&proposal), "outdated");
        assert_eq!(statements.proposals().len(), 1, "a worker that starts now proposes it, too");
        statements.clock.advance(30_000);
        tries += 1;
        assert!(tries < 10, "a link that is never made is not proposed for ever");
    }
    assert!(tries > 1, "proposed once");
}

/// Both name a colour, and the judge would take them for a change.
#[test]
fn statements_about_different_matters_are_not_compared() {
    let texts = ["The kitchen wall is red.", "My grandmother knitted seven blue scarves."];
    let statements = Statements::of(&texts);
    assert!(statements.proposals().is_empty());
    assert!(statements.compared.lock().is_empty(), "they are not near");
}

const WISH: &str = "Our invoices always go out in British spelling.";

#[test]
fn a_wish_that_the_model_finds_is_an_instruction_and_stands_in_the_block() {
    let invoices = "Our invoices are printed in Leeds by a cousin.";
    let mut statements = Statements::of(&[invoices, WISH]);
    assert_ne!(statements.memory(WISH)["kind"], "instruction", "nothing is left for the worker");
    let proposals = statements.proposals();
    assert_eq!(statements.service.outcome_of_own_record(&proposals[0]), "revised");
    assert_eq!(statements.memory(WISH)["kind"], "instruction");
    assert!(statements.proposals().is_empty(), "it is proposed once");
    let query = "Who prints our invoices in Leeds, a cousin?";
    let mut asked = json!({"type": "recall", "user": "mia", "query": query, "limit": 1});
    let reply = statements.service.reply(statements.now(), &asked);
    let lists = ["memories", "wishes"].map(|list| reply[list][0]["content"].clone());
    assert_eq!(lists, [invoices, WISH], "{reply}");
    let block = reply["prompt"].as_str().expect("a block");
    assert!(block.find(WISH) < block.find(invoices) && block.contains(WISH), "{block}");
    asked["queries"] = json!([query, "Our invoices?"]);
    let of_two = statements.service.reply(statements.now(), &asked);
    assert_eq!(of_two["wishes"].as_array().map(Vec::len), Some(1), "{of_two}");
    for (field, value) in [
        ("min_relevance", json!(0.01)),
        ("as_of", reply["memories"][0]["created_at"].clone()),
        ("kinds", json!(["fact", "context"])),
        ("token_budget", json!(40)),
    ] {
        let mut asked = json!({"type": "recall", "user": "mia", "query": query, "limit": 1});
        asked[field] = value;
        let reply = statements.service.reply(statements.now(), &asked);
        assert!(reply["type"] == "recalled" && reply["wishes"].is_null(), "{field}: {reply}");
    }
}

#[test]
fn a_kind_that_somebody_chose_and_the_words_of_others_stay() {
    for event in [
        json!({"type": "remember", "content": WISH, "kind": "fact"}),
        json!({"type": "turn", "content": WISH, "role": "assistant"}),
        json!({"type": "turn", "content": WISH, "kind": "ritual"}),
        json!({"type": "turn", "content": WISH, "speaker": "Ben"}),
    ] {
        let mut statements = Statements::of(&["My invoices go out on Fridays."]);
        assert_eq!(statements.event(event.clone()), "kept", "{event}");
        assert!(statements.proposals().is_empty(), "{event}");
    }
    let mut statements = Statements::of(&[WISH]);
    let wish = statements.memory(WISH)["id"].clone();
    statements.event(json!({"type": "update", "memory": wish, "kind": "fact"}));
    assert!(statements.proposals().is_empty(), "updated");
}

#[test]
fn pairs_beyond_the_budget_wait_for_the_next_round() {
    let mut statements =
        Statements::of(&[RED, "The garden gate of my house is painted red.", GREEN]);
    statements
        .event(json!({"type": "turn", "content": "My house has the garden gate painted green."}));
    let mut worker = statements.worker(Colours { pair_ms: BUDGET_MS, ..statements.judge() });
    let mut rounds = Vec::new();
    while rounds.len() < 10 && rounds.iter().sum::<usize>() < 2 {
        let proposals = statements.round(&mut worker);
        for proposal in &proposals {
            assert_eq!(statements.service.outcome_of_own_record(proposal), "revised");
        }
        rounds.push(proposals.len());
    }
    assert!(rounds.len() > 2 && rounds.iter().sum::<usize>() == 2, "{rounds:?}");
    statements.assert_count("slow", rounds.len() as u64 - 1);
}

#[test]
fn a_failing_model_does_not_stop_compaction() {
    let mut statements = Statements::with_profile("keepsake");
    for content in [
        RED,
        GREEN,
        "My sister Anna moved to Porto.",
        "I am allergic to peanuts.",
        "Our dog is called Rex.",
    ] {
        statements.event(json!({"type": "turn", "content": content, "session": "s"}));
    }
    statements.hours += 12;
    let failing = Colours { fails: true, ..statements.judge() };
    let proposals = statements.round(&mut statements.worker(failing));
    statements.assert_count("failed", 1);
    assert_eq!(proposals.len(), 1, "the ended session is still summarised: {proposals:?}");
    assert_eq!(statements.service.outcome_of_own_record(&proposals[0]), "summarised");
}

#[test]
fn a_policy_of_another_system_gets_no_links() {
    let mut statements = Statements::with_profile("talome");
    for text in [RED, GREEN] {
        statements.event(json!({"type": "remember", "content": text}));
    }
    assert!(statements.proposals().is_empty());
    assert!(statements.compared.lock().is_empty());
}

#[test]
fn a_directory_without_a_judge_stops_the_start_with_model_unusable() {
    let fault = fault_of_empty_model_directory("conflict.model");
    for part in ["config.json", "conflict.model", "model-unusable"] {
        assert!(fault.contains(part), "{part}: {fault}");
    }
}

/// The small model of the tests was made to distinguish Lisbon from Porto. No wording rule of the
/// service finds a change in these sentences. Nobody asks for a round of compaction.
#[test]
fn a_running_service_links_a_contradiction_that_the_model_finds() {
    let test = "conflict::a_running_service_links_a_contradiction_that_the_model_finds";
    let Some(model) = model_or_skip(test, "`conflict.model` is not tested") else { return };
    let library = Path::new(&model).join("libonnxruntime.so").display().to_string();
    let small = root().join("tests/data/conflict/changes-last").display().to_string();
    let options = [("embedder.library", library.as_str()), ("conflict.model", &small)];
    let running = Running::start(Broker::Embedded, &options);
    let client = running.client();
    let ada = client.user("conflict", "ada");
    let lisbon = "The office of our team is in Lisbon.";
    let porto = "Our team has the office in Porto.";
    for content in [lisbon, porto] {
        ada.remember(content);
    }
    let revised = eventually("the two memories are linked", || {
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

/// No rule sees either. The judge lies beside the encoder, so nobody has to name it.
#[test]
fn the_shipped_judge_finds_a_change_and_a_wish() {
    let test = "conflict::the_shipped_judge_finds_a_change_and_a_wish";
    let Some(model) = model_or_skip(test, "the judge is not tested") else { return };
    let running = Running::start(Broker::Embedded, &[("embedder.model", model.as_str())]);
    let client = running.client();
    let ada = client.user("conflict", "ada");
    let [older, newer] =
        ["The office of our team is in Lisbon.", "Our team has the office in Porto."];
    ada.turn(older);
    let kept = ada.turn(newer)["decisions"][0].clone();
    assert_eq!(kept["surprise"]["contradiction"], 0.0, "nothing is left for the judge: {kept}");
    let wish = "When you write code for me, leave the comments out.";
    assert_ne!(ada.turn(wish)["decisions"][0]["kind"], "instruction");
    let listed = |content: &str| {
        let mut memories = ada.list().into_iter();
        memories.find(|memory| memory["content"] == content).expect("it is kept")
    };
    eventually("the wish is an instruction", || {
        (listed(wish)["kind"] == "instruction").then_some(())
    });
    eventually("the change is linked", || listed(older)["revised_by"].is_string().then_some(()));
    let reply = ada.recall("Where is the office of our team?");
    assert_eq!(contents(&reply)[..2], [newer, older], "{reply}");
    let explained = ada.ask(json!({"type": "explain", "memory": listed(newer)["id"]}));
    let [then, now] = ["decision", "memory"].map(|of| &explained[of]["surprise"]["contradiction"]);
    assert!(then == 0.0 && now.as_f64() > Some(0.5), "the record stays: {explained}");
    running.stop();
}

/// Pairs of statements as documents and people put them, and a question about both.
pub const CHANGES: [[&str; 3]; 12] = [
    ["I prefer Python", "Actually, I prefer Go", "Which language do I prefer?"],
    [
        "I prefer Python for scripting.",
        "I no longer prefer Python, I prefer Go.",
        "What do I prefer for scripting?",
    ],
    [
        "The API uses port 3000.",
        "Actually, the API uses port 8080, not 3000.",
        "Which port does the API use?",
    ],
    ["We use PostgreSQL.", "We switched to MySQL.", "Which database do we use?"],
    ["The launch is on 3 May.", "The launch is on 10 May.", "When is the launch?"],
    ["I like coffee.", "I hate coffee.", "Do I like coffee?"],
    [
        "Let's use Redux for state.",
        "Let's drop Redux, we go with Zustand.",
        "What do we use for state?",
    ],
    ["My manager is Carla.", "Carla left, Tom is my manager now.", "Who is my manager?"],
    ["We deploy on Fridays.", "It's Tuesdays now for deploys.", "When do we deploy?"],
    ["I take 20 mg.", "The doctor halved it.", "How many mg do I take?"],
    ["I live in Berlin.", "Writing this from my new flat in Porto.", "Where do I live?"],
    ["I'm vegetarian.", "I eat meat again since last week.", "Do I eat meat?"],
];

/// Rules see these: no model compares them.
#[test]
fn a_change_is_seen_and_the_newer_one_answers() {
    let test = "conflict::a_change_is_seen_and_the_newer_one_answers";
    let Some(model) = model_or_skip(test, "changes are not tested") else { return };
    let options = [("embedder.model", model.as_str()), ("conflict.model", "off")];
    let running = Running::start(Broker::Embedded, &options);
    let client = running.client();
    for (number, [older, newer, question]) in CHANGES.into_iter().enumerate() {
        let user = client.user("changes", &format!("u{number}"));
        user.turn(older);
        let decision = user.turn(newer)["decisions"][0].clone();
        let contradiction = &decision["surprise"]["contradiction"];
        assert!(contradiction.as_f64() > Some(0.0), "{decision}");
        let reply = user.recall(question);
        assert_eq!(contents(&reply)[0], newer, "{reply}");
        let memories = reply["memories"].as_array().expect("a list");
        if let Some(old) = memories.iter().find(|memory| memory["content"] == older) {
            assert!(memories[0]["relevance"].as_f64() >= old["relevance"].as_f64(), "{reply}");
        }
    }
    running.stop();
}

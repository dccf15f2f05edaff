//! Tests questions to a language model: redaction, limits, budgets and faults of the endpoint.

use super::*;
use crate::language::asker::Asker;
use broker::clock::ManualClock;
use domain::{Kind, MemoryId, Metadata, NeighbourTurns, Position, Role, Scope, Time};
use llm::Scripted;
use profiles::Profiles;

const LIMITS: LanguageLimits = LanguageLimits {
    calls_per_day: 3,
    question_bytes_max: 10_000,
    breaker_failures: 2,
    breaker_ms: 1_000,
};

fn task() -> Arc<Task> {
    let shape = Shape { name: "any", schema: json!({"type": "object"}), check: |_| Ok(()) };
    Arc::new(Task { instruction: "Work.".into(), shape })
}

fn memory(user: &str, content: &str) -> Memory {
    let source = Position { topic: "keepsake.events".into(), partition: 0, offset: 1 };
    let at = Time(1);
    Memory {
        around: NeighbourTurns::default(),
        id: MemoryId::of(&source, 0),
        key: key(user),
        author: None,
        scope: Scope::User,
        session: None,
        kind: Kind::new("fact"),
        content: content.to_owned(),
        role: Role::User,
        speaker: None,
        importance: 0.5,
        confidence: 1.0,
        created_at: at,
        valid_from: at,
        valid_to: None,
        expires_at: None,
        source,
        event_id: None,
        metadata: Metadata::new(),
        supersedes: vec![],
        superseded_by: None,
        revises: vec![],
        revised_by: None,
        conflicts_with: vec![],
        archived: false,
        version: 1,
        changed: 1,
        uses: 0,
        confirmed: 0,
        fresh_at: at,
        surprise: None,
        threshold: None,
        reason: String::new(),
        profile: "keepsake".into(),
        covers: vec![],
        compressed_by: None,
        disabled: false,
        stability: None,
        sources: vec![],
        history: vec![],
    }
}

fn key(user: &str) -> UserKey {
    UserKey::new("acme", user).expect("a plain name")
}

fn question(user: &str, memories: &[&Memory]) -> Question {
    let profiles = Profiles::only("keepsake").expect("built in");
    Question::about(&key(user), profiles.of(&key(user)), &task(), memories)
}

struct Endpoint {
    language: Language,
    clock: ManualClock,
    sent: Arc<Mutex<Vec<String>>>,
}

fn asked(model: Scripted) -> Endpoint {
    let clock = ManualClock::at(Time(0));
    let sent = model.sent();
    let metrics = Arc::new(Metrics::new());
    let language = Language::new(Box::new(model), LIMITS, Arc::new(clock.clone()), metrics);
    Endpoint { language, clock, sent }
}

impl Endpoint {
    fn ask(&self, user: &str) -> Result<Value, Refusal> {
        self.language.ask(&question(user, &[]))
    }
}

fn fails() -> Scripted {
    Scripted::by(|_| Err(Refusal::Unavailable))
}

/// Invariant: no secret and no text of another user is sent, whatever ingest redacts.
#[test]
fn only_redacted_texts_of_one_user_are_sent() {
    let asked = asked(Scripted::by(|_| Ok("{}".into())));
    let card = memory("ada", "My card is 4111 1111 1111 1111, and I like tea.");
    let mut speaker = memory("ada", "I live in Porto.");
    speaker.speaker = Some("Bearer abcdefghijklmnopqrstuvwxyz0123456789".into());
    let others = memory("bob", "Bob's secret is a canary.");
    let question = question("ada", &[&card, &speaker, &others])
        .with("keep", json!([{"deep": "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"}]));
    assert!(asked.language.ask(&question).is_ok());
    let sent = asked.sent.lock().join("\n");
    assert!(sent.contains("I like tea") && sent.contains("I live in Porto"), "{sent}");
    for secret in ["4111", "abcdefghij", "canary", "Bob"] {
        assert!(!sent.contains(secret), "{secret}: {sent}");
    }
}

#[test]
fn a_tenant_that_has_spent_its_budget_is_refused_before_anything_is_sent() {
    let asked = asked(Scripted::by(|_| Ok("{}".into())));
    for _ in 0..3 {
        assert_eq!(asked.ask("ada"), Ok(json!({})));
    }
    assert_eq!(asked.ask("bob"), Err(Refusal::Spent), "the budget is that of the tenant");
    assert_eq!(asked.language.refuses(&key("bob")), Some(Refusal::Spent));
    assert_eq!(asked.sent.lock().len(), 3);
    asked.clock.advance(86_400_000);
    assert_eq!(asked.ask("bob"), Ok(json!({})));
}

#[test]
fn a_second_try_counts_in_the_budget() {
    let asked = asked(Scripted::by(|_| Ok("no JSON".into())));
    assert_eq!(asked.ask("ada"), Err(Refusal::Invalid));
    assert_eq!(asked.ask("ada"), Err(Refusal::Invalid), "one request was left");
    assert_eq!(asked.ask("ada"), Err(Refusal::Spent));
    assert_eq!(asked.sent.lock().len(), 4);
}

#[test]
fn the_breaker_spares_an_endpoint_that_fails_and_not_one_whose_answer_is_wrong() {
    let broken = asked(fails());
    for expected in [Refusal::Unavailable, Refusal::Unavailable, Refusal::Paused, Refusal::Paused] {
        assert_eq!(broken.ask("ada"), Err(expected));
    }
    assert_eq!(broken.sent.lock().len(), 2);
    broken.clock.advance(1_000);
    assert_eq!(broken.ask("ada"), Err(Refusal::Unavailable), "one question finds out");
    assert_eq!(broken.ask("bob"), Err(Refusal::Spent));
    let page = broken.language.metrics.page();
    for line in [
        "keepsake_llm_calls_total{outcome=\"unavailable\"} 3",
        "keepsake_llm_calls_total{outcome=\"paused\"} 2",
        "keepsake_llm_calls_total{outcome=\"spent\"} 1",
        "keepsake_llm_requests_total 3",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
    let wordy = asked(Scripted::by(|_| Err(Refusal::Declined)));
    for _ in 0..3 {
        assert_eq!(wordy.ask("ada"), Err(Refusal::Declined));
    }
}

#[test]
fn an_asker_takes_no_more_questions_than_its_limit_and_never_waits() {
    let (release, held) = crossbeam_channel::bounded::<()>(0);
    let model = Scripted::by(move |_| {
        let _ = held.recv();
        Ok("{}".into())
    });
    let Endpoint { language, .. } = asked(model);
    let mut asker = Asker::with_threads(Arc::new(language), 1, 2).expect("a thread");
    assert!(asker.ask(1, question("ada", &[])) && asker.ask(2, question("ada", &[])));
    assert!(!asker.has_room() && !asker.ask(3, question("ada", &[])));
    assert!(asker.answer().is_none(), "the model still thinks");
    drop(release);
    let mut answers = Vec::new();
    while answers.len() < 2 {
        answers.extend(asker.answer());
        std::thread::yield_now();
    }
    assert_eq!(answers, [(1, Ok(json!({}))), (2, Ok(json!({})))]);
    assert!(!asker.is_waiting() && asker.has_room());
}

#[test]
fn a_panic_of_the_model_is_an_answer_that_is_not_available() {
    let Endpoint { language, .. } = asked(Scripted::by(|_| panic!("a planned panic")));
    let mut asker = Asker::with_threads(Arc::new(language), 1, 1).expect("a thread");
    assert!(asker.ask((), question("ada", &[])));
    let answer = std::iter::repeat_with(|| asker.answer()).flatten().next();
    assert_eq!(answer, Some(((), Err(Refusal::Unavailable))));
}

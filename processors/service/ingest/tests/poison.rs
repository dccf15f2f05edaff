//! Records that panic, or whose text the encoder refuses: put aside one by one, while the others of
//! their batch are applied as if the record had not been there.

use super::{Bench, remember, turn};
use broker::{OutgoingRecord, Record, header};
use domain::Recall;
use domain::fault::{Fault, Result, StopName};
use kernel::policy::{CandidateInput, Judgement, RememberInput, RememberJudgement, Traits};
use kernel::ranking::{Hit, Question, RankedHits};
use kernel::{Context, Policy, Staged};
use models::embedder::{Embedder, Model, ModelChoice, pool};
use serde_json::{Value, json};
use std::sync::Arc;

/// The word on which encoder and policy of these tests fail.
const POISON: &str = "hemlock";

struct PickyEncoder {
    model: Box<dyn Embedder>,
    panics: bool,
    is_broken: bool,
}

impl Embedder for PickyEncoder {
    fn encode(&mut self, text: &str) -> Result<Vec<f32>> {
        match text.contains(POISON) {
            _ if self.is_broken => Err(Fault::stop(StopName::ModelUnusable, "out of order")),
            true if self.panics => panic!("cannot read {POISON}"),
            true => Err(Fault::stop(StopName::ModelUnusable, format!("cannot read {POISON}"))),
            false => self.model.encode(text),
        }
    }

    fn dimensions(&self) -> usize {
        self.model.dimensions()
    }

    fn name(&self) -> &str {
        self.model.name()
    }
}

/// Panics on the poison after the kernel has staged a part of the event.
struct PickyPolicy(Arc<dyn Policy>);

impl Policy for PickyPolicy {
    fn traits(&self) -> &Traits {
        self.0.traits()
    }

    fn judge(
        &self,
        cx: &Context<'_>,
        staged: &Staged<'_>,
        said: CandidateInput<'_>,
    ) -> Result<Judgement> {
        assert!(!said.candidate.text.contains(POISON), "cannot judge {POISON}");
        self.0.judge(cx, staged, said)
    }

    fn remember(
        &self,
        cx: &Context<'_>,
        staged: &Staged<'_>,
        asked: RememberInput<'_>,
    ) -> Result<RememberJudgement> {
        self.0.remember(cx, staged, asked)
    }

    fn complete(&self, asked: &Recall) -> Recall {
        self.0.complete(asked)
    }

    fn rank(&self, hits: Vec<Hit>, question: &Question<'_>, at: domain::Time) -> RankedHits {
        self.0.rank(hits, question, at)
    }
}

fn with_encoder(panics: bool, is_broken: bool) -> Bench {
    let mut bench = Bench::new();
    let options = models::embedder::EncoderOptions {
        model: ModelChoice::Hash,
        library: None,
        tokens_max: 256,
        threads: 1,
    };
    let model = Model::open(&options).and_then(|model| model.session()).expect("needs nothing");
    bench.ingest.encoder = pool::in_place(Box::new(PickyEncoder { model, panics, is_broken }));
    bench
}

fn with_policy() -> Bench {
    let mut bench = Bench::new();
    bench.ingest.profiles = bench.ingest.profiles.with(|profile| {
        profile.rules.policy = Arc::new(PickyPolicy(profile.rules.policy.clone()));
    });
    bench
}

const BEFORE: &str = "My sister Anna plays the harp in Bergen.";
const AFTER: &str = "My flight to Oslo leaves on 12 March at 7:40.";

fn poisoned() -> Value {
    let parts = format!("I live in Lisbon with my cat Bela.\n\nMy garden has {POISON} in it.");
    turn(&parts)
}

/// Returns all outputs and replies of the records, applied as by the ingest thread: records that a
/// step leaves are read again.
fn applied(bench: &mut Bench, records: &[Record]) -> (Vec<OutgoingRecord>, Vec<OutgoingRecord>) {
    let (mut outputs, mut replies) = (Vec::new(), Vec::new());
    let mut done = 0;
    while done < records.len() {
        let effects = bench.ingest.step(records[done..].to_vec()).expect("no fault");
        assert!(effects.records > 0, "each step applies a record");
        done += effects.records;
        outputs.extend(effects.outputs);
        replies.extend(effects.replies);
        effects.writes.into_iter().for_each(|write| {
            write.carry_out(None).expect("a disk");
        });
    }
    (outputs, replies)
}

fn texts(bench: &Bench) -> Vec<String> {
    bench.memories("ada").into_iter().map(|memory| memory.content).collect()
}

fn letters(outputs: &[OutgoingRecord]) -> Vec<&OutgoingRecord> {
    outputs.iter().filter(|output| output.topic == "keepsake.dead-letters").collect()
}

fn of_error<'a>(letter: &'a OutgoingRecord, name: &str) -> &'a str {
    let value = header(&letter.headers, &format!("__connect.errors.{name}"));
    std::str::from_utf8(value.unwrap_or_default()).expect("text")
}

fn check_put_aside(mut bench: Bench, expected: &str, has_stack: bool) {
    let mut records: Vec<Record> =
        [turn(BEFORE), poisoned(), turn(AFTER), remember("tea is in tin 3")]
            .iter()
            .map(|event| bench.record(event))
            .collect();
    records[1].headers.push(("reply-topic".into(), b"keepsake.replies".to_vec()));
    let (outputs, replies) = applied(&mut bench, &records);
    let letters = letters(&outputs);
    assert_eq!(letters.len(), 1, "only the one record is put aside");
    assert_eq!(letters[0].value, records[1].value, "as it came");
    assert_eq!(of_error(letters[0], "exception.class.name"), "poison");
    let message = of_error(letters[0], "exception.message");
    assert!(message.contains(expected), "{message}");
    assert_eq!(!of_error(letters[0], "exception.stacktrace").is_empty(), has_stack);
    let refusal: Value =
        serde_json::from_slice(replies[0].value.as_deref().expect("a body")).expect("JSON");
    assert_eq!((&refusal["error"]["code"], replies.len()), (&json!("poison"), 1));
    assert!(refusal["error"].get("stack").is_none(), "a stack is for the operator");

    let mut calm = Bench::new();
    let calm_records: Vec<Record> = records
        .iter()
        .enumerate()
        .filter(|(n, _)| *n != 1)
        .map(|(_, record)| record.clone())
        .collect();
    applied(&mut calm, &calm_records);
    assert_eq!(texts(&bench), texts(&calm), "nothing of the record is staged, and nothing is lost");
    assert_eq!(bench.digest(), calm.digest(), "also in context windows and counts");
    fn decided(outputs: &[OutgoingRecord]) -> usize {
        outputs.iter().filter(|output| output.topic == "keepsake.decisions").count()
    }
    assert_eq!(decided(&outputs), 3, "each decision is published once");
}

#[test]
fn a_record_on_which_the_kernel_panics_is_put_aside_alone() {
    check_put_aside(with_policy(), "cannot judge hemlock", true);
}

#[test]
fn a_record_on_whose_text_the_encoder_panics_is_put_aside_alone() {
    check_put_aside(with_encoder(true, false), "cannot read hemlock", true);
}

#[test]
fn a_record_whose_text_the_encoder_refuses_is_put_aside_alone() {
    check_put_aside(with_encoder(false, false), "cannot read hemlock", false);
}

#[test]
fn a_model_that_refuses_every_text_stops_the_process_and_puts_nothing_aside() {
    let mut bench = with_encoder(false, true);
    let record = bench.record(&turn(BEFORE));
    let Err(Fault::Stop(stop)) = bench.ingest.step(vec![record]) else { panic!("it stops") };
    assert_eq!(stop.name, StopName::ModelUnusable);
}

#[test]
fn many_records_in_a_row_that_panic_stop_the_process() {
    let mut bench = with_policy();
    *bench.ingest.breaker.lock() = super::DeadLetterBreaker::new(super::breaker::Limits {
        in_a_row_max: 3,
        share_max: 1.0,
        window: 100,
    });
    let mut records: Vec<Record> = (0..5).map(|_| bench.record(&poisoned())).collect();
    let stop = loop {
        match bench.ingest.step(records.clone()) {
            Ok(effects) => {
                records.drain(..effects.records);
                effects.writes.into_iter().for_each(|write| {
                    write.carry_out(None).expect("a disk");
                });
            }
            Err(Fault::Stop(stop)) => break stop,
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(stop.name, StopName::DeadLetterFlood);
}

#[test]
fn a_record_that_is_named_in_ingest_skip_is_put_aside_unread() {
    let mut bench = Bench::new();
    let records: Vec<Record> =
        [turn(BEFORE), poisoned(), turn(AFTER)].iter().map(|event| bench.record(event)).collect();
    bench.ingest.options.skip.insert((records[1].partition, records[1].offset));
    let (outputs, _) = applied(&mut bench, &records);
    let letters = letters(&outputs);
    assert_eq!((letters.len(), &letters[0].value), (1, &records[1].value));
    assert_eq!(of_error(letters[0], "exception.class.name"), "skipped");
    assert!(of_error(letters[0], "exception.message").contains("ingest.skip"));
    assert_eq!(texts(&bench).len(), 2, "the others are applied");
}

//! A generation with another encoder: all vectors are made anew while the service goes on, and the
//! encoder before comes back in one step. And generations that are not as they should be.

use super::{
    Growing, SILENCE_MAX, SMALL, Size, TENANT, Texts, Traffic, await_applied, lost_and_twice, must,
};
use crate::support::client::{memory_id, outcome};
use crate::support::program::{self, command};
use crate::support::service::Place;
use crate::support::skips::model_or_skip;
use crate::support::{Broker, Child, Message, eventually, on_both_brokers};
use broker::{Broker as _, Record};
use domain::Vector;
use kafka::Connection;
use serde_json::{Value, json};
use service::open;
use std::collections::BTreeMap;
use std::time::Instant;
use storage::changelog::{STATE_HEADER, Source};
use storage::reencoding::Reencoding;

on_both_brokers! {
    a_service_changes_its_encoder_and_goes_back
    a_service_changes_its_profile_and_keeps_its_memories
    a_generation_that_differs_is_refused_and_built_again
}

/// The number of partitions stays. An unoptimised build with the model encodes some fifty texts a second,
/// five processes share two cores with other tests, and each encodes what it reads.
const SAME: Size = Size { users: 20, memories: 200, from: 2, to: 2, rate: 4, asked: 2 };
const SAID: &str = "My puppy was running in circles all morning.";
/// Shares no word with what was said.
const ASKED_FOR: &str = "Did a young dog chase its own tail?";

fn a_service_changes_its_encoder_and_goes_back(broker: Broker) {
    let test = "a_service_changes_its_encoder_and_goes_back";
    let Some(model) = model_or_skip(test, "another encoder for the same memories") else { return };
    let growing = Growing::of(broker, SAME).with_encoder(&model);
    let mut old = growing.serve(&growing.old);
    old.iter_mut().for_each(Child::wait_until_ready);
    let seeded = growing.seed();
    let client = growing.client();
    let keeper = client.user(TENANT, "keeper");
    for content in [SAID, "And what did the cat do?"] {
        keeper.event(json!({"type": "turn", "content": content, "session": "monday"}));
    }
    let cosine_before = cosine(&growing);
    assert!(cosine_before < 0.2, "words alone find nothing: {cosine_before}");
    let forgotten = Growing { asked: &[], ..growing };
    let (code, _, stderr) = forgotten.generation(&["build", "--partitions", "2"]);
    assert!(code == Some(3) && stderr.contains("model-changed"), "{code:?} {stderr}");
    assert!(stderr.contains("--encode-anew"), "{stderr}");
    let growing = Growing { asked: &["--encode-anew"], ..forgotten };
    let traffic = Traffic::start(&growing);
    let mut killed = growing.build();
    growing.await_begun();
    killed.kill();
    let mut builder = growing.build();
    let mut new = growing.serve(&growing.new);
    growing.await_built();
    // The way back is built before it is needed: it follows the generation that is built.
    let back = growing.next("3").with_encoder("hash");
    let mut builder_back = back.build();
    back.await_begun();
    let handed = eventually("the builder is near enough", || {
        let handed = growing.cut_over();
        (handed.0 == Some(0) || !handed.2.contains("records behind")).then_some(handed)
    });
    must(&handed);
    eprintln!("to another encoder: {}{}", handed.1, handed.2);
    await_retired(&mut old);
    builder.must_succeed();
    let built = builder.log();
    assert!(built.contains("vectors made anew"), "{built}");
    new.iter_mut().for_each(Child::wait_until_ready);
    let vectors = vectors_of_their_texts(&growing.new[0]);
    assert!(vectors > SAME.memories, "only {vectors} vectors");
    let cosine_after = cosine(&growing);
    eprintln!("cosine {cosine_before} before and {cosine_after} after, {vectors} vectors");
    assert!(cosine_after > cosine_before + 0.2, "{cosine_before} {cosine_after}");

    // Back to the encoder before, in one step.
    let mut last = back.serve(&back.new);
    back.await_built();
    let began = Instant::now();
    let handed = eventually("the builder back is near enough", || {
        let handed = back.cut_over();
        (handed.0 == Some(0) || !handed.2.contains("records behind")).then_some(handed)
    });
    must(&handed);
    eprintln!("back after {:.1?}: {}{}", began.elapsed(), handed.1, handed.2);
    await_retired(&mut new);
    builder_back.must_succeed();
    last.iter_mut().for_each(Child::wait_until_ready);
    let (published, asked, session) = traffic.end();
    eprintln!(
        "{asked:?}\nsession: {} kept, {} without an answer",
        session.kept, session.unanswered
    );
    await_applied(&client, &published);
    let of_session = Texts::from([("of-the-session".to_owned(), session.events.clone())]);
    let (lost, twice) = lost_and_twice(&client, &[&seeded, &published, &of_session]);
    assert!(lost.is_empty() && twice.is_empty(), "lost {lost:#?}, twice {twice:#?}");
    assert!(session.broken.is_empty(), "{:#?}", session.broken);
    assert!(asked.answered > 0 && asked.longest <= SILENCE_MAX, "{asked:?}");
    vectors_of_their_texts(&back.new[0]);
    assert!((cosine(&back) - cosine_before).abs() < 0.01, "as before the change");
    let verified = program::run(command(&back.new[0]).args(["verify", "--online", "--json"]));
    must(&verified);
    // Stores and indexes of the last generation equal the fold of its changelog.
    for child in &mut last {
        child.signal("-TERM");
        child.must_succeed();
    }
    must(&program::run(command(&back.new[0]).arg("verify")));
}

/// Talome keeps explicit wishes only.
fn a_service_changes_its_profile_and_keeps_its_memories(broker: Broker) {
    let growing = Growing::of(broker, Size { users: 4, memories: 8, ..SAME });
    let new = growing.new.clone().map(|place| place.with("profile", "talome"));
    let growing = Growing { new, ..growing };
    let mut old = growing.serve(&growing.old);
    old.iter_mut().for_each(Child::wait_until_ready);
    let client = growing.client();
    let eve = client.user(TENANT, "eve");
    let kept = memory_id(&eve.turn("I work at the harbour on Mondays."));
    let mut builder = growing.build();
    growing.await_begun();
    let mut new = growing.serve(&growing.new);
    growing.await_built();
    must(&growing.cut_over());
    await_retired(&mut old);
    builder.must_succeed();
    new.iter_mut().for_each(Child::wait_until_ready);
    let found = eve.ask(json!({"type": "get", "memory": kept}));
    assert_eq!(found["memory"]["profile"], "keepsake", "{found}");
    let decided = eve.turn("My sister lives near the old mill in Porto.");
    assert_eq!(outcome(&decided), "dropped", "{decided}");

    // The generation before still has what is forgotten now, until it is dropped.
    eve.event(json!({"type": "forget", "everything": true}));
    let former = ["memories", "tenants"].map(|name| client.topic(name));
    let left = || former.each_ref().map(|topic| left_of_eve(&growing, topic));
    let [memories, tenants] = left();
    assert!(memories.is_some_and(|found| found > 0) && tenants.is_some());
    let drop = ["generation", "drop", "--to", "1", "--json"];
    must(&program::run(command(&growing.new[0]).args(drop)));
    eventually("the topics are gone", || (left() == [None; 2]).then_some(()));
}

/// The records of a place that `verify --erased` finds; `None` if it does not search there.
fn left_of_eve(growing: &Growing, place: &str) -> Option<u64> {
    let mut verify = command(&growing.new[0]);
    verify.args(["verify", "--erased", "eve", "--tenant", TENANT, "--json"]);
    let (_, stdout, stderr) = program::run(&mut verify);
    let report: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stderr}"));
    let places = report["places"].as_array().expect("a list");
    places.iter().find(|found| found["place"] == place)?["found"].as_u64()
}

fn await_retired(processes: &mut [Child]) {
    for child in processes {
        let status = child.wait();
        assert!(status.success(), "an old process ends with {status}:\n{}", child.log());
    }
}

/// The similarity of the question to what was said, as an answer explains it.
fn cosine(growing: &Growing) -> f64 {
    let client = growing.client();
    let keeper = client.user(TENANT, "keeper");
    let request = json!({"type": "recall", "query": ASKED_FOR, "explain": true});
    let reply = eventually("an answer", || {
        let reply = keeper.ask(request.clone());
        (reply["status"] == "ok").then_some(reply)
    });
    let memories = reply["memories"].as_array().cloned().unwrap_or_default();
    let found = memories.iter().find(|memory| memory["content"] == SAID);
    let found = found.unwrap_or_else(|| panic!("the memory is found: {reply:#}"));
    found["explain"]["cosine"].as_f64().unwrap_or_else(|| panic!("a cosine: {found:#}"))
}

/// Checks that each vector in the memories topic of this place is that of its text by the encoder of
/// the place. Returns how many there are.
fn vectors_of_their_texts(place: &Place) -> usize {
    let config = place.config();
    let connection = Connection {
        servers: config.kafka.bootstrap_servers.clone(),
        options: config.kafka.client_options(),
    };
    let mut encoder = open::encoder(&config).and_then(|model| model.session()).expect("opens");
    let log = connection.log(&config.topics.memories()).expect("the topic exists");
    let mut encoded: BTreeMap<String, Vector> = BTreeMap::new();
    let mut count = 0;
    for partition in 0..SAME.to {
        let source = Source::since(&*log, partition, Some(0)).expect("an end");
        source
            .each(&mut |record: Record| {
                let name = record.key.as_deref().unwrap_or_default();
                let Some(state) = record.header(STATE_HEADER) else { return Ok(()) };
                let Ok(Some(read)) = Reencoding::of(name, state) else { return Ok(()) };
                for (text, vector) in read.texts().into_iter().zip(read.vectors()) {
                    let anew = match encoded.get(&text) {
                        Some(known) => known.clone(),
                        None => Vector::of(&encoder.encode(&text)?),
                    };
                    assert_eq!(*vector, anew, "the vector of {text:?}");
                    encoded.insert(text, anew);
                    count += 1;
                }
                Ok(())
            })
            .expect("the topic is read");
    }
    count
}

/// A record that the builder never wrote, in the topic of the new generation.
fn add_stray(growing: &Growing) {
    let client = growing.client();
    client.send(&Message {
        topic: client.topic(&format!("memories.g{}", growing.number)),
        key: Some(format!("{TENANT}/stray/x.6162").into_bytes()),
        value: Some(br#"{"type":"state"}"#.to_vec()),
        headers: vec![(STATE_HEADER.to_owned(), vec![6, 1, 2])],
        partition: Some(0),
        timestamp_ms: 0,
    });
}

fn a_generation_that_differs_is_refused_and_built_again(broker: Broker) {
    let growing = Growing::of(broker, Size { users: 6, memories: 30, ..SMALL });
    let mut old = growing.serve(&growing.old[..1]);
    old[0].wait_until_ready();
    let seeded = growing.seed();
    let refused = |arguments: &[&str], why: &str| {
        let (code, stdout, stderr) = growing.generation(arguments);
        assert_eq!(code, Some(3), "{arguments:?}: {stdout}{stderr}");
        assert!(stderr.contains("generation-refused") && stderr.contains(why), "{stderr}");
    };
    let is_equal = || {
        let (code, stdout, _) = growing.generation(&["compare"]);
        let compared: Value = serde_json::from_str(&stdout).unwrap_or_default();
        (code, compared["equal"].clone())
    };
    let mut builder = growing.build();
    growing.await_begun();
    eventually("the shards are equal", || (is_equal() == (Some(0), json!(true))).then_some(()));
    add_stray(&growing);
    assert_eq!(is_equal(), (Some(3), json!(false)));
    refused(&["cut-over", "--force"], "1 of 6 shards differ");
    // Nothing has happened: the old generation applies events.
    let applied = growing.client().user(TENANT, "eve").turn("I work at the harbour on Mondays.");
    assert_eq!(applied["status"], "ok", "{applied}");
    builder.kill();
    must(&growing.generation(&["drop"]));
    await_state(&growing, "not built");

    // A build that ends while the old shards are closed is built again.
    let mut builder = growing.build();
    growing.await_begun();
    eventually("the shards are equal", || (is_equal() == (Some(0), json!(true))).then_some(()));
    builder.kill();
    refused(&["cut-over", "--force", "--within", "3"], "were not closed and built within 3 s");
    eventually("events wait", || {
        let waiting = growing.client().user(TENANT, "eve").ask(json!({"type": "stats"}));
        (waiting["status"] == "ok").then_some(())
    });
    must(&growing.generation(&["drop"]));
    await_state(&growing, "not built");
    let mut builder = growing.build();
    await_state(&growing, "complete");
    let mut new = growing.serve(&growing.new);
    builder.must_succeed();
    eventually("both processes wait", || (growing.status()["waiting"] == 2).then_some(()));
    must(&growing.cut_over());
    await_retired(&mut old);
    new.iter_mut().for_each(Child::wait_until_ready);
    let (lost, twice) = lost_and_twice(&growing.client(), &[&seeded]);
    assert!(lost.is_empty() && twice.is_empty(), "lost {lost:#?}, twice {twice:#?}");
}

fn await_state(growing: &Growing, state: &str) {
    eventually(state, || (growing.status()["state"] == state).then_some(()));
}

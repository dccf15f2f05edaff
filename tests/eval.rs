//! `keepsake eval` on two small chats made for it: what is kept, found and noticed there can be told by reading them.

use crate::support::program::bare_command;
use crate::support::{kafka, root};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const CHATS: &str = "tests/data/eval/two-chats.jsonl";

fn folder() -> PathBuf {
    let dir =
        crate::support::scratch::root().join(format!("eval{}", crate::support::scratch::number()));
    std::fs::create_dir_all(&dir).expect("the scratch folder is ours");
    dir
}

/// Exit code, standard output and standard error of `keepsake eval` with the stand-in for a model.
fn typed(dir: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = bare_command(dir);
    let output =
        command.arg("eval").args(arguments).args(["--set", "embedder.model=hash"]).output();
    let output = output.expect("the program was built with this test");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn chats() -> String {
    root().join(CHATS).to_string_lossy().into_owned()
}

fn measured(dir: &Path, what: &str) -> Value {
    let (code, said, words) = typed(dir, &[what, "--data", &chats(), "--json"]);
    assert_eq!(code, Some(0), "{what}: {words}");
    serde_json::from_str(&said).unwrap_or_else(|e| {
        panic!("{what}: nothing but the result on standard output: {e}: {said}")
    })
}

#[test]
fn recall_is_measured_on_the_turns_that_answers_came_from() {
    let report = measured(&folder(), "recall");
    let ranking = |id: &str| {
        let asked = report["questions"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|question| question["id"] == id);
        asked.unwrap_or_else(|| panic!("{id} was asked: {report:#}"))["ranking"].clone()
    };
    assert_eq!(
        (&ranking("ada-parrots")[0], &ranking("bob-table")[0]),
        (&json!("4"), &json!("2")),
        "{report:#}"
    );
    let home = ranking("ada-home");
    assert!(
        home[0] == "6" && !home.as_array().expect("a list").contains(&json!("3")),
        "Berlin is over: {home}"
    );
    assert_eq!(
        ranking("bob-greeting"),
        json!(["2"]),
        "a greeting was not kept, and the other chat is another user's"
    );
    // Found whole; half of it; whole; not at all. What asks in vain does not count.
    let all = &report["metrics"]["all"];
    assert_eq!(
        (&all["n"], &all["R@10"], &all["R@5"]),
        (&json!(4), &json!(0.625), &json!(0.625)),
        "{all}"
    );
    assert_eq!(
        (&all["MRR"], &report["metrics"]["by_category"]["temporal"]["n"]),
        (&json!(0.75), &json!(1)),
        "{all}"
    );
    assert_eq!(report["metrics"]["by_category"]["adversarial"], Value::Null);
    // A bare cosine knows no versions, so Berlin stays, and a greeting that was dropped is found.
    let cosine = &report["metrics"]["cosine"]["all"];
    assert_eq!(
        (&cosine["n"], &cosine["R@10"], &cosine["any@10"]),
        (&json!(4), &json!(1.0), &json!(1.0)),
        "{cosine}"
    );
    let difference = &report["metrics"]["minus_cosine"]["all"]["R@3"];
    let bound = |name: &str| difference[name].as_f64().expect("a number");
    assert!(
        bound("low") < bound("mean") && bound("mean") < bound("high") && bound("mean") < 0.0,
        "{difference}"
    );
}

#[test]
fn the_numbers_of_every_returned_memory_can_be_had() {
    let dir = folder();
    let memory = |arguments: &[&str]| {
        let (code, said, words) = typed(&dir, arguments);
        assert_eq!(code, Some(0), "{words}");
        let report: Value = serde_json::from_str(&said).expect("JSON");
        report["questions"][0]["memories"][0].clone()
    };
    let plain = memory(&["recall", "--data", &chats(), "--json"]);
    assert!(
        plain["turn"] == "4" && plain["score"].as_f64() > Some(0.0) && plain["explain"].is_null(),
        "{plain}"
    );
    let explained = memory(&["recall", "--data", &chats(), "--json", "--explain"]);
    assert!(explained["explain"]["cosine"].is_number(), "{explained}");
}

#[test]
fn the_gate_is_measured_on_what_the_user_said() {
    let report = measured(&folder(), "gate");
    let turns = report["turns"].as_array().expect("a list");
    let outcomes: Vec<(&str, &str, &str)> = turns
        .iter()
        .map(|turn| {
            ["conversation", "id", "outcome"].map(|field| turn[field].as_str().unwrap_or_default())
        })
        .map(|[conversation, id, outcome]| (conversation, id, outcome))
        .collect();
    let expected = [
        ("ada", "1", "dropped"),
        ("ada", "3", "kept"),
        ("ada", "4", "kept"),
        ("ada", "5", "dropped"),
        ("ada", "6", "superseded"),
        ("ada", "7", "kept"),
        ("bob", "1", "dropped"),
        ("bob", "2", "kept"),
        ("bob", "3", "dropped"),
    ];
    assert_eq!(outcomes, expected);
    for turn in turns {
        let points: f64 = turn["points"]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(_, points)| points.as_f64())
            .sum();
        assert!((points - turn["total"].as_f64().expect("a number")).abs() < 1e-4, "{turn}");
    }
    let metrics = &report["metrics"];
    // Five of nine are stored, among them four of the five that are evidence: one is a greeting.
    assert_eq!(
        (&metrics["stored"], &metrics["gold_kept"]),
        (&json!(0.555556), &json!(0.8)),
        "{metrics}"
    );
    assert_eq!(
        (&metrics["R@10"], &metrics["R@10_ungated"]),
        (&json!(0.625), &json!(0.875)),
        "{metrics}"
    );
    assert!(metrics["auc"].as_f64().is_some_and(|auc| auc > 0.7 && auc < 1.0), "{metrics}");
}

#[test]
fn what_changed_is_measured_by_the_links_of_decisions() {
    let report = measured(&folder(), "change");
    let pairs = json!([
        {"conversation": "ada", "kind": "knowledge_update", "earlier": "3", "later": "6", "linked": true, "how": "superseded"},
        {"conversation": "ada", "kind": "contradiction_resolution", "earlier": "4", "later": "7", "linked": false, "how": null},
    ]);
    assert_eq!(report["pairs"], pairs, "a turn that contradicts itself is no pair");
    let metrics = &report["metrics"];
    assert_eq!(
        metrics["linked"],
        json!({"knowledge_update": 1.0, "contradiction_resolution": 0.0})
    );
    assert_eq!(
        (&metrics["false"], &metrics["false_closing"], &metrics["newest_first"]),
        (&json!(0.0), &json!(0.0), &json!(1.0))
    );
    assert_eq!(
        metrics["false_by_link"],
        json!({"superseded": 0.0, "revised": 0.0, "conflict": 0.0})
    );
}

#[test]
fn labels_say_what_was_dropped_and_should_not_have_been() {
    let dir = folder();
    let labels =
        json!({"1": false, "2": true, "3": true, "4": true, "5": false, "6": true, "7": true});
    std::fs::write(dir.join("labels.json"), labels.to_string())
        .expect("the scratch folder is ours");
    let (code, said, words) =
        typed(&dir, &["gate", "--data", &chats(), "--labels", "labels.json", "--json"]);
    assert_eq!(code, Some(0), "{words}");
    let report: Value = serde_json::from_str(&said).expect("JSON");
    // Both chats count their turns from one: of the other one the first is a greeting, and the third was "ok".
    let metrics = &report["metrics"];
    let ada = &report["by_conversation"]["ada"];
    assert_eq!(
        (&ada["durable_kept"], &ada["chatter_kept"]),
        (&json!(1.0), &json!(0.0)),
        "{report:#}"
    );
    let dropped = report["durable_dropped"].as_array().expect("a list");
    assert!(
        dropped.len() == 1
            && dropped[0]["conversation"] == "bob"
            && dropped[0]["reason"].is_string(),
        "{dropped:?}"
    );
    assert!(
        metrics["bytes_a_user"].as_f64() > Some(60.0) && metrics["memories_by_kind"].is_object(),
        "{metrics}"
    );
}

#[test]
fn a_value_that_came_back_may_stand_beside_its_first_statement() {
    let dir = folder();
    let newest_first = |kind: &str| {
        std::fs::write(dir.join("kinds.json"), json!({"q": kind}).to_string())
            .expect("the scratch folder is ours");
        let (code, said, words) =
            typed(&dir, &["change", "--data", "again.jsonl", "--kinds", "kinds.json", "--json"]);
        assert_eq!(code, Some(0), "{words}");
        serde_json::from_str::<Value>(&said).expect("JSON")["metrics"].clone()
    };
    // The first statement has the words of the question, the last one has not.
    let said = [
        "My dentist has an office in the Harbour Road.",
        "Our dentist left for Hill Street 14.",
        "Doctor Quill is at the harbour again.",
    ];
    let turns = said.iter().enumerate().map(|(n, content)| {
        json!({"id": n.to_string(), "session": n.to_string(), "at": format!("2024-0{}-01T09:00:00Z", n + 1), "role": "user", "content": content})
    });
    let question = json!({"id": "q", "text": "Is the dentist's office in the Harbour Road?", "category": "knowledge_update",
        "evidence": ["0", "1", "2"]});
    let trap = json!({"id": "t", "text": "Which streets did I name?", "category": "trap", "evidence": ["0", "1"]});
    let chat = json!({"conversation": "eve", "turns": turns.collect::<Vec<_>>(), "questions": [question, trap]});
    std::fs::write(dir.join("again.jsonl"), chat.to_string()).expect("the scratch folder is ours");
    let changed = newest_first("explicit");
    assert_eq!(
        changed["newest_first_by_kind"],
        json!({"explicit": 0.0}),
        "the first stands before the last"
    );
    let traps = &changed["traps"];
    assert_eq!(
        (&traps["n"], &traps["evidence"], &traps["outdated"]),
        (&json!(1), &json!(2), &json!(0)),
        "{traps}"
    );
}

#[test]
fn one_command_measures_every_set_of_a_directory() {
    let dir = folder();
    let sets = dir.join("sets/plain");
    std::fs::create_dir_all(&sets).expect("the scratch folder is ours");
    std::fs::copy(chats(), sets.join("two.jsonl")).expect("the scratch folder is ours");
    std::fs::write(sets.join("two-labels.json"), r#"{"3": true, "5": false}"#)
        .expect("the scratch folder is ours");
    let (code, said, words) = typed(&dir, &["all", "--dir", "sets", "--json"]);
    assert_eq!(code, Some(0), "{words}");
    let figures = &serde_json::from_str::<Value>(&said).expect("JSON")["sets"]["two"];
    assert_eq!(
        (&figures["R@10"]["value"], &figures["R@10"]["cosine"]),
        (&json!(0.625), &json!(1.0)),
        "{figures:#}"
    );
    assert_eq!(figures["chatter kept"]["n"], json!(1), "{figures:#}");
    let low = figures["newest first"]["low"].as_f64();
    assert!(
        low.is_some_and(|low| low < 0.5) && figures["newest first"]["value"] == 1.0,
        "{figures:#}"
    );
    let (code, said, words) = typed(&dir, &["all", "--dir", "sets"]);
    assert!(
        code == Some(0) && said.contains("bare cosine") && said.contains("newest first"),
        "{said}{words}"
    );
    let (code, _, words) = typed(&dir, &["all", "--dir", "nowhere"]);
    assert!(code == Some(2) && words.contains("nowhere"), "{words}");
}

#[test]
fn a_second_run_says_the_same_and_a_person_can_read_it() {
    let dir = folder();
    assert_eq!(measured(&dir, "gate"), measured(&dir, "gate"));
    let vectors = std::fs::read_dir(dir.join(".keepsake/eval")).expect("vectors are kept").count();
    assert_eq!(vectors, 1, "of one model");
    for (what, word) in
        [("recall", "knowledge_update"), ("gate", "evidence kept"), ("change", "the newest first")]
    {
        let (code, said, words) = typed(&dir, &[what, "--data", &chats()]);
        assert!(
            code == Some(0) && said.contains(word) && words.contains("2 of 2 conversations"),
            "{what}: {said}{words}"
        );
    }
}

#[test]
fn a_file_that_is_no_evaluation_is_refused() {
    let dir = folder();
    std::fs::write(dir.join("bad.jsonl"), "\n{\"conversation\": \"a\"}\n")
        .expect("the scratch folder is ours");
    for (file, why) in
        [("nowhere.jsonl", "nowhere.jsonl"), ("bad.jsonl", "line 2: missing field `turns`")]
    {
        let (code, said, words) = typed(&dir, &["recall", "--data", file]);
        assert!(code == Some(2) && words.contains(why), "{file}: {code:?} {said}{words}");
    }
    let (code, _, words) = typed(&dir, &["gate", "--data", &chats(), "--profile", "none-such"]);
    assert!(code == Some(2) && words.contains("none-such"), "{code:?} {words}");
}

#[test]
fn another_profile_is_tried_on_the_same_turns() {
    let dir = folder();
    let tried = |data: &str, profile: &str| {
        let mut command = bare_command(&dir);
        command.args([
            "whatif",
            "--profile",
            profile,
            "--data",
            data,
            "--json",
            "--set",
            "embedder.model=hash",
        ]);
        let output = command.output().expect("the program was built with this test");
        let words = String::from_utf8_lossy(&output.stderr);
        serde_json::from_slice::<Value>(&output.stdout)
            .unwrap_or_else(|e| panic!("{profile}: {e}: {words}"))
    };
    let same = tried(&chats(), "keepsake");
    assert_eq!(
        (&same["agree"], &same["lost"], &same["gained"]),
        (&json!(1.0), &json!([]), &json!([])),
        "{same:#}"
    );
    let strict =
        "base = \"keepsake\"\n[gate]\nfixed = 9.0\nkeep_share = 0.05\n[weights]\nstatement = 0.0\n";
    std::fs::write(dir.join("strict.toml"), strict).expect("the scratch folder is ours");
    let events = [
        json!({"type": "turn", "user": "ada", "content": "Hello there!"}),
        json!({"type": "turn", "user": "ada", "content": "I moved from Berlin to Lisbon last May with my sister Anna."}),
        json!({"type": "turn", "user": "ada", "content": "I usually drink tea in the morning"}),
        json!({"type": "remember", "user": "ada", "content": "Ada has a dog."}),
    ];
    let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
    std::fs::write(dir.join("events.jsonl"), lines).expect("the scratch folder is ours");
    let path = |name: &str| dir.join(name).to_string_lossy().into_owned();
    let less = tried(&path("events.jsonl"), &path("strict.toml"));
    assert_eq!((&less["turns"], &less["gained"]), (&json!(3), &json!([])), "{less:#}");
    let (lost, kept) = (less["lost"].as_array().map_or(0, Vec::len), less["kept"].as_u64());
    assert!(
        lost > 0 && less["kept_with"].as_u64() == kept.map(|kept| kept - lost as u64),
        "{less:#}"
    );
}

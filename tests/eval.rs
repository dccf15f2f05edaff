//! `keepsake eval` and `keepsake whatif` on two small chats. A reader can work out the expected
//! figures from `data/eval/two-chats.jsonl`.

use crate::support::program::{Printed, bare_command, parsed, run};
use crate::support::{root, scratch};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const CHATS: &str = "tests/data/eval/two-chats.jsonl";

/// Runs `keepsake eval` with the stand-in encoder.
fn eval(dir: &Path, arguments: &[&str]) -> Printed {
    run(bare_command(dir).arg("eval").args(arguments).args(["--set", "embedder.model=hash"]))
}

fn chats() -> String {
    root().join(CHATS).to_string_lossy().into_owned()
}

/// The report of an evaluation that must succeed.
fn report(dir: &Path, arguments: &[&str]) -> Value {
    let printed = eval(dir, arguments);
    assert_eq!(printed.0, Some(0), "{arguments:?}: {}", printed.2);
    parsed(&printed)
}

fn report_of_chats(dir: &Path, what: &str) -> Value {
    report(dir, &[what, "--data", &chats(), "--json"])
}

fn write(path: PathBuf, text: impl AsRef<[u8]>) {
    std::fs::write(&path, text).unwrap_or_else(|e| panic!("writes {}: {e}", path.display()));
}

#[test]
fn eval_recall_measures_the_turns_that_answers_came_from() {
    let report = report_of_chats(&scratch::dir("eval"), "recall");
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
        home[0] == "6" && !home.as_array().expect("the report has this list").contains(&json!("3")),
        "the superseded Berlin does not answer: {home}"
    );
    assert_eq!(
        ranking("bob-greeting"),
        json!(["2"]),
        "a greeting is not kept, and the other chat belongs to another user"
    );
    // Evidence found: all, half, all, none. The adversarial question has no evidence and does not
    // count.
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
    // The bare cosine has no versions, so Berlin stays, and every turn counts, so a dropped
    // greeting is found.
    let cosine = &report["metrics"]["cosine"]["all"];
    assert_eq!(
        (&cosine["n"], &cosine["R@10"], &cosine["any@10"]),
        (&json!(4), &json!(1.0), &json!(1.0)),
        "{cosine}"
    );
    let difference = &report["metrics"]["minus_cosine"]["all"]["R@3"];
    let bound = |name: &str| difference[name].as_f64().expect("the report has this number");
    assert!(
        bound("low") < bound("mean") && bound("mean") < bound("high") && bound("mean") < 0.0,
        "{difference}"
    );
}

#[test]
fn eval_recall_explains_every_returned_memory_on_demand() {
    let dir = scratch::dir("eval");
    let memory =
        |arguments: &[&str]| report(&dir, arguments)["questions"][0]["memories"][0].clone();
    let plain = memory(&["recall", "--data", &chats(), "--json"]);
    assert!(
        plain["turn"] == "4" && plain["score"].as_f64() > Some(0.0) && plain["explain"].is_null(),
        "{plain}"
    );
    let explained = memory(&["recall", "--data", &chats(), "--json", "--explain"]);
    assert!(explained["explain"]["cosine"].is_number(), "{explained}");
}

#[test]
fn eval_gate_measures_the_turns_of_the_user() {
    let report = report_of_chats(&scratch::dir("eval"), "gate");
    let turns = report["turns"].as_array().expect("the report has this list");
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
        assert!(
            (points - turn["total"].as_f64().expect("the report has this number")).abs() < 1e-4,
            "{turn}"
        );
    }
    let metrics = &report["metrics"];
    // Five of nine turns are stored, among them four of the five with evidence: the fifth is a
    // greeting.
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
fn eval_change_measures_the_links_of_decisions() {
    let report = report_of_chats(&scratch::dir("eval"), "change");
    let pairs = json!([
        {"conversation": "ada", "kind": "knowledge_update", "earlier": "3", "later": "6", "linked": true, "how": "superseded"},
        {"conversation": "ada", "kind": "contradiction_resolution", "earlier": "4", "later": "7", "linked": false, "how": null},
    ]);
    assert_eq!(report["pairs"], pairs, "a turn that contradicts itself makes no pair");
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
fn eval_gate_lists_durable_turns_that_were_dropped() {
    let dir = scratch::dir("eval");
    let labels =
        json!({"1": false, "2": true, "3": true, "4": true, "5": false, "6": true, "7": true});
    write(dir.join("labels.json"), labels.to_string());
    let report = report(&dir, &["gate", "--data", &chats(), "--labels", "labels.json", "--json"]);
    // Both chats number their turns from one. In the other chat the first turn is a greeting and
    // the third is "ok".
    let metrics = &report["metrics"];
    let ada = &report["by_conversation"]["ada"];
    assert_eq!(
        (&ada["durable_kept"], &ada["chatter_kept"]),
        (&json!(1.0), &json!(0.0)),
        "{report:#}"
    );
    let dropped = report["durable_dropped"].as_array().expect("the report has this list");
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
fn eval_wishes_counts_what_stands_in_the_block_of_a_task() {
    let dir = scratch::dir("eval");
    // Six facts rank before the first wish, whose only word of the task is "letters".
    let facts = ["bed", "desk", "lamp", "sofa", "stove", "shelf"]
        .map(|thing| format!("The landlord of my flat in Porto drafted a note about the {thing}."));
    let said = [
        "Please always write my letters in German.",
        "Always answer my questions about gardens in one sentence.",
    ];
    let said: Vec<&str> = said.into_iter().chain(facts.iter().map(String::as_str)).collect();
    let turns = said.iter().enumerate().map(|(n, content)| {
        json!({"id": n.to_string(), "session": "s", "at": format!("2024-01-0{}T09:00:00Z", n + 1), "role": "user", "content": content})
    });
    let task = json!({"id": "q", "text": "Drafted letters: the landlord of my flat in Porto, a note about the bed", "category": "wish"});
    let chat =
        json!({"conversation": "eve", "turns": turns.collect::<Vec<_>>(), "questions": [task]});
    write(dir.join("tasks.jsonl"), chat.to_string());
    let labels = json!({"conversation": "eve", "standing": ["0", "1"], "one_off": ["2"], "concern": {"q": ["0"]}});
    write(dir.join("labels.jsonl"), labels.to_string());
    let arguments = ["wishes", "--data", "tasks.jsonl", "--labels", "labels.jsonl", "--json"];
    let metrics = &report(&dir, &arguments)["metrics"];
    assert_eq!(
        [
            &metrics["wishes that concern the task in its block"],
            &metrics["wishes that have the kind instruction"],
            &metrics["other turns that have it"],
            &metrics["blocks with a wish for one answer"],
        ],
        [&json!(1.0), &json!(1.0), &json!(0.0), &json!(1.0)],
        "{metrics}"
    );
}

#[test]
fn eval_change_counts_a_value_that_comes_back() {
    let dir = scratch::dir("eval");
    let newest_first = |kind: &str| {
        write(dir.join("kinds.json"), json!({"q": kind}).to_string());
        let arguments = ["change", "--data", "again.jsonl", "--kinds", "kinds.json", "--json"];
        report(&dir, &arguments)["metrics"].clone()
    };
    // The first statement has the words of the question; the last one does not.
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
    write(dir.join("again.jsonl"), chat.to_string());
    let changed = newest_first("explicit");
    assert_eq!(
        changed["newest_first_by_kind"],
        json!({"explicit": 0.0}),
        "the first statement ranks before the last"
    );
    let traps = &changed["traps"];
    assert_eq!(
        (&traps["n"], &traps["evidence"], &traps["outdated"]),
        (&json!(1), &json!(2), &json!(0)),
        "{traps}"
    );
}

#[test]
fn eval_all_measures_every_set_of_a_directory() {
    let dir = scratch::dir("eval");
    let sets = dir.join("sets/plain");
    std::fs::create_dir_all(&sets).expect("the scratch directory is writable");
    std::fs::copy(chats(), sets.join("two.jsonl")).expect("the scratch directory is writable");
    write(sets.join("two-labels.json"), r#"{"3": true, "5": false}"#);
    let report = report(&dir, &["all", "--dir", "sets", "--json"]);
    let figures = &report["sets"]["two"];
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
    let (code, stdout, stderr) = eval(&dir, &["all", "--dir", "sets"]);
    assert!(
        code == Some(0) && stdout.contains("bare cosine") && stdout.contains("newest first"),
        "{stdout}{stderr}"
    );
    let (code, _, stderr) = eval(&dir, &["all", "--dir", "nowhere"]);
    assert!(code == Some(2) && stderr.contains("nowhere"), "{stderr}");
}

#[test]
fn eval_is_repeatable_and_prints_a_table() {
    let dir = scratch::dir("eval");
    assert_eq!(report_of_chats(&dir, "gate"), report_of_chats(&dir, "gate"));
    let vectors =
        std::fs::read_dir(dir.join(".keepsake/eval")).expect("eval caches vectors here").count();
    assert_eq!(vectors, 1, "one model has one file of vectors");
    for (what, word) in
        [("recall", "knowledge_update"), ("gate", "evidence kept"), ("change", "the newest first")]
    {
        let (code, stdout, stderr) = eval(&dir, &[what, "--data", &chats()]);
        assert!(
            code == Some(0) && stdout.contains(word) && stderr.contains("2 of 2 conversations"),
            "{what}: {stdout}{stderr}"
        );
    }
}

#[test]
fn a_malformed_evaluation_file_is_refused_with_its_line() {
    let dir = scratch::dir("eval");
    write(dir.join("bad.jsonl"), "\n{\"conversation\": \"a\"}\n");
    for (file, why) in
        [("nowhere.jsonl", "nowhere.jsonl"), ("bad.jsonl", "line 2: missing field `turns`")]
    {
        let (code, stdout, stderr) = eval(&dir, &["recall", "--data", file]);
        assert!(code == Some(2) && stderr.contains(why), "{file}: {code:?} {stdout}{stderr}");
    }
    let (code, _, stderr) = eval(&dir, &["gate", "--data", &chats(), "--profile", "none-such"]);
    assert!(code == Some(2) && stderr.contains("none-such"), "{code:?} {stderr}");
}

#[test]
fn whatif_compares_another_profile_on_the_same_turns() {
    let dir = scratch::dir("eval");
    let tried = |data: &str, profile: &str| {
        let arguments = ["whatif", "--profile", profile, "--data", data, "--json"];
        let mut command = bare_command(&dir);
        parsed(&run(command.args(arguments).args(["--set", "embedder.model=hash"])))
    };
    let same = tried(&chats(), "keepsake");
    assert_eq!(
        (&same["agree"], &same["lost"], &same["gained"]),
        (&json!(1.0), &json!([]), &json!([])),
        "{same:#}"
    );
    let strict =
        "base = \"keepsake\"\n[gate]\nfixed = 9.0\nkeep_share = 0.05\n[weights]\nstatement = 0.0\n";
    write(dir.join("strict.toml"), strict);
    let events = [
        json!({"type": "turn", "user": "ada", "content": "Hello there!"}),
        json!({"type": "turn", "user": "ada", "content": "I moved from Berlin to Lisbon last May with my sister Anna."}),
        json!({"type": "turn", "user": "ada", "content": "I usually drink tea in the morning"}),
        json!({"type": "remember", "user": "ada", "content": "Ada has a dog."}),
    ];
    let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
    write(dir.join("events.jsonl"), lines);
    let path = |name: &str| dir.join(name).to_string_lossy().into_owned();
    let less = tried(&path("events.jsonl"), &path("strict.toml"));
    assert_eq!((&less["turns"], &less["gained"]), (&json!(3), &json!([])), "{less:#}");
    let (lost, kept) = (less["lost"].as_array().map_or(0, Vec::len), less["kept"].as_u64());
    assert!(
        lost > 0 && less["kept_with"].as_u64() == kept.map(|kept| kept - lost as u64),
        "{less:#}"
    );
}

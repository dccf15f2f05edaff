//! The program as a person or a script meets it: arguments, exit codes, what is printed, signals.

use crate::support::program::{bare_command, command};
use crate::support::service::Place;
use crate::support::{Broker, Child, kafka, validator};
use serde_json::{Value, json};
use std::process::{Command, Output, Stdio};

fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        command.output().expect("the program was built with this test");
    (
        status.code(),
        String::from_utf8_lossy(&stdout).into_owned(),
        String::from_utf8_lossy(&stderr).into_owned(),
    )
}

/// The program in an empty folder with these arguments.
fn typed(arguments: &[&str]) -> (Option<i32>, String, String) {
    let dir =
        crate::support::scratch::root().join(format!("cli{}", crate::support::scratch::number()));
    std::fs::create_dir_all(&dir).expect("the scratch folder is ours");
    run(bare_command(&dir).args(arguments))
}

#[test]
fn every_command_explains_itself() {
    let (code, help, _) = typed(&["--help"]);
    assert_eq!(code, Some(0));
    let listed = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty());
    let mut commands: Vec<Vec<&str>> =
        listed.filter_map(|line| line.split_whitespace().next()).map(|name| vec![name]).collect();
    assert!(commands.len() >= 16, "{commands:?}");
    commands.extend([
        vec!["topics", "create"],
        vec!["topics", "check"],
        vec!["config", "check"],
        vec!["config", "show"],
    ]);
    commands.extend([
        vec!["tail", "decisions"],
        vec!["dlq", "list"],
        vec!["dlq", "redrive"],
        vec!["verify"],
    ]);
    commands.extend([
        vec!["bench", "recall"],
        vec!["bench", "ingest"],
        vec!["bench", "score"],
        vec!["bench", "scale"],
    ]);
    commands.extend([vec!["bench", "neighbours"], vec!["bench", "restore"]]);
    commands.extend([
        vec!["eval", "recall"],
        vec!["eval", "gate"],
        vec!["eval", "change"],
        vec!["whatif"],
    ]);
    for mut command in commands {
        if command != ["help"] {
            command.push("--help");
        }
        let (code, help, words) = typed(&command);
        assert_eq!(code, Some(0), "{command:?}: {words}");
        assert!(help.contains("Usage: keepsake"), "{command:?}: {help}");
    }
    for wrong in
        [vec!["fly"], vec!["eval"], vec!["recall"], vec!["forget", "--user", "ada"], vec![]]
    {
        assert_eq!(typed(&wrong).0, Some(2), "{wrong:?} is used wrongly");
    }
}

#[test]
fn what_one_sender_does_to_others_is_measured() {
    let dir =
        crate::support::scratch::root().join(format!("cli{}", crate::support::scratch::number()));
    let (store, stand_in) = (format!("store.dir={}", dir.display()), "embedder.model=hash");
    let command = [
        "bench",
        "neighbours",
        "--bytes",
        "4096",
        "--events",
        "3",
        "--json",
        "--set",
        &store,
        "--set",
        stand_in,
    ];
    let (code, said, words) = typed(&command);
    assert_eq!(code, Some(0), "{words}");
    let report: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    for name in
        ["slowest_answer_us", "quiet_answer_p50_us", "behind_remembers_us", "behind_turns_us"]
    {
        assert!(
            report["figures"][name].as_i64().is_some_and(|value| value > 0),
            "{name}: {report}"
        );
    }
}

#[test]
fn scale_is_measured_without_a_broker_and_leaves_nothing_behind() {
    let dir =
        crate::support::scratch::root().join(format!("cli{}", crate::support::scratch::number()));
    let store = format!("store.dir={}", dir.display());
    let command = [
        "bench",
        "scale",
        "--memories",
        "300",
        "--one",
        "200",
        "--recalls",
        "10",
        "--json",
        "--set",
        &store,
    ];
    let (code, said, words) = typed(&command);
    assert_eq!(code, Some(0), "{words}");
    let report: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(report["figures"]["memories_count"], 1_300, "{report}");
    for name in [
        "recall_among_few_p50_us",
        "recall_among_many_p99_us",
        "recall_of_very_many_p99_us",
        "disk_a_memory_bytes",
    ] {
        assert!(
            report["figures"][name].as_i64().is_some_and(|value| value > 0),
            "{name}: {report}"
        );
    }
    assert!(report["ratios"]["growth_p99"].is_number(), "{report}");
    assert!(dir.read_dir().is_ok_and(|mut left| left.next().is_none()), "{}", dir.display());
}

#[test]
fn a_configuration_is_checked_and_shown() {
    let (code, said, words) = typed(&["config", "check"]);
    assert_eq!((code, said.as_str()), (Some(0), "the configuration is fine\n"), "{words}");
    for (set, named) in [
        ("topics.partitions=0", "topics.partitions"),
        ("recall.limt=5", "limt"),
        ("recall.limit=many", "recall.limit"),
        ("http.listen=here", "http.listen"),
        ("profile=none-such", "none-such"),
        ("store.durability=eternal", "store.durability"),
        ("shadow.profile=none-such", "none-such"),
        ("shadow.profile=alma", "alma"),
        ("shadow.profile=keepsake", "decides already"),
    ] {
        let (code, said, words) = typed(&["config", "check", "--set", set]);
        assert_eq!(code, Some(2), "{set}: {said}{words}");
        assert!(words.contains(named) && words.contains("config-invalid"), "{set}: {words}");
    }
    let dir =
        crate::support::scratch::root().join(format!("cli{}", crate::support::scratch::number()));
    std::fs::create_dir_all(&dir).expect("the scratch folder is ours");
    std::fs::write(dir.join("mine.toml"), "[recall]\nlimit = 7\n")
        .expect("the scratch folder is ours");
    let mut command = bare_command(&dir);
    command.args([
        "config",
        "show",
        "--json",
        "--config",
        "mine.toml",
        "--set",
        "kafka.librdkafka.sasl.password=hush",
    ]);
    command.args(["--set", "topics.marks_key=hush-hush-hush-hush-hush-hush-hush"]);
    let (code, said, words) = run(command.env("KEEPSAKE__RECALL__LIMIT_MAX", "9"));
    let shown: Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}{words}"));
    let from = |option: &str| shown[option]["from"].as_str().unwrap_or_default().to_owned();
    let sources = ["recall.limit", "recall.limit_max", "recall.candidates"].map(from);
    assert_eq!(
        (code, sources),
        (Some(0), ["mine.toml", "KEEPSAKE__RECALL__LIMIT_MAX", "default"].map(str::to_owned)),
        "{said}"
    );
    assert!(!said.contains("hush"), "a password is not shown: {said}");
    let (code, _, words) = typed(&["serve", "--config", "not-there.toml"]);
    assert_eq!((code, words.contains("not-there.toml")), (Some(2), true), "{words}");
}

#[test]
fn whoever_has_read_enough_is_told_of_no_fault() {
    let dir =
        crate::support::scratch::root().join(format!("cli{}", crate::support::scratch::number()));
    std::fs::create_dir_all(&dir).expect("the scratch folder is ours");
    let mut command = bare_command(&dir);
    command.args(["config", "show", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program was built with this test");
    drop(child.stdout.take());
    let Output { status, stderr, .. } = child.wait_with_output().expect("it ends by itself");
    assert_eq!((status.code(), String::from_utf8_lossy(&stderr).as_ref()), (Some(0), ""));
}

#[test]
fn what_scoring_takes_is_timed_without_a_broker() {
    let arguments = [
        "bench",
        "score",
        "--turns",
        "50",
        "--rounds",
        "1",
        "--set",
        "embedder.model=hash",
        "--json",
    ];
    let (code, said, words) = typed(&arguments);
    let report: Value =
        serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}{words}"));
    let figure = |name: &str| report["figures"][name].as_i64().unwrap_or_default();
    let parts: i64 = ["decode_ns", "redact_ns", "split_ns", "score_ns"].map(figure).iter().sum();
    assert!(code == Some(0) && (figure("turn_ns") - parts).abs() <= 2 && parts > 0, "{report:#}");
}

/// Reply of a client command, as it came, held against its schema.
fn told(place: &Place, arguments: &[&str]) -> Value {
    let (code, said, words) = run(command(place).args(arguments).arg("--json"));
    let reply: Value =
        serde_json::from_str(&said).unwrap_or_else(|e| panic!("{arguments:?}: {e}: {said}{words}"));
    validator::reply(&reply);
    assert_eq!(
        code == Some(0),
        reply["type"] != "error",
        "{arguments:?} exits with {code:?}: {reply}"
    );
    reply
}

#[test]
fn commands_talk_to_a_service_on_the_embedded_broker() {
    let place = Place::new(Broker::Embedded, &[("shadow.profile", "talome")]);
    let mut serve = Child::start(&place);
    serve.wait_until_ready();
    let published =
        told(&place, &["publish", "--user", "ada", "--session", "s1", "I live in Lisbon"]);
    assert_eq!(published["decisions"][0]["outcome"], "kept");
    let remembered = told(
        &place,
        &["remember", "--user", "ada", "--metadata", "app=chat", "The blue key opens the shed."],
    );
    let id = remembered["decisions"][0]["memory"].as_str().expect("an id");
    let recalled =
        told(&place, &["recall", "--user", "ada", "--explain", "Which key opens the shed?"]);
    assert_eq!(recalled["memories"][0]["id"], id, "{recalled}");
    assert_eq!(
        told(&place, &["list", "--user", "ada"])["memories"].as_array().map(Vec::len),
        Some(2)
    );
    assert_eq!(
        told(&place, &["update", "--user", "ada", id, "--content", "The red key opens the shed."])
            ["type"],
        "applied"
    );
    let got = told(&place, &["get", "--user", "ada", "--history", id]);
    assert_eq!(got["history"][0]["content"], "The blue key opens the shed.");
    assert_eq!(
        told(&place, &["feedback", "--user", "ada", "--signal", "used", id])["type"],
        "applied"
    );
    assert_eq!(told(&place, &["explain", "--user", "ada", id])["type"], "explained");
    let event =
        format!("{}events:{}:{}", place.prefix, published["partition"], published["offset"]);
    assert_eq!(
        told(&place, &["explain", "--user", "ada", "--event", &event])["decision"]["candidate"],
        "I live in Lisbon"
    );
    assert_eq!(told(&place, &["stats", "--user", "ada"])["memories"]["total"], 2);
    assert_eq!(
        told(&place, &["forget", "--user", "ada", "--memory", id])["decisions"][0]["outcome"],
        "forgotten"
    );
    assert_eq!(told(&place, &["get", "--user", "ada", id])["status"], "not_found");
    assert_eq!(
        told(&place, &["stats", "--user", "acme/ada"])["memories"]["total"],
        0,
        "another tenant"
    );

    for (arguments, word) in [
        (vec!["publish", "--user", "ada", "Hi there!"], "dropped"),
        (vec!["recall", "--user", "ada", "Where do I live?"], "I live in Lisbon"),
        (vec!["list", "--user", "ada"], "I live in Lisbon"),
        (vec!["stats", "--user", "ada"], "total"),
        (vec!["compact"], "3 partitions"),
    ] {
        let (code, said, words) = run(command(&place).args(&arguments));
        assert!(code == Some(0) && said.contains(word), "{arguments:?}: {code:?} {said}{words}");
        assert!(!said.contains('\u{1b}'), "no colours where nobody looks: {said:?}");
    }

    let watch = ["tail", "decisions", "--user", "ada", "--outcome", "dropped", "--exit", "--json"];
    let (code, said, words) = run(command(&place).args(watch));
    let decisions: Vec<Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).expect("one JSON object a line"))
        .collect();
    let candidates: Vec<&str> =
        decisions.iter().filter_map(|decision| decision["candidate"].as_str()).collect();
    assert_eq!((code, candidates), (Some(0), vec!["Hi there!"]), "{said}{words}");

    let (code, said, words) = run(command(&place).args(watch).arg("--shadow"));
    let shadows: Vec<Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).expect("one JSON object a line"))
        .collect();
    let shadows: Vec<&Value> =
        shadows.iter().filter(|one| one["shadow"] == true).map(|one| &one["candidate"]).collect();
    assert_eq!(
        (code, shadows),
        (Some(0), vec![&json!("I live in Lisbon"), &json!("Hi there!")]),
        "{said}{words}"
    );
    let (_, said, _) = run(command(&place).args(["tail", "decisions", "--shadow", "--exit"]));
    assert!(said.contains("talome would have: dropped"), "{said}");

    let questions = place.dir.join("questions.jsonl");
    let lines = [
        json!({"user": "ada", "query": "Where do I live?", "expect": ["lisbon"]}),
        json!({"user": "ada", "query": "Where do I live?", "expect": ["Porto"]}),
    ];
    std::fs::write(&questions, lines.map(|line| format!("{line}\n")).concat())
        .expect("the scratch folder is ours");
    let (code, said, words) =
        run(command(&place).args(["eval", "--json", "--own"]).arg(&questions));
    let report: Value =
        serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}{words}"));
    assert_eq!(
        (code, &report["n"], &report["metrics"]["R@5"]),
        (Some(0), &json!(2), &json!(0.5)),
        "{report:#}"
    );

    for (page, head, body) in [
        ("/livez", "HTTP/1.1 200", "ok"),
        ("/readyz", "HTTP/1.1 200", "partition 0 ready"),
        ("/metrics", "HTTP/1.1 200", "keepsake_decisions_total{outcome=\"kept\"} 2"),
    ] {
        let answer = serve.get(page);
        assert!(answer.starts_with(head) && answer.contains(body), "{page}: {answer}");
    }
    serve.signal("-TERM");
    let status = serve.wait();
    assert_eq!(status.code(), Some(0), "{status}: {}", serve.log());
}

#[test]
fn without_a_service_a_command_says_so() {
    let (code, _, words) = typed(&["recall", "--user", "ada", "anything"]);
    assert_eq!(code, Some(1));
    assert!(words.contains("keepsake serve") && words.contains("broker-unreachable"), "{words}");
}

#[test]
fn topics_are_created_and_checked() {
    if !kafka::is_wanted("topics_are_created_and_checked") {
        return;
    }
    let place = Place::new(Broker::Kafka, &[]);
    let (code, _, words) = run(command(&place).args(["topics", "check"]));
    assert!(code == Some(1) && words.contains("topic-missing"), "{code:?}: {words}");
    let mut serve = command(&Place {
        options: vec![("topics.create".into(), "false".into())],
        ..place.clone()
    });
    let (code, _, words) = run(serve.arg("serve"));
    assert!(code == Some(1) && words.contains("topic-missing"), "{code:?}: {words}");
    for _ in 0..2 {
        let (code, said, words) = run(command(&place).args(["topics", "create", "--json"]));
        assert_eq!(code, Some(0), "a second time changes nothing: {words}");
        let found: Value = serde_json::from_str(&said).expect("JSON");
        let topics = ["events", "recalls", "replies", "decisions", "memories", "dead-letters"];
        assert!(
            topics
                .iter()
                .all(|name| found["topics"][format!("{}{name}", place.prefix)] == json!(3)),
            "{said}"
        );
    }
    let (code, said, words) = run(command(&place).args(["topics", "check"]));
    assert!(code == Some(0) && said.contains("3 partitions"), "{code:?}: {said}{words}");
}

#[test]
fn a_second_service_on_the_same_store_is_refused() {
    let place = Place::new(Broker::Embedded, &[]);
    let mut first = Child::start(&place);
    first.wait_until_ready();
    let (code, _, words) = run(command(&place).arg("serve"));
    assert!(code == Some(1) && words.contains("store-locked"), "{code:?}: {words}");
    assert!(first.process.try_wait().expect("it is our child").is_none(), "the first one goes on");
    assert_eq!(told(&place, &["stats", "--user", "ada"])["status"], "ok");
}

#[test]
fn a_broker_that_is_not_there_is_named() {
    let (code, _, words) = typed(&[
        "serve",
        "--brokers",
        "127.0.0.1:9",
        "--set",
        "kafka.connect_ms=300",
        "--set",
        "embedder.model=hash",
    ]);
    assert!(
        code == Some(1) && words.contains("broker-unreachable") && words.contains("127.0.0.1:9"),
        "{code:?}: {words}"
    );
    let (code, _, words) = typed(&["serve", "--set", "embedder.model=nowhere"]);
    assert!(
        code == Some(1) && words.contains("model-unusable") && words.contains("nowhere"),
        "{code:?}: {words}"
    );
}

#[test]
fn the_demo_runs_to_its_end() {
    let (code, said, words) = typed(&[
        "demo",
        "--exit",
        "--set",
        "embedder.model=hash",
        "--set",
        "http.listen=127.0.0.1:0",
    ]);
    assert_eq!(code, Some(0), "{said}{words}");
    for word in
        ["kept", "dropped", "merged", "superseded", "forgotten", "pruned", "summarised", "/metrics"]
    {
        assert!(said.contains(word), "no {word:?} in: {said}");
    }
}

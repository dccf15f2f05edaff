//! The command line of `keepsake`: arguments, exit codes, output and signals.

use crate::support::program::{bare_command, command, parsed, run, run_bare};
use crate::support::service::Place;
use crate::support::skips::skipped;
use crate::support::stdio::Mcp;
use crate::support::{Broker, Child, on_both_brokers, scratch, validator};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{self, Command, Output, Stdio};

#[test]
fn every_command_has_a_help_text() {
    let (code, help, _) = run_bare(&["--help"]);
    assert_eq!(code, Some(0));
    // The groups of commands, up to the options.
    let (listed, _) = help.split_once("\nOptions:").expect("options follow");
    let (_, listed) = listed.split_once("\nCommands:\n").expect("commands first");
    let listed = listed.lines().filter(|line| line.starts_with("  "));
    let mut commands: Vec<Vec<&str>> =
        listed.filter_map(|line| line.split_whitespace().next()).map(|name| vec![name]).collect();
    let first: Vec<&str> = commands.iter().take(5).map(|name| name[0]).collect();
    assert_eq!(first, ["serve", "mcp", "connect", "remember", "recall"], "what a user needs first");
    for heading in ["Memories:", "Trying and measuring:", "For operators:"] {
        assert!(help.contains(&format!("\n{heading}\n")), "{heading}: {help}");
    }
    assert!(commands.contains(&vec!["topics"]) && commands.contains(&vec!["service"]), "{help}");
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
    for bench in ["recall", "ingest", "restore"] {
        commands.push(vec!["bench", bench]);
    }
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
        let (code, help, stderr) = run_bare(&command);
        assert_eq!(code, Some(0), "{command:?}: {stderr}");
        assert!(help.contains("Usage: keepsake"), "{command:?}: {help}");
    }
    for wrong in
        [vec!["fly"], vec!["eval"], vec!["recall"], vec!["forget", "--user", "ada"], vec![]]
    {
        assert_eq!(run_bare(&wrong).0, Some(2), "{wrong:?} exits as a usage error");
    }
}

#[test]
fn a_wrong_value_is_refused_before_anything_is_sent() {
    for wrong in [
        "recall --user ada --format html tea",
        "recall --user ada --as-of yesterday tea",
        "recall --user ada --min-relevance 2 tea",
        "feedback --user ada --signal great 0",
        "remember --user ada --importance 7 tea",
        "remember --user ada --scope world tea",
        "remember --user ada --at soon tea",
        "update --user ada --confidence nan 0",
        "publish --user ada --role robot tea",
    ] {
        // No broker listens there: a command that sends something fails with 1.
        let mut arguments = vec!["--set", "kafka.bootstrap_servers=127.0.0.1:9"];
        arguments.extend(wrong.split(' '));
        let (code, _, stderr) = run_bare(&arguments);
        assert_eq!(code, Some(2), "{wrong}: {stderr}");
    }
}

#[test]
fn a_configuration_is_checked_and_shown() {
    let (code, stdout, stderr) = run_bare(&["config", "check"]);
    assert_eq!((code, stdout.as_str()), (Some(0), "the configuration is fine\n"), "{stderr}");
    for (set, named) in [
        ("topics.partitions=0", "topics.partitions"),
        ("recall.limt=5", "limt"),
        ("recall.limit=many", "recall.limit"),
        ("http.listen=here", "http.listen"),
        ("topics.prefix=bad prefix/", "topics.prefix"),
        ("profile=none-such", "none-such"),
        ("store.standby=perhaps", "store.standby"),
        ("shadow.profile=none-such", "none-such"),
        ("shadow.profile=alma", "alma"),
        ("shadow.profile=keepsake", "is already the profile"),
        ("kafka.librdkafka.isolation.level=read_uncommitted", "isolation.level: is reserved"),
        ("kafka.librdkafka.auto.offset.reset=latest", "stops if that offset is gone"),
        ("kafka.librdkafka.group.id=mine", "set kafka.group_id instead"),
    ] {
        let (code, stdout, stderr) = run_bare(&["config", "check", "--set", set]);
        assert_eq!(code, Some(2), "{set}: {stdout}{stderr}");
        assert!(stderr.contains(named) && stderr.contains("config-invalid"), "{set}: {stderr}");
    }
    let dir = scratch::dir("cli");
    std::fs::write(dir.join("mine.toml"), "[recall]\nlimit = 7\n")
        .expect("the scratch directory is writable");
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
    let (code, stdout, stderr) = run(command.env("KEEPSAKE__RECALL__LIMIT_MAX", "9"));
    let shown: Value =
        serde_json::from_str(&stdout).unwrap_or_else(|e| panic!("{e}: {stdout}{stderr}"));
    let from = |option: &str| shown[option]["from"].as_str().unwrap_or_default().to_owned();
    let sources = ["recall.limit", "recall.limit_max", "recall.candidates"].map(from);
    assert_eq!(
        (code, sources),
        (Some(0), ["mine.toml", "KEEPSAKE__RECALL__LIMIT_MAX", "default"].map(str::to_owned)),
        "{stdout}"
    );
    assert!(!stdout.contains("hush"), "a password must not be shown: {stdout}");
    let (code, _, stderr) = run_bare(&["serve", "--config", "not-there.toml"]);
    assert_eq!((code, stderr.contains("not-there.toml")), (Some(2), true), "{stderr}");
}

/// Holds lynkr 26, 27, 28, 29, 61.
#[test]
fn the_settings_of_lynkrs_guide_have_its_defaults() {
    let printed = run_bare(&["config", "show", "--json", "--set", "profile=lynkr"]);
    let shown = parsed(&printed);
    for (option, value) in [
        ("MEMORY_ENABLED", "true"),
        ("MEMORY_RETRIEVAL_LIMIT", "5"),
        ("MEMORY_SURPRISE_THRESHOLD", "0.3"),
        ("MEMORY_MAX_AGE_DAYS", "90.0"),
        ("MEMORY_MAX_COUNT", "10000"),
        ("MEMORY_DECAY_ENABLED", "true"),
        ("MEMORY_DECAY_HALF_LIFE", "30.0"),
        ("MEMORY_INCLUDE_GLOBAL", "true"),
        ("MEMORY_INJECTION_FORMAT", "\"system\""),
        ("MEMORY_EXTRACTION_ENABLED", "true"),
        ("MEMORY_FORMAT", "\"compact\""),
        ("MEMORY_DEDUP_ENABLED", "true"),
        ("MEMORY_DEDUP_LOOKBACK", "5"),
    ] {
        let expected = json!({"value": value, "from": "profile lynkr"});
        assert_eq!(shown[format!("options.{option}")], expected, "{option}");
    }
}

/// Variables that Lynkr's guide names count while Lynkr is the chosen policy, and only then.
/// Holds lynkr 26, 28, 29, 49.
#[test]
fn variables_of_a_policys_document_are_read_shown_and_checked() {
    let shown = |profile: &str| {
        let mut command = bare_command(&scratch::dir("cli"));
        command.args(["config", "show", "--json", "--set", &format!("profile={profile}")]);
        let printed =
            run(command.env("MEMORY_MAX_AGE_DAYS", "45").env("MEMORY_FORMAT", "detailed"));
        parsed(&printed)
    };
    let lynkr = shown("lynkr");
    assert_eq!(
        lynkr["options.MEMORY_MAX_AGE_DAYS"],
        json!({"value": "45.0", "from": "MEMORY_MAX_AGE_DAYS"})
    );
    assert_eq!(
        lynkr["options.MEMORY_MAX_COUNT"],
        json!({"value": "10000", "from": "profile lynkr"})
    );
    assert!(shown("keepsake")["options.MEMORY_MAX_AGE_DAYS"].is_null());
    // The values that the guide prunes with.
    for days in ["30", "60"] {
        let mut command = bare_command(&scratch::dir("cli"));
        command.args(["config", "show", "--json", "--set", "profile=lynkr"]);
        let pruning = [("MEMORY_MAX_AGE_DAYS", days), ("MEMORY_MAX_COUNT", "5000")];
        let shown = parsed(&run(command.envs(pruning)));
        for (name, value) in [(pruning[0].0, format!("{days}.0")), (pruning[1].0, "5000".into())] {
            assert_eq!(shown[format!("options.{name}")], json!({"value": value, "from": name}));
        }
    }
    let check = |profile: &str, name: &str, value: &str| {
        let mut command = bare_command(&scratch::dir("cli"));
        command.args(["config", "check", "--set", &format!("profile={profile}")]);
        run(command.env(name, value))
    };
    let (code, stdout, _) = check("lynkr", "MEMORY_MAX_AGES", "45");
    assert!(code == Some(0) && stdout.contains("warning: MEMORY_MAX_AGES"), "{stdout}");
    let (code, stdout, _) = check("keepsake", "MEMORY_MAX_AGES", "45");
    assert!(code == Some(0) && !stdout.contains("MEMORY_"), "{stdout}");
    let (code, _, stderr) = check("lynkr", "MEMORY_RETRIEVAL_LIMIT", "45");
    assert!(code == Some(2) && stderr.contains("must be 1 to 20, not 45"), "{stderr}");
}

/// Holds lynkr 38, 42.
#[test]
fn searches_and_statistics_print_as_the_tools_of_lynkrs_guide() {
    let place = Place::new(Broker::Embedded, &[("profile", "lynkr")]);
    let mut serve = Child::start(&place);
    serve.wait_until_ready();
    for (session, content) in
        [("s1", "I prefer JWT over sessions"), ("s2", "auth.js depends on jwt.js")]
    {
        reply_of(&place, &["publish", "--user", "ada", "--session", session, content]);
    }
    let print = |arguments: &[&str]| run(command(&place).args(arguments)).1;
    assert_eq!(
        print(&["recall", "--user", "ada", "--as-tool", "sessions"]),
        "Found 1 relevant memory:\n1. [Preference] I prefer JWT over sessions\n"
    );
    let stats = print(&["stats", "--user", "ada", "--as-tool"]);
    assert!(
        stats.starts_with("Total memories: 2\nSession memories: 2\nGlobal memories: 0\n"),
        "{stats}"
    );
    assert!(stats.ends_with("Oldest memory: 0 days ago\n"), "{stats}");
    let table = print(&["stats", "--user", "ada"]);
    assert!(table.starts_with("of          figures\nmemories    2: 2 active\n"), "{table}");
    serve.kill();
}

#[test]
fn a_closed_pipe_is_not_a_fault() {
    let dir = scratch::dir("cli");
    let mut command = bare_command(&dir);
    command.args(["config", "show", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("cargo builds the program before this test");
    drop(child.stdout.take());
    let Output { status, stderr, .. } =
        child.wait_with_output().expect("the command ends by itself");
    assert_eq!((status.code(), String::from_utf8_lossy(&stderr).as_ref()), (Some(0), ""));
}

/// The reply that a client command prints, validated against its schema.
fn reply_of(place: &Place, arguments: &[&str]) -> Value {
    let printed = run(command(place).args(arguments).arg("--json"));
    let reply = parsed(&printed);
    validator::reply(&reply);
    let code = printed.0;
    assert_eq!(
        code == Some(0),
        reply["type"] != "error",
        "{arguments:?} exits with {code:?}: {reply}"
    );
    reply
}

/// Output with one JSON object per line.
fn json_lines(stdout: &str) -> Vec<Value> {
    stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect()
}

#[test]
fn commands_use_a_service_on_the_embedded_broker() {
    let place = Place::new(Broker::Embedded, &[("shadow.profile", "talome")]);
    let mut serve = Child::start(&place);
    serve.wait_until_ready();
    let published =
        reply_of(&place, &["publish", "--user", "ada", "--session", "s1", "I live in Lisbon"]);
    assert_eq!(published["decisions"][0]["outcome"], "kept");
    let remembered = reply_of(
        &place,
        &["remember", "--user", "ada", "--metadata", "app=chat", "The blue key opens the shed."],
    );
    let id = remembered["decisions"][0]["memory"].as_str().expect("a kept memory has an id");
    let recalled =
        reply_of(&place, &["recall", "--user", "ada", "--explain", "Which key opens the shed?"]);
    assert_eq!(recalled["memories"][0]["id"], id, "{recalled}");
    assert_eq!(
        reply_of(&place, &["list", "--user", "ada"])["memories"].as_array().map(Vec::len),
        Some(2)
    );
    assert_eq!(
        reply_of(
            &place,
            &["update", "--user", "ada", id, "--content", "The red key opens the shed."]
        )["type"],
        "applied"
    );
    let got = reply_of(&place, &["get", "--user", "ada", "--history", id]);
    assert_eq!(got["history"][0]["content"], "The blue key opens the shed.");
    assert_eq!(
        reply_of(&place, &["feedback", "--user", "ada", "--signal", "used", id])["type"],
        "applied"
    );
    assert_eq!(reply_of(&place, &["explain", "--user", "ada", id])["type"], "explained");
    let event =
        format!("{}events:{}:{}", place.prefix, published["partition"], published["offset"]);
    assert_eq!(
        reply_of(&place, &["explain", "--user", "ada", "--event", &event])["decision"]["candidate"],
        "I live in Lisbon"
    );
    assert_eq!(reply_of(&place, &["stats", "--user", "ada"])["memories"]["total"], 2);
    assert_eq!(
        reply_of(&place, &["forget", "--user", "ada", "--memory", id])["decisions"][0]["outcome"],
        "forgotten"
    );
    assert_eq!(reply_of(&place, &["get", "--user", "ada", id])["status"], "not_found");
    assert_eq!(
        reply_of(&place, &["stats", "--user", "acme/ada"])["memories"]["total"],
        0,
        "another tenant"
    );

    // All decisions so far are on one partition, where markers of transactions are between them.
    for count in ["1", "2", "3"] {
        let tail = ["tail", "decisions", "--exit", "--json", "--shadow", "--last", count];
        let (_, stdout, stderr) = run(command(&place).args(tail));
        assert_eq!(json_lines(&stdout).len().to_string(), count, "{stdout}{stderr}");
    }

    for (arguments, word) in [
        (vec!["publish", "--user", "ada", "Hi there!"], "dropped"),
        (vec!["recall", "--user", "ada", "Where do I live?"], "I live in Lisbon"),
        (vec!["list", "--user", "ada"], "I live in Lisbon"),
        (vec!["stats", "--user", "ada"], "memories    1: 1 active"),
        (vec!["list", "--user", "nobody"], "no memories"),
        (vec!["stats", "--user", "nobody"], "memories   none\ndecisions  none"),
        (vec!["compact"], "3 partitions"),
    ] {
        let (code, stdout, stderr) = run(command(&place).args(&arguments));
        assert!(
            code == Some(0) && stdout.contains(word),
            "{arguments:?}: {code:?} {stdout}{stderr}"
        );
        assert!(!stdout.contains('\u{1b}'), "no colours without a terminal: {stdout:?}");
    }

    // The last offsets of a partition are not all decisions: each transaction ends with a marker.
    let (last, dropped) = (["--last", "100"], ["--outcome", "dropped"]);
    let watch = [&["tail", "decisions", "--user", "ada", "--exit", "--json"], &last[..], &dropped];
    let watch = watch.concat();
    let (code, stdout, stderr) = run(command(&place).args(&watch));
    let decisions = json_lines(&stdout);
    let candidates: Vec<&str> =
        decisions.iter().filter_map(|decision| decision["candidate"].as_str()).collect();
    assert_eq!((code, candidates), (Some(0), vec!["Hi there!"]), "{stdout}{stderr}");

    let (code, stdout, stderr) = run(command(&place).args(&watch).arg("--shadow"));
    let shadows = json_lines(&stdout);
    let shadows: Vec<&Value> =
        shadows.iter().filter(|one| one["shadow"] == true).map(|one| &one["candidate"]).collect();
    assert_eq!(
        (code, shadows),
        (Some(0), vec![&json!("I live in Lisbon"), &json!("Hi there!")]),
        "{stdout}{stderr}"
    );
    let (_, stdout, _) = run(command(&place).args(["tail", "decisions", "--shadow", "--exit"]));
    assert!(stdout.contains("talome would have: dropped"), "{stdout}");

    let questions = place.dir.join("questions.jsonl");
    let lines = [
        json!({"user": "ada", "query": "Where do I live?", "expect": ["lisbon"]}),
        json!({"user": "ada", "query": "Where do I live?", "expect": ["Porto"]}),
    ];
    std::fs::write(&questions, lines.map(|line| format!("{line}\n")).concat())
        .expect("the scratch directory is writable");
    let (code, stdout, stderr) =
        run(command(&place).args(["eval", "--json", "--own"]).arg(&questions));
    let report: Value =
        serde_json::from_str(&stdout).unwrap_or_else(|e| panic!("{e}: {stdout}{stderr}"));
    assert_eq!(
        (code, &report["n"], &report["metrics"]["R@5"]),
        (Some(0), &json!(2), &json!(0.5)),
        "{report:#}"
    );

    for (page, head, body) in [
        ("/livez", "HTTP/1.1 200", "ok"),
        ("/health", "HTTP/1.1 200", "ok"),
        ("/readyz", "HTTP/1.1 200", "partition 0 ready"),
        ("/ready", "HTTP/1.1 200", "partition 0 ready"),
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
fn without_a_service_a_command_names_the_missing_broker() {
    let (code, _, stderr) = run_bare(&["recall", "--user", "ada", "anything"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("keepsake serve") && stderr.contains("broker-unreachable"), "{stderr}");
    assert!(stderr.contains("no keepsake runs on /"), "the directory is absolute: {stderr}");
}

/// Starts `keepsake serve` and returns the lines that it prints, the explorer's last.
fn lines(serve: &mut Command) -> (process::Child, Vec<String>) {
    let serve = serve.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = serve.spawn().expect("cargo builds the program before this test");
    let mut lines = Vec::new();
    for line in BufReader::new(child.stdout.as_mut().expect("piped")).lines() {
        lines.push(line.expect("the output is text"));
        if lines.iter().any(|line| line.starts_with("explorer: ")) {
            break;
        }
    }
    (child, lines)
}

#[test]
fn serve_alone_has_every_door_and_prints_the_explorer_last() {
    let place = Place::new(Broker::Embedded, &[]);
    let (serve, lines) = lines(command(&place).arg("serve"));
    let [ready, gateway, explorer] = &lines[..] else { panic!("{lines:?}") };
    assert!(ready.starts_with("ready: 0 memories"), "{ready}");
    assert!(gateway.starts_with("gateway: http://127.0.0.1:"), "{gateway}");
    let address = explorer.strip_prefix("explorer: http://").expect("an address");
    let address = address.strip_suffix('/').expect("a page");
    let said = json!({"user": "ada", "content": "I sail."});
    let (status, answer) = crate::gateway::call(address, "POST", "/v1/keepsake/remember", said);
    assert_eq!(status, 200, "{answer}");
    let found = parsed(&run(command(&place).args(["service", "status", "--json"])));
    assert_eq!(found["running"]["explorer"], format!("http://{address}/"), "{found}");
    terminated(serve);

    let (serve, line) = first_line(command(&place).args(["serve", "--no-gateway"]));
    assert!(line.starts_with("ready: 1 memory"), "{line}");
    let found = parsed(&run(command(&place).args(["service", "status", "--json"])));
    assert_eq!(found["running"]["explorer"], Value::Null, "{found}");
    terminated(serve);
}

#[test]
fn a_missing_file_of_keys_stops_the_start_with_the_command_that_makes_one() {
    let keys = scratch::dir("keys").join("no.keys").display().to_string();
    let place = Place::new(Broker::Embedded, &[("gateway.keys", &keys)]);
    for start in ["serve", "gateway"] {
        let (code, _, stderr) = run(command(&place).arg(start));
        assert_eq!(code, Some(2), "{start}: {stderr}");
        let make = format!("`keepsake keys new --set gateway.keys={keys}`");
        assert!(stderr.contains(&make), "{stderr}");
    }
    assert_eq!(run(command(&place).args(["keys", "new"])).0, Some(0));
    terminated(lines(command(&place).arg("serve")).0);
}

#[test]
fn beside_a_log_with_a_password_the_gateway_is_closed_unless_it_has_keys_or_is_asked_for() {
    let place = Place::new(Broker::Embedded, &[("embedded.secret", "true")]);
    let (serve, line) = first_line(command(&place).arg("serve"));
    assert!(line.starts_with("ready: 0 memories"), "{line}");
    let found = parsed(&run(command(&place).args(["service", "status", "--json"])));
    assert_eq!(found["running"]["explorer"], Value::Null, "{found}");
    terminated(serve);
    terminated(lines(command(&place).args(["serve", "--gateway"])).0);
}

/// The unit of systemd and the agent of launchd, checked by their own readers.
#[test]
fn a_unit_of_the_service_is_installed_shown_and_taken_away() {
    let home = scratch::dir("unit");
    let service = |arguments: &[&str]| {
        let mut command = bare_command(&home);
        // No session answers, so nothing is started on the machine of the test.
        command.env("HOME", &home).env_remove("XDG_CONFIG_HOME").env_remove("XDG_RUNTIME_DIR");
        command.env_remove("DBUS_SESSION_BUS_ADDRESS").arg("service").args(arguments);
        let (code, stdout, stderr) = run(&mut command);
        assert_eq!(code, Some(0), "{arguments:?}: {stderr}");
        stdout
    };
    let unit = home.join(".config/systemd/user/keepsake.service");
    let said = service(&["install", "--data", "/tmp/50% of \"it\""]);
    assert!(said.contains(&unit.display().to_string()), "{said}");
    let text = std::fs::read_to_string(&unit).expect("written");
    assert_eq!(text, service(&["install", "--print", "--data", "/tmp/50% of \"it\""]));
    let verified = Command::new("systemd-analyze").args(["--user", "verify"]).arg(&unit).output();
    match verified {
        Ok(Output { status, stderr, .. }) => {
            let told = String::from_utf8_lossy(&stderr);
            let about: Vec<_> = told.lines().filter(|line| line.contains("keepsake")).collect();
            assert!(status.success() || about.is_empty(), "{about:?}");
        }
        Err(error) => skipped("a_unit_of_the_service", &format!("systemd-analyze: {error}")),
    }
    assert!(service(&["status"]).contains("unit: installed"));
    // A service that the unit did not start stays, and is named.
    std::fs::create_dir(home.join("data")).expect("a directory");
    let lock = std::fs::File::create(home.join("data/LOCK")).expect("writes");
    lock.lock().expect("nobody has it");
    let said = service(&["install"]);
    assert!(said.contains("not started") && said.contains("is in use by another"), "{said}");
    drop(lock);
    assert!(service(&["uninstall"]).contains("removed"));
    assert!(!unit.exists());
    assert!(service(&["status"]).contains("unit: not installed"));
    assert!(service(&["uninstall"]).contains("no unit is installed"));
}

/// Starts `keepsake serve` and returns the first line that it prints.
fn first_line(serve: &mut Command) -> (process::Child, String) {
    let serve = serve.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = serve.spawn().expect("cargo builds the program before this test");
    let mut line = String::new();
    let stdout = child.stdout.as_mut().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("the output is text");
    (child, line)
}

fn terminated(mut child: process::Child) {
    let sent = Command::new("kill").arg(child.id().to_string()).status();
    assert!(sent.expect("`kill` is installed").success());
    let status = child.wait().expect("the process is a child of this one");
    assert_eq!(status.code(), Some(0), "{status}");
}

#[test]
fn serve_keeps_what_it_is_told_and_says_where() {
    let place = Place::new(Broker::Embedded, &[]);
    let data = place.data().display().to_string();
    let (serve, line) = first_line(command(&place).arg("serve"));
    assert!(
        line.starts_with(&format!("ready: 0 memories of 0 users in {data}, Kafka at ")),
        "{line}"
    );
    for (user, text) in
        [("ada", "I live in Lisbon."), ("ada", "The key is blue."), ("zoe", "I sail.")]
    {
        reply_of(&place, &["remember", "--user", user, text]);
    }
    // A command finds the service by its directory alone, from any working directory.
    let prefix = format!("topics.prefix={}", place.prefix);
    let list = ["list", "--user", "zoe", "--data", &data, "--set", &prefix];
    let (code, stdout, stderr) = run_bare(&list);
    assert!(code == Some(0) && stdout.contains("I sail."), "{code:?}: {stdout}{stderr}");
    terminated(serve);
    assert!(!place.data().join("address").exists(), "nothing runs there");

    let (serve, line) = first_line(command(&place).arg("serve"));
    assert!(line.starts_with(&format!("ready: 3 memories of 2 users in {data},")), "{line}");
    assert_eq!(
        reply_of(&place, &["list", "--user", "ada"])["memories"].as_array().map(Vec::len),
        Some(2)
    );
    terminated(serve);
}

#[test]
fn an_ephemeral_service_leaves_nothing_and_takes_free_ports() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = taken.local_addr().map(|it| (it, taken)).expect("bound");
    let [http, gateway] = ["http", "gateway"].map(|it| format!("{it}.listen={}", taken.0));
    let (serve, line) = first_line(
        bare_command(&scratch::dir("cli"))
            .args(["serve", "--ephemeral", "--set", "embedder.model=hash"])
            .args(["--set", &http, "--set", &gateway]),
    );
    assert!(line.contains("keeps nothing"), "{line}");
    let (_, rest) = line.split_once(" in ").expect("the line names the directory");
    let dir = Path::new(rest.split(',').next().expect("not empty"));
    assert!(dir.join("address").is_file(), "{line}");
    terminated(serve);
    assert!(!dir.exists(), "{line}");
    let (code, _, stderr) = run_bare(&["serve", "--ephemeral", "--brokers", "127.0.0.1:9"]);
    assert!(code == Some(2) && stderr.contains("--ephemeral"), "{code:?}: {stderr}");
}

#[test]
fn a_taken_port_stops_the_service_with_the_way_to_find_who_has_it() {
    let place = Place::new(Broker::Embedded, &[]);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let place = place.with("embedded.listen", &address);
    let (code, _, stderr) = run(command(&place).arg("serve"));
    assert_eq!(code, Some(1), "{stderr}");
    for word in [address.as_str(), "ss -ltnp", "embedded.listen=127.0.0.1:0", "address-taken"] {
        assert!(stderr.contains(word), "{word}: {stderr}");
    }
}

#[test]
fn a_start_without_an_encoder_names_the_places_that_were_searched() {
    let (code, _, stderr) = run_bare(&["serve"]);
    assert_eq!(code, Some(1), "{stderr}");
    for word in ["model-unusable", "/data/model", "/share/keepsake/model", "setup.sh", "hash"] {
        assert!(stderr.contains(word), "{word}: {stderr}");
    }
}

#[test]
fn config_show_has_the_effective_directories() {
    let (_, stdout, _) = run_bare(&["config", "show", "--json", "--data", "/d"]);
    let shown: Value = serde_json::from_str(&stdout).expect("the output is JSON");
    assert_eq!(shown["data.dir"], json!({"value": "\"/d\"", "from": "--data"}));
    assert_eq!(shown["store.dir"]["value"], "\"/d/store\"");
    assert_eq!(shown["events.keep_ms"]["value"], "2592000000");
}

on_both_brokers! { topics_are_created_and_checked }

fn topics_are_created_and_checked(broker: Broker) {
    let place = Place::lasting(broker, &[]);
    let (code, _, stderr) = run(command(&place).args(["topics", "check"]));
    assert!(code == Some(1) && stderr.contains("topic-missing"), "{code:?}: {stderr}");
    let (code, _, stderr) = run(command(&place.with("topics.create", "false")).arg("serve"));
    assert!(code == Some(1) && stderr.contains("topic-missing"), "{code:?}: {stderr}");
    for _ in 0..2 {
        let (code, stdout, stderr) = run(command(&place).args(["topics", "create", "--json"]));
        assert_eq!(code, Some(0), "creating the topics twice succeeds: {stderr}");
        let found: Value = serde_json::from_str(&stdout).expect("the output is JSON");
        let topics =
            ["events", "recalls", "replies", "decisions", "memories", "erasures", "dead-letters"];
        let partitions = |name: &str| &found["topics"][format!("{}{name}", place.prefix)];
        assert!(topics.iter().all(|name| *partitions(name) == json!(3)), "{stdout}");
        assert_eq!(*partitions("tenants"), json!(1), "{stdout}");
    }
    let (code, stdout, stderr) = run(command(&place).args(["topics", "check"]));
    assert!(code == Some(0) && stdout.contains("3 partitions"), "{code:?}: {stdout}{stderr}");
    // Topics that are there already, and otherwise than now asked for.
    for (option, value, named) in [
        ("topics.replication", "3", "has replicas = 1, and 3 is asked for"),
        ("topics.partitions", "7", "has partitions = 3, and 7 is asked for"),
        ("topics.tombstones_ms", "1209600000", "--add-config delete.retention.ms=1209600000"),
    ] {
        let other = place.with(option, value);
        let (code, stdout, stderr) = run(command(&other).args(["topics", "create"]));
        assert!(code == Some(1) && stderr.contains(named), "{code:?}: {stdout}{stderr}");
    }
}

#[test]
fn a_second_service_on_the_same_store_is_refused() {
    let place = Place::new(Broker::Embedded, &[]);
    let mut first = Child::start(&place);
    first.wait_until_ready();
    let (code, _, stderr) = run(command(&place).arg("serve"));
    assert!(code == Some(1) && stderr.contains("store-locked"), "{code:?}: {stderr}");
    assert!(first.ended().is_none(), "the first service keeps running");
    assert_eq!(reply_of(&place, &["stats", "--user", "ada"])["status"], "ok");
}

#[test]
fn a_clean_stop_of_service_gateway_and_log_warns_of_nothing() {
    let place = Place::new(Broker::Embedded, &[]);
    let mut child = Child::start(&place);
    child.wait_until_ready();
    child.signal("-TERM");
    child.must_succeed();
    let log = child.log();
    let (_, stop) = log.split_once("stopping: draining").expect("it says so");
    assert!(stop.contains("stopped") && !stop.contains("WARN"), "{stop}");
}

#[test]
fn an_unreachable_broker_or_model_stops_the_start_by_name() {
    let (code, _, stderr) = run_bare(&[
        "serve",
        "--brokers",
        "127.0.0.1:9",
        "--set",
        "kafka.connect_ms=300",
        "--set",
        "embedder.model=hash",
    ]);
    assert!(
        code == Some(1) && stderr.contains("broker-unreachable") && stderr.contains("127.0.0.1:9"),
        "{code:?}: {stderr}"
    );
    let (code, _, stderr) = run_bare(&["serve", "--set", "embedder.model=nowhere"]);
    assert!(
        code == Some(1) && stderr.contains("model-unusable") && stderr.contains("nowhere"),
        "{code:?}: {stderr}"
    );
}

#[test]
fn the_demo_runs_to_its_end() {
    let (code, stdout, stderr) = run_bare(&[
        "demo",
        "--exit",
        "--set",
        "embedder.model=hash",
        "--set",
        "http.listen=127.0.0.1:0",
    ]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    for word in [
        "kept",
        "dropped",
        "merged",
        "superseded",
        "forgotten",
        "pruned",
        "summarised",
        "/metrics",
        "/mcp/ada/",
        "/ in a browser",
        "minus",
        "takes the place of \"I live in Berlin, not far from the Spree.\"",
        "keepsake serve ",
    ] {
        assert!(stdout.contains(word), "the demo does not show {word:?}: {stdout}");
    }
}

#[test]
fn a_wrong_command_line_says_the_cure() {
    for (arguments, word) in [
        (&["recall", "--user", "ada", " "][..], "keepsake list"),
        (&["backup", "one", "two"], "--check"),
        (&["recall", "--user", "ada", "--where", "work", "Where?"], "project=atlas"),
        (&["remember", "--user", "ada", "--metadata", "=work", "Here."], "project=atlas"),
        (&["export"], "--user <USER>|--tenant <TENANT>|--all"),
    ] {
        let (code, _, stderr) = run_bare(arguments);
        assert!(code == Some(2) && stderr.contains(word), "{code:?} {stderr}");
    }
    let (_, _, stderr) = run_bare(&["backup", "check", "/no/such/backup"]);
    assert!(stderr.contains("/no/such/backup"), "{stderr}");
    let (_, stdout, _) = run_bare(&["gateway", "--help"]);
    assert!(stdout.contains("127.0.0.1:8765") && stdout.contains("gateway.keys"), "{stdout}");
    let (_, stdout, _) =
        run_bare(&["--set", "recall.limit=7", "config", "show", "--set", "log.level=warn"]);
    let shown = |name| stdout.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    assert!(shown("recall.limit").contains('7'), "{stdout}");
    assert!(shown("log.level").contains("warn"), "{stdout}");
}

#[test]
fn texts_name_the_runbook_of_the_package() {
    let dir = scratch::dir("package");
    let (program, runbook) = (dir.join("bin/keepsake"), dir.join("share/keepsake/RUNBOOK.md"));
    for file in [&program, &runbook] {
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("a disk");
    }
    std::fs::copy(env!("CARGO_BIN_EXE_keepsake"), &program).expect("a disk");
    std::fs::write(&runbook, "# Runbook").expect("a disk");
    let runbook = runbook.canonicalize().expect("it is there").display().to_string();
    let answers =
        |arguments: &[&str]| run(Command::new(&program).current_dir(&dir).args(arguments));
    let (_, stdout, _) = answers(&["dlq", "list", "--help"]);
    let stdout = stdout.split_whitespace().collect::<String>();
    assert!(stdout.contains(&runbook) && !stdout.contains("deploy/RUNBOOK.md"), "{stdout}");
    let mut mcp = Command::new(&program);
    mcp.current_dir(&dir).args(["mcp", "--user", "ada", "--set", "recall.limits=3"]);
    let mut mcp = Mcp::start(mcp.stderr(Stdio::null()));
    let (said, _, is_error) = mcp.tool("add_memory", json!({"text": "I sail."}));
    assert!(is_error && said.contains(&format!("[config-invalid, see {runbook}]")), "{said}");
}

//! No output has a secret: marked ones stand in every place that takes one, and all commands, logs
//! and pages are searched for the mark.

use crate::support::program::{bare_command, command, run};
use crate::support::secure_kafka::{MARK, SecureKafka, password};
use crate::support::service::Place;
use crate::support::{Child, eventually, on_kafka, scratch};

on_kafka! {
    no_command_log_or_page_shows_a_secret
}

/// Options that are secrets themselves, beside the password of the brokers.
fn secrets() -> Vec<(String, String)> {
    let secret = |end: &str| format!("{MARK}-{end}-0123456789-0123456789-0123456789");
    vec![
        ("topics.marks_key".into(), secret("marks")),
        ("auth.tenants.acme.secret".into(), secret("tenant")),
        ("kafka.librdkafka.ssl.key.password".into(), secret("key")),
        ("kafka.librdkafka.ssl.keystore.password".into(), secret("store")),
    ]
}

/// A place with every secret. The log-in is right if `user` is a user of the broker.
fn place(user: &str) -> Place {
    let kafka = SecureKafka::shared();
    let ca = kafka.authority.ca();
    let password = password("keepsake");
    let mut place = kafka.place(
        "SASL",
        &[
            ("security.protocol", "SASL_SSL"),
            ("ssl.ca.location", &ca),
            ("sasl.mechanism", "PLAIN"),
            ("sasl.username", user),
            ("sasl.password", &password),
        ],
        &[],
    );
    place.options.extend(secrets());
    let language_key = kafka.secret_file(&format!("{MARK}-llm"));
    let registry_login = kafka.secret_file(&format!("{MARK}:registry"));
    let headers = kafka.secret_file(&format!("api-key={MARK}-tracing"));
    place
        .with("llm.key", &format!("file:{language_key}"))
        .with("schemas.registry", "http://127.0.0.1:9")
        .with("schemas.login", &format!("file:{registry_login}"))
        .with("tracing.headers", &format!("file:{headers}"))
        .with("tracing.endpoint", "http://127.0.0.1:9/v1/traces")
        .with("tracing.ratio", "1")
}

/// Fails if the text has a secret.
fn check(source: &str, text: &str) {
    let found = text.lines().find(|line| line.contains(MARK));
    assert!(found.is_none(), "{source} shows a secret: {found:?}");
}

/// Runs a command and returns whether it succeeded.
fn searched(place: &Place, arguments: &[&str]) -> bool {
    // Everything that the program and the Kafka client have to say.
    let mut command = command(&place.with("kafka.librdkafka.debug", "all"));
    let (code, stdout, stderr) = run(command.args(arguments).env("KEEPSAKE_LOG", "trace"));
    check(&format!("{arguments:?}"), &stdout);
    check(&format!("{arguments:?}, on standard error,"), &stderr);
    code == Some(0)
}

fn no_command_log_or_page_shows_a_secret() {
    let good = place("keepsake");
    let debug = good.with("kafka.librdkafka.debug", "security,broker,conf");
    let mut child = Child::start(&debug.with("log.level", "trace"));
    child.wait_until_ready();
    for arguments in [
        &["remember", "--user", "ada", "I live in Lisbon"][..],
        &["recall", "--user", "ada", "Where do I live?", "--explain"],
        &["list", "--user", "ada"],
        &["stats", "--user", "ada"],
        &["publish", "--user", "acme/ada", "I moved to Porto"],
        &["export", "--user", "ada"],
        &["dlq", "list"],
        &["compact"],
        &["topics", "check"],
        &["topics", "acls"],
        &["verify", "--online"],
        &["config", "check"],
        &["config", "show"],
        &["config", "show", "--json"],
    ] {
        // A command sends without retries, so on a busy machine one may fail.
        eventually(&format!("{arguments:?} succeeds"), || searched(&good, arguments).then_some(()));
    }
    for page in ["/livez", "/readyz", "/metrics"] {
        check(page, &child.get(page));
    }
    child.signal("-TERM");
    assert!(child.wait().success(), "{}", child.log());
    check("the log of the service", &child.log());
    // A log-in that fails.
    let wrong = place("stranger");
    for arguments in [&["serve"][..], &["topics", "check"], &["recall", "--user", "ada", "What?"]] {
        assert!(!searched(&wrong, arguments), "{arguments:?} logs in");
    }
    mistakes();
}

/// Mistakes in the places of secrets: a message names the option or the line, not the value.
fn mistakes() {
    let dir = scratch::dir("mistakes");
    let file = |text: &str| {
        let path = dir.join("mine.toml");
        std::fs::write(&path, text).expect("the directory is ours");
        path.display().to_string()
    };
    let fails = |arguments: &[&str], environment: Option<(&str, &str)>, named: &str| {
        let mut command = bare_command(&dir);
        command.args(arguments).envs(environment);
        let (code, stdout, stderr) = run(&mut command);
        assert!(code != Some(0) && stderr.contains(named), "{arguments:?}: {stdout}{stderr}");
        check(&format!("{arguments:?}"), &(stdout + &stderr));
    };
    let no_quotes = file(&format!("[kafka.librdkafka]\n\"sasl.password\" = {MARK}\n"));
    fails(&["config", "check", "--config", &no_quotes], None, "line 2");
    let no_text = file(&format!("[topics]\nmarks_key = [\"{MARK}\"]\n"));
    fails(&["config", "check", "--config", &no_text], None, "topics.marks_key");
    let short = ("KEEPSAKE__TOPICS__MARKS_KEY", MARK);
    fails(&["config", "check"], Some(short), "topics.marks_key");
    let misspelt = format!("kafka.librdkafka.sasl.passwort={MARK}");
    let brokers = ["--brokers", "127.0.0.1:1"];
    let topics = [&["topics", "check", "--set", misspelt.as_str()][..], &brokers].concat();
    fails(&topics, None, "sasl.passwort");
    let gone = ["config", "check", "--set", "kafka.librdkafka_files.sasl.password=/not/there"];
    fails(&gone, None, "/not/there");
}

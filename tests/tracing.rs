//! Tracing: every step of an event and of a request has its span, linked to the sender's across
//! Kafka; a collector that is slow, busy or away changes nothing; and no span has a text.

use crate::support::client::Message;
use crate::support::collector::{Answers, Collector, Context, Span};
use crate::support::program::{command, run};
use crate::support::service::Place;
use crate::support::{Broker, Client, Running, on_both_brokers, scratch};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::time::{Duration, Instant};

on_both_brokers! {
    every_step_has_its_span_and_kafka_links_them
    a_record_on_the_wrong_partition_is_linked_from_hop_to_hop
    the_sender_decides_and_the_ratio_otherwise
}

const SENDER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const UNSAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
const CONSUMER: u64 = 5;
const PRODUCER: u64 = 4;
const INTERNAL: u64 = 1;

/// A service that sends its spans to `collector`, but only when a batch is full or at the stop.
fn traced(broker: Broker, collector: &Collector, ratio: &str, options: &[(&str, &str)]) -> Running {
    let mut place = Place::new(broker, options);
    place.options.extend(collector.options(ratio));
    Running::at(place)
}

/// Sends a message with this header and waits for the reply.
fn exchange(client: &Client, message: Message, traceparent: &str) -> Message {
    let carried = if traceparent.is_empty() {
        message
    } else {
        message.with("traceparent", traceparent).with("tracestate", "vendor=1")
    };
    client.exchange(carried)
}

fn named<'s>(spans: &'s [Span], name: &str) -> Vec<&'s Span> {
    spans.iter().filter(|span| span.name == name).collect()
}

/// The only span with this name.
fn one<'s>(spans: &'s [Span], name: &str) -> &'s Span {
    let found = named(spans, name);
    assert_eq!(found.len(), 1, "{name}: {spans:#?}");
    found[0]
}

/// Fails unless the span has one link, to this one.
fn assert_linked(span: &Span, to: &Context) {
    assert_eq!(span.links, std::slice::from_ref(to), "{}", span.name);
}

fn children<'s>(spans: &'s [Span], of: &Span) -> Vec<&'s Span> {
    spans
        .iter()
        .filter(|span| span.context.trace == of.context.trace)
        .filter(|span| span.parent.as_ref() == Some(&of.context.span))
        .collect()
}

fn names(spans: &[&Span]) -> BTreeSet<String> {
    spans.iter().map(|span| span.name.clone()).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn every_step_has_its_span_and_kafka_links_them(broker: Broker) {
    let collector = Collector::start(Answers::Takes);
    let running = traced(broker, &collector, "0", &[]);
    let client = running.client();
    let zoe = client.user("acme", "zoe-quartz");
    let turn = json!({"type": "turn", "content": "My sister Wilhelmina lives in Ouagadougou."});
    let receipt = exchange(&client, zoe.message("events", turn), SENDER);
    let question = json!({"type": "recall", "query": "Where does Wilhelmina live?"});
    let reply = exchange(&client, zoe.message("recalls", question), SENDER);
    assert_eq!(reply.json()["type"], "recalled");
    let unknown = exchange(&client, zoe.message("recalls", json!({"type": "nonsense"})), SENDER);
    assert_eq!(unknown.json()["type"], "error");
    let decisions = client.read("decisions");
    running.stop();

    let sender = Context::of(SENDER);
    let spans = collector.spans();
    assert!(collector.requests() < spans.len(), "spans wait for others");
    let batch = one(&spans, "batch");
    assert_eq!((batch.kind, &batch.parent), (CONSUMER, &None));
    assert_linked(batch, &sender);
    assert_eq!(batch.get("messaging.batch.message_count"), "1");
    let steps = children(&spans, batch);
    assert_eq!(names(&steps), set(&["apply", "commit", "decide", "store"]));

    let apply = one(&spans, "apply");
    let receipt_value = receipt.json();
    assert_eq!(apply.kind, CONSUMER);
    assert_linked(apply, &sender);
    for (attribute, expected) in [
        ("messaging.system", "kafka".to_owned()),
        ("messaging.destination.name", client.topic("events")),
        ("messaging.destination.partition.id", receipt_value["partition"].to_string()),
        ("messaging.kafka.offset", receipt_value["offset"].to_string()),
        ("keepsake.tenant", "acme".to_owned()),
        ("keepsake.event.type", "turn".to_owned()),
        ("keepsake.outcome", "kept".to_owned()),
        ("keepsake.decisions", "1".to_owned()),
        ("keepsake.memories", "1".to_owned()),
    ] {
        assert_eq!(apply.get(attribute), expected, "{attribute}");
    }
    let store = one(&spans, "store");
    assert!(apply.ended_ns == store.ended_ns, "an event lasts until recalls see it");
    let told = children(&spans, apply);
    assert_eq!((names(&told), told[0].kind), (set(&["reply"]), PRODUCER));
    assert_eq!(Context::of(receipt.text("traceparent")), apply.context);
    assert_eq!(receipt.header("tracestate"), None, "it belongs to the sender's trace");
    let decided = decisions.iter().find(|record| record.header("traceparent").is_some());
    let decided = decided.expect("the decision carries the trace").text("traceparent");
    assert_eq!(Context::of(decided), apply.context);

    let requests = named(&spans, "request");
    let (read, refused): (Vec<&Span>, Vec<&Span>) =
        requests.iter().partition(|request| !request.is_error);
    let (read, refused) = (read[0], refused[0]);
    assert_eq!((read.kind, &read.parent), (CONSUMER, &None));
    assert_linked(read, &sender);
    assert_eq!(Context::of(reply.text("traceparent")), read.context);
    for (attribute, expected) in [
        ("messaging.destination.name", client.topic("recalls").as_str()),
        ("keepsake.tenant", "acme"),
        ("keepsake.request.type", "recall"),
        ("keepsake.status", "ok"),
        ("keepsake.match", reply.json()["match"].as_str().expect("a word")),
        ("keepsake.memories", "1"),
        ("keepsake.stale", "false"),
    ] {
        assert_eq!(read.get(attribute), expected, "{attribute}");
    }
    let stages = children(&spans, read);
    assert_eq!(names(&stages), set(&["encode", "rank", "render", "reply", "retrieve"]));
    for stage in stages {
        let is_within = stage.began_ns >= read.began_ns && stage.ended_ns <= read.ended_ns;
        assert!(is_within, "{stage:?} in {read:?}");
        let (kind, candidates) = match stage.name.as_str() {
            "reply" => (PRODUCER, ""),
            "retrieve" => (INTERNAL, "1"),
            _ => (INTERNAL, ""),
        };
        assert_eq!((stage.kind, stage.get("keepsake.candidates")), (kind, candidates));
    }
    assert_eq!(refused.get("error.type"), "unknown-type");
    assert_eq!(refused.get("keepsake.status"), "invalid");
    assert_eq!(Context::of(unknown.text("traceparent")), refused.context);

    // Senders, batches and requests have a trace each.
    let traces: BTreeSet<&str> = spans.iter().map(|span| span.context.trace.as_str()).collect();
    assert!(traces.len() == 3 && !traces.contains(sender.trace.as_str()), "{traces:?}");
    assert!(spans.iter().all(|span| span.service == "keepsake"));
    let sent = collector.bodies().join("\n").to_lowercase();
    for text in ["quartz", "wilhelmina", "ouagadougou", "sister", "nonsense"] {
        assert!(!sent.contains(text), "spans contain {text}: {sent}");
    }
}

fn a_record_on_the_wrong_partition_is_linked_from_hop_to_hop(broker: Broker) {
    let collector = Collector::start(Answers::Takes);
    let running = traced(broker, &collector, "0", &[("tracing.users", "true")]);
    let client = running.client();
    let zoe = client.user("acme", "zoe");
    let right = zoe.event(json!({"type": "remember", "content": "I am at home."}));
    let right = right["partition"].as_i64().expect("a number") as i32;
    let wrong = Some((right + 1) % 3);
    let turn = json!({"type": "remember", "content": "The door is red."});
    let event = Message { partition: wrong, ..zoe.message("events", turn) };
    let receipt = exchange(&client, event, SENDER);
    assert_eq!(receipt.json()["misrouted"], true);
    let question = json!({"type": "recall", "query": "Which colour has the door?"});
    let request = Message { partition: wrong, ..zoe.message("recalls", question) };
    let reply = exchange(&client, request, SENDER);
    assert_eq!(reply.json()["misrouted"], true);
    running.stop();

    let spans = collector.spans();
    let by_outcome: BTreeMap<&str, &Span> = named(&spans, "apply")
        .into_iter()
        .map(|span| (span.get("keepsake.outcome"), span))
        .collect();
    let (first, second) = (by_outcome["forwarded"], by_outcome["kept"]);
    assert_linked(first, &Context::of(SENDER));
    assert_linked(second, &first.context);
    assert_eq!(Context::of(receipt.text("traceparent")), second.context);
    assert_eq!(second.get("keepsake.user"), "zoe", "as tracing.users says");

    let by_status: BTreeMap<&str, &Span> = named(&spans, "request")
        .into_iter()
        .map(|span| (span.get("keepsake.status"), span))
        .collect();
    let (first, second) = (by_status["forwarded"], by_status["ok"]);
    assert_linked(first, &Context::of(SENDER));
    assert_linked(second, &first.context);
    assert_eq!(Context::of(reply.text("traceparent")), second.context);
}

/// Malformed headers, with which a record counts as one without.
const MALFORMED: [&str; 4] = [
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
    "00-00000000000000000000000000000000-b7ad6b7169203331-01",
    "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
    "My name is Wilhelmina",
];

fn the_sender_decides_and_the_ratio_otherwise(broker: Broker) {
    for (ratio, without_decision) in [("0", 0), ("1", 1 + MALFORMED.len())] {
        let collector = Collector::start(Answers::Takes);
        let running = traced(broker, &collector, ratio, &[]);
        let client = running.client();
        let zoe = client.user("acme", "zoe");
        let headers = ["", SENDER, UNSAMPLED].into_iter().chain(MALFORMED);
        for (n, header) in headers.clone().enumerate() {
            let event = json!({"type": "remember", "content": format!("Memory number {n}.")});
            let receipt = exchange(&client, zoe.message("events", event), header);
            assert_eq!(receipt.json()["status"], "ok", "{header}");
            let request = zoe.message("recalls", json!({"type": "list"}));
            let reply = exchange(&client, request, header);
            assert_eq!(reply.json()["status"], "ok", "{header}");
            let is_traced =
                header == SENDER || ratio == "1" && header != UNSAMPLED && !header.is_empty();
            for answer in [receipt, reply] {
                let carried = answer.header("traceparent").unwrap_or_default();
                let is_echo = carried == header.as_bytes();
                assert_eq!(is_echo, !is_traced, "{ratio} {header}: {answer:?}");
            }
        }
        running.stop();
        let spans = collector.spans();
        for name in ["apply", "request"] {
            let found = named(&spans, name);
            assert_eq!(found.len(), 1 + without_decision, "{ratio}: {name}: {found:#?}");
            let linked = found.iter().filter(|span| !span.links.is_empty()).count();
            assert_eq!(linked, 1, "{ratio}: only the sampled sender's record has a link");
        }
        assert!(!collector.bodies().join("\n").contains("Wilhelmina"));
    }
}

#[test]
fn tracing_is_off_by_default_and_then_every_header_is_passed_on() {
    let place = Place::new(Broker::Embedded, &[]);
    assert!(!place.config().tracing.is_on());
    let running = Running::at(place);
    let client = running.client();
    let zoe = client.user("acme", "zoe");
    let turn = json!({"type": "turn", "content": "I live in Lisbon."});
    let receipt = exchange(&client, zoe.message("events", turn), SENDER);
    assert_eq!(receipt.text("traceparent"), SENDER);
    assert_eq!(receipt.text("tracestate"), "vendor=1");
    let decisions = client.read("decisions");
    assert!(decisions.iter().all(|record| record.header("traceparent").is_none()));
    assert_eq!(spans_counted(&running), BTreeMap::new(), "{}", running.service.metrics.page());
    running.stop();
}

/// Counts of `keepsake_spans_total` above 0, by outcome.
fn spans_counted(running: &Running) -> BTreeMap<String, u64> {
    let page = running.service.metrics.page();
    let lines =
        page.lines().filter_map(|line| line.strip_prefix("keepsake_spans_total{outcome=\""));
    lines
        .map(|line| line.split_once("\"} ").expect("a count"))
        .map(|(outcome, count)| (outcome.to_owned(), count.parse().expect("a whole number")))
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// An address on which nobody listens.
fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    format!("http://{}/v1/traces", listener.local_addr().expect("it is bound"))
}

/// Events and requests that are exchanged while the collector fails.
const EXCHANGES: usize = 60;

#[test]
fn a_collector_that_fails_loses_spans_and_nothing_else() {
    let hangs = Collector::start(Answers::Hangs);
    let refuses = Collector::start(Answers::Refuses(400));
    let away = nobody();
    for (endpoint, outcome) in [
        (&hangs.endpoint, "queue_full"),
        (&hangs.endpoint, "unreachable"),
        (&refuses.endpoint, "refused"),
        (&away, "unreachable"),
    ] {
        let options = [
            ("tracing.endpoint", endpoint.as_str()),
            ("tracing.ratio", "1"),
            ("tracing.spans_max", "20"),
            ("limits.shutdown_ms", "5000"),
        ];
        let running = Running::start(Broker::Embedded, &options);
        let client = running.client();
        let zoe = client.user("acme", "zoe");
        let mut slowest = Duration::ZERO;
        for n in 0..EXCHANGES {
            let began = Instant::now();
            zoe.remember(&format!("I bought the book number {n} of a hundred."));
            zoe.recall("Which book did I buy?");
            slowest = slowest.max(began.elapsed());
        }
        assert!(slowest < Duration::from_secs(5), "{endpoint}: {slowest:?} for one exchange");
        let listed = zoe.ask(json!({"type": "list", "limit": EXCHANGES}));
        assert_eq!(
            listed["memories"].as_array().map(Vec::len),
            Some(EXCHANGES),
            "no event is lost"
        );
        crate::support::eventually("dropped spans are counted", || {
            spans_counted(&running).contains_key(outcome).then_some(())
        });
        assert!(!spans_counted(&running).contains_key("sent"));
        let began = Instant::now();
        running.stop();
        assert!(began.elapsed() < Duration::from_secs(9), "{endpoint}: {:?}", began.elapsed());
    }
}

#[test]
fn a_busy_collector_is_asked_again_and_rejected_spans_are_counted() {
    let key = scratch::dir("tracing").join("headers");
    std::fs::write(&key, "api-key=secret%20of%20the%20test").expect("writes a file");
    let key = format!("file:{}", key.display());
    for (answers, outcome) in [(Answers::Busy(2), "sent"), (Answers::Rejects(1), "refused")] {
        let collector = Collector::start(answers);
        let options = [("tracing.headers", key.as_str())];
        let running = traced(Broker::Embedded, &collector, "1", &options);
        running.client().user("acme", "zoe").remember("The door is red.");
        let apply = collector.find("the span of the event", |span| span.name == "apply");
        assert_eq!(apply.links, []);
        crate::support::eventually("the spans are counted", || {
            spans_counted(&running).contains_key(outcome).then_some(())
        });
        running.stop();
        assert!(collector.keys().iter().all(|key| key == "secret of the test"));
        assert!(collector.requests() > 0);
    }
}

#[test]
fn options_are_checked_and_a_wrong_one_is_named() {
    let missing = "file:/nowhere/headers".to_owned();
    for (option, value, named) in [
        ("tracing.ratio", "1.5", "tracing.ratio"),
        ("tracing.ratio", "NaN", "tracing.ratio"),
        ("tracing.endpoint", "localhost:4318", "tracing.endpoint"),
        ("tracing.endpoint", "http://me:secret@host/v1/traces", "tracing.headers"),
        ("tracing.headers", missing.as_str(), "tracing.headers"),
        ("tracing.headers", "env:NOT_SET_ANYWHERE", "tracing.headers: env:NOT_SET_ANYWHERE"),
        ("tracing.spans_max", "0", "tracing.spans_max"),
    ] {
        let setting = format!("{option}={value}");
        let (code, _, stderr) =
            crate::support::program::run_bare(&["config", "check", "--set", &setting]);
        assert_eq!(code, Some(2), "{setting}: {stderr}");
        assert!(stderr.contains(named) && !stderr.contains("secret"), "{setting}: {stderr}");
    }
}

/// The events topic's last header `traceparent`.
fn carried(client: &Client, topic: &str) -> Option<String> {
    let records = client.read_raw(topic);
    let header = records.last().expect("a record").header("traceparent").map(<[u8]>::to_vec);
    header.map(|header| String::from_utf8(header).expect("ASCII"))
}

#[test]
fn a_command_sends_its_trace() {
    let collector = Collector::start(Answers::Takes);
    let service = Collector::start(Answers::Takes);
    let running = traced(Broker::Embedded, &service, "0", &[("topics.partitions", "1")]);
    let client = running.client();
    let place =
        Place { options: vec![("topics.partitions".into(), "1".into())], ..running.place.clone() };
    let text = "I live in Lisbon.";

    // With tracing off, a command passes its caller's context on.
    let (code, ..) = run(command(&place).args(["publish", "--user", "zoe", text]));
    assert_eq!((code, carried(&client, "events")), (Some(0), None));
    let (code, _, stderr) =
        run(command(&place).args(["publish", "--user", "zoe", "--traceparent", UNSAMPLED, text]));
    assert_eq!(
        (code, carried(&client, "events").as_deref()),
        (Some(0), Some(UNSAMPLED)),
        "{stderr}"
    );
    for wrong in MALFORMED {
        let (code, _, stderr) =
            run(command(&place).args(["publish", "--user", "zoe", "--traceparent", wrong, text]));
        assert!(code == Some(2) && stderr.contains("--traceparent"), "{wrong}: {stderr}");
    }

    let mut traced = place.clone();
    traced.options.extend(collector.options("1"));
    for (arguments, topic, name) in [
        (["publish", "--user", "zoe", "I moved to Porto."], "events", "publish"),
        (["recall", "--user", "zoe", "Where do I live?"], "recalls", "ask"),
    ] {
        let (code, _, stderr) =
            run(command(&traced).args(arguments).args(["--traceparent", SENDER]));
        assert_eq!(code, Some(0), "{stderr}");
        let spans = collector.spans();
        let span = one(&spans, name);
        assert_eq!(span.parent.as_deref(), Some(Context::of(SENDER).span.as_str()));
        assert_eq!(span.context.trace, Context::of(SENDER).trace, "a child of its caller");
        assert_eq!(span.kind, PRODUCER);
        let header = carried(&client, topic).expect("the message carries the span");
        assert_eq!(Context::of(&header), span.context);
        assert_eq!(span.links.len(), 1, "to the span of the service");
    }
    traced.options.extend(collector.options("0"));
    run(command(&traced).args(["publish", "--user", "zoe", "I like tea."]));
    let header = carried(&client, "events").expect("a decision not to trace is sent");
    assert!(header.ends_with("-00"), "{header}");
    running.stop();
    let (commands, spans) = (collector.spans(), service.spans());
    let apply = one(&spans, "apply");
    assert_linked(apply, &one(&commands, "publish").context);
    assert_linked(one(&commands, "publish"), &apply.context);
    assert_linked(one(&commands, "ask"), &one(&spans, "request").context);
    let all: Vec<Value> =
        collector.bodies().iter().map(|body| serde_json::from_str(body).expect("JSON")).collect();
    assert!(!json!(all).to_string().contains("zoe"));
}

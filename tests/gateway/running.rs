//! How a gateway runs: beside the service, several at once, and its end while calls wait.

use super::{Gateway, call};
use crate::support::program::command;
use crate::support::service::Place;
use crate::support::{Broker, Child, eventually, on_both_brokers};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

on_both_brokers! {
    a_service_runs_its_own_gateway
    two_gateways_answer_for_one_user
    calls_that_wait_are_answered_before_a_gateway_ends
    a_gateway_without_replies_opens_the_topic_again
}

const REMEMBER: &str = "/v1/keepsake/remember";
const RECALL: &str = "/v1/keepsake/recall";

fn said(content: &str) -> Value {
    json!({"user": "ada", "content": content})
}

fn asked(query: &str) -> Value {
    json!({"user": "ada", "query": query})
}

fn found(address: &str, query: &str) -> Value {
    let (status, answer) = call(address, "POST", RECALL, asked(query));
    assert_eq!(status, 200, "{answer}");
    answer["memories"][0]["content"].clone()
}

fn a_service_runs_its_own_gateway(broker: Broker) {
    let place = Place::new(broker, &[]);
    let mut serve = command(&place);
    serve.args(["--set", "gateway.listen=127.0.0.1:0", "serve"]);
    // The embedded log is for one machine, which has one gateway: it is there unasked.
    serve.args((broker == Broker::Kafka).then_some("--gateway"));
    let mut child = Child::run(serve, &place);
    child.wait_until_ready();
    // The service may be ready a moment before its gateway.
    let address = eventually("the gateway serves", || {
        let log = child.log();
        let (_, rest) = log.split_once("the gateway serves http=")?;
        rest.split_whitespace().next().map(str::to_owned)
    });
    let (status, answer) = call(&address, "POST", REMEMBER, said("My cat is called Tilda."));
    assert_eq!(status, 200, "{answer}");
    assert_eq!(found(&address, "What is my cat called?"), "My cat is called Tilda.");
    child.signal("-TERM");
    assert!(child.wait().success(), "{}", child.log());
}

/// The broker is killed with the service that runs it, and comes back where it was.
#[test]
fn a_call_is_answered_while_the_broker_is_away_and_the_next_ones_when_it_is_back() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    let listen = free.local_addr().expect("it is bound").to_string();
    drop(free);
    let place = Place::new(Broker::Embedded, &[("embedded.listen", &listen)]);
    let mut service = Child::start(&place);
    service.wait_until_ready();
    let reply_within = Duration::from_secs(6);
    let gateway = Gateway::start(&place, &[("gateway.reply_ms", "6000")]);
    let say = |n: usize| {
        let keyed = [("idempotency-key", format!("call-{n}"))];
        let keyed = keyed.each_ref().map(|(name, value)| (*name, value.as_str()));
        let body = said(&format!("The word of round {n} is w{n}x."));
        gateway.call_with("POST", REMEMBER, &keyed, body)
    };
    assert_eq!(say(0).0, 200);
    service.kill();
    for n in [1, 2] {
        let began = Instant::now();
        let (status, answer) = say(n);
        assert_eq!((status, &answer["error"]["code"]), (503, &json!("not_written")), "{answer}");
        let text = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(text.contains("send it again with the same id"), "{text}");
        assert!(began.elapsed() < reply_within, "{:?}", began.elapsed());
    }
    assert_eq!(gateway.call("GET", "/livez", Value::Null).0, 200);
    let mut service = Child::start(&place);
    service.wait_until_ready();
    for n in 0..4 {
        let (_, receipt) =
            eventually("the call is answered", || Some(say(n)).filter(|it| it.0 == 200));
        assert!(receipt["decisions"][0]["outcome"].is_string(), "{receipt}");
        assert_eq!(
            found(&gateway.address, &format!("What is w{n}x?")),
            format!("The word of round {n} is w{n}x.")
        );
    }
    let (_, listed) = gateway.call("POST", "/v1/keepsake/list", json!({"user": "ada"}));
    assert_eq!(listed["total"], 4, "{listed}");
}

fn two_gateways_answer_for_one_user(broker: Broker) {
    let place = Place::lasting(broker, &[]);
    let mut service = Child::start(&place);
    service.wait_until_ready();
    let [first, second] = [(); 2].map(|()| Gateway::start(&place, &[]));
    for n in 0..20 {
        let content = format!("The word of round {n} is w{n}x.");
        let (status, answer) = first.call("POST", REMEMBER, said(&content));
        assert_eq!(status, 200, "{answer}");
        assert_eq!(found(&second.address, &format!("What is w{n}x?")), content);
    }
}

/// The service is stopped meanwhile, so that the call waits for certain.
fn calls_that_wait_are_answered_before_a_gateway_ends(broker: Broker) {
    // The call must not end before the service goes on.
    let session = ("kafka.librdkafka.session.timeout.ms", "60000");
    let place = Place::lasting(broker, &[session, ("recall.deadline_ms", "60000")]);
    let mut service = Child::start(&place);
    service.wait_until_ready();
    let mut gateway = Gateway::start(&place, &[("gateway.reply_ms", "60000")]);
    assert_eq!(gateway.call("POST", REMEMBER, said("I live in Porto.")).0, 200);
    let client = place.client();
    let before = client.read("recalls").len();
    service.signal("-STOP");
    let address = gateway.address.clone();
    let waiting = {
        let address = address.clone();
        std::thread::spawn(move || call(&address, "POST", RECALL, asked("Where?")))
    };
    eventually("the call is sent", || (client.read("recalls").len() > before).then_some(()));
    let ended = std::process::Command::new("kill").arg(gateway.process.id().to_string()).status();
    assert!(ended.expect("`kill` is installed").success());
    eventually("the gateway takes no further connection", || {
        std::net::TcpStream::connect(&address).is_err().then_some(())
    });
    assert!(!waiting.is_finished(), "the call is not given up");
    service.signal("-CONT");
    let (status, answer) = waiting.join().expect("an answer");
    assert_eq!((status, &answer["status"]), (200, &json!("ok")), "{answer}");
    assert!(gateway.process.wait().expect("it was started").success());
}

/// No reply comes while the service is stopped by a signal.
fn a_gateway_without_replies_opens_the_topic_again(broker: Broker) {
    let place = Place::lasting(broker, &[]);
    let mut service = Child::start(&place);
    service.wait_until_ready();
    let gateway = Gateway::start(&place, &[("gateway.reply_ms", "3000")]);
    let ask = || gateway.call("POST", RECALL, asked("Where do I live?"));
    let answered = |(status, _): &(u16, Value)| *status == 200;
    eventually("the turn is taken", || {
        Some(gateway.call("POST", REMEMBER, said("I live in Porto."))).filter(answered)
    });
    service.signal("-STOP");
    std::thread::scope(|scope| {
        let calls = [(); 8].map(|()| scope.spawn(ask));
        for call in calls {
            let (status, answer) = call.join().expect("an answer");
            assert_eq!((status, &answer["error"]["code"]), (504, &json!("no_reply")), "{answer}");
        }
    });
    eventually("the reader of replies is opened again", || {
        let log = std::fs::read_to_string(&gateway.log).unwrap_or_default();
        log.contains("opens the replies topic again").then_some(())
    });
    service.signal("-CONT");
    let found = eventually("an answer", || Some(ask()).filter(answered));
    assert_eq!(found.1["memories"][0]["content"], "I live in Porto.", "{found:?}");
}

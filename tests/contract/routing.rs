//! Routing: records on a wrong partition or without a key, and replies with Spring's headers.

use crate::support::client::{contents, outcome};
use crate::support::{Broker, Message, Running, on_both_brokers};
use serde_json::json;

on_both_brokers! {
    an_event_on_a_wrong_partition_is_forwarded
    a_request_on_a_wrong_partition_is_answered
    springs_headers_are_echoed_byte_for_byte
}

fn an_event_on_a_wrong_partition_is_forwarded(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("misrouted", "ada");
    let right = ada.event(json!({"type": "remember", "content": "The first came straight."}));
    let home = right["partition"].as_i64().expect("a receipt names the partition") as i32;
    assert!(right["misrouted"].is_null(), "{right}");
    let count = client.partitions("events");
    for (n, key) in [Some("misrouted/ada"), None, Some("somebody/else")].into_iter().enumerate() {
        let wrong = (home + 1 + n as i32 % (count - 1)) % count;
        let event = json!({"type": "remember", "id": format!("wrong-{n}"),
            "content": format!("Detour number {n}."), "extra": {"kept": n}});
        let message = Message {
            key: key.map(|key| key.as_bytes().to_vec()),
            partition: Some(wrong),
            ..ada.message("events", event)
        };
        let reply = client.exchange(message.clone()).json();
        assert_eq!(outcome(&reply), "kept", "{reply}");
        assert_eq!(
            (&reply["misrouted"], reply["partition"].as_i64()),
            (&json!(true), Some(i64::from(home))),
            "{reply}"
        );
        assert_eq!(
            reply["decisions"][0]["event"]["partition"], wrong,
            "the decision names the partition that the sender used: {reply}"
        );
        assert_eq!(outcome(&client.exchange(message).json()), "duplicate");
        let copy = client.find("events", "the forwarded record", |record| {
            record.partition == Some(home) && record.json()["id"] == format!("wrong-{n}")
        });
        assert_eq!(copy.json()["extra"], json!({"kept": n}), "unknown fields are forwarded");
        assert_eq!(copy.key.as_deref(), key.map(str::as_bytes), "the key is forwarded");
    }
    // Without a key and a partition the producer chooses any partition.
    let reply = client
        .exchange(Message {
            key: None,
            ..ada.message("events", json!({"type": "remember", "content": "No key at all."}))
        })
        .json();
    assert_eq!(outcome(&reply), "kept", "{reply}");
    assert_eq!(ada.list().len(), 5);
    let mut order: Vec<String> = Vec::new();
    let wrong = (home + 1) % count;
    for n in 0..20 {
        let content = format!("Step {n} of the detour.");
        let message = ada.message("events", json!({"type": "remember", "content": content}));
        drop(client.post(&Message { partition: Some(wrong), ..message }));
        order.push(content);
    }
    client.flush();
    client.find("decisions", "the last step", |record| {
        record.json()["candidate"].as_str() == order.last().map(String::as_str)
    });
    let found: Vec<String> = ada
        .decisions()
        .iter()
        .filter_map(|one| one["candidate"].as_str().map(str::to_owned))
        .filter(|text| text.starts_with("Step"))
        .collect();
    assert_eq!(found, order, "the order of the source partition is kept");
}

fn a_request_on_a_wrong_partition_is_answered(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("misasked", "ada");
    let home = ada.event(json!({"type": "remember", "content": "The answer is blue."}))["partition"]
        .as_i64()
        .expect("a receipt names the partition") as i32;
    let request = ada.message("recalls", json!({"type": "recall", "query": "the answer"}));
    let count = client.partitions("recalls");
    for (key, partition) in [
        (Some("misasked/ada"), (home + 1) % count),
        (None, (home + 2) % count),
        (None, (home + 1) % count),
    ] {
        let message = Message {
            key: key.map(|key| key.as_bytes().to_vec()),
            partition: Some(partition),
            ..request.clone()
        };
        let reply = client.exchange(message).json();
        assert_eq!(
            (contents(&reply), &reply["misrouted"]),
            (vec!["The answer is blue."], &json!(true)),
            "{reply}"
        );
    }
    assert!(client.exchange(request).json()["misrouted"].is_null());
}

fn springs_headers_are_echoed_byte_for_byte(broker: Broker) {
    let client = Running::shared(broker).client();
    let ada = client.user("spring", "ada");
    let id: [u8; 16] = [0, 255, 1, 254, 2, 253, 3, 252, 0, 0, 0, 0, 13, 10, 34, 92];
    for (topic, body, kind) in [
        ("recalls", json!({"type": "stats"}), "stats"),
        ("events", json!({"type": "remember", "content": "x"}), "applied"),
        ("recalls", json!({"type": "nonsense"}), "error"),
    ] {
        for partition in 0..client.partitions("replies") {
            let id: Vec<u8> = id.iter().map(|byte| byte ^ partition as u8).collect();
            let message = ada
                .message(topic, body.clone())
                .with("kafka_replyTopic", client.topic("replies"))
                .with("kafka_replyPartition", partition.to_be_bytes())
                .with("kafka_correlationId", &id)
                .with("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
                .with("tracestate", "vendor=1");
            client.send(&message);
            let reply = client.reply("kafka_correlationId", &id);
            assert_eq!(
                (reply.json()["type"].as_str(), reply.partition),
                (Some(kind), Some(partition)),
                "{reply:?}"
            );
            assert_eq!(
                reply.key.as_deref(),
                Some(ada.key().as_bytes()),
                "the reply has the key of the request"
            );
            assert_eq!(reply.header("traceparent"), message.header("traceparent"));
            assert_eq!(reply.header("tracestate"), message.header("tracestate"));
            assert_eq!(
                reply.text("keepsake-status"),
                reply.json()["status"].as_str().unwrap_or_default()
            );
            assert_eq!(
                reply.text("keepsake-took-us").parse::<u64>().ok(),
                reply.json()["took_us"].as_u64()
            );
            assert_eq!(
                reply.text("keepsake-applied-offset").parse::<i64>().ok(),
                reply.json()["applied_offset"].as_i64()
            );
        }
    }
    // A request with the other header names is answered with those.
    let plain = ada
        .message("recalls", json!({"type": "stats"}))
        .with("reply-topic", client.topic("replies"))
        .with("correlation-id", "seven");
    client.send(&plain);
    let reply = client.reply("correlation-id", b"seven");
    assert!(reply.header("kafka_correlationId").is_none(), "{reply:?}");
}

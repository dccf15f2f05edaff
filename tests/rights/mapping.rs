//! The rights of `keepsake map`, on a Kafka with its authorizer: they suffice, and each one less does
//! not.

use super::{alone, denies, printed_rights, within};
use crate::support::acls::Acls;
use crate::support::admin::Admin;
use crate::support::program::{command, run};
use crate::support::secure_kafka::SecureKafka;
use crate::support::{Client, Message, eventually, on_kafka};

on_kafka! {
    rights_of_those_who_map
}

fn rights_of_those_who_map() {
    let _alone = alone();
    let kafka = SecureKafka::shared();
    let mapper = kafka.as_role("mapper");
    let chat = format!("{}chat", mapper.prefix);
    let group = format!("{}chat-map", mapper.prefix);
    let own = [("topic", chat.as_str()), ("group", &group), ("user", "user"), ("content", "text")];
    let mapper = own
        .iter()
        .fold(mapper, |place, (option, value)| place.with(&format!("map.{option}"), value));
    let admin = mapper.with("kafka.bootstrap_servers", &kafka.plaintext);
    let admin = admin.with("kafka.librdkafka.security.protocol", "plaintext");
    let (code, _, stderr) = run(command(&admin).args(["topics", "create"]));
    assert_eq!(code, Some(0), "{stderr}");
    Admin::of(&kafka.plaintext).create_topic(&chat, 1);
    let client = Client::connect(&kafka.plaintext, &mapper.prefix);
    // One record becomes a turn, the other one a dead letter.
    let map = || {
        for value in [r#"{"user": "ada", "text": "I live in Lisbon."}"#, "{}"] {
            let value = Some(value.as_bytes().to_vec());
            client.send(&Message { topic: chat.clone(), value, ..Message::default() });
        }
        let (code, stdout, stderr) = run(command(&mapper).args(["map", "--once"]));
        (code == Some(0), stdout + &stderr)
    };
    let rights = printed_rights(&mapper, &["mapper"]);
    assert_eq!(rights.len(), 5, "{rights:?}");
    let mut acls = Acls::connect(&kafka.plaintext);
    rights.iter().for_each(|right| acls.grant(right));
    let suffice = |what: &str| {
        eventually(what, || {
            let (is_done, output) = map();
            assert!(is_done || !output.contains("uthorization"), "{output}");
            is_done.then_some(())
        });
    };
    suffice("the rights suffice");
    for right in &rights {
        let left = acls.weaken(right);
        let missed = within(&|output| denies(right, output), || map().1);
        assert_eq!(missed, Ok(()), "{right}");
        left.iter().for_each(|left| acls.revoke(left));
        acls.grant(right);
    }
    suffice("all rights are back");
}

//! Tenants with a key: their records need a signature, and nobody else can make one.

use crate::support::client::{contents, memory_id, outcome};
use crate::support::program;
use crate::support::{Broker, Message, Running, User, on_both_brokers};
use domain::{SignedParts, SigningKey, TENANT_SIGNATURE, TenantKeys};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

on_both_brokers! {
    law_isolated_even_from_those_who_may_write_to_the_topics
    law_isolated_from_those_who_send_signed_records_again
}

pub(crate) const SECRET: &str = "the secret of acme, long enough to be one";

/// Signs a message as the documentation asks a sender to.
fn signed(message: Message, tenant: &str, secret: &str) -> Message {
    signed_at(message, tenant, secret, now_ms())
}

fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    now.as_millis() as i64
}

fn signed_at(message: Message, tenant: &str, secret: &str, at_ms: i64) -> Message {
    let by_tenant = BTreeMap::from([(tenant.to_owned(), SigningKey::of(secret))]);
    let keys = TenantKeys { by_tenant, others: true };
    let parts = SignedParts {
        topic: &message.topic,
        partition: -1,
        key: message.key.as_deref(),
        value: message.value.as_deref(),
        headers: &message.headers,
    };
    let signature = keys.sign(tenant, &parts, at_ms).expect("a key");
    message.with(TENANT_SIGNATURE, signature)
}

/// Sends a signed message and returns the reply. The headers of the reply address are signed too.
pub(crate) fn exchanged(user: &User<'_>, message: Message, secret: &str) -> Value {
    let correlation = message.value.clone().unwrap_or_default();
    let message = user.client.with_reply_to(message, &correlation);
    user.client.send(&signed(message, &user.tenant, secret));
    user.client.reply("kafka_correlationId", &correlation).json()
}

fn law_isolated_even_from_those_who_may_write_to_the_topics(broker: Broker) {
    let options = [("auth.tenants.acme.secret", SECRET), ("ingest.dead_letters_in_a_row_max", "5")];
    let running = Running::start(broker, &options);
    let client = running.client();
    let (ada, ben, other) =
        (client.user("acme", "ada"), client.user("acme", "ben"), client.user("other", "eve"));
    let remember = |text: &str| json!({"type": "remember", "content": text});

    // Wherever a signed event arrives, it is applied where it belongs.
    for partition in 0..3 {
        let event = ada.message("events", remember(&format!("My locker has number {partition}.")));
        let event = Message { partition: Some(partition), ..event };
        let receipt = exchanged(&ada, event, SECRET);
        assert_eq!(outcome(&receipt), "kept", "{receipt}");
    }
    let shared =
        json!({"type": "remember", "content": "The gate opens at nine.", "scope": "tenant"});
    let receipt = exchanged(&ada, ada.message("events", shared), SECRET);
    let gate = memory_id(&receipt);
    let question = json!({"type": "recall", "query": "When does the gate open?"});
    let reply = exchanged(&ben, ben.message("recalls", question.clone()), SECRET);
    assert_eq!(contents(&reply), ["The gate opens at nine."], "{reply}");

    // Neither an event nor a request of a stranger is accepted, and many of them stop nothing.
    let forget = json!({"type": "forget", "memory": gate});
    for refused in [
        ada.event(remember("I am a stranger.")),
        ada.event(forget.clone()),
        ada.ask(question.clone()),
        exchanged(
            &ada,
            ada.message("events", forget.clone()),
            "a secret that somebody guessed wrong",
        ),
        exchanged(
            &ada,
            ada.message("recalls", question.clone()),
            "a secret that somebody guessed wrong",
        ),
    ] {
        assert_eq!(refused["status"], "forbidden", "{refused}");
        assert_eq!(refused["type"], "error", "{refused}");
    }
    for n in 0..20 {
        client.send(&ada.message("events", remember(&format!("Forged text number {n}."))));
    }
    // A copy of a signed request cannot be sent to another reply partition.
    let asked = client.with_reply_to(ben.message("recalls", question.clone()), b"copied");
    let mut copied = signed(asked, "acme", SECRET);
    copied.headers.push(("kafka_replyPartition".into(), 0_i32.to_be_bytes().to_vec()));
    client.send(&copied);
    let refused = client.reply("kafka_correlationId", b"copied").json();
    assert_eq!(refused["status"], "forbidden", "{refused}");

    // Tenants without a key need no signature.
    assert_eq!(outcome(&other.event(remember("I keep bees."))), "kept");
    let listed = json!({"type": "list", "limit": 100});
    let listed = exchanged(&ada, ada.message("recalls", listed), SECRET);
    assert_eq!(listed["memories"].as_array().map_or(0, Vec::len), 4, "{listed}");

    // The program's own commands sign with the key of their configuration.
    let dir = running.place.dir.as_path();
    let servers = running.service.servers.as_str();
    let prefix = format!("topics.prefix={}", running.place.prefix);
    let secret = format!("auth.tenants.acme.secret={SECRET}");
    let list = ["list", "--user", "acme/ada", "--brokers", servers, "--set", &prefix];
    let mut command = program::bare_command(dir);
    let (code, _, stderr) = program::run(command.args(list));
    assert!(code != Some(0) && stderr.contains("forbidden"), "{stderr}");
    let mut command = program::bare_command(dir);
    let (code, stdout, stderr) = program::run(command.args(list).args(["--set", &secret]));
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains("My locker has number 2."), "{stdout}");
    running.stop();
}

/// A copy has the time of the original record, which its writer may choose.
fn law_isolated_from_those_who_send_signed_records_again(broker: Broker) {
    let running = Running::start(broker, &[("auth.tenants.acme.secret", SECRET)]);
    let client = running.client();
    let ada = client.user("acme", "ada");
    let hour_ago = now_ms() - 3_600_000;
    let sent = |name: &str, event: Value, at_ms: i64| {
        let message = client.with_reply_to(ada.message("events", event), name.as_bytes());
        let message = Message { timestamp_ms: at_ms, ..message };
        signed_at(message, &ada.tenant, SECRET, at_ms)
    };
    let reply = |message: &Message, name: &str| {
        client.send(message);
        client.reply("kafka_correlationId", name.as_bytes()).json()
    };
    let secret = json!({"type": "remember", "content": "My doctor is called Zanzibar."});
    let with_id = json!({"type": "remember", "content": "My locker has number 7.", "id": "e1"});
    let first = sent("first", secret.clone(), hour_ago);
    let named = sent("named", with_id, hour_ago);
    assert_eq!(outcome(&reply(&first, "first")), "kept");
    assert_eq!(outcome(&reply(&named, "named")), "kept");

    // An import of an old conversation is signed when it is sent.
    let old = json!({"type": "remember", "content": "I kept bees.", "at": "2001-01-01T00:00:00Z"});
    let imported = sent("imported", old, now_ms());
    assert_eq!(outcome(&reply(&imported, "imported")), "kept");
    let forget = json!({"type": "forget", "query": "doctor zanzibar"});
    assert_eq!(outcome(&reply(&sent("forget", forget, now_ms()), "forget")), "forgotten");

    assert_eq!(outcome(&reply(&named, "named")), "duplicate");
    assert_eq!(outcome(&reply(&first, "first")), "refused", "it is forgotten");
    let other = json!({"type": "remember", "content": "The gate opens at nine."});
    let other = sent("other", other, hour_ago);
    for partition in [None, Some(0), Some(1), Some(2)] {
        let refused = reply(&Message { partition, ..other.clone() }, "other");
        assert_eq!(refused["status"], "forbidden", "{partition:?} {refused}");
        assert_eq!(refused["type"], "error", "{refused}");
    }
    let listed = json!({"type": "list", "limit": 100});
    let listed = exchanged(&ada, ada.message("recalls", listed), SECRET);
    assert_eq!(listed["memories"].as_array().map_or(0, Vec::len), 2, "{listed}");
    running.stop();
}

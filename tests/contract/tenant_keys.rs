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
}

const SECRET: &str = "the secret of acme, long enough to be one";

/// Signs a message as the documentation asks a sender to.
fn signed(message: Message, tenant: &str, secret: &str) -> Message {
    let by_tenant = BTreeMap::from([(tenant.to_owned(), SigningKey::of(secret))]);
    let keys = TenantKeys { by_tenant, others: true, age_ms_max: 1 };
    let parts = SignedParts {
        topic: &message.topic,
        partition: -1,
        key: message.key.as_deref(),
        value: message.value.as_deref(),
        headers: &message.headers,
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    let signature = keys.sign(tenant, &parts, now.as_millis() as i64).expect("a key");
    message.with(TENANT_SIGNATURE, signature)
}

/// Sends a signed message and returns the reply. The headers of the reply address are signed too.
fn exchanged(user: &User<'_>, message: Message, secret: &str) -> Value {
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

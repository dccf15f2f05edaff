//! Tokens of an OAuth issuer at the gateway: good ones open the memories of their user, tampered ones are
//! refused by name, and no route shows one user's token another's memories.

use super::{Gateway, keys_of, new_key};
use crate::support::issuer::{Issuer, RESOURCE, SigningKey, base64, by_secret, unsigned};
use crate::support::{Broker, Running, eventually};
use gateway::route::{Needs, Route, Size};
use gateway::routes;
use mem0::DIALECT;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const METADATA: &str = "https://memory.example.com/.well-known/oauth-protected-resource/mcp";

/// An answer with its head in lower case.
struct Answer {
    status: u16,
    head: String,
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {}", self.text))
    }

    fn header(&self, name: &str) -> &str {
        let line = self.head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        line.unwrap_or_default()
    }
}

/// Sends a request, and reads for a second at most where the answer is a stream without an end.
fn ask(gateway: &Gateway, token: Option<&str>, line: &str, headers: &str, body: &str) -> Answer {
    let mut stream = TcpStream::connect(&gateway.address).expect("the gateway listens");
    stream.set_read_timeout(Some(Duration::from_secs(1))).expect("not zero");
    let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
    let is_stream = line.contains("/v1/keepsake/decisions?");
    if !is_stream {
        stream.set_read_timeout(Some(crate::support::PATIENCE)).expect("not zero");
    }
    let request = format!(
        "{line} HTTP/1.1\r\nhost: {}\r\n{token}{headers}accept: application/json, \
         text/event-stream\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        gateway.address,
        body.len()
    );
    stream.write_all(request.as_bytes()).expect("the gateway reads");
    let (mut all, mut some) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = stream.read(&mut some) {
        all.extend_from_slice(&some[..read]);
    }
    let all = String::from_utf8_lossy(&all).into_owned();
    let (head, text) = all.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{line}: {all:?}"));
    let status = head.split(' ').nth(1).and_then(|it| it.parse().ok()).expect("a status");
    Answer { status, head: head.to_lowercase(), text: text.to_owned() }
}

const AS_JSON: &str = "content-type: application/json\r\nmcp-protocol-version: 2025-06-18\r\n";

fn post(gateway: &Gateway, token: &str, path: &str, body: Value) -> Answer {
    ask(gateway, Some(token), &format!("POST {path}"), AS_JSON, &body.to_string())
}

fn tool(gateway: &Gateway, token: &str, path: &str, name: &str, arguments: Value) -> Answer {
    let params = json!({"name": name, "arguments": arguments});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    post(gateway, token, path, call)
}

fn started(running: &Running, issuer: &Issuer, more: &[(&str, &str)]) -> Gateway {
    let oauth = [
        ("gateway.oauth.issuer", issuer.url.as_str()),
        ("gateway.oauth.resource", RESOURCE),
        ("gateway.oauth.refetch_ms", "1"),
    ];
    let gateway = Gateway::start(&running.place, &[&oauth[..], more].concat());
    let unknown = SigningKey::ed("d0").token(&issuer.claims("nobody"));
    eventually("the first request for the issuer's keys is over", || {
        let answer = post(&gateway, &unknown, "/v1/keepsake/stats", json!({}));
        (refusal(&answer).1 != "issuer_pending").then_some(())
    });
    gateway
}

fn refusal(answer: &Answer) -> (u16, String) {
    (answer.status, answer.json()["error"]["code"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_token_opens_the_memories_of_its_user_beside_keys_and_across_a_change_of_keys() {
    let running = Running::start(Broker::Embedded, &[]);
    let rsa = SigningKey::rsa("r1", 2048);
    let pss = SigningKey { id: "r2", algorithm: "PS256", key: rsa.key.clone() };
    let (ec, ed) = (SigningKey::ec("e1"), SigningKey::ed("d1"));
    let issuer = Issuer::start(&[&rsa, &pss, &ec, &ed]);
    let (_, key) = new_key(&running.place, &["--tenant", "default", "--rights", "read"]);
    let gateway = started(&running, &issuer, &[("gateway.keys", &keys_of(&running.place))]);

    // A client without a token finds the issuer.
    let asked = ask(&gateway, None, "POST /mcp/", AS_JSON, "{}");
    assert_eq!(refusal(&asked), (401, "unauthorized".into()));
    let challenge = format!(
        "bearer resource_metadata=\"{METADATA}\", scope=\"memories:read memories:write \
         memories:forget\""
    );
    assert_eq!(asked.header("www-authenticate"), challenge);
    for path in ["", "/mcp", "/mcp/", "/mcp/ada/"] {
        let line = format!("GET /.well-known/oauth-protected-resource{path}");
        let metadata = ask(&gateway, None, &line, "", "").json();
        assert_eq!(metadata["resource"], RESOURCE, "{metadata}");
        assert_eq!(metadata["authorization_servers"], json!([issuer.url]), "{metadata}");
        assert_eq!(metadata["scopes_supported"][0], "memories:read", "{metadata}");
    }

    // Each kind of key, by every door.
    for key in [&rsa, &pss, &ec, &ed] {
        let token = key.token(&issuer.claims("ada"));
        let said = json!({"content": format!("I like the letter {}.", key.id)});
        let answer = post(&gateway, &token, "/v1/keepsake/remember", said);
        assert_eq!(answer.status, 200, "{}: {}", key.algorithm, answer.text);
        for path in ["/mcp", "/mcp/", "/mcp/ada", "/mcp/ada/"] {
            let found = tool(&gateway, &token, path, "search_memories", json!({"query": "letter"}));
            assert!(found.text.contains(&format!("letter {}", key.id)), "{path}: {}", found.text);
        }
    }
    let ada = ec.token(&issuer.claims("ada"));
    let session = ask(&gateway, Some(&ada), "GET /v1/keepsake/session", "", "").json();
    assert_eq!((&session["user"], &session["keys"]), (&json!("ada"), &json!(true)), "{session}");
    assert_eq!(session["rights"], json!(["read", "write", "forget"]), "a token is never admin");

    // A key of the file works as before.
    let listed = json!({"user": "ada"});
    let listed = post(&gateway, &key, "/v1/keepsake/list", listed).json();
    assert_eq!(listed["memories"].as_array().map(Vec::len), Some(4), "{listed}");
    let unknown = ask(&gateway, Some("ksk_0_0"), "POST /v1/keepsake/list", AS_JSON, "{}");
    assert_eq!(refusal(&unknown), (401, "unauthorized".into()));

    // A further scope is asked for by its name.
    let mut claims = issuer.claims("ada");
    claims.as_object_mut().expect("an object").remove("scope");
    claims["scp"] = json!(["memories:read"]);
    let reader = ec.token(&claims);
    let answer = tool(&gateway, &reader, "/mcp/", "search_memories", json!({"query": "letter"}));
    assert_eq!(answer.status, 200, "{}", answer.text);
    let text = json!({"text": "I like zeta."});
    for answer in [
        tool(&gateway, &reader, "/mcp/", "add_memory", text.clone()),
        post(&gateway, &reader, "/v1/keepsake/remember", json!({"content": "I like zeta."})),
    ] {
        assert_eq!(refusal(&answer), (403, "insufficient_scope".into()), "{}", answer.text);
        let challenge = answer.header("www-authenticate");
        assert!(challenge.contains("error=\"insufficient_scope\""), "{challenge}");
        assert!(challenge.contains("scope=\"memories:write\""), "{challenge}");
        assert!(challenge.contains(METADATA), "{challenge}");
    }
    let refused = tool(&gateway, &ada, "/mcp/bob/", "memory_stats", json!({}));
    assert_eq!(refusal(&refused), (403, "forbidden".into()));

    // The issuer changes its keys, then is away: the new key is known, and the old one withdrawn.
    let new = SigningKey::ec("e2");
    issuer.show(&[&new]);
    let fresh = new.token(&issuer.claims("ada"));
    assert_eq!(post(&gateway, &fresh, "/v1/keepsake/stats", json!({})).status, 200);
    let old = post(&gateway, &ada, "/v1/keepsake/stats", json!({}));
    assert_eq!(refusal(&old), (401, "kid_unknown".into()));
    issuer.turn_away(true);
    assert_eq!(post(&gateway, &ada, "/v1/keepsake/stats", json!({})).status, 401);
    assert_eq!(post(&gateway, &fresh, "/v1/keepsake/stats", json!({})).status, 200);

    let metrics = ask(&gateway, None, "GET /metrics", "", "").text;
    for line in [
        "keepsake_gateway_tokens_total{outcome=\"kid_unknown\"} 3",
        "keepsake_gateway_tokens_total{outcome=\"accepted\"}",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let log = std::fs::read_to_string(&gateway.log).expect("a log");
    assert!(!log.contains(&fresh[..20]) && !metrics.contains("ada"), "{log}");
    assert!(log.contains("cannot get the keys of gateway.oauth.issuer"), "{log}");
}

/// Tokens that must not open anything, each with the name of its refusal.
fn tampered(
    good: &Value,
    rsa: &SigningKey,
    ec: &SigningKey,
    weak: &SigningKey,
) -> Vec<(&'static str, u16, String)> {
    let now = jiff::Timestamp::now().as_second();
    let changed = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        claims
    };
    let without = |name: &str| {
        let mut claims = good.clone();
        claims.as_object_mut().expect("an object").remove(name);
        ec.token(&claims)
    };
    let with = |name: &str, value: Value| ec.token(&changed(name, value));
    let head = |name: &str, value: Value| {
        let mut head = json!({"alg": "ES256", "kid": ec.id, "typ": "at+jwt"});
        head[name] = value;
        head
    };
    let token = ec.token(good);
    let (text, signature) = token.rsplit_once('.').expect("a signature");
    let (_, claims) = text.split_once('.').expect("claims");
    let pem = rsa.key.public_key_to_pem().expect("a public key");
    let modulus = rsa.jwk()["n"].as_str().expect("a number").to_owned();
    let hs = json!({"alg": "HS256", "kid": rsa.id});
    let thief = SigningKey::ec(ec.id);
    let other = base64(good.to_string().replace("\"ada\"", "\"bob\"").as_bytes());
    vec![
        ("alg_refused", 401, format!("{}.", unsigned(&head("alg", json!("none")), good))),
        (
            "alg_refused",
            401,
            format!("{}.{signature}", unsigned(&head("alg", json!("None")), good)),
        ),
        ("alg_refused", 401, by_secret(&pem, &hs, good)),
        ("alg_refused", 401, by_secret(modulus.as_bytes(), &hs, good)),
        ("alg_refused", 401, by_secret(b"secret", &json!({"alg": "HS512", "kid": "e1"}), good)),
        ("alg_refused", 401, ec.signed(&head("alg", json!("ES256K")), good)),
        ("alg_unfit", 401, ec.signed(&head("alg", json!("RS256")), good)),
        ("alg_unfit", 401, rsa.signed(&json!({"alg": "ES256", "kid": rsa.id}), good)),
        ("signature_wrong", 401, rsa.signed(&json!({"alg": "PS256", "kid": rsa.id}), good)),
        ("signature_wrong", 401, thief.token(good)),
        ("signature_wrong", 401, format!("{text}.{}", &signature[..signature.len() / 2])),
        ("signature_wrong", 401, format!("{text}.")),
        ("signature_wrong", 401, format!("{text}.{}", base64(&[0; 64]))),
        ("signature_wrong", 401, token.replace(claims, &other)),
        (
            "signature_wrong",
            401,
            format!(
                "{}.{claims}.{signature}",
                base64(head("typ", json!("JWT")).to_string().as_bytes())
            ),
        ),
        ("kid_unknown", 401, ec.signed(&head("kid", json!("e9")), good)),
        ("kid_missing", 401, ec.signed(&json!({"alg": "ES256"}), good)),
        ("key_weak", 401, weak.token(good)),
        ("crit_refused", 401, ec.signed(&head("crit", json!(["exp"])), good)),
        ("crit_refused", 401, ec.signed(&head("crit", json!([])), good)),
        ("typ_refused", 401, ec.signed(&head("typ", json!("logout+jwt")), good)),
        ("token_expired", 401, with("exp", json!(now - 60))),
        ("exp_missing", 401, without("exp")),
        ("exp_missing", 401, with("exp", json!("2999-01-01"))),
        ("token_early", 401, with("nbf", json!(now + 120))),
        ("time_malformed", 401, with("nbf", json!("tomorrow"))),
        ("iss_wrong", 401, with("iss", json!("https://evil.example.com"))),
        ("iss_wrong", 401, with("iss", json!([good["iss"], "https://evil.example.com"]))),
        ("iss_missing", 401, without("iss")),
        ("aud_wrong", 401, with("aud", json!("https://other.example.com/mcp"))),
        (
            "aud_wrong",
            401,
            with("aud", json!([format!("{RESOURCE}/x"), "https://memory.example.com"])),
        ),
        ("aud_missing", 401, without("aud")),
        ("token_bound", 401, with("cnf", json!({"jkt": "x"}))),
        ("user_missing", 401, without("sub")),
        ("user_refused", 401, with("sub", json!("ada/bob"))),
        ("user_refused", 401, with("sub", json!(7))),
        ("user_refused", 401, with("sub", json!(""))),
        ("tenant_missing", 401, without("org")),
        ("tenant_refused", 401, with("org", json!("acme/ada"))),
        ("insufficient_scope", 403, without("scope")),
        ("insufficient_scope", 403, with("scope", json!("memories memories:readx admin"))),
        ("token_too_long", 401, with("padding", json!("x".repeat(8 << 10)))),
        ("token_malformed", 401, "garbage".into()),
        ("token_malformed", 401, format!("{token}.x")),
        ("token_malformed", 401, format!("{}.{claims}.{signature}", base64(b"[]"))),
        ("token_malformed", 401, ec.signed(&head("kid", json!(["e1"])), good)),
        ("token_malformed", 401, ec.token(&json!("ada"))),
    ]
}

#[test]
fn tampered_tokens_are_refused_by_name_and_reach_nothing() {
    let running = Running::start(Broker::Embedded, &[]);
    let (rsa, ec) = (SigningKey::rsa("r1", 2048), SigningKey::ec("e1"));
    let weak = SigningKey::rsa("weak", 1024);
    let issuer = Issuer::start(&[&rsa, &ec, &weak]);
    let gateway = started(&running, &issuer, &[("gateway.oauth.tenant_claim", "org")]);
    let claims = |user: &str| {
        let mut claims = issuer.claims(user);
        claims["org"] = "acme".into();
        claims
    };
    let good = |key: &SigningKey| {
        let answer = post(&gateway, &key.token(&claims("ada")), "/v1/keepsake/stats", json!({}));
        assert_eq!(answer.status, 200, "{}", answer.text);
    };
    good(&rsa);
    good(&ec);
    let all = tampered(&claims("ada"), &rsa, &ec, &weak);
    for (n, (name, status, token)) in all.into_iter().enumerate() {
        let answer = post(&gateway, &token, "/v1/keepsake/stats", json!({}));
        assert_eq!(refusal(&answer), (status, name.into()), "{n}: {}", answer.text);
        let challenge = answer.header("www-authenticate");
        let error = if status == 401 { "invalid_token" } else { "insufficient_scope" };
        assert!(challenge.contains(&format!("error=\"{error}\"")), "{n} {name}: {challenge}");
        assert!(challenge.contains(&format!("error_description=\"{name}: ")), "{challenge}");
        assert!(challenge.contains(METADATA), "{challenge}");
        // Neither page nor log shows the token.
        let shown = answer.text + &answer.head;
        let part = token.get(..24).unwrap_or(&token);
        assert!(!shown.contains(&part.to_lowercase()) && !shown.contains(part), "{shown}");
    }
    good(&ec);
    let log = std::fs::read_to_string(&gateway.log).expect("a log");
    assert!(!log.contains("eyJ"), "{log}");
    // A token in the other header or in the address is none.
    let token = ec.token(&claims("ada"));
    let headers = format!("x-api-key: {token}\r\n{AS_JSON}");
    let answer = ask(&gateway, None, "POST /v1/keepsake/stats", &headers, "{}");
    assert_eq!(refusal(&answer), (401, "unauthorized".into()));
    let line = format!("POST /v1/keepsake/stats?access_token={token}");
    assert_eq!(ask(&gateway, None, &line, AS_JSON, "{}").status, 401);
    assert_eq!(running.client().read("dead-letters").len(), 0);
}

#[test]
fn an_issuer_that_is_away_or_sends_too_much_lets_nobody_in_and_is_not_flooded() {
    let running = Running::start(Broker::Embedded, &[]);
    let key = SigningKey::ec("e1");
    let issuer = Issuer::start(&[&key]);
    issuer.turn_away(true);
    let keys_at = format!("{}/keys", issuer.url);
    let gateway = started(&running, &issuer, &[("gateway.oauth.jwks_url", &keys_at)]);
    let asked = |key: &SigningKey| {
        let token = key.token(&issuer.claims("ada"));
        post(&gateway, &token, "/v1/keepsake/stats", json!({}))
    };
    let away = asked(&key);
    assert_eq!(refusal(&away), (503, "issuer_away".into()));
    assert_eq!(away.header("retry-after"), "1");
    issuer.turn_away(false);
    let many: Vec<Value> = (0..65).map(|_| key.jwk()).collect();
    for unfit in [
        format!("{{\"keys\": [], \"x\": \"{}\"}}", "x".repeat(300_000)),
        json!({"keys": many}).to_string(),
        "<html>".into(),
        "{}".into(),
    ] {
        issuer.answer_keys(unfit);
        assert_eq!(refusal(&asked(&key)), (503, "issuer_refused".into()));
    }
    issuer.show(&[&key]);
    assert_eq!(asked(&key).status, 200);
    issuer.answer_keys("{}".into());
    assert_eq!(asked(&key).status, 200, "the last good keys stay");
    drop(gateway);

    // Of a hundred invented keys the issuer sees none, once it was asked.
    issuer.show(&[&key]);
    let calm = started(&running, &issuer, &[("gateway.oauth.refetch_ms", "60000")]);
    let before = issuer.asked();
    for _ in 0..100 {
        let unknown = SigningKey { id: "e9", algorithm: "ES256", key: key.key.clone() };
        let token = unknown.token(&issuer.claims("ada"));
        let answer = post(&calm, &token, "/v1/keepsake/stats", json!({}));
        assert_eq!(refusal(&answer), (401, "kid_unknown".into()));
    }
    assert_eq!(issuer.asked(), before);
}

#[test]
fn tokens_of_one_user_share_a_rate_and_a_stream_ends_with_its_token() {
    let running = Running::start(Broker::Embedded, &[]);
    let key = SigningKey::ec("e1");
    let issuer = Issuer::start(&[&key]);
    let limits = [("gateway.requests_per_second", "5")];
    let gateway = started(&running, &issuer, &limits);
    // Each token is another one: their times differ.
    let token = |user: &str, seconds: i64| {
        let mut claims = issuer.claims(user);
        claims["exp"] = (jiff::Timestamp::now().as_second() + seconds).into();
        key.token(&claims)
    };
    let session = |user: &str, n: i64| {
        ask(&gateway, Some(&token(user, 60 + n)), "GET /v1/keepsake/session", "", "").status
    };
    let ada: Vec<u16> = (0..40).map(|n| session("ada", n)).collect();
    assert!(ada.contains(&200) && ada.contains(&429), "{ada:?}");
    assert_eq!(session("bob", 0), 200, "another user has a rate of their own");

    // Expired 27 s ago, which is 3 s before the clocks may differ no more.
    let began = std::time::Instant::now();
    let mut stream = TcpStream::connect(&gateway.address).expect("the gateway listens");
    stream.set_read_timeout(Some(crate::support::PATIENCE)).expect("not zero");
    let head = format!(
        "GET /v1/keepsake/decisions?user=eve HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer \
         {}\r\nconnection: close\r\n\r\n",
        gateway.address,
        token("eve", -27)
    );
    stream.write_all(head.as_bytes()).expect("the gateway reads");
    let (mut text, mut some, mut is_open) = (Vec::new(), [0; 4096], true);
    while is_open {
        let read = stream.read(&mut some).expect("the gateway answers");
        text.extend_from_slice(&some[..read]);
        is_open = read > 0;
        // A stream without news has a sign of life every few seconds.
        assert!(began.elapsed() < Duration::from_secs(20), "the stream goes on");
    }
    assert!(text.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&text));
}

const SECRET: &str = "axolotl";

/// Headers, address and body of a call of this route: about a user and a memory of that user.
fn call(route: &Route, user: Option<&str>, id: &str) -> (String, String, String) {
    let method = if route.method == "any" { "post" } else { route.method };
    let mut path = route.path.to_owned();
    for (name, value) in [
        ("{id}", id),
        ("{user}", user.unwrap_or("bob")),
        ("{kind}", "user"),
        ("{name}", user.unwrap_or("bob")),
        ("{*rest}", "x"),
        ("{*path}", "x.js"),
    ] {
        path = path.replace(name, value);
    }
    let mut query = "?partition=0&offset=0&query=".to_owned();
    let mut body = match route.path.trim_matches('/').rsplit('/').next().unwrap_or_default() {
        _ if route.path.starts_with("/mcp") => {
            let params = json!({"name": "search_memories", "arguments": {"query": SECRET}});
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        }
        "feedback" if route.path.contains("keepsake") => json!({"memory": id, "signal": "used"}),
        "forget" => json!({"query": SECRET}),
        "update" | "get" | "explain" => json!({"memory": id, "content": "Nothing."}),
        "batch" => json!({"memories": [{"memory_id": id, "text": "Nothing."}]}),
        _ => json!({"query": SECRET, "content": "Nothing.", "text": "Nothing.", "memory_id": id,
            "feedback": "POSITIVE", "messages": "Nothing.", "letters": []}),
    };
    if let (Some(user), false) = (user, route.path.starts_with("/mcp")) {
        query += &format!("&user={user}&user_id={user}");
        (body["user"], body["user_id"]) = (user.into(), user.into());
        if route.path.starts_with("/v3/") || route.path == "/search" {
            body["filters"] = json!({"user_id": user});
        }
    }
    let (kind, body) = match route.size {
        Size::None => ("application/json", String::new()),
        Size::Lines => {
            let user = json!({"part": "user", "tenant": "acme", "user": user.unwrap_or("bob")});
            ("application/jsonl", user.to_string())
        }
        Size::Message => ("application/json", body.to_string()),
    };
    let kind = format!("content-type: {kind}\r\nmcp-protocol-version: 2025-06-18\r\n");
    (format!("{} {path}{query}", method.to_uppercase()), kind, body)
}

/// The token of one user, of the same name in another tenant, and of a user who says to be another, on
/// every route: nothing of ada's is shown or changed. Her own token finds it on many.
#[test]
fn law_isolated_from_tokens_of_other_users_on_every_route() {
    let running = Running::start(Broker::Embedded, &[]);
    let key = SigningKey::ec("e1");
    let issuer = Issuer::start(&[&key]);
    let gateway = started(&running, &issuer, &[("gateway.oauth.tenant_claim", "org")]);
    let token = |tenant: &str, user: &str| {
        let mut claims = issuer.claims(user);
        claims["org"] = tenant.into();
        // Rights that no token has.
        claims["scope"] =
            "memories:read memories:write memories:forget admin memories:admin".into();
        key.token(&claims)
    };
    let ada = token("acme", "ada");
    let content = json!({"content": format!("My pet is an {SECRET}.")});
    let stored = post(&gateway, &ada, "/v1/keepsake/remember", content).json();
    let id = stored["decisions"][0]["memory"].as_str().expect("an id").to_owned();
    let listed = || post(&gateway, &ada, "/v1/keepsake/list", json!({})).json()["memories"].clone();
    let before = listed();
    assert!(before.to_string().contains(SECRET), "{before}");
    let strangers = [token("acme", "bob"), token("other", "ada"), token("acme", "carol")];
    let to = "x-keepsake-user: ada\r\n";
    for route in routes::all(&DIALECT) {
        for (n, stranger) in strangers.iter().enumerate() {
            for user in [Some("ada"), None] {
                let (line, kind, body) = call(route, user, &id);
                let headers = if n == 2 { format!("{kind}{to}") } else { kind };
                let answer = ask(&gateway, Some(stranger), &line, &headers, &body);
                // An answer may repeat the question.
                let shown = answer.text.contains(&format!("an {SECRET}"));
                assert!(!shown, "{n} {line}: {}", answer.text);
                assert_ne!(answer.status, 429, "{n} {line}: refused for another reason");
                // Nobody but ada, and the name of another tenant, gets a call about ada through.
                let names_ada = route.needs != Needs::Nothing && user.is_some() && n != 1;
                if names_ada && route.path.contains("{user}") {
                    assert_eq!(answer.status, 403, "{n} {line}: {}", answer.text);
                }
                if route.needs == Needs::Admin {
                    assert_eq!(answer.status, 403, "{n} {line}: {}", answer.text);
                }
            }
        }
        assert_eq!(listed(), before, "{} {}", route.method, route.path);
    }
    let reads = routes::all(&DIALECT).filter(|route| route.method != "delete");
    let found = reads.filter(|route| {
        let (line, kind, body) = call(route, Some("ada"), &id);
        let changes = ["/forget", "/update", "PUT"].iter().any(|it| line.contains(it));
        !changes && {
            let answer = ask(&gateway, Some(&ada), &line, &kind, &body);
            answer.text.contains(&format!("an {SECRET}"))
        }
    });
    let found: Vec<&str> = found.map(|route| route.path).collect();
    assert!(found.len() >= 15, "the calls of the strangers would find it: {found:?}");
}

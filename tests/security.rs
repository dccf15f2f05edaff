//! Every way to log in to a real Kafka, and every way in which it can be refused: the service and
//! the commands work with the same options, and a refusal is a stop that says what to do.

use crate::support::program::{command, run};
use crate::support::secure_kafka::{SecureKafka, password, unsigned_token, user_of_partition_0};
use crate::support::service::Place;
use crate::support::{Child, eventually, kafka, on_kafka};
use std::time::{Duration, Instant};

on_kafka! {
    tls
    mutual_tls
    sasl_plain
    sasl_scram_sha_256
    sasl_scram_sha_512
    sasl_oauthbearer_with_an_unsigned_token
    sasl_oauthbearer_with_a_token_from_a_file
    a_refusal_is_a_stop_with_a_name_and_advice
    a_service_that_is_refused_stops_and_one_whose_broker_comes_late_waits
}

/// Runs a command that must succeed, and returns its standard output.
fn done(place: &Place, arguments: &[&str]) -> String {
    let (code, stdout, stderr) = run(command(place).args(arguments));
    assert_eq!(code, Some(0), "{arguments:?}: {stdout}{stderr}");
    stdout
}

fn works(place: &Place) {
    serves(place);
    let topics = done(place, &["topics", "check"]);
    assert!(topics.contains("3 partitions") && !topics.contains("missing"), "{topics}");
}

/// The service, a round trip and both verifications, with the same options.
fn serves(place: &Place) {
    let mut child = Child::start(place);
    child.wait_until_ready();
    // On the partition that already has the signing key, so that none is without a digest.
    let user = user_of_partition_0();
    done(place, &["remember", "--user", &user, "I live in Lisbon"]);
    let found = done(place, &["recall", "--user", &user, "Where do I live?"]);
    assert!(found.contains("Lisbon"), "{found}");
    done(place, &["dlq", "list"]);
    let exported = done(place, &["export", "--user", &user]);
    assert!(exported.contains("Lisbon"), "{exported}");
    done(place, &["verify", "--online"]);
    child.signal("-TERM");
    assert!(child.wait().success(), "{}", child.log());
    done(place, &["verify"]);
}

fn tls() {
    let kafka = SecureKafka::shared();
    let ca = kafka.authority.ca();
    let options = [("security.protocol", "SSL"), ("ssl.ca.location", &*ca)];
    works(&kafka.place("TLS", &options, &[]));
}

fn mutual_tls() {
    let kafka = SecureKafka::shared();
    let authority = &kafka.authority;
    let [ca, certificate] = [authority.ca(), authority.path("keepsake.pem")];
    let key = authority.lock("keepsake", &password("key"));
    let options = [
        ("security.protocol", "SSL"),
        ("ssl.ca.location", &*ca),
        ("ssl.certificate.location", &*certificate),
        ("ssl.key.location", &*key),
    ];
    let secret = kafka.secret_file(&password("key"));
    works(&kafka.place("MTLS", &options, &[("ssl.key.password", &secret)]));
}

/// A place that logs in as the super user `keepsake` with a password from a file.
fn with_password(mechanism: &str, password: &str) -> Place {
    let kafka = SecureKafka::shared();
    let ca = kafka.authority.ca();
    let options = [
        ("security.protocol", "SASL_SSL"),
        ("ssl.ca.location", &*ca),
        ("sasl.mechanism", mechanism),
        ("sasl.username", "keepsake"),
    ];
    let secret = kafka.secret_file(password);
    kafka.place("SASL", &options, &[("sasl.password", &secret)])
}

fn sasl_plain() {
    works(&with_password("PLAIN", &password("keepsake")));
}

fn sasl_scram_sha_256() {
    works(&with_password("SCRAM-SHA-256", &password("keepsake")));
}

fn sasl_scram_sha_512() {
    works(&with_password("SCRAM-SHA-512", &password("keepsake")));
}

fn with_token(options: &[(&str, &str)]) -> Place {
    let kafka = SecureKafka::shared();
    let ca = kafka.authority.ca();
    let own = [
        ("security.protocol", "SASL_SSL"),
        ("ssl.ca.location", &*ca),
        ("sasl.mechanism", "OAUTHBEARER"),
    ];
    kafka.place("SASL", &[&own, options].concat(), &[])
}

fn sasl_oauthbearer_with_an_unsigned_token() {
    works(&with_token(&[
        ("enable.sasl.oauthbearer.unsecure.jwt", "true"),
        ("sasl.oauthbearer.config", "principal=keepsake"),
    ]));
}

fn sasl_oauthbearer_with_a_token_from_a_file() {
    let token = unsigned_token("keepsake", 3600);
    let file = SecureKafka::shared().secret_file(&token);
    let place = with_token(&[]).with("kafka.token_file", &file);
    // Limit: the client library does not read tokens for requests of administration.
    let (code, _, stderr) = run(command(&place).args(["topics", "create"]));
    assert!(code == Some(1) && stderr.contains("kafka.token_file"), "{stderr}");
    let admin = with_password("PLAIN", &password("keepsake"));
    done(&Place { prefix: place.prefix.clone(), ..admin }, &["topics", "create"]);
    serves(&place);
}

/// A refusal takes three seconds, on a busy machine some more; waiting for a broker would take this.
const LONG: Duration = Duration::from_secs(100);

/// Runs a command that must be refused within seconds, with this name and this advice.
fn refused(place: &Place, name: &str, advice: &str) {
    let began = Instant::now();
    let place = place.with("kafka.connect_ms", &LONG.as_millis().to_string());
    let (code, stdout, stderr) = run(command(&place).args(["topics", "check"]));
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    assert!(stderr.contains(&format!("[{name},")) && stderr.contains(advice), "{stderr}");
    assert!(began.elapsed() < LONG, "{stderr}: after {:?}", began.elapsed());
}

fn a_refusal_is_a_stop_with_a_name_and_advice() {
    let kafka = SecureKafka::shared();
    let authority = &kafka.authority;
    let [ca, strange_ca] = [authority.ca(), kafka.stranger.ca()];
    let tls = |listener: &str, ca: &str| {
        kafka.place(listener, &[("security.protocol", "SSL"), ("ssl.ca.location", ca)], &[])
    };
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
        refused(&with_password(mechanism, "wrong"), "login-refused", "password");
    }
    let expired = unsigned_token("keepsake", -60);
    let [expired, missing] = [kafka.secret_file(&expired), "/not/there".to_owned()];
    for (file, advice) in [(expired, "has expired"), (missing, "/not/there")] {
        refused(&with_token(&[]).with("kafka.token_file", &file), "login-refused", advice);
    }
    refused(&tls("TLS", &strange_ca), "tls-failed", "ssl.ca.location");
    refused(&tls("EXPIRED", &ca), "tls-failed", "valid today");
    refused(&tls("OTHER", &ca), "tls-failed", "host name");
    refused(&tls("MTLS", &ca), "tls-failed", "ssl.certificate.location");
    let stranger = |file: &str| kafka.stranger.path(file);
    let [certificate, key] = [stranger("keepsake.pem"), stranger("keepsake.key")];
    let options = [
        ("security.protocol", "SSL"),
        ("ssl.ca.location", &*ca),
        ("ssl.certificate.location", &*certificate),
        ("ssl.key.location", &*key),
    ];
    refused(&kafka.place("MTLS", &options, &[]), "tls-failed", "ssl.certificate.location");
    // Each side speaks another protocol.
    let no_tls = kafka.place("TLS", &[], &[]);
    let to_plaintext = tls("TLS", &ca).with("kafka.bootstrap_servers", &kafka.plaintext);
    for (place, reason) in [(no_tls, "security.protocol"), (to_plaintext, "SSL_HANDSHAKE")] {
        let place = place.with("kafka.connect_ms", "3000");
        let (code, _, stderr) = run(command(&place).args(["topics", "check"]));
        assert!(code == Some(1) && stderr.contains("broker-unreachable"), "{stderr}");
        assert!(stderr.contains(reason), "{stderr}");
    }
}

fn a_service_that_is_refused_stops_and_one_whose_broker_comes_late_waits() {
    let mut refused = Child::start(&with_password("PLAIN", "wrong"));
    assert_eq!(refused.wait().code(), Some(1));
    assert!(refused.log().contains("login-refused"), "{}", refused.log());
    // A broker of its own with the same address after a restart.
    let dir = crate::support::scratch::root().join("late");
    let servers = kafka::start_in(&dir).expect("a broker");
    kafka::stop(&dir);
    // A broker may take more than the usual half minute to come back.
    let options = [("kafka.bootstrap_servers", &*servers), ("kafka.connect_ms", "300000")];
    let place = Place::new(crate::support::Broker::Kafka, &options);
    let mut late = Child::start(&place);
    late.wait_until_it_handles_signals();
    eventually("the service tries in vain", || {
        std::net::TcpStream::connect(&servers).is_err().then_some(())
    });
    assert!(late.ended().is_none(), "{}", late.log());
    kafka::restart(&dir);
    late.wait_until_ready();
    late.signal("-TERM");
    assert!(late.wait().success(), "{}", late.log());
    kafka::stop(&dir);
}

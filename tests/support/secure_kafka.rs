//! One real Kafka with a listener for each way to log in, and with an authorizer. Starts with the
//! first test that needs it and ends with this process.
//!
//! | listener | protocol |
//! |---|---|
//! | PLAINTEXT | none: the client is the super user `ANONYMOUS`, for the tests themselves |
//! | TLS | TLS; the client is `ANONYMOUS` |
//! | MTLS | TLS with a certificate of the client: `User:CN=keepsake`, a super user |
//! | SASL | TLS and a password or token: `User:keepsake` is a super user, others need rights |
//! | EXPIRED, OTHER | TLS with an expired certificate, and with one for another host |

use super::certificates::{Authority, Subject};
use super::service::Place;
use super::{Broker, kafka, scratch};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use domain::UserKey;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Passwords are marked, so that a test can search for them.
pub const MARK: &str = "hush-hush-secret";
/// Principals without any right of their own: the tests of rights give them some.
pub const ROLES: [&str; 8] =
    ["service", "publisher", "asker", "gateway", "operator", "backup", "mover", "mapper"];

pub struct SecureKafka {
    pub authority: Authority,
    /// An authority that the broker does not know.
    pub stranger: Authority,
    pub plaintext: String,
    listeners: BTreeMap<String, String>,
}

impl SecureKafka {
    pub fn shared() -> &'static SecureKafka {
        static SHARED: OnceLock<Result<SecureKafka, String>> = OnceLock::new();
        SHARED.get_or_init(start).as_ref().unwrap_or_else(|why| panic!("{why}"))
    }

    /// Address of a listener, `host:port`.
    pub fn listener(&self, name: &str) -> &str {
        &self.listeners[name]
    }

    /// A place on this broker whose clients log in with these options of librdkafka, and with those
    /// whose value is in a file.
    pub fn place(&self, listener: &str, options: &[(&str, &str)], files: &[(&str, &str)]) -> Place {
        let mut place = Place::new(Broker::Kafka, &[]);
        let mut set = |option: String, value: &str| place.options.push((option, value.to_owned()));
        set("kafka.bootstrap_servers".into(), self.listener(listener));
        for (option, value) in options {
            set(format!("kafka.librdkafka.{option}"), value);
        }
        for (option, path) in files {
            set(format!("kafka.librdkafka_files.{option}"), path);
        }
        place
    }

    /// A place whose clients log in as one of the [`ROLES`].
    pub fn as_role(&self, role: &str) -> Place {
        let password = password(role);
        let ca = self.authority.ca();
        self.place(
            "SASL",
            &[
                ("security.protocol", "SASL_SSL"),
                ("ssl.ca.location", &ca),
                ("sasl.mechanism", "PLAIN"),
                ("sasl.username", role),
                ("sasl.password", &password),
            ],
            &[],
        )
    }

    /// Writes a file with a secret and returns its path.
    pub fn secret_file(&self, content: &str) -> String {
        let path = scratch::dir("secret").join("secret");
        std::fs::write(&path, format!("{content}\n")).expect("the directory is ours");
        path.display().to_string()
    }
}

pub fn password(user: &str) -> String {
    format!("{MARK}-{user}")
}

fn start() -> Result<SecureKafka, String> {
    let root = scratch::root().join("secure");
    let authority = Authority::new(&root.join("authority"));
    let stranger = Authority::new(&root.join("stranger"));
    for (name, host, days) in [
        ("broker", "IP:127.0.0.1", 2),
        ("expired", "IP:127.0.0.1", -1),
        ("other", "DNS:other.example", 2),
        ("keepsake", "DNS:keepsake", 2),
    ] {
        authority.sign(&Subject { name, host, days });
    }
    stranger.sign(&Subject { name: "keepsake", host: "DNS:keepsake", days: 2 });
    let dir = root.join("kafka");
    let options = options(&authority);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let plaintext = kafka::start_with(&dir, &options)?;
    Ok(SecureKafka { authority, stranger, plaintext, listeners: listeners(dir.join("listeners")) })
}

fn listeners(file: PathBuf) -> BTreeMap<String, String> {
    let text = super::read(&file);
    let pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.map(|(name, address)| (name.to_owned(), address.to_owned())).collect()
}

fn options(authority: &Authority) -> Vec<String> {
    let mut options = Vec::new();
    let mut option = |name: &str, value: String| options.extend([name.to_owned(), value]);
    for listener in ["TLS=SSL", "MTLS=SSL", "SASL=SASL_SSL", "EXPIRED=SSL", "OTHER=SSL"] {
        option("--listener", listener.to_owned());
    }
    for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let spec = format!("{mechanism}=[name=keepsake,password={}]", password("keepsake"));
        option("--scram", spec);
    }
    let mut set = |name: &str, value: &str| option("--set", format!("{name}={value}"));
    for (listener, certificate) in [
        ("tls", "broker"),
        ("mtls", "broker"),
        ("sasl", "broker"),
        ("expired", "expired"),
        ("other", "other"),
    ] {
        let of = |name: &str| format!("listener.name.{listener}.ssl.{name}");
        set(&of("keystore.type"), "PEM");
        set(&of("keystore.location"), &authority.path(&format!("{certificate}.both.pem")));
        set(&of("truststore.type"), "PEM");
        set(&of("truststore.location"), &authority.ca());
    }
    set("listener.name.mtls.ssl.client.auth", "required");
    let mechanisms = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER";
    set("listener.name.sasl.sasl.enabled.mechanisms", mechanisms);
    let users: Vec<String> = ["keepsake"]
        .iter()
        .chain(&ROLES)
        .map(|user| format!("user_{user}=\"{}\"", password(user)))
        .collect();
    let security = "org.apache.kafka.common.security";
    for (mechanism, module, arguments) in [
        ("plain", "plain.PlainLoginModule", users.join(" ")),
        ("scram-sha-256", "scram.ScramLoginModule", String::new()),
        ("scram-sha-512", "scram.ScramLoginModule", String::new()),
        (
            "oauthbearer",
            "oauthbearer.OAuthBearerLoginModule",
            "unsecuredLoginStringClaim_sub=\"broker\"".to_owned(),
        ),
    ] {
        let name = format!("listener.name.sasl.{mechanism}.sasl.jaas.config");
        set(&name, &format!("{security}.{module} required {arguments};"));
    }
    set("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer");
    set("super.users", "User:ANONYMOUS;User:CN=keepsake;User:keepsake");
    options
}

/// A JSON web token without a signature, as the broker's OAUTHBEARER accepts it for trials.
pub fn unsigned_token(principal: &str, life_seconds: i64) -> String {
    let now = jiff::Timestamp::now().as_second();
    let expires = now + life_seconds;
    let encoded = |json: String| BASE64_URL_SAFE_NO_PAD.encode(json);
    let claims =
        format!(r#"{{"sub":"{principal}","iat":{},"exp":{expires}}}"#, now.min(expires) - 1);
    format!("{}.{}.", encoded(r#"{"alg":"none"}"#.to_owned()), encoded(claims))
}

/// A user of the partition that has the signing key: after an event of theirs, no partition of the
/// changelog has records and no digest.
pub fn user_of_partition_0() -> String {
    let mut names = (0..).map(|n| format!("user{n}"));
    let is_there =
        |name: &String| UserKey::new("default", name).is_ok_and(|key| key.partition(3) == 0);
    names.find(is_there).expect("a third of all names")
}

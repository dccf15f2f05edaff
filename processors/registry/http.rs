//! Asks a schema registry over HTTP: `GET /schemas/ids/{id}`, and for each reference of the schema
//! `GET /subjects/{subject}/versions/{version}`, as [Confluent's registry defines
//! them](https://docs.confluent.io/platform/current/schema-registry/develop/api.html).

use crate::source::{Limits, Source};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use outbound::Endpoint;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

/// The error codes of a registry for a subject, a version and an id that do not exist. A 404
/// without one of them is that of another server, or of a wrong address.
const NOT_FOUND: [u64; 3] = [40401, 40402, 40403];
/// Bytes of an answer for each byte of the quoted schema, and for the rest.
const QUOTED: u64 = 2;
const AROUND_BYTES: u64 = 65_536;

/// The value of the `authorization` header, shown nowhere.
#[derive(Clone)]
pub struct Login(String);

impl Login {
    /// Takes the text of a file or a variable: `user:password`, or a token without a colon. The
    /// error does not quote the text.
    pub fn of(text: &str) -> Result<Login, &'static str> {
        let text = text.trim();
        if text.is_empty() {
            return Err("is empty");
        }
        if text.contains(':') {
            return Ok(Login(format!("Basic {}", BASE64_STANDARD.encode(text))));
        }
        if !text.chars().all(|c| c.is_ascii_graphic()) {
            return Err("has characters that no HTTP header may have");
        }
        Ok(Login(format!("Bearer {text}")))
    }
}

/// Hides the log-in from logs and panic messages.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(…)")
    }
}

#[derive(Debug)]
pub enum Failure {
    /// The registry does not have the id.
    Unknown,
    /// The schema is beyond a limit.
    Refused(String),
    /// The registry did not answer, or not as a registry does.
    Unavailable(String),
}

pub struct Http {
    endpoint: Endpoint,
    timeout: Duration,
    limits: Limits,
}

/// One schema of the registry, with the subject and version of each reference under a name.
struct Entry {
    format: String,
    text: String,
    references: Vec<(String, Version)>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    subject: String,
    number: i64,
}

/// The bounds of one lookup, and the references found so far.
struct Reading {
    until: Instant,
    bytes_left: usize,
    seen: BTreeSet<Version>,
    found: Vec<(String, String)>,
}

impl Http {
    pub fn new(url: String, login: Option<Login>, timeout: Duration, limits: Limits) -> Http {
        let types = "application/vnd.schemaregistry.v1+json, application/json";
        let mut headers = vec![("accept".to_owned(), types.to_owned())];
        headers.extend(login.map(|Login(value)| ("authorization".to_owned(), value)));
        let answer_bytes_max = limits.schema_bytes_max as u64 * QUOTED + AROUND_BYTES;
        let url = url.trim_end_matches('/').to_owned();
        Http { endpoint: Endpoint::new(url, headers, answer_bytes_max), timeout, limits }
    }

    pub fn schema(&self, id: u32) -> Result<Source, Failure> {
        let mut reading = Reading {
            until: Instant::now() + self.timeout,
            bytes_left: self.limits.schema_bytes_max,
            seen: BTreeSet::new(),
            found: Vec::new(),
        };
        let entry = self.entry(&format!("/schemas/ids/{id}"), &mut reading)?;
        self.follow(&entry, &mut reading)?;
        Ok(Source { format: entry.format, text: entry.text, references: reading.found })
    }

    /// Reads the references of a schema, the innermost first. A reference that was read already, and
    /// so also a circle, ends there.
    ///
    /// Limit: recursion is bounded by `references_max`.
    fn follow(&self, entry: &Entry, reading: &mut Reading) -> Result<(), Failure> {
        for (name, version) in &entry.references {
            if !reading.seen.insert(version.clone()) {
                continue;
            }
            if reading.seen.len() > self.limits.references_max {
                let max = self.limits.references_max;
                let what = format!("has more than {max} references");
                return Err(Failure::Refused(what));
            }
            let Version { subject, number } = version;
            let path = format!("/subjects/{}/versions/{number}", escaped(subject));
            let next = self.entry(&path, reading).map_err(|failure| match failure {
                Failure::Unknown => Failure::Refused(format!(
                    "refers to version {number} of {subject}, which the registry does not have"
                )),
                other => other,
            })?;
            self.follow(&next, reading)?;
            reading.found.push((name.clone(), next.text));
        }
        Ok(())
    }

    fn entry(&self, path: &str, reading: &mut Reading) -> Result<Entry, Failure> {
        let (status, body) = self.get(path, reading.until)?;
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        match status {
            200 => {}
            404 if NOT_FOUND.contains(&answer["error_code"].as_u64().unwrap_or_default()) => {
                return Err(Failure::Unknown);
            }
            401 | 403 => {
                let what = format!("the registry refuses the log-in (schemas.login): {status}");
                return Err(Failure::Unavailable(what));
            }
            _ => return Err(Failure::Unavailable(format!("the registry answers {status}"))),
        }
        let entry = entry_of(&answer).ok_or_else(|| {
            Failure::Unavailable("the answer of the registry has no schema".to_owned())
        })?;
        reading.bytes_left =
            reading.bytes_left.checked_sub(entry.text.len()).ok_or_else(|| self.too_long())?;
        Ok(entry)
    }

    fn too_long(&self) -> Failure {
        let max = self.limits.schema_bytes_max;
        let what = format!("is longer than {max} bytes with its references");
        Failure::Refused(what)
    }

    fn get(&self, path: &str, until: Instant) -> Result<(u16, Vec<u8>), Failure> {
        let rest = until.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Err(slow());
        }
        let answer = self.endpoint.get(path, rest).map_err(|failure| self.failure(failure))?;
        let status = answer.status;
        Ok((status, answer.body().map_err(|failure| self.failure(failure))?))
    }

    fn failure(&self, failure: outbound::Failure) -> Failure {
        match failure {
            outbound::Failure::Slow => slow(),
            outbound::Failure::Oversized => self.too_long(),
            other => Failure::Unavailable(format!("the registry cannot be reached: {other}")),
        }
    }
}

fn slow() -> Failure {
    Failure::Unavailable("the registry did not answer in time (schemas.timeout_ms)".to_owned())
}

fn entry_of(answer: &Value) -> Option<Entry> {
    let format = match &answer["schemaType"] {
        Value::Null => "AVRO".to_owned(),
        given => given.as_str()?.to_owned(),
    };
    let mut references = Vec::new();
    for reference in answer["references"].as_array().into_iter().flatten() {
        let version = Version {
            subject: reference["subject"].as_str()?.to_owned(),
            number: reference["version"].as_i64()?,
        };
        references.push((reference["name"].as_str()?.to_owned(), version));
    }
    Some(Entry { format, text: answer["schema"].as_str()?.to_owned(), references })
}

/// Escapes a subject as one segment of a path. A segment of dots would leave the path.
fn escaped(subject: &str) -> String {
    let is_dots = subject.bytes().all(|byte| byte == b'.');
    let mut escaped = String::new();
    for byte in subject.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => {
                escaped.push(byte as char);
            }
            b'.' if !is_dots => escaped.push('.'),
            other => escaped.push_str(&format!("%{other:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_basic_or_bearer_and_shown_nowhere() {
        let basic = Login::of(" me:pass word\n").expect("a log-in");
        assert_eq!(basic.0, "Basic bWU6cGFzcyB3b3Jk");
        let bearer = Login::of("tok-secret").expect("a log-in");
        assert_eq!(
            (bearer.0.as_str(), format!("{bearer:?}").as_str()),
            ("Bearer tok-secret", "Login(…)")
        );
        for text in ["", " \n", "sk secret", "sk-secrét"] {
            let error = Login::of(text).expect_err(text);
            assert!(!error.contains("secr"), "{error}");
        }
    }

    #[test]
    fn a_subject_is_one_segment_of_the_path() {
        assert_eq!(escaped("a/b c:é"), "a%2Fb%20c%3A%C3%A9");
        assert_eq!(escaped("keepsake.events-value"), "keepsake.events-value");
        assert_eq!(escaped(".."), "%2E%2E");
    }
}

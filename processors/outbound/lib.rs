//! Sends requests to a configured HTTP server and reads the answers, each within a time and a number
//! of bytes. Blocks the calling thread.
//!
//! Redirects are not followed and no proxy of the environment is used: texts and secrets go to the
//! configured host and to no other.

use std::fmt;
use std::time::Duration;
use ureq::tls::{RootCerts, TlsConfig, TlsProvider};
use ureq::{Agent, Body, Error, RequestBuilder};

/// One server. Not `Debug`, because headers hold secrets.
pub struct Endpoint {
    agent: Agent,
    url: String,
    headers: Vec<(String, String)>,
    answer_bytes_max: u64,
}

/// A status with its body, which is not read yet.
pub struct Answer {
    pub status: u16,
    /// The time after which the server asks to send the request again.
    pub retry_after: Option<Duration>,
    body: Body,
    bytes_max: u64,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Failure {
    Slow,
    /// The answer has more bytes than allowed.
    Oversized,
    /// The address or a header is not one of HTTP.
    Malformed(String),
    Unreachable(String),
}

impl Endpoint {
    /// `headers` go with each request.
    pub fn new(url: String, headers: Vec<(String, String)>, answer_bytes_max: u64) -> Endpoint {
        // Checks certificates against those of the system, by the OpenSSL that the Kafka client
        // uses.
        let tls = TlsConfig::builder()
            .provider(TlsProvider::NativeTls)
            .root_certs(RootCerts::PlatformVerifier)
            .build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .user_agent("keepsake");
        Endpoint { agent: config.build().into(), url, headers, answer_bytes_max }
    }

    /// Gets the resource at a path below the address.
    pub fn get(&self, path: &str, within: Duration) -> Result<Answer, Failure> {
        let request = self.agent.get(format!("{}{path}", self.url));
        self.answer(self.prepared(request, within).call())
    }

    /// Posts JSON to the address.
    pub fn post(&self, json: &[u8], within: Duration) -> Result<Answer, Failure> {
        let request = self.agent.post(&self.url).header("content-type", "application/json");
        self.answer(self.prepared(request, within).send(json))
    }

    fn prepared<B>(&self, request: RequestBuilder<B>, within: Duration) -> RequestBuilder<B> {
        let headers = self.headers.iter();
        let request = headers.fold(request, |request, (name, value)| request.header(name, value));
        request.config().timeout_global(Some(within)).build()
    }

    fn answer(&self, sent: Result<ureq::http::Response<Body>, Error>) -> Result<Answer, Failure> {
        let (head, body) = sent?.into_parts();
        let retry_after = head.headers.get("retry-after");
        let seconds = retry_after.and_then(|after| after.to_str().ok()?.trim().parse().ok());
        Ok(Answer {
            status: head.status.as_u16(),
            retry_after: seconds.map(Duration::from_secs),
            body,
            bytes_max: self.answer_bytes_max,
        })
    }
}

impl Answer {
    /// Reads the body, within the time of the request.
    pub fn body(mut self) -> Result<Vec<u8>, Failure> {
        Ok(self.body.with_config().limit(self.bytes_max).read_to_vec()?)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Timeout(_) => Failure::Slow,
            Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => Failure::Slow,
            Error::BodyExceedsLimit(_) => Failure::Oversized,
            Error::BadUri(_) | Error::Http(_) => Failure::Malformed(error.to_string()),
            other => Failure::Unreachable(other.to_string()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failure::Slow => "no answer in time",
            Failure::Oversized => "the answer is too long",
            Failure::Malformed(why) | Failure::Unreachable(why) => why,
        })
    }
}

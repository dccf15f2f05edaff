//! Posts one request and reads the answer, within a time and a number of bytes.
//!
//! Redirects are not followed and no proxy of the environment is used: texts and key go to the
//! configured host and to no other.

use crate::Refusal;
use domain::BearerKey;
use std::time::Duration;
use ureq::tls::{RootCerts, TlsConfig, TlsProvider};
use ureq::{Agent, Error};

pub struct Post {
    agent: Agent,
    url: String,
    key: Option<BearerKey>,
    bytes_max: u64,
}

pub struct Answered {
    pub status: u16,
    pub retry_after: Option<Duration>,
    pub body: Vec<u8>,
}

impl Post {
    pub fn new(url: String, key: Option<BearerKey>, bytes_max: u64) -> Post {
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
        Post { agent: config.build().into(), url, key, bytes_max }
    }

    pub fn send(&self, request: &[u8], within: Duration) -> Result<Answered, Refusal> {
        let mut post = self.agent.post(&self.url).header("content-type", "application/json");
        if let Some(key) = &self.key {
            post = post.header("authorization", key.bearer());
        }
        let sent = post.config().timeout_global(Some(within)).build().send(request);
        let mut response = sent.map_err(|error| refusal(&error))?;
        let status = response.status().as_u16();
        let retry_after = response.headers().get("retry-after");
        let seconds = retry_after.and_then(|after| after.to_str().ok()?.trim().parse().ok());
        let body = response
            .body_mut()
            .with_config()
            .limit(self.bytes_max)
            .read_to_vec()
            .map_err(|error| refusal(&error))?;
        Ok(Answered { status, retry_after: seconds.map(Duration::from_secs), body })
    }
}

fn refusal(error: &Error) -> Refusal {
    match error {
        Error::Timeout(_) => Refusal::Slow,
        Error::BodyExceedsLimit(_) => Refusal::Oversized,
        Error::BadUri(_) | Error::Http(_) => Refusal::Rejected,
        Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => Refusal::Slow,
        _ => Refusal::Unavailable,
    }
}

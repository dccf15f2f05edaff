//! Posts one request to the collector and judges the answer, within a time and a number of bytes.
//!
//! Redirects are not followed and no proxy of the environment is used: spans and headers go to the
//! configured host and to no other.

use super::{Headers, otlp};
use std::time::Duration;
use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig, TlsProvider};

/// Bytes of an answer that are read. A collector answers with a few words.
const ANSWER_BYTES_MAX: u64 = 65_536;

pub struct Post {
    agent: Agent,
    endpoint: String,
    headers: Headers,
}

/// How a request ended.
pub enum Posted {
    /// The collector took the spans, except for so many.
    Accepted {
        rejected: u64,
    },
    /// The collector asks to send the same spans again, after this time if it names one.
    Busy {
        status: u16,
        retry_after: Option<Duration>,
    },
    Refused {
        status: u16,
    },
    /// No answer, for this reason.
    Unreachable(String),
}

impl Post {
    pub fn new(endpoint: String, headers: Headers) -> Post {
        // Checks certificates against those of the system, by the OpenSSL that the Kafka client uses.
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
        Post { agent: config.build().into(), endpoint, headers }
    }

    pub fn send(&self, body: &[u8], within: Duration) -> Posted {
        let mut post = self.agent.post(&self.endpoint).header("content-type", "application/json");
        for (name, value) in self.headers.iter() {
            post = post.header(name, value);
        }
        let sent = post.config().timeout_global(Some(within)).build().send(body);
        let mut response = match sent {
            Ok(response) => response,
            Err(error) => return Posted::Unreachable(error.to_string()),
        };
        let status = response.status().as_u16();
        let retry_after = response.headers().get("retry-after");
        let seconds = retry_after.and_then(|after| after.to_str().ok()?.trim().parse().ok());
        match status {
            200..=299 => {
                let answer =
                    response.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
                Posted::Accepted { rejected: otlp::rejected(&answer.unwrap_or_default()) }
            }
            // The statuses that the specification calls retryable.
            429 | 502 | 503 | 504 => {
                Posted::Busy { status, retry_after: seconds.map(Duration::from_secs) }
            }
            _ => Posted::Refused { status },
        }
    }
}

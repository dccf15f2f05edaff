//! Judges the reports of a client on its connections: a broker that is away, a refused log-in, or
//! TLS that the two sides cannot agree on.

use domain::fault::StopName;
use rdkafka::error::RDKafkaErrorCode;
use std::time::{Duration, Instant};

/// Quiet time after which everything that the client has reported so far has been read.
pub const QUIET: Duration = Duration::from_millis(10);

const CLIENT_CERTIFICATE: &str = "the brokers require a certificate of the client: name one that \
                                  they trust with ssl.certificate.location and ssl.key.location \
                                  under kafka.librdkafka";

/// The last reports of a client on its connections.
#[derive(Clone, Debug)]
pub struct Reported {
    pub code: RDKafkaErrorCode,
    pub reason: String,
}

/// A refusal, and since when there was nothing else.
pub struct Refused {
    pub since: Instant,
    pub name: StopName,
    pub what: String,
}

impl Reported {
    /// Follows the reports. The client does not repeat a report, and after a refusal reports that
    /// the connection has ended; only a broker that is away ends a refusal.
    pub fn refused(&self, before: Option<Refused>) -> Option<Refused> {
        let Some((name, advice)) = self.refusal() else {
            return before.filter(|_| !self.is_away());
        };
        let since = before.map_or_else(Instant::now, |before| before.since);
        Some(Refused { since, name, what: format!("{}: {advice}", self.reason) })
    }

    pub fn is_away(&self) -> bool {
        self.code == RDKafkaErrorCode::Resolve || self.reason.contains("Connect to")
    }

    /// The stop for a refusal that no waiting heals, with the cure.
    fn refusal(&self) -> Option<(StopName, &'static str)> {
        match self.code {
            RDKafkaErrorCode::Authentication => Some((
                StopName::LoginRefused,
                "check user, password or token under kafka.librdkafka and kafka.librdkafka_files, \
                 and that the brokers offer sasl.mechanism on this listener",
            )),
            // A broker refuses the client's certificate by an alert after the handshake.
            _ if self.is_alert() => Some((StopName::TlsFailed, CLIENT_CERTIFICATE)),
            RDKafkaErrorCode::SSL => Some((StopName::TlsFailed, self.advice())),
            _ => None,
        }
    }

    /// True for an alert of TLS about the certificate of this side.
    fn is_alert(&self) -> bool {
        let says = |word| self.reason.contains(word);
        says("alert") && (says("certificate") || says("unknown ca"))
    }

    fn advice(&self) -> &'static str {
        if self.reason.contains("verif") {
            // librdkafka has one message for all three.
            "the broker's certificate is not accepted: it must be signed by an authority that \
             ssl.ca.location under kafka.librdkafka names, be valid today, and be for the host name \
             by which the broker is reached; `openssl s_client -connect` shows it"
        } else {
            "check security.protocol and the ssl options under kafka.librdkafka, and that this \
             listener speaks TLS"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_says_what_to_do() {
        let refusal = |code, reason: &str| {
            let reported = Reported { code, reason: reason.to_owned() };
            reported.refusal().map(|(name, advice)| (name, advice.to_owned()))
        };
        for (code, reason, name, word) in [
            (RDKafkaErrorCode::Authentication, "Invalid", StopName::LoginRefused, "password"),
            (RDKafkaErrorCode::SSL, "certificate verify failed", StopName::TlsFailed, "ssl.ca"),
            (RDKafkaErrorCode::SSL, "alert unknown ca", StopName::TlsFailed, "of the client"),
            (RDKafkaErrorCode::SSL, "wrong version number", StopName::TlsFailed, "speaks TLS"),
            (
                RDKafkaErrorCode::BrokerTransportFailure,
                "ssl alert: certificate required",
                StopName::TlsFailed,
                "ssl.certificate.location",
            ),
        ] {
            let (found, advice) = refusal(code, reason).expect(reason);
            assert!(found == name && advice.contains(word), "{reason}: {found:?} {advice}");
        }
        assert_eq!(refusal(RDKafkaErrorCode::BrokerTransportFailure, "connection refused"), None);
    }

    #[test]
    fn a_broker_that_is_away_is_no_refusal_and_the_end_of_a_refused_connection_is_one() {
        let report = |code, reason: &str| Reported { code, reason: reason.to_owned() };
        let refused = report(RDKafkaErrorCode::Authentication, "Invalid password").refused(None);
        let transport = RDKafkaErrorCode::BrokerTransportFailure;
        let refused = report(transport, "Disconnected").refused(refused);
        assert!(refused.is_some());
        assert!(report(transport, "Connect to ipv4#b:1 failed").refused(refused).is_none());
        assert!(report(transport, "Disconnected").refused(None).is_none());
    }
}

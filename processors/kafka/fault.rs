//! Turns an error of the client into a fault. A missing right stops the process by name, because
//! every attempt would be refused again; everything else is tried again by the caller.

use domain::fault::{Fault, StopName};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use std::fmt::Display;

/// A failure of one call, which names the call.
pub fn failed(what: impl Display, error: &KafkaError) -> Fault {
    match error.rdkafka_error_code() {
        Some(code) => of_code(what, code),
        None => Fault::retry(format!("{what}: {error}")),
    }
}

/// Like [`failed`], for the answer about one topic or partition.
pub fn of_code(what: impl Display, code: RDKafkaErrorCode) -> Fault {
    if !is_denied(code) {
        return Fault::retry(format!("{what}: {code}"));
    }
    let what = format!(
        "{what}: {code}; `keepsake topics acls` prints the rights that each principal needs"
    );
    Fault::stop(StopName::AccessDenied, what)
}

/// True if the broker knows who asks, and refuses.
pub fn is_denied(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::TopicAuthorizationFailed
            | RDKafkaErrorCode::GroupAuthorizationFailed
            | RDKafkaErrorCode::ClusterAuthorizationFailed
            | RDKafkaErrorCode::TransactionalIdAuthorizationFailed
    )
}

/// A client that cannot be created. An option's value is left out, because a misspelt option may
/// hold a password.
pub fn refused(what: impl Display, error: &KafkaError) -> Fault {
    let why = match error {
        KafkaError::ClientConfig(_, why, option, _) => format!("kafka.librdkafka.{option}: {why}"),
        error => error.to_string(),
    };
    Fault::stop(StopName::BrokerRefuses, format!("{what}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdkafka::config::ClientConfig;
    use rdkafka::consumer::BaseConsumer;

    fn name(fault: Fault) -> Option<StopName> {
        if let Fault::Stop(stop) = fault { Some(stop.name) } else { None }
    }

    #[test]
    fn a_missing_right_stops_and_an_outage_is_tried_again() {
        let denied = KafkaError::MetadataFetch(RDKafkaErrorCode::TopicAuthorizationFailed);
        assert_eq!(name(failed("reads", &denied)), Some(StopName::AccessDenied));
        let away = KafkaError::MetadataFetch(RDKafkaErrorCode::BrokerTransportFailure);
        assert_eq!(name(failed("reads", &away)), None);
    }

    #[test]
    fn a_misspelt_option_is_named_without_its_value() {
        let created = ClientConfig::new()
            .set("sasl.passwort", "hush-hush")
            .create::<BaseConsumer>()
            .err()
            .expect("there is no such option");
        let shown = refused("creates a client", &created).to_string();
        assert!(shown.contains("kafka.librdkafka.sasl.passwort"), "{shown}");
        assert!(!shown.contains("hush"), "{shown}");
    }
}

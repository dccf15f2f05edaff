//! Creates and deletes topics, and opens the clients for such requests.

use super::connection::Connection;
use super::fault::{failed, is_denied, of_code, refused};
use super::throttle::LogThrottle;
use super::token;
use domain::fault::{Fault, Result, StopName};
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use std::time::Duration;

/// The wanted settings of a topic.
#[derive(Clone, Debug)]
pub struct TopicSpec {
    pub name: String,
    pub partitions: i32,
    /// -1: as many as the broker's default.
    pub replication: i32,
    pub settings: Vec<(&'static str, String)>,
}

#[derive(Default)]
pub struct AdminCallbacks {
    throttle: LogThrottle,
}

impl ClientContext for AdminCallbacks {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn error(&self, error: KafkaError, reason: &str) {
        self.throttle.log(&error, reason);
    }

    fn generate_oauth_token(&self, config: Option<&str>) -> token::Result {
        token::token(config)
    }
}

impl Connection {
    /// Creates topics on a real cluster. Existing topics are not changed.
    pub fn create_topics(&self, topics: &[TopicSpec]) -> Result<()> {
        let (admin, runtime, options) = self.admin()?;
        let new: Vec<NewTopic<'_>> = topics
            .iter()
            .map(|topic| {
                let base = NewTopic::new(
                    &topic.name,
                    topic.partitions,
                    TopicReplication::Fixed(topic.replication),
                );
                topic.settings.iter().fold(base, |topic, (name, value)| topic.set(name, value))
            })
            .collect();
        let results = runtime
            .block_on(admin.create_topics(&new, &options))
            .map_err(|e| failed("creates topics", &e))?;
        for result in results {
            match result {
                Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((name, code)) if is_denied(code) => {
                    return Err(of_code(format!("creates topic {name}"), code));
                }
                Err((name, code)) => {
                    let what = format!(
                        "the broker does not create topic {name}: {code}; \
                         create it by hand, or set topics.create = false"
                    );
                    return Err(Fault::stop(StopName::TopicMissing, what));
                }
            }
        }
        Ok(())
    }

    /// Adds partitions to a topic of a real cluster, up to this number. A topic that has them
    /// already is not changed.
    pub fn add_partitions(&self, topic: &str, partitions: i32) -> Result<()> {
        let (admin, runtime, options) = self.admin()?;
        let wanted = NewPartitions::new(topic, usize::try_from(partitions).unwrap_or_default());
        let results = runtime
            .block_on(admin.create_partitions([&wanted], &options))
            .map_err(|e| failed("adds partitions", &e))?;
        match results.into_iter().find_map(std::result::Result::err) {
            // The broker's answer to a number that the topic has already.
            None | Some((_, RDKafkaErrorCode::InvalidPartitions)) => Ok(()),
            Some((name, code)) => Err(of_code(format!("adds partitions to {name}"), code)),
        }
    }

    /// Deletes topics of a real cluster with all their records. Returns those that existed.
    pub fn delete_topics(&self, topics: &[String]) -> Result<Vec<String>> {
        let (admin, runtime, options) = self.admin()?;
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        let results = runtime
            .block_on(admin.delete_topics(&names, &options))
            .map_err(|e| failed("removes topics", &e))?;
        let mut deleted = Vec::new();
        for result in results {
            match result {
                Ok(name) => deleted.push(name),
                Err((_, RDKafkaErrorCode::UnknownTopicOrPartition)) => {}
                Err((name, code)) => return Err(of_code(format!("removes topic {name}"), code)),
            }
        }
        Ok(deleted)
    }

    pub(super) fn admin(
        &self,
    ) -> Result<(AdminClient<AdminCallbacks>, tokio::runtime::Runtime, AdminOptions)> {
        // Limit: rdkafka never calls for a token in this client
        // (https://github.com/fede1024/rust-rdkafka/issues/757).
        if self.options.iter().any(|(name, value)| {
            name == "sasl.oauthbearer.config" && value.starts_with(token::TOKEN_FILE)
        }) {
            let what = "the Kafka client cannot use kafka.token_file to create topics, to read their \
                        settings or to delete records: log in another way for `keepsake topics`, \
                        and leave events.keep_ms at 0";
            return Err(Fault::stop(StopName::BrokerRefuses, what));
        }
        let admin = self
            .finished(self.client("keepsake-admin"))
            .create_with_context(AdminCallbacks::default())
            .map_err(|e| refused("creates the admin client", &e))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| Fault::retry(format!("starts a runtime: {e}")))?;
        Ok((admin, runtime, AdminOptions::new().operation_timeout(Some(Duration::from_secs(15)))))
    }
}

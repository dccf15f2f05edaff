//! All options in one struct: one field for each table of `config/default.toml`.

use super::embedded::{Data, EmbeddedLog, Mcp};
use super::gateway::Gateway;
use super::map::ForeignTopic;
use super::schemas::Schemas;
use super::sections::*;
use super::tables::leaves;
use super::trace::Tracing;
use domain::fault::{Fault, StopName};
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Table;

/// The text of `config/default.toml`: every option with its default, unit and reason.
pub const DEFAULTS: &str = include_str!("../../config/default.toml");

/// All options, checked.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub profile: String,
    pub data: Data,
    pub kafka: Kafka,
    pub embedded: EmbeddedLog,
    pub topics: Topics,
    pub events: Events,
    pub store: Store,
    pub embedder: Embedder,
    pub http: Http,
    pub gateway: Gateway,
    pub mcp: Mcp,
    pub map: ForeignTopic,
    pub metrics: Metrics,
    pub ingest: Ingest,
    pub recall: Recall,
    pub quota: Quota,
    pub auth: Auth,
    pub rerank: Rerank,
    pub index: Index,
    pub compact: Compact,
    pub retain: Retain,
    pub conflict: Conflict,
    pub llm: Llm,
    pub limits: Limits,
    pub forget: Forget,
    pub decisions: Decisions,
    pub shadow: Shadow,
    pub clock: Clock,
    pub log: Log,
    pub schemas: Schemas,
    pub tracing: Tracing,
    /// Nested, because TOML reads the tenant `acme.com` as a table in a table.
    tenants: Table,
    /// Environment variables that the document of some policy names.
    #[serde(skip)]
    pub of_documents: BTreeMap<String, String>,
}

impl Config {
    /// Returns the options of another generation of shards on the same topics: its memories topic,
    /// consumer group and directory. Called once with `kafka.generation` when the options are
    /// checked.
    pub fn of_generation(&self, generation: u32) -> Config {
        let mut config = self.clone();
        if config.topics.generation > 1 {
            let suffix = format!(".g{}", config.topics.generation);
            if let Some(first) = config.kafka.group_id.strip_suffix(&suffix) {
                config.kafka.group_id = first.to_owned();
            }
            config.store.dir.pop();
        }
        if generation > 1 {
            config.kafka.group_id = format!("{}.g{generation}", config.kafka.group_id);
            config.store.dir.push(format!("g{generation}"));
        }
        config.kafka.generation = generation;
        config.topics.generation = generation;
        config
    }

    /// Returns the profile of each tenant that has its own.
    pub fn tenant_profiles(&self) -> BTreeMap<String, String> {
        leaves(&self.tenants)
            .into_iter()
            .filter_map(|(tenant, profile)| Some((tenant, profile.as_str()?.to_owned())))
            .collect()
    }
}

pub(super) fn invalid(what: String) -> Fault {
    Fault::stop(StopName::ConfigInvalid, what)
}

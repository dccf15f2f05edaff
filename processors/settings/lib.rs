//! The configuration: four layers merged, read into typed sections and checked once at start.
//!
//! Each part of the service receives its own options as an argument (most of them whole sections);
//! nothing reads the configuration later, so an option has one value for the life of the process.
//! This crate knows no processor: clients and the gateway read the same options without a store, an
//! index or a model.

mod check;
mod config;
pub mod data_dir;
mod decoding;
mod derived;
mod embedded;
mod endpoint;
mod gateway;
mod layers;
pub mod map;
mod parts;
pub mod quota;
mod ranges;
#[cfg_attr(not(feature = "registry"), path = "lacking/reader.rs")]
mod reader;
pub mod retain;
mod schemas;
mod sections;
mod tables;
mod trace;

pub use config::{Config, DEFAULTS};
pub use decoding::random_key;
pub use derived::model_directories;
pub use embedded::{Data, EmbeddedLog, Mcp};
pub use endpoint::{check_secure, may_be_secret};
pub use gateway::{Gateway, Oauth};
pub use layers::{Layers, is_secret};
pub use schemas::Schemas;
pub use sections::*;
pub use tables::{find, from_text, put};
pub use trace::Tracing;

#[cfg(test)]
mod tests {
    use super::*;
    use domain::fault::Result;

    fn loaded(environment: &[(&str, &str)]) -> Result<Config> {
        Layers::load(None, environment.iter().map(|(k, v)| (k.to_string(), v.to_string())))?
            .checked()
    }

    #[test]
    fn defaults_are_valid() {
        let config = loaded(&[]).expect("the defaults are valid");
        assert!(config.kafka.is_embedded());
        assert_eq!(config.topics.events(), "keepsake.events");
    }

    #[test]
    fn each_generation_has_names_of_its_own_and_the_first_those_of_the_file() {
        fn set(generation: &str) -> Result<Config> {
            loaded(&[
                ("KEEPSAKE__KAFKA__BOOTSTRAP_SERVERS", "localhost:9092"),
                ("KEEPSAKE__KAFKA__GENERATION", generation),
            ])
        }
        fn names(config: &Config) -> [String; 4] {
            let Config { kafka, topics, store, .. } = config;
            let dir = store.dir.display().to_string();
            [kafka.group_id.clone(), topics.memories(), topics.tenants(), dir]
        }
        let first = set("1").expect("valid");
        let second = set("2").expect("valid");
        assert_eq!(
            names(&first),
            ["keepsake", "keepsake.memories", "keepsake.tenants", ".keepsake/data"]
        );
        assert_eq!(
            names(&second),
            ["keepsake.g2", "keepsake.memories.g2", "keepsake.tenants.g2", ".keepsake/data/g2"]
        );
        assert_eq!(names(&second.of_generation(1)), names(&first));
        assert_eq!(names(&first.of_generation(2)), names(&second));
        for wrong in ["0", "100"] {
            let error = set(wrong).expect_err(wrong).to_string();
            assert!(error.contains("kafka.generation"), "{error}");
        }
    }

    #[test]
    fn environment_wins_over_defaults_and_keeps_their_types() {
        let config = loaded(&[
            ("KEEPSAKE__KAFKA__BOOTSTRAP_SERVERS", "localhost:9092"),
            ("KEEPSAKE__TOPICS__PARTITIONS", "3"),
            ("KEEPSAKE__TOPICS__REPLY_ALLOWED", "a.replies, b.*"),
            ("KEEPSAKE__KAFKA__LIBRDKAFKA__SESSION_TIMEOUT_MS", "6000"),
            ("KEEPSAKE__CLOCK__FROM_EVENTS", "true"),
        ])
        .expect("every value is valid");
        assert_eq!(config.kafka.bootstrap_servers, "localhost:9092");
        assert_eq!(config.topics.partitions, 3);
        assert_eq!(config.topics.reply_allowed, ["a.replies", "b.*"]);
        assert_eq!(
            config.kafka.client_options(),
            [("session.timeout.ms".to_owned(), "6000".to_owned())]
        );
        assert!(config.clock.from_events);
    }

    #[test]
    fn the_data_directory_has_a_short_variable() {
        let config = loaded(&[("KEEPSAKE_DATA", "/d")]).expect("valid");
        assert_eq!(config.data.dir, std::path::Path::new("/d"));
        assert_eq!(config.store.dir, std::path::Path::new("/d/store"));
    }

    #[test]
    fn a_list_is_written_with_commas_or_in_brackets() {
        fn read(text: &str) -> Result<Config> {
            loaded(&[("KEEPSAKE__TOPICS__REPLY_ALLOWED", text)])
        }
        for text in ["a,b", " a , b ", r#"["a","b"]"#, r#" [ "a", 'b' ] "#] {
            assert_eq!(read(text).expect(text).topics.reply_allowed, ["a", "b"], "{text}");
        }
        assert!(read("").expect("an empty list").topics.reply_allowed.is_empty());
        assert!(read("[]").expect("an empty list").topics.reply_allowed.is_empty());
        for text in ["[a, b]", r#"["a""#] {
            assert!(read(text).expect_err(text).to_string().contains("topics.reply_allowed"));
        }
    }

    #[test]
    fn a_tenant_may_have_a_dot_in_its_name() {
        let mut layers = Layers::defaults();
        layers.set("tenants.acme.com", "keepsake", "test").expect("the value is text");
        assert_eq!(layers.checked().expect("valid").tenant_profiles()["acme.com"], "keepsake");
    }

    #[test]
    fn how_long_memories_are_kept_is_read_by_kind_and_tenant() {
        let rules = loaded(&[
            ("KEEPSAKE__RETAIN__DAYS", "365"),
            ("KEEPSAKE__RETAIN__KINDS__HEALTH", "30"),
            ("KEEPSAKE__RETAIN__TENANTS__ACME.COM__DAYS", "7"),
            ("KEEPSAKE__RETAIN__TENANTS__ACME.COM__KINDS__PLAN.B", "0.5"),
        ]);
        let rules = rules.expect("every value is valid").retain.rules().expect("checked before");
        assert_eq!((rules.standard.days, rules.standard.kinds["health"]), (365.0, 30.0));
        let own = &rules.by_tenant["acme.com"];
        assert_eq!((own.days, own.kinds["plan.b"]), (7.0, 0.5));
    }

    #[test]
    fn an_error_names_the_option_and_exits_with_2() {
        for (name, value, named) in [
            ("KEEPSAKE__TOPICS__PARTITIONS", "many", "topics.partitions"),
            ("KEEPSAKE__TOPICS__PARTITIONS", "0", "topics.partitions"),
            ("KEEPSAKE__RECALL__CANDIDATES", "0", "recall.candidates: must be at least 1, not 0"),
            ("KEEPSAKE__RECALL__CANDIDATES", "-1", "recall.candidates"),
            ("KEEPSAKE__TRACING__RATIO", "1.5", "tracing.ratio: must be 0 to 1, not 1.5"),
            ("KEEPSAKE__TRACING__RATIO", "NaN", "tracing.ratio: must be 0 to 1"),
            ("KEEPSAKE__STORE__STANDBYE", "true", "standbye"),
            ("KEEPSAKE__STORE__STANDBY", "perhaps", "store.standby"),
            ("KEEPSAKE__HTTP__LISTEN", "nowhere", "http.listen"),
            ("KEEPSAKE__INGEST__SKIP", "3:12,3-13", "ingest.skip"),
            ("KEEPSAKE__INGEST__SKIP", "3:-1", "ingest.skip"),
            (
                "KEEPSAKE__QUOTA__RECALLS_PER_SECOND",
                "-1",
                "quota.recalls_per_second: must be at least 0",
            ),
            ("KEEPSAKE__QUOTA__EVENTS_PER_SECOND", "-1", "quota.events_per_second"),
            ("KEEPSAKE__QUOTA__MEMORIES_PER_PARTITION", "-1", "quota.memories_per_partition"),
            ("KEEPSAKE__QUOTA__TENANTS__ACME__RECALLS", "9", "quota.tenants.acme.recalls"),
            ("KEEPSAKE__EVENTS__KEEP_MS", "30", "events.keep_ms"),
            ("KEEPSAKE__EVENTS__KEEP_MS", "-2", "events.keep_ms"),
            ("KEEPSAKE__EMBEDDED__LISTEN", "nowhere", "embedded.listen"),
            ("KEEPSAKE__EMBEDDED__LISTEN", "0.0.0.0:9092", "Loopback only, always"),
            ("KEEPSAKE__RETAIN__DAYS", "0.04", "retain.days"),
            ("KEEPSAKE__RETAIN__DAYS", "-1", "retain.days"),
            ("KEEPSAKE__RETAIN__DAYS", "NaN", "retain.days"),
            ("KEEPSAKE__RETAIN__KINDS__FACT", "a month", "retain.kinds.fact"),
            ("KEEPSAKE__RETAIN__KINDS__FACT", "0.01", "retain.kinds.fact"),
            ("KEEPSAKE__RETAIN__TENANTS__ACME", "30", "retain.tenants.acme"),
            ("KEEPSAKE__RETAIN__TENANTS__ACME__DAYS", "inf", "retain.tenants.acme.days"),
        ] {
            let error = loaded(&[(name, value)]).expect_err(name);
            assert!(error.to_string().contains(named), "{name}: {error}");
            assert_eq!(error.exit_code(), 2);
        }
    }
}

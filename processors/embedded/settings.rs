//! The settings of topics and of the broker, by Kafka's names and with Kafka's defaults
//! ([topics](https://kafka.apache.org/documentation/#topicconfigs),
//! [brokers](https://kafka.apache.org/documentation/#brokerconfigs)).
//!
//! A setting that one node does not need, such as `flush.ms` where each record is synced before the
//! acknowledgement, is taken and has no effect. One that clients would notice and that is not built
//! can only have its default.

use std::collections::BTreeMap;

/// Replicas of a topic whose creator names no number.
pub const REPLICAS: i16 = 1;
/// Partitions of a topic whose creator names no number.
pub const PARTITIONS: i32 = 1;
/// Longest time for which a producer may keep a transaction open.
pub const TRANSACTION_MS_MAX: i32 = 15 * 60_000;
/// Shortest and longest session time of a member of a group. Kafka's shortest is 6 s; here no
/// network delays a heartbeat.
pub const SESSION_MS_MIN: i32 = 1_000;
pub const SESSION_MS_MAX: i32 = 30 * 60_000;
/// How long an empty group waits for more members before sharing out partitions.
pub const REBALANCE_DELAY_MS: i32 = 0;
/// How long the offsets of a group without members are kept, in minutes.
pub const OFFSETS_MINUTES: i32 = 7 * 24 * 60;

const WEEK_MS: &str = "604800000";

/// The settings of a topic that have an effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// `cleanup.policy` has `delete`: old segments are deleted.
    pub is_deleted: bool,
    /// `cleanup.policy` has `compact`: only the latest record of each key is kept.
    pub is_compacted: bool,
    /// -1 keeps records for ever.
    pub retention_ms: i64,
    /// Of each partition. -1 is without a bound.
    pub retention_bytes: i64,
    pub segment_bytes: u64,
    pub segment_ms: i64,
    /// Largest batch.
    pub message_bytes_max: usize,
    /// `message.timestamp.type` is `LogAppendTime`: the broker gives records their time.
    pub is_append_time: bool,
    /// How long tombstones stay after compaction first passed them.
    pub delete_retention_ms: i64,
    pub compaction_lag_ms_min: i64,
    pub compaction_lag_ms_max: i64,
    /// Share of bytes not yet cleaned from which compaction is worthwhile.
    pub dirty_ratio_min: f64,
}

/// The type of a value, with the number in `DescribeConfigs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Boolean = 1,
    String = 2,
    Int = 3,
    Long = 5,
    Double = 6,
    List = 7,
}

/// One setting in the answer to `DescribeConfigs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: &'static str,
    pub value: String,
    pub is_default: bool,
    pub kind: Kind,
}

/// Values that a setting may have.
enum Allowed {
    /// Numbers from here on, up to the largest of the kind.
    From(i64),
    Ratio,
    OneOf(&'static [&'static str]),
    /// One or several of these, separated by commas.
    SomeOf(&'static [&'static str]),
}

struct Setting {
    name: &'static str,
    kind: Kind,
    default: &'static str,
    allowed: Allowed,
}

const fn setting(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    allowed: Allowed,
) -> Setting {
    Setting { name, kind, default, allowed }
}

const FOR_EVER: &str = "9223372036854775807";
const ANY_BOOLEAN: Allowed = Allowed::OneOf(&["true", "false"]);

#[rustfmt::skip]
const OF_TOPICS: &[Setting] = &[
    setting("cleanup.policy", Kind::List, "delete", Allowed::SomeOf(&["compact", "delete"])),
    // Batches are kept as the producer compressed them.
    setting("compression.type", Kind::String, "producer", Allowed::OneOf(&["producer"])),
    setting("delete.retention.ms", Kind::Long, "86400000", Allowed::From(0)),
    setting("file.delete.delay.ms", Kind::Long, "60000", Allowed::From(0)),
    setting("flush.messages", Kind::Long, FOR_EVER, Allowed::From(1)),
    setting("flush.ms", Kind::Long, FOR_EVER, Allowed::From(0)),
    setting("index.interval.bytes", Kind::Int, "4096", Allowed::From(0)),
    setting("max.compaction.lag.ms", Kind::Long, FOR_EVER, Allowed::From(1)),
    setting("max.message.bytes", Kind::Int, "1048588", Allowed::From(0)),
    // Times of producers are not checked.
    setting("message.timestamp.after.max.ms", Kind::Long, FOR_EVER, Allowed::OneOf(&[FOR_EVER])),
    setting("message.timestamp.before.max.ms", Kind::Long, FOR_EVER, Allowed::OneOf(&[FOR_EVER])),
    setting("message.timestamp.type", Kind::String, "CreateTime", Allowed::OneOf(&["CreateTime", "LogAppendTime"])),
    setting("min.cleanable.dirty.ratio", Kind::Double, "0.5", Allowed::Ratio),
    setting("min.compaction.lag.ms", Kind::Long, "0", Allowed::From(0)),
    setting("min.insync.replicas", Kind::Int, "1", Allowed::OneOf(&["1"])),
    setting("preallocate", Kind::Boolean, "false", ANY_BOOLEAN),
    setting("remote.storage.enable", Kind::Boolean, "false", Allowed::OneOf(&["false"])),
    setting("retention.bytes", Kind::Long, "-1", Allowed::From(-1)),
    setting("retention.ms", Kind::Long, WEEK_MS, Allowed::From(-1)),
    setting("segment.bytes", Kind::Int, "1073741824", Allowed::From(14)),
    setting("segment.index.bytes", Kind::Int, "10485760", Allowed::From(4)),
    setting("segment.jitter.ms", Kind::Long, "0", Allowed::From(0)),
    setting("segment.ms", Kind::Long, WEEK_MS, Allowed::From(1)),
    setting("unclean.leader.election.enable", Kind::Boolean, "false", ANY_BOOLEAN),
];

impl Default for Settings {
    fn default() -> Settings {
        Settings::of(&BTreeMap::new())
    }
}

impl Settings {
    /// The settings of a topic that were checked when they came.
    pub fn of(own: &BTreeMap<String, String>) -> Settings {
        Settings::parse(own).unwrap_or_else(|_| {
            Settings::parse(&BTreeMap::new()).expect("the defaults are allowed")
        })
    }

    /// Reads the settings that a topic was given. The error is the message of `INVALID_CONFIG`.
    pub fn parse(own: &BTreeMap<String, String>) -> Result<Settings, String> {
        for (name, value) in own {
            let setting = OF_TOPICS.iter().find(|setting| setting.name == name);
            let setting = setting.ok_or_else(|| format!("unknown topic config name: {name}"))?;
            setting.check(value)?;
        }
        let number = |name| -> i64 { value(own, name).parse().unwrap_or_default() };
        let has_policy = |policy| list(value(own, "cleanup.policy")).any(|listed| listed == policy);
        let settings = Settings {
            is_deleted: has_policy("delete"),
            is_compacted: has_policy("compact"),
            retention_ms: number("retention.ms"),
            retention_bytes: number("retention.bytes"),
            segment_bytes: number("segment.bytes") as u64,
            segment_ms: number("segment.ms"),
            message_bytes_max: number("max.message.bytes") as usize,
            is_append_time: value(own, "message.timestamp.type") == "LogAppendTime",
            delete_retention_ms: number("delete.retention.ms"),
            compaction_lag_ms_min: number("min.compaction.lag.ms"),
            compaction_lag_ms_max: number("max.compaction.lag.ms"),
            dirty_ratio_min: value(own, "min.cleanable.dirty.ratio").parse().unwrap_or_default(),
        };
        let (min, max) = (settings.compaction_lag_ms_min, settings.compaction_lag_ms_max);
        if min > max {
            return Err(format!(
                "min.compaction.lag.ms ({min}) must not be more than max.compaction.lag.ms ({max})"
            ));
        }
        Ok(settings)
    }
}

/// Returns all settings of a topic for `DescribeConfigs`. `own` are those that the topic was given.
pub fn describe(own: &BTreeMap<String, String>) -> Vec<Entry> {
    let entries = OF_TOPICS.iter().map(|setting| Entry {
        name: setting.name,
        value: value(own, setting.name).to_owned(),
        is_default: !own.contains_key(setting.name),
        kind: setting.kind,
    });
    entries.collect()
}

/// Returns the settings of the broker for `DescribeConfigs`. Nobody can change them.
pub fn describe_broker() -> Vec<Entry> {
    let of_topics = [
        ("log.cleaner.delete.retention.ms", "delete.retention.ms"),
        ("log.cleaner.max.compaction.lag.ms", "max.compaction.lag.ms"),
        ("log.cleaner.min.cleanable.ratio", "min.cleanable.dirty.ratio"),
        ("log.cleaner.min.compaction.lag.ms", "min.compaction.lag.ms"),
        ("log.cleanup.policy", "cleanup.policy"),
        ("log.message.timestamp.type", "message.timestamp.type"),
        ("log.retention.bytes", "retention.bytes"),
        ("log.retention.ms", "retention.ms"),
        ("log.roll.ms", "segment.ms"),
        ("log.segment.bytes", "segment.bytes"),
        ("message.max.bytes", "max.message.bytes"),
        ("min.insync.replicas", "min.insync.replicas"),
    ];
    let numbers = [
        ("default.replication.factor", i32::from(REPLICAS)),
        ("group.initial.rebalance.delay.ms", REBALANCE_DELAY_MS),
        ("group.max.session.timeout.ms", SESSION_MS_MAX),
        ("group.min.session.timeout.ms", SESSION_MS_MIN),
        ("num.partitions", PARTITIONS),
        ("offsets.retention.minutes", OFFSETS_MINUTES),
        ("transaction.max.timeout.ms", TRANSACTION_MS_MAX),
    ];
    let of_topics = of_topics.into_iter().filter_map(|(name, topics)| {
        let setting = OF_TOPICS.iter().find(|setting| setting.name == topics)?;
        Some(Entry { name, value: setting.default.into(), is_default: true, kind: setting.kind })
    });
    let numbers = numbers.into_iter().map(|(name, value)| Entry {
        name,
        value: value.to_string(),
        is_default: true,
        kind: Kind::Int,
    });
    of_topics.chain(numbers).collect()
}

impl Setting {
    fn check(&self, value: &str) -> Result<(), String> {
        let max = if self.kind == Kind::Int { i64::from(i32::MAX) } else { i64::MAX };
        let expected = match self.allowed {
            Allowed::From(min) => {
                if value.parse().is_ok_and(|number: i64| (min..=max).contains(&number)) {
                    return Ok(());
                }
                format!("a number from {min} to {max}")
            }
            Allowed::Ratio => {
                if value.parse().is_ok_and(|ratio: f64| (0.0..=1.0).contains(&ratio)) {
                    return Ok(());
                }
                "a number from 0 to 1".to_owned()
            }
            Allowed::OneOf(values) => {
                if values.contains(&value) {
                    return Ok(());
                }
                values.join(" or ")
            }
            Allowed::SomeOf(values) => {
                if list(value).all(|listed| values.contains(&listed)) {
                    return Ok(());
                }
                format!("a list of {}", values.join(" and "))
            }
        };
        Err(format!("invalid value {value:?} for {}: it must be {expected}", self.name))
    }
}

/// The value of a known setting.
fn value<'a>(own: &'a BTreeMap<String, String>, name: &str) -> &'a str {
    let default = OF_TOPICS.iter().find(|setting| setting.name == name);
    own.get(name).map(String::as_str).or(default.map(|setting| setting.default)).unwrap_or_default()
}

fn list(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(own: &[(&str, &str)]) -> Result<Settings, String> {
        Settings::parse(&map(own))
    }

    fn map(own: &[(&str, &str)]) -> BTreeMap<String, String> {
        own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn settings_are_kafkas_defaults_unless_given() {
        let defaults = Settings {
            is_deleted: true,
            is_compacted: false,
            retention_ms: 604_800_000,
            retention_bytes: -1,
            segment_bytes: 1 << 30,
            segment_ms: 604_800_000,
            message_bytes_max: 1_048_588,
            is_append_time: false,
            delete_retention_ms: 86_400_000,
            compaction_lag_ms_min: 0,
            compaction_lag_ms_max: i64::MAX,
            dirty_ratio_min: 0.5,
        };
        assert_eq!(parse(&[]), Ok(defaults.clone()));
        let memories = parse(&[
            ("cleanup.policy", "compact"),
            ("message.timestamp.type", "LogAppendTime"),
            ("delete.retention.ms", "5184000000"),
            ("max.compaction.lag.ms", "43200000"),
            ("max.message.bytes", "2162688"),
            ("min.insync.replicas", "1"),
        ]);
        let expected = Settings {
            is_deleted: false,
            is_compacted: true,
            message_bytes_max: 2_162_688,
            is_append_time: true,
            delete_retention_ms: 5_184_000_000,
            compaction_lag_ms_max: 43_200_000,
            ..defaults
        };
        assert_eq!(memories, Ok(expected));
        let both = parse(&[("cleanup.policy", "compact, delete")]).unwrap();
        assert!(both.is_compacted && both.is_deleted);
    }

    #[test]
    fn unknown_names_and_bad_values_are_refused_with_a_sentence() {
        for (name, value, message) in [
            ("retention.days", "1", "unknown topic config name: retention.days"),
            (
                "retention.ms",
                "-2",
                "invalid value \"-2\" for retention.ms: it must be a number from -1 to \
                 9223372036854775807",
            ),
            (
                "max.message.bytes",
                "2147483648",
                "invalid value \"2147483648\" for max.message.bytes: it must be a number from 0 to \
                 2147483647",
            ),
            (
                "cleanup.policy",
                "shred",
                "invalid value \"shred\" for cleanup.policy: it must be a list of compact and delete",
            ),
            (
                "compression.type",
                "zstd",
                "invalid value \"zstd\" for compression.type: it must be producer",
            ),
            (
                "min.insync.replicas",
                "2",
                "invalid value \"2\" for min.insync.replicas: it must be 1",
            ),
            (
                "min.cleanable.dirty.ratio",
                "1.5",
                "invalid value \"1.5\" for min.cleanable.dirty.ratio: it must be a number from 0 to 1",
            ),
        ] {
            assert_eq!(parse(&[(name, value)]), Err(message.to_owned()));
        }
        let lags = parse(&[("min.compaction.lag.ms", "9"), ("max.compaction.lag.ms", "8")]);
        let message = "min.compaction.lag.ms (9) must not be more than max.compaction.lag.ms (8)";
        assert_eq!(lags, Err(message.to_owned()));
    }

    #[test]
    fn each_setting_is_described_by_its_value_and_may_have_its_default() {
        let own = map(&[("retention.ms", "5")]);
        let entries = describe(&own);
        assert_eq!(entries.len(), OF_TOPICS.len());
        for entry in &entries {
            assert_eq!(entry.is_default, entry.name != "retention.ms");
            let value = (entry.name.to_owned(), entry.value.clone());
            assert!(Settings::parse(&BTreeMap::from([value])).is_ok(), "{}", entry.name);
        }
        let retention = entries.into_iter().find(|entry| !entry.is_default).unwrap();
        assert_eq!((retention.value.as_str(), retention.kind), ("5", Kind::Long));
    }

    #[test]
    fn the_broker_shows_its_own_settings() {
        let entries = describe_broker();
        let value = |name| entries.iter().find(|e| e.name == name).map(|e| e.value.as_str());
        assert_eq!(value("default.replication.factor"), Some("1"));
        assert_eq!(value("message.max.bytes"), Some("1048588"));
        assert_eq!(value("log.segment.bytes"), Some("1073741824"));
        assert_eq!(entries.len(), 19);
    }
}

//! Judges how the topics are set on the brokers. Pure: the facts are an argument.
//!
//! A setting that loses or stalls data stops the service. One that only makes data less safe, or
//! keeps forgotten texts longer than promised, is a warning. A broker that does not show its
//! settings is believed.

use super::topics::{BATCH_BYTES, topics};
use domain::fault::{Fault, Result, StopName};
use kafka::{ClusterFacts, TopicSpec};
use serde::Serialize;
use settings::Config;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Verdict {
    Fine,
    Warning,
    Stop,
}

/// One setting of a topic: the present value and the right one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    pub topic: String,
    pub setting: &'static str,
    pub value: String,
    pub expected: String,
    pub verdict: Verdict,
    /// The consequence of a wrong value. Empty if the value is right.
    pub why: &'static str,
}

/// Returns a finding for each setting that matters, topic by topic.
pub fn findings(config: &Config, facts: &ClusterFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    for spec in topics(config) {
        let Some(topic) = facts.topics.get(&spec.name) else { continue };
        match &topic.settings {
            Ok(settings) => {
                of_settings(config, &spec, settings, &mut findings);
                if is_shortened(config, &spec) {
                    of_shortened(&spec, settings, &topic.own, &mut findings);
                }
            }
            Err(why) if is_shortened(config, &spec) => findings.push(Finding {
                topic: spec.name.clone(),
                setting: "settings",
                value: why.clone(),
                expected: "readable".to_owned(),
                verdict: Verdict::Stop,
                why: NOT_OURS,
            }),
            Err(why) => findings.push(Finding {
                topic: spec.name.clone(),
                setting: "settings",
                value: why.clone(),
                expected: "readable".to_owned(),
                verdict: Verdict::Warning,
                why: "the broker does not show the settings, so they are not checked",
            }),
        }
        if is_precious(config, &spec) {
            let expected = facts.brokers.min(3);
            findings.push(Finding {
                topic: spec.name.clone(),
                setting: "replicas",
                value: topic.replicas.to_string(),
                expected: format!("at least {expected}"),
                verdict: if topic.replicas >= expected { Verdict::Fine } else { Verdict::Warning },
                why: "a broker that is lost takes what only it has",
            });
        }
    }
    for finding in findings.iter_mut().filter(|finding| finding.verdict == Verdict::Fine) {
        finding.why = "";
    }
    findings
}

/// A topic that differs from the asked settings, with the cure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    pub topic: String,
    pub setting: &'static str,
    pub value: String,
    pub asked: String,
    pub cure: String,
}

/// Compares the topics that exist with the asked ones: a topic that exists already is not changed,
/// and may be of a service that was started before anybody chose. `found` maps the name of each
/// topic to the number of partitions. A later generation has chosen that number by itself.
pub fn differences(
    config: &Config,
    asked: &[TopicSpec],
    found: &BTreeMap<String, i32>,
    facts: &ClusterFacts,
) -> Vec<Difference> {
    let mut differences = Vec::new();
    for spec in asked {
        let topic = &spec.name;
        let mut compare = |setting, value: String, asked: String, cure: String| {
            if value != asked {
                differences.push(Difference { topic: topic.clone(), setting, value, asked, cure });
            }
        };
        if config.kafka.generation == 1
            && let Some(partitions) = found.get(topic)
        {
            let cure = "set topics.partitions to this number, or see `keepsake generation --help` \
                        to grow";
            let asked = spec.partitions.to_string();
            compare("partitions", partitions.to_string(), asked, cure.to_owned());
        }
        let Some(topic_facts) = facts.topics.get(topic) else { continue };
        if spec.replication > 0 {
            let cure = "kafka-reassign-partitions.sh adds replicas; a topic without records can be \
                        deleted and made again";
            let value = topic_facts.replicas.to_string();
            compare("replicas", value, spec.replication.to_string(), cure.to_owned());
        }
        for (setting, asked) in &spec.settings {
            let Some(value) = topic_facts.settings.as_ref().ok().and_then(|all| all.get(*setting))
            else {
                continue;
            };
            let cure = format!(
                "kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config \
                 {setting}={asked}"
            );
            compare(setting, value.clone(), asked.clone(), cure);
        }
    }
    differences
}

/// Returns the first finding that stops the service, as a fault.
pub fn first_stop(findings: &[Finding]) -> Result<()> {
    let Some(found) = findings.iter().find(|found| found.verdict == Verdict::Stop) else {
        return Ok(());
    };
    let Finding { topic, setting, value, expected, why, .. } = found;
    let what = format!(
        "topic {topic} has {setting} = {value} instead of {expected}: {why}; change it with \
         `kafka-configs.sh --alter --entity-type topics --entity-name {topic}`, and see \
         `keepsake topics check`"
    );
    Err(Fault::stop(StopName::TopicMisconfigured, what))
}

/// Returns for how long the memories topic keeps tombstones, if the broker reports that.
pub fn tombstones_ms(config: &Config, facts: &ClusterFacts) -> Option<i64> {
    let settings = facts.topics.get(&config.topics.memories())?.settings.as_ref().ok()?;
    settings.get("delete.retention.ms")?.parse().ok()
}

/// The longest record that each topic takes: as the broker shows, else as Keepsake makes the topic.
pub fn record_sizes(config: &Config, facts: &ClusterFacts) -> BTreeMap<String, usize> {
    const SIZE: &str = "max.message.bytes";
    let sizes = topics(config).into_iter().map(|spec| {
        let own = spec.settings.iter().find(|(name, _)| *name == SIZE).map(|(_, value)| value);
        let topic = facts.topics.get(&spec.name);
        let shown = topic.and_then(|topic| topic.settings.as_ref().ok()?.get(SIZE));
        let size = shown.or(own).and_then(|size| size.parse::<usize>().ok()).unwrap_or(usize::MAX);
        (spec.name, size.saturating_sub(BATCH_BYTES))
    });
    sizes.collect()
}

/// True for the topics of which nobody writes a lost record again.
fn is_precious(config: &Config, spec: &TopicSpec) -> bool {
    spec.name == config.topics.events()
        || spec.name == config.topics.erasures()
        || has_states(config, spec)
}

/// True for the topics that hold the newest state of each memory.
fn has_states(config: &Config, spec: &TopicSpec) -> bool {
    [config.topics.memories(), config.topics.tenants()].contains(&spec.name)
}

/// True for the events topic if `events.keep_ms` deletes events.
fn is_shortened(config: &Config, spec: &TopicSpec) -> bool {
    config.events.keep_ms > 0 && spec.name == config.topics.events()
}

const NOT_OURS: &str = "events.keep_ms deletes records for all readers, so only from a topic that \
                        itself carries each setting that Keepsake gives it";

/// Judges the topic from which `events.keep_ms` deletes. Each setting that Keepsake gives must
/// stand on the topic itself, with this very value: a topic of somebody else has other ones, or
/// those of its brokers.
fn of_shortened(
    spec: &TopicSpec,
    settings: &BTreeMap<String, String>,
    own: &BTreeSet<String>,
    findings: &mut Vec<Finding>,
) {
    for (setting, wanted) in &spec.settings {
        let is_own = own.contains(*setting);
        let value = settings.get(*setting).map_or("unknown", String::as_str);
        let is_fine = is_own && value == wanted;
        findings.retain(|found| found.topic != spec.name || found.setting != *setting);
        findings.push(Finding {
            topic: spec.name.clone(),
            setting,
            value: if is_own { value.to_owned() } else { format!("{value} (of the brokers)") },
            expected: format!("{wanted} (of the topic)"),
            verdict: if is_fine { Verdict::Fine } else { Verdict::Stop },
            why: NOT_OURS,
        });
    }
}

fn number(value: &str) -> i64 {
    value.parse().unwrap_or(0)
}

/// A topic with its settings, which are judged one by one.
struct Judged<'a> {
    spec: &'a TopicSpec,
    settings: &'a BTreeMap<String, String>,
    findings: &'a mut Vec<Finding>,
}

impl Judged<'_> {
    fn judge(
        &mut self,
        setting: &'static str,
        expected: String,
        otherwise: Verdict,
        why: &'static str,
        is_fine: impl Fn(&str) -> bool,
    ) {
        let Some(value) = self.settings.get(setting) else { return };
        let verdict = if is_fine(value) { Verdict::Fine } else { otherwise };
        let (topic, value) = (self.spec.name.clone(), value.clone());
        self.findings.push(Finding { topic, setting, value, expected, verdict, why });
    }

    fn wanted(&self, setting: &str) -> i64 {
        let found = self.spec.settings.iter().find(|(name, _)| *name == setting);
        found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
    }

    fn judge_states(&mut self, config: &Config) {
        self.judge(
            "cleanup.policy",
            "compact".to_owned(),
            Verdict::Stop,
            "the broker deletes memories by their age, and whoever reads the topic later lacks them",
            |value| value == "compact",
        );
        let kept = self.wanted("delete.retention.ms");
        self.judge(
            "message.timestamp.type",
            "LogAppendTime".to_owned(),
            Verdict::Warning,
            "a store that a process with a wrong clock wrote may count as younger than it is, and \
             what is forgotten may come back there",
            |value| value == "LogAppendTime",
        );
        self.judge(
            "delete.retention.ms",
            format!("at least {kept}"),
            Verdict::Warning,
            "a store that was away for half of this time is rebuilt, sooner than configured",
            |value| number(value) >= kept,
        );
        let lag = config.forget.within_ms as i64;
        self.judge(
            "max.compaction.lag.ms",
            format!("at most {lag}"),
            Verdict::Warning,
            "earlier states of forgotten memories stay in the topic for longer than forget.within_ms",
            |value| number(value) <= lag,
        );
    }

    fn judge_events(&mut self) {
        self.judge(
            "retention.ms",
            "-1".to_owned(),
            Verdict::Warning,
            "events that are older before they are read are lost, and shards cannot be rebuilt from \
             events",
            |value| number(value) < 0,
        );
        self.judge(
            "message.timestamp.type",
            "CreateTime".to_owned(),
            Verdict::Warning,
            "an event without a time gets that of its arrival, and another one where it is forwarded \
             to",
            |value| value == "CreateTime",
        );
    }
}

fn of_settings(
    config: &Config,
    spec: &TopicSpec,
    settings: &BTreeMap<String, String>,
    findings: &mut Vec<Finding>,
) {
    let mut judged = Judged { spec, settings, findings };
    if has_states(config, spec) {
        judged.judge_states(config);
    } else {
        judged.judge(
            "cleanup.policy",
            "delete".to_owned(),
            Verdict::Stop,
            "the broker keeps only the newest record of each user",
            |value| value == "delete",
        );
    }
    if spec.name == config.topics.events() {
        judged.judge_events();
    }
    if spec.name == config.topics.erasures() {
        let kept = judged.wanted("retention.ms");
        judged.judge(
            "retention.ms",
            format!("at least {kept}"),
            Verdict::Warning,
            "receipts of erasures are lost before their time",
            |value| number(value) < 0 || number(value) >= kept,
        );
    }
    // A reply or a decision is almost always small, and a reply that is too large becomes an error.
    let is_large = [config.topics.replies(), config.topics.decisions(), config.topics.erasures()]
        .contains(&spec.name);
    let bytes = judged.wanted("max.message.bytes");
    judged.judge(
        "max.message.bytes",
        format!("at least {bytes}"),
        if is_large { Verdict::Warning } else { Verdict::Stop },
        "a record that was accepted does not fit where it is written next, and is tried for ever \
         (or lower limits.message_bytes_max)",
        |value| number(value) >= bytes,
    );
    if is_precious(config, spec) {
        judged.judge(
            "unclean.leader.election.enable",
            "false".to_owned(),
            Verdict::Warning,
            "a broker that lacks acknowledged records may lead, and they are lost",
            |value| value == "false",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kafka::TopicFacts;
    use settings::Layers;

    fn config() -> Config {
        with_events_kept("0")
    }

    fn with_events_kept(ms: &str) -> Config {
        let mut layers = Layers::defaults();
        layers.set("kafka.bootstrap_servers", "x:1", "test").expect("an option");
        layers.set("events.keep_ms", ms, "test").expect("an option");
        layers.checked().expect("valid")
    }

    /// The topics as Keepsake makes them, with one setting changed.
    fn facts(topic: &str, setting: &str, value: &str) -> ClusterFacts {
        facts_of(&config(), topic, setting, value)
    }

    fn facts_of(config: &Config, topic: &str, setting: &str, value: &str) -> ClusterFacts {
        let topics = topics(config).into_iter().map(|spec| {
            let own = spec.settings.iter().map(|(name, _)| (*name).to_owned()).collect();
            let mut settings: BTreeMap<String, String> = spec
                .settings
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect();
            settings.entry("cleanup.policy".into()).or_insert("delete".into());
            if spec.name.ends_with(topic) {
                settings.insert(setting.to_owned(), value.to_owned());
            }
            (spec.name, TopicFacts { replicas: 3, settings: Ok(settings), own })
        });
        ClusterFacts { brokers: 3, topics: topics.collect() }
    }

    fn verdicts(topic: &str, setting: &str, value: &str) -> Vec<Verdict> {
        let found = findings(&config(), &facts(topic, setting, value));
        let all = found.iter().filter(|found| found.verdict != Verdict::Fine);
        all.map(|found| found.verdict).collect()
    }

    #[test]
    fn what_keepsake_makes_is_fine_and_what_loses_data_stops() {
        assert_eq!(verdicts("", "", ""), []);
        for (topic, setting, value, expected) in [
            ("memories", "cleanup.policy", "delete", Verdict::Stop),
            ("memories", "cleanup.policy", "compact,delete", Verdict::Stop),
            ("events", "cleanup.policy", "compact", Verdict::Stop),
            ("events", "max.message.bytes", "1048588", Verdict::Stop),
            ("memories", "max.message.bytes", "1048588", Verdict::Stop),
            ("dead-letters", "max.message.bytes", "1048588", Verdict::Stop),
            ("replies", "max.message.bytes", "1048588", Verdict::Warning),
            ("memories", "delete.retention.ms", "86400000", Verdict::Warning),
            ("memories", "message.timestamp.type", "CreateTime", Verdict::Warning),
            ("memories", "max.compaction.lag.ms", "9223372036854775807", Verdict::Warning),
            ("events", "retention.ms", "604800000", Verdict::Warning),
            ("events", "message.timestamp.type", "LogAppendTime", Verdict::Warning),
            ("erasures", "retention.ms", "604800000", Verdict::Warning),
            ("memories", "unclean.leader.election.enable", "true", Verdict::Warning),
            ("tenants", "cleanup.policy", "delete", Verdict::Stop),
            ("tenants", "max.message.bytes", "1048588", Verdict::Stop),
            ("tenants", "delete.retention.ms", "86400000", Verdict::Warning),
            ("tenants", "message.timestamp.type", "CreateTime", Verdict::Warning),
            ("tenants", "max.compaction.lag.ms", "9223372036854775807", Verdict::Warning),
            ("tenants", "unclean.leader.election.enable", "true", Verdict::Warning),
        ] {
            assert_eq!(verdicts(topic, setting, value), [expected], "{topic} {setting} {value}");
        }
    }

    #[test]
    fn events_are_deleted_only_from_a_topic_with_each_setting_that_keepsake_gives() {
        let config = with_events_kept("3600000");
        let stops = |facts: &ClusterFacts| {
            let found = findings(&config, facts);
            let stops = found.into_iter().filter(|found| found.verdict == Verdict::Stop);
            stops.map(|found| found.setting).collect::<Vec<_>>()
        };
        assert_eq!(stops(&facts_of(&config, "", "", "")), [""; 0]);
        for (setting, value) in [
            ("retention.ms", "604800000"),
            ("message.timestamp.type", "LogAppendTime"),
            ("segment.ms", "604800000"),
            ("max.message.bytes", "9000000"),
        ] {
            assert_eq!(stops(&facts_of(&config, "events", setting, value)), [setting], "{value}");
            let mut facts = facts_of(&config, "", "", "");
            for topic in facts.topics.values_mut() {
                topic.own.remove(setting);
            }
            assert_eq!(stops(&facts), [setting], "of the brokers");
        }
        let mut facts = facts_of(&config, "", "", "");
        for topic in facts.topics.values_mut() {
            topic.settings = Err("not allowed".into());
        }
        assert_eq!(stops(&facts), ["settings"], "a topic that nobody can look at");
        assert_eq!(
            stops(&facts_of(&with_events_kept("0"), "", "", "")),
            ["segment.ms"],
            "made before the option was set"
        );
    }

    #[test]
    fn a_topic_that_differs_from_what_is_asked_is_named_with_the_cure() {
        let mut config = config();
        config.topics.replication = 3;
        let asked = topics(&config);
        let found = || asked.iter().map(|spec| (spec.name.clone(), spec.partitions)).collect();
        let named = |config: &Config, found: &BTreeMap<String, i32>, facts: &ClusterFacts| {
            let all = differences(config, &topics(config), found, facts);
            all.into_iter().map(|one| (one.topic, one.setting, one.cure)).collect::<Vec<_>>()
        };
        let made = facts("", "", "");
        assert_eq!(named(&config, &found(), &made), []);
        let mut one_replica = made.clone();
        one_replica.topics.values_mut().for_each(|topic| topic.replicas = 1);
        assert_eq!(named(&config, &found(), &one_replica).len(), 8);
        config.topics.replication = -1;
        assert_eq!(named(&config, &found(), &one_replica), [], "the broker's default");
        let mut fewer: BTreeMap<String, i32> = found();
        fewer.insert("keepsake.events".into(), 1);
        let differing = named(&config, &fewer, &made);
        assert_eq!((&*differing[0].0, differing[0].1), ("keepsake.events", "partitions"));
        assert!(differing[0].2.contains("topics.partitions"), "{differing:?}");
        let kept = facts("memories", "delete.retention.ms", "1");
        let differing = named(&config, &found(), &kept);
        assert!(differing[0].2.contains("--add-config delete.retention.ms="), "{differing:?}");
        config.kafka.generation = 2;
        assert_eq!(named(&config, &fewer, &ClusterFacts::default()), [], "another generation");
    }

    #[test]
    fn few_replicas_and_unreadable_settings_are_warnings() {
        let mut facts = facts("", "", "");
        for topic in facts.topics.values_mut() {
            topic.replicas = 1;
            topic.settings = Err("not allowed".into());
        }
        let found = findings(&config(), &facts);
        assert_eq!(found.len(), 8 + 4);
        assert!(found.iter().all(|found| found.verdict == Verdict::Warning));
        assert!(first_stop(&found).is_ok());
        assert_eq!(tombstones_ms(&config(), &facts), None);
    }
}

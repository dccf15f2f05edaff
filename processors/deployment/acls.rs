//! The least rights at Kafka of each role: the service, those who publish, those who ask, the
//! gateway, operators, the job that backs up, those who restore or grow a service, and `keepsake map`. Pure:
//! follows from the configuration alone.
//!
//! A right that nothing needs is not listed: the tests `rights` of `tests/rights.rs` and
//! `rights_of_those_who_move_data` of `tests/rights/moving.rs` take each listed right away and see
//! the role fail. Describe is implied by Read, Write and Delete, and IdempotentWrite by Write on
//! any topic since Kafka 2.8
//! ([KIP-679](https://cwiki.apache.org/confluence/display/KAFKA/KIP-679%3A+Producer+will+enable+the+strongest+delivery+guarantee+by+default)).

use crate::growth::{builder_id, waiting_group};
use serde::Serialize;
use settings::Config;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Role {
    Service,
    Publisher,
    Asker,
    Gateway,
    Operator,
    /// Runs backups and changes nothing.
    Backup,
    /// Restores a backup, builds the next generation, and cuts over.
    Mover,
    /// Reads the topic of another application as turns.
    Mapper,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::Display)]
pub enum Resource {
    Topic,
    Group,
    TransactionalId,
    Cluster,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::Display)]
pub enum Operation {
    Read,
    Write,
    Create,
    Delete,
    Alter,
    Describe,
    DescribeConfigs,
}

/// A right, as an entry of Kafka's access control lists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Acl {
    pub role: Role,
    pub resource: Resource,
    pub name: String,
    /// The name is the beginning of a name.
    pub is_prefix: bool,
    pub operation: Operation,
    pub why: &'static str,
}

/// Kafka's name of the only resource of the kind `Cluster`.
const CLUSTER: &str = "kafka-cluster";

/// Returns the access control lists of all roles.
pub fn acls(config: &Config) -> Vec<Acl> {
    let mut all = Vec::new();
    service(config, &mut List { role: Role::Service, acls: &mut all });
    publisher(config, &mut List { role: Role::Publisher, acls: &mut all });
    asker(config, &mut List { role: Role::Asker, acls: &mut all });
    gateway(config, &mut List { role: Role::Gateway, acls: &mut all });
    operator(config, &mut List { role: Role::Operator, acls: &mut all });
    backup(config, &mut List { role: Role::Backup, acls: &mut all });
    mover(config, &mut List { role: Role::Mover, acls: &mut all });
    mapper(config, &mut List { role: Role::Mapper, acls: &mut all });
    all
}

struct List<'a> {
    role: Role,
    acls: &'a mut Vec<Acl>,
}

impl List<'_> {
    fn add(&mut self, resource: Resource, name: String, operation: Operation, why: &'static str) {
        let role = self.role;
        let is_prefix = name.ends_with('*');
        let name = name.trim_end_matches('*').to_owned();
        self.acls.push(Acl { role, resource, name, is_prefix, operation, why });
    }

    fn topic(&mut self, name: String, operation: Operation, why: &'static str) {
        self.add(Resource::Topic, name, operation, why);
    }

    fn group(&mut self, name: impl Into<String>, operation: Operation, why: &'static str) {
        self.add(Resource::Group, name.into(), operation, why);
    }
}

fn service(config: &Config, list: &mut List<'_>) {
    use Operation::{Delete, Describe, DescribeConfigs, Read, Write};
    let topics = &config.topics;
    let group = &config.kafka.group_id;
    list.topic(topics.events(), Read, "apply events");
    list.topic(topics.events(), Write, "forward events, propose what to compact, erase the rest");
    list.topic(topics.recalls(), Read, "answer requests");
    list.topic(topics.recalls(), Write, "forward requests");
    list.topic(topics.memories(), Read, "restore shards");
    list.topic(topics.memories(), Write, "publish states of memories");
    list.topic(topics.tenants(), Read, "follow the memories of tenants");
    list.topic(topics.tenants(), Write, "publish states of the memories of tenants");
    list.topic(topics.decisions(), Write, "publish decisions");
    list.topic(topics.erasures(), Write, "publish receipts of what was erased");
    list.topic(topics.dead_letters(), Write, "put aside what cannot be processed");
    list.topic(topics.replies(), Write, "answer");
    for pattern in topics.reply_allowed.iter().filter(|pattern| **pattern != topics.replies()) {
        list.topic(pattern.clone(), Write, "answer on this topic");
    }
    for topic in settings(config) {
        list.topic(topic, DescribeConfigs, "check the settings of the topic at start");
    }
    list.group(group, Read, "share out the events partitions");
    list.group(format!("{group}-recalls"), Read, "note which requests are answered");
    // The id of a transaction is the group and the id of the store.
    let ids = format!("{group}-*");
    list.add(Resource::TransactionalId, ids, Write, "commit a batch as one transaction");
    let next = config.of_generation(config.kafka.generation + 1);
    let why = "find out whether the next generation has taken over";
    list.topic(next.topics.memories(), Describe, why);
    list.group(next.kafka.group_id, Describe, why);
    if config.kafka.generation > 1 {
        list.group(waiting_group(config), Read, "wait for the cut-over to this generation");
    }
    if config.events.keep_ms > 0 {
        list.topic(topics.events(), Delete, "delete old events");
        list.group(config.kafka.old_events_group_id(), Read, "note which events are old");
    }
}

fn publisher(config: &Config, list: &mut List<'_>) {
    list.topic(config.topics.events(), Operation::Write, "publish events");
}

fn asker(config: &Config, list: &mut List<'_>) {
    use Operation::{Read, Write};
    list.topic(config.topics.recalls(), Write, "ask");
    list.topic(config.topics.replies(), Read, "read the answers");
}

fn gateway(config: &Config, list: &mut List<'_>) {
    use Operation::{Describe, Read, Write};
    let topics = &config.topics;
    list.topic(topics.events(), Write, "publish events");
    list.topic(topics.events(), Read, "show an event, and the age of the oldest that waits");
    list.topic(topics.recalls(), Write, "ask");
    list.topic(topics.replies(), Read, "read the answers");
    list.topic(topics.decisions(), Read, "stream decisions");
    list.topic(topics.erasures(), Read, "show receipts of what was erased, and hide its words");
    list.topic(topics.memories(), Read, "find the user of a memory by its id alone, count users");
    list.topic(topics.dead_letters(), Read, "list dead letters and send them again");
    list.group(config.kafka.group_id.clone(), Describe, "show how far each shard has come");
    let next = config.of_generation(config.kafka.generation + 1);
    let why = "find out whether the next generation has taken over";
    list.topic(next.topics.memories(), Describe, why);
    list.group(next.kafka.group_id, Describe, why);
}

fn operator(config: &Config, list: &mut List<'_>) {
    use Operation::{Create, DescribeConfigs, Read, Write};
    let topics = &config.topics;
    list.topic(topics.events(), Read, "export, search for what is left of a user");
    list.topic(topics.events(), Write, "forget, import, wake the compaction worker, redrive");
    list.topic(topics.recalls(), Read, "search for what is left of a user");
    list.topic(topics.recalls(), Write, "ask, list, export, import, redrive");
    list.topic(topics.replies(), Read, "read the answers");
    list.topic(topics.decisions(), Read, "export, watch decisions");
    list.topic(topics.memories(), Read, "verify, export of several users");
    let why = "search for what is left of a user";
    list.topic(topics.tenants(), Read, why);
    if config.kafka.generation > 1 {
        let before = config.of_generation(config.kafka.generation - 1);
        list.topic(before.topics.memories(), Read, why);
        list.topic(before.topics.tenants(), Read, why);
    }
    list.topic(
        topics.erasures(),
        Read,
        "search for what is left of a user, hide what was erased from decisions and exports",
    );
    list.topic(topics.dead_letters(), Read, "list dead letters");
    for topic in settings(config) {
        list.topic(topic.clone(), Create, "create the topic");
        list.topic(topic, DescribeConfigs, "check the settings of the topic");
    }
    default_replication(config, list);
    list.group(format!("{}-dlq", config.kafka.group_id), Read, "note what was redriven");
}

/// Reads alone: whoever has the password of the job can change nothing.
fn backup(config: &Config, list: &mut List<'_>) {
    use Operation::{Describe, Read};
    let topics = &config.topics;
    let read = [topics.events(), topics.memories()];
    list.topic(topics.events(), Read, "copy the events that are not applied yet");
    list.topic(topics.memories(), Read, "copy the shards");
    for topic in settings(config).into_iter().filter(|topic| !read.contains(topic)) {
        list.topic(topic, Describe, "check that all topics of the service are there");
    }
}

/// The rights to restore into the topics of the configuration, and to replace its generation by the
/// next one.
fn mover(config: &Config, list: &mut List<'_>) {
    use Operation::{Alter, Create, Delete, Describe, DescribeConfigs, Read, Write};
    let (topics, group) = (&config.topics, &config.kafka.group_id);
    let next = config.of_generation(config.kafka.generation + 1);
    list.topic(topics.memories(), Write, "restore shards");
    list.topic(topics.events(), Write, "restore events, mark the steps of a cut-over");
    list.topic(topics.events(), Read, "compare events, commit where the next generation begins");
    list.topic(topics.events(), Delete, "delete the ticks by which a restore numbers events");
    list.topic(topics.events(), Alter, "add partitions");
    list.topic(topics.memories(), Read, "compare what a restore has written, build from it");
    list.topic(topics.tenants(), Read, "see that a restore has no tenants of before in its way");
    for topic in [topics.memories(), topics.tenants()] {
        list.topic(topic, Delete, "delete a generation that was cut over");
    }
    list.topic(topics.erasures(), Read, "find forgets that came after a backup");
    for topic in [topics.decisions(), topics.dead_letters()] {
        list.topic(topic, Describe, "check that all topics of the service are there");
    }
    if config.events.keep_ms > 0 {
        let why = "check the settings of the topic before a restore";
        list.topic(topics.events(), DescribeConfigs, why);
    }
    let memories = next.topics.memories();
    list.topic(memories.clone(), Create, "begin a generation");
    list.topic(memories.clone(), Write, "build a generation");
    list.topic(memories.clone(), Read, "go on with a build, compare it");
    for topic in [memories, next.topics.tenants()] {
        list.topic(topic, Delete, "delete a generation that is not cut over");
    }
    default_replication(config, list);
    list.topic(topics.replies(), Read, "see the new shards answer");
    list.topic(topics.recalls(), Read, "commit which requests are answered");
    list.topic(topics.recalls(), Write, "ask the new shards");
    list.topic(topics.recalls(), Alter, "add partitions");
    list.group(group.clone(), Describe, "see that no process of the service runs any more");
    list.group(format!("{group}-recalls"), Describe, "find out which requests are answered");
    let build = builder_id(&next);
    list.add(Resource::TransactionalId, build.clone(), Write, "write what is built");
    list.group(build, Read, "note who builds");
    list.group(waiting_group(&next), Describe, "count the processes that wait for a cut-over");
    list.group(next.kafka.group_id.clone(), Read, "commit where the generation begins");
    let recalls = format!("{}-recalls", next.kafka.group_id);
    list.group(recalls, Read, "commit which requests are answered");
}

fn mapper(config: &Config, list: &mut List<'_>) {
    use Operation::{Read, Write};
    let settings::map::ForeignTopic { topic, group, .. } = &config.map;
    if topic.is_empty() {
        return;
    }
    list.topic(topic.clone(), Read, "read the records of the other application");
    list.topic(config.topics.events(), Write, "publish turns");
    list.topic(config.topics.dead_letters(), Write, "put aside what does not fit");
    list.group(group.clone(), Read, "share out the partitions");
    let ids = format!("{group}-*");
    list.add(Resource::TransactionalId, ids, Write, "publish a batch as one transaction");
}

fn default_replication(config: &Config, list: &mut List<'_>) {
    if config.topics.replication == -1 {
        let why = "find out how many replicas a new topic gets";
        let cluster = CLUSTER.to_owned();
        list.add(Resource::Cluster, cluster, Operation::DescribeConfigs, why);
    }
}

/// Names of the topics whose settings are checked.
fn settings(config: &Config) -> Vec<String> {
    crate::topics::topics(config).into_iter().map(|topic| topic.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::Layers;

    fn of(options: &[(&str, &str)]) -> Vec<Acl> {
        let mut layers = Layers::defaults();
        for (option, value) in options {
            layers.set(option, value, "test").expect("a valid option");
        }
        acls(&layers.checked().expect("valid options"))
    }

    #[test]
    fn no_right_is_listed_twice_and_all_have_a_name() {
        let all = of(&[("kafka.bootstrap_servers", "b:1"), ("events.keep_ms", "86400000")]);
        for (at, right) in all.iter().enumerate() {
            assert!(!right.name.is_empty() && !all[..at].contains(right), "{right:?}");
        }
    }

    #[test]
    fn deletion_is_a_right_only_where_old_events_are_deleted() {
        let kafka = ("kafka.bootstrap_servers", "b:1");
        let of_service =
            |acl: &&Acl| acl.role == Role::Service && acl.operation == Operation::Delete;
        let deletes = |acls: &[Acl]| acls.iter().any(|acl| of_service(&acl));
        assert!(!deletes(&of(&[kafka])));
        assert!(deletes(&of(&[kafka, ("events.keep_ms", "86400000")])));
    }

    #[test]
    fn a_backup_may_change_nothing() {
        let all = of(&[("kafka.bootstrap_servers", "b:1")]);
        let of_backup = all.iter().filter(|right| right.role == Role::Backup);
        let changes = of_backup
            .filter(|right| !matches!(right.operation, Operation::Read | Operation::Describe));
        assert_eq!(changes.collect::<Vec<_>>(), Vec::<&Acl>::new());
    }

    #[test]
    fn a_later_generation_waits_and_its_operators_search_the_one_before() {
        let has = |acls: &[Acl], name: &str| acls.iter().any(|acl| acl.name == name);
        let kafka = ("kafka.bootstrap_servers", "b:1");
        let (first, second) = (of(&[kafka]), of(&[kafka, ("kafka.generation", "2")]));
        let waiting = |acls: &[Acl], role: Role| {
            acls.iter().filter(|acl| acl.role == role).any(|acl| acl.name == "keepsake.g2-waiting")
        };
        assert!(!waiting(&first, Role::Service) && waiting(&second, Role::Service));
        assert!(waiting(&first, Role::Mover) && !waiting(&second, Role::Mover));
        assert!(has(&second, "keepsake.memories") && has(&second, "keepsake.memories.g3"));
    }

    #[test]
    fn a_pattern_of_reply_topics_becomes_a_prefix() {
        let all = of(&[("topics.reply_allowed", "chat.*")]);
        let found = all.iter().find(|acl| acl.name == "chat.").expect("listed");
        assert!(found.is_prefix && found.operation == Operation::Write, "{found:?}");
    }
}

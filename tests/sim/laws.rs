//! Checks the laws after a simulation.
//!
//! The final state is compared with two things that know nothing of the faults: the events as they
//! were sent, and a [`Fold`], one faultless run over the same events.

use super::instance::{Kit, restoring};
use super::stream::{PARTITIONS, Sent, TENANT};
use super::world::{World, text_of};
use crate::support::contains;
use crate::support::workload::Dice;
use broker::clock::ManualClock;
use broker::{Broker, Headers, OutgoingRecord, RebalanceListener, Record, header};
use domain::fault::{Fault, StopName};
use domain::{Memory, MemoryId, Time, UserKey};
use kernel::Reads;
use serde_json::Value;
use service::ownership::{Changelog, ShardRegistry};
use settings::Topics;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use storage::changelog::{META, STATE_HEADER, named};
use storage::home::MemoryHome;
use storage::shard::Shard;
use storage::store::is_memory;

type Law = Result<(), String>;
/// Partition and offset.
type At = (i32, i64);
/// Key, value and headers of a record.
type Body = (Option<Vec<u8>>, Option<Vec<u8>>, Headers);

/// How often each record was written to one topic, by partition and body.
type CommittedOffsets = BTreeMap<(i32, Body), usize>;

/// The last value of each key of the change feed, by partition and key.
type Feed = BTreeMap<(i32, Vec<u8>), Option<Vec<u8>>>;

/// Shards and outputs of a faultless run over the events: no crash, and each event is read once.
struct Fold {
    shards: Arc<ShardRegistry>,
    decisions: CommittedOffsets,
    erasures: CommittedOffsets,
    dead_letters: CommittedOffsets,
    forwarded: CommittedOffsets,
    feed: Feed,
}

/// Shards and topics at the end of a simulation.
struct End {
    /// The one open shard of each partition.
    shards: Vec<Arc<Shard>>,
    events: Vec<Vec<Record>>,
    decisions: Vec<Record>,
    erasures: Vec<Record>,
    dead_letters: Vec<Record>,
    receipts: Vec<Record>,
    memories: Vec<Vec<Record>>,
}

/// Checks every law and returns the digest of the final state, or the first broken law.
pub fn check(world: &mut World<'_>, processes: &[Arc<ShardRegistry>]) -> Result<u64, String> {
    let end = End::of(world, processes)?;
    every_event_ends_once(&world.sent, &end, &world.kit.config.topics.events())?;
    the_group_has_committed_what_is_applied(world, &end)?;
    let fold = Fold::of(world.kit, &end, &mut world.dice)?;
    shards_equal_the_fold(&end, &fold)?;
    topics_equal_the_fold(&world.sent, &end, &fold)?;
    feed_equals_the_fold(&end, &fold)?;
    shards_are_rebuildable(world, &end)?;
    receipts_come_once(&end)?;
    the_index_has_the_memories_of_the_store(&end)?;
    forgotten_stays_forgotten(world, &end)?;
    tenant_memories_are_at_home_and_in_every_copy(world, processes)?;
    count_occurrences(world, &end, &fold)?;
    digest(&end)
}

/// All records of a topic, partition by partition.
fn records(world: &World<'_>, topic: &str) -> Result<Vec<Vec<Record>>, String> {
    (0..PARTITIONS)
        .map(|partition| world.cluster.records(topic, partition).map_err(text_of))
        .collect()
}

impl End {
    fn of(world: &World<'_>, processes: &[Arc<ShardRegistry>]) -> Result<End, String> {
        let topics = &world.kit.config.topics;
        let shards = (0..PARTITIONS).map(|partition| {
            processes
                .iter()
                .find_map(|shards| shards.get(partition))
                .ok_or_else(|| format!("no process has partition {partition}"))
        });
        Ok(End {
            shards: shards.collect::<Result<_, _>>()?,
            events: records(world, &topics.events())?,
            decisions: records(world, &topics.decisions())?.concat(),
            erasures: records(world, &topics.erasures())?.concat(),
            dead_letters: records(world, &topics.dead_letters())?.concat(),
            receipts: records(world, &topics.replies())?.concat(),
            memories: records(world, &topics.memories())?,
        })
    }
}

impl Fold {
    fn of(kit: &Kit, end: &End, dice: &mut Dice) -> Result<Fold, String> {
        let clock = Arc::new(ManualClock::at(Time(0)));
        let shards = kit.shards(&MemoryHome::default(), None, clock);
        let ingest = kit.ingest(&shards);
        let mut fold = Fold {
            shards: shards.clone(),
            decisions: CommittedOffsets::new(),
            erasures: CommittedOffsets::new(),
            dead_letters: CommittedOffsets::new(),
            forwarded: CommittedOffsets::new(),
            feed: Feed::new(),
        };
        for (partition, records) in end.events.iter().enumerate() {
            let shard = shards.open(partition as i32).map_err(text_of)?;
            let (effects, _) = ingest.publish(&shard, None).map_err(text_of)?;
            for write in effects.writes {
                write.carry_out(None).map_err(text_of)?;
            }
            for output in effects.outputs {
                fold.add(&kit.config.topics, output);
            }
            let mut records = records.clone();
            while !records.is_empty() {
                // The result must not depend on how the events are cut into batches.
                let rest = records.split_off(records.len().min(1 + dice.below(8) as usize));
                let batch = std::mem::replace(&mut records, rest);
                let effects = ingest.step(batch).map_err(text_of)?;
                for write in effects.writes {
                    write.carry_out(None).map_err(text_of)?;
                }
                for output in effects.outputs {
                    fold.add(&kit.config.topics, output);
                }
            }
        }
        Ok(fold)
    }

    fn add(&mut self, topics: &Topics, output: OutgoingRecord) {
        let OutgoingRecord { topic, partition, key, value, headers, .. } = output;
        if topic == topics.decisions() {
            count(&mut self.decisions, 0, (key, value, headers));
        } else if topic == topics.erasures() {
            count(&mut self.erasures, 0, (key, value, headers));
        } else if topic == topics.dead_letters() {
            count(&mut self.dead_letters, 0, (key, value, headers));
        } else if topic == topics.events() {
            let partition = partition.expect("a forwarded record names its partition");
            count(&mut self.forwarded, partition, (key, value, headers));
        } else if topic == topics.memories() {
            let partition = partition.expect("a changelog record names its partition");
            self.feed.insert((partition, key.unwrap_or_default()), value);
        }
    }
}

// ---------------------------------------------------------------- the laws

/// Laws nothing-lost and nothing-twice: each sent event has either decisions about different
/// candidates or one dead letter.
fn every_event_ends_once(sent: &[Sent], end: &End, topic: &str) -> Law {
    let mut decided: BTreeMap<At, Vec<Value>> = BTreeMap::new();
    let mut shadowed: BTreeMap<At, Vec<Value>> = BTreeMap::new();
    for record in &end.decisions {
        let decision = json(record)?;
        let event = &decision["event"];
        if event["topic"] != topic {
            return Err(format!("a decision about an event of another topic: {decision}"));
        }
        let place = (
            event["partition"].as_i64().unwrap_or(-1) as i32,
            event["offset"].as_i64().unwrap_or(-1),
        );
        let all = if decision["shadow"] == true { &mut shadowed } else { &mut decided };
        all.entry(place).or_default().push(decision);
    }
    let mut dead: BTreeMap<At, usize> = BTreeMap::new();
    for record in &end.dead_letters {
        *dead.entry(origin(record, sent)?).or_default() += 1;
    }
    for event in sent {
        let decisions = decided.remove(&event.place).unwrap_or_default();
        let dead = dead.remove(&event.place).unwrap_or_default();
        let candidates: BTreeSet<String> = decisions
            .iter()
            .map(|decision| format!("{} {}", decision["candidate"], decision["memory"]))
            .collect();
        let is_right = if event.is_broken {
            decisions.is_empty() && dead == 1
        } else {
            !decisions.is_empty() && candidates.len() == decisions.len() && dead == 0
        };
        if !is_right {
            return Err(format!(
                "{:?} {} has {dead} dead letters and {} decisions: {decisions:?}",
                event.place,
                event.event,
                decisions.len()
            ));
        }
    }
    for (place, shadows) in &shadowed {
        let event = sent.iter().find(|event| event.place == *place).map(|event| &event.event);
        if shadows.len() != 1 || event.is_none_or(|event| event["type"] != "turn") {
            return Err(format!(
                "{place:?} has {} shadow decisions: {shadows:?} of {event:?}",
                shadows.len()
            ));
        }
    }
    match dead.into_iter().next() {
        // Decisions may be left over, about proposals of the compaction worker. Dead letters not.
        Some((place, _)) => Err(format!("a dead letter about {place:?}, which was never sent")),
        None => Ok(()),
    }
}

fn the_group_has_committed_what_is_applied(world: &World<'_>, end: &End) -> Law {
    let group = &world.kit.config.kafka.group_id;
    let topic = world.kit.config.topics.events();
    for shard in &end.shards {
        let committed = world.cluster.committed(group, &topic, shard.partition).unwrap_or(0);
        if committed != shard.applied() + 1 {
            return Err(format!(
                "partition {}: the group has committed {committed}, the shard has applied {}",
                shard.partition,
                shard.applied()
            ));
        }
    }
    Ok(())
}

/// Law nothing-twice: the state is that of every event applied once.
fn shards_equal_the_fold(end: &End, fold: &Fold) -> Law {
    for shard in &end.shards {
        let folded = fold.shards.get(shard.partition).ok_or("the fold has all shards")?;
        same(shard, &folded, "the fold of its events")?;
    }
    Ok(())
}

fn topics_equal_the_fold(sent: &[Sent], end: &End, fold: &Fold) -> Law {
    compare("decisions", &written(end.decisions.iter(), |_| 0), &fold.decisions)?;
    compare("receipts of forgets", &written(end.erasures.iter(), |_| 0), &fold.erasures)?;
    compare("dead letters", &written(end.dead_letters.iter(), |_| 0), &fold.dead_letters)?;
    let sent: BTreeSet<At> = sent.iter().map(|sent| sent.place).collect();
    let forwarded = end.events.iter().flatten().filter(|record| {
        let is_forged = sent.contains(&(record.partition, record.offset));
        record.header("keepsake-via").is_some() && !is_forged
    });
    let forwarded = written(forwarded, |record| record.partition);
    compare("forwarded", &forwarded, &fold.forwarded)
}

fn feed_equals_the_fold(end: &End, fold: &Fold) -> Law {
    let feed: Feed = end
        .memories
        .iter()
        .flat_map(|records| latest(records))
        .map(|(key, record)| (key, record.value.clone()))
        .collect();
    let ours = without_writers(without_tombstones(&feed));
    let theirs = without_writers(without_tombstones(&fold.feed));
    match ours.symmetric_difference(&theirs).next() {
        Some(only @ (partition, key, value)) => Err(format!(
            "change feed of partition {partition}: only the {} has {} = {}",
            if ours.contains(only) { "feed" } else { "fold" },
            text(key),
            text(value)
        )),
        None => Ok(()),
    }
}

/// Leaves out of the meta records what is the writer's own: its epoch, and the digest, which the fold
/// does not keep up. Every restore of the run compares the digests.
fn without_writers(feed: BTreeSet<(i32, Vec<u8>, Vec<u8>)>) -> BTreeSet<(i32, Vec<u8>, Vec<u8>)> {
    let without = |(partition, key, value): (i32, Vec<u8>, Vec<u8>)| {
        if key != META.as_bytes() {
            return (partition, key, value);
        }
        let mut meta: Value = serde_json::from_slice(&value).expect("a meta record is JSON");
        for field in ["epoch", "records", "digest"] {
            meta.as_object_mut().expect("of named fields").remove(field);
        }
        (partition, key, meta.to_string().into_bytes())
    };
    feed.into_iter().map(without).collect()
}

fn without_tombstones(feed: &Feed) -> BTreeSet<(i32, Vec<u8>, Vec<u8>)> {
    feed.iter()
        .filter_map(|((partition, key), value)| Some((*partition, key.clone(), value.clone()?)))
        .collect()
}

/// Law rebuildable: another machine restores the same shards from the changelog. The records of
/// the changelog, read here without the production reader, are those of the store.
fn shards_are_rebuildable(world: &World<'_>, end: &End) -> Law {
    let topic = world.kit.config.topics.memories();
    let log = world.cluster.connect("reader").log(&topic).map_err(text_of)?;
    let (wanted, _kept) = crossbeam_channel::bounded(PARTITIONS as usize);
    let changelog = Changelog { log, options: restoring(&world.kit.config), wanted };
    let restored = world.kit.shards(
        &MemoryHome::default(),
        Some(changelog),
        Arc::new(ManualClock::at(Time(0))),
    );
    restored.assigned(&(0..PARTITIONS).map(|p| (p, None)).collect::<Vec<_>>());
    for shard in &end.shards {
        restored.restore(shard.partition);
        restored.fault().map_err(text_of)?;
        let rebuilt = restored.get(shard.partition).ok_or("a shard is not restored")?;
        if rebuilt.applied() != shard.applied() {
            return Err(format!(
                "partition {}: restored up to {}, the shard has applied {}",
                shard.partition,
                rebuilt.applied(),
                shard.applied()
            ));
        }
        same(shard, &rebuilt, "the restore of its changelog")?;
        let mut held = BTreeMap::new();
        for ((_, name), record) in latest(&end.memories[shard.partition as usize]) {
            let name = text(&name);
            let is_state = record.value.is_some() && name != META && name.contains('/');
            if let Some(state) = record.header(STATE_HEADER).filter(|_| is_state) {
                let key = named(name.into_bytes()).map_err(text_of)?;
                held.insert(key, Some(state.to_vec()));
            }
        }
        if held != shard.store.everything().map_err(text_of)?.records {
            return Err(format!(
                "partition {}: the last values of the changelog differ from the store",
                shard.partition
            ));
        }
    }
    Ok(())
}

fn the_index_has_the_memories_of_the_store(end: &End) -> Law {
    for shard in &end.shards {
        let mut stored = BTreeSet::new();
        for key in shard.store.users(None, usize::MAX).map_err(text_of)? {
            shard
                .store
                .memories(&key, &mut |memory| {
                    stored.insert((memory.key, memory.id));
                    true
                })
                .map_err(text_of)?;
        }
        let indexed: BTreeSet<(UserKey, MemoryId)> =
            shard.index.text.ids().map_err(text_of)?.into_iter().collect();
        if stored != indexed {
            return Err(format!(
                "partition {}: the index has {indexed:?}, the store {stored:?}",
                shard.partition
            ));
        }
    }
    Ok(())
}

/// Law forgotten-stays-forgotten: after `forget` neither the memory nor its secret word is left in
/// store, index or change feed.
fn forgotten_stays_forgotten(world: &World<'_>, end: &End) -> Law {
    let topic = world.kit.config.topics.events();
    let secrets: BTreeMap<String, &str> = world
        .sent
        .iter()
        .filter_map(|sent| Some((sent.memory(&topic).to_string(), sent.secret.as_deref()?)))
        .collect();
    let live: Vec<&Record> =
        end.memories.iter().flat_map(|records| latest(records).into_values()).collect();
    let mut stored_bytes = Vec::new();
    let mut indexed = BTreeSet::new();
    for shard in &end.shards {
        let records = shard.store.everything().map_err(text_of)?.records;
        stored_bytes.push(records.into_values().flatten().collect::<Vec<_>>().concat());
        indexed.extend(shard.index.text.ids().map_err(text_of)?.into_iter().map(|(_, id)| id));
    }
    for record in &end.decisions {
        let decision = json(record)?;
        if decision["outcome"] != "forgotten" {
            continue;
        }
        for id in decision["related"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let memory = MemoryId::parse(id).ok_or("a decision names memories by valid ids")?;
            let is_fed = live.iter().any(|record| {
                let key = text(record.key.as_deref().unwrap_or_default());
                record.value.is_some() && key.ends_with(id)
            });
            if indexed.contains(&memory) || is_fed {
                return Err(format!("{id} is back, although {decision}"));
            }
            let Some(secret) = secrets.get(id) else { continue };
            let stored = stored_bytes.iter().any(|bytes| contains(bytes, secret));
            let fed = live.iter().any(|record| {
                contains(record.value.as_deref().unwrap_or_default(), secret)
                    || contains(record.header(STATE_HEADER).unwrap_or_default(), secret)
            });
            if stored || fed {
                return Err(format!(
                    "{secret} is still there (store {stored}, feed {fed}), although {decision}"
                ));
            }
        }
    }
    Ok(())
}

/// The home of the tenant alone has its memories, and every process that reads them elsewhere reads
/// the same, and sees all that was sent on.
fn tenant_memories_are_at_home_and_in_every_copy(
    world: &World<'_>,
    processes: &[Arc<ShardRegistry>],
) -> Law {
    let everyone = UserKey::of_tenant(TENANT).expect("the tenant has a valid name");
    let home = everyone.partition(PARTITIONS);
    let held = |shard: &Shard| -> Result<BTreeMap<MemoryId, Memory>, String> {
        let mut held = BTreeMap::new();
        let keep = &mut |memory: Memory| {
            held.insert(memory.id, memory);
            true
        };
        shard.store.memories(&everyone, keep).map_err(text_of)?;
        Ok(held)
    };
    let connection = world.cluster.connect("check");
    let from = world.kit.tenants(&connection).map_err(text_of)?;
    let at_home = processes.iter().find_map(|shards| shards.get(home));
    let at_home = held(&*at_home.ok_or("no process has the home of the tenant")?)?;
    for shards in processes {
        for shard in shards.all().iter().filter(|shard| shard.partition != home) {
            let astray = held(shard)?;
            if !astray.is_empty() {
                return Err(format!("partition {} has {astray:#?}", shard.partition));
            }
        }
        if !shards.follows_tenants() {
            continue;
        }
        match shards.follow_tenants(&from, &|| true) {
            // Its disk is still full, which a restart would end.
            Err(Fault::Stop(stop)) if stop.name == StopName::StoreUnwritable => continue,
            followed => followed.map_err(text_of)?,
        }
        let tenants = shards.tenants_of(&everyone).ok_or("the copy is not there")?;
        let copied = held(&tenants.shard)?;
        if copied != at_home {
            return Err(format!("a copy has {copied:#?}, and the home {at_home:#?}"));
        }
        for shard in shards.all() {
            let users = shard.store.users(None, usize::MAX).map_err(text_of)?;
            let is_behind = |key: &&UserKey| !shards.has_applied(&shard, key, shard.applied());
            if let Some(key) = users.iter().find(is_behind) {
                return Err(format!("{key} waits for the home of the tenant for ever"));
            }
        }
    }
    Ok(())
}

/// No sender gets two receipts. No receipt at all is possible: a crash may come between the commit
/// and the receipt.
fn receipts_come_once(end: &End) -> Law {
    let mut seen = BTreeSet::new();
    for receipt in &end.receipts {
        if !seen.insert(receipt.header("correlation-id").unwrap_or_default()) {
            return Err(format!(
                "a second receipt: {}",
                text(receipt.value.as_deref().unwrap_or_default())
            ));
        }
    }
    Ok(())
}

/// Adds outcomes, dead letters, receipts and forwarded records to the world's counts.
fn count_occurrences(world: &mut World<'_>, end: &End, fold: &Fold) -> Law {
    for record in &end.decisions {
        let decision = json(record)?;
        let is_shadow = decision["shadow"] == true;
        let outcome = decision["outcome"].as_str().unwrap_or_default();
        world.count(if is_shadow { "shadowed" } else { outcome }, 1);
    }
    for ((_, (_, _, headers)), times) in &fold.forwarded {
        let is_for_tenant = header(headers, "keepsake-tenant").is_some();
        world.count(
            if is_for_tenant { "sent on to the home of the tenant" } else { "forwarded" },
            *times,
        );
    }
    world.count("dead letter", end.dead_letters.len());
    world.count("receipt", end.receipts.len());
    Ok(())
}

fn digest(end: &End) -> Result<u64, String> {
    let mut digest = 0u64;
    for shard in &end.shards {
        let of_shard = shard.store.digest().map_err(text_of)?.sum as u64 ^ shard.applied() as u64;
        digest = digest.rotate_left(7) ^ of_shard;
    }
    Ok(digest)
}

// ---------------------------------------------------------------- comparisons

/// Fails with the differing records unless two shards hold the same.
fn same(ours: &Shard, theirs: &Shard, expected: &str) -> Law {
    let partition = ours.partition;
    for source in 0..PARTITIONS {
        let here = ours.store.via(source).map_err(text_of)?;
        let there = theirs.store.via(source).map_err(text_of)?;
        if here != there {
            return Err(format!(
                "partition {partition} is not {expected}: records forwarded from {source} are \
                 applied up to {here:?}, not {there:?}"
            ));
        }
    }
    if ours.store.digest().map_err(text_of)? == theirs.store.digest().map_err(text_of)? {
        return same_index(ours, theirs, expected);
    }
    let ours = ours.store.everything().map_err(text_of)?.records;
    let theirs = theirs.store.everything().map_err(text_of)?.records;
    let keys: BTreeSet<&Vec<u8>> = ours.keys().chain(theirs.keys()).collect();
    let different: Vec<String> = keys
        .into_iter()
        .filter(|key| ours.get(*key) != theirs.get(*key))
        .map(|key| {
            let sort = if is_memory(key) { "memory" } else { "record" };
            let here = value_text(ours.get(key));
            let there = value_text(theirs.get(key));
            format!("{sort} {}:\n  here {here}\n  there {there}", text(key))
        })
        .collect();
    Err(format!("partition {partition} is not {expected}:\n{}", different.join("\n")))
}

/// Fails unless the indexes of two shards with the same store hold as many documents and as many
/// stems of each user: a document with the words of an older version is found by them.
fn same_index(ours: &Shard, theirs: &Shard, expected: &str) -> Law {
    let mut users = ours.store.users(None, usize::MAX).map_err(text_of)?;
    users.push(UserKey::of_tenant(TENANT).expect("the tenant has a valid name"));
    for key in users {
        let here = ours.index.text.documents(&key).map_err(text_of)?;
        let there = theirs.index.text.documents(&key).map_err(text_of)?;
        if here != there {
            return Err(format!(
                "the index of partition {} is not {expected}: {key} has {here:?} documents and \
                 stems, not {there:?}",
                ours.partition
            ));
        }
    }
    Ok(())
}

fn value_text(value: Option<&Option<Vec<u8>>>) -> String {
    value.cloned().flatten().map_or("nothing".to_owned(), text)
}

/// Fails at the first record that was not written as often as in the fold.
fn compare(what: &str, ours: &CommittedOffsets, theirs: &CommittedOffsets) -> Law {
    let keys: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    for key in keys {
        let here = ours.get(key).copied().unwrap_or(0);
        let there = theirs.get(key).copied().unwrap_or(0);
        if here != there {
            let (partition, (_, value, headers)) = key;
            let via = header(headers, "keepsake-via").map(text);
            return Err(format!(
                "{what}: {here} times here and {there} in the fold: to {partition} via {via:?} {}",
                text(value.as_deref().unwrap_or_default())
            ));
        }
    }
    Ok(())
}

/// Counts records. `partition` says which partition a record is counted under.
fn written<'r>(
    records: impl Iterator<Item = &'r Record>,
    partition: fn(&Record) -> i32,
) -> CommittedOffsets {
    let mut all = CommittedOffsets::new();
    for record in records {
        let body = (record.key.clone(), record.value.clone(), record.headers.clone());
        count(&mut all, partition(record), body);
    }
    all
}

fn count(written: &mut CommittedOffsets, partition: i32, body: Body) {
    *written.entry((partition, body)).or_default() += 1;
}

/// The last record of each key.
fn latest(records: &[Record]) -> BTreeMap<(i32, Vec<u8>), &Record> {
    records
        .iter()
        .map(|record| ((record.partition, record.key.clone().unwrap_or_default()), record))
        .collect()
}

/// Partition and offset that the event of a dead letter was sent to. The origin that a sender wrote
/// on its own record is forged.
fn origin(record: &Record, sent: &[Sent]) -> Result<At, String> {
    let partition = number_in(record, "__connect.errors.partition")? as i32;
    let place = (partition, number_in(record, "__connect.errors.offset")?);
    let is_own = sent.iter().any(|sent| sent.place == place);
    let Some(origin) = record.header("keepsake-origin").filter(|_| !is_own).map(text) else {
        return Ok(place);
    };
    let numbers: Option<Vec<i64>> =
        origin.rsplit(':').take(2).map(|part| part.parse().ok()).collect();
    match numbers.as_deref() {
        Some([offset, partition]) => Ok((*partition as i32, *offset)),
        _ => Err(format!("an origin is topic:partition:offset, not {origin}")),
    }
}

fn number_in(record: &Record, name: &str) -> Result<i64, String> {
    record
        .header(name)
        .and_then(|bytes| text(bytes).parse().ok())
        .ok_or_else(|| format!("a dead letter without {name}"))
}

fn json(record: &Record) -> Result<Value, String> {
    serde_json::from_slice(record.value.as_deref().unwrap_or_default())
        .map_err(|error| format!("a decision is not JSON: {error}"))
}

fn text(bytes: impl AsRef<[u8]>) -> String {
    String::from_utf8_lossy(bytes.as_ref()).into_owned()
}

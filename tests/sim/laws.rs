//! What must hold when the world has come to rest, against what does not know how it came there: the events as they were sent, and one
//! fold of them in which nothing goes wrong.

use super::instance::Kit;
use super::stream::{PARTITIONS, Sent, TENANT};
use super::world::{World, said};
use crate::support::story::Dice;
use keepsake::domain::{Memory, MemoryId, Time, UserKey};
use keepsake::home::MemoryHome;
use keepsake::memory::Reads;
use keepsake::ownership::{Changelog, Shards};
use keepsake::ports::broker::{Broker, Headers, Ownership, Record, header};
use keepsake::ports::clock::ManualClock;
use keepsake::run::options;
use keepsake::shard::Shard;
use keepsake::stages::store::changelog::{META, STATE_HEADER, named};
use keepsake::stages::store::is_memory;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Law = Result<(), String>;
/// Partition and offset.
type Place = (i32, i64);
type Told = (Option<Vec<u8>>, Option<Vec<u8>>, Headers);

/// All that was written to one topic, apart from where.
type Said = BTreeMap<(i32, Told), usize>;

/// A fold of the events as they stand: nobody dies, nothing is late, and each is read once.
struct Fold {
    shards: Arc<Shards>,
    decisions: Said,
    dead_letters: Said,
    forwarded: Said,
    /// The last value of each key of the change feed.
    feed: BTreeMap<(i32, Vec<u8>), Option<Vec<u8>>>,
}

struct Ended {
    /// The one shard of each partition that is open somewhere.
    shards: Vec<Arc<Shard>>,
    events: Vec<Vec<Record>>,
    decisions: Vec<Record>,
    dead_letters: Vec<Record>,
    receipts: Vec<Record>,
    memories: Vec<Vec<Record>>,
}

/// The digest of all that is left, if every law holds.
pub fn hold(world: &mut World<'_>, processes: &[Arc<Shards>]) -> Result<u64, String> {
    let ended = Ended::of(world, processes)?;
    one_end_for_each(&world.sent, &ended, &world.kit.config.topics.events())?;
    the_group_knows(world, &ended)?;
    let fold = Fold::of(world.kit, &ended, &mut world.dice)?;
    as_folded(&ended, &fold)?;
    said_as_folded(&ended, &fold)?;
    rebuildable(world, &ended)?;
    the_index_has_what_the_store_has(&ended)?;
    forgotten_stays_forgotten(world, &ended)?;
    a_tenants_memory_is_everywhere(&ended)?;
    told_once(&ended)?;
    note(world, &ended, &fold)?;
    digest(&ended)
}

impl Ended {
    fn of(world: &World<'_>, processes: &[Arc<Shards>]) -> Result<Ended, String> {
        let topics = &world.kit.config.topics;
        let all = |topic: &str| {
            (0..PARTITIONS)
                .map(|p| world.cluster.records(topic, p).map_err(said))
                .collect::<Result<Vec<_>, _>>()
        };
        let shard = |p: i32| {
            processes
                .iter()
                .find_map(|shards| shards.get(p))
                .ok_or_else(|| format!("nobody has partition {p}"))
        };
        Ok(Ended {
            shards: (0..PARTITIONS).map(shard).collect::<Result<_, _>>()?,
            events: all(&topics.events())?,
            decisions: all(&topics.decisions())?.concat(),
            dead_letters: all(&topics.dead_letters())?.concat(),
            receipts: all(&topics.replies())?.concat(),
            memories: all(&topics.memories())?,
        })
    }
}

impl Fold {
    fn of(kit: &Kit, ended: &Ended, dice: &mut Dice) -> Result<Fold, String> {
        let clock = Arc::new(ManualClock::at(Time(0)));
        let shards = kit.shards(&MemoryHome::default(), None, clock);
        let mut ingest = kit.ingest(&shards);
        let mut fold = Fold {
            shards: shards.clone(),
            decisions: Said::new(),
            dead_letters: Said::new(),
            forwarded: Said::new(),
            feed: BTreeMap::new(),
        };
        for (partition, records) in ended.events.iter().enumerate() {
            shards.open(partition as i32).map_err(said)?;
            let mut records = records.clone();
            while !records.is_empty() {
                // However it is cut into batches.
                let rest = records.split_off(records.len().min(1 + dice.below(8) as usize));
                let effects = ingest.step(std::mem::replace(&mut records, rest)).map_err(said)?;
                for write in effects.writes {
                    write.carry_out(None).map_err(said)?;
                }
                for out in effects.outputs {
                    let topics = &kit.config.topics;
                    let told = (out.key, out.value, out.headers);
                    match &out.topic {
                        topic if *topic == topics.decisions() => {
                            count(&mut fold.decisions, 0, told)
                        }
                        topic if *topic == topics.dead_letters() => {
                            count(&mut fold.dead_letters, 0, told)
                        }
                        topic if *topic == topics.events() => {
                            count(
                                &mut fold.forwarded,
                                out.partition.expect("a forwarded record names its partition"),
                                told,
                            );
                        }
                        _ => {
                            let key = (
                                out.partition.expect("a state names its partition"),
                                told.0.unwrap_or_default(),
                            );
                            fold.feed.insert(key, told.1);
                        }
                    }
                }
            }
        }
        Ok(fold)
    }
}

// ---------------------------------------------------------------- the laws

/// Nothing is lost and nothing is done twice: each event that was sent has its decisions, each about another candidate, or one dead letter.
fn one_end_for_each(sent: &[Sent], ended: &Ended, topic: &str) -> Law {
    let (mut decided, mut shadowed) =
        (BTreeMap::<Place, Vec<Value>>::new(), BTreeMap::<Place, Vec<Value>>::new());
    for record in &ended.decisions {
        let decision = json(record)?;
        let event = &decision["event"];
        if event["topic"] != topic {
            return Err(format!("a decision about no event of ours: {decision}"));
        }
        let place = (
            event["partition"].as_i64().unwrap_or(-1) as i32,
            event["offset"].as_i64().unwrap_or(-1),
        );
        let beside = if decision["shadow"] == true { &mut shadowed } else { &mut decided };
        beside.entry(place).or_default().push(decision);
    }
    let mut dead: BTreeMap<Place, usize> = BTreeMap::new();
    for record in &ended.dead_letters {
        *dead.entry(origin(record)?).or_default() += 1;
    }
    for event in sent {
        let (decisions, dead) = (
            decided.remove(&event.place).unwrap_or_default(),
            dead.remove(&event.place).unwrap_or_default(),
        );
        let candidates: BTreeSet<String> = decisions
            .iter()
            .map(|decision| format!("{} {}", decision["candidate"], decision["memory"]))
            .collect();
        let is_right = match event.is_broken {
            true => decisions.is_empty() && dead == 1,
            false => !decisions.is_empty() && candidates.len() == decisions.len() && dead == 0,
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
                "{place:?} has {} shadows: {shadows:?} of {event:?}",
                shadows.len()
            ));
        }
    }
    match dead.into_iter().next() {
        // Compaction's own proposals have decisions too; nobody's has a dead letter.
        Some((place, _)) => Err(format!("a dead letter about {place:?}, which nobody sent")),
        None => Ok(()),
    }
}

fn the_group_knows(world: &World<'_>, ended: &Ended) -> Law {
    let (group, topic) = (&world.kit.config.kafka.group_id, world.kit.config.topics.events());
    for shard in &ended.shards {
        let committed = world.cluster.committed(group, &topic, shard.partition).unwrap_or(0);
        if committed != shard.applied() + 1 {
            return Err(format!(
                "partition {}: the group has committed {committed}, applied is {}",
                shard.partition,
                shard.applied()
            ));
        }
    }
    Ok(())
}

/// Whatever happened: the state is that of all events once.
fn as_folded(ended: &Ended, fold: &Fold) -> Law {
    for shard in &ended.shards {
        let folded = fold.shards.get(shard.partition).ok_or("the fold has all shards")?;
        same(shard, &folded, "the fold of its events")?;
    }
    Ok(())
}

fn said_as_folded(ended: &Ended, fold: &Fold) -> Law {
    let said = |records: &[Record]| {
        let mut all = Said::new();
        records.iter().for_each(|record| {
            count(&mut all, 0, (record.key.clone(), record.value.clone(), record.headers.clone()))
        });
        all
    };
    differ("decisions", &said(&ended.decisions), &fold.decisions)?;
    differ("dead letters", &said(&ended.dead_letters), &fold.dead_letters)?;
    let mut forwarded = Said::new();
    for record in
        ended.events.iter().flatten().filter(|record| record.header("keepsake-via").is_some())
    {
        count(
            &mut forwarded,
            record.partition,
            (record.key.clone(), record.value.clone(), record.headers.clone()),
        );
    }
    differ("forwarded records", &forwarded, &fold.forwarded)?;
    let feed: BTreeMap<_, _> = ended.memories.iter().flat_map(|records| latest(records)).collect();
    let live =
        |feed: &BTreeMap<(i32, Vec<u8>), Option<Vec<u8>>>| -> BTreeSet<(i32, Vec<u8>, Vec<u8>)> {
            feed.iter()
                .filter_map(|((p, key), value)| Some((*p, key.clone(), value.clone()?)))
                .collect()
        };
    let values = feed.into_iter().map(|(key, record)| (key, record.value.clone())).collect();
    let (ours, theirs) = (live(&values), live(&fold.feed));
    match ours.symmetric_difference(&theirs).next() {
        Some((partition, key, value)) => {
            let who = if ours.contains(&(*partition, key.clone(), value.clone())) {
                "only the feed"
            } else {
                "only the fold"
            };
            Err(format!(
                "change feed of partition {partition}: {who} has {} = {}",
                text(key),
                text(value)
            ))
        }
        None => Ok(()),
    }
}

/// What another machine would make of the changelog is what is here; so is what the changelog holds, read without our own reader.
fn rebuildable(world: &World<'_>, ended: &Ended) -> Law {
    let topic = world.kit.config.topics.memories();
    let log = world.cluster.connect("reader").log(&topic).map_err(said)?;
    let (wanted, _kept) = crossbeam_channel::bounded(PARTITIONS as usize);
    let changelog = Changelog { log, options: options::restore(&world.kit.config), wanted };
    let restored = world.kit.shards(
        &MemoryHome::default(),
        Some(changelog),
        Arc::new(ManualClock::at(Time(0))),
    );
    restored.assigned(&(0..PARTITIONS).map(|p| (p, None)).collect::<Vec<_>>());
    for shard in &ended.shards {
        restored.restore(shard.partition);
        restored.fault().map_err(said)?;
        let rebuilt = restored.get(shard.partition).ok_or("a shard is not restored")?;
        if rebuilt.applied() != shard.applied() {
            return Err(format!(
                "partition {}: the changelog says {}, applied is {}",
                shard.partition,
                rebuilt.applied(),
                shard.applied()
            ));
        }
        same(shard, &rebuilt, "what its changelog makes")?;
        let mut held = BTreeMap::new();
        for ((_, name), record) in latest(&ended.memories[shard.partition as usize]) {
            let name = text(&name);
            if let (Some(state), true) = (
                record.header(STATE_HEADER),
                record.value.is_some() && name != META && name.contains('/'),
            ) {
                held.insert(named(name.into_bytes()).map_err(said)?.key, Some(state.to_vec()));
            }
        }
        if held != shard.store.everything().map_err(said)?.records {
            return Err(format!(
                "partition {}: the changelog's last values are not what the store holds",
                shard.partition
            ));
        }
    }
    Ok(())
}

fn the_index_has_what_the_store_has(ended: &Ended) -> Law {
    for shard in &ended.shards {
        let mut stored = BTreeSet::new();
        for key in shard.store.users(None, usize::MAX).map_err(said)? {
            shard
                .store
                .memories(&key, &mut |memory| {
                    stored.insert((memory.key, memory.id));
                    true
                })
                .map_err(said)?;
        }
        let indexed: BTreeSet<(UserKey, MemoryId)> =
            shard.index.text.ids().map_err(said)?.into_iter().collect();
        if stored != indexed {
            return Err(format!(
                "partition {}: the index has {indexed:?}, the store {stored:?}",
                shard.partition
            ));
        }
    }
    Ok(())
}

/// Neither the memory nor, if nobody else said it, its word.
fn forgotten_stays_forgotten(world: &World<'_>, ended: &Ended) -> Law {
    let topic = world.kit.config.topics.events();
    let mut secrets: BTreeMap<String, &str> = BTreeMap::new();
    for sent in &world.sent {
        secrets
            .extend(sent.secret.as_deref().map(|secret| (sent.memory(&topic).to_string(), secret)));
    }
    let live: Vec<Record> =
        ended.memories.iter().flat_map(|records| latest(records).into_values().cloned()).collect();
    let everything: Vec<Vec<u8>> = ended
        .shards
        .iter()
        .map(|shard| {
            shard
                .store
                .everything()
                .map(|all| all.records.into_values().flatten().collect::<Vec<_>>().concat())
        })
        .collect::<keepsake::fault::Result<_>>()
        .map_err(said)?;
    let mut indexed = BTreeSet::new();
    for shard in &ended.shards {
        indexed.extend(shard.index.text.ids().map_err(said)?.into_iter().map(|(_, id)| id));
    }
    for record in &ended.decisions {
        let decision = json(record)?;
        if decision["outcome"] != "forgotten" {
            continue;
        }
        for id in decision["related"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let memory = MemoryId::parse(id).ok_or("an id is an id")?;
            let is_told = |record: &Record| {
                record.value.is_some()
                    && text(record.key.as_deref().unwrap_or_default()).ends_with(id)
            };
            if indexed.contains(&memory) || live.iter().any(is_told) {
                return Err(format!("{id} is here again, although {decision}"));
            }
            let Some(secret) = secrets.get(id) else { continue };
            let stored = everything.iter().any(|bytes| says(bytes, secret));
            let fed = live.iter().any(|record| {
                says(record.value.as_deref().unwrap_or_default(), secret)
                    || says(record.header(STATE_HEADER).unwrap_or_default(), secret)
            });
            if stored || fed {
                return Err(format!(
                    "{secret} is still said (store {stored}, feed {fed}), although {decision}"
                ));
            }
        }
    }
    Ok(())
}

/// All shards hold the same of it, but for the offset at which each changed it.
fn a_tenants_memory_is_everywhere(ended: &Ended) -> Law {
    let everyone = UserKey::everyone_of(TENANT).expect("a name");
    let mut first: Option<BTreeMap<MemoryId, Memory>> = None;
    for shard in &ended.shards {
        let mut held = BTreeMap::new();
        shard
            .store
            .memories(&everyone, &mut |memory| {
                held.insert(memory.id, Memory { changed: 0, ..memory });
                true
            })
            .map_err(said)?;
        let first = first.get_or_insert_with(|| held.clone());
        if *first != held {
            let partition = shard.partition;
            return Err(format!(
                "partition {partition} holds other of the tenant than the first: {held:#?}, {first:#?}"
            ));
        }
    }
    Ok(())
}

/// No sender gets two answers. None is possible: a crash may come between what is done and what is told.
fn told_once(ended: &Ended) -> Law {
    let mut told = BTreeSet::new();
    for receipt in &ended.receipts {
        if !told.insert(receipt.header("correlation-id").unwrap_or_default()) {
            return Err(format!(
                "a second receipt: {}",
                text(receipt.value.as_deref().unwrap_or_default())
            ));
        }
    }
    Ok(())
}

fn note(world: &mut World<'_>, ended: &Ended, fold: &Fold) -> Law {
    for record in &ended.decisions {
        let decision = json(record)?;
        let is_shadow = decision["shadow"] == true;
        world.note(
            if is_shadow { "shadowed" } else { decision["outcome"].as_str().unwrap_or_default() },
            1,
        );
    }
    let is_broadcast = |told: &Told| header(&told.2, "keepsake-tenant").is_some();
    for ((_, told), times) in &fold.forwarded {
        world.note(if is_broadcast(told) { "told everywhere" } else { "forwarded" }, *times);
    }
    world.note("dead letter", ended.dead_letters.len());
    world.note("receipt", ended.receipts.len());
    Ok(())
}

fn digest(ended: &Ended) -> Result<u64, String> {
    let mut digest = 0u64;
    for shard in &ended.shards {
        digest =
            digest.rotate_left(7) ^ shard.store.digest().map_err(said)? ^ shard.applied() as u64;
    }
    Ok(digest)
}

// ---------------------------------------------------------------- how they look

fn same(ours: &Shard, theirs: &Shard, what: &str) -> Law {
    let partition = ours.partition;
    for source in 0..PARTITIONS {
        let (ours, theirs) =
            (ours.store.via(source).map_err(said)?, theirs.store.via(source).map_err(said)?);
        if ours != theirs {
            return Err(format!(
                "partition {partition} is not {what}: via {source} it has {ours:?}, not {theirs:?}"
            ));
        }
    }
    if ours.store.digest().map_err(said)? == theirs.store.digest().map_err(said)? {
        return Ok(());
    }
    let (ours, theirs) = (
        ours.store.everything().map_err(said)?.records,
        theirs.store.everything().map_err(said)?.records,
    );
    let keys: BTreeSet<&Vec<u8>> = ours.keys().chain(theirs.keys()).collect();
    let shown = |value: Option<&Option<Vec<u8>>>| {
        value.cloned().flatten().map_or("nothing".to_owned(), |value| text(&value))
    };
    let different: Vec<String> = keys
        .into_iter()
        .filter(|key| ours.get(*key) != theirs.get(*key))
        .map(|key| {
            let sort = if is_memory(key) { "memory" } else { "record" };
            format!(
                "{sort} {}:\n  here {}\n  there {}",
                text(key),
                shown(ours.get(key)),
                shown(theirs.get(key))
            )
        })
        .collect();
    Err(format!("partition {partition} is not {what}:\n{}", different.join("\n")))
}

fn differ(what: &str, ours: &Said, theirs: &Said) -> Law {
    let keys: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    for key in keys {
        let (here, there) =
            (ours.get(key).copied().unwrap_or(0), theirs.get(key).copied().unwrap_or(0));
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

fn count(said: &mut Said, partition: i32, told: Told) {
    *said.entry((partition, told)).or_default() += 1;
}

/// The last record of each key.
fn latest(records: &[Record]) -> BTreeMap<(i32, Vec<u8>), &Record> {
    records
        .iter()
        .map(|record| ((record.partition, record.key.clone().unwrap_or_default()), record))
        .collect()
}

/// Where the event of a dead letter was sent to.
fn origin(record: &Record) -> Result<Place, String> {
    let first = record.header("keepsake-origin").map(text);
    let number = |name: &str| {
        record
            .header(name)
            .and_then(|bytes| text(bytes).parse::<i64>().ok())
            .ok_or_else(|| format!("a dead letter without {name}"))
    };
    match first {
        Some(place) => {
            let mut parts = place.rsplit(':');
            let mut next = || {
                parts
                    .next()
                    .and_then(|part| part.parse::<i64>().ok())
                    .ok_or("an origin is topic:partition:offset")
            };
            let (offset, partition) = (next()?, next()?);
            Ok((partition as i32, offset))
        }
        None => {
            Ok((number("__connect.errors.partition")? as i32, number("__connect.errors.offset")?))
        }
    }
}

fn json(record: &Record) -> Result<Value, String> {
    serde_json::from_slice(record.value.as_deref().unwrap_or_default())
        .map_err(|error| format!("a decision is no JSON: {error}"))
}

fn says(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|window| window == word.as_bytes())
}

fn text(bytes: impl AsRef<[u8]>) -> String {
    String::from_utf8_lossy(bytes.as_ref()).into_owned()
}

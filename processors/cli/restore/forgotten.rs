//! Forgets that came after a backup, from their receipts, as events to be published behind the
//! backup's.
//!
//! A receipt belongs here if the event is behind the end of the backup in its partition. The
//! `forget` of everything is published again unchanged. Of a session or a query a receipt has no
//! word, so the listed memories are forgotten one by one. The context windows that the `forget`
//! cleared are found in the backup by the digests of their sessions, and cleared again.

use super::target::Restore;
use broker::OutgoingRecord;
use client::reading;
use contract::reply::{self, Proposal};
use domain::fault::{Fault, Result, StopName};
use domain::{IdleSession, Salt, SigningKey, Time, UserKey};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use storage::backup;
use storage::changelog::session_of;

/// The fields of a receipt that are needed.
#[derive(Deserialize)]
struct Receipt {
    event: Event,
    tenant: String,
    user: String,
    target: String,
    #[serde(default)]
    texts: Vec<Text>,
    #[serde(default)]
    unlisted: u64,
    #[serde(default)]
    sessions: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Event {
    topic: String,
    partition: i32,
    offset: i64,
}

#[derive(Deserialize)]
struct Text {
    memory: String,
}

/// Receipts by the position of their event, so that one that is in both places counts once.
type Receipts = BTreeMap<(i32, i64), Receipt>;

/// Returns the events that forget again, by partition and in the order of the old log.
pub fn forgets(
    restore: &Restore<'_>,
    file: Option<&Path>,
) -> Result<BTreeMap<i32, Vec<OutgoingRecord>>> {
    let mut receipts = Receipts::new();
    let topic = restore.config.topics.erasures();
    let ranges = reading::whole_topic(restore.connection, restore.config, &topic)?;
    reading::read(restore.connection, &topic, &ranges, &mut |record| {
        // Somebody else's record on the topic is no receipt.
        if let Ok(receipt) = serde_json::from_slice(record.value.as_deref().unwrap_or_default()) {
            restore.note(receipt, &mut receipts);
        }
        Ok(())
    })?;
    if let Some(path) = file {
        let about = |why: String| {
            Fault::stop(StopName::ConfigInvalid, format!("--erasures {}: {why}", path.display()))
        };
        let lines = BufReader::new(File::open(path).map_err(|error| about(error.to_string()))?);
        for (number, line) in lines.lines().enumerate() {
            let line = line.map_err(|error| about(error.to_string()))?;
            if line.trim().is_empty() {
                continue;
            }
            let receipt = serde_json::from_str(&line)
                .map_err(|error| about(format!("line {}: {error}", number + 1)))?;
            restore.note(receipt, &mut receipts);
        }
    }
    let mut events: BTreeMap<i32, Vec<OutgoingRecord>> = BTreeMap::new();
    for receipt in receipts.values() {
        let key = UserKey::new(&receipt.tenant, &receipt.user)
            .map_err(|e| Fault::stop(StopName::ConfigInvalid, format!("a receipt: {}", e.why)))?;
        let partition = key.partition(restore.manifest.partitions);
        let all = events.entry(partition).or_default();
        for event in receipt.events() {
            all.push(restore.forget(&key, partition, &event));
        }
        all.extend(restore.clear_windows(&key, partition, receipt)?);
        if receipt.unlisted > 0 {
            eprintln!(
                "the receipt of the forget at {}:{} does not list {} texts: send that forget again",
                receipt.event.partition, receipt.event.offset, receipt.unlisted
            );
        }
    }
    let count: usize = events.values().map(Vec::len).sum();
    if count > 0 {
        eprintln!(
            "{} receipts are of forgets behind the backup: {count} forgets follow",
            receipts.len()
        );
    }
    Ok(events)
}

impl Receipt {
    /// Adds another receipt of the same forget: that of the tenant's home beside that of the user's
    /// shard, or the same one from the other place.
    fn add(&mut self, other: Receipt) {
        self.texts.extend(other.texts);
        self.sessions.extend(other.sessions);
        self.unlisted = self.unlisted.max(other.unlisted);
    }

    fn events(&self) -> Vec<Value> {
        let id = |n: usize| format!("restore-{}-{}-{n}", self.event.partition, self.event.offset);
        if self.target == "everything" {
            return vec![json!({"type": "forget", "everything": true, "id": id(0)})];
        }
        let memories: BTreeSet<&str> = self.texts.iter().map(|text| text.memory.as_str()).collect();
        let events = memories.iter().enumerate();
        events.map(|(n, memory)| json!({"type": "forget", "memory": memory, "id": id(n)})).collect()
    }
}

impl Restore<'_> {
    fn note(&self, receipt: Receipt, receipts: &mut Receipts) {
        let Event { topic, partition, offset } = &receipt.event;
        let shard = usize::try_from(*partition).ok().and_then(|it| self.manifest.shards.get(it));
        let is_behind = shard.is_some_and(|shard| *offset >= shard.events.end);
        if is_behind && *topic == self.manifest.events_topic {
            match receipts.entry((*partition, *offset)) {
                Entry::Vacant(vacant) => drop(vacant.insert(receipt)),
                Entry::Occupied(known) => known.into_mut().add(receipt),
            }
        }
    }

    /// Clears the context windows of the sessions whose digests the receipt has.
    fn clear_windows(
        &self,
        key: &UserKey,
        partition: i32,
        receipt: &Receipt,
    ) -> Result<Option<OutgoingRecord>> {
        let shard = self.manifest.shards.get(partition as usize);
        let (Some(shard), false) = (shard, receipt.sessions.is_empty()) else { return Ok(None) };
        let Some(marks) = self.signing_key()? else { return Ok(None) };
        let Event { topic, partition: at, offset } = &receipt.event;
        let salt = Salt::of_forget(&marks, topic, *at, *offset);
        let mut found = BTreeSet::new();
        backup::live(self.dir, shard, &backup::fold(self.dir, shard)?, &mut |record| {
            let session = session_of(&record).filter(|(user, _)| user == key);
            found.extend(session.map(|(_, session)| session));
            Ok(())
        })?;
        found.retain(|session| receipt.sessions.contains(&salt.digest_hex(session)));
        if found.is_empty() {
            return Ok(None);
        }
        let idle: Vec<IdleSession> =
            found.into_iter().map(|session| IdleSession { session, last_at: None }).collect();
        let proposal = Proposal {
            topic: &self.config.topics.events(),
            partition,
            key,
            id: &format!("restore-{at}-{offset}-windows"),
            // The same at every attempt: an interrupted restore compares the events already
            // published.
            at: Time(0),
            signing_key: &marks,
        };
        Ok(Some(reply::proposal_erase(&proposal, &[], &idle, "forgotten before the restore")))
    }

    /// The key of the backup's service. `None` if neither the configuration nor the backup has one.
    pub fn signing_key(&self) -> Result<Option<SigningKey>> {
        let given = &self.config.topics.marks_key;
        if !given.is_empty() {
            return Ok(Some(SigningKey::of(given)));
        }
        let fold = backup::fold(self.dir, &self.manifest.shards[0])?;
        Ok(fold.signing_key().map(SigningKey::of))
    }

    fn forget(&self, key: &UserKey, partition: i32, event: &Value) -> OutgoingRecord {
        let mut event = event.clone();
        event["tenant"] = key.tenant().into();
        event["user"] = key.user().into();
        let mut record = OutgoingRecord {
            topic: self.config.topics.events(),
            partition: Some(partition),
            key: Some(key.as_str().as_bytes().to_vec()),
            value: Some(event.to_string().into_bytes()),
            ..OutgoingRecord::default()
        };
        let keys = self.config.auth.keys().expect("the keys were checked at start");
        client::sign(&mut record, &keys);
        record
    }
}

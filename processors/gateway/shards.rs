//! The shards as Kafka shows them: the end of each events partition, how far the service's consumer
//! group has come, the process that serves the shard, the records that a restore reads, and the
//! dead letters. Whether a shard answers only the shard itself can show, so each one gets a
//! request.
//!
//! The offsets behind the last event may hold only markers of transactions, which nobody reads. So a
//! partition is behind only if there is a record to be read, and the first one gives the age.

use crate::PAGE_RECORDS_MAX;
use crate::calls::{Calls, ranges};
use crate::keys::{Caller, Permission};
use crate::origins::{Origin, Origins};
use crate::refusal::{Result, unavailable};
use crate::state::Gateway;
use axum::extract::State;
use axum::{Extension, Json};
use broker::{Polled, Record, Start};
use client::reading::OffsetRange;
use client::show::rfc_3339;
use domain::UserKey;
use domain::fault::{self, Fault};
use futures_util::{StreamExt, stream};
use kafka::GroupFacts;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(50);
/// Longest reading of the oldest events that wait. Without an answer their age is left out.
const OLDEST_WITHIN: Duration = Duration::from_secs(2);
/// Longest wait for a shard. One that is being restored answers so after `recall.min_offset_ms`, a
/// second.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// Fields of a shard that the administrator of one tenant sees: all tenants share the shard.
const OF_TENANT: [&str; 4] = ["partition", "behind", "dead_letters", "member"];
/// A quarter of the calls that may wait at once.
const ASKED_AT_ONCE: usize = 64;

/// `GET /v1/keepsake/shards`.
pub async fn list(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<Value>> {
    caller.may(Permission::Admin)?;
    let _place = gateway.permit(&caller)?;
    let read_max = PAGE_RECORDS_MAX;
    let letters = gateway.letters.origins(&gateway.calls, read_max).await?;
    let (calls, group) = (gateway.calls.clone(), gateway.options.group.clone());
    let read = tokio::task::spawn_blocking(move || ShardStatus::read(&calls, &group));
    let read = read.await.unwrap_or_else(|e| Err(Fault::retry(e.to_string())));
    let shards = read.map_err(|fault| unavailable(&fault))?;
    let Calls { topics, .. } = &*gateway.calls;
    // Counts and offsets of a shard are those of all tenants, and one machine serves all.
    let tenant = gateway.is_guarded().then_some(&*caller.tenant);
    Ok(Json(shards.reply(&topics.events, &letters, tenant)))
}

/// `GET /v1/keepsake/shards/answers`.
pub async fn answers(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<Value>> {
    caller.may(Permission::Admin)?;
    let _place = gateway.permit(&caller)?;
    let (calls, topic) = (gateway.calls.clone(), gateway.calls.topics.recalls.clone());
    let read = tokio::task::spawn_blocking(move || ranges(&calls, &topic, None));
    let read = read.await.unwrap_or_else(|e| Err(Fault::retry(e.to_string())));
    let ranges = read.map_err(|fault| unavailable(&fault))?;
    let count = ranges.len() as i32;
    let began = Instant::now();
    let probed = stream::iter(ranges).map(async |range: OffsetRange| {
        // With thousands of shards of which none answers, the last ones are not asked.
        if began.elapsed() > gateway.calls.reply_within() {
            return json!({"partition": range.partition, "answers": false, "why": "not asked: too many were silent"});
        }
        let user = user_on(&caller.tenant, range.partition, count);
        let began = Instant::now();
        let reply = gateway.calls.probe(&user, ANSWER_WITHIN).await;
        answer(range.partition, reply, began.elapsed())
    });
    let mut shards: Vec<Value> = probed.buffer_unordered(ASKED_AT_ONCE).collect().await;
    shards.sort_by_key(|shard| shard["partition"].as_i64());
    Ok(Json(json!({"shards": shards})))
}

/// Finds a user whose requests go to this partition. The service has no request without a user, and
/// the `stats` of one who never spoke read nothing. The tenant's quota counts them.
fn user_on(tenant: &str, partition: i32, count: i32) -> UserKey {
    let users = (0..).filter_map(|n| UserKey::new(tenant, &format!("shard-probe-{n}")).ok());
    let mut here = users.filter(|user| user.partition(count) == partition);
    here.next().expect("murmur2 reaches every partition")
}

fn answer(partition: i32, reply: Result<Option<Value>>, took: Duration) -> Value {
    let took_ms = took.as_millis() as u64;
    match reply {
        Ok(Some(reply)) => json!({"partition": partition, "answers": true, "took_ms": took_ms,
            "stale": reply["stale"]}),
        Ok(None) => json!({"partition": partition, "answers": false,
            "why": format!("no answer in {} s", ANSWER_WITHIN.as_secs())}),
        Err(refusal) => json!({"partition": partition, "answers": false, "code": refusal.code,
            "why": refusal.message}),
    }
}

struct ShardStatus {
    group: String,
    ranges: Vec<OffsetRange>,
    /// The offsets of the memories topic, which a restore reads.
    memories: Vec<OffsetRange>,
    committed: BTreeMap<i32, i64>,
    /// `None`: the broker does not say.
    facts: Option<GroupFacts>,
    /// The first record that is not applied, of each partition that has one.
    oldest: BTreeMap<i32, Oldest>,
}

#[derive(Clone, Copy)]
enum Oldest {
    At(i64),
    /// The reading took too long.
    Unknown,
}

impl ShardStatus {
    fn read(calls: &Calls, group: &str) -> fault::Result<ShardStatus> {
        let topic = &calls.topics.events;
        let memories = ranges(calls, &calls.topics.memories, None)?;
        let ranges = ranges(calls, topic, None)?;
        let partitions: Vec<i32> = ranges.iter().map(|range| range.partition).collect();
        let committed = calls.connection.committed(group, topic, &partitions)?;
        let facts = calls.connection.group_facts(group, topic)?;
        let behind: Vec<OffsetRange> = ranges
            .iter()
            .map(|range| OffsetRange { from: applied(range, &committed), ..*range })
            .filter(|range| range.from < range.end)
            .collect();
        let oldest = oldest(calls, topic, &behind)?;
        Ok(ShardStatus { group: group.to_owned(), ranges, memories, committed, facts, oldest })
    }

    /// The shards; for one tenant only that tenant's letters and the fields in `OF_TENANT`.
    fn reply(&self, events: &str, origins: &Origins, tenant: Option<&str>) -> Value {
        let letters: Vec<&Origin> = origins
            .letters
            .iter()
            .filter(|letter| tenant.is_none() || letter.tenant.as_deref() == tenant)
            .collect();
        let mut shards: Vec<Value> =
            self.ranges.iter().map(|range| self.row(range, events, &letters)).collect();
        if tenant.is_some() {
            for row in shards.iter_mut().filter_map(Value::as_object_mut) {
                row.retain(|name, _| OF_TENANT.contains(&name.as_str()));
                if let Some(member) = row.get_mut("member").and_then(Value::as_object_mut) {
                    member.remove("host");
                }
            }
        }
        let mut reply = json!({"group": self.group, "shards": shards,
            "dead_letters": {"count": letters.len(), "complete": origins.is_complete}});
        if let Some(facts) = &self.facts {
            reply["state"] = facts.state.as_str().into();
        }
        reply
    }

    fn row(&self, range: &OffsetRange, events: &str, letters: &[&Origin]) -> Value {
        let OffsetRange { partition, from, end } = *range;
        let applied = applied(range, &self.committed);
        let oldest = self.oldest.get(&partition);
        let lag = if oldest.is_some() { end - applied } else { 0 };
        let of_here = Some((events.to_owned(), i64::from(partition)));
        let dead_letters = letters.iter().filter(|letter| letter.place == of_here).count();
        let memories = self.memories.iter().find(|range| range.partition == partition);
        let mut row = json!({"partition": partition, "begin": from, "end": end,
            "applied": applied, "lag": lag, "behind": lag > 0,
            "restore": memories.map_or(0, |range| range.end - range.from),
            "dead_letters": dead_letters});
        if let Some(Oldest::At(ms)) = oldest {
            row["oldest_waiting_at"] = rfc_3339(*ms).into();
        }
        let members = self.facts.iter().flat_map(|facts| &facts.members);
        let mut serving = members.filter(|member| member.partitions.contains(&partition));
        if let Some(member) = serving.next() {
            row["member"] = json!({"client": member.client, "host": member.host});
        }
        row
    }
}

/// The offset behind the last event that is applied. Without a committed offset nothing is.
fn applied(range: &OffsetRange, committed: &BTreeMap<i32, i64>) -> i64 {
    committed.get(&range.partition).copied().unwrap_or(range.from).clamp(range.from, range.end)
}

/// Reads the first record of each range.
fn oldest(
    calls: &Calls,
    topic: &str,
    ranges: &[OffsetRange],
) -> fault::Result<BTreeMap<i32, Oldest>> {
    let mut oldest: BTreeMap<i32, Oldest> =
        ranges.iter().map(|range| (range.partition, Oldest::Unknown)).collect();
    if ranges.is_empty() {
        return Ok(oldest);
    }
    let mut reader = calls.connection.reader_without_group("keepsake-gateway", topic)?;
    let starts: Vec<(i32, Start)> =
        ranges.iter().map(|range| (range.partition, Start::At(range.from))).collect();
    reader.assign(&starts)?;
    let began = Instant::now();
    let mut waiting = ranges.len();
    while waiting > 0 && began.elapsed() < OLDEST_WITHIN {
        match reader.poll(POLL)? {
            Polled::Record(Record { partition, timestamp_ms, .. }) => {
                if let Some(Oldest::Unknown) = oldest.get(&partition) {
                    oldest.insert(partition, Oldest::At(timestamp_ms));
                    waiting -= 1;
                    reader.unassign(&[partition])?;
                }
            }
            Polled::End { partition } => {
                // Only markers are left.
                if let Some(Oldest::Unknown) = oldest.get(&partition) {
                    oldest.remove(&partition);
                    waiting -= 1;
                }
            }
            Polled::Nothing => {}
        }
    }
    Ok(oldest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Refusal;
    use axum::http::StatusCode;
    use kafka::GroupMember;

    fn member(client: &str, partition: i32) -> GroupMember {
        let host = "10.0.0.1".to_owned();
        GroupMember { client: client.to_owned(), host, partitions: vec![partition] }
    }

    #[test]
    fn a_shard_is_behind_only_where_a_record_waits() {
        let shards = ShardStatus {
            group: "keepsake".to_owned(),
            ranges: (0..3).map(|partition| OffsetRange { partition, from: 5, end: 20 }).collect(),
            memories: vec![OffsetRange { partition: 1, from: 3, end: 10 }],
            committed: BTreeMap::from([(0, 12), (1, 19)]),
            facts: Some(GroupFacts {
                state: "Stable".to_owned(),
                members: vec![member("one", 0), member("two", 2)],
            }),
            oldest: BTreeMap::from([(0, Oldest::At(1000)), (2, Oldest::Unknown)]),
        };
        let letter = |tenant: &str, place: Option<(&str, i64)>| Origin {
            tenant: Some(tenant.to_owned()),
            place: place.map(|(topic, partition)| (topic.to_owned(), partition)),
        };
        let letters = vec![
            letter("acme", Some(("k.events", 0))),
            letter("else", Some(("k.events", 0))),
            letter("acme", Some(("k.recalls", 0))),
            letter("else", None),
        ];
        let origins = Origins { letters, is_complete: false };
        let reply = shards.reply("k.events", &origins, None);
        assert_eq!(reply["dead_letters"], json!({"count": 4, "complete": false}));
        assert_eq!(
            reply["shards"],
            json!([
                {"partition": 0, "begin": 5, "end": 20, "applied": 12, "lag": 8, "behind": true,
                    "restore": 0, "dead_letters": 2,
                    "oldest_waiting_at": "1970-01-01T00:00:01Z",
                    "member": {"client": "one", "host": "10.0.0.1"}},
                {"partition": 1, "begin": 5, "end": 20, "applied": 19, "lag": 0, "behind": false,
                    "restore": 7, "dead_letters": 0},
                {"partition": 2, "begin": 5, "end": 20, "applied": 5, "lag": 15, "behind": true,
                    "restore": 0, "dead_letters": 0,
                    "member": {"client": "two", "host": "10.0.0.1"}},
            ])
        );
        let of_tenant = shards.reply("k.events", &origins, Some("acme"));
        assert_eq!(of_tenant["dead_letters"], json!({"count": 2, "complete": false}));
        assert_eq!(
            of_tenant["shards"],
            json!([
                {"partition": 0, "behind": true, "dead_letters": 1, "member": {"client": "one"}},
                {"partition": 1, "behind": false, "dead_letters": 0},
                {"partition": 2, "behind": true, "dead_letters": 0, "member": {"client": "two"}},
            ])
        );
    }

    #[test]
    fn every_partition_has_a_user_to_ask_for() {
        for count in [1, 6, 64] {
            for partition in 0..count {
                assert_eq!(user_on("acme", partition, count).partition(count), partition);
            }
        }
    }

    #[test]
    fn a_shard_answers_or_it_is_known_why_not() {
        let took = Duration::from_millis(7);
        let restoring = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "restored");
        assert_eq!(
            [Ok(Some(json!({"stale": true}))), Ok(None), Err(restoring)]
                .map(|reply| answer(3, reply, took)),
            [
                json!({"partition": 3, "answers": true, "took_ms": 7, "stale": true}),
                json!({"partition": 3, "answers": false, "why": "no answer in 3 s"}),
                json!({"partition": 3, "answers": false, "code": "unavailable",
                    "why": "restored"}),
            ]
        );
    }
}

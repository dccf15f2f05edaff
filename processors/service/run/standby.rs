//! The standby thread: keeps copies of the shards of other processes.
//!
//! With `store.standby_copies` each shard has so many copies. No process asks another: each reads
//! the members of the group and chooses by
//! [rendezvous hashing](https://en.wikipedia.org/wiki/Rendezvous_hashing), so that a member that
//! comes or goes moves only its own share. The hash takes the `client.id` of a member, which stays
//! the same over a restart. Members that disagree, such as two versions, make more copies or fewer.

use super::Shared;
use super::loops::rewrite_after_ms;
use crate::ownership::ShardRegistry;
use deployment::dir::instance_id;
use domain::fault::{Fault, Result};
use kafka::{CLIENT_ID, Connection, GroupFacts, GroupMember, GroupReader};
use settings::Config;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Pause before a stand-by copy is tried again that met more than an unwilling broker.
const AFTER_FAULT: Duration = Duration::from_secs(600);

/// A choice counts once the group has been the same for this many rounds, and for a minute at most:
/// nobody copies the share of a process that only restarts.
const SETTLED_ROUNDS: u32 = 12;
const SETTLED_MAX: Duration = Duration::from_secs(60);
/// Without any choice after so many times as long, every shard is followed if the members cannot be
/// told apart, and those whose copies are here already if the group cannot be read.
const AWAITED: u32 = 3;

pub struct StandbyLoop {
    pub shards: Arc<ShardRegistry>,
    pub every: Duration,
    /// `forget.within_ms`
    pub within: Duration,
    /// If false, only until this process owns shards: before a generation is open.
    pub is_lasting: bool,
    /// `None`: this process keeps a copy of every shard of others.
    pub group: Option<Group>,
}

/// The group whose members share the copies.
pub struct Group {
    reader: GroupReader,
    /// The `client.id` of this process as a member.
    own: String,
    copies: usize,
    choice: Choice,
}

impl StandbyLoop {
    /// Brings each copy up to date, once in each period.
    pub fn run(mut self, shared: &Shared) -> Result<()> {
        let shards = self.shards;
        let mut failed: BTreeMap<i32, Instant> = BTreeMap::new();
        while !shared.is_stopping() && (self.is_lasting || shards.owned().is_empty()) {
            failed.retain(|_, at| at.elapsed() < AFTER_FAULT);
            let followed = match &mut self.group {
                Some(group) => group.followed(&shards),
                None => shards.followed(),
            };
            for partition in followed {
                if failed.contains_key(&partition) {
                    continue;
                }
                match shards.stand_by(partition, rewrite_after_ms(self.within)) {
                    Err(Fault::Retry(retry)) => {
                        tracing::warn!(
                            partition,
                            what = retry.what,
                            "cannot update a stand-by copy: retrying later"
                        );
                    }
                    // A copy that is not needed now must not end a process that serves others.
                    Err(stop) => {
                        tracing::error!(partition, %stop, "cannot update a stand-by copy");
                        failed.insert(partition, Instant::now());
                    }
                    Ok(()) => {}
                }
                if shared.is_stopping() {
                    return Ok(());
                }
            }
            shared.wait(self.every);
        }
        Ok(())
    }
}

impl Group {
    /// Returns `None` unless the members share the copies.
    pub fn open(config: &Config, connection: &Connection) -> Result<Option<Group>> {
        let Config { kafka, store, topics, .. } = config;
        if !store.shares_copies() {
            return Ok(None);
        }
        let every = Duration::from_millis(store.standby_ms);
        Ok(Some(Group {
            reader: connection.group_reader(&kafka.group_id, &topics.events())?,
            own: client_id(config)?,
            copies: store.standby_copies,
            choice: Choice::new(
                every.saturating_mul(SETTLED_ROUNDS).min(SETTLED_MAX),
                Instant::now(),
            ),
        }))
    }

    /// Looks at the group, and returns the shards to follow.
    fn followed(&mut self, shards: &ShardRegistry) -> Vec<i32> {
        let (facts, is_readable) = self.facts();
        let left = facts.and_then(|it| left(&it, &self.own, self.copies, shards.partitions()));
        let without = || if is_readable { BTreeSet::new() } else { shards.without_files() };
        let Some(left) = self.choice.look(left, without, Instant::now()) else {
            return Vec::new();
        };
        let is_changed = shards.leave_to_others(&left);
        let followed = shards.followed();
        if is_changed {
            tracing::info!(?followed, "the stand-by copies of this process have changed");
        }
        followed
    }

    /// Returns the members of a group at rest, and whether the group can be read.
    fn facts(&self) -> (Option<GroupFacts>, bool) {
        match self.reader.facts() {
            Ok(facts) => (facts.filter(|facts| facts.state == "Stable"), true),
            Err(fault) => {
                tracing::debug!(%fault, "cannot read who shares the stand-by copies");
                (None, false)
            }
        }
    }
}

/// The `client.id` by which the members of the group tell each other apart: the operator's, or else
/// one with the id of the store, which outlives a restart.
pub fn client_id(config: &Config) -> Result<String> {
    let options = config.kafka.client_options().into_iter();
    match options.rev().find(|(option, _)| option == CLIENT_ID) {
        Some((_, given)) => Ok(given),
        None => Ok(format!("{}-ingest-{}", config.kafka.group_id, instance_id(&config.store.dir)?)),
    }
}

/// Returns the shards of which others keep the copies. A shard of this process is not among them:
/// its files are the copy if another takes the shard. `None` unless exactly one member is `own`.
fn left(facts: &GroupFacts, own: &str, copies: usize, partitions: i32) -> Option<BTreeSet<i32>> {
    let mut named = facts.members.iter().filter(|member| member.client == own);
    let (Some(own), None) = (named.next(), named.next()) else { return None };
    let is_left = |partition: &i32| {
        let own_weight = weight(own, *partition);
        let higher = facts.members.iter().filter(|member| {
            !member.partitions.contains(partition) && weight(member, *partition) > own_weight
        });
        !own.partitions.contains(partition) && higher.count() >= copies
    };
    Some((0..partitions).filter(is_left).collect())
}

/// Invariant: the same in every process and version, or a shard has more copies or fewer.
fn weight(member: &GroupMember, partition: i32) -> u128 {
    let name = format!("{} {partition}", member.client);
    Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()).as_u128()
}

/// The shards that are left to others, as seen last and as settled.
struct Choice {
    seen: Option<BTreeSet<i32>>,
    since: Instant,
    settled: Option<BTreeSet<i32>>,
    settled_after: Duration,
    awaited_until: Instant,
    is_warned: bool,
}

impl Choice {
    fn new(settled_after: Duration, now: Instant) -> Choice {
        let awaited_until = now + settled_after * AWAITED;
        Choice {
            seen: None,
            since: now,
            settled: None,
            settled_after,
            awaited_until,
            is_warned: false,
        }
    }

    /// Returns the settled choice after another look; without one, what `without` leaves to others, or
    /// `None` while the first one is awaited.
    fn look(
        &mut self,
        seen: Option<BTreeSet<i32>>,
        without: impl FnOnce() -> BTreeSet<i32>,
        now: Instant,
    ) -> Option<BTreeSet<i32>> {
        if seen != self.seen {
            self.seen = seen;
            self.since = now;
        }
        if self.seen.is_some() && now - self.since >= self.settled_after {
            self.settled.clone_from(&self.seen);
        }
        if self.settled.is_some() || now < self.awaited_until {
            return self.settled.clone();
        }
        let left = without();
        if !std::mem::replace(&mut self.is_warned, true) {
            tracing::warn!(?left, "cannot tell who keeps the stand-by copies: keeps all but these");
        }
        Some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::Layers;
    use std::path::Path;

    const PARTITIONS: i32 = 60;

    /// A group in which the members own the partitions in turn.
    fn group(clients: &[&str]) -> GroupFacts {
        let partitions = |n| (0..PARTITIONS).skip(n).step_by(clients.len()).collect();
        let members = clients.iter().enumerate().map(|(n, client)| GroupMember {
            client: (*client).into(),
            host: "a".into(),
            partitions: partitions(n),
        });
        GroupFacts { state: "Stable".into(), members: members.collect() }
    }

    /// The members that follow a shard.
    fn followers(facts: &GroupFacts, copies: usize, partition: i32) -> BTreeSet<&str> {
        let follows = |member: &&GroupMember| {
            let left = left(facts, &member.client, copies, PARTITIONS).expect("a member");
            !member.partitions.contains(&partition) && !left.contains(&partition)
        };
        facts.members.iter().filter(follows).map(|member| &*member.client).collect()
    }

    #[test]
    fn each_shard_has_its_number_of_copies_besides_the_owners() {
        let facts = group(&["a", "b", "c", "d"]);
        for (copies, expected) in [(1, 1), (2, 2), (3, 3), (4, 3)] {
            for partition in 0..PARTITIONS {
                assert_eq!(followers(&facts, copies, partition).len(), expected, "{partition}");
            }
        }
        for member in &facts.members {
            let left = left(&facts, &member.client, 1, PARTITIONS).expect("a member");
            let own = |partition| member.partitions.contains(partition);
            assert!(!left.iter().any(own), "an owner keeps its files when it loses the shard");
            // A third of 45 each.
            let follows = PARTITIONS as usize - member.partitions.len() - left.len();
            assert!((6..=26).contains(&follows), "{} follows {follows}", member.client);
        }
    }

    /// The fifth member takes from the others what it is the best for, and gives it back.
    #[test]
    fn a_member_that_comes_or_goes_moves_only_its_share() {
        let four = group(&["a", "b", "c", "d"]);
        let newcomer = GroupMember { client: "e".into(), host: "a".into(), partitions: vec![] };
        let mut five = four.clone();
        five.members.push(newcomer);
        let mut moved = 0;
        for partition in 0..PARTITIONS {
            let (before, after) = (followers(&four, 2, partition), followers(&five, 2, partition));
            assert!(after.difference(&before).all(|came| *came == "e"), "{before:?} {after:?}");
            moved += after.difference(&before).count();
        }
        assert!((10..=40).contains(&moved), "about a quarter of 120, not {moved}");
    }

    #[test]
    fn who_is_not_exactly_one_member_chooses_nothing() {
        assert_eq!(left(&group(&["a", "b"]), "c", 1, PARTITIONS), None);
        assert_eq!(left(&group(&["a", "b", "b"]), "b", 1, PARTITIONS), None);
        let of_a = left(&group(&["a", "b", "b"]), "a", 1, PARTITIONS);
        assert!(of_a.is_some(), "members that look alike count for others");
    }

    #[test]
    fn a_process_is_known_by_its_store_unless_the_operator_names_it() {
        let name = |dir: &Path, given: &[&str]| {
            let mut layers = Layers::defaults();
            layers.set("store.dir", &dir.to_string_lossy(), "a test").expect("an option");
            for given in given {
                layers.set("kafka.librdkafka.client.id", given, "a test").expect("an option");
            }
            client_id(&layers.checked().expect("it is valid")).expect("a disk")
        };
        let [one, other] = [(); 2].map(|()| tempfile::tempdir().expect("a temporary directory"));
        assert_eq!(name(one.path(), &[]), name(one.path(), &[]), "after a restart");
        assert_ne!(name(one.path(), &[]), name(other.path(), &[]));
        assert_eq!(name(one.path(), &["pod-3"]), "pod-3");
    }

    #[test]
    fn a_choice_counts_when_it_has_lasted_and_stays_until_another_has() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let set = |partitions: &[i32]| partitions.iter().copied().collect::<BTreeSet<i32>>();
        let mut choice = Choice::new(Duration::from_secs(60), began);
        for (seconds, seen, counts) in [
            (0, None, None),
            (5, Some([1, 2]), None),
            (64, Some([1, 2]), None),
            (65, Some([1, 2]), Some([1, 2])),
            (70, Some([1, 3]), Some([1, 2])),
            (75, None, Some([1, 2])),
            (80, Some([1, 3]), Some([1, 2])),
            (139, Some([1, 3]), Some([1, 2])),
            (140, Some([1, 3]), Some([1, 3])),
            (900, None, Some([1, 3])),
            (999, None, Some([1, 3])),
        ] {
            let seen = seen.map(|it| set(&it));
            let expected = counts.map(|it| set(&it));
            assert_eq!(choice.look(seen, BTreeSet::new, at(seconds)), expected, "{seconds}");
        }
        let mut blind = Choice::new(Duration::from_secs(60), began);
        assert_eq!(blind.look(None, || set(&[1]), at(179)), None);
        assert_eq!(blind.look(None, || set(&[1]), at(180)), Some(set(&[1])), "what is here");
        assert_eq!(blind.look(None, || set(&[2]), at(181)), Some(set(&[2])));
        assert_eq!(blind.look(Some(set(&[3])), || set(&[2]), at(182)), Some(set(&[2])));
        assert_eq!(blind.look(Some(set(&[3])), || set(&[2]), at(242)), Some(set(&[3])));
    }
}

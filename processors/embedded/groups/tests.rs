//! Groups with time that is wound by hand.

use super::*;
use ResponseError::{
    FencedInstanceId, GroupMaxSizeReached, IllegalGeneration, InconsistentGroupProtocol,
    InvalidSessionTimeout, RebalanceInProgress, UnknownMemberId,
};

const SESSION: i32 = 10_000;
const REBALANCE: i32 = 60_000;

#[derive(Default)]
struct Scene {
    groups: Groups,
    now: Millis,
}

fn consumer(name: &str) -> Join {
    Join {
        group: "group".into(),
        client_id: name.into(),
        session_ms: SESSION,
        rebalance_ms: REBALANCE,
        protocol_type: "consumer".into(),
        protocols: vec![("range".into(), Bytes::copy_from_slice(name.as_bytes()))],
        ..Join::default()
    }
}

fn static_consumer(name: &str) -> Join {
    Join { instance: Some(name.into()), skips_assignment: true, ..consumer(name) }
}

fn identity(joined: &Joined) -> Identity {
    Identity {
        group: "group".into(),
        member: joined.member.clone(),
        instance: None,
        generation: joined.generation,
    }
}

fn nobody() -> Identity {
    Identity { group: "group".into(), generation: -1, ..Identity::default() }
}

impl Scene {
    fn waits(&mut self, join: Join) -> u64 {
        match self.groups.join(self.now, join) {
            Ok(Step::Wait(ticket)) => ticket,
            other => panic!("the join does not wait: {other:?}"),
        }
    }

    /// A known member joins again.
    fn rejoins(&mut self, joined: &Joined, join: Join) -> u64 {
        self.waits(Join { member: joined.member.clone(), ..join })
    }

    fn refused(&mut self, join: Join) -> ResponseError {
        match self.groups.join(self.now, join) {
            Err(Refused::Error(error)) => error,
            other => panic!("the join is not refused: {other:?}"),
        }
    }

    fn answer(&mut self, ticket: u64) -> Option<Outcome<Joined>> {
        self.groups.take_joined(ticket)
    }

    fn joined(&mut self, ticket: u64) -> Joined {
        self.answer(ticket).expect("an answer").expect("a member")
    }

    fn sync(&mut self, joined: &Joined, assignments: &[(&Joined, &'static str)]) -> Step<Bytes> {
        self.try_sync(joined, assignments).expect("a sync")
    }

    fn try_sync(
        &mut self,
        joined: &Joined,
        assignments: &[(&Joined, &'static str)],
    ) -> Outcome<Step<Bytes>> {
        let assignments = assignments.iter();
        let sync = Sync {
            identity: identity(joined),
            assignments: assignments
                .map(|(to, what)| (to.member.clone(), (*what).into()))
                .collect(),
            ..Sync::default()
        };
        self.groups.sync(self.now, sync)
    }

    fn beat(&mut self, joined: &Joined) -> Outcome<()> {
        self.groups.heartbeat(self.now, &identity(joined))
    }

    fn commit(&mut self, from: &Identity) -> Outcome<()> {
        self.groups.check_commit(self.now, from, false)
    }

    fn pass(&mut self, ms: i32) {
        self.now += Millis::from(ms);
        let next = self.groups.tick(self.now);
        assert!(next.is_none_or(|next| next > self.now), "a thread would spin until then");
    }

    fn phase(&self) -> Option<Phase> {
        self.groups.get("group").map(|group| group.phase)
    }

    fn members(&self) -> usize {
        self.groups.get("group").map_or(0, |group| group.members.len())
    }

    /// The leader and a follower of a group whose leader has not assigned yet.
    fn completing(leader: Join, follower: Join) -> (Scene, Joined, Joined) {
        let mut scene = Scene::default();
        let first = scene.waits(leader.clone());
        let first = scene.joined(first);
        let second = scene.waits(follower);
        let again = scene.rejoins(&first, leader);
        let (leader, follower) = (scene.joined(again), scene.joined(second));
        (scene, leader, follower)
    }

    fn stable(leader: Join, follower: Join) -> (Scene, Joined, Joined) {
        let (mut scene, leader, follower) = Scene::completing(leader, follower);
        let assignments = [(&leader, "first"), (&follower, "second")];
        assert_eq!(scene.sync(&leader, &assignments), Step::Now("first".into()));
        assert_eq!(scene.sync(&follower, &[]), Step::Now("second".into()));
        assert_eq!(scene.phase(), Some(Phase::Stable));
        (scene, leader, follower)
    }
}

#[test]
fn two_members_share_the_partitions() {
    let (mut scene, leader, follower) = Scene::stable(consumer("a"), consumer("b"));
    assert_eq!((leader.generation, follower.generation), (2, 2));
    assert_eq!((&leader.leader, &follower.leader), (&leader.member, &leader.member));
    let seen: Vec<&[u8]> = leader.members.iter().map(|(.., metadata)| &metadata[..]).collect();
    assert_eq!(seen, [b"a", b"b"]);
    assert!(follower.members.is_empty());
    assert_eq!((scene.beat(&leader), scene.beat(&follower)), (Ok(()), Ok(())));
}

#[test]
fn a_follower_waits_for_the_leader() {
    let (mut scene, leader, follower) = Scene::completing(consumer("a"), consumer("b"));
    let Step::Wait(ticket) = scene.sync(&follower, &[]) else { panic!("an assignment") };
    assert_eq!(scene.groups.take_synced(ticket), None);
    scene.sync(&leader, &[(&follower, "all")]);
    assert_eq!(scene.groups.take_synced(ticket), Some(Ok("all".into())));
}

#[test]
fn a_leader_that_leaves_is_succeeded_by_another_member() {
    let (mut scene, leader, follower) = Scene::stable(consumer("a"), consumer("b"));
    assert_eq!(scene.groups.leave(scene.now, "group", &leader.member, None), Ok(()));
    assert_eq!(scene.beat(&follower), Err(RebalanceInProgress));
    let again = scene.rejoins(&follower, consumer("b"));
    let again = scene.joined(again);
    assert_eq!((again.generation, &again.leader), (3, &follower.member));
    assert_eq!(again.members.len(), 1);
}

#[test]
fn a_group_that_all_have_left_is_forgotten() {
    let (mut scene, leader, follower) = Scene::stable(consumer("a"), consumer("b"));
    for member in [&leader, &follower] {
        assert_eq!(scene.groups.leave(scene.now, "group", &member.member, None), Ok(()));
    }
    assert_eq!(scene.phase(), None);
    assert_eq!(scene.beat(&leader), Err(UnknownMemberId));
    scene.pass(SESSION);
    assert_eq!(scene.groups.tick(scene.now), None);
}

#[test]
fn a_silent_member_of_a_stable_group_is_dropped_when_its_session_ends() {
    let (mut scene, leader, follower) = Scene::stable(consumer("a"), consumer("b"));
    scene.pass(SESSION - 1);
    assert_eq!(scene.beat(&leader), Ok(()));
    assert_eq!(scene.members(), 2);
    scene.pass(1);
    assert_eq!(scene.members(), 1);
    assert_eq!(scene.beat(&leader), Err(RebalanceInProgress));
    assert_eq!(scene.beat(&follower), Err(UnknownMemberId));
}

#[test]
fn a_commit_keeps_a_session() {
    let (mut scene, leader, _) = Scene::stable(consumer("a"), consumer("b"));
    scene.pass(SESSION - 1);
    assert_eq!(scene.commit(&identity(&leader)), Ok(()));
    scene.pass(SESSION - 1);
    assert_eq!(scene.members(), 1);
}

#[test]
fn a_silent_member_is_dropped_while_the_others_join() {
    let (mut scene, leader, _) = Scene::stable(consumer("a"), consumer("b"));
    let again = scene.rejoins(&leader, consumer("a"));
    assert_eq!(scene.answer(again), None);
    scene.pass(SESSION);
    let again = scene.joined(again);
    assert_eq!((again.generation, again.members.len()), (3, 1));
}

#[test]
fn a_silent_leader_is_dropped_while_its_follower_waits() {
    let (mut scene, _, follower) = Scene::completing(consumer("a"), consumer("b"));
    let Step::Wait(ticket) = scene.sync(&follower, &[]) else { panic!("an assignment") };
    scene.pass(SESSION);
    assert_eq!(scene.groups.take_synced(ticket), Some(Err(RebalanceInProgress)));
    // The follower's session begins anew: a waiting member cannot send heartbeats.
    scene.pass(SESSION - 1);
    let again = scene.rejoins(&follower, consumer("b"));
    assert_eq!(scene.joined(again).leader, follower.member);
}

#[test]
fn a_rebalance_drops_members_that_do_not_join_in_time() {
    let (mut scene, leader, follower) = Scene::stable(consumer("a"), consumer("b"));
    let again = scene.rejoins(&leader, consumer("a"));
    for _ in 0..REBALANCE / 5_000 - 1 {
        scene.pass(5_000);
        assert_eq!(scene.beat(&follower), Err(RebalanceInProgress));
        assert_eq!(scene.answer(again), None);
    }
    scene.pass(5_000);
    assert_eq!(scene.joined(again).members.len(), 1);
    assert_eq!(scene.beat(&follower), Err(UnknownMemberId));
}

#[test]
fn a_member_that_does_not_sync_is_dropped() {
    let (mut scene, leader, follower) = Scene::completing(consumer("a"), consumer("b"));
    scene.sync(&leader, &[]);
    for _ in 0..REBALANCE / 5_000 {
        assert_eq!((scene.beat(&leader), scene.beat(&follower)), (Ok(()), Ok(())));
        scene.pass(5_000);
    }
    assert_eq!(scene.beat(&leader), Err(RebalanceInProgress));
    assert_eq!(scene.beat(&follower), Err(UnknownMemberId));
}

#[test]
fn a_new_member_joins_with_the_id_that_it_is_given() {
    let mut scene = Scene::default();
    let join = Join { takes_id: true, ..consumer("a") };
    let Err(Refused::IdRequired(id)) = scene.groups.join(0, join.clone()) else {
        panic!("no id is required")
    };
    assert!(id.starts_with("a-"));
    let ticket = scene.waits(Join { member: id.clone(), ..join.clone() });
    assert_eq!(scene.joined(ticket).member, id);
    assert_eq!(scene.refused(Join { member: "another".into(), ..join }), UnknownMemberId);
}

#[test]
fn an_id_that_nobody_joins_with_delays_a_rebalance_for_its_session() {
    let mut scene = Scene::default();
    let newcomer = Join { takes_id: true, ..consumer("a") };
    assert!(matches!(scene.groups.join(0, newcomer), Err(Refused::IdRequired(_))));
    let ticket = scene.waits(consumer("b"));
    scene.pass(SESSION - 1);
    assert_eq!(scene.answer(ticket), None);
    scene.pass(1);
    assert_eq!(scene.joined(ticket).members.len(), 1);
}

#[test]
fn a_static_member_restarts_without_a_rebalance() {
    let (mut scene, leader, follower) = Scene::stable(static_consumer("a"), static_consumer("b"));
    let joined = match scene.groups.join(scene.now, static_consumer("b")) {
        Ok(Step::Now(joined)) => joined,
        other => panic!("a rebalance: {other:?}"),
    };
    assert_eq!((joined.generation, &joined.leader), (2, &leader.member));
    assert_ne!(joined.member, follower.member);
    assert!(joined.members.is_empty() && !joined.skip_assignment);
    assert_eq!(scene.sync(&joined, &[]), Step::Now("second".into()));
    assert_eq!((scene.beat(&leader), scene.beat(&joined)), (Ok(()), Ok(())));
    // The next rebalance waits for the restarted member, as for any other.
    let again = scene.rejoins(&leader, static_consumer("a"));
    assert_eq!(scene.answer(again), None);
}

#[test]
fn a_static_leader_that_restarts_does_not_assign() {
    for skips_assignment in [true, false] {
        let (mut scene, leader, _) = Scene::stable(static_consumer("a"), static_consumer("b"));
        let join = Join { skips_assignment, ..static_consumer("a") };
        let Ok(Step::Now(joined)) = scene.groups.join(scene.now, join) else {
            panic!("a rebalance")
        };
        assert_eq!(joined.skip_assignment, skips_assignment);
        assert_eq!(joined.members.len(), if skips_assignment { 2 } else { 0 });
        let leads = if skips_assignment { &joined.member } else { &leader.member };
        assert_eq!(&joined.leader, leads);
        assert_eq!(scene.sync(&joined, &[]), Step::Now("first".into()));
    }
}

#[test]
fn a_static_member_that_restarts_while_the_leader_assigns_has_all_join_again() {
    let (mut scene, leader, _) = Scene::completing(static_consumer("a"), static_consumer("b"));
    let ticket = scene.waits(static_consumer("b"));
    assert_eq!(scene.try_sync(&leader, &[]), Err(RebalanceInProgress));
    let again = scene.rejoins(&leader, static_consumer("a"));
    assert_eq!((scene.joined(again).generation, scene.joined(ticket).generation), (3, 3));
}

#[test]
fn the_process_before_a_static_restart_is_fenced() {
    let (mut scene, _, follower) = Scene::stable(static_consumer("a"), static_consumer("b"));
    assert!(matches!(scene.groups.join(scene.now, static_consumer("b")), Ok(Step::Now(_))));
    let old = Identity { instance: Some("b".into()), ..identity(&follower) };
    let now = scene.now;
    assert_eq!(scene.groups.heartbeat(now, &old), Err(FencedInstanceId));
    assert_eq!(scene.commit(&old), Err(FencedInstanceId));
    assert_eq!(scene.groups.check_commit(now, &old, true), Err(FencedInstanceId));
    assert_eq!(scene.groups.leave(now, "group", &old.member, Some("b")), Err(FencedInstanceId));
    let join = Join { member: old.member, ..static_consumer("b") };
    assert_eq!(scene.refused(join), FencedInstanceId);
}

#[test]
fn a_static_restart_answers_the_join_that_waits() {
    let (mut scene, _, follower) = Scene::stable(static_consumer("a"), static_consumer("b"));
    let changed = vec![("range".into(), "other topics".into())];
    let join = Join { protocols: changed, ..static_consumer("b") };
    let old = scene.rejoins(&follower, join);
    let new = scene.waits(static_consumer("b"));
    assert_eq!(scene.answer(old), Some(Err(FencedInstanceId)));
    assert_eq!(scene.answer(new), None);
}

#[test]
fn static_members_that_are_away_keep_their_generation() {
    let (mut scene, leader, follower) = Scene::stable(static_consumer("a"), static_consumer("b"));
    let third = scene.waits(consumer("c"));
    assert_eq!(scene.beat(&leader), Err(RebalanceInProgress));
    let third = match scene.answer(third) {
        None => third,
        other => panic!("without the others: {other:?}"),
    };
    // The only one that waits goes, and nobody is left who could lead.
    let ids: Vec<String> =
        scene.groups.get("group").expect("a group").members.keys().cloned().collect();
    let new = ids.iter().find(|id| id.starts_with("c-")).expect("the third");
    assert_eq!(scene.groups.leave(scene.now, "group", new, None), Ok(()));
    assert_eq!(scene.answer(third), Some(Err(UnknownMemberId)));
    for _ in 0..REBALANCE / 5_000 + 1 {
        scene.pass(5_000);
        for member in [&leader, &follower] {
            assert_eq!(scene.beat(member), Err(RebalanceInProgress));
        }
    }
    assert_eq!(scene.commit(&identity(&follower)), Ok(()));
}

#[test]
fn an_administrator_removes_a_static_member_by_its_name() {
    let (mut scene, leader, _) = Scene::stable(static_consumer("a"), static_consumer("b"));
    let now = scene.now;
    assert_eq!(scene.groups.leave(now, "group", "", Some("c")), Err(UnknownMemberId));
    assert_eq!(scene.groups.leave(now, "group", "", Some("b")), Ok(()));
    assert_eq!(scene.beat(&leader), Err(RebalanceInProgress));
    assert_eq!(scene.members(), 1);
}

#[test]
fn members_without_a_common_assignor_do_not_share_a_group() {
    let (mut scene, ..) = Scene::stable(consumer("a"), consumer("b"));
    let other = Join { protocols: vec![("sticky".into(), Bytes::new())], ..consumer("c") };
    assert_eq!(scene.refused(other), InconsistentGroupProtocol);
    let other = Join { protocol_type: "connect".into(), ..consumer("c") };
    assert_eq!(scene.refused(other), InconsistentGroupProtocol);
    assert_eq!(
        scene.refused(Join { protocols: vec![], ..consumer("c") }),
        InconsistentGroupProtocol
    );
    assert_eq!(scene.phase(), Some(Phase::Stable));
}

#[test]
fn the_assignor_is_one_that_all_have_and_most_prefer() {
    let with = |name: &str, assignors: &[&str]| Join {
        protocols: assignors.iter().map(|name| ((*name).to_owned(), Bytes::new())).collect(),
        ..consumer(name)
    };
    let check = |one: &[&str], other: &[&str], expected: &str| {
        let (_, leader, follower) = Scene::completing(with("a", one), with("b", other));
        assert_eq!((leader.protocol.as_str(), follower.protocol.as_str()), (expected, expected));
    };
    check(&["sticky", "range"], &["range"], "range");
    check(&["sticky", "range"], &["cooperative", "sticky", "range"], "sticky");
}

#[test]
fn a_commit_is_of_a_member_and_its_generation() {
    let (mut scene, leader, follower) = Scene::stable(consumer("a"), consumer("b"));
    let old = Identity { generation: 1, ..identity(&leader) };
    let stranger = Identity { member: "stranger".into(), ..identity(&leader) };
    for is_transactional in [false, true] {
        let mut check = |from: &Identity| scene.groups.check_commit(0, from, is_transactional);
        assert_eq!(check(&identity(&leader)), Ok(()));
        assert_eq!(check(&old), Err(IllegalGeneration));
        assert_eq!(check(&stranger), Err(UnknownMemberId));
        let expected = if is_transactional { Ok(()) } else { Err(UnknownMemberId) };
        assert_eq!(check(&nobody()), expected);
    }
    // The others prepare: reads of this generation may still be committed.
    let again = scene.rejoins(&leader, consumer("a"));
    assert_eq!(scene.commit(&identity(&follower)), Ok(()));
    let second = scene.rejoins(&follower, consumer("b"));
    let (leader, renewed) = (scene.joined(again), scene.joined(second));
    assert_eq!(scene.commit(&identity(&follower)), Err(IllegalGeneration));
    // Nothing was read in the new one yet.
    assert_eq!(scene.commit(&identity(&renewed)), Err(RebalanceInProgress));
    assert_eq!(scene.groups.check_commit(0, &identity(&renewed), true), Ok(()));
    scene.sync(&leader, &[]);
    assert_eq!(scene.commit(&identity(&renewed)), Ok(()));
}

#[test]
fn without_members_anybody_commits_and_a_forgotten_generation_does_not() {
    let mut scene = Scene::default();
    assert_eq!(scene.commit(&nobody()), Ok(()));
    let before_restart = Identity { member: "a".into(), generation: 3, ..nobody() };
    assert_eq!(scene.commit(&before_restart), Err(IllegalGeneration));
}

#[test]
fn heartbeats_and_syncs_are_of_the_current_generation() {
    let (mut scene, leader, _) = Scene::stable(consumer("a"), consumer("b"));
    let old = Joined { generation: 1, ..leader.clone() };
    assert_eq!(scene.beat(&old), Err(IllegalGeneration));
    assert_eq!(scene.try_sync(&old, &[]), Err(IllegalGeneration));
    let sync =
        Sync { identity: identity(&leader), protocol: Some("sticky".into()), ..Sync::default() };
    assert_eq!(scene.groups.sync(0, sync), Err(InconsistentGroupProtocol));
}

#[test]
fn a_follower_that_repeats_its_join_gets_the_same_generation() {
    let (mut scene, leader, follower) = Scene::stable(consumer("a"), consumer("b"));
    let join = Join { member: follower.member.clone(), ..consumer("b") };
    assert_eq!(scene.groups.join(scene.now, join), Ok(Step::Now(follower)));
    // The leader has seen other partitions.
    let ticket = scene.rejoins(&leader, consumer("a"));
    assert_eq!(scene.answer(ticket), None);
    assert_eq!(scene.phase(), Some(Phase::Preparing));
}

#[test]
fn a_repeated_join_answers_the_one_before() {
    let (mut scene, leader, _) = Scene::stable(consumer("a"), consumer("b"));
    let first = scene.rejoins(&leader, consumer("a"));
    let second = scene.rejoins(&leader, consumer("a"));
    assert_eq!(scene.answer(first), Some(Err(RebalanceInProgress)));
    assert_eq!(scene.answer(second), None);
}

#[test]
fn groups_members_sessions_and_bytes_are_bounded() {
    let mut scene = Scene::default();
    for session_ms in [SESSION_MS_MIN - 1, SESSION_MS_MAX + 1] {
        let join = Join { session_ms, ..consumer("a") };
        assert_eq!(scene.refused(join), InvalidSessionTimeout);
    }
    for _ in 0..MEMBERS_MAX {
        let join = Join { takes_id: true, ..consumer("a") };
        assert!(matches!(scene.groups.join(0, join), Err(Refused::IdRequired(_))));
    }
    assert_eq!(scene.refused(consumer("a")), GroupMaxSizeReached);

    let mut scene = Scene::default();
    let large = |group: usize, bytes: usize| Join {
        group: group.to_string(),
        protocols: vec![("range".into(), vec![0; bytes].into())],
        ..consumer("a")
    };
    assert_eq!(scene.refused(large(0, MEMBER_BYTES_MAX + 1)), ResponseError::InvalidRequest);
    for group in 0..BYTES_MAX / MEMBER_BYTES_MAX - 1 {
        scene.waits(large(group, MEMBER_BYTES_MAX));
    }
    assert_eq!(scene.refused(large(GROUPS_MAX, MEMBER_BYTES_MAX)), GroupMaxSizeReached);

    let mut scene = Scene::default();
    for group in 0..GROUPS_MAX {
        scene.waits(large(group, 0));
    }
    assert_eq!(scene.refused(large(GROUPS_MAX, 0)), GroupMaxSizeReached);
}

#[test]
fn a_group_reads_the_topics_of_its_members() {
    let subscription = |topic: &str| {
        let mut bytes = vec![0, 1, 0, 0, 0, 1, 0, topic.len() as u8];
        bytes.extend_from_slice(topic.as_bytes());
        bytes.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        Join { protocols: vec![("range".into(), bytes.into())], ..consumer(topic) }
    };
    let (scene, ..) = Scene::stable(subscription("turns"), subscription("replies"));
    let group = scene.groups.get("group").expect("a group");
    assert!(group.reads("turns") && group.reads("replies") && !group.reads("memories"));
    // The topics of these members are unknown.
    let (scene, ..) = Scene::stable(consumer("a"), consumer("b"));
    assert!(scene.groups.get("group").expect("a group").reads("memories"));
}

//! Memories of a whole tenant: who may change them, and where.

use super::world::{PARTITIONS, World, home, key, story, wish};
use crate::prepared::{Part, Sent};
use crate::rules::TenantWriters;
use domain::{Forget, ForwardReason, MemoryId, Outcome, Position, Remember, Scope, Signal};

type Action = domain::Action<(), ()>;

fn shared(content: &str) -> Action {
    Action::Remember(Remember { scope: Scope::Tenant, ..wish(content) })
}

/// A user of the tenant whose partition is the tenant's, or is not.
fn user(is_home: bool) -> &'static str {
    let names = ["u0", "u1", "u2", "u3", "u4", "u5", "u6", "u7", "u8", "u9"];
    names
        .into_iter()
        .find(|name| (key(name).partition(PARTITIONS) == home()) == is_home)
        .expect("ten names on three partitions")
}

fn share(world: &mut World, content: &str) -> domain::Decision {
    world.decide(user(true), shared(content))
}

#[test]
fn the_home_of_the_tenant_decides_about_its_own_users_at_once() {
    story(|world| {
        let handled = world.send(user(true), shared("The harbour opens at six."));
        assert_eq!(handled.decisions[0].outcome, Outcome::Kept);
        assert_eq!(handled.onward, None);
        let memory = world.tenant().memories.into_values().next().expect("the memory");
        assert_eq!(memory.author.as_deref(), Some(user(true)));
    });
}

#[test]
fn another_partition_leaves_the_decision_to_the_home() {
    story(|world| {
        let handled = world.send(user(false), shared("The harbour opens at six."));
        assert!(handled.decisions.is_empty());
        assert_eq!(handled.onward, Some(ForwardReason::ToTenant));
        assert!(world.tenant().memories.is_empty());
        let partition = key(user(false)).partition(PARTITIONS);
        world.source = Some(Position { topic: "events".into(), partition, offset: 0 });
        let handled = world.at_home(Part::Home, user(false), shared("The harbour opens at six."));
        assert_eq!((handled.decisions[0].outcome, handled.onward), (Outcome::Kept, None));
        assert!(!handled.decisions[0].misrouted, "the sender knew the user's partition");
        assert_eq!(world.tenant().memories.len(), 1);
    });
}

#[test]
fn an_unknown_memory_may_be_the_tenants_and_only_the_home_knows() {
    story(|world| {
        let id = share(world, "The harbour opens at six.").memory.expect("kept");
        let own = world.say(user(false), "I live in Porto.").memory.expect("kept");
        let gone = MemoryId::of(&Position { topic: "gone".into(), partition: 0, offset: 0 }, 0);
        let feedback = |memories: &[MemoryId]| Action::Feedback {
            memories: memories.to_vec(),
            signal: Signal::Wrong,
        };
        for action in [Action::Forget(Forget::Memory(gone)), feedback(&[gone, id])] {
            let handled = world.send(user(false), action.clone());
            assert!(handled.decisions.is_empty(), "{action:?}");
            assert_eq!(handled.onward, Some(ForwardReason::ToTenant), "{action:?}");
            let handled = world.at_home(Part::Home, user(false), action.clone());
            assert_eq!(handled.decisions.len(), 1, "{action:?}");
        }
        let doubted = world.tenant().memories[&id].confidence;
        assert!(doubted < 1.0);
        // The user's partition answers for the memory that it has, and the home changes the other.
        let mixed = world.send(user(false), feedback(&[own, id]));
        assert_eq!(mixed.decisions[0].related, [own]);
        assert_eq!(mixed.onward, Some(ForwardReason::RestToTenant));
        let rest = world.at_home(Part::Rest, user(false), feedback(&[own, id]));
        assert!(rest.decisions.is_empty());
        assert!(world.tenant().memories[&id].confidence < doubted);
        // Known to the user's partition: nothing is sent on.
        assert_eq!(world.send(user(false), feedback(&[own])).onward, None);
        world.limits.one_user = true;
        let refused = world.send(user(false), feedback(&[id]));
        assert!(refused.onward.is_none() && refused.not_found.is_some());
    });
}

#[test]
fn the_home_knows_the_ids_of_senders_and_another_partition_sends_them_on_again() {
    story(|world| {
        world.id = Some("e-1");
        let asked = || shared("The harbour opens at six.");
        for n in 0..2 {
            let handled = world.send(user(false), asked());
            assert_eq!(handled.onward, Some(ForwardReason::ToTenant));
            let decided = world.at_home(Part::Home, user(false), asked()).decisions;
            let expected = [Outcome::Kept, Outcome::Duplicate][n];
            assert_eq!((decided.len(), decided[0].outcome), (1, expected));
        }
        assert_eq!(world.tenant().memories.len(), 1);
        let other = world.say(user(false), "I live in Porto.");
        assert_eq!((other.outcome, other.of_other_event), (Outcome::Duplicate, true));
    });
}

#[test]
fn what_the_quota_refuses_at_home_may_come_again_under_the_same_id() {
    story(|world| {
        (world.id, world.memories_max) = (Some("e-1"), Some(0));
        let asked = || shared("The harbour opens at six.");
        world.send(user(false), asked());
        let refused = world.at_home(Part::Home, user(false), asked());
        assert_eq!((refused.decisions[0].outcome, refused.over_quota), (Outcome::Refused, 1));
        world.memories_max = None;
        world.send(user(false), asked());
        let kept = world.at_home(Part::Home, user(false), asked());
        assert_eq!(kept.decisions[0].outcome, Outcome::Kept);
    });
}

#[test]
fn only_named_writers_share_with_the_tenant() {
    story(|world| {
        world.rules.tenant_writers = TenantWriters::Named(["boss".to_owned()].into());
        assert_eq!(share(world, "The harbour opens at six.").outcome, Outcome::Refused);
        assert!(world.tenant().memories.is_empty());
    });
}

#[test]
fn a_sender_for_one_user_shares_nothing() {
    story(|world| {
        world.limits.one_user = true;
        assert_eq!(share(world, "The harbour opens at six.").outcome, Outcome::Refused);
    });
}

#[test]
fn a_tenant_memory_replaces_no_value_of_a_user() {
    story(|world| {
        let own = world.say(user(true), "I live in Berlin.");
        share(world, "I live in Porto now.");
        assert!(world.memory(user(true), &own).valid_to.is_none());
    });
}

#[test]
fn everybody_may_forget_what_is_their_own() {
    story(|world| {
        let kept = share(world, "The harbour opens at six.");
        world.rules.tenant_writers = TenantWriters::Named(["boss".to_owned()].into());
        let gone = world.forget(user(true), Forget::Memory(kept.memory.expect("a memory")));
        assert_eq!(gone.decisions[0].outcome, Outcome::Forgotten);
        assert!(world.tenant().memories.is_empty());
    });
}

#[test]
fn forgetting_everything_takes_what_one_shared_and_not_what_others_did() {
    story(|world| {
        for (name, words) in
            [(user(true), "The harbour opens at six."), (user(false), "The crane is broken.")]
        {
            world.send(name, shared(words));
            if name == user(false) {
                world.at_home(Part::Home, name, shared(words));
            }
        }
        let gone = world.forget(user(true), Forget::Everything);
        assert_eq!((gone.decisions[0].related.len(), gone.onward), (1, None));
        let contents = |world: &mut World| -> Vec<String> {
            world.tenant().memories.into_values().map(|memory| memory.content).collect()
        };
        assert_eq!(contents(world), ["The crane is broken."]);
        let gone = world.forget(user(false), Forget::Everything);
        assert_eq!(gone.onward, Some(ForwardReason::RestToTenant));
        assert!(gone.decisions[0].reason.contains("shared"), "{:?}", gone.decisions);
        let rest = world.at_home(Part::Rest, user(false), Action::Forget(Forget::Everything));
        assert_eq!(rest.decisions[0].related.len(), 1);
        let receipt = rest.erasure.expect("a receipt");
        assert!(receipt.continues.is_some() && receipt.texts.len() == 1);
        assert!(contents(world).is_empty());
    });
}

#[test]
fn a_user_who_shared_nothing_forgets_without_the_home() {
    story(|world| {
        world.say(user(false), "I live in Porto.");
        assert_eq!(world.forget(user(false), Forget::Everything).onward, None);
    });
}

#[test]
fn what_a_user_shared_and_forgot_does_not_come_back_late() {
    story(|world| {
        let words = "The harbour opens at six.";
        world.send(user(false), shared(words));
        let kept = world.at_home(Part::Home, user(false), shared(words));
        let id = kept.decisions[0].memory.expect("kept");
        world.at_home(Part::Home, user(false), Action::Forget(Forget::Memory(id)));
        let before = Sent { at: domain::Time(0), is_late: true, signed: None };
        world.sent = Some(before);
        let late = world.at_home(Part::Home, user(false), shared(words));
        assert_eq!(late.decisions[0].outcome, Outcome::Refused);
        // Sent on without being late: the clock of a phone may be slow.
        world.sent = Some(Sent { is_late: false, ..before });
        let again = world.at_home(Part::Home, user(false), shared(words));
        assert_eq!(again.decisions[0].outcome, Outcome::Kept);
        // A forget of everything that overtakes an event on its way to the home.
        world.sent = None;
        world.at_home(Part::Rest, user(false), Action::Forget(Forget::Everything));
        world.sent = Some(before);
        let late = world.at_home(Part::Home, user(false), shared("The crane is broken."));
        assert_eq!(late.decisions[0].outcome, Outcome::Refused);
        assert!(world.tenant().memories.is_empty());
    });
}

#[test]
fn a_user_of_the_home_who_moves_away_forgets_what_was_shared_there() {
    story(|world| {
        share(world, "The harbour opens at six.");
        let (partition, _) = world.user(user(true)).sent_on.expect("noted");
        assert!(partition < 0, "nobody waits for it");
    });
}

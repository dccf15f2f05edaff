//! Memories of a whole tenant: who may change them, and the one order of their changes.

use super::world::{PARTITIONS, World, key, story, wish};
use crate::prepared::Part;
use crate::rules::TenantWriters;
use domain::{Action, Forget, ForwardReason, Outcome, Remember, Scope};

fn shared(content: &str) -> Action {
    Action::Remember(Remember { scope: Scope::Tenant, ..wish(content) })
}

fn home() -> i32 {
    key("ada").tenant_key().partition(PARTITIONS)
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
fn the_partition_of_the_tenant_applies_at_once_and_copies_to_all_others() {
    story(|world| {
        let handled = world.send(user(true), shared("The harbour opens at six."));
        assert_eq!(handled.decisions[0].outcome, Outcome::Kept);
        let others: Vec<i32> = (0..PARTITIONS).filter(|one| *one != home()).collect();
        let copies: Vec<i32> = handled.copies.iter().map(|(partition, _)| *partition).collect();
        assert_eq!(copies, others);
        assert!(handled.copies.iter().all(|(_, why)| *why == ForwardReason::InOrder));
        let memory = world.tenant().memories.into_values().next().expect("the memory");
        assert_eq!(memory.author.as_deref(), Some(user(true)));
    });
}

#[test]
fn another_partition_sends_the_event_on_and_waits() {
    story(|world| {
        let handled = world.send(user(false), shared("The harbour opens at six."));
        assert!(handled.decisions.is_empty());
        assert_eq!(handled.copies, [(home(), ForwardReason::ToOrder)]);
        assert!(world.tenant().memories.is_empty());
    });
}

#[test]
fn a_copy_in_order_is_applied_and_answers_nobody() {
    story(|world| {
        world.part = Part::InOrder;
        world.partition = Some((home() + 1) % PARTITIONS);
        let handled = world.send(user(true), shared("The harbour opens at six."));
        assert!(handled.decisions.is_empty() && handled.copies.is_empty());
        assert_eq!(world.tenant().memories.len(), 1);
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
        share(world, "The harbour opens at six.");
        world.part = Part::InOrder;
        world.send(user(false), shared("The crane is broken."));
        world.part = Part::First;
        world.forget(user(true), Forget::Everything);
        let left: Vec<String> =
            world.tenant().memories.into_values().map(|memory| memory.content).collect();
        assert_eq!(left, ["The crane is broken."]);
    });
}

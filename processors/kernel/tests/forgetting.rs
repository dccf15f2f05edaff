//! The memories that a `forget` erases, those erased with them, and events that come later.

use super::world::{story, wish};
use crate::handled::Handled;
use crate::prepared::Sent;
use domain::{Action, Forget, ForgetContinuation, Outcome, Remember, Role, Target, Time};

fn count(handled: &Handled) -> usize {
    handled.decisions[0].related.len()
}

#[test]
fn one_memory_goes_with_its_slot() {
    story(|world| {
        let kept = world.say("ada", "I live in Berlin.");
        world.say("ada", "The boat needs paint.");
        let gone = world.forget("ada", Forget::Memory(kept.memory.expect("a memory")));
        assert_eq!(gone.decisions[0].outcome, Outcome::Forgotten);
        assert_eq!(world.contents("ada"), ["The boat needs paint."]);
        assert!(world.user("ada").slots.is_empty());
    });
}

#[test]
fn nothing_of_an_erased_text_is_left_in_its_neighbours() {
    story(|world| {
        let kept = world.say("ada", "My PIN is 4711.");
        world.say("ada", "The boat needs paint.");
        world.say("ada", "We sail on Friday.");
        world.forget("ada", Forget::Memory(kept.memory.expect("a memory")));
        assert!(!format!("{:?}", world.user("ada")).contains("4711"));
    });
}

#[test]
fn a_session_goes_with_its_window_and_no_other() {
    story(|world| {
        for (session, content) in [("a", "The boat needs paint."), ("b", "We sail on Friday.")] {
            world.session = Some(session);
            world.say("ada", content);
        }
        world.session = None;
        let gone = world.forget("ada", Forget::Session("a".into()));
        assert!(matches!(gone.erasure, Some(erasure) if erasure.target == Target::Session));
        let user = world.user("ada");
        assert_eq!(user.windows.keys().collect::<Vec<_>>(), ["b"]);
        assert!(!user.sessions.contains_key("a"));
        assert_eq!(world.contents("ada"), ["We sail on Friday."]);
    });
}

#[test]
fn everything_leaves_nothing() {
    story(|world| {
        world.session = Some("a");
        world.say("ada", "I live in Berlin.");
        world.say("ada", "um, well");
        let other = world.say("bob", "We sail on Friday.");
        world.forget("ada", Forget::Everything);
        let user = world.user("ada");
        assert!(user.memories.is_empty() && user.windows.is_empty() && user.slots.is_empty());
        assert_eq!(world.memory("bob", &other).content, "We sail on Friday.");
    });
}

#[test]
fn a_query_takes_a_few_at_once_and_names_the_rest() {
    story(|world| {
        for n in 0..5 {
            world.say("ada", &format!("The boat number {n} needs paint."));
        }
        world.say("ada", "We sail on Friday.");
        let gone = world.forget("ada", Forget::Query("boat paint".into()));
        assert_eq!(count(&gone), 2);
        assert_eq!(gone.decisions[0].left, Some(3));
        assert_eq!(gone.rest.iter().map(|rest| rest.memories.len()).sum::<usize>(), 3);
        for rest in gone.rest {
            world.forget("ada", Forget::ForgetContinuation(rest));
        }
        assert_eq!(world.contents("ada"), ["We sail on Friday."]);
    });
}

#[test]
fn what_is_said_after_a_forget_is_not_of_its_rest() {
    story(|world| {
        for n in 0..4 {
            world.say("ada", &format!("The boat number {n} needs paint."));
        }
        let gone = world.forget("ada", Forget::Query("boat paint".into()));
        world.say("ada", "The boat number 9 needs paint.");
        for rest in gone.rest {
            world.forget("ada", Forget::ForgetContinuation(rest));
        }
        assert_eq!(world.contents("ada"), ["The boat number 9 needs paint."]);
    });
}

#[test]
fn everything_of_many_is_erased_in_parts_and_ends_whole() {
    story(|world| {
        world.forget_memories_max = 3;
        for n in 0..8 {
            world.say("ada", &format!("Thing number {n} is blue."));
        }
        let gone = world.forget("ada", Forget::Everything);
        assert_eq!((count(&gone), gone.decisions[0].left), (3, Some(5)));
        let parts: Vec<ForgetContinuation> = gone.rest;
        assert_eq!(parts.iter().map(|rest| rest.memories.len()).collect::<Vec<_>>(), [3, 2]);
        for rest in parts {
            world.forget("ada", Forget::ForgetContinuation(rest));
        }
        assert_eq!(world.contents("ada"), [""; 0]);
    });
}

#[test]
fn the_parts_of_a_session_are_named_too() {
    story(|world| {
        world.forget_memories_max = 2;
        world.session = Some("a");
        for n in 0..5 {
            world.say("ada", &format!("Thing number {n} is blue."));
        }
        let gone = world.forget("ada", Forget::Session("a".into()));
        assert_eq!((count(&gone), gone.decisions[0].left, gone.rest.len()), (2, Some(3), 2));
    });
}

#[test]
fn a_forget_of_nothing_says_so() {
    story(|world| {
        let gone = world.forget("ada", Forget::Query("boat".into()));
        assert_eq!((count(&gone), gone.decisions[0].left), (0, Some(0)));
        assert_eq!(gone.decisions[0].reason, "there was nothing to forget");
    });
}

#[test]
fn an_erased_closer_gives_back_the_value_before() {
    story(|world| {
        let old = world.say("ada", "I live in Berlin.");
        let new = world.say("ada", "I live in Porto now.");
        world.forget("ada", Forget::Memory(new.memory.expect("a memory")));
        let old = world.memory("ada", &old);
        assert_eq!((old.valid_to, old.superseded_by), (None, None));
        assert_eq!(world.user("ada").slots["lives_in"].memory, old.id);
    });
}

#[test]
fn an_erased_middle_value_leaves_the_chain_whole() {
    story(|world| {
        let berlin = world.say("ada", "I live in Berlin.");
        let porto = world.say("ada", "I live in Porto now.");
        let lisbon = world.say("ada", "I live in Lisbon now.");
        world.forget("ada", Forget::Memory(porto.memory.expect("a memory")));
        assert_eq!(world.memory("ada", &berlin).superseded_by, lisbon.memory);
        assert_eq!(world.memory("ada", &lisbon).supersedes, [berlin.memory.expect("a memory")]);
    });
}

#[test]
fn links_to_an_erased_memory_go() {
    story(|world| {
        let old = world.say("ada", "I have been to Rome.");
        let new = world.say("ada", "I have never been to Rome.");
        world.forget("ada", Forget::Memory(new.memory.expect("a memory")));
        assert!(world.memory("ada", &old).conflicts_with.is_empty());
    });
}

#[test]
fn a_turn_of_before_that_comes_late_is_refused() {
    story(|world| {
        world.next = 10;
        world.say("ada", "The boat needs paint.");
        world.forget("ada", Forget::Everything);
        world.sent = Some(Sent { at: Time(5 * 60_000), is_late: true, signed: None });
        let refused = world.say("ada", "My PIN is 4711.");
        assert!(refused.outcome == Outcome::Refused && refused.withheld);
        world.sent = None;
        assert_eq!(world.say("ada", "My PIN is 4711.").outcome, Outcome::Kept);
    });
}

#[test]
fn only_what_the_forget_covers_is_refused_late() {
    story(|world| {
        world.next = 10;
        world.say("ada", "The boat needs paint.");
        world.forget("ada", Forget::Query("boat paint".into()));
        world.sent = Some(Sent { at: Time(5 * 60_000), is_late: true, signed: None });
        assert_eq!(world.say("ada", "The old boat needs new paint.").outcome, Outcome::Refused);
        assert_eq!(world.say("ada", "We sail on Friday.").outcome, Outcome::Kept);
    });
}

#[test]
fn a_forget_that_comes_again_names_what_it_erased_and_its_salt() {
    story(|world| {
        let kept = world.say("ada", "The boat needs paint.");
        world.id = Some("forget");
        let first = world.forget("ada", Forget::Memory(kept.memory.expect("a memory")));
        let again = world.forget("ada", Forget::Memory(kept.memory.expect("a memory")));
        assert_eq!(again.decisions[0].outcome, Outcome::Duplicate);
        assert_eq!(
            again.decisions[0].salt.as_ref().map(|salt| salt.digest_hex("x")),
            first.decisions[0].salt.as_ref().map(|salt| salt.digest_hex("x")),
        );
    });
}

#[test]
fn the_receipt_has_a_digest_of_each_text_and_none_of_its_words() {
    story(|world| {
        let kept = world.say("ada", "My PIN is 4711.");
        let gone = world.forget("ada", Forget::Memory(kept.memory.expect("a memory")));
        let receipt = gone.erasure.expect("a receipt");
        assert_eq!((receipt.count, receipt.texts.len()), (1, 1));
        assert!(!format!("{receipt:?}").contains("4711"));
    });
}

#[test]
fn an_erased_user_turn_takes_no_answer_that_says_something_else() {
    story(|world| {
        let kept = world.say("ada", "The boat needs paint.");
        world.role = Role::Assistant;
        world.say("ada", "We sail on Friday.");
        world.forget("ada", Forget::Memory(kept.memory.expect("a memory")));
        assert_eq!(world.contents("ada"), ["We sail on Friday."]);
    });
}

#[test]
fn a_tick_asks_for_a_round_and_changes_nothing() {
    story(|world| {
        world.remember("ada", Remember { importance: 0.2, ..wish("The boat needs paint.") });
        let before = world.user("ada");
        let handled = world.send("ada", Action::Tick);
        assert!(handled.compact_at.is_some());
        assert_eq!(world.user("ada"), before);
    });
}

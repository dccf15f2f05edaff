//! Turns: kept, merged, superseded, dropped, refused, withheld, and the context that they leave.

use super::world::{key, said, story};
use domain::{Action, Outcome, Role};

#[test]
fn a_turn_becomes_a_memory_with_its_session_and_time() {
    story(|world| {
        world.session = Some("monday");
        world.next = 7;
        let kept = world.say("ada", "The boat needs paint.");
        let memory = world.memory("ada", &kept);
        assert_eq!(kept.outcome, Outcome::Kept);
        assert_eq!((memory.content.as_str(), memory.version), ("The boat needs paint.", 1));
        assert_eq!((memory.session.as_deref(), memory.created_at.0), (Some("monday"), 7 * 60_000));
    });
}

#[test]
fn a_turn_that_the_policy_drops_is_context_and_no_memory() {
    story(|world| {
        assert_eq!(world.say("ada", "um, well").outcome, Outcome::Dropped);
        let user = world.user("ada");
        assert!(user.memories.is_empty());
        assert_eq!(&*user.windows[""].said[0].content, "um, well");
    });
}

#[test]
fn a_repetition_confirms_the_memory_and_makes_none() {
    story(|world| {
        let first = world.say("ada", "The boat needs paint.");
        let again = world.say("ada", "The boat needs paint.");
        assert_eq!((again.outcome, again.memory), (Outcome::Merged, first.memory));
        let memory = world.memory("ada", &first);
        assert_eq!((memory.confirmed, memory.version), (1, 2));
        assert!((memory.confidence - 0.9).abs() < 1e-6, "{}", memory.confidence);
        assert_eq!(memory.fresh_at.0, 60_000);
    });
}

#[test]
fn an_echo_of_the_assistant_confirms_nothing() {
    story(|world| {
        let first = world.say("ada", "The boat needs paint.");
        world.role = Role::Assistant;
        assert_eq!(world.say("ada", "The boat needs paint.").outcome, Outcome::Merged);
        assert_eq!(world.memory("ada", &first).confirmed, 0);
    });
}

#[test]
fn what_the_assistant_said_is_certain_once_the_user_says_it() {
    story(|world| {
        world.role = Role::Assistant;
        let first = world.say("ada", "The boat needs paint.");
        world.role = Role::User;
        world.say("ada", "The boat needs paint.");
        assert!(world.memory("ada", &first).confidence >= 0.8);
    });
}

#[test]
fn a_new_value_closes_the_old_one() {
    story(|world| {
        let old = world.say("ada", "I live in Berlin.");
        let new = world.say("ada", "I live in Porto now.");
        assert_eq!(
            (new.outcome, &new.related),
            (Outcome::Superseded, &vec![old.memory.expect("a memory")])
        );
        let (old, new) = (world.memory("ada", &old), world.memory("ada", &new));
        assert_eq!(old.superseded_by, Some(new.id));
        assert_eq!(old.valid_to, Some(new.valid_from));
        assert_eq!(new.supersedes, [old.id]);
        assert_eq!(world.user("ada").slots["lives_in"].memory, new.id);
    });
}

#[test]
fn the_value_of_another_speaker_closes_nothing() {
    story(|world| {
        world.speaker = Some("Ann");
        let ann = world.say("ada", "I live in Berlin.");
        world.speaker = Some("Bea");
        assert_eq!(world.say("ada", "I live in Porto now.").outcome, Outcome::Kept);
        assert!(world.memory("ada", &ann).valid_to.is_none());
    });
}

#[test]
fn an_old_value_that_comes_late_is_closed_by_the_later_one() {
    story(|world| {
        world.next = 100;
        let later = world.say("ada", "I live in Porto now.");
        world.next = 50;
        let late = world.say("ada", "I live in Berlin.");
        let (later, late) = (world.memory("ada", &later), world.memory("ada", &late));
        assert!(later.valid_to.is_none());
        assert_eq!((late.superseded_by, late.valid_to), (Some(later.id), Some(later.valid_from)));
    });
}

#[test]
fn three_values_in_any_order_form_one_chain() {
    story(|world| {
        let berlin = world.say("ada", "I live in Berlin.");
        world.next = 100;
        let lisbon = world.say("ada", "I live in Lisbon now.");
        world.next = 50;
        let porto = world.say("ada", "I live in Porto now.");
        let (berlin, porto) = (world.memory("ada", &berlin), world.memory("ada", &porto));
        assert_eq!(berlin.superseded_by, Some(porto.id));
        assert_eq!(porto.superseded_by, lisbon.memory);
        assert!(world.memory("ada", &lisbon).valid_to.is_none());
    });
}

#[test]
fn a_memory_that_states_more_than_one_fact_is_linked_and_stays_open() {
    story(|world| {
        let old = world.say("ada", "I live in Berlin and my sister works as a nurse.");
        let new = world.say("ada", "I live in Porto now.");
        let old = world.memory("ada", &old);
        assert!(old.valid_to.is_none());
        assert_eq!(old.conflicts_with, [new.memory.expect("a memory")]);
    });
}

#[test]
fn a_denial_is_linked_to_what_it_denies() {
    story(|world| {
        let old = world.say("ada", "I have been to Rome.");
        let new = world.say("ada", "I have never been to Rome.");
        assert_eq!(new.related, [old.memory.expect("a memory")]);
        assert_eq!(world.memory("ada", &old).conflicts_with, [new.memory.expect("a memory")]);
        assert!(world.memory("ada", &old).valid_to.is_none());
    });
}

#[test]
fn a_wish_to_keep_nothing_leaves_no_word() {
    story(|world| {
        let dropped = world.say("ada", "Off the record: I am quitting in May.");
        assert_eq!((dropped.outcome, dropped.withheld), (Outcome::Dropped, true));
        assert!(dropped.candidate.is_none());
        let user = world.user("ada");
        assert!(user.memories.is_empty());
        assert!(!format!("{user:?}").contains("quitting"), "{user:?}");
    });
}

#[test]
fn the_answer_to_what_is_off_the_record_is_withheld_too() {
    story(|world| {
        world.say("ada", "Off the record: I am quitting in May.");
        world.role = Role::Assistant;
        assert!(world.say("ada", "Quitting in May is a big step.").withheld);
        assert_eq!(world.contents("ada"), [""; 0]);
    });
}

#[test]
fn a_forbidden_category_is_never_kept() {
    story(|world| {
        let dropped = world.say("ada", "My diagnosis is diabetes.");
        assert_eq!((dropped.outcome, dropped.withheld), (Outcome::Dropped, true));
        assert_eq!(world.contents("ada"), [""; 0]);
    });
}

#[test]
fn a_wish_to_forget_takes_back_the_turn_before_and_its_answer() {
    story(|world| {
        world.say("ada", "The boat needs paint.");
        world.say("ada", "My PIN is 4711.");
        world.role = Role::Assistant;
        world.say("ada", "Noted, the PIN is 4711.");
        world.role = Role::User;
        let gone = world.say("ada", "Forget what I just said.");
        assert_eq!((gone.outcome, gone.related.len()), (Outcome::Forgotten, 2));
        assert_eq!(world.contents("ada"), ["The boat needs paint."]);
        assert!(!format!("{:?}", world.user("ada")).contains("4711"));
    });
}

#[test]
fn a_sender_that_may_not_forget_takes_nothing_back() {
    story(|world| {
        world.say("ada", "My PIN is 4711.");
        world.limits.no_forget = true;
        assert_eq!(world.say("ada", "Forget what I just said.").outcome, Outcome::Refused);
        assert_eq!(world.contents("ada"), ["My PIN is 4711."]);
    });
}

#[test]
fn a_wish_about_another_topic_than_the_turn_before_erases_nothing() {
    story(|world| {
        world.say("ada", "The boat needs paint.");
        let kept = world.say("ada", "Forget what I said about my sister.");
        assert_eq!(kept.outcome, Outcome::Dropped);
        assert_eq!(world.contents("ada"), ["The boat needs paint."]);
    });
}

#[test]
fn a_turn_is_the_neighbour_of_the_next_memory() {
    story(|world| {
        world.say("ada", "The boat needs paint.");
        let next = world.say("ada", "We sail on Friday.");
        let around = world.memory("ada", &next).around;
        assert_eq!(
            around.before.map(|before| before.words.to_string()).as_deref(),
            Some("The boat needs paint.")
        );
    });
}

#[test]
fn a_turn_without_a_memory_lends_its_words_to_the_memory_before() {
    story(|world| {
        let kept = world.say("ada", "We sail on Friday.");
        world.role = Role::Assistant;
        world.say("ada", "um, at which hour?");
        let memory = world.memory("ada", &kept);
        let after = memory.around.after.expect("the turn after");
        assert_eq!((&*after.words, memory.version), ("um, at which hour?", 1));
    });
}

#[test]
fn turns_of_two_sessions_have_windows_of_their_own() {
    story(|world| {
        for (session, content) in [("a", "The boat needs paint."), ("b", "We sail on Friday.")] {
            world.session = Some(session);
            world.say("ada", content);
        }
        let user = world.user("ada");
        assert_eq!(user.windows.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(user.sessions["a"].turns, 1);
    });
}

#[test]
fn a_window_keeps_the_last_six_turns() {
    story(|world| {
        for n in 0..8 {
            world.say("ada", &format!("um {n}"));
        }
        let window = &world.user("ada").windows[""];
        let kept: Vec<&str> = window.said.iter().map(|said| &*said.content).collect();
        assert_eq!(kept, ["um 2", "um 3", "um 4", "um 5", "um 6", "um 7"]);
        assert_eq!(window.next, 8);
    });
}

#[test]
fn parts_beyond_the_limit_are_refused_and_said() {
    story(|world| {
        world.parts = 3;
        let turn = said(Role::User, "The boat needs paint.");
        let decisions = world.send("ada", Action::Turn(turn, ())).decisions;
        assert_eq!(decisions[0].outcome, Outcome::Kept);
        assert_eq!(decisions[1].outcome, Outcome::Refused);
        assert!(decisions[1].reason.contains("3 parts, the limit is 1"), "{}", decisions[1].reason);
    });
}

#[test]
fn an_id_that_comes_again_changes_nothing_and_names_the_first() {
    story(|world| {
        world.id = Some("one");
        let first = world.say("ada", "The boat needs paint.");
        let before = world.user("ada");
        let again = world.say("ada", "The boat needs paint.");
        assert_eq!((again.outcome, again.memory), (Outcome::Duplicate, first.memory));
        assert!(!again.of_other_event);
        assert_eq!(world.user("ada"), before);
    });
}

#[test]
fn an_id_of_another_event_is_no_success() {
    story(|world| {
        world.id = Some("one");
        let first = world.say("ada", "The boat needs paint.");
        let signal = domain::Signal::Used;
        let action = Action::Feedback { memories: vec![first.memory.expect("a memory")], signal };
        let other = world.decide("ada", action);
        assert!(other.outcome == Outcome::Duplicate && other.of_other_event);
        assert_eq!(world.memory("ada", &first).uses, 0);
    });
}

#[test]
fn ids_of_two_users_do_not_meet() {
    story(|world| {
        world.id = Some("one");
        world.say("ada", "The boat needs paint.");
        assert_eq!(world.say("bob", "The boat needs paint.").outcome, Outcome::Kept);
        assert_ne!(key("ada"), key("bob"));
    });
}

#[test]
fn a_full_quota_refuses_and_repetitions_and_new_values_go_on() {
    story(|world| {
        world.memories_max = Some(2);
        world.say("ada", "I live in Berlin.");
        world.say("ada", "The boat needs paint.");
        assert_eq!(world.say("ada", "We sail on Friday.").outcome, Outcome::Refused);
        assert_eq!(world.say("ada", "The boat needs paint.").outcome, Outcome::Merged);
        assert_eq!(world.say("ada", "I live in Porto now.").outcome, Outcome::Superseded);
        assert_eq!(world.user("ada").memories.len(), 3);
    });
}

#[test]
fn a_quota_counts_the_users_of_a_tenant_together() {
    story(|world| {
        world.memories_max = Some(1);
        world.partition = Some(0);
        world.say("ada", "The boat needs paint.");
        let handled = world.send("bob", Action::Turn(said(Role::User, "We sail on Friday."), ()));
        assert_eq!(handled.over_quota, 1);
    });
}

//! Updates and feedback.

use super::world::{World, story, wish};
use crate::Part;
use domain::{Action, Decision, MemoryId, Outcome, Position, Signal, Update};

fn no_change(of: &Decision) -> Update {
    Update {
        memory: of.memory.expect("a memory"),
        content: None,
        kind: None,
        importance: None,
        confidence: None,
        stability: None,
        enabled: None,
        replaces_metadata: false,
    }
}

fn update(world: &mut World, update: Update) -> Decision {
    world.decide("ada", Action::Update(update))
}

fn reword(world: &mut World, of: &Decision, content: &str) -> Decision {
    update(world, Update { content: Some(content.into()), ..no_change(of) })
}

fn feed_back(world: &mut World, of: &Decision, signal: Signal) -> Decision {
    let memories = vec![of.memory.expect("a memory")];
    world.decide("ada", Action::Feedback { memories, signal })
}

#[test]
fn new_words_keep_the_old_ones_as_history() {
    story(|world| {
        let kept = world.remember("ada", wish("The boat needs paint."));
        reword(world, &kept, "The boat needs varnish.");
        let memory = world.memory("ada", &kept);
        assert_eq!(memory.content, "The boat needs varnish.");
        assert_eq!(memory.history[0].content, "The boat needs paint.");
        assert_eq!(memory.version, 2);
    });
}

#[test]
fn history_is_bounded() {
    story(|world| {
        let kept = world.remember("ada", wish("Paint 0"));
        for n in 1..6 {
            reword(world, &kept, &format!("Paint {n}"));
        }
        let history = world.memory("ada", &kept).history;
        let kept: Vec<&str> = history.iter().map(|one| one.content.as_str()).collect();
        assert_eq!(kept, ["Paint 3", "Paint 4"]);
    });
}

#[test]
fn new_words_move_the_slot() {
    story(|world| {
        let kept = world.remember("ada", wish("I live in Berlin."));
        reword(world, &kept, "I live in Porto.");
        assert_eq!(world.user("ada").slots["lives_in"].value, "porto");
        reword(world, &kept, "The boat needs paint.");
        assert!(world.user("ada").slots.is_empty());
    });
}

#[test]
fn words_that_no_longer_replace_open_the_old_value_again() {
    story(|world| {
        let old = world.remember("ada", wish("I live in Berlin."));
        let new = world.remember("ada", wish("I live in Porto now."));
        reword(world, &new, "My boat lies in Porto.");
        let old = world.memory("ada", &old);
        assert_eq!((old.valid_to, old.superseded_by), (None, None));
        assert!(world.memory("ada", &new).supersedes.is_empty());
    });
}

#[test]
fn a_value_that_is_stated_again_is_open_again() {
    story(|world| {
        let old = world.remember("ada", wish("I live in Berlin."));
        let new = world.remember("ada", wish("I live in Porto now."));
        reword(world, &old, "I live in Berlin.");
        assert!(world.memory("ada", &old).valid_to.is_none());
        assert!(world.memory("ada", &new).supersedes.is_empty());
    });
}

#[test]
fn fields_that_are_not_given_stay() {
    story(|world| {
        let kept = world.remember("ada", wish("The boat needs paint."));
        update(world, Update { importance: Some(0.1), ..no_change(&kept) });
        let memory = world.memory("ada", &kept);
        assert_eq!((memory.importance, memory.confidence), (0.1, 0.9));
        assert_eq!(memory.content, "The boat needs paint.");
    });
}

#[test]
fn a_memory_is_switched_off_and_on() {
    story(|world| {
        let kept = world.remember("ada", wish("The boat needs paint."));
        update(world, Update { enabled: Some(false), ..no_change(&kept) });
        assert!(world.memory("ada", &kept).disabled);
        update(world, Update { enabled: Some(true), ..no_change(&kept) });
        assert!(!world.memory("ada", &kept).disabled);
    });
}

#[test]
fn a_memory_of_nobody_is_not_found() {
    story(|world| {
        let kept = world.remember("ada", wish("The boat needs paint."));
        let place = Position { topic: "events".into(), partition: 9, offset: 9 };
        let unknown = Update { memory: MemoryId::of(&place, 0), ..no_change(&kept) };
        let handled = world.at_home(Part::Home, "ada", Action::Update(unknown));
        assert!(handled.not_found.is_some());
        assert_eq!(handled.decisions[0].outcome, Outcome::Refused);
    });
}

#[test]
fn nobody_changes_the_memory_of_another() {
    story(|world| {
        let kept = world.remember("ada", wish("The boat needs paint."));
        let update = Update { importance: Some(0.0), ..no_change(&kept) };
        let handled = world.at_home(Part::Home, "bob", Action::Update(update));
        assert!(handled.not_found.is_some());
        assert_eq!(world.memory("ada", &kept).importance, 0.7);
    });
}

#[test]
fn an_update_to_a_forbidden_category_changes_nothing() {
    story(|world| {
        let kept = world.remember("ada", wish("The boat needs paint."));
        let before = world.user("ada");
        let refused = reword(world, &kept, "My diagnosis is diabetes.");
        assert!(refused.outcome == Outcome::Refused && refused.withheld);
        assert_eq!(world.user("ada").memories, before.memories);
    });
}

#[test]
fn use_and_confirmation_renew_a_memory() {
    story(|world| {
        let kept = world.remember("ada", wish("The boat needs paint."));
        feed_back(world, &kept, Signal::Used);
        feed_back(world, &kept, Signal::Confirmed);
        let memory = world.memory("ada", &kept);
        assert_eq!((memory.uses, memory.confirmed, memory.fresh_at.0), (1, 1, 120_000));
        assert!((memory.importance - 0.8).abs() < 1e-6);
        assert!((memory.confidence - 1.0).abs() < 1e-6);
    });
}

#[test]
fn being_returned_is_no_use_unless_the_profile_says_so() {
    story(|world| {
        let kept = world.remember("ada", wish("The boat needs paint."));
        feed_back(world, &kept, Signal::Returned);
        assert_eq!(world.memory("ada", &kept).uses, 0);
    });
}

#[test]
fn a_wrong_value_gives_back_the_one_it_closed() {
    story(|world| {
        let old = world.say("ada", "I live in Berlin.");
        let new = world.say("ada", "I live in Porto now.");
        feed_back(world, &new, Signal::Wrong);
        let old = world.memory("ada", &old);
        assert_eq!((old.valid_to, old.superseded_by), (None, None));
        assert!((world.memory("ada", &new).confidence - 0.3).abs() < 1e-6);
    });
}

#[test]
fn one_event_that_names_a_memory_twice_counts_it_twice_and_lists_it_once() {
    story(|world| {
        let kept = world.remember("ada", wish("The boat needs paint."));
        let id = kept.memory.expect("a memory");
        let action = Action::Feedback { memories: vec![id, id], signal: Signal::Used };
        let noted = world.decide("ada", action);
        assert_eq!(noted.related, [id]);
        assert_eq!(world.memory("ada", &kept).uses, 2);
    });
}

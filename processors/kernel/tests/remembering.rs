//! Texts that somebody asks to remember.

use super::world::{story, wish};
use domain::{Kind, Outcome, Remember, Time};

#[test]
fn a_wish_is_kept_as_asked() {
    story(|world| {
        let kind = Some(Kind::new("instruction"));
        let asked = Remember { kind, confidence: Some(0.4), ..wish("Write no comments.") };
        let kept = world.remember("ada", asked);
        let memory = world.memory("ada", &kept);
        assert_eq!(memory.kind.as_str(), "instruction");
        assert_eq!((memory.importance, memory.confidence), (0.7, 0.4));
    });
}

#[test]
fn the_same_wish_again_updates_the_memory() {
    story(|world| {
        let first = world.remember("ada", wish("The boat needs paint."));
        let again = world.remember("ada", wish("The boat needs paint!"));
        assert_eq!((again.outcome, again.memory), (Outcome::Merged, first.memory));
        assert_eq!(world.contents("ada"), ["The boat needs paint!"]);
    });
}

#[test]
fn a_wish_that_expires_neither_merges_nor_replaces() {
    story(|world| {
        world.remember("ada", wish("I live in Berlin."));
        let expires_at = Some(Time(10_000_000));
        let until = world.remember("ada", Remember { expires_at, ..wish("I live in Porto now.") });
        assert_eq!(until.outcome, Outcome::Kept);
        world.remember("ada", Remember { expires_at, ..wish("I live in Berlin.") });
        assert_eq!(world.user("ada").memories.len(), 3);
        assert!(world.user("ada").memories.values().all(|memory| memory.valid_to.is_none()));
    });
}

#[test]
fn a_wish_that_has_expired_before_it_came_is_refused() {
    story(|world| {
        world.next = 5;
        let asked = Remember { expires_at: Some(Time(300_000)), ..wish("The boat needs paint.") };
        assert_eq!(world.remember("ada", asked).outcome, Outcome::Refused);
    });
}

#[test]
fn a_wish_of_a_forbidden_category_is_not_kept() {
    story(|world| {
        let dropped = world.remember("ada", wish("My diagnosis is diabetes."));
        assert_eq!((dropped.outcome, dropped.withheld), (Outcome::Dropped, true));
    });
}

#[test]
fn a_wish_replaces_the_value_of_a_turn() {
    story(|world| {
        let old = world.say("ada", "I live in Berlin.");
        let new = world.remember("ada", wish("I live in Porto now."));
        assert_eq!(new.outcome, Outcome::Superseded);
        assert_eq!(world.memory("ada", &old).superseded_by, new.memory);
    });
}

#[test]
fn a_full_quota_refuses_a_wish_and_its_id_may_come_again() {
    story(|world| {
        world.remember("ada", wish("The boat needs paint."));
        world.memories_max = Some(1);
        world.id = Some("sail");
        assert_eq!(world.remember("ada", wish("We sail on Friday.")).outcome, Outcome::Refused);
        world.memories_max = None;
        assert_eq!(world.remember("ada", wish("We sail on Friday.")).outcome, Outcome::Kept);
    });
}

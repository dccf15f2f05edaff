//! May this memory answer this question at all? Whose memories are searched is no question here: that is in the store's keys.

use super::Question;
use crate::domain::{Memory, Metadata, Scope};

/// Whether every condition of the question holds. How well it answers is not asked.
pub fn admitted(memory: &Memory, question: &Question) -> bool {
    is_in_scope(memory, question)
        && (question.kinds.is_empty() || question.kinds.contains(&memory.kind))
        && has_all(&memory.metadata, question.metadata)
        && (!memory.archived || question.include_archived)
        && was_known(memory, question)
        && (!is_superseded(memory, question) || question.include_archived || question.explain)
}

/// Whether it may say what its neighbours are about, also where it is no answer itself: it was said, and is no secret of another session.
pub fn lends_context(memory: &Memory, question: &Question) -> bool {
    is_in_scope(memory, question) && was_known(memory, question)
}

/// Whether a newer fact had taken over, at the time that is asked about.
pub fn is_superseded(memory: &Memory, question: &Question) -> bool {
    // What has changed since may have been replaced since: it counts as valid, and follows its successor if that was known too.
    if question.as_of_offset.is_some_and(|offset| memory.changed > offset) {
        return false;
    }
    match (memory.valid_to, question.as_of) {
        (Some(end), Some(time)) => end <= time,
        (Some(_), None) => true,
        (None, _) => memory.superseded_by.is_some(),
    }
}

/// A session's own memories are added when the question names the session, which filters nothing else.
fn is_in_scope(memory: &Memory, question: &Question) -> bool {
    memory.scope != Scope::Session
        || (memory.session.is_some() && memory.session.as_deref() == question.session)
}

fn has_all(metadata: &Metadata, wanted: &Metadata) -> bool {
    wanted.iter().all(|(name, value)| metadata.get(name) == Some(value))
}

/// Limit: for a memory that changed after `as_of_offset`, its first place is known only where its sender put it, which is another
/// partition's offset if it was forwarded.
fn was_known(memory: &Memory, question: &Question) -> bool {
    question.as_of.is_none_or(|time| memory.created_at <= time && memory.valid_from <= time)
        && question
            .as_of_offset
            .is_none_or(|offset| memory.changed <= offset || memory.source.offset <= offset)
}

#[cfg(test)]
mod tests {
    use super::super::samples::{ask, memory, nothing};
    use super::*;
    use crate::domain::{Kind, MemoryId, Time};

    fn check(edit: impl Fn(&mut Memory), question: &Question, expected: bool) {
        let mut subject = memory(1, "I live in Berlin");
        edit(&mut subject);
        assert_eq!(admitted(&subject, question), expected, "{question:?}");
    }

    #[test]
    fn session_memories_need_their_sessions_name_which_filters_nothing_else() {
        let none = nothing();
        let private = |memory: &mut Memory| {
            (memory.scope, memory.session) = (Scope::Session, Some("s1".into()))
        };
        check(private, &ask("q", &none), false);
        check(private, &Question { session: Some("s2"), ..ask("q", &none) }, false);
        check(private, &Question { session: Some("s1"), ..ask("q", &none) }, true);
        check(
            |memory| memory.session = Some("s1".into()),
            &Question { session: Some("s2"), ..ask("q", &none) },
            true,
        );
        check(|memory| memory.scope = Scope::Session, &ask("q", &none), false);
        check(|memory| memory.scope = Scope::Tenant, &ask("q", &none), true);
    }

    #[test]
    fn kinds_and_metadata_are_conditions() {
        let (none, kinds) = (nothing(), [Kind::new("preference")]);
        check(|_| (), &Question { kinds: &kinds, ..ask("q", &none) }, false);
        check(
            |memory| memory.kind = kinds[0].clone(),
            &Question { kinds: &kinds, ..ask("q", &none) },
            true,
        );
        let wanted = Metadata::from([("app".into(), "chat".into())]);
        check(|_| (), &ask("q", &wanted), false);
        check(
            |memory| memory.metadata = Metadata::from([("app".into(), "mail".into())]),
            &ask("q", &wanted),
            false,
        );
        check(|memory| memory.metadata = wanted.clone(), &ask("q", &wanted), true);
    }

    #[test]
    fn what_was_replaced_or_archived_comes_only_when_asked_for() {
        let none = nothing();
        let old = |memory: &mut Memory| {
            (memory.valid_to, memory.superseded_by) =
                (Some(Time(50)), Some(MemoryId::of(&memory.source, 9)))
        };
        check(old, &ask("q", &none), false);
        check(old, &Question { explain: true, ..ask("q", &none) }, true);
        check(old, &Question { include_archived: true, ..ask("q", &none) }, true);
        check(|memory| memory.archived = true, &ask("q", &none), false);
        check(
            |memory| memory.archived = true,
            &Question { explain: true, ..ask("q", &none) },
            false,
        );
        check(
            |memory| memory.archived = true,
            &Question { include_archived: true, ..ask("q", &none) },
            true,
        );
    }

    #[test]
    fn as_of_a_time_only_what_was_known_and_valid_then_is_admitted() {
        let none = nothing();
        let lived = |memory: &mut Memory| {
            (memory.created_at, memory.valid_from, memory.valid_to) =
                (Time(10), Time(10), Some(Time(50)));
        };
        for (time, expected) in [(9, false), (10, true), (49, true), (50, false)] {
            check(lived, &Question { as_of: Some(Time(time)), ..ask("q", &none) }, expected);
        }
        check(lived, &Question { as_of: Some(Time(60)), explain: true, ..ask("q", &none) }, true);
    }

    #[test]
    fn as_of_an_offset_what_came_later_did_not_happen() {
        let none = nothing();
        let replaced_at_9 = |memory: &mut Memory| {
            (memory.source.offset, memory.changed, memory.valid_to) = (5, 9, Some(Time(50)));
        };
        for (offset, expected) in [(4, false), (5, true), (8, true), (9, false)] {
            check(
                replaced_at_9,
                &Question { as_of_offset: Some(offset), ..ask("q", &none) },
                expected,
            );
        }
    }
}

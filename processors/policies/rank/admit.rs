//! Checks the conditions of a question on a memory: scope, kind, metadata, archive, `as_of`. A
//! memory that fails one is no answer, however relevant. The user is no condition: the store's keys
//! separate users.

use domain::{Memory, Scope};
use kernel::ranking::Question;

/// True if the memory meets every condition of the question.
pub fn admitted(memory: &Memory, question: &Question) -> bool {
    is_of_kind(memory, question)
        && is_of_period(memory, question)
        && question.filter.holds(memory)
        && admitted_unfiltered(memory, question)
}

pub fn is_of_kind(memory: &Memory, question: &Question) -> bool {
    question.kinds.is_empty() || question.kinds.contains(&memory.kind)
}

/// True if the memory speaks of a day in the period, or names no day and was said in it.
fn is_of_period(memory: &Memory, question: &Question) -> bool {
    let period = &question.period;
    if period.is_all() {
        return true;
    }
    let days = text::days_spoken_of(&memory.content, memory.created_at);
    match days.is_empty() {
        true => period.meets(memory.created_at, memory.created_at),
        false => days.iter().any(|days| period.meets(days.first_time(), days.last_time())),
    }
}

/// The conditions besides the request's own filters: `kinds`, `where`, `from` and `to`.
pub fn admitted_unfiltered(memory: &Memory, question: &Question) -> bool {
    is_in_scope(memory, question)
        && !memory.disabled
        && (!memory.archived
            || question.include_archived
            || question.searches_archive
            || question.as_of.is_some())
        && (!is_compressed(memory, question) || question.include_compressed)
        && was_known(memory, question)
        && (!is_superseded(memory, question) || question.include_archived || question.explain)
}

/// True if the memory may lend its relevance to neighbouring turns, even if it is no answer itself:
/// it was known at the time, and is not private to another session.
pub fn lends_context(memory: &Memory, question: &Question) -> bool {
    is_in_scope(memory, question) && was_known(memory, question)
}

/// True if a newer memory had replaced this one at the time the question asks about.
pub fn is_superseded(memory: &Memory, question: &Question) -> bool {
    // A memory that changed after `as_of_offset` may have been replaced after it, and counts as
    // valid. `arrange.rs` places it behind its successor if that was known too.
    let is_later = |offset| !is_tenants(memory) && memory.changed > offset;
    if question.as_of_offset.is_some_and(is_later) {
        return false;
    }
    match (memory.valid_to, question.as_of) {
        (Some(end), Some(time)) => end <= time,
        (Some(_), None) => true,
        (None, _) => memory.superseded_by.is_some(),
    }
}

/// True if a summary stands for the memory. A question about an earlier time finds the memory
/// itself, which nothing stood for then.
fn is_compressed(memory: &Memory, question: &Question) -> bool {
    memory.compressed_by.is_some() && question.as_of.is_none() && question.as_of_offset.is_none()
}

/// Admits a session's private memories only if the question names that session. Other memories are
/// not filtered by session.
fn is_in_scope(memory: &Memory, question: &Question) -> bool {
    memory.scope != Scope::Session
        || (memory.session.is_some() && memory.session.as_deref() == question.session)
}

/// Limit: if a memory changed after `as_of_offset`, only its source offset shows when it was made,
/// and a forwarded record has the offset of another partition. A tenant memory was always known.
fn was_known(memory: &Memory, question: &Question) -> bool {
    let is_known =
        |offset| is_tenants(memory) || memory.changed <= offset || memory.source.offset <= offset;
    question.as_of.is_none_or(|time| memory.created_at <= time && memory.valid_from <= time)
        && question.as_of_offset.is_none_or(is_known)
}

/// True for a memory whose offsets are of its home's partition, and not of the user's.
fn is_tenants(memory: &Memory) -> bool {
    memory.scope == Scope::Tenant
}

#[cfg(test)]
mod tests {
    use super::super::samples::{ask, memory, nothing};
    use super::*;
    use domain::{Comparison, Condition, Filter, Kind, MemoryId, Metadata, Period, Test, Time};

    fn check(edit: impl Fn(&mut Memory), question: &Question, expected: bool) {
        let mut subject = memory(1, "I live in Berlin");
        edit(&mut subject);
        assert_eq!(admitted(&subject, question), expected, "{question:?}");
    }

    #[test]
    fn session_memories_are_admitted_only_for_their_session() {
        let none = nothing();
        fn private(memory: &mut Memory) {
            (memory.scope, memory.session) = (Scope::Session, Some("s1".into()));
        }
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
    fn an_offset_bounds_the_memories_of_its_own_partition_only() {
        let none = nothing();
        let before = Question { as_of_offset: Some(3), ..ask("q", &none) };
        let later = |memory: &mut Memory| {
            memory.changed = 9;
            memory.source.offset = 9;
        };
        check(later, &before, false);
        let of_tenant = |memory: &mut Memory| {
            later(memory);
            memory.scope = Scope::Tenant;
        };
        check(of_tenant, &before, true);
        let replaced = |memory: &mut Memory| {
            of_tenant(memory);
            memory.valid_to = Some(Time(1));
        };
        check(replaced, &before, false);
    }

    /// Holds memory-spec 28.
    #[test]
    fn kinds_and_metadata_are_conditions() {
        let none = nothing();
        let kinds = [Kind::new("preference")];
        check(|_| (), &Question { kinds: &kinds, ..ask("q", &none) }, false);
        check(
            |memory| memory.kind = kinds[0].clone(),
            &Question { kinds: &kinds, ..ask("q", &none) },
            true,
        );
        let chat = || Metadata::from([("app".into(), "chat".into())]);
        let equals = Comparison::Metadata("app".into(), Test::Equals("chat".into()));
        let wanted = Filter(vec![Condition::One(equals)]);
        check(|_| (), &ask("q", &wanted), false);
        check(
            |memory| memory.metadata = Metadata::from([("app".into(), "mail".into())]),
            &ask("q", &wanted),
            false,
        );
        check(|memory| memory.metadata = chat(), &ask("q", &wanted), true);
    }

    #[test]
    fn a_memory_belongs_to_the_days_it_speaks_of_or_was_said_on() {
        let none = nothing();
        let day = |day: &str| day.parse::<jiff::Timestamp>().map(|at| Time(at.as_millisecond()));
        let [first, last] = ["2024-05-01T00:00:00Z", "2024-05-31T23:59:59Z"].map(day);
        let (from, to) = (first.ok(), last.ok());
        let said = day("2024-06-20T12:00:00Z").expect("a time");
        for (content, created_at, expected) in [
            ("I bought a car", said, [false, true, false]),
            ("I bought a car", from.expect("a time"), [true, true, true]),
            ("On 12 May I bought a car", said, [true, true, true]),
            ("I bought a car last month, in April it was stolen", said, [true, true, true]),
            ("I bought a car in April", from.expect("a time"), [false, false, true]),
        ] {
            let speaks = |memory: &mut Memory| {
                (memory.content, memory.created_at) = (content.into(), created_at);
            };
            let periods =
                [Period { from, to }, Period { from, to: None }, Period { from: None, to }];
            for (period, expected) in periods.into_iter().zip(expected) {
                check(speaks, &Question { period, ..ask("q", &none) }, expected);
            }
        }
    }

    #[test]
    fn superseded_and_archived_memories_are_admitted_only_on_request() {
        let none = nothing();
        fn old(memory: &mut Memory) {
            (memory.valid_to, memory.superseded_by) =
                (Some(Time(50)), Some(MemoryId::of(&memory.source, 9)));
        }
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

    /// Holds memory-spec 41.
    #[test]
    fn compressed_memories_are_admitted_only_on_request_or_as_of_an_earlier_time() {
        let none = nothing();
        fn compressed(memory: &mut Memory) {
            memory.compressed_by = Some(MemoryId::of(&memory.source, 9));
        }
        check(compressed, &ask("q", &none), false);
        check(compressed, &Question { include_archived: true, ..ask("q", &none) }, false);
        check(compressed, &Question { include_compressed: true, ..ask("q", &none) }, true);
        check(compressed, &Question { as_of: Some(Time(60)), ..ask("q", &none) }, true);
    }

    #[test]
    fn a_memory_that_is_switched_off_is_in_no_answer() {
        let none = nothing();
        let all = Question { include_archived: true, explain: true, ..ask("q", &none) };
        check(|memory| memory.disabled = true, &all, false);
    }

    #[test]
    fn as_of_a_time_admits_memories_known_and_valid_then() {
        let none = nothing();
        fn lived(memory: &mut Memory) {
            (memory.created_at, memory.valid_from, memory.valid_to) =
                (Time(10), Time(10), Some(Time(50)));
        }
        for (time, expected) in [(9, false), (10, true), (49, true), (50, false)] {
            check(lived, &Question { as_of: Some(Time(time)), ..ask("q", &none) }, expected);
        }
        check(lived, &Question { as_of: Some(Time(60)), explain: true, ..ask("q", &none) }, true);
    }

    #[test]
    fn as_of_an_offset_ignores_later_changes() {
        let none = nothing();
        fn replaced_at_9(memory: &mut Memory) {
            (memory.source.offset, memory.changed, memory.valid_to) = (5, 9, Some(Time(50)));
        }
        for (offset, expected) in [(4, false), (5, true), (8, true), (9, false)] {
            check(
                replaced_at_9,
                &Question { as_of_offset: Some(offset), ..ask("q", &none) },
                expected,
            );
        }
    }
}

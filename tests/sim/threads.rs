//! Threads of the simulated processes, of which one runs at a time.
//!
//! A simulated thread runs until the world takes the turn back, which happens only where a real
//! thread could be interrupted by a broker or a clock: at [`point`] after so many calls as the world
//! chose, and at [`wait`] always, because the thread can go on only after somebody else did
//! something. So the order of everything is chosen by the seed.
//!
//! Limit: a thread that waits for a lock which an interrupted one holds ends the run after
//! [`STUCK`].

use crossbeam_channel::{Receiver, Sender, bounded};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

/// Points that no work reaches.
pub const UNTIL_IT_WAITS: usize = usize::MAX;
/// Longest time of one turn, in real time.
const STUCK: Duration = Duration::from_secs(120);

/// A thread in the middle of its work, or at its end.
pub struct Work<T> {
    turn: Sender<usize>,
    back: Receiver<Back<T>>,
}

enum Back<T> {
    Interrupted,
    Done(std::thread::Result<T>),
}

/// What a thread waits for when it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// For time to pass, which it does at once.
    ForTime,
    /// For another thread.
    ForOthers,
}

/// The turns of the thread that runs now, unless that is the world itself.
struct Turns {
    sleep: Sleep,
    left: usize,
    turn: Receiver<usize>,
    give_back: Box<dyn Fn()>,
}

thread_local! {
    static TURNS: RefCell<Option<Turns>> = const { RefCell::new(None) };
}

/// The world was dropped with its threads: they end as their processes did.
struct Abandoned;

impl<T: Send + 'static> Work<T> {
    /// Begins nothing yet: the first turn does.
    pub fn new(sleep: Sleep, work: impl FnOnce() -> T + Send + 'static) -> Work<T> {
        let (turn, turns) = bounded(1);
        let (back, given) = bounded(1);
        std::thread::spawn(move || {
            let Ok(left) = turns.recv() else { return };
            let interrupted = back.clone();
            let give_back = Box::new(move || drop(interrupted.send(Back::Interrupted)));
            TURNS.set(Some(Turns { sleep, left, turn: turns, give_back }));
            let done = catch_unwind(AssertUnwindSafe(work));
            // Nobody waits for an abandoned thread.
            drop(back.send(Back::Done(done)));
        });
        Work { turn, back: given }
    }

    /// Lets the thread run for this number of points. Returns its result if it has ended.
    pub fn turn(&mut self, points: usize) -> Option<T> {
        self.turn.send(points).expect("a thread that has not ended waits for its turn");
        match self.back.recv_timeout(STUCK) {
            Ok(Back::Interrupted) => None,
            Ok(Back::Done(Ok(done))) => Some(done),
            Ok(Back::Done(Err(panic))) => resume_unwind(panic),
            Err(_) => panic!("a thread waits for a lock that an interrupted one holds"),
        }
    }
}

/// A place where the thread may be interrupted.
pub fn point() {
    let is_over = with_turns(|turns| {
        turns.left = turns.left.saturating_sub(1);
        turns.left == 0
    });
    if is_over == Some(true) {
        wait();
    }
}

/// A place where the thread waits for others.
pub fn wait() {
    let given = with_turns(|turns| {
        (turns.give_back)();
        turns.turn.recv().map(|left| turns.left = left.max(1))
    });
    if let Some(Err(_)) = given {
        resume_unwind(Box::new(Abandoned));
    }
}

/// A sleep: a thread of a dead process waits until the world has buried it.
pub fn sleep(is_dead: bool) {
    match with_turns(|turns| turns.sleep) {
        Some(Sleep::ForTime) if !is_dead => point(),
        Some(_) => wait(),
        None => assert!(!is_dead, "the world sleeps for a dead process"),
    }
}

fn with_turns<R>(f: impl FnOnce(&mut Turns) -> R) -> Option<R> {
    TURNS.with_borrow_mut(|turns| turns.as_mut().map(f))
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::sync::Arc;

    #[test]
    fn threads_take_turns_at_points_and_where_they_wait() {
        let said = Arc::new(Mutex::new(String::new()));
        let mut threads = ["a", "b"].map(|name| {
            let said = said.clone();
            Work::new(Sleep::ForOthers, move || {
                for n in 0..3 {
                    *said.lock() += &format!("{name}{n} ");
                    point();
                }
                wait();
                name
            })
        });
        assert_eq!(threads[0].turn(2), None);
        assert_eq!(threads[1].turn(UNTIL_IT_WAITS), None);
        assert_eq!(threads[1].turn(UNTIL_IT_WAITS), Some("b"));
        assert_eq!(threads[0].turn(UNTIL_IT_WAITS), None);
        assert_eq!(threads[0].turn(1), Some("a"));
        assert_eq!(*said.lock(), "a0 a1 b0 b1 b2 a2 ");
        point();
        wait();
    }

    #[test]
    fn an_abandoned_thread_ends() {
        let held = Arc::new(());
        let inner = held.clone();
        let mut work = Work::new(Sleep::ForOthers, move || {
            wait();
            drop(inner);
        });
        assert_eq!(work.turn(1), None);
        drop(work);
        while Arc::strong_count(&held) > 1 {
            std::thread::yield_now();
        }
    }
}

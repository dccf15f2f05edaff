//! Catches a panic with its message and the stack of the place where it began, so that one input
//! that meets a bug can be put aside while the rest goes on.

use std::any::Any;
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

/// Bytes kept of a stack: about 80 frames. A header of a dead letter holds the stack, and Kafka
/// limits a record, headers included.
const STACK_BYTES_MAX: usize = 8192;

/// A caught panic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panic {
    pub message: String,
    /// The stack as text; the beginning of a long one.
    pub stack: String,
}

thread_local! {
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
    static STACK: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs `work` and returns the panic, if there is one. Nothing is printed for such a panic; the
/// caller reports it. The caller drops whatever `work` was changing, since that may be changed in
/// part.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Panic> {
    install_hook();
    let before = IS_CAUGHT.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    IS_CAUGHT.set(before);
    result.map_err(|panic| Panic { message: message(&*panic), stack: STACK.take() })
}

/// The hook takes the stack, because the stack is gone when the panic is caught.
fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_CAUGHT.get() {
                return report(panic);
            }
            let place = panic.location().map(|at| format!("at {at}\n")).unwrap_or_default();
            let mut stack = format!("{place}{}", Backtrace::force_capture());
            stack.truncate(stack.floor_char_boundary(STACK_BYTES_MAX));
            STACK.replace(stack);
        }));
    });
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_caught_with_its_message_and_its_place() {
        let number = 7;
        let panic = caught(|| -> u8 { panic!("number {number}") }).expect_err("it panics");
        assert_eq!(panic.message, "number 7");
        assert!(panic.stack.contains("panics.rs"), "{}", panic.stack);
        assert!(panic.stack.len() <= STACK_BYTES_MAX);
        let nested =
            caught(|| caught(|| -> u8 { panic!("within") }).map_err(|panic| panic.message));
        assert_eq!(nested, Ok(Err("within".to_owned())));
        assert_eq!(caught(|| 3), Ok(3));
    }
}

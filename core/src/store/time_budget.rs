//! The time of a conversation with one of several stores: all its exchanges together take no longer than one of them may.
//!
//! Each exchange has a deadline of its own. A server that sends its bytes so slowly that every answer comes just in time would
//! hold a conversation up for as many timeouts as it has exchanges, and with it every other source of the mill.

use std::cell::Cell;
use std::time::{Duration, Instant};

thread_local! {
    /// The conversation that this thread has with one of several stores.
    static CONVERSATION: Cell<Option<Budget>> = const { Cell::new(None) };
}

/// A conversation with one of several stores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    began: Instant,
    /// The longest time that an exchange has been given so far.
    longest: Duration,
}

/// Ends the conversation.
struct EndOfConversation;

impl Drop for EndOfConversation {
    fn drop(&mut self) {
        CONVERSATION.set(None);
    }
}

/// Runs a conversation with one of several stores. Also returns how long the store may have taken at most, where that is known:
/// the clock of a process that was stopped in the meantime says more.
pub(crate) fn within_budget<T>(work: impl FnOnce() -> T) -> (T, Option<Duration>) {
    CONVERSATION.set(Some(Budget { began: Instant::now(), longest: Duration::ZERO }));
    let _end = EndOfConversation;
    let answer = work();
    let longest = CONVERSATION.get().map(|budget| budget.longest);
    (answer, longest.filter(|longest| !longest.is_zero()))
}

/// This thread's conversation with one of several stores, whose exchanges may take this long. Another thread may carry its bytes.
#[cfg_attr(not(feature = "_server"), allow(dead_code))]
pub(crate) fn budget(limit: Duration) -> Option<Budget> {
    let budget = CONVERSATION.get().map(|budget| Budget { longest: budget.longest.max(limit), ..budget });
    CONVERSATION.set(budget);
    budget
}

/// When an exchange that begins now and may take `limit` has to be over.
#[cfg_attr(not(feature = "_server"), allow(dead_code))]
pub(crate) fn end_of_exchange(limit: Duration, budget: Option<Budget>) -> Instant {
    let end = Instant::now() + limit;
    budget.map_or(end, |budget| end.min(budget.began + limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn all_exchanges_with_one_of_several_stores_share_one_timeout() {
        let now = Instant::now();
        assert!(
            end_of_exchange(LIMIT, budget(LIMIT)) >= now + LIMIT,
            "a single store: each exchange has its own"
        );
        let (began, longest) = within_budget(|| {
            let budget = budget(LIMIT).expect("a conversation has begun");
            assert!(
                end_of_exchange(LIMIT, Some(budget)) >= now + LIMIT,
                "the first exchange may take it all"
            );
            let later = Budget {
                began: budget.began.checked_sub(LIMIT / 2).expect("the clock is past it"),
                ..budget
            };
            assert_eq!(end_of_exchange(LIMIT, Some(later)), later.began + LIMIT, "a later one has the rest");
            budget.began
        });
        assert!(began >= now);
        assert_eq!(longest, Some(LIMIT));
        assert!(budget(LIMIT).is_none(), "the conversation is over");
    }

    #[test]
    fn a_conversation_without_a_socket_has_no_known_limit() {
        assert_eq!(within_budget(|| ()).1, None);
    }
}

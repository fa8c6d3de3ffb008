//! What a SQL sequence that counts in steps is on every server: its values are 1, 1 + step, …, and the value *v* owns
//! `[v, v + step)`.

use super::{Fault, FaultKind, MAX_NUMBER, Mark, Request, Row};

/// No value is left whose numbers may be handed out.
pub(super) fn exhausted(request: &Request) -> Fault {
    let last = request.last.min(MAX_NUMBER);
    Fault::new(FaultKind::Exhausted, format!("every number up to {last} has been reserved"))
}

/// The sequence is behind this process. `loser`: what loses values on this server.
pub(super) fn went_backwards(request: &Request, stands: u64, loser: &str) -> Fault {
    Fault::new(
        FaultKind::WentBackwards,
        format!(
            "its sequence stands at {stands}, this process has seen {}: a backup was restored, {loser} lost values or the \
             sequence was made anew; nothing is used. Find the highest number any node has issued and run \
             `keymill repair '{}' --to N --yes`, N above it",
            request.high_water.next, request.key.name
        ),
    )
}

/// The sequence for a person.
pub(super) fn row_at(next: u64) -> Row {
    Row { mark: Mark { period: 0, next }, text: format!("next value={next}"), counter: None }
}

/// The value that has been used last where `to`, or the first value above it, is the next one.
pub(super) fn used_before(to: Mark, step: u64) -> Result<u64, Fault> {
    if to.next == 0 || to.next > MAX_NUMBER {
        return Err(Fault::new(FaultKind::Refused, "a next number is from 1 to 2^63-1"));
    }
    Ok(1 + ((to.next - 1).div_ceil(step).max(1) - 1) * step)
}

//! The options of segments that only some schemes have, and those that have no meaning in some.

use super::option_reader::{OptionReader, check_identifier};
use crate::error::{Error, Result};
use crate::request::reservation::Scheme;
use crate::request::stride::Stride;

/// A ticket's number and its table's step determine a range, so the options that size other reservations have no meaning there.
pub(super) fn check_ticket_options(read: &OptionReader, scheme: Scheme) -> Result<()> {
    let (sizes, unit): (&[&str], _) = if scheme.keeps_allocation() {
        (&["step", "min_step", "max_step", "start", "backwards"], "allocation")
    } else {
        (&["min_step", "max_step", "start", "backwards"], "step")
    };
    if let Some(option) = sizes.iter().find(|option| read.is_given(option)) {
        return Err(Error::config(format!(
            "option `{option}` has no meaning for scheme={}, where the server counts in steps of `{unit}`; leave it out",
            scheme.name()
        )));
    }
    // The column is an INT.
    read.number("step", 1000, 1, i32::MAX as u64).map(drop)
}

/// `delta=2&remainder=1`: which of its row's numbers are the source's own, as tinyid's rows say.
pub(super) fn stride(read: &OptionReader, scheme: Scheme) -> Result<Stride> {
    let given = ["delta", "remainder"].into_iter().find(|option| read.is_given(option));
    if let Some(option) = given.filter(|_| !scheme.keeps_stride()) {
        return Err(Error::config(format!(
            "option `{option}` is for scheme=tiny_id_info, whose rows own every delta-th number; scheme={} has none of them, leave it out",
            scheme.name()
        )));
    }
    let delta = read.number("delta", 1, 1, Stride::MOST)?;
    let remainder = read.number("remainder", 0, 0, delta - 1)?;
    Stride::new(delta, remainder).ok_or_else(|| read.bad("delta", "0", "a whole number from 1"))
}

/// `allocation=50`: how much the other programs on a row take at a time, where no column says it; of a sequence, in which steps it
/// counts. It has no default: numbers would come twice where it is too small.
pub(super) fn allocation(read: &OptionReader, scheme: Scheme) -> Result<Option<u64>> {
    let is_given = read.is_given("allocation");
    if scheme.keeps_allocation() == is_given {
        // No sequence counts in steps of 0.
        let least = u64::from(scheme.is_shared_sequence());
        let allocation = || read.number("allocation", least, least, i32::MAX as u64);
        return is_given.then(allocation).transpose();
    }
    let name = scheme.name();
    Err(Error::config(if is_given {
        format!("option `allocation` has no meaning for scheme={name}; leave it out")
    } else if scheme.is_shared_sequence() {
        format!(
            "scheme={name} needs `allocation=N`, the `allocationSize` of the `@SequenceGenerator`, which is 50 where none is written, and the INCREMENT BY of its sequence"
        )
    } else {
        format!(
            "scheme={name} needs `allocation=N`, the most that another program takes from its row at a time: the largest `allocationSize` or `increment_size` of all, which is 50 where none is written; 0 if no other program uses it"
        )
    }))
}

/// `optimizer=pooled`: whether a value of a JPA sequence owns the numbers up to it.
pub(super) fn is_pooled(read: &OptionReader, scheme: Scheme, allocation: Option<u64>) -> Result<bool> {
    if !scheme.is_shared_sequence() {
        if read.is_given("optimizer") {
            return Err(Error::config(format!(
                "option `optimizer` is for scheme=jpa_sequence; with scheme={} it has no meaning, leave it out",
                scheme.name()
            )));
        }
        return Ok(false);
    }
    let optimizer =
        read.one_of("optimizer", &[("pooled", Some(true)), ("pooled-lo", Some(false)), ("none", None)])?;
    // A value of a sequence that counts one by one owns itself, whatever the optimizer.
    match optimizer {
        _ if allocation == Some(1) => Ok(false),
        Some(is_pooled) => Ok(is_pooled),
        None => Err(Error::config(
            "option `optimizer=none` is for sequences that count one by one; write `allocation=1`, or leave `optimizer` out",
        )),
    }
}

/// The sequence of a source, where `table=` names no other: `orders_seq`, as Hibernate 6 calls the sequence of the table `orders`.
pub(super) fn sequence_of(source: &str) -> Result<String> {
    let sequence = format!("{source}_seq");
    check_identifier(&sequence, "the sequence's name, which `table=` gives where it is another,")?;
    Ok(sequence)
}

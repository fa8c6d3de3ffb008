//! The meaning of a Redis error for a reservation, by the error code at its beginning.
//!
//! Redis refuses before it changes anything: an error answer to keymill's scripts means that nothing was changed.

use crate::store::{Absence, Fault, FaultKind, Key, Remedy, Subject};

/// The effect of an error answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ErrorMeaning {
    pub(super) kind: FaultKind,
    /// Another server may accept the request, or this connection is unusable.
    pub(super) reconnect: bool,
    pub(super) advice: &'static str,
    /// As in [`Fault::absence`].
    pub(super) absence: Option<Absence>,
}

const fn unavailable(reconnect: bool, advice: &'static str) -> ErrorMeaning {
    ErrorMeaning { kind: FaultKind::Unavailable, reconnect, advice, absence: None }
}

const fn refused(reconnect: bool, advice: &'static str) -> ErrorMeaning {
    ErrorMeaning { kind: FaultKind::Refused, reconnect, advice, absence: None }
}

/// The commands that every user of keymill needs.
macro_rules! commands {
    () => {
        "+evalsha +eval +hmget +hset +hincrby +pttl +exists +info +config|get +client|setname +select +wait"
    };
}

/// The rights for numbers, which every user of keymill needs. The page about privileges names the same rights, and those below.
macro_rules! rights {
    () => {
        concat!("~keymill_segment:* ", commands!())
    };
}

/// What to do where this user lacks a right.
const NUMBERS: &str =
    concat!("allow this user `", rights!(), "` (with `table=NAME` in the source: `~NAME:*`)");

/// What to do where this user may not lease workers, read the table of a router, list routers, or replace the table of one.
const LEASES: &str =
    concat!("allow this user `~keymill_worker:* +hget +hgetall +time`, beside `", rights!(), "`");
const READS_READERS: &str =
    concat!("allow this user `~keymill_reader:* +hget +hgetall +hdel +time`, beside `", rights!(), "`");
/// A login that only looks at them needs less.
pub(super) const LOOKS_AT_READERS: &str =
    "allow this user `%R~keymill_reader:* +hgetall +time` (Redis 6: `~` in place of `%R~`)";
pub(super) const READS_ROUTE: &str =
    "allow this user `%R~keymill_route:* +hmget` (Redis 6: `~` in place of `%R~`)";
pub(super) const LISTS_ROUTES: &str =
    "allow this user `%R~keymill_route:* +hmget +scan` to list routers (Redis 6: `~` in place of `%R~`)";
pub(super) const LISTS_ROWS: &str = concat!(
    "allow this user `%R~keymill_segment:* %R~keymill_worker:* +hmget +scan` to list what the store has, beside `",
    rights!(),
    "` (Redis 6: `~` in place of `%R~`)"
);
pub(super) const PUTS_ROUTE: &str = concat!(
    "store route tables as a user of its own, allowed `~keymill_route:* +hget ",
    commands!(),
    "`, so that no program's user may"
);

/// The advice for the rows of a pool: leased workers, or the readers of a router.
pub(super) fn leases(key: &Key) -> &'static str {
    if matches!(key.name.subject(), Subject::Readers(_)) { READS_READERS } else { LEASES }
}

/// The fault with this advice, where the user lacks a right.
pub(super) fn advised(fault: Fault, advice: &'static str) -> Fault {
    if fault.remedy() == Some(&Remedy::Text(NUMBERS)) { fault.instead(Remedy::Text(advice)) } else { fault }
}

/// Error codes that may appear inside another error: before Redis 7 a script's error wraps the error that stopped it.
const INNER: &[&str] = &["WRONGTYPE", "READONLY", "OOM", "MISCONF", "NOREPLICAS", "NOPERM", "MASTERDOWN"];

impl ErrorMeaning {
    /// The meaning of `code details`: `LOADING Redis is loading the dataset in memory`.
    pub(super) fn of(code: &str, details: &str) -> ErrorMeaning {
        // All that begins with `ERR` has no code of its own, so its text decides.
        let says = |part: &str| details.to_ascii_lowercase().contains(part);
        match code {
            "LOADING" => unavailable(true, "the server is reading its data after a start"),
            "BUSY" => unavailable(
                false,
                "a script of another client does not end; `SCRIPT KILL` ends it unless it has written, and else only a restart of the server does",
            ),
            "READONLY" => unavailable(
                true,
                "the server is a replica: name the master, or follow it with `sentinel=NAME`",
            ),
            "MASTERDOWN" => unavailable(true, "the server is a replica that has lost its master"),
            "NOREPLICAS" => unavailable(false, "fewer replicas follow than min-replicas-to-write demands"),
            "MISCONF" => unavailable(false, "the server cannot write to its disk; make room, see its log"),
            "OOM" => unavailable(false, "the server has reached maxmemory; raise it"),
            "TRYAGAIN" => unavailable(false, ""),
            "NOAUTH" => refused(
                true,
                "the server wants a password: `password_file=FILE`, redis://user:password@host, or KEYMILL_PASSWORD with redis://user@host (the user without a name of its own is `default`)",
            ),
            "WRONGPASS" => refused(true, "check user and password"),
            "NOPERM" => ErrorMeaning { absence: Some(Absence::Forbidden), ..refused(false, NUMBERS) },
            "WRONGTYPE" => refused(
                false,
                "the key holds something else than keymill's hash of a row; name another prefix with `table=`, if no id of this source was issued",
            ),
            "MOVED" | "ASK" | "CLUSTERDOWN" | "CROSSSLOT" => refused(
                true,
                "a Redis Cluster is not supported: use a server of its own, with replicas followed by Sentinel",
            ),
            "DENIED" => refused(
                true,
                "the server is in protected mode: give it a password, or bind it to this network",
            ),
            "ERR" if says("max number of clients") => {
                unavailable(true, "the server has too many connections; raise maxclients")
            }
            "ERR" if says("without any password configured") || says("no password is set") => refused(
                true,
                "the server knows no password for this user; leave it out of the URL, `password_file=` and KEYMILL_PASSWORD",
            ),
            // Redis 7.0's text for a missing right inside a script.
            "ERR" if says("the user executing the script can't") => ErrorMeaning::of("NOPERM", ""),
            "ERR" if says("db index") || says("invalid db") => {
                refused(true, "there is no database of this number; most servers have 0 to 15")
            }
            "ERR" if says("error running script") => INNER
                .iter()
                .find(|word| details.split_whitespace().any(|part| part.trim_start_matches('-') == **word))
                .map_or(refused(false, ""), |word| ErrorMeaning::of(word, "")),
            _ => refused(false, ""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_unavailable_and_what_stays_is_refused() {
        for code in ["LOADING", "BUSY", "READONLY", "MASTERDOWN", "NOREPLICAS", "MISCONF", "OOM"] {
            let meaning = ErrorMeaning::of(code, "");
            assert!(
                meaning.kind == FaultKind::Unavailable && !meaning.advice.is_empty(),
                "{code}: {meaning:?}"
            );
        }
        for code in ["NOAUTH", "WRONGPASS", "NOPERM", "WRONGTYPE", "MOVED", "ASK", "DENIED"] {
            let meaning = ErrorMeaning::of(code, "");
            assert!(meaning.kind == FaultKind::Refused && !meaning.advice.is_empty(), "{code}: {meaning:?}");
        }
        assert_eq!(ErrorMeaning::of("ERR", "max number of clients reached").kind, FaultKind::Unavailable);
        assert_eq!(
            ErrorMeaning::of("ERR", "The user executing the script can't run this command or subcommand"),
            ErrorMeaning::of("NOPERM", "")
        );
        assert_eq!(ErrorMeaning::of("ERR", "unknown command").kind, FaultKind::Refused);
    }

    #[test]
    fn an_old_servers_script_error_means_what_it_wraps() {
        let wrapped = "Error running script (call to f_0ab): @user_script:4: -READONLY You can't write against a read only";
        assert_eq!(ErrorMeaning::of("ERR", wrapped), ErrorMeaning::of("READONLY", ""));
        let wrapped =
            "Error running script (call to f_0ab): @user_script:20: WRONGTYPE Operation against a key";
        assert_eq!(ErrorMeaning::of("ERR", wrapped), ErrorMeaning::of("WRONGTYPE", ""));
        assert_eq!(
            ErrorMeaning::of("ERR", "Error running script (call to f_0ab): @user_script:1: nonsense"),
            refused(false, "")
        );
    }
}

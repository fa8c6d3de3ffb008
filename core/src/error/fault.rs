//! Why a store refused or failed. Code decides by the kind, the store's own code and the remedies; the rest is for a person.

use std::fmt::{self, Display, Write as _};

use super::{Code, Error, shown, words};

/// Why a store refused or failed, and what that means for its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Nothing was changed; trying again may help (connection refused, lock wait, deadlock, read-only for now).
    Unavailable,
    /// The connection died or timed out during the request: the store may or may not have carried it out. The range is lost.
    Unknown,
    /// Nothing was changed: another transaction holds this row's lock. Other rows may be free.
    Locked,
    /// Nothing was changed: another process changed this row first. The same request may succeed at once.
    Conflict,
    /// The store refused: a missing table, a missing right, a row that makes no sense.
    Refused,
    /// The row was closed for good: its bank has another number of counters since.
    Closed,
    /// The row is missing, or below the high-water mark of the request.
    WentBackwards,
    /// Settings that lose commits.
    Unsafe,
    /// No number up to `last` is left.
    Exhausted,
    /// The row's period is later than `period_max`.
    ClockBehind,
    /// Another process moved a mark that only this process may move.
    Taken,
    /// Every worker of the pool is leased.
    NoneFree,
}

impl FaultKind {
    /// Whether the store itself failed, so that other requests would fail too.
    #[must_use]
    pub const fn is_outage(self) -> bool {
        matches!(self, FaultKind::Unavailable | FaultKind::Unknown)
    }

    /// The code of the error that a caller gets.
    pub(crate) const fn code(self) -> Code {
        match self {
            FaultKind::Unavailable | FaultKind::Unknown | FaultKind::Locked | FaultKind::Conflict => {
                Code::StoreUnavailable
            }
            FaultKind::Refused | FaultKind::Closed => Code::StoreRefused,
            FaultKind::WentBackwards => Code::StoreWentBackwards,
            FaultKind::Unsafe => Code::StoreUnsafe,
            FaultKind::Exhausted => Code::Exhausted,
            FaultKind::ClockBehind => Code::ClockBehind,
            FaultKind::Taken => Code::LeaseLost,
            FaultKind::NoneFree => Code::NoWorkerFree,
        }
    }
}

/// What to do about a fault. A command is written out where its mill is known: see [`Fault::message`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// What else there is to say: advice without a command.
    Text(&'static str),
    /// An option of the source.
    SetOption(String),
    /// Statements for the database, after these words.
    #[cfg_attr(not(feature = "_server"), allow(dead_code))] // only servers have other users
    Sql { first: &'static str, statements: Vec<String> },
    /// `keymill init`, after something else if `first` is not empty.
    Init { first: &'static str },
    /// `keymill repair` of a bank with this number of counters.
    Counters(u32),
    /// `keymill init` and then `keymill repair` of this row: its table is gone, and ids of it were issued.
    InitAgain { row: String, seen: u64 },
    /// The same of a snowflake, whose ids are all before `now`.
    InitAgainNow,
    /// `keymill init`, or both where ids were issued: the store has this other table of keymill's.
    #[cfg_attr(not(feature = "_server"), allow(dead_code))] // elsewhere no table has to be made
    InitBeside { other: String },
    /// `keymill repair` of this row, if it is known which, after something else if `first` is not empty, to a number above what `above` says,
    /// and not below `seen`: this process may issue the numbers below it.
    Repair { first: &'static str, row: Option<String>, above: &'static str, seen: u64 },
    /// `keymill repair --set-back` of the row of this serial.
    SetBack(String),
    /// `keymill route put` of a table of the router with this name.
    PutRoutes(String),
}

impl Remedy {
    /// `keymill init`, and nothing before it.
    pub(crate) const INIT: Remedy = Remedy::Init { first: "" };

    /// `keymill repair` of a row that went backwards, below what this process has seen.
    pub(crate) fn repair(row: &str, seen: u64) -> Remedy {
        Remedy::Repair { first: "then ", row: Some(row.to_owned()), above: ISSUED, seen }
    }

    fn write(&self, out: &mut String, at: CommandLine<'_>) {
        let CommandLine { keymill, source } = at;
        let source = source.map(quoted);
        // A String takes whatever is written.
        let _ = match self {
            Remedy::Text(advice) => out.write_str(advice),
            Remedy::SetOption(option) => write!(out, "write `{option}`"),
            Remedy::Sql { first, statements } => write!(out, "{first} `{}`", statements.join("`, `")),
            Remedy::Init { first } => match source {
                Some(source) => write!(out, "{first}run `{keymill} init {source}`"),
                None => write!(out, "{first}run `{keymill} init`"),
            },
            Remedy::Counters(counters) => {
                let source = source.unwrap_or_else(|| "SOURCE".to_owned());
                write!(out, "run `{keymill} repair {source} --counters {counters} --yes`")
            }
            Remedy::SetBack(row) => {
                let source = source.unwrap_or_else(|| quoted(row));
                write!(
                    out,
                    "stop every program that uses this serial, then run `{keymill} repair {source} --to N --set-back --yes`, N above every number of the present period"
                )
            }
            Remedy::PutRoutes(router) => {
                write!(out, "store one: `{keymill} route put {} FILE --yes`", quoted(&shown(router)))
            }
            Remedy::InitAgain { row, seen } => {
                let source = source.unwrap_or_else(|| quoted(row));
                write!(
                    out,
                    "{STOP}run `{keymill} init {source}` and `{keymill} repair {source} --to N --yes`, N above {ISSUED}{}",
                    at_least(*seen)
                )
            }
            Remedy::InitAgainNow => {
                let source = source.unwrap_or_else(|| "SOURCE".to_owned());
                write!(
                    out,
                    "{STOP}run `{keymill} init {source}` and `{keymill} repair {source} --to now --yes`"
                )
            }
            Remedy::InitBeside { other } => {
                let source = source.unwrap_or_else(|| "SOURCE".to_owned());
                write!(
                    out,
                    "the store has `{other}`: if no id was issued of this source yet, run `{keymill} init {source}`, and its ids begin at the first; else {STOP}run `{keymill} init {source}` and `{keymill} repair {source} --to N --yes`, N above {ISSUED}"
                )
            }
            Remedy::Repair { first, row, above, seen } => {
                let row = || row.as_deref().map_or("SOURCE".to_owned(), quoted);
                let source = source.unwrap_or_else(row);
                write!(
                    out,
                    "{STOP}{first}run `{keymill} repair {source} --to N --yes`, N above {above}{}",
                    at_least(*seen)
                )
            }
        };
    }

    /// Whether `other` is the same command, but for the number that this process has seen; then this one gets the higher of both.
    fn takes_in(&mut self, other: &Remedy) -> bool {
        let mut both = self.clone();
        if let (Remedy::Repair { seen, .. }, Remedy::Repair { seen: theirs, .. }) = (&mut both, other) {
            *seen = *theirs;
        }
        if both != *other {
            return false;
        }
        if let (Remedy::Repair { seen, .. }, Remedy::Repair { seen: theirs, .. }) = (self, other) {
            *seen = (*seen).max(*theirs);
        }
        true
    }
}

/// Comes before every `repair`: a program that goes on may issue what it reserved before, above any number that can be found.
const STOP: &str = "stop every program that uses it, ";

/// What the new number of a row has to be above.
const ISSUED: &str = "the highest number that any of them has issued";

fn at_least(seen: u64) -> String {
    if seen == 0 { String::new() } else { format!(" and at least {seen}") }
}

/// A text as one word of a shell.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// How a shell names a mill and one of its sources.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandLine<'a> {
    /// `keymill --mill 'sqlite:ids.db'`.
    pub(crate) keymill: &'a str,
    pub(crate) source: Option<&'a str>,
}

impl CommandLine<'_> {
    /// Where the mill is not known, or no other process reaches it.
    pub(crate) const BARE: CommandLine<'static> = CommandLine { keymill: "keymill", source: None };
}

/// Why there are no rows to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// The table is missing.
    Missing,
    /// This user may not read the table.
    Forbidden,
    /// There is a table of this name, and keymill does not use it: another role's, or outside this user's search path.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code))] // other stores have no search path
    NotOurs,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Context {
    /// What was being done.
    Doing(String),
    /// Where it happened.
    At(String),
}

/// A failed request. Never holds a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What it means for the range that was asked for.
    pub kind: FaultKind,
    /// The store's own code: an error number, a SQLSTATE, the word that a Redis error begins with.
    pub(crate) native: Option<Box<str>>,
    /// The outermost comes last.
    contexts: Vec<Context>,
    cause: String,
    remedies: Vec<Remedy>,
    /// One of several stores failed, and another one goes on.
    is_partial: bool,
    /// Nothing listens at any address of the server, or its name is not known: no session was begun.
    is_unreached: bool,
    /// The answer says nothing about the rows that were asked for.
    absence: Option<Absence>,
}

impl Fault {
    /// A fault of this kind; `cause` is one line that says what was seen.
    #[must_use]
    pub fn new(kind: FaultKind, cause: impl Into<String>) -> Self {
        Fault {
            kind,
            native: None,
            contexts: Vec::new(),
            cause: words(cause),
            remedies: Vec::new(),
            is_partial: false,
            is_unreached: false,
            absence: None,
        }
    }

    /// The refusal to read a table that is missing, that this user may not read, or that keymill does not use.
    #[cfg_attr(not(feature = "_server"), allow(dead_code))] // only servers refuse to read
    #[must_use]
    pub(crate) fn with_absence(self, absence: Option<Absence>) -> Self {
        Fault { absence, ..self }
    }

    /// Why there are no rows to read; `None`: there may be rows.
    pub(crate) fn absence(&self) -> Option<Absence> {
        self.absence
    }

    /// A fault of one of several stores; work that the others can do is not delayed.
    #[must_use]
    pub(crate) fn of_one_store(self) -> Self {
        Fault { is_partial: true, ..self }
    }

    /// A fault of a server that refuses connections, or whose name is not known.
    #[must_use]
    pub(crate) fn of_unreached_server(self) -> Self {
        Fault { is_unreached: true, ..self }
    }

    /// Whether nothing listens at any address of the store, or its name is not known.
    pub(crate) fn is_unreached(&self) -> bool {
        self.is_unreached
    }

    /// Whether every other request would fail too: the only store failed, or all of them.
    #[must_use]
    pub(crate) fn is_outage(&self) -> bool {
        self.kind.is_outage() && !self.is_partial
    }

    /// The fault with what to do about it.
    #[must_use]
    pub(crate) fn with_remedy(mut self, remedy: Remedy) -> Self {
        self.remedies.push(remedy);
        self
    }

    /// The fault with this remedy alone.
    #[must_use]
    pub(crate) fn instead(mut self, remedy: Remedy) -> Self {
        self.remedies = vec![remedy];
        self
    }

    /// The fault of a snowflake that has issued ids: where its table is gone, `init` alone would begin again below them.
    #[must_use]
    pub(crate) fn after_ids(self) -> Self {
        match self.remedy() {
            Some(Remedy::Init { first: "" } | Remedy::InitBeside { .. }) => {
                self.instead(Remedy::InitAgainNow)
            }
            _ => self,
        }
    }

    /// What is to be done about it first.
    pub(crate) fn remedy(&self) -> Option<&Remedy> {
        self.remedies.first()
    }

    /// The fault with the store's own code.
    #[cfg_attr(not(feature = "_server"), allow(dead_code))] // only servers have codes
    #[must_use]
    pub(crate) fn with_native(mut self, code: impl Display) -> Self {
        self.native = Some(code.to_string().into());
        self
    }

    /// The fault with what was being done in front: `reserving 2000 for `segment:orders` failed: …`.
    #[must_use]
    pub(crate) fn with_context(mut self, doing: &str) -> Self {
        self.contexts.push(Context::Doing(words(doing)));
        self
    }

    /// The fault with where it happened in front: `store 1 of 2 (sqlite:a.db): …`.
    #[must_use]
    pub(crate) fn at(mut self, place: impl Display) -> Self {
        self.contexts.push(Context::At(words(place.to_string())));
        self
    }

    /// The fault without what was being done, where that stands in front.
    #[must_use]
    pub(crate) fn without_context(mut self) -> Self {
        self.contexts.pop_if(|context| matches!(context, Context::Doing(_)));
        self
    }

    /// The fault without what was being done, wherever that stands: what failed so fails for other requests too.
    #[must_use]
    pub(crate) fn without_doing(mut self) -> Self {
        self.contexts.retain(|context| matches!(context, Context::At(_)));
        self
    }

    /// The fault with another cause, and no remedy.
    #[must_use]
    pub(crate) fn because(mut self, cause: impl Into<String>) -> Self {
        self.cause = words(cause);
        self.remedies.clear();
        self
    }

    /// The fault with more about its cause behind it.
    #[must_use]
    pub(crate) fn and(mut self, more: &str) -> Self {
        self.cause = words(format!("{}{more}", self.cause));
        self
    }

    /// Several faults as one. A command that helps against several of them is given once, at the end.
    pub(crate) fn all(kind: FaultKind, faults: impl IntoIterator<Item = Fault>) -> Fault {
        let (mut causes, mut commands) = (Vec::new(), Vec::new());
        let mut is_unreached = true;
        for mut fault in faults {
            is_unreached &= fault.is_unreached;
            let is_command = |remedy: &mut Remedy| {
                matches!(
                    remedy,
                    Remedy::Init { .. }
                        | Remedy::InitAgain { .. }
                        | Remedy::InitAgainNow
                        | Remedy::InitBeside { .. }
                        | Remedy::Repair { .. }
                        | Remedy::SetBack(_)
                        | Remedy::Counters(_)
                )
            };
            for command in fault.remedies.extract_if(.., is_command) {
                if !commands.iter_mut().any(|known: &mut Remedy| known.takes_in(&command)) {
                    commands.push(command);
                }
            }
            causes.push(fault.to_string());
        }
        let is_unreached = is_unreached && !causes.is_empty();
        Fault { remedies: commands, is_unreached, ..Fault::new(kind, causes.join("; ")) }
    }

    /// One line for a person, with the commands of this mill and this source.
    #[must_use]
    pub(crate) fn message(&self, at: CommandLine<'_>) -> String {
        let mut message = String::new();
        for context in self.contexts.iter().rev() {
            let (text, joint) = match context {
                Context::Doing(doing) => (doing, " failed: "),
                Context::At(place) => (place, ": "),
            };
            message.push_str(text);
            message.push_str(joint);
        }
        message.push_str(&self.cause);
        for remedy in &self.remedies {
            message.push_str("; ");
            remedy.write(&mut message, at);
        }
        words(message)
    }

    /// The error that a caller gets.
    pub(crate) fn error(&self, at: CommandLine<'_>) -> Error {
        Error::new(self.kind.code(), self.message(at))
    }
}

/// The message without the mill's name.
impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message(CommandLine::BARE))
    }
}

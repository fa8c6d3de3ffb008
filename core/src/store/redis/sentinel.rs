//! Finds the master through Sentinels.
//!
//! Each Sentinel answers for itself: a Sentinel that is cut off from the others still names a master that they have
//! replaced. A failover needs a majority of them, so a majority of the configured Sentinels has to answer. All are asked,
//! because the leader of a failover knows first: each failover raises the `config-epoch`, and the answer with the highest
//! one counts once a majority gives it. Until then there is no master: the leader tells the others within seconds, and one Sentinel
//! that lies, or that watches another master of the same name, does not decide. While a Sentinel of that epoch regards the master as
//! down, or is replacing it, there is no master either.
//!
//! The connections stay open between reservations, until they have been idle for `idle_timeout`.

use redis::{Value, cmd};

use super::redis_session::{login, text};
use super::redis_wire::{CommandKind, RedisWire};
use crate::error::shown;
use crate::store::server::{FailedTargets, ServerOptions, Target};
use crate::store::{Fault, FaultKind};
use crate::time::Clock;

/// How long a Sentinel that timed out is not asked again, if enough others answer.
const PASSED_OVER_MS: u64 = 10_000;

/// The Sentinels that watch one master.
pub(super) struct Sentinels {
    options: ServerOptions,
    name: String,
    /// For each host: the boot time until which it is skipped.
    silent_until: Vec<u64>,
    /// For each host: the connection to it, while it is in use.
    connections: Vec<Option<SentinelConnection>>,
}

/// A connection to a Sentinel.
struct SentinelConnection {
    wire: RedisWire,
    /// Boot time of the last answer.
    used_ms: u64,
}

/// A Sentinel's answer.
#[derive(Debug)]
struct SentinelAnswer {
    epoch: u64,
    master: (String, u16),
    /// The master that it names has replaced the one it watched.
    replaced: bool,
    /// It regards the master as down, or is replacing it.
    troubled: bool,
}

impl Sentinels {
    pub(super) fn new(options: &ServerOptions, name: &str) -> Sentinels {
        Sentinels {
            silent_until: vec![0; options.hosts.len()],
            connections: options.hosts.iter().map(|_| None).collect(),
            options: options.clone(),
            name: name.to_owned(),
        }
    }

    /// The master's host and port.
    pub(super) fn master(&mut self) -> Result<(String, u16), Fault> {
        let listed = self.options.hosts.len();
        let mut failures = FailedTargets::default();
        let mut answers = Vec::new();
        let now = Clock::System.boot_ms();
        let (mut order, passed_over): (Vec<_>, Vec<_>) =
            (0..listed).partition(|at| self.silent_until[*at] <= now);
        let asked = order.len();
        order.extend(passed_over);
        for (turn, at) in order.into_iter().enumerate() {
            if turn >= asked && answers.len() * 2 > listed {
                break;
            }
            match self.ask(at, &mut failures) {
                Some(answer) => answers.push(answer),
                None => self.silent_until[at] = Clock::System.boot_ms() + PASSED_OVER_MS,
            }
        }
        let outage = |what: String| Err(Fault::new(FaultKind::Unavailable, what));
        let name = &self.name;
        if answers.len() * 2 <= listed {
            let (answered, why) = (answers.len(), failures.joined("; "));
            let cause = format!(
                "{answered} of {listed} Sentinels say who the master `{name}` is, and more than half have to: {why}"
            );
            return if answered == 0 { Err(failures.of_reach(cause)) } else { outage(cause) };
        }
        match newest(&answers, listed) {
            Verdict::Master(master) => Ok(master),
            Verdict::Down => {
                outage(format!("the Sentinels say that the master `{name}` is down: it is being replaced"))
            }
            Verdict::Alone { epoch, master: (host, port), count } => outage(format!(
                "{count} of {listed} Sentinels name `{}:{port}` as the master `{name}`, with the highest config-epoch, {epoch}, and more than half have to: it is being replaced, or one of the Sentinels does not watch this master",
                shown(&host)
            )),
        }
    }

    /// Closes connections that have been idle for this long; answers with the boot time of the next one.
    pub(super) fn release_idle(&mut self, now_ms: u64, idle_ms: u64) -> Option<u64> {
        let close_at = |kept: &SentinelConnection| kept.used_ms.saturating_add(idle_ms);
        for kept in &mut self.connections {
            if kept.as_ref().is_some_and(|kept| close_at(kept) <= now_ms) {
                *kept = None;
            }
        }
        self.connections.iter().flatten().map(close_at).min()
    }

    /// Asks one Sentinel, by the connection that is open or by a new one.
    fn ask(&mut self, at: usize, failures: &mut FailedTargets) -> Option<SentinelAnswer> {
        let place = self.options.hosts[at].clone();
        if let Some(mut kept) = self.connections[at].take() {
            match self.question(&mut kept.wire) {
                Ok(answer) => {
                    self.keep(at, kept.wire);
                    return Some(answer);
                }
                // The Sentinel was restarted, or closed an idle connection: a new connection may succeed at once.
                Err(_) if kept.wire.hung_up => {}
                Err(fault) => {
                    failures.note(format!("{}:{}: {fault}", place.0, place.1), false);
                    return None;
                }
            }
        }
        for target in self.options.targets_at(std::slice::from_ref(&place), failures) {
            match self.ask_at(&target) {
                Ok((answer, wire)) => {
                    self.keep(at, wire);
                    return Some(answer);
                }
                Err(fault) => failures.note_fault(&target, &fault),
            }
        }
        None
    }

    fn keep(&mut self, at: usize, wire: RedisWire) {
        if !wire.broken {
            self.connections[at] = Some(SentinelConnection { wire, used_ms: Clock::System.boot_ms() });
        }
    }

    fn ask_at(&self, target: &Target) -> Result<(SentinelAnswer, RedisWire), Fault> {
        let mut wire = RedisWire::open(target, &self.options)?;
        match self.question(&mut wire) {
            // Most Sentinels have no password; those that have one use the servers'.
            Err(fault) if fault.native.as_deref() == Some("NOAUTH") => {
                let options = self.options.signed_in()?;
                let Some(login) = login(&options) else { return Err(fault) };
                let mut wire = RedisWire::open(target, &options)?;
                wire.ask(login)?;
                let answer = self.question(&mut wire)?;
                Ok((answer, wire))
            }
            answer => answer.map(|answer| (answer, wire)),
        }
    }

    fn question(&self, wire: &mut RedisWire) -> Result<SentinelAnswer, Fault> {
        // The first query names the watched master, the second the master to use: for a while after a failover they differ.
        let questions = ["MASTER", "GET-MASTER-ADDR-BY-NAME"]
            .map(|verb| cmd("SENTINEL").arg(verb).arg(&self.name).take());
        let mut texts = Vec::new();
        let answers = wire.exchange(&questions, CommandKind::Query)?;
        // The first question about an unknown master is an error without a code of its own, the second has no answer.
        let is_unknown = matches!(answers.as_slice(), [Value::ServerError(_), Value::Nil]);
        for answer in answers {
            let Value::Array(fields) = (match wire.answer(answer) {
                Err(fault) if is_unknown => return Err(fault.because(self.known_to(wire))),
                other => other?,
            }) else {
                return Err(no_sentinel());
            };
            texts.push(fields.iter().map(|field| text(field).unwrap_or_default()).collect::<Vec<_>>());
        }
        parse(&texts[0], &texts[1]).ok_or_else(no_sentinel)
    }
}

impl Sentinels {
    /// Error text for a Sentinel that does not know this master; it names the masters that it watches.
    fn known_to(&self, wire: &mut RedisWire) -> String {
        let masters = wire.ask(cmd("SENTINEL").arg("MASTERS").take());
        let mut names: Vec<String> = match masters {
            Ok(Value::Array(masters)) => masters.iter().filter_map(name_of).collect(),
            _ => Vec::new(),
        };
        names.sort();
        let known = if names.is_empty() {
            "it names none".to_owned()
        } else {
            format!("it watches `{}`", names.join("`, `"))
        };
        format!(
            "this Sentinel knows no master `{}`; {known}: write `?sentinel=NAME` with one of its names",
            self.name
        )
    }
}

fn name_of(master: &Value) -> Option<String> {
    let Value::Array(fields) = master else { return None };
    let at = fields.chunks_exact(2).find(|pair| text(&pair[0]).as_deref() == Some("name"))?;
    text(&at[1])
}

fn no_sentinel() -> Fault {
    Fault::new(FaultKind::Refused, "the answer is not a Sentinel's")
}

fn parse(watched: &[String], used: &[String]) -> Option<SentinelAnswer> {
    let field =
        |name: &str| watched.chunks_exact(2).find(|pair| pair[0] == name).map(|pair| pair[1].as_str());
    let [host, port] = used else { return None };
    let troubles = ["s_down", "o_down", "failover_in_progress"];
    Some(SentinelAnswer {
        epoch: field("config-epoch")?.parse().ok()?,
        master: (host.clone(), port.parse().ok()?),
        replaced: (field("ip")?, field("port")?) != (host.as_str(), port.as_str()),
        troubled: field("flags")?.split(',').any(|flag| troubles.contains(&flag)),
    })
}

/// What the answers of more than half of the Sentinels mean.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Master((String, u16)),
    /// The master is in trouble.
    Down,
    /// Half of the Sentinels or fewer give the answer with the highest epoch.
    Alone {
        epoch: u64,
        master: (String, u16),
        count: usize,
    },
}

/// Judges the answers of `listed` Sentinels: those with the highest epoch count.
fn newest(answers: &[SentinelAnswer], listed: usize) -> Verdict {
    let Some(epoch) = answers.iter().map(|answer| answer.epoch).max() else { return Verdict::Down };
    let newest: Vec<&SentinelAnswer> = answers.iter().filter(|answer| answer.epoch == epoch).collect();
    let count_of = |master: &(String, u16)| newest.iter().filter(|answer| answer.master == *master).count();
    let Some(most) = newest.iter().map(|answer| &answer.master).max_by_key(|master| count_of(master)) else {
        return Verdict::Down;
    };
    let (master, count) = (most.clone(), count_of(most));
    if count * 2 <= listed {
        return Verdict::Alone { epoch, master, count };
    }
    let is_replaced = newest.iter().any(|answer| answer.replaced && answer.master == master);
    if !is_replaced && newest.iter().any(|answer| answer.troubled && answer.master == master) {
        return Verdict::Down;
    }
    Verdict::Master(master)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(epoch: u64, port: u16, replaced: bool, troubled: bool) -> SentinelAnswer {
        SentinelAnswer { epoch, master: ("db".to_owned(), port), replaced, troubled }
    }

    fn judged(answers: Vec<SentinelAnswer>) -> Verdict {
        newest(&answers, 3)
    }

    fn master(port: u16) -> Verdict {
        Verdict::Master(("db".to_owned(), port))
    }

    fn alone(epoch: u64, port: u16) -> Verdict {
        Verdict::Alone { epoch, master: ("db".to_owned(), port), count: 1 }
    }

    #[test]
    fn the_newest_answer_counts_and_a_master_in_trouble_is_none() {
        let [old, new] = [(1, 1), (2, 2)].map(|(epoch, port)| move || answer(epoch, port, false, false));
        assert_eq!(judged(vec![old(), old()]), master(1));
        assert_eq!(judged(vec![new(), new(), answer(1, 1, false, true)]), master(2));
        assert_eq!(judged(vec![answer(1, 1, false, true), old()]), Verdict::Down);
        // The leader of a failover has decided; then the others know it.
        assert_eq!(judged(vec![old(), old(), answer(2, 2, true, true)]), alone(2, 2));
        assert_eq!(judged(vec![old(), new(), answer(2, 2, true, true)]), master(2));
        assert_eq!(judged(Vec::new()), Verdict::Down);
    }

    #[test]
    fn one_sentinel_of_three_does_not_decide() {
        let true_one = || answer(7, 1, false, false);
        for liar in [answer(999_999, 2, false, false), answer(999_999, 2, true, true)] {
            assert_eq!(judged(vec![true_one(), liar, true_one()]), alone(999_999, 2));
        }
        // An older answer of another master counts for nothing.
        assert_eq!(judged(vec![true_one(), answer(6, 2, false, false), true_one()]), master(1));
        // Of one epoch, but another address.
        for liar in [answer(7, 2, false, false), answer(7, 2, true, true)] {
            assert_eq!(judged(vec![true_one(), true_one(), liar]), master(1));
        }
    }

    #[test]
    fn a_sentinels_answer_is_read() {
        let texts = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let watched = texts("name mymaster ip 10.0.0.1 port 6379 flags s_down,master,o_down config-epoch 7");
        let read = super::parse(&watched, &texts("10.0.0.2 6380")).expect("an answer");
        assert_eq!((read.epoch, read.master.1, read.replaced, read.troubled), (7, 6380, true, true));
        assert!(super::parse(&watched, &texts("10.0.0.2")).is_none());
        assert!(super::parse(&texts("a b"), &texts("10.0.0.2 6380")).is_none());
    }
}

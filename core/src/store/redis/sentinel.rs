//! Who is the master? Sentinels know. (floor 2)
//!
//! Every Sentinel answers for itself, and one that is cut off from the others goes on naming a master that they have
//! replaced. So more than half of those listed are asked, where so many answer, and the newest word counts: each
//! failover raises the `config-epoch`.

use redis::{Value, cmd};

use super::session::{login, text};
use super::wire::Wire;
use crate::store::server::Options;
use crate::store::{Fault, FaultKind};

/// The options with the master's address in the place of the Sentinels'.
pub(super) fn master(sentinels: &Options, name: &str) -> Result<Options, Fault> {
    let mut failures = Vec::new();
    let mut newest: Option<(u64, (String, u16))> = None;
    let mut answered = 0;
    for place in &sentinels.hosts {
        if answered * 2 > sentinels.hosts.len() {
            break;
        }
        let one = Options { hosts: vec![place.clone()], ..sentinels.clone() };
        let mut found = None;
        for target in one.targets(&mut failures) {
            match ask(&target, sentinels, name) {
                Ok(master) => {
                    found = Some(master);
                    break;
                }
                Err(fault) => failures.push(format!("{target}: {}", fault.message)),
            }
        }
        if let Some((epoch, address)) = found {
            answered += 1;
            if newest.as_ref().is_none_or(|(newest, _)| epoch > *newest) {
                newest = Some((epoch, address));
            }
        }
    }
    match newest {
        Some((_, address)) => Ok(Options { hosts: vec![address], socket: None, ..sentinels.clone() }),
        None => Err(Fault::new(
            FaultKind::Unavailable,
            format!("no Sentinel knows a master `{name}`: {}", failures.join("; ")),
        )),
    }
}

/// One Sentinel's word: epoch and address.
fn ask(
    target: &crate::store::server::Target,
    options: &Options,
    name: &str,
) -> Result<(u64, (String, u16)), Fault> {
    let mut wire = Wire::open(target, options)?;
    let question = || cmd("SENTINEL").arg("MASTER").arg(name).take();
    // Most Sentinels have no password; of those that have one it is the servers'.
    let answer = match (wire.ask(question()), login(options)) {
        (Err(fault), Some(login)) if fault.message.starts_with("NOAUTH") => {
            wire = Wire::open(target, options)?;
            wire.ask(login)?;
            wire.ask(question())?
        }
        (answer, _) => answer?,
    };
    let Value::Array(fields) = answer else { return Err(no_sentinel()) };
    let field = |wanted: &str| {
        fields
            .chunks(2)
            .find(|pair| pair.first().and_then(text).as_deref() == Some(wanted))
            .and_then(|pair| pair.get(1))
            .and_then(text)
    };
    let address = field("ip").zip(field("port").and_then(|port| port.parse().ok()));
    let epoch = field("config-epoch").and_then(|epoch| epoch.parse().ok());
    epoch.zip(address).ok_or_else(no_sentinel)
}

fn no_sentinel() -> Fault {
    Fault::new(FaultKind::Refused, "the answer is not a Sentinel's")
}

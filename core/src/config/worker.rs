//! Where a snowflake's worker id comes from: `worker=`, and the options that belong to it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::base::error::{Error, Result, shown};
use crate::base::spec::{Worker, WorkerFrom};
use crate::base::thread::host_name;
use crate::base::worker::Slots;
use crate::snowflake::Layout;

use super::Options;
use super::spec::Reader;

/// The options that only `worker=lease` has.
const OF_LEASES: [&str; 3] = ["lease", "pool", "slots"];

/// Takes away what belongs to another worker than the source's: of options under those that name the worker, since the defaults of a
/// kind also stand for its sources that have no use for some of them. Later layers come first.
pub(super) fn leave_out_unused(layers: &mut [Options]) {
    let Some((over, worker)) =
        layers.iter().enumerate().rev().find_map(|(at, layer)| Some((at, layer.get("worker")?.clone())))
    else {
        return;
    };
    for under in &mut layers[..over] {
        if worker != "lease" {
            under.retain(|option, _| !OF_LEASES.contains(&option.as_str()));
        }
        if ["lease", "disposable"].contains(&worker.as_str()) {
            under.remove("mark");
        }
    }
}

/// What `worker=` and its options say.
pub(super) struct Chosen {
    pub(super) worker: Worker,
    pub(super) from: WorkerFrom,
    /// `mark=store`.
    pub(super) is_marked: bool,
}

pub(super) fn chosen(read: &Reader, layout: &Layout) -> Result<Chosen> {
    let (worker, from) = worker(read, layout)?;
    let is_marked = read.one_of("mark", &[("store", true), ("none", false)])?;
    if let (false, Some(kind)) = (is_marked, worker.kind()) {
        return Err(Error::config(format!(
            "option `mark=none` is for a worker that is given, and `worker={kind}` keeps what it needs in the store; leave it out"
        )));
    }
    let of_leases = OF_LEASES.iter().find(|option| read.is_given(option));
    if let (Some(option), false) = (of_leases, matches!(worker, Worker::Leased { .. })) {
        return Err(Error::config(format!(
            "option `{option}` is for worker=lease, and this worker is not leased; leave it out"
        )));
    }
    Ok(Chosen { worker, from, is_marked })
}

fn worker(read: &Reader, layout: &Layout) -> Result<(Worker, WorkerFrom)> {
    let value = read.text("worker", "lease");
    let (kind, of) = value.split_once(':').map_or((value.as_str(), None), |(kind, of)| (kind, Some(of)));
    match (kind, of) {
        ("lease", None) => leased(read, layout).map(|worker| (worker, WorkerFrom::Given)),
        ("disposable", None) => Ok((Worker::Disposable, WorkerFrom::Given)),
        ("ordinal", name) => {
            let name = name.map(str::to_owned).or_else(host_name).unwrap_or_default();
            Ok((Worker::Fixed(ordinal(&name, layout)?), WorkerFrom::Ordinal))
        }
        ("ip", address) => {
            let address = match address {
                Some(address) => parsed(read, address)?,
                None => outgoing().ok_or_else(|| {
                    Error::config(
                        "`worker=ip` takes the address from which this machine reaches others, and no route leads out of it; write the \
                         address, `worker=ip:ADDRESS`",
                    )
                })?,
            };
            Ok((Worker::Fixed(low_bits(address, layout)), WorkerFrom::Address))
        }
        _ => given(read, layout, &value).map(|worker| (worker, WorkerFrom::Given)),
    }
}

fn leased(read: &Reader, layout: &Layout) -> Result<Worker> {
    let most = layout.max_worker();
    let lease_ms = read.millis("lease", 30_000, 1_000, 3_600_000)?;
    let Some(value) = read.get("slots") else {
        return Ok(Worker::Leased { lease_ms, slots: Slots { first: 0, last: most } });
    };
    let ends = value
        .split_once('-')
        .and_then(|(first, last)| Some(Slots { first: first.parse().ok()?, last: last.parse().ok()? }));
    let slots = ends
        .filter(|slots| slots.first <= slots.last && slots.last <= most)
        .ok_or_else(|| read.bad("slots", value, &format!("A-B, from 0 to {most}, the lower one first")))?;
    Ok(Worker::Leased { lease_ms, slots })
}

/// `worker=N` or `worker=DC+N`.
fn given(read: &Reader, layout: &Layout, value: &str) -> Result<Worker> {
    let most = layout.max_worker();
    let Some((center, own)) = value.split_once('+') else {
        let number = value.parse().ok().filter(|number| *number <= most && is_digits(value));
        return number.map(Worker::Fixed).ok_or_else(|| {
            read.bad(
                "worker",
                value,
                &format!(
                    "lease, ordinal, ip, disposable, a whole number from 0 to {most}, or a data centre and a worker, as in 2+5; \
                     ordinal:NAME and ip:ADDRESS name another host"
                ),
            )
        });
    };
    let number = |text: &str| text.parse().ok().filter(|_| is_digits(text));
    let (Some(center), Some(own)) = (number(center), number(own)) else {
        return Err(read.bad("worker", value, "a data centre and a worker, as in 2+5"));
    };
    layout.with_data_centre()?.join_worker(center, own).map(Worker::Fixed)
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The number at the end of a host's name, as the pods of a StatefulSet have one: `tx-3`, or `tx-3.tx.default.svc`.
fn ordinal(name: &str, layout: &Layout) -> Result<u64> {
    let host = name.split('.').next().unwrap_or_default();
    let digits = &host[host.trim_end_matches(|letter: char| letter.is_ascii_digit()).len()..];
    if digits.is_empty() {
        return Err(Error::config(format!(
            "the host name `{}` does not end in a number, as those of a StatefulSet's pods do (`tx-3`); write `worker=ordinal:NAME` \
             with the pod's name, or another worker",
            shown(name)
        )));
    }
    let most = layout.max_worker();
    digits.parse().ok().filter(|ordinal| *ordinal <= most).ok_or_else(|| {
        Error::config(format!(
            "the number at the end of host name `{}` does not fit the workers of layout {layout}: valid are 0 to {most}",
            shown(name)
        ))
    })
}

fn parsed(read: &Reader, address: &str) -> Result<IpAddr> {
    let of_a_machine = |of: &IpAddr| !of.is_loopback() && !of.is_unspecified() && !of.is_multicast();
    address.parse().ok().filter(of_a_machine).ok_or_else(|| {
        read.bad("worker", &format!("ip:{address}"), "ip, or ip:ADDRESS with the address of a machine")
    })
}

/// As many low bits of the address as the layout has for workers.
fn low_bits(address: IpAddr, layout: &Layout) -> u64 {
    let bits = match address.to_canonical() {
        IpAddr::V4(address) => u64::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address) as u64,
    };
    bits & layout.max_worker()
}

/// The address from which this machine reaches others. Nothing is sent: connecting a UDP socket only chooses the route. The
/// destinations are reserved for documentation (RFC 5737, RFC 3849), so the route is the default one.
fn outgoing() -> Option<IpAddr> {
    let to: [(IpAddr, IpAddr); 2] = [
        (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
        (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()),
    ];
    to.into_iter().find_map(|(from, to)| {
        let socket = UdpSocket::bind(SocketAddr::new(from, 0)).ok()?;
        socket.connect(SocketAddr::new(to, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
            .filter(|address| !address.is_loopback() && !address.is_unspecified())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MillConfig;

    fn layout(text: &str) -> Layout {
        Layout::parse(text, "2025-01-01").expect("a layout")
    }

    #[test]
    fn an_ordinal_is_the_number_at_the_end_of_the_hosts_own_name() {
        let twitter = layout("twitter");
        for (name, worker) in [
            ("tx-3", 3),
            ("tx-0", 0),
            ("web07", 7),
            ("a-2.tx.default.svc", 2),
            ("2024-api-11", 11),
            ("9", 9),
            ("tx-1023", 1023),
        ] {
            assert_eq!(ordinal(name, &twitter).expect(name), worker, "{name}");
        }
        for name in ["", "web", "tx-3-a", "web.example7", "-", "tx-1024", "tx-99999999999999999999", "名"] {
            assert!(ordinal(name, &twitter).is_err(), "{name}");
        }
    }

    #[test]
    fn a_worker_is_as_many_low_bits_of_the_address_as_the_layout_has() {
        for (address, of, worker) in [
            ("10.0.3.57", "twitter", 3 * 256 + 57),
            ("10.0.7.57", "twitter", 3 * 256 + 57),
            ("10.1.2.3", "sonyflake", 2 * 256 + 3),
            ("10.65.2.3", "uid", 65_536 + 2 * 256 + 3),
            ("2001:db8::1:2:3", "sonyflake", 3),
            ("::ffff:10.0.3.57", "twitter", 3 * 256 + 57),
        ] {
            assert_eq!(low_bits(address.parse().expect("an address"), &layout(of)), worker, "{address} {of}");
        }
    }

    #[test]
    fn the_address_of_the_outgoing_route_is_one_of_a_machine() {
        let spec = MillConfig::parse("memory:").and_then(|config| config.spec("snowflake:a?worker=ip"));
        match outgoing() {
            Some(address) => {
                assert!(!address.is_loopback() && !address.is_unspecified() && !address.is_multicast());
                assert!(spec.is_ok());
            }
            None => assert!(spec.expect_err("no route").message.contains("no route")),
        }
    }
}

//! Where a snowflake's worker id comes from: `worker=`, and the options that belong to it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::error::{Error, Result, shown};

use crate::layout::Layout;
use crate::request::worker::{LONGEST_LEASE_MS, Slots};
use crate::spec::{Worker, WorkerFrom};
use crate::system::host::host_name;

use super::Options;
use super::machine::{self, Address, is_of_a_machine};
use super::option_reader::OptionReader;

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
    /// What it was read from.
    pub(super) worker_read: String,
    /// `mark=store`.
    pub(super) is_marked: bool,
}

pub(super) fn chosen(read: &OptionReader, layout: &Layout) -> Result<Chosen> {
    let (worker, from, worker_read) = worker(read, layout)?;
    let is_marked = read.one_of("mark", &[("store", true), ("none", false)])?;
    if let (false, Some(kind)) = (is_marked, worker.kind()) {
        return Err(Error::config(format!(
            "option `mark=none` is for a worker number that the spec gives; `worker={kind}` needs the store; leave `mark` out"
        )));
    }
    let of_leases = OF_LEASES.iter().find(|option| read.is_given(option));
    if let (Some(option), false) = (of_leases, matches!(worker, Worker::Leased { .. })) {
        return Err(Error::config(format!(
            "option `{option}` is for worker=lease, and this worker is not leased; leave it out"
        )));
    }
    Ok(Chosen { worker, from, worker_read, is_marked })
}

fn worker(read: &OptionReader, layout: &Layout) -> Result<(Worker, WorkerFrom, String)> {
    let value = read.text("worker", "lease");
    let (kind, argument) =
        value.split_once(':').map_or((value.as_str(), None), |(kind, argument)| (kind, Some(argument)));
    let unread = |worker| (worker, WorkerFrom::Given, String::new());
    let family = match kind {
        "ip" | "ip4" => AddressFamily::V4,
        "ip6" => AddressFamily::V6,
        "ordinal" => {
            let name = argument.map(str::to_owned).or_else(host_name).unwrap_or_default();
            let worker = Worker::Fixed(ordinal(&name, layout)?);
            return Ok((worker, WorkerFrom::Ordinal, shown(&name)));
        }
        "lease" if argument.is_none() => return leased(read, layout).map(unread),
        "disposable" if argument.is_none() => return Ok(unread(Worker::Disposable)),
        _ => return given(read, layout, &value).map(unread),
    };
    let (address, shown) = match argument {
        Some(text) => {
            let address = parsed(read, kind, text)?;
            (address, address.to_string())
        }
        None => {
            let found = own_address(family, family.outgoing(), &machine::addresses())?;
            let shown = match (&found.interface, found.is_bridge) {
                (interface, _) if interface.is_empty() => found.ip.to_string(),
                (interface, false) => format!("{} of {interface}", found.ip),
                (interface, true) => format!(
                    "{} of {interface}, a bridge, whose address other machines may have too: write `{kind}:ADDRESS`",
                    found.ip
                ),
            };
            (found.ip, shown)
        }
    };
    Ok((Worker::Fixed(low_bits(address, layout)), WorkerFrom::Address, shown))
}

fn leased(read: &OptionReader, layout: &Layout) -> Result<Worker> {
    let most = layout.max_worker();
    let lease_ms = read.millis("lease", 30_000, 1_000, LONGEST_LEASE_MS)?;
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
fn given(read: &OptionReader, layout: &Layout, value: &str) -> Result<Worker> {
    let most = layout.max_worker();
    let Some((center, own)) = value.split_once('+') else {
        let number = value.parse().ok().filter(|number| *number <= most && is_digits(value));
        return number.map(Worker::Fixed).ok_or_else(|| {
            read.bad(
                "worker",
                value,
                &format!(
                    "lease, ordinal, ip, disposable, a whole number from 0 to {most}, or a data centre and a worker, as in 2+5; ordinal:NAME and ip:ADDRESS name another host; ip6 takes the IPv6 address"
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

/// The number at the end of a pod's name, as the pods of a StatefulSet have it: `tx-3`, or `tx-3.tx.default.svc`. Names that end in
/// random characters are refused: two machines would have one number.
fn ordinal(name: &str, layout: &Layout) -> Result<u64> {
    let host = name.split('.').next().unwrap_or_default();
    let refused = |why: &str| {
        Error::config(format!(
            "the host name `{}` {why}; leave `worker=` out, and the store leases a worker to each process, or use a StatefulSet, whose pods' names end as in `tx-3`",
            shown(name)
        ))
    };
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if [12, 64].contains(&host.len()) && is_hex(host) {
        return Err(refused("is a container's id, which is random"));
    }
    let parts: Vec<_> = host.rsplit('-').take(4).collect();
    if parts.len() == 4 && parts.iter().all(|part| part.parse::<u8>().is_ok()) {
        return Err(refused("ends in an address, whose last number other machines have too"));
    }
    let Some((set_name, digits)) = host.rsplit_once('-').filter(|(set_name, _)| !set_name.is_empty()) else {
        return Err(refused("does not end in `-` and a number, as a StatefulSet's pods do"));
    };
    let is_part = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let hash = set_name.rsplit_once('-').map_or("", |(_, hash)| hash);
    if digits.len() == 5 && is_part(digits) && (8..=10).contains(&hash.len()) && is_part(hash) {
        return Err(refused("is the name of a Deployment's pod, which ends in random characters"));
    }
    // Random suffixes are of these digits and of consonants.
    if digits.len() == 5 && digits.bytes().all(|byte| b"2456789".contains(&byte)) {
        return Err(refused(
            "may end in five random characters, as the pods of a Deployment, a DaemonSet and a Job do",
        ));
    }
    if digits.is_empty() || !is_digits(digits) || digits.len() > 1 && digits.starts_with('0') {
        return Err(refused(
            "does not end in `-` and a number without leading zeros, as a StatefulSet's pods do",
        ));
    }
    let most = layout.max_worker();
    digits.parse().ok().filter(|ordinal| *ordinal <= most).ok_or_else(|| {
        Error::config(format!(
            "the number at the end of host name `{}` does not fit the workers of layout {layout}: valid are 0 to {most}",
            shown(name)
        ))
    })
}

fn parsed(read: &OptionReader, kind: &str, address: &str) -> Result<IpAddr> {
    let usable =
        |address: &IpAddr| !address.is_loopback() && !address.is_unspecified() && !address.is_multicast();
    // `ip:ADDRESS` names the address, so its family is no accident.
    let of_kind = |ip: &IpAddr| match kind {
        "ip4" => ip.is_ipv4(),
        "ip6" => ip.is_ipv6(),
        _ => true,
    };
    address.parse().ok().filter(usable).filter(of_kind).ok_or_else(|| {
        read.bad(
            "worker",
            &format!("{kind}:{address}"),
            "ip, ip4, ip6, or ip:ADDRESS, ip4:ADDRESS, ip6:ADDRESS with the address of a machine",
        )
    })
}

/// Which addresses count. One is never taken in place of the other: a worker would change with the routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddressFamily {
    V4,
    V6,
}

impl AddressFamily {
    fn has(self, ip: &IpAddr) -> bool {
        ip.is_ipv4() == (self == AddressFamily::V4)
    }

    /// The address of the default route. The destinations are reserved for documentation (RFC 5737, RFC 3849).
    fn outgoing(self) -> Option<IpAddr> {
        match self {
            AddressFamily::V4 => {
                machine::outgoing(Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into())
            }
            AddressFamily::V6 => machine::outgoing(
                Ipv6Addr::UNSPECIFIED.into(),
                Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
            ),
        }
    }
}

/// The address of this machine: the address of the default route, else the only address that is no bridge's.
fn own_address(family: AddressFamily, outgoing: Option<IpAddr>, all: &[Address]) -> Result<Address> {
    let (name, kind) = match family {
        AddressFamily::V4 => ("ip", "IPv4"),
        AddressFamily::V6 => ("ip6", "IPv6"),
    };
    let has_others = all
        .iter()
        .any(|address| !family.has(&address.ip) && is_of_a_machine(&address.ip) && !address.is_bridge);
    let others = match family {
        _ if !has_others => "",
        AddressFamily::V4 => ", but one of IPv6, which `worker=ip6` takes",
        AddressFamily::V6 => ", but one of IPv4, which `worker=ip` takes",
    };
    if let Some(ip) = outgoing.filter(|ip| family.has(ip)) {
        let known = all.iter().find(|address| address.ip == ip).cloned();
        return Ok(known.unwrap_or(Address { interface: String::new(), ip, is_bridge: false }));
    }
    let own: Vec<_> = all
        .iter()
        .filter(|address| family.has(&address.ip) && is_of_a_machine(&address.ip) && !address.is_bridge)
        .collect();
    match own.as_slice() {
        [only] => Ok((*only).clone()),
        [] => Err(Error::config(format!(
            "`worker={name}`: this machine has no {kind} address that others could reach{others}; leave `worker=` out, and the store leases a worker to each process, or name an address, `worker=ip:ADDRESS`"
        ))),
        several => {
            let each = several.iter().map(|address| format!("{} of {}", address.ip, address.interface));
            Err(Error::config(format!(
                "`worker={name}`: no default route chooses among this machine's {kind} addresses: {}; name one, `worker={name}:ADDRESS`",
                each.collect::<Vec<_>>().join(", ")
            )))
        }
    }
}

/// As many low bits of the address as the layout has for workers.
fn low_bits(address: IpAddr, layout: &Layout) -> u64 {
    let bits = match address.to_canonical() {
        IpAddr::V4(address) => u64::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address) as u64,
    };
    bits & layout.max_worker()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MillConfig;
    use crate::spec::SnowflakeSpec;

    fn layout(text: &str) -> Layout {
        Layout::parse(text, "2025-01-01").expect("a layout")
    }

    #[test]
    fn an_ordinal_is_the_number_at_the_end_of_a_statefulsets_pod() {
        for (name, layout_name, worker) in [
            ("tx-3", "twitter", 3),
            ("tx-0", "twitter", 0),
            ("a-2.tx.default.svc", "twitter", 2),
            ("2024-api-11", "twitter", 11),
            ("tx-1023", "twitter", 1023),
            ("tx-10000", "uid", 10_000),
            ("web-7d9f8b6c5-4", "twitter", 4),
        ] {
            assert_eq!(ordinal(name, &layout(layout_name)).expect(name), worker, "{name}");
        }
    }

    #[test]
    fn a_name_that_ends_in_random_characters_or_in_no_number_is_refused_with_the_reason() {
        for (name, why) in [
            ("3f2a9c77b012", "a container's id"),
            (&"0a1b2c3d".repeat(8), "a container's id"),
            ("tx-7d9f8b6c5-x2b94", "a Deployment's pod"),
            ("tx-7d9f8b6c5-24948", "a Deployment's pod"),
            ("tx-24948", "five random characters"),
            ("ip-10-0-3-17", "ends in an address"),
            ("web07", "does not end in `-` and a number"),
            ("9", "does not end in `-` and a number"),
            ("20240101", "does not end in `-` and a number"),
            ("-7", "does not end in `-` and a number"),
            ("tx-07", "without leading zeros"),
            ("tx-", "without leading zeros"),
            ("tx-3-a", "without leading zeros"),
            ("tx-+3", "without leading zeros"),
            ("", "does not end in `-` and a number"),
            ("web", "does not end in `-` and a number"),
            ("web.example-7", "does not end in `-` and a number"),
            ("名-七", "without leading zeros"),
            ("tx-1024000", "valid are 0 to 4194303"),
            ("tx-99999999999999999999", "valid are 0 to 4194303"),
        ] {
            let layout = if why.contains("4194303") { "uid" } else { "twitter" };
            let name = if name == "tx-1024000" { "tx-4194304" } else { name };
            let error = ordinal(name, &self::layout(layout)).expect_err(name).message;
            assert!(error.contains(why), "{name}: {error}");
        }
    }

    #[test]
    fn a_worker_is_as_many_low_bits_of_the_address_as_the_layout_has() {
        for (address, layout_name, worker) in [
            ("10.0.3.57", "twitter", 3 * 256 + 57),
            ("10.0.7.57", "twitter", 3 * 256 + 57),
            ("10.1.2.3", "sonyflake", 2 * 256 + 3),
            ("10.65.2.3", "uid", 65_536 + 2 * 256 + 3),
            ("2001:db8::1:2:3", "sonyflake", 3),
            ("::ffff:10.0.3.57", "twitter", 3 * 256 + 57),
        ] {
            assert_eq!(
                low_bits(address.parse().expect("an address"), &layout(layout_name)),
                worker,
                "{address} {layout_name}"
            );
        }
    }

    #[test]
    fn equal_layouts_have_one_mark_for_each_worker_and_others_have_others() {
        let spec = |options: &str| {
            let text = format!("snowflake:{options}");
            MillConfig::parse("memory:").and_then(|config| config.spec(&text)).expect(options)
        };
        // Each line is one worker in several spellings.
        let workers = [
            vec![
                "tx?worker=69",
                "tx?worker=2+5",
                "tx?worker=ordinal:tx-69",
                "tx?layout=twitter&worker=69&mark=none&max_lead=1s",
                "tx?layout=time:41@1000us,worker:10,seq:12&worker=69",
                "tx?layout=time:41@1ms,dc-worker:5+5,seq:12&worker=69",
                "tx?layout=time:41@1ms,worker:3+7,seq:12&worker=0+69&epoch=2025-01-01T00:00:00Z",
                "tx?scatter=1&worker=69",
                // Equal ticks make equal ids.
                "tx?worker=69&epoch=2025-01-02",
            ],
            vec!["tx?worker=70"],
            vec!["ty?worker=69"],
            vec!["tx?layout=time:40@1ms,worker:10,seq:12&worker=69"],
            vec!["tx?layout=time:41@10ms,worker:10,seq:12&worker=69"],
            vec!["tx?layout=time:41@1ms,worker:11,seq:11&worker=69"],
            vec!["tx?layout=time:41@1ms,worker:10,seq:11&worker=69"],
            vec!["tx?layout=time:41@1ms,seq:12,worker:10&worker=69"],
            vec![
                "tx?layout=time:41@1ms,worker:0,seq:12&worker=0",
                "tx?layout=time:41@1ms,seq:12,worker:0&worker=0",
            ],
        ];
        let mut keys = std::collections::HashSet::new();
        for spellings in &workers {
            let specs: Vec<_> = spellings.iter().map(|text| spec(text)).collect();
            assert!(specs.iter().all(|spec| spec.key.name == specs[0].key.name), "{:?}", specs[0].key.name);
            assert!(specs.iter().all(|spec| spec.fixed_worker() == specs[0].fixed_worker()));
            assert!(keys.insert(specs[0].key.name.clone()), "{}", specs[0].key.name);
            for spec in &specs {
                let Some(SnowflakeSpec { worker: Worker::Fixed(worker), .. }) = spec.snowflake else {
                    panic!("{}", spec.text)
                };
                let places = spec.places().expect("places");
                assert_eq!(spec.key.name, places.fixed_row(worker).name);
            }
        }
        assert!(keys.contains("snowflake:tx?fields=time:41@1ms,worker:10,seq:12&worker=69"));
    }

    #[test]
    fn a_pools_record_says_whether_its_ids_could_be_those_of_a_source() {
        let spec =
            |text: &str| MillConfig::parse("memory:").and_then(|config| config.spec(text)).expect(text);
        let places = spec("snowflake:tx?worker=69").places().expect("places");
        for (options, is_same) in [
            ("", true),
            ("layout=time:41@1ms,dc-worker:5+5,seq:12", true),
            ("scatter=1", true),
            ("epoch=2025-01-02", true),
            ("layout=uid", false),
            ("layout=time:41@1ms,worker:10,seq:11", false),
        ] {
            let record = spec(&format!("snowflake:tx?{options}")).pool_layout();
            assert_eq!(places.makes_ids_of(&record), is_same, "{record}");
            assert_eq!(places.makes_ids_of(&format!("{record} store 2 of 3")), is_same, "{record}");
        }
    }

    fn address(interface: &str, ip: &str, is_bridge: bool) -> Address {
        Address { interface: interface.to_owned(), ip: ip.parse().expect("an address"), is_bridge }
    }

    #[test]
    fn the_address_of_one_family_is_never_taken_for_that_of_the_other() {
        let all = [
            address("lo", "127.0.0.1", false),
            address("eth0", "10.0.3.57", false),
            address("eth0", "fe80::1", false),
            address("eth0", "2001:db8::2a", false),
            address("docker0", "172.17.0.1", true),
        ];
        let own = |family, outgoing: Option<&str>, all: &[Address]| {
            own_address(family, outgoing.map(|ip| ip.parse().expect("an address")), all)
        };
        let found = |family, outgoing| own(family, outgoing, &all).expect("an address").ip.to_string();
        assert_eq!(found(AddressFamily::V4, Some("10.0.3.57")), "10.0.3.57");
        // No default route of IPv4: the same address, by its interface.
        assert_eq!(found(AddressFamily::V4, None), "10.0.3.57");
        assert_eq!(found(AddressFamily::V6, None), "2001:db8::2a");
        let only_six = [all[0].clone(), all[2].clone(), all[3].clone(), all[4].clone()];
        let error = own(AddressFamily::V4, None, &only_six).expect_err("no IPv4 address").message;
        assert!(error.contains("`worker=ip6`") && error.contains("`worker=ip:ADDRESS`"), "{error}");
        let two = [all[1].clone(), address("eth1", "10.9.0.1", false)];
        let error = own(AddressFamily::V4, None, &two).expect_err("two").message;
        assert!(error.contains("10.0.3.57 of eth0, 10.9.0.1 of eth1"), "{error}");
        // Where the default route leads out of a bridge, its address is taken, and `status` says what it is.
        assert!(own(AddressFamily::V4, Some("172.17.0.1"), &all).expect("an address").is_bridge);
    }

    #[test]
    fn the_worker_shows_what_it_was_read_from() {
        let worker = |spec: &str| {
            let spec = MillConfig::parse("memory:").and_then(|config| config.spec(spec)).expect(spec);
            spec.settings().into_iter().find(|(name, _)| *name == "worker").expect("a worker").1
        };
        let shown_worker = |worker_of: &str| worker(&format!("snowflake:a?worker={worker_of}"));
        assert_eq!(shown_worker("ordinal:tx-7.tx.svc"), "7, the number of the host name tx-7.tx.svc");
        assert_eq!(shown_worker("ip:10.0.0.9"), "9, the low bits of the address 10.0.0.9");
        assert_eq!(shown_worker("ip6:2001:db8::9"), "9, the low bits of the address 2001:db8::9");
        for wrong in ["ip4:2001:db8::9", "ip6:10.0.0.9", "ip6:", "ip4:0.0.0.0", "ip5"] {
            let spec = format!("snowflake:a?worker={wrong}");
            assert!(MillConfig::parse("memory:").and_then(|config| config.spec(&spec)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_address_of_this_machine_is_of_the_family_that_was_named() {
        for (name, family) in
            [("ip", AddressFamily::V4), ("ip4", AddressFamily::V4), ("ip6", AddressFamily::V6)]
        {
            let spec = format!("snowflake:a?worker={name}");
            let spec = MillConfig::parse("memory:").and_then(|config| config.spec(&spec));
            match own_address(family, family.outgoing(), &machine::addresses()) {
                Ok(address) => {
                    assert!(family.has(&address.ip) && is_of_a_machine(&address.ip), "{address:?}");
                    assert!(spec.is_ok());
                }
                Err(error) => assert_eq!(spec.expect_err("no address").message, error.message),
            }
        }
    }
}

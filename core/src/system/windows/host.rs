//! The name of this machine, and the addresses of its interfaces.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

use windows_sys::Win32::Foundation::{ERROR_BUFFER_OVERFLOW, NO_ERROR};
use windows_sys::Win32::NetworkManagement::IpHelper::{
    GAA_FLAG_SKIP_ANYCAST, GAA_FLAG_SKIP_DNS_SERVER, GAA_FLAG_SKIP_MULTICAST, GetAdaptersAddresses,
    IP_ADAPTER_ADDRESSES_LH,
};
use windows_sys::Win32::NetworkManagement::Ndis::IfOperStatusUp;
use windows_sys::Win32::Networking::WinSock::{
    AF_INET, AF_INET6, AF_UNSPEC, SOCKADDR, SOCKADDR_IN, SOCKADDR_IN6,
};

use crate::error::shown;
use crate::system::InterfaceAddress;

/// The name of this machine, as it calls itself.
pub(crate) fn host_name() -> Option<String> {
    std::env::var("COMPUTERNAME").ok().map(|name| shown(&name))
}

/// The addresses of all interfaces that are up; empty where the system does not tell.
pub(crate) fn addresses() -> Vec<InterfaceAddress> {
    let Some(table) = table() else { return Vec::new() };
    let mut found = Vec::new();
    let mut at = table.as_ptr().cast::<IP_ADAPTER_ADDRESSES_LH>();
    // SAFETY: `at` is null or an entry of the list, which lives in `table`.
    while let Some(adapter) = unsafe { at.as_ref() } {
        at = adapter.Next;
        if adapter.OperStatus != IfOperStatusUp {
            continue;
        }
        // SAFETY: the list's names are texts that end with NUL.
        let interface = shown(&unsafe { text(adapter.FriendlyName) });
        let mut next = adapter.FirstUnicastAddress;
        // SAFETY: as above.
        while let Some(address) = unsafe { next.as_ref() } {
            next = address.Next;
            // SAFETY: an address of the list is as long as its family says.
            if let Some(ip) = unsafe { ip_of(address.Address.lpSockaddr) } {
                let is_bridge = is_bridge(&interface);
                found.push(InterfaceAddress { interface: interface.clone(), ip, is_bridge });
            }
        }
    }
    found
}

/// The list of the interfaces: entries that point to each other, in memory that is aligned for them.
fn table() -> Option<Vec<u64>> {
    const FLAGS: u32 = GAA_FLAG_SKIP_ANYCAST | GAA_FLAG_SKIP_MULTICAST | GAA_FLAG_SKIP_DNS_SERVER;
    let mut bytes = 16 << 10;
    // The list may grow between two calls.
    for _ in 0..4 {
        let mut table = vec![0u64; (bytes as usize).div_ceil(8)];
        // SAFETY: the memory is as long as is said, and `bytes` is writable.
        let answer = unsafe {
            GetAdaptersAddresses(
                u32::from(AF_UNSPEC),
                FLAGS,
                ptr::null(),
                table.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        match answer {
            NO_ERROR => return Some(table),
            ERROR_BUFFER_OVERFLOW => {}
            // There is no interface, or the call fails.
            _ => return None,
        }
    }
    None
}

/// # Safety
/// The pointer is null, or to a text that ends with NUL.
unsafe fn text(start: *const u16) -> String {
    if start.is_null() {
        return String::new();
    }
    let mut length = 0;
    // SAFETY: the text ends with NUL, which is not passed.
    while unsafe { *start.add(length) } != 0 {
        length += 1;
    }
    // SAFETY: so many characters were read above.
    String::from_utf16_lossy(unsafe { std::slice::from_raw_parts(start, length) })
}

/// The address of a socket, if it is one of IP.
///
/// # Safety
/// The pointer is null, or to an address that is as long as its family says.
unsafe fn ip_of(address: *const SOCKADDR) -> Option<IpAddr> {
    // SAFETY: null or a valid address, as the caller promises.
    match unsafe { address.as_ref() }?.sa_family {
        AF_INET => {
            // SAFETY: its family says that it is so long; every bit pattern is a valid address.
            let ip = unsafe { address.cast::<SOCKADDR_IN>().read_unaligned().sin_addr.S_un.S_addr };
            Some(IpAddr::from(Ipv4Addr::from(ip.to_ne_bytes())))
        }
        AF_INET6 => {
            // SAFETY: as above.
            let ip = unsafe { address.cast::<SOCKADDR_IN6>().read_unaligned().sin6_addr.u.Byte };
            Some(IpAddr::from(Ipv6Addr::from(ip)))
        }
        _ => None,
    }
}

/// Whether it is a switch that Windows makes for WSL, containers or sandboxes, whose address other machines have too. A switch that
/// bridges a network card carries the machine's own address.
fn is_bridge(interface: &str) -> bool {
    let switch = interface.strip_prefix("vEthernet (").unwrap_or_default();
    ["Default Switch", "WSL", "nat"].iter().any(|own| switch.starts_with(own))
}

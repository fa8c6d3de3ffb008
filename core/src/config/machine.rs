//! The addresses of this machine.

use std::net::{IpAddr, SocketAddr, UdpSocket};

/// An address of an interface that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// The interface: `eth0`.
    pub(super) interface: String,
    /// The address.
    pub(super) ip: IpAddr,
    /// The interface is a bridge, such as `docker0`, whose address other machines have too.
    pub(super) is_bridge: bool,
}

/// Whether other machines may reach this address, as far as the address tells.
pub(super) fn is_of_a_machine(ip: &IpAddr) -> bool {
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !ip.is_loopback() && !ip.is_unspecified() && !ip.is_multicast() && !link_local
}

/// The address from which this machine would reach `to`. Nothing is sent: connecting a UDP socket only chooses the route.
pub(super) fn outgoing(from: IpAddr, to: IpAddr) -> Option<IpAddr> {
    let socket = UdpSocket::bind(SocketAddr::new(from, 0)).ok()?;
    socket.connect(SocketAddr::new(to, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(is_of_a_machine)
}

/// The addresses of all interfaces that are up; empty where the system does not tell.
#[cfg(all(unix, not(miri)))]
pub(super) fn addresses() -> Vec<Address> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the pointer is valid; the list is freed below, once.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut at = first;
    // SAFETY: `at` is null or an entry of the list, which lives until it is freed below.
    while let Some(entry) = unsafe { at.as_ref() } {
        at = entry.ifa_next;
        let is_up = entry.ifa_flags & libc::IFF_UP as libc::c_uint != 0;
        // SAFETY: an entry of the list: its name is a C string, its address null or as long as its family says.
        let ip = unsafe { ip_of(entry.ifa_addr) };
        if let (true, Some(ip)) = (is_up && !entry.ifa_name.is_null(), ip) {
            // SAFETY: as above.
            let name = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) };
            let interface = crate::error::shown(&name.to_string_lossy());
            let is_bridge = is_bridge(&interface);
            found.push(Address { interface, ip, is_bridge });
        }
    }
    // SAFETY: the list that `getifaddrs` made, freed once.
    unsafe { libc::freeifaddrs(first) };
    found
}

/// The address of a socket, if it is one of IP.
///
/// # Safety
/// The pointer is null, or to an address that is as long as its family says.
#[cfg(all(unix, not(miri)))]
unsafe fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: null or a valid address, as the caller promises.
    match i32::from(unsafe { address.as_ref() }?.sa_family) {
        libc::AF_INET => {
            // SAFETY: its family says that it is so long; it may be aligned for less.
            let of = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::from(of.sin_addr.s_addr.to_ne_bytes()))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let of = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::from(of.sin6_addr.s6_addr))
        }
        _ => None,
    }
}

/// Linux shows the bridges in its files.
#[cfg(all(unix, not(miri)))]
fn is_bridge(interface: &str) -> bool {
    !interface.contains('/') && std::path::Path::new("/sys/class/net").join(interface).join("bridge").exists()
}

/// Not known here.
#[cfg(not(all(unix, not(miri))))]
pub(super) fn addresses() -> Vec<Address> {
    Vec::new()
}

#[cfg(all(test, unix, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_among_the_addresses_and_is_no_machines() {
        let loopback: Vec<_> = addresses().into_iter().filter(|of| of.ip.is_loopback()).collect();
        assert!(loopback.iter().all(|of| !is_of_a_machine(&of.ip) && !of.is_bridge), "{loopback:?}");
    }
}

//! The name of this machine, and the addresses of its interfaces.

use std::net::IpAddr;

use super::own::is_bridge;
use crate::error::shown;
use crate::system::InterfaceAddress;

/// The name of this machine, as it calls itself.
pub(crate) fn host_name() -> Option<String> {
    if cfg!(miri) {
        return None;
    }
    let mut name = [0u8; 128];
    // SAFETY: the pointer and the length belong to `name`.
    if unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) } != 0 {
        return None;
    }
    let name = name.split(|byte| *byte == 0).next()?;
    Some(shown(&String::from_utf8_lossy(name)))
}

/// The addresses of all interfaces that are up; empty where the system does not tell.
pub(crate) fn addresses() -> Vec<InterfaceAddress> {
    if cfg!(miri) {
        return Vec::new();
    }
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
            let interface = shown(&name.to_string_lossy());
            let is_bridge = is_bridge(&interface);
            found.push(InterfaceAddress { interface, ip, is_bridge });
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
unsafe fn ip_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: null or a valid address, as the caller promises.
    match i32::from(unsafe { address.as_ref() }?.sa_family) {
        libc::AF_INET => {
            // SAFETY: its family says that it is so long; it may be aligned for less.
            let found = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::from(found.sin_addr.s_addr.to_ne_bytes()))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let found = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::from(found.sin6_addr.s6_addr))
        }
        _ => None,
    }
}

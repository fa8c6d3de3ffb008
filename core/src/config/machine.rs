//! The addresses of this machine.

use std::net::{IpAddr, SocketAddr, UdpSocket};

pub(super) use crate::system::InterfaceAddress as Address;
pub(super) use crate::system::host::addresses;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_among_the_addresses_and_is_no_machines() {
        let loopback: Vec<_> = addresses().into_iter().filter(|address| address.ip.is_loopback()).collect();
        assert!(
            loopback.iter().all(|address| !is_of_a_machine(&address.ip) && !address.is_bridge),
            "{loopback:?}"
        );
    }
}

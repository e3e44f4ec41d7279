//! Notifications of changes of links (network interfaces), addresses, routes and routing rules.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::route::{RouteAttribute, RouteMessage};
use netlink_sys::Socket;

use super::query::{Address, Link};
use super::{policy, socket};

/// The multicast groups of rtnetlink(7): `RTNLGRP_LINK`, `_IPV4_IFADDR`, `_IPV6_IFADDR`,
/// `_IPV4_ROUTE`, `_IPV6_ROUTE`, `_IPV4_RULE`, `_IPV6_RULE`.
const GROUPS: [u32; 7] = [1, 5, 9, 7, 11, 8, 19];
/// Buffer size in bytes, larger than any notification.
pub(super) const DATAGRAM: usize = 64 * 1024;

/// A change in the network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// An interface appeared or changed. The contained value is the interface's new state (see
    /// [`Link::up`], [`Link::running`]).
    Link(Link),
    /// The interface with this index was removed.
    LinkGone(u32),
    /// An address appeared or changed.
    Address(Address),
    /// An address was removed.
    AddressGone {
        /// Index of the interface that had the address.
        index: u32,
        /// The address that was removed.
        ip: IpAddr,
    },
    /// A route was added, replaced or removed.
    ///
    /// When an interface goes down, the kernel removes its IPv4 routes without a notification:
    /// handle [`Change::Link`], too.
    Route {
        /// Index of the route's interface; `None` if the route has none.
        oif: Option<u32>,
        /// Identifier of the routing table that has, or had, the route.
        table: u32,
    },
    /// A routing rule was added or removed.
    Rule,
    /// More changes happened than the kernel could queue. Everything has to be queried again.
    Overrun,
}

/// A monitor of changes in the namespace of the thread that opened it.
///
/// The monitor does not block: poll its file descriptor for readability, and then call
/// [`drain`](Monitor::drain).
#[derive(Debug)]
pub struct Monitor {
    socket: Socket,
    buffer: Vec<u8>,
}

impl Monitor {
    /// Subscribes to links, addresses, routes and routing rules of IPv4 and IPv6.
    pub fn open() -> io::Result<Monitor> {
        let socket = socket::open()?;
        for group in GROUPS {
            socket.add_membership(group)?;
        }
        socket.set_non_blocking(true)?;
        Ok(Monitor { socket, buffer: vec![0; DATAGRAM] })
    }

    /// Returns all queued changes, oldest first; an empty list if there are none.
    pub fn drain(&mut self) -> io::Result<Vec<Change>> {
        let mut changes = Vec::new();
        loop {
            match socket::receive(&self.socket, &mut self.buffer) {
                Ok(datagram) => read(datagram, &mut changes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(changes),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    changes.push(Change::Overrun);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Parses the notifications in `datagram`. A notification that cannot be parsed becomes
/// [`Change::Overrun`], because it may report any change.
fn read(datagram: &[u8], changes: &mut Vec<Change>) {
    for message in socket::messages(datagram) {
        match message.map(|message| message.payload) {
            Ok(NetlinkPayload::InnerMessage(inner)) => changes.extend(change(inner)),
            Ok(_) => {}
            Err(_) => changes.push(Change::Overrun),
        }
    }
}

fn change(message: Message) -> Option<Change> {
    match message {
        Message::NewLink(link) => Some(Change::Link(Link::from(&link))),
        Message::DelLink(link) => Some(Change::LinkGone(link.header.index)),
        Message::NewAddress(address) => Address::parse(&address).map(Change::Address),
        Message::DelAddress(address) => Address::parse(&address)
            .map(|Address { index, ip, .. }| Change::AddressGone { index, ip }),
        Message::NewRoute(route) | Message::DelRoute(route) => {
            Some(Change::Route { oif: oif(&route), table: policy::its_table(&route) })
        }
        Message::NewRule(_) | Message::DelRule(_) => Some(Change::Rule),
        _ => None,
    }
}

fn oif(route: &RouteMessage) -> Option<u32> {
    route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    })
}

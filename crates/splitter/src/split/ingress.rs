//! The place at which clients' datagrams arrive (ingress): a local port, or a TUN interface.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use anabranch_comps::protocol::wireguard;
use anabranch_comps::{Event, Pinned, SessionId};
use anabranch_os::netlink::Change;
use anabranch_os::packet::{self, Complaint, Datagram, Fragments};
use anabranch_os::tun::Tun;
use anabranch_os::udp::{Received, UdpSocket};

use crate::far_end::Inner;
use crate::steer::{Exit, SteerError, Steering, Upkeep};

/// Maximum number of packets read from the interface at once.
pub(super) const ROUND: usize = 64;
/// Buffer size for each packet, in bytes. No interface of this program has a larger MTU.
pub(super) const ROOM: usize = 65_536;

/// The place at which clients' datagrams arrive.
#[derive(Debug)]
pub(super) enum Ingress {
    /// A local port. All its clients use the same server.
    Port(UdpSocket),
    /// A TUN interface. Each packet's destination address is the address of its server.
    Tun(Box<TunIngress>),
}

/// The interface at which programs' packets arrive, with the state that is needed to answer them.
#[derive(Debug)]
pub(super) struct TunIngress {
    tun: Tun,
    steering: Option<Steering>,
    pub(super) fragments: Fragments,
    /// Client and server of each session, for ICMP errors about datagrams that are no longer
    /// stored.
    ends: HashMap<SessionId, (SocketAddr, SocketAddr)>,
    pub(super) arena: Arena,
    /// Buffer in which packets for clients are built.
    packet: Vec<u8>,
}

/// Packets that one call has read from the interface. Each uses `ROOM` bytes of the buffer.
#[derive(Debug)]
pub(super) struct Arena {
    pub(super) bytes: Box<[u8]>,
    pub(super) lengths: Vec<usize>,
}

impl Ingress {
    pub(super) fn tun(tun: Tun, steering: Steering) -> Ingress {
        let arena = Arena { bytes: vec![0; ROUND * ROOM].into(), lengths: Vec::new() };
        let (fragments, ends) = (Fragments::default(), HashMap::new());
        let steering = Some(steering);
        let packet = Vec::new();
        Ingress::Tun(Box::new(TunIngress { tun, steering, fragments, ends, arena, packet }))
    }

    /// Returns the socket of the local port; `None` if clients' datagrams arrive at an interface.
    pub(super) fn port(&self) -> Option<&UdpSocket> {
        match self {
            Ingress::Port(socket) => Some(socket),
            Ingress::Tun(_) => None,
        }
    }

    pub(super) fn interface(&mut self) -> Option<&mut TunIngress> {
        match self {
            Ingress::Port(_) => None,
            Ingress::Tun(ingress) => Some(ingress),
        }
    }

    /// Returns the interface if all of its packets go to a far end. Returns `None` if they do not,
    /// or if clients' datagrams arrive at a local port.
    pub(super) fn whole(&mut self) -> Option<&mut TunIngress> {
        self.interface().filter(|ingress| ingress.inner().is_some())
    }

    /// Records the client and server of a session when `event` reports that it was opened.
    pub(super) fn note(&mut self, event: &Event) {
        if let (Some(ingress), Event::Opened { session, client, server: Some(server) }) =
            (self.interface(), event)
        {
            ingress.ends.insert(*session, (*client, *server));
        }
    }

    pub(super) fn forget(&mut self, session: SessionId) {
        self.interface().map(|ingress| ingress.ends.remove(&session));
    }

    /// Sends an ICMP error about a session's datagrams to its client.
    pub(super) fn complain(&mut self, session: SessionId, complaint: Complaint) {
        let Some(ingress) = self.interface() else { return };
        let Some(&(client, server)) = ingress.ends.get(&session) else { return };
        if let Ok(quoted) = packet::quote(client, server) {
            ingress.complain(complaint, &quoted);
        }
    }

    /// Updates this program's routes after paths were added or removed. `exits` has the outgoing
    /// interface and source address of each path.
    pub(super) fn follow(&mut self, exits: Vec<Exit>) -> io::Result<()> {
        let steering = self.interface().and_then(|ingress| ingress.steering.as_mut());
        steering.map_or(Ok(()), |steering| steering.follow(exits))
    }

    /// Returns the counters of connections that are kept on one path (pinned). If `now` is true,
    /// first reads the counters from the kernel; otherwise they may be older.
    pub(super) fn pinned(&self, now: bool) -> Vec<Pinned> {
        match self {
            Ingress::Port(_) => Vec::new(),
            Ingress::Tun(ingress) => {
                let steering = ingress.steering.as_ref();
                steering.map_or_else(Vec::new, |steering| steering.pinned(now))
            }
        }
    }

    /// Returns descriptors that the caller polls to detect changes of this program's routes and
    /// rules.
    pub(super) fn watched(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Ingress::Port(_) => Vec::new(),
            Ingress::Tun(ingress) => ingress.steering.iter().flat_map(Steering::watched).collect(),
        }
    }

    /// Restores this program's routes and rules that other programs have removed.
    pub(super) fn keep(&mut self) -> Result<Upkeep, SteerError> {
        let steering = self.interface().and_then(|ingress| ingress.steering.as_mut());
        steering.map_or(Ok(Upkeep::default()), Steering::keep)
    }

    /// Returns whether the guard table is intact ([`Steering::is_guarded`]). The guard table
    /// blocks packets while another program has flushed the splitter's main nftables table. The
    /// kernel does not report the guard table's removal.
    pub(super) fn is_guarded(&mut self) -> bool {
        let steering = self.interface().and_then(|ingress| ingress.steering.as_mut());
        steering.is_none_or(Steering::is_guarded)
    }

    /// Returns whether any of `changes` (of the machine's network) may affect this program's
    /// routes and rules.
    pub(super) fn concerns(&self, changes: &[Change]) -> bool {
        match self {
            Ingress::Port(_) => false,
            Ingress::Tun(ingress) => ingress
                .steering
                .as_ref()
                .is_some_and(|steering| changes.iter().any(|change| steering.concerns(change))),
        }
    }

    /// Undoes this program's changes of the machine's routes and rules.
    pub(super) fn close(&mut self) -> io::Result<()> {
        let steering = self.interface().and_then(|ingress| ingress.steering.take());
        steering.map_or(Ok(()), Steering::lower)
    }
}

impl AsFd for Ingress {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Ingress::Port(socket) => socket.as_fd(),
            Ingress::Tun(ingress) => ingress.tun.as_fd(),
        }
    }
}

impl TunIngress {
    /// Reads waiting packets from the interface, at most [`ROUND`].
    pub(super) fn read(&mut self) -> io::Result<()> {
        self.arena.lengths.clear();
        for room in self.arena.bytes.chunks_exact_mut(ROOM) {
            match self.tun.read(room)? {
                Some(length) => self.arena.lengths.push(length),
                None => break,
            }
        }
        Ok(())
    }

    /// Returns our IP addresses inside the tunnel if all packets go to a far end; `None`
    /// otherwise.
    pub(super) fn inner(&self) -> Option<Inner> {
        self.steering.as_ref().and_then(|steering| steering.plan().request.inner)
    }

    /// Passes packets from the far end to the programs of the machine or network namespace,
    /// through the interface. Returns the number of packets that the interface did not accept.
    pub(super) fn take(&self, packets: &Received<'_>) -> u64 {
        packets.datagrams().map(|packet| u64::from(self.tun.write(packet).is_err())).sum()
    }

    /// Returns whether `datagram` is to be split: its destination port is among the ports to
    /// split, or it is a WireGuard message. A route that the user has set may lead other datagrams
    /// to this interface.
    pub(super) fn splits(&self, datagram: &Datagram<'_>) -> bool {
        let ports = self.steering.as_ref().map(|steering| &steering.plan().request.ports);
        ports.is_some_and(|ports| ports.contains(datagram.to.port()))
            || wireguard::Message::of(datagram.payload).is_some()
    }

    /// Sends an ICMP error about `packet`. Failures are ignored, as ICMP is best effort.
    pub(super) fn complain(&mut self, complaint: Complaint, packet: &[u8]) {
        let Some(here) = self.steering.as_ref().map(Steering::here) else { return };
        self.packet.clear();
        if let Ok(true) = packet::complain(&mut self.packet, here, complaint, packet) {
            let _ = self.tun.write(&self.packet);
        }
    }

    /// Passes a server's datagrams to `client`. Returns the number of datagrams that could not be
    /// passed.
    pub(super) fn deliver(
        &mut self,
        server: SocketAddr,
        client: SocketAddr,
        run: &Received<'_>,
    ) -> u64 {
        let mut failed = 0;
        for datagram in run.datagrams() {
            self.packet.clear();
            let built = packet::write(&mut self.packet, server, client, run.ecn, datagram);
            failed += u64::from(built.and_then(|()| self.tun.write(&self.packet)).is_err());
        }
        failed
    }
}

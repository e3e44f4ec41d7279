//! Where clients come in: a local port, or an interface of this machine.

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

/// Packets taken from the interface before anything else is looked at.
pub(super) const ROUND: usize = 64;
/// Room for each: no interface of ours has a larger MTU.
pub(super) const ROOM: usize = 65_536;

/// Where clients come in.
#[derive(Debug)]
pub(super) enum Door {
    /// A local port: its clients all want the same server.
    Port(UdpSocket),
    /// An interface: each packet names its server.
    Tun(Box<TunDoor>),
}

/// The interface, and what it takes to speak by it.
#[derive(Debug)]
pub(super) struct TunDoor {
    tun: Tun,
    steering: Option<Steering>,
    pub(super) fragments: Fragments,
    /// Who speaks with whom, for complaints about what is not at hand any more.
    ends: HashMap<SessionId, (SocketAddr, SocketAddr)>,
    pub(super) arena: Arena,
    /// Where packets are built.
    packet: Vec<u8>,
}

/// Packets of one round.
#[derive(Debug)]
pub(super) struct Arena {
    pub(super) bytes: Box<[u8]>,
    pub(super) lengths: Vec<usize>,
}

impl Door {
    pub(super) fn tun(tun: Tun, steering: Steering) -> Door {
        let arena = Arena { bytes: vec![0; ROUND * ROOM].into(), lengths: Vec::new() };
        let (fragments, ends) = (Fragments::default(), HashMap::new());
        let steering = Some(steering);
        let packet = Vec::new();
        Door::Tun(Box::new(TunDoor { tun, steering, fragments, ends, arena, packet }))
    }

    /// The local port, if it is one.
    pub(super) fn port(&self) -> Option<&UdpSocket> {
        match self {
            Door::Port(socket) => Some(socket),
            Door::Tun(_) => None,
        }
    }

    pub(super) fn interface(&mut self) -> Option<&mut TunDoor> {
        match self {
            Door::Port(_) => None,
            Door::Tun(door) => Some(door),
        }
    }

    /// The interface, where all its packets go to a far end.
    pub(super) fn whole(&mut self) -> Option<&mut TunDoor> {
        self.interface().filter(|door| door.inner().is_some())
    }

    /// Keeps in mind who speaks with whom.
    pub(super) fn note(&mut self, event: &Event) {
        if let (Some(door), Event::Opened { session, client, server: Some(server) }) =
            (self.interface(), event)
        {
            door.ends.insert(*session, (*client, *server));
        }
    }

    pub(super) fn forget(&mut self, session: SessionId) {
        self.interface().map(|door| door.ends.remove(&session));
    }

    /// Tells the client of a session what became of its datagrams.
    pub(super) fn complain(&mut self, session: SessionId, complaint: Complaint) {
        let Some(door) = self.interface() else { return };
        let Some(&(client, server)) = door.ends.get(&session) else { return };
        if let Ok(quoted) = packet::quote(client, server) {
            door.complain(complaint, &quoted);
        }
    }

    /// Keeps up with paths that come and go.
    pub(super) fn follow(&mut self, exits: Vec<Exit>) -> io::Result<()> {
        let steering = self.interface().and_then(|door| door.steering.as_mut());
        steering.map_or(Ok(()), |steering| steering.follow(exits))
    }

    /// What flows that are pinned have carried; with `now` read anew.
    pub(super) fn pinned(&self, now: bool) -> Vec<Pinned> {
        match self {
            Door::Port(_) => Vec::new(),
            Door::Tun(door) => {
                let steering = door.steering.as_ref();
                steering.map_or_else(Vec::new, |steering| steering.pinned(now))
            }
        }
    }

    /// What tells of changes to what was set up, to be polled.
    pub(super) fn watched(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Door::Port(_) => Vec::new(),
            Door::Tun(door) => door.steering.iter().flat_map(Steering::watched).collect(),
        }
    }

    /// Sets again what others have taken away.
    pub(super) fn keep(&mut self) -> Result<Upkeep, SteerError> {
        let steering = self.interface().and_then(|door| door.steering.as_mut());
        steering.map_or(Ok(Upkeep::default()), Steering::keep)
    }

    /// Whether nothing is amiss that the kernel does not tell of.
    pub(super) fn is_guarded(&mut self) -> bool {
        let steering = self.interface().and_then(|door| door.steering.as_mut());
        steering.is_none_or(Steering::is_guarded)
    }

    /// Whether one of these changes may be one to what was set up.
    pub(super) fn concerns(&self, changes: &[Change]) -> bool {
        match self {
            Door::Port(_) => false,
            Door::Tun(door) => door
                .steering
                .as_ref()
                .is_some_and(|steering| changes.iter().any(|change| steering.concerns(change))),
        }
    }

    /// Sets the machine free.
    pub(super) fn close(&mut self) -> io::Result<()> {
        let steering = self.interface().and_then(|door| door.steering.take());
        steering.map_or(Ok(()), Steering::lower)
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Door::Port(socket) => socket.as_fd(),
            Door::Tun(door) => door.tun.as_fd(),
        }
    }
}

impl TunDoor {
    /// Takes what waits, as much as a round holds.
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

    /// Our addresses, where all packets go to a far end.
    pub(super) fn inner(&self) -> Option<Inner> {
        self.steering.as_ref().and_then(|steering| steering.plan().request.inner)
    }

    /// Hands packets of the far end to the machine or the namespace; tells how many did not go.
    pub(super) fn take(&self, packets: &Received<'_>) -> u64 {
        packets.datagrams().map(|packet| u64::from(self.tun.write(packet).is_err())).sum()
    }

    /// Whether the splitter splits such datagrams: those that were led here, and not what a route
    /// of the user's own leads here beside them.
    pub(super) fn splits(&self, datagram: &Datagram<'_>) -> bool {
        let ports = self.steering.as_ref().map(|steering| &steering.plan().request.ports);
        ports.is_some_and(|ports| ports.contains(datagram.to.port()))
            || wireguard::Message::of(datagram.payload).is_some()
    }

    /// Best effort, as all ICMP is.
    pub(super) fn complain(&mut self, complaint: Complaint, packet: &[u8]) {
        let Some(here) = self.steering.as_ref().map(Steering::here) else { return };
        self.packet.clear();
        if let Ok(true) = packet::complain(&mut self.packet, here, complaint, packet) {
            let _ = self.tun.write(&self.packet);
        }
    }

    /// Hands a server's datagrams to a client; tells how many did not go.
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

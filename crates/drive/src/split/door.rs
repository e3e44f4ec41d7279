//! Where clients come in: a local port, or an interface of this machine.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anabranch_comps::protocol::wireguard;
use anabranch_comps::{Event, Failure as Fault, Input, Pinned, SessionId};
use anabranch_multipath::Time;

use super::Failure;
use super::driver::Driver;
use super::sockets::PathSocket;
use crate::far_end::Inner;
use crate::netlink::Change;
use crate::packet::{self, Complaint, Content, Datagram, Fragments, Whole};
use crate::steer::{Exit, Kept, SteerError, Steering};
use crate::tun::Tun;
use crate::udp::{Received, UdpSocket};

/// Packets taken from the interface before anything else is looked at.
const ROUND: usize = 64;
/// The next look at what was set up after one that the system did not answer.
const AGAIN: Duration = Duration::from_millis(100);
/// Room for each: no interface of ours has a larger MTU.
const ROOM: usize = 65_536;

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
    fragments: Fragments,
    /// Who speaks with whom, for complaints about what is not at hand any more.
    ends: HashMap<SessionId, (SocketAddr, SocketAddr)>,
    arena: Arena,
    /// Where packets are built.
    packet: Vec<u8>,
}

/// Packets of one round.
#[derive(Debug)]
struct Arena {
    bytes: Box<[u8]>,
    lengths: Vec<usize>,
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

    fn interface(&mut self) -> Option<&mut TunDoor> {
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
    fn keep(&mut self) -> Result<Kept, SteerError> {
        let steering = self.interface().and_then(|door| door.steering.as_mut());
        steering.map_or(Ok(Kept::default()), Steering::keep)
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
    fn read(&mut self) -> io::Result<()> {
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
    fn inner(&self) -> Option<Inner> {
        self.steering.as_ref().and_then(|steering| steering.plan().request.inner)
    }

    /// Hands packets of the far end to the machine or the namespace; tells how many did not go.
    pub(super) fn take(&self, packets: &Received<'_>) -> u64 {
        packets.datagrams().map(|packet| u64::from(self.tun.write(packet).is_err())).sum()
    }

    /// Whether the splitter splits such datagrams: those that were led here, and not what a route
    /// of the user's own leads here beside them.
    fn splits(&self, datagram: &Datagram<'_>) -> bool {
        let ports = self.steering.as_ref().map(|steering| &steering.plan().request.ports);
        ports.is_some_and(|ports| ports.contains(datagram.to.port()))
            || wireguard::Message::of(datagram.payload).is_some()
    }

    /// Best effort, as all ICMP is.
    fn complain(&mut self, complaint: Complaint, packet: &[u8]) {
        let Some(here) = self.steering.as_ref().map(Steering::here) else { return };
        self.packet.clear();
        if let Ok(true) = packet::complain(&mut self.packet, here, complaint, packet) {
            let _ = self.tun.write(&self.packet);
        }
    }

    /// Hands a server's datagrams to a client; tells how many did not go.
    fn deliver(&mut self, server: SocketAddr, client: SocketAddr, run: &Received<'_>) -> u64 {
        let mut failed = 0;
        for datagram in run.datagrams() {
            self.packet.clear();
            let built = packet::write(&mut self.packet, server, client, run.ecn, datagram);
            failed += u64::from(built.and_then(|()| self.tun.write(&self.packet)).is_err());
        }
        failed
    }
}

impl Driver<'_> {
    /// Packets of the machine's or the namespace's programs.
    ///
    /// # Errors
    /// Somebody has removed the interface.
    pub(super) fn on_packets(&mut self) -> Result<(), Failure> {
        let Some(door) = self.door.interface() else { return Ok(()) };
        let read = door.read();
        read.map_err(|error| Failure::System("the interface of --tun was removed", error))?;
        // It is lent to what the core wants sent, and comes back at the end.
        let empty = Arena { bytes: Box::default(), lengths: Vec::new() };
        let arena = std::mem::replace(&mut door.arena, empty);
        let now = self.clock.now();
        let inner = self.door.whole().and_then(|door| door.inner());
        // What is returned here goes to the interface, not into `back`.
        let (mut outgoing, mut back) = (Vec::with_capacity(ROUND), Vec::new());
        for (packet, length) in arena.bytes.chunks_exact(ROOM).zip(&arena.lengths) {
            let packet = &packet[..*length];
            let (run, input) = match inner {
                Some(_) if packet::is_for_link(packet) => continue,
                Some(inner) => whole(inner, packet),
                None => {
                    let Some(datagram) = self.admit(now, packet) else { continue };
                    let run = run_of(&datagram);
                    (run, input(&datagram, &run))
                }
            };
            self.core.handle(now, input);
            self.drain(now, Some(&run), &mut outgoing, &mut back);
        }
        self.send(now, &outgoing);
        drop(outgoing);
        if let Some(door) = self.door.interface() {
            door.arena = arena;
        }
        Ok(())
    }

    /// The datagram in a packet, if it is one to split. Others are answered as a router would that
    /// does not carry them; parts are kept until they are whole.
    fn admit<'p>(&mut self, now: Time, packet: &'p [u8]) -> Option<Datagram<'p>> {
        let door = self.door.interface()?;
        match packet::read(packet) {
            Content::Datagram(datagram) if door.splits(&datagram) => return Some(datagram),
            Content::Fragment(part) => {
                let whole = door.fragments.take(now, &part);
                whole.into_iter().for_each(|whole| self.on_whole(now, &whole));
            }
            // The kernel's own, which it sends by every interface: it asks for routers and names
            // its groups.
            Content::Other if packet::is_for_link(packet) => {}
            _ => {
                door.complain(Complaint::Prohibited, packet);
                let warning = self.told.unsplit();
                self.warn(warning);
            }
        }
        None
    }

    /// A datagram that came in parts leaves in parts: its sender wants it so.
    fn on_whole(&mut self, now: Time, whole: &Whole) {
        let Whole { from, to, ecn, .. } = *whole;
        let datagram = Datagram { from, to, ecn, payload: whole.payload() };
        if !self.door.interface().is_some_and(|door| door.splits(&datagram)) {
            return;
        }
        let (mut outgoing, mut back) = (Vec::new(), Vec::new());
        let run = run_of(&datagram);
        self.core.handle(now, input(&datagram, &run));
        self.drain(now, Some(&run), &mut outgoing, &mut back);
        self.in_parts = true;
        self.send(now, &outgoing);
        self.in_parts = false;
    }

    /// Hands a server's datagrams to a client of the interface.
    pub(super) fn deliver(&mut self, server: SocketAddr, client: SocketAddr, run: &Received<'_>) {
        if let Some(door) = self.door.interface() {
            self.not_returned += door.deliver(server, client, run);
        }
    }

    /// Finds the way to the server that a client named.
    pub(super) fn resolve_named(&mut self, now: Time, session: SessionId, server: SocketAddr) {
        self.servers.insert(session, server);
        let barred = self.ways.barred(server);
        if barred.len() == self.ways.len() {
            self.door.complain(session, Complaint::Unreachable);
        }
        self.core.handle(now, Input::Resolved { session, found: true, barred: &barred });
    }

    /// Lets a client of the interface know of an error as it would without the splitter.
    pub(super) fn pass_on(&mut self, session: SessionId, socket: Option<u32>, failure: Fault) {
        match (failure, socket) {
            (Fault::TooBig, Some(mtu)) => self.door.complain(session, Complaint::TooBig(mtu)),
            (Fault::Refused, _) => self.door.complain(session, Complaint::Port),
            _ => {}
        }
    }

    /// Somebody may have changed what was set up. It is there again before anything else is done.
    ///
    /// # Errors
    /// It cannot be; everything is left closed.
    pub(super) fn on_steered(&mut self) -> Result<(), Failure> {
        let Kept { told, network, again } = self.door.keep()?;
        told.iter().for_each(|line| self.screen.warn(line));
        self.keep_at = again.then(|| self.clock.now() + AGAIN);
        if network {
            self.ways.on_change(self.clock.now());
        }
        Ok(())
    }

    /// The machine's routes keep up with the paths.
    pub(super) fn steer(&mut self) {
        if let Err(error) = self.door.follow(self.ways.exits()) {
            self.screen.warn(&format!("the routes do not follow the paths: {error}"));
        }
    }
}

/// The largest packet that leaves by a socket, in bytes.
pub(super) fn widest(socket: Option<&PathSocket>) -> Option<u32> {
    socket.and_then(|socket| socket.udp.mtu().ok())
}

fn run_of<'a>(datagram: &Datagram<'a>) -> Received<'a> {
    let Datagram { from, ecn, payload, .. } = *datagram;
    Received { from, to: None, ecn, stride: payload.len(), bytes: payload }
}

/// A packet for the far end as a datagram: all of them are one session's.
fn whole(inner: Inner, packet: &[u8]) -> (Received<'_>, Input<'_>) {
    let client = SocketAddr::from((inner.four, 0));
    let run = Received { from: client, to: None, ecn: 0, stride: packet.len(), bytes: packet };
    let batch = super::driver::batch_of(&run);
    (run, Input::Client { client, server: None, local: None, batch })
}

fn input<'a>(datagram: &Datagram<'_>, run: &Received<'a>) -> Input<'a> {
    let batch = super::driver::batch_of(run);
    Input::Client { client: datagram.from, server: Some(datagram.to), local: None, batch }
}

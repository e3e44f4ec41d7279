//! The driver's code for the (TUN) interface: handles the packets that programs send into it, and
//! keeps the routes that lead there.

use std::net::SocketAddr;
use std::time::Duration;

use anabranch_comps::{Failure as Fault, Input, SessionId};
use anabranch_multipath::{Core as _, Time};
use anabranch_os::packet::{self, Complaint, Content, Datagram, ReassembledDatagram};
use anabranch_os::udp::Received;

use super::Failure;
use super::driver::Driver;
use super::ingress::{Arena, ROOM, ROUND};
use super::onward::batch_of;
use crate::far_end::Inner;
use crate::steer::Upkeep;

/// Delay before the splitter's routes and rules are checked again, if the system lacked resources
/// for the last check.
const AGAIN: Duration = Duration::from_millis(100);

impl Driver<'_> {
    /// Handles packets that programs of the machine or the network namespace have sent into the
    /// interface.
    ///
    /// # Errors
    /// Another program has removed the interface.
    pub(super) fn on_packets(&mut self) -> Result<(), Failure> {
        let Some(ingress) = self.ingress.interface() else { return Ok(()) };
        let read = ingress.read();
        read.map_err(|error| {
            Failure::System(
                "another program removed the interface of --tun, so start the splitter again",
                error,
            )
        })?;
        // The core's outputs borrow the arena, so it is moved out here and put back at the end.
        let empty = Arena { bytes: Box::default(), lengths: Vec::new() };
        let arena = std::mem::replace(&mut ingress.arena, empty);
        let now = self.clock.now();
        let inner = self.ingress.whole().and_then(|ingress| ingress.inner());
        // Datagrams that return to clients go to the interface, so `back` stays empty.
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
            self.take_outputs(now, Some(&run), &mut outgoing, &mut back);
        }
        self.send(now, &outgoing);
        drop(outgoing);
        if let Some(ingress) = self.ingress.interface() {
            ingress.arena = arena;
        }
        Ok(())
    }

    /// Returns the datagram in `packet` if the splitter forwards it, else `None`. Fragments are
    /// stored until their datagram is complete. Packets that the kernel or programs send on every
    /// interface ([`packet::is_housekeeping`]) are counted. All other packets are answered with
    /// the ICMP error of a router that refuses to forward them.
    fn admit<'p>(&mut self, now: Time, packet: &'p [u8]) -> Option<Datagram<'p>> {
        let ingress = self.ingress.interface()?;
        match packet::read(packet) {
            Content::Datagram(datagram) if ingress.splits(&datagram) => return Some(datagram),
            Content::Fragment(part) => {
                let whole = ingress.fragments.take(now, &part);
                whole.into_iter().for_each(|whole| self.on_whole(now, &whole));
            }
            // These packets do not follow a route to a server. The kernel looks for routers,
            // announces its groups and answers for closed ports. Programs look for their
            // neighbours.
            _ if packet::is_housekeeping(packet) => self.report.housekeeping += 1,
            _ => {
                ingress.complain(Complaint::Prohibited, packet);
                let warning = self.report.warnings.unsplit(packet);
                self.report.warn(warning);
            }
        }
        None
    }

    /// Handles a datagram that was reassembled from fragments. It may be sent in fragments again,
    /// because it arrived in fragments.
    fn on_whole(&mut self, now: Time, whole: &ReassembledDatagram) {
        let ReassembledDatagram { from, to, ecn, .. } = *whole;
        let datagram = Datagram { from, to, ecn, payload: whole.payload() };
        if !self.ingress.interface().is_some_and(|ingress| ingress.splits(&datagram)) {
            return;
        }
        let (mut outgoing, mut back) = (Vec::new(), Vec::new());
        let run = run_of(&datagram);
        self.core.handle(now, input(&datagram, &run));
        self.take_outputs(now, Some(&run), &mut outgoing, &mut back);
        self.in_parts = true;
        self.send(now, &outgoing);
        self.in_parts = false;
    }

    /// Passes a server's datagrams to a client at the interface.
    pub(super) fn deliver(&mut self, server: SocketAddr, client: SocketAddr, run: &Received<'_>) {
        if let Some(ingress) = self.ingress.interface() {
            self.report.not_returned += ingress.deliver(server, client, run);
        }
    }

    /// Reports to the protocol core which paths lead to the server that a client named. If no path
    /// does, also sends the client an ICMP error.
    pub(super) fn resolve_named(&mut self, now: Time, session: SessionId, server: SocketAddr) {
        self.uplinks.servers.insert(session, server);
        let barred = self.uplinks.egress_table.barred(server);
        if barred.len() == self.uplinks.egress_table.len() {
            self.ingress.complain(session, Complaint::Unreachable);
        }
        self.core.handle(now, Input::Resolved { session, found: true, barred: &barred });
    }

    /// Reports a failed send to the client by an ICMP error, as the network would without the
    /// splitter. Reports only datagrams that are too long, and closed ports, and only to clients
    /// at the interface. `socket` is the MTU of the socket in bytes; `None` if it is unknown.
    pub(super) fn pass_on(&mut self, session: SessionId, socket: Option<u32>, failure: Fault) {
        match (failure, socket) {
            (Fault::TooBig, Some(mtu)) => self.ingress.complain(session, Complaint::TooBig(mtu)),
            (Fault::Refused, _) => self.ingress.complain(session, Complaint::Port),
            _ => {}
        }
    }

    /// Checks this program's routes and rules, and at once restores what other programs have
    /// changed.
    ///
    /// # Errors
    /// The routes or rules cannot be restored; all traffic then stays blocked.
    pub(super) fn on_steered(&mut self) -> Result<(), Failure> {
        let Upkeep { messages: inbox, network, again } = self.ingress.keep()?;
        inbox.iter().for_each(|line| self.report.screen.warn(line));
        self.control.keep_at = again.then(|| self.clock.now() + AGAIN);
        if network {
            self.uplinks.egress_table.on_change(self.clock.now());
        }
        Ok(())
    }

    /// Updates the machine's routes to the present exits (outgoing interfaces and source
    /// addresses) of the paths.
    pub(super) fn steer(&mut self) {
        if let Err(error) = self.ingress.follow(self.uplinks.egress_table.exits()) {
            self.report.screen.warn(&format!(
                "the routes could not be changed to the new paths ({error}): connections that \
                 are not split may still use the earlier paths"
            ));
        }
    }
}

fn run_of<'a>(datagram: &Datagram<'a>) -> Received<'a> {
    let Datagram { from, ecn, payload, .. } = *datagram;
    Received { from, to: None, ecn, stride: payload.len(), bytes: payload }
}

/// Converts a packet for the far end into an input of the protocol core. All such packets belong
/// to one session.
fn whole(inner: Inner, packet: &[u8]) -> (Received<'_>, Input<'_>) {
    let client = SocketAddr::from((inner.four, 0));
    let run = Received { from: client, to: None, ecn: 0, stride: packet.len(), bytes: packet };
    let batch = batch_of(&run);
    (run, Input::Client { client, server: None, local: None, batch })
}

fn input<'a>(datagram: &Datagram<'_>, run: &Received<'a>) -> Input<'a> {
    let batch = batch_of(run);
    Input::Client { client: datagram.from, server: Some(datagram.to), local: None, batch }
}

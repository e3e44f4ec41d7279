//! Moves the circuits of a broken QUIC link to the TLS link alongside it
//! (`docs/spec/quic-links.md`).

use std::time::Duration;

use anabranch_multipath::Time;

use super::{Node, NodeRole, Timer};
use crate::channel::Fault;
use crate::channels::{LinkCircuit, LinkId};
use crate::event::{CarrierFault, LinkFault};
use crate::io::LinkOutput;
use crate::wire::cell::{CELL, Cell, Command, HEADER, Width, head};
use crate::wire::crypto::random;
use crate::wire::link::{Identity, put_pairing, read_counts, read_move, read_pairing};

/// Maximum delay before the node acknowledges the cells that it received on a QUIC link.
const ACK_DELAY: Duration = Duration::from_secs(1);
/// Time limit for the neighbour to list the circuits that move from a broken QUIC link to the TLS
/// link alongside it. If the list is late, the circuits are lost.
const MOVING: Duration = Duration::from_secs(60);

impl<R: NodeRole> Node<R> {
    /// Offers QUIC links to the neighbour of the link `id`. The offer contains a token with which
    /// QUIC links identify this link.
    pub(super) fn offer(&mut self, id: LinkId) {
        let Some(link) = self.channels.link(id) else { return };
        if link.channel.offers().is_some() {
            let token = random(&mut *self.rng);
            link.token = link.channel.offer(token);
        }
    }

    /// Handles the opening of the QUIC link `id` to the neighbour with `identity`. If we opened
    /// the link, pairs it with a TLS link to the same relay, and sends the neighbour the token of
    /// that TLS link. Does nothing if the neighbour opened the link, or if `identity` is `None`.
    pub(super) fn quic_opened(&mut self, id: LinkId, identity: Option<Identity>) {
        let initiated = self.channels.link(id).is_some_and(|link| link.channel.is_initiator());
        if let Some(identity) = identity.filter(|_| initiated) {
            let (number, token) = self.channels.pair_with_tls(id, &identity);
            let body = put_pairing(number, &token);
            self.channels.send_control_cell(
                LinkCircuit { link: id, id: 0 },
                Command::BESIDE,
                &body,
            );
        }
    }

    /// Handles `cell`, a message about a QUIC link and the TLS link alongside it.
    ///
    /// # Errors
    /// Returns the neighbour's violation of the protocol. The link must then be closed.
    pub(super) fn take_pairing(
        &mut self,
        now: Time,
        id: LinkId,
        cell: &mut Cell<'_>,
    ) -> Result<(), LinkFault> {
        match cell.command {
            // BESIDE and ARRIVED must arrive on the QUIC link itself, not inside a DETOUR cell.
            Command::BESIDE | Command::ARRIVED if self.channels.has_moved(id) => {
                Err(out_of_place(cell))
            }
            Command::BESIDE => self.take_place(now, id, cell),
            Command::ARRIVED => {
                let counts = read_counts(cell.body);
                self.channels.arrived(id, counts).map_err(|_| malformed(cell))
            }
            Command::MOVE => self.take_move(now, id, cell),
            Command::DETOUR => self.take_detour(now, id, cell),
            _ => self.take_move_over(now, id, cell),
        }
    }

    fn take_place(&mut self, now: Time, id: LinkId, cell: &Cell<'_>) -> Result<(), LinkFault> {
        let Some(link) = self.channels.link(id) else { return Ok(()) };
        if link.is_joined {
            return Err(out_of_place(cell));
        }
        let place = read_pairing(cell.body).ok_or_else(|| malformed(cell))?;
        if link.channel.is_initiator() {
            self.channels.pairing_answered(id, place.0).map_err(|_| malformed(cell))?;
        } else {
            let number = self.channels.paired_by_token(id, place).map_err(|_| malformed(cell))?;
            let body = put_pairing(number, &[0; 16]);
            self.channels.send_control_cell(
                LinkCircuit { link: id, id: 0 },
                Command::BESIDE,
                &body,
            );
        }
        self.joined(now, id);
        Ok(())
    }

    /// Notes that `cells` cells of a circuit arrived on a QUIC link and must be acknowledged.
    pub(super) fn note_arrivals(&mut self, now: Time, link_circuit: LinkCircuit, cells: u32) {
        if self.channels.count_received(link_circuit, cells) {
            self.timers.insert((now + ACK_DELAY, Timer::Arrived(link_circuit.link)));
        }
    }

    /// Handles the closing of the connection that carries the link `id`. Closes the link and its
    /// circuits, unless the circuits have moved to another link or are moving.
    pub(super) fn carrier_closed(&mut self, now: Time, id: LinkId) {
        if !self.channels.has_moved(id) {
            self.closed(now, id);
        }
    }

    /// Handles a violation of the TLS or QUIC protocol by the neighbour of the link `id`. Closes
    /// the link and its circuits, which do not move to another link. Does nothing if the circuits
    /// have already moved or are moving.
    pub(super) fn carrier_broke(&mut self, now: Time, id: LinkId, fault: CarrierFault) {
        if self.channels.link(id).is_some_and(|link| !link.has_moved()) {
            self.violated(id, LinkFault::Carrier(fault));
            self.closed(now, id);
        }
    }

    /// Handles the failure of the connection that carries the link `id`. The link's circuits move
    /// to the link alongside it if they can. Otherwise, handles the failure like the closing of
    /// the connection ([`Node::carrier_closed`]).
    pub(super) fn carrier_lost(&mut self, now: Time, id: LinkId) {
        let has_circuits = self.channels.link(id).is_some_and(|link| link.circuits() > 0);
        if !(has_circuits && self.start_move(now, id)) {
            self.carrier_closed(now, id);
        }
    }

    fn start_move(&mut self, now: Time, id: LinkId) -> bool {
        if !self.channels.has_moved(id) {
            self.close_lossy(id);
        }
        if !self.channels.start_move(id) {
            return false;
        }
        self.disarm(id);
        self.timers.insert((now + MOVING, Timer::Moving(id)));
        let identity = self.channels.link(id).and_then(|link| link.channel.identity());
        if let Some(identity) = identity {
            self.quic_gone(now, &identity.rsa);
        }
        true
    }

    /// Closes the link `id`, because the neighbour has not listed in time all circuits that move
    /// away from this link.
    pub(super) fn moving_due(&mut self, now: Time, id: LinkId) {
        if self.channels.is_moving(id) {
            self.closed(now, id);
        }
    }

    fn take_move(&mut self, now: Time, id: LinkId, cell: &Cell<'_>) -> Result<(), LinkFault> {
        let (number, ends, counts) = read_move(cell.body).ok_or_else(|| malformed(cell))?;
        let Some(quic) = self.channels.numbered(id, number) else {
            if ends {
                self.channels.send_move_over(id, number);
            }
            return Ok(());
        };
        if self.start_move(now, quic) {
            self.put(LinkOutput::Close { link: quic });
        }
        let lost = self.channels.listed(quic, ends, &counts).map_err(|_| malformed(cell))?;
        lost.into_iter().for_each(|owner| R::lost(self, now, owner));
        self.channels.tidy(id);
        Ok(())
    }

    fn take_detour(&mut self, now: Time, id: LinkId, cell: &mut Cell<'_>) -> Result<(), LinkFault> {
        let (out_of_place, malformed) = (out_of_place(cell), malformed(cell));
        let Some((number, inner)) = cell.body.split_first_chunk_mut() else {
            return Err(malformed);
        };
        // Cells may still be in transit after the QUIC link's last circuit has closed here.
        let Some(quic) = self.channels.numbered(id, u32::from_be_bytes(*number)) else {
            return Ok(());
        };
        if !self.channels.has_moved(quic) || self.channels.is_moving(quic) {
            return Err(out_of_place);
        }
        let whole = head(inner, Width::Four)
            .filter(|(circuit, _, length)| *circuit != 0 && *length == CELL && inner.len() == CELL);
        let (circuit, command, _) = whole.ok_or(malformed)?;
        let (head, body) = inner.split_at_mut(HEADER);
        let inner = Cell { circuit, command, number: None, head, body };
        self.take_cell(now, quic, inner)?;
        self.channels.wake(quic);
        self.channels.tidy(id);
        Ok(())
    }

    fn take_move_over(&mut self, now: Time, id: LinkId, cell: &Cell<'_>) -> Result<(), LinkFault> {
        let number = cell.body.first_chunk().ok_or_else(|| malformed(cell))?;
        let Some(quic) = self.channels.numbered(id, u32::from_be_bytes(*number)) else {
            return Ok(());
        };
        if !self.channels.has_moved(quic) {
            return Err(out_of_place(cell));
        }
        self.closed(now, quic);
        Ok(())
    }

    /// Ends the moves of circuits to or from the link `id`, which is closing. Closes each QUIC
    /// link whose circuits have moved to `id` or are moving to it. Other QUIC links alongside `id`
    /// stay open, but their circuits can no longer move. If the circuits of `id` itself have moved
    /// to another link, sends MOVE_OVER there to complete the move.
    pub(super) fn close_detours(&mut self, now: Time, id: LinkId) {
        for quic in self.channels.paired_quic(id) {
            match self.channels.has_moved(quic) {
                true => self.closed(now, quic),
                false => self.channels.renounce(quic),
            }
        }
        if let Some((quic_offer, number)) = self.channels.moved_to(id) {
            self.channels.send_move_over(quic_offer, number);
        }
    }
}

fn out_of_place(cell: &Cell<'_>) -> LinkFault {
    LinkFault::Handshake(Fault::OutOfPlace(cell.command))
}

fn malformed(cell: &Cell<'_>) -> LinkFault {
    LinkFault::Handshake(Fault::Malformed(cell.command))
}

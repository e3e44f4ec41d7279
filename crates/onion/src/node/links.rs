//! Opening and closing of links, and the handling of their cells.

use anabranch_multipath::Time;

use super::{CloseCause, Node, NodeRole, Timer, dedicated};
use crate::channel::{CellOutcome, Channel, Start};
use crate::channels::{LinkCircuit, LinkId, is};
use crate::event::{Event, LinkFault};
use crate::io::LinkOutput;
use crate::order::Turn;
use crate::padding::Amount;
use crate::wire::cell::{Cell, Cells, Command, NUMBERED_CELL};
use crate::wire::extend::Target;
use crate::wire::link::Padding;

impl<R: NodeRole> Node<R> {
    /// Adds the new link `id`. `target` is the relay that we intended to reach; `None` if the
    /// neighbour opened the link. Closes the link instead if its transport may lose bytes, or if
    /// the node refuses it. A relay refuses links from an address with too many incomplete
    /// handshakes.
    pub(super) fn open(&mut self, now: Time, id: LinkId, target: Option<Target>, start: Start) {
        // Refuse connections that may lose bytes. Both ends would have to number cells to restore
        // their order.
        let role =
            R::channel_role(self, target.is_some(), &start).filter(|_| start.capabilities.reliable);
        let Some(role) = role else {
            let is_reliable = start.capabilities.reliable;
            let fault = if is_reliable { LinkFault::TooManyHalfOpen } else { LinkFault::NotWhole };
            self.violated(id, fault);
            return self.put(LinkOutput::Close { link: id });
        };
        let channel = Channel::new(role, start);
        let deadline = channel.deadline().map(|time| (time.max(now), Timer::Handshake(id)));
        self.timers.extend(deadline);
        let is_dedicated = target.is_some() && R::dedicates_links(self);
        self.channels.open(id, channel, target);
        if let Some(link) = self.channels.link(id) {
            link.is_dedicated = is_dedicated && !link.channel.has_stream_per_circuit();
        }
    }

    /// Handles received bytes of the link `id`.
    pub(super) fn receive(&mut self, now: Time, id: LinkId, bytes: &[u8]) {
        // After a QUIC link was given up, the neighbour sends its cells again on the other link.
        let Some(link) = self.channels.link(id).filter(|link| !link.has_moved()) else { return };
        link.inbox.extend_from_slice(bytes);
        if !link.waits {
            self.work(now, id);
        }
    }

    /// Handles the exported TLS secret that the link `id` waited for.
    pub(super) fn exported(&mut self, now: Time, id: LinkId, secret: [u8; 32]) {
        let Some(link) = self.channels.link(id) else { return };
        link.waits = false;
        match link.channel.exported(&mut *self.rng, secret) {
            Ok(()) => self.work(now, id),
            Err(fault) => self.fail(now, id, LinkFault::Handshake(fault)),
        }
    }

    /// Handles all complete cells in the inbox of the link `id`.
    fn work(&mut self, now: Time, id: LinkId) {
        let Some(link) = self.channels.link(id) else { return };
        let mut inbox = std::mem::take(&mut link.inbox);
        if let Some(order) = link.channel.order() {
            order.tick(now);
        }
        let mut cells = Cells::new(&mut inbox, link.channel.width(), link.channel.longest());
        link.channel.frame(&mut cells);
        let done = self.take_cells(now, id, &mut cells);
        let taken = cells.taken();
        if let Err(fault) = done {
            self.fail(now, id, fault);
        }
        let Some(link) = self.channels.link(id) else { return };
        inbox.drain(..taken);
        link.inbox = inbox;
        self.channels.wake(id);
        self.let_go(now, id);
    }

    /// Handles cells until no complete cell is left, or until the link `id` must wait, for example
    /// for the secret that TLS exports.
    ///
    /// # Errors
    /// Returns the neighbour's violation of the protocol. The link must then be closed.
    fn take_cells(
        &mut self,
        now: Time,
        id: LinkId,
        cells: &mut Cells<'_>,
    ) -> Result<(), LinkFault> {
        loop {
            self.take_relay_cells(now, id, cells)?;
            let next = cells.next_cell().map_err(|_| LinkFault::TooLong)?;
            let (Some(cell), Some(link)) = (next, self.channels.link(id)) else { return Ok(()) };
            let (circuit, is_numbered) = (cell.circuit, cell.number.is_some());
            if link.channel.turn(&cell).map_err(LinkFault::Handshake)? == Turn::Later {
                continue;
            }
            self.take_cell(now, id, cell)?;
            if is_numbered {
                self.take_held(now, id, circuit)?;
            }
            let Some(link) = self.channels.link(id).filter(|link| !link.waits) else {
                return Ok(());
            };
            link.channel.frame(cells);
        }
    }

    /// Handles the RELAY cells at the front of `cells`. They bypass the link's [`Channel`], which
    /// only matters for RELAY cells until the link's handshake is complete. Nearly all cells of a
    /// busy link are RELAY cells.
    ///
    /// # Errors
    /// Returns the neighbour's violation of the protocol. The link must then be closed.
    fn take_relay_cells(
        &mut self,
        now: Time,
        id: LinkId,
        cells: &mut Cells<'_>,
    ) -> Result<(), LinkFault> {
        let Some(link) = self.channels.link(id).filter(|link| link.channel.is_open()) else {
            return Ok(());
        };
        let mut next = cells.next_relay_cell();
        if next.is_some() {
            link.quiet.note(now, false);
        }
        let is_counted = link.keeps_copies();
        let (mut link_circuit, mut taken) = (LinkCircuit { link: id, id: 0 }, 0);
        while let Some((circuit, body)) = next {
            if circuit == 0 {
                return Err(LinkFault::NoCircuit);
            }
            if circuit != link_circuit.id {
                if is_counted {
                    self.note_arrivals(now, link_circuit, taken);
                }
                (link_circuit.id, taken) = (circuit, 0);
            }
            R::take_relay_cell(self, now, link_circuit, body);
            taken += 1;
            next = cells.next_relay_cell();
        }
        if is_counted {
            self.note_arrivals(now, link_circuit, taken);
        }
        Ok(())
    }

    /// Handles the stored cells of `circuit` that follow the cell handled last. Cells are stored
    /// only on links whose cells have sequence numbers and may arrive out of order.
    ///
    /// # Errors
    /// Returns the neighbour's violation of the protocol. The link must then be closed.
    fn take_held(&mut self, now: Time, id: LinkId, circuit: u32) -> Result<(), LinkFault> {
        loop {
            let link_circuit = LinkCircuit { link: id, id: circuit };
            let is_known = self.channels.owner(link_circuit).is_some();
            let order = self.channels.link(id).and_then(|link| link.channel.order());
            let Some(order) = order else { return Ok(()) };
            let Some(mut held) = order.next(circuit) else {
                if !is_known {
                    order.settle(circuit);
                }
                return Ok(());
            };
            self.take_cell(now, id, held.cell())?;
        }
    }

    /// Handles a cell of the link `id`. If the link's cells have sequence numbers, the caller must
    /// have handled all earlier cells of the circuit.
    ///
    /// # Errors
    /// Returns the neighbour's violation of the protocol. The link must then be closed.
    pub(super) fn take_cell(
        &mut self,
        now: Time,
        id: LinkId,
        mut cell: Cell<'_>,
    ) -> Result<(), LinkFault> {
        let Some(link) = self.channels.link(id) else { return Ok(()) };
        let (circuit, command) = (cell.circuit, cell.command);
        let is_padding = matches!(command, Command::PADDING | Command::VPADDING);
        self.padding[0] += u64::from(is_padding);
        link.quiet.note(now, is_padding);
        match link.channel.take(&mut *self.rng, &cell).map_err(LinkFault::Handshake)? {
            CellOutcome::Own if command == Command::PADDING_NEGOTIATE => self.watch(id),
            CellOutcome::Own => {}
            CellOutcome::Circuit => {
                let is_counted = link.keeps_copies();
                R::take_cell(self, now, id, cell)?;
                if is_counted {
                    self.note_arrivals(now, LinkCircuit { link: id, id: circuit }, 1);
                }
            }
            CellOutcome::Opened => self.opened(now, id)?,
            CellOutcome::Offered(port, token) => self.offered(id, port, token),
            CellOutcome::Pairing => self.take_pairing(now, id, &mut cell)?,
            CellOutcome::Export(context) => {
                link.waits = true;
                self.put(LinkOutput::Export { link: id, context });
            }
        }
        if command == Command::DESTROY {
            self.channels.ended(LinkCircuit { link: id, id: circuit });
        }
        Ok(())
    }

    /// Requests from the driver (I/O code) that all TLS records of the link `id` have one fixed
    /// size. Does so only on a link whose cells have sequence numbers, once both NETINFO cells
    /// have been exchanged.
    pub(super) fn fix_records(&mut self, id: LinkId) {
        if self.channels.link(id).is_some_and(|link| link.channel.wants_fixed()) {
            self.put(LinkOutput::FixRecords { link: id, content: NUMBERED_CELL });
        }
    }

    /// Notes that all TLS records of the link `id` have one fixed size from now on.
    pub(super) fn records_fixed(&mut self, id: LinkId) {
        if let Some(link) = self.channels.link(id) {
            link.channel.fixed();
            self.channels.wake(id);
        }
    }

    /// Notes that a link's handshake is complete.
    ///
    /// # Errors
    /// The link leads to a relay other than the intended one.
    fn opened(&mut self, now: Time, id: LinkId) -> Result<(), LinkFault> {
        let Some(link) = self.channels.link(id) else { return Ok(()) };
        let (identity, wanted) = (link.channel.identity(), link.wanted.clone());
        let (skew, dialled) = (link.channel.skew, link.channel.is_initiator());
        let is_wanted = |target: &Target| identity.is_some_and(|identity| is(&identity, target));
        if !wanted.as_ref().is_none_or(is_wanted) {
            return Err(LinkFault::WrongIdentity);
        }
        let has_stream_per_circuit = link.channel.has_stream_per_circuit();
        match has_stream_per_circuit {
            // Circuits must not use the QUIC link before both ends know which TLS link it runs
            // alongside.
            true => self.quic_opened(id, identity),
            false => self.channels.opened(id),
        }
        self.settle(now, id);
        self.offer(id);
        self.fix_records(id);
        self.put(Event::LinkOpen { link: id, identity, skew, dialled });
        if let Some(target) = wanted.filter(|_| !has_stream_per_circuit) {
            self.found(now, &target, id);
        }
        Ok(())
    }

    /// Assigns the link `id` to the circuits that wait for a link to the relay `target`.
    pub(super) fn found(&mut self, now: Time, target: &Target, id: LinkId) {
        let waiting = self.dialling.take(target);
        waiting.into_iter().for_each(|circuit| R::reached(self, now, circuit, id));
    }

    /// Initialises an open link: chooses at random the time for which the link stays open without
    /// circuits. Requests that the neighbour send no padding, if this node does not want the full
    /// amount.
    fn settle(&mut self, now: Time, id: LinkId) {
        let Some(link) = self.channels.link(id) else { return };
        link.quiet.idle_timeout =
            self.rules.idle_timeout(link.channel.is_clients(), &mut *self.rng);
        if self.rules.amount != Amount::Full && link.channel.has_padding() {
            link.channel.ask_padding(Padding::Stop);
        }
        if link.is_dedicated {
            link.quiet.idle_timeout = dedicated::IDLE_TIMEOUT;
            return;
        }
        let until = now + link.quiet.idle_timeout;
        self.check_idle_at(id, until);
    }

    /// Closes the link `id` because of a protocol violation, after sending the bytes that are
    /// queued.
    pub(super) fn fail(&mut self, now: Time, id: LinkId, fault: LinkFault) {
        self.violated(id, fault);
        let link = self.channels.link(id).filter(|link| !link.channel.has_stream_per_circuit());
        let wanted = link.and_then(|link| link.wanted.clone());
        if let (Some(target), LinkFault::WrongIdentity) = (wanted, fault) {
            self.unreachable(&target, CloseCause::WrongIdentity);
        }
        self.closed(now, id);
        self.put(LinkOutput::Close { link: id });
    }

    /// Removes a closed link, and closes its circuits.
    pub(super) fn closed(&mut self, now: Time, id: LinkId) {
        self.disarm(id);
        self.close_detours(now, id);
        let Some(link) = self.channels.link(id) else { return };
        let (has_stream_per_circuit, wanted) =
            (link.channel.has_stream_per_circuit(), link.wanted.take());
        let was_open = link.channel.is_open();
        // Use the dialled identity. A link that breaks early has no verified identity, or the
        // wrong one.
        let proven = link.channel.identity().map(|identity| identity.rsa);
        let relay = wanted.as_ref().map(|target| target.rsa).or(proven);
        self.channels.close(id).into_iter().for_each(|owner| R::lost(self, now, owner));
        if let Some(rsa) = relay.filter(|_| has_stream_per_circuit) {
            self.quic_gone(now, &rsa);
        }
        // No circuits wait for this link if it is a QUIC link.
        let wanted = wanted.filter(|_| !was_open && !has_stream_per_circuit);
        if let Some(target) = wanted {
            self.unreachable(&target, CloseCause::Unreached);
        }
    }

    /// Closes the circuits that wait for the relay `target`, because it cannot be reached.
    pub(super) fn unreachable(&mut self, target: &Target, why: CloseCause) {
        let waiting = self.dialling.take(target);
        waiting.into_iter().for_each(|circuit| R::close_circuit(self, circuit, why));
    }

    /// Requests a link to the relay `target` for `circuit`.
    pub(crate) fn dial(&mut self, target: Target, circuit: u32) {
        self.dial_up_to(target, circuit, 1);
    }

    /// Requests a link to the relay `target` for `circuit`. At most `most` links to this relay are
    /// opened at the same time.
    pub(super) fn dial_up_to(&mut self, target: Target, circuit: u32, most: usize) {
        if self.dialling.add(&target, circuit, most) {
            self.put(LinkOutput::Dial { target });
        }
    }
}

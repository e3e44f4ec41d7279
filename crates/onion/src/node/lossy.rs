//! Lossy circuits (`docs/spec/lossy-circuits.md`): cells that arrive in datagrams, the streams
//! that use such cells, and the links that lossy circuits need.

use std::time::Duration;

use anabranch_multipath::Time;

use super::{CloseCause, Node, NodeRole, Timer};
use crate::channel::Fault;
use crate::channels::{LinkCircuit, LinkId, Owner, is};
use crate::crypto::lossy::Refusal;
use crate::ending::Ending;
use crate::event::{CircuitFault, LinkFault};
use crate::io::LinkOutput;
use crate::set::lossy::{LossyCell, LossyEvent};
use crate::set::lossy_legs::LossyLegs;
use crate::set::{Route, Set};
use crate::table::SetId;
use crate::wire::cell::{Body, Cells, Command, NUMBERED_CELL, Width};
use crate::wire::extend::Target;

/// Time limit for opening a link that carries lossy cells (sent in datagrams). When it expires,
/// the circuits that wait for the link are closed.
const OPENING: Duration = Duration::from_secs(10);

/// Counters of lossy cells (sent in datagrams).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossyStats {
    /// Number of cells sent on links, both forwarded cells and those of streams that end at this
    /// node.
    pub sent: u64,
    /// Number of cells that arrived.
    pub received: u64,
    /// Number of arrived cells that were dropped because of their counter: the counter was a
    /// duplicate, too far ahead, or too old to check for duplicates.
    pub refused: u64,
    /// Number of arrived cells that were dropped because their circuit is closed, or because their
    /// link does not carry lossy cells (sent in datagrams) yet.
    pub unknown: u64,
    /// Number of cells to send that were dropped, because too many waited for their link, or
    /// because their link no longer carries lossy cells (sent in datagrams).
    pub dropped: u64,
    /// Number of circuits closed because of an invalid cell. An end or a relay of the circuit must
    /// have changed or forged such a cell.
    pub garbage: u64,
}

impl LossyStats {
    /// Returns the counters of two cores (protocol state machines), added together.
    #[must_use]
    pub fn with(self, other: &LossyStats) -> LossyStats {
        LossyStats {
            sent: self.sent + other.sent,
            received: self.received + other.received,
            refused: self.refused + other.refused,
            unknown: self.unknown + other.unknown,
            dropped: self.dropped + other.dropped,
            garbage: self.garbage + other.garbage,
        }
    }
}

/// Counters of the lossy cells (sent in datagrams) that streams of a node have sent. Forwarded
/// cells do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossyTraffic {
    /// Number of cells with bytes of a stream, including retransmissions and copies.
    pub data: u64,
    /// Number of cells without bytes of a stream: acknowledgements, and cells that end a stream.
    pub bare: u64,
}

impl LossyTraffic {
    /// Counts a cell with `payload` bytes of a stream.
    fn count(&mut self, payload: usize) {
        self.data += u64::from(payload > 0);
        self.bare += u64::from(payload == 0);
    }
}

impl<R: NodeRole> Node<R> {
    /// Returns the counters of lossy cells (sent in datagrams) that streams of this node have
    /// sent.
    pub fn lossy_traffic(&self) -> LossyTraffic {
        self.lossy_traffic
    }

    /// Returns the counters of lossy cells (sent in datagrams).
    pub fn lossy(&self) -> LossyStats {
        let dropped = self.lossy.dropped + self.channels.lossy_dropped();
        LossyStats { dropped, ..self.lossy }
    }

    /// Handles lossy cells that arrived in datagrams of the link `id`.
    pub(super) fn receive_lossy(&mut self, now: Time, id: LinkId, bytes: &[u8]) {
        let count = (bytes.len() / NUMBERED_CELL) as u64;
        self.lossy.received += count;
        let Some(link) = self.channels.link(id).filter(|link| link.takes_lossy()) else {
            self.lossy.unknown += count;
            return;
        };
        link.quiet.note(now, false);
        let mut bytes = bytes.to_vec();
        let mut cells = Cells::new(&mut bytes, Width::Four, 0);
        cells.expect_numbers();
        while let Ok(Some(cell)) = cells.next_cell() {
            let body = <&mut Body>::try_from(cell.body);
            let (Command::RELAY_LOSSY, Some(counter), Ok(body)) = (cell.command, cell.number, body)
            else {
                let fault = Fault::OutOfPlace(cell.command);
                return self.fail(now, id, LinkFault::Handshake(fault));
            };
            match self.channels.owner(LinkCircuit { link: id, id: cell.circuit }) {
                Some(owner) => R::take_lossy(self, now, owner, (counter, body)),
                None => self.lossy.unknown += 1,
            }
        }
    }

    /// Passes a lossy cell (sent in a datagram) to the link of `link_circuit`. If the link leads to
    /// another shard (parallel core) of this relay, that shard counts the cell in its statistics.
    pub(crate) fn send_lossy(
        &mut self,
        now: Time,
        link_circuit: LinkCircuit,
        (counter, body): (u32, &Body),
    ) {
        let link = self.channels.link(link_circuit.link);
        self.lossy.sent += u64::from(link.is_some_and(|link| !link.channel.is_sibling()));
        self.channels.push_lossy(now, link_circuit, counter, body);
    }

    /// Handles a lossy cell (sent in a datagram) of the circuit `index` that its encryption layer
    /// refused. Depending on `refusal`, drops the cell or closes the circuit.
    pub(crate) fn refuse_lossy(&mut self, index: u32, refusal: Refusal) {
        match refusal {
            Refusal::Replayed | Refusal::TooFarAhead => self.lossy.refused += 1,
            Refusal::Garbage => {
                self.lossy.garbage += 1;
                self.break_off(index, CircuitFault::Garbage);
            }
        }
    }

    /// Handles a decrypted lossy cell (sent in a datagram) that is addressed to this end of the
    /// circuit `index`. At most `streams` streams may exist on the circuit.
    pub(crate) fn take_content(&mut self, now: Time, index: u32, body: &Body, streams: usize) {
        let Some(id) = self.set_of(index) else { return };
        let Some(set) = self.sets.get_mut(id) else { return };
        let Some(lossy) = &mut set.lossy else { return };
        let has_room = lossy.len() + set.streams.len() < streams;
        let leg = set.lossy_legs.as_ref().and_then(|legs| legs.slot(index)).unwrap_or(0);
        if lossy.arrive(now, (leg, body), has_room, &mut *self.rng).is_err() {
            return self.break_off(index, CircuitFault::Message);
        }
        self.pump_lossy(now, id);
    }

    /// Sends the TCP segments that are due of streams over lossy cells (sent in datagrams) of the
    /// circuit set `id`. Also outputs the events of these streams.
    pub(crate) fn pump_lossy(&mut self, now: Time, id: SetId) {
        self.send_segments(now, id);
        let lossy = self.sets.get_mut(id).and_then(|set| set.lossy.as_mut());
        if let Some(counts) = lossy.map(|lossy| lossy.recount()) {
            self.memory.recount_lossy(counts);
        }
    }

    /// Closes all circuits of the set `id`. This also ends all streams of the set.
    pub(super) fn end_lossy_set(&mut self, id: SetId, why: CloseCause) {
        while let Some(&Set { route: Route::One(circuit), .. }) = self.sets.get(id) {
            R::close_circuit(self, circuit, why);
            if self.circuits.get(circuit).is_some() {
                return;
            }
        }
    }

    fn send_segments(&mut self, now: Time, id: SetId) {
        loop {
            let Some(set) = self.sets.get_mut(id) else { return };
            let (Some(lossy), &Route::One(first)) = (&mut set.lossy, &set.route) else { return };
            let is_linked = set.lossy_legs.as_ref().is_none_or(|legs| legs.is_linked());
            // Preparing a segment may time its stream out, which is an event.
            let next = match lossy.has_event() || !is_linked {
                true => None,
                false => lossy.poll(now, set.lossy_legs.as_deref_mut()),
            };
            let Some(LossyCell { mut body, leg, payload }) = next else {
                match lossy.event() {
                    Some(event) => self.take_event(now, first, event),
                    None if is_linked => break,
                    // Segments and timers wait until a leg is linked.
                    None => return,
                }
                continue;
            };
            let Some(circuit) = set.choose_lossy(now, leg) else { return };
            let Some(ending) = self.circuits.get_mut(circuit) else { return };
            let link_circuit = ending.link_circuit();
            let counter = ending.lossy().map(|end| end.originate(Command::RELAY_LOSSY, &mut body));
            match (link_circuit, counter) {
                (Some(link_circuit), Some(Some(counter))) => {
                    self.lossy_traffic.count(payload);
                    self.send_lossy(now, link_circuit, (counter, &body));
                    let outward = R::Circuit::OUTWARD;
                    R::sent_cell(self, now, Owner { circuit, outward });
                }
                _ => return R::close_circuit(self, circuit, CloseCause::Exhausted),
            }
        }
        let lossy = self.sets.get_mut(id).and_then(|set| set.lossy.as_mut());
        let alarm = lossy.and_then(|lossy| lossy.alarm());
        self.timers.extend(alarm.map(|time| (time, Timer::Segments(id))));
    }

    fn take_event(&mut self, now: Time, circuit: u32, event: LossyEvent) {
        match event {
            LossyEvent::Begun(stream, data) => R::lossy_begun(self, now, circuit, stream, &data),
            LossyEvent::Connected(stream) => R::lossy_connected(self, stream),
            LossyEvent::StreamEvent(happened) => self.report(happened),
        }
    }

    /// Allows other lossy circuits (whose cells travel in datagrams) to join the set of the
    /// circuit `index`. This circuit is the set's first leg. `requested` is the time of the
    /// client's request to the other end (`None` at the exit).
    pub(crate) fn start_lossy_set(&mut self, index: u32, legs: LossyLegs, requested: Option<Time>) {
        let Some(set) = self.set_of(index).and_then(|id| self.sets.get_mut(id)) else { return };
        let legs = set.lossy_legs.insert(Box::new(legs));
        legs.add(index, requested);
        if let Some(id) = self.set_of(index) {
            self.update_lossy_legs(id);
        }
    }

    /// Passes the present legs (parallel circuits) of the circuit set `id` to its streams.
    pub(crate) fn update_lossy_legs(&mut self, id: SetId) {
        if let Some(set) = self.sets.get_mut(id)
            && let (Some(lossy), Some(legs)) = (&mut set.lossy, &set.lossy_legs)
        {
            lossy.set_legs(legs);
        }
    }

    /// Makes the circuit `index` a leg (parallel circuit) of the set `id`. `requested` is the time
    /// of the client's request to the other end (`None` at the exit). Returns false if the set is
    /// full, or cannot have legs whose cells travel in datagrams.
    pub(crate) fn join_lossy_set(
        &mut self,
        index: u32,
        id: SetId,
        requested: Option<Time>,
    ) -> bool {
        let Some(own) = self.set_of(index) else { return false };
        let legs = self.sets.get_mut(id).and_then(|set| set.lossy_legs.as_mut());
        let is_added = legs.is_some_and(|legs| legs.add(index, requested));
        if is_added {
            self.sets.remove(own);
            self.circuits.get_mut(index).into_iter().for_each(|circuit| circuit.move_to(id));
            self.update_lossy_legs(id);
        }
        is_added
    }

    /// Closes the circuits of the set `id` that the other end has not accepted in time as legs
    /// (parallel circuits) of the set.
    pub(super) fn lossy_legs_due(&mut self, now: Time, id: SetId) {
        let legs = self.sets.get_mut(id).and_then(|set| set.lossy_legs.as_ref());
        let late = legs.map(|legs| legs.late(now)).unwrap_or_default();
        late.into_iter().for_each(|circuit| R::close_circuit(self, circuit, CloseCause::Unlinked));
    }

    /// Removes the circuit `circuit` from the set `id`. Returns false if the set has no other leg
    /// (parallel circuit) whose cells travel in datagrams. The caller must then remove the set.
    pub(super) fn leave_lossy_set(&mut self, id: SetId, circuit: u32) -> bool {
        let Some(set) = self.sets.get_mut(id) else { return false };
        if set.leave_lossy(circuit) {
            self.update_lossy_legs(id);
            return true;
        }
        if let Some(nonce) = set.lossy_legs.take().map(|legs| *legs.nonce()) {
            R::set_ended(self, id, &nonce);
        }
        false
    }

    /// Runs the expired timers of the streams that use lossy cells (sent in datagrams) of the
    /// circuit set `id`.
    pub(super) fn segments_due(&mut self, now: Time, id: SetId) {
        if let Some(lossy) = self.sets.get_mut(id).and_then(|set| set.lossy.as_mut()) {
            lossy.expired();
            self.pump_lossy(now, id);
        }
    }

    /// Adds the circuit `circuit` to those waiting for a link to the relay `target` that carries
    /// lossy cells (sent in datagrams), and requests such a link. If a QUIC link to this relay
    /// exists but carries no lossy cells, closes the circuit.
    pub(crate) fn reach_lossy(&mut self, now: Time, target: Target, circuit: u32) {
        let (mut has_quic, mut offered) = (false, None);
        for (id, link) in self.channels.reaching(&target.rsa) {
            has_quic |= link.channel.has_stream_per_circuit();
            if link.leads_to(&target) && link.quic_offer.is_some() {
                offered = offered.or(Some(id));
            }
        }
        if has_quic {
            // The caller has looked for a link with lossy cells and found none.
            return R::close_circuit(self, circuit, CloseCause::NoLossyLink);
        }
        let is_requested =
            self.dialling.awaits_lossy(&target) || self.channels.has_dialled(&target);
        let until = now + OPENING;
        self.dialling.await_lossy(target.clone(), circuit, until);
        self.timers.insert((until, Timer::LossyLinks));
        match offered {
            Some(link) => self.open_offered(link),
            None if is_requested => {}
            None => self.put(LinkOutput::DialOwn { target }),
        }
    }

    /// Assigns the QUIC link `id`, which is now ready, to the circuits that wait for a link with
    /// lossy cells (sent in datagrams) to its relay. If the link carries no lossy cells, closes
    /// these circuits.
    pub(super) fn lossy_found(&mut self, now: Time, id: LinkId) {
        let Some(link) = self.channels.link(id) else { return };
        let (identity, takes_lossy) = (link.channel.identity(), link.takes_lossy());
        let Some(identity) = identity else { return };
        for circuit in self.dialling.take_lossy(|target| is(&identity, target)) {
            match takes_lossy {
                true => R::reached(self, now, circuit, id),
                false => R::close_circuit(self, circuit, CloseCause::NoLossyLink),
            }
        }
    }

    /// Closes the circuits that wait for a link with lossy cells (sent in datagrams) to the relay
    /// at the other end of the link `id`. No QUIC link to this relay can be opened.
    pub(super) fn no_lossy_link(&mut self, id: LinkId) {
        let identity = self.channels.link(id).and_then(|link| link.channel.identity());
        let Some(identity) = identity else { return };
        for circuit in self.dialling.take_lossy(|target| is(&identity, target)) {
            R::close_circuit(self, circuit, CloseCause::NoLossyLink);
        }
    }

    /// Closes the circuits that have waited too long for a link with lossy cells (sent in
    /// datagrams).
    pub(super) fn lossy_links_due(&mut self, now: Time) {
        for circuit in self.dialling.late_lossy(now) {
            R::close_circuit(self, circuit, CloseCause::NoLossyLink);
        }
    }

    /// Closes the circuits with lossy cells (sent in datagrams) on the QUIC link `id`. The other
    /// circuits of `id` are about to move to the TLS link alongside it, which carries no lossy
    /// cells.
    pub(super) fn close_lossy(&mut self, id: LinkId) {
        for owner in self.channels.owners(id) {
            if self.circuits.get(owner.circuit).is_some_and(R::Circuit::is_lossy) {
                R::close_circuit(self, owner.circuit, CloseCause::NoLossyLink);
            }
        }
    }
}

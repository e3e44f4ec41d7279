//! Sets of several parallel circuits (legs): distribution of messages among the legs, handling of
//! received messages, and the end of circuit sets.

use std::cmp::Reverse;

use anabranch_multipath::{PathId, Time};
use rand_core::CryptoRng;

use super::{CloseCause, Node, NodeRole, Timer};
use crate::channels::{Channels, LinkCircuit};
use crate::conflux::{
    Arrival, Closes, ConfluxFault, Fate, LegAction, Mark, Retransmitter, SentMessage, is_counted,
};
use crate::ending::{Carrier, Ending, Seal};
use crate::event::CircuitFault;
use crate::leg::Leg;
use crate::set::numbers::{LegNumbers, SetNumbers};
use crate::set::{Route, Set, SetLegs};
use crate::streams::{FilledMessage, Next, OutLeg, write_pieces};
use crate::table::{SetId, Slab};
use crate::wire::cell::{BODY, Body, Command};
use crate::wire::message::{self, Format, Message, RelayCommand};
use crate::wire::resilient::{Received, put_gone, read_gone};

/// The parts of a leg (one of a set's parallel circuits) that are needed to send cells on it: its
/// link and circuit ID, flow control and encryption layers.
pub(super) struct Port<'a> {
    link_circuit: LinkCircuit,
    control: &'a mut Leg,
    layers: &'a mut dyn Seal,
    format: Format,
    channels: &'a mut Channels,
    rng: &'a mut dyn CryptoRng,
}

impl<'a> Port<'a> {
    /// Returns the parts of a leg (parallel circuit) that are needed to send on it. `index` is the
    /// index of the leg's circuit.
    pub(super) fn of<C: Ending>(
        circuits: &'a mut Slab<C>,
        channels: &'a mut Channels,
        rng: &'a mut dyn CryptoRng,
        index: u32,
    ) -> Result<Port<'a>, ConfluxFault> {
        let parts = circuits.get_mut(index).and_then(C::parts);
        let Some((Carrier::Link(link_circuit), Some(control), layers)) = parts else {
            return Err(ConfluxFault::NotLinked);
        };
        let format = layers.format();
        Ok(Port { link_circuit, control, layers, format, channels, rng })
    }

    /// Sends the SWITCH message that must precede a message with a sequence number, if `mark`
    /// requires one. `mark` describes how the sequence number is sent.
    pub(super) fn send_before(&mut self, now: Time, mark: &Mark) {
        let Some((command, data)) = mark.before() else { return };
        let mut body = [0; BODY];
        let message = Message { command, stream: 0, data: &data };
        message::write(self.format, &mut body, message, self.rng);
        self.push(now, body, false);
    }

    /// Sends a cell of the trunk (the circuit that continues where the set's legs join) on this
    /// leg (parallel circuit). The leg's other end forwards the cell.
    pub(super) fn send_trunk_cell(&mut self, now: Time, command: Command, body: &mut Body) {
        self.layers.wrap(command, body);
        self.control.passed();
        self.channels.push(now, self.link_circuit, command, body);
    }

    /// Encrypts a cell and queues it for its link. Counts it in the flow control if `is_data` is
    /// true.
    fn push(&mut self, now: Time, mut body: Body, is_data: bool) {
        let tag = self.layers.seal(Command::RELAY, &mut body);
        if let Some(tag) = tag.filter(|_| is_data) {
            self.control.sent(now, tag);
        }
        self.channels.push(now, self.link_circuit, Command::RELAY, &body);
    }
}

impl<R: NodeRole> Node<R> {
    /// Sends pending cells of the streams of the circuit set `id` on the parallel circuits (legs)
    /// that the set's scheduler chooses.
    pub(super) fn deal(&mut self, now: Time, id: SetId) {
        let Some(set) = self.sets.get_mut(id) else { return };
        if set.is_merged() {
            return self.deal_cells(now, id);
        }
        let again = set.several().is_some_and(|several| several.next_again().is_some());
        // Nothing can be sent. If streams have a window on each leg, this is not known yet.
        if !again && !set.streams.have_leg_windows() && set.streams.next(now, true).is_none() {
            return;
        }
        let only_data = set.streams.next(now, false).is_none();
        let mut waiting = set.streams.waiting(Format::V0);
        let Some(several) = set.several() else { return };
        // Queues drain one cell at a time. While all windows are used up, updating the views after
        // each cell would cost an exit more time than the distribution itself.
        if !again && only_data && !several.sees_links() && !several.has_window(&self.circuits) {
            return;
        }
        several.look(now, &self.circuits, &mut self.channels);
        while let Some((leg, next, cells)) =
            self.sets.get_mut(id).and_then(|set| set.choose(now, waiting))
        {
            let sent = match next {
                Next::Again => self.send_again(now, id, leg, cells).map(|()| 0),
                _ => self.send_run(now, id, leg, (next, cells)),
            };
            match sent {
                Ok(sent) => waiting = waiting.saturating_sub(sent),
                Err(_) => return self.end_set(id, CloseCause::Set),
            }
        }
        self.recount(id);
    }

    /// Sends at most `cells` consecutive cells on `leg` (a parallel circuit). `next` is the kind
    /// of all these cells, such as DATA. Returns the number of cells sent.
    fn send_run(
        &mut self,
        now: Time,
        id: SetId,
        leg: PathId,
        (next, cells): (Next, u64),
    ) -> Result<u64, ConfluxFault> {
        let Some(Set { streams, route: Route::Several(several), .. }) = self.sets.get_mut(id)
        else {
            return Err(ConfluxFault::Gone);
        };
        let index = several.circuit(leg).ok_or(ConfluxFault::NotLinked)?;
        let mut port = Port::of(&mut self.circuits, &mut self.channels, &mut *self.rng, index)?;
        let mut sent = 0;
        while sent < cells
            && (sent == 0 || streams.next(now, true) == Some(next) && !several.is_full())
        {
            let counted = !matches!(next, Next::Control { counted: false, .. });
            let mark = if counted { several.end.send(leg)? } else { Mark::Nothing };
            port.send_before(now, &mark);
            let has_room = next == Next::Data;
            let onto = OutLeg { by: leg, format: port.format, has_room, prefix: mark.prefix() };
            let mut body = [0; BODY];
            // A number without its message would desynchronise the set permanently.
            let filled = streams.fill(now, onto, &mut body, port.rng);
            let filled = filled.ok_or(ConfluxFault::Incoherent)?;
            if counted {
                several.keep(now, leg, &mark, message::read(port.format, &body));
            }
            port.push(now, body, filled == FilledMessage::Data);
            sent += 1;
        }
        self.look_again(now, id, leg, index);
        Ok(sent)
    }

    /// Retransmits on `leg` at most `cells` messages that were first sent on other legs (parallel
    /// circuits). Those legs have failed or may have failed.
    fn send_again(
        &mut self,
        now: Time,
        id: SetId,
        leg: PathId,
        cells: u64,
    ) -> Result<(), ConfluxFault> {
        let several = self.sets.get_mut(id).and_then(Set::several).ok_or(ConfluxFault::Gone)?;
        let index = several.circuit(leg).ok_or(ConfluxFault::NotLinked)?;
        let mut port = Port::of(&mut self.circuits, &mut self.channels, &mut *self.rng, index)?;
        let is_data = several.next_again();
        for _ in 0..cells {
            if several.next_again() != is_data {
                break;
            }
            let Some(kept) = several.end.retransmitter_mut().and_then(Retransmitter::take_again)
            else {
                break;
            };
            let SentMessage { number, command, stream, ref data } = kept;
            let spare = port.format.most(command).saturating_sub(data.len());
            let mark = several.end.again(leg, number, spare)?;
            port.send_before(now, &mark);
            let mut body = [0; BODY];
            let pieces = [mark.prefix(), data];
            write_pieces(port.format, &mut body, (command, stream), pieces, port.rng);
            port.push(now, body, command == RelayCommand::DATA);
            if let Some(retransmitter) = several.end.retransmitter_mut() {
                retransmitter.sent(now, leg, kept);
            }
        }
        self.look_again(now, id, leg, index);
        Ok(())
    }

    /// Updates the scheduler's view of `leg` (a parallel circuit) after cells were sent on it.
    pub(super) fn look_again(&mut self, now: Time, id: SetId, leg: PathId, index: u32) {
        let several = self.sets.get_mut(id).and_then(Set::several);
        if let (Some(several), Some(circuit)) = (several, self.circuits.get(index)) {
            several.look_at(now, leg, circuit, &mut self.channels);
        }
    }

    /// Handles `message`, which was received on one leg of a circuit set. If the message is the
    /// next one in order, also handles the stored messages that follow it.
    ///
    /// # Errors
    /// Returns the violation if the other end broke the protocol.
    pub(crate) fn take_by_leg(
        &mut self,
        now: Time,
        id: SetId,
        index: u32,
        message: Message<'_>,
    ) -> Result<(), CircuitFault> {
        let taken = self.take_in_turn(now, id, index, message);
        let leg = self.sets.several(id).and_then(|several| several.leg_that_owes(index));
        leg.into_iter().for_each(|leg| self.send_received(now, id, leg, false));
        self.recount(id);
        self.pause_or_resume(now, id);
        taken
    }

    fn take_in_turn(
        &mut self,
        now: Time,
        id: SetId,
        index: u32,
        message: Message<'_>,
    ) -> Result<(), CircuitFault> {
        let set = self.sets.get_mut(id).ok_or(CircuitFault::Message)?;
        let Route::Several(several) = &mut set.route else { return Err(CircuitFault::Message) };
        let leg = several.leg(index).ok_or(CircuitFault::Message)?;
        if message.command == RelayCommand::DATA {
            set.streams.allow_burst(several.count_received(now));
        }
        set.streams.set_arrival_leg(Some(leg));
        let arrival = several.end.receive(leg, message);
        if arrival.is_ok() && is_counted(message.command, message.stream) {
            several.note_arrived_on(leg);
            several
                .end
                .retransmitter_mut()
                .into_iter()
                .for_each(|retransmitter| retransmitter.note_received(now, leg));
        }
        match arrival {
            Ok(Arrival::Now(data)) => {
                R::take_set_message(self, now, index, Message { data, ..message })?;
                self.take_waiting(now, id, index);
            }
            Ok(Arrival::Later) => {
                let queue = several.end.queue();
                let much_waits = queue.bytes() >= queue.budget() / 2;
                let early = set.streams.received_early(now, leg, message, much_waits);
                early.map_err(|_| CircuitFault::Flood)?;
            }
            Ok(Arrival::Known) => {}
            Err(fault) => {
                if fault.closes() == Closes::Set {
                    several.end.die();
                }
                return Err(fault.into());
            }
        }
        Ok(())
    }

    /// Updates the number of bytes buffered in the circuit set `id` ([`SetLegs::held`]), and the
    /// sum over all sets.
    pub(super) fn recount(&mut self, id: SetId) {
        if let Some(counts) = self.sets.several(id).map(SetLegs::recount) {
            self.memory.recount_set(counts);
        }
    }

    /// Returns statistics of at most `most` sets that may have several legs (parallel circuits).
    /// Sets with the most waiting bytes come first.
    pub fn fullest_sets(&self, most: usize) -> Vec<SetNumbers> {
        let waiting =
            self.sets.all_several().map(|(id, several)| (Reverse(several.end.bytes()), id));
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_unstable();
        waiting.iter().take(most).filter_map(|(_, id)| self.set_numbers(*id)).collect()
    }

    fn set_numbers(&self, id: SetId) -> Option<SetNumbers> {
        let Route::Several(several) = &self.sets.get(id)?.route else { return None };
        let (streams, transferred) = (self.streams_over(id), self.carried_over(id));
        Some(SetNumbers { streams, transferred, ..several.numbers(&self.circuits, &self.channels) })
    }

    /// Iterates over statistics of all parallel circuits (legs) in all circuit sets.
    pub(crate) fn legs_of_sets(&self) -> impl Iterator<Item = LegNumbers> {
        self.sets
            .all_several()
            .flat_map(|(_, several)| several.legs(&self.circuits, &self.channels))
    }

    /// Handles stored messages of the circuit set `id` in order, until one is missing or a message
    /// has ended the set.
    fn take_waiting(&mut self, now: Time, id: SetId, index: u32) {
        while let Some(held) = self.sets.several(id).and_then(|several| several.end.pop()) {
            let circuit = self.sets.several(id).and_then(|several| several.circuit(held.leg));
            let leg = circuit.is_some().then_some(held.leg);
            self.sets.get_mut(id).into_iter().for_each(|set| set.streams.set_arrival_leg(leg));
            let circuit = circuit.unwrap_or(index);
            let (command, stream) = (held.command, held.stream);
            let message = Message { command, stream, data: &held.data };
            if let Err(fault) = R::take_set_message(self, now, circuit, message) {
                self.break_off(circuit, fault);
            }
        }
    }

    /// Pauses the streams of the circuit set `id` while too many bytes wait for missing messages,
    /// in this set or in all sets together. Resumes paused streams otherwise.
    fn pause_or_resume(&mut self, now: Time, id: SetId) {
        let scarce = self.memory.is_scarce(self.channels.used());
        let Some(Set { streams, route: Route::Several(several), .. }) = self.sets.get_mut(id)
        else {
            return;
        };
        if let Some(pause) = several.pause_changed(scarce) {
            if pause {
                several.hurry();
            }
            streams.set_paused(now, pause);
        }
    }

    /// Removes a closed circuit from its set. `unacknowledged` is true if many cells were in
    /// flight on the circuit: at least the number that one SENDME acknowledges. The set ends if
    /// data is lost with this circuit. In designs that do not retransmit lost messages, the set
    /// also ends when its last circuit closes.
    pub(crate) fn leave_set(&mut self, id: SetId, circuit: u32, unacknowledged: bool) {
        let Some(Set { streams, route: Route::Several(several), .. }) = self.sets.get_mut(id)
        else {
            if !self.leave_lossy_set(id, circuit) {
                self.dissolve(id);
            }
            return;
        };
        several.leg(circuit).into_iter().for_each(|leg| streams.lost(leg));
        match several.lose(circuit, unacknowledged) {
            Fate::Dies => self.end_set(id, CloseCause::Set),
            Fate::Lives => self.await_leg_actions(id),
        }
    }

    /// Ends a set of several parallel circuits (legs), all these circuits, and the set's streams.
    pub(crate) fn end_set(&mut self, id: SetId, why: CloseCause) {
        let circuits = self.forget_set(id);
        circuits.into_iter().for_each(|circuit| R::close_circuit(self, circuit, why));
    }

    /// Ends a set of several parallel circuits (legs) and the set's streams. Returns the circuits
    /// of the set, which the caller must close.
    pub(crate) fn forget_set(&mut self, id: SetId) -> Vec<u32> {
        self.sets.several(id).into_iter().for_each(SetLegs::die);
        self.recount(id);
        let Some(several) = self.sets.several(id) else { return Vec::new() };
        let (nonce, circuits) = (*several.end.nonce(), several.circuits().collect::<Vec<_>>());
        R::set_ended(self, id, &nonce);
        self.dissolve(id);
        circuits
    }

    /// Closes the circuits that should join the circuit set `id`, but on which the other end has
    /// not answered LINK or LINKED in time.
    pub(super) fn look_for_late_legs(&mut self, now: Time, id: SetId) {
        let Some(several) = self.sets.several(id) else { return };
        let late: Vec<PathId> = several.end.late(now).collect();
        let circuits: Vec<u32> = late.iter().filter_map(|leg| several.circuit(*leg)).collect();
        circuits
            .into_iter()
            .for_each(|circuit| R::close_circuit(self, circuit, CloseCause::Unlinked));
        self.await_links(id);
    }

    /// Sets the timer that limits the time for the other end's answers to LINK and LINKED, which
    /// add circuits to the set `id`.
    pub(crate) fn await_links(&mut self, id: SetId) {
        let due = self.sets.several(id).and_then(|several| several.end.next_timeout());
        self.timers.extend(due.map(|time| (time, Timer::Linking(id))));
    }

    /// Performs the due actions on the parallel circuits (legs) of a resilient set, which survives
    /// the loss of legs. An example is the acknowledgement of messages.
    pub(super) fn tend(&mut self, now: Time, id: SetId) {
        self.report_trunk_closed(now, id);
        let streams = self.streams_over(id) > 0;
        let Some(several) = self.sets.several(id) else { return };
        several.leg_timer_expired();
        let Some(retransmitter) = several.end.retransmitter_mut() else { return };
        for action in retransmitter.actions(now, streams) {
            match action {
                LegAction::SendReceived(leg) => self.send_received(now, id, leg, false),
                LegAction::Probe(leg) => {
                    self.send_control_by(now, id, Some(leg), RelayCommand::RESILIENT_PROBE, &[]);
                }
                LegAction::Gone(serial) => {
                    let leg = self.sets.several(id).and_then(|several| several.preferred());
                    self.send_control_by(
                        now,
                        id,
                        leg,
                        RelayCommand::RESILIENT_GONE,
                        &put_gone(serial),
                    );
                }
                LegAction::Silent(leg) => {
                    let circuit = self.sets.several(id).and_then(|several| several.circuit(leg));
                    circuit.into_iter().for_each(|circuit| R::fell_silent(self, circuit));
                }
                LegAction::GiveUp(leg) => self.give_up_leg(id, leg),
                LegAction::Over => return self.end_set(id, CloseCause::Set),
            }
        }
        self.pump(now, id);
    }

    fn give_up_leg(&mut self, id: SetId, leg: PathId) {
        let circuit = self.sets.several(id).and_then(|several| several.circuit(leg));
        circuit.into_iter().for_each(|circuit| R::close_circuit(self, circuit, CloseCause::Silent));
    }

    /// Sends RECEIVED, which acknowledges the messages that arrived on `leg` (a parallel circuit).
    /// `answers_probe` is true if RECEIVED is the answer to a PROBE message.
    pub(super) fn send_received(&mut self, now: Time, id: SetId, leg: PathId, answers_probe: bool) {
        let retransmitter =
            self.sets.several(id).and_then(|several| several.end.retransmitter_mut());
        let Some(received) =
            retransmitter.and_then(|retransmitter| retransmitter.take_received(leg, answers_probe))
        else {
            return;
        };
        self.send_control_by(
            now,
            id,
            Some(leg),
            RelayCommand::RESILIENT_RECEIVED,
            &received.write(),
        );
    }

    pub(crate) fn send_control_by(
        &mut self,
        now: Time,
        id: SetId,
        leg: Option<PathId>,
        command: RelayCommand,
        data: &[u8],
    ) {
        let circuit = self.sets.several(id).and_then(|several| several.circuit(leg?));
        circuit
            .into_iter()
            .for_each(|at| self.send_relay_cell(now, at, Command::RELAY, command, data));
    }

    /// Sets the timer for the next actions on the parallel circuits (legs) of the set `id`.
    pub(crate) fn await_leg_actions(&mut self, id: SetId) {
        let streams = self.streams_over(id) > 0;
        let Some(several) = self.sets.several(id) else { return };
        let due = several.arm_leg_timer(streams);
        self.timers.extend(due.map(|time| (time, Timer::LegActions(id))));
    }

    /// Handles `message`, which is not about a stream, but about the parallel circuits (legs) of a
    /// resilient set. Such a set survives the loss of legs.
    ///
    /// # Errors
    /// Returns the violation if the other end broke the protocol.
    pub(crate) fn take_of_legs(
        &mut self,
        now: Time,
        id: SetId,
        index: u32,
        message: Message<'_>,
    ) -> Result<(), CircuitFault> {
        let several = self.sets.several(id).ok_or(ConfluxFault::NotLinked)?;
        let leg = several.leg(index).ok_or(ConfluxFault::NotLinked)?;
        let is_exit = several.end.is_exit();
        let retransmitter = several.end.retransmitter_mut().ok_or(ConfluxFault::Design)?;
        match message.command {
            RelayCommand::RESILIENT_RECEIVED => {
                let received = Received::read(message.data).ok_or(ConfluxFault::Unreadable)?;
                let report = retransmitter.acknowledged(now, leg, received)?;
                self.cells_acknowledged(id, index, report);
                self.recount(id);
            }
            RelayCommand::RESILIENT_GONE => {
                let serial = read_gone(message.data).ok_or(ConfluxFault::Unreadable)?;
                let gone = retransmitter.leg_reported_closed(serial, leg)?;
                gone.into_iter().for_each(|gone| self.give_up_leg(id, gone));
            }
            RelayCommand::RESILIENT_PROBE if is_exit => self.send_received(now, id, leg, true),
            _ => return Err(ConfluxFault::Role.into()),
        }
        self.pump(now, id);
        Ok(())
    }
}

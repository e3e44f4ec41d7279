//! Sets of several legs: what goes by which of them, what comes by them, and their end.

use std::cmp::Reverse;

use anabranch_multipath::{PathId, Time};

use super::{Node, NodeRole, Timer, Why};
use crate::conflux::{Arrival, Closes, ConfluxFault, Fate, Mark};
use crate::ending::Ending;
use crate::event::CircuitFault;
use crate::set::numbers::{LegNumbers, SetNumbers};
use crate::set::{Route, Set, SetId, Several};
use crate::streams::{Filled, Next, OutLeg};
use crate::wire::cell::{BODY, Command};
use crate::wire::conflux::put_switch;
use crate::wire::message::{self, Format, Message, RelayCommand};

impl<R: NodeRole> Node<R> {
    /// Sends what the set's streams have, by the legs that its scheduler names.
    pub(super) fn deal(&mut self, now: Time, id: SetId) {
        let Some(set) = self.sets.get_mut(id.0) else { return };
        // Which legs are open, and with them what may go, is known after a look at them.
        if !set.streams.have_leg_windows() && set.streams.next(now, true).is_none() {
            return;
        }
        let mut waiting = set.streams.waiting(Format::V0);
        let Some(several) = set.several() else { return };
        several.look(now, &self.circuits, &mut self.channels);
        while let Some((leg, next, cells)) =
            self.set_mut(id).and_then(|set| set.choose(now, waiting))
        {
            match self.send_run(now, id, leg, (next, cells)) {
                Ok(sent) => waiting = waiting.saturating_sub(sent),
                Err(_) => return self.end_set(id, Why::Set),
            }
        }
    }

    /// Sends up to so many cells of one kind by a leg; returns how many.
    fn send_run(
        &mut self,
        now: Time,
        id: SetId,
        leg: PathId,
        (next, cells): (Next, u64),
    ) -> Result<u64, ConfluxFault> {
        let Node { sets, circuits, channels, rng, .. } = self;
        let Some(Set { streams, route: Route::Several(several) }) = sets.get_mut(id.0) else {
            return Err(ConfluxFault::Gone);
        };
        let circuit = several.circuit(leg).and_then(|circuit| circuits.get_mut(circuit));
        let circuit = circuit.ok_or(ConfluxFault::NotLinked)?;
        let Some((lane, Some(control), layers)) = circuit.parts() else {
            return Err(ConfluxFault::NotLinked);
        };
        let format = layers.format();
        let mut sent = 0;
        while sent < cells && (sent == 0 || streams.next(now, true) == Some(next)) {
            let counted = !matches!(next, Next::Control { counted: false, .. });
            let mark = if counted { several.end.send(leg)? } else { Mark::Nothing };
            let mut body = [0; BODY];
            if let Mark::Switch(by) = mark {
                let (command, data) = (RelayCommand::CONFLUX_SWITCH, &put_switch(by));
                message::write(format, &mut body, Message { command, stream: 0, data }, rng);
                layers.seal(Command::RELAY, &mut body);
                channels.push(now, lane, Command::RELAY, &body);
            }
            let has_room = next == Next::Data;
            let onto = OutLeg { by: leg, format, has_room, prefix: mark.prefix() };
            // A number that no message bears would desynchronise the set for good.
            let filled = streams.fill(now, onto, &mut body, rng);
            let filled = filled.ok_or(ConfluxFault::Incoherent)?;
            let tag = layers.seal(Command::RELAY, &mut body);
            if let (Filled::Data, Some(tag)) = (filled, tag) {
                control.sent(now, tag);
            }
            channels.push(now, lane, Command::RELAY, &body);
            sent += 1;
        }
        several.look_at(now, leg, circuit, channels);
        Ok(sent)
    }

    /// A message that came by a leg of a set of several: it is taken if its turn has come, and then
    /// all that waited for it.
    ///
    /// # Errors
    /// What the other end did that it may not do.
    pub(crate) fn take_by_leg(
        &mut self,
        now: Time,
        id: SetId,
        index: u32,
        message: Message<'_>,
    ) -> Result<(), CircuitFault> {
        let taken = self.take_in_turn(now, id, index, message);
        self.recount(id);
        self.rest_or_go_on(now, id);
        taken
    }

    fn take_in_turn(
        &mut self,
        now: Time,
        id: SetId,
        index: u32,
        message: Message<'_>,
    ) -> Result<(), CircuitFault> {
        let set = self.sets.get_mut(id.0).ok_or(CircuitFault::Message)?;
        let Route::Several(several) = &mut set.route else { return Err(CircuitFault::Message) };
        let leg = several.leg(index).ok_or(CircuitFault::Message)?;
        if message.command == RelayCommand::DATA {
            set.streams.allow_burst(several.came(now));
        }
        set.streams.comes_by(Some(leg));
        match several.end.receive(leg, message) {
            Ok(Arrival::Now(data)) => {
                R::take_set_message(self, now, index, Message { data, ..message })?;
                self.take_waiting(now, id, index);
            }
            Ok(Arrival::Later) => {
                let queue = several.end.queue();
                let much_waits = queue.bytes() >= queue.budget() / 2;
                let early = set.streams.came_early(now, leg, message, much_waits);
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

    /// Counts what waits in a set for messages of other legs.
    fn recount(&mut self, id: SetId) {
        let Some([before, now]) = self.several(id).map(Several::recount) else { return };
        self.reordered = self.reordered + now - before;
    }

    /// The set in which most waits for messages of other legs.
    pub(super) fn fullest_set(&self) -> Option<SetId> {
        let waiting = self.all_several().map(|(id, several)| (several.end.bytes(), id));
        waiting.max().map(|(_, id)| SetId(id))
    }

    /// Sets that several circuits may join, those first in which most waits, and no more than so
    /// many.
    pub fn fullest_sets(&self, most: usize) -> Vec<SetNumbers> {
        let waiting = self.all_several().map(|(id, several)| (Reverse(several.end.bytes()), id));
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_unstable();
        waiting.iter().take(most).filter_map(|(_, id)| self.set_numbers(*id)).collect()
    }

    fn set_numbers(&self, id: u32) -> Option<SetNumbers> {
        let set = self.sets.get(id)?;
        let Route::Several(several) = &set.route else { return None };
        let (streams, carried) = (set.streams.len(), set.streams.carried);
        Some(SetNumbers { streams, carried, ..several.numbers(&self.circuits, &self.channels) })
    }

    /// All legs of sets.
    pub(crate) fn legs_of_sets(&self) -> impl Iterator<Item = LegNumbers> {
        self.all_several().flat_map(|(_, several)| several.legs(&self.circuits, &self.channels))
    }

    /// The most bytes that ever waited in one set for messages of other legs.
    pub(crate) fn most_reordered(&self) -> usize {
        let living = self.all_several().map(|(_, several)| several.end.waiting().most());
        living.max().unwrap_or_default().max(self.most_reordered)
    }

    /// What has to do with several legs, of all sets that may have them, by their numbers.
    fn all_several(&self) -> impl Iterator<Item = (u32, &Several)> {
        self.sets.numbered().filter_map(|(id, set)| match &set.route {
            Route::One(_) => None,
            Route::Several(several) => Some((id, &**several)),
        })
    }

    /// Takes what waited, as long as it is next and the set lives: any message may end it.
    fn take_waiting(&mut self, now: Time, id: SetId, index: u32) {
        while let Some(held) = self.several(id).and_then(|several| several.end.pop()) {
            let circuit = self.several(id).and_then(|several| several.circuit(held.leg));
            let leg = circuit.is_some().then_some(held.leg);
            self.set_mut(id).into_iter().for_each(|set| set.streams.comes_by(leg));
            let circuit = circuit.unwrap_or(index);
            let (command, stream) = (held.command, held.stream);
            let message = Message { command, stream, data: &held.data };
            if let Err(fault) = R::take_set_message(self, now, circuit, message) {
                self.break_off(circuit, fault);
            }
        }
    }

    /// Streams rest while much waits for messages that have not come, in their set or in all, and
    /// go on then.
    fn rest_or_go_on(&mut self, now: Time, id: SetId) {
        let scarce = self.is_scarce();
        let Some(Set { streams, route: Route::Several(several) }) = self.sets.get_mut(id.0) else {
            return;
        };
        if let Some(rest) = several.rest_changed(scarce) {
            streams.rest(now, rest);
        }
    }

    /// The legs of a set, if it may have several.
    pub(crate) fn several(&mut self, id: SetId) -> Option<&mut Several> {
        self.set_mut(id).and_then(Set::several)
    }

    /// A circuit is gone, and with it its set if that was the only leg, or if what was on it is
    /// lost. `unacknowledged` says whether data was under way on it.
    pub(crate) fn leave_set(&mut self, id: SetId, circuit: u32, unacknowledged: bool) {
        let Some(Set { streams, route: Route::Several(several) }) = self.sets.get_mut(id.0) else {
            return self.dissolve(id);
        };
        several.leg(circuit).into_iter().for_each(|leg| streams.lost(leg));
        if several.lose(circuit, unacknowledged) == Fate::Dies {
            self.end_set(id, Why::Set);
        }
    }

    /// Ends a set of several legs, its streams and all its circuits.
    pub(crate) fn end_set(&mut self, id: SetId, why: Why) {
        self.several(id).into_iter().for_each(|several| several.end.die());
        self.recount(id);
        let Some(several) = self.several(id) else { return };
        let most = several.end.waiting().most();
        let (nonce, circuits) = (*several.end.nonce(), several.circuits().collect::<Vec<_>>());
        self.most_reordered = self.most_reordered.max(most);
        R::set_ended(self, id, &nonce);
        self.dissolve(id);
        circuits.into_iter().for_each(|circuit| R::give_up(self, circuit, why));
    }

    /// Legs whose other end has not answered in time are closed.
    pub(super) fn look_for_late_legs(&mut self, now: Time, id: SetId) {
        let Some(several) = self.several(id) else { return };
        let late: Vec<PathId> = several.end.late(now).collect();
        let circuits: Vec<u32> = late.iter().filter_map(|leg| several.circuit(*leg)).collect();
        circuits.into_iter().for_each(|circuit| R::give_up(self, circuit, Why::Unlinked));
        self.await_links(id);
    }

    /// The other end has so long to answer what was said to link a leg.
    pub(crate) fn await_links(&mut self, id: SetId) {
        let due = self.several(id).and_then(|several| several.end.next_timeout());
        self.timers.extend(due.map(|time| (time, Timer::Linking(id))));
    }
}

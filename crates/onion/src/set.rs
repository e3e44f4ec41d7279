//! A set: the parallel circuits (legs) between this end and one other end, and the streams that
//! take turns to send on them.
//!
//! The set has the streams, their IDs and their turns. Each leg is a circuit with its own keys,
//! window, SENDME tags and queue. A set of one leg needs no scheduler. [`SetLegs`] is the state
//! for several legs.

use std::sync::Arc;

use anabranch_multipath::{PathId, Time};
use anabranch_tcp::Congestion;

use crate::congestion::{Outlet, Params};
use crate::event::CircuitFault;
use crate::handshake::extension::AgreedFeatures;
use crate::stream::{Broken, Side};
use crate::streams::{Next, Streams};
use crate::wire::message::{Message, RelayCommand, read_end};
pub(crate) use circuit_sets::CircuitSets;
use lossy::LossyStreams;
use lossy_legs::LossyLegs;
pub(crate) use several::SetLegs;

mod circuit_sets;
pub(crate) mod lossy;
pub(crate) mod lossy_legs;
pub(crate) mod numbers;
mod several;
pub(crate) mod trunk;

/// Number of queued cells of a leg (parallel circuit) above which no bytes are read from streams
/// (C tor's `cellq_high`).
pub(crate) const QUEUE_HIGH: usize = 256;
/// Number of queued cells of a leg (parallel circuit) below which bytes are read from streams
/// again.
pub(crate) const QUEUE_LOW: usize = 128;

/// The streams between two ends, and the parallel circuits (legs) that carry them.
pub(crate) struct Set {
    pub(crate) streams: Streams,
    /// Streams over lossy cells (sent in datagrams); `None` if the set's circuit carries no such
    /// cells.
    pub(crate) lossy: Option<Box<LossyStreams>>,
    /// The circuits that carry the lossy cells (sent in datagrams), if the set may have several
    /// circuits. Messages that must stay in order use only the circuit in `route`.
    pub(crate) lossy_legs: Option<Box<LossyLegs>>,
    pub(crate) route: Route,
}

/// The circuit or circuits that carry a set's messages.
pub(crate) enum Route {
    /// One circuit, identified by its index in the node.
    One(u32),
    /// The parallel circuits (legs) of a set that can have several circuits.
    Several(Box<SetLegs>),
}

impl Set {
    /// Returns a set with the one circuit `leg`. `agreed` is the result of the circuit's
    /// handshake.
    pub(crate) fn new(side: Side, agreed: AgreedFeatures, params: &Arc<Params>, leg: u32) -> Set {
        let streams = Streams::new(side, agreed.sendme_inc.is_some(), params);
        let lossy = agreed.lossy.then(|| Box::new(LossyStreams::new(side)));
        Set { streams, lossy, lossy_legs: None, route: Route::One(leg) }
    }

    /// Sets the congestion control of the streams that are opened from now on over lossy cells
    /// (sent in datagrams).
    #[must_use]
    pub(crate) fn with_congestion(mut self, congestion: Congestion) -> Set {
        self.lossy.iter_mut().for_each(|lossy| lossy.set_congestion(congestion));
        self
    }

    /// Returns the next free ID for a stream that is opened at this end; `None` if all IDs are in
    /// use.
    pub(crate) fn next_id(&mut self) -> Option<u16> {
        for _ in 0..=u16::MAX {
            let id = self.streams.next_id()?;
            if self.lossy.as_ref().is_none_or(|lossy| !lossy.knows(id)) {
                return Some(id);
            }
        }
        None
    }

    /// Returns true if several lossy circuits (whose cells travel in datagrams) may be linked to
    /// this set. The set must have lossy cells and one circuit, and must never have had a stream.
    pub(crate) fn may_be_linked(&self) -> bool {
        let unused = self.lossy.as_ref().is_some_and(|lossy| !lossy.were_used());
        unused && self.lossy_legs.is_none() && !self.streams.were_used()
    }

    /// Returns the circuit for the next lossy cell (sent in a datagram); `None` if no circuit is
    /// available now. `slot` is the index of the leg (circuit of the set) that the stream's TCP
    /// connection has chosen. `slot` is `None` for a reset segment, and if TCP connections do not
    /// choose legs.
    pub(crate) fn choose_lossy(&mut self, now: Time, slot: Option<usize>) -> Option<u32> {
        match (&mut self.lossy_legs, &self.route) {
            (Some(legs), _) if legs.have_windows() => legs.circuit_at(slot.unwrap_or(0)),
            (Some(legs), _) => legs.choose(now),
            (None, Route::One(circuit)) => Some(*circuit),
            (None, Route::Several(_)) => None,
        }
    }

    /// Removes `circuit` from the parallel circuits (legs) that carry lossy cells (sent in
    /// datagrams). Returns false if no leg is left, or if the set cannot have several such legs.
    pub(crate) fn leave_lossy(&mut self, circuit: u32) -> bool {
        let Some(legs) = &mut self.lossy_legs else { return false };
        legs.lose(circuit);
        let Some(first) = legs.first() else { return false };
        if matches!(self.route, Route::One(only) if only == circuit) {
            self.route = Route::One(first);
        }
        true
    }

    /// Returns the state for several legs (parallel circuits); `None` if the circuit set can have
    /// only one leg.
    pub(crate) fn several(&mut self) -> Option<&mut SetLegs> {
        match &mut self.route {
            Route::One(_) => None,
            Route::Several(several) => Some(several),
        }
    }

    /// Returns true if the set has one circuit, which carries no lossy cells (sent in datagrams),
    /// and has no streams. The set of a circuit without lossy cells is always in this state at
    /// middle relays.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.route, Route::One(_)) && self.lossy.is_none() && self.streams.are_idle()
    }

    /// Returns true if the parallel circuits (legs) of the set carry the cells of another circuit
    /// (the trunk), which continues where the legs join.
    pub(crate) fn is_merged(&self) -> bool {
        matches!(&self.route, Route::Several(several) if several.trunk_state.is_some())
    }

    /// Returns the number of parallel circuits that both ends have linked to the set; `None` if
    /// the set can have only one circuit.
    pub(crate) fn linked(&self) -> Option<usize> {
        match &self.route {
            Route::One(_) => None,
            Route::Several(several) => Some(several.end.linked_legs()),
        }
    }

    /// Returns the leg (parallel circuit) for the next cells, their kind (such as DATA), and how
    /// many cells to send. Returns `None` if there is nothing to send, or if no leg has room.
    /// `waiting` is the approximate number of pending data cells.
    pub(crate) fn choose(&mut self, now: Time, waiting: u64) -> Option<(PathId, Next, u64)> {
        let Set { streams, route: Route::Several(several), .. } = self else { return None };
        if let Some(is_data) = several.next_again() {
            let leg = if is_data {
                several.assign(now, several.to_send_again().saturating_add(waiting))
            } else {
                several.control().map(|leg| (leg, 1))
            };
            if let Some((leg, cells)) = leg {
                return Some((leg, Next::Again, cells));
            }
        }
        if several.is_full() {
            return None;
        }
        if streams.have_leg_windows() {
            streams.may_go_by(several.legs_with_room());
        }
        let next = streams.next(now, several.next_again().is_none())?;
        if next == Next::Data
            && let Some((leg, cells)) = assign(now, streams, several, waiting)
        {
            return Some((leg, Next::Data, cells));
        }
        // If no leg takes data, other messages may still be sent, because no window counts them.
        let next = streams.next(now, false)?;
        let leg = match next {
            Next::Control { by: Some(leg), .. } => several.takes_control(leg)?,
            // C tor's `conflux_should_multiplex`: send the message on the leg of the data that
            // follows. If that leg has failed, BEGIN is lost too, and the timeout of BEGIN reveals
            // the failure. A stream that had been opened on another leg would wait forever.
            Next::Control { counted: true, .. } => several.counted_control(now)?,
            _ => several.control()?,
        };
        Some((leg, next, 1))
    }

    /// Returns the state of the queue of a leg (parallel circuit), for the leg's congestion
    /// control. `queued` is the number of cells in this queue.
    pub(crate) fn outlet(&self, queued: usize) -> Outlet {
        let blocked = queued >= QUEUE_HIGH;
        Outlet { queued: queued as u64, blocked, wanting: self.streams.is_wanting() }
    }

    /// Handles a message of a stream. The caller must have set the leg (parallel circuit) on which
    /// the message arrived with [`Streams::set_arrival_leg`].
    ///
    /// # Errors
    /// Returns the violation if the other end broke the protocol.
    pub(crate) fn take(&mut self, now: Time, message: Message<'_>) -> Result<(), CircuitFault> {
        if let Some(lossy) = self.lossy.as_mut().filter(|_| message.command == RelayCommand::END)
            && lossy.ended(message.stream, read_end(message.data).0)
        {
            return Ok(());
        }
        self.streams.take(now, message).map_err(|broken| match broken {
            Broken::Flood => CircuitFault::Flood,
            _ if message.command == RelayCommand::SENDME => CircuitFault::Sendme,
            _ => CircuitFault::Message,
        })
    }
}

/// Returns the leg (parallel circuit) for the next data cells, and how many cells to send on it.
/// If streams have a window on each leg, assigns one cell at a time, to a leg on which a stream
/// with data has room. Returns `None` if no leg can take a cell.
fn assign(
    now: Time,
    streams: &mut Streams,
    several: &mut SetLegs,
    waiting: u64,
) -> Option<(PathId, u64)> {
    match streams.have_leg_windows() {
        true => several.assign_one(now, |leg| streams.may_send_by(now, leg)),
        false => several.assign(now, waiting),
    }
}

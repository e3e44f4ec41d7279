//! What streams hang on: a set of legs that lead to one other end, and the streams in turn over
//! them.
//!
//! Streams, their IDs and their turns belong to the set. Keys, window, SENDME tags and queue belong
//! to each leg, which is a circuit. A set of one leg is the null case of the multi-path layer; what
//! it takes to have several is [`Several`].

use std::sync::Arc;

use anabranch_multipath::{PathId, Time};

use crate::congestion::{Outlet, Params};
use crate::event::CircuitFault;
use crate::handshake::extension::Agreed;
use crate::stream::{Broken, Side};
use crate::streams::{Next, Streams};
use crate::wire::message::{Message, RelayCommand};
pub(crate) use several::Several;

pub(crate) mod numbers;
pub(crate) mod passing;
mod several;

/// Cells of a leg that wait for its link before streams are asked for more (C tor's `cellq_high`).
pub(crate) const QUEUE_HIGH: usize = 256;
/// Below so many, they are asked.
pub(crate) const QUEUE_LOW: usize = 128;

/// The streams, and the legs that they go by.
pub(crate) struct Set {
    pub(crate) streams: Streams,
    pub(crate) route: Route,
}

/// By what a set's messages go.
pub(crate) enum Route {
    /// One circuit, by its number in the core.
    One(u32),
    /// Legs of a set that several may join.
    Several(Box<Several>),
}

impl Set {
    /// Of one leg, on which this was agreed.
    pub(crate) fn new(side: Side, agreed: Agreed, params: &Arc<Params>, leg: u32) -> Set {
        let streams = Streams::new(side, agreed.sendme_inc.is_some(), params);
        Set { streams, route: Route::One(leg) }
    }

    /// What it takes to have several legs, if it may.
    pub(crate) fn several(&mut self) -> Option<&mut Several> {
        match &mut self.route {
            Route::One(_) => None,
            Route::Several(several) => Some(several),
        }
    }

    /// Whether what goes by its legs is cells of a circuit beyond, whole.
    pub(crate) fn is_merged(&self) -> bool {
        matches!(&self.route, Route::Several(several) if several.passing.is_some())
    }

    /// How many legs are linked, if several may be.
    pub(crate) fn linked(&self) -> Option<usize> {
        match &self.route {
            Route::One(_) => None,
            Route::Several(several) => Some(several.end.linked_legs()),
        }
    }

    /// The leg that carries the next cells, what they are, and how many at most; `None` if there is
    /// nothing to send, or no leg takes it. About so many cells of data wait.
    pub(crate) fn choose(&mut self, now: Time, waiting: u64) -> Option<(PathId, Next, u64)> {
        let Set { streams, route: Route::Several(several) } = self else { return None };
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
            streams.may_go_by(several.open());
        }
        let next = streams.next(now, several.next_again().is_none())?;
        if next == Next::Data
            && let Some((leg, cells)) = assign(now, streams, several, waiting)
        {
            return Some((leg, Next::Data, cells));
        }
        // Where no leg takes data, what is none goes all the same: no window counts it.
        let next = streams.next(now, false)?;
        let leg = match next {
            Next::Control { by: Some(leg), .. } => several.takes_control(leg)?,
            // C tor's `conflux_should_multiplex`: it goes as the data that follows it will. A leg
            // that has fallen silent then swallows BEGIN as well, and is noticed by its timeout;
            // a stream that had opened by another leg would wait for ever.
            Next::Control { counted: true, .. } => several.counted_control(now)?,
            _ => several.control()?,
        };
        Some((leg, next, 1))
    }

    /// What a leg's congestion control is to know when `queued` cells wait for the leg's link.
    pub(crate) fn outlet(&self, queued: usize) -> Outlet {
        let blocked = queued >= QUEUE_HIGH;
        Outlet { queued: queued as u64, blocked, wanting: self.streams.is_wanting() }
    }

    /// Takes a message of a stream, which came by the leg that was told last.
    ///
    /// # Errors
    /// What the other end did that it may not do.
    pub(crate) fn take(&mut self, now: Time, message: Message<'_>) -> Result<(), CircuitFault> {
        self.streams.take(now, message).map_err(|broken| match broken {
            Broken::Flood => CircuitFault::Flood,
            _ if message.command == RelayCommand::SENDME => CircuitFault::Sendme,
            _ => CircuitFault::Message,
        })
    }
}

/// The leg of the next cells of data, and how many of them. Where streams have a window on each
/// leg, a cell at a time: only legs on which a stream with data has room take it.
fn assign(
    now: Time,
    streams: &mut Streams,
    several: &mut Several,
    waiting: u64,
) -> Option<(PathId, u64)> {
    match streams.have_leg_windows() {
        true => several.assign_one(now, |leg| streams.may_send_by(now, leg)),
        false => several.assign(now, waiting),
    }
}

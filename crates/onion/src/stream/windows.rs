//! Flow control of a stream by fixed windows and SENDMEs (tor-spec, "Stream-level flow control").
//! It is used on circuits without congestion control.

use std::time::Duration;

use anabranch_multipath::{PathId, Time};

use super::{ArrivedCell, Broken, Flow, Replies};
use crate::congestion::{Control, Fixed, Outlet};
use crate::wire::message::{DATA, RelayCommand};

/// Maximum number of received bytes waiting for the local program at which SENDMEs still reopen
/// the peer's window. If more bytes wait, no SENDME is sent.
const READ_SLOWLY: usize = 10 * DATA;

/// Fixed windows for both directions of one stream.
pub(super) struct Windows {
    send: Fixed,
    /// Number of DATA cells that the peer may still send.
    left: u64,
}

impl Windows {
    pub(super) fn new() -> Windows {
        Windows { send: Fixed::stream(), left: Fixed::stream().window() }
    }

    /// Reopens the peer's window with one SENDME for each `sendme_inc` received cells. Sends none
    /// while more than [`READ_SLOWLY`] bytes wait for the program.
    fn open(&mut self, waiting: usize, replies: &mut Replies<'_>) {
        let (step, whole) = (self.send.sendme_inc(), self.send.window());
        while self.left + step <= whole && waiting <= READ_SLOWLY {
            self.left += step;
            replies.push(RelayCommand::SENDME, Vec::new());
        }
    }
}

impl Flow for Windows {
    fn may_send(&mut self, _now: Time, _by: &[PathId]) -> bool {
        self.send.room() > 0
    }

    fn wake_at(&self) -> Option<Time> {
        None
    }

    fn sent(&mut self, _by: PathId, _bytes: usize) {
        self.send.sent();
    }

    fn received(
        &mut self,
        _now: Time,
        ArrivedCell { waiting, .. }: ArrivedCell,
        replies: &mut Replies<'_>,
    ) -> Result<(), Broken> {
        self.left = self.left.checked_sub(1).ok_or(Broken::Flood)?;
        self.open(waiting, replies);
        Ok(())
    }

    /// Does nothing: the peer need not be asked to pause, because a fixed window always limits its
    /// data.
    fn set_paused(&mut self, _: Time, _: bool, _: usize, _: &mut Replies<'_>) {}

    fn consumed(&mut self, _now: Time, _bytes: usize, waiting: usize, replies: &mut Replies<'_>) {
        self.open(waiting, replies);
    }

    fn acknowledged(&mut self, _by: PathId) -> Result<(), Broken> {
        // A fixed window does not depend on the round-trip time.
        let owed = self.send.acknowledged(Duration::ZERO, Outlet::default());
        if owed { Ok(()) } else { Err(Broken::OutOfPlace) }
    }

    fn set_rate(&mut self, _now: Time, _rate: Option<u32>) -> Result<(), Broken> {
        Err(Broken::OutOfPlace)
    }
}

//! The queues in which a session's datagrams wait.

use anabranch_multipath::{Backlog, DelayQueue, Jitter, Time, seed};

use super::copies::HeldTraffic;
use super::send::Run;
use crate::config::Config;
use crate::waiting::{QueuedDatagram, WaitQueue};
use crate::{Batch, SessionId};

/// The datagrams of one session that wait to be sent.
#[derive(Debug)]
pub(super) struct Queues {
    /// Datagrams that are delayed before they are assigned to paths; `None` if the settings demand
    /// no delay.
    delay: Option<Box<DelayQueue<QueuedDatagram>>>,
    /// Datagrams that wait for a usable path, or for the server's address.
    pub(super) waiting: WaitQueue,
    /// Datagrams that wait for room in a congestion window.
    pub(super) backlog: Backlog<QueuedDatagram>,
    /// Datagrams that are held while a copy of the first of them, sent to test a path that is
    /// down, is in flight. `None` if no such copy is in flight.
    pub(super) held: Option<HeldTraffic>,
}

impl Queues {
    pub(super) fn new(id: SessionId, config: &Config) -> Queues {
        Queues {
            delay: delay(id, config),
            waiting: WaitQueue::default(),
            backlog: Backlog::default(),
            held: None,
        }
    }

    /// Returns the number of datagrams that wait for a path.
    pub(super) fn len(&self) -> usize {
        let delayed = self.delay.as_ref().map_or(0, |delay| delay.len());
        delayed + self.waiting.len() + self.backlog.len()
    }

    /// Applies the delay in the present settings to later datagrams. Queued datagrams keep their
    /// due times.
    pub(super) fn delay_as(&mut self, id: SessionId, config: &Config) {
        match (&mut self.delay, config.jitter) {
            (Some(delay), jitter) => delay.set(jitter.unwrap_or(Jitter::NONE)),
            (None, _) => self.delay = delay(id, config),
        }
    }

    /// Queues the datagrams of a batch to delay them before they are assigned to paths. The queue
    /// holds at most `limit` bytes. Returns false if the settings demand no delay.
    pub(super) fn delays(&mut self, now: Time, batch: &Batch<'_>, limit: usize) -> bool {
        let Some(delay) = &mut self.delay else { return false };
        for index in 0..batch.count() {
            let queued = QueuedDatagram::new(now, batch, index);
            let length = queued.bytes.len();
            delay.push(now, (queued, length), limit);
        }
        true
    }

    /// Removes and returns the next datagram whose delay is over; `None` if there is none.
    pub(super) fn pop_delayed(&mut self, now: Time) -> Option<QueuedDatagram> {
        self.delay.as_mut()?.pop(now)
    }

    /// Returns the number of datagrams that left the delay queue early since the last call,
    /// because the queue was full. Also removes the delay queue if it is empty and the settings no
    /// longer demand a delay.
    pub(super) fn take_hurried(&mut self, config: &Config) -> u64 {
        let hurried = self.delay.as_mut().map_or(0, |delay| delay.take_hurried());
        self.delay.take_if(|delay| config.jitter.is_none() && delay.is_empty());
        hurried
    }

    /// Appends the datagrams of `run` to the queue that waits for room in a congestion window. The
    /// queue holds at most `limit` bytes. Returns the number of dropped datagrams.
    pub(super) fn await_window(&mut self, now: Time, run: Run<'_>, limit: usize) -> u64 {
        for index in run.at..run.at + run.count {
            let queued = QueuedDatagram::new(now, run.batch, index);
            let length = queued.bytes.len();
            self.backlog.push(now, (queued, length), limit);
        }
        self.backlog.take_dropped()
    }

    /// Drops the datagrams that wait for room in a congestion window. Returns their number.
    pub(super) fn drop_backlog(&mut self) -> u64 {
        std::mem::take(&mut self.backlog).len() as u64
    }

    /// Returns when the next datagrams are due: delayed or held datagrams to be sent, or datagrams
    /// that have waited too long for a path. Returns `None` if there are none. Datagrams that wait
    /// for a congestion window have no due time.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        let delayed = self.delay.as_ref().and_then(|delay| delay.next_due());
        let held = self.held.as_ref().map(HeldTraffic::due);
        [self.waiting.next_timeout(), held, delayed].into_iter().flatten().min()
    }
}

/// Returns the queue that delays the session's datagrams; `None` if the settings demand no delay.
fn delay(id: SessionId, config: &Config) -> Option<Box<DelayQueue<QueuedDatagram>>> {
    let stream = seed::stream(config.seed, id.0, "jitter");
    config.jitter.map(|jitter| Box::new(DelayQueue::new(jitter, stream)))
}

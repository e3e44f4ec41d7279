//! A stream at either end of a circuit: bytes that wait for cells, bytes that wait for a program, and what keeps both few.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use anabranch_multipath::Time;

use crate::congestion::{Control, Fixed, Outlet, Params};
use crate::wire::message::{DATA, EndReason, RelayCommand, put_xon};
use rates::Rates;

mod rates;

/// A stream's number in its core: counts up from 1, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey(pub u64);

/// Bytes that may wait for cells.
const OUTGOING: usize = 128 * DATA;
/// A program that leaves more bytes than this waiting gets no further window (tor-spec, "Stream-level flow control").
const READ_SLOWLY: usize = 10 * DATA;

/// Which end of the circuit the stream has here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Exit,
}

/// What the peer did that no honest one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// More data than any window allows.
    Flood,
    /// A message that this stream cannot have at this point.
    OutOfPlace,
    /// A message that cannot be read.
    Malformed,
}

/// A message that does not count as data, to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Say {
    pub(crate) command: RelayCommand,
    pub(crate) stream: u16,
    pub(crate) data: Vec<u8>,
}

/// One end of a stream.
pub(crate) struct Stream {
    pub(crate) key: StreamKey,
    /// Whether the peer agreed to it (client), or its destination was reached (exit).
    pub(crate) open: bool,
    side: Side,
    id: u16,
    outgoing: VecDeque<u8>,
    /// The END that follows the outgoing bytes.
    ending: Option<EndReason>,
    pub(crate) incoming: VecDeque<u8>,
    flow: Flow,
    /// The program heard "no room" and waits.
    starved: bool,
}

enum Flow {
    /// SENDMEs of the stream: without congestion control.
    Windows {
        send: Fixed,
        /// DATA cells that the peer may still send.
        left: u64,
    },
    /// XON and XOFF (proposal 324, section 4).
    Rates(Rates),
}

impl Stream {
    /// A stream that is being opened.
    pub(crate) fn new(
        key: StreamKey,
        id: u16,
        side: Side,
        congestion_control: bool,
        params: &Arc<Params>,
    ) -> Stream {
        let flow = match congestion_control {
            true => Flow::Rates(Rates::new(side, params)),
            false => Flow::Windows { send: Fixed::stream(), left: Fixed::stream().window() },
        };
        Stream {
            key,
            id,
            open: false,
            side,
            outgoing: VecDeque::new(),
            ending: None,
            incoming: VecDeque::new(),
            flow,
            starved: false,
        }
    }

    /// Takes bytes of the program, as many as there is room for.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        let room =
            if self.ending.is_some() { 0 } else { OUTGOING.saturating_sub(self.outgoing.len()) };
        let taken = room.min(bytes.len());
        self.outgoing.extend(&bytes[..taken]);
        self.starved = taken < bytes.len() || self.outgoing.len() >= OUTGOING;
        taken
    }

    /// No more bytes will come from the program.
    pub(crate) fn end(&mut self, reason: EndReason) {
        self.ending = Some(reason);
    }

    /// Whether a DATA cell may go now.
    pub(crate) fn has_data(&mut self, now: Time) -> bool {
        let may = match &mut self.flow {
            Flow::Windows { send, .. } => send.room() > 0,
            Flow::Rates(rates) => rates.may_send(now),
        };
        self.may_begin() && may && !self.outgoing.is_empty()
    }

    /// Whether bytes wait that will go sooner or later.
    pub(crate) fn is_wanting(&self) -> bool {
        self.may_begin() && !self.outgoing.is_empty()
    }

    /// A client's bytes need not wait for the exit's answer: they follow BEGIN.
    fn may_begin(&self) -> bool {
        self.open || self.side == Side::Client
    }

    /// When a stream that may not send now should be asked again.
    pub(crate) fn wake_at(&self) -> Option<Time> {
        match &self.flow {
            Flow::Rates(rates) if self.is_wanting() => rates.wake_at(),
            _ => None,
        }
    }

    /// Writes a DATA cell's data and returns its length; `true` if the program may write again.
    pub(crate) fn fill(&mut self, data: &mut [u8]) -> (usize, bool) {
        let length = self.outgoing.len().min(data.len());
        let (front, back) = self.outgoing.as_slices();
        let first = front.len().min(length);
        data[..first].copy_from_slice(&front[..first]);
        data[first..length].copy_from_slice(&back[..length - first]);
        self.outgoing.drain(..length);
        match &mut self.flow {
            Flow::Windows { send, .. } => send.sent(),
            Flow::Rates(rates) => rates.sent(length),
        }
        let fed = self.starved && self.outgoing.len() <= OUTGOING / 2;
        self.starved &= !fed;
        (length, fed)
    }

    /// The END that is due: all bytes before it have gone.
    pub(crate) fn due_end(&self) -> Option<EndReason> {
        self.ending.filter(|_| self.outgoing.is_empty())
    }

    /// Takes the data of a DATA cell; returns whether the program had nothing to read before.
    pub(crate) fn received(
        &mut self,
        now: Time,
        data: &[u8],
        say: &mut VecDeque<Say>,
    ) -> Result<bool, Broken> {
        if let Flow::Windows { left, .. } = &mut self.flow {
            *left = left.checked_sub(1).ok_or(Broken::Flood)?;
        }
        let woke = self.incoming.is_empty() && !data.is_empty();
        self.incoming.extend(data);
        let waiting = self.incoming.len();
        match &mut self.flow {
            Flow::Windows { .. } => self.open_window(say),
            Flow::Rates(rates) => {
                if rates.is_flooded(waiting) {
                    return Err(Broken::Flood);
                }
                if rates.filled(now, waiting) {
                    say.push_back(Say {
                        command: RelayCommand::XOFF,
                        stream: self.id,
                        data: vec![0],
                    });
                }
            }
        }
        Ok(woke)
    }

    /// The program took bytes.
    pub(crate) fn consumed(&mut self, now: Time, bytes: usize, say: &mut VecDeque<Say>) {
        self.incoming.drain(..bytes.min(self.incoming.len()));
        let waiting = self.incoming.len();
        match &mut self.flow {
            Flow::Windows { .. } => self.open_window(say),
            Flow::Rates(rates) => {
                if let Some(rate) = rates.drained(now, bytes, waiting) {
                    let data = put_xon(rate).to_vec();
                    say.push_back(Say { command: RelayCommand::XON, stream: self.id, data });
                }
            }
        }
    }

    /// A stream's SENDME came.
    pub(crate) fn acknowledged(&mut self) -> Result<(), Broken> {
        let Flow::Windows { send, .. } = &mut self.flow else { return Err(Broken::OutOfPlace) };
        // A fixed window does not ask how long that took.
        let owed = send.acknowledged(Duration::ZERO, Outlet::default());
        if owed { Ok(()) } else { Err(Broken::OutOfPlace) }
    }

    /// XOFF (`None`) or XON with a rate in kilobytes a second (0: no limit) came.
    pub(crate) fn told_rate(&mut self, now: Time, rate: Option<u32>) -> Result<(), Broken> {
        match &mut self.flow {
            Flow::Rates(rates) => rates.told(now, rate),
            Flow::Windows { .. } => Err(Broken::OutOfPlace),
        }
    }

    /// Gives the peer a further piece of window for each piece that the program has read.
    fn open_window(&mut self, say: &mut VecDeque<Say>) {
        let Flow::Windows { send, left } = &mut self.flow else { return };
        let (step, whole) = (send.sendme_inc(), send.window());
        while *left + step <= whole && self.incoming.len() <= READ_SLOWLY {
            *left += step;
            say.push_back(Say { command: RelayCommand::SENDME, stream: self.id, data: Vec::new() });
        }
    }
}

//! A connection: the state machine of RFC 9293, section 3.3.2.

mod arrival;
mod handshake;
mod output;
mod stamps;

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_multipath::{Core, LinkView, Time};

use crate::config::Config;
use crate::receiver::Receiver;
use crate::segment::Segment;
use crate::sender::Sender;
use crate::seq::Seq;
use crate::stats::Stats;
use crate::timers::Timers;
use stamps::Stamps;

/// State of a connection (RFC 9293, section 3.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// This side has sent a SYN.
    SynSent,
    /// This side has received a SYN and answered it.
    SynReceived,
    /// Data flows in both directions.
    Established,
    /// This side has closed the connection; its FIN is not acknowledged yet.
    FinWait1,
    /// This side has closed the connection, and its FIN is acknowledged.
    FinWait2,
    /// The peer has closed its side of the connection.
    CloseWait,
    /// Both sides have closed at the same time; the FIN of this side is not acknowledged yet.
    Closing,
    /// The peer has closed first, then this side; the FIN of this side is not acknowledged yet.
    LastAck,
    /// Both sides have closed; old segments may still arrive.
    TimeWait,
    /// The connection has ended.
    Closed,
}

/// The reason why a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// Both sides have closed the connection.
    Finished,
    /// The peer refused the connection.
    Refused,
    /// The peer reset the connection.
    Reset,
    /// The peer has not answered in time.
    TimedOut,
    /// This side aborted the connection.
    Aborted,
}

/// The ports of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Port of this side.
    pub local: u16,
    /// Port of the peer.
    pub remote: u16,
}

/// A TCP connection.
#[derive(Debug)]
pub struct Connection {
    mss: u16,
    scale: u8,
    offers: Offers,
    ports: Ports,
    state: State,
    ending: Option<Ending>,
    /// Initial sequence number of this side.
    iss: Seq,
    irs: Seq,
    sender: Sender,
    receiver: Receiver,
    stamps: Stamps,
    /// Window scale that the peer announced: the left shift, in bits, of the windows in the peer's
    /// segments.
    peer_scale: u8,
    timers: Timers,
    /// Segments without data that the next calls of `poll` return: challenge acknowledgements and
    /// resets.
    outbox: VecDeque<Segment>,
    /// Whether a SYN must be sent now.
    syn_due: bool,
    syn_count: u32,
    syn_sent: Time,
    /// Whether the first SYN is sent twice.
    copies_syn: bool,
    /// Whether the copy of the first SYN must be sent now.
    copy_due: bool,
    fast_open: FastOpen,
    /// Segments with data that have overtaken the peer's SYN-ACK.
    ahead: Vec<Segment>,
    last_heard: Time,
    last_poll: Time,
    last_challenge: Option<Time>,
    /// Whether segments with old timestamps are dropped.
    paws: bool,
    /// Path (leg) for the next segments without data: the path of the last arrival, or the path
    /// set by [`answer_by`](Connection::answer_by).
    leg: usize,
}

/// State of a connection whose SYN may carry data (RFC 7413).
#[derive(Clone, Copy, Debug, Default)]
struct FastOpen {
    enabled: bool,
    /// Number of data bytes in this side's SYN.
    sent: u32,
    /// Whether the peer's SYN carried data. If so, we may send data before the handshake is
    /// complete.
    received: bool,
}

/// The options that this side's SYN offers.
#[derive(Clone, Copy, Debug)]
struct Offers {
    sack: bool,
    window_scaling: bool,
}

impl Connection {
    /// Opens a connection with a SYN, which [`poll`](Core::poll) returns. `iss` is the
    /// initial sequence number, which should be hard to guess (RFC 6528).
    pub fn connect(now: Time, config: &Config, ports: Ports, iss: Seq) -> Connection {
        let mut connection = Connection::new(now, config, ports, iss);
        connection.syn_due = true;
        connection
    }

    fn new(now: Time, config: &Config, ports: Ports, iss: Seq) -> Connection {
        Connection {
            mss: config.mss,
            scale: handshake::scale_for(config),
            offers: Offers { sack: config.sack, window_scaling: config.window_scaling },
            ports,
            state: State::SynSent,
            ending: None,
            iss,
            irs: Seq(0),
            sender: Sender::new(config),
            receiver: Receiver::new(config),
            stamps: Stamps::new(config.timestamps, config.timestamp_offset),
            peer_scale: 0,
            timers: Timers::default(),
            outbox: VecDeque::new(),
            syn_due: false,
            syn_count: 0,
            syn_sent: now,
            copies_syn: config.syn_copy,
            copy_due: false,
            fast_open: FastOpen { enabled: config.fast_open, ..FastOpen::default() },
            ahead: Vec::new(),
            last_heard: now,
            last_poll: now,
            last_challenge: None,
            paws: config.paws,
            leg: 0,
        }
    }

    /// Opens the paths (legs) whose bits are set in `open`, and closes all other paths. Segments
    /// in flight on a closed path count as lost. All paths are open at first. Bits beyond
    /// [`Config::legs`] are ignored.
    pub fn set_legs(&mut self, open: u8) {
        self.sender.set_legs(open);
    }

    /// Sets the expected round-trip time of the path `leg`, which holds until the first
    /// measurement. The value may be the round-trip time of another connection on the same path
    /// (RFC 9040). The first retransmission timeout depends on `rtt`.
    pub fn expect_rtt(&mut self, leg: usize, rtt: Duration) {
        self.sender.expect_rtt(leg, rtt);
    }

    /// Returns the round-trip time of the path `leg`; `None` if it was not measured.
    pub fn leg_rtt(&self, leg: usize) -> Option<Duration> {
        self.sender.leg_rtt(leg)
    }

    /// Sets `leg` as the path for the next segments without data.
    /// [`handle_by`](Connection::handle_by) also sets it.
    pub fn answer_by(&mut self, leg: usize) {
        self.leg = leg;
    }

    /// Appends `bytes` to the stream, up to the room in the send buffer. Returns the number of
    /// bytes accepted.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        match self.state {
            State::SynSent | State::SynReceived | State::Established | State::CloseWait => {
                self.sender.write(bytes)
            }
            _ => 0,
        }
    }

    /// Returns the number of bytes that [`write`](Connection::write) accepts now.
    pub fn room(&self) -> usize {
        self.sender.room()
    }

    /// Moves received bytes into `into`. Returns their number.
    pub fn read(&mut self, into: &mut [u8]) -> usize {
        self.receiver.read(into)
    }

    /// Moves all received bytes to the end of `into`.
    pub fn read_all(&mut self, into: &mut Vec<u8>) {
        self.receiver.read_all(into);
    }

    /// Returns the bytes that can be read, in two consecutive parts.
    pub fn peek(&self) -> (&[u8], &[u8]) {
        self.receiver.peek()
    }

    /// Removes the first `bytes` bytes of [`peek`](Connection::peek) from the receive buffer.
    pub fn consume(&mut self, bytes: usize) {
        self.receiver.consume(bytes);
    }

    /// Returns the number of bytes that can be read.
    pub fn readable(&self) -> usize {
        self.receiver.readable()
    }

    /// Returns the number of bytes in memory, in both directions: written bytes that the peer has
    /// not acknowledged, and received bytes that were not read.
    pub fn held(&self) -> usize {
        let ahead: usize = self.ahead.iter().map(|segment| segment.payload.len()).sum();
        self.sender.held() + self.receiver.held() + ahead
    }

    /// Returns a range of data that arrived before earlier data: its offset in the stream, from 0,
    /// and its bytes. Each byte is returned only once by this function, and again by
    /// [`read`](Connection::read) when it is in order. If [`Config::out_of_order`] is not set,
    /// always returns `None`.
    pub fn read_out_of_order(&mut self) -> Option<(u64, Vec<u8>)> {
        // The SYN occupies the first offset of the sequence space.
        self.receiver.read_out_of_order().map(|(offset, bytes)| (offset - 1, bytes))
    }

    /// Closes this side of the stream: a FIN follows the written data. Received data can still be
    /// read until the peer closes, without a time limit. In the state SYN-SENT, ends the
    /// connection at once.
    pub fn close(&mut self) {
        if self.state == State::SynSent {
            return self.end(Ending::Finished);
        }
        self.sender.close();
        self.state = match self.state {
            State::SynReceived | State::Established => State::FinWait1,
            State::CloseWait => State::LastAck,
            other => other,
        };
    }

    /// Ends the connection at once by a reset (RFC 9293, section 3.10.5).
    pub fn abort(&mut self) {
        if !matches!(self.state, State::SynSent | State::TimeWait | State::Closed) {
            let reset = self.reset_segment();
            self.outbox.push_back(reset);
        }
        self.end(Ending::Aborted);
    }

    fn end(&mut self, ending: Ending) {
        self.state = State::Closed;
        self.ending.get_or_insert(ending);
        self.timers.clear();
        (self.syn_due, self.copy_due) = (false, false);
        self.ahead.clear();
    }

    /// Returns the state of the connection.
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the reason why the connection has ended; `None` while it lasts.
    pub fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// Returns the ports of the connection.
    pub fn ports(&self) -> Ports {
        self.ports
    }

    /// Returns whether the handshake is complete and the connection has not ended. A connection
    /// that was closed during the handshake counts as open, too (FIN-WAIT-1).
    pub fn is_open(&self) -> bool {
        !matches!(self.state, State::SynSent | State::SynReceived | State::Closed)
    }

    /// Returns whether the peer has closed its side and all of its data have arrived.
    pub fn is_finished(&self) -> bool {
        self.receiver.is_finished()
    }

    /// Returns the connection's counters.
    pub fn stats(&self) -> Stats {
        self.sender.stats
    }

    /// Returns the slow-start threshold in segments; `None` before the first loss.
    pub fn ssthresh(&self) -> Option<u32> {
        Some(self.sender.ssthresh()).filter(|&ssthresh| ssthresh < u32::MAX)
    }

    /// Returns the retransmission timeout.
    pub fn rto(&self) -> Duration {
        self.sender.rtt().rto()
    }

    /// Returns the state of the connection as Linux's `TCP_INFO` would report it.
    pub fn view(&self, now: Time) -> LinkView {
        let sender = &self.sender;
        LinkView {
            snd_cwnd: sender.cwnd(),
            unacked: sender.unacked(),
            mss: u32::try_from(sender.mss()).unwrap_or(u32::MAX),
            notsent: u32::try_from(sender.unsent()).unwrap_or(u32::MAX),
            rtt: sender.rtt().srtt().unwrap_or_default(),
            delivery_rate: sender.delivery_rate(),
            since_ack: now.since(self.last_heard),
            ..LinkView::default()
        }
    }

    /// Enters the state that follows from the progress of the sending and the receiving half. In
    /// LAST-ACK, ends the connection once the FIN of this side is acknowledged.
    fn settle(&mut self, now: Time) {
        let (sent, received) = (self.sender.is_finished(), self.receiver.is_finished());
        let next = match (self.state, sent, received) {
            (State::Established, _, true) => State::CloseWait,
            (State::FinWait1, true, false) => State::FinWait2,
            (State::FinWait1, false, true) => State::Closing,
            (State::FinWait1 | State::FinWait2 | State::Closing, true, true) => State::TimeWait,
            (State::LastAck, true, _) => return self.end(Ending::Finished),
            (other, ..) => other,
        };
        if next == self.state {
            return;
        }
        self.state = next;
        if next == State::TimeWait {
            self.wait_for_old_segments(now);
        }
    }
}

/// Inputs are segments of the peer, whose ports must match the ports of the connection. Outputs
/// are segments to send. The caller must also call `poll` after [`write`](Connection::write) and
/// [`read`](Connection::read), because these may lead to further segments.
impl Core for Connection {
    type In<'a> = Segment;
    type Out = Segment;

    fn handle(&mut self, now: Time, segment: Segment) {
        match self.state {
            State::Closed => {}
            State::SynSent => self.handle_in_syn_sent(now, &segment),
            _ => self.handle_synchronized(now, segment),
        }
    }

    fn poll(&mut self, now: Time) -> Option<Segment> {
        self.poll_by(now, &mut |_, _| None).map(|(_, segment)| segment)
    }

    fn next_timeout(&self) -> Option<Time> {
        let paced = self.sender.paced_until(self.last_poll);
        self.timers.next().into_iter().chain(paced).min()
    }
}

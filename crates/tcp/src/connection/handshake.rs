//! The handshake (RFC 9293, sections 3.5 and 3.10.7.3).

use anabranch_multipath::Time;

use super::{Connection, Ending, Ports, State};
use crate::config::Config;
use crate::constants::{
    COPY_DIVISOR, DEFAULT_MSS, MAX_AHEAD, MAX_WINDOW_SCALE, MIN_MSS, SYN_RETRIES,
};
use crate::options::Timestamps;
use crate::receiver::Arrival;
use crate::segment::{Flags, Segment};
use crate::seq::Seq;
use crate::timers::Timer;

/// Length in bytes of the timestamps option, which each segment has if timestamps are enabled.
const STAMPS_LENGTH: u16 = 12;

/// Returns the window scale: the smallest shift with which the receive buffer's size fits into 16
/// bits.
pub(super) fn scale_for(config: &Config) -> u8 {
    if !config.window_scaling {
        return 0;
    }
    let fits = |&scale: &u8| config.receive_buffer >> scale <= 0xffff;
    (0..MAX_WINDOW_SCALE).find(fits).unwrap_or(MAX_WINDOW_SCALE)
}

impl Connection {
    /// Accepts the connection that `syn` requests. Returns `None` if `syn` is not a plain SYN. With
    /// [`Config::fast_open`] the data in `syn` can be read at once.
    pub fn accept(now: Time, config: &Config, iss: Seq, syn: &Segment) -> Option<Connection> {
        let flags = syn.flags;
        if !flags.has(Flags::SYN) || flags.has(Flags::ACK) || flags.has(Flags::RST) {
            return None;
        }
        let ports = Ports { local: syn.destination, remote: syn.source };
        let mut connection = Connection::new(now, config, ports, iss);
        connection.state = State::SynReceived;
        connection.take_syn(now, syn);
        connection.take_syn_data(now, syn);
        connection.syn_due = true;
        Some(connection)
    }

    /// Stores the data in the peer's SYN, if this connection accepts such data (RFC 7413, section
    /// 4.2.2).
    fn take_syn_data(&mut self, now: Time, syn: &Segment) {
        if !self.fast_open.enabled || syn.payload.is_empty() {
            return;
        }
        self.fast_open.received = true;
        let arrival = Arrival { start: 1, bytes: syn.payload.clone(), fin: false };
        self.receiver.take(now, arrival, &mut self.timers, &mut self.sender.stats);
    }

    /// Stores the initial sequence number, the options and the window from the peer's SYN.
    fn take_syn(&mut self, now: Time, syn: &Segment) {
        self.irs = syn.seq;
        self.last_heard = now;
        self.stamps.begin(now, syn.options.timestamps);
        self.offers.sack &= syn.options.sack_permitted;
        match syn.options.window_scale.filter(|_| self.offers.window_scaling) {
            Some(scale) => self.peer_scale = scale.min(MAX_WINDOW_SCALE),
            None => (self.peer_scale, self.scale) = (0, 0),
        }
        self.offers.window_scaling &= syn.options.window_scale.is_some();
        let mss = syn.options.mss.unwrap_or(DEFAULT_MSS).min(self.mss).max(MIN_MSS);
        let mss = if self.stamps.enabled { mss - STAMPS_LENGTH } else { mss };
        self.receiver.open(self.scale, self.offers.sack);
        self.stamps.last_ack = 1;
        self.sender.open(now, usize::from(mss), self.offers.sack, u64::from(syn.window));
    }

    /// Processes a segment in the state SYN-SENT.
    pub(super) fn handle_in_syn_sent(&mut self, now: Time, segment: &Segment) {
        let flags = segment.flags;
        let acknowledges = flags.has(Flags::ACK);
        // Number of bytes in our SYN that the peer has accepted.
        let taken = segment.ack.0.wrapping_sub((self.iss + 1).0);
        if acknowledges && (taken > self.fast_open.sent || self.syn_count == 0) {
            self.outbox.extend(segment.reset());
            return;
        }
        if flags.has(Flags::RST) {
            if acknowledges {
                self.end(Ending::Refused);
            }
            return;
        }
        if !flags.has(Flags::SYN) {
            return self.hold(segment);
        }
        self.take_syn(now, segment);
        if acknowledges {
            self.sender.take_syn_data(taken);
            self.establish(now, segment.options.timestamps);
            self.receiver.ack_now = true;
            let ahead = std::mem::take(&mut self.ahead);
            ahead.into_iter().for_each(|segment| self.handle_synchronized(now, segment));
        } else {
            // Both sides have opened the connection at the same time.
            self.state = State::SynReceived;
            self.syn_count = 0;
            self.syn_due = true;
        }
    }

    /// Keeps a segment that has overtaken the peer's SYN-ACK until the SYN-ACK arrives, if the
    /// peer may send data at once. Otherwise drops the segment (RFC 9293, section 3.10.7.3).
    fn hold(&mut self, segment: &Segment) {
        let has_data = segment.flags.has(Flags::ACK) && segment.length() > 0;
        if self.fast_open.enabled && has_data && self.ahead.len() < MAX_AHEAD {
            self.ahead.push(segment.clone());
        }
    }

    /// Establishes the connection, after the peer has acknowledged our SYN in a segment with the
    /// timestamps `stamps`. If the SYN was sent several times, these timestamps show the
    /// round-trip time (RFC 7323, section 4).
    pub(super) fn establish(&mut self, now: Time, stamps: Option<Timestamps>) {
        if self.state == State::SynSent || self.state == State::SynReceived {
            self.state = State::Established;
        }
        self.timers.stop(Timer::Handshake);
        self.timers.stop(Timer::SynCopy);
        (self.syn_due, self.copy_due) = (false, false);
        let rtt = match self.syn_count {
            1 => Some(now.since(self.syn_sent)),
            _ => stamps.and_then(|stamps| self.stamps.age(now, stamps)),
        };
        rtt.into_iter().for_each(|rtt| self.sender.sample(now, self.leg, rtt));
        if self.syn_count > 2 {
            self.sender.lost_syn();
        }
        self.sender.handshake_over(now, &mut self.timers);
    }

    /// Requests another transmission of the SYN after its timer has expired. If the SYN was
    /// already sent the maximum number of times, ends the connection.
    pub(super) fn repeat_syn(&mut self) {
        if self.syn_count > SYN_RETRIES {
            self.end(Ending::TimedOut);
        } else {
            self.syn_due = true;
        }
    }

    /// Returns the SYN to send, with an acknowledgement if the peer's SYN was received. Sets the
    /// time of its repetition.
    pub(super) fn syn(&mut self, now: Time) -> Segment {
        self.syn_due = false;
        let rtt = self.sender.rtt();
        self.timers.set(Timer::Handshake, now + rtt.doubled(self.syn_count));
        let copies = self.copies_syn && self.syn_count == 0 && self.state == State::SynSent;
        if let Some(rtt) = rtt.expected().filter(|_| copies) {
            self.timers.set(Timer::SynCopy, now + rtt / COPY_DIVISOR);
        }
        self.syn_count += 1;
        self.syn_sent = now;
        self.syn_segment(now)
    }

    /// Returns the SYN to send. A copy of the first SYN changes no timer, and is not counted. If
    /// only the copy arrives, the measured round-trip time is too long by the interval between the
    /// SYN and its copy.
    pub(super) fn syn_segment(&mut self, now: Time) -> Segment {
        self.copy_due = false;
        let answers = self.state != State::SynSent;
        let mut segment = self.segment(now, Flags::SYN, self.iss);
        segment.window = self.receiver.advertise_unscaled();
        segment.options.mss = Some(self.mss);
        segment.options.sack_permitted = self.offers.sack;
        segment.options.window_scale = self.offers.window_scaling.then_some(self.scale);
        if answers {
            segment.flags = Flags::SYN | Flags::ACK;
            segment.ack = self.irs.at(self.receiver.nxt().max(1));
            self.stamps.last_ack = self.receiver.nxt().max(1);
            if self.fast_open.received {
                self.receiver.acknowledged(now, false, &mut self.timers);
            }
        } else if self.fast_open.enabled {
            let room = usize::from(self.mss).saturating_sub(segment.options.length());
            segment.payload = self.sender.syn_data(room);
            self.fast_open.sent = self.fast_open.sent.max(segment.payload.len() as u32);
        }
        segment
    }
}

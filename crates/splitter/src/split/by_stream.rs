//! The driver's code for paths that are byte streams (TCP, TLS, proxies, OpenSSH): sending and
//! receiving, finished connection attempts, and reports to the protocol core.

use std::net::SocketAddr;

use anabranch_comps::{Failure, Input};
use anabranch_multipath::{Core as _, PathId, Time};
use anabranch_os::poller::Ready;
use anabranch_os::udp::Received;

use super::driver::Driver;
use super::onward::Outgoing;
use super::streams::Outcome;

impl Driver<'_> {
    /// Appends encrypted packets of the tunnel to the streams of their paths. If a stream has no
    /// room or no connection, drops the packets for it, as the kernel drops datagrams for a full
    /// socket.
    pub(super) fn send_by_stream(&mut self, now: Time, group: &[Outgoing<'_>]) {
        for outgoing in group {
            let streams = &mut self.uplinks.streams;
            let refused =
                outgoing.each().filter(|packet| !streams.push(now, outgoing.path, packet, false));
            let (packets, bytes) =
                refused.fold((0, 0), |(count, sum), packet| (count + 1, sum + packet.len()));
            if packets > 0 {
                let (session, tuple) = (outgoing.session, outgoing.tuple);
                let (datagrams, bytes, failure) = (packets, bytes as u64, Failure::Full);
                self.core.handle(now, Input::Failed { session, tuple, failure, datagrams, bytes });
            }
        }
    }

    /// Sends the packets that the tunnel itself originates, such as probes and handshakes. These
    /// packets are never dropped, however long they wait for room in a stream.
    pub(super) fn send_own_packets(&mut self, now: Time, packets: Vec<Outgoing<'static>>) {
        let streams = &mut self.uplinks.streams;
        let (by_stream, others): (Vec<_>, Vec<_>) =
            packets.into_iter().partition(|packet| streams.has(packet.path));
        for packet in by_stream {
            // A path without a connection sends nothing; it is being dialled.
            streams.push(now, packet.path, &packet.bytes, true);
        }
        self.send_as_is(now, &others);
        self.flush_streams(now);
    }

    /// Writes the queued packets of all streams to their sockets.
    pub(super) fn flush_streams(&mut self, now: Time) {
        let ended = self.uplinks.streams.flush(now, &self.poller);
        self.capture_streams(now);
        ended.into_iter().for_each(|(path, warning)| self.stream_ended(now, path, warning));
    }

    /// Handles the outcomes of dials, that is, of attempts to open the stream of a path.
    pub(super) fn on_dials(&mut self) {
        let now = self.clock.now();
        while let Some(outcome) = self.uplinks.streams.answer(now, &self.poller) {
            match outcome {
                Outcome::Opened(opened) => self.on_stream_opened(now, opened.path, &opened.rest),
                Outcome::Failed(warning) => self.report.warn(warning),
                Outcome::Moved(path, found) => self.on_hop_moved(now, path, &found),
            }
        }
        self.settle(now);
    }

    fn on_stream_opened(&mut self, now: Time, path: PathId, rest: &[u8]) {
        self.report_stream(now, path);
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.on_path(now, path);
        }
        if !rest.is_empty() {
            self.read_stream(now, path, Some(rest));
        }
        self.tend_tunnel(now);
    }

    fn on_hop_moved(&mut self, now: Time, path: PathId, found: &[SocketAddr]) {
        match self.uplinks.egress_table.redirect(path, found) {
            Some(look) => self.on_look(now, &look),
            None => {
                let warning = self.uplinks.streams.fail_move(now, path);
                self.report.warn(warning);
            }
        }
    }

    /// Handles a path's stream that is readable or writable.
    pub(super) fn on_stream(&mut self, path: PathId, event: Ready) {
        let now = self.clock.now();
        if event.write {
            let ended = self.uplinks.streams.flush_one(now, path, &self.poller);
            self.capture_streams(now);
            if let Some((path, warning)) = ended {
                return self.stream_ended(now, path, warning);
            }
        }
        if event.read {
            self.read_stream(now, path, None);
        }
    }

    /// Processes packets that the far end sent on the stream of `path`. `rest` contains bytes of
    /// the stream that were read earlier; if it is `None`, reads from the stream.
    fn read_stream(&mut self, now: Time, path: PathId, rest: Option<&[u8]>) {
        let Some(tunnel) = &mut self.tunnel else { return };
        let take = |packet: &[u8]| tunnel.open_one(now, path, packet);
        let streams = &mut self.uplinks.streams;
        let taken = match rest {
            Some(rest) => streams.take(now, path, rest, take),
            None => streams.read(now, path, take),
        };
        self.capture_streams(now);
        if let Err(warning) = taken {
            self.stream_ended(now, path, warning);
        }
        self.on_far_end(now, path, std::iter::empty::<Received<'_>>());
    }

    /// Passes the bytes that all streams have sent and received to the packet captures.
    fn capture_streams(&mut self, now: Time) {
        let recorded = self.uplinks.streams.take_recorded();
        recorded.iter().for_each(|seen| self.report.see_stream(now, seen));
    }

    /// Handles expired timers of streams: connects the paths whose next attempt is due, and closes
    /// connections on which the far end has not answered.
    pub(super) fn on_stream_time(&mut self, now: Time) {
        if self.uplinks.streams.next_timeout().is_none_or(|due| due > now) {
            return;
        }
        let ended = self.uplinks.streams.on_time(now, &self.uplinks.egress_table);
        ended.into_iter().for_each(|(path, warning)| self.stream_ended(now, path, warning));
    }

    fn stream_ended(&mut self, now: Time, path: PathId, warning: Option<String>) {
        self.report.warn(warning);
        self.report_stream(now, path);
        self.settle(now);
    }

    /// Reports to the protocol core whether a path's stream has a connection.
    pub(super) fn report_stream(&mut self, now: Time, path: PathId) {
        let broken = self.uplinks.streams.broken(path);
        self.report_path(now, path, broken);
    }
}

//! Sends datagrams to the server and to clients, and interprets the errors of sockets.

use std::io;

use anabranch_comps::{Failure, Input, SessionId, TupleId};
use anabranch_multipath::{Core as _, PathId, Time};
use anabranch_os::files;
use anabranch_os::udp::{Fault, SendReport};

use super::driver::Driver;
use super::onward::{Back, Outgoing, accepted, groups};
use super::sockets::PathSocket;
use crate::socks::{Association, Header};

impl Driver<'_> {
    /// Sends datagrams to the server without a tunnel. One system call sends consecutive datagrams
    /// for one socket.
    pub(super) fn send_as_is(&mut self, now: Time, outgoing: &[Outgoing<'_>]) {
        for range in groups(outgoing) {
            self.send_group(now, &outgoing[range]);
        }
        self.flush_streams(now);
    }

    fn send_group(&mut self, now: Time, group: &[Outgoing<'_>]) {
        let first = &group[0];
        if self.uplinks.streams.has(first.path) {
            return self.send_by_stream(now, group);
        }
        let key = (first.session, first.tuple, first.path);
        if self.uplinks.sockets.of(key.0, key.1).is_none() {
            match self.open(now, key) {
                Some(Ok(())) => {}
                Some(Err(failure)) => return self.fail_group(now, group, failure),
                None => return self.wait_for_relay(now, key, group),
            }
        }
        self.send_open(now, group);
    }

    /// Sends a group of datagrams to the server, through the open socket of their tuple (path and
    /// source port).
    fn send_open(&mut self, now: Time, group: &[Outgoing<'_>]) {
        let (session, tuple) = (group[0].session, group[0].tuple);
        let Some(socket) = self.uplinks.sockets.of(session, tuple) else { return };
        let header = socket.relay.as_ref().map(|relay| &relay.header);
        let wrapped: Option<Vec<_>> =
            header.map(|header| group.iter().map(|each| each.with_header(header)).collect());
        let added = header.map_or(0, Header::len);
        let group = wrapped.as_deref().unwrap_or(group);
        let in_parts = self.in_parts && socket.udp.allow_fragments(true).is_ok();
        let mut batch = self.uplinks.queue.batch(&socket.udp);
        group.iter().for_each(|outgoing| batch.push(outgoing.datagrams()));
        let report = batch.send();
        if in_parts {
            // Fragmentation was allowed a moment ago, so forbidding it again does not fail.
            let _ = socket.udp.allow_fragments(false);
        }
        for (outgoing, part) in accepted(group, &report) {
            self.report.see(now, socket, true, outgoing.part(part));
        }
        let failures = failures(&report);
        let lost = added > 0 && failures.iter().any(|failure| failure.0 == Failure::Refused);
        for (failure, datagrams, bytes) in failures {
            let bytes = bytes.saturating_sub(datagrams * added);
            self.fail(now, session, tuple, failure, datagrams, bytes);
        }
        // If the port of a relay is closed, the relay is lost: the proxy has ended, or has closed
        // our association.
        if let Some(token) = self.uplinks.sockets.token(session, tuple).filter(|_| lost) {
            self.lose(now, token);
        }
    }

    /// Opens the socket of a tuple (a path with one of its source ports). Returns `None` if the
    /// path has a proxy and the tuple must wait for an association (a UDP relay of the proxy).
    fn open(
        &mut self,
        now: Time,
        key: (SessionId, TupleId, PathId),
    ) -> Option<Result<(), Failure>> {
        match self.uplinks.proxies.has(key.2) {
            true => self.open_spare(now, key),
            false => Some(self.open_socket(now, key, None)),
        }
    }

    /// Opens the socket of a tuple (path and source port), connected to the server, or to a
    /// proxy's UDP relay if `by` is given.
    pub(super) fn open_socket(
        &mut self,
        now: Time,
        key: (SessionId, TupleId, PathId),
        by: Option<(Association, Time)>,
    ) -> Result<(), Failure> {
        let opened = self.uplinks.open(key, by, &self.poller).ok_or(Failure::Unreachable)?;
        match opened {
            Ok(local) => self.core.handle(now, Input::Opened { local }),
            Err(error) => return Err(self.cannot_open(&error)),
        }
        Ok(())
    }

    fn fail_group(&mut self, now: Time, group: &[Outgoing<'_>], failure: Failure) {
        let datagrams = group.iter().map(Outgoing::count).sum();
        let bytes = group.iter().map(|outgoing| outgoing.bytes.len()).sum();
        self.fail(now, group[0].session, group[0].tuple, failure, datagrams, bytes);
    }

    /// Converts the error of opening a socket. If no file descriptors are left, also shows a
    /// warning with the remedy, once.
    fn cannot_open(&mut self, error: &io::Error) -> Failure {
        if !files::ran_out(error) {
            return meaning(Fault::from_io(error));
        }
        let warning = self.report.warnings.no_files(files::limit());
        self.report.warn(warning);
        Failure::NoSocket
    }

    /// Sends datagrams to clients.
    pub(super) fn give_back(&mut self, back: &[Back<'_>]) {
        if let Some(ingress) = self.ingress.whole() {
            self.report.not_returned +=
                back.iter().map(|answer| ingress.take(&answer.run())).sum::<u64>();
            return;
        }
        let Some(port) = self.ingress.port().filter(|_| !back.is_empty()) else { return };
        let mut batch = self.uplinks.queue.batch(port);
        back.iter().for_each(|answer| batch.push(answer.datagrams()));
        // A client that is gone, or too slow to receive its datagrams, loses them as on any
        // network.
        self.report.not_returned += batch.send().failed() as u64;
    }

    /// Reports a failed send to the protocol core and, if the client is at an interface, to the
    /// client by ICMP. Then executes the core's outputs.
    pub(super) fn fail(
        &mut self,
        now: Time,
        session: SessionId,
        tuple: TupleId,
        failure: Failure,
        datagrams: usize,
        bytes: usize,
    ) {
        let (datagrams, bytes) = (datagrams as u64, bytes as u64);
        let width = self.uplinks.sockets.of(session, tuple).and_then(PathSocket::mtu);
        if failure == Failure::TooBig {
            self.warn_too_long(session, tuple, datagrams, bytes);
        }
        self.pass_on(session, width, failure);
        self.core.handle(now, Input::Failed { session, tuple, failure, datagrams, bytes });
        // The error itself makes the core emit an event, not a datagram. If datagrams of a timer
        // are due and fail, this function is called again for them, but they are not sent again.
        // So the recursion ends.
        self.settle(now);
    }

    fn warn_too_long(&mut self, session: SessionId, tuple: TupleId, datagrams: u64, bytes: u64) {
        let Some(socket) = self.uplinks.sockets.of(session, tuple) else { return };
        let (Some(length), Some(width)) = (bytes.checked_div(datagrams), socket.mtu()) else {
            return;
        };
        let egress = self.uplinks.egress_table.of(socket.path);
        let (path, room) = ((socket.path, &*egress.name), width.saturating_sub(egress.headers()));
        let warning = self.report.warnings.too_long(path, datagrams, length, room);
        self.report.warn(warning);
    }

    /// Handles an error that the socket with `token` reports after its datagrams were sent.
    /// Ignores errors of a retired socket, which only receives late answers.
    pub(super) fn blame(&mut self, now: Time, token: u64, fault: Fault) {
        let Some(socket) = self.uplinks.sockets.by_token(token) else { return };
        if socket.relay.is_some() && fault == Fault::Refused {
            return self.lose(now, token);
        }
        if self.uplinks.sockets.is_in_use(token) {
            self.fail(now, socket.session, socket.tuple, meaning(fault), 0, 0);
        }
    }
}

/// Returns the failures in a send report, each with the number of datagrams and bytes that were
/// not sent. Both counts are 0 for an error of an earlier send. Usually there are no failures.
fn failures(report: &SendReport<'_>) -> Vec<(Failure, usize, usize)> {
    let of = |errno| meaning(Fault::of(errno));
    let earlier = report.earlier.map(|errno| (of(errno), 0, 0));
    let refused = report.failures.iter();
    let now = refused.map(|failure| (of(failure.errno), failure.datagrams, failure.bytes));
    earlier.into_iter().chain(now).collect()
}

/// Converts a socket error to the form in which the protocol core receives failures.
fn meaning(fault: Fault) -> Failure {
    match fault {
        Fault::Full => Failure::Full,
        Fault::TooBig => Failure::TooBig,
        Fault::Refused => Failure::Refused,
        Fault::Gone => Failure::Interface,
        Fault::Unreachable | Fault::Denied | Fault::Other => Failure::Unreachable,
    }
}

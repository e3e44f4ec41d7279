//! Sending, to the server and to clients, and what the errors of sockets mean.

use std::io;

use anabranch_comps::{Failure, Input, SessionId, TupleId};
use anabranch_multipath::{PathId, Time};

use super::driver::Driver;
use super::files;
use super::onward::{Outgoing, gone, groups};
use crate::udp::{Datagrams, Fault, SendReport};

impl Driver<'_> {
    /// Sends to the server, neighbours for one socket together.
    pub(super) fn send(&mut self, now: Time, outgoing: &[Outgoing<'_>]) {
        for range in groups(outgoing) {
            self.send_group(now, &outgoing[range]);
        }
    }

    fn send_group(&mut self, now: Time, group: &[Outgoing<'_>]) {
        let first = &group[0];
        let (session, tuple) = (first.session, first.tuple);
        if self.sockets.of(session, tuple).is_none()
            && let Err(failure) = self.open(now, session, tuple, first.path)
        {
            let datagrams = group.iter().map(Outgoing::count).sum::<usize>();
            let bytes = group.iter().map(|outgoing| outgoing.bytes.len()).sum::<usize>();
            return self.fail(now, session, tuple, failure, datagrams, bytes);
        }
        let Some(socket) = self.sockets.of(session, tuple) else { return };
        let mut batch = self.queue.batch(&socket.udp);
        group.iter().for_each(|outgoing| batch.push(outgoing.datagrams()));
        let report = batch.send();
        for (outgoing, part) in gone(group, &report) {
            self.taps.see(now, socket, true, outgoing.part(part), self.screen);
        }
        let failures = failures(&report);
        for (failure, datagrams, bytes) in failures {
            self.fail(now, session, tuple, failure, datagrams, bytes);
        }
    }

    /// Opens the socket of a tuple.
    fn open(
        &mut self,
        now: Time,
        session: SessionId,
        tuple: TupleId,
        path: PathId,
    ) -> Result<(), Failure> {
        let server = *self.servers.get(&session).ok_or(Failure::Unreachable)?;
        match self.sockets.open((session, tuple, path), self.ways.of(path), server, &self.poller) {
            Ok(local) => self.core.handle(now, Input::Opened { local }),
            Err(error) => return Err(self.cannot_open(&error)),
        }
        Ok(())
    }

    /// Why a socket did not open. A want of files is told once, with what to do about it.
    fn cannot_open(&mut self, error: &io::Error) -> Failure {
        if !files::ran_out(error) {
            return meaning(Fault::from_io(error));
        }
        let warning = self.told.no_files(files::limit());
        self.warn(warning);
        Failure::NoSocket
    }

    /// Sends to clients.
    pub(super) fn give_back(&mut self, back: &[Datagrams<'_>]) {
        let mut batch = self.queue.batch(&self.listener);
        back.iter().for_each(|datagrams| batch.push(*datagrams));
        // A client that is gone, or too slow to take its datagrams, loses them as it would on any
        // network.
        self.not_returned += batch.send().failed() as u64;
    }

    /// Tells the core of an error, and does what it then wants.
    fn fail(
        &mut self,
        now: Time,
        session: SessionId,
        tuple: TupleId,
        failure: Failure,
        datagrams: usize,
        bytes: usize,
    ) {
        let (datagrams, bytes) = (datagrams as u64, bytes as u64);
        self.core.handle(now, Input::Failed { session, tuple, failure, datagrams, bytes });
        // An error by itself makes the core tell of it, not send; what a timer that is due by now
        // sends may fail and come back here, and is not sent again.
        self.settle(now);
    }

    /// An error that a socket tells of late, after its datagrams left. That of a retired socket
    /// says nothing about the one that sends for the tuple now.
    pub(super) fn blame(&mut self, now: Time, token: u64, fault: Fault) {
        let Some(socket) = self.sockets.by_token(token) else { return };
        if self.sockets.is_in_use(token) {
            self.fail(now, socket.session, socket.tuple, meaning(fault), 0, 0);
        }
    }
}

/// What a report says against the tuple: (meaning, datagrams, bytes), empty as a rule.
fn failures(report: &SendReport<'_>) -> Vec<(Failure, usize, usize)> {
    let of = |errno| meaning(Fault::of(errno));
    let earlier = report.earlier.map(|errno| (of(errno), 0, 0));
    let refused = report.failures.iter();
    let now = refused.map(|failure| (of(failure.errno), failure.datagrams, failure.bytes));
    earlier.into_iter().chain(now).collect()
}

/// What an error means for the path.
fn meaning(fault: Fault) -> Failure {
    match fault {
        Fault::Full => Failure::Full,
        Fault::TooBig => Failure::TooBig,
        Fault::Refused => Failure::Refused,
        Fault::Gone => Failure::Interface,
        Fault::Unreachable | Fault::Denied | Fault::Other => Failure::Unreachable,
    }
}

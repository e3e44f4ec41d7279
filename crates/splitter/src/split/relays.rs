//! The driver's code for paths with proxies: events on the proxies' connections, and results of
//! attempts to open associations (UDP relays of the proxies).

use std::io;
use std::net::SocketAddr;

use anabranch_comps::{Failure, Input, Renumbering, SessionId, TupleId};
use anabranch_multipath::{Core as _, PathId, Time};
use anabranch_os::udp;

use super::driver::{Driver, SPARES};
use super::egress_table::RouteLookup;
use super::onward::{Outgoing, batch_of};
use super::proxies::{Outcome, WaitingTuple};
use crate::paths::PathSpec;
use crate::socks::{Association, ProxyFault, RelayedDatagrams};

impl Driver<'_> {
    /// Handles the results of attempts to open associations (UDP relays of proxies).
    pub(super) fn on_proxies(&mut self) {
        let now = self.clock.now();
        while let Some((path, outcome)) = self.uplinks.proxies.answer() {
            match outcome {
                Outcome::Relay(association) => self.on_association(now, path, association),
                Outcome::Fault(fault) => self.on_fault(now, path, fault),
                Outcome::Moved(found) => self.on_moved(now, path, &found),
            }
        }
        self.tend(now);
    }

    fn on_fault(&mut self, now: Time, path: PathId, fault: ProxyFault) {
        let alone = !self.uplinks.sockets.has_relay(path);
        let warning = self.uplinks.proxies.on_fault(now, path, fault, alone);
        self.report.warn(warning);
    }

    /// Handles a proxy whose name no longer resolves to the address in use: changes the path to
    /// one of the addresses `found`.
    fn on_moved(&mut self, now: Time, path: PathId, found: &[SocketAddr]) {
        match self.uplinks.egress_table.redirect(path, found) {
            Some(look) => self.on_look(now, &look),
            None => {
                let error = io::ErrorKind::NetworkUnreachable.into();
                self.on_fault(now, path, ProxyFault::Connect(error));
            }
        }
    }

    fn on_association(&mut self, now: Time, path: PathId, association: Association) {
        let Some((waiting, association)) = self.uplinks.proxies.on_relay(now, path, association)
        else {
            return self.watch_spare(path);
        };
        let WaitingTuple { session, tuple, kept } = &waiting;
        match self.open_socket(now, (*session, *tuple, path), Some((association, now))) {
            Ok(()) => self.send_as_is(now, kept),
            Err(failure) => self.fail_tuple(now, &waiting, failure),
        }
    }

    /// Prepares for a change of the paths' indices: stops watching the connections of spare
    /// associations (UDP relays of proxies), and drops datagrams that wait for a removed proxy.
    /// `stays` returns whether a path, and so its proxy, remains.
    pub(super) fn leave_proxies(&mut self, now: Time, stays: impl Fn(PathId) -> bool) {
        for path in self.uplinks.proxies.paths() {
            if let Some(spare) = self.uplinks.proxies.spare(path) {
                // An error is harmless: the connection was not watched.
                let _ = self.poller.remove(&spare.control);
            }
            if !stays(path) {
                for waiting in self.uplinks.proxies.dismiss(path) {
                    self.fail_tuple(now, &waiting, Failure::Full);
                }
            }
        }
    }

    /// Applies the paths' new indices. Some paths may be new, and these may have proxies.
    pub(super) fn renumber_proxies(&mut self, numbers: &Renumbering, specs: &[PathSpec]) {
        self.uplinks.proxies.renumber(numbers, specs);
        self.uplinks.proxies.paths().into_iter().for_each(|path| self.watch_spare(path));
    }

    /// Watches the connection of a path's spare association (a UDP relay of a proxy).
    pub(super) fn watch_spare(&mut self, path: PathId) {
        if let Some(spare) = self.uplinks.proxies.spare(path)
            && self.poller.add(&spare.control, SPARES + path.index() as u64).is_err()
        {
            // If the connection is not watched, its end is noticed only when the spare association
            // is used.
            let warning = format!(
                "path '{}': the connection to its proxy cannot be watched, so the splitter \
                 notices late if this connection breaks",
                self.uplinks.egress_table.of(path).name
            );
            self.report.warn(Some(warning));
        }
    }

    /// Handles the readable connection of a spare association (a UDP relay of a proxy): checks
    /// whether the proxy has ended the association.
    pub(super) fn on_spare(&mut self, path: PathId) {
        let now = self.clock.now();
        if self.uplinks.proxies.on_spare(now, path) {
            self.tend(now);
        }
    }

    /// Handles the readable connection of a four-tuple to its proxy: checks whether the proxy has
    /// ended the association (UDP relay). `token` is the token of the four-tuple's socket.
    pub(super) fn on_control(&mut self, token: u64) {
        let Some(socket) = self.uplinks.sockets.by_token(token) else { return };
        if socket.relay.as_ref().is_some_and(|relay| relay.is_over()) {
            self.lose(self.clock.now(), token);
        }
    }

    /// Discards a socket whose association (a UDP relay of a proxy) has ended.
    pub(super) fn lose(&mut self, now: Time, token: u64) {
        let in_use = self.uplinks.sockets.is_in_use(token);
        let Some(socket) = self.uplinks.sockets.by_token(token) else { return };
        let (path, opened_at) = (socket.path, socket.relay.as_ref().map(|relay| relay.opened_at));
        if let Some(local) = self.uplinks.sockets.discard(token) {
            self.core.handle(now, Input::Shut { local });
        }
        if let Some(opened_at) = opened_at.filter(|_| in_use) {
            self.uplinks.proxies.on_loss(now, path, opened_at);
        }
        self.tend(now);
    }

    /// Assigns to a four-tuple the spare association (a UDP relay of a proxy) of its path. Returns
    /// `None` if the four-tuple has to wait for an association.
    pub(super) fn open_spare(
        &mut self,
        now: Time,
        key: (SessionId, TupleId, PathId),
    ) -> Option<Result<(), Failure>> {
        let (spare, opened_at) = self.uplinks.proxies.take(key.2)?;
        // From now on the token of the four-tuple is used to watch the connection.
        let _ = self.poller.remove(&spare.control);
        let opened = self.open_socket(now, key, Some((spare, opened_at)));
        self.uplinks.proxies.ask(now, &self.uplinks.egress_table);
        Some(opened)
    }

    /// Queues datagrams that cannot be sent before an association (a UDP relay of a proxy) exists.
    pub(super) fn wait_for_relay(
        &mut self,
        now: Time,
        key: (SessionId, TupleId, PathId),
        group: &[Outgoing<'_>],
    ) {
        let count = || group.iter().map(Outgoing::count).sum::<usize>();
        let bytes = || group.iter().map(|outgoing| outgoing.bytes.len()).sum::<usize>();
        let kept = self.uplinks.proxies.keep(now, key, group);
        self.uplinks.proxies.ask(now, &self.uplinks.egress_table);
        match kept {
            Some((0, _)) => {}
            Some((datagrams, bytes)) => {
                self.fail(now, key.0, key.1, Failure::Full, datagrams, bytes);
            }
            None => self.fail(now, key.0, key.1, Failure::Proxy, count(), bytes()),
        }
    }

    /// Begins the due attempts to open associations (UDP relays of proxies), and reports to the
    /// protocol core which paths with proxies work.
    pub(super) fn tend(&mut self, now: Time) {
        self.uplinks.proxies.ask(now, &self.uplinks.egress_table);
        for path in self.uplinks.proxies.paths() {
            let broken = self.uplinks.proxies.broken(path);
            self.report_path(now, path, broken);
            for waiting in self.uplinks.proxies.hopeless(now, path) {
                self.fail_tuple(now, &waiting, self.why(path));
            }
        }
        self.settle(now);
    }

    /// Handles expired timers of proxies.
    pub(super) fn on_proxy_time(&mut self, now: Time) {
        if self.uplinks.proxies.next_timeout().is_none_or(|due| due > now) {
            return;
        }
        let sockets = &self.uplinks.sockets;
        for path in self.uplinks.proxies.on_time(now, |path| !sockets.has_relay(path)) {
            for waiting in self.uplinks.proxies.dismiss(path) {
                self.fail_tuple(now, &waiting, self.why(path));
            }
        }
        self.tend(now);
    }

    /// Handles the result of a new check of a path's route and source address.
    pub(super) fn on_look(&mut self, now: Time, look: &RouteLookup) {
        if let Some(moved) = &look.moved {
            self.uplinks.sockets.retire(now, look.path);
            let name = &self.uplinks.egress_table.of(look.path).name;
            self.report.screen.warn(&format!("path '{name}': {moved}; sessions continue"));
        }
        let broken = match self.uplinks.streams.has(look.path) {
            true => self.uplinks.streams.on_look(now, look),
            false => self.uplinks.proxies.on_look(now, look),
        };
        self.report_path(now, look.path, broken);
    }

    /// Handles datagrams that a proxy has relayed to the socket of a four-tuple.
    pub(super) fn on_relayed(&mut self, now: Time, token: u64, runs: udp::Batch<'_>) {
        let Some(socket) = self.uplinks.sockets.by_token(token) else { return };
        let Some(relay) = &socket.relay else { return };
        let (source, path, server) = (socket.source(), socket.path, relay.header.server());
        let mut opened = RelayedDatagrams::default();
        for run in runs.filter(|run| socket.is_to(run.from)) {
            self.report.see(now, socket, false, run.onward());
            opened.take(&run, server);
        }
        self.report.foreign += opened.unfit();
        if self.tunnel.is_some() {
            return self.on_far_end(now, path, opened.runs(server));
        }
        let (mut outgoing, mut back) = (Vec::new(), Vec::new());
        for run in opened.runs(server) {
            self.core.handle(now, source.into_input(batch_of(&run)));
            self.take_outputs(now, Some(&run), &mut outgoing, &mut back);
        }
        self.give_back(&back);
        self.send(now, &outgoing);
    }

    fn fail_tuple(&mut self, now: Time, waiting: &WaitingTuple, failure: Failure) {
        let (datagrams, bytes) = waiting.load();
        self.fail(now, waiting.session, waiting.tuple, failure, datagrams, bytes);
    }

    /// Returns the failure to report for a session that gets no association (a UDP relay of a
    /// proxy). If the whole path is down, its sessions are not notified one by one; the queued
    /// datagrams count as drops.
    fn why(&self, path: PathId) -> Failure {
        if self.uplinks.proxies.broken(path).is_some() { Failure::Full } else { Failure::Proxy }
    }
}

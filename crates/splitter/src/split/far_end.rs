//! The driver's code for a far end (our program in front of the server): encrypts packets for the
//! far end, decrypts packets from it, and reports changes of its state.

use std::net::SocketAddr;

use anabranch_comps::{DownReason, Input};
use anabranch_multipath::{Core as _, PathId, Time};
use anabranch_os::udp::Received;

use super::FarEndNews;
use super::driver::Driver;
use super::onward::{Back, Outgoing, batch_of};
use super::tunnel::{TUNNEL, Tunnel};

impl Driver<'_> {
    /// Stores the far end's address if the user gave an address, or begins to resolve its name.
    pub(super) fn seek_far_end(&mut self, now: Time) {
        if self.tunnel.is_some() {
            match self.uplinks.literal {
                Some(server) => _ = self.uplinks.servers.insert(TUNNEL, server),
                None => self.uplinks.resolver.ask(now, TUNNEL),
            }
        }
    }

    /// Adopts the far end's address `found`, the result of a lookup. If the lookup has failed
    /// (`None`), repeats the lookup. If the address has changed, replaces all sockets.
    pub(super) fn on_far_end_found(&mut self, now: Time, found: Option<SocketAddr>) {
        let Some(far) = found else { return self.uplinks.resolver.ask(now, TUNNEL) };
        let before = self.uplinks.servers.insert(TUNNEL, far);
        if before.is_some_and(|before| before != far) {
            self.uplinks.retire_all(now);
        }
    }

    /// Sends the datagrams that the protocol core has assigned to paths. If there is a far end,
    /// encrypts them in tunnel packets; otherwise sends them unchanged.
    pub(super) fn send(&mut self, now: Time, outgoing: &[Outgoing<'_>]) {
        let Some(tunnel) = self.tunnel.as_mut().filter(|_| !outgoing.is_empty()) else {
            return self.send_as_is(now, outgoing);
        };
        let mut packets = std::mem::take(&mut tunnel.sealed);
        let mut sealed = Vec::with_capacity(outgoing.len());
        outgoing.iter().for_each(|each| tunnel.seal(now, each, &mut packets, &mut sealed));
        let sealed: Vec<_> = sealed.iter().map(|sealed| sealed.outgoing(&packets)).collect();
        self.send_as_is(now, &sealed);
        packets.clear();
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.sealed = packets;
        }
    }

    /// Processes packets of the far end that arrived on `path`.
    pub(super) fn on_far_end<'r>(
        &mut self,
        now: Time,
        path: PathId,
        runs: impl IntoIterator<Item = Received<'r>>,
    ) {
        if let Some(tunnel) = &mut self.tunnel {
            runs.into_iter().for_each(|run| tunnel.open(now, path, &run));
        }
        self.hand_over(now);
    }

    /// Takes the datagrams that arrived through the tunnel, and passes them to the protocol core.
    fn hand_over(&mut self, now: Time) {
        let Some(tunnel) = &mut self.tunnel else { return };
        let Some(&far) = self.uplinks.servers.get(&TUNNEL) else { return };
        let mut bytes = std::mem::take(&mut tunnel.arrived);
        let arrived = tunnel.arrived(now, &mut bytes);
        let (mut outgoing, mut back) = (Vec::new(), Vec::<Back<'_>>::new());
        for one in &arrived {
            let (run, session, tuple) = (one.run(far, &bytes), one.session, one.tuple);
            self.core.handle(now, Input::Server { session, tuple, batch: batch_of(&run) });
            self.take_outputs(now, Some(&run), &mut outgoing, &mut back);
        }
        self.give_back(&back);
        self.send(now, &outgoing);
        bytes.clear();
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.arrived = bytes;
        }
    }

    /// Returns when [`Driver::tend_tunnel`] is due; `None` without a tunnel, or before the far
    /// end's address is known.
    pub(super) fn next_of_tunnel(&self) -> Option<Time> {
        let tunnel = self.tunnel.as_ref()?;
        self.uplinks.servers.contains_key(&TUNNEL).then(|| tunnel.next_timeout())
    }

    /// Does the tunnel's due work: passes received datagrams to the protocol core, sends packets
    /// that this end originates, and reports changes of the far end and of each path.
    pub(super) fn tend_tunnel(&mut self, now: Time) {
        if self.tunnel.is_none() || !self.uplinks.servers.contains_key(&TUNNEL) {
            return;
        }
        self.hand_over(now);
        let packets =
            self.tunnel.as_mut().map(|tunnel| tunnel.own_packets(now)).unwrap_or_default();
        self.send_own_packets(now, packets);
        while let Some(news) = self.tunnel.as_mut().and_then(|tunnel| tunnel.news(now)) {
            self.on_far_end_news(now, &news);
        }
        let paths = self.tunnel.as_ref().map_or(0, |tunnel| tunnel.paths());
        for path in (0..paths).map(PathId::at) {
            let changed = self.tunnel.as_mut().and_then(|tunnel| tunnel.changed(now, path));
            if let Some(broken) = changed {
                self.core.handle(now, Input::Path { path, broken });
                self.settle(now);
            }
            self.look_at_lag(now, path);
        }
        self.look_at_windows(now);
    }

    /// Replaces the onion network's circuit of `path` by another circuit, if the path has been
    /// slow for too long.
    fn look_at_lag(&mut self, now: Time, path: PathId) {
        let Some(tunnel) = self.tunnel.as_mut() else { return };
        if !self.uplinks.streams.is_circuit(path) {
            return;
        }
        let (lag, egress_table) = (tunnel.lag(path), &self.uplinks.egress_table);
        let warning = self.uplinks.streams.note_lag(now, path, lag, egress_table);
        self.report.warn(warning);
    }

    /// Passes the state of the paths' congestion windows to the protocol core, if the path
    /// scheduler uses windows.
    fn look_at_windows(&mut self, now: Time) {
        if let Some(windows) = self.tunnel.as_mut().and_then(|tunnel| tunnel.windows(now)) {
            self.core.handle(now, Input::Windows(windows));
            self.settle(now);
        }
    }

    fn on_far_end_news(&mut self, now: Time, news: &FarEndNews) {
        self.report.screen.far_end(now, news);
        match news {
            FarEndNews::Up => {
                let waiting = self.tunnel.as_mut().map(Tunnel::take_waiting);
                for session in waiting.unwrap_or_default() {
                    self.core.handle(now, Input::Resolved { session, found: true, barred: &[] });
                    self.settle(now);
                }
            }
            // The far end's name may have another address now.
            FarEndNews::Unanswered { .. } if self.uplinks.literal.is_none() => {
                self.uplinks.resolver.ask(now, TUNNEL);
            }
            FarEndNews::Unanswered { .. } | FarEndNews::Lost | FarEndNews::Left => {}
        }
    }

    /// Reports to the protocol core whether `path` is down. `broken` is the reason if the cause is
    /// on this machine. If `broken` is `None`, the path is down only if no packets of the far end
    /// arrive on it.
    pub(super) fn report_path(&mut self, now: Time, path: PathId, broken: Option<DownReason>) {
        let tunnel = self.tunnel.as_mut();
        let broken = tunnel.map_or(broken, |tunnel| tunnel.note_broken(now, path, broken));
        self.core.handle(now, Input::Path { path, broken });
    }

    /// Notifies the far end that the session ends.
    pub(super) fn leave_far_end(&mut self, now: Time) {
        let packets = self.tunnel.as_mut().map(|tunnel| tunnel.leave(now)).unwrap_or_default();
        self.send_own_packets(now, packets);
    }
}

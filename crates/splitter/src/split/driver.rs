//! The event loop of the splitter. It passes input to the protocol core and executes the core's
//! outputs.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;

use anabranch_comps::{Core, Input, Output, SessionId, Snapshot};
use anabranch_multipath::{Core as _, PathId, Time};
use anabranch_os::clock::Clock;
use anabranch_os::packet::Complaint;
use anabranch_os::poller::{Poller, Ready};
use anabranch_os::udp::{Fault, QueuedError, Received, RecvBatch};

use super::control::Control;
use super::ingress::Ingress;
use super::onward::{Back, Outgoing, batch_of};
use super::report::Report;
use super::sockets::CONTROL;
use super::streams::STREAMS;
use super::tunnel::{TUNNEL, Tunnel};
use super::uplinks::Uplinks;
use super::warnings::Warnings;
use super::{ActiveSettings, Failure, Reread, Screen, Settings, manager};

/// Poller token of the socket at which clients' datagrams arrive. The tokens of path sockets count
/// up from 0.
pub(super) const LISTENER: u64 = u64::MAX;
/// Poller token of the file descriptor that becomes readable on SIGINT or SIGTERM.
pub(super) const STOP: u64 = u64::MAX - 1;
/// Poller token of the netlink socket that reports changes of the network.
pub(super) const NETWORK: u64 = u64::MAX - 2;
/// Poller token of the thread that resolves the server's name.
pub(super) const NAMES: u64 = u64::MAX - 3;
/// Poller token of the threads that open associations (UDP relays of proxies).
pub(super) const PROXIES: u64 = u64::MAX - 4;
/// First poller token of spare associations (connections to proxies that are opened in advance).
/// The association of the path with the index N (16 bits) has the token `SPARES` + N.
pub(super) const SPARES: u64 = u64::MAX - (1 << 17);
/// Last poller token of spare associations.
const LAST_SPARE: u64 = SPARES + u16::MAX as u64;
/// Poller token of the file descriptor that becomes readable on SIGHUP.
pub(super) const RELOAD: u64 = u64::MAX - 5;
/// Poller token of the sockets that report changes of the splitter's routes and rules.
pub(super) const STEERED: u64 = u64::MAX - 6;
/// Poller token of the lookup of host names in changed settings.
pub(super) const LOOKED_UP: u64 = u64::MAX - 7;
/// Poller token of the threads that open the connections of stream paths.
pub(super) const DIALS: u64 = u64::MAX - 8;

/// Maximum number of messages that one system call reads from a socket. A message may contain
/// several datagrams (`UDP_GRO`).
const RUNS: usize = 32;
/// Maximum number of ready file descriptors (such as sockets) that one wait for events returns.
pub(super) const EVENTS: usize = 256;

/// Runs the splitter until SIGINT, SIGTERM or SIGHUP arrives. Returns the final counters.
///
/// # Errors
/// At the start: a setting cannot be applied. Later: a file descriptor of the program failed, or a
/// packet capture could not be completed.
pub fn run(settings: Settings, screen: &mut dyn Screen) -> Result<Snapshot, Failure> {
    run_driver(Driver::new(settings, None, screen, None)?)
}

/// Runs the splitter until `stop` becomes readable or its other end is closed. Programs that use
/// signals for other purposes call this function.
///
/// # Errors
/// The errors of [`run`].
pub fn run_until(
    stop: UnixStream,
    settings: Settings,
    screen: &mut dyn Screen,
) -> Result<Snapshot, Failure> {
    run_driver(Driver::new(settings, None, screen, Some(stop))?)
}

/// Runs the splitter as [`run`] does. If `reread` is given, SIGHUP makes the splitter read its
/// settings again, and sessions continue under the new settings. SIGHUP still ends the splitter if
/// the terminal on which it was started is gone.
///
/// # Errors
/// The errors of [`run`]. Errors in settings that are read again are shown on the screen, and
/// change nothing.
pub fn run_rereading(
    settings: Settings,
    reread: Option<Reread<'_>>,
    screen: &mut dyn Screen,
) -> Result<Snapshot, Failure> {
    run_driver(Driver::new(settings, reread, screen, None)?)
}

fn run_driver(mut driver: Driver<'_>) -> Result<Snapshot, Failure> {
    let mut buffers = RecvBatch::new(RUNS);
    let mut ready = Vec::with_capacity(EVENTS);
    while !driver.control.stopped {
        driver.wait(&mut ready)?;
        for event in ready.drain(..) {
            driver.on_ready(event, &mut buffers)?;
        }
        driver.on_time()?;
    }
    driver.end()
}

/// The splitter's core (a protocol state machine without I/O), and the parts that execute the
/// core's outputs.
pub(super) struct Driver<'s> {
    pub(super) core: Core,
    pub(super) clock: Clock,
    pub(super) poller: Poller,
    /// The place at which clients' datagrams arrive: a local port or an interface.
    pub(super) ingress: Ingress,
    /// The connections to the servers: path sockets, proxies and streams.
    pub(super) uplinks: Uplinks,
    /// Our end of a tunnel to a far end (our program in front of the server); `None` if the server
    /// is not a far end.
    pub(super) tunnel: Option<Tunnel>,
    /// Signals, reloads and network changes.
    pub(super) control: Control<'s>,
    /// The output of the splitter: screen, packet captures and counters.
    pub(super) report: Report<'s>,
    /// The present settings.
    pub(super) settings: Settings,
    /// The present settings for display, with resolved names and paths.
    pub(super) about: ActiveSettings,
    /// True if the datagrams that are sent now may be fragmented, because they arrived in
    /// fragments.
    pub(super) in_parts: bool,
}

impl Driver<'_> {
    /// Waits until a file descriptor (such as a socket) is ready or a timer expires.
    fn wait(&mut self, ready: &mut Vec<Ready>) -> Result<(), Failure> {
        let dues = [
            self.core.next_timeout(),
            self.uplinks.next_timeout(),
            self.next_of_tunnel(),
            self.control.keep_at,
            Some(self.report.next_snapshot),
        ];
        let due = dues.into_iter().flatten().min();
        let timeout = due.map(|due| due.since(self.clock.now()));
        let events = self
            .poller
            .wait(timeout)
            .map_err(|error| Failure::System("cannot wait for datagrams", error))?;
        ready.extend(events);
        Ok(())
    }

    fn on_ready(&mut self, event: Ready, buffers: &mut RecvBatch) -> Result<(), Failure> {
        match event.token {
            LISTENER if self.ingress.port().is_none() => self.on_packets()?,
            LISTENER => self.on_clients(buffers),
            STOP => self.control.stopped = true,
            NETWORK => self.on_network()?,
            STEERED => self.on_steered()?,
            NAMES => self.on_names(),
            RELOAD => self.on_hangup(),
            LOOKED_UP => self.on_looked_up(),
            PROXIES => self.on_proxies(),
            DIALS => self.on_dials(),
            token @ SPARES..=LAST_SPARE => self.on_spare(PathId::at((token - SPARES) as usize)),
            token if token & CONTROL > 0 => self.on_control(token & !CONTROL),
            token if token & STREAMS > 0 => {
                self.on_stream(PathId::at((token - STREAMS) as usize), event);
            }
            token => self.on_server(token, event.error, buffers),
        }
        Ok(())
    }

    fn on_hangup(&mut self) {
        match self.control.is_hung_up() {
            true => self.control.stopped = true,
            false => self.on_reload(),
        }
    }

    /// Handles datagrams of clients: passes each received batch to the protocol core, and then
    /// sends the datagrams that the core returns.
    fn on_clients(&mut self, buffers: &mut RecvBatch) {
        let Some(Ok(runs)) = self.ingress.port().map(|port| buffers.recv(port)) else { return };
        let now = self.clock.now();
        let (mut outgoing, mut back) = (Vec::with_capacity(RUNS), Vec::new());
        for run in runs {
            let batch = batch_of(&run);
            self.core.handle(
                now,
                Input::Client { client: run.from, server: None, local: run.to, batch },
            );
            self.take_outputs(now, Some(&run), &mut outgoing, &mut back);
        }
        self.give_back(&back);
        self.send(now, &outgoing);
    }

    /// Handles datagrams of the server that arrived on the path's socket with `token`. If `error`
    /// is true, first handles the errors that the kernel has queued for the socket.
    fn on_server(&mut self, token: u64, error: bool, buffers: &mut RecvBatch) {
        let now = self.clock.now();
        if error {
            self.on_late_errors(now, token);
        }
        let Some(socket) = self.uplinks.sockets.by_token(token) else { return };
        let source = socket.source();
        let relayed = socket.relay.is_some();
        let runs = match buffers.recv(&socket.udp) {
            Ok(runs) => runs,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => return self.blame(now, token, Fault::from_io(&error)),
        };
        if relayed {
            return self.on_relayed(now, token, runs);
        }
        let (mut outgoing, mut back) = (Vec::new(), Vec::with_capacity(RUNS));
        for run in runs {
            let Some(socket) = self.uplinks.sockets.by_token(token) else { break };
            if !socket.is_to(run.from) {
                continue;
            }
            self.report.see(now, socket, false, run.onward());
            if self.tunnel.is_some() {
                let path = socket.path;
                self.on_far_end(now, path, [run]);
                continue;
            }
            self.core.handle(now, source.into_input(batch_of(&run)));
            self.take_outputs(now, Some(&run), &mut outgoing, &mut back);
        }
        self.give_back(&back);
        self.send(now, &outgoing);
    }

    /// Handles errors of datagrams that were sent earlier, such as ICMP errors. The kernel reports
    /// these errors in the error queue of the socket with `token`.
    fn on_late_errors(&mut self, now: Time, token: u64) {
        while let Some(socket) = self.uplinks.sockets.by_token(token) {
            let Ok(Some(error)) = socket.udp.take_error() else { return };
            self.warn_narrow(token, &error);
            self.blame(now, token, error.fault);
        }
    }

    fn warn_narrow(&mut self, token: u64, error: &QueuedError) {
        if let Some(socket) =
            self.uplinks.sockets.by_token(token).filter(|_| self.uplinks.sockets.is_in_use(token))
        {
            let (session, egress) = (socket.session, self.uplinks.egress_table.of(socket.path));
            let warning =
                self.report.warnings.narrow(socket.path, &egress.name, egress.headers(), error);
            if let Some(mtu) = Warnings::narrowed(error) {
                self.ingress.complain(session, Complaint::TooBig(mtu));
            }
            self.report.warn(warning);
        }
    }

    /// Handles messages of the kernel about the machine's network. Paths may have failed,
    /// recovered, or changed their route.
    fn on_network(&mut self) -> Result<(), Failure> {
        let changes = self.control.monitor.drain();
        let changes = changes.map_err(|error| {
            Failure::System(
                "cannot read the changes of this machine's interfaces and routes",
                error,
            )
        })?;
        if self.ingress.concerns(&changes) {
            self.on_steered()?;
        }
        if !changes.is_empty() {
            self.uplinks.egress_table.on_change(self.clock.now());
        }
        Ok(())
    }

    /// Looks up the routes of all paths again if the kernel has reported a change of the network
    /// and the lookup is due.
    fn look_again(&mut self, now: Time) {
        let families = self.uplinks.egress_table.led();
        let looks = self.uplinks.egress_table.look_again(now);
        if looks.is_empty() {
            return;
        }
        looks.iter().for_each(|look| self.on_look(now, look));
        self.steer();
        // In either case the core's outputs are executed once.
        match self.uplinks.egress_table.led() == families {
            true => self.tend(now),
            false => self.resolve_again(now),
        }
    }

    /// Handles the result of looking up the server's name.
    fn on_names(&mut self) {
        let Some(found) = self.uplinks.resolver.answer() else { return };
        let now = self.clock.now();
        let server = self.uplinks.egress_table.suitable(&found);
        if server.is_none() && !found.is_empty() {
            let warning =
                self.report.warnings.unsuitable(&found, self.uplinks.egress_table.server());
            self.report.warn(warning);
        }
        for session in self.uplinks.resolver.settle(now, server.is_some()) {
            if session == TUNNEL {
                self.on_far_end_found(now, server);
                continue;
            }
            if self.uplinks.servers.contains_key(&session) {
                self.on_found_again(now, session, &found, server);
                continue;
            }
            self.uplinks.servers.extend(server.map(|server| (session, server)));
            self.core
                .handle(now, Input::Resolved { session, found: server.is_some(), barred: &[] });
            self.settle(now);
        }
    }

    /// Handles expired timers.
    fn on_time(&mut self) -> Result<(), Failure> {
        let now = self.clock.now();
        if self.control.keep_at.take_if(|due| *due <= now).is_some() {
            self.on_steered()?;
        }
        self.look_again(now);
        self.uplinks.resolver.on_time(now);
        self.on_proxy_time(now);
        self.on_stream_time(now);
        if self.core.next_timeout().is_some_and(|due| due <= now) {
            self.settle(now);
        }
        self.tend_tunnel(now);
        for local in self.uplinks.sockets.close_retired(now) {
            self.core.handle(now, Input::Shut { local });
        }
        if self.report.is_due(now) {
            let missed = self.uplinks.sockets.missed(now);
            let snapshot = self.snapshot(missed);
            self.report.screen.snapshot(now, &snapshot);
            self.report.flush(now);
            if !self.ingress.is_guarded() {
                self.on_steered()?;
            }
        }
        Ok(())
    }

    /// Executes the outputs of the protocol core after an event other than received datagrams.
    pub(super) fn settle(&mut self, now: Time) {
        let (mut outgoing, mut back) = (Vec::new(), Vec::new());
        self.take_outputs(now, None, &mut outgoing, &mut back);
        self.give_back(&back);
        self.send(now, &outgoing);
    }

    /// Takes the outputs of the protocol core. Datagrams for the server go into `outgoing`,
    /// datagrams for the client into `back`. All other outputs are executed at once. `run`
    /// contains the datagrams that the core has just handled; `None` after another event.
    pub(super) fn take_outputs<'a>(
        &mut self,
        now: Time,
        run: Option<&Received<'a>>,
        outgoing: &mut Vec<Outgoing<'a>>,
        back: &mut Vec<Back<'a>>,
    ) {
        while let Some(output) = self.core.poll(now) {
            match output {
                Output::Send { session, tuple, path, payload } => {
                    outgoing.extend(Outgoing::of((session, tuple, path), payload, run));
                }
                Output::SendToClient { client, server, local, held } => {
                    let Some(answer) = Back::of(client, local, held, run) else { continue };
                    match server {
                        Some(server) => self.deliver(server, client, &answer.run()),
                        None => back.push(answer),
                    }
                }
                Output::Resolve { session, server: Some(server) } => {
                    self.resolve_named(now, session, server);
                }
                Output::Resolve { session, .. } => self.resolve(now, session),
                Output::Close { session } => self.close(now, session),
                Output::Event(mut event) => {
                    self.ingress.note(&event);
                    self.follow_name(now, &mut event);
                    self.report.taps.note(&event);
                    self.report.screen.event(now, &event);
                }
            }
        }
    }

    /// Determines the server of a new session. With a far end, opens a flow of the tunnel.
    /// Otherwise takes the server's address if the user gave an address, or begins to look up the
    /// server's name.
    fn resolve(&mut self, now: Time, session: SessionId) {
        if let Some(tunnel) = &mut self.tunnel {
            let far = self.uplinks.servers.get(&TUNNEL).copied();
            self.uplinks.servers.extend(far.map(|far| (session, far)));
            if tunnel.open_flow(session) {
                self.core.handle(now, Input::Resolved { session, found: true, barred: &[] });
            }
            return;
        }
        match self.uplinks.literal {
            Some(server) => {
                self.uplinks.servers.insert(session, server);
                self.core.handle(now, Input::Resolved { session, found: true, barred: &[] });
            }
            None => self.uplinks.resolver.ask(now, session),
        }
    }

    fn close(&mut self, now: Time, session: SessionId) {
        self.tunnel.as_mut().into_iter().for_each(|tunnel| tunnel.close_flow(session));
        self.ingress.forget(session);
        for local in self.uplinks.close(session) {
            self.core.handle(now, Input::Shut { local });
        }
    }

    /// Returns the counters of the protocol core, the sockets, the tunnel, the streams and the
    /// pinned connections (kept on one path). `missed` is the number of datagrams dropped by the
    /// paths' sockets.
    pub(super) fn snapshot(&mut self, missed: u64) -> Snapshot {
        let now = self.clock.now();
        let pinned = self.ingress.pinned(self.control.stopped);
        let snapshot = Snapshot { pinned, ..self.core.snapshot() };
        let mut snapshot = self.report.complete(self.ingress.port(), missed, snapshot);
        self.tunnel.as_mut().into_iter().for_each(|tunnel| tunnel.complete(now, &mut snapshot));
        for (place, path) in snapshot.paths.iter_mut().enumerate() {
            path.stream = self.uplinks.streams.counters(PathId::at(place));
        }
        snapshot
    }

    /// Ends the run: closes the sessions, undoes the changes to the machine's routes and rules,
    /// reports the final counters, and completes the captures.
    fn end(mut self) -> Result<Snapshot, Failure> {
        manager::stopping();
        let now = self.clock.now();
        let missed = self.uplinks.sockets.missed_by_all();
        let snapshot = self.snapshot(missed);
        self.core.handle(now, Input::Shutdown);
        self.settle(now);
        self.leave_far_end(now);
        let freed = self.ingress.close();
        // SIGINT ends the program at once only from here on. An earlier interrupt would leave part
        // of the machine's routes in place.
        self.control.exit_on_signal();
        // The screen ends first, because it may hold a terminal. Completing the captures may take
        // long, and may be interrupted.
        self.report.screen.finish(now, &snapshot);
        self.report.taps.finish().map_err(Failure::Unfinished)?;
        freed.map_err(|error| {
            Failure::System("cannot undo the routes; the next start tries again", error)
        })?;
        Ok(snapshot)
    }
}

//! The loop.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anabranch_comps::{
    Batch, Core, Failure as SocketFailure, Input, Output, Payload, SessionId, Snapshot, TupleId,
};
use anabranch_multipath::{PathId, Time};

use super::files;
use super::onward::{Outgoing, gone, groups};
use super::resolver::Resolver;
use super::signals::stop_signals;
use super::sockets::{Sockets, fresh_drops};
use super::taps::Taps;
use super::told::Told;
use super::trial::try_paths;
use super::ways::Ways;
use super::{Failure, Listening, Screen, Settings};
use crate::clock::Clock;
use crate::netlink::Monitor;
use crate::poller::{Interest, Poller};
use crate::udp::{
    Datagrams, Fault, QueuedError, Received, RecvBatch, SendQueue, SendReport, UdpOptions,
    UdpSocket,
};

/// Tokens of the files that are no path sockets; those count up from 0.
const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;
const NETWORK: u64 = u64::MAX - 2;
const NAMES: u64 = u64::MAX - 3;

/// Messages taken from a socket at once.
const RUNS: usize = 32;
/// Files told of at once.
const EVENTS: usize = 256;
/// Receive buffer of the listener, in bytes: it is shared by all clients.
const LISTENER_BUFFER: usize = 16 << 20;

/// Runs the splitter until SIGINT, SIGTERM or SIGHUP. Returns the counters at the end.
///
/// # Errors
/// Before the listener is open: what the user asked for cannot be done. Afterwards: a file of the program's own failed, or a
/// capture could not be completed.
pub fn run(settings: Settings, screen: &mut dyn Screen) -> Result<Snapshot, Failure> {
    let mut driver = Driver::new(settings, screen)?;
    let mut buffers = RecvBatch::new(RUNS);
    let mut ready = Vec::with_capacity(EVENTS);
    while !driver.stopped {
        driver.wait(&mut ready)?;
        for event in ready.drain(..) {
            driver.on_ready(event.token, event.error, &mut buffers)?;
        }
        driver.on_time();
    }
    driver.end()
}

/// Everything that outlives one turn of the loop.
struct Driver<'s> {
    core: Core,
    clock: Clock,
    poller: Poller,
    listener: UdpSocket,
    sockets: Sockets,
    ways: Ways,
    resolver: Resolver,
    /// The server, where the user named an address.
    literal: Option<SocketAddr>,

    servers: HashMap<SessionId, SocketAddr>,
    monitor: Monitor,
    stop: UnixStream,
    taps: Taps,
    queue: SendQueue,
    screen: &'s mut dyn Screen,
    next_snapshot: Time,
    told: Told,
    /// Drops of the listener that are counted, and their sum.
    counted: u32,
    missed: u64,
    not_returned: u64,
    stopped: bool,
}

impl<'s> Driver<'s> {
    fn new(settings: Settings, screen: &'s mut dyn Screen) -> Result<Driver<'s>, Failure> {
        let mut about = Listening::look(&settings)?;
        let mut warnings = try_paths(&about.egresses, settings.fwmark)?;
        files::raise_limit();
        warnings.extend(files::shortage(&settings.core, files::limit()));
        let system = |what| move |error| Failure::System(what, error);
        let core = Core::new(settings.core.clone())
            .expect("the settings' schedule was checked against its paths");
        let options = UdpOptions {
            recv_buffer: LISTENER_BUFFER,
            error_queue: false,
            ..UdpOptions::default()
        };
        let listener = UdpSocket::bind(settings.listen, &options);
        let listener = listener.map_err(|error| Failure::Listen(settings.listen, error))?;
        about.listen =
            listener.local_addr().map_err(system("asking for the listener's address"))?;
        let clock = Clock::start();
        // Before the captures: a signal must not leave their unfinished files behind.
        let stop = stop_signals().map_err(system("watching for signals"))?;
        let taps = Taps::create(&settings, &clock).map_err(Failure::Capture)?;
        let driver = Driver {
            core,
            clock,
            poller: Poller::new(EVENTS).map_err(system("opening an epoll set"))?,
            listener,
            sockets: Sockets::new(settings.fwmark),
            ways: Ways::new(settings.specs, about.egresses.clone(), settings.fwmark),
            literal: settings.to.literal(),
            resolver: Resolver::start(settings.to).map_err(system("starting the resolver"))?,
            servers: HashMap::new(),
            monitor: Monitor::open().map_err(system("watching the machine's network"))?,
            stop,
            taps,
            queue: SendQueue::new(),
            next_snapshot: clock.now() + screen.interval(),
            screen,
            told: Told::default(),
            counted: 0,
            missed: 0,
            not_returned: 0,
            stopped: false,
        };
        driver.watch_all().map_err(system("filling the epoll set"))?;
        driver.screen.listening(&about);
        warnings.iter().for_each(|warning| driver.screen.warn(warning));
        Ok(driver)
    }

    fn watch_all(&self) -> io::Result<()> {
        self.poller.add(&self.listener, LISTENER, Interest::Read)?;
        self.poller.add(&self.stop, STOP, Interest::Read)?;
        self.poller.add(&self.monitor, NETWORK, Interest::Read)?;
        self.poller.add(&self.resolver, NAMES, Interest::Read)
    }

    /// Waits until a file is ready or something is due.
    fn wait(&mut self, ready: &mut Vec<crate::poller::Ready>) -> Result<(), Failure> {
        let dues = [
            self.core.next_timeout(),
            self.sockets.next_timeout(),
            self.ways.next_timeout(),
            self.resolver.next_timeout(),
            Some(self.next_snapshot),
        ];
        let due = dues.into_iter().flatten().min();
        let timeout = due.map(|due| due.since(self.clock.now()));
        let events = self
            .poller
            .wait(timeout)
            .map_err(|error| Failure::System("waiting for datagrams", error))?;
        ready.extend(events);
        Ok(())
    }

    fn on_ready(
        &mut self,
        token: u64,
        error: bool,
        buffers: &mut RecvBatch,
    ) -> Result<(), Failure> {
        match token {
            LISTENER => self.on_clients(buffers),
            STOP => self.stopped = true,
            NETWORK => self.on_network()?,
            NAMES => self.on_names(),
            token => self.on_server(token, error, buffers),
        }
        Ok(())
    }

    /// Datagrams of clients: each run through the core, then all of them out.
    fn on_clients(&mut self, buffers: &mut RecvBatch) {
        let Ok(runs) = buffers.recv(&self.listener) else { return };
        let now = self.clock.now();
        let mut outgoing = Vec::with_capacity(RUNS);
        for run in runs {
            let batch = batch_of(&run);
            self.core.handle(now, Input::Client { client: run.from, local: run.to, batch });
            self.drain(now, Some(&run), &mut outgoing);
        }
        self.send(now, &outgoing);
    }

    /// Datagrams of the server, come to a path's socket.
    fn on_server(&mut self, token: u64, error: bool, buffers: &mut RecvBatch) {
        let now = self.clock.now();
        if error {
            self.on_late_errors(now, token);
        }
        let Some(socket) = self.sockets.by_token(token) else { return };
        let (session, tuple) = (socket.session, socket.tuple);
        let runs = match buffers.recv(&socket.udp) {
            Ok(runs) => runs,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => return self.blame(now, token, Fault::from_io(&error)),
        };
        let (mut outgoing, mut back) = (Vec::new(), Vec::with_capacity(RUNS));
        for run in runs {
            let Some(socket) = self.sockets.by_token(token) else { break };
            if !socket.is_to(run.from) {
                continue;
            }
            self.taps.see(now, socket, false, run.onward(), self.screen);
            self.core.handle(now, Input::Server { session, tuple, batch: batch_of(&run) });
            back.extend(self.drain(now, Some(&run), &mut outgoing));
        }
        self.give_back(&back);
        self.send(now, &outgoing);
    }

    /// Errors of earlier datagrams that wait in a socket's error queue.
    fn on_late_errors(&mut self, now: Time, token: u64) {
        while let Some(socket) = self.sockets.by_token(token) {
            let Ok(Some(error)) = socket.udp.take_error() else { return };
            self.warn_narrow(token, &error);
            self.blame(now, token, error.fault);
        }
    }

    fn warn_narrow(&mut self, token: u64, error: &QueuedError) {
        if let Some(socket) = self.sockets.by_token(token).filter(|_| self.sockets.is_in_use(token))
        {
            let name = &self.ways.of(socket.path).name;
            let warning = self.told.narrow(socket.path, name, socket.server, error);
            self.warn(warning);
        }
    }

    fn warn(&mut self, warning: Option<String>) {
        if let Some(warning) = warning {
            self.screen.warn(&warning);
        }
    }

    /// An error that a socket tells of late, after its datagrams left. That of a retired socket says nothing about the
    /// one that sends for the tuple now.
    fn blame(&mut self, now: Time, token: u64, fault: Fault) {
        let Some(socket) = self.sockets.by_token(token) else { return };
        if self.sockets.is_in_use(token) {
            self.fail(now, socket.session, socket.tuple, meaning(fault), 0, 0);
        }
    }

    /// Something changed in the machine's network: a path may have gone, come, or moved.
    fn on_network(&mut self) -> Result<(), Failure> {
        let changes = self.monitor.drain();
        if !changes.map_err(|error| Failure::System("reading network changes", error))?.is_empty() {
            self.ways.on_change(self.clock.now());
        }
        Ok(())
    }

    /// Looks at the paths if something changed.
    fn look_again(&mut self, now: Time) {
        let looks = self.ways.look_again(now);
        if looks.is_empty() {
            return;
        }
        for look in looks {
            if look.moved {
                self.sockets.retire(now, look.path);
            }
            self.core.handle(now, Input::Path { path: look.path, broken: look.broken });
        }
        self.settle(now);
    }

    /// The server's name was looked up.
    fn on_names(&mut self) {
        let Some(found) = self.resolver.answer() else { return };
        let now = self.clock.now();
        let server = self.ways.suitable(&found);
        if server.is_none() && !found.is_empty() {
            let warning = self.told.unsuitable(&found, self.ways.server());
            self.warn(warning);
        }
        for session in self.resolver.settle(now, server.is_some()) {
            self.servers.extend(server.map(|server| (session, server)));
            self.core.handle(now, Input::Resolved { session, found: server.is_some() });
            self.settle(now);
        }
    }

    /// What time itself brings.
    fn on_time(&mut self) {
        let now = self.clock.now();
        self.look_again(now);
        self.resolver.on_time(now);
        if self.core.next_timeout().is_some_and(|due| due <= now) {
            self.settle(now);
        }
        for local in self.sockets.close_retired(now) {
            self.core.handle(now, Input::Shut { local });
        }
        if now >= self.next_snapshot {
            self.next_snapshot = now + self.screen.interval().max(Duration::from_millis(10));
            let missed = self.sockets.missed(now);
            let snapshot = self.snapshot(missed);
            self.screen.snapshot(now, &snapshot);
        }
    }

    /// Does what the core wants done where no batch is at hand.
    fn settle(&mut self, now: Time) {
        let mut outgoing = Vec::new();
        self.drain(now, None, &mut outgoing);
        self.send(now, &outgoing);
    }

    /// Takes the core's outputs: datagrams for the server into `outgoing`, datagrams for the client as the result,
    /// everything else done at once. `run` is the batch that the core has just handled.
    fn drain<'a>(
        &mut self,
        now: Time,
        run: Option<&Received<'a>>,
        outgoing: &mut Vec<Outgoing<'a>>,
    ) -> Option<Datagrams<'a>> {
        let mut back = None;
        while let Some(output) = self.core.poll(now) {
            match output {
                Output::Send { session, tuple, path, payload } => {
                    outgoing.extend(outgoing_of((session, tuple, path), payload, run));
                }
                Output::Return { client, local } => {
                    back = run.map(|run| Datagrams {
                        to: Some(client),
                        source: local,
                        ..run.onward()
                    });
                }
                Output::Resolve { session } => self.resolve(now, session),
                Output::Close { session } => self.close(now, session),
                Output::Event(event) => self.screen.event(now, &event),
            }
        }
        back
    }

    /// Finds the server for a new session: at once where it is an address, so that nothing has to wait, else by asking.
    fn resolve(&mut self, now: Time, session: SessionId) {
        match self.literal {
            Some(server) => {
                self.servers.insert(session, server);
                self.core.handle(now, Input::Resolved { session, found: true });
            }
            None => self.resolver.ask(now, session),
        }
    }

    fn close(&mut self, now: Time, session: SessionId) {
        self.servers.remove(&session);
        self.resolver.forget(session);
        for local in self.sockets.close(session) {
            self.core.handle(now, Input::Shut { local });
        }
    }

    /// Sends to the server, neighbours for one socket together.
    fn send(&mut self, now: Time, outgoing: &[Outgoing<'_>]) {
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
    ) -> Result<(), SocketFailure> {
        let server = *self.servers.get(&session).ok_or(SocketFailure::Unreachable)?;
        match self.sockets.open((session, tuple, path), self.ways.of(path), server, &self.poller) {
            Ok(local) => self.core.handle(now, Input::Opened { local }),
            Err(error) => return Err(self.cannot_open(&error)),
        }
        Ok(())
    }

    /// Why a socket did not open. A want of files is told once, with what to do about it.
    fn cannot_open(&mut self, error: &io::Error) -> SocketFailure {
        if !files::ran_out(error) {
            return meaning(Fault::from_io(error));
        }
        let warning = self.told.no_files(files::limit());
        self.warn(warning);
        SocketFailure::NoSocket
    }

    /// Sends to clients.
    fn give_back(&mut self, back: &[Datagrams<'_>]) {
        let mut batch = self.queue.batch(&self.listener);
        back.iter().for_each(|datagrams| batch.push(*datagrams));
        // A client that is gone, or too slow to take its datagrams, loses them as it would on any network.
        self.not_returned += batch.send().failed() as u64;
    }

    /// Tells the core of an error, and does what it then wants.
    fn fail(
        &mut self,
        now: Time,
        session: SessionId,
        tuple: TupleId,
        failure: SocketFailure,
        datagrams: usize,
        bytes: usize,
    ) {
        let (datagrams, bytes) = (datagrams as u64, bytes as u64);
        self.core.handle(now, Input::Failed { session, tuple, failure, datagrams, bytes });
        let mut outgoing = Vec::new();
        self.drain(now, None, &mut outgoing);
        // What waited for a path may leave now; its own failure would come back here, each time with a path less.
        self.send(now, &outgoing);
    }

    /// The counters, with what only the sockets know; `missed` is what those of the paths have dropped.
    fn snapshot(&mut self, missed: u64) -> Snapshot {
        self.missed += fresh_drops(&self.listener, &mut self.counted);
        Snapshot {
            missed: self.missed + missed,
            not_returned: self.not_returned,
            ..self.core.snapshot()
        }
    }

    /// Closes the sessions, completes the captures, shows the last counters.
    fn end(mut self) -> Result<Snapshot, Failure> {
        let now = self.clock.now();
        let missed = self.sockets.missed_by_all();
        let snapshot = self.snapshot(missed);
        self.core.handle(now, Input::Shutdown);
        self.settle(now);
        // First the screen, which may hold a terminal: the captures may take long, and be cut short.
        self.screen.finish(now, &snapshot);
        self.taps.finish().map_err(Failure::Unfinished)?;
        Ok(snapshot)
    }
}

fn batch_of<'a>(run: &Received<'a>) -> Batch<'a> {
    Batch { bytes: run.bytes, stride: run.stride, ecn: run.ecn }
}

/// What the core wants sent, as bytes.
fn outgoing_of<'a>(
    (session, tuple, path): (SessionId, TupleId, PathId),
    payload: Payload,
    run: Option<&Received<'a>>,
) -> Option<Outgoing<'a>> {
    let (bytes, stride, ecn) = match payload {
        Payload::Live(part) => {
            let run = run?;
            (Cow::Borrowed(&run.bytes[part]), run.stride, run.ecn)
        }
        Payload::Kept { bytes, ecn } => {
            let stride = bytes.len();
            (Cow::Owned(bytes.into_vec()), stride, ecn)
        }
    };
    Some(Outgoing { session, tuple, path, bytes, stride, ecn })
}

/// What a report says against the tuple: (meaning, datagrams, bytes), empty as a rule.
fn failures(report: &SendReport<'_>) -> Vec<(SocketFailure, usize, usize)> {
    let of = |errno| meaning(Fault::of(errno));
    let earlier = report.earlier.map(|errno| (of(errno), 0, 0));
    let refused = report.failures.iter();
    let now = refused.map(|failure| (of(failure.errno), failure.datagrams, failure.bytes));
    earlier.into_iter().chain(now).collect()
}

/// What an error means for the path.
fn meaning(fault: Fault) -> SocketFailure {
    match fault {
        Fault::Full => SocketFailure::Full,
        Fault::TooBig => SocketFailure::TooBig,
        Fault::Refused => SocketFailure::Refused,
        Fault::Gone => SocketFailure::Interface,
        Fault::Unreachable | Fault::Denied | Fault::Other => SocketFailure::Unreachable,
    }
}

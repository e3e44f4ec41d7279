//! The event loop of the far end. It passes packets of clients and answers of servers to the
//! protocol core ([`anabranch_tunnel::Far`]). The core returns datagrams for servers and packets
//! for clients.

use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_os::clock::Clock;
use anabranch_os::cpu::has_aes;
use anabranch_os::entropy::generator;
use anabranch_os::files;
use anabranch_os::hangup::Hangup;
use anabranch_os::holders::{self, Transport};
use anabranch_os::manager::notify;
use anabranch_os::poller::{Poller, Ready};
use anabranch_os::udp::{Datagrams, Fault, Received, RecvBatch, SendQueue, UdpOptions, UdpSocket};
use anabranch_tunnel::{ClientId, Datagram, FarSide, INTERFACE, NewRun, PacketKind, Peer};
use rand_chacha::ChaCha20Rng;
use sd_notify::NotifyState;

use super::client_interface::ClientInterface;
use super::client_states::{ClientState, Destination};
use super::flows::{FlowKey, Flows};
use super::outbox::Outbox;
use super::settings::{ActiveSettings, Failure, News, Reread, Screen, Server, Settings, Snapshot};
use super::streams::{Entry, Packets, STREAMS, Streams, WEB_SERVERS};
use crate::far_end::Inner;
use crate::split::signals::signals;

/// Poller token of the socket for clients' packets. The sockets to servers have tokens that count
/// up from 0.
const LISTENER: u64 = u64::MAX;
/// Poller token of the file descriptor that becomes readable on SIGINT or SIGTERM.
const STOP: u64 = u64::MAX - 1;
/// Poller token of the TUN interface for clients' IP packets.
const TUN: u64 = u64::MAX - 2;
/// Poller token of the file descriptor that becomes readable on SIGHUP.
const RELOAD: u64 = u64::MAX - 3;
/// Poller token of the listener for streams over TCP.
const TCP_LISTENER: u64 = u64::MAX - 4;
/// Poller token of the listener for streams over TLS.
const TLS_LISTENER: u64 = u64::MAX - 5;
/// Size of the listening socket's receive buffer, and also of its send buffer, in bytes. All
/// clients share these buffers.
const BUFFER: usize = 16 << 20;
/// Maximum number of messages that one system call reads from a socket. A message may contain
/// several datagrams (`UDP_GRO`).
const RUNS: usize = 32;
/// Maximum number of packets taken from the interface at once.
const ROUND: usize = 64;
/// Maximum number of ready files (such as sockets) that one wait for events returns.
const EVENTS: usize = 256;
/// Interval between checks for idle flows and silent clients, whose sessions are then closed.
const SWEEP: Duration = Duration::from_secs(1);
/// Minimum interval between reports that a server's port is closed.
const COMPLAINT: Duration = Duration::from_secs(10);

/// Runs the far end (our program in front of the server) until SIGINT, SIGTERM or SIGHUP. A SIGHUP
/// that the process ignored at its start (nohup) stays ignored. Returns the counters at the end.
///
/// # Errors
/// The settings cannot be applied, or a system call fails.
pub fn run(settings: Settings, screen: &mut dyn Screen) -> Result<Snapshot, Failure> {
    run_rereading(settings, None, screen)
}

/// Runs the far end as [`run`] does. If `reread` is given, SIGHUP makes the far end call `reread`
/// to read the settings again.
///
/// # Errors
/// The errors of [`run`].
pub fn run_rereading(
    settings: Settings,
    reread: Option<Reread<'_>>,
    screen: &mut dyn Screen,
) -> Result<Snapshot, Failure> {
    let hasty = Arc::new(AtomicBool::new(false));
    let watched = signals(reread.is_some(), &hasty);
    let (stop, hangup) =
        watched.map_err(|error| Failure::System("cannot watch for signals", error))?;
    let mut driver = Driver::new(settings, screen, stop, hasty)?;
    if let Some(hangup) = &hangup {
        let added = driver.poller.add(hangup, RELOAD);
        added.map_err(|error| Failure::System("cannot watch a socket (epoll)", error))?;
    }
    (driver.hangup, driver.reread) = (hangup, reread);
    run_driver(driver)
}

/// Runs the far end as [`run`] does, until `stop` is readable or its other end is closed.
///
/// # Errors
/// The errors of [`run`].
pub fn run_until(
    stop: UnixStream,
    settings: Settings,
    screen: &mut dyn Screen,
) -> Result<Snapshot, Failure> {
    run_driver(Driver::new(settings, screen, stop, Arc::default())?)
}

fn run_driver(mut driver: Driver<'_>) -> Result<Snapshot, Failure> {
    let mut buffers = RecvBatch::new(RUNS);
    let mut ready: Vec<Ready> = Vec::with_capacity(EVENTS);
    while !driver.stopped {
        driver.wait(&mut ready)?;
        for event in ready.drain(..) {
            match event.token {
                LISTENER => driver.on_packets(&mut buffers),
                STOP => driver.stopped = true,
                TUN => driver.on_tun()?,
                RELOAD => driver.on_hangup(),
                TCP_LISTENER | TLS_LISTENER => driver.on_streams(event.token),
                token if token & (STREAMS | WEB_SERVERS) == WEB_SERVERS => {
                    driver.on_web(token & !WEB_SERVERS)
                }
                token if token & STREAMS > 0 => driver.on_stream(token & !STREAMS, event),
                token => driver.on_server(token, &mut buffers),
            }
        }
        driver.on_time();
    }
    Ok(driver.end())
}

/// The state of a running far end.
pub(super) struct Driver<'s> {
    pub(super) far: FarSide<ChaCha20Rng>,
    pub(super) settings: Settings,
    pub(super) servers: Vec<(String, SocketAddr)>,
    /// The TUN interface for clients' IP packets (option `--tun`); `None` if the option is not
    /// used.
    pub(super) interface: Option<ClientInterface>,
    pub(super) client_states: Vec<ClientState>,
    pub(super) flows: Flows,
    timers: BTreeSet<(Time, ClientId)>,
    pub(super) clock: Clock,
    poller: Poller,
    listener: UdpSocket,
    /// The TCP and TLS streams that are clients' paths; `None` if streams are not accepted.
    pub(super) streams: Option<Streams>,
    /// Buffer for the packets that one call reads from a stream.
    packets: Packets,
    /// Stream that becomes readable when the far end should stop.
    _stop: UnixStream,
    pub(super) hangup: Option<Hangup>,
    /// Function that reads the settings again; `None` if they cannot change.
    pub(super) reread: Option<Reread<'s>>,
    hasty: Arc<AtomicBool>,
    queue: SendQueue,
    outbox: Outbox,
    pub(super) screen: &'s mut dyn Screen,
    next_snapshot: Time,
    next_sweep: Time,
    next_complaint: Time,
    /// Counters that the driver itself maintains, in the fields `handshakes`, `strangers`,
    /// `unsent`, `hurried` and `refused`. The other fields are unused.
    counted: Snapshot,
    /// Buffer for a client's datagrams (reused, and empty between calls).
    datagrams: Vec<Datagram>,
    pub(super) stopped: bool,
}

impl<'s> Driver<'s> {
    fn new(
        settings: Settings,
        screen: &'s mut dyn Screen,
        stop: UnixStream,
        hasty: Arc<AtomicBool>,
    ) -> Result<Driver<'s>, Failure> {
        let system = |what| move |error| Failure::System(what, error);
        let servers = look_up(&settings.servers)?;
        files::raise_limit();
        let (clock, peers) = (Clock::start(), &settings.keys.peers);
        let clients: Vec<_> = peers.iter().map(|peer| (peer.public, peer.psk)).collect();
        let rng = generator().map_err(system("cannot read random bytes from the system"))?;
        let mut far = FarSide::new(settings.keys.own.clone(), &clients, &settings.pad, rng);
        far.prefer_aes(has_aes());
        let listener = open_listener(settings.listen)?;
        let web_server = look_up_web_server(&settings)?;
        let interface = settings
            .tun
            .as_ref()
            .map(|name| ClientInterface::open(name, &settings.keys))
            .transpose()?;
        let poller = Poller::new(EVENTS).map_err(system("cannot create an epoll instance"))?;
        poller.add(&listener, LISTENER).map_err(system("cannot watch a socket (epoll)"))?;
        let streams = open_streams(&settings, web_server, &poller)?;
        poller.add(&stop, STOP).map_err(system("cannot watch a socket (epoll)"))?;
        let interface_added =
            interface.as_ref().map_or(Ok(()), |interface| poller.add(interface, TUN));
        interface_added.map_err(system("cannot watch a socket (epoll)"))?;
        let named = (0..).map(ClientId).zip(peers);
        let driver = Driver {
            far,
            client_states: named
                .map(|(id, peer)| ClientState::new(id, &peer.name, peer.public))
                .collect(),
            flows: Flows::new(settings.flows),
            servers,
            interface,
            settings,
            timers: BTreeSet::new(),
            clock,
            poller,
            listener,
            streams,
            packets: Packets::default(),
            _stop: stop,
            hangup: None,
            reread: None,
            hasty,
            queue: SendQueue::new(),
            outbox: Outbox::default(),
            next_snapshot: clock.now() + screen.interval(),
            screen,
            next_sweep: clock.now() + SWEEP,
            next_complaint: Time::ZERO,
            counted: Snapshot::default(),
            datagrams: Vec::new(),
            stopped: false,
        };
        let about = driver.about();
        driver.screen.listening(&about);
        driver.report_ready();
        Ok(driver)
    }

    /// Returns the present settings and addresses for display.
    pub(super) fn about(&self) -> ActiveSettings {
        ActiveSettings {
            listen: self.listener.local_addr().unwrap_or(self.settings.listen),
            listen_tcp: self.streams.as_ref().and_then(|one| one.local_addr(TCP_LISTENER)),
            listen_tls: self
                .streams
                .as_ref()
                .and_then(|one| one.local_addr(TLS_LISTENER))
                .zip(self.settings.fingerprint.clone()),
            web_server: self.settings.web_server.clone(),
            public: self.settings.keys.own.public.0,
            servers: self.servers.clone(),
            tun: self.interface.as_ref().map(|interface| {
                let own = self.settings.keys.own.public;
                (interface.name.clone(), Inner::of(&own, &own))
            }),
            clients: self.present().map(ClientState::name).collect(),
            schedule: self.settings.schedule.to_string(),
            every: self.settings.every.to_string(),
            redraw: self.settings.redraw.map(|silence| silence.to_string()),
            jitter: self.settings.jitter.map(|jitter| jitter.to_string()),
            decoys: self.settings.decoys.map(|budget| budget.to_string()),
            seed: self.settings.seed,
        }
    }

    /// Returns the clients that the key file lists now.
    fn present(&self) -> impl Iterator<Item = &ClientState> {
        self.client_states.iter().filter(|state| !state.is_gone())
    }

    pub(super) fn report_ready(&self) {
        let (listen, clients) = (self.about().listen, self.present().count());
        let status = format!("listening on {listen}; the key file has {clients} clients");
        notify(&[NotifyState::Ready, NotifyState::Status(&status)]);
    }

    /// Waits until a file descriptor (such as a socket) is ready or a timer is due.
    fn wait(&mut self, ready: &mut Vec<Ready>) -> Result<(), Failure> {
        let timer = self.timers.first().map_or(self.next_sweep, |timer| timer.0);
        let due = timer.min(self.next_sweep).min(self.next_snapshot);
        let events = self.poller.wait(Some(due.since(self.clock.now())));
        ready.extend(events.map_err(|error| Failure::System("cannot wait for packets", error))?);
        Ok(())
    }

    /// Receives and processes UDP packets of clients and of unknown peers.
    fn on_packets(&mut self, buffers: &mut RecvBatch) {
        let Ok(runs) = buffers.recv(&self.listener) else { return };
        let now = self.clock.now();
        let mut spoke = Vec::new();
        for run in runs {
            let from = Peer { remote: run.from, local: run.to, stream: None };
            for packet in run.datagrams() {
                let client = self.take(now, from, packet);
                spoke.extend(client.filter(|client| spoke.last() != Some(client)));
            }
        }
        spoke.sort_unstable();
        spoke.dedup();
        spoke.into_iter().for_each(|client| self.tend(now, client));
        self.send(now);
    }

    /// Accepts the TCP and TLS streams of clients and unknown peers that wait at the listening
    /// socket with the token `entry`.
    fn on_streams(&mut self, entry: u64) {
        let now = self.clock.now();
        if let Some(streams) = &mut self.streams {
            streams.accept(now, &self.poller, entry);
        }
    }

    /// Copies bytes between an unknown peer and the web server that answers it, after an event on
    /// the web server's connection.
    fn on_web(&mut self, number: u64) {
        self.streams.iter_mut().for_each(|streams| streams.pump(number, &self.poller));
    }

    /// Handles an event of a stream: writes queued packets if the stream is writable, and reads
    /// packets if it is readable.
    fn on_stream(&mut self, number: u64, event: Ready) {
        let now = self.clock.now();
        let Some(streams) = &mut self.streams else { return };
        if event.write {
            streams.flush_one(now, number, &self.poller);
        }
        let mut packets = std::mem::take(&mut self.packets);
        if event.read
            && let Some(peer) = streams.read(number, &mut packets, &self.poller)
        {
            let mut spoke = Vec::new();
            for packet in packets.iter() {
                let Some(client) = self.take_of_stream(now, peer, packet) else { continue };
                let bound =
                    self.streams.as_mut().is_some_and(|one| one.bind(number, client, &self.poller));
                spoke.extend(Some(client).filter(|client| spoke.last() != Some(client)));
                if !bound {
                    break;
                }
            }
            spoke.into_iter().for_each(|client| self.tend(now, client));
        }
        self.packets = packets;
        self.send(now);
    }

    /// Processes a packet that arrived on a TCP or TLS stream, as [`Driver::take`] does. Then
    /// records whether the stream belongs to an unknown peer, or to a peer whose handshake was
    /// answered.
    fn take_of_stream(&mut self, now: Time, from: Peer, packet: &[u8]) -> Option<ClientId> {
        let (strangers, handshakes) = (self.counted.strangers, self.counted.handshakes);
        let client = self.take(now, from, packet);
        if let (Some(number), Some(streams)) = (from.stream, &mut self.streams) {
            if self.counted.handshakes > handshakes {
                streams.trust(now, number, &self.poller);
            } else if self.counted.strangers > strangers {
                streams.doubt(number, &self.poller);
            }
        }
        client
    }

    /// Removes the paths whose streams have ended.
    fn follow_streams(&mut self, now: Time) {
        while let Some((number, client)) = self.streams.as_mut().and_then(Streams::ended) {
            self.far.lose_stream(client, number);
            self.tend(now, client);
        }
    }

    /// Closes the streams of `client`, whose session is over.
    pub(super) fn close_streams(&mut self, client: ClientId) {
        self.streams.iter_mut().for_each(|streams| streams.close_all(client));
    }

    /// Processes a packet from the network. Returns the client whose session this packet belongs
    /// to or starts; `None` if there is no such client.
    fn take(&mut self, now: Time, from: Peer, packet: &[u8]) -> Option<ClientId> {
        match self.far.receive(now, from, packet) {
            PacketKind::Session(client) => Some(client),
            PacketKind::Handshake(answer, new) => {
                self.counted.handshakes += 1;
                let start = self.outbox.bytes.len();
                self.outbox.bytes.extend_from_slice(&answer);
                self.outbox.add(from, start);
                new.map(|new| self.welcome(now, &new, from))
            }
            PacketKind::Nothing => {
                self.counted.strangers += 1;
                None
            }
        }
    }

    /// Starts the session of a client whose handshake was accepted, and returns the client.
    fn welcome(&mut self, now: Time, new: &NewRun, from: Peer) -> ClientId {
        let id = new.client;
        let wanted = self.wanted(&new.label);
        let paths = self.far.paths(id);
        let state = &mut self.client_states[id.0 as usize];
        let fits = state.begin(&self.settings, paths);
        let windows = state.has_windows();
        if let Some(session) = self.far.session(id) {
            session.keep_windows(windows);
            session.send_decoys(state.decoys(&self.settings));
        }
        state.wanted = wanted.as_ref().map(|(_, wanted)| *wanted);
        let client = state.name();
        let news = match wanted {
            Some((server, _)) => News::Began { client, from: from.remote, server },
            None => {
                self.far.session(id).into_iter().for_each(|session| session.close());
                News::NoServer { client, server: new.label.clone() }
            }
        };
        self.screen.news(now, &news);
        if !fits {
            let (name, schedule) =
                (self.client_states[id.0 as usize].name(), &self.settings.schedule);
            self.screen.warn(&format!(
                "schedule {schedule} cannot be used with the {paths} paths of client '{name}', so \
                 packets to this client follow schedule {}: choose another --schedule to change \
                 this",
                anabranch_comps::FAR_END_SCHEDULE
            ));
        }
        id
    }

    /// Returns the destination that a client requests with `label`, together with the
    /// destination's name; `None` if this far end has no destination with that label.
    fn wanted(&self, label: &str) -> Option<(String, Destination)> {
        if label == INTERFACE {
            return self
                .interface
                .as_ref()
                .map(|interface| (interface.name.clone(), Destination::Interface));
        }
        let found = self.servers.iter().find(|(name, _)| name == label);
        // An empty label means the only server.
        let only = (label.is_empty() && self.servers.len() == 1).then(|| &self.servers[0]);
        found.or(only).map(|(name, server)| (name.clone(), Destination::Server(*server)))
    }

    /// Serves one client: forwards its datagrams to the server, sends it the packets that are due,
    /// reports changes of its paths, and sets its timer.
    pub(super) fn tend(&mut self, now: Time, client: ClientId) {
        self.hand_on(now, client);
        self.send_own_packets(now, client);
        self.deal_delayed(now, client);
        self.use_windows(now, client);
        let state = &mut self.client_states[client.0 as usize];
        let news = state.look(now, &self.far);
        news.iter().for_each(|news| self.screen.news(now, news));
        self.arm(now, client);
    }

    /// Sends a client the far end's own packets, such as acknowledgements and probes.
    fn send_own_packets(&mut self, now: Time, client: ClientId) {
        loop {
            let start = self.outbox.bytes.len();
            let Some(to) = self.far.poll_transmit(now, client, &mut self.outbox.bytes) else {
                return;
            };
            match (to.stream, &mut self.streams) {
                (Some(stream), Some(streams)) => {
                    streams.push(now, stream, &self.outbox.bytes[start..], true);
                    self.outbox.bytes.truncate(start);
                }
                _ => self.outbox.add(to, start),
            }
        }
    }

    /// Forwards the datagrams that a client has sent: to the client's server, or to the TUN
    /// interface.
    fn hand_on(&mut self, now: Time, client: ClientId) {
        let Some(session) = self.far.session(client) else { return };
        let mut datagrams = std::mem::take(&mut self.datagrams);
        datagrams.extend(std::iter::from_fn(|| session.poll(now)));
        self.forward(now, client, &datagrams);
        match self.far.session(client) {
            Some(session) => datagrams.drain(..).for_each(|datagram| session.recycle(datagram)),
            None => datagrams.clear(),
        }
        self.datagrams = datagrams;
    }

    /// Sends a client's datagrams to the client's server (one system call for consecutive
    /// datagrams of one flow), or to the TUN interface.
    fn forward(&mut self, now: Time, client: ClientId, datagrams: &[Datagram]) {
        let state = &mut self.client_states[client.0 as usize];
        datagrams.iter().for_each(|datagram| state.count_in(datagram));
        let server = match (state.wanted, &self.interface) {
            (Some(Destination::Server(server)), _) => server,
            (Some(Destination::Interface), Some(interface)) => {
                let taken =
                    datagrams.iter().filter(|one| interface.write(client, one.bytes())).count();
                self.counted.refused += (datagrams.len() - taken) as u64;
                return;
            }
            _ => return,
        };
        for group in datagrams.chunk_by(|one, other| one.flow == other.flow) {
            self.forward_flow(now, (client, group[0].flow), server, group);
        }
    }

    fn forward_flow(&mut self, now: Time, key: FlowKey, server: SocketAddr, group: &[Datagram]) {
        let flow = match self.flows.of(now, key, server, &self.poller) {
            Ok(flow) => flow,
            Err(error) => return self.complain_of(now, &error),
        };
        let mut batch = self.queue.batch(&flow.udp);
        group.iter().for_each(|datagram| batch.push(Datagrams::one(datagram.bytes())));
        let report = batch.send();
        let errno = report.earlier.or(report.failures.first().map(|failure| failure.errno));
        if errno.is_some_and(|errno| Fault::of(errno) == Fault::Refused) {
            self.refused(now, server);
        }
    }

    fn refused(&mut self, now: Time, server: SocketAddr) {
        if now >= self.next_complaint {
            self.next_complaint = now + COMPLAINT;
            self.screen.news(now, &News::ServerRefused { server });
        }
    }

    fn complain_of(&mut self, now: Time, error: &io::Error) {
        if now >= self.next_complaint {
            self.next_complaint = now + COMPLAINT;
            self.screen.warn(&format!(
                "cannot open a socket to the server for a client's packets: {error}"
            ));
        }
    }

    /// Receives the answers of a server on a flow's socket.
    fn on_server(&mut self, token: u64, buffers: &mut RecvBatch) {
        let now = self.clock.now();
        let Some(flow) = self.flows.by_token(now, token) else { return };
        let (key, server) = (flow.key, flow.server);
        let runs = match buffers.recv(&flow.udp) {
            Ok(runs) => runs,
            Err(error) if Fault::from_io(&error) == Fault::Refused => {
                return self.refused(now, server);
            }
            Err(_) => return,
        };
        for run in runs {
            self.deal(now, key, &run);
        }
        self.send(now);
        self.arm(now, key.0);
    }

    /// Reads packets for clients from the TUN interface, and sends them over the clients' paths.
    fn on_tun(&mut self) -> Result<(), Failure> {
        let Some(interface) = &mut self.interface else { return Ok(()) };
        let arena = interface.read(ROUND);
        let arena = arena.map_err(|error| {
            Failure::System(
                "another program removed the interface of --tun, so start the far end again",
                error,
            )
        })?;
        let now = self.clock.now();
        for (client, packet) in arena.packets() {
            let flow = self.client_states[client.0 as usize].flow;
            let (from, stride) = (self.settings.listen, packet.len());
            let run = Received { from, to: None, ecn: 0, stride, bytes: packet };
            self.deal(now, (client, flow), &run);
        }
        self.send(now);
        arena.packets().for_each(|(client, _)| self.arm(now, client));
        if let Some(interface) = &mut self.interface {
            interface.recycle(arena);
        }
        Ok(())
    }

    /// Assigns a server's datagrams to the client's paths, or queues them if the settings demand a
    /// delay.
    fn deal(&mut self, now: Time, key: FlowKey, run: &Received<'_>) {
        let Some(state) = self.client_states.get_mut(key.0.0 as usize) else { return };
        match state.delays(now, key.1, run) {
            true => self.deal_delayed(now, key.0),
            false => self.deal_now(now, key, run),
        }
    }

    /// Assigns paths to a client's delayed datagrams whose delay has ended.
    fn deal_delayed(&mut self, now: Time, client: ClientId) {
        let place = client.0 as usize;
        while let Some((flow, bytes)) = self.client_states[place].next_delayed(now) {
            let (from, stride) = (self.settings.listen, bytes.len());
            let run = Received { from, to: None, ecn: 0, stride, bytes: &bytes };
            self.deal_now(now, (client, flow), &run);
        }
        self.counted.hurried += self.client_states[place].take_hurried();
    }

    fn deal_now(&mut self, now: Time, (client, flow): FlowKey, run: &Received<'_>) {
        let state = &mut self.client_states[client.0 as usize];
        if state.has_windows() {
            self.counted.unsent += state.await_window(now, flow, run);
            return self.use_windows(now, client);
        }
        let mut left = run.count() as u64;
        let mut datagrams = run.datagrams();
        while left > 0 {
            let Some((path, units)) = state.assign(now, left) else {
                self.counted.unsent += left;
                return;
            };
            for datagram in datagrams.by_ref().take(units as usize) {
                match self.outbox.seal(now, &mut self.far, (client, path), (flow, datagram)) {
                    true => state.count_out(path, datagram.len()),
                    false => self.counted.unsent += 1,
                }
            }
            left -= units;
        }
    }

    /// Sends a client the datagrams that wait for room in a congestion window, as many as the
    /// paths' windows allow.
    fn use_windows(&mut self, now: Time, client: ClientId) {
        let state = &mut self.client_states[client.0 as usize];
        while let Some((path, units)) = state.next_run(now, &self.far) {
            for _ in 0..units {
                let Some((flow, datagram)) = state.next_answer() else { break };
                match self.outbox.seal(now, &mut self.far, (client, path), (flow, &datagram)) {
                    true => state.count_out(path, datagram.len()),
                    false => self.counted.unsent += 1,
                }
            }
        }
        self.counted.unsent += state.take_dropped();
    }

    pub(super) fn send(&mut self, now: Time) {
        if let Some(streams) = &mut self.streams {
            self.counted.unsent += self.outbox.share(now, streams);
            streams.flush(now, &self.poller);
        }
        self.counted.unsent += self.outbox.send(&self.listener, &mut self.queue);
    }

    /// Sets a client's timer to its next due time, if that is earlier than the time already set.
    fn arm(&mut self, now: Time, client: ClientId) {
        let due = self.far.session(client).and_then(|session| session.next_timeout());
        let state = &mut self.client_states[client.0 as usize];
        let due = due.into_iter().chain(state.next_due()).min();
        let Some(due) = due.map(|due| due.max(now)) else { return };
        if state.armed.is_none_or(|armed| due < armed) {
            if let Some(armed) = state.armed.replace(due) {
                self.timers.remove(&(armed, client));
            }
            self.timers.insert((due, client));
        }
    }

    /// Handles the clients' timers that are due, and removes paths whose streams have ended.
    /// Periodically, also closes idle flows and the sessions of silent clients, and reports the
    /// counters.
    fn on_time(&mut self) {
        let now = self.clock.now();
        while let Some(&(due, client)) = self.timers.first()
            && due <= now
        {
            self.timers.pop_first();
            self.client_states[client.0 as usize].armed = None;
            self.tend(now, client);
        }
        self.follow_streams(now);
        self.send(now);
        if now >= self.next_sweep {
            self.next_sweep = now + SWEEP;
            self.sweep(now);
        }
        if now >= self.next_snapshot {
            self.next_snapshot = now + self.screen.interval().max(Duration::from_millis(10));
            let snapshot = self.snapshot();
            self.screen.snapshot(now, &snapshot);
        }
    }

    fn sweep(&mut self, now: Time) {
        self.flows.close_idle(now, self.settings.idle);
        if let Some(streams) = &mut self.streams {
            streams.sweep(now, &self.poller);
        }
        for client in self.far.expire(now) {
            self.flows.close_all(client);
            self.close_streams(client);
            let state = &mut self.client_states[client.0 as usize];
            state.end();
            let news = News::Ended { client: state.name() };
            self.screen.news(now, &news);
        }
    }

    fn snapshot(&mut self) -> Snapshot {
        let present = self.client_states.iter().filter(|state| !state.is_gone());
        let far = &mut self.far;
        let memory = self.listener.memory().unwrap_or_default();
        let streams = self.streams.as_ref();
        Snapshot {
            clients: present.map(|state| state.snapshot(far, streams)).collect(),
            streams: streams.map(Streams::snapshot),
            flows: self.flows.len(),
            missed: memory.drops.into(),
            ..self.counted.clone()
        }
    }

    /// Sends every client a packet that ends its session, and reports the final counters.
    fn end(mut self) -> Snapshot {
        notify(&[NotifyState::Stopping]);
        let now = self.clock.now();
        let snapshot = self.snapshot();
        for client in (0..self.client_states.len() as u32).map(ClientId) {
            self.far.session(client).into_iter().for_each(|session| session.close());
            self.tend(now, client);
        }
        self.send(now);
        self.hasty.store(true, Ordering::Release);
        self.screen.finish(now, &snapshot);
        snapshot
    }
}

/// Returns the servers' names and addresses.
pub(super) fn look_up(servers: &[Server]) -> Result<Vec<(String, SocketAddr)>, Failure> {
    let found = servers.iter().map(|server| {
        let found = server.to.resolve();
        let found = found.map_err(|error| Failure::Resolve(server.to.clone(), error))?;
        Ok((server.name.clone(), found[0]))
    });
    found.collect()
}

/// Returns the address of the web server of `--behind`, if there is one.
pub(super) fn look_up_web_server(settings: &Settings) -> Result<Option<SocketAddr>, Failure> {
    let Some(web_server) = &settings.web_server else { return Ok(None) };
    let addresses =
        web_server.resolve().map_err(|error| Failure::Resolve(web_server.clone(), error))?;
    Ok(Some(addresses[0]))
}

/// Opens the sockets that accept streams. Returns `None` if the settings name no such socket.
fn open_streams(
    settings: &Settings,
    web_server: Option<SocketAddr>,
    poller: &Poller,
) -> Result<Option<Streams>, Failure> {
    let plain = settings.listen_tcp.map(|listen| (listen, TCP_LISTENER, None));
    let tls = settings.listen_tls.clone();
    let tls = tls.map(|(listen, end)| (listen, TLS_LISTENER, Some(end)));
    let entries = plain.into_iter().chain(tls).map(|(listen, token, tls)| {
        let opened = TcpListener::bind(listen).and_then(|one| Entry::new(one, token, tls));
        opened.map_err(|error| {
            let why = holders::unbindable(Transport::Tcp, listen, &error);
            Failure::Listen(listen, io::Error::new(error.kind(), why))
        })
    });
    let entries = entries.collect::<Result<Vec<_>, _>>()?;
    if entries.is_empty() {
        return Ok(None);
    }
    let streams = Streams::new(entries, (web_server, settings.stream_age), poller);
    streams.map(Some).map_err(|error| Failure::System("cannot watch a socket (epoll)", error))
}

fn open_listener(listen: SocketAddr) -> Result<UdpSocket, Failure> {
    let options = UdpOptions {
        recv_buffer: BUFFER,
        send_buffer: BUFFER,
        error_queue: false,
        ..UdpOptions::default()
    };
    UdpSocket::bind(listen, &options).map_err(|error| {
        let why = holders::unbindable(Transport::Udp, listen, &error);
        Failure::Listen(listen, io::Error::new(error.kind(), why))
    })
}

//! A client with its sockets and files. Programs connect by SOCKS or HTTP CONNECT, and their
//! streams use circuits.
//!
//! The client runs two cores. [`Client`] implements the protocol. [`CircuitManager`] decides which
//! circuits to build and which circuit each stream uses.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anabranch_links::{Context, StreamFamily};
use anabranch_multipath::{Core as _, Time};
use anabranch_onion::circmgr::{CircuitManager, Order, Refusal};
use anabranch_onion::client::{CircuitKey, Client, Config, Input, Output};
use anabranch_onion::clocks::{Clocks, PeerTime};
use anabranch_onion::conflux::{Design, LegScheduler};
use anabranch_onion::directory::network::{Network, Path, Position, RelayRestrictions, Target};
use anabranch_onion::padding::Amount;
use anabranch_onion::wire::cell::CELL;
use anabranch_onion::wire::text::hex;
use anabranch_onion::{Event, LegNumbers, Neighbour, SetNumbers, Violation, circuitmux};
use anabranch_os::clock::Clock;
use anabranch_os::files::{self, RejectionReporter};
use anabranch_os::manager::notify;
use anabranch_os::poller::Ready;
use rand_chacha::ChaCha20Rng;
use sd_notify::NotifyState;

use super::authorities::Authority;
use super::bridge_routes::{BridgeRoutes, TransportNews};
use super::dirclient::{DirClient, FetchReport, News, unix};
use super::links::quic::QuicLinking;
use super::mptcp::TcpKind;
use super::reload::{Outcome, Reload, ReloadAction, ReloadedSettings};
use super::skew::Skew;
use super::state::{ClientState, UnknownState};
use super::station::{CoreDriver, TICK, Token};
use super::tap::Tap;
use dir_requests::{DirRequestContext, DirRequests, DirResponse};
use lossy::NotLossy;
pub use metrics::ClientMetrics;
use programs::Programs;
pub use refused::{Exits, Lack, RefusalReason, RefusedRequest};
use sets::SetBook;
pub use status::{CircuitStatus, LegPath, RelayName, SetStatus, Status};
use trace::CellTrace;

mod dir_requests;
mod lossy;
mod metrics;
mod names;
mod programs;
mod refused;
mod sets;
mod status;
mod trace;

/// Poller token of the socket that becomes readable when the client must stop.
const STOP: u64 = 0;
/// Poller token of the socket that becomes readable when the directory client has messages.
const NEWS: u64 = 1;
/// Poller token of the file that becomes readable after SIGHUP.
const HANGUP: u64 = 2;
/// Poller token of the socket that becomes readable when a pluggable transport has started or has
/// a message.
const TRANSPORTS: u64 = 3;

/// Settings of an onion client.
pub struct Settings {
    /// Addresses at which programs connect. The first byte of a connection distinguishes SOCKS
    /// from HTTP.
    pub listen: Vec<SocketAddr>,
    /// Handle of the thread that fetches directory documents from authorities and caches.
    pub dirclient: DirClient,
    /// Folder of the client's state: its guards, and the build times of circuits.
    pub data: PathBuf,
    /// Relays that the user requires or excludes for certain positions of a path.
    pub restrictions: RelayRestrictions,
    /// Bridges that the client uses as first hops of all circuits; `None` to use guards.
    /// `dirclient` must be configured with the same bridges.
    pub routes: Option<BridgeRoutes>,
    /// True to use Tor's extended SOCKS5 error codes for onion services.
    pub extended_errors: bool,
    /// Amount of padding cells on links, which hide from observers when a link is in use.
    pub padding: Amount,
    /// Maximum memory for queued cells, in bytes.
    pub memory: usize,
    /// Scheduler that chooses which circuit on a link sends the next cell.
    pub circuitmux: circuitmux::Kind,
    /// Number of circuits (legs) among which the data of each stream is distributed; `None` for
    /// the number that the network recommends.
    pub legs: Option<usize>,
    /// Multipath design: the protocol that lets several circuits carry the same streams.
    pub design: Design,
    /// Scheduler that distributes data among the circuits of a set, that is, the circuits that
    /// carry the same streams. If `None`, the scheduler of the multipath design is used. A design
    /// without its own scheduler uses the scheduler that the last relay of the circuits requests.
    pub dealing: Option<LegScheduler>,
    /// Packet tap that delivers TCP segments before earlier segments have arrived
    /// ([`Tap::open_all`]); `None` to use only ordered links. With a tap, the client requests
    /// unordered links from guards that support them. An unordered link decrypts TLS records that
    /// arrive before earlier records.
    pub tap: Option<Tap>,
    /// Protocol of links over TCP connections, such as TLS.
    pub links: &'static StreamFamily,
    /// Settings of QUIC links, which are used with guards that support QUIC; `None` to use no
    /// QUIC.
    pub quic: Option<QuicLinking>,
    /// True for UDP-OR or mUDP-OR: each stream is a TCP connection between client and exit, whose
    /// segments travel over lossy circuits. UDP-OR uses one circuit, and mUDP-OR uses `legs`
    /// circuits. If true, `quic` must allow lossy cells, which travel in datagrams and may get
    /// lost.
    pub udp_or: bool,
    /// Log file for the cells (time, size and circuit of each); `None` for no log.
    pub trace: Option<PathBuf>,
}

/// New settings for a client that runs already.
#[derive(Debug)]
pub struct Changes {
    /// Relays that the user requires or excludes for certain positions of a path.
    pub restrictions: RelayRestrictions,
    /// Amount of padding cells on links, which hide from observers when a link is in use.
    pub padding: Amount,
    /// Number of circuits among which the data of each stream is distributed; `None` for the
    /// number that the network recommends.
    pub legs: Option<usize>,
    /// Maximum memory for queued cells, in bytes.
    pub memory: usize,
    /// The directory authorities, and whether relays of one path may share a subnet. `None` if
    /// both are unchanged.
    pub trust: Option<(Vec<Authority>, bool)>,
}

/// Event of an onion client, for the user or another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// The client accepts connections of local programs at these addresses.
    Listening(Vec<SocketAddr>),
    /// Enough relays are known to build circuits. The field is the number of usable relays.
    Ready(usize),
    /// A circuit is built. The fields are its identifier, the names of its relays (first hop
    /// first), and whether its last hop uses Counter Galois Onion encryption.
    Built(u64, Vec<String>, bool),
    /// A circuit has joined a set of circuits that carry the same streams. The fields are the
    /// circuit's identifier, the name of the multipath design, and the time that the circuit's
    /// last relay took to confirm.
    Linked(u64, &'static str, Duration),
    /// A circuit was closed. The fields are its identifier, the names of its relays (first hop
    /// first), and the reason.
    Closed(u64, Vec<String>, String),
    /// The client's current state, which is reported once a second.
    Status(Box<Status>),
    /// A link to the relay or bridge with this name is open.
    LinkOpen(String),
    /// The relay or bridge with this name has violated the protocol in the given way.
    Violation(String, Violation),
    /// Queued cells reached the memory limit. To free memory, the client has closed the circuit
    /// whose cells had waited longest.
    OutOfMemory,
    /// The client has refused a program's request.
    Refused(RefusedRequest),
    /// A directory request has ended. The field describes its result.
    Fetched(FetchReport),
    /// The settings were read again after SIGHUP. The field is the result.
    Reloaded(Outcome),
    /// A relay's or this machine's clock is wrong, or this machine's clock is correct again.
    Clock(Skew),
    /// An operation has failed and will be retried.
    Trouble(String),
}

/// Runs an onion client until `stop` is readable.
///
/// # Errors
/// The process cannot listen on an address, the saved state cannot be read, file descriptors run
/// out at the start, or the trace file could not be written completely.
pub fn run(
    settings: Settings,
    rng: ChaCha20Rng,
    stop: &UnixStream,
    watch: &mut dyn FnMut(ClientEvent),
) -> io::Result<()> {
    run_rereading(settings, rng, stop, None, watch)
}

/// Runs an onion client as [`run`] does. If `reload` is given, SIGHUP makes the client read its
/// settings again, and open streams continue under the new settings.
///
/// # Errors
/// The errors of [`run`].
pub fn run_rereading(
    settings: Settings,
    rng: ChaCha20Rng,
    stop: &UnixStream,
    reload: Option<Reload<'_, Changes>>,
    watch: &mut dyn FnMut(ClientEvent),
) -> io::Result<()> {
    files::raise_limit();
    let mut client_loop = ClientLoop::new(settings, rng, stop, reload)?;
    let listening = client_loop.station.addresses()?;
    let open = listening.iter().filter(|at| !at.ip().is_loopback()).map(open_to_others);
    open.map(ClientEvent::Trouble).for_each(&mut *watch);
    watch(ClientEvent::Listening(listening));
    notify(&[NotifyState::Ready]);
    while client_loop.turn(watch)? {}
    client_loop.end(watch)
}

/// Returns the reason why `network` has no path of three relays that `restrictions` permit. The
/// exits' policies are not considered. Returns `None` if a path exists.
fn pathless(network: &Network, restrictions: &RelayRestrictions) -> Option<RefusalReason> {
    let none = network.has_path(Target { port: 443, v6: false }, restrictions).err()?;
    matches!(none.0, Position::Guard | Position::Middle).then_some(RefusalReason::NoPath(none))
}

/// Returns a warning that other machines can use the proxy that listens at `at`.
fn open_to_others(at: &SocketAddr) -> String {
    format!(
        "--listen {at}: anyone who reaches this address can use the network in your name, and the \
         connections to this address are not encrypted: use 127.0.0.1 if possible"
    )
}

/// State of a running onion client: the two protocol cores (state machines without I/O), their
/// sockets, and the connected programs. One core implements the protocol, and the other decides
/// which circuits to build.
struct ClientLoop<'r> {
    station: CoreDriver<Client>,
    circmgr: CircuitManager,
    programs: Programs,
    dir_requests: DirRequests,
    clocks: Clocks,
    sets: SetBook,
    trace: Option<CellTrace>,
    /// True if writing the trace file failed. If so, `run` will return an error at the end.
    trace_failed: bool,
    rng: ChaCha20Rng,
    network: Option<Arc<Network>>,
    /// Number of relays in the consensus, and number of relays with usable descriptors.
    relays: [usize; 2],
    /// Relays that the user's settings name but the consensus does not list, as last reported to
    /// the user. Each list has the name of its setting.
    unlisted: Vec<(&'static str, Vec<[u8; 20]>)>,
    settings: Settings,
    reload: Option<Reload<'r, Changes>>,
    /// True if the client must stop because its terminal was closed, which the last SIGHUP has
    /// signalled.
    ends: bool,
    unkept: bool,
    /// True if, at the last check, no three relays could form a path.
    pathless: bool,
    not_lossy: NotLossy,
    rejection_reporter: RejectionReporter,
    /// Fields of the state file that this version does not know. They are written back unchanged.
    unknown: UnknownState,
    ticked: Time,
}

impl<'r> ClientLoop<'r> {
    fn new(
        mut settings: Settings,
        mut rng: ChaCha20Rng,
        stop: &UnixStream,
        reload: Option<Reload<'r, Changes>>,
    ) -> io::Result<ClientLoop<'r>> {
        let kept = ClientState::read(&settings.data).map_err(io::Error::other)?;
        let config = Config {
            params: Arc::default(),
            policy: settings.circuitmux,
            padding: settings.padding,
            max_cells: settings.memory / CELL,
            design: settings.design,
            dealing: settings.dealing.clone(),
        };
        let mut core = Client::new(config, Box::new(fork(&mut rng)));
        let lossy = settings.quic.and_then(|linking| linking.lossy);
        lossy.into_iter().for_each(|congestion| core.set_lossy_congestion(congestion));
        let clock = Clock::start();
        let trace = settings.trace.as_ref().map(|target| {
            core.watch_cells();
            CellTrace::create(target, &clock, settings.dealing.as_ref())
        });
        let context = Context::new(unix()).map_err(io::Error::other)?;
        // A client does not advertise its addresses.
        let mut station =
            CoreDriver::new(clock, core, context, (TcpKind::Single, &settings.listen), Vec::new())?;
        settings.tap.take().map(|tap| station.unorder(tap)).transpose()?;
        station.carriers.tcp.family = settings.links;
        if let Some(linking) = settings.quic {
            station.open_quic(linking);
        }
        station.watch(stop, STOP)?;
        station.watch(settings.dirclient.waker(), NEWS)?;
        reload.iter().try_for_each(|reload| station.watch(&reload.hangup, HANGUP))?;
        let restrictions = settings.restrictions.clone();
        let authorities = settings.dirclient.authorities().iter();
        let ClientState { guards, build_times, unknown } = kept;
        let udp_or = settings.udp_or;
        let mut circmgr = CircuitManager::new(guards, &build_times, restrictions);
        circmgr.set_lossy(settings.udp_or);
        circmgr.set_design(settings.design);
        circmgr.set_legs(settings.legs);
        if let Some(routes) = &settings.routes {
            circmgr.set_bridges(routes.bridges().iter().map(|bridge| bridge.rsa).collect());
            station.watch(routes.transports().waker(), TRANSPORTS)?;
            station.carriers.tcp.set_routes(routes.clone());
        }
        Ok(ClientLoop {
            station,
            circmgr,
            programs: Programs::new(settings.extended_errors),
            dir_requests: DirRequests::default(),
            clocks: Clocks::new(authorities.map(|one| one.fingerprint)),
            sets: SetBook::default(),
            trace: trace.transpose()?,
            trace_failed: false,
            rng,
            network: None,
            relays: [0; 2],
            unlisted: Vec::new(),
            settings,
            reload,
            ends: false,
            unkept: false,
            pathless: false,
            not_lossy: NotLossy::new(udp_or),
            rejection_reporter: RejectionReporter::default(),
            unknown,
            ticked: Time::ZERO,
        })
    }

    /// Waits for socket events and services both cores. Returns false when the client must end.
    fn turn(&mut self, watch: &mut dyn FnMut(ClientEvent)) -> io::Result<bool> {
        let ready = self.station.wait(self.circmgr.next_timeout())?;
        let now = self.station.clock.now();
        for event in &ready {
            self.take(now, *event, watch);
        }
        self.station.resume(now);
        self.execute(now, watch);
        if now.since(self.ticked) >= TICK {
            self.ticked = now;
            self.tick(now, watch);
            self.execute(now, watch);
        }
        Ok(!self.ends && ready.iter().all(|event| event.token != STOP))
    }

    fn tick(&mut self, now: Time, watch: &mut dyn FnMut(ClientEvent)) {
        watch(ClientEvent::Status(Box::new(self.status(now))));
        let (turned_away, have) = (self.station.turned_away(), self.programs.len());
        let want = self.rejection_reporter.report(now, turned_away, have);
        want.map(ClientEvent::Trouble).into_iter().for_each(&mut *watch);
        if self.unkept {
            self.keep(watch);
        }
        self.at_dir_requests(now, DirRequests::expire);
        if self.network.is_none() {
            self.programs.refuse_waiting(now, &mut self.circmgr);
        }
    }

    fn status(&self, now: Time) -> Status {
        let named = |id: &[u8; 20]| self.name(id).unwrap_or_else(|| "?".to_owned());
        let circuits = self.circmgr.overview().map(|seen| CircuitStatus {
            number: seen.key.0,
            path: seen.path.iter().map(named).collect(),
            age: now.since(seen.begun),
            stage: seen.stage,
            streams: seen.streams,
            // The bytes of a set are shown only once, for its first circuit.
            transferred: match seen.set.is_none_or(|head| head == seen.key) {
                true => self.station.core.transferred(seen.key),
                false => [0; 2],
            },
        });
        let circuits = circuits.collect();
        let guards = self.circmgr.entries();
        let [waiting, reordered, most_reordered] = self.station.core.waiting();
        Status {
            now,
            relays: self.relays,
            guards: guards.into_iter().map(|(id, reach)| (named(&id), reach)).collect(),
            circuits,
            sets: self.set_status(),
            design: self.settings.design,
            programs: self.programs.len(),
            streams: self.programs.streams(),
            links: self.station.link_count(),
            wire: self.station.transferred(),
            padding: self.station.core.padding(),
            waiting: [waiting, reordered],
            most_reordered,
            memory: self.settings.memory,
            tap: self.station.carriers.tcp.tap(),
            early: self.station.carriers.tcp.early(),
            quic: self.station.quic_counts().map(|_| self.station.core.quic()),
        }
    }

    fn set_status(&self) -> Vec<SetStatus> {
        let overview = self.circmgr.overview().map(|seen| (seen.key.0, seen.path));
        let paths: BTreeMap<u64, Path> = overview.collect();
        let place = |circuit: u64| {
            let place = self.sets.get(CircuitKey(circuit))?;
            let relays = paths.get(&circuit)?.iter().map(|id| self.relay_name(id)).collect();
            Some((place.set, LegPath { leg: place.leg, relays }))
        };
        let of_set = |mut seen: SetNumbers| {
            let known = |leg: &LegNumbers| leg.circuit.and_then(place);
            // Legs that the circuit manager has dropped are being closed, so they are not shown.
            seen.legs.retain(|leg| known(leg).is_some());
            let (numbers, places): (Vec<u64>, _) = seen.legs.iter().filter_map(known).unzip();
            Some(SetStatus { number: *numbers.first()?, seen, places })
        };
        let sets = self.station.core.fullest_sets(usize::MAX).into_iter();
        let mut sets: Vec<SetStatus> = sets.filter_map(of_set).collect();
        sets.sort_by_key(|set| set.number);
        sets
    }

    fn relay_name(&self, id: &[u8; 20]) -> RelayName {
        let nickname = self.name(id).unwrap_or_else(|| "?".to_owned());
        RelayName { nickname, fingerprint: hex(id).to_uppercase() }
    }

    /// Writes to the trace file, if there is one, the cells that were seen since the last call.
    fn trace_cells(&mut self, watch: &mut dyn FnMut(ClientEvent)) {
        let Some(trace) = &mut self.trace else { return };
        let seen = self.station.core.take_seen();
        let mut placed = seen.iter().filter_map(|cell| Some((cell, self.sets.get(cell.circuit)?)));
        if let Err(error) = placed.try_for_each(|(cell, place)| trace.push(cell, place)) {
            self.lose_trace(&error, watch);
        }
    }

    /// Stops writing the trace file because of `error`. The client continues, but [`run`] will
    /// return an error at its end.
    fn lose_trace(&mut self, error: &io::Error, watch: &mut dyn FnMut(ClientEvent)) {
        (self.trace, self.trace_failed) = (None, true);
        let message =
            format!("writing the trace stopped ({error}); what was written before is kept");
        watch(ClientEvent::Trouble(message));
    }

    /// Saves the client's state and completes the trace file, at the end of the run.
    ///
    /// # Errors
    /// The trace file could not be written completely.
    fn end(mut self, watch: &mut dyn FnMut(ClientEvent)) -> io::Result<()> {
        self.keep(watch);
        if self.trace_failed {
            return Err(io::Error::other("the trace is incomplete: writing it stopped early"));
        }
        self.trace.map_or(Ok(()), CellTrace::finish)
    }

    fn keep(&mut self, watch: &mut dyn FnMut(ClientEvent)) {
        let guards = self.circmgr.guards();
        let build_times = self.circmgr.build_times().collect();
        let kept = ClientState { guards, build_times, unknown: self.unknown.clone() };
        self.unkept = false;
        if let Err(error) = kept.write(&self.settings.data) {
            watch(ClientEvent::Trouble(error.to_string()));
        }
    }

    fn take(&mut self, now: Time, ready: Ready, watch: &mut dyn FnMut(ClientEvent)) {
        let ClientLoop { station, circmgr, programs, .. } = self;
        match Token::of(ready.token) {
            Token::File(NEWS) => self.take_news(now, watch),
            Token::File(HANGUP) => self.on_hangup(watch),
            Token::File(TRANSPORTS) => self.on_transports(watch),
            Token::File(_) => {}
            Token::Listener(place) => {
                if let Err(error) = programs.accept(station, place) {
                    let message = format!("cannot accept a program's connection: {error}");
                    watch(ClientEvent::Trouble(message));
                }
            }
            Token::Carrier(carrier, file) => station.receive(now, (carrier, file), ready),
            Token::Stream(number) => programs.take(now, station, circmgr, number, ready),
        }
        self.execute(now, watch);
    }

    /// Processes changes of pluggable transports: logs their messages, and tries bridges again if
    /// a transport has started.
    fn on_transports(&mut self, watch: &mut dyn FnMut(ClientEvent)) {
        let Some(routes) = &self.settings.routes else { return };
        let TransportNews { has_started, messages } = routes.transports().news();
        messages.into_iter().map(ClientEvent::Trouble).for_each(watch);
        if has_started {
            self.settings.dirclient.ask_bridges();
            self.circmgr.retry_now();
        }
    }

    /// Reads the settings again after SIGHUP.
    fn on_hangup(&mut self, watch: &mut dyn FnMut(ClientEvent)) {
        let Some(reload) = &mut self.reload else { return };
        let outcome = match reload.take() {
            ReloadAction::End => return self.ends = true,
            ReloadAction::Keep(why) => Err(why),
            ReloadAction::Adopt(ReloadedSettings { settings, names }) => {
                self.adopt(settings, watch);
                Ok(names)
            }
        };
        notify(&[NotifyState::Ready]);
        watch(ClientEvent::Reloaded(outcome));
    }

    fn adopt(&mut self, changes: Changes, watch: &mut dyn FnMut(ClientEvent)) {
        let Changes { restrictions, padding, legs, memory, trust } = changes;
        if let Some((authorities, share_subnets)) = trust {
            self.clocks.trust(authorities.iter().map(|one| one.fingerprint));
            self.settings.dirclient.trust(authorities, share_subnets);
        }
        self.station.core.set_amount(padding);
        self.settings.restrictions.clone_from(&restrictions);
        self.circmgr.set_restrictions(restrictions);
        self.circmgr.set_legs(legs);
        self.settings.memory = memory;
        self.station.core.set_max_cells(memory / CELL);
        if let Some(network) = self.network.clone() {
            self.report_unlisted(&network, watch);
        }
    }

    fn take_news(&mut self, now: Time, watch: &mut dyn FnMut(ClientEvent)) {
        for news in self.settings.dirclient.take() {
            match news {
                News::Network(network) => {
                    self.station.core.set_params(super::params(&network));
                    self.station.core.set_padding(network.params().padding);
                    self.circmgr.set_network(Arc::clone(&network));
                    self.relays = [network.consensus().relays.len(), network.relays().count()];
                    self.report_unlisted(&network, watch);
                    self.network = Some(network);
                    if self.pathless {
                        self.on_ready(watch);
                    }
                }
                News::Bridge(place, bridge) => self.circmgr.learn_bridge(place, *bridge),
                News::Ready => self.on_ready(watch),
                News::DirRequest(dir_request) => {
                    self.at_dir_requests(now, |dir_requests, at| {
                        dir_requests.begin(at, dir_request)
                    });
                }
                News::Fetched(fetched) => watch(ClientEvent::Fetched(fetched)),
                News::Trouble(text) => watch(ClientEvent::Trouble(text)),
                News::Cache(_) | News::Published(_) => {}
            }
        }
    }

    /// Reports that enough relays are known to build circuits, or that no three relays can form a
    /// path.
    fn on_ready(&mut self, watch: &mut dyn FnMut(ClientEvent)) {
        let bridges = self.settings.routes.is_some();
        let network = self.network.as_ref().filter(|_| !bridges);
        let Some(why) = network.and_then(|network| pathless(network, &self.settings.restrictions))
        else {
            self.pathless = false;
            return watch(ClientEvent::Ready(self.relays[1]));
        };
        if !std::mem::replace(&mut self.pathless, true) {
            watch(ClientEvent::Trouble(format!("not ready: {why}")));
        }
    }

    /// Reports the relays that the user names but `network` does not list, if they have changed.
    fn report_unlisted(&mut self, network: &Network, watch: &mut dyn FnMut(ClientEvent)) {
        let unlisted = self.settings.restrictions.unlisted(network);
        if unlisted == self.unlisted {
            return;
        }
        for (option, ids) in &unlisted {
            let names: Vec<String> = ids.iter().map(|id| hex(id).to_uppercase()).collect();
            let which = names.join(", ");
            let text =
                format!("--{option}: no relay of the consensus has this fingerprint: {which}");
            watch(ClientEvent::Trouble(text));
        }
        self.unlisted = unlisted;
    }

    /// Executes the outputs of both cores until neither core has further outputs.
    fn execute(&mut self, now: Time, watch: &mut dyn FnMut(ClientEvent)) {
        loop {
            let at = self.station.moment(now);
            self.circmgr.work(at, &mut self.rng);
            let mut quiet = true;
            while let Some(order) = self.circmgr.poll() {
                quiet = false;
                self.follow(now, order, watch);
            }
            while let Some(output) = self.station.core.poll(now) {
                quiet = false;
                self.carry_out(now, output, watch);
            }
            if quiet {
                self.trace_cells(watch);
                let advice = self.programs.advice().map(str::to_owned);
                advice.map(ClientEvent::Trouble).into_iter().for_each(&mut *watch);
                return self
                    .programs
                    .refused()
                    .into_iter()
                    .map(ClientEvent::Refused)
                    .for_each(watch);
            }
        }
    }

    /// Returns the rule about which relays may be the last hop of a circuit. Messages about
    /// refused requests contain it.
    fn exits(&self) -> Exits {
        let Settings { design, restrictions, .. } = &self.settings;
        match (self.circmgr.needs_able_exits(), restrictions.exit.is_empty()) {
            (true, _) => Exits::Linking(*design),
            (false, false) => Exits::Named,
            (false, true) => Exits::Any,
        }
    }

    /// Converts the circuit manager's `refusal` to build a circuit into a reason that is shown to
    /// the user. `unix` is the time in seconds since 1970.
    fn why(&self, refusal: Refusal, unix: u64) -> RefusalReason {
        let lack = match self.network.as_deref() {
            None => Lack::Consensus,
            Some(known) if !known.consensus().is_reasonably_live(unix) => Lack::LiveConsensus,
            Some(known) if !known.is_enough() => Lack::Relays,
            Some(_) => Lack::Circuit,
        };
        match refusal {
            Refusal::NoPath(none) => RefusalReason::no_path(none, self.exits()),
            Refusal::TimedOut => RefusalReason::TimedOut(lack),
            Refusal::Unanswered => RefusalReason::Unanswered,
        }
    }

    fn follow(&mut self, now: Time, order: Order, watch: &mut dyn FnMut(ClientEvent)) {
        let ClientLoop { station, circmgr, programs, .. } = self;
        match order {
            Order::Build(circuit, hops) => {
                self.sets.begin(circuit, circmgr.head(circuit));
                station.core.handle(now, Input::Build { circuit, hops });
            }
            Order::Destroy(circuit) => station.core.handle(now, Input::Destroy { circuit }),
            Order::Link(circuit, with) => {
                if station.core.link(now, circuit, with).is_err() {
                    circmgr.not_linked(circuit);
                }
            }
            Order::Merge(circuit, beyond) => {
                if station.core.merge(now, circuit, beyond).is_err() {
                    circmgr.not_linked(circuit);
                }
            }
            Order::FewLegs(found, wanted) => watch(ClientEvent::Trouble(format!(
                "each stream gets only {found} of {wanted} circuits, because too few relays are of \
                 different families and /16 networks"
            ))),
            Order::NoAbleRelay(design) => watch(ClientEvent::Trouble(no_able_relay(design))),
            Order::NoLossyRelay => watch(ClientEvent::Trouble(
                "--design: the network has too few relays for UDP-OR (with Anabranch=4 among their \
                 protocols): it needs an entry, a middle and an exit that run 'anabranch relay \
                 --udp-or'"
                    .to_owned(),
            )),
            Order::FewBridges(bridges, wanted) => watch(ClientEvent::Trouble(format!(
                "each stream gets {bridges} of {wanted} circuits: each circuit needs a --bridge \
                 of its own"
            ))),
            Order::FewJoining(count) => watch(ClientEvent::Trouble(format!(
                "few relays of the network support --multipath merged ({count}), so the same \
                 relays often learn which first relays (guards) you use"
            ))),
            Order::Attach(program, circuit) => {
                programs.attach(now, station, circmgr, program, circuit);
            }
            Order::Detach(program) => programs.detach(now, station, program),
            Order::Refuse(program, refusal) => {
                let why = self.why(refusal, self.station.unix(now));
                self.programs.refuse(program, why);
            }
            Order::Keep => self.unkept = true,
            Order::FewGuards(count) => watch(ClientEvent::Trouble(format!(
                "--entry and --exclude leave only {count} entry relays: with so few you are easily \
                 recognised; allow more"
            ))),
        }
    }

    /// Calls `act` on the table of directory requests, and returns its result. Then reports to the
    /// directory client the requests that have ended.
    fn at_dir_requests<T>(
        &mut self,
        now: Time,
        act: impl FnOnce(&mut DirRequests, &mut DirRequestContext<'_>) -> T,
    ) -> T {
        let unix = self.station.unix(now);
        let ClientLoop { station, circmgr, rng, .. } = self;
        let mut at = DirRequestContext { now, unix, core: &mut station.core, circmgr, rng };
        let done = act(&mut self.dir_requests, &mut at);
        for DirResponse { number, relay, outcome } in self.dir_requests.done() {
            let from = relay.and_then(|id| self.name(&id));
            self.settings.dirclient.report(number, from, outcome);
        }
        done
    }

    fn carry_out(&mut self, now: Time, output: Output, watch: &mut dyn FnMut(ClientEvent)) {
        if self.dir_requests.concerns(&output) {
            return self.at_dir_requests(now, |dir_requests, at| dir_requests.take(at, output));
        }
        let ClientLoop { station, circmgr, programs, .. } = self;
        match output {
            Output::Link(output) => station.execute(now, output),
            Output::Stream(output) => programs.service(now, station, circmgr, output),
            Output::Extended { circuit, hops } => circmgr.extended(now, circuit, hops),
            Output::Built { circuit, cgo } => {
                watch(ClientEvent::Built(circuit.0, names(circmgr, circuit), cgo));
                let at = self.station.moment(now);
                self.circmgr.built(at, circuit, &mut self.rng);
            }
            Output::Silent { circuit } => circmgr.silent(circuit),
            Output::Linked { circuit, rtt } => {
                let at = station.moment(now);
                self.circmgr.linked(at, circuit, &mut self.rng);
                let Settings { udp_or, design, .. } = &self.settings;
                let design = if *udp_or { "mudp-or" } else { design.name() };
                watch(ClientEvent::Linked(circuit.0, design, rtt));
            }
            Output::CircuitClosed { circuit, hops, cause } => {
                if circmgr.path(circuit).is_some() {
                    let names = names(circmgr, circuit);
                    if let Some(text) = self.not_lossy.look(&names, hops, cause) {
                        watch(ClientEvent::Trouble(text));
                    }
                    watch(ClientEvent::Closed(circuit.0, names, cause.to_string()));
                }
                circmgr.closed(station.moment(now), circuit, cause);
                self.trace_cells(watch);
                self.sets.end(circuit);
            }
            Output::Connected { stream } => programs.connected(now, station, circmgr, stream),
            Output::Resolved { stream, answers } => {
                programs.resolved(now, circmgr, stream, &answers);
            }
            Output::Event(event) => {
                self.look_at_clocks(now, &event, watch);
                watch(self.named(event));
            }
        }
    }

    /// If `event` shows the time of a relay's clock, compares this time with our clock. Reports a
    /// clock that is wrong, or right again.
    fn look_at_clocks(&mut self, now: Time, event: &Event, watch: &mut dyn FnMut(ClientEvent)) {
        let &Event::LinkOpen { identity: Some(identity), skew: Some(skew), dialled, .. } = event
        else {
            return;
        };
        let peer_time = PeerTime { relay: identity.rsa, skew, dialled };
        if let Some(verdict) = self.clocks.note(now, self.station.unix(now), peer_time) {
            watch(ClientEvent::Clock(Skew::new(verdict, |relay| self.name_of(relay))));
        }
    }

    /// Returns the nickname of `relay`, or else its fingerprint.
    fn name_of(&self, relay: &[u8; 20]) -> String {
        let authority =
            self.settings.dirclient.authorities().iter().find(|one| one.fingerprint == *relay);
        let named = self.name(relay).or_else(|| Some(authority?.name.clone()));
        named.unwrap_or_else(|| hex(relay))
    }

    /// Converts a protocol event into an event for the user, with the name of the relay or bridge.
    fn named(&self, event: Event) -> ClientEvent {
        match event {
            Event::LinkOpen { identity, .. } => {
                let rsa = identity.map(|identity| identity.rsa);
                ClientEvent::LinkOpen(self.name_neighbour(Neighbour { rsa, address: None }))
            }
            Event::Violation { neighbour, violation, .. } => {
                ClientEvent::Violation(self.name_neighbour(neighbour), violation)
            }
            Event::OutOfMemory => ClientEvent::OutOfMemory,
        }
    }

    /// Returns the name of a neighbour (the relay or bridge at the other end of a link) for
    /// messages: its nickname, or else its fingerprint, or else the address of its bridge line.
    fn name_neighbour(&self, neighbour: Neighbour) -> String {
        let named = neighbour.rsa.map(|rsa| self.name_of(&rsa));
        let named = named.or_else(|| Some(neighbour.address?.to_string()));
        named.unwrap_or_else(|| "a relay".to_owned())
    }

    /// Returns the nickname of the relay `id`; `None` if it is unknown.
    fn name(&self, id: &[u8; 20]) -> Option<String> {
        self.circmgr.nickname(id).map(str::to_owned)
    }
}

/// Returns the relays of `circuit`, first hop first: the nickname of each relay, or else its
/// fingerprint.
fn names(circmgr: &CircuitManager, circuit: CircuitKey) -> Vec<String> {
    let name = |id: &[u8; 20]| circmgr.nickname(id).map_or_else(|| hex(id), str::to_owned);
    circmgr.path(circuit).unwrap_or_default().iter().map(name).collect()
}

/// Returns the message that no known relay supports the multipath `design`.
fn no_able_relay(design: Design) -> String {
    let what = match design.is_merged() {
        true => "usable middle relay of the network joins circuits",
        false => "usable exit of the network supports this",
    };
    let version = design.protocol().unwrap_or_default();
    format!(
        "--multipath {design}: no {what}; use --multipath conflux, or add a relay that runs \
         Anabranch (protocol Anabranch={version}) to the network"
    )
}

/// Creates a random generator with a seed from the generator `rng`, so that the two can be used
/// independently.
fn fork(rng: &mut ChaCha20Rng) -> ChaCha20Rng {
    use rand_chacha::rand_core::SeedableRng;
    ChaCha20Rng::from_rng(rng)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, SystemTime};

    use anabranch_onion::wire::extend::Target;
    use anabranch_onion::wire::link::Identity;
    use anabranch_onion::{LinkFault, LinkId};

    use super::*;
    use crate::onion::authorities::Authority;
    use crate::onion::dirclient;

    /// Returns a client whose only authority does not exist.
    fn client_loop(data: &std::path::Path, stop: &UnixStream) -> ClientLoop<'static> {
        let line =
            format!("a orport=1 no-v2 v3ident={} 127.0.0.1:1 {}", "0".repeat(40), "1".repeat(40));
        let dirclient = dirclient::Settings {
            authorities: vec![Authority::parse(&line).unwrap()],
            data: data.to_owned(),
            share_subnets: false,
            keys: None,
            cache: false,
            dir_requests: true,
            bridges: Vec::new(),
            unpublished: false,
        };
        let settings = Settings {
            tap: None,
            links: Default::default(),
            quic: None,
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            dirclient: DirClient::start(dirclient, anabranch_os::entropy::generator().unwrap())
                .unwrap(),
            data: data.to_owned(),
            restrictions: RelayRestrictions::default(),
            routes: None,
            extended_errors: false,
            padding: Amount::Full,
            memory: 1 << 20,
            circuitmux: circuitmux::Kind::default(),
            legs: None,
            design: Design::default(),
            dealing: None,
            udp_or: false,
            trace: None,
        };
        ClientLoop::new(settings, anabranch_os::entropy::generator().unwrap(), stop, None).unwrap()
    }

    #[test]
    fn a_trace_that_failed_changes_how_the_run_ends() {
        let (folder, (stop, _)) = (tempfile::tempdir().unwrap(), UnixStream::pair().unwrap());
        let mut events = Vec::new();
        let mut watch = |event| events.push(event);
        let mut client_loop = client_loop(&folder.path().join("state"), &stop);
        client_loop.lose_trace(&io::ErrorKind::StorageFull.into(), &mut watch);
        let error = client_loop.end(&mut watch).unwrap_err().to_string();
        assert_eq!(error, "the trace is incomplete: writing it stopped early");
        let is_told = |event: &ClientEvent| matches!(event, ClientEvent::Trouble(text) if text.starts_with("writing the trace stopped"));
        assert!(events.iter().any(is_told));
    }

    #[test]
    fn the_time_that_is_told_is_that_of_a_clock_that_was_set_meanwhile() {
        let (folder, (stop, _)) = (tempfile::tempdir().unwrap(), UnixStream::pair().unwrap());
        let mut client_loop = client_loop(&folder.path().join("state"), &stop);
        client_loop.station.clock = Clock::start_at(SystemTime::now() - Duration::from_secs(7200));
        let unix_now = client_loop.station.unix(client_loop.station.clock.now());
        assert!(unix_now.abs_diff(unix()) <= 1, "{unix_now}");
    }

    #[test]
    fn events_of_links_name_their_relay_or_bridge() {
        let (folder, (stop, _)) = (tempfile::tempdir().unwrap(), UnixStream::pair().unwrap());
        let client_loop = client_loop(&folder.path().join("state"), &stop);
        let (link, violation) = (LinkId::new(0, 1), LinkFault::HandshakeTimeout.into());
        let address = Some("192.0.2.7:443".parse().unwrap());
        let by = |rsa, address| {
            let neighbour = Neighbour { rsa, address };
            match client_loop.named(Event::Violation { link, neighbour, violation }) {
                ClientEvent::Violation(name, _) => name,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(by(None, address), "192.0.2.7:443");
        assert_eq!(by(Some([0xab; 20]), address), "AB".repeat(20));
        // The nickname of an authority is known.
        assert_eq!(by(Some([0x11; 20]), address), "a");
        let identity = Some(Identity { rsa: [0x11; 20], ed25519: [0; 32] });
        let open = Event::LinkOpen { link, identity, skew: None, dialled: true };
        assert!(matches!(client_loop.named(open), ClientEvent::LinkOpen(name) if name == "a"));
    }

    #[test]
    fn a_program_waits_fifteen_seconds_for_the_first_consensus_and_hears_that_there_is_none() {
        let (folder, (stop, _)) = (tempfile::tempdir().unwrap(), UnixStream::pair().unwrap());
        let mut client_loop = client_loop(&folder.path().join("state"), &stop);
        let mut program = TcpStream::connect(client_loop.station.addresses().unwrap()[0]).unwrap();
        program.write_all(b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50").unwrap();
        while client_loop.programs.waiting() == 0 {
            client_loop.turn(&mut |_| {}).unwrap();
        }
        let asked = client_loop.station.clock.now();
        client_loop
            .programs
            .refuse_waiting(asked + Duration::from_secs(14), &mut client_loop.circmgr);
        assert_eq!(client_loop.programs.waiting(), 1);
        let (mut messages, late) = (Vec::new(), asked + Duration::from_secs(15));
        let mut watch = |event| {
            if let ClientEvent::Refused(refused) = event {
                messages.push(refused.to_string());
            }
        };
        client_loop.tick(late, &mut watch);
        client_loop.execute(late, &mut watch);
        let wanted =
            "a stream to port 80 was refused: no consensus (list of relays) arrived in time";
        assert_eq!(messages, [wanted]);
        let mut received = [0; 12];
        program.read_exact(&mut received).unwrap();
        assert_eq!(received[..4], [5, 0, 5, 6], "greeting, then a refusal by SOCKS's code");
    }

    #[test]
    fn a_relay_that_takes_a_connection_and_says_nothing_is_given_up() {
        let (folder, (stop, _)) = (tempfile::tempdir().unwrap(), UnixStream::pair().unwrap());
        let mut client_loop = client_loop(&folder.path().join("state"), &stop);
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let addresses = vec![silent.local_addr().unwrap()];
        let target = Target { addresses, ..Target::default() };
        client_loop.station.carriers.tcp.dial(&client_loop.station.poller, target).unwrap();
        let begun = Time::from_secs(10);
        client_loop.station.resume(begun);
        client_loop.station.resume(begun + Duration::from_secs(59));
        assert_eq!(client_loop.station.link_count(), 1);
        client_loop.station.resume(begun + Duration::from_secs(61));
        assert_eq!(client_loop.station.link_count(), 0);
    }
}

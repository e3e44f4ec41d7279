//! A host that runs an onion client, and a program that downloads through that client.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anabranch_multipath::seed::{Stream, stream};
use anabranch_multipath::{Core as _, Time};
use anabranch_onion::circmgr::{CircuitManager, Demand, Isolation, KeptGuards, Order};
use anabranch_onion::client::{CircuitKey, Client, Config, Input, Output};
use anabranch_onion::directory::network::{Network, RelayRestrictions, Target};
use anabranch_onion::padding::{Amount, PaddingParams};
use anabranch_onion::wire::message::{Begin, EndReason};
use anabranch_onion::{LinkCore, LossyTraffic, Moment, StreamKey, StreamOutput};
use rand::RngExt;

use super::documents::WEB_PORT;
use super::hosts::{Hosts, Side, unix};
use super::links::Links;
use super::relay::congestion;
use super::{Common, Crypto, web};
use crate::queue::HostId;
use crate::simulation::{HostProgram, Io};
use crate::stack::TcpEvent;

/// Maximum attempts to open the stream of a download.
const TRIES: u32 = 3;

/// The behaviour of a client's program, which makes one download after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLoad {
    /// Number of bytes in a download.
    pub bytes: u64,
    /// Number of bytes in a second download, which follows each download without a pause; `None`
    /// if there is no second one.
    pub second: Option<u64>,
    /// Distribution of the pauses before downloads. There is no pause before a second download
    /// ([`ClientLoad::second`]).
    pub pause: Pause,
    /// Time at which requests are sent.
    pub request: RequestTime,
    /// Maximum time from the request to the end of a download. A download that takes longer is
    /// aborted and counts as failed.
    pub timeout: Duration,
    /// Number of downloads at the start that have only one byte. They only cause the client to
    /// build the circuits and links that the other downloads use.
    pub warm_ups: u64,
}

impl ClientLoad {
    /// Returns the behaviour of a web client's program: downloads of 320 KiB, with pauses of up to
    /// 20 s (de la Cadena et al., DBSec 2019, section 5).
    pub fn web() -> ClientLoad {
        let [pause, timeout] = [20, 60].map(Duration::from_secs);
        let (pause, request) = (Pause::UpTo(pause), RequestTime::Connected);
        ClientLoad { bytes: 320 << 10, second: None, pause, request, timeout, warm_ups: 0 }
    }

    /// Returns the behaviour of a bulk client's program: downloads of 1 MiB without pauses (de la
    /// Cadena et al., DBSec 2019, section 5).
    pub fn bulk() -> ClientLoad {
        let timeout = Duration::from_secs(120);
        let (pause, request) = (Pause::UpTo(Duration::ZERO), RequestTime::Connected);
        ClientLoad { bytes: 1 << 20, second: None, pause, request, timeout, warm_ups: 0 }
    }
}

/// Distribution of the pauses between a program's downloads, or a list of the downloads' times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Uniformly distributed, from zero to this maximum.
    UpTo(Duration),
    /// Uniformly distributed, from the first to the second duration.
    Between(Duration, Duration),
    /// Exponentially distributed, with this mean.
    Exponential(Duration),
    /// Each download begins at one of these times after the start of the simulation. No download
    /// begins after the last time.
    At(&'static [Duration]),
}

/// Time of the next download if no further download begins.
const NEVER: Time = Time::MAX;

impl Pause {
    /// Returns the distribution of the pause before the first download. The maximum of
    /// [`Pause::UpTo`] is raised to at least `least`. Other distributions are returned unchanged.
    fn first(self, least: Duration) -> Pause {
        match self {
            Pause::UpTo(longest) => Pause::UpTo(longest.max(least)),
            other => other,
        }
    }

    /// Returns the time of the next download; [`NEVER`] if there is none. `now` is the current
    /// time.
    fn next(self, now: Time, draws: &mut Stream) -> Time {
        match self {
            Pause::UpTo(longest) => now + uniform(draws, Duration::ZERO, longest),
            Pause::Between(least, most) => now + uniform(draws, least, most),
            Pause::Exponential(mean) => now + mean.mul_f64(-(1.0 - draws.random::<f64>()).ln()),
            Pause::At(times) => {
                let mut later = times.iter().map(|time| Time::ZERO + *time);
                later.find(|time| *time > now).unwrap_or(NEVER)
            }
        }
    }
}

/// Draws a duration of at least `least` and less than `most`, in whole milliseconds. Returns
/// `least` if `most` is not larger.
fn uniform(draws: &mut Stream, least: Duration, most: Duration) -> Duration {
    let [least, most] =
        [least, most].map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    Duration::from_millis(if most <= least { least } else { draws.random_range(least..most) })
}

/// Time at which a program's request is sent. Over lossy circuits, the request is always
/// optimistic: it is sent directly after BEGIN, and does not wait for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestTime {
    /// After the exit has connected to the server.
    Connected,
    /// The request time alternates between repetitions, which are counted from 1. In odd
    /// repetitions, the request is sent as for [`RequestTime::Connected`]. In even repetitions, it
    /// is sent directly after BEGIN. A repetition is a download, together with the second download
    /// that may follow it ([`ClientLoad::second`]).
    Alternating,
}

/// The record of a download. All times are of the simulated clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DownloadRecord {
    /// Time at which the program made its request. All durations are measured from this time (the
    /// time "command" in the records of the traffic generator tgen).
    pub asked: Time,
    /// Time at which the exit had connected to the server; `None` if it did not.
    pub connected: Option<Time>,
    /// Time at which the download's first byte arrived; `None` if none arrived.
    pub first_byte: Option<Time>,
    /// Time at which the download ended, whether complete or not.
    pub ended: Time,
    /// Number of bytes that arrived.
    pub received: u64,
    /// True if all bytes of the download arrived.
    pub complete: bool,
}

impl DownloadRecord {
    /// Returns the time to first byte; `None` if no byte arrived.
    pub fn ttfb(&self) -> Option<Duration> {
        Some(self.first_byte?.since(self.asked))
    }

    /// Returns the time to last byte; `None` if the download is incomplete.
    pub fn ttlb(&self) -> Option<Duration> {
        self.complete.then(|| self.ended.since(self.asked))
    }
}

/// The state of a client's program: a pause, or a download.
#[derive(Debug)]
enum Stage {
    Paused(Time),
    Busy(Running),
}

#[derive(Debug)]
struct Running {
    /// Sequence number of the download. The program's request to the circuit manager for a circuit
    /// has the same number.
    number: u64,
    download: DownloadRecord,
    tries: u32,
    /// Identifiers of the stream and of its circuit; `None` before BEGIN is sent.
    stream: Option<(StreamKey, CircuitKey)>,
    shun: Vec<[u8; 20]>,
    server: Ipv4Addr,
}

/// A program that downloads through the client.
#[derive(Debug)]
struct Program {
    load: ClientLoad,
    /// Isolation key of the streams. Streams of different programs use different circuits.
    isolation: Isolation,
    /// Generator of random numbers for pauses and the choice of servers. It is separate, so that
    /// the program's requests do not depend on the network's behaviour.
    draws: Stream,
    /// True if the current or next download is a second one ([`ClientLoad::second`]).
    is_second: bool,
    stage: Stage,
    /// Number of downloads that the program has begun.
    begun: u64,
}

impl Program {
    fn new(common: &Common, (place, index, of): (usize, usize, usize), load: ClientLoad) -> Self {
        let purpose = match index {
            0 => "client's load".to_owned(),
            _ => format!("client's load {index}"),
        };
        let mut draws = stream(common.seed, place as u64, &purpose);
        let first = load.pause.first(common.first_pause).next(Time::ZERO, &mut draws);
        let name = if of > 1 { index.to_be_bytes().to_vec() } else { Vec::new() };
        let isolation = Isolation(name);
        Program { load, isolation, draws, is_second: false, stage: Stage::Paused(first), begun: 0 }
    }

    /// Returns the number of bytes in the current download.
    fn wanted(&self) -> u64 {
        match self.load.second.filter(|_| self.is_second) {
            Some(second) => second,
            None if self.begun <= self.load.warm_ups => 1,
            None => self.load.bytes,
        }
    }

    fn due(&self) -> Time {
        match &self.stage {
            Stage::Paused(until) => *until,
            Stage::Busy(running) => running.download.asked + self.load.timeout,
        }
    }

    fn running(&mut self) -> Option<&mut Running> {
        match &mut self.stage {
            Stage::Busy(running) => Some(running),
            Stage::Paused(_) => None,
        }
    }

    /// Ends the current download, and returns its record; `None` if there is no current download.
    /// `complete` is true if all bytes have arrived. The next download begins after a pause, or at
    /// once if it is a second one ([`ClientLoad::second`]).
    fn end(&mut self, now: Time, complete: bool) -> Option<DownloadRecord> {
        self.is_second = self.load.second.is_some() && !self.is_second;
        let next = match self.is_second {
            true => now,
            false => self.load.pause.next(now, &mut self.draws),
        };
        match std::mem::replace(&mut self.stage, Stage::Paused(next)) {
            Stage::Busy(running) => {
                Some(DownloadRecord { ended: now, complete, ..running.download })
            }
            Stage::Paused(_) => None,
        }
    }
}

/// A host that runs a client.
pub struct ClientHost {
    core: Client,
    circmgr: CircuitManager,
    links: Links,
    /// Generator of random numbers for the choice of the relays of circuits.
    rng: Stream,
    servers: Arc<Vec<Ipv4Addr>>,
    programs: Vec<Program>,
    /// True if the circuit manager has received input since its outputs were last executed.
    has_input: bool,
    /// Next timeout of the circuit manager, as of its last use; `None` if it has none.
    circmgr_due: Option<Time>,
    number: u64,
    downloads: Vec<DownloadRecord>,
}

impl ClientHost {
    pub(super) fn new(
        common: &Common,
        (place, loads): (usize, &[ClientLoad]),
        (network, restrictions): (&Arc<Network>, RelayRestrictions),
        (hosts, servers): (&Arc<Hosts>, &Arc<Vec<Ipv4Addr>>),
    ) -> ClientHost {
        let params = &network.consensus().params;
        let config = Config {
            params: congestion(params),
            policy: common.policy,
            max_cells: 100_000,
            padding: Amount::Full,
            design: common.design,
            dealing: common.dealing.clone(),
        };
        let of = |purpose| stream(common.seed, place as u64, purpose);
        let mut core = Client::new(config, Box::new(of("client")));
        core.set_padding(PaddingParams::new(params));
        if common.crypto == Crypto::Elided {
            core.elide_crypto();
        }
        let mut circmgr = CircuitManager::new(KeptGuards::default(), &[], restrictions);
        circmgr.set_design(common.design);
        circmgr.set_legs(Some(common.legs));
        circmgr.set_lossy(common.udp_or.is_some());
        common.udp_or.into_iter().for_each(|control| core.set_lossy_congestion(control));
        circmgr.set_selection(common.selection);
        circmgr.set_leg_age(common.leg_age);
        common.dirtiness.into_iter().for_each(|dirtiness| circmgr.set_dirtiness(dirtiness));
        circmgr.set_network(Arc::clone(network));
        let program = |(index, load): (usize, &ClientLoad)| {
            Program::new(common, (place, index, loads.len()), *load)
        };
        ClientHost {
            core,
            circmgr,
            links: Links::new(hosts, common, Side::Client(place)),
            rng: of("client's paths"),
            servers: Arc::clone(servers),
            programs: loads.iter().enumerate().map(program).collect(),
            has_input: true,
            circmgr_due: None,
            number: 0,
            downloads: Vec::new(),
        }
    }

    /// Returns the records of downloads that have ended.
    pub fn downloads(&self) -> &[DownloadRecord] {
        &self.downloads
    }

    /// Returns the number of bytes that all downloads have received, including current ones.
    pub fn received(&self) -> u64 {
        let current = |program: &Program| match &program.stage {
            Stage::Busy(running) => running.download.received,
            Stage::Paused(_) => 0,
        };
        let ended: u64 = self.downloads.iter().map(|download| download.received).sum();
        ended + self.programs.iter().map(current).sum::<u64>()
    }

    /// Returns the counters of lossy cells (cells in datagrams, which may get lost) that the
    /// client's streams have sent.
    pub fn lossy_traffic(&self) -> LossyTraffic {
        self.core.lossy_traffic()
    }

    /// Returns the number of the client's links to first hops.
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// Begins the next download of the program with the index `place`.
    fn begin(&mut self, now: Time, place: usize) {
        self.number += 1;
        let download = DownloadRecord {
            asked: now,
            connected: None,
            first_byte: None,
            ended: now,
            received: 0,
            complete: false,
        };
        let (number, program) = (self.number, &mut self.programs[place]);
        program.begun += 1;
        let server = self.servers[program.draws.random_range(0..self.servers.len())];
        let shun = Vec::new();
        let running = Running { number, download, tries: 0, stream: None, shun, server };
        self.demand(now, place, running);
    }

    fn demand(&mut self, now: Time, place: usize, running: Running) {
        let program = &mut self.programs[place];
        let demand = Demand {
            number: running.number,
            target: Target { port: WEB_PORT, v6: false },
            isolation: program.isolation.clone(),
            since: running.download.asked,
            avoid: Vec::new(),
            failed_exits: running.shun.clone(),
        };
        program.stage = Stage::Busy(running);
        self.circmgr.demand(now, demand);
        self.has_input = true;
    }

    /// Ends the current download of the program with the index `place`. `complete` is true if all
    /// bytes have arrived.
    fn end(&mut self, now: Time, place: usize, complete: bool) {
        self.downloads.extend(self.programs[place].end(now, complete));
    }

    /// Aborts the current download of the program with the index `place`, because its timeout has
    /// passed.
    fn give_up(&mut self, now: Time, place: usize) {
        let Some(running) = self.programs[place].running() else { return };
        let (number, stream) = (running.number, running.stream);
        self.circmgr.withdraw(number);
        self.circmgr.answered(number);
        if let Some((stream, circuit)) = stream {
            self.circmgr.stream_ended(circuit);
            self.circmgr.retire(circuit);
            self.core.handle(now, Input::Ended { stream });
        }
        self.has_input = true;
        self.end(now, place, false);
    }

    /// Returns the earliest time at which a program begins its next download or aborts its current
    /// one.
    fn due(&self) -> Time {
        self.programs.iter().map(Program::due).min().unwrap_or(NEVER)
    }

    /// Begins the downloads whose pause has ended, and aborts the current downloads whose timeout
    /// has passed.
    fn advance(&mut self, now: Time) {
        for place in 0..self.programs.len() {
            if self.programs[place].due() > now {
                continue;
            }
            match self.programs[place].stage {
                Stage::Paused(_) => self.begin(now, place),
                Stage::Busy(_) => self.give_up(now, place),
            }
        }
    }

    /// Carries out the actions that the client's protocol state machine and the circuit manager
    /// request, until none is left.
    fn execute(&mut self, io: &mut Io<'_>) {
        self.has_input |= self.circmgr_due.is_some_and(|due| due <= io.now);
        let was_used = self.execute_all(io);
        if was_used {
            self.circmgr_due = self.circmgr.next_timeout();
        }
    }

    /// Works like [`ClientHost::execute`]. Returns whether the circuit manager was used, because
    /// its timeout may then have changed.
    fn execute_all(&mut self, io: &mut Io<'_>) -> bool {
        let at = Moment { now: io.now, unix: unix(io.now) };
        let mut was_used = false;
        loop {
            self.advance(io.now);
            if std::mem::take(&mut self.has_input) {
                was_used = true;
                self.circmgr.work(at, &mut self.rng);
            }
            let mut quiet = true;
            while let Some(order) = self.circmgr.poll() {
                (quiet, was_used) = (false, true);
                self.follow(io.now, order);
            }
            while let Some(output) = self.core.poll(io.now) {
                quiet = false;
                self.carry_out(io, at, output);
            }
            if quiet && !self.has_input && self.due() > io.now {
                return was_used;
            }
        }
    }

    fn follow(&mut self, now: Time, order: Order) {
        match order {
            Order::Build(circuit, hops) => self.core.handle(now, Input::Build { circuit, hops }),
            Order::Destroy(circuit) => self.core.handle(now, Input::Destroy { circuit }),
            Order::Link(circuit, with) => {
                if self.core.link(now, circuit, with).is_err() {
                    self.circmgr.not_linked(circuit);
                }
            }
            Order::Merge(circuit, beyond) => {
                if self.core.merge(now, circuit, beyond).is_err() {
                    self.circmgr.not_linked(circuit);
                }
            }
            Order::Attach(number, circuit) => self.attach(now, number, circuit),
            Order::Detach(number) => self.detach(now, number),
            Order::Refuse(number, _) => {
                if let Some(place) = self.place(number) {
                    self.end(now, place, false);
                }
            }
            // A simulation stores no guards, and the other orders are messages for a user.
            Order::Keep
            | Order::FewGuards(_)
            | Order::FewLegs(..)
            | Order::NoAbleRelay(_)
            | Order::NoLossyRelay
            | Order::FewJoining(_)
            | Order::FewBridges(..) => {}
        }
    }

    /// Returns the index of the program whose current download has the number `number`; `None` if
    /// there is none.
    fn place(&self, number: u64) -> Option<usize> {
        self.programs.iter().position(
            |program| matches!(&program.stage, Stage::Busy(running) if running.number == number),
        )
    }

    fn running(&mut self, number: u64) -> Option<&mut Running> {
        let place = self.place(number)?;
        self.programs[place].running()
    }

    fn attach(&mut self, now: Time, number: u64, circuit: CircuitKey) {
        let flags = self.circmgr.begin_flags(circuit, WEB_PORT);
        let Some(place) = self.place(number) else { return self.circmgr.stream_ended(circuit) };
        let Some(server) = self.running(number).map(|running| running.server) else { return };
        let begin = Begin { host: server.to_string(), port: WEB_PORT, flags };
        // An optimistic request is sent directly after BEGIN.
        let is_optimistic = self.is_optimistic(place, circuit);
        let wanted = self.programs[place].wanted();
        let first = if is_optimistic { web::request(wanted) } else { Vec::new() };
        match self.core.begin_with(now, circuit, &begin, &first) {
            Ok(stream) => {
                self.running(number).into_iter().for_each(|it| it.stream = Some((stream, circuit)));
            }
            Err(_) => self.again(now, place, (circuit, false)),
        }
    }

    /// Returns whether the current download of the program with the index `place` sends its
    /// request directly after BEGIN, without waiting for the exit's answer.
    fn is_optimistic(&self, place: usize, circuit: CircuitKey) -> bool {
        let Program { load, begun, .. } = &self.programs[place];
        let of_repetition = if load.second.is_some() { 2 } else { 1 };
        let is_second = begun.saturating_sub(1) / of_repetition % 2 == 1;
        let alternates = load.request == RequestTime::Alternating;
        (alternates && is_second) || self.core.is_lossy(circuit)
    }

    fn detach(&mut self, now: Time, number: u64) {
        let stream = self.running(number).and_then(|running| running.stream.take());
        if let Some((stream, _)) = stream {
            self.core.handle(now, Input::Ended { stream });
        }
    }

    /// Requests another circuit for the program with the index `place`, because the stream could
    /// not be opened on `circuit`. After [`TRIES`] attempts, the download fails.
    fn again(&mut self, now: Time, place: usize, (circuit, by_exit): (CircuitKey, bool)) {
        let exit = self.circmgr.path(circuit).filter(|_| by_exit).map(|path| path[2]);
        self.circmgr.retire(circuit);
        self.circmgr.stream_ended(circuit);
        self.has_input = true;
        let stage = &mut self.programs[place].stage;
        let Stage::Busy(mut running) = std::mem::replace(stage, Stage::Paused(now)) else { return };
        self.circmgr.answered(running.number);
        running.shun.extend(exit);
        (running.stream, running.tries) = (None, running.tries + 1);
        if running.tries < TRIES {
            return self.demand(now, place, running);
        }
        self.programs[place].stage = Stage::Busy(running);
        self.end(now, place, false);
    }

    fn carry_out(&mut self, io: &mut Io<'_>, at: Moment, output: Output) {
        let ClientHost { core, circmgr, links, rng, .. } = self;
        match output {
            Output::Link(output) => return links.execute(io, core, output),
            Output::Stream(StreamOutput::Readable { stream }) => return self.read(io.now, stream),
            // A request is short, so a new stream always has room for it.
            Output::Stream(StreamOutput::Room { .. }) | Output::Event(_) => return,
            Output::Resolved { .. } => return,
            Output::Stream(StreamOutput::Ended { stream, reason, .. }) => {
                self.ended(io.now, stream, reason);
            }
            Output::Connected { stream } => self.connected(io.now, stream),
            Output::Extended { circuit, hops } => circmgr.extended(io.now, circuit, hops),
            Output::Built { circuit, .. } => circmgr.built(at, circuit, rng),
            Output::Linked { circuit, .. } => circmgr.linked(at, circuit, rng),
            Output::Silent { circuit } => circmgr.silent(circuit),
            Output::CircuitClosed { circuit, cause, .. } => circmgr.closed(at, circuit, cause),
        }
        self.has_input = true;
    }

    /// Returns the index of the program whose current download uses `stream`; `None` if there is
    /// none.
    fn place_of(&self, stream: StreamKey) -> Option<usize> {
        let uses = |running: &Running| running.stream.is_some_and(|(key, _)| key == stream);
        self.programs
            .iter()
            .position(|program| matches!(&program.stage, Stage::Busy(running) if uses(running)))
    }

    fn connected(&mut self, now: Time, stream: StreamKey) {
        let Some(place) = self.place_of(stream) else { return };
        let Some(running) = self.programs[place].running() else { return };
        running.download.connected = Some(now);
        let (number, circuit) = (running.number, running.stream.map(|(_, circuit)| circuit));
        self.circmgr.answered(number);
        if !circuit.is_some_and(|circuit| self.is_optimistic(place, circuit)) {
            self.core.write(now, stream, &web::request(self.programs[place].wanted()));
        }
    }

    fn read(&mut self, now: Time, stream: StreamKey) {
        let (first, second) = self.core.read(stream);
        let bytes = first.len() + second.len();
        self.core.consume(now, stream, bytes);
        let Some(place) = self.place_of(stream).filter(|_| bytes > 0) else { return };
        if let Some(running) = self.programs[place].running() {
            running.download.first_byte.get_or_insert(now);
            running.download.received += bytes as u64;
        }
    }

    fn ended(&mut self, now: Time, stream: StreamKey, reason: EndReason) {
        let Some(place) = self.place_of(stream) else { return };
        let wanted = self.programs[place].wanted();
        let Some(running) = self.programs[place].running() else { return };
        let DownloadRecord { connected, received, .. } = running.download;
        let Some((_, circuit)) = running.stream else { return };
        if connected.is_none() {
            return self.again(now, place, (circuit, reason != EndReason::DESTROY));
        }
        self.circmgr.stream_ended(circuit);
        self.end(now, place, reason == EndReason::DONE && received == wanted);
    }
}

impl HostProgram for ClientHost {
    fn start(&mut self, io: &mut Io<'_>) {
        self.execute(io);
    }

    fn handle(&mut self, io: &mut Io<'_>, event: TcpEvent) {
        let (TcpEvent::Accepted { conn, .. }
        | TcpEvent::Opened { conn }
        | TcpEvent::Progress { conn }
        | TcpEvent::Closed { conn, .. }) = event;
        self.links.take(io, &mut self.core, event);
        self.links.receive(io, &mut self.core, (conn, usize::MAX));
        self.execute(io);
    }

    fn datagram(&mut self, io: &mut Io<'_>, from: HostId, content: Vec<u8>) {
        self.links.receive_datagram(io, &mut self.core, (from, &content));
        self.execute(io);
    }

    fn next_timeout(&self) -> Option<Time> {
        let cores = [self.core.next_timeout(), self.links.next_timeout()];
        cores.into_iter().flatten().chain(self.circmgr_due).chain([self.due()]).min()
    }

    fn expire(&mut self, io: &mut Io<'_>) {
        self.links.expire(io, &mut self.core);
        self.execute(io);
    }
}

//! A client on real sockets: programs come by SOCKS5 or HTTP CONNECT, and leave by circuits.
//!
//! Two cores side by side: the protocol's ([`Client`]) and the client's mind ([`Navigator`]), which says
//! what circuits are built and which stream goes by which.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anabranch_links::Context;
use anabranch_multipath::Time;
use anabranch_onion::channel::Start;
use anabranch_onion::client::{CircuitKey, Client, Config, Input, Output};
use anabranch_onion::congestion::Params;
use anabranch_onion::directory::network::{Network, Target, Wishes};
use anabranch_onion::navigator::{Demand, Isolation, Navigator, Order, target_of_names};
use anabranch_onion::wire::keys::sha256;
use anabranch_onion::wire::message::{Answer, Begin, EndReason};
use anabranch_onion::{Event, LinkId, StreamKey, schedule};
use rand_chacha::ChaCha20Rng;

use super::front::{Front, Nonsense, Outcome, Reason, Wish};
use super::links::{LINKS, Links};
use super::office::{News, Office};
use super::outside::{Inside, Outside, Told};
use super::state::Kept;
use crate::clock::Clock;
use crate::poller::{Interest, Poller, Ready};

/// Tokens of the single files; listeners count on from the last.
const STOP: u64 = 0;
const NEWS: u64 = 1;
const LISTENERS: u64 = 16;
/// The least token of a program's socket: its number added to this.
const PROGRAMS: u64 = 1 << 61;
/// Between two looks at what is not told by any file.
const TICK: Duration = Duration::from_secs(1);
/// How often a stream is tried on another circuit.
const TRIES: u32 = 3;
/// Programs that may be connected at a time.
const MOST_PROGRAMS: usize = 4096;

/// How a client is to run.
pub struct Settings {
    /// Where programs come in; SOCKS5 and HTTP are told apart by their first byte.
    pub listen: Vec<SocketAddr>,
    /// Who talks to authorities.
    pub office: Office,
    /// Where guards and build times are kept.
    pub data: PathBuf,
    /// Which relays the user wants, and which not.
    pub wishes: Wishes,
    /// Bytes of cells that may wait.
    pub memory: usize,
    /// The order among the circuits of a link.
    pub schedule: schedule::Kind,
}

/// What a person, or a machine, may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// Programs may come, at these addresses.
    Listening(Vec<SocketAddr>),
    /// Circuits can be built: how many relays are known.
    Ready(usize),
    /// A circuit is complete: its number, and its relays, first hop first.
    Built(u64, Vec<String>),
    /// A circuit is gone: its number, and why.
    Closed(u64, String),
    /// Numbers: circuits that are built and being built, programs, links.
    Numbers([usize; 4]),
    /// A link is open, or a relay broke the rules.
    Core(Event),
    /// Something did not work; it will be tried again.
    Trouble(String),
}

/// Runs a client until `stop` is readable.
///
/// # Errors
/// An address cannot be listened on, the state that was kept cannot be read, or the kernel has no
/// files left at the start.
pub fn run(
    settings: Settings,
    rng: ChaCha20Rng,
    stop: &UnixStream,
    watch: &mut dyn FnMut(Happening),
) -> io::Result<()> {
    let mut desk = Desk::new(settings, rng, stop)?;
    let at: io::Result<Vec<SocketAddr>> =
        desk.listeners.iter().map(TcpListener::local_addr).collect();
    watch(Happening::Listening(at?));
    while desk.turn(watch)? {}
    desk.keep(watch);
    Ok(())
}

/// A program, from its first word to its last.
enum Program {
    /// It has not said what it wants.
    Asking(TcpStream, Front),
    /// It waits for a circuit, or for the exit's answer.
    Waiting(Box<Waiting>),
    /// Its stream is open.
    Streaming(StreamKey, Outside),
}

struct Waiting {
    socket: TcpStream,
    front: Front,
    wish: Wish,
    tries: u32,
}

/// The cores and their sockets.
struct Desk {
    clock: Clock,
    core: Client,
    navigator: Navigator,
    rng: ChaCha20Rng,
    poller: Poller,
    links: Links,
    listeners: Vec<TcpListener>,
    programs: BTreeMap<u64, Program>,
    last_program: u64,
    /// Whose stream it is, and the circuit that it goes by.
    streams: BTreeMap<StreamKey, (u64, CircuitKey)>,
    network: Option<Arc<Network>>,
    settings: Settings,
    unkept: bool,
    ticked: Time,
}

impl Desk {
    fn new(settings: Settings, mut rng: ChaCha20Rng, stop: &UnixStream) -> io::Result<Desk> {
        let clock = Clock::start();
        let kept = Kept::read(&settings.data).map_err(io::Error::other)?;
        let config = Config {
            params: Arc::new(Params::default()),
            policy: settings.schedule,
            max_cells: settings.memory / anabranch_onion::wire::cell::CELL,
        };
        let own = fork(&mut rng);
        let poller = Poller::new(1024)?;
        let listeners: io::Result<Vec<TcpListener>> = settings.listen.iter().map(listen).collect();
        let listeners = listeners?;
        poller.add(stop, STOP)?;
        poller.add(settings.office.waker(), NEWS)?;
        for (token, listener) in (LISTENERS..).zip(&listeners) {
            poller.add(listener, token)?;
        }
        let context = Context::new(unix(&clock, Time::ZERO)).map_err(io::Error::other)?;
        let wishes = settings.wishes.clone();
        Ok(Desk {
            clock,
            core: Client::new(config, Box::new(own)),
            navigator: Navigator::new(kept.guards, &kept.build_times, wishes),
            rng,
            poller,
            links: Links::new(context),
            listeners,
            programs: BTreeMap::new(),
            last_program: 0,
            streams: BTreeMap::new(),
            network: None,
            settings,
            unkept: false,
            ticked: Time::ZERO,
        })
    }

    /// Waits, takes what is ready to the cores, does what they say; false if it is time to end.
    fn turn(&mut self, watch: &mut dyn FnMut(Happening)) -> io::Result<bool> {
        let now = self.clock.now();
        let next = [self.core.next_timeout(), self.navigator.next_timeout()];
        let next = next.into_iter().flatten().min().map_or(TICK, |at| at.since(now).min(TICK));
        let ready: Vec<Ready> = self.poller.wait(Some(next))?.collect();
        let now = self.clock.now();
        for event in &ready {
            self.take(now, *event, watch);
        }
        if self.core.next_timeout().is_some_and(|time| time <= now) {
            self.core.handle(now, Input::Timeout);
        }
        self.obey(now, watch);
        if now.since(self.ticked) >= TICK {
            self.ticked = now;
            self.tick(watch);
        }
        Ok(ready.iter().all(|event| event.token != STOP))
    }

    fn tick(&mut self, watch: &mut dyn FnMut(Happening)) {
        let (built, building) = self.navigator.circuits();
        watch(Happening::Numbers([built, building, self.programs.len(), self.links.len()]));
        if self.unkept {
            self.keep(watch);
        }
    }

    fn keep(&mut self, watch: &mut dyn FnMut(Happening)) {
        let guards = self.navigator.guards();
        let kept = Kept { guards, build_times: self.navigator.build_times().collect() };
        self.unkept = false;
        if let Err(error) = kept.write(&self.settings.data) {
            watch(Happening::Trouble(error.to_string()));
        }
    }

    fn take(&mut self, now: Time, ready: Ready, watch: &mut dyn FnMut(Happening)) {
        match ready.token {
            STOP => {}
            NEWS => self.take_news(watch),
            token if token >= PROGRAMS => self.take_program(now, token - PROGRAMS, ready),
            token if token >= LINKS => self.take_link(now, LinkId(token - LINKS), ready, watch),
            token => self.accept((token - LISTENERS) as usize, watch),
        }
        self.obey(now, watch);
    }

    fn take_news(&mut self, watch: &mut dyn FnMut(Happening)) {
        for news in self.settings.office.take() {
            match news {
                News::Network(network) => {
                    let mut params = Params::default();
                    let given = &network.consensus().params;
                    given.iter().for_each(|(name, value)| params.set(name, *value));
                    self.core.set_params(Arc::new(params));
                    self.navigator.set_network(Arc::clone(&network));
                    self.network = Some(network);
                }
                News::Ready => {
                    let known = self.network.as_ref().map_or(0, |network| network.relays().count());
                    watch(Happening::Ready(known));
                }
                News::Trouble(text) => watch(Happening::Trouble(text)),
                News::Cache(_) | News::Published(_) => {}
            }
        }
    }

    fn accept(&mut self, listener: usize, watch: &mut dyn FnMut(Happening)) {
        let Some(listener) = self.listeners.get(listener) else { return };
        while let Ok((socket, _)) = listener.accept() {
            // Whom we have no place for hears it at once.
            if self.programs.len() >= MOST_PROGRAMS {
                continue;
            }
            self.last_program += 1;
            let token = PROGRAMS + self.last_program;
            let watched = socket.set_nonblocking(true).and_then(|()| socket.set_nodelay(true));
            match watched.and_then(|()| self.poller.add(&socket, token)) {
                Ok(()) => {
                    let program = Program::Asking(socket, Front::default());
                    self.programs.insert(self.last_program, program);
                }
                Err(error) => watch(Happening::Trouble(format!("a program was lost: {error}"))),
            }
        }
    }

    fn take_link(
        &mut self,
        now: Time,
        link: LinkId,
        ready: Ready,
        watch: &mut dyn FnMut(Happening),
    ) {
        let Some(conn) = self.links.get(link) else { return };
        let (peer, target) = (conn.peer, conn.target.clone());
        let news = self.links.read(link, ready);
        let ended = news.ended;
        let opened = news.opened.then_some(target).flatten();
        let bytes = news.bytes.to_vec();
        if let Some(target) = opened {
            let start = self.start(now, link, peer);
            self.core.handle(now, Input::Opened { link, target, start });
        }
        if !bytes.is_empty() {
            self.core.handle(now, Input::Bytes { link, bytes: &bytes });
        }
        self.obey(now, watch);
        self.flush(now, link);
        if ended {
            self.gone(now, link);
        }
    }

    fn start(&self, now: Time, link: LinkId, peer: SocketAddr) -> Start {
        let shown = self.links.get(link).and_then(|conn| conn.tls().peer_certificate().map(sha256));
        let unix = unix(&self.clock, now);
        // A client tells nobody its addresses.
        Start { now, unix, peer: peer.ip(), own: Vec::new(), peer_certificate: shown }
    }

    fn flush(&mut self, now: Time, link: LinkId) {
        let core = &mut self.core;
        let fetch = |out: &mut Vec<u8>, limit| core.transmit(now, link, out, limit);
        if !self.links.flush(&self.poller, link, fetch) {
            self.gone(now, link);
        }
    }

    fn gone(&mut self, now: Time, link: LinkId) {
        match self.links.remove(link) {
            Some(target) => self.core.handle(now, Input::Unreachable { target }),
            None => self.core.handle(now, Input::Closed { link }),
        }
    }

    /// Does what both cores say, until neither has anything to say.
    fn obey(&mut self, now: Time, watch: &mut dyn FnMut(Happening)) {
        loop {
            let unix = unix(&self.clock, now);
            self.navigator.work(now, unix, &mut self.rng);
            let mut quiet = true;
            while let Some(order) = self.navigator.poll() {
                quiet = false;
                self.follow(now, order, watch);
            }
            while let Some(output) = self.core.poll() {
                quiet = false;
                self.carry_out(now, output, watch);
            }
            if quiet {
                return;
            }
        }
    }

    fn follow(&mut self, now: Time, order: Order, watch: &mut dyn FnMut(Happening)) {
        match order {
            Order::Build(circuit, hops) => self.core.handle(now, Input::Build { circuit, hops }),
            Order::Destroy(circuit) => self.core.handle(now, Input::Destroy { circuit }),
            Order::Attach(program, circuit) => self.attach(now, program, circuit),
            Order::Refuse(program) => self.fail(program, Reason::TimedOut),
            Order::Keep => self.unkept = true,
            Order::FewGuards(count) => watch(Happening::Trouble(format!(
                "--entry and --exclude leave {count} of the relays as first hops: so few tell who \
                 you are"
            ))),
        }
    }

    fn carry_out(&mut self, now: Time, output: Output, watch: &mut dyn FnMut(Happening)) {
        match output {
            Output::Dial { target } => {
                if self.links.dial(&self.poller, target.clone()).is_err() {
                    self.core.handle(now, Input::Unreachable { target });
                }
            }
            Output::Transmit { link } => {
                self.links.wants(link);
                self.flush(now, link);
            }
            Output::Close { link } => {
                self.links.close(link);
                self.flush(now, link);
            }
            Output::Extended { circuit, hops } => self.navigator.extended(circuit, hops),
            Output::Built { circuit } => {
                watch(Happening::Built(circuit.0, self.names(circuit)));
                let unix = unix(&self.clock, now);
                self.navigator.built(now, unix, circuit, &mut self.rng);
            }
            Output::CircuitClosed { circuit, cause, .. } => {
                watch(Happening::Closed(circuit.0, format!("{cause:?}")));
                let unix = unix(&self.clock, now);
                self.navigator.closed(now, unix, circuit, cause);
            }
            Output::Connected { stream } => self.connected(now, stream),
            Output::Resolved { stream, answers } => self.resolved(stream, &answers),
            Output::Readable { stream } => self.readable(now, stream),
            Output::Room { stream } => self.room(now, stream),
            Output::Ended { stream, reason } => self.ended(now, stream, reason),
            Output::Event(event) => watch(Happening::Core(event)),
        }
    }

    /// The nicknames of a circuit's relays.
    fn names(&self, circuit: CircuitKey) -> Vec<String> {
        let path = self.navigator.path(circuit).unwrap_or_default();
        let name = |id: &[u8; 20]| {
            let relay = self.network.as_ref().and_then(|network| network.relay(id));
            relay.map_or_else(|| "?".to_owned(), |relay| relay.status.nickname.clone())
        };
        path.iter().map(name).collect()
    }

    fn take_program(&mut self, now: Time, number: u64, ready: Ready) {
        match self.programs.get_mut(&number) {
            Some(Program::Asking(..)) => self.listen_to(now, number),
            Some(Program::Waiting(_)) if ready.error || ready.read => self.leave(now, number),
            Some(Program::Streaming(stream, outside)) => {
                let stream = *stream;
                let mut inside = Within { core: &mut self.core, now };
                let told = outside.ready(ready.read, ready.write, &mut inside);
                self.tell(now, number, stream, told);
            }
            _ => {}
        }
    }

    /// Reads a program's words until it has said what it wants.
    fn listen_to(&mut self, now: Time, number: u64) {
        let Some(Program::Asking(socket, front)) = self.programs.get_mut(&number) else { return };
        let (mut buffer, mut replies) = ([0; 4096], Vec::new());
        let taken = match socket.read(&mut buffer) {
            Ok(0) => Err(Nonsense(Vec::new())),
            Ok(count) => front.take(&buffer[..count], &mut replies),
            Err(error) if super::conn::is_passing(&error) => return,
            Err(_) => Err(Nonsense(Vec::new())),
        };
        let (wish, last) = match taken {
            Ok(wish) => (wish, None),
            Err(Nonsense(answer)) => (None, Some(answer)),
        };
        replies.extend(last.as_deref().unwrap_or_default());
        // Replies are short, and the socket is new: it takes them whole, or the program has gone.
        if socket.write_all(&replies).is_err() || last.is_some() {
            self.programs.remove(&number);
            return;
        }
        if let Some(wish) = wish {
            self.want(now, number, wish);
        }
    }

    /// Has a circuit found for a program's wish.
    fn want(&mut self, now: Time, number: u64, wish: Wish) {
        let Some(Program::Asking(socket, front)) = self.programs.remove(&number) else { return };
        // Until it is answered, only its end is of interest.
        let quiet = Interest { read: false, write: false };
        let _ = self.poller.change(&socket, PROGRAMS + number, quiet);
        let waiting = Waiting { socket, front, wish, tries: 0 };
        self.programs.insert(number, Program::Waiting(Box::new(waiting)));
        self.seek(now, number);
    }

    fn seek(&mut self, now: Time, number: u64) {
        let Some(Program::Waiting(waiting)) = self.programs.get_mut(&number) else { return };
        waiting.tries += 1;
        let target = match &waiting.wish {
            // Onion services are another network, and their names are no one else's business.
            Wish::Connect { host, .. } | Wish::Resolve(host) if is_onion(host) => {
                return self.fail(number, Reason::Forbidden);
            }
            Wish::Connect { host, port } => {
                Target { port: *port, v6: host.parse::<Ipv6Addr>().is_ok() }
            }
            Wish::Resolve(_) | Wish::Name(_) => target_of_names(),
        };
        let isolation = Isolation(waiting.front.isolation().to_vec());
        self.navigator.demand(now, Demand { number, target, isolation });
    }

    fn attach(&mut self, now: Time, number: u64, circuit: CircuitKey) {
        let Some(Program::Waiting(waiting)) = self.programs.get(&number) else {
            return self.navigator.stream_ended(circuit);
        };
        let opened = match &waiting.wish {
            Wish::Connect { host, port } => {
                let begin = Begin { host: host.clone(), port: *port, flags: 0 };
                self.core.begin(now, circuit, &begin)
            }
            Wish::Resolve(name) => self.core.resolve(now, circuit, name),
            Wish::Name(address) => self.core.resolve(now, circuit, &arpa(*address)),
        };
        match opened {
            Ok(stream) => {
                self.streams.insert(stream, (number, circuit));
            }
            Err(_) => self.again(now, number, circuit, Reason::General),
        }
    }

    /// Tries another circuit, unless that was done often enough.
    fn again(&mut self, now: Time, number: u64, circuit: CircuitKey, reason: Reason) {
        self.navigator.stream_ended(circuit);
        self.navigator.retire(circuit);
        match self.programs.get(&number) {
            Some(Program::Waiting(waiting)) if waiting.tries < TRIES => self.seek(now, number),
            _ => self.fail(number, reason),
        }
    }

    /// Tells a program that its wish cannot be met.
    fn fail(&mut self, number: u64, reason: Reason) {
        if let Some(Program::Waiting(mut waiting)) = self.programs.remove(&number) {
            let answer = waiting.front.answer(&Outcome::Failed(reason));
            let _ = waiting.socket.write_all(&answer);
        }
    }

    fn connected(&mut self, now: Time, stream: StreamKey) {
        let Some(&(number, _)) = self.streams.get(&stream) else { return };
        let Some(Program::Waiting(waiting)) = self.programs.remove(&number) else { return };
        let Waiting { mut socket, mut front, .. } = *waiting;
        let greeted = socket.write_all(&front.answer(&Outcome::Connected));
        let early = front.rest();
        // A fresh stream has room for what one read brought.
        self.core.write(now, stream, &early);
        match greeted.and_then(|()| Outside::of(stream, socket)) {
            Ok(outside) => {
                let interest = outside.interest();
                let _ = self.poller.change(outside.socket(), PROGRAMS + number, interest);
                self.programs.insert(number, Program::Streaming(stream, outside));
            }
            Err(_) => self.core.handle(now, Input::Ended { stream }),
        }
    }

    fn resolved(&mut self, stream: StreamKey, answers: &[(Answer, u32)]) {
        let Some((number, circuit)) = self.streams.remove(&stream) else { return };
        self.navigator.stream_ended(circuit);
        let Some(Program::Waiting(mut waiting)) = self.programs.remove(&number) else { return };
        let found = answers.iter().find_map(|(answer, _)| match answer {
            Answer::Address(address) => Some(Outcome::Address(*address)),
            Answer::Name(name) => Some(Outcome::Name(name.clone())),
            Answer::Later | Answer::Never => None,
        });
        let outcome = found.unwrap_or(Outcome::Failed(Reason::Unreachable));
        let _ = waiting.socket.write_all(&waiting.front.answer(&outcome));
    }

    fn readable(&mut self, now: Time, stream: StreamKey) {
        let Some(&(number, _)) = self.streams.get(&stream) else { return };
        let Some(Program::Streaming(_, outside)) = self.programs.get_mut(&number) else { return };
        let mut inside = Within { core: &mut self.core, now };
        let told = match outside.drain(&mut inside) {
            Ok(()) => Told::Nothing,
            Err(_) => Told::Ended(EndReason::MISC),
        };
        self.tell(now, number, stream, told);
    }

    fn room(&mut self, now: Time, stream: StreamKey) {
        let Some(&(number, _)) = self.streams.get(&stream) else { return };
        let Some(Program::Streaming(_, outside)) = self.programs.get_mut(&number) else { return };
        let mut inside = Within { core: &mut self.core, now };
        let told = outside.has_room(&mut inside);
        self.tell(now, number, stream, told);
    }

    fn tell(&mut self, now: Time, number: u64, stream: StreamKey, told: Told) {
        if let Told::Ended(_) = told {
            return self.leave_stream(now, number, stream);
        }
        if let Some(Program::Streaming(_, outside)) = self.programs.get(&number) {
            // It is watched, as long as it is in the table.
            let interest = outside.interest();
            let _ = self.poller.change(outside.socket(), PROGRAMS + number, interest);
        }
    }

    /// A program has ended its stream.
    fn leave_stream(&mut self, now: Time, number: u64, stream: StreamKey) {
        self.programs.remove(&number);
        if let Some((_, circuit)) = self.streams.remove(&stream) {
            self.navigator.stream_ended(circuit);
        }
        self.core.handle(now, Input::Ended { stream });
    }

    /// A program has gone before it was answered.
    fn leave(&mut self, now: Time, number: u64) {
        self.programs.remove(&number);
        self.navigator.withdraw(number);
        let stream = self.streams.iter().find(|(_, (owner, _))| *owner == number);
        if let Some((&stream, _)) = stream {
            self.leave_stream(now, number, stream);
        }
    }

    /// The exit ended a stream, or its circuit is gone.
    fn ended(&mut self, now: Time, stream: StreamKey, reason: EndReason) {
        let Some((number, circuit)) = self.streams.remove(&stream) else { return };
        match self.programs.get_mut(&number) {
            Some(Program::Waiting(_)) if is_worth_another_try(reason) => {
                self.again(now, number, circuit, told(reason));
            }
            Some(Program::Waiting(_)) => {
                self.navigator.stream_ended(circuit);
                self.fail(number, told(reason));
            }
            _ => {
                self.navigator.stream_ended(circuit);
                self.programs.remove(&number);
            }
        }
    }
}

/// The core's side of a stream.
struct Within<'a> {
    core: &'a mut Client,
    now: Time,
}

impl Inside for Within<'_> {
    fn waiting(&self, stream: StreamKey) -> (&[u8], &[u8]) {
        self.core.read(stream)
    }

    fn took(&mut self, stream: StreamKey, bytes: usize) {
        self.core.consume(self.now, stream, bytes);
    }

    fn give(&mut self, stream: StreamKey, bytes: &[u8]) -> usize {
        self.core.write(self.now, stream, bytes)
    }
}

/// Whether it may be the exit's fault rather than the destination's.
fn is_worth_another_try(reason: EndReason) -> bool {
    [
        EndReason::EXIT_POLICY,
        EndReason::DESTROY,
        EndReason::RESOURCES,
        EndReason::HIBERNATING,
        EndReason::INTERNAL,
        EndReason::MISC,
        EndReason::PROTOCOL,
    ]
    .contains(&reason)
}

fn told(reason: EndReason) -> Reason {
    match reason {
        EndReason::EXIT_POLICY => Reason::Forbidden,
        EndReason::RESOLVE_FAILED | EndReason::NO_ROUTE => Reason::Unreachable,
        EndReason::REFUSED => Reason::Refused,
        EndReason::TIMEOUT => Reason::TimedOut,
        _ => Reason::General,
    }
}

fn is_onion(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host.ends_with(".onion")
}

/// The name under which an address' name is asked for (RFC 1035, section 3.5; RFC 3596, section 2.5).
fn arpa(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(v6) => {
            let nibbles = v6.octets().into_iter().rev().flat_map(|byte| [byte & 15, byte >> 4]);
            nibbles.map(|nibble| format!("{nibble:x}.")).collect::<String>() + "ip6.arpa"
        }
    }
}

fn listen(at: &SocketAddr) -> io::Result<TcpListener> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{at}: {error}"));
    let listener = TcpListener::bind(at).map_err(named)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// A generator of its own, seeded by another.
fn fork(rng: &mut ChaCha20Rng) -> ChaCha20Rng {
    use rand_chacha::rand_core::SeedableRng;
    ChaCha20Rng::from_rng(rng)
}

fn unix(clock: &Clock, now: Time) -> u64 {
    clock.wall(now).duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_asked_for_by_the_names_of_arpa() {
        assert_eq!(arpa("192.0.2.1".parse().unwrap()), "1.2.0.192.in-addr.arpa");
        let v6 = arpa("2001:db8::1".parse().unwrap());
        assert!(v6.starts_with("1.0.0.0.") && v6.ends_with("8.b.d.0.1.0.0.2.ip6.arpa"), "{v6}");
    }

    #[test]
    fn onion_names_are_known_in_any_dress() {
        assert!(["x.onion", "X.ONION", "x.onion."].into_iter().all(is_onion));
        assert!(!["onion", "x.onion.example", "xonion"].into_iter().any(is_onion));
    }
}

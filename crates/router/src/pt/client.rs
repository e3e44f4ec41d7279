//! Client of our pluggable transport. Each program that connects gets a separate link to a bridge.
//! A link is a pair of byte streams, which one or more TCP connections carry.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use anabranch_multipath::schedule::Spec;
use anabranch_multipath::{Core, Time};
use anabranch_os::clock::Clock;
use anabranch_os::cpu::has_aes;
use anabranch_os::entropy::generator;
use anabranch_os::files::SpareDescriptor;
use anabranch_os::poller::{Poller, Ready};
use anabranch_proxy::{Dialogue, Outcome, ProxyEnd, ProxyRequest, Reason};
use anabranch_pt::{Args, Outbound};
use anabranch_stego::{Client, ClientConfig, ClientOutput, ConnId, Covers, Ending, Input, Shapes};
use rand_chacha::ChaCha20Rng;

use super::bridge::Bridge;
use super::local::{LOCALS, Leaving, LinkEnd, Local};
use super::wires::{WIRES, Wires};
use super::{LISTENERS, PtEvent, Station, StopConditions, bind, carry, wall};
use crate::onion::is_passing;

/// Maximum number of programs that are connected to the client at the same time.
const MOST: usize = 4096;
/// Timeout for a bridge's answer, and for a program's SOCKS request.
const PATIENCE: Duration = Duration::from_secs(30);

/// Kind of a listening port for programs: how the client learns the bridge to connect to.
#[derive(Clone, Debug)]
pub enum ListenerKind {
    /// SOCKS5: a program requests the bridge's address as its destination. User name and password
    /// contain the bridge's arguments.
    Socks,
    /// All connections go to this bridge, without SOCKS.
    Bridge(Box<Bridge>),
}

/// Settings of a client of our transport.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Ports at which programs connect.
    pub listen: Vec<(SocketAddr, ListenerKind)>,
    /// Scheduler that distributes a link's data among the link's TCP connections: it chooses one
    /// of them for each chunk.
    pub schedule: Spec,
    /// Shapes (recorded sizes and times of messages), which the connections of some profiles
    /// imitate.
    pub shapes: Shapes,
}

/// State of a client of our transport: connected programs, and the links that carry their data.
pub struct PtClient {
    clock: Clock,
    poller: Poller,
    schedule: Spec,
    covers: Covers,
    listeners: Vec<(TcpListener, ListenerKind)>,
    spare: SpareDescriptor,
    wires: Wires,
    /// For each wire (a TCP connection to a bridge): the identifier of the program whose data the
    /// wire carries, and the wire's identifier within that program's link.
    owners: BTreeMap<u64, (u64, ConnId)>,
    pending_requests: BTreeMap<u64, PendingRequest>,
    links: BTreeMap<u64, Link>,
    leaving: Leaving,
    next: u64,
    touched: BTreeSet<u64>,
    events: Vec<PtEvent>,
}

/// A program whose SOCKS request is not complete yet.
struct PendingRequest {
    socket: TcpStream,
    dialogue: Dialogue,
    since: Time,
}

/// A link to a bridge, which carries the data of one program.
struct Link {
    core: Client<ChaCha20Rng>,
    bridge: SocketAddr,
    local: Option<Local>,
    /// SOCKS dialogue that must be answered once the link is open or has failed; `None` if no
    /// answer is due.
    answer: Option<Dialogue>,
    up: bool,
    since: Time,
    wires: BTreeMap<ConnId, u64>,
}

impl LinkEnd for Client<ChaCha20Rng> {
    fn room(&self) -> usize {
        Client::room(self)
    }

    fn write(&mut self, bytes: &[u8]) {
        Client::write(self, bytes);
    }

    fn finish(&mut self) {
        Client::finish(self);
    }

    fn read(&mut self, now: Time) -> Option<Vec<u8>> {
        Client::read(self, now)
    }

    fn has_ended(&self) -> bool {
        Client::has_ended(self)
    }
}

impl PtClient {
    /// Creates a client that listens at the addresses in `settings`.
    ///
    /// # Errors
    /// The process cannot listen on an address, which the error names, or a system call fails.
    pub fn new(settings: ClientSettings) -> io::Result<PtClient> {
        let poller = Poller::new(1024)?;
        let mut listeners = Vec::new();
        for (token, (at, kind)) in (LISTENERS..).zip(settings.listen) {
            let listener = bind(at)?;
            poller.add(&listener, token)?;
            listeners.push((listener, kind));
        }
        Ok(PtClient {
            clock: Clock::start(),
            poller,
            schedule: settings.schedule,
            covers: Covers { shapes: settings.shapes, ..Covers::default() },
            listeners,
            spare: SpareDescriptor::new(),
            wires: Wires::new(),
            owners: BTreeMap::new(),
            pending_requests: BTreeMap::new(),
            links: BTreeMap::new(),
            leaving: Leaving::default(),
            next: 0,
            touched: BTreeSet::new(),
            events: Vec::new(),
        })
    }

    /// Sets the source addresses for connections to bridges.
    #[must_use]
    pub fn with_outbound(mut self, outbound: Outbound) -> PtClient {
        self.wires.outbound = outbound;
        self
    }

    /// Opens a link to `bridge` for the program at the other end of `socket`.
    ///
    /// # Errors
    /// A system call fails.
    pub(super) fn adopt(&mut self, socket: TcpStream, bridge: &Bridge) -> io::Result<()> {
        let now = self.clock.now();
        self.next += 1;
        self.poller.add(&socket, LOCALS + self.next)?;
        self.open(now, self.next, (socket, None), bridge);
        self.work(now);
        Ok(())
    }

    /// Returns whether all links and their TCP connections are closed, and the programs have
    /// received all data.
    pub(super) fn is_idle(&self) -> bool {
        self.links.is_empty() && self.leaving.is_empty() && self.wires.len() == 0
    }

    /// Returns the addresses at which the client listens.
    ///
    /// # Errors
    /// A system call fails.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(|(listener, _)| listener.local_addr()).collect()
    }

    /// Runs the client until a condition in `ends` is met. Passes the client's events to `watch`.
    ///
    /// # Errors
    /// A system call fails.
    pub fn run<S: AsFd>(
        &mut self,
        conditions: &StopConditions<'_, S>,
        watch: &mut dyn FnMut(PtEvent),
    ) -> io::Result<()> {
        carry(self, conditions, watch)
    }

    fn accept(&mut self, now: Time, place: usize) {
        let Some((listener, kind)) = self.listeners.get(place) else { return };
        let kind = kind.clone();
        let newcomers: Vec<_> = std::iter::from_fn(|| self.spare.accept(listener)).collect();
        for (socket, _) in newcomers {
            let full = self.links.len() + self.pending_requests.len() >= MOST;
            if full || socket.set_nonblocking(true).and(socket.set_nodelay(true)).is_err() {
                continue;
            }
            self.next += 1;
            if self.poller.add(&socket, LOCALS + self.next).is_err() {
                continue;
            }
            match &kind {
                ListenerKind::Socks => {
                    let dialogue = Dialogue::default();
                    self.pending_requests
                        .insert(self.next, PendingRequest { socket, dialogue, since: now });
                }
                ListenerKind::Bridge(bridge) => self.open(now, self.next, (socket, None), bridge),
            }
        }
    }

    /// Opens a link to `bridge` for the program with the identifier `number`. `answer` is the
    /// SOCKS dialogue to answer once the link is open or has failed; `None` if no answer is due.
    fn open(
        &mut self,
        now: Time,
        number: u64,
        (socket, answer): (TcpStream, Option<Dialogue>),
        bridge: &Bridge,
    ) {
        let rng = match generator() {
            Ok(rng) => rng,
            Err(error) => return self.events.push(PtEvent::Trouble(error.to_string())),
        };
        let config = ClientConfig {
            key: bridge.key,
            profile: bridge.profile,
            host: bridge.called(),
            schedule: self.schedule.clone(),
            wall: wall(self.clock),
            aes: has_aes(),
            covers: self.covers.clone(),
        };
        let mut core = Client::new(config, rng);
        if let Some(answer) = &answer {
            core.write(answer.rest());
        }
        let link = Link {
            core,
            bridge: bridge.address,
            local: Some(Local::of(socket)),
            answer,
            up: false,
            since: now,
            wires: BTreeMap::new(),
        };
        self.links.insert(number, link);
        self.touched.insert(number);
    }

    fn take_wire(&mut self, now: Time, number: u64, ready: Ready) {
        let news = self.wires.take(&self.poller, number, ready);
        let Some(&(owner, id)) = self.owners.get(&number) else { return };
        let Some(link) = self.links.get_mut(&owner) else { return };
        if news.opened {
            link.core.handle(now, Input::Opened(id));
        }
        if !news.bytes.is_empty() {
            link.core.handle(now, Input::Bytes(id, &news.bytes));
        }
        if news.gone || news.ended {
            self.wires.drop_now(number);
            link.wires.remove(&id);
            self.owners.remove(&number);
            link.core.handle(now, Input::Closed(id));
        }
        self.touched.insert(owner);
    }

    fn take_local(&mut self, now: Time, number: u64, ready: Ready) {
        if let Some(link) = self.links.get_mut(&number) {
            if let Some(local) = &mut link.local
                && local.ready(ready).is_err()
            {
                link.local = None;
                link.core.reset();
            }
            self.touched.insert(number);
        } else if let Some(pending) = self.pending_requests.remove(&number) {
            self.listen_to(now, number, pending);
        } else {
            self.leaving.ready(number);
        }
    }

    /// Reads the SOCKS request of the program with the identifier `number`.
    fn listen_to(&mut self, now: Time, number: u64, mut pending: PendingRequest) {
        let (mut buffer, mut answer) = ([0; 4096], Vec::new());
        let count = match pending.socket.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => count,
            Err(error) if is_passing(&error) => {
                self.pending_requests.insert(number, pending);
                return;
            }
            Err(_) => return,
        };
        let request = pending.dialogue.take(&buffer[..count], &mut answer);
        let (request, over) = match request {
            Ok(request) => (request, false),
            Err(ProxyEnd(message)) => {
                answer.extend(message);
                (None, true)
            }
        };
        // A new socket's buffer always has room for the first replies of a dialogue.
        if pending.socket.write_all(&answer).is_err() || over {
            return;
        }
        let Some(request) = request else {
            self.pending_requests.insert(number, pending);
            return;
        };
        let PendingRequest { mut socket, dialogue, .. } = pending;
        match bridge_of(&request, &dialogue) {
            Ok(bridge) => self.open(now, number, (socket, Some(dialogue)), &bridge),
            Err(why) => {
                let _ = socket.write_all(&dialogue.answer(&Outcome::Failed(Reason::General)));
                self.events.push(PtEvent::Trouble(why));
            }
        }
    }

    /// Fails the requests of programs whose bridge does not answer in time. Closes connections on
    /// which no request has arrived in time.
    fn give_up(&mut self, now: Time) {
        self.pending_requests.retain(|_, pending| now.since(pending.since) < PATIENCE);
        let late = |link: &Link| !link.up && now.since(link.since) >= PATIENCE;
        for (&number, link) in self.links.iter_mut().filter(|(_, link)| late(link)) {
            if let (Some(local), Some(dialogue)) = (&mut link.local, link.answer.take()) {
                local.queue_answer(&dialogue.answer(&Outcome::Failed(Reason::TimedOut)));
                let _ = local.flush();
            }
            link.local = None;
            link.core.reset();
            let why = format!("bridge {} does not answer: check its address and key", link.bridge);
            self.events.push(PtEvent::Trouble(why));
            self.touched.insert(number);
        }
    }

    fn work_at(&mut self, now: Time, number: u64) {
        let Some(mut link) = self.links.remove(&number) else { return };
        let mut ending = None;
        loop {
            let moved = link.service(now);
            let mut has_answered = false;
            while let Some(output) = link.core.poll(now) {
                has_answered = true;
                ending = self.execute(now, number, &mut link, output).or(ending);
            }
            // Once a link has ended, its program receives nothing more, and its connection is not
            // closed in an orderly way.
            if ending.is_some() || !moved && !has_answered {
                break;
            }
        }
        match ending {
            Some(ending) => self.over(now, number, link, ending),
            None => {
                link.watch(&self.poller, number);
                self.links.insert(number, link);
            }
        }
    }

    fn execute(
        &mut self,
        now: Time,
        number: u64,
        link: &mut Link,
        output: ClientOutput,
    ) -> Option<Ending> {
        match output {
            ClientOutput::Dial(id) => match self.wires.dial(&self.poller, link.bridge) {
                Ok(wire) => {
                    self.owners.insert(wire, (number, id));
                    link.wires.insert(id, wire);
                }
                Err(_) => link.core.handle(now, Input::Closed(id)),
            },
            ClientOutput::Send(id, bytes) => {
                if let Some(&wire) = link.wires.get(&id) {
                    self.wires.send(wire, &bytes);
                }
            }
            ClientOutput::Close(id) => {
                if let Some(wire) = link.wires.remove(&id) {
                    self.owners.remove(&wire);
                    self.wires.close(now, wire);
                }
            }
            ClientOutput::Up => {
                link.up = true;
                if let (Some(local), Some(dialogue)) = (&mut link.local, link.answer.take()) {
                    local.queue_answer(&dialogue.answer(&Outcome::Connected));
                }
                self.events.push(PtEvent::Up(Some(link.bridge)));
            }
            ClientOutput::Over(ending) => return Some(ending),
        }
        None
    }

    /// Removes the link of the program with the identifier `number`. The link has ended for the
    /// reason `ending`. If both streams of the link have ended ([`Ending::Done`]), the program
    /// receives the data that is still queued. Otherwise its connection is reset.
    fn over(&mut self, now: Time, number: u64, link: Link, ending: Ending) {
        for wire in link.wires.into_values() {
            self.owners.remove(&wire);
            self.wires.close(now, wire);
        }
        if link.up {
            self.events.push(PtEvent::Over(Some(link.bridge), ending));
        }
        if let Some(local) = link.local {
            self.leaving.add(&self.poller, number, local, ending);
        }
    }
}

impl Drop for PtClient {
    fn drop(&mut self) {
        let links = std::mem::take(&mut self.links).into_values();
        links.filter_map(|link| link.local).for_each(Local::cut);
    }
}

impl Station for PtClient {
    fn clock(&self) -> Clock {
        self.clock
    }

    fn poller(&mut self) -> &mut Poller {
        &mut self.poller
    }

    fn next_timeout(&self) -> Option<Time> {
        self.links.values().filter_map(|link| link.core.next_timeout()).min()
    }

    fn take(&mut self, now: Time, ready: Ready) {
        match ready.token {
            token @ LISTENERS..WIRES => self.accept(now, (token - LISTENERS) as usize),
            token @ WIRES..LOCALS => self.take_wire(now, token - WIRES, ready),
            token if token >= LOCALS => self.take_local(now, token - LOCALS, ready),
            _ => {}
        }
    }

    fn sweep(&mut self, now: Time) {
        self.wires.sweep(now);
        self.leaving.sweep(now);
        self.give_up(now);
    }

    fn work(&mut self, now: Time) {
        let due = |link: &Link| link.core.next_timeout().is_some_and(|due| due <= now);
        let due = self.links.iter().filter(|(_, link)| due(link));
        self.touched.extend(due.map(|(number, _)| *number));
        loop {
            while let Some(number) = self.touched.pop_first() {
                self.work_at(now, number);
            }
            for (wire, room) in self.wires.settle(&self.poller) {
                let Some(&(owner, id)) = self.owners.get(&wire) else { continue };
                let Some(link) = self.links.get_mut(&owner) else { continue };
                match room {
                    Some(room) => link.core.handle(now, Input::Room(id, room)),
                    None => {
                        link.wires.remove(&id);
                        self.owners.remove(&wire);
                        link.core.handle(now, Input::Closed(id));
                    }
                }
                self.touched.insert(owner);
            }
            if self.touched.is_empty() {
                return;
            }
        }
    }

    fn events(&mut self) -> Vec<PtEvent> {
        std::mem::take(&mut self.events)
    }
}

impl Link {
    /// Moves bytes between this link and its program. Returns whether any bytes were moved.
    fn service(&mut self, now: Time) -> bool {
        let Some(local) = &mut self.local else { return false };
        match local.service(now, &mut self.core) {
            Ok(moved) => moved,
            Err(_) => {
                self.local = None;
                self.core.reset();
                true
            }
        }
    }

    fn watch(&mut self, poller: &Poller, number: u64) {
        let room = self.core.room();
        self.local.iter_mut().for_each(|local| local.watch(poller, number, room));
    }
}

/// Returns the bridge that a program requests by SOCKS.
///
/// # Errors
/// The error is the reason why the request is refused.
fn bridge_of(request: &ProxyRequest, dialogue: &Dialogue) -> Result<Bridge, String> {
    let ProxyRequest::Connect { host, port } = request else {
        let why = "a program requested the lookup of a name, but this port only connects to \
                   bridges";
        return Err(why.to_owned());
    };
    let named = |_| {
        let host = host.escape_debug();
        format!(
            "the bridge '{host}:{port}' was requested by its host name: write its IP address \
                 in the Bridge line"
        )
    };
    let address: SocketAddr = (host.parse::<IpAddr>().map_err(named)?, *port).into();
    let wrong = |error: &dyn fmt::Display| format!("bridge {address}: {error}");
    let (user, password) = dialogue.login().unwrap_or_default();
    let args = Args::from_socks(user, password).map_err(|error| wrong(&error))?;
    Bridge::of(address, &args).map_err(|error| wrong(&error))
}

#[cfg(test)]
mod tests {
    use anabranch_stego::ServerKey;

    use super::*;
    use crate::pt::SCHEDULE;

    /// Maximum time that one turn of the event loop waits.
    const TURN: Duration = Duration::from_millis(10);

    /// Returns a client for programs that name their bridge by SOCKS.
    fn station() -> PtClient {
        let listen = vec![("127.0.0.1:0".parse().unwrap(), ListenerKind::Socks)];
        let settings = ClientSettings {
            listen,
            schedule: Spec::over_windows(SCHEDULE).unwrap(),
            shapes: Shapes::default(),
        };
        PtClient::new(settings).unwrap()
    }

    fn turn(station: &mut PtClient) {
        let ready: Vec<Ready> = station.poller.wait(Some(TURN)).unwrap().collect();
        let now = station.clock.now();
        ready.into_iter().for_each(|ready| station.take(now, ready));
        station.work(now);
    }

    /// Returns the bytes with which a program requests a bridge by SOCKS. `args` are the bridge's
    /// arguments, with or without its key.
    fn request(bridge: SocketAddr, args: &str) -> Vec<u8> {
        let SocketAddr::V4(at) = bridge else { panic!("{bridge}") };
        let mut bytes = vec![5, 1, 2, 1, args.len() as u8];
        bytes.extend(args.bytes());
        bytes.extend([1, 0, 5, 1, 0, 1]);
        bytes.extend(at.ip().octets());
        bytes.extend(at.port().to_be_bytes());
        bytes
    }

    #[test]
    fn each_complaint_names_its_bridge() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut station = station();
        let at = station.addresses().unwrap()[0];
        let mut program = TcpStream::connect(at).unwrap();
        let key = ServerKey::generate(&mut generator().unwrap()).public();
        let args = format!("key={key};profile=nosteg");
        program.write_all(&request(silent.local_addr().unwrap(), &args)).unwrap();
        let mut other = TcpStream::connect(at).unwrap();
        let unreal: SocketAddr = "192.0.2.7:443".parse().unwrap();
        other.write_all(&request(unreal, "key=x")).unwrap();
        for _ in 0..1_000 {
            turn(&mut station);
            if !station.links.is_empty() && !station.events.is_empty() {
                break;
            }
        }
        assert_eq!((station.links.len(), station.events.len()), (1, 1), "{:?}", station.events);
        let now = station.clock.now();
        station.give_up(now + PATIENCE);
        let events = station.events();
        let silent = format!("bridge {} does not answer", silent.local_addr().unwrap());
        let starts = ["bridge 192.0.2.7:443: the value of key=", &silent];
        for (event, start) in events.iter().zip(starts) {
            let PtEvent::Trouble(text) = event else { panic!("{event:?}") };
            assert!(text.starts_with(start), "{text}");
        }
        assert_eq!(events.len(), 2, "{events:?}");
    }
}

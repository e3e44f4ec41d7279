//! Server of our pluggable transport, with the links of all clients. Each link is connected to a
//! relay or another server.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::mpsc::Sender;

use anabranch_multipath::schedule::Spec;
use anabranch_multipath::{Core, Time};
use anabranch_os::clock::Clock;
use anabranch_os::cpu::has_aes;
use anabranch_os::entropy::generator;
use anabranch_os::files::{SpareDescriptor, limit};
use anabranch_os::poller::{Poller, Ready};
use anabranch_pt::{ConnectionInfo, ExtOrClient, Outbound};
use anabranch_stego::{
    ConnId, Covers, Ending, Input, LinkId, Profile, Server, ServerConfig, ServerKey, ServerOutput,
};
use rand_chacha::ChaCha20Rng;
use rand_core::Rng;

use super::bridge::{Bridge, TRANSPORT};
use super::local::{Arrival, LOCALS, Leaving, LinkEnd, Local, pair};
use super::wires::{WIRES, Wires};
use super::{LISTENERS, PtEvent, Station, StopConditions, bind, carry, wall};

mod site_connections;
#[cfg(test)]
mod tests;

use site_connections::SiteConnections;

/// Maximum number of clients' and strangers' connections at the same time. A low limit on file
/// descriptors reduces it.
const MOST: u64 = 60_000;

/// Destination to connect clients' links to.
#[derive(Clone, Debug)]
pub enum Onward {
    /// A relay's ORPort, or any other server.
    Plain(SocketAddr),
    /// A relay's Extended ORPort: its address, and its cookie file.
    Extended(SocketAddr, PathBuf),
    /// The program that uses the server as a library. It receives the streams through this
    /// channel.
    Program(Sender<Arrival>),
}

/// Settings of a server of our transport.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Address at which clients connect.
    pub listen: SocketAddr,
    /// The bridge's key pair.
    pub key: ServerKey,
    /// Camouflage profile: the protocol that the server's connections imitate.
    pub profile: Profile,
    /// Destination to connect clients' links to.
    pub onward: Onward,
    /// A web server that answers peers that are not clients of our transport; `None` for no
    /// answer.
    pub site: Option<SocketAddr>,
    /// Scheduler that chooses, for each chunk of a link's data, one of the link's TCP connections.
    pub schedule: Spec,
    /// Maximum number of bytes in the queues of all links together, in both directions.
    pub memory: usize,
    /// Maximum number of links that clients may have open at the same time.
    pub links: usize,
    /// Data that some camouflage profiles need: shapes (sizes and times of messages that
    /// connections imitate), and covers (web objects in which answers hide bytes).
    pub covers: Covers,
}

/// State of a server of our transport: its clients, and the local connections of their links.
pub struct PtServer {
    clock: Clock,
    poller: Poller,
    listener: TcpListener,
    spare: SpareDescriptor,
    most: usize,
    core: Server<ChaCha20Rng>,
    rng: ChaCha20Rng,
    bridge: Bridge,
    onward: Onward,
    site: Option<SocketAddr>,
    site_connections: SiteConnections,
    wires: Wires,
    /// Source addresses of clients whose new links have no local connection yet, in the order of
    /// the links. [`PtServer::open`] removes them.
    peers: VecDeque<SocketAddr>,
    addresses: BTreeMap<u64, SocketAddr>,
    /// The local connection of each link, to the relay or server in [`ServerSettings::onward`];
    /// `None` if the connection has failed or has ended.
    hosts: BTreeMap<LinkId, Option<Local>>,
    leaving: Leaving,
    touched: BTreeSet<LinkId>,
    events: Vec<PtEvent>,
}

/// This side's end of one link (a pair of byte streams between a client and this server).
struct End<'a> {
    core: &'a mut Server<ChaCha20Rng>,
    link: LinkId,
}

impl LinkEnd for End<'_> {
    fn room(&self) -> usize {
        self.core.room(self.link)
    }

    fn write(&mut self, bytes: &[u8]) {
        self.core.write(self.link, bytes);
    }

    fn finish(&mut self) {
        self.core.finish(self.link);
    }

    fn read(&mut self, now: Time) -> Option<Vec<u8>> {
        self.core.read(now, self.link)
    }

    fn has_ended(&self) -> bool {
        self.core.has_ended(self.link)
    }
}

impl PtServer {
    /// Creates a server that listens at the address in `settings`.
    ///
    /// # Errors
    /// The process cannot listen on the address, which the error names. Or the profile needs
    /// something that `settings` does not have: a web server, pictures, or covers (web
    /// objects in which bytes are hidden). Or a system call fails.
    pub fn new(settings: ServerSettings) -> io::Result<PtServer> {
        if settings.profile.family().wants_site && settings.site.is_none() {
            return Err(io::Error::other(format!(
                "the profile {} needs a web server for connections that are not from clients: add \
                 site= or --site",
                settings.profile
            )));
        }
        if settings.profile.family().wants_pictures && settings.covers.pictures.is_empty() {
            return Err(io::Error::other(format!(
                "the profile {} needs a folder of JPEG pictures: add pictures= or --pictures",
                settings.profile
            )));
        }
        if settings.profile.family().wants_objects && settings.covers.site.is_empty() {
            return Err(io::Error::other(format!(
                "the profile {} needs a folder of covers (web content in which data is hidden): \
                 add covers= or --covers; 'anabranch pt crawl' makes the folder",
                settings.profile
            )));
        }
        let (poller, clock) = (Poller::new(1024)?, Clock::start());
        let listener = bind(settings.listen)?;
        poller.add(&listener, LISTENERS)?;
        let (key, profile) = (settings.key.public(), settings.profile);
        let config = ServerConfig {
            key: settings.key,
            profile,
            schedule: settings.schedule,
            wall: wall(clock),
            aes: has_aes(),
            memory: settings.memory,
            links: settings.links,
            covers: settings.covers,
        };
        Ok(PtServer {
            bridge: Bridge { address: listener.local_addr()?, key, profile, host: None },
            clock,
            poller,
            listener,
            spare: SpareDescriptor::new(),
            // Only half of the descriptors are used for these connections, because each link also
            // needs a local connection.
            most: (limit() / 2).min(MOST) as usize,
            core: Server::new(config, generator()?),
            rng: generator()?,
            onward: settings.onward,
            site: settings.site,
            site_connections: SiteConnections::default(),
            wires: Wires::new(),
            peers: VecDeque::new(),
            addresses: BTreeMap::new(),
            hosts: BTreeMap::new(),
            leaving: Leaving::default(),
            touched: BTreeSet::new(),
            events: Vec::new(),
        })
    }

    /// Sets the source addresses of the connections that the server opens.
    #[must_use]
    pub fn with_outbound(mut self, outbound: Outbound) -> PtServer {
        self.wires.outbound = outbound;
        self
    }

    /// Returns the bridge line for clients.
    #[must_use]
    pub fn bridge(&self) -> &Bridge {
        &self.bridge
    }

    /// Runs the server until a condition in `ends` is met. Passes the server's events to `watch`.
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

    fn accept(&mut self, now: Time) {
        while let Some((socket, peer)) = self.spare.accept(&self.listener) {
            if self.wires.len() >= self.most && !self.make_place(now) {
                continue;
            }
            let Ok(wire) = self.wires.accept(&self.poller, socket) else { continue };
            self.addresses.insert(wire, peer);
            self.core.handle(now, Input::Opened(ConnId(wire)));
            self.announce(wire);
        }
    }

    /// Makes room for a new connection. Closes the oldest of the connections on which this server
    /// has sent nothing. Returns false if there is no such connection.
    fn make_place(&mut self, now: Time) -> bool {
        let Some(wire) = self.wires.oldest_unanswered() else { return false };
        self.dismiss(now, wire);
        true
    }

    fn forget(&mut self, now: Time, wire: u64) {
        self.addresses.remove(&wire);
        self.recall(wire);
        self.core.handle(now, Input::Closed(ConnId(wire)));
    }

    fn take_wire(&mut self, now: Time, wire: u64, ready: Ready) {
        let news = self.wires.take(&self.poller, wire, ready);
        if self.is_stranger_or_site(wire) {
            return self.on_stranger_or_site_data(now, wire, &news);
        }
        if !news.bytes.is_empty() {
            let before = self.core.links();
            self.core.handle(now, Input::Bytes(ConnId(wire), &news.bytes));
            if self.core.links() > before {
                self.peers.extend(self.addresses.get(&wire));
            }
            self.pass_on(wire);
        }
        if news.gone || news.ended && !self.hand_over_ended(now, wire) {
            self.wires.drop_now(wire);
            self.forget(now, wire);
        }
    }

    fn take_local(&mut self, link: LinkId, ready: Ready) {
        if let Some(host) = self.hosts.get_mut(&link) {
            if let Some(local) = host
                && let Err(error) = local.ready(ready)
            {
                self.fail(link, &error);
            }
            self.touched.insert(link);
        } else {
            self.leaving.ready(link.0);
        }
    }

    /// Ends `link`, because its local connection has failed with `error`.
    fn fail(&mut self, link: LinkId, error: &io::Error) {
        self.hosts.get_mut(&link).into_iter().for_each(|host| *host = None);
        self.core.reset(link);
        let why = match &self.onward {
            Onward::Plain(to) | Onward::Extended(to, _) => format!("{to}: {error}"),
            Onward::Program(_) => error.to_string(),
        };
        self.events.push(PtEvent::Trouble(why));
    }

    fn execute(&mut self, now: Time, output: ServerOutput) {
        match output {
            ServerOutput::Send(ConnId(wire), bytes) => self.wires.send(wire, &bytes),
            ServerOutput::Close(ConnId(wire)) => {
                self.addresses.remove(&wire);
                self.wires.close(now, wire);
            }
            ServerOutput::Stranger(ConnId(wire), message) => self.stranger(now, wire, &message),
            ServerOutput::Opened(link) => self.open(link),
            ServerOutput::Ready(link) => drop(self.touched.insert(link)),
            ServerOutput::Over(link, ending) => self.over(link, ending),
        }
    }

    /// Opens the local connection of the new `link`.
    fn open(&mut self, link: LinkId) {
        let peer = self.peers.pop_front();
        let local = self.connect(peer).and_then(|mut local| {
            local.add_to(&self.poller, link.0)?;
            Ok(local)
        });
        match local {
            Ok(local) => {
                self.hosts.insert(link, Some(local));
                self.touched.insert(link);
                self.events.push(PtEvent::Up(None));
            }
            Err(error) => self.fail(link, &error),
        }
    }

    fn connect(&mut self, user: Option<SocketAddr>) -> io::Result<Local> {
        let from = |to: &SocketAddr| (*to, self.wires.outbound.towards(to.ip()));
        match &self.onward {
            Onward::Plain(to) => Local::connect(from(to), None),
            Onward::Extended(to, cookie) => {
                let mut nonce = [0; 32];
                self.rng.fill_bytes(&mut nonce);
                let info = ConnectionInfo { user, transport: Some(TRANSPORT.to_owned()) };
                let named = |why: &dyn fmt::Display| {
                    io::Error::other(format!("{}: {why}", cookie.display()))
                };
                let file = fs::read(cookie).map_err(|error| named(&error))?;
                let greeting = ExtOrClient::new(&file, nonce, info);
                let none = || named(&"the file does not contain a cookie of tor's Extended ORPort");
                Local::connect(from(to), Some(greeting.ok_or_else(none)?))
            }
            Onward::Program(taker) => {
                let (socket, ours) = pair()?;
                let taken = taker.send(Arrival { socket, from: user });
                taken.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
                Ok(Local::unwatched(ours))
            }
        }
    }

    /// Moves bytes between `link` and its local connection. Returns whether any bytes were moved.
    fn service(&mut self, now: Time, link: LinkId) -> bool {
        let Some(host) = self.hosts.get_mut(&link) else { return false };
        let Some(local) = host else { return false };
        match local.service(now, &mut End { core: &mut self.core, link }) {
            Err(error) => {
                self.fail(link, &error);
                true
            }
            Ok(moved) => {
                local.watch(&self.poller, link.0, self.core.room(link));
                // The core remembers the link for some time after its end. The file descriptor is
                // released now.
                if local.is_over() {
                    *host = None;
                }
                moved
            }
        }
    }

    fn over(&mut self, link: LinkId, ending: Ending) {
        let Some(host) = self.hosts.remove(&link) else { return };
        self.events.push(PtEvent::Over(None, ending));
        if let Some(local) = host {
            self.leaving.add(&self.poller, link.0, local, ending);
        }
    }
}

impl Drop for PtServer {
    fn drop(&mut self) {
        let hosts = std::mem::take(&mut self.hosts).into_values();
        hosts.flatten().for_each(Local::cut);
    }
}

impl Station for PtServer {
    fn clock(&self) -> Clock {
        self.clock
    }

    fn poller(&mut self) -> &mut Poller {
        &mut self.poller
    }

    fn next_timeout(&self) -> Option<Time> {
        self.core.next_timeout()
    }

    fn take(&mut self, now: Time, ready: Ready) {
        match ready.token {
            LISTENERS => self.accept(now),
            token @ WIRES..LOCALS => self.take_wire(now, token - WIRES, ready),
            token if token >= LOCALS => self.take_local(LinkId(token - LOCALS), ready),
            _ => {}
        }
    }

    fn sweep(&mut self, now: Time) {
        self.core.set_wall(wall(self.clock));
        self.wires.sweep(now);
        self.leaving.sweep(now);
        for wire in self.wires.stuck(now) {
            if self.is_strangers(wire) {
                self.dismiss(now, wire);
            }
        }
    }

    fn work(&mut self, now: Time) {
        loop {
            let mut busy = false;
            while let Some(output) = self.core.poll(now) {
                busy = true;
                self.execute(now, output);
            }
            for (wire, room) in self.wires.settle(&self.poller) {
                busy = true;
                if self.is_stranger_or_site(wire) {
                    self.visit_moved(now, wire, room.is_none());
                    continue;
                }
                match room {
                    Some(room) => self.core.handle(now, Input::Room(ConnId(wire), room)),
                    None => self.forget(now, wire),
                }
            }
            while let Some(link) = self.touched.pop_first() {
                busy |= self.service(now, link);
            }
            if !busy {
                return;
            }
        }
    }

    fn events(&mut self) -> Vec<PtEvent> {
        std::mem::take(&mut self.events)
    }
}

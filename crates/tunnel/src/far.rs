//! The far end: sessions of many clients, on one socket.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anabranch_multipath::{PathId, Time};
use aws_lc_rs::hmac;
use rand_core::CryptoRng;

use crate::disguise::Disguise;
use crate::epoch::{Epoch, Id, id_of};
use crate::hello::{Cookie, Hello, Message, Welcome};
use crate::keys::{KeyPair, Psk, PublicKey};
use crate::noise;
use crate::piece::Piece;
use crate::session::{DecoyCount, Session};

/// Paths of a session.
const MOST_PATHS: u8 = 64;
/// Handshakes a second that are answered without proof of address; beyond, a cookie is wanted.
const CALM: u32 = 50;
/// How long a cookie proves an address (WireGuard: COOKIE_SECRET_MAX_AGE).
const COOKIES: Duration = Duration::from_secs(120);
/// A session whose client was silent for so long is forgotten (WireGuard: three times
/// REJECT_AFTER_TIME).
const FORGET: Duration = Duration::from_secs(540);

/// A client, in the order in which they were named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

/// Where packets of a client come from, and the address of ours that they came to: answers leave
/// from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The client's address, as it is seen here.
    pub remote: SocketAddr,
    /// Ours, where there are several.
    pub local: Option<IpAddr>,
    /// The stream that they came by, if by one ([`carrier`](crate::carrier)); answers leave by it.
    /// The caller gives each stream a number of its own.
    pub stream: Option<u64>,
}

impl From<SocketAddr> for Peer {
    fn from(remote: SocketAddr) -> Peer {
        Peer { remote, local: None, stream: None }
    }
}

/// A client's session began anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRun {
    /// Whose.
    pub client: ClientId,
    /// The server that it wants.
    pub label: String,
}

/// What a packet was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// Nothing for us; whoever sent it is not answered.
    Nothing,
    /// A handshake: the answer, to go where the packet came from. Some if it is of a new run.
    Handshake(Vec<u8>, Option<NewRun>),
    /// A packet of a session: there may be datagrams now.
    Session(ClientId),
}

/// The far end.
pub struct Far<R> {
    own: KeyPair,
    disguise: Disguise,
    rng: R,
    sizes: Vec<usize>,
    aes: bool,
    clients: Vec<Client>,
    keys: BTreeMap<PublicKey, ClientId>,
    ids: BTreeSet<(Id, ClientId, u32, PathId)>,
    cookies: Cookies,
    /// Which second it is, and how many handshakes it had.
    second: (u64, u32),
}

struct Client {
    psk: Psk,
    /// The stamp of the last handshake: older ones are replays.
    stamp: Option<u64>,
    generation: u32,
    session: Option<ClientSession>,
}

impl Client {
    fn new(psk: Psk) -> Client {
        Client { psk, stamp: None, generation: 0, session: None }
    }
}

struct ClientSession {
    run: [u8; 8],
    /// The name of our part of it.
    ours: [u8; 8],
    session: Session,
    /// Where each path comes from, and the number that said so.
    peers: Vec<Option<(Peer, u64)>>,
    heard: Time,
}

struct Cookies {
    /// The present secret and the one before.
    secrets: [[u8; 32]; 2],
    until: Time,
}

impl<R: CryptoRng> Far<R> {
    /// A far end of these clients. `sizes`: see [`Session::new`].
    pub fn new(own: KeyPair, clients: &[(PublicKey, Psk)], sizes: &[usize], mut rng: R) -> Far<R> {
        let mut secrets = [[0; 32]; 2];
        secrets.iter_mut().for_each(|secret| rng.fill_bytes(secret));
        Far {
            disguise: Disguise::of(&own.public),
            own,
            rng,
            sizes: sizes.to_vec(),
            aes: false,
            clients: clients.iter().map(|(_, psk)| Client::new(*psk)).collect(),
            keys: (0..).map(ClientId).zip(clients).map(|(id, (key, _))| (*key, id)).collect(),
            ids: BTreeSet::new(),
            cookies: Cookies { secrets, until: Time::ZERO + COOKIES },
            second: (0, 0),
        }
    }

    /// Whether AES is quick on this machine: with clients where it is so, too, packets are sealed
    /// by it.
    pub fn prefer_aes(&mut self, aes: bool) {
        self.aes = aes;
    }

    /// Other clients from now on, or other secrets. Who stays keeps his name and his session, who
    /// is new gets a name of his own, and who goes is forgotten. The names of `clients`, in their
    /// order, and of those who have gone.
    pub fn replace_clients(
        &mut self,
        clients: &[(PublicKey, Psk)],
    ) -> (Vec<ClientId>, Vec<ClientId>) {
        let before = std::mem::take(&mut self.keys);
        let named = clients.iter().map(|(key, psk)| {
            let id = before.get(key).copied().unwrap_or_else(|| {
                self.clients.push(Client::new(*psk));
                ClientId(self.clients.len() as u32 - 1)
            });
            self.clients[id.0 as usize].psk = *psk;
            self.keys.insert(*key, id);
            id
        });
        let named: Vec<ClientId> = named.collect();
        let gone: Vec<ClientId> = before.into_values().filter(|id| !named.contains(id)).collect();
        for id in &gone {
            self.clients[id.0 as usize].session = None;
        }
        self.ids.retain(|(_, id, ..)| !gone.contains(id));
        (named, gone)
    }

    /// Takes a packet that came from there.
    pub fn receive(&mut self, now: Time, from: Peer, packet: &[u8]) -> PacketKind {
        if let Some(client) = self.opened(now, from, packet) {
            return PacketKind::Session(client);
        }
        self.greeted(now, from.remote, packet).unwrap_or(PacketKind::Nothing)
    }

    fn opened(&mut self, now: Time, from: Peer, packet: &[u8]) -> Option<ClientId> {
        let id = id_of(&self.disguise, packet)?;
        let first = (id, ClientId(0), 0, PathId(0));
        let last = (id, ClientId(u32::MAX), u32::MAX, PathId(u16::MAX));
        self.ids.range(first..=last).find_map(|&(_, client, generation, path)| {
            let running = self.clients.get_mut(client.0 as usize)?.session.as_mut()?;
            let number = running.session.open(now, (id, generation, path), packet)?;
            running.heard = now;
            let peer = running.peers.get_mut(path.index())?;
            if peer.is_none_or(|(_, newest)| newest < number) {
                *peer = Some((from, number));
            }
            Some(client)
        })
    }

    fn greeted(&mut self, now: Time, from: SocketAddr, packet: &[u8]) -> Option<PacketKind> {
        let message = self.disguise.find(packet)?;
        let Message::Init { cookie, noise } = Message::read(&message)? else { return None };
        self.cookies.turn(now, &mut self.rng);
        if self.is_crowded(now) && !self.cookies.proves(from, &cookie) {
            let cookie = Message::Cookie(self.cookies.of(from)).write();
            return Some(PacketKind::Handshake(self.disguise.hide(&cookie, &mut self.rng), None));
        }
        let mut state = noise::responder(&self.own, &mut self.rng);
        let mut payload = vec![0; noise.len()];
        let length = state.read_message(noise, &mut payload).ok()?;
        let hello = Hello::read(&payload[..length])?;
        let key = PublicKey(state.get_remote_static()?.try_into().ok()?);
        let id = *self.keys.get(&key)?;
        let client = self.clients.get_mut(id.0 as usize)?;
        if client.stamp.is_some_and(|last| hello.stamp <= last) {
            return None;
        }
        state.set_psk(2, &client.psk).ok()?;
        client.stamp = Some(hello.stamp);
        let paths = hello.paths.min(MOST_PATHS);
        let mut fresh = [0; 8];
        self.rng.fill_bytes(&mut fresh);
        let known = client.session.as_ref().filter(|running| running.run == hello.run);
        let (run, first) =
            known.map_or((fresh, 0), |known| (known.ours, known.session.next_number()));
        let aes = self.aes && hello.aes;
        let welcome = Welcome { run, first, paths, aes }.write(&mut self.rng);
        let mut answer = vec![0; welcome.len() + 128];
        let length = state.write_message(&welcome, &mut answer).ok()?;
        let (back, out) = state.dangerously_get_raw_split();
        let epoch = Epoch::new(&out, &back, paths.into(), aes);
        let accepted = self.renew(now, id, (hello, run), epoch);
        let answer = Message::Answer { noise: &answer[..length] }.write();
        Some(PacketKind::Handshake(self.disguise.hide(&answer, &mut self.rng), accepted))
    }

    /// Whether there were too many handshakes in this second.
    fn is_crowded(&mut self, now: Time) -> bool {
        let second = now.nanos() / 1_000_000_000;
        if self.second.0 != second {
            self.second = (second, 0);
        }
        self.second.1 += 1;
        self.second.1 > CALM
    }

    fn renew(
        &mut self,
        now: Time,
        id: ClientId,
        (hello, ours): (Hello, [u8; 8]),
        epoch: Epoch,
    ) -> Option<NewRun> {
        let client = self.clients.get_mut(id.0 as usize)?;
        client.generation += 1;
        let known = client.session.as_ref().is_some_and(|running| running.run == hello.run);
        if !known {
            let paths = hello.paths.min(MOST_PATHS);
            let mut session = Session::new(paths.into(), false, &self.sizes);
            session.begin_at(hello.first);
            client.session = Some(ClientSession {
                run: hello.run,
                ours,
                session,
                peers: vec![None; paths.into()],
                heard: now,
            });
            self.ids.retain(|(_, one, ..)| *one != id);
        }
        let running = client.session.as_mut()?;
        let gone = running.session.renew(client.generation, epoch, false);
        self.ids.retain(|(one, client, ..)| *client != id || !gone.contains(one));
        let awaited = running.session.ids();
        self.ids.extend(awaited.map(|(one, generation, path)| (one, id, generation, path)));
        (!known).then_some(NewRun { client: id, label: hello.label })
    }

    /// The session of a client, to look at and to take datagrams from.
    pub fn session(&mut self, client: ClientId) -> Option<&mut Session> {
        let running = self.clients.get_mut(client.0 as usize)?.session.as_mut()?;
        Some(&mut running.session)
    }

    /// Appends the packet that carries a datagram of a flow, or a part of one, to a client by a
    /// path; where it goes. `None` if there are no keys, or nothing has come by this path yet.
    pub fn seal<'p>(
        &mut self,
        now: Time,
        client: ClientId,
        path: PathId,
        (flow, piece): (u16, impl Into<Piece<'p>>),
        out: &mut Vec<u8>,
    ) -> Option<Peer> {
        let running = self.clients.get_mut(client.0 as usize)?.session.as_mut()?;
        let (to, _) = (*running.peers.get(path.index())?)?;
        let sealed = running.session.seal(now, &self.disguise, path, (flow, piece.into()), out);
        sealed.then_some(to)
    }

    /// Appends the next packet that this end has to say to a client by itself; where it goes.
    pub fn say(&mut self, now: Time, client: ClientId, out: &mut Vec<u8>) -> Option<Peer> {
        let running = self.clients.get_mut(client.0 as usize)?.session.as_mut()?;
        loop {
            let before = out.len();
            let path = running.session.say(now, &self.disguise, out)?;
            if let Some((to, _)) = running.peers.get(path.index()).copied().flatten() {
                return Some(to);
            }
            // Nothing has come by that path: nobody knows where it leads.
            out.truncate(before);
        }
    }

    /// Paths of a client's session; none where there is no session.
    #[must_use]
    pub fn paths(&self, client: ClientId) -> usize {
        let running = self.clients.get(client.0 as usize).and_then(|one| one.session.as_ref());
        running.map_or(0, |running| running.peers.len())
    }

    /// Where a client's path comes from.
    #[must_use]
    pub fn peer(&self, client: ClientId, path: PathId) -> Option<Peer> {
        let running = self.clients.get(client.0 as usize)?.session.as_ref()?;
        running.peers.get(path.index())?.map(|(peer, _)| peer)
    }

    /// The paths that came by this stream lead nowhere until a packet arrives by another one.
    pub fn lose_stream(&mut self, client: ClientId, stream: u64) {
        let running = self.clients.get_mut(client.0 as usize);
        let Some(running) = running.and_then(|one| one.session.as_mut()) else { return };
        for peer in &mut running.peers {
            peer.take_if(|(peer, _)| peer.stream == Some(stream));
        }
    }

    /// Whether a path leads anywhere yet, and what a scheduler may know of it.
    #[must_use]
    pub fn view(&self, now: Time, client: ClientId, path: PathId) -> anabranch_multipath::PathView {
        let running = self.clients.get(client.0 as usize).and_then(|one| one.session.as_ref());
        let Some(running) = running else { return anabranch_multipath::PathView::dead() };
        let leads = running.peers.get(path.index()).is_some_and(Option::is_some);
        if leads { running.session.view(now, path) } else { anabranch_multipath::PathView::dead() }
    }

    /// Decoys that were sent to a client, and those that came from it, in its present session.
    #[must_use]
    pub fn decoys(&self, client: ClientId) -> [DecoyCount; 2] {
        let running = self.clients.get(client.0 as usize).and_then(|one| one.session.as_ref());
        running.map_or_else(Default::default, |running| running.session.decoys())
    }

    /// Forgets sessions whose client left or was silent for too long; whose they were.
    pub fn expire(&mut self, now: Time) -> Vec<ClientId> {
        let mut gone = Vec::new();
        for (id, client) in (0..).map(ClientId).zip(&mut self.clients) {
            let over = |running: &ClientSession| {
                running.session.is_closed() || now.since(running.heard) >= FORGET
            };
            if client.session.as_ref().is_some_and(over) {
                client.session = None;
                gone.push(id);
            }
        }
        self.ids.retain(|(_, id, ..)| !gone.contains(id));
        gone
    }
}

impl Cookies {
    fn turn(&mut self, now: Time, rng: &mut impl CryptoRng) {
        if now >= self.until {
            self.secrets[1] = self.secrets[0];
            rng.fill_bytes(&mut self.secrets[0]);
            self.until = now + COOKIES;
        }
    }

    fn of(&self, from: SocketAddr) -> Cookie {
        cookie(&self.secrets[0], from.ip())
    }

    fn proves(&self, from: SocketAddr, cookie_shown: &Cookie) -> bool {
        self.secrets.iter().any(|secret| cookie(secret, from.ip()) == *cookie_shown)
    }
}

/// What proves an address. It is told to whoever receives there, and to nobody else.
fn cookie(secret: &[u8; 32], address: IpAddr) -> Cookie {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let tag = match address {
        IpAddr::V4(v4) => hmac::sign(&key, &v4.octets()),
        IpAddr::V6(v6) => hmac::sign(&key, &v6.octets()),
    };
    std::array::from_fn(|place| tag.as_ref()[place])
}

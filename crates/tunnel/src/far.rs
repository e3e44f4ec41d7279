//! The far end (the side of the servers), which accepts the sessions of many clients on one
//! socket.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anabranch_multipath::{PathId, Time};
use aws_lc_rs::hmac;
use rand_core::CryptoRng;

use crate::disguise::{Disguise, NONCE};
use crate::epoch::{Epoch, Id, id_of};
use crate::hello::{Cookie, Hello, MOST_COPIES, Message, Welcome};
use crate::keys::{KeyPair, Psk, PublicKey};
use crate::noise;
use crate::piece::Piece;
use crate::session::{DecoyCount, Session, UNCONFIRMED};

/// Maximum number of paths of a session.
const MOST_PATHS: u8 = 64;
/// Maximum number of handshakes per second that are answered without proof of the sender's
/// address. Above this rate, the far end requires a cookie.
const CALM: u32 = 50;
/// Time for which a cookie proves an address (WireGuard: `COOKIE_SECRET_MAX_AGE`).
const COOKIES: Duration = Duration::from_secs(120);
/// Time without a packet from a client after which its session is forgotten (WireGuard: three
/// times `REJECT_AFTER_TIME`).
const FORGET: Duration = Duration::from_secs(540);

/// Identifier of a client: clients are numbered in the order in which they were configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

/// The address from which a client's packets came, and the local address at which they arrived.
/// Answers are sent from that local address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The client's address, as seen by the far end.
    pub remote: SocketAddr,
    /// The local address; `None` if the far end has only one.
    pub local: Option<IpAddr>,
    /// Identifier of the stream on which the packets arrived ([`carrier`](crate::carrier)), chosen
    /// by the caller and unique; `None` for datagrams. Answers are sent on the same stream.
    pub stream: Option<u64>,
}

impl From<SocketAddr> for Peer {
    fn from(remote: SocketAddr) -> Peer {
        Peer { remote, local: None, stream: None }
    }
}

/// Event: a client has started a new session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRun {
    /// The client that starts the session.
    pub client: ClientId,
    /// The label (a name chosen by the far end's user) of the server that the client requests.
    pub label: String,
}

/// The kind of a received packet: the result of [`FarSide::receive`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// The packet is not for this far end. Its sender gets no answer.
    Nothing,
    /// The packet is a handshake. The fields are the answer, to be sent to the packet's source,
    /// and the new session if the handshake starts one.
    Handshake(Vec<u8>, Option<NewRun>),
    /// The packet belongs to a session of this client. The session may now have datagrams to take.
    Session(ClientId),
}

/// The state of the far end (the side of the servers): its clients and their sessions.
pub struct FarSide<R> {
    own: KeyPair,
    disguise: Disguise,
    rng: R,
    sizes: Vec<usize>,
    aes: bool,
    clients: Vec<Client>,
    keys: BTreeMap<PublicKey, ClientId>,
    ids: BTreeSet<(Id, ClientId, u32, PathId)>,
    cookies: Cookies,
    /// The current second, and the number of handshakes that have arrived in it.
    second: (u64, u32),
}

struct Client {
    psk: Psk,
    /// The timestamp in the client's last handshake; `None` before the first handshake. A
    /// handshake whose timestamp is not later is either a copy of a handshake in `answered`, or a
    /// replay.
    stamp: Option<u64>,
    /// The last handshakes that were answered, in order.
    answered: VecDeque<AnsweredHandshake>,
    generation: u32,
    session: Option<ClientSession>,
}

impl Client {
    fn new(psk: Psk) -> Client {
        Client { psk, stamp: None, answered: VecDeque::new(), generation: 0, session: None }
    }

    /// Returns the answer to another copy of an answered handshake, whose Noise message is
    /// `noise`. Returns `None` if no such handshake was answered, if `nonce` shows that the packet
    /// is a replay, or after [`MOST_COPIES`] copies.
    fn repeat(&mut self, noise: &[u8], nonce: [u8; NONCE]) -> Option<&[u8]> {
        let answered = self.answered.iter_mut().find(|one| one.noise == noise)?;
        if answered.nonces.len() >= MOST_COPIES || !answered.nonces.insert(nonce) {
            return None;
        }
        Some(&answered.answer)
    }

    /// Drops the session, and the answers to its handshakes.
    fn forget(&mut self) {
        self.session = None;
        self.answered.clear();
    }
}

/// A handshake that was answered. A near end (client) sends copies of one handshake on several
/// paths, and disguises each copy with its own nonce. An observer without the far end's public key
/// cannot make a copy with another nonce. A packet with a known nonce is therefore a replay, and
/// gets no answer.
struct AnsweredHandshake {
    noise: Vec<u8>,
    answer: Vec<u8>,
    nonces: BTreeSet<[u8; NONCE]>,
}

struct ClientSession {
    run: [u8; 8],
    /// Random identifier that the far end has given to this session.
    ours: [u8; 8],
    session: Session,
    /// For each path, the latest source of the client's packets, and the packet number of the
    /// packet that showed this source. `None` for a path on which no packet has arrived.
    peers: Vec<Option<(Peer, u64)>>,
    last_arrival: Time,
}

struct Cookies {
    /// The current secret from which cookies are computed, and the previous secret.
    secrets: [[u8; 32]; 2],
    until: Time,
}

impl<R: CryptoRng> FarSide<R> {
    /// Creates a far end that serves `clients`. `sizes` are the lengths that packets are padded
    /// to, as in [`Session::new`].
    pub fn new(
        own: KeyPair,
        clients: &[(PublicKey, Psk)],
        sizes: &[usize],
        mut rng: R,
    ) -> FarSide<R> {
        let mut secrets = [[0; 32]; 2];
        secrets.iter_mut().for_each(|secret| rng.fill_bytes(secret));
        FarSide {
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

    /// Sets whether AES is fast on this machine. Packets are encrypted with AES if it is fast on
    /// the client's machine, too.
    pub fn prefer_aes(&mut self, aes: bool) {
        self.aes = aes;
    }

    /// Replaces the clients and their shared secrets. A client that remains keeps its ID and its
    /// session. A new client gets a new ID. The sessions of removed clients are dropped.
    ///
    /// Returns the IDs of `clients`, in their order, and the IDs of removed clients.
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
            let client = &mut self.clients[id.0 as usize];
            if client.psk != *psk {
                client.psk = *psk;
                client.answered.clear();
            }
            self.keys.insert(*key, id);
            id
        });
        let named: Vec<ClientId> = named.collect();
        let gone: Vec<ClientId> = before.into_values().filter(|id| !named.contains(id)).collect();
        for id in &gone {
            self.clients[id.0 as usize].forget();
        }
        self.ids.retain(|(_, id, ..)| !gone.contains(id));
        (named, gone)
    }

    /// Processes a packet that arrived from `from`.
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
            running.last_arrival = now;
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
        let nonce = *packet.first_chunk::<NONCE>()?;
        if client.stamp.is_some_and(|last| hello.stamp <= last) {
            let answer = self.disguise.hide(client.repeat(noise, nonce)?, &mut self.rng);
            return Some(PacketKind::Handshake(answer, None));
        }
        state.set_psk(2, &client.psk).ok()?;
        client.stamp = Some(hello.stamp);
        let paths = hello.paths.min(MOST_PATHS);
        let mut fresh = [0; 8];
        self.rng.fill_bytes(&mut fresh);
        let known = client.session.as_ref().filter(|running| running.run == hello.run);
        let (run, first) =
            known.map_or((fresh, 0), |known| (known.ours, known.session.next_number()));
        if known.is_none() {
            client.answered.clear();
        }
        let aes = self.aes && hello.aes;
        let welcome = Welcome { run, first, paths, aes }.write(&mut self.rng);
        let mut answer = vec![0; welcome.len() + 128];
        let length = state.write_message(&welcome, &mut answer).ok()?;
        let (back, out) = state.dangerously_get_raw_split();
        let epoch = Epoch::new(&out, &back, paths.into(), aes);
        let answer = Message::Answer { noise: &answer[..length] }.write();
        let (noise, nonces) = (noise.to_vec(), BTreeSet::from([nonce]));
        client.answered.push_back(AnsweredHandshake { noise, answer: answer.clone(), nonces });
        if client.answered.len() > UNCONFIRMED {
            client.answered.pop_front();
        }
        let accepted = self.renew(now, id, (hello, run), epoch);
        Some(PacketKind::Handshake(self.disguise.hide(&answer, &mut self.rng), accepted))
    }

    /// Counts a handshake. Returns whether too many handshakes have arrived in the current second,
    /// so that the sender must prove its address.
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
                last_arrival: now,
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

    /// Returns the session of `client`, so that the caller can inspect it and take datagrams from
    /// it; `None` if there is none.
    pub fn session(&mut self, client: ClientId) -> Option<&mut Session> {
        let running = self.clients.get_mut(client.0 as usize)?.session.as_mut()?;
        Some(&mut running.session)
    }

    /// Encrypts a datagram, or a part of one, for `client`. Appends the packet for `path` to
    /// `out`, and returns the packet's destination. The datagram belongs to a flow (one program at
    /// the client). Returns `None` if there are no keys, or if nothing has arrived on this path
    /// yet.
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

    /// Appends to `out` the next packet to `client` that carries no datagram of a server, such as
    /// a control message. Returns the packet's destination; `None` if there is no such packet.
    pub fn poll_transmit(
        &mut self,
        now: Time,
        client: ClientId,
        out: &mut Vec<u8>,
    ) -> Option<Peer> {
        let running = self.clients.get_mut(client.0 as usize)?.session.as_mut()?;
        loop {
            let before = out.len();
            let path = running.session.poll_transmit(now, &self.disguise, out)?;
            if let Some((to, _)) = running.peers.get(path.index()).copied().flatten() {
                return Some(to);
            }
            // Nothing has arrived on that path, so the packet's destination is unknown.
            out.truncate(before);
        }
    }

    /// Returns the number of paths of a client's session; 0 without a session.
    #[must_use]
    pub fn paths(&self, client: ClientId) -> usize {
        let running = self.clients.get(client.0 as usize).and_then(|one| one.session.as_ref());
        running.map_or(0, |running| running.peers.len())
    }

    /// Returns the address from which the client's packets arrive on `path`; `None` if no packet
    /// has arrived on it.
    #[must_use]
    pub fn peer(&self, client: ClientId, path: PathId) -> Option<Peer> {
        let running = self.clients.get(client.0 as usize)?.session.as_ref()?;
        running.peers.get(path.index())?.map(|(peer, _)| peer)
    }

    /// Forgets the addresses of the client's paths that use `stream`, which has ended. Nothing can
    /// be sent on such a path until a packet of it arrives on another stream.
    pub fn lose_stream(&mut self, client: ClientId, stream: u64) {
        let running = self.clients.get_mut(client.0 as usize);
        let Some(running) = running.and_then(|one| one.session.as_mut()) else { return };
        for peer in &mut running.peers {
            peer.take_if(|(peer, _)| peer.stream == Some(stream));
        }
    }

    /// Returns the state of a client's path for a scheduler. A path on which no packet has arrived
    /// is dead.
    #[must_use]
    pub fn view(&self, now: Time, client: ClientId, path: PathId) -> anabranch_multipath::PathView {
        let running = self.clients.get(client.0 as usize).and_then(|one| one.session.as_ref());
        let Some(running) = running else { return anabranch_multipath::PathView::dead() };
        let leads = running.peers.get(path.index()).is_some_and(Option::is_some);
        if leads { running.session.view(now, path) } else { anabranch_multipath::PathView::dead() }
    }

    /// Returns the counters of decoys (dummy packets) in a client's present session: decoys sent
    /// to the client, then decoys received from the client.
    #[must_use]
    pub fn decoys(&self, client: ClientId) -> [DecoyCount; 2] {
        let running = self.clients.get(client.0 as usize).and_then(|one| one.session.as_ref());
        running.map_or_else(Default::default, |running| running.session.decoys())
    }

    /// Drops the sessions of clients that have closed their sessions or were silent for `FORGET`.
    /// Returns these clients.
    pub fn expire(&mut self, now: Time) -> Vec<ClientId> {
        let mut gone = Vec::new();
        for (id, client) in (0..).map(ClientId).zip(&mut self.clients) {
            let over = |running: &ClientSession| {
                running.session.is_closed() || now.since(running.last_arrival) >= FORGET
            };
            if client.session.as_ref().is_some_and(over) {
                client.forget();
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

/// Returns the cookie that proves `address`. Only a host that receives packets at this address can
/// learn the cookie.
fn cookie(secret: &[u8; 32], address: IpAddr) -> Cookie {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let tag = match address {
        IpAddr::V4(v4) => hmac::sign(&key, &v4.octets()),
        IpAddr::V6(v6) => hmac::sign(&key, &v6.octets()),
    };
    std::array::from_fn(|place| tag.as_ref()[place])
}

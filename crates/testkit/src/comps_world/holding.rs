//! A model of a tunnel whose server accepts data only from the address of the last handshake, like
//! the VPN program fastd 22. A model of the tunnel's user generates the traffic.

use std::collections::BTreeMap;
use std::time::Duration;

use anabranch_comps::Config;
use anabranch_multipath::Time;
use anabranch_netem::LinkSettings;

use super::{SeenAddress, Server, World, client, numbered};
use crate::tcp::{Receiver, Sender};

const MS: Duration = Duration::from_millis(1);
/// Interval of handshakes in fastd 22: the server waits at least this time before it begins
/// another handshake with the same address.
pub const FASTD: Duration = Duration::from_secs(15);
/// Minimum time between two handshakes of the client, as in fastd 22.
const PAUSE: Duration = Duration::from_secs(15);
/// Offset in a datagram of the byte that identifies the datagram's kind.
const KIND: usize = 8;
/// Kind of a datagram: a probe.
const PING: u8 = b'P';
/// Kind of a datagram: an acknowledgement.
const ACK: u8 = b'A';
/// Kind of a datagram: the first message of a handshake.
const OFFER: u8 = b'O';
/// Kind of a datagram: the answer of a handshake.
const REPLY: u8 = b'R';
/// Kind of a datagram: a TCP segment.
const SEGMENT: u8 = b'S';

/// The addresses from which the server accepts data.
#[derive(Clone, Copy, Debug)]
pub enum Accepts {
    /// The address of the last handshake. If data arrives from another address, the server begins
    /// a handshake with that address. The field is the minimum time between two such handshakes
    /// with the same address.
    LastHandshake(Duration),
    /// The address of the first datagram. The server never answers another address.
    First,
    /// Every address. The server sends its answers to the first address.
    All,
}

/// The traffic in the tunnel, in addition to a ping every 100 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelLoad {
    /// Pings alone.
    Pings,
    /// A download by TCP.
    Download,
    /// An upload by TCP.
    Upload,
}

/// The server of the tunnel.
pub struct OneAddressServer {
    accepts: Accepts,
    /// The address to which the server sends; `None` before the first datagram.
    answers_to: Option<SeenAddress>,
    offered: BTreeMap<SeenAddress, Time>,
    sender: Sender,
    receiver: Receiver,
    load: TunnelLoad,
}

impl OneAddressServer {
    pub fn new(accepts: Accepts, load: TunnelLoad) -> OneAddressServer {
        OneAddressServer {
            accepts,
            answers_to: None,
            offered: BTreeMap::new(),
            sender: Sender::new(Time::ZERO),
            receiver: Receiver::default(),
            load,
        }
    }

    /// Returns the TCP segments that the server may send now, each with its destination address.
    fn segments(&mut self, now: Time) -> Vec<(SeenAddress, Vec<u8>)> {
        let Some(answers_to) = self.answers_to.filter(|_| self.load == TunnelLoad::Download) else {
            return Vec::new();
        };
        self.sender.tick(now);
        std::iter::from_fn(|| self.sender.poll(now))
            .map(|segment| (answers_to, packet(0, SEGMENT, &segment)))
            .collect()
    }

    /// Returns the handshake packet for an address whose data the server does not accept. Returns
    /// `None` if no handshake is due.
    fn offer(&mut self, now: Time, from: SeenAddress) -> Option<(SeenAddress, Vec<u8>)> {
        let Accepts::LastHandshake(pause) = self.accepts else { return None };
        let is_due = self.offered.get(&from).is_none_or(|last| now.since(*last) >= pause);
        is_due.then(|| {
            self.offered.insert(from, now);
            (from, packet(now.nanos(), OFFER, &[]))
        })
    }
}

impl Server for OneAddressServer {
    fn receive(
        &mut self,
        now: Time,
        from: SeenAddress,
        datagram: &[u8],
    ) -> Vec<(SeenAddress, Vec<u8>)> {
        if datagram[KIND] == REPLY {
            self.answers_to = Some(from);
            return vec![(from, packet(now.nanos(), REPLY, &[]))];
        }
        let answers_to = *self.answers_to.get_or_insert(from);
        if from != answers_to && !matches!(self.accepts, Accepts::All) {
            return self.offer(now, from).into_iter().collect();
        }
        let inside = &datagram[KIND + 1..];
        match datagram[KIND] {
            ACK => {
                self.sender.acknowledged(now, inside);
                self.segments(now)
            }
            SEGMENT => {
                let ack = self.receiver.take(inside);
                ack.map(|ack| (answers_to, packet(now.nanos(), ACK, &ack))).into_iter().collect()
            }
            _ => vec![(answers_to, datagram.to_vec())],
        }
    }
}

/// Returns a datagram of `kind` with the content `inside`. The splitter recognises no protocol in
/// it.
fn packet(number: u64, kind: u8, inside: &[u8]) -> Vec<u8> {
    let mut packet = numbered(number);
    packet.truncate(KIND);
    packet.push(kind);
    packet.extend(inside);
    if kind == PING {
        packet.resize(108, 0);
    }
    packet
}

/// The user's end of the tunnel.
struct User {
    number: u64,
    /// Number of the datagrams returned to the user that the user has processed.
    read: usize,
    sender: Sender,
    receiver: Receiver,
    /// Time of the last handshake that the client took part in.
    agreed: Time,
    pinged: Option<Time>,
}

/// A simulated session in a tunnel, with the results of the user's pings.
pub struct TunnelRun {
    pub world: World<OneAddressServer>,
    /// Time of each ping, and whether it was answered.
    pub pings: Vec<(Time, bool)>,
    user: User,
    load: TunnelLoad,
}

impl TunnelRun {
    /// Returns the share of the unanswered pings among the pings since `from`. Pings of the last
    /// half second do not count, because their answers may still arrive.
    pub fn lost_since(&self, from: Time) -> f64 {
        let end = self.world.now;
        let counts = |at: Time| at >= from && end.since(at) > 500 * MS;
        let all: Vec<bool> =
            self.pings.iter().filter(|(at, _)| counts(*at)).map(|ping| ping.1).collect();
        all.iter().filter(|answered| !**answered).count() as f64 / all.len().max(1) as f64
    }

    /// Continues the session until `end`.
    pub fn run_until(&mut self, end: Time) {
        let TunnelRun { world, pings, user, load } = self;
        while world.now < end {
            for datagram in user.due(world, *load, pings) {
                world.client(client(0), &datagram);
            }
            for (seen, segment) in world.server.segments(world.now) {
                world.answer(seen, segment);
            }
            let next = world.now + MS;
            world.run_until(next);
        }
    }
}

/// Creates a session in a tunnel, at time 0 and without any traffic yet.
pub fn begin(
    settings: Config,
    (accepts, load): (Accepts, TunnelLoad),
    links: &[LinkSettings],
) -> TunnelRun {
    let user = User {
        number: 0,
        read: 0,
        sender: Sender::new(Time::ZERO),
        receiver: Receiver::default(),
        agreed: Time::ZERO,
        pinged: None,
    };
    let world = World::with_links(settings, OneAddressServer::new(accepts, load), links);
    TunnelRun { world, pings: Vec::new(), user, load }
}

/// Runs a session in a tunnel for `seconds`.
pub fn tunnel(
    settings: Config,
    traffic: (Accepts, TunnelLoad),
    links: &[LinkSettings],
    seconds: u64,
) -> TunnelRun {
    let mut outcome = begin(settings, traffic, links);
    outcome.run_until(Time::from_secs(seconds));
    outcome
}

impl User {
    /// Processes the datagrams that have arrived, and returns the datagrams to send.
    fn due(
        &mut self,
        world: &mut World<OneAddressServer>,
        load: TunnelLoad,
        pings: &mut Vec<(Time, bool)>,
    ) -> Vec<Vec<u8>> {
        let now = world.now;
        let mut due = Vec::new();
        let returned = world.returned.get(&client(0)).map_or(&[][..], |all| &all[self.read..]);
        self.read += returned.len();
        for (_, datagram) in returned {
            due.extend(self.read_one(now, datagram, pings));
        }
        if self.pinged.is_none_or(|last| now.since(last) >= 100 * MS) {
            self.pinged = Some(now);
            pings.push((now, false));
            due.push((PING, Vec::new()));
        }
        if load == TunnelLoad::Upload {
            self.sender.tick(now);
            due.extend(std::iter::from_fn(|| self.sender.poll(now)).map(|one| (SEGMENT, one)));
        }
        let number = |(kind, inside): (u8, Vec<u8>)| {
            let number =
                if kind == PING { pings.len() as u64 - 1 } else { self.number + 1_000_000 };
            self.number += 1;
            packet(number, kind, &inside)
        };
        due.into_iter().map(number).collect()
    }

    /// Processes a datagram. Returns the kind and the content of the answer; `None` if there is no
    /// answer.
    fn read_one(
        &mut self,
        now: Time,
        datagram: &[u8],
        pings: &mut [(Time, bool)],
    ) -> Option<(u8, Vec<u8>)> {
        let inside = &datagram[KIND + 1..];
        match datagram[KIND] {
            PING => {
                let mut number = [0; 8];
                number[1..].copy_from_slice(&datagram[1..8]);
                pings[u64::from_be_bytes(number) as usize].1 = true;
            }
            SEGMENT => return self.receiver.take(inside).map(|ack| (ACK, ack)),
            ACK => self.sender.acknowledged(now, inside),
            OFFER if now.since(self.agreed) >= PAUSE => {
                self.agreed = now;
                return Some((REPLY, Vec::new()));
            }
            _ => {}
        }
        None
    }
}

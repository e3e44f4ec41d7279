//! One core of a relay with its sockets: what one thread runs.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;

use anabranch_links::StreamFamily;
use anabranch_links::tls::Context;
use anabranch_multipath::Time;
use anabranch_onion::directory::policy::ExitPolicy;
use anabranch_onion::relay::{Behaviour, Input, Output, Relay};
use anabranch_onion::{Event, StreamKey};
use anabranch_os::clock::Clock;
use anabranch_os::poller::Ready;

use super::exits::Exits;
use super::hsdir::SharedHsDir;
use super::{Live, Numbers, SETS, Watch};
use crate::onion::answers::Answers;
use crate::onion::links::quic::{QuicLinking, QuicSockets};
use crate::onion::links::ring::Siblings;
use crate::onion::meter::Meter;
use crate::onion::mptcp::TcpKind;
use crate::onion::newcomers::{ConnectionSlot, Entrance};
use crate::onion::outside::Stir;
use crate::onion::station::{Station, Token};
use crate::onion::tap::Tap;

/// The token of names that were found. Other single files are the caller's.
const NAMES: u64 = 1;

/// What a shard is made of.
pub(super) struct Parts {
    pub(super) clock: Clock,
    pub(super) core: Relay,
    pub(super) context: Context,
    /// Where links come in; nowhere for a shard that is handed them.
    pub(super) listen: Vec<SocketAddr>,
    pub(super) own: Vec<IpAddr>,
    /// Those of all shards: received, sent.
    pub(super) meters: [Meter; 2],
    pub(super) policy: ExitPolicy,
    pub(super) siblings: Siblings,
    pub(super) hsdir: SharedHsDir,
    /// Tap that shows segments before their turn, if links may be unordered.
    pub(super) tap: Option<Tap>,
    /// The kind of links over TCP.
    pub(super) links: &'static StreamFamily,
    /// Whether cells wait until the kernel has room for them.
    pub(super) by_room: bool,
    /// Of which kind sockets for links are.
    pub(super) tcp: TcpKind,
    /// How many links there may be to one relay, if each circuit that goes on has its own.
    pub(super) dedicated: Option<usize>,
    /// Whether QUIC links are had beside others, and how.
    pub(super) quic: Option<QuicSide>,
}

/// How a shard has QUIC links.
pub(super) struct QuicSide {
    /// Where they come in; the first shard gets its own once it is known where others do.
    pub(super) sockets: Option<QuicSockets>,
    pub(super) entrance: Entrance,
    pub(super) linking: QuicLinking,
}

/// A connection that a neighbour has opened.
pub(super) struct Newcomer {
    pub(super) socket: TcpStream,
    pub(super) peer: SocketAddr,
    pub(super) place: ConnectionSlot,
    /// A transport has brought it.
    pub(super) by_transport: bool,
}

/// A core, its links and its streams.
pub(super) struct Shard {
    pub(super) station: Station<Relay>,
    exits: Exits,
}

impl Shard {
    /// # Errors
    /// An address cannot be listened on (it is named), or the kernel has no files left.
    pub(super) fn new(parts: Parts) -> io::Result<Shard> {
        let Parts { clock, mut core, context, listen, own, meters, .. } = parts;
        let Parts { policy, siblings, hsdir, tap, links, by_room, tcp, dedicated, quic, .. } =
            parts;
        core.share(siblings.shard(), siblings.points(), siblings.sets());
        if let Some(most) = dedicated {
            core.dedicate_links(most);
        }
        let mut station = Station::new(clock, core, context, (tcp, &listen), own)?;
        if dedicated.is_some() {
            station.dedicate_links();
        }
        station.carriers.tcp.family = links;
        station.carriers.tcp.wait_for_room(by_room);
        station.join(siblings)?;
        tap.map(|tap| station.unorder(tap)).transpose()?;
        if let Some(QuicSide { sockets, entrance, linking }) = quic {
            station.open_quic(linking);
            sockets.map(|sockets| station.listen_quic(sockets, entrance)).transpose()?;
        }
        station.carriers.limit(&meters);
        let exits = Exits::new(policy, hsdir)?;
        station.watch(exits.waker(), NAMES)?;
        Ok(Shard { station, exits })
    }

    /// Waits, takes what is ready to the core, does what the core says. What is ready and is the
    /// caller's is left to it.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn turn(&mut self, watch: &mut dyn Watch) -> io::Result<(Time, Vec<Token>)> {
        let ready = self.station.wait(None)?;
        let now = self.station.clock.now();
        let mut others = Vec::new();
        for event in ready {
            others.extend(self.take(now, event));
            self.obey(now, watch);
        }
        self.station.resume(now);
        if self.station.is_due(now) {
            self.station.core.handle(now, Input::Timeout);
        }
        self.obey(now, watch);
        Ok((now, others))
    }

    /// Takes what is ready; what is not ours is given back.
    fn take(&mut self, now: Time, ready: Ready) -> Option<Token> {
        match Token::of(ready.token) {
            Token::File(NAMES) => self.exits.take_names(now, &mut self.station),
            Token::Carrier(carrier, file) => self.station.receive(now, (carrier, file), ready),
            Token::Stream(key) => {
                self.exits.stir(now, &mut self.station, StreamKey(key), Stir::Socket(ready));
            }
            other => return Some(other),
        }
        None
    }

    /// Does what the core says.
    pub(super) fn obey(&mut self, now: Time, watch: &mut dyn Watch) {
        let (station, exits) = (&mut self.station, &mut self.exits);
        while let Some(output) = station.core.poll() {
            match output {
                Output::Link(output) => station.obey(now, output),
                Output::Stream(output) => exits.take(now, station, output),
                Output::Connect { stream, begin } => exits.connect(now, station, stream, begin),
                Output::Directory { stream, by_relay } => {
                    exits.serve(now, station, stream, by_relay)
                }
                Output::Resolve { stream, name } => exits.seek(now, station, stream, None, name),
                Output::Event(event) => {
                    if let Event::LinkOpen { link, identity: Some(identity), .. } = &event {
                        station.opened(*link, identity);
                    }
                    watch.event(now, &event);
                }
            }
        }
    }

    /// Takes a connection that a neighbour opened.
    pub(super) fn accept(&mut self, newcomer: Newcomer, watch: &mut dyn Watch) {
        let Station { carriers, poller, .. } = &mut self.station;
        let Newcomer { socket, peer, place, by_transport } = newcomer;
        if let Err(error) = carriers.tcp.accept(poller, (socket, peer), place, by_transport) {
            watch.note(&format!("cannot accept a link: {error}"));
        }
    }

    /// Goes by these settings from now on. Streams that are there stay.
    pub(super) fn adopt(&mut self, live: &Live, behaviour: Behaviour) {
        self.exits.set_policy(live.exit_policy());
        self.station.own.clone_from(&live.own);
        self.station.core.set_behaviour(behaviour);
    }

    /// What the directory has to give from now on.
    pub(super) fn set_cache(&mut self, now: Time, cache: Arc<dyn Answers>) {
        self.exits.set_cache(now, &mut self.station, cache);
    }

    /// Why names that are not in the table of hosts cannot be resolved, if so.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.exits.trouble()
    }

    /// Numbers for people.
    pub(super) fn numbers(&self) -> Numbers {
        let Station { core, carriers, .. } = &self.station;
        Numbers {
            stats: core.stats(),
            links: self.station.link_count(),
            carried: self.station.transferred(),
            refused: 0,
            turned_away: self.station.turned_away(),
            quic: self.station.quic_counts(),
            tap: carriers.tcp.tap(),
            early: carriers.tcp.early(),
            mptcp: carriers.tcp.mptcp(),
            dedicates_links: self.station.dedicates_links(),
            sets: core.fullest_sets(SETS),
        }
    }
}

//! A shard of a relay: one core and its sockets, which run on one thread.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;

use anabranch_links::StreamFamily;
use anabranch_links::tls::Context;
use anabranch_multipath::{Core as _, Time};
use anabranch_onion::directory::policy::ExitPolicy;
use anabranch_onion::relay::{Behaviour, Output, Relay};
use anabranch_onion::{Event, StreamKey};
use anabranch_os::clock::Clock;
use anabranch_os::poller::Ready;

use super::exits::Exits;
use super::hsdir::SharedHsDir;
use super::{Live, Numbers, SETS, Watch};
use crate::onion::answers::Answers;
use crate::onion::external_socket::IoEvent;
use crate::onion::links::quic::{QuicLinking, QuicSockets};
use crate::onion::links::ring::Siblings;
use crate::onion::meter::Meter;
use crate::onion::mptcp::TcpKind;
use crate::onion::newcomers::{ConnectionSlot, Entrance};
use crate::onion::station::{Station, Token};
use crate::onion::tap::Tap;

/// Poller token of the resolver's waker. Tokens of further files are assigned by the caller.
const NAMES: u64 = 1;

/// Parts from which a shard is made.
pub(super) struct Parts {
    pub(super) clock: Clock,
    pub(super) core: Relay,
    pub(super) context: Context,
    /// Addresses at which to listen. Empty for shards that receive their connections from the
    /// first one.
    pub(super) listen: Vec<SocketAddr>,
    pub(super) own: Vec<IpAddr>,
    /// Rate limits that all shards share: one for receiving and one for sending.
    pub(super) meters: [Meter; 2],
    pub(super) policy: ExitPolicy,
    pub(super) siblings: Siblings,
    pub(super) hsdir: SharedHsDir,
    /// Tap for out-of-order delivery, if links may be unordered; `None` otherwise.
    pub(super) tap: Option<Tap>,
    /// Kind of link to create on TCP connections.
    pub(super) links: &'static StreamFamily,
    /// Whether cells wait in the core until the kernel has room for them.
    pub(super) by_room: bool,
    /// Protocol of the links' sockets: TCP or MPTCP.
    pub(super) tcp: TcpKind,
    /// Maximum number of links to one relay, if each extended circuit has its own link. `None` if
    /// circuits share links.
    pub(super) dedicated: Option<usize>,
    /// Settings of QUIC links; `None` if they are disabled.
    pub(super) quic: Option<QuicSide>,
}

/// Settings of a shard's QUIC links.
pub(super) struct QuicSide {
    /// Sockets for incoming QUIC links. The first shard receives its sockets once the TCP
    /// addresses are known.
    pub(super) sockets: Option<QuicSockets>,
    pub(super) entrance: Entrance,
    pub(super) linking: QuicLinking,
}

/// A connection that a neighbour has opened, before it belongs to a shard.
pub(super) struct Newcomer {
    pub(super) socket: TcpStream,
    pub(super) peer: SocketAddr,
    pub(super) place: ConnectionSlot,
    /// Whether the connection arrived through a pluggable transport.
    pub(super) by_transport: bool,
}

/// A shard: a core, its links, and the streams that end at it.
pub(super) struct Shard {
    pub(super) station: Station<Relay>,
    exits: Exits,
    /// Whether the shard accepts no new links, because the relay is about to end.
    refuses: bool,
}

impl Shard {
    /// Creates a shard from `parts`.
    ///
    /// # Errors
    /// An address cannot be listened on (the error names it), or file descriptors run out.
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
        Ok(Shard { station, exits, refuses: false })
    }

    /// Waits for events, and services the core. Returns the time, and the tokens of events that
    /// the caller has to process.
    ///
    /// # Errors
    /// A system call fails.
    pub(super) fn turn(&mut self, watch: &mut dyn Watch) -> io::Result<(Time, Vec<Token>)> {
        let ready = self.station.wait(None)?;
        let now = self.station.clock.now();
        let mut others = Vec::new();
        for event in ready {
            others.extend(self.take(now, event));
            self.execute(now, watch);
        }
        self.station.resume(now);
        self.execute(now, watch);
        Ok((now, others))
    }

    /// Services the file of the event `ready`. Returns the file's token if the caller has to
    /// process the event; `None` otherwise.
    fn take(&mut self, now: Time, ready: Ready) -> Option<Token> {
        match Token::of(ready.token) {
            Token::File(NAMES) => self.exits.take_names(now, &mut self.station),
            Token::Carrier(carrier, file) => self.station.receive(now, (carrier, file), ready),
            Token::Stream(key) => {
                self.exits.service(now, &mut self.station, StreamKey(key), IoEvent::Socket(ready));
            }
            other => return Some(other),
        }
        None
    }

    /// Executes the core's outputs.
    pub(super) fn execute(&mut self, now: Time, watch: &mut dyn Watch) {
        let (station, exits) = (&mut self.station, &mut self.exits);
        while let Some(output) = station.core.poll(now) {
            match output {
                Output::Link(output) => station.execute(now, output),
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

    /// Adds a connection that a neighbour opened.
    pub(super) fn accept(&mut self, newcomer: Newcomer, watch: &mut dyn Watch) {
        let Station { carriers, poller, .. } = &mut self.station;
        let Newcomer { socket, peer, place, by_transport } = newcomer;
        if let Err(error) = carriers.tcp.accept(poller, (socket, peer), place, by_transport) {
            watch.note(&format!("cannot accept a link: {error}"));
        }
    }

    /// Accepts no new links from now on.
    pub(super) fn refuse(&mut self) {
        self.station.listeners.clear();
        self.station.refuse_quic();
        self.refuses = true;
    }

    /// Returns whether the shard accepts no new links and has no circuits.
    pub(super) fn is_drained(&self) -> bool {
        self.refuses && self.station.core.stats().circuits == 0
    }

    /// Applies the new settings in `live` and `behaviour`. Open streams continue.
    pub(super) fn adopt(&mut self, live: &Live, behaviour: Behaviour) {
        self.exits.set_policy(live.exit_policy());
        self.station.own.clone_from(&live.own);
        self.station.core.set_behaviour(behaviour);
    }

    /// Serves documents from `cache` from now on.
    pub(super) fn set_cache(&mut self, now: Time, cache: Arc<dyn Answers>) {
        self.exits.set_cache(now, &mut self.station, cache);
    }

    /// Returns the reason why names outside the hosts file cannot be resolved; `None` if they can.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.exits.trouble()
    }

    /// Returns the shard's counters.
    pub(super) fn numbers(&self) -> Numbers {
        let Station { core, carriers, .. } = &self.station;
        Numbers {
            stats: core.stats(),
            links: self.station.link_count(),
            carried: self.station.transferred(),
            refused: 0,
            turned_away: self.station.turned_away(),
            quic: self.station.quic_counts(),
            grants_lossy: self.station.grants_lossy(),
            tap: carriers.tcp.tap(),
            early: carriers.tcp.early(),
            mptcp: carriers.tcp.mptcp(),
            dedicates_links: self.station.dedicates_links(),
            sets: core.fullest_sets(SETS),
        }
    }
}

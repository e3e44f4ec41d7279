//! A shard of a relay: one event loop with its own protocol core and sockets, on one thread.

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
use super::{LiveSettings, Numbers, SETS, Watch};
use crate::onion::answers::Answers;
use crate::onion::external_socket::IoEvent;
use crate::onion::links::quic::{QuicLinking, QuicSockets};
use crate::onion::links::ring::ShardRings;
use crate::onion::meter::Meter;
use crate::onion::mptcp::TcpKind;
use crate::onion::newcomers::{ConnectionLimits, ConnectionSlot};
use crate::onion::station::{CoreDriver, Token};
use crate::onion::tap::Tap;

/// Poller token of the name resolver's waker. Further tokens are assigned by the code that runs
/// the event loop.
const NAMES: u64 = 1;

/// Input for the creation of one of a relay's event loops (shards): its protocol core and its
/// settings.
pub(super) struct Parts {
    pub(super) clock: Clock,
    pub(super) core: Relay,
    pub(super) context: Context,
    /// Addresses on which the event loop listens; empty for event loops that get their connections
    /// from the first event loop.
    pub(super) listen: Vec<SocketAddr>,
    pub(super) own: Vec<IpAddr>,
    /// Rate limits for receiving and for sending. All of the relay's event loops share them.
    pub(super) meters: [Meter; 2],
    pub(super) policy: ExitPolicy,
    pub(super) siblings: ShardRings,
    pub(super) hsdir: SharedHsDir,
    /// Packet tap that delivers TCP segments out of order; `None` if all links are ordered.
    pub(super) tap: Option<Tap>,
    /// Protocol of links over TCP connections, such as TLS.
    pub(super) links: &'static StreamFamily,
    /// True if cells wait in the protocol core until the kernel's send buffer has room for them.
    pub(super) by_room: bool,
    /// Transport protocol of the links' sockets: TCP or MPTCP.
    pub(super) tcp: TcpKind,
    /// Maximum number of links to one relay, if each circuit gets its own link; `None` if circuits
    /// share links.
    pub(super) dedicated: Option<usize>,
    /// Settings of QUIC links; `None` if QUIC is disabled.
    pub(super) quic: Option<QuicSide>,
}

/// QUIC settings for one of a relay's event loops.
pub(super) struct QuicSide {
    /// Sockets for incoming QUIC links. `None` for the first event loop, which gets its sockets
    /// later, when the TCP addresses are known.
    pub(super) sockets: Option<QuicSockets>,
    pub(super) connection_limits: ConnectionLimits,
    pub(super) linking: QuicLinking,
}

/// A connection that a relay or client has opened to this relay, before an event loop is chosen
/// for it.
pub(super) struct Newcomer {
    pub(super) socket: TcpStream,
    pub(super) peer: SocketAddr,
    pub(super) place: ConnectionSlot,
    /// True if the connection arrived through a pluggable transport.
    pub(super) by_transport: bool,
}

/// One of a relay's event loops: a protocol core, its links, and the streams that end at it.
pub(super) struct Shard {
    pub(super) station: CoreDriver<Relay>,
    exits: Exits,
    /// True if no new links are accepted, because the relay is about to end.
    refuses: bool,
}

impl Shard {
    /// Creates an event loop from `parts`.
    ///
    /// # Errors
    /// The process cannot listen on an address, which the error names, or file descriptors run
    /// out.
    pub(super) fn new(parts: Parts) -> io::Result<Shard> {
        let Parts { clock, mut core, context, listen, own, meters, .. } = parts;
        let Parts { policy, siblings, hsdir, tap, links, by_room, tcp, dedicated, quic, .. } =
            parts;
        core.share(siblings.shard(), siblings.points(), siblings.sets());
        if let Some(most) = dedicated {
            core.dedicate_links(most);
        }
        let mut station = CoreDriver::new(clock, core, context, (tcp, &listen), own)?;
        if dedicated.is_some() {
            station.dedicate_links();
        }
        station.carriers.tcp.family = links;
        station.carriers.tcp.wait_for_room(by_room);
        station.join(siblings)?;
        tap.map(|tap| station.unorder(tap)).transpose()?;
        if let Some(QuicSide { sockets, connection_limits, linking }) = quic {
            station.open_quic(linking);
            sockets.map(|sockets| station.listen_quic(sockets, connection_limits)).transpose()?;
        }
        station.carriers.limit(&meters);
        let exits = Exits::new(policy, hsdir)?;
        station.watch(exits.waker(), NAMES)?;
        Ok(Shard { station, exits, refuses: false })
    }

    /// Waits for socket events, and services the protocol core. Returns the time, and the poller
    /// tokens of events that the caller must process.
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

    /// Processes the event `ready` of a socket. If the caller must process it instead, returns its
    /// poller token; `None` otherwise.
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

    /// Executes the protocol core's outputs: opens links, sends data, and reports events to
    /// `watch`.
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

    /// Adds an incoming connection to this event loop.
    pub(super) fn accept(&mut self, newcomer: Newcomer, watch: &mut dyn Watch) {
        let CoreDriver { carriers, poller, .. } = &mut self.station;
        let Newcomer { socket, peer, place, by_transport } = newcomer;
        if let Err(error) = carriers.tcp.accept(poller, (socket, peer), place, by_transport) {
            watch.note(&format!("cannot accept a link: {error}"));
        }
    }

    /// Stops accepting new links; existing links continue.
    pub(super) fn refuse(&mut self) {
        self.station.listeners.clear();
        self.station.refuse_quic();
        self.refuses = true;
    }

    /// Returns whether the event loop accepts no new links and has no circuits left.
    pub(super) fn is_drained(&self) -> bool {
        self.refuses && self.station.core.stats().circuits == 0
    }

    /// Applies new settings: `live` for the relay, and `behaviour` for the protocol core. Open
    /// streams continue.
    pub(super) fn adopt(&mut self, live: &LiveSettings, behaviour: Behaviour) {
        self.exits.set_policy(live.exit_policy());
        self.station.own.clone_from(&live.own);
        self.station.core.set_behaviour(behaviour);
    }

    /// Replaces the directory documents that are served.
    pub(super) fn set_cache(&mut self, now: Time, cache: Arc<dyn Answers>) {
        self.exits.set_cache(now, &mut self.station, cache);
    }

    /// Returns the reason why only names in the hosts file can be resolved; `None` if other names
    /// can be resolved, too.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.exits.trouble()
    }

    /// Returns the counters of this event loop.
    pub(super) fn numbers(&self) -> Numbers {
        let CoreDriver { core, carriers, .. } = &self.station;
        Numbers {
            stats: core.stats(),
            links: self.station.link_count(),
            transferred: self.station.transferred(),
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

//! The QUIC links of a relay or a client: the crate `links` in virtual time, over the simulated
//! lines. In the simulation, [`QuicLinks`] replaces the code of the crate `router` that carries
//! QUIC links over UDP sockets.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

pub use anabranch_links::quic::Congestion as QuicCongestion;
use anabranch_links::quic::{
    Arrival, CellFormat, ConnId, Endpoint, EndpointInput, EndpointOutput, Head, Packets,
    SocketIndex, WRITTEN,
};
use anabranch_links::tls::Context;
use anabranch_links::{Link as _, State};
use anabranch_multipath::{Core as _, Time, seed};
use anabranch_onion::channel::{Capabilities, Start};
use anabranch_onion::wire::cell::{CELL, CellHead, NUMBERED_CELL};
use anabranch_onion::wire::extend::Target;
use anabranch_onion::wire::link::EXPORT_LABEL;
use anabranch_onion::{CarrierFault, LinkCore, LinkId, LinkInput, LinkOutput};
use rand::Rng as _;

use super::Common;
use super::documents::{QUIC_PORT, START};
use super::hosts::{Hosts, Side};
use crate::queue::HostId;
use crate::simulation::Io;

/// Constant in a [`LinkId`] that distinguishes QUIC links from other links.
pub(super) const CARRIER: u8 = 1;
/// CPU time that a relay takes for a byte of a datagram, relative to a byte of a TLS link, in
/// percent (`docs/spec/quic-links.md`).
const COST: usize = 238;

/// Format of the cells in a QUIC stream, from which the crate `links` finds the boundaries between
/// cells.
const FORMAT: CellFormat = CellFormat {
    head,
    end: CellHead::destroy_cell,
    longest: CellHead::LONGEST,
    longest_of_circuit: CELL,
    lossy: 0,
};

fn head(bytes: &[u8], first: bool) -> Option<Head> {
    let CellHead { circuit, length, creates, ends } = CellHead::parse(bytes, first)?;
    Some(Head { circuit, length, creates, ends })
}

/// Returns the TLS settings of all QUIC links of a network. All relays present the same
/// certificate. Its key and signatures have a fixed length, so that the lengths of packets do not
/// depend on random numbers.
pub(super) fn context() -> Context {
    Context::from_seed(&[0; 32], START).expect("the TLS library accepts an Ed25519 key")
}

/// Reason why a link has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkEnd {
    /// Close of the link by either end.
    Closed,
    /// Loss of the connection, which neither end has closed.
    Lost,
    /// Violation by the peer of the rules for QUIC streams of a link (`docs/spec/quic-links.md`).
    Broken,
}

#[derive(Debug)]
struct QuicConn {
    peer: HostId,
    /// The relay that this host dialled, and this host's TLS link to the relay; `None` if the peer
    /// opened the link.
    target: Option<(Target, LinkId)>,
    /// True if the core (the protocol state machine of the relay or client) was notified of the
    /// link.
    reported: bool,
    /// True if the core (the protocol state machine) has cells to send over this link.
    has_output: bool,
    /// True if the link will be closed once all cells of the core (the protocol state machine) are
    /// sent.
    closing: bool,
}

/// The QUIC links of a host, which share a UDP port.
#[derive(Debug)]
pub(super) struct QuicLinks {
    hosts: Arc<Hosts>,
    endpoint: Endpoint,
    /// True if other hosts may open links.
    accepts: bool,
    links: BTreeMap<ConnId, QuicConn>,
    packets: Vec<u8>,
    plain: Vec<u8>,
}

impl QuicLinks {
    /// Creates a host's QUIC endpoint without links. If the network uses UDP-OR, links carry lossy
    /// cells (cells that may get lost).
    pub(super) fn new(hosts: Arc<Hosts>, context: &Context, common: &Common, side: Side) -> Self {
        let (accepts, place, purpose) = match side {
            Side::Relay(place) => (true, place, "relay's QUIC"),
            Side::Client(place) => (false, place, "client's QUIC"),
        };
        let mut secret = [0; 32];
        seed::stream(common.seed, place as u64, purpose).fill_bytes(&mut secret);
        let lossy = if common.udp_or.is_some() { NUMBERED_CELL } else { 0 };
        let format = CellFormat { lossy, ..FORMAT };
        let takes = accepts.then_some(SocketIndex::ONLY);
        let endpoint = Endpoint::new(context, format, secret, takes, common.quic_congestion);
        QuicLinks {
            hosts,
            endpoint: endpoint.expect("the QUIC library accepts these settings"),
            accepts,
            links: BTreeMap::new(),
            packets: Vec::new(),
            plain: Vec::new(),
        }
    }

    /// Returns the number of links.
    pub(super) fn len(&self) -> usize {
        self.links.len()
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.endpoint.next_timeout()
    }

    /// Returns whether a timer has expired at `now`.
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.next_timeout().is_some_and(|due| due <= now)
    }

    /// Carries out an action on QUIC links that the core (the protocol state machine) requests.
    /// Returns the request if it does not concern QUIC links.
    pub(super) fn execute(
        &mut self,
        io: &mut Io<'_>,
        core: &mut dyn LinkCore,
        output: LinkOutput,
    ) -> Option<LinkOutput> {
        match output {
            LinkOutput::OpenQuic { link, target, first_byte } => {
                self.dial(io, core, (target, link, first_byte));
            }
            LinkOutput::Transmit { link } if link.carrier() == CARRIER => {
                self.wants(io, core, link);
            }
            LinkOutput::Close { link } if link.carrier() == CARRIER => self.close(io, core, link),
            LinkOutput::AdmitCircuits { link } if link.carrier() == CARRIER => {
                self.admit(io, core, link);
            }
            LinkOutput::Export { link, context } if link.carrier() == CARRIER => {
                if let Some(secret) = self.export(link, &context) {
                    core.handle_link(io.now, LinkInput::Exported { link, secret });
                }
            }
            other => return Some(other),
        }
        None
    }

    /// Opens a link to `target` alongside the TLS link `alongside`. `first_byte` is the first byte
    /// of the connection ID; `None` for a random byte.
    fn dial(
        &mut self,
        io: &mut Io<'_>,
        core: &mut dyn LinkCore,
        (target, alongside, first_byte): (Target, LinkId, Option<u8>),
    ) {
        let to = target.addresses.first().copied();
        let peer = to.and_then(|to| self.hosts.hosts.get(&to.ip()).copied());
        let conn = to.and_then(|to| self.endpoint.connect(io.now, to, first_byte).ok());
        let (Some(peer), Some(conn)) = (peer, conn) else {
            return core.handle_link(io.now, LinkInput::QuicFailed { link: alongside });
        };
        self.add(conn, peer, Some((target, alongside)));
        self.work(io, core);
    }

    fn add(&mut self, conn: ConnId, peer: HostId, target: Option<(Target, LinkId)>) {
        let link = QuicConn { peer, target, reported: false, has_output: false, closing: false };
        self.links.insert(conn, link);
    }

    /// Handles a datagram that the host `from` has sent. Returns the CPU cost of the datagram at a
    /// relay. The unit is the cost of one byte that arrives on a TLS link.
    pub(super) fn receive(
        &mut self,
        io: &mut Io<'_>,
        core: &mut dyn LinkCore,
        (from, content): (HostId, &[u8]),
    ) -> usize {
        let Some((&ecn, bytes)) = content.split_first() else { return 0 };
        let from = SocketAddr::new(self.hosts.address(from), QUIC_PORT);
        let arrival = Arrival { from, to: None, ecn, bytes };
        let accepts = self.accepts;
        let input = EndpointInput { arrival, admit: &mut |_, _| accepts };
        self.endpoint.handle(io.now, input);
        self.work(io, core);
        bytes.len() * COST / 100
    }

    /// Handles expired timers, and serves all links whose state may have changed.
    pub(super) fn work(&mut self, io: &mut Io<'_>, core: &mut dyn LinkCore) {
        while let Some(output) = self.endpoint.poll(io.now) {
            match output {
                EndpointOutput::Answer(packets, bytes) => send(&self.hosts, io, packets, &bytes),
                EndpointOutput::Touched(conn) => self.serve(io, core, conn),
            }
        }
    }

    /// Sends the cells that the core (the protocol state machine) has for a link.
    fn wants(&mut self, io: &mut Io<'_>, core: &mut dyn LinkCore, link: LinkId) {
        let conn = ConnId(link.number());
        if let Some(at) = self.links.get_mut(&conn) {
            at.has_output = true;
            self.flush(io, core, conn);
        }
    }

    /// Closes a link after sending the remaining cells of the core (the protocol state machine).
    fn close(&mut self, io: &mut Io<'_>, core: &mut dyn LinkCore, link: LinkId) {
        let conn = ConnId(link.number());
        if let Some(at) = self.links.get_mut(&conn) {
            at.closing = true;
            self.flush(io, core, conn);
        }
    }

    /// Starts to read the cells of circuits that arrive on a link.
    fn admit(&mut self, io: &mut Io<'_>, core: &mut dyn LinkCore, link: LinkId) {
        let conn = ConnId(link.number());
        if let Some(quic) = self.endpoint.link(conn) {
            quic.admit_circuits();
            // Cells of circuits may have arrived already. They are read now.
            self.endpoint.touch(conn);
            self.work(io, core);
        }
    }

    /// Returns the secret that is exported from a link's TLS session for `context` (RFC 5705);
    /// `None` if there is no such link or the export fails.
    fn export(&mut self, link: LinkId, context: &[u8; 32]) -> Option<[u8; 32]> {
        self.endpoint.link(ConnId(link.number()))?.export(EXPORT_LABEL, context).ok()
    }

    fn serve(&mut self, io: &mut Io<'_>, core: &mut dyn LinkCore, conn: ConnId) {
        if !self.links.contains_key(&conn) {
            let peer = self.endpoint.link(conn).map(|quic| quic.peer().ip());
            match peer.and_then(|peer| self.hosts.hosts.get(&peer).copied()) {
                Some(peer) => self.add(conn, peer, None),
                // The link is closed, and has only its closing packets to send.
                None => return self.transmit(io, conn),
            }
        }
        match self.read(io, core, conn) {
            Ok(()) => self.flush(io, core, conn),
            Err(why) => self.end(io, core, conn, why),
        }
    }

    /// Passes the cells that were received on the link `conn` to the core (the protocol state
    /// machine).
    ///
    /// # Errors
    /// The reason why the link has ended.
    fn read(
        &mut self,
        io: &mut Io<'_>,
        core: &mut dyn LinkCore,
        conn: ConnId,
    ) -> Result<(), LinkEnd> {
        let link = LinkId::new(CARRIER, conn.0);
        let quic = self.endpoint.link(conn).ok_or(LinkEnd::Closed)?;
        self.plain.clear();
        let read = quic.read(&mut self.plain);
        let (state, takes_lossy) = (quic.state(), quic.takes_lossy());
        let at = self.links.get_mut(&conn).ok_or(LinkEnd::Closed)?;
        if state == State::Open && !std::mem::replace(&mut at.reported, true) {
            let start = self.hosts.start(io, at.peer, at.target.is_some());
            let capabilities =
                Capabilities { lossy: takes_lossy, ..Capabilities::STREAM_PER_CIRCUIT };
            let target = at.target.as_ref().map(|(target, _)| target.clone());
            let start = Start { capabilities, ..start };
            core.handle_link(io.now, LinkInput::Opened { link, target, start });
        }
        if !self.plain.is_empty() {
            core.handle_link(io.now, LinkInput::Bytes { link, bytes: &self.plain });
        }
        read.map_err(|_| LinkEnd::Broken)?;
        let quic = self.endpoint.link(conn).ok_or(LinkEnd::Closed)?;
        self.plain.clear();
        quic.read_lossy(&mut self.plain).map_err(|_| LinkEnd::Broken)?;
        let has_failed = quic.fault().is_some();
        if !self.plain.is_empty() {
            core.handle_link(io.now, LinkInput::Lossy { link, cells: &self.plain });
        }
        match state {
            State::Ended if has_failed => Err(LinkEnd::Lost),
            State::Ended => Err(LinkEnd::Closed),
            _ => Ok(()),
        }
    }

    /// Sends the cells of the core (the protocol state machine), as far as the congestion window
    /// has room.
    fn flush(&mut self, io: &mut Io<'_>, core: &mut dyn LinkCore, conn: ConnId) {
        let link = LinkId::new(CARRIER, conn.0);
        self.plain.clear();
        core.transmit_lossy(link, &mut self.plain);
        if let Some(quic) = self.endpoint.link(conn).filter(|_| !self.plain.is_empty()) {
            // An error means that the link has ended.
            let _ = quic.write_lossy(io.now, &self.plain);
        }
        self.transmit(io, conn);
        while self.fill(io.now, core, conn) {
            self.transmit(io, conn);
        }
        if self.links.get(&conn).is_some_and(|at| at.closing) {
            return self.end(io, core, conn, LinkEnd::Closed);
        }
        if core.wants_look(link)
            && let Some(view) = self.endpoint.link(conn).map(|quic| quic.view())
        {
            core.handle_link(io.now, LinkInput::Seen { link, view });
        }
    }

    /// Writes up to [`WRITTEN`] bytes of the cells of the core (the protocol state machine) to a
    /// link. Returns whether any cells were written.
    fn fill(&mut self, now: Time, core: &mut dyn LinkCore, conn: ConnId) -> bool {
        let (link, mut written) = (LinkId::new(CARRIER, conn.0), 0);
        while let Some(at) = self.links.get_mut(&conn).filter(|at| at.has_output)
            && let Some(quic) = self.endpoint.link(conn)
            && written < WRITTEN
            && quic.room() >= CELL
        {
            self.plain.clear();
            at.has_output = core.transmit(now, link, &mut self.plain, quic.room());
            // An error means that the link has ended, so nothing more is to be sent.
            let _ = quic.write(&self.plain);
            written += self.plain.len();
        }
        written > 0
    }

    /// Sends the pending datagrams of a link.
    fn transmit(&mut self, io: &mut Io<'_>, conn: ConnId) {
        while let Some(packets) = self.endpoint.transmit(io.now, conn, &mut self.packets) {
            send(&self.hosts, io, packets, &self.packets);
        }
    }

    /// Closes and removes a link, and notifies the core (the protocol state machine).
    fn end(&mut self, io: &mut Io<'_>, core: &mut dyn LinkCore, conn: ConnId, why: LinkEnd) {
        let Some(at) = self.links.remove(&conn) else { return };
        self.endpoint.close(io.now, conn);
        self.transmit(io, conn);
        let link = LinkId::new(CARRIER, conn.0);
        let input = match (why, at.target) {
            (_, Some((_, link))) if !at.reported => LinkInput::QuicFailed { link },
            _ if !at.reported => return,
            (LinkEnd::Closed, _) => LinkInput::Closed { link },
            (LinkEnd::Lost, _) => LinkInput::Lost { link },
            (LinkEnd::Broken, _) => LinkInput::Broken { link, fault: CarrierFault::Stream },
        };
        core.handle_link(io.now, input);
    }
}

/// Sends datagrams to the host at the address in `packets`. The first byte of the simulated
/// content has the ECN bits.
fn send(hosts: &Hosts, io: &mut Io<'_>, packets: Packets, bytes: &[u8]) {
    let Some(&to) = hosts.hosts.get(&packets.to.ip()) else { return };
    let stride = if packets.stride == 0 { bytes.len().max(1) } else { packets.stride };
    for datagram in bytes.chunks(stride) {
        io.udp.send(to, datagram.len(), [&[packets.ecn], datagram].concat());
    }
}

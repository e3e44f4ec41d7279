//! The links of a relay or a client, over the TCP connections of its host.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anabranch_links::quic::TOGETHER;
use anabranch_multipath::Time;
use anabranch_onion::channel::{Capabilities, QuicPreferences, Start};
use anabranch_onion::circuitmux::kist;
use anabranch_onion::wire::cell::{CELL, NUMBERED_CELL};
use anabranch_onion::wire::crypto::Sha256;
use anabranch_onion::wire::extend::Target;
use anabranch_onion::{LinkCore, LinkId, LinkInput, LinkOutput};
use digest::Digest;

use super::Common;
use super::documents::{ORPORT, QUIC_PORT};
use super::hosts::{Hosts, LinkLayer, Side};
use super::quic::QuicLinks;
use super::records::{self, CLIENT_HELLO, FINISHED, ReadRecords, Reader, SERVER_FLIGHT};
use crate::queue::HostId;
use crate::simulation::Io;
use crate::stack::{ConnId, TcpEvent};

/// Number of unsent bytes in a TCP connection at which no further cells are written to it, as with
/// `TCP_NOTSENT_LOWAT`. The constant `UNSENT` of the crate `router` has the same value.
const UNSENT: usize = 32 << 10;
/// Number of bytes of cells that are requested at once from a core (the protocol state machine of
/// a relay or client), rounded down to whole TLS records. If [`RECORDS`] records are longer, that
/// length applies instead. The constant `SMALL` of the crate `router` has the same value.
const SMALL: usize = 32 << 10;
/// Minimum number of TLS records whose content is requested at once from a core (the protocol
/// state machine of a relay or client). The constant `RECORDS` of the crate `router` has the same
/// value.
const RECORDS: usize = 2;
/// Bytes that QUIC adds to each datagram. With [`FRAME`], 29 bytes are added for one cell and 32
/// for two cells, as measured with the QUIC library.
const QUIC: usize = 26;
/// Bytes that QUIC adds for each cell in a datagram.
const FRAME: usize = 3;
/// Length in bytes of the identifier of a link's session.
const SESSION: usize = 12;

/// Stage of a link's handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Wait for the first handshake messages of the other side.
    Hello,
    /// Wait of the responder for the Finished message of the other side.
    Finished,
    /// End of the handshake: the link is open for cells.
    Open,
}

#[derive(Debug)]
struct Link {
    conn: ConnId,
    peer: HostId,
    /// Relay that this host dialled; `None` if the peer opened the link.
    target: Option<Target>,
    /// True if the TCP connection simulates a QUIC link.
    simulates_quic: bool,
    /// The TLS link for which this host opened this parallel link for lossy cells (cells that may
    /// get lost); `None` for other links.
    alongside: Option<LinkId>,
    stage: Stage,
    /// Identifier of the link's session. It is the same at both ends, and differs from the
    /// identifiers of all other links' sessions.
    session: [u8; SESSION],
    reader: Reader,
    /// Maximum bytes of content in the records that are sent.
    content: usize,
    /// True if all records have `content` bytes of content. They may then be read before earlier
    /// records have arrived.
    is_fixed: bool,
    /// True if the core (the protocol state machine of the relay or client) has cells to send over
    /// this link.
    has_output: bool,
    /// Time at which KIST, the scheduler of links, last computed the free room in the TCP
    /// connection; `None` before the first time.
    room_checked: Option<Time>,
    /// Number of bytes that may still be sent before the free room in the TCP connection is
    /// computed again.
    room: usize,
    /// True if nothing may be written: the connection had [`UNSENT`] unsent bytes, and still has
    /// at least half of them.
    is_full: bool,
}

/// The links of a host, by identifier. In the simulation, this type replaces the code of the crate
/// `router` that carries links over sockets.
#[derive(Debug)]
pub(super) struct Links {
    hosts: Arc<Hosts>,
    /// True if KIST, the scheduler of links, computes the room for cells from the state of the TCP
    /// connection.
    by_room: bool,
    kind: LinkLayer,
    /// Maximum bytes of content in a record.
    record: usize,
    /// Number of bytes of cells that were read before earlier cells had arrived.
    early: u64,
    /// True if this host opens a link for lossy cells (cells that may get lost), parallel to a TLS
    /// link, when the core (the protocol state machine) requests it.
    lossy: bool,
    /// QUIC links; `None` if the network has none.
    quic: Option<Box<QuicLinks>>,
    /// Links that simulate QUIC links, by the identifier of the link's session.
    sessions: BTreeMap<[u8; SESSION], LinkId>,
    links: BTreeMap<LinkId, Link>,
    numbers: BTreeMap<ConnId, LinkId>,
    last: u64,
    /// Links whose connections have no room for cells, each with the time at which the room is
    /// computed again.
    due: BTreeSet<(Time, LinkId)>,
    plain: Vec<u8>,
    sealed: Vec<u8>,
}

impl Links {
    pub(super) fn new(hosts: &Arc<Hosts>, common: &Common, side: Side) -> Links {
        let quic = |context| QuicLinks::new(Arc::clone(hosts), context, common, side);
        Links {
            hosts: Arc::clone(hosts),
            by_room: common.policy.waits_for_room(),
            kind: common.link,
            record: common.record,
            early: 0,
            lossy: common.udp_or.is_some() && hosts.quic.is_none(),
            quic: hosts.quic.as_ref().map(quic).map(Box::new),
            sessions: BTreeMap::new(),
            links: BTreeMap::new(),
            numbers: BTreeMap::new(),
            last: 0,
            due: BTreeSet::new(),
            plain: Vec::new(),
            sealed: Vec::new(),
        }
    }

    /// Returns whether `conn` is the connection of a link.
    pub(super) fn has(&self, conn: ConnId) -> bool {
        self.numbers.contains_key(&conn)
    }

    /// Returns the number of links.
    pub(super) fn len(&self) -> usize {
        self.links.len() + self.quic.as_ref().map_or(0, |quic| quic.len())
    }

    /// Returns whether records of links may be read before earlier records have arrived.
    pub(super) fn are_unordered(&self) -> bool {
        self.kind == LinkLayer::Utls
    }

    /// Returns the number of bytes of cells that were read before earlier cells had arrived.
    pub(super) fn early(&self) -> u64 {
        self.early
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        let quic = self.quic.as_ref().and_then(|quic| quic.next_timeout());
        self.due.first().map(|(time, _)| *time).into_iter().chain(quic).min()
    }

    /// Computes the free room in the connections of the links in `due`, if their times have
    /// passed. Sends the cells of these links. Handles expired timers of QUIC links.
    pub(super) fn expire(&mut self, io: &mut Io<'_>, core: &mut dyn LinkCore) {
        while let Some(&(time, link)) = self.due.first().filter(|(time, _)| *time <= io.now) {
            self.due.remove(&(time, link));
            self.flush(io, core, link);
        }
        if let Some(quic) = self.quic.as_mut().filter(|quic| quic.is_due(io.now)) {
            quic.work(io, core);
        }
    }

    /// Carries out an action on links that the core (the protocol state machine) requests.
    pub(super) fn execute(&mut self, io: &mut Io<'_>, core: &mut dyn LinkCore, output: LinkOutput) {
        let output = match &mut self.quic {
            Some(quic) => match quic.execute(io, core, output) {
                Some(output) => output,
                None => return,
            },
            None => output,
        };
        match output {
            LinkOutput::Dial { target } | LinkOutput::DialOwn { target } => {
                self.dial(io, core, (target, None));
            }
            LinkOutput::Transmit { link } => {
                self.send_lossy(io, core, link);
                if let Some(at) = self.links.get_mut(&link) {
                    at.has_output = true;
                    self.flush(io, core, link);
                }
            }
            LinkOutput::Close { link } => {
                if let Some(at) = self.remove(link) {
                    io.tcp.close(at.conn);
                }
            }
            LinkOutput::Export { link, context } => {
                let Some(at) = self.links.get(&link) else { return };
                let secret = Sha256::new().chain_update(at.session).chain_update(context);
                let secret = secret.finalize().into();
                core.handle_link(io.now, LinkInput::Exported { link, secret });
            }
            LinkOutput::OpenQuic { link, target, .. } if self.lossy => {
                self.dial(io, core, (target, Some(link)));
            }
            LinkOutput::OpenQuic { link, .. } => {
                core.handle_link(io.now, LinkInput::QuicFailed { link });
            }
            LinkOutput::FixRecords { link, content } => {
                let Some(at) = self.links.get_mut(&link) else { return };
                (at.content, at.is_fixed) = (content, true);
                at.reader.fix(content);
                core.handle_link(io.now, LinkInput::RecordsFixed { link });
            }
            // Simulated links have no limit on circuits, so nothing is to be done.
            LinkOutput::AdmitCircuits { .. } => {}
        }
    }

    /// Opens a link to `target`. If `alongside` is given, opens a link for lossy cells (cells that
    /// may get lost), parallel to the TLS link `alongside`.
    fn dial(
        &mut self,
        io: &mut Io<'_>,
        core: &mut dyn LinkCore,
        (target, alongside): (Target, Option<LinkId>),
    ) {
        let address = target.addresses.first().map(|address| address.ip());
        let Some(&peer) = address.and_then(|address| self.hosts.hosts.get(&address)) else {
            return core.handle_link(io.now, unreachable(target, alongside));
        };
        let simulates_quic = alongside.is_some();
        let conn = io.tcp.connect(io.now, peer, if simulates_quic { QUIC_PORT } else { ORPORT });
        let link = self.add((conn, peer), Some(target), simulates_quic);
        let mut session = [0; SESSION];
        session[..4].copy_from_slice(&io.host.0.to_be_bytes());
        session[4..].copy_from_slice(&link.bits().to_be_bytes());
        if let Some(at) = self.links.get_mut(&link) {
            (at.session, at.alongside) = (session, alongside);
        }
    }

    fn add(
        &mut self,
        (conn, peer): (ConnId, HostId),
        target: Option<Target>,
        simulates_quic: bool,
    ) -> LinkId {
        self.last += 1;
        let link = LinkId::new(0, self.last);
        let at = Link {
            conn,
            peer,
            target,
            simulates_quic,
            alongside: None,
            stage: Stage::Hello,
            session: [0; SESSION],
            reader: Reader::default(),
            content: self.record,
            is_fixed: false,
            has_output: false,
            room_checked: None,
            room: 0,
            is_full: false,
        };
        self.links.insert(link, at);
        self.numbers.insert(conn, link);
        link
    }

    fn remove(&mut self, link: LinkId) -> Option<Link> {
        let at = self.links.remove(&link)?;
        self.numbers.remove(&at.conn);
        if at.simulates_quic {
            self.sessions.remove(&at.session);
        }
        Some(at)
    }

    /// Sends the lossy cells of a link (cells that may get lost, for UDP-OR), up to [`TOGETHER`]
    /// in each datagram.
    fn send_lossy(&mut self, io: &mut Io<'_>, core: &mut dyn LinkCore, link: LinkId) {
        let Some(at) =
            self.links.get(&link).filter(|at| at.simulates_quic && at.stage == Stage::Open)
        else {
            return;
        };
        self.plain.clear();
        core.transmit_lossy(link, &mut self.plain);
        for cells in self.plain.chunks(TOGETHER * NUMBERED_CELL) {
            let bytes = QUIC + cells.len() + cells.len() / NUMBERED_CELL * FRAME;
            io.udp.send(at.peer, bytes, [&at.session[..], cells].concat());
        }
    }

    /// Handles a datagram of the host `from`: a packet of a QUIC link, or lossy cells (cells that
    /// may get lost). Returns the datagram's CPU time at a relay, as the number of bytes of a TLS
    /// link that take the same time.
    pub(super) fn receive_datagram(
        &mut self,
        io: &mut Io<'_>,
        core: &mut dyn LinkCore,
        (from, content): (HostId, &[u8]),
    ) -> usize {
        if let Some(quic) = &mut self.quic {
            return quic.receive(io, core, (from, content));
        }
        let Some((session, cells)) = content.split_first_chunk() else { return 0 };
        let link = self.sessions.get(session).copied();
        if let Some(link) = link {
            core.handle_link(io.now, LinkInput::Lossy { link, cells });
        }
        cells.len()
    }

    /// Handles an event of a link's connection, or of a new connection that will be a link.
    /// Received bytes are read later, by [`Links::receive`].
    pub(super) fn take(&mut self, io: &mut Io<'_>, core: &mut dyn LinkCore, event: TcpEvent) {
        match event {
            TcpEvent::Accepted { conn, peer, port } => {
                self.add((conn, peer), None, port == QUIC_PORT);
            }
            TcpEvent::Opened { conn } => self.greet(io, conn),
            TcpEvent::Progress { conn } => {
                let Some(&link) = self.numbers.get(&conn) else { return };
                self.flush(io, core, link);
            }
            TcpEvent::Closed { conn, .. } => self.lose(io, core, conn),
        }
    }

    fn greet(&mut self, io: &mut Io<'_>, conn: ConnId) {
        let Some(at) = self.numbers.get(&conn).and_then(|link| self.links.get(link)) else {
            return;
        };
        let mut hello = Vec::new();
        records::handshake(&at.session, CLIENT_HELLO, &mut hello);
        io.tcp.write(conn, &hello);
    }

    /// Handles the end of a link's connection.
    fn lose(&mut self, io: &mut Io<'_>, core: &mut dyn LinkCore, conn: ConnId) {
        let Some(&link) = self.numbers.get(&conn) else { return };
        let Some(at) = self.remove(link) else { return };
        match (at.stage, at.target) {
            (Stage::Open, _) => core.handle_link(io.now, LinkInput::Closed { link }),
            (_, Some(target)) => core.handle_link(io.now, unreachable(target, at.alongside)),
            (_, None) => {}
        }
    }

    /// Reads up to `limit` bytes of a link in order, and also all bytes that arrived out of order.
    /// Passes these bytes to the core (the protocol state machine), and returns their number.
    pub(super) fn receive(
        &mut self,
        io: &mut Io<'_>,
        core: &mut dyn LinkCore,
        (conn, limit): (ConnId, usize),
    ) -> usize {
        let Some(&link) = self.numbers.get(&conn) else { return 0 };
        let Some(at) = self.links.get_mut(&link) else { return 0 };
        let taken = io.tcp.read_into(conn, at.reader.buffer(), limit);
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        while let Some(read) = self.links.get_mut(&link).and_then(|at| at.reader.next(&mut plain)) {
            match read {
                ReadRecords::Handshake(hello) => self.advance(io, core, (link, &hello)),
                ReadRecords::Data => {
                    core.handle_link(io.now, LinkInput::Bytes { link, bytes: &plain });
                    plain.clear();
                }
            }
        }
        let early = self.open_early(io, (conn, link), &mut plain);
        if early > 0 {
            core.handle_link(io.now, LinkInput::Bytes { link, bytes: &plain });
        }
        self.plain = plain;
        if io.tcp.is_finished(conn) && io.tcp.readable(conn) == 0 {
            self.lose(io, core, conn);
            io.tcp.close(conn);
        }
        taken + early
    }

    /// Reads records that have arrived before earlier records. Appends their content to `plain`,
    /// and returns its length.
    fn open_early(
        &mut self,
        io: &mut Io<'_>,
        (conn, link): (ConnId, LinkId),
        plain: &mut Vec<u8>,
    ) -> usize {
        let before = plain.len();
        if let Some(at) = self.links.get_mut(&link).filter(|at| at.is_fixed) {
            while let Some((offset, bytes)) = io.tcp.read_out_of_order(conn) {
                at.reader.open_early(offset, &bytes, plain);
            }
        }
        let opened = plain.len() - before;
        self.early += opened as u64;
        opened
    }

    /// Processes received handshake messages, which may open the link.
    fn advance(
        &mut self,
        io: &mut Io<'_>,
        core: &mut dyn LinkCore,
        (link, hello): (LinkId, &[u8]),
    ) {
        let Some(at) = self.links.get_mut(&link) else { return };
        let mut answer = Vec::new();
        match (at.stage, at.target.is_some()) {
            (Stage::Hello, true) => {
                records::handshake(&[], FINISHED, &mut answer);
                at.stage = Stage::Open;
            }
            (Stage::Hello, false) => {
                records::handshake(&[], SERVER_FLIGHT, &mut answer);
                at.session.copy_from_slice(&hello[..SESSION]);
                at.stage = Stage::Finished;
            }
            (Stage::Finished, _) => at.stage = Stage::Open,
            (Stage::Open, _) => return,
        }
        io.tcp.write(at.conn, &answer);
        if at.stage == Stage::Open {
            self.opened(io, core, link);
        }
    }

    fn opened(&mut self, io: &mut Io<'_>, core: &mut dyn LinkCore, link: LinkId) {
        let Some(at) = self.links.get(&link) else { return };
        let usual = self.hosts.start(io, at.peer, at.target.is_some());
        let (lossy, simulates_quic) = (self.lossy, at.simulates_quic);
        if simulates_quic {
            self.sessions.insert(at.session, link);
        }
        let offers_quic = lossy || self.quic.is_some();
        let unordered = self.are_unordered() && !simulates_quic;
        let made =
            if simulates_quic { Capabilities::STREAM_PER_CIRCUIT } else { Capabilities::ORDERED };
        let is_relay = self.hosts.certificates.contains_key(&io.host);
        let offers = offers_quic && is_relay && at.target.is_none();
        let start = Start {
            capabilities: Capabilities { parallel_quic: offers_quic, lossy, unordered, ..made },
            quic_preferences: QuicPreferences {
                port: if offers { QUIC_PORT } else { 0 },
                ..usual.quic_preferences
            },
            ..usual
        };
        let target = at.target.clone();
        core.handle_link(io.now, LinkInput::Opened { link, target, start });
    }

    /// Sends the cells of a link, as far as its connection has room.
    fn flush(&mut self, io: &mut Io<'_>, core: &mut dyn LinkCore, link: LinkId) {
        while let Some(at) = self.links.get_mut(&link) {
            if at.stage != Stage::Open || !at.has_output {
                return;
            }
            let batch = at.room(io, self.by_room).min(at.batch());
            if batch == 0 {
                if let Some(room_checked) = at.room_checked.filter(|_| self.by_room) {
                    let next = room_checked + kist::INTERVAL;
                    let due = if next > io.now { next } else { io.now + kist::INTERVAL };
                    self.due.insert((due, link));
                }
                return;
            }
            let (plain, sealed) = (&mut self.plain, &mut self.sealed);
            plain.clear();
            sealed.clear();
            at.has_output = core.transmit(io.now, link, plain, batch);
            at.room = at.room.saturating_sub(plain.len());
            records::seal_in(plain, at.content, sealed);
            io.tcp.write(at.conn, sealed);
            if core.wants_look(link)
                && let Some(view) = io.tcp.view(io.now, at.conn)
            {
                core.handle_link(io.now, LinkInput::Seen { link, view });
            }
        }
    }
}

impl Link {
    /// Returns the number of bytes that are requested at once from a core (the protocol state
    /// machine). It is a multiple of the cell size, and the cells almost fill whole TLS records.
    fn batch(&self) -> usize {
        let record = self.content;
        (RECORDS * record).max(SMALL / record * record) / CELL * CELL
    }

    /// Returns the number of bytes that may be sent over the link now. If `by_room` is true, both
    /// the scheduler KIST ([`kist::room`]) and [`UNSENT`] limit this number; otherwise only
    /// [`UNSENT`] does.
    fn room(&mut self, io: &Io<'_>, by_room: bool) -> usize {
        let Some(view) = io.tcp.view(io.now, self.conn) else { return 0 };
        if by_room && self.room_checked.is_none_or(|at| io.now.since(at) >= kist::INTERVAL) {
            self.room_checked = Some(io.now);
            self.room = kist::room(&view);
        }
        // A batch may exceed its limit by one cell.
        let needed = records::sealed_length(self.batch() + 1024, self.content);
        if io.tcp.room(self.conn) < needed {
            return 0;
        }
        // Linux reports room for writing when half of the limit is sent.
        let limit = if self.is_full { UNSENT / 2 } else { UNSENT };
        self.is_full = view.notsent as usize >= limit;
        match (self.is_full, by_room) {
            (true, _) => 0,
            (false, true) => self.room,
            (false, false) => UNSENT.saturating_sub(view.notsent as usize),
        }
    }
}

/// Returns the message to the core (the protocol state machine) that a link to `target` cannot be
/// opened. `alongside` is the TLS link for which a parallel link was requested, if any.
fn unreachable<'a>(target: Target, alongside: Option<LinkId>) -> LinkInput<'a> {
    match alongside {
        Some(link) => LinkInput::QuicFailed { link },
        None => LinkInput::Unreachable { target },
    }
}

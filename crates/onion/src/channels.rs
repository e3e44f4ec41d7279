//! The links of one protocol state machine (a client, or one parallel worker of a relay):
//! channels, the circuits on each of them, and their queued cells.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::IpAddr;

use anabranch_multipath::{LinkView, Time};
use rand_core::CryptoRng;

use crate::channel::{Channel, Ids};
use crate::circuitmux::{self, Policy};
use crate::order::CellOrder;
use crate::padding::{IdleTimes, LinkUse};
use crate::queue::{Pool, Queue};
use crate::slots::{SlotKey, SlotTable};
use crate::transport::{RecentCells, Transport};
use crate::wire::cell::{
    Body, CELL, Command, HEADER, NUMBERED_CELL, Width, put_across, put_fixed, put_numbered,
    set_number,
};
use crate::wire::extend::{Target, UNKNOWN_RSA};
use crate::wire::link::{Identity, TlsLinkToken};
use crate::wire::message::DestroyReason;
use detour::{Delivery, Detour};

mod detour;
mod offers;

/// Identifier of a link: its carrier (such as TCP or QUIC), and its index among the links of that
/// carrier. The driver (I/O code) assigns both; the protocol state machine only compares
/// identifiers.
///
/// The carrier is the highest of the identifier's eight bytes. Links are ordered by carrier, then
/// by index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(u64);

impl LinkId {
    /// Number of bits of a link's index within its carrier.
    const NUMBER: u32 = 56;

    /// Returns the identifier of the link with the index `number` of `carrier`. An index has at
    /// most 56 bits.
    #[must_use]
    pub const fn new(carrier: u8, number: u64) -> LinkId {
        debug_assert!(number >> LinkId::NUMBER == 0, "the number of a link has at most 56 bits");
        LinkId((carrier as u64) << LinkId::NUMBER | number)
    }

    /// Returns the carrier.
    #[must_use]
    pub const fn carrier(self) -> u8 {
        (self.0 >> LinkId::NUMBER) as u8
    }

    /// Returns the link's index among the links of its carrier.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0 & ((1 << LinkId::NUMBER) - 1)
    }

    /// Returns the carrier and the index in one integer, which is different for every link.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }
}

impl SlotKey for LinkId {
    fn hint(self) -> u32 {
        self.0 as u32 ^ u32::from(self.carrier()) << 3
    }
}

impl fmt::Debug for LinkId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "LinkId({}:{})", self.carrier(), self.number())
    }
}

/// A circuit on one link, identified by the link and the circuit's ID there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkCircuit {
    pub(crate) link: LinkId,
    pub(crate) id: u32,
}

impl LinkCircuit {
    /// A circuit that belongs to no link. Cells sent on it are dropped.
    pub(crate) const NOWHERE: LinkCircuit = LinkCircuit { link: LinkId::new(u8::MAX, 0), id: 0 };
}

/// Owner of a circuit ID on a link: the circuit's index in the table of circuits, and the
/// direction of the link (true if it leads away from the client).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub(crate) circuit: u32,
    pub(crate) outward: bool,
}

/// Maximum number of cells in a channel's outbox, in addition to one for each circuit. If the
/// outbox is longer, the neighbour does not read our answers, and is disconnected.
const MOST_OUTBOX_CELLS: usize = 256;
/// Maximum outbox length in bytes at which a cell for another shard (a parallel worker of this
/// relay) goes directly into the outbox. With a longer outbox, cells are queued by circuit. Queues
/// are rarely needed here, because the other shard schedules circuits itself.
const AT_ONCE: usize = 64 * CELL;
/// Maximum number of lossy cells (sent in datagrams) that a link holds for the driver (I/O code).
/// If that number of cells waits, a new cell is dropped. If the driver's own queue is full, the
/// driver drops the oldest cell instead.
const MOST_LOSSY: usize = 256;
/// Number of recently closed circuit IDs that a link with lossy cells (sent in datagrams) does not
/// use again. Otherwise a late cell of a closed circuit would close a new circuit with the same
/// ID.
const MOST_CLOSED_IDS: usize = 1_024;
/// Maximum number of random IDs to try when choosing a free circuit ID (C tor's figure).
const TRIES: usize = 64;
/// Receive-buffer capacity in bytes that a link keeps while it is idle; capacity above it is
/// freed.
const IDLE_CAPACITY: usize = 4 << 10;

/// A circuit on a link, its queued cells, and a count of recently sent ones.
struct CircuitQueue {
    owner: Owner,
    queue: Queue,
    lately: RecentCells,
    /// Counts of received and acknowledged cells, on a QUIC link whose circuits may move to a TLS
    /// link.
    delivery: Delivery,
}

/// One link of this client or relay worker.
pub(crate) struct Link {
    pub(crate) channel: Channel,
    /// Received bytes that are not handled yet: an incomplete cell, or cells that wait for keying
    /// material exported from TLS.
    pub(crate) inbox: Vec<u8>,
    /// True while the channel waits for keying material exported from TLS (it authenticates the
    /// neighbour), and handles no further cells.
    pub(crate) waits: bool,
    /// The relay that we intended to reach, if we opened the link.
    pub(crate) wanted: Option<Target>,
    /// State that determines when to send padding and when to close the link: when it last sent or
    /// received a cell, and when its timers expire.
    pub(crate) quiet: IdleTimes,
    /// The neighbour's offer of QUIC links, if it has sent one.
    pub(crate) quic_offer: Option<QuicOffer>,
    /// True if the link was opened for one circuit, and closes with that circuit.
    pub(crate) is_dedicated: bool,
    /// Token with which a QUIC link identifies this link, if the neighbour opened this link.
    pub(crate) token: Option<TlsLinkToken>,
    /// On a QUIC link: true once both ends know which TLS link it runs alongside, if any.
    pub(crate) is_joined: bool,
    /// On a QUIC link alongside a TLS link: state for moving the circuits to the TLS link if the
    /// QUIC link breaks. `None` if the circuits of this link cannot move.
    detour: Option<Box<Detour>>,
    /// QUIC links alongside this link, by the identifier that the end that opened them assigned.
    paired_quic: BTreeMap<u32, LinkId>,
    /// Highest identifier assigned so far to a QUIC link alongside this link.
    last_quic_number: u32,
    /// QUIC links whose circuits moved to this link. These links and this link take turns to send.
    moved: Vec<LinkId>,
    /// Selects the link that sends next, among the links in `moved` and this link.
    turn: usize,
    /// Number of bytes in the outbox that moves of circuits from QUIC links to this link have
    /// added: lists of these circuits, or DESTROY cells. The limit on the outbox does not count
    /// these bytes.
    listing: usize,
    /// True if the outbox contains a PADDING cell.
    padded: bool,
    circuits: SlotTable<u32, CircuitQueue>,
    lossy: LossyOutbox,
    transport: Transport,
    /// Count of the cells that all circuits on this link have sent recently.
    lately: RecentCells,
    /// Largest number of circuits on the link since the outbox was last emptied.
    busiest: usize,
    policy: Box<dyn Policy>,
    is_notified: bool,
}

/// Lossy cells (sent in datagrams) of a link that wait until the driver (I/O code) fetches them.
#[derive(Default)]
struct LossyOutbox {
    cells: Vec<u8>,
    /// True if the driver (I/O code) was notified that cells wait.
    is_notified: bool,
    /// IDs of circuits that were closed recently, oldest first.
    closed_ids: VecDeque<u32>,
}

/// A neighbour's offer of QUIC links, and the state of our attempts to open one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuicOffer {
    pub(crate) port: u16,
    /// Number of consecutive failed attempts to open a QUIC link.
    pub(crate) failed: u32,
    /// Time of the next attempt to open a QUIC link; `None` if no attempt is scheduled.
    pub(crate) again: Option<Time>,
    /// Token of the TLS link that made the offer. It is zeros if the QUIC link's circuits cannot
    /// move to that link.
    pub(crate) token: TlsLinkToken,
    /// True while a QUIC link is being opened alongside this link. Only one is being opened to
    /// each relay at a time.
    pub(crate) is_opening: bool,
}

impl Link {
    /// Releases spare capacity of the inbox above `IDLE_CAPACITY` bytes, and returns the number of
    /// bytes released.
    pub(crate) fn shrink_buffers(&mut self) -> usize {
        let before = self.inbox.capacity();
        self.inbox.shrink_to(IDLE_CAPACITY);
        before - self.inbox.capacity()
    }
}

/// All links of a client, or of one parallel worker (shard) of a relay.
pub(crate) struct Channels {
    links: SlotTable<LinkId, Link>,
    /// Links to other shards (parallel workers of this relay), by shard index.
    siblings: BTreeMap<usize, LinkId>,
    /// Open links by the RSA identity of the relay at the other end, oldest first.
    reached: BTreeMap<[u8; 20], Vec<LinkId>>,
    pool: Pool,
    policy: circuitmux::Kind,
    ready: VecDeque<LinkId>,
    /// Links whose neighbours do not read our answers.
    stalled: Vec<LinkId>,
    /// Number of cells that arrived out of order (before an earlier cell of their circuit) on
    /// links that are closed now. Each open link counts such cells itself.
    early: u64,
    /// Number of circuits that have moved from a QUIC link to the TLS link alongside it, since the
    /// start.
    moved: u64,
    /// Number of lossy cells (sent in datagrams) that were dropped. Either the driver (I/O code)
    /// did not fetch them in time, or their link no longer carried lossy cells.
    lossy_dropped: u64,
}

impl Channels {
    /// Returns an empty table of links; `policy` schedules the circuits of each link.
    pub(crate) fn new(policy: circuitmux::Kind) -> Channels {
        Channels {
            links: SlotTable::default(),
            siblings: BTreeMap::new(),
            reached: BTreeMap::new(),
            pool: Pool::default(),
            policy,
            ready: VecDeque::new(),
            stalled: Vec::new(),
            early: 0,
            moved: 0,
            lossy_dropped: 0,
        }
    }

    /// Adds the link `id`.
    pub(crate) fn open(&mut self, id: LinkId, channel: Channel, wanted: Option<Target>) {
        let link = Link {
            channel,
            inbox: Vec::new(),
            waits: false,
            wanted,
            quiet: IdleTimes::default(),
            quic_offer: None,
            is_dedicated: false,
            token: None,
            is_joined: false,
            detour: None,
            paired_quic: BTreeMap::new(),
            last_quic_number: 0,
            moved: Vec::new(),
            turn: 0,
            listing: 0,
            padded: false,
            circuits: SlotTable::default(),
            lossy: LossyOutbox::default(),
            transport: Transport::default(),
            lately: RecentCells::default(),
            busiest: 0,
            policy: self.policy.policy(id.bits()),
            is_notified: false,
        };
        self.links.insert(id, link);
        self.wake(id);
    }

    /// Adds a link to another shard (a parallel worker of this relay).
    pub(crate) fn join(&mut self, id: LinkId, channel: Channel, shard: usize) {
        self.open(id, channel, None);
        self.siblings.insert(shard, id);
    }

    /// Returns the link to another parallel worker (shard) of this relay; `None` if there is none.
    pub(crate) fn sibling(&self, shard: usize) -> Option<LinkId> {
        self.siblings.get(&shard).copied()
    }

    /// Removes the link `id`, and returns the owners ([`Owner`]) of the circuits on it.
    pub(crate) fn close(&mut self, id: LinkId) -> Vec<Owner> {
        self.unreach(id);
        let Some(mut link) = self.links.remove(&id) else { return Vec::new() };
        self.early += link.early();
        self.ready.retain(|&ready| ready != id);
        self.forget_detour(id, link.detour.take());
        for circuit in link.circuits.values_mut() {
            self.pool.clear(&mut circuit.queue);
            self.pool.clear(&mut circuit.delivery.kept);
        }
        link.circuits.into_values().map(|circuit| circuit.owner).collect()
    }

    /// Removes the link `id` from `reached`, so that no further circuits are created on it.
    fn unreach(&mut self, id: LinkId) {
        let identity = self.links.get(&id).and_then(|link| link.channel.identity());
        if let Some(identity) = identity
            && let Some(links) = self.reached.get_mut(&identity.rsa)
        {
            links.retain(|&other| other != id);
            if links.is_empty() {
                self.reached.remove(&identity.rsa);
            }
        }
    }

    /// Returns the link `id`; `None` if there is no such link.
    pub(crate) fn link(&mut self, id: LinkId) -> Option<&mut Link> {
        self.links.get_mut(&id)
    }

    /// Iterates over all links.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (LinkId, &Link)> {
        self.links.iter()
    }

    /// Records that the handshake of the link `id` is complete. If the neighbour is a relay,
    /// circuits to it may now use the link.
    pub(crate) fn opened(&mut self, id: LinkId) {
        let identity = self.links.get(&id).and_then(|link| link.channel.identity());
        if let Some(identity) = identity {
            self.reached.entry(identity.rsa).or_default().push(id);
        }
    }

    /// Returns an open link to the relay `target`; `None` if there is none. Prefers QUIC links,
    /// then older links.
    pub(crate) fn to(&self, target: &Target) -> Option<LinkId> {
        let links = self.reached.get(&target.rsa)?.iter().copied();
        let leads = |id: &LinkId| self.links.get(id).is_some_and(|link| link.leads_to(target));
        let mut links = links.filter(leads);
        let first = links.next()?;
        [first].into_iter().chain(links).find(|id| self.has_stream_per_circuit(*id)).or(Some(first))
    }

    /// Returns an open link to the relay `target` whose datagrams carry lossy cells (cells that
    /// may be lost); `None` if there is none.
    pub(crate) fn to_lossy(&self, target: &Target) -> Option<LinkId> {
        let mut links = self.reaching(&target.rsa);
        links.find(|(_, link)| link.leads_to(target) && link.takes_lossy()).map(|(id, _)| id)
    }

    /// Returns the owners ([`Owner`]) of the circuits on the link `id`.
    pub(crate) fn owners(&self, id: LinkId) -> Vec<Owner> {
        let circuits = self.links.get(&id).into_iter().flat_map(|link| link.circuits.values());
        circuits.map(|circuit| circuit.owner).collect()
    }

    fn has_stream_per_circuit(&self, id: LinkId) -> bool {
        self.links.get(&id).is_some_and(|link| link.channel.has_stream_per_circuit())
    }

    /// Iterates over the open links to a relay with this RSA identity.
    pub(crate) fn reaching(&self, rsa: &[u8; 20]) -> impl Iterator<Item = (LinkId, &Link)> {
        let links = self.reached.get(rsa).into_iter().flatten();
        links.filter_map(|id| Some((*id, self.links.get(id)?)))
    }

    /// Returns true if we have opened a TLS link to the relay `target`, on which the relay may
    /// offer QUIC links.
    pub(crate) fn has_dialled(&self, target: &Target) -> bool {
        let is_ours =
            |link: &&Link| link.channel.is_initiator() && !link.channel.has_stream_per_circuit();
        let mut links = self.links.values().filter(is_ours);
        links.any(|link| link.wanted.as_ref() == Some(target) || link.leads_to(target))
    }

    /// Iterates over the open links to the relay `target` that were each opened for one circuit.
    /// Yields each link with its number of circuits.
    pub(crate) fn dedicated(&self, target: &Target) -> impl Iterator<Item = (LinkId, usize)> {
        let links = self.reaching(&target.rsa);
        let links = links.filter(|(_, link)| link.is_dedicated && link.leads_to(target));
        links.map(|(id, link)| (id, link.circuits()))
    }

    /// Returns the number of open links that were each opened for one circuit.
    pub(crate) fn all_dedicated(&self) -> usize {
        let links = self.links.values();
        links.filter(|link| link.is_dedicated && link.channel.is_open()).count()
    }

    /// Returns the number of open QUIC links, and the number of circuits on them.
    pub(crate) fn quic(&self) -> [usize; 2] {
        let is_quic = |link: &&Link| link.channel.has_stream_per_circuit() && !link.has_moved();
        let open = self.links.values().filter(is_quic).filter(|link| link.channel.is_open());
        open.fold([0, 0], |[links, circuits], link| [links + 1, circuits + link.circuits.len()])
    }

    /// Returns the number of links that `address` opened and that have not completed their
    /// handshake.
    pub(crate) fn half_open(&self, address: IpAddr) -> usize {
        let half = |link: &&Link| {
            let is_theirs = !link.channel.is_initiator() && link.channel.peer() == address;
            is_theirs && !link.channel.is_open()
        };
        self.links.values().filter(half).count()
    }

    /// Marks a link as ready if it has something to send.
    pub(crate) fn wake(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if let Some(carrier) = link.carrier() {
            return self.wake(carrier);
        }
        if link.is_notified {
            return;
        }
        if link.has_cells() {
            link.is_notified = true;
            self.ready.push_back(id);
        } else if !link.moved.is_empty() && self.moved_have_cells(id) {
            self.links.get_mut(&id).into_iter().for_each(|link| link.is_notified = true);
            self.ready.push_back(id);
        }
    }

    /// Returns the next link that has something to send; `None` if there is none. The same link is
    /// not returned again until `pop` has returned all its output and new output has been added.
    pub(crate) fn next_ready(&mut self) -> Option<LinkId> {
        self.ready.pop_front()
    }

    /// Returns the owner of `link_circuit`; `None` if the link has no such circuit.
    pub(crate) fn owner(&self, link_circuit: LinkCircuit) -> Option<Owner> {
        self.links
            .get(&link_circuit.link)?
            .circuits
            .get(&link_circuit.id)
            .map(|circuit| circuit.owner)
    }

    /// Adds a circuit with a circuit ID that the neighbour chose. Returns false if the neighbour
    /// may not choose this ID, or if the ID is in use.
    pub(crate) fn accept(&mut self, link_circuit: LinkCircuit, owner: Owner) -> bool {
        let Some(link) = self.links.get_mut(&link_circuit.link) else { return false };
        let is_high = link_circuit.id & link.highest_bit() != 0;
        let is_theirs = match link.channel.ids() {
            Ids::High => !is_high,
            Ids::Low => is_high,
            Ids::Any => false,
            Ids::None => true,
        };
        if !is_theirs || link.circuits.contains_key(&link_circuit.id) {
            return false;
        }
        link.add(link_circuit.id, owner);
        true
    }

    /// Adds a circuit with a circuit ID that we choose. Returns `None` if the link `id` is closed,
    /// if we may choose no ID there, or if `TRIES` attempts find no free ID.
    pub(crate) fn make(
        &mut self,
        id: LinkId,
        owner: Owner,
        rng: &mut dyn CryptoRng,
    ) -> Option<LinkCircuit> {
        let link = self.links.get_mut(&id)?;
        let highest = link.highest_bit();
        let bit = match link.channel.ids() {
            Ids::High | Ids::Any => highest,
            Ids::Low => 0,
            Ids::None => return None,
        };
        let mut draws = (0..TRIES).map(|_| rng.next_u32() & (highest - 1) | bit);
        let is_retired = |id: u32| {
            let is_ordered = link.channel.cell_order().is_some_and(|order| order.knows(id));
            is_ordered || link.lossy.closed_ids.contains(&id)
        };
        let is_free = |id: &u32| {
            *id & (highest - 1) != 0 && !link.circuits.contains_key(id) && !is_retired(*id)
        };
        let free = draws.find(is_free)?;
        link.add(free, owner);
        Some(LinkCircuit { link: id, id: free })
    }

    /// Removes `link_circuit` and its queued cells.
    pub(crate) fn leave(&mut self, link_circuit: LinkCircuit) {
        let Some(link) = self.links.get_mut(&link_circuit.link) else { return };
        if let Some(mut left) = link.circuits.remove(&link_circuit.id) {
            self.pool.clear(&mut left.queue);
            if let Some(detour) = &mut link.detour {
                detour.kept -= left.delivery.kept.len();
                self.pool.clear(&mut left.delivery.kept);
            }
            link.policy.remove(link_circuit.id);
            if let Some(order) = link.channel.order() {
                order.close(link_circuit.id);
            }
            if link.channel.takes_lossy() {
                let excess = (link.lossy.closed_ids.len() + 1).saturating_sub(MOST_CLOSED_IDS);
                link.lossy.closed_ids.drain(..excess);
                link.lossy.closed_ids.push_back(link_circuit.id);
            }
        }
    }

    /// Records that the neighbour's last cell on `link_circuit` has been handled.
    pub(crate) fn ended(&mut self, link_circuit: LinkCircuit) {
        let Some(link) = self.links.get_mut(&link_circuit.link) else { return };
        let is_high = link_circuit.id & link.highest_bit() != 0;
        let is_ours = is_high == (link.channel.ids() == Ids::High);
        // `order` keeps the state of an ID that we chose, because the ID is not used again for a
        // while.
        if let Some(order) = link.channel.order().filter(|_| !is_ours) {
            order.forget(link_circuit.id);
        }
    }

    /// Removes `link_circuit` and sends DESTROY for it to the neighbour.
    pub(crate) fn destroy(&mut self, link_circuit: LinkCircuit, reason: DestroyReason) {
        self.leave(link_circuit);
        self.send_control_cell(link_circuit, Command::DESTROY, &[reason.0]);
    }

    /// Sends a cell, such as DESTROY, ahead of queued cells. The limit `MOST_OUTBOX_CELLS` does
    /// not apply to links to other parallel workers (shards) of this relay, because shards always
    /// read our output.
    pub(crate) fn send_control_cell(
        &mut self,
        link_circuit: LinkCircuit,
        command: Command,
        body: &[u8],
    ) {
        if let Some(link) = self.links.get_mut(&link_circuit.link) {
            link.channel.send_control_cell(link_circuit.id, command, body);
            self.check_outbox(link_circuit.link);
        }
    }

    /// Marks the link `id` as stalled if its outbox has grown too long, and marks it as ready to
    /// send.
    fn check_outbox(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(&id) {
            let most = (MOST_OUTBOX_CELLS + link.busiest) * CELL + link.listing;
            let is_deaf = link.channel.outbox.len() > most && !link.channel.is_sibling();
            if is_deaf && !self.stalled.contains(&id) {
                self.stalled.push(id);
            }
            self.wake(id);
        }
    }

    /// Returns a link that must be closed because its neighbour does not read enough of our
    /// output. Returns `None` if there is none.
    pub(crate) fn take_stalled(&mut self) -> Option<LinkId> {
        self.stalled.pop()
    }

    /// Queues a PADDING cell and returns true. If one is still in the outbox, does nothing and
    /// returns false.
    pub(crate) fn pad(&mut self, id: LinkId) -> bool {
        let Some(link) = self.links.get_mut(&id).filter(|link| !link.has_moved()) else {
            return false;
        };
        if std::mem::replace(&mut link.padded, true) {
            return false;
        }
        link.channel.send_control_cell(0, Command::PADDING, &[]);
        self.wake(id);
        true
    }

    /// Queues a cell on its circuit. On a link to another parallel worker (shard) of this relay,
    /// sends the cell at once if the outbox is short. Returns the queue's length (1 for a cell
    /// sent at once), or 0 if there is no such circuit.
    pub(crate) fn push(
        &mut self,
        now: Time,
        link_circuit: LinkCircuit,
        command: Command,
        body: &Body,
    ) -> usize {
        let Some(link) = self.links.get_mut(&link_circuit.link) else { return 0 };
        let Some(CircuitQueue { queue, .. }) = link.circuits.get_mut(&link_circuit.id) else {
            return 0;
        };
        let was_empty = queue.is_empty();
        let channel = &mut link.channel;
        if was_empty && channel.is_sibling() && channel.outbox.len() < AT_ONCE {
            put_fixed(&mut channel.outbox, link_circuit.id, command, body);
            self.wake(link_circuit.link);
            return 1;
        }
        self.pool.push(queue, now, |cell| {
            cell[..4].copy_from_slice(&link_circuit.id.to_be_bytes());
            cell[4] = command.0;
            cell[HEADER..].copy_from_slice(body);
        });
        let length = queue.len();
        if was_empty {
            link.policy.activate(link_circuit.id);
            self.wake(link_circuit.link);
        }
        length
    }

    /// Passes a lossy cell (sent in a datagram) to the driver (I/O code) of its link. The cell is
    /// dropped if there is no such circuit on the link, if the link carries no lossy cells, or if
    /// too many cells wait already.
    pub(crate) fn push_lossy(
        &mut self,
        now: Time,
        link_circuit: LinkCircuit,
        counter: u32,
        body: &Body,
    ) {
        let link = self.links.get_mut(&link_circuit.link);
        let link = link
            .filter(|link| link.circuits.contains_key(&link_circuit.id) && link.has_lossy_room());
        let Some(link) = link else {
            self.lossy_dropped += 1;
            return;
        };
        if link.channel.is_sibling() {
            put_across(&mut link.channel.outbox, link_circuit.id, counter, body);
            return self.wake(link_circuit.link);
        }
        put_numbered(&mut link.lossy.cells, link_circuit.id, Command::RELAY_LOSSY, counter, body);
        link.quiet.note(now, false);
        if !std::mem::replace(&mut link.lossy.is_notified, true) {
            self.ready.push_back(link_circuit.link);
        }
    }

    /// Appends the lossy cells (sent in datagrams) that wait on the link `id` to `out`.
    pub(crate) fn take_lossy(&mut self, id: LinkId, out: &mut Vec<u8>) {
        if let Some(link) = self.links.get_mut(&id) {
            link.lossy.is_notified = false;
            out.append(&mut link.lossy.cells);
        }
    }

    /// Returns the number of lossy cells (sent in datagrams) that our links have dropped since the
    /// start.
    pub(crate) fn lossy_dropped(&self) -> u64 {
        self.lossy_dropped
    }

    /// Returns the number of cells queued on `link_circuit`.
    pub(crate) fn waiting(&self, link_circuit: LinkCircuit) -> usize {
        let link = self.links.get(&link_circuit.link);
        link.and_then(|link| link.circuits.get(&link_circuit.id))
            .map_or(0, |circuit| circuit.queue.len())
    }

    /// Returns statistics of the connection that carries `link_circuit`, and requests new ones if
    /// they are old. Returns `None` for links to other shards, and if the operating system has
    /// provided no statistics.
    pub(crate) fn look(&mut self, now: Time, link_circuit: LinkCircuit) -> Option<LinkView> {
        let link = self.links.get(&link_circuit.link)?;
        let below = link.carrier().unwrap_or(link_circuit.link);
        let below = self.links.get_mut(&below).filter(|link| !link.channel.is_sibling())?;
        let seen = below.transport.ask(now)?;
        let link = self.links.get(&link_circuit.link)?;
        let of_link = link.lately.cells(now).max(1);
        let of_circuit =
            link.circuits.get(&link_circuit.id).map_or(0, |circuit| circuit.lately.cells(now));
        let share = u64::from(of_circuit) * 1_000 / u64::from(of_link);
        Some(LinkView { share: u16::try_from(share).unwrap_or(1_000), ..seen })
    }

    /// Returns true if a scheduler has requested statistics of the link `id`.
    pub(crate) fn wants_look(&self, id: LinkId) -> bool {
        self.links.get(&id).is_some_and(|link| link.transport.is_requested())
    }

    /// Stores the operating system's statistics of the connection of the link `id`.
    pub(crate) fn saw(&mut self, now: Time, id: LinkId, view: LinkView) {
        if let Some(link) = self.links.get_mut(&id) {
            link.transport.saw(now, view);
        }
    }

    /// Appends the bytes of the link's outbox to `out`. If there are none, appends the link's next
    /// cell instead.
    pub(crate) fn pop(&mut self, now: Time, id: LinkId, out: &mut Vec<u8>) -> PopOutcome {
        let Some(link) = self.links.get_mut(&id).filter(|link| !link.has_moved()) else {
            return PopOutcome::Nothing;
        };
        if let Some(order) = link.channel.order() {
            order.tick(now);
        }
        if link.channel.has_output() {
            let padding = if std::mem::take(&mut link.padded) { NUMBERED_CELL } else { 0 };
            link.quiet.note(now, link.channel.outbox.len() <= padding);
            match out.is_empty() && link.channel.is_sibling() {
                true => std::mem::swap(out, &mut link.channel.outbox),
                false => link.channel.take_outbox(out),
            }
            (link.busiest, link.listing) = (link.circuits.len(), 0);
            return PopOutcome::Own;
        }
        if !link.moved.is_empty() {
            return self.pop_in_turn(now, id, out);
        }
        let popped = link.pop_cell(now, &mut self.pool, out);
        link.is_notified = !matches!(popped, PopOutcome::Nothing);
        if link.keeps_too_much() {
            self.renounce(id);
        }
        popped
    }

    /// Returns the number of links whose cells have sequence numbers, and the number of cells that
    /// arrived out of order on such links since the start.
    pub(crate) fn unordered(&self) -> (usize, u64) {
        let orders = self.links.values().filter(|link| link.channel.cell_order().is_some());
        (orders.count(), self.early + self.links.values().map(Link::early).sum::<u64>())
    }

    /// Returns the number of cells in memory: queued cells, and the kept copies of sent cells.
    pub(crate) fn used(&self) -> usize {
        self.pool.used()
    }

    /// Returns the owner of the circuit whose oldest cell has waited longest; `None` if no circuit
    /// holds cells.
    pub(crate) fn oldest(&self) -> Option<Owner> {
        let circuits = self.links.values().flat_map(|link| link.circuits.values());
        let first = |circuit: &CircuitQueue| {
            let queues = [&circuit.queue, &circuit.delivery.kept];
            queues.into_iter().filter_map(|queue| self.pool.oldest(queue)).min()
        };
        let aged = circuits.filter_map(|circuit| Some((first(circuit)?, circuit.owner)));
        aged.min_by_key(|(arrived, _)| *arrived).map(|(_, owner)| owner)
    }
}

/// Outcome of [`Channels::pop`].
pub(crate) enum PopOutcome {
    /// There is nothing to send.
    Nothing,
    /// The bytes of the link's outbox were appended.
    Own,
    /// A cell was appended. Contains the owner of its circuit, and the number of cells left in the
    /// circuit's queue.
    Cell { owner: Owner, left: usize },
}

impl Link {
    /// Appends the next cell of the link's own circuits to `out`. Ignores circuits that moved to
    /// this link from another.
    fn pop_cell(&mut self, now: Time, pool: &mut Pool, out: &mut Vec<u8>) -> PopOutcome {
        let next = self.policy.next().filter(|_| !self.channel.is_held_back());
        let Some(circuit) = next else { return PopOutcome::Nothing };
        let Some(entry) = self.circuits.get_mut(&circuit) else { return PopOutcome::Nothing };
        let start = out.len();
        match self.detour.as_mut().filter(|detour| detour.keeps()) {
            Some(detour) => {
                pool.pass(&mut entry.queue, &mut entry.delivery.kept, now, out);
                detour.kept += 1;
            }
            None => drop(pool.pop(&mut entry.queue, out)),
        }
        entry.lately.note(now);
        self.lately.note(now);
        if let Some(order) = self.channel.order() {
            // A number is assigned only now, so that cells dropped from the queue use up none.
            set_number(out, start, order.number(circuit));
        } else if self.channel.width() == Width::Two {
            // Queued cells have circuit IDs of four bytes. Remove two of them.
            out.drain(start..start + 2);
        }
        self.quiet.note(now, false);
        let (owner, left) = (entry.owner, entry.queue.len());
        self.policy.sent(now, circuit, left > 0);
        PopOutcome::Cell { owner, left }
    }

    fn add(&mut self, circuit: u32, owner: Owner) {
        let (queue, lately, delivery) = Default::default();
        self.circuits.insert(circuit, CircuitQueue { owner, queue, lately, delivery });
        self.busiest = self.busiest.max(self.circuits.len());
    }

    /// Returns the mask of the highest bit of circuit IDs on the link. This bit shows which end of
    /// the link chose the ID.
    fn highest_bit(&self) -> u32 {
        match self.channel.width() {
            Width::Two => 1 << 15,
            Width::Four => 1 << 31,
        }
    }

    /// Returns true if circuits on the link may have lossy cells (sent in datagrams). Both ends
    /// must have agreed on lossy cells, and must know which TLS link the link runs alongside, if
    /// any. The link's circuits must not have moved to that TLS link.
    pub(crate) fn takes_lossy(&self) -> bool {
        self.channel.takes_lossy() && self.is_joined && !self.has_moved()
    }

    /// Returns true if the link carries lossy cells (sent in datagrams), and its queue has room
    /// for another.
    fn has_lossy_room(&self) -> bool {
        if self.channel.is_sibling() {
            return self.channel.outbox.len() < MOST_LOSSY * NUMBERED_CELL;
        }
        self.takes_lossy() && self.lossy.cells.len() < MOST_LOSSY * NUMBERED_CELL
    }

    /// Returns true if the link has something to send.
    fn has_cells(&mut self) -> bool {
        let channel = &self.channel;
        channel.has_output() || !channel.is_held_back() && self.policy.next().is_some()
    }

    /// Returns the number of cells that arrived on the link out of order, before an earlier cell
    /// of their circuit.
    fn early(&self) -> u64 {
        self.channel.cell_order().map_or(0, CellOrder::early)
    }

    /// Returns the number of circuits on the link.
    pub(crate) fn circuits(&self) -> usize {
        self.circuits.len()
    }

    /// Returns the facts that determine the link's padding: whether one end is a client, whether
    /// circuits and streams have used the link, and the padding that the neighbour has requested.
    pub(crate) fn seen(&self) -> LinkUse {
        LinkUse {
            is_clients: self.channel.is_clients(),
            usage: self.quiet.usage,
            requested: self.channel.padding,
        }
    }

    /// Returns true if the link is open and the neighbour has proved the identity that `target`
    /// names.
    pub(crate) fn leads_to(&self, target: &Target) -> bool {
        let proven = self.channel.identity().filter(|_| self.channel.is_open());
        proven.is_some_and(|identity| is(&identity, target))
    }
}

/// Returns true if `target` names this identity.
pub(crate) fn is(identity: &Identity, target: &Target) -> bool {
    let is_named = target.rsa == UNKNOWN_RSA || identity.rsa == target.rsa;
    is_named && target.ed25519.is_none_or(|key| key == identity.ed25519)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_named_by_its_carrier_and_its_number_there() {
        let largest = (1 << LinkId::NUMBER) - 1;
        for (carrier, number) in [(0, 1), (1, 1), (2, largest), (u8::MAX, 0)] {
            let link = LinkId::new(carrier, number);
            assert_eq!((link.carrier(), link.number()), (carrier, number));
        }
        assert!(LinkId::new(0, largest) < LinkId::new(1, 0), "no carrier's links are another's");
        assert_eq!(size_of::<LinkId>(), size_of::<u64>());
    }
}

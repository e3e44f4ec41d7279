//! The links of one core: channels, the circuits on each of them, and the cells that wait.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::IpAddr;

use anabranch_multipath::{LinkView, Time};
use rand_core::CryptoRng;

use crate::channel::{Channel, Ids};
use crate::circuitmux::{self, Policy};
use crate::order::CellOrder;
use crate::padding::{LinkUse, Quiet};
use crate::queue::{Pool, Queue};
use crate::transport::{RecentCells, Transport};
use crate::wire::cell::{Body, CELL, Command, HEADER, NUMBERED_CELL, Width, put_fixed, set_number};
use crate::wire::extend::{ANYBODY, Target};
use crate::wire::link::{BesideToken, Identity};
use crate::wire::message::DestroyReason;
use detour::{Delivery, Detour};

mod detour;

/// A link: the carrier that transfers its bytes, and the link's number there. The driver assigns
/// both; the core compares them only.
///
/// Eight bytes: the carrier in the highest one. Links are ordered by carrier, then by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(u64);

impl LinkId {
    /// Bits of a number.
    const NUMBER: u32 = 56;

    /// The link `number` of `carrier`. Numbers have at most 56 bits.
    #[must_use]
    pub const fn new(carrier: u8, number: u64) -> LinkId {
        debug_assert!(number >> LinkId::NUMBER == 0, "a number has 56 bits");
        LinkId((carrier as u64) << LinkId::NUMBER | number)
    }

    /// The carrier.
    #[must_use]
    pub const fn carrier(self) -> u8 {
        (self.0 >> LinkId::NUMBER) as u8
    }

    /// The number among the carrier's links.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0 & ((1 << LinkId::NUMBER) - 1)
    }

    /// Both in one number, which differs for every link.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for LinkId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "LinkId({}:{})", self.carrier(), self.number())
    }
}

/// A circuit's place on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane {
    pub(crate) link: LinkId,
    pub(crate) id: u32,
}

impl Lane {
    /// On no link: what is sent there goes nowhere.
    pub(crate) const NOWHERE: Lane = Lane { link: LinkId::new(u8::MAX, 0), id: 0 };
}

/// Whose circuit a lane is: its place in the core's table, and whether the lane leads away from the
/// client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub(crate) circuit: u32,
    pub(crate) outward: bool,
}

/// Cells of its own that a link may have to say beside one for each circuit. Nobody who reads lets
/// them become so many: a neighbour who makes us answer and does not read is to go.
const MOST_SAID: usize = 256;
/// Bytes of cells that a link to another shard may have outside of queues. The other shard has an
/// order among circuits of its own: an order here is only for what does not pass at once.
const AT_ONCE: usize = 64 * CELL;
/// Tries to find a free circuit ID (C tor's figure).
const TRIES: usize = 64;
/// Room that a link keeps when it rests.
const TRICKLE: usize = 4 << 10;

/// A circuit on a link, its cells that wait, and how many left lately.
struct CircuitQueue {
    owner: Owner,
    queue: Queue,
    lately: RecentCells,
    /// What is known to have come, on a QUIC link whose circuits may move.
    delivery: Delivery,
}

/// One link.
pub(crate) struct Link {
    pub(crate) channel: Channel,
    /// Bytes that came and are no whole cell yet, or wait for the exported secret.
    pub(crate) inbox: Vec<u8>,
    /// The channel waits for the exported secret.
    pub(crate) waits: bool,
    /// Whom we meant to reach.
    pub(crate) wanted: Option<Target>,
    /// How long nothing has moved.
    pub(crate) quiet: Quiet,
    /// Where QUIC links come in at the neighbour, if it has told.
    pub(crate) beside: Option<Beside>,
    /// It was opened for one circuit, and closes with it.
    pub(crate) is_dedicated: bool,
    /// By what a QUIC link names this one as that beside which it stands: ours, who were reached.
    pub(crate) token: Option<BesideToken>,
    /// Of a QUIC link: both ends know whether it stands beside another.
    pub(crate) is_joined: bool,
    /// Of a QUIC link that stands beside another: how its circuits go on where it breaks.
    detour: Option<Box<Detour>>,
    /// QUIC links that stand beside this one, by their numbers, and the last number.
    besides: BTreeMap<u32, LinkId>,
    last_beside: u32,
    /// Those of them whose circuits go by this one, and which of them, or this one, sends next.
    moved: Vec<LinkId>,
    turn: usize,
    /// Bytes of lists of circuits that move among what the channel has to say.
    listing: usize,
    /// A cell of padding is among what the channel has to say.
    padded: bool,
    lanes: BTreeMap<u32, CircuitQueue>,
    transport: Transport,
    /// Cells of circuits that left lately.
    lately: RecentCells,
    /// The most circuits at a time since the neighbour last took what we had to say.
    busiest: usize,
    policy: Box<dyn Policy>,
    told: bool,
}

/// Where QUIC links come in at a neighbour, and what came of that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beside {
    pub(crate) port: u16,
    /// Attempts that failed, one after the other.
    pub(crate) failed: u32,
    /// When the next is due, if one waits.
    pub(crate) again: Option<Time>,
    /// How the QUIC link names the one beside which it stands; zeros: its circuits cannot move.
    pub(crate) token: BesideToken,
    /// A QUIC link is being opened beside this one: the only one to this relay.
    pub(crate) is_opening: bool,
}

impl Link {
    /// Gives back the room that bursts took: how many bytes that was.
    pub(crate) fn rest(&mut self) -> usize {
        let before = self.inbox.capacity();
        self.inbox.shrink_to(TRICKLE);
        before - self.inbox.capacity()
    }
}

/// All links.
pub(crate) struct Channels {
    links: BTreeMap<LinkId, Link>,
    /// Links to other shards, by the shard.
    siblings: BTreeMap<usize, LinkId>,
    /// Open links by the RSA identity of the relay that they lead to, oldest first.
    reached: BTreeMap<[u8; 20], Vec<LinkId>>,
    pool: Pool,
    policy: circuitmux::Kind,
    ready: VecDeque<LinkId>,
    /// Links whose neighbours do not read what they are told.
    deaf: Vec<LinkId>,
    /// Cells that came before their turn, on links that are gone.
    early: u64,
    /// Circuits that moved from a QUIC link to the one beside it, since the beginning.
    moved: u64,
}

impl Channels {
    /// Without links.
    pub(crate) fn new(policy: circuitmux::Kind) -> Channels {
        let (links, reached) = (BTreeMap::new(), BTreeMap::new());
        Channels {
            links,
            reached,
            siblings: BTreeMap::new(),
            pool: Pool::default(),
            policy,
            ready: VecDeque::new(),
            deaf: Vec::new(),
            early: 0,
            moved: 0,
        }
    }

    /// Adds a link.
    pub(crate) fn open(&mut self, id: LinkId, channel: Channel, wanted: Option<Target>) {
        let link = Link {
            channel,
            inbox: Vec::new(),
            waits: false,
            wanted,
            quiet: Quiet::default(),
            beside: None,
            is_dedicated: false,
            token: None,
            is_joined: false,
            detour: None,
            besides: BTreeMap::new(),
            last_beside: 0,
            moved: Vec::new(),
            turn: 0,
            listing: 0,
            padded: false,
            lanes: BTreeMap::new(),
            transport: Transport::default(),
            lately: RecentCells::default(),
            busiest: 0,
            policy: self.policy.policy(id.bits()),
            told: false,
        };
        self.links.insert(id, link);
        self.wake(id);
    }

    /// A link to another shard of ours.
    pub(crate) fn join(&mut self, id: LinkId, channel: Channel, shard: usize) {
        self.open(id, channel, None);
        self.siblings.insert(shard, id);
    }

    /// The link to another shard of ours.
    pub(crate) fn sibling(&self, shard: usize) -> Option<LinkId> {
        self.siblings.get(&shard).copied()
    }

    /// Removes a link: whose circuits were on it.
    pub(crate) fn close(&mut self, id: LinkId) -> Vec<Owner> {
        self.unreach(id);
        let Some(mut link) = self.links.remove(&id) else { return Vec::new() };
        self.early += link.early();
        self.ready.retain(|&ready| ready != id);
        self.forget_detour(id, link.detour.take());
        for lane in link.lanes.values_mut() {
            self.pool.clear(&mut lane.queue);
            self.pool.clear(&mut lane.delivery.kept);
        }
        link.lanes.into_values().map(|lane| lane.owner).collect()
    }

    /// No circuit is made on a link any more.
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

    /// A link.
    pub(crate) fn link(&mut self, id: LinkId) -> Option<&mut Link> {
        self.links.get_mut(&id)
    }

    /// All links.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (LinkId, &Link)> {
        self.links.iter().map(|(&id, link)| (id, link))
    }

    /// A link's handshake is done: circuits may go by it, if the neighbour is a relay.
    pub(crate) fn opened(&mut self, id: LinkId) {
        let identity = self.links.get(&id).and_then(|link| link.channel.identity());
        if let Some(identity) = identity {
            self.reached.entry(identity.rsa).or_default().push(id);
        }
    }

    /// An open link to a relay, or `None`. A QUIC link is taken before others, then the oldest.
    pub(crate) fn to(&self, target: &Target) -> Option<LinkId> {
        let links = self.reached.get(&target.rsa)?.iter().copied();
        let leads = |id: &LinkId| self.links.get(id).is_some_and(|link| link.leads_to(target));
        let mut links = links.filter(leads);
        let first = links.next()?;
        [first].into_iter().chain(links).find(|id| self.has_lanes(*id)).or(Some(first))
    }

    fn has_lanes(&self, id: LinkId) -> bool {
        self.links.get(&id).is_some_and(|link| link.channel.has_lanes())
    }

    /// The open links to a relay of this RSA identity.
    pub(crate) fn reaching(&self, rsa: &[u8; 20]) -> impl Iterator<Item = (LinkId, &Link)> {
        let links = self.reached.get(rsa).into_iter().flatten();
        links.filter_map(|id| Some((*id, self.links.get(id)?)))
    }

    /// Open links to a relay that were each opened for one circuit, and the circuits on them.
    pub(crate) fn dedicated(&self, target: &Target) -> impl Iterator<Item = (LinkId, usize)> {
        let links = self.reaching(&target.rsa);
        let links = links.filter(|(_, link)| link.is_dedicated && link.leads_to(target));
        links.map(|(id, link)| (id, link.circuits()))
    }

    /// How many links are open that were each opened for one circuit.
    pub(crate) fn all_dedicated(&self) -> usize {
        let links = self.links.values();
        links.filter(|link| link.is_dedicated && link.channel.is_open()).count()
    }

    /// Open QUIC links, and circuits on them.
    pub(crate) fn quic(&self) -> [usize; 2] {
        let is_quic = |link: &&Link| link.channel.has_lanes() && !link.has_moved();
        let open = self.links.values().filter(is_quic).filter(|link| link.channel.is_open());
        open.fold([0, 0], |[links, circuits], link| [links + 1, circuits + link.lanes.len()])
    }

    /// Links that came from this address and whose handshake is not done.
    pub(crate) fn half_open(&self, address: IpAddr) -> usize {
        let half = |link: &&Link| {
            let came = !link.channel.is_initiator() && link.channel.peer() == address;
            came && !link.channel.is_open()
        };
        self.links.values().filter(half).count()
    }

    /// The link has something to send.
    pub(crate) fn wake(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id) else { return };
        if let Some(carrier) = link.carrier() {
            return self.wake(carrier);
        }
        if link.told {
            return;
        }
        if link.has_cells() {
            link.told = true;
            self.ready.push_back(id);
        } else if !link.moved.is_empty() && self.moved_have_cells(id) {
            self.links.entry(id).and_modify(|link| link.told = true);
            self.ready.push_back(id);
        }
    }

    /// The next link that has something to send, each told once until it was asked for all of it.
    pub(crate) fn next_ready(&mut self) -> Option<LinkId> {
        self.ready.pop_front()
    }

    /// Whose circuit has this ID on this link.
    pub(crate) fn owner(&self, lane: Lane) -> Option<Owner> {
        self.links.get(&lane.link)?.lanes.get(&lane.id).map(|lane| lane.owner)
    }

    /// Takes a lane whose ID the neighbour chose; false if it is not its to choose, or in use.
    pub(crate) fn accept(&mut self, lane: Lane, owner: Owner) -> bool {
        let Some(link) = self.links.get_mut(&lane.link) else { return false };
        let is_high = lane.id & link.highest_bit() != 0;
        let is_theirs = match link.channel.ids() {
            Ids::High => !is_high,
            Ids::Low => is_high,
            Ids::Any => false,
            Ids::None => true,
        };
        if !is_theirs || link.lanes.contains_key(&lane.id) {
            return false;
        }
        link.add(lane.id, owner);
        true
    }

    /// Makes a lane with an ID of ours; `None` if the link is gone or full.
    pub(crate) fn make(
        &mut self,
        id: LinkId,
        owner: Owner,
        rng: &mut dyn CryptoRng,
    ) -> Option<Lane> {
        let link = self.links.get_mut(&id)?;
        let highest = link.highest_bit();
        let bit = match link.channel.ids() {
            Ids::High | Ids::Any => highest,
            Ids::Low => 0,
            Ids::None => return None,
        };
        let mut draws = (0..TRIES).map(|_| rng.next_u32() & (highest - 1) | bit);
        let rests = |id: u32| link.channel.cell_order().is_some_and(|order| order.knows(id));
        let is_free =
            |id: &u32| *id & (highest - 1) != 0 && !link.lanes.contains_key(id) && !rests(*id);
        let free = draws.find(is_free)?;
        link.add(free, owner);
        Some(Lane { link: id, id: free })
    }

    /// Removes a lane with all that waits on it.
    pub(crate) fn leave(&mut self, lane: Lane) {
        let Some(link) = self.links.get_mut(&lane.link) else { return };
        if let Some(mut left) = link.lanes.remove(&lane.id) {
            self.pool.clear(&mut left.queue);
            if let Some(detour) = &mut link.detour {
                detour.kept -= left.delivery.kept.len();
                self.pool.clear(&mut left.delivery.kept);
            }
            link.policy.gone(lane.id);
            if let Some(order) = link.channel.order() {
                order.left(lane.id);
            }
        }
    }

    /// The neighbour's last cell of a lane was taken.
    pub(crate) fn ended(&mut self, lane: Lane) {
        let Some(link) = self.links.get_mut(&lane.link) else { return };
        let is_high = lane.id & link.highest_bit() != 0;
        let is_ours = is_high == (link.channel.ids() == Ids::High);
        // One of ours rests.
        if let Some(order) = link.channel.order().filter(|_| !is_ours) {
            order.forget(lane.id);
        }
    }

    /// Removes a lane and tells the neighbour.
    pub(crate) fn destroy(&mut self, lane: Lane, reason: DestroyReason) {
        self.leave(lane);
        self.say(lane, Command::DESTROY, &[reason.0]);
    }

    /// Sends a cell before all that waits: DESTROY. Other shards always read.
    pub(crate) fn say(&mut self, lane: Lane, command: Command, body: &[u8]) {
        if let Some(link) = self.links.get_mut(&lane.link) {
            link.channel.say(lane.id, command, body);
            self.said(lane.link);
        }
    }

    /// The channel has more to say: somebody may leave too much of that unread.
    fn said(&mut self, id: LinkId) {
        if let Some(link) = self.links.get_mut(&id) {
            let most = (MOST_SAID + link.busiest) * CELL + link.listing;
            let is_deaf = link.channel.outbox.len() > most && !link.channel.is_sibling();
            if is_deaf && !self.deaf.contains(&id) {
                self.deaf.push(id);
            }
            self.wake(id);
        }
    }

    /// A link whose neighbour has left so much unread that it is to be closed.
    pub(crate) fn take_deaf(&mut self) -> Option<LinkId> {
        self.deaf.pop()
    }

    /// Sends a cell of padding, unless one waits; whether it did.
    pub(crate) fn pad(&mut self, id: LinkId) -> bool {
        let Some(link) = self.links.get_mut(&id).filter(|link| !link.has_moved()) else {
            return false;
        };
        if std::mem::replace(&mut link.padded, true) {
            return false;
        }
        link.channel.say(0, Command::PADDING, &[]);
        self.wake(id);
        true
    }

    /// Puts a cell into its lane's queue, or to what a link to another shard sends at once: how
    /// many wait there now, 0 if there is no such lane.
    pub(crate) fn push(&mut self, now: Time, lane: Lane, command: Command, body: &Body) -> usize {
        let Some(link) = self.links.get_mut(&lane.link) else { return 0 };
        let Some(CircuitQueue { queue, .. }) = link.lanes.get_mut(&lane.id) else { return 0 };
        let was_empty = queue.is_empty();
        let channel = &mut link.channel;
        if was_empty && channel.is_sibling() && channel.outbox.len() < AT_ONCE {
            put_fixed(&mut channel.outbox, lane.id, command, body);
            self.wake(lane.link);
            return 1;
        }
        self.pool.push(queue, now, |cell| {
            cell[..4].copy_from_slice(&lane.id.to_be_bytes());
            cell[4] = command.0;
            cell[HEADER..].copy_from_slice(body);
        });
        let length = queue.len();
        if was_empty {
            link.policy.woke(lane.id);
            self.wake(lane.link);
        }
        length
    }

    /// Cells that wait on a lane.
    pub(crate) fn waiting(&self, lane: Lane) -> usize {
        let link = self.links.get(&lane.link);
        link.and_then(|link| link.lanes.get(&lane.id)).map_or(0, |lane| lane.queue.len())
    }

    /// What is known of the connection below a lane's link; asks for a look if that is old. `None`
    /// where the system does not tell, or has not yet, and for links to other shards.
    pub(crate) fn look(&mut self, now: Time, lane: Lane) -> Option<LinkView> {
        let link = self.links.get(&lane.link)?;
        let below = link.carrier().unwrap_or(lane.link);
        let below = self.links.get_mut(&below).filter(|link| !link.channel.is_sibling())?;
        let seen = below.transport.ask(now)?;
        let link = self.links.get(&lane.link)?;
        let of_link = link.lately.cells(now).max(1);
        let of_lane = link.lanes.get(&lane.id).map_or(0, |lane| lane.lately.cells(now));
        let share = u64::from(of_lane) * 1_000 / u64::from(of_link);
        Some(LinkView { share: u16::try_from(share).unwrap_or(1_000), ..seen })
    }

    /// Whether somebody asked for a look at a link's connection.
    pub(crate) fn wants_look(&self, id: LinkId) -> bool {
        self.links.get(&id).is_some_and(|link| link.transport.is_asked())
    }

    /// A link's connection was looked at.
    pub(crate) fn saw(&mut self, now: Time, id: LinkId, view: LinkView) {
        if let Some(link) = self.links.get_mut(&id) {
            link.transport.saw(now, view);
        }
    }

    /// Appends the next cell to send, or what the channel has to say.
    pub(crate) fn pop(&mut self, now: Time, id: LinkId, out: &mut Vec<u8>) -> Popped {
        let Some(link) = self.links.get_mut(&id).filter(|link| !link.has_moved()) else {
            return Popped::Nothing;
        };
        if let Some(order) = link.channel.order() {
            order.tick(now);
        }
        if link.channel.has_to_say() {
            let padding = if std::mem::take(&mut link.padded) { NUMBERED_CELL } else { 0 };
            link.quiet.note(now, link.channel.outbox.len() <= padding);
            match out.is_empty() && link.channel.is_sibling() {
                true => std::mem::swap(out, &mut link.channel.outbox),
                false => link.channel.take_outbox(out),
            }
            (link.busiest, link.listing) = (link.lanes.len(), 0);
            return Popped::Own;
        }
        if !link.moved.is_empty() {
            return self.pop_in_turn(now, id, out);
        }
        let popped = link.pop_cell(now, &mut self.pool, out);
        link.told = !matches!(popped, Popped::Nothing);
        if link.keeps_too_much() {
            self.renounce(id);
        }
        popped
    }

    /// Links whose cells bear numbers, and the cells that ever came before their turn.
    pub(crate) fn unordered(&self) -> (usize, u64) {
        let orders = self.links.values().filter(|link| link.channel.cell_order().is_some());
        (orders.count(), self.early + self.links.values().map(Link::early).sum::<u64>())
    }

    /// Cells that wait on all links.
    pub(crate) fn used(&self) -> usize {
        self.pool.used()
    }

    /// The circuit whose first cell waits longest.
    pub(crate) fn oldest(&self) -> Option<Owner> {
        let lanes = self.links.values().flat_map(|link| link.lanes.values());
        let first = |lane: &CircuitQueue| {
            let queues = [&lane.queue, &lane.delivery.kept];
            queues.into_iter().filter_map(|queue| self.pool.oldest(queue)).min()
        };
        let aged = lanes.filter_map(|lane| Some((first(lane)?, lane.owner)));
        aged.min_by_key(|(came, _)| *came).map(|(_, owner)| owner)
    }
}

/// What [`Channels::pop`] gave.
pub(crate) enum Popped {
    /// Nothing: there is nothing.
    Nothing,
    /// What the channel itself says.
    Own,
    /// A cell: whose it was, and how many are left in its queue.
    Cell { owner: Owner, left: usize },
}

impl Link {
    /// Appends the next cell of the link's own circuits.
    fn pop_cell(&mut self, now: Time, pool: &mut Pool, out: &mut Vec<u8>) -> Popped {
        let next = self.policy.next().filter(|_| !self.channel.is_held_back());
        let Some(circuit) = next else { return Popped::Nothing };
        let Some(lane) = self.lanes.get_mut(&circuit) else { return Popped::Nothing };
        let start = out.len();
        match self.detour.as_mut().filter(|detour| detour.keeps()) {
            Some(detour) => {
                pool.pass(&mut lane.queue, &mut lane.delivery.kept, now, out);
                detour.kept += 1;
            }
            None => drop(pool.pop(&mut lane.queue, out)),
        }
        lane.lately.note(now);
        self.lately.note(now);
        if let Some(order) = self.channel.order() {
            // Not before: what is dropped while it waits has no number.
            set_number(out, start, order.number(circuit));
        } else if self.channel.width() == Width::Two {
            // Cells wait with wide circuit IDs.
            out.drain(start..start + 2);
        }
        self.quiet.note(now, false);
        let (owner, left) = (lane.owner, lane.queue.len());
        self.policy.sent(now, circuit, left > 0);
        Popped::Cell { owner, left }
    }

    fn add(&mut self, circuit: u32, owner: Owner) {
        let (queue, lately, delivery) = Default::default();
        self.lanes.insert(circuit, CircuitQueue { owner, queue, lately, delivery });
        self.busiest = self.busiest.max(self.lanes.len());
    }

    /// Of a circuit ID: the bit that tells who made it.
    fn highest_bit(&self) -> u32 {
        match self.channel.width() {
            Width::Two => 1 << 15,
            Width::Four => 1 << 31,
        }
    }

    /// Whether there is something to send.
    fn has_cells(&mut self) -> bool {
        let channel = &self.channel;
        channel.has_to_say() || !channel.is_held_back() && self.policy.next().is_some()
    }

    /// Cells that came before their turn.
    fn early(&self) -> u64 {
        self.channel.cell_order().map_or(0, CellOrder::early)
    }

    /// Circuits on the link.
    pub(crate) fn circuits(&self) -> usize {
        self.lanes.len()
    }

    /// What the rules of padding look at.
    pub(crate) fn seen(&self) -> LinkUse {
        LinkUse {
            is_clients: self.channel.is_clients(),
            usage: self.quiet.usage,
            asked: self.channel.padding,
        }
    }

    /// Whether the neighbour is proved to be this relay, as far as it is known by its keys.
    pub(crate) fn leads_to(&self, target: &Target) -> bool {
        let proven = self.channel.identity().filter(|_| self.channel.is_open());
        proven.is_some_and(|identity| is(&identity, target))
    }
}

/// Whether an identity is the one that a target names.
pub(crate) fn is(identity: &Identity, target: &Target) -> bool {
    let is_named = target.rsa == ANYBODY || identity.rsa == target.rsa;
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

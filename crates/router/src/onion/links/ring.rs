//! A shard's links to the other shards (threads) of its relay. Each pair of shards has two
//! lock-free rings, one for each direction. Each shard has a waker that the other shards use to
//! signal it. Transferring a cell takes no lock; only the tables that all shards share have locks.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_multipath::Time;
use anabranch_onion::LinkId;
use anabranch_onion::claims::Claims;
use anabranch_onion::points::{Point, PointLocation, PointTable, Points};
use anabranch_onion::set_table::{OpaqueLeg, SetLocation, SetTable, Sets};
use anabranch_onion::wire::cell::CELL;
use anabranch_onion::wire::conflux::SetNonce;
use anabranch_os::poller::{Poller, Ready};
use rtrb::{Consumer, Producer, RingBuffer};
use rustix::event::{EventfdFlags, eventfd};

use super::{Carrier, Fetch, LinkEnd, LinkEvent, token};

/// Index of the carrier that owns the links to other shards (threads). Within this carrier, a
/// link's identifier is the other shard's index.
pub(in crate::onion) const CARRIER: u8 = 2;
/// Poller token of the waker that other shards (threads) use to signal this shard.
pub(in crate::onion) const WAKER: u64 = token(CARRIER, 0);
/// Capacity in bytes of a ring buffer between two shards (threads).
const RING: usize = 256 * CELL;
/// Number of bytes that are fetched from the protocol core in one call.
const BATCH: usize = 64 * CELL;

/// Waker of the event loop of a shard (thread). Other threads signal it (eventfd).
pub(in crate::onion) struct Waker {
    file: OwnedFd,
    /// True if the waker was signalled and its thread has not cleared the signal yet. While this
    /// is true, a further signal needs no system call.
    is_pending: AtomicBool,
}

impl Waker {
    fn new() -> io::Result<Waker> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Waker { file: eventfd(0, flags)?, is_pending: AtomicBool::new(false) })
    }

    /// Wakes the thread that owns the waker.
    pub(in crate::onion) fn wake(&self) {
        if !self.is_pending.swap(true, Ordering::AcqRel) {
            // If the counter is full, the owner has a wake-up pending already.
            let _ = rustix::io::write(&self.file, &1u64.to_ne_bytes());
        }
    }

    /// Clears the signal. The thread must call this before it looks for the reason of the signal.
    fn clear(&self) {
        let _ = rustix::io::read(&self.file, &mut [0u8; 8]);
        self.is_pending.swap(false, Ordering::AcqRel);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A shard's access to the other shards (threads) of its relay: ring buffers to and from each of
/// them, and the tables that all shards share.
pub(in crate::onion) struct ShardRings {
    pub(in crate::onion) rings: Rings,
    pub(in crate::onion) claims: ShardClaims,
    points: Arc<Mutex<Points>>,
    sets: Arc<Mutex<Sets>>,
}

/// Carrier of the links from one shard (thread) to the other shards of its relay.
pub(in crate::onion) struct Rings {
    shard: usize,
    waker: Arc<Waker>,
    others: BTreeMap<LinkId, Other>,
    /// Links that the event loop must handle, because they may have received data, or may have
    /// room again to send.
    ready: VecDeque<LinkId>,
}

/// A shard's (thread's) access to the table of neighbouring relays, which all shards share. It
/// shows whether another shard already has a link to a relay.
pub(in crate::onion) struct ShardClaims {
    shard: usize,
    claims: Arc<Mutex<Claims>>,
    /// This shard's links that are recorded in the table of linked relays, each with its relay.
    counted: BTreeMap<LinkId, [u8; 20]>,
}

/// A link to another shard (thread) of the relay.
pub(in crate::onion) struct SiblingLink {
    pub(in crate::onion) link: LinkId,
    /// True if this shard is the first end of the link. The first end is the shard with the lower
    /// index.
    pub(in crate::onion) first: bool,
    /// Index of the other shard (thread of the relay).
    pub(in crate::onion) shard: usize,
}

/// A table that all shards (threads) of a relay share. The lock is held for one operation only.
struct Shared<T>(Arc<Mutex<T>>);

impl<T> Shared<T> {
    fn table(&self) -> MutexGuard<'_, T> {
        // Ignores poisoning: each change is complete before anything can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SetTable for Shared<Sets> {
    fn enter(&mut self, nonce: &SetNonce, place: SetLocation) -> Option<SetLocation> {
        self.table().enter(nonce, place)
    }

    fn find(&self, nonce: &SetNonce) -> Option<SetLocation> {
        self.table().find(nonce)
    }

    fn leave(&mut self, nonce: &SetNonce, place: SetLocation) {
        self.table().leave(nonce, place);
    }

    fn hand_over(&mut self, leg: OpaqueLeg) -> u64 {
        self.table().hand_over(leg)
    }

    fn take_over(&mut self, number: u64) -> Option<OpaqueLeg> {
        self.table().take_over(number)
    }
}

impl PointTable for Shared<Points> {
    fn enter(&mut self, point: Point, place: PointLocation) -> Option<PointLocation> {
        self.table().enter(point, place)
    }

    fn find(&self, point: &Point) -> Option<PointLocation> {
        self.table().find(point)
    }

    fn leave(&mut self, point: &Point, place: PointLocation) {
        self.table().leave(point, place);
    }
}

/// Another shard (thread) as seen from this shard: its waker, and the ring buffers to it and from
/// it.
struct Other {
    waker: Arc<Waker>,
    out: RingEnd<Producer<u8>>,
    into: RingEnd<Consumer<u8>>,
    /// Bytes that were fetched from the protocol core and are not in the ring buffer yet.
    rest: Vec<u8>,
    /// True if the core (the protocol state of the relay) has more data to send.
    has_output: bool,
}

/// The writing or the reading end of a ring buffer between two shards (threads).
struct RingEnd<End> {
    ring: End,
    /// True if the ring buffer is full and the writer waits for a signal from the reader.
    full: Arc<AtomicBool>,
}

/// Returns, for each of `count` shards (threads) of one relay, its access to the other shards.
/// Creates ring buffers between all pairs of shards.
///
/// # Errors
/// A system call fails, for example because file descriptors run out.
pub(in crate::onion) fn shards(count: usize) -> io::Result<Vec<ShardRings>> {
    let wakers = (0..count).map(|_| Waker::new().map(Arc::new)).collect::<io::Result<Vec<_>>>()?;
    let (claims, points, sets) = (Arc::default(), Arc::default(), Arc::default());
    let mut shards: Vec<ShardRings> = (0..count)
        .map(|shard| ShardRings {
            rings: Rings {
                shard,
                waker: Arc::clone(&wakers[shard]),
                others: BTreeMap::new(),
                ready: VecDeque::new(),
            },
            claims: ShardClaims { shard, claims: Arc::clone(&claims), counted: BTreeMap::new() },
            points: Arc::clone(&points),
            sets: Arc::clone(&sets),
        })
        .collect();
    for one in 0..count {
        for two in one + 1..count {
            let ((there, arrives), (back, returns)) = (way(), way());
            shards[one].rings.meet(two, &wakers[two], there, returns);
            shards[two].rings.meet(one, &wakers[one], back, arrives);
        }
    }
    Ok(shards)
}

/// Creates a ring buffer for one direction, and returns its two ends.
fn way() -> (RingEnd<Producer<u8>>, RingEnd<Consumer<u8>>) {
    let (writer, reader) = RingBuffer::new(RING);
    let full = Arc::default();
    (RingEnd { ring: writer, full: Arc::clone(&full) }, RingEnd { ring: reader, full })
}

/// Returns the link from this shard to the shard (thread of the relay) with the index `shard`.
fn sibling(shard: usize) -> LinkId {
    LinkId::new(CARRIER, shard as u64)
}

impl ShardRings {
    /// Returns the waker of this shard (thread). Other shards use it to signal this shard.
    pub(in crate::onion) fn waker(&self) -> &Arc<Waker> {
        &self.rings.waker
    }

    /// Returns the index of this shard (thread of the relay).
    pub(in crate::onion) fn shard(&self) -> usize {
        self.rings.shard
    }

    /// Returns the table of introduction and rendezvous points that all shards (threads of the
    /// relay) share.
    pub(in crate::onion) fn points(&self) -> Box<dyn PointTable> {
        Box::new(Shared(Arc::clone(&self.points)))
    }

    /// Returns the table of sets (circuits that carry the same streams). All shards (threads of
    /// the relay) share the table.
    pub(in crate::onion) fn sets(&self) -> Box<dyn SetTable> {
        Box::new(Shared(Arc::clone(&self.sets)))
    }
}

impl Rings {
    fn meet(
        &mut self,
        shard: usize,
        waker: &Arc<Waker>,
        out: RingEnd<Producer<u8>>,
        into: RingEnd<Consumer<u8>>,
    ) {
        let waker = Arc::clone(waker);
        let other = Other { waker, out, into, rest: Vec::new(), has_output: false };
        self.others.insert(sibling(shard), other);
    }

    /// Returns the waker of this shard (thread). Other shards use it to signal this shard.
    pub(in crate::onion) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Returns this shard's links to all other shards (threads of the relay).
    pub(in crate::onion) fn links(&self) -> Vec<SiblingLink> {
        let own = sibling(self.shard);
        let link = |link: &LinkId| SiblingLink {
            link: *link,
            first: own < *link,
            shard: link.number() as usize,
        };
        self.others.keys().map(link).collect()
    }
}

impl Carrier for Rings {
    fn has(&self, link: LinkId) -> bool {
        self.others.contains_key(&link)
    }

    /// Returns 0: links to other shards connect threads of the same relay, so they do not count as
    /// links.
    fn len(&self) -> usize {
        0
    }

    /// Returns 0 for both directions, because the data is transferred in memory and not over the
    /// network.
    fn transferred(&self) -> [u64; 2] {
        [0; 2]
    }

    fn stale(&mut self, _now: Time) -> Vec<LinkId> {
        Vec::new()
    }

    fn next_timeout(&self) -> Option<Time> {
        None
    }

    fn resume(&mut self, _now: Time, _poller: &Poller) -> Vec<LinkId> {
        Vec::new()
    }

    fn receive(&mut self, _now: Time, _poller: &Poller, _file: u64, _ready: Ready) {
        self.waker.clear();
        self.ready.clear();
        self.ready.extend(self.others.keys());
    }

    fn next_news(&mut self, _now: Time, give: &mut dyn FnMut(LinkId, &[u8])) -> Option<LinkEvent> {
        let link = self.ready.pop_front()?;
        self.others.get_mut(&link)?.take(|bytes| give(link, bytes));
        Some(LinkEvent::Served(link))
    }

    fn wants(&mut self, link: LinkId) {
        if let Some(other) = self.others.get_mut(&link) {
            other.has_output = true;
        }
    }

    fn flush(&mut self, _now: Time, _poller: &Poller, link: LinkId, fetch: &mut Fetch<'_>) -> bool {
        if let Some(other) = self.others.get_mut(&link) {
            other.flush(fetch);
        }
        true
    }

    /// Does nothing, because links between shards exist as long as the shards.
    fn close(&mut self, _link: LinkId) {}

    fn end(&mut self, _now: Time, _poller: &Poller, _link: LinkId) -> LinkEnd {
        LinkEnd::Unknown
    }
}

impl ShardClaims {
    /// Reserves the relay `neighbour` for a new link of this shard (thread). If another shard has
    /// a link to the relay or has reserved it, returns the link to that shard. Otherwise returns
    /// `None`; the caller should then dial the relay, and call [`ShardClaims::count`] or
    /// [`ShardClaims::failed`].
    pub(in crate::onion) fn claim(&self, neighbour: [u8; 20]) -> Option<LinkId> {
        let shard = self.claims().claim(neighbour, self.shard);
        (shard != self.shard).then_some(sibling(shard))
    }

    /// Records `link` in the table of linked relays as the link to the relay `neighbour`. The
    /// caller must have claimed this relay.
    pub(in crate::onion) fn count(&mut self, link: LinkId, neighbour: [u8; 20]) {
        self.counted.insert(link, neighbour);
    }

    /// Releases the reservation of `neighbour` by [`ShardClaims::claim`], because no link to that
    /// relay can be opened.
    pub(in crate::onion) fn failed(&self, neighbour: [u8; 20]) {
        self.claims().gone(neighbour, self.shard);
    }

    /// Records the open link `link` to the relay `neighbour` in the table of linked relays. Does
    /// nothing if [`ShardClaims::count`] has already recorded it.
    pub(in crate::onion) fn opened(&mut self, link: LinkId, neighbour: [u8; 20]) {
        if !self.counted.contains_key(&link) {
            self.claims().link_opened(neighbour, self.shard);
            self.counted.insert(link, neighbour);
        }
    }

    /// Records in the table of linked relays that the link `by` was opened in place of `link`.
    pub(in crate::onion) fn replaced(&mut self, link: LinkId, by: LinkId) {
        if let Some(neighbour) = self.counted.remove(&link) {
            self.counted.insert(by, neighbour);
        }
    }

    /// Removes the closed link `link` from the table of linked relays.
    pub(in crate::onion) fn gone(&mut self, link: LinkId) {
        if let Some(neighbour) = self.counted.remove(&link) {
            self.failed(neighbour);
        }
    }

    fn claims(&self) -> MutexGuard<'_, Claims> {
        // Ignores poisoning: each change is complete before anything can panic.
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Other {
    fn flush(&mut self, mut fetch: impl FnMut(&mut Vec<u8>, usize) -> bool) {
        let mut sent = false;
        loop {
            let before = self.rest.len();
            self.write();
            sent |= self.rest.len() < before;
            if !self.rest.is_empty() || !self.has_output {
                break;
            }
            self.has_output = fetch(&mut self.rest, BATCH);
            if self.rest.is_empty() {
                break;
            }
        }
        if sent {
            self.waker.wake();
        }
    }

    /// Moves bytes from `rest` into the ring buffer. If there is not enough room, asks the reader
    /// for a signal once there is room.
    fn write(&mut self) {
        self.push();
        if !self.rest.is_empty() {
            self.out.full.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            // The reader may have made room just before the flag was set, so a second attempt is
            // needed.
            self.push();
        }
    }

    fn push(&mut self) {
        let (pushed, _) = self.out.ring.push_partial_slice(&self.rest);
        let pushed = pushed.len();
        self.rest.drain(..pushed);
    }

    fn take(&mut self, mut give: impl FnMut(&[u8])) {
        let ring = &mut self.into.ring;
        let Ok(chunk) = ring.read_chunk(ring.slots()) else { return };
        let (first, second) = chunk.as_slices();
        [first, second].into_iter().filter(|piece| !piece.is_empty()).for_each(&mut give);
        chunk.commit_all();
        fence(Ordering::SeqCst);
        if self.into.full.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use anabranch_os::poller::Poller;

    const ANN: [u8; 20] = [1; 20];

    fn two() -> [ShardRings; 2] {
        shards(2).unwrap().try_into().ok().unwrap()
    }

    #[test]
    fn each_shard_has_a_link_to_each_other_and_the_ends_differ() {
        let shards = shards(3).unwrap();
        let ends: Vec<_> = shards.iter().map(|shard| shard.rings.links()).collect();
        assert!(ends.iter().flatten().all(|end| end.link.carrier() == CARRIER));
        let first = |shard: usize| ends[shard].iter().filter(|end| end.first).count();
        assert_eq!([first(0), first(1), first(2)], [2, 1, 0]);
        assert!(shards_alone().rings.links().is_empty());
    }

    fn shards_alone() -> ShardRings {
        shards(1).unwrap().pop().unwrap()
    }

    /// Waits until this shard is signalled, and passes the received bytes to `give`.
    fn hear(rings: &mut Rings, poller: &mut Poller, mut give: impl FnMut(&[u8])) {
        let ready: Vec<Ready> = poller.wait(None).unwrap().collect();
        for event in ready {
            rings.receive(Time::ZERO, poller, 0, event);
        }
        while rings.next_news(Time::ZERO, &mut |_, bytes| give(bytes)).is_some() {}
    }

    /// Sends `bytes` bytes, which are more than the ring buffer holds. Continues at each signal
    /// that there is room.
    fn send(shard: ShardRings, bytes: u64) {
        let (mut rings, mut poller) = (shard.rings, Poller::new(4).unwrap());
        poller.add(&*rings.waker, WAKER).unwrap();
        let link = rings.links()[0].link;
        let mut next = 0u64;
        let mut fetch = |out: &mut Vec<u8>, limit: usize| {
            while out.len() < limit && next < bytes {
                out.push(next as u8);
                next += 1;
            }
            next < bytes
        };
        rings.wants(link);
        rings.flush(Time::ZERO, &poller, link, &mut fetch);
        while rings.others[&link].has_output || !rings.others[&link].rest.is_empty() {
            hear(&mut rings, &mut poller, |_| ());
            rings.flush(Time::ZERO, &poller, link, &mut fetch);
        }
    }

    #[test]
    fn what_one_thread_sends_comes_to_the_other_whole_and_in_order() {
        const BYTES: u64 = 20 * RING as u64;
        let [from, mut to] = two();
        let sender = thread::spawn(move || send(from, BYTES));
        let mut poller = Poller::new(4).unwrap();
        poller.add(&*to.rings.waker, WAKER).unwrap();
        let mut received = 0u64;
        while received < BYTES {
            hear(&mut to.rings, &mut poller, |bytes| {
                for byte in bytes {
                    assert_eq!(*byte, received as u8);
                    received += 1;
                }
            });
        }
        sender.join().unwrap();
    }

    #[test]
    fn a_shard_goes_by_the_link_that_another_has() {
        let [ShardRings { claims: mut one, .. }, ShardRings { claims: mut two, .. }] = two();
        assert_eq!(one.claim(ANN), None);
        one.count(LinkId::new(0, 7), ANN);
        assert_eq!(two.claim(ANN), Some(sibling(0)));
        one.gone(LinkId::new(0, 7));
        assert_eq!(two.claim(ANN), None, "and opens one when that is gone");
        two.count(LinkId::new(0, 3), ANN);
        assert_eq!(one.claim(ANN), Some(sibling(1)));
        two.gone(LinkId::new(0, 3));
        assert_eq!(one.claim(ANN), None);
    }
}

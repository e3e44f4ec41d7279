//! A server: the links of many clients, and the connections that join these links.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_multipath::schedule::Spec;
use rand_core::CryptoRng;

use crate::budget::Budget;
use crate::client::{Ending, SURVIVES, draw, splitter};
use crate::cover::{ConnId, Cover, Input};
use crate::handshake::{ANSWER, Doorman, HELLO};
use crate::keys::ServerKey;
use crate::link::{Link, LinkViolation, Opening, Side};
use crate::slot::{Covers, Hidden, Profile, Scene};
use crate::token::{LinkTokens, TOKEN, TokenTable};

#[cfg(test)]
mod tests;

/// Maximum number of simultaneous connections of a link.
pub(crate) const PLACES: usize = 64;
/// Time after which a held request is answered if another one is held too, even without data.
const ENOUGH: Duration = Duration::from_millis(50);
/// Time for which a finished link is remembered. Its client may return because the last
/// acknowledgement was lost.
const LINGERS: Duration = Duration::from_secs(20);
/// Maximum number of finished links that are remembered. Beyond it the oldest is forgotten: at 500
/// links a second it is 4 s old, and its client gives up after 5 s.
const FINISHED: usize = 2_000;
/// Number of tokens of a finished link that are awaited before and after the greatest received one.
const LATE_TOKENS: u32 = 32;

/// Identifier of a link; it is not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub u64);

/// An action that a server requests from its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerOutput {
    /// Write these bytes to the connection.
    Send(ConnId, Vec<u8>),
    /// Close the connection after writing what is queued.
    Close(ConnId),
    /// The connection is not from a client of this server. The bytes are all that it has sent so
    /// far, and the server ignores later ones.
    Stranger(ConnId, Vec<u8>),
    /// A client opened a link.
    Opened(LinkId),
    /// A link may have data to read, or room to write.
    Ready(LinkId),
    /// A link is over.
    Over(LinkId, Ending),
}

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The server's key pair.
    pub key: ServerKey,
    /// The profile that the bridge line names.
    pub profile: Profile,
    /// The scheduler that chooses the connection of the next chunk.
    pub schedule: Spec,
    /// Time at the start of the run, in seconds since 1970. [`Server::set_wall`] corrects it.
    pub wall: u64,
    /// Whether AES is fast on this machine.
    pub aes: bool,
    /// Maximum bytes that all links together may store, in both directions. Half of it is for
    /// windows beyond 1 MiB. A quarter is divided among the links, for data that wait for clients.
    /// If the links store more, the server closes the link that most exceeds its allowance: its
    /// share, and what it has taken from the budget.
    pub memory: usize,
    /// Maximum number of simultaneous links. Finished links that are remembered do not count.
    pub links: usize,
    /// Data from which the covers are made, and in which answers hide bytes.
    pub covers: Covers,
}

/// The server's end of the links of many clients.
pub struct Server<R> {
    config: ServerConfig,
    scene: Arc<Scene>,
    rng: R,
    doorman: Doorman,
    awaited: TokenTable,
    links: BTreeMap<LinkId, Host>,
    /// Finished links, with the times at which both streams had ended.
    finished: BTreeSet<(Time, LinkId)>,
    next_link: u64,
    conns: BTreeMap<ConnId, Guest>,
    outputs: VecDeque<ServerOutput>,
    budget: Budget,
    /// Approximate bytes of memory of all links together.
    kept: usize,
    /// Links that had an event since they were last processed.
    touched: BTreeSet<LinkId>,
    /// Time at which each link has to be processed next, unless an event occurs before.
    timers: BTreeSet<(Time, LinkId)>,
}

/// A link, with its tokens and its connections.
struct Host {
    link: Link,
    tokens: LinkTokens,
    places: Vec<Option<ConnId>>,
    /// Time at which the link's client was last heard.
    heard: Time,
    /// Time at which both streams had ended; `None` before.
    done: Option<Time>,
    timer: Time,
    /// Approximate bytes of memory that the link used when it was last processed.
    kept: usize,
}

struct Guest {
    cover: Cover,
    seat: Seat,
    /// Bytes of the current exchange as received, while the connection's client is unknown.
    raw: Vec<u8>,
}

/// The link that a connection belongs to.
enum Seat {
    /// The link is not known yet. The bytes are the hidden ones received so far.
    Unknown(Vec<u8>),
    Joined {
        link: LinkId,
        place: usize,
        skip: usize,
    },
    Stranger,
}

impl<R: CryptoRng> Server<R> {
    /// Creates a server without links.
    #[must_use]
    pub fn new(config: ServerConfig, rng: R) -> Server<R> {
        Server {
            budget: Budget::new(config.memory / 2),
            kept: 0,
            scene: Arc::new(Scene::new(
                &config.key.public(),
                String::new(),
                config.wall,
                config.covers.clone(),
            )),
            config,
            rng,
            doorman: Doorman::default(),
            awaited: TokenTable::default(),
            links: BTreeMap::new(),
            finished: BTreeSet::new(),
            next_link: 0,
            conns: BTreeMap::new(),
            outputs: VecDeque::new(),
            touched: BTreeSet::new(),
            timers: BTreeSet::new(),
        }
    }

    /// Corrects the time at the start of the run, after the machine's clock was set. `wall` is in
    /// seconds since 1970. Existing connections keep their earlier value.
    pub fn set_wall(&mut self, wall: u64) {
        // A difference of one second may be due to rounding.
        if wall.abs_diff(self.config.wall) > 1 {
            self.config.wall = wall;
            self.scene = Arc::new(Scene { wall, ..Scene::clone(&self.scene) });
        }
    }

    /// Processes an event of a connection.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Opened(id) => {
                let cover = Cover::new(self.config.profile.server_slot(&self.scene));
                let guest = Guest { cover, seat: Seat::Unknown(Vec::new()), raw: Vec::new() };
                self.conns.insert(id, guest);
            }
            Input::Bytes(id, bytes) => self.receive(now, id, bytes),
            Input::Room(id, room) => {
                let Some(guest) = self.conns.get_mut(&id) else { return };
                guest.cover.socket = room;
                if let Seat::Joined { link, .. } = guest.seat {
                    self.touched.insert(link);
                }
            }
            Input::Closed(id) => self.gone(now, id),
        }
    }

    /// Accepts bytes for a client. Returns how many were accepted.
    pub fn write(&mut self, link: LinkId, bytes: &[u8]) -> usize {
        let host = self.links.get_mut(&link);
        let taken = host.map_or(0, |host| host.link.write(bytes, &mut self.budget));
        if taken > 0 {
            self.touched.insert(link);
        }
        taken
    }

    /// Returns the number of bytes that [`Server::write`] accepts now.
    #[must_use]
    pub fn room(&self, link: LinkId) -> usize {
        self.links.get(&link).map_or(0, |host| host.link.room(&self.budget))
    }

    /// Returns the next bytes from a client; `None` if there are none.
    pub fn read(&mut self, now: Time, link: LinkId) -> Option<Vec<u8>> {
        let host = self.links.get_mut(&link)?;
        let bytes = host.link.read(now, &mut self.budget);
        if bytes.is_some() {
            self.touched.insert(link);
        }
        bytes
    }

    /// Returns whether the client's stream has ended and has been read completely.
    #[must_use]
    pub fn has_ended(&self, link: LinkId) -> bool {
        self.links.get(&link).is_none_or(|host| host.link.has_ended())
    }

    /// Ends the stream to a client, after the data written so far.
    pub fn finish(&mut self, link: LinkId) {
        self.touched.insert(link);
        if let Some(host) = self.links.get_mut(&link) {
            host.link.finish();
        }
    }

    /// Resets a link at once.
    pub fn reset(&mut self, link: LinkId) {
        self.touched.insert(link);
        if let Some(host) = self.links.get_mut(&link) {
            host.link.reset();
        }
    }

    /// Returns the number of links.
    #[must_use]
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// Returns the next action for the driver; `None` if there is none.
    pub fn poll(&mut self, now: Time) -> Option<ServerOutput> {
        if self.outputs.is_empty() {
            while let Some(&(due, link)) = self.timers.first().filter(|(due, _)| now >= *due) {
                self.timers.remove(&(due, link));
                self.touched.insert(link);
            }
            while let Some(link) = self.touched.pop_first() {
                self.work(now, link);
            }
            while self.finished.len() > FINISHED {
                self.forget_oldest();
            }
            while self.kept > self.config.memory {
                self.crowd_out(now);
            }
        }
        self.outputs.pop_front()
    }

    /// Returns the time by which [`Server::poll`] has to be called next.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        self.timers.first().map(|(due, _)| *due)
    }

    fn minute(&self, now: Time) -> u32 {
        let seconds = self.config.wall + now.since(Time::ZERO).as_secs();
        u32::try_from(seconds / 60).unwrap_or(u32::MAX)
    }

    /// Does all work of a link that is due at `now`.
    fn work(&mut self, now: Time, id: LinkId) {
        let mut host = self.links.remove(&id).expect("it was found");
        self.timers.remove(&(host.timer, id));
        for place in host.link.evicted() {
            let Some(stale) = host.places[place].take() else { continue };
            self.conns.remove(&stale);
            self.outputs.push_back(ServerOutput::Close(stale));
        }
        host.link.tick(now);
        host.link.settle(&mut self.budget);
        self.flush(now, &mut host);
        if host.link.is_done() && host.link.has_ended() {
            if self.config.profile.family().streams {
                self.hang_up(&mut host);
            }
            if host.done.is_none() {
                // The client may return over any of its connections, but only because of a lost
                // acknowledgement.
                host.link.shrink();
                self.awaited.trim(&mut host.tokens, LATE_TOKENS);
                self.finished.insert((now, id));
            }
            host.done = Some(host.done.unwrap_or(now));
        }
        let done = host.done.is_some_and(|since| now >= since + LINGERS);
        let ending = match (done, host.link.is_reset()) {
            (true, _) => Some(Ending::Done),
            (_, true) => Some(Ending::Reset),
            _ => (now >= host.heard + SURVIVES).then_some(Ending::Lost),
        };
        if let Some(ending) = ending {
            return self.end(id, host, ending);
        }
        let (came, goes) = host.link.kept();
        let kept = came + goes;
        self.kept = self.kept - host.kept + kept;
        host.kept = kept;
        host.timer = self.timer(now, &host);
        self.timers.insert((host.timer, id));
        self.links.insert(id, host);
        self.outputs.push_back(ServerOutput::Ready(id));
    }

    fn timer(&self, now: Time, host: &Host) -> Time {
        let guests = host.places.iter().flatten().filter_map(|conn| self.conns.get(conn));
        let slots = guests.filter_map(|guest| guest.cover.due());
        let slots = slots.chain(self.overdue(host).map(|(due, _)| due));
        let done = host.done.map(|since| since + LINGERS);
        let waits = host.link.next_timeout(now).into_iter().chain(done).chain(slots);
        waits.chain([host.heard + SURVIVES]).min().unwrap_or(Time::MAX)
    }

    /// Closes the link that exceeds its allowance most: its share, and what it has taken from the
    /// budget.
    fn crowd_out(&mut self, now: Time) {
        let budget = self.budget;
        let fullest = self.links.iter().max_by_key(|(_, host)| host.link.excess(&budget));
        let id = *fullest.expect("a link keeps what is kept").0;
        let mut host = self.links.remove(&id).expect("it was found");
        self.timers.remove(&(host.timer, id));
        host.link.reset();
        self.flush(now, &mut host);
        self.end(id, host, Ending::Crowded);
    }

    /// Ends the link that has been finished for the longest time.
    fn forget_oldest(&mut self) {
        let Some(&(_, id)) = self.finished.first() else { return };
        let host = self.links.remove(&id).expect("a finished link is a link");
        self.timers.remove(&(host.timer, id));
        self.end(id, host, Ending::Done);
    }

    fn end(&mut self, id: LinkId, mut host: Host, ending: Ending) {
        if let Some(done) = host.done {
            self.finished.remove(&(done, id));
        }
        self.kept -= host.kept;
        host.link.release(&mut self.budget);
        self.divide();
        self.awaited.remove(&host.tokens);
        self.hang_up(&mut host);
        self.outputs.push_back(ServerOutput::Over(id, ending));
    }

    /// Sets the share of each link: the bytes that it may store without taking from the budget.
    fn divide(&mut self) {
        let live = self.links.len() - self.finished.len();
        if self.budget.divide(self.config.memory / 4, live) {
            self.links.values_mut().for_each(|host| host.link.settle(&mut self.budget));
        }
    }

    /// Closes a link's connections after their queued bytes have been written.
    fn hang_up(&mut self, host: &mut Host) {
        for (place, conn) in host.places.iter_mut().enumerate() {
            let Some(conn) = conn.take() else { continue };
            host.link.over(place);
            self.conns.remove(&conn);
            self.outputs.push_back(ServerOutput::Close(conn));
        }
    }

    /// Seals data that waits for a client, and sends it.
    fn flush(&mut self, now: Time, host: &mut Host) {
        let (mut rooms, mut spares) = (vec![0; PLACES], vec![0; PLACES]);
        for (place, conn) in host.places.iter().enumerate() {
            let guest = conn.and_then(|conn| self.conns.get_mut(&conn));
            let held = host.link.held_at(place);
            let Some(guest) = guest else { continue };
            rooms[place] = guest.cover.room(now, held);
            spares[place] = guest.cover.slot.spare();
        }
        host.link.deal(now, &mut rooms, &spares);
        let enough: Vec<_> = self.overdue(host).filter(|(due, _)| now >= *due).collect();
        for place in 0..PLACES {
            let Some(conn) = host.places[place] else { continue };
            let Some(guest) = self.conns.get_mut(&conn) else { continue };
            let forced = enough.iter().any(|(_, late)| *late == place);
            let said = guest.cover.emit(now, &mut host.link, (place, forced));
            let Some((out, over)) = said else { continue };
            self.outputs.push_back(ServerOutput::Send(conn, out));
            if !over {
                continue;
            }
            host.places[place] = None;
            host.link.over(place);
            // The next exchange may belong to another client, because a proxy may combine several
            // clients.
            guest.seat = Seat::Unknown(Vec::new());
            // The client closes streaming connections, because it knows when everything has
            // arrived.
            if guest.cover.slot.is_spent() {
                self.conns.remove(&conn);
                self.outputs.push_back(ServerOutput::Close(conn));
            }
        }
    }

    /// Returns the time by which each held request of a link has to be answered, even without data,
    /// and the request's place. Excludes the oldest request, which is held for future data, unless
    /// the link is done. Answers to the other requests let the client send again.
    fn overdue(&self, host: &Host) -> impl Iterator<Item = (Time, usize)> + use<R> {
        let done = host.link.is_done() && host.link.has_ended();
        let (kept, enough) = if done { (0, Duration::ZERO) } else { (1, ENOUGH) };
        let since = |(place, conn): (usize, &Option<ConnId>)| {
            Some((self.conns.get(&(*conn)?)?.cover.slot.since()?, place))
        };
        let mut waiting: Vec<_> = host.places.iter().enumerate().filter_map(since).collect();
        waiting.sort_unstable();
        waiting.into_iter().skip(kept).map(move |(since, place)| (since + enough, place))
    }

    fn gone(&mut self, now: Time, id: ConnId) {
        let Some(guest) = self.conns.remove(&id) else { return };
        self.leave(now, &guest.seat);
    }

    /// Removes a connection from its link.
    fn leave(&mut self, now: Time, seat: &Seat) {
        let Seat::Joined { link, place, .. } = seat else { return };
        let Some(host) = self.links.get_mut(link) else { return };
        host.places[*place] = None;
        host.link.lost(now, *place);
        self.touched.insert(*link);
    }

    fn receive(&mut self, now: Time, id: ConnId, bytes: &[u8]) {
        let Some(Guest { mut cover, mut seat, mut raw }) = self.conns.remove(&id) else { return };
        match seat {
            Seat::Stranger => {
                self.conns.insert(id, Guest { cover, seat, raw });
                return;
            }
            Seat::Unknown(_) => raw.extend_from_slice(bytes),
            Seat::Joined { .. } => {}
        }
        let mut broken = false;
        let mut each = |hidden: Hidden<'_>| {
            broken = broken || self.hidden(now, id, &mut seat, hidden).is_err();
        };
        broken |= cover.slot.receive(now, bytes, &mut each).is_err();
        if broken {
            self.leave(now, &seat);
            let raw = match seat {
                Seat::Unknown(_) => std::mem::take(&mut raw),
                _ => Vec::new(),
            };
            self.outputs.push_back(ServerOutput::Stranger(id, raw));
            seat = Seat::Stranger;
        }
        if !matches!(seat, Seat::Unknown(_)) {
            raw = Vec::new();
        }
        self.conns.insert(id, Guest { cover, seat, raw });
    }

    /// Returns the bytes received over a connection whose client is not known yet; `None` if the
    /// client is known.
    #[must_use]
    pub fn said(&self, id: ConnId) -> Option<&[u8]> {
        let guest = self.conns.get(&id)?;
        matches!(guest.seat, Seat::Unknown(_)).then_some(&guest.raw)
    }

    /// Returns whether a client of this server has identified itself over the connection.
    #[must_use]
    pub fn is_ours(&self, id: ConnId) -> bool {
        self.conns.get(&id).is_some_and(|guest| matches!(guest.seat, Seat::Joined { .. }))
    }

    /// Treats a connection whose client is not known yet as that of a stranger. Returns the bytes
    /// received; `None` if the client is known.
    pub fn give_up(&mut self, id: ConnId) -> Option<Vec<u8>> {
        let guest = self.conns.get_mut(&id)?;
        matches!(guest.seat, Seat::Unknown(_)).then(|| {
            guest.seat = Seat::Stranger;
            std::mem::take(&mut guest.raw)
        })
    }

    fn hidden(
        &mut self,
        now: Time,
        id: ConnId,
        seat: &mut Seat,
        hidden: Hidden<'_>,
    ) -> Result<(), LinkViolation> {
        match (hidden, &mut *seat) {
            // The client's half of the exchange is complete, so no token or HELLO will follow.
            (Hidden::End, Seat::Unknown(_)) => Err(LinkViolation),
            (Hidden::End, _) => Ok(()),
            (Hidden::Bytes(bytes), Seat::Unknown(came)) => {
                came.extend_from_slice(bytes);
                self.recognise(now, id, seat)
            }
            (Hidden::Bytes(bytes), Seat::Joined { .. }) => self.joined(now, seat, bytes),
            (Hidden::Bytes(_), Seat::Stranger) => Ok(()),
        }
    }

    /// Passes bytes from a connection to the link that it belongs to.
    fn joined(&mut self, now: Time, seat: &mut Seat, bytes: &[u8]) -> Result<(), LinkViolation> {
        let Seat::Joined { link, place, skip } = seat else { return Ok(()) };
        let Some(host) = self.links.get_mut(link) else { return Err(LinkViolation) };
        let skipped = (*skip).min(bytes.len());
        *skip -= skipped;
        self.touched.insert(*link);
        if host.link.came(now, *place, &bytes[skipped..])? > 0 {
            host.heard = now;
        }
        Ok(())
    }

    /// Checks whether the first bytes of a connection are a token or a handshake.
    fn recognise(&mut self, now: Time, id: ConnId, seat: &mut Seat) -> Result<(), LinkViolation> {
        let Seat::Unknown(came) = &*seat else { return Ok(()) };
        let Some((token, rest)) = came.split_first_chunk::<TOKEN>() else { return Ok(()) };
        if let Some((link, number)) = self.awaited.take(token) {
            let rest = rest.to_vec();
            self.join(now, id, (LinkId(link), number), seat)?;
            return self.joined(now, seat, &rest);
        }
        let Some((hello, rest)) = came.split_first_chunk::<HELLO>() else { return Ok(()) };
        let rest = rest.to_vec();
        let minute = self.minute(now);
        let welcome = self.doorman.read(&self.config.key, minute, hello).ok_or(LinkViolation)?;
        let skip = usize::from(welcome.padding);
        let padding = draw(&mut self.rng, self.config.profile.family().padding);
        let mut answer = Vec::with_capacity(ANSWER + usize::from(padding));
        let full = self.links.len() - self.finished.len() >= self.config.links;
        (!full).then_some(()).ok_or(LinkViolation)?;
        let own = (self.config.aes, padding);
        let secrets = welcome.answer(own, &mut self.rng, &mut answer).ok_or(LinkViolation)?;
        let splitter = splitter(&self.config.schedule, PLACES, &mut self.rng);
        let profile = self.config.profile;
        let mut link = Link::new(&secrets, Side::Server, (splitter, PLACES), profile);
        link.allow_pauses((profile.family().pauses)(&self.config.covers));
        link.open(now, (0, 0), Opening::Waits, &answer);
        let number = self.next_link;
        self.next_link += 1;
        let mut places = vec![None; PLACES];
        places[0] = Some(id);
        let tokens = self.awaited.add(number, &secrets.tokens);
        let timer = Time::MAX;
        let host = Host { link, tokens, places, heard: now, done: None, timer, kept: 0 };
        self.links.insert(LinkId(number), host);
        self.divide();
        self.outputs.push_back(ServerOutput::Opened(LinkId(number)));
        *seat = Seat::Joined { link: LinkId(number), place: 0, skip };
        self.joined(now, seat, &rest)
    }

    /// Adds a connection to the link whose token it has sent.
    fn join(
        &mut self,
        now: Time,
        id: ConnId,
        (link, number): (LinkId, u32),
        seat: &mut Seat,
    ) -> Result<(), LinkViolation> {
        let streams = self.config.profile.family().streams;
        let host = self.links.get_mut(&link).ok_or(LinkViolation)?;
        self.awaited.came(&mut host.tokens, number);
        let free = host.places.iter().position(Option::is_none);
        // The client has fewer connections than there are places, so some have failed unnoticed.
        let place = free.or_else(|| host.link.stalest()).ok_or(LinkViolation)?;
        if let Some(stale) = host.places[place].replace(id) {
            self.conns.remove(&stale);
            self.outputs.push_back(ServerOutput::Close(stale));
        }
        host.heard = now;
        let opening = if streams { Opening::Answers } else { Opening::Waits };
        host.link.open(now, (place, u64::from(number) + 1), opening, &[]);
        *seat = Seat::Joined { link, place, skip: 0 };
        self.touched.insert(link);
        Ok(())
    }
}

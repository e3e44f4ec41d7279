//! A model of a server that follows its client to another address by the rules of real programs.
//! The module also models the client's traffic, and pauses of a program or of the whole machine.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use anabranch_comps::Config;
use anabranch_multipath::Time;
use anabranch_multipath::seed::{Stream, stream};
use anabranch_netem::LinkSettings;
use rand::RngExt as _;

use super::{DELAY, SeenAddress, Server, World, client, numbered};

const MS: Duration = Duration::from_millis(1);
/// Time without a datagram after which either end of a bulk transfer sends a probe.
const PROBE: Duration = Duration::from_millis(60);

/// Traffic that the modelled server sends to its client.
#[derive(Clone, Copy, Debug)]
pub enum ServerTraffic {
    /// The server sends one answer to each datagram of the client.
    Echo,
    /// The server sends a download: ten datagrams at first, and then one for each acknowledgement.
    /// For every fourth acknowledgement it sends one more, until 400 are in flight.
    Bulk,
}

/// Condition under which a server starts to use another address of its client.
#[derive(Clone, Copy, Debug)]
pub enum MigrationRule {
    /// The server changes at the first datagram from the new address, like WireGuard.
    Always,
    /// The server changes after it has validated the address for a round trip, like quinn. It
    /// validates each address only once.
    Validated,
    /// The server changes after it has validated the address for a round trip. It validates an
    /// address again at each change. It does not change if, during the validation, a newer
    /// datagram arrives from its current address.
    Revalidated,
    /// The server changes at the first datagram from the new address, but only this number of
    /// times, like quic-go up to 0.64.1.
    Times(usize),
    /// The server changes at most once in two seconds, like Nebula.
    EachTwoSeconds,
}

/// A program or machine that sometimes pauses for 200 to 800 ms, as if it waited for a CPU.
#[derive(Clone, Copy, Debug)]
pub enum StalledPart {
    /// The machine of client and server pauses: nothing is sent, received or answered.
    Host,
    /// The server pauses: datagrams that arrive during the pause are processed when it ends.
    Server,
    /// The client's program pauses: it sends its datagrams after the pause.
    Program,
}

/// A server of one session that follows its client to other addresses by a rule of
/// [`MigrationRule`].
pub struct Moving {
    moves: MigrationRule,
    traffic: ServerTraffic,
    answers_to: Option<SeenAddress>,
    moved: Time,
    changes: usize,
    /// For each client address, the time at which its validation began.
    challenged: BTreeMap<SeenAddress, Time>,
    /// The address that is being validated, and the time at which the validation began; `None` if
    /// no address is being validated.
    candidate: Option<(SeenAddress, Time)>,
    newest: Vec<u8>,
    window: usize,
    received: usize,
    /// Time of the last datagram or probe that the server sent or received.
    busy: Time,
    stands_still: bool,
    unheard: Vec<(SeenAddress, Vec<u8>)>,
}

impl Moving {
    pub fn new(moves: MigrationRule, traffic: ServerTraffic) -> Moving {
        Moving {
            moves,
            traffic,
            answers_to: None,
            moved: Time::ZERO,
            changes: 0,
            challenged: BTreeMap::new(),
            candidate: None,
            newest: Vec::new(),
            window: 10,
            received: 0,
            busy: Time::ZERO,
            stands_still: false,
            unheard: Vec::new(),
        }
    }

    fn follow(&mut self, now: Time, from: SeenAddress, datagram: &[u8]) {
        let answers_to = *self.answers_to.get_or_insert(from);
        let is_newest = datagram > &self.newest[..];
        if is_newest {
            self.newest = datagram.to_vec();
        }
        if from == answers_to {
            self.candidate = self.candidate.filter(|_| !is_newest);
            return;
        }
        let moves = match self.moves {
            MigrationRule::Always => true,
            MigrationRule::Times(times) => self.changes < times,
            MigrationRule::EachTwoSeconds => now.since(self.moved) >= 2000 * MS,
            MigrationRule::Validated => {
                now.since(*self.challenged.entry(from).or_insert(now)) >= 2 * DELAY
            }
            MigrationRule::Revalidated => is_newest && self.validates(now, from),
        };
        if moves {
            (self.answers_to, self.moved) = (Some(from), now);
            self.changes += 1;
            self.window = 10;
        }
    }

    /// Starts to validate the address `from`, unless its validation was already started. Returns
    /// whether the validation is complete: a round trip has passed since its start.
    fn validates(&mut self, now: Time, from: SeenAddress) -> bool {
        let candidate = self.candidate.filter(|(address, _)| *address == from);
        let (_, since) = *self.candidate.insert(candidate.unwrap_or((from, now)));
        now.since(since) >= 2 * DELAY
    }

    /// Returns a probe if the server sends bulk data and no datagram was sent for [`PROBE`],
    /// otherwise `None`.
    fn probe(&mut self, now: Time) -> Option<(SeenAddress, Vec<u8>)> {
        let is_due = matches!(self.traffic, ServerTraffic::Bulk) && now.since(self.busy) >= PROBE;
        let answers_to = self.answers_to.filter(|_| is_due && !self.stands_still)?;
        self.busy = now;
        Some((answers_to, vec![0x55; 1200]))
    }

    /// Ends the server's pause: processes the datagrams that arrived during it, and returns the
    /// answers.
    fn end_pause(&mut self, now: Time) -> Vec<(SeenAddress, Vec<u8>)> {
        self.stands_still = false;
        let unheard = std::mem::take(&mut self.unheard);
        unheard
            .into_iter()
            .flat_map(|(from, datagram)| self.receive(now, from, &datagram))
            .collect()
    }
}

impl Server for Moving {
    fn receive(
        &mut self,
        now: Time,
        from: SeenAddress,
        datagram: &[u8],
    ) -> Vec<(SeenAddress, Vec<u8>)> {
        if self.stands_still {
            self.unheard.push((from, datagram.to_vec()));
            return Vec::new();
        }
        self.follow(now, from, datagram);
        (self.received, self.busy) = (self.received + 1, now);
        let answers = match self.traffic {
            ServerTraffic::Echo => 1,
            ServerTraffic::Bulk if self.received == 1 => self.window,
            ServerTraffic::Bulk if self.window < 400 && self.received.is_multiple_of(4) => {
                self.window += 1;
                2
            }
            ServerTraffic::Bulk => 1,
        };
        let size = if matches!(self.traffic, ServerTraffic::Bulk) { 1200 } else { datagram.len() };
        vec![(self.answers_to.unwrap(), vec![0x55; size]); answers]
    }
}

/// Generator of pauses: when each starts, and how long it lasts.
struct PauseGenerator {
    late: StalledPart,
    rng: Stream,
    next: Time,
    /// Range of the time from the end of one pause to the start of the next, in milliseconds, from
    /// which each interval is drawn.
    pauses: RangeInclusive<u32>,
}

impl PauseGenerator {
    /// If a pause begins at `now`, returns which program or machine pauses, and the pause's
    /// duration; otherwise `None`.
    fn begins(&mut self, now: Time) -> Option<(StalledPart, Duration)> {
        if now < self.next {
            return None;
        }
        let lasts = self.rng.random_range(200..=800_u32) * MS;
        self.next = now + lasts + self.rng.random_range(self.pauses.clone()) * MS;
        Some((self.late, lasts))
    }
}

/// Runs a session for `seconds` seconds. The client sends a datagram every 5 ms. In a download, it
/// sends a datagram for each datagram that it receives.
pub fn session(
    settings: Config,
    server: Moving,
    links: &[LinkSettings],
    seconds: u64,
) -> World<Moving> {
    let mut world = World::with_links(settings, server, links);
    run_until(&mut world, Time::from_secs(seconds), None);
    world
}

/// Runs a session in `world` for `seconds` seconds like [`session`], with probes and with pauses.
/// `late` selects the program or machine that pauses. The range `pauses` has the times from the
/// end of one pause to the start of the next, in milliseconds.
pub fn late_session(
    world: &mut World<Moving>,
    seconds: u64,
    (late, pauses): (StalledPart, RangeInclusive<u32>),
    seed: u64,
) {
    let (rng, next) = (stream(seed, 0, "late"), Time::from_millis(500));
    let spells = PauseGenerator { late, rng, next, pauses };
    run_until(world, Time::from_secs(seconds), Some(spells));
}

fn run_until(world: &mut World<Moving>, end: Time, mut spells: Option<PauseGenerator>) {
    let traffic = world.server.traffic;
    let (mut number, mut before) = (0, 0);
    let (mut stands_still, mut sent) = (Time::ZERO, Time::ZERO);
    world.client(client(0), &numbered(0));
    while world.now < end {
        match spells.as_mut().and_then(|spells| spells.begins(world.now)) {
            Some((StalledPart::Host, lasts)) => {
                world.now += lasts;
                world.run_until(world.now);
            }
            Some((StalledPart::Server, lasts)) => {
                world.server.stands_still = true;
                stands_still = world.now + lasts;
            }
            Some((StalledPart::Program, lasts)) => {
                let until = world.now + lasts;
                world.run_until(until);
            }
            None => {}
        }
        if world.server.stands_still && world.now >= stands_still {
            for (seen, datagram) in world.server.end_pause(world.now) {
                world.answer(seen, datagram);
            }
        }
        let returned = world.returned.get(&client(0)).map_or(0, Vec::len);
        let due = match traffic {
            ServerTraffic::Echo => 1,
            ServerTraffic::Bulk => returned - before,
        };
        before = returned;
        let mut probes = 0;
        if spells.is_some() {
            probes = usize::from(due == 0 && world.now.since(sent) >= PROBE);
            if let Some((seen, datagram)) = world.server.probe(world.now) {
                world.answer(seen, datagram);
            }
        }
        for _ in 0..due + probes {
            (number, sent) = (number + 1, world.now);
            world.client(client(0), &numbered(number));
        }
        let next = world.now + if due > 1 { MS } else { 5 * MS };
        world.run_until(next);
    }
}

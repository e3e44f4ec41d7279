//! The randomly drawn network that all runs share: the lines of its hosts and the relays of its
//! clients.

use std::num::NonZeroU64;
use std::time::Duration;

use anabranch_multipath::seed::{Stream, stream};
use anabranch_sim::onion::{PublicRates, QuantileTable, planetlab_delays};
use rand::RngExt;

use super::super::stage::queue;

/// Divisor of the rates of all lines. With the full rates, the traffic would need more than two
/// cores.
pub const SCALE: u64 = 8;
/// Rates of servers' access lines and of clients' access lines in `experiment wide`, in bits per
/// second.
const OTHERS: [u64; 2] = [1_000_000_000, 50_000_000];
/// Minimum rate of a line, in bits per second. On slower lines, a full queue
/// ([`queue`](super::super::stage::queue)) would delay a packet for more than a quarter of a
/// second.
const LEAST_RATE: u64 = 1_000_000;
/// Number of guards, and also of middles, that are drawn for each client. A design with one
/// circuit per stream uses only the first guard and the first middle.
const MOST_LEGS: usize = 2;

/// Numbers of relays, servers and clients in a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Number of guards.
    pub guards: usize,
    /// Number of middles.
    pub middles: usize,
    /// Number of exits.
    pub exits: usize,
    /// Number of web servers.
    pub servers: usize,
    /// Number of clients that load web pages, with pauses.
    pub web: usize,
    /// Number of clients that make bulk downloads, one after another.
    pub bulk: usize,
}

impl Counts {
    /// Returns the numbers of hosts for a network of `relays` relays. A quarter of the relays are
    /// exits. Half of the others are guards, and half are middles.
    #[must_use]
    pub fn of(relays: usize, [servers, web, bulk]: [usize; 3]) -> Counts {
        let exits = (relays / 4).max(1);
        let guards = (relays - exits) / 2;
        Counts { guards, middles: relays - exits - guards, exits, servers, web, bulk }
    }

    /// Returns the number of relays.
    #[must_use]
    pub fn relays(&self) -> usize {
        self.guards + self.middles + self.exits
    }
}

/// Access line of a host, with the same properties in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostLine {
    /// Rate in bits per second.
    pub(super) rate: NonZeroU64,
    /// Delay of a packet on the line, in each direction.
    pub(super) delay: Duration,
}

impl HostLine {
    /// Returns the maximum number of bytes in the queue of the line.
    pub(super) fn queue(&self) -> u64 {
        queue(self.rate.get())
    }
}

/// A randomly drawn client: its access line, its behaviour, and the relays of its circuits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DrawnClient {
    pub(super) line: HostLine,
    /// True if the client makes bulk downloads, one after another.
    pub(super) is_bulk: bool,
    /// Indices of the relays for each of the three positions of a circuit. If several circuits
    /// carry a stream, each has another guard and another middle.
    path: [Vec<usize>; 3],
}

impl DrawnClient {
    /// Returns the indices of the relays that the client uses for each position in a circuit, if
    /// `legs` circuits carry a stream.
    pub(super) fn pins(&self, legs: u32) -> [Vec<usize>; 3] {
        self.path.each_ref().map(|relays| relays.iter().copied().take(legs as usize).collect())
    }
}

/// The lines of all hosts, and the relays that each client uses. The lists of relays begin with
/// the guards; middles and exits follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WideNetwork {
    pub(super) counts: Counts,
    pub(super) relays: Vec<HostLine>,
    pub(super) servers: Vec<HostLine>,
    pub(super) clients: Vec<DrawnClient>,
}

impl WideNetwork {
    /// Draws the network with the seed `seed`.
    #[must_use]
    pub fn new(counts: Counts, seed: u64) -> WideNetwork {
        let (lines, rates) = (LineDraws { delays: planetlab_delays(), seed }, relay_tables());
        let of_exits = counts.guards + counts.middles;
        let relay = |place: usize| lines.of("relay", place, &rates[usize::from(place >= of_exits)]);
        let relays: Vec<HostLine> = (0..counts.relays()).map(relay).collect();
        let [server, client] = OTHERS.map(QuantileTable::one);
        let servers = (0..counts.servers).map(|place| lines.of("server", place, &server));
        let clients = (0..counts.web + counts.bulk).map(|place| DrawnClient {
            line: lines.of("client", place, &client),
            is_bulk: place >= counts.web,
            path: path(counts, &relays, &mut stream(seed, place as u64, "relays of a client")),
        });
        let (servers, clients) = (servers.collect(), clients.collect());
        WideNetwork { counts, relays, servers, clients }
    }

    /// Returns the position in circuits of the relay with the index `relay`: `guard`, `middle` or
    /// `exit`.
    pub(super) fn position(&self, relay: usize) -> &'static str {
        match relay.checked_sub(self.counts.guards) {
            None => "guard",
            Some(place) if place < self.counts.middles => "middle",
            Some(_) => "exit",
        }
    }
}

/// Returns the distributions of relay rates in the public Tor network: of relays that are not
/// exits, and of exits.
fn relay_tables() -> [QuantileTable; 2] {
    PublicRates::Tor2018.tables()
}

/// Source of the randomly drawn access lines.
struct LineDraws {
    /// Distribution of one-way delays between two hosts, in nanoseconds.
    delays: QuantileTable,
    seed: u64,
}

impl LineDraws {
    /// Draws the access line of the host with the index `place` of the kind `kind`. The line's
    /// rate is drawn from `rates` and divided by [`SCALE`]. Its delay is half of a drawn delay
    /// between two hosts.
    fn of(&self, kind: &str, place: usize, rates: &QuantileTable) -> HostLine {
        let dice = |what: &str| stream(self.seed, place as u64, &format!("{what} of a {kind}"));
        let rate = (rates.draw(&mut dice("rate")) / SCALE).max(LEAST_RATE);
        let delay = Duration::from_nanos(self.delays.draw(&mut dice("delay")) / 2);
        HostLine { rate: NonZeroU64::new(rate).unwrap_or(NonZeroU64::MIN), delay }
    }
}

/// Draws the relays of a client's circuits. The probability of a relay is in proportion to the
/// rate of its line.
fn path(counts: Counts, relays: &[HostLine], dice: &mut Stream) -> [Vec<usize>; 3] {
    let middles = counts.guards..counts.guards + counts.middles;
    let exits = middles.end..counts.relays();
    [(0..counts.guards, MOST_LEGS), (middles, MOST_LEGS), (exits, 1)].map(|(among, count)| {
        let mut left: Vec<usize> = among.collect();
        let mut one = || {
            let found = draw(&left, relays, dice)?;
            left.retain(|relay| *relay != found);
            Some(found)
        };
        (0..count).filter_map(|_| one()).collect()
    })
}

/// Draws one of the relays `among`, with probabilities in proportion to the rates of their lines.
/// Returns `None` if there are none.
fn draw(among: &[usize], relays: &[HostLine], dice: &mut Stream) -> Option<usize> {
    let rate = |relay: usize| relays[relay].rate.get();
    let total: u64 = among.iter().map(|relay| rate(*relay)).sum();
    let mut place = dice.random_range(0..total.max(1));
    among.iter().copied().find(|relay| {
        let is_it = place < rate(*relay);
        place = place.saturating_sub(rate(*relay));
        is_it
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns a network of the size of the experiment.
    pub(in super::super) fn network() -> WideNetwork {
        WideNetwork::new(Counts::of(24, [4, 60, 6]), 1)
    }

    #[test]
    fn a_quarter_of_the_relays_are_exits() {
        let counts = Counts::of(24, [4, 60, 6]);
        assert_eq!((counts.guards, counts.middles, counts.exits), (9, 9, 6));
        let least = Counts::of(3, [1, 2, 0]);
        assert_eq!((least.guards, least.middles, least.exits), (1, 1, 1));
        let network = network();
        assert_eq!(
            [0, 8, 9, 17, 18].map(|relay| network.position(relay)),
            ["guard", "guard", "middle", "middle", "exit"]
        );
    }

    #[test]
    fn each_circuit_has_a_guard_a_middle_and_the_exit() {
        let network = network();
        assert_eq!(network.clients.iter().filter(|client| client.is_bulk).count(), 6);
        for client in &network.clients {
            assert_eq!(client.pins(1).map(|relays| relays.len()), [1, 1, 1]);
            let pins = client.pins(2);
            assert_eq!(pins.each_ref().map(Vec::len), [2, 2, 1]);
            assert!(pins[0][0] != pins[0][1] && pins[1][0] != pins[1][1]);
            for (relays, position) in pins.iter().zip(["guard", "middle", "exit"]) {
                assert!(relays.iter().all(|relay| network.position(*relay) == position));
            }
        }
        let guards: BTreeSet<usize> = network.clients.iter().map(|one| one.path[0][0]).collect();
        assert!(guards.len() > 4, "{guards:?}");
    }

    #[test]
    fn relays_with_faster_lines_have_more_clients() {
        let counts = Counts::of(24, [4, 400, 0]);
        let network = WideNetwork::new(counts, 2);
        let fastest = (0..counts.guards).max_by_key(|relay| network.relays[*relay].rate).unwrap();
        let count = network.clients.iter().filter(|one| one.path[0][0] == fastest).count();
        assert!(count > 400 / counts.guards, "{count}");
    }

    #[test]
    fn a_network_follows_from_its_seed_and_lines_have_the_least_rate() {
        assert_eq!(network(), network());
        assert_ne!(network(), WideNetwork::new(network().counts, 2));
        let network = network();
        assert!(network.relays.iter().all(|line| line.rate.get() >= LEAST_RATE));
        let rates = network.servers.iter().chain(network.clients.iter().map(|one| &one.line));
        let rates: BTreeSet<u64> = rates.map(|line| line.rate.get() * SCALE).collect();
        assert_eq!(rates, OTHERS.into_iter().collect());
    }
}

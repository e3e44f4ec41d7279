//! Tables of the relays for each position, with cumulative weights. They are computed once for
//! each state of the network, so that the random choice of a relay examines a few relays instead
//! of all.
//!
//! A relay is drawn at random by weight. It is rejected if it is unsuitable: it shares a family or
//! subnet with a relay of the path, or the user excludes it. The accepted relays have the same
//! distribution as in a draw among the suitable relays alone. After [`TRIES`] rejections, the
//! relay is drawn among the suitable relays alone.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use rand_core::Rng;

use super::{Network, Position, Relay, Target, is_guard};
use crate::draw::below;

/// Number of rejected random choices after which a relay is chosen among the suitable relays
/// alone.
const TRIES: usize = 64;

/// The relays of each position, prepared for random choices.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) guards: Table,
    pub(super) middles: Table,
    pub(super) directories: Table,
    pub(super) exits: Exits,
}

/// Relays for one position, by their index in the consensus, and the cumulative sums of their
/// weights.
#[derive(Debug)]
pub(super) struct Table {
    places: Vec<u32>,
    /// The cumulative sums. The entry at index `n` is the weight of the first `n` relays, so the
    /// first entry is 0.
    sums: Vec<u64>,
}

/// Exits, grouped by the targets that they permit.
#[derive(Debug)]
pub(super) struct Exits {
    table: Table,
    classes: Vec<Range<usize>>,
}

/// Ranges of a table from which one relay is chosen at random.
pub(super) struct Part<'a> {
    table: &'a Table,
    ranges: Vec<Range<usize>>,
}

impl Tables {
    pub(super) fn of(network: &Network) -> Tables {
        let all = |fits: fn(&Relay<'_>) -> bool, position| {
            let fitting = network.placed().filter(|(_, relay)| fits(relay));
            Table::of(network, position, fitting.map(|(place, _)| place).collect())
        };
        Tables {
            guards: all(|relay| is_guard(relay.status), Position::Guard),
            middles: all(|relay| relay.status.flags.fast, Position::Middle),
            directories: all(|relay| relay.status.flags.v2dir, Position::Directory),
            exits: Exits::of(network),
        }
    }
}

impl Table {
    /// Creates a table of the relays at the indices `places`, with their weights in `position`.
    pub(super) fn of(network: &Network, position: Position, places: Vec<usize>) -> Table {
        let weight = |place: &usize| network.weight(&network.consensus().relays[*place], position);
        let running = places.iter().map(weight).scan(0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        let sums = std::iter::once(0).chain(running).collect();
        let places = places
            .into_iter()
            .map(|place| u32::try_from(place).expect("the number of relays is below 2^32"));
        Table { places: places.collect(), sums }
    }

    pub(super) fn whole(&self) -> Part<'_> {
        Part { table: self, ranges: std::iter::once(0..self.places.len()).collect() }
    }

    /// Returns the total weight of the relays in a range of the table.
    fn weight(&self, range: &Range<usize>) -> u64 {
        self.sums[range.end] - self.sums[range.start]
    }
}

impl Exits {
    fn of(network: &Network) -> Exits {
        let could = |relay: &Relay<'_>| {
            let flags = relay.status.flags;
            !flags.bad_exit && !flags.middle_only && relay.microdesc.ports().are_any()
        };
        let mut places: Vec<(u64, usize)> = network
            .placed()
            .filter(|(_, relay)| could(relay))
            .map(|(place, relay)| (hash(&class(&relay)), place))
            .collect();
        places.sort_unstable();
        let places: Vec<usize> = places.into_iter().map(|(_, place)| place).collect();
        let same = |one: &usize, other: &usize| {
            let relays = network.at(*one).zip(network.at(*other));
            relays.is_some_and(|(one, other)| class(&one) == class(&other))
        };
        let mut begin = 0;
        let classes = places.chunk_by(same).map(|chunk| {
            begin += chunk.len();
            begin - chunk.len()..begin
        });
        let classes = classes.collect();
        // The weight does not depend on the target.
        let position = Position::Exit(Target { port: 0, v6: false });
        Exits { table: Table::of(network, position, places), classes }
    }

    /// Returns the exits that permit `target`.
    pub(super) fn to(&self, network: &Network, target: Target) -> Part<'_> {
        let leads = |class: &&Range<usize>| {
            let relay = network.at(self.table.places[class.start] as usize);
            relay.is_some_and(|relay| network.fits(&relay, Position::Exit(target)))
        };
        let ranges = self.classes.iter().filter(leads).cloned().collect();
        Part { table: &self.table, ranges }
    }
}

/// Returns the properties of a relay that decide which targets it permits. Relays with equal
/// properties permit the same targets.
fn class<'a>(relay: &Relay<'a>) -> (&'a (impl Hash + Eq), bool) {
    (relay.microdesc.ports(), relay.status.flags.stable)
}

fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

impl Part<'_> {
    /// Chooses a random suitable relay, by weight, and returns its index. If all suitable relays
    /// have the weight 0, each has the same probability. Returns `None` if no relay is suitable.
    pub(super) fn draw(&self, suits: impl Fn(usize) -> bool, rng: &mut impl Rng) -> Option<usize> {
        let total: u64 = self.ranges.iter().map(|range| self.table.weight(range)).sum();
        let tries = if total == 0 { 0 } else { TRIES };
        let drawn = (0..tries).find_map(|_| {
            let place = self.at(below(total, rng))?;
            suits(place).then_some(place)
        });
        drawn.or_else(|| self.weigh(suits, rng))
    }

    /// Returns the index of the relay whose range in the cumulative weights contains `point`;
    /// `None` if `point` is not below the sum of the weights.
    fn at(&self, mut point: u64) -> Option<usize> {
        for range in &self.ranges {
            let weight = self.table.weight(range);
            if point < weight {
                let point = self.table.sums[range.start] + point;
                let passed = &self.table.sums[range.start + 1..=range.end];
                let passed = passed.partition_point(|&sum| sum <= point);
                return Some(self.table.places[range.start + passed] as usize);
            }
            point -= weight;
        }
        None
    }

    /// Chooses a relay with the same probabilities as [`Part::draw`], but directly among the
    /// suitable relays, whose weights it adds up first. Returns `None` if no relay is suitable.
    fn weigh(&self, suits: impl Fn(usize) -> bool, rng: &mut impl Rng) -> Option<usize> {
        let all = self.ranges.iter().flat_map(Range::clone);
        let suiting: Vec<usize> = all.filter(|&at| suits(self.table.places[at] as usize)).collect();
        let weight = |at: usize| self.table.weight(&(at..at + 1));
        let total: u64 = suiting.iter().map(|&at| weight(at)).sum();
        let drawn = match (suiting.len(), total) {
            (0, _) => return None,
            (count, 0) => suiting[below(count as u64, rng) as usize],
            _ => {
                let mut left = below(total, rng);
                *suiting.iter().find(|&&at| {
                    let here = left < weight(at);
                    left = left.saturating_sub(weight(at));
                    here
                })?
            }
        };
        Some(self.table.places[drawn] as usize)
    }
}

//! Selection of the relays that the adversary runs. The adversary runs relays of the consensus, up
//! to a given share of the total weight for a position in circuits, such as entry or exit.

use anabranch_multipath::seed::Stream;

use anabranch_onion::draw::below;

/// Rule for the choice of the relays that the adversary runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Random relays, up to the adversary's share of the total weight.
    Random,
    /// The heaviest relays, up to the adversary's share of the total weight.
    Heaviest,
}

/// Selects the hostile relays. Returns, for each of `weights`, whether the relay is hostile.
/// Considers relays in the order of `spread`, and skips a relay that would exceed `share` of the
/// total weight. `taken` marks relays that are hostile already; they count towards the share.
#[must_use]
pub fn take(
    weights: &[u64],
    share: f64,
    spread: Spread,
    taken: &[bool],
    rng: &mut Stream,
) -> Vec<bool> {
    let mut hostile = taken.to_vec();
    hostile.resize(weights.len(), false);
    let weight = |hostile: &[bool]| -> u64 {
        weights.iter().zip(hostile).filter(|(_, is)| **is).map(|(weight, _)| weight).sum()
    };
    let wanted = (share * weights.iter().sum::<u64>() as f64) as u64;
    let mut have = weight(&hostile);
    for place in order(weights, spread, rng) {
        if !hostile[place] && weights[place] > 0 && have + weights[place] <= wanted {
            hostile[place] = true;
            have += weights[place];
        }
    }
    hostile
}

fn order(weights: &[u64], spread: Spread, rng: &mut Stream) -> Vec<usize> {
    let mut places: Vec<usize> = (0..weights.len()).collect();
    match spread {
        Spread::Heaviest => places.sort_by_key(|&place| std::cmp::Reverse(weights[place])),
        Spread::Random => {
            for last in (1..places.len()).rev() {
                places.swap(last, below(last as u64 + 1, rng) as usize);
            }
        }
    }
    places
}

/// Returns the hostile relays' share of the total weight, from 0 to 1.
#[must_use]
pub fn held(weights: &[u64], hostile: &[bool]) -> f64 {
    let all: u64 = weights.iter().sum();
    let theirs = weights.iter().zip(hostile).filter(|(_, is)| **is).map(|(weight, _)| weight);
    theirs.sum::<u64>() as f64 / all.max(1) as f64
}

#[cfg(test)]
mod tests {
    use anabranch_multipath::seed::stream;

    use super::*;

    #[test]
    fn the_share_is_reached_and_not_passed() {
        let weights: Vec<u64> = (1..=1000).collect();
        let mut rng = stream(1, 0, "hostile");
        let random = take(&weights, 0.1, Spread::Random, &[], &mut rng);
        let heaviest = take(&weights, 0.1, Spread::Heaviest, &[], &mut rng);
        for hostile in [&random, &heaviest] {
            let share = held(&weights, hostile);
            assert!((0.0995..=0.1).contains(&share), "{share}");
        }
        let count = |hostile: &[bool]| hostile.iter().filter(|is| **is).count();
        assert!(count(&heaviest) < 60 && count(&random) > 80);
        let more = take(&weights, 0.2, Spread::Random, &heaviest, &mut rng);
        assert!(heaviest.iter().zip(&more).all(|(before, after)| !before || *after));
    }
}

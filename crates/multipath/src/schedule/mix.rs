//! A scheduler that distributes cells in inverse proportion to a power of the round-trip time.

use std::time::Duration;

use super::{BuildResult, Family, Scheduler, SpecError};
use crate::path::{quickest, ready, usable};
use crate::seed::Stream;
use crate::{PathId, PathView, Time};

/// The scheduler family `mix:ALPHA`: syntax, help texts and default run length.
pub(super) const FAMILY: Family = Family {
    name: "mix",
    syntax: "mix:ALPHA",
    example: "mix:2",
    about: "all paths with room in their congestion windows carry packets, each in proportion to \
            1/RTT^ALPHA, where RTT is its round-trip time. With ALPHA 0 all paths carry the \
            same amount; with a large ALPHA the schedule is like lowrtt",
    plain: "circuits that answer faster carry more; the user chose how much more",
    every: Some("1p"),
    needs_windows: true,
    build,
};

/// Tunable combination of three schedulers: round robin, by congestion, and by round-trip time
/// (paper 001: de la Cadena et al., DBSec 2019, section 4, "2d"). The legs (circuits of a set)
/// with room get cells in proportion to 1/RTT^ALPHA. With ALPHA = 0 the legs take turns, ALPHA = 1
/// is Conflux 2013, and a large ALPHA is like LOWRTT.
///
/// The algorithm is smooth weighted round robin. At each choice, every leg with room earns credit
/// equal to its weight. The leg with the most credit is chosen, and pays the sum of the credit
/// that all legs earned. So the cells of a leg are spread evenly. A leg without room earns nothing
/// and keeps its credit. An unusable leg loses its credit.
#[derive(Debug)]
pub(super) struct Mix {
    alpha: f64,
    credit: Vec<f64>,
}

impl Mix {
    pub(super) fn new(alpha: f64) -> Mix {
        Mix { alpha, credit: Vec::new() }
    }

    /// Returns the path's weight. Round-trip times are taken relative to the fastest leg's, so
    /// that no power is infinite.
    fn weight(&self, view: &PathView, quickest: f64) -> f64 {
        (quickest / seconds(view)).powf(self.alpha)
    }

    /// Adds credit to the ready legs. Returns the leg with the most credit (the first one if
    /// several are equal), and subtracts the sum of the added credit from the leg's credit.
    /// Returns `None` if no leg is ready.
    fn take_turn(&mut self, paths: &[PathView], quickest: f64) -> Option<usize> {
        let mut total = 0.0;
        let mut best: Option<usize> = None;
        for index in ready(paths) {
            let weight = self.weight(&paths[index], quickest);
            total += weight;
            self.credit[index] += weight;
            if best.is_none_or(|best| self.credit[index] > self.credit[best]) {
                best = Some(index);
            }
        }
        self.credit[best?] -= total;
        best
    }
}

/// Returns the path's round-trip time in seconds, at least a microsecond.
fn seconds(view: &PathView) -> f64 {
    view.rtt.unwrap_or(Duration::from_secs(1)).max(Duration::from_micros(1)).as_secs_f64()
}

impl Scheduler for Mix {
    fn choose(&mut self, _now: Time, paths: &[PathView]) -> Option<PathId> {
        self.credit.resize(paths.len(), 0.0);
        let gone = (0..paths.len()).filter(|&index| !paths[index].usable);
        gone.for_each(|index| self.credit[index] = 0.0);
        let best = quickest(paths, usable(paths))?;
        let chosen = self.take_turn(paths, seconds(&paths[best]));
        Some(PathId::at(chosen.unwrap_or(best)))
    }

    fn load_aware(&self) -> bool {
        true
    }
}

fn build(argument: Option<&str>, _paths: usize, _stream: Stream) -> BuildResult {
    let text = argument.ok_or(SpecError::Missing(FAMILY.syntax))?;
    let alpha = text.parse().ok().filter(|alpha: &f64| alpha.is_finite() && *alpha >= 0.0);
    Ok(Box::new(Mix::new(alpha.ok_or_else(|| SpecError::Number(text.to_owned()))?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LegView;

    fn leg(ms: u64) -> PathView {
        PathView::leg(Some(Duration::from_millis(ms)), 124, LegView::default())
    }

    /// Returns the number of cells, of 700, that each leg gets.
    fn shares(alpha: f64, legs: &[PathView]) -> Vec<usize> {
        let mut mix = Mix::new(alpha);
        let mut shares = vec![0; legs.len()];
        (0..700).for_each(|_| shares[mix.choose(Time::ZERO, legs).unwrap().index()] += 1);
        shares
    }

    #[test]
    fn alpha_goes_from_turns_through_inverse_proportion_to_the_quickest_alone() {
        let legs = [leg(10), leg(20), leg(40)];
        assert_eq!(shares(0.0, &legs), [234, 233, 233]);
        assert_eq!(shares(1.0, &legs), [400, 200, 100]);
        assert_eq!(shares(60.0, &legs), [700, 0, 0]);
    }

    #[test]
    fn a_leg_without_room_is_passed_over_and_saves_nothing_up() {
        let mut mix = Mix::new(1.0);
        let full = PathView { window: Some(0), ..leg(10) };
        let mut choice = |legs: &[PathView]| mix.choose(Time::ZERO, legs).unwrap().0;
        assert!((0..100).all(|_| choice(&[full, leg(10)]) == 1));
        let after: Vec<u16> = (0..4).map(|_| choice(&[leg(10), leg(10)])).collect();
        assert_eq!(after, [0, 1, 0, 1]);
    }

    #[test]
    fn alpha_is_a_number_from_0_on() {
        let build = |argument| build(argument, 3, crate::seed::stream(1, 0, "mix")).map(drop);
        assert_eq!(build(None), Err(SpecError::Missing("mix:ALPHA")));
        for wrong in ["-1", "inf", "much", ""] {
            assert_eq!(build(Some(wrong)), Err(SpecError::Number(wrong.into())));
        }
        assert_eq!(build(Some("0.5")), Ok(()));
    }
}

//! A scheduler that draws a random path for each run. Its probabilities are given by the user, or
//! drawn for the session.

use rand::RngExt;
use rand_distr::{Distribution, Gamma};

use super::{BuildResult, Family, Scheduler, SpecError};
use crate::seed::Stream;
use crate::{PathId, PathView, Time};

/// The scheduler family `weighted[:ALPHA]`, with probabilities drawn for each session: syntax and
/// help texts.
pub(super) const DIRICHLET: Family = Family {
    name: "weighted",
    syntax: "weighted[:ALPHA]",
    example: "weighted",
    about: "a random path for each run. The probabilities of the paths are drawn for each session \
            from a symmetric Dirichlet distribution. They are nearly equal if ALPHA is large, and \
            very unequal if ALPHA is small; ALPHA is 1 if not given",
    plain: "paths are chosen at random, with random probabilities that differ between sessions",
    every: None,
    needs_windows: false,
    build: build_dirichlet,
};

/// The scheduler family `weights:W,W,…`, with probabilities set by the user: syntax and help
/// texts.
pub(super) const FIXED: Family = Family {
    name: "weights",
    syntax: "weights:W,W,…",
    example: "weights:6,3,1",
    about: "a random path for each run, in proportion to these weights W, one for each path",
    plain: "paths are chosen at random, with probabilities that the user set",
    every: None,
    needs_windows: false,
    build: build_fixed,
};

/// Weighted random scheduler (CoMPS, section 4.2, "WR"). The probabilities are fixed for the
/// session's life.
///
/// The weights of the usable paths are renormalised at each choice, so a dead path's share goes to
/// the others in proportion to their weights. If no usable path has a positive weight, the usable
/// paths have equal probabilities, so that the failure of one path does not stop the traffic.
#[derive(Debug)]
pub struct Weighted {
    weights: Vec<f64>,
    /// Cumulative probabilities computed from the weights, for draws while all paths are usable.
    chances: Chances,
    stream: Stream,
}

impl Weighted {
    /// Returns a scheduler with fixed weights, one for each path. Their sum may differ from 1.
    pub fn fixed(weights: Vec<f64>, stream: Stream) -> Result<Weighted, SpecError> {
        if let Some(&bad) = weights.iter().find(|weight| !weight.is_finite() || **weight < 0.0) {
            return Err(SpecError::Negative(bad));
        }
        let chances = Chances::new(weights.iter().copied());
        if chances.total <= 0.0 {
            return Err(SpecError::NoWeight);
        }
        if chances.total.is_infinite() {
            return Err(SpecError::Infinite);
        }
        Ok(Weighted { weights, chances, stream })
    }

    /// Returns a scheduler with weights from one draw of the symmetric Dirichlet distribution with
    /// concentration `alpha` over `paths` paths.
    ///
    /// CoMPS draws with `alpha` = 1 (uniform on the simplex). With larger values the shares differ
    /// less.
    pub fn dirichlet(alpha: f64, paths: usize, mut stream: Stream) -> Result<Weighted, SpecError> {
        let gamma = Gamma::new(alpha, 1.0).map_err(|_| SpecError::Number(alpha.to_string()))?;
        let draws: Vec<f64> = (0..paths).map(|_| gamma.sample(&mut stream)).collect();
        let sum: f64 = draws.iter().sum();
        if sum.is_infinite() {
            // As alpha grows, the distribution approaches equal probabilities.
            return Weighted::fixed(vec![1.0; paths], stream);
        }
        if sum > 0.0 {
            return Weighted::fixed(draws.iter().map(|draw| draw / sum).collect(), stream);
        }
        // With a tiny alpha every draw underflows. In the limit of the distribution, one path
        // carries everything.
        let winner = stream.random_range(0..paths.max(1) as u32) as usize;
        Weighted::fixed(
            (0..paths).map(|path| f64::from(u8::from(path == winner))).collect(),
            stream,
        )
    }

    /// Replaces the weights. Each weight must be finite and not negative, and at least one
    /// positive.
    pub(super) fn set(&mut self, weights: Vec<f64>) {
        self.chances = Chances::new(weights.iter().copied());
        self.weights = weights;
    }

    /// Returns the weights, one for each path.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// Draws a usable path; returns `None` if no path is usable. The weight of path `i` is
    /// multiplied by `tilt(i)`, which must be positive.
    pub(super) fn choose_tilted(
        &mut self,
        paths: &[PathView],
        tilt: impl Fn(usize) -> f64,
    ) -> Option<PathId> {
        self.chances_among(paths, tilt).draw(&mut self.stream)
    }

    /// Returns the probabilities of the paths: in proportion to weight times `tilt`, and 0 for
    /// unusable paths. If all these products are 0, the usable paths have equal probabilities.
    fn chances_among(&self, paths: &[PathView], tilt: impl Fn(usize) -> f64) -> Chances {
        let chance = |(place, (view, &weight)): (usize, (&PathView, &f64))| match view.usable {
            true => weight * tilt(place),
            false => 0.0,
        };
        let chances = Chances::new(paths.iter().zip(&self.weights).enumerate().map(chance));
        if chances.total > 0.0 {
            return chances;
        }
        Chances::new(paths.iter().map(|view| f64::from(u8::from(view.usable))))
    }
}

impl Scheduler for Weighted {
    fn choose(&mut self, _now: Time, paths: &[PathView]) -> Option<PathId> {
        if paths.len() == self.weights.len() && paths.iter().all(|view| view.usable) {
            return self.chances.draw(&mut self.stream);
        }
        self.choose_tilted(paths, |_| 1.0)
    }

    fn reseed(&mut self, stream: Stream) {
        self.stream = stream;
    }
}

/// Cumulative probabilities of the paths.
#[derive(Debug)]
struct Chances {
    total: f64,
    ends: Vec<f64>,
}

impl Chances {
    fn new(chances: impl Iterator<Item = f64>) -> Chances {
        let mut total = 0.0;
        let end = |chance| {
            total += chance;
            total
        };
        let mut ends: Vec<f64> = chances.map(end).collect();
        // No drawn point may lie beyond the last path's interval, not even a point that rounding
        // moves to its end.
        ends.iter_mut().filter(|end| **end == total).for_each(|end| *end = f64::INFINITY);
        Chances { total, ends }
    }

    /// Draws a path by the probabilities; returns `None` if all probabilities are 0.
    fn draw(&self, stream: &mut Stream) -> Option<PathId> {
        let point = stream.random::<f64>() * self.total;
        // The loop always runs to the end, because the point is random and a mispredicted branch
        // costs more than a step.
        let before = self.ends.iter().filter(|&&end| end <= point).count();
        (self.total > 0.0).then(|| PathId::at(before))
    }
}

pub(super) fn build_dirichlet(argument: Option<&str>, paths: usize, stream: Stream) -> BuildResult {
    let alpha = argument.map_or(Ok(1.0), positive)?;
    Ok(Box::new(Weighted::dirichlet(alpha, paths, stream)?))
}

fn build_fixed(argument: Option<&str>, paths: usize, stream: Stream) -> BuildResult {
    let list = argument.ok_or(SpecError::Missing("weights:W,W,…"))?;
    let weights: Vec<f64> = list.split(',').map(number).collect::<Result<_, _>>()?;
    if weights.len() != paths {
        return Err(SpecError::Count(weights.len(), paths));
    }
    Ok(Box::new(Weighted::fixed(weights, stream)?))
}

fn number(text: &str) -> Result<f64, SpecError> {
    text.trim().parse().map_err(|_| SpecError::Number(text.to_owned()))
}

pub(super) fn positive(text: &str) -> Result<f64, SpecError> {
    let value = number(text)?;
    if value.is_finite() && value > 0.0 {
        Ok(value)
    } else {
        Err(SpecError::Number(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::stream;

    fn shares(scheduler: &mut Weighted, paths: &[PathView], runs: u32) -> Vec<f64> {
        let mut counts = vec![0u32; paths.len()];
        for _ in 0..runs {
            counts[scheduler.choose(Time::ZERO, paths).unwrap().index()] += 1;
        }
        counts.iter().map(|&count| f64::from(count) / f64::from(runs)).collect()
    }

    #[test]
    fn fixed_weights_give_their_shares() {
        let mut scheduler =
            Weighted::fixed(vec![6.0, 3.0, 1.0], stream(1, 0, "scheduler")).unwrap();
        let shares = shares(&mut scheduler, &[PathView::open(); 3], 40_000);
        for (share, expected) in shares.iter().zip([0.6, 0.3, 0.1]) {
            assert!((share - expected).abs() < 0.0125, "{shares:?}: five standard deviations");
        }
    }

    #[test]
    fn a_dead_paths_share_goes_to_the_others_in_proportion() {
        let mut scheduler =
            Weighted::fixed(vec![6.0, 3.0, 1.0], stream(1, 0, "scheduler")).unwrap();
        let paths = [PathView::dead(), PathView::open(), PathView::open()];
        let shares = shares(&mut scheduler, &paths, 40_000);
        assert_eq!(shares[0], 0.0);
        assert!((shares[1] - 0.75).abs() < 0.011, "{shares:?}: five standard deviations");
    }

    #[test]
    fn paths_of_weight_zero_carry_only_when_nothing_else_lives() {
        let mut scheduler =
            Weighted::fixed(vec![1.0, 0.0, 0.0], stream(1, 0, "scheduler")).unwrap();
        assert_eq!(shares(&mut scheduler, &[PathView::open(); 3], 1_000), [1.0, 0.0, 0.0]);
        let dead = [PathView::dead(), PathView::open(), PathView::open()];
        let shares = shares(&mut scheduler, &dead, 10_000);
        assert!((shares[1] - 0.5).abs() < 0.025, "{shares:?}");
    }

    /// The mean largest share of a flat Dirichlet draw is (1 + 1/2 + … + 1/n) / n: 0.611 for three
    /// paths.
    #[test]
    fn a_flat_dirichlet_draw_has_the_known_mean_of_its_largest_share() {
        let sessions = 4_000;
        let largest: f64 = (0..sessions)
            .map(|session| Weighted::dirichlet(1.0, 3, stream(1, session, "scheduler")).unwrap())
            .map(|scheduler| scheduler.weights().iter().copied().fold(0.0, f64::max))
            .sum();
        let mean = largest / sessions as f64;
        assert!((mean - 11.0 / 18.0).abs() < 0.011, "{mean}: five standard errors");
    }

    #[test]
    fn a_large_alpha_gives_nearly_equal_shares_and_a_tiny_one_a_single_path() {
        let weights =
            |alpha| Weighted::dirichlet(alpha, 3, stream(1, 0, "scheduler")).unwrap().weights;
        assert!(weights(1e6).iter().all(|weight| (weight - 1.0 / 3.0).abs() < 0.01));
        assert!(weights(1e-9).iter().any(|weight| *weight > 0.999));
        assert_eq!(weights(1e308), [1.0; 3], "a sum beyond all numbers");
    }

    #[test]
    fn weights_next_to_nothing_are_as_good_as_others() {
        let mut scheduler =
            Weighted::fixed(vec![0.0, 5e-324, 0.0], stream(1, 0, "scheduler")).unwrap();
        assert_eq!(shares(&mut scheduler, &[PathView::open(); 3], 1_000), [0.0, 1.0, 0.0]);
    }

    #[test]
    fn weights_without_a_finite_sum_are_refused() {
        let built = Weighted::fixed(vec![1e308; 3], stream(1, 0, "scheduler"));
        assert_eq!(built.unwrap_err(), SpecError::Infinite);
    }
}

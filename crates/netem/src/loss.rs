//! Rules that decide which units (such as packets) a link loses.

use std::collections::BTreeSet;

use anabranch_multipath::seed::{self, Stream};
use rand::RngExt;

/// A rule that decides which units (such as packets) are lost. Probabilities are in `0.0..=1.0`.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Loss {
    /// Loses no units.
    #[default]
    None,
    /// Loses each unit (such as a packet) with the same probability, independently of the others.
    Bernoulli(f64),
    /// Loses units (such as packets) in bursts. The rule has two states, each with its own
    /// probability of loss (Gilbert 1960, Elliott 1963). The link starts in the good state.
    GilbertElliott {
        /// Probability of a change from the good to the bad state, before each unit (such as a
        /// packet).
        to_bad: f64,
        /// Probability of a change from the bad to the good state, before each unit (such as a
        /// packet).
        to_good: f64,
        /// Probability of loss in the good state.
        loss_good: f64,
        /// Probability of loss in the bad state.
        loss_bad: f64,
    },
    /// Loses exactly the units (such as packets) with these indices, counted from zero since the
    /// rule was set. Every unit that enters the link is counted.
    Script(BTreeSet<u64>),
}

/// The state of a [`Loss`] rule, with its random streams.
#[derive(Clone, Debug)]
pub(crate) struct LossState {
    rule: Loss,
    stream: Stream,
    /// Random stream for the changes between the good and the bad state. It is separate from
    /// `stream`, so that each unit (such as a packet) draws exactly one random number from
    /// `stream` under every rule.
    turns: Stream,
    seen: u64,
    bad: bool,
}

impl LossState {
    /// Creates the state of `rule`. Its random numbers depend on `seed` and on `entity`, the
    /// identifier of the link's direction.
    pub(crate) fn new(rule: Loss, seed: u64, entity: u64) -> LossState {
        let stream = seed::stream(seed, entity, "link loss");
        let turns = seed::stream(seed, entity, "link loss turns");
        LossState { rule, stream, turns, seen: 0, bad: false }
    }

    /// Sets the rule. If the new rule differs, the count of units for [`Loss::Script`] restarts at
    /// zero and the Gilbert-Elliott state becomes good. The random streams continue in any case.
    pub(crate) fn change(&mut self, rule: Loss) {
        if self.rule != rule {
            (self.rule, self.seen, self.bad) = (rule, 0, false);
        }
    }

    /// Returns whether the next unit (such as a packet) is lost. Draws random numbers even if the
    /// rule needs none, so that a change of the rule does not change the random numbers of later
    /// units.
    pub(crate) fn loses_next(&mut self) -> bool {
        let number = self.seen;
        self.seen += 1;
        let (chance, turn) = (self.stream.random::<f64>(), self.turns.random::<f64>());
        match &self.rule {
            Loss::None => false,
            Loss::Bernoulli(p) => chance < *p,
            Loss::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => {
                self.bad ^= turn < if self.bad { *to_good } else { *to_bad };
                chance < if self.bad { *loss_bad } else { *loss_good }
            }
            Loss::Script(numbers) => numbers.contains(&number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: usize = 100_000;

    fn losses(rule: Loss) -> Vec<bool> {
        let mut dice = LossState::new(rule, 11, 0);
        (0..UNITS).map(|_| dice.loses_next()).collect()
    }

    fn count(lost: &[bool]) -> f64 {
        lost.iter().filter(|&&lost| lost).count() as f64
    }

    /// Checks that `lost` lies within four standard deviations of a binomial distribution. A
    /// correct rule fails this with one in 16,000 seeds.
    fn assert_binomial(lost: f64, p: f64) {
        let (mean, deviation) = (UNITS as f64 * p, (UNITS as f64 * p * (1.0 - p)).sqrt());
        assert!(
            (lost - mean).abs() <= 4.0 * deviation,
            "{lost} lost, {mean} ± {deviation} expected"
        );
    }

    #[test]
    fn independent_loss_has_the_given_probability() {
        for p in [0.0, 0.02, 0.5, 1.0] {
            assert_binomial(count(&losses(Loss::Bernoulli(p))), p);
        }
    }

    #[test]
    fn bursts_have_the_stationary_rate_and_the_expected_length() {
        let rule =
            Loss::GilbertElliott { to_bad: 0.01, to_good: 0.25, loss_good: 0.0, loss_bad: 1.0 };
        let lost = losses(rule);
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        // The bad state has a stationary share of 0.01 / 0.26. Its runs have geometric lengths
        // with the mean 1 / 0.25 = 4.
        let (share, length) = (count(&lost) / UNITS as f64, count(&lost) / bursts);
        assert!((share - 0.01 / 0.26).abs() < 0.006, "share {share}");
        assert!((length - 4.0).abs() < 0.5, "length {length}");
    }

    #[test]
    fn a_unit_has_its_luck_whatever_the_rule_was_before_it() {
        let late = |first: Loss| {
            let mut dice = LossState::new(first, 11, 0);
            assert!((0..UNITS / 2).filter(|_| dice.loses_next()).count() < UNITS / 4);
            dice.change(Loss::Bernoulli(0.1));
            (0..UNITS / 2).map(|_| dice.loses_next()).collect::<Vec<_>>()
        };
        let bursts =
            Loss::GilbertElliott { to_bad: 0.01, to_good: 0.25, loss_good: 0.0, loss_bad: 1.0 };
        for first in [Loss::None, bursts, Loss::Script([3].into())] {
            assert_eq!(late(first), losses(Loss::Bernoulli(0.1))[UNITS / 2..]);
        }
    }

    #[test]
    fn a_script_loses_exactly_what_it_names() {
        let lost = losses(Loss::Script([0, 3, 4].into()));
        assert_eq!(lost[..6], [true, false, false, true, true, false]);
        assert_eq!(count(&lost), 3.0);
    }
}

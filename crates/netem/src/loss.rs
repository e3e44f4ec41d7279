//! Which units are lost.

use std::collections::BTreeSet;

use anabranch_multipath::seed::Stream;
use rand::RngExt;

/// A rule that says which units are lost. Probabilities are in `0.0..=1.0`.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// Each with the same probability, independently.
    Bernoulli(f64),
    /// In bursts: two states, each with its own probability (Gilbert 1960, Elliott 1963). Starts
    /// good.
    GilbertElliott {
        /// Probability, before each unit, to turn from good to bad.
        to_bad: f64,
        /// Probability, before each unit, to turn from bad to good.
        to_good: f64,
        /// Probability of loss in the good state.
        loss_good: f64,
        /// Probability of loss in the bad state.
        loss_bad: f64,
    },
    /// Exactly the units with these numbers, counted from zero since the rule was set.
    Script(BTreeSet<u64>),
}

/// A [`Loss`] with its state.
#[derive(Clone, Debug)]
pub(crate) struct Dice {
    rule: Loss,
    stream: Stream,
    seen: u64,
    bad: bool,
}

impl Dice {
    pub(crate) fn new(rule: Loss, stream: Stream) -> Dice {
        Dice { rule, stream, seen: 0, bad: false }
    }

    /// Changes the rule; the script and the burst state begin anew, the stream goes on.
    pub(crate) fn change(&mut self, rule: Loss) {
        if self.rule != rule {
            (self.rule, self.seen, self.bad) = (rule, 0, false);
        }
    }

    /// Decides the next unit. Rules that need no chance draw none.
    pub(crate) fn loses_next(&mut self) -> bool {
        let number = self.seen;
        self.seen += 1;
        let Dice { rule, stream, bad, .. } = self;
        match rule {
            Loss::None => false,
            Loss::Bernoulli(p) => stream.random::<f64>() < *p,
            Loss::GilbertElliott { to_bad, to_good, loss_good, loss_bad } => {
                let turn = if *bad { *to_good } else { *to_bad };
                *bad ^= stream.random::<f64>() < turn;
                stream.random::<f64>() < if *bad { *loss_bad } else { *loss_good }
            }
            Loss::Script(numbers) => numbers.contains(&number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_multipath::seed;

    const UNITS: usize = 100_000;

    fn losses(rule: Loss) -> Vec<bool> {
        let mut dice = Dice::new(rule, seed::stream(11, 0, "loss"));
        (0..UNITS).map(|_| dice.loses_next()).collect()
    }

    fn count(lost: &[bool]) -> f64 {
        lost.iter().filter(|&&lost| lost).count() as f64
    }

    /// Within four standard deviations of a binomial distribution: wrong once in 16,000 seeds.
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
        // Stationary share of the bad state: 0.01 / 0.26; its runs are geometric with mean 1 / 0.25
        // = 4.
        let (share, length) = (count(&lost) / UNITS as f64, count(&lost) / bursts);
        assert!((share - 0.01 / 0.26).abs() < 0.006, "share {share}");
        assert!((length - 4.0).abs() < 0.5, "length {length}");
    }

    #[test]
    fn a_script_loses_exactly_what_it_names() {
        let lost = losses(Loss::Script([0, 3, 4].into()));
        assert_eq!(lost[..6], [true, false, false, true, true, false]);
        assert_eq!(count(&lost), 3.0);
    }
}

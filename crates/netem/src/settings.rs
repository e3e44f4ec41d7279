//! The settings of a link.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::{Codel, Loss};

/// The settings of one direction of a link. The default is a perfect link: no limit, no delay, no
/// loss.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSettings {
    /// Rate in bits per second; `None` for no limit.
    pub rate: Option<NonZeroU64>,
    /// Time from the departure of the last bit of a unit (such as a packet) to the unit's arrival
    /// (propagation delay).
    pub delay: Duration,
    /// Width of the distribution of the delays of units (such as packets) around `delay`, as
    /// defined by [`LinkSettings::law`].
    pub jitter: Duration,
    /// Distribution of the delays. Delays below zero are set to zero.
    pub law: DelayLaw,
    /// True if jitter may let a unit (such as a packet) overtake another. If not, a unit arrives
    /// no earlier than the one before it.
    pub reorder: bool,
    /// Rule that decides which units (such as packets) are lost. A lost unit still takes room in
    /// the queue and time to be sent.
    pub loss: Loss,
    /// Maximum bytes that wait to be sent or are being sent. A unit (such as a packet) that would
    /// exceed this is dropped, unless the link is idle.
    pub queue: usize,
    /// CoDel parameters, in addition to the limit `queue`; `None` for drop-tail only.
    pub codel: Option<Codel>,
    /// Maximum size of a unit (such as a packet) in bytes. Larger units are dropped.
    pub mtu: usize,
    /// True if the link is down. A link that is down drops everything.
    pub down: bool,
}

/// The distribution of a link's delays around `delay`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DelayLaw {
    /// Uniform distribution over `delay ± jitter`.
    #[default]
    Uniform,
    /// Normal distribution, with `jitter` as its standard deviation.
    Normal,
}

impl DelayLaw {
    /// Returns the delay of the unit (such as a packet) whose position in the distribution is the
    /// quantile `place`: the share of units with a shorter delay, in `0.0..1.0`.
    pub(crate) fn delay(self, delay: Duration, jitter: Duration, place: f64) -> Duration {
        match self {
            DelayLaw::Uniform => (delay + jitter.mul_f64(2.0 * place)).saturating_sub(jitter),
            DelayLaw::Normal => match probit(place) {
                below if below < 0.0 => delay.saturating_sub(jitter.mul_f64(-below)),
                above => delay + jitter.mul_f64(above),
            },
        }
    }
}

/// Returns the quantile of the standard normal distribution for the probability `place`, with a
/// relative error below 1.2e-9 (Acklam's rational approximation). `place` is limited to the range
/// from 1e-9 to 1 - 1e-9.
fn probit(place: f64) -> f64 {
    /// Probability below which `probit` uses its separate approximation of the lower tail.
    const TAIL: f64 = 0.024_25;
    let place = place.clamp(1e-9, 1.0 - 1e-9);
    if place > 0.5 {
        return -probit(1.0 - place);
    }
    let over = |of: &[f64], x: f64| of.iter().fold(0.0, |sum, factor| sum * x + factor);
    if place < TAIL {
        let q = (-2.0 * place.ln()).sqrt();
        return over(&C, q) / over(&D, q);
    }
    let q = place - 0.5;
    q * over(&A, q * q) / over(&B, q * q)
}

/// Coefficients of Acklam's approximation of the inverse normal distribution function: the
/// numerator in the central region, highest power first.
const A: [f64; 6] = [
    -3.969_683_028_665_376e1,
    2.209_460_984_245_205e2,
    -2.759_285_104_469_687e2,
    1.383_577_518_672_69e2,
    -3.066_479_806_614_716e1,
    2.506_628_277_459_239,
];
/// Coefficients of Acklam's approximation of the inverse normal distribution function: the
/// denominator in the central region, highest power first.
const B: [f64; 6] = [
    -5.447_609_879_822_406e1,
    1.615_858_368_580_409e2,
    -1.556_989_798_598_866e2,
    6.680_131_188_771_972e1,
    -1.328_068_155_288_572e1,
    1.0,
];
/// Coefficients of Acklam's approximation of the inverse normal distribution function: the
/// numerator in the tails, highest power first.
const C: [f64; 6] = [
    -7.784_894_002_430_293e-3,
    -3.223_964_580_411_365e-1,
    -2.400_758_277_161_838,
    -2.549_732_539_343_734,
    4.374_664_141_464_968,
    2.938_163_982_698_783,
];
/// Coefficients of Acklam's approximation of the inverse normal distribution function: the
/// denominator in the tails, highest power first.
const D: [f64; 5] = [
    7.784_695_709_041_462e-3,
    3.224_671_290_700_398e-1,
    2.445_134_137_142_996,
    3.754_408_661_907_416,
    1.0,
];

impl Default for LinkSettings {
    fn default() -> LinkSettings {
        LinkSettings {
            rate: None,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            law: DelayLaw::Uniform,
            reorder: false,
            loss: Loss::None,
            queue: usize::MAX,
            codel: None,
            mtu: usize::MAX,
            down: false,
        }
    }
}

impl LinkSettings {
    /// Returns the settings of a link that is perfect except for its rate in bits per second. Zero
    /// means no limit.
    pub fn with_rate(bits_per_second: u64) -> LinkSettings {
        LinkSettings { rate: NonZeroU64::new(bits_per_second), ..LinkSettings::default() }
    }

    /// Returns the time that sending `bytes` bytes takes, rounded up to a nanosecond.
    pub fn serialization(&self, bytes: usize) -> Duration {
        let Some(rate) = self.rate else { return Duration::ZERO };
        let bit_nanos = bytes as u128 * 8 * 1_000_000_000;
        let nanos = bit_nanos.div_ceil(u128::from(rate.get()));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_the_normal_law_are_those_of_its_tables() {
        let wanted =
            [(0.5, 0.0), (0.841_344_746, 1.0), (0.977_249_868, 2.0), (0.001_349_898, -3.0)];
        for (place, deviations) in wanted {
            assert!((probit(place) - deviations).abs() < 1e-6, "{place}: {}", probit(place));
        }
        assert!(probit(0.0).is_finite() && probit(1.0).is_finite());
        let [delay, jitter] = [50, 10].map(Duration::from_millis);
        let at = |place| DelayLaw::Normal.delay(delay, jitter, place).as_secs_f64() * 1e3;
        assert!((at(0.841_344_746) - 60.0).abs() < 1e-4, "{}", at(0.841_344_746));
        assert!((at(0.158_655_254) - 40.0).abs() < 1e-4, "{}", at(0.158_655_254));
        assert_eq!(DelayLaw::Normal.delay(jitter, delay, 0.0), Duration::ZERO, "never below zero");
    }
}

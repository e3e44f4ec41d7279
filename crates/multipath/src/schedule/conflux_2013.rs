//! The scheduler Conflux, as it was published in 2013.

use super::mix::Mix;
use super::{BuildResult, Family, no_argument};
use crate::seed::Stream;

/// The scheduler `conflux-2013`: syntax, help texts and default run length.
pub(super) const FAMILY: Family = Family {
    name: "conflux-2013",
    syntax: "conflux-2013",
    example: "conflux-2013",
    about: "a path carries more if its packets are acknowledged faster, in inverse proportion to \
            the latest time from a packet to its acknowledgement (Conflux as published in 2013)",
    plain: "circuits carry more data if their data are acknowledged faster",
    every: Some("1p"),
    needs_windows: true,
    build,
};

/// Builds Conflux's scheduler (AlSabah et al., PETS 2013). The congestion of a leg (a circuit of a
/// set) is the time from sending a cell to receiving the SENDME that acknowledges it. With fixed
/// windows, a SENDME acknowledges each 100th cell. Cells are distributed in inverse proportion to
/// this time. [`PathView::rtt`](crate::PathView::rtt) has the time; with fixed windows it is not
/// smoothed.
///
/// This scheduler equals `mix:1`. The published code has two circuits. Paper 001 (de la Cadena et
/// al., "Analysis of Multi-path Onion Routing", DBSec 2019) extends the scheme to more circuits.
/// Neither source defines what happens to a circuit whose window is closed. This scheduler skips
/// such a circuit.
fn build(argument: Option<&str>, _paths: usize, _stream: Stream) -> BuildResult {
    no_argument("conflux-2013", argument)?;
    Ok(Box::new(Mix::new(1.0)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{LegView, PathView, Time, seed};

    #[test]
    fn a_leg_whose_sendme_took_three_times_as_long_carries_a_third() {
        let leg = |ms| PathView::leg(Some(Duration::from_millis(ms)), 1_000, LegView::default());
        let mut scheduler = build(None, 2, seed::stream(1, 0, "scheduler")).unwrap();
        let legs = [leg(60), leg(20)];
        let first =
            (0..400).filter(|_| scheduler.choose(Time::ZERO, &legs).unwrap().0 == 0).count();
        assert_eq!(first, 100);
    }
}

//! A scheduler that draws random paths as `weighted` does, with a weak preference for equal shares
//! at the beginning of a load (a burst of traffic).

use std::time::Duration;

use super::weighted::{Weighted, positive};
use super::{BuildResult, Family, Scheduler};
use crate::seed::Stream;
use crate::{PathId, PathView, Time};

/// The scheduler family `evened[:ALPHA]`: syntax and help texts.
pub(super) const FAMILY: Family = Family {
    name: "evened",
    syntax: "evened[:ALPHA]",
    example: "evened:4",
    about: "like weighted, but in the first half second of traffic after a pause, paths that \
            carried less are preferred",
    plain: "paths are chosen at random; at first, paths that carried less are chosen more often",
    every: None,
    needs_windows: false,
    build,
};

/// Time from the beginning of a load (a burst of traffic) during which paths that carried less are
/// preferred.
const YOUNG: Duration = Duration::from_millis(500);
/// Strength of the preference for equal shares. A path that carried everything so far has 1/e of
/// the probability that it would have if it had carried nothing.
const PULL: f64 = 1.0;

/// Scheduler like [`Weighted`], but with modified probabilities in the first half second of a load
/// (a burst of traffic). A path's probability is then multiplied by exp(-share), where share is
/// the part of the load that the path has carried so far.
///
/// Half a second has only five runs of 100 ms, so one path often gets most of a short load. Equal
/// shares for the whole load would not help: random shares hide a page's size, and equal shares
/// reveal it. So the preference is weak, a factor of at most e between two paths, and ends during
/// the load.
#[derive(Debug)]
struct EvenedScheduler {
    weighted: Weighted,
    /// Time at which the load (a burst of traffic) began; `None` before the first run of a load.
    since: Option<Time>,
    /// Number of units (such as packets) that each path has carried since the load (a burst of
    /// traffic) began.
    sent_units: Vec<u64>,
}

impl Scheduler for EvenedScheduler {
    fn choose(&mut self, now: Time, paths: &[PathView]) -> Option<PathId> {
        let since = *self.since.get_or_insert(now);
        let total: u64 = self.sent_units.iter().sum();
        if total == 0 || now.since(since) >= YOUNG {
            return self.weighted.choose(now, paths);
        }
        let sent_units = &self.sent_units;
        let share =
            |path: usize| sent_units.get(path).map_or(0.0, |&own| own as f64 / total as f64);
        self.weighted.choose_tilted(paths, |path| (-PULL * share(path)).exp())
    }

    fn on_sent(&mut self, _now: Time, path: PathId, units: u64) {
        if let Some(sent_units) = self.sent_units.get_mut(path.index()) {
            *sent_units = sent_units.saturating_add(units).min(u64::from(u32::MAX));
        }
    }

    fn after_silence(&mut self) {
        self.since = None;
        self.sent_units.fill(0);
    }

    fn reseed(&mut self, stream: Stream) {
        self.weighted.reseed(stream);
    }
}

fn build(argument: Option<&str>, paths: usize, stream: Stream) -> BuildResult {
    let alpha = argument.map_or(Ok(1.0), positive)?;
    let weighted = Weighted::dirichlet(alpha, paths, stream)?;
    Ok(Box::new(EvenedScheduler { weighted, since: None, sent_units: vec![0; paths] }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::stream;

    /// Returns the share of loads in which the run at `now` takes the path that has carried
    /// everything before. The paths have equal weights. If `silence` is true, a pause in the
    /// traffic precedes the run at `now`.
    fn stays(now: Time, silence: bool) -> f64 {
        let mut evened = build(Some("1e9"), 3, stream(1, 0, "scheduler")).unwrap();
        let paths = [PathView::open(); 3];
        let stayed = (0..30_000).filter(|_| {
            evened.after_silence();
            let first = evened.choose(Time::ZERO, &paths).unwrap();
            evened.on_sent(Time::ZERO, first, 40);
            if silence {
                evened.after_silence();
            }
            evened.choose(now, &paths) == Some(first)
        });
        stayed.count() as f64 / 30_000.0
    }

    #[test]
    fn a_path_that_carried_all_has_a_lesser_chance_in_the_first_half_second() {
        let pulled = (-1f64).exp() / (2.0 + (-1f64).exp());
        // The bound is five standard errors of a share of a third.
        let close = |share: f64, expected: f64| (share - expected).abs() < 0.0137;
        let early = stays(Time::from_millis(499), false);
        assert!(close(early, pulled), "{early} for {pulled}");
        let late = stays(Time::from_millis(500), false);
        assert!(close(late, 1.0 / 3.0), "{late}");
        let rested = stays(Time::from_millis(499), true);
        assert!(close(rested, 1.0 / 3.0), "{rested}");
    }

    #[test]
    fn what_a_path_carried_that_is_dead_pulls_nobody_to_it() {
        let mut evened = build(None, 2, stream(1, 0, "scheduler")).unwrap();
        let paths = [PathView::open(), PathView::dead()];
        evened.on_sent(Time::ZERO, PathId(0), u64::MAX);
        evened.on_sent(Time::ZERO, PathId(0), u64::MAX);
        assert!((0..99).all(|_| evened.choose(Time::ZERO, &paths) == Some(PathId(0))));
    }
}

//! A scheduler that chooses the leg (circuit of a set) with the earliest expected arrival of the
//! next cell. It uses the TCP state of each leg's first link.

use std::time::Duration;

use super::{BuildResult, Family, Scheduler, no_argument};
use crate::path::{quickest_ready, usable};
use crate::seed::Stream;
use crate::{LegView, PathId, PathView, Time};

/// The scheduler `eta`: syntax, help texts and default run length.
pub(super) const FAMILY: Family = Family {
    name: "eta",
    syntax: "eta",
    example: "eta",
    about: "the path on which the next packet should arrive first, estimated from the congestion \
            window, the queue and, for Tor circuits, the TCP connection to the first relay",
    plain: "data use the circuit over which they should arrive first",
    every: Some("1p"),
    needs_windows: true,
    build,
};

/// Bytes of a cell on a link (514), with its share of the TLS record's 22 bytes for each 16 KiB.
const CELL: f64 = 515.0;

/// Hysteresis: time that a change of leg must save, for each cell that the change costs. The unit
/// is the time in which the present leg sends one cell. A change costs one cell, the SWITCH of
/// proposal 329. Two equally good legs alternate after about this number of cells.
const SWITCH_GAIN: f64 = 16.0;

/// A scheduler by expected time of arrival. It estimates each circuit's delay from the TCP state
/// of its first link. De la Cadena et al. (paper 001, DBSec 2019) propose such an estimate in
/// section 7.
///
/// The expected time of a leg (circuit of a set) is T = q/(s·d) + notsent/d + max(beyond, burst) +
/// least RTT/2.
///
/// * notsent/d: the bytes in the first hop's socket leave at its delivery rate d.
/// * q/(s·d): the q cells in our own queue leave at our share s of d. If d is unknown, the cells
///   leave at R = window/RTT.
/// * beyond = max(0, inflight − q − bdp)/R: cells in flight beyond the path's own capacity wait in
///   queues further on.
/// * burst: the time until all cells sent so far have passed the narrowest link at rate R.
///
/// For a leg without room, half the time that the cells of one acknowledgement take is added. A
/// leg whose first hop is stuck ([`crate::LinkView::is_stuck`]) is skipped while another leg is
/// not stuck.
///
/// Until a leg has had an acknowledgement, all of its rates are guesses. If a change of leg has a
/// cost, legs are then filled in the order of their round-trip times, as `lowrtt` does. Without
/// such a cost, all legs are tried at once. Once the rate of one leg is known, legs of unknown
/// rate count as having a bandwidth-delay product of 0, so they are tried when the known leg is
/// busy.
///
/// If the best leg has no room, another leg is chosen only if its cell arrives no later than the
/// best leg would deliver all waiting cells. This is ECF's rule (Lim et al., CoNEXT 2017): the end
/// of a short object waits for the better leg, and a long object uses both.
#[derive(Debug, Default)]
struct Eta {
    bottlenecks: Vec<Bottleneck>,
    /// For each leg, the expected seconds until a cell that it sends now arrives. From the present
    /// leg's value, the cost of a change to another leg is subtracted. Recomputed at each choice.
    expected: Vec<f64>,
}

/// Model of the queue at a leg's narrowest link, as if only this leg used the link.
#[derive(Clone, Copy, Debug, Default)]
struct Bottleneck {
    /// Number of cells in flight at the last update of this model.
    inflight: u64,
    /// Time at which the last of the cells in flight will have passed the narrowest link.
    free: Time,
}

impl Bottleneck {
    /// Returns the seconds until all cells sent until now have passed the narrowest link, at
    /// `rate` cells per second.
    fn burst(&mut self, now: Time, inflight: u64, rate: f64) -> f64 {
        let sent = inflight.saturating_sub(self.inflight);
        self.inflight = inflight;
        self.free = self.free.max(now);
        if sent > 0 {
            self.free += Duration::try_from_secs_f64(sent as f64 / rate).unwrap_or_default();
        }
        self.free.since(now).as_secs_f64()
    }
}

impl Eta {
    fn look(&mut self, now: Time, paths: &[PathView]) {
        self.bottlenecks.resize(paths.len(), Bottleneck::default());
        let legs = self.bottlenecks.iter_mut().zip(paths);
        self.expected.clear();
        self.expected.extend(legs.map(|(narrow, path)| {
            let rate = rate(path);
            let burst = narrow.burst(now, path.leg.inflight, rate);
            let kept =
                if path.leg.current { SWITCH_GAIN * path.leg.switch_cost as f64 } else { 0.0 };
            arrival(path, rate, burst) - kept / rate
        }));
    }

    /// Returns the index of the best leg if that leg has room. Otherwise returns the best leg with
    /// room, if its cell would arrive no later than the best leg would deliver all `units`, or if
    /// the best leg has no cell in flight. If not, returns the best leg although it is full, so
    /// that the sender waits for this leg. Returns `None` if no leg is usable.
    fn best(&mut self, now: Time, paths: &[PathView], units: u64) -> Option<usize> {
        self.look(now, paths);
        if usable(paths).all(|index| paths[index].leg.bdp == 0 && paths[index].leg.switch_cost > 0)
        {
            return quickest_ready(paths);
        }
        let expected = |index: usize| self.expected[index];
        let soonest = |places: &mut dyn Iterator<Item = usize>| {
            places.min_by(|&one, &other| expected(one).total_cmp(&expected(other)))
        };
        let stuck = |index: &usize| paths[*index].leg.link.is_some_and(|link| link.is_stuck());
        let all_stuck = usable(paths).all(|index| stuck(&index));
        let candidates = || usable(paths).filter(|index| all_stuck || !stuck(index));
        let best = soonest(&mut candidates())?;
        if paths[best].has_room() {
            return Some(best);
        }
        let mut others = candidates().filter(|&index| paths[index].has_room());
        let Some(other) = soonest(&mut others) else { return Some(best) };
        let rest = units.saturating_sub(1) as f64 / rate(&paths[best]);
        let later = expected(other) > expected(best) + rest;
        Some(if paths[best].leg.inflight > 0 && later { best } else { other })
    }
}

/// Returns the expected seconds until a cell that is sent now arrives. `rate` is the leg's rate in
/// cells per second. `burst` is the time in seconds until all earlier cells have passed the
/// narrowest link.
fn arrival(view: &PathView, rate: f64, burst: f64) -> f64 {
    let LegView { queued, inflight, bdp, step, .. } = view.leg;
    let queued_here = match view.leg.link {
        Some(link) if link.delivery_rate > 0 => {
            let share = if link.share == 0 { 1.0 } else { f64::from(link.share) / 1e3 };
            (queued as f64 * CELL / share + f64::from(link.notsent)) / link.delivery_rate as f64
        }
        _ => queued as f64 / rate,
    };
    let beyond = inflight.saturating_sub(queued).saturating_sub(bdp) as f64 / rate;
    let closed = if view.has_room() { 0.0 } else { step as f64 / 2.0 / rate };
    queued_here + beyond.max(burst) + closed + least(view).as_secs_f64() / 2.0
}

/// Returns the estimated rate of a path in cells per second: the path's capacity if it is known,
/// else the window's size divided by the round-trip time.
fn rate(view: &PathView) -> f64 {
    if view.leg.capacity > 0 {
        return view.leg.capacity as f64;
    }
    let rtt = view.rtt.unwrap_or_default().max(Duration::from_micros(1));
    view.leg.size.max(1) as f64 / rtt.as_secs_f64()
}

/// Returns the minimum round-trip time, or the present one if the minimum is unknown.
fn least(view: &PathView) -> Duration {
    match view.leg.least_rtt {
        Duration::ZERO => view.rtt.unwrap_or_default(),
        least => least,
    }
}

impl Scheduler for Eta {
    fn choose(&mut self, now: Time, paths: &[PathView]) -> Option<PathId> {
        self.deal(now, paths, u64::MAX)
    }

    fn deal(&mut self, now: Time, paths: &[PathView], units: u64) -> Option<PathId> {
        self.best(now, paths, units).map(PathId::at)
    }

    fn load_aware(&self) -> bool {
        true
    }

    fn waits(&self) -> bool {
        true
    }

    fn sees_links(&self) -> bool {
        true
    }
}

fn build(argument: Option<&str>, _paths: usize, _stream: Stream) -> BuildResult {
    no_argument("eta", argument)?;
    Ok(Box::new(Eta::default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkView;

    fn leg(ms: u64, inflight: u64) -> PathView {
        let least_rtt = Duration::from_millis(ms);
        let leg =
            LegView { least_rtt, size: 124, inflight, step: 31, bdp: 62, ..LegView::default() };
        PathView::leg(Some(least_rtt), 124 - inflight, leg)
    }

    fn choice(legs: &[PathView], units: u64) -> u16 {
        // The scheduler has seen these legs before, so the cells in flight were not sent just now.
        let mut eta = Eta::default();
        eta.deal(Time::ZERO, legs, units);
        eta.deal(Time::from_secs(1), legs, units).unwrap().0
    }

    #[test]
    fn a_queue_on_the_quick_leg_makes_the_slow_one_the_sooner() {
        assert_eq!(choice(&[leg(50, 62), leg(40, 62)], 9), 1);
        // The second leg has 50 cells more than the path holds. At 124 cells in 40 ms, its cell
        // arrives 16 ms later.
        assert_eq!(choice(&[leg(50, 62), leg(40, 112)], 9), 0);
    }

    #[test]
    fn what_was_sent_at_once_comes_one_behind_the_other() {
        let mut eta = Eta::default();
        let at = Time::from_secs(1);
        assert_eq!(eta.deal(at, &[leg(50, 0), leg(40, 0)], 9), Some(PathId(1)));
        // At 124 cells in 40 ms, 62 cells need 20 ms, although the path holds this number without
        // a queue.
        assert_eq!(eta.deal(at, &[leg(50, 0), leg(40, 62)], 9), Some(PathId(0)));
        let later = at + Duration::from_millis(20);
        assert_eq!(eta.deal(later, &[leg(50, 0), leg(40, 62)], 9), Some(PathId(1)));
    }

    #[test]
    fn the_present_leg_is_kept_until_another_is_sooner_by_a_turn() {
        let mut present = leg(40, 0);
        (present.leg.current, present.leg.switch_cost) = (true, 1);
        // A change must save the time of 16 cells: 5.2 ms at 124 cells in 40 ms.
        assert_eq!(choice(&[leg(31, 0), present], 9), 1);
        assert_eq!(choice(&[leg(29, 0), present], 9), 0);
        present.leg.switch_cost = 0;
        assert_eq!(choice(&[leg(39, 0), present], 9), 0, "it costs nothing");
    }

    #[test]
    fn what_waits_in_the_first_hops_socket_counts_at_its_delivery_rate() {
        let link = LinkView { notsent: 125_000, delivery_rate: 1_250_000, ..LinkView::default() };
        let mut quick = leg(40, 0);
        assert_eq!(choice(&[leg(100, 0), quick], 9), 1);
        quick.leg.link = Some(link);
        assert_eq!(choice(&[leg(100, 0), quick], 9), 0, "100 ms in the socket");
    }

    #[test]
    fn the_end_of_an_object_waits_for_the_better_leg_and_a_long_one_does_not() {
        let full = leg(20, 124);
        assert_eq!(choice(&[full, leg(120, 0)], 1), 0);
        assert_eq!(choice(&[full, leg(120, 0)], 1_000), 1);
        assert_eq!(choice(&[full, leg(30, 0)], 1), 1, "the other would deliver before");
    }

    #[test]
    fn legs_of_unknown_rate_are_filled_in_the_order_of_their_round_trip_times() {
        let fresh = |ms, inflight| {
            let mut leg = leg(ms, inflight);
            (leg.leg.bdp, leg.leg.switch_cost) = (0, 1);
            leg
        };
        assert_eq!(choice(&[fresh(50, 0), fresh(40, 123)], 9), 1);
        assert_eq!(choice(&[fresh(50, 0), fresh(40, 124)], 9), 0);
        // If the rate of another leg is known, the new leg is tried, but not filled.
        assert_eq!(choice(&[leg(50, 0), fresh(40, 0)], 9), 1);
        assert_eq!(choice(&[leg(50, 0), fresh(40, 62)], 9), 0);
    }

    #[test]
    fn a_leg_whose_first_hop_is_stuck_is_passed_over_while_another_is_not() {
        let (rtt, since_ack) = (Duration::from_millis(10), Duration::from_millis(31));
        let link = LinkView { unacked: 1, rtt, since_ack, ..LinkView::default() };
        let mut stuck = leg(20, 0);
        stuck.leg.link = Some(link);
        assert_eq!(choice(&[stuck, leg(500, 0)], 9), 1);
        assert_eq!(choice(&[stuck], 9), 0);
    }
}

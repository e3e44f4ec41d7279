//! Fixed-size windows: 1,000 cells for a circuit, 500 for a stream.

use std::time::Duration;

use anabranch_multipath::{LegView, PathView};

use super::{Control, Outlet};

/// A window of fixed size. Each SENDME allows a fixed number of further cells to be sent.
#[derive(Clone, Debug)]
pub struct Fixed {
    room: u64,
    size: u64,
    step: u64,
    /// Round-trip time measured by the last SENDME, and the minimum round-trip time; `None` before
    /// the first SENDME. The first value is not smoothed, as the scheduler of Conflux of 2013
    /// requires.
    rtt: Option<(Duration, Duration)>,
}

impl Fixed {
    /// Returns the window of a circuit: 1,000 cells.
    pub fn circuit() -> Fixed {
        Fixed { room: 1000, size: 1000, step: 100, rtt: None }
    }

    /// Returns the window of a stream: 500 cells.
    pub fn stream() -> Fixed {
        Fixed { room: 500, size: 500, step: 50, rtt: None }
    }
}

impl Control for Fixed {
    fn room(&self) -> u64 {
        self.room
    }

    fn is_marked(&self) -> bool {
        (self.size - self.room + 1).is_multiple_of(self.step)
    }

    fn sent(&mut self) {
        self.room = self.room.saturating_sub(1);
    }

    fn acknowledged(&mut self, rtt: Duration, _outlet: Outlet) -> bool {
        self.rtt = Some((rtt, self.rtt.map_or(rtt, |(_, least)| least.min(rtt))));
        let opened = self.room + self.step;
        let owed = opened <= self.size;
        self.room = opened.min(self.size);
        owed
    }

    fn sendme_inc(&self) -> u64 {
        self.step
    }

    fn window(&self) -> u64 {
        self.size
    }

    fn view(&self) -> PathView {
        let (rtt, least_rtt) = self.rtt.unzip();
        let least_rtt = least_rtt.unwrap_or_default();
        let part = match rtt {
            None => 0.0,
            Some(Duration::ZERO) => 1.0,
            Some(rtt) => least_rtt.div_duration_f64(rtt),
        };
        let leg = LegView {
            least_rtt,
            size: self.size,
            inflight: self.size - self.room,
            step: self.step,
            bdp: (self.size as f64 * part) as u64,
            ..LegView::default()
        };
        PathView::leg(rtt, self.room, leg)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hundredth_cell_is_marked_and_an_acknowledgement_opens_as_many() {
        let mut window = Fixed::circuit();
        let mut marked = Vec::new();
        for cell in 1..=1000 {
            if window.is_marked() {
                marked.push(cell);
            }
            window.sent();
        }
        assert_eq!(marked, (1..=10).map(|n| n * 100).collect::<Vec<_>>());
        assert_eq!(window.room(), 0);
        assert!(window.acknowledged(Duration::ZERO, Outlet::default()));
        assert_eq!(window.room(), 100);
    }

    #[test]
    fn a_scheduler_sees_how_long_the_last_sendme_took() {
        let mut window = Fixed::circuit();
        assert!(!window.view().usable, "not measured");
        (0..250).for_each(|_| window.sent());
        for ms in [40, 80] {
            assert!(window.acknowledged(Duration::from_millis(ms), Outlet::default()));
        }
        let PathView { rtt, window: room, leg, .. } = window.view();
        assert_eq!((rtt, room), (Some(Duration::from_millis(80)), Some(950)));
        assert_eq!((leg.least_rtt, leg.bdp), (Duration::from_millis(40), 500));
        assert_eq!((leg.size, leg.inflight, leg.step), (1_000, 50, 100));
    }

    #[test]
    fn an_acknowledgement_that_is_not_owed_is_told() {
        let mut window = Fixed::stream();
        (0..49).for_each(|_| window.sent());
        assert!(!window.acknowledged(Duration::ZERO, Outlet::default()));
        assert_eq!(window.room(), 500);
    }
}

//! Statistics of the connections that carry links, as the operating system reports them.
//! Schedulers use them.
//!
//! Statistics cost a system call. They are therefore requested only when a scheduler needs them,
//! and only if the last ones are older than [`FRESH`].

use std::time::Duration;

use anabranch_multipath::{LinkView, Time};

/// Age from which a connection's statistics are requested again.
const FRESH: Duration = Duration::from_millis(10);
/// Binary logarithm of the length in nanoseconds of a period in which [`RecentCells`] counts sent
/// cells: 2^27 ns (134 ms). Cells of the present and the previous period count as recent.
const SPAN: u32 = 27;

/// The last known statistics of the connection that carries a link.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Transport {
    seen: Option<(Time, LinkView)>,
    is_requested: bool,
}

impl Transport {
    /// Returns the last known statistics with their age; `None` if there are none yet. Requests
    /// new statistics if there are none, or if they are older than [`FRESH`].
    pub(crate) fn ask(&mut self, now: Time) -> Option<LinkView> {
        let seen = self.seen.map(|(at, view)| LinkView { age: now.since(at), ..view });
        self.is_requested |= seen.is_none_or(|view| view.age >= FRESH);
        seen
    }

    /// Returns true if new statistics were requested and have not arrived yet.
    pub(crate) fn is_requested(&self) -> bool {
        self.is_requested
    }

    /// Stores statistics from the operating system.
    pub(crate) fn saw(&mut self, now: Time, view: LinkView) {
        *self = Transport { seen: Some((now, view)), is_requested: false };
    }
}

/// Count of the cells sent recently, in the present and the previous period.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecentCells {
    span: u64,
    cells: u32,
    before: u32,
}

impl RecentCells {
    /// Counts a cell that is sent now.
    pub(crate) fn note(&mut self, now: Time) {
        *self = self.at(now);
        self.cells += 1;
    }

    /// Returns the number of cells sent in the present and the previous period.
    pub(crate) fn cells(&self, now: Time) -> u32 {
        let RecentCells { cells, before, .. } = self.at(now);
        cells + before
    }

    fn at(self, now: Time) -> RecentCells {
        let span = now.nanos() >> SPAN;
        match span - self.span.min(span) {
            0 => self,
            1 => RecentCells { span, cells: 0, before: self.cells },
            _ => RecentCells { span, ..RecentCells::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_asked_for_once_and_not_again_while_it_is_fresh() {
        let at = Time::from_millis;
        let mut transport = Transport::default();
        assert!(!transport.is_requested(), "nobody asked");
        assert_eq!(transport.ask(at(0)), None);
        assert!(transport.is_requested());
        transport.saw(at(1), LinkView { mss: 1_448, ..LinkView::default() });
        assert!(!transport.is_requested());
        let known = transport.ask(at(10)).unwrap();
        assert_eq!((known.mss, known.age), (1_448, Duration::from_millis(9)));
        assert!(!transport.is_requested());
        assert_eq!(transport.ask(at(12)).unwrap().age, Duration::from_millis(11));
        assert!(transport.is_requested());
    }

    #[test]
    fn cells_are_forgotten_after_two_spans() {
        let mut lately = RecentCells::default();
        let at = |span: u64| Time::from_nanos(span << SPAN);
        (0..5).for_each(|_| lately.note(at(3)));
        assert_eq!([3, 4, 5].map(|span| lately.cells(at(span))), [5, 5, 0]);
        lately.note(at(4));
        assert_eq!([4, 5, 6].map(|span| lately.cells(at(span))), [6, 1, 0]);
    }
}

//! Scheduler that chooses circuits as [`Ewma`] does, and passes no more cells to a link than the
//! kernel can send soon. A cell that is queued later can thus still overtake others (Jansen et
//! al., "Never Been KIST", USENIX Security 2014).

use std::time::Duration;

use anabranch_multipath::{LinkView, Time};

use super::{Ewma, Policy};

/// Interval between checks of a connection while the kernel has no room for its cells (section 4.2
/// of "Never Been KIST").
pub const INTERVAL: Duration = Duration::from_millis(10);

/// The scheduler [`Ewma`], for links whose cells stay queued until the kernel has room for them.
#[derive(Clone, Debug, Default)]
pub struct Kist(Ewma);

impl Policy for Kist {
    fn activate(&mut self, circuit: u32) {
        self.0.activate(circuit);
    }

    fn next(&mut self) -> Option<u32> {
        self.0.next()
    }

    fn sent(&mut self, now: Time, circuit: u32, more: bool) {
        self.0.sent(now, circuit, more);
    }

    fn remove(&mut self, circuit: u32) {
        self.0.remove(circuit);
    }
}

/// Returns the number of bytes to pass to the kernel now: the free part of the congestion window,
/// plus one full window, less the bytes that the kernel has not sent yet. The additional window
/// gives the kernel data to send when the next acknowledgements arrive.
#[must_use]
pub fn room(view: &LinkView) -> usize {
    let bytes = |segments: u32| u64::from(segments) * u64::from(view.mss);
    let free = bytes(view.snd_cwnd.saturating_sub(view.unacked));
    let room = (free + bytes(view.snd_cwnd)).saturating_sub(u64::from(view.notsent));
    usize::try_from(room).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_a_window_and_what_is_free_of_it_less_what_waits() {
        let view = LinkView { snd_cwnd: 10, unacked: 4, mss: 1_000, ..LinkView::default() };
        assert_eq!(room(&view), 16_000);
        assert_eq!(room(&LinkView { notsent: 9_000, ..view }), 7_000);
        assert_eq!(room(&LinkView { notsent: 40_000, ..view }), 0);
        // The window has shrunk below the number of packets in flight.
        assert_eq!(room(&LinkView { unacked: 20, ..view }), 10_000);
    }
}

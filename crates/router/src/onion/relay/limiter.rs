//! Observer that forwards a relay's events, but reports protocol violations of the same kind at
//! most once a minute.
//!
//! Without this limit, any client could fill a relay's log, because each cell of a client can
//! violate the protocol.

use std::net::SocketAddr;
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_onion::{Event, Violation};

use super::{Numbers, Watch};
use crate::onion::reload::Outcome;
use crate::onion::skew::Skew;

/// Minimum interval between two messages about the same kind of protocol violation.
const PAUSE: Duration = Duration::from_secs(60);

/// A [`Watch`] that limits reports of protocol violations, and forwards all other events.
pub(super) struct Limiter<'w> {
    inner: &'w mut dyn Watch,
    /// Kinds of violations seen so far. The list stays short, because the protocol has few kinds.
    kinds: Vec<Kind>,
}

/// One kind of protocol violation, and the state of its reports.
struct Kind {
    violation: Violation,
    reported_at: Time,
    /// Number of violations since the last report. They were not reported.
    more: u64,
}

impl<'w> Limiter<'w> {
    pub(super) fn new(inner: &'w mut dyn Watch) -> Limiter<'w> {
        Limiter { inner, kinds: Vec::new() }
    }

    /// Decides whether to report `violation`. Returns `None` to suppress it. Otherwise returns the
    /// number of violations of the same kind that were suppressed since the last report.
    fn admit(&mut self, now: Time, violation: Violation) -> Option<u64> {
        let Some(kind) = self.kinds.iter_mut().find(|kind| kind.violation == violation) else {
            self.kinds.push(Kind { violation, reported_at: now, more: 0 });
            return Some(0);
        };
        if now.since(kind.reported_at) < PAUSE {
            kind.more += 1;
            return None;
        }
        kind.reported_at = now;
        Some(std::mem::take(&mut kind.more))
    }
}

impl Watch for Limiter<'_> {
    fn listening(&mut self, at: &[SocketAddr]) {
        self.inner.listening(at);
    }

    fn event(&mut self, now: Time, event: &Event) {
        let &Event::Violation { violation, .. } = event else {
            return self.inner.event(now, event);
        };
        let Some(more) = self.admit(now, violation) else { return };
        self.inner.event(now, event);
        if more > 0 {
            let message = format!("{more} more messages like this were suppressed: {violation}");
            self.inner.note(&message);
        }
    }

    fn numbers(&mut self, now: Time, numbers: &Numbers) {
        self.inner.numbers(now, numbers);
    }

    fn note(&mut self, text: &str) {
        self.inner.note(text);
    }

    fn reloaded(&mut self, outcome: &Outcome) {
        self.inner.reloaded(outcome);
    }

    fn clock(&mut self, skew: &Skew) {
        self.inner.clock(skew);
    }
}

#[cfg(test)]
mod tests {
    use anabranch_onion::{CircuitFault, LinkFault, LinkId, Neighbour};

    use super::*;

    /// Watch that stores the texts of violations and notes.
    #[derive(Default)]
    struct Lines(Vec<String>);

    impl Watch for Lines {
        fn listening(&mut self, _: &[SocketAddr]) {}
        fn event(&mut self, _: Time, event: &Event) {
            if let Event::Violation { violation, .. } = event {
                self.0.push(violation.to_string());
            }
        }
        fn numbers(&mut self, _: Time, _: &Numbers) {}
        fn note(&mut self, text: &str) {
            self.0.push(text.to_owned());
        }
    }

    #[test]
    fn a_kind_of_violation_is_told_once_a_minute_with_how_many_more_there_were() {
        let mut lines = Lines::default();
        let mut limiter = Limiter::new(&mut lines);
        let mut met = |second, violation| {
            let (link, neighbour) = (LinkId::new(0, 1), Neighbour::default());
            let event = Event::Violation { link, neighbour, violation };
            limiter.event(Time::ZERO + Duration::from_secs(second), &event);
        };
        for second in 0..1000 {
            met(second / 20, CircuitFault::Extend.into());
        }
        met(50, LinkFault::NoCircuit.into());
        met(60, CircuitFault::Extend.into());
        met(120, CircuitFault::Extend.into());
        let extend = "a request to extend a circuit in a way that is not allowed";
        let more = format!("999 more messages like this were suppressed: {extend}");
        assert_eq!(
            lines.0,
            [
                extend,
                "a cell that needs a circuit, but has the circuit ID 0",
                extend,
                &more,
                extend
            ]
        );
    }
}

//! Restores the order of datagrams that a server sends on one path after another.
//!
//! When a server moves to another path, datagrams on the new path overtake datagrams that are
//! still in the queues of the old path. QUIC and TCP treat such reordering as loss and slow down.
//! So the new path's datagrams are held until the old path is silent, but not longer than the user
//! allows ([`Config::in_order`](crate::Config::in_order)). The server follows our uplink from path
//! to path. So it uses the path that the uplink visited last, and left the other path earlier.

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_multipath::{PathId, Time};

use crate::{Batch, HeldDatagrams};

/// Time after which a path's queues count as empty if datagrams arrive on another path but not on
/// this one.
const SILENCE: Duration = Duration::from_millis(4);
/// Maximum time that a pause, in which nothing arrives on any path, adds to one path's silence.
/// This machine may have caused the pause, so it does not show that one path is silent.
const PAUSE: Duration = Duration::from_millis(1);
/// Time without datagrams after which a path counts as silent, even if nothing arrived on other
/// paths either.
const LONG_SILENCE: Duration = Duration::from_millis(6);
/// Maximum length in bytes of a probe, such as a PATH_CHALLENGE. On a path that the server has
/// left, a datagram of at most this length is not treated as the rest of a queue, but as a probe:
/// s2n-quic, for example, sends probes on both paths. The server sent the probe after the
/// datagrams that now arrive on the newer path.
///
/// While our uplink already uses another path, the last data on the path that the server still
/// uses may be this short, too. Such a datagram is then also treated as a probe. This does no
/// harm, because the path then has no queue: the datagram arrives before the first datagram on the
/// new path.
const PROBE: usize = 100;
/// Time for which a probe (a short datagram such as a PATH_CHALLENGE) is held, so that it does not
/// overtake earlier datagrams.
const PROBE_WAITS: Duration = Duration::from_micros(1_000);
/// Maximum number of datagrams of an unvalidated path that may overtake the first waiting probe.
/// For each further waiting probe, the maximum is greater by one. Until validation the server
/// sends a few datagrams on the unvalidated path, and probes between them. A datagram that three
/// other datagrams overtake counts as lost (RFC 9002, section 6.1.1). With a maximum of two, no
/// probe counts as lost if the server sent up to four datagrams before the probe.
const PROBE_LETS: usize = 2;
/// Maximum number of probes (short datagrams such as a PATH_CHALLENGE) that wait in one session.
const MOST_PROBES: usize = 16;
/// Maximum bytes held in one session. If more arrive, all are released.
const MOST: usize = 1 << 20;

/// The held datagrams of one session, and the state that decides when they are released.
#[derive(Debug)]
pub(super) struct InOrder {
    /// For each path: the time at which the uplink last moved to it, and whether its datagrams
    /// were ever delivered on arrival.
    visits: Box<[Visit]>,
    /// The path that the server uses now, whose datagrams are delivered on arrival; `None` before
    /// the first datagram.
    front: Option<Front>,
    /// Time at which a datagram of the server last arrived, on any path.
    last_arrival: Time,
    held: VecDeque<(Time, PathId, HeldDatagrams)>,
    bytes: usize,
    probes: VecDeque<Probe>,
}

#[derive(Clone, Copy, Debug)]
struct Visit {
    since: Time,
    /// Whether datagrams of this path were ever delivered on arrival (the path was then "in
    /// front").
    known: bool,
}

/// A probe (a short datagram such as a PATH_CHALLENGE) that waits to be delivered.
#[derive(Debug)]
struct Probe {
    path: PathId,
    due: Time,
    /// Number of datagrams of another path that may still overtake this probe.
    may_pass: usize,
    held: HeldDatagrams,
}

#[derive(Debug)]
struct Front {
    path: PathId,
    /// Arrival time from which datagrams on this path count as sent after the server had validated
    /// the path. It is three quarters of a round trip after the path's first datagram. The first
    /// burst after validation arrives later than this.
    validated: Time,
    last_arrival: Time,
    /// Length of this path's silence. A pause of all paths adds at most [`PAUSE`] to it.
    silent: Duration,
    /// Bytes that have arrived on this path since datagrams of other paths are held.
    brought: usize,
}

/// The decision about datagrams that have arrived.
enum Decision {
    Pass,
    /// Deliver the datagrams, and from now on deliver all datagrams of this path on arrival (the
    /// path is then "in front").
    Lead,
    Hold,
    /// Hold the datagram as a probe for a short time, or until `may_pass` datagrams of another
    /// path have overtaken it.
    Probe {
        may_pass: usize,
    },
    /// Deliver the datagrams. But before them, deliver earlier datagrams of the same path that
    /// were held because they were taken for probes.
    AfterProbes,
}

impl InOrder {
    pub(super) fn new(paths: usize) -> InOrder {
        InOrder {
            visits: vec![Visit { since: Time::ZERO, known: false }; paths].into(),
            front: None,
            last_arrival: Time::ZERO,
            held: VecDeque::new(),
            bytes: 0,
            probes: VecDeque::new(),
        }
    }

    /// Records that the client's datagrams are sent on `path` from now on.
    pub(super) fn visit(&mut self, now: Time, path: PathId) {
        self.visits[path.index()].since = now;
    }

    /// Returns true if the datagrams in `batch`, which arrived on `path`, may be delivered at
    /// once; otherwise stores them and returns false. The caller delivers the result of
    /// [`InOrder::release`] before the batch, and again after it.
    pub(super) fn passes(&mut self, now: Time, path: PathId, batch: &Batch<'_>) -> bool {
        self.listen(now, path, batch.bytes.len());
        let held =
            || HeldDatagrams { bytes: batch.bytes.into(), stride: batch.stride, ecn: batch.ecn };
        let decision = self.decide(now, path, batch.bytes.len());
        match decision {
            Decision::Pass => {}
            Decision::Lead => self.lead(now, path),
            Decision::Hold => {
                self.bytes += batch.bytes.len();
                self.held.push_back((now, path, held()));
            }
            Decision::Probe { may_pass } => {
                self.probes.push_back(Probe {
                    path,
                    due: now + PROBE_WAITS,
                    may_pass,
                    held: held(),
                });
            }
            Decision::AfterProbes => {
                self.probes.push_back(Probe { path, due: now, may_pass: 0, held: held() });
                self.probes.iter_mut().for_each(|probe| probe.due = now);
            }
        }
        let passes = matches!(decision, Decision::Pass | Decision::Lead);
        if passes {
            self.count_down(path, batch.count());
        }
        passes
    }

    /// Subtracts the `datagrams` that arrived on `path` from the number of datagrams that may
    /// still overtake each waiting probe of another path.
    fn count_down(&mut self, path: PathId, datagrams: u64) {
        let gone = usize::try_from(datagrams).unwrap_or(usize::MAX);
        for probe in self.probes.iter_mut().filter(|probe| probe.path != path) {
            probe.may_pass = probe.may_pass.saturating_sub(gone);
        }
    }

    /// Returns the datagrams that need not be held any longer, in the order in which to deliver
    /// them. `longest` is the maximum time for which datagrams are held.
    ///
    /// The path in front is the path whose datagrams are delivered on arrival. Usually, the server
    /// has moved to the path of the released datagrams, and that path becomes the path in front.
    /// But if the path in front is not silent, and at least as many bytes arrived on it meanwhile
    /// as on that path, the server only tested that path. Then the path in front does not change.
    pub(super) fn release(&mut self, now: Time, longest: Duration) -> Vec<HeldDatagrams> {
        let mut free = Vec::new();
        while let Some(probe) = self.probes.pop_front_if(|probe| probe.is_due(now)) {
            free.push(probe.held);
        }
        while let Some(&(since, next, _)) = self.held.front() {
            let silent = self.is_front_silent(now);
            if !silent && now.since(since) < longest && self.bytes <= MOST {
                break;
            }
            let before = self.bytes;
            self.take(next, &mut free);
            let brought = self.front.as_ref().map_or(0, |front| front.brought);
            if silent || before - self.bytes > brought {
                self.lead(now, next);
            }
            self.front.iter_mut().for_each(|front| front.brought = 0);
        }
        free
    }

    /// Returns all held datagrams, grouped by path.
    pub(super) fn release_all(&mut self) -> Vec<HeldDatagrams> {
        let mut free: Vec<_> = self.probes.drain(..).map(|probe| probe.held).collect();
        while let Some(&(_, next, _)) = self.held.front() {
            self.take(next, &mut free);
        }
        free
    }

    /// Returns when [`InOrder::release`] will have datagrams, if no datagrams arrive before;
    /// `None` if no datagrams are held.
    pub(super) fn next_timeout(&self, longest: Duration) -> Option<Time> {
        let probe = self.probes.front().map(|probe| probe.due);
        let held = self.held.front().map(|(since, _, _)| {
            let silent =
                self.front.as_ref().map_or(Time::MAX, |front| front.last_arrival + LONG_SILENCE);
            silent.min(*since + longest)
        });
        probe.into_iter().chain(held).min()
    }

    /// Records that `bytes` have arrived on `path`. If `path` is the path in front (whose
    /// datagrams are delivered on arrival), its silence ends. Otherwise, the silence of the path
    /// in front becomes longer.
    fn listen(&mut self, now: Time, path: PathId, bytes: usize) {
        let pause = now.since(std::mem::replace(&mut self.last_arrival, now)).min(PAUSE);
        match self.front.as_mut() {
            Some(front) if front.path == path => {
                (front.last_arrival, front.silent) = (now, Duration::ZERO);
                front.brought = if self.held.is_empty() { 0 } else { front.brought + bytes };
            }
            Some(front) => front.silent += pause,
            None => {}
        }
    }

    fn decide(&self, now: Time, path: PathId, bytes: usize) -> Decision {
        let Some(front) = &self.front else { return Decision::Lead };
        let is_probe = bytes <= PROBE && self.probes.len() < MOST_PROBES;
        let in_front = self.visits[front.path.index()].since;
        if front.path == path {
            // Datagrams of a path that has been in front before are held, so they cannot overtake
            // this datagram.
            let is_left = self.visits.iter().any(|visit| visit.since > in_front && !visit.known);
            return match self.probes.iter().any(|probe| probe.path == path) {
                _ if is_probe && is_left => {
                    Decision::Probe { may_pass: self.passes_of_next_probe() }
                }
                true => Decision::AfterProbes,
                false => Decision::Pass,
            };
        }
        let Visit { since, known } = self.visits[path.index()];
        let is_newer = since > in_front;
        match is_newer {
            false if is_probe => Decision::Probe {
                may_pass: if now < front.validated {
                    self.passes_of_next_probe()
                } else {
                    usize::MAX
                },
            },
            false => Decision::Pass,
            // On the first visit to a path, little arrives except the challenge that validates the
            // path. The server waits for the answer to it.
            true if !known => Decision::Lead,
            true if self.held.is_empty() && self.is_front_silent(now) => Decision::Lead,
            true => Decision::Hold,
        }
    }

    /// Returns how many datagrams may overtake a further probe (a short datagram such as a
    /// PATH_CHALLENGE), if one arrives now.
    fn passes_of_next_probe(&self) -> usize {
        PROBE_LETS + self.probes.iter().filter(|probe| probe.may_pass < usize::MAX).count()
    }

    fn is_front_silent(&self, now: Time) -> bool {
        self.front.as_ref().is_none_or(|front| {
            front.silent >= SILENCE || now.since(front.last_arrival) >= LONG_SILENCE
        })
    }

    /// Puts `path` in front: from now on its datagrams are delivered on arrival.
    fn lead(&mut self, now: Time, path: PathId) {
        let visit = &mut self.visits[path.index()];
        let validated = match std::mem::replace(&mut visit.known, true) {
            true => Time::ZERO,
            false => now + now.since(visit.since) * 3 / 4,
        };
        self.front =
            Some(Front { path, validated, last_arrival: now, silent: Duration::ZERO, brought: 0 });
    }

    /// Moves the held datagrams of `path` to `free`.
    fn take(&mut self, path: PathId, free: &mut Vec<HeldDatagrams>) {
        for each in std::mem::take(&mut self.held) {
            if each.1 == path {
                self.bytes -= each.2.bytes.len();
                free.push(each.2);
            } else {
                self.held.push_back(each);
            }
        }
    }
}

impl Probe {
    fn is_due(&self, now: Time) -> bool {
        self.due <= now || self.may_pass == 0
    }
}

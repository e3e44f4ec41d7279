//! One order for what a server sends by one path after another.
//!
//! When a server moves to another path, what still stands in the queues of the path before is overtaken by what
//! comes by the new one. QUIC and TCP take that for loss and slow down. So, where the user asks for it
//! ([`Config::in_order`](crate::Config::in_order)), the new path's datagrams are held until the path before has fallen
//! silent, and no longer than the user allows. The server follows our own uplink, so the path that we visited later is
//! the newer one.

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_multipath::{PathId, Time};

use crate::{Batch, Held};

/// A path that brought nothing for so long, while another brought something, has nothing left in its queues.
const SILENCE: Duration = Duration::from_millis(4);
/// A pause in which no path brought anything counts as silence for so long at most: it may be our own, or all paths'.
const PAUSE: Duration = Duration::from_millis(1);
/// A path that brought nothing for so long is silent, whatever the others did.
const LONG_SILENCE: Duration = Duration::from_millis(6);
/// A datagram no longer than this, from a path that was left, is no rest of a queue: it is a probe, and was sent after
/// what the newer path brings at the moment (s2n-quic challenges both paths).
const PROBE: usize = 100;
/// A probe waits so long, lest it overtake what was sent before it.
const PROBE_WAITS: Duration = Duration::from_micros(1_000);
/// Probes that wait in one session.
const MOST_PROBES: usize = 16;
/// Bytes held in one session; what comes beyond that sets all free.
const MOST: usize = 1 << 20;

/// What is held of one session, and why.
#[derive(Debug)]
pub(super) struct Order {
    /// When our uplink last moved to each path.
    visits: Box<[Visit]>,
    /// The path whose datagrams are delivered as they come.
    front: Option<Front>,
    /// When any path last brought something.
    heard: Time,
    held: VecDeque<(Time, PathId, Held)>,
    bytes: usize,
    /// Probes, and when they go on.
    probes: VecDeque<(Time, Held)>,
}

#[derive(Clone, Copy, Debug)]
struct Visit {
    since: Time,
    /// Whether the path was in front before.
    known: bool,
}

#[derive(Debug)]
struct Front {
    path: PathId,
    heard: Time,
    /// For how long it was silent, pauses of all paths left out.
    silent: Duration,
    /// Bytes that it brought since anything is held.
    brought: usize,
}

/// What is to be done with datagrams that have come.
enum Place {
    Pass,
    /// Pass, and be in front from now on.
    Lead,
    Hold,
    Probe,
}

impl Order {
    pub(super) fn new(paths: usize) -> Order {
        Order {
            visits: vec![Visit { since: Time::ZERO, known: false }; paths].into(),
            front: None,
            heard: Time::ZERO,
            held: VecDeque::new(),
            bytes: 0,
            probes: VecDeque::new(),
        }
    }

    /// Our uplink moves to `path`.
    pub(super) fn visit(&mut self, now: Time, path: PathId) {
        self.visits[path.index()].since = now;
    }

    /// Datagrams have come by `path`: whether they may pass. If not, they are held. What [`Order::release`] gives has to be
    /// delivered before.
    pub(super) fn passes(&mut self, now: Time, path: PathId, batch: &Batch<'_>) -> bool {
        self.listen(now, path, batch.bytes.len());
        let held = || Held { bytes: batch.bytes.into(), stride: batch.stride, ecn: batch.ecn };
        match self.place(now, path, batch.bytes.len()) {
            Place::Pass => return true,
            Place::Lead => {
                self.lead(now, path);
                return true;
            }
            Place::Hold => {
                self.bytes += batch.bytes.len();
                self.held.push_back((now, path, held()));
            }
            Place::Probe => self.probes.push_back((now + PROBE_WAITS, held())),
        }
        false
    }

    /// What need not be held any more, in order; `longest` is how long anything may be. A path that brought less than the
    /// one in front meanwhile brought probes: the server has not moved there.
    pub(super) fn release(&mut self, now: Time, longest: Duration) -> Vec<Held> {
        let mut free = Vec::new();
        while let Some((_, probe)) = self.probes.pop_front_if(|(due, _)| *due <= now) {
            free.push(probe);
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

    /// All that is held, path by path.
    pub(super) fn release_all(&mut self) -> Vec<Held> {
        let mut free: Vec<_> = self.probes.drain(..).map(|(_, probe)| probe).collect();
        while let Some(&(_, next, _)) = self.held.front() {
            self.take(next, &mut free);
        }
        free
    }

    /// When [`Order::release`] has something to give, if nothing comes before.
    pub(super) fn next_timeout(&self, longest: Duration) -> Option<Time> {
        let probe = self.probes.front().map(|(due, _)| *due);
        let held = self.held.front().map(|(since, _, _)| {
            let silent = self.front.as_ref().map_or(Time::MAX, |front| front.heard + LONG_SILENCE);
            silent.min(*since + longest)
        });
        probe.into_iter().chain(held).min()
    }

    /// Counts the silence of the path in front.
    fn listen(&mut self, now: Time, path: PathId, bytes: usize) {
        let pause = now.since(std::mem::replace(&mut self.heard, now)).min(PAUSE);
        match self.front.as_mut() {
            Some(front) if front.path == path => {
                (front.heard, front.silent) = (now, Duration::ZERO);
                front.brought = if self.held.is_empty() { 0 } else { front.brought + bytes };
            }
            Some(front) => front.silent += pause,
            None => {}
        }
    }

    fn place(&self, now: Time, path: PathId, bytes: usize) -> Place {
        let Some(front) = &self.front else { return Place::Lead };
        if front.path == path {
            return Place::Pass;
        }
        let Visit { since, known } = self.visits[path.index()];
        let is_newer = since > self.visits[front.path.index()].since;
        match is_newer {
            false if bytes <= PROBE && self.probes.len() < MOST_PROBES => Place::Probe,
            false => Place::Pass,
            // A first visit brings little but the challenge by which a server validates the path, and the server waits for
            // the answer.
            true if !known => Place::Lead,
            true if self.held.is_empty() && self.is_front_silent(now) => Place::Lead,
            true => Place::Hold,
        }
    }

    fn is_front_silent(&self, now: Time) -> bool {
        self.front
            .as_ref()
            .is_none_or(|front| front.silent >= SILENCE || now.since(front.heard) >= LONG_SILENCE)
    }

    /// From now on `path` is the one whose datagrams are delivered as they come.
    fn lead(&mut self, now: Time, path: PathId) {
        self.front = Some(Front { path, heard: now, silent: Duration::ZERO, brought: 0 });
        self.visits[path.index()].known = true;
    }

    /// Takes what is held of `path`.
    fn take(&mut self, path: PathId, free: &mut Vec<Held>) {
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

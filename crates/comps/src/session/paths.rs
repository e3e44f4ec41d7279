//! The paths of one session: which paths it may use, their health and their source ports (tuples).

use std::time::Duration;

use anabranch_multipath::{PathId, PathView, Time};

use super::follow::Rtts;
use crate::config::Config;
use crate::health::Health;
use crate::tuples::Tuples;
use crate::{DownReason, Renumbering, TupleId};

/// The paths of one session: their health, their source ports, and what the scheduler reads about
/// them.
#[derive(Debug)]
pub(super) struct Paths {
    /// For each path that the schedule uses, the state that the scheduler reads, such as whether
    /// the path is usable.
    views: Box<[PathView]>,
    pub(super) health: Box<[Health]>,
    pub(super) tuples: Tuples,
}

impl Paths {
    pub(super) fn new(config: &Config) -> Paths {
        Paths {
            views: vec![PathView::open(); config.scheduled()].into(),
            health: config.ports.iter().map(|_| Health::default()).collect(),
            tuples: Tuples::new(&config.ports),
        }
    }

    /// Adopts changed settings. A path that remains keeps its health.
    pub(super) fn renumber(&mut self, numbers: &Renumbering, config: &Config) {
        let health = std::mem::take(&mut self.health);
        self.health = numbers.carry(health).0.into();
        self.tuples = self.tuples.renumbered(config, numbers);
        let rtts = self.health.iter().take(config.scheduled()).map(Health::rtt);
        self.views = rtts.map(|rtt| PathView { rtt, ..PathView::open() }).collect();
    }

    /// Returns the number of paths, including the handshake path.
    pub(super) fn len(&self) -> usize {
        self.health.len()
    }

    /// Returns, for each path that the schedule uses, the state that the scheduler reads.
    pub(super) fn views(&self) -> &[PathView] {
        &self.views
    }

    pub(super) fn health_of(&mut self, path: PathId) -> &mut Health {
        &mut self.health[path.index()]
    }

    /// Returns `path`, and the source port (tuple) that the next datagrams on it use.
    pub(super) fn current(&self, path: PathId) -> (PathId, TupleId) {
        (path, self.tuples.current(path))
    }

    /// Returns whether `path` can carry datagrams of this session now. `broken` has each path's
    /// error that concerns all sessions.
    pub(super) fn is_open(&self, path: PathId, broken: &[Option<DownReason>]) -> bool {
        let index = path.index();
        broken[index].is_none() && !self.health[index].is_down() && self.tuples.allows(path)
    }

    /// Returns whether any path can carry datagrams of this session now.
    pub(super) fn is_any_open(&self, broken: &[Option<DownReason>]) -> bool {
        (0..self.len()).any(|index| self.is_open(PathId::at(index), broken))
    }

    /// Updates which paths the scheduler may use.
    pub(super) fn refresh(&mut self, broken: &[Option<DownReason>]) {
        for index in 0..self.views.len() {
            self.views[index].usable = self.is_open(PathId::at(index), broken);
        }
    }

    /// Copies the present state of the congestion windows into the scheduler's views of the paths.
    pub(super) fn look(&mut self, windows: &[PathView], broken: &[Option<DownReason>]) {
        for (index, window) in windows.iter().enumerate().take(self.views.len()) {
            let usable = window.usable && self.is_open(PathId::at(index), broken);
            self.views[index] = PathView { usable, ..*window };
        }
    }

    /// Returns whether the scheduler may use the path with this index.
    pub(super) fn is_usable(&self, index: usize) -> bool {
        self.views.get(index).is_some_and(|view| view.usable)
    }

    /// Returns the indices of the paths other than `index`.
    pub(super) fn others(&self, index: usize) -> impl Iterator<Item = usize> + Clone + use<> {
        (0..self.len()).filter(move |other| *other != index)
    }

    /// Records that a datagram of the server arrived on `path`. Also updates the round-trip time
    /// that the scheduler reads, unless the driver's congestion windows provide it
    /// (`has_windows`). Returns true if the path was down and works again.
    ///
    /// If the server answered no data on a path, copies of datagrams test the path. An answer to
    /// such a copy may show that the server is about to move to this path. So tests of other paths
    /// of this kind are postponed.
    pub(super) fn on_answer(&mut self, now: Time, path: PathId, has_windows: bool) -> bool {
        if self.health[path.index()].reason() == Some(DownReason::DataUnanswered) {
            self.others(path.index()).for_each(|other| self.health[other].postpone(now));
        }
        let is_back = self.health[path.index()].on_answer(now);
        if let Some(view) = self.views.get_mut(path.index()).filter(|_| !has_windows) {
            view.rtt = self.health[path.index()].rtt();
        }
        is_back
    }

    /// Returns the indices of the paths on which an answer of the server has ever arrived.
    pub(super) fn answered_paths(&self) -> impl Iterator<Item = usize> + '_ {
        let paths = self.health.iter().enumerate();
        paths.filter(|(_, health)| health.last_arrival().is_some()).map(|(index, _)| index)
    }

    /// Returns the only path on which an answer has ever arrived, if the schedule may use it.
    /// Returns `None` if answers arrived on several paths, or on none.
    pub(super) fn only_answering(&self) -> Option<PathId> {
        let mut all = self.answered_paths();
        let only = all.next().filter(|_| all.next().is_none())?;
        self.is_usable(only).then(|| PathId::at(only))
    }

    /// Returns the shortest and the longest round-trip time of the paths.
    pub(super) fn rtts(&self) -> Rtts {
        Rtts::of(self.health.iter().filter_map(Health::rtt_bound))
    }

    /// Returns how much later a datagram arrives over the path `index` than over the fastest path:
    /// half the difference of their round-trip times. Zero if a round-trip time is unknown.
    pub(super) fn lag(&self, index: usize) -> Duration {
        let fastest = self.health.iter().filter_map(Health::rtt).min();
        match (self.health[index].rtt(), fastest) {
            (Some(rtt), Some(fastest)) => (rtt - fastest) / 2,
            _ => Duration::ZERO,
        }
    }

    /// Returns when the next path that an error took down is used again, because no further error
    /// has occurred; `None` if there is no such path.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.health.iter().filter_map(Health::recovers_at).min()
    }
}

//! Tuples of a session: each path with each of its source ports. With the server's address, a
//! tuple is a four-tuple.

use anabranch_multipath::PathId;

use crate::{Config, Renumbering};

/// Index of a tuple (a path with one of its source ports), within a session. Indices run over all
/// ports of path 0, then over the ports of path 1, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TupleId(pub u16);

/// For each path of a session, the source ports that it may use, and the port that it uses now.
#[derive(Debug)]
pub(crate) struct Tuples {
    first: Box<[u16]>,
    /// The number of ports of each path that leads to the server; 0 for other paths.
    ports: Box<[u16]>,
    allowed: Box<[u16]>,
    turn: Box<[u16]>,
}

impl Tuples {
    /// Returns a table in which each path may use all of its `ports`.
    pub(crate) fn new(ports: &[u16]) -> Tuples {
        let mut next = 0;
        let mut first = Vec::with_capacity(ports.len() + 1);
        for &count in ports {
            first.push(next);
            next += count;
        }
        first.push(next);
        let turn = vec![0; ports.len()].into();
        Tuples { first: first.into(), ports: ports.into(), allowed: ports.into(), turn }
    }

    /// Excludes `paths`, which do not reach the server, and allows all other paths, even if they
    /// were excluded before. Also undoes a [`Tuples::cut`].
    pub(crate) fn bar(&mut self, paths: &[PathId]) {
        for (ports, ends) in self.ports.iter_mut().zip(self.first.windows(2)) {
            *ports = ends[1] - ends[0];
        }
        paths.iter().for_each(|path| self.ports[path.index()] = 0);
        self.restore();
    }

    /// Undoes a [`Tuples::cut`], so that each path has all its ports again.
    pub(crate) fn restore(&mut self) {
        self.allowed.clone_from(&self.ports);
    }

    /// Returns the number of tuples (paths with one of their source ports) that the session may
    /// use.
    pub(crate) fn in_use(&self) -> usize {
        self.allowed.iter().map(|&count| usize::from(count)).sum()
    }

    /// Returns the source port (tuple) that `path` uses now.
    pub(crate) fn current(&self, path: PathId) -> TupleId {
        TupleId(self.first[path.index()] + self.turn[path.index()])
    }

    /// Makes `path` use its next usable source port; after the last port, the first.
    pub(crate) fn rotate(&mut self, path: PathId) {
        let ports = self.allowed[path.index()].max(1);
        let turn = &mut self.turn[path.index()];
        *turn = (*turn + 1) % ports;
    }

    /// Returns the path that the source port `tuple` belongs to; `None` if there is no such port.
    pub(crate) fn path(&self, tuple: TupleId) -> Option<PathId> {
        let after = self.first.partition_point(|&first| first <= tuple.0);
        (tuple.0 < *self.first.last()?).then(|| PathId::at(after - 1))
    }

    /// Returns the index of the source port `tuple` among the ports of `path`, counted from 0.
    pub(crate) fn port(&self, path: PathId, tuple: TupleId) -> u16 {
        tuple.0 - self.first[path.index()]
    }

    /// Returns the tuple (path and source port) for the port with the index `port` among the ports
    /// of `path`. Returns `None` if the path has no such port.
    pub(crate) fn tuple(&self, path: PathId, port: u16) -> Option<TupleId> {
        let first = self.first[path.index()];
        (first + port < self.first[path.index() + 1]).then_some(TupleId(first + port))
    }

    /// Returns the tuples (paths with one of their source ports) under new settings, without any
    /// limit on their number. Paths that remain keep their current port, if it still exists.
    /// Excluded paths stay excluded.
    pub(crate) fn renumbered(&self, config: &Config, numbers: &Renumbering) -> Tuples {
        let mut tuples = Tuples::new(&config.ports);
        let mut barred = Vec::new();
        for index in 0..self.turn.len() {
            let Some(path) = numbers.path(PathId::at(index)) else { continue };
            if self.ports[index] == 0 {
                barred.push(path);
            }
            let turn = self.turn[index];
            tuples.turn[path.index()] = if turn < config.ports[path.index()] { turn } else { 0 };
        }
        tuples.bar(&barred);
        tuples
    }

    /// Returns whether `path` may be used at all, that is, whether neither [`Tuples::bar`] nor
    /// [`Tuples::cut`] excludes all of its ports.
    pub(crate) fn allows(&self, path: PathId) -> bool {
        self.allowed[path.index()] > 0
    }

    /// Limits the session to `limit` tuples (paths with one of their source ports), but always
    /// leaves one for the schedule. The handshake path gets the first tuple, and no more if the
    /// schedule does not use this path. Then each other path gets one tuple, in the order of the
    /// paths. The remaining tuples are distributed round-robin among paths that have further
    /// ports.
    pub(crate) fn cut(
        &mut self,
        limit: usize,
        handshake: Option<PathId>,
        handshake_scheduled: bool,
    ) {
        let wanted = &self.ports;
        self.allowed = vec![0; wanted.len()].into();
        let ceiling = |index: usize| match handshake {
            Some(path) if path.index() == index && !handshake_scheduled => wanted[index].min(1),
            _ => wanted[index],
        };
        let apart = handshake.is_some() && !handshake_scheduled;
        let mut left = limit.max(1 + usize::from(apart));
        if let Some(path) = handshake.filter(|path| left > 0 && wanted[path.index()] > 0) {
            self.allowed[path.index()] = 1;
            left -= 1;
        }
        for round in 1..=wanted.iter().copied().max().unwrap_or(0) {
            for index in 0..wanted.len() {
                if left > 0 && self.allowed[index] < round.min(ceiling(index)) {
                    self.allowed[index] += 1;
                    left -= 1;
                }
            }
        }
        for (turn, &allowed) in self.turn.iter_mut().zip(&self.allowed) {
            *turn = if *turn < allowed { *turn } else { 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(ports: &[u16], limit: usize, handshake: Option<usize>, scheduled: bool) -> Vec<u16> {
        let mut tuples = Tuples::new(ports);
        tuples.cut(limit, handshake.map(PathId::at), scheduled);
        tuples.allowed.to_vec()
    }

    #[test]
    fn tuples_and_paths_translate_both_ways() {
        let mut tuples = Tuples::new(&[1, 8, 2]);
        assert_eq!(tuples.in_use(), 11);
        assert_eq!(tuples.current(PathId(1)), TupleId(1));
        tuples.rotate(PathId(1));
        assert_eq!(tuples.current(PathId(1)), TupleId(2));
        assert_eq!(tuples.path(TupleId(0)), Some(PathId(0)));
        assert_eq!(tuples.path(TupleId(8)), Some(PathId(1)));
        assert_eq!(tuples.path(TupleId(10)), Some(PathId(2)));
        assert_eq!(tuples.path(TupleId(11)), None);
    }

    #[test]
    fn ports_come_round_again() {
        let mut tuples = Tuples::new(&[2]);
        let mut seen = Vec::new();
        for _ in 0..4 {
            seen.push(tuples.current(PathId(0)).0);
            tuples.rotate(PathId(0));
        }
        assert_eq!(seen, [0, 1, 0, 1]);
    }

    #[test]
    fn every_path_gets_one_tuple_before_any_gets_two() {
        assert_eq!(cut(&[1, 8, 8], 4, None, true), [1, 2, 1]);
        assert_eq!(cut(&[1, 1, 1, 1, 1], 4, None, true), [1, 1, 1, 1, 0]);
        assert_eq!(cut(&[1, 1], 4, None, true), [1, 1]);
    }

    #[test]
    fn the_handshake_path_counts_and_comes_first() {
        assert_eq!(cut(&[1, 1, 1, 1, 4], 4, Some(4), false), [1, 1, 1, 0, 1]);
        assert_eq!(cut(&[4, 1], 4, Some(0), true), [3, 1]);
        assert_eq!(cut(&[1, 1, 1], 1, Some(2), false), [1, 0, 1], "the schedule needs one");
    }

    #[test]
    fn a_barred_path_makes_room_for_others_even_after_a_cut() {
        let mut tuples = Tuples::new(&[1, 1, 1, 2]);
        tuples.cut(2, None, true);
        assert_eq!(*tuples.allowed, [1, 1, 0, 0]);
        tuples.bar(&[PathId(0), PathId(1)]);
        tuples.cut(2, None, true);
        assert_eq!(*tuples.allowed, [0, 0, 1, 1]);
        tuples.cut(2, Some(PathId(0)), true);
        assert_eq!(*tuples.allowed, [0, 0, 1, 1], "the handshake path too");
        tuples.bar(&[PathId(1)]);
        assert_eq!(*tuples.allowed, [1, 0, 1, 2], "what is not barred any more is back");
    }
}

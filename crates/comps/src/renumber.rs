//! New indices of paths and source ports after the settings of a running splitter have changed.

use anabranch_multipath::PathId;

use crate::tuples::Tuples;
use crate::{Config, TupleId};

/// A map from the old indices of paths and tuples (paths with one of their source ports) to the
/// new indices.
///
/// A path that remains keeps the tuples of the ports that it still has. A removed path has no
/// tuples.
#[derive(Debug)]
pub struct Renumbering {
    /// For each path of the new settings, its index under the old settings; `None` for a new path.
    before: Vec<Option<PathId>>,
    /// For each path of the old settings, its index under the new settings; `None` for a removed
    /// path.
    now: Vec<Option<PathId>>,
    layouts: (Tuples, Tuples),
}

impl Renumbering {
    /// Returns the map from the settings `old` to `new`. The path with the new index `i` had the
    /// index `before[i]`; `None` stands for a path that did not exist.
    ///
    /// # Panics
    /// `before` has a wrong length, contains an unknown old path, or contains a path twice.
    pub(crate) fn new(old: &Config, new: &Config, before: &[Option<PathId>]) -> Renumbering {
        assert_eq!(
            before.len(),
            new.ports.len(),
            "the caller gives the earlier place of each path"
        );
        let mut now = vec![None; old.ports.len()];
        for (index, path) in before.iter().enumerate() {
            let Some(path) = path else { continue };
            let place = now[path.index()].replace(PathId::at(index));
            assert!(place.is_none(), "the caller gives each earlier path at most once");
        }
        let layouts = (Tuples::new(&old.ports), Tuples::new(&new.ports));
        Renumbering { before: before.to_vec(), now, layouts }
    }

    /// Returns the new index of an old path; `None` if the path was removed.
    pub fn path(&self, path: PathId) -> Option<PathId> {
        self.now.get(path.index()).copied().flatten()
    }

    /// Returns the new path and tuple of an old tuple (a path's source port); `None` if the tuple
    /// was removed.
    pub fn tuple(&self, tuple: TupleId) -> Option<(PathId, TupleId)> {
        let (old, new) = &self.layouts;
        let before = old.path(tuple)?;
        let now = self.path(before)?;
        let port = old.port(before, tuple);
        Some((now, new.tuple(now, port)?))
    }

    /// Returns whether the first `count` paths under the new settings are the first `count` paths
    /// under the old settings.
    pub(crate) fn keeps_first(&self, count: usize) -> bool {
        let same = |(index, before): (usize, &Option<PathId>)| *before == Some(PathId::at(index));
        self.before.iter().take(count).enumerate().all(same)
    }

    /// Moves the item of each old path to its new index. New paths get the default item. Also
    /// returns the items of removed paths.
    pub(crate) fn carry<T: Default>(&self, old: impl IntoIterator<Item = T>) -> (Vec<T>, Vec<T>) {
        let mut placed: Vec<T> = self.before.iter().map(|_| T::default()).collect();
        let mut gone = Vec::new();
        for (index, item) in old.into_iter().enumerate() {
            match self.path(PathId::at(index)) {
                Some(path) => placed[path.index()] = item,
                None => gone.push(item),
            }
        }
        (placed, gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the map from the paths a (2 ports), b (1 port) and c (3 ports) to the paths c (2
    /// ports), new (1 port) and a (4 ports).
    fn sample() -> Renumbering {
        let ports = |ports: &[u16]| Config { ports: ports.to_vec(), ..Config::of(3) };
        let before = [Some(PathId(2)), None, Some(PathId(0))];
        Renumbering::new(&ports(&[2, 1, 3]), &ports(&[2, 1, 4]), &before)
    }

    #[test]
    fn a_path_that_stays_keeps_the_tuples_for_which_it_has_ports() {
        let numbers: Vec<_> = (0..7).map(|tuple| sample().tuple(TupleId(tuple))).collect();
        let at = |path, tuple| Some((PathId(path), TupleId(tuple)));
        assert_eq!(numbers, [at(2, 3), at(2, 4), None, at(0, 0), at(0, 1), None, None]);
        assert_eq!(sample().path(PathId(1)), None);
    }

    #[test]
    fn what_belongs_to_paths_moves_with_them() {
        assert_eq!(sample().carry([1, 2, 3]), (vec![3, 0, 1], vec![2]));
        assert!(!sample().keeps_first(1));
    }
}

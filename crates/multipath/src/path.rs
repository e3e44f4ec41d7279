//! What a scheduler may know of a path.

use std::fmt;
use std::time::Duration;

/// A path of one schedule: its position in the list that the user gave, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u16);

impl PathId {
    /// The path's place in a slice of [`PathView`]s.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The path at place `index` of a slice.
    ///
    /// # Panics
    /// If `index` exceeds 65,535: no schedule has so many paths.
    pub fn at(index: usize) -> PathId {
        PathId(u16::try_from(index).expect("a schedule has fewer than 65,536 paths"))
    }
}

impl fmt::Display for PathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One path as a scheduler sees it. Its place in the slice is its [`PathId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathView {
    /// Whether the path is a candidate: a dead path is not, and the weights of the others are
    /// renormalised.
    pub usable: bool,
    /// The round-trip time, once measured.
    pub rtt: Option<Duration>,
    /// How many units the path takes now. `None` where the path has no window (UDP): there a full
    /// socket drops.
    pub window: Option<u64>,
}

impl PathView {
    /// A live path of unknown round-trip time and without a window.
    pub const fn open() -> PathView {
        PathView { usable: true, rtt: None, window: None }
    }

    /// A path that is not a candidate.
    pub const fn dead() -> PathView {
        PathView { usable: false, rtt: None, window: None }
    }

    /// Whether the path takes at least one unit now.
    pub const fn has_room(&self) -> bool {
        !matches!(self.window, Some(0))
    }
}

/// The places of the usable paths.
pub(crate) fn usable(paths: &[PathView]) -> impl Iterator<Item = usize> + '_ {
    paths.iter().enumerate().filter(|(_, view)| view.usable).map(|(index, _)| index)
}

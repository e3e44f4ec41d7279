//! The paths' ways out of this machine, looked at again whenever the machine's network changes.

use std::net::SocketAddr;

use anabranch_comps::DownReason;
use anabranch_multipath::PathId;

use crate::paths::{self, Egress, Fault, PathSpec};

/// What became of a path at a second look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) path: PathId,
    /// What is wrong with it, if anything.
    pub(super) broken: Option<DownReason>,
    /// Whether its sockets belong to a way out that is no more.
    pub(super) moved: bool,
}

/// Every path's way out.
#[derive(Debug)]
pub(super) struct Ways {
    specs: Vec<PathSpec>,
    egresses: Vec<Egress>,
    fwmark: Option<u32>,
}

impl Ways {
    pub(super) fn new(specs: Vec<PathSpec>, egresses: Vec<Egress>, fwmark: Option<u32>) -> Ways {
        Ways { specs, egresses, fwmark }
    }

    /// The way out of `path`.
    pub(super) fn of(&self, path: PathId) -> &Egress {
        &self.egresses[path.index()]
    }

    /// The address of the server that all paths lead to: the one that they were chosen for, if it is still among those
    /// found.
    pub(super) fn suitable(&self, found: &[SocketAddr]) -> Option<SocketAddr> {
        let wanted = self.egresses.first()?.server;
        let reached =
            |address: &&SocketAddr| self.egresses.iter().all(|egress| egress.leads_to(**address));
        found
            .iter()
            .find(|address| **address == wanted)
            .or_else(|| found.iter().find(reached))
            .copied()
    }

    /// Looks at every path again.
    pub(super) fn look_again(&mut self) -> Vec<Look> {
        (0..self.specs.len()).map(|index| self.look_at(index)).collect()
    }

    fn look_at(&mut self, index: usize) -> Look {
        let path = PathId::at(index);
        let before = &self.egresses[index];
        match paths::again(&self.specs[index], before, self.fwmark) {
            Ok(egress) => {
                let moved = (before.index, before.sends_as) != (egress.index, egress.sends_as);
                self.egresses[index] = egress;
                Look { path, broken: None, moved }
            }
            Err(error) => Look { path, broken: Some(reason(&error.fault)), moved: false },
        }
    }
}

fn reason(fault: &Fault) -> DownReason {
    match fault {
        Fault::NoRouteBy(..) | Fault::Route(..) => DownReason::Unreachable,
        _ => DownReason::Interface,
    }
}

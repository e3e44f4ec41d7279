//! The check that a path to a target exists within a user's restrictions.

use super::{Network, NoRelay, Position, Relay, RelayRestrictions, Target};

/// Maximum number of pairs of exit and guard that are examined. If there are more pairs, a path is
/// assumed to exist. This assumption is safe: a path can be missing only if the network has few
/// relays, or if the user permits few.
const MOST_PAIRS: usize = 20_000;

impl Network {
    /// Checks that a path to `target` exists within `restrictions`. [`Network::path`] chooses
    /// relays at random and may fail by chance. This function examines every combination, up to
    /// `MOST_PAIRS`.
    ///
    /// # Errors
    /// Returns the position for which no relay fits.
    pub fn has_path(
        &self,
        target: Target,
        restrictions: &RelayRestrictions,
    ) -> Result<(), NoRelay> {
        let able = |position| {
            let allowed =
                |relay: &Relay<'_>| restrictions.allow(position, &relay.status.rsa_identity);
            let fitting = self.relays().filter(|relay| self.fits(relay, position));
            fitting.filter(allowed).collect::<Vec<_>>()
        };
        let [guards, middles, exits] =
            [Position::Guard, Position::Middle, Position::Exit(target)].map(able);
        if exits.is_empty() {
            return Err(NoRelay(Position::Exit(target)));
        }
        let mut missing = Position::Guard;
        let pairs = exits.iter().flat_map(|exit| guards.iter().map(move |guard| (exit, guard)));
        for (looked_at, (exit, guard)) in pairs.enumerate() {
            if looked_at >= MOST_PAIRS {
                return Ok(());
            }
            if !self.go_together(exit, guard) {
                continue;
            }
            let fits = |middle: &Relay<'_>| {
                self.go_together(middle, exit) && self.go_together(middle, guard)
            };
            if middles.iter().any(fits) {
                return Ok(());
            }
            missing = Position::Middle;
        }
        Err(NoRelay(missing))
    }
}

impl RelayRestrictions {
    /// Returns a copy of the restrictions that also excludes the relays `ids`.
    #[must_use]
    pub fn without(&self, ids: &[[u8; 20]]) -> RelayRestrictions {
        let mut restrictions = self.clone();
        restrictions.exclude.extend(ids);
        restrictions
    }

    /// Returns the relays in the user's restrictions that the consensus does not list, grouped by
    /// the name of the restriction: `entry`, `middle`, `exit`.
    #[must_use]
    pub fn unlisted(&self, network: &Network) -> Vec<(&'static str, Vec<[u8; 20]>)> {
        let named = [("entry", &self.entry), ("middle", &self.middle), ("exit", &self.exit)];
        let gone = |ids: &[[u8; 20]]| {
            ids.iter().filter(|id| network.status(id).is_none()).copied().collect::<Vec<_>>()
        };
        let all = named.into_iter().map(|(wish, ids)| (wish, gone(ids)));
        all.filter(|(_, ids)| !ids.is_empty()).collect()
    }
}

//! Assignment of flags to relays (dir-spec 3.4.2). Thresholds are computed from all active relays
//! (running and not hibernating). Each relay is then compared with the thresholds.

/// The properties of a relay on which its flags depend.
#[derive(Clone, Debug)]
pub(super) struct Merits {
    /// True if the relay recently answered probes at each of its addresses, and is not
    /// hibernating. Always true for the authority itself.
    pub(super) running: bool,
    /// True if the relay's descriptor asks clients not to use the relay at present.
    pub(super) hibernating: bool,
    /// The relay's weight in the consensus in kilobytes per second, either measured or advertised.
    pub(super) bandwidth: u32,
    /// Mean time between failures in seconds, weighted as in `History`: recent times count more.
    pub(super) mtbf: f64,
    /// Fraction of time for which the relay was up, from 0 to 1, weighted as in `History`.
    pub(super) uptime: f64,
    /// Number of seconds since the relay became known, weighted as in `History`.
    pub(super) known: f64,
    /// Seconds since the relay last started to answer; 0 if it is down.
    pub(super) up_for: u64,
    /// True if the relay answers directory requests, over its links or at a directory port.
    pub(super) directory: bool,
    /// True if the exit policy permits port 80 to at least one /8 network, and port 443 to at
    /// least one /8 network.
    pub(super) exits: bool,
    /// True if the relay stores descriptors of onion services.
    pub(super) onion_services: bool,
    /// True if the relay's descriptor is more than 18 hours old.
    pub(super) stale: bool,
    /// True if the relay is this authority itself.
    pub(super) authority: bool,
}

/// Settings for the assignment of flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// True for networks that exist for minutes only. Every running relay then gets the flags
    /// `Fast` and `Stable`, and also `Guard` if it answers directory requests. The flag `HSDir`
    /// requires no uptime.
    pub young: bool,
    /// Bandwidth in kilobytes per second that always suffices for `Guard` (C tor's
    /// `AuthDirGuardBWGuarantee`).
    pub guard_bandwidth: u32,
    /// Bandwidth in kilobytes per second that always suffices for `Fast` (C tor's
    /// `AuthDirFastGuarantee`).
    pub fast_bandwidth: u32,
    /// Uptime in seconds that `HSDir` requires (C tor's `MinUptimeHidServDirectoryV2`).
    pub onion_uptime: u64,
}

impl Default for Judgement {
    fn default() -> Judgement {
        Judgement {
            young: false,
            guard_bandwidth: 2_000,
            fast_bandwidth: 100,
            onion_uptime: 96 * 3600,
        }
    }
}

/// Minimum bandwidth in kilobytes per second of the relays from which thresholds are computed.
const LEAST_BANDWIDTH: u32 = 4;
/// Mean time between failures, in seconds, that always suffices for `Stable`. The network's median
/// suffices if it is lower.
const STABLE: f64 = 7.0 * 86_400.0;
/// Age of a relay, in seconds since it became known, that always meets the requirement of `Guard`.
/// The network's 12.5 % quantile suffices if it is lower.
const KNOWN: f64 = 8.0 * 86_400.0;
/// Uptime of a relay, as a fraction of the time since it became known, that always meets the
/// requirement of `Guard`. The median of the long-known relays suffices if it is lower.
const UP: f64 = 0.98;

/// Value of the `known-flags` line. It includes flags that this authority never assigns:
/// `BadExit`, `MiddleOnly` and `Sybil`.
pub(super) const KNOWN_FLAGS: &str =
    "Authority BadExit Exit Fast Guard HSDir MiddleOnly Running Stable StaleDesc Sybil V2Dir Valid";

/// The flags of a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "dir-spec defines these flags as independent of each other"
)]
#[allow(missing_docs, reason = "dir-spec, section 3.4.2, describes each flag")]
pub struct Flags {
    pub authority: bool,
    pub exit: bool,
    pub fast: bool,
    pub guard: bool,
    pub hs_dir: bool,
    pub running: bool,
    pub stable: bool,
    pub stale_desc: bool,
    pub v2_dir: bool,
}

impl Flags {
    /// Returns the flags' names as in an `s` line of a consensus, in alphabetical order.
    #[must_use]
    pub fn words(&self) -> String {
        let named = [
            ("Authority", self.authority),
            ("Exit", self.exit),
            ("Fast", self.fast),
            ("Guard", self.guard),
            ("HSDir", self.hs_dir),
            ("Running", self.running),
            ("Stable", self.stable),
            ("StaleDesc", self.stale_desc),
            ("V2Dir", self.v2_dir),
            ("Valid", true),
        ];
        let words: Vec<&str> =
            named.iter().filter(|(_, has)| *has).map(|(word, _)| *word).collect();
        words.join(" ")
    }
}

/// The minimum values that flags require, computed from the relays of the network.
#[derive(Clone, Debug)]
pub(super) struct Thresholds {
    fast: u32,
    stable: f64,
    guard_bandwidth: u32,
    guard_uptime: f64,
    guard_known: f64,
}

impl Thresholds {
    /// Computes the thresholds from the active relays among `all`.
    #[must_use]
    pub(super) fn of(all: &[Merits], judgement: &Judgement) -> Thresholds {
        let counts = |one: &&Merits| one.is_active() && one.bandwidth >= LEAST_BANDWIDTH;
        let active: Vec<&Merits> = all.iter().filter(counts).collect();
        let bandwidths = sorted(active.iter().map(|one| f64::from(one.bandwidth)));
        let known = at(&sorted(active.iter().map(|one| one.known)), 1.0 / 8.0).min(KNOWN);
        let familiar = active.iter().filter(|one| one.known >= known);
        Thresholds {
            fast: (at(&bandwidths, 1.0 / 8.0) as u32).min(judgement.fast_bandwidth),
            stable: at(&sorted(active.iter().map(|one| one.mtbf)), 0.5).min(STABLE),
            guard_bandwidth: (at(&bandwidths, 3.0 / 4.0) as u32).min(judgement.guard_bandwidth),
            guard_uptime: at(&sorted(familiar.map(|one| one.uptime)), 0.5).min(UP),
            guard_known: known,
        }
    }

    /// Returns the flags of the relay `one`.
    #[must_use]
    pub(super) fn judge(&self, one: &Merits, judgement: &Judgement) -> Flags {
        let active = one.is_active();
        let fast = active && (judgement.young || one.bandwidth >= self.fast);
        let stable = active && (judgement.young || one.mtbf >= self.stable);
        let proven = one.bandwidth >= self.guard_bandwidth
            && one.known >= self.guard_known
            && one.uptime >= self.guard_uptime;
        let up_long_enough = judgement.young || one.up_for >= judgement.onion_uptime;
        Flags {
            authority: one.authority,
            exit: one.exits,
            fast,
            stable,
            guard: fast && stable && one.directory && !one.authority && (judgement.young || proven),
            hs_dir: fast && stable && one.onion_services && up_long_enough,
            running: one.running,
            stale_desc: one.stale,
            v2_dir: one.directory,
        }
    }
}

impl Merits {
    fn is_active(&self) -> bool {
        self.running && !self.hibernating
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Returns the quantile of `sorted` at `share` (0 to 1); 0 if `sorted` is empty.
fn at(sorted: &[f64], share: f64) -> f64 {
    let place = (sorted.len() as f64 * share) as usize;
    sorted.get(place.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relay(bandwidth: u32, days: f64) -> Merits {
        Merits {
            running: true,
            hibernating: false,
            bandwidth,
            mtbf: days * 86_400.0,
            uptime: 0.99,
            known: days * 86_400.0,
            up_for: (days * 86_400.0) as u64,
            directory: true,
            exits: false,
            onion_services: true,
            stale: false,
            authority: false,
        }
    }

    fn judged(all: &[Merits], judgement: &Judgement) -> Vec<Flags> {
        let thresholds = Thresholds::of(all, judgement);
        all.iter().map(|one| thresholds.judge(one, judgement)).collect()
    }

    #[test]
    fn relays_are_judged_by_what_the_others_are() {
        let all: Vec<Merits> = (1..=16).map(|n| relay(n * 5, f64::from(n) / 4.0)).collect();
        let flags = judged(&all, &Judgement::default());
        let count = |has: fn(&Flags) -> bool| flags.iter().filter(|flags| has(flags)).count();
        assert_eq!(count(|flags| flags.fast), 14, "seven eighths");
        assert_eq!(count(|flags| flags.stable), 8, "the better half");
        assert_eq!(count(|flags| flags.guard), 4, "the fastest quarter, where stable");
        assert_eq!(count(|flags| flags.hs_dir), 1, "up for 96 hours");
        assert!(flags.iter().all(|flags| flags.running && flags.v2_dir && !flags.exit));
    }

    #[test]
    fn what_does_not_run_or_sleeps_gets_little() {
        let mut all: Vec<Merits> = (0..8).map(|_| relay(5_000, 30.0)).collect();
        all[0].running = false;
        all[1].hibernating = true;
        all[2].directory = false;
        let flags = judged(&all, &Judgement::default());
        assert_eq!(flags[0].words(), "V2Dir Valid");
        assert_eq!(flags[1].words(), "Running V2Dir Valid");
        assert_eq!(flags[2].words(), "Fast HSDir Running Stable Valid");
        assert_eq!(flags[3].words(), "Fast Guard HSDir Running Stable V2Dir Valid");
    }

    #[test]
    fn in_a_young_network_who_runs_is_good_enough() {
        let all = [relay(1, 0.0), relay(9_000, 100.0)];
        let young = Judgement { young: true, ..Judgement::default() };
        assert!(judged(&all, &young).iter().all(|flags| flags.guard && flags.hs_dir));
        assert!(judged(&[], &young).is_empty());
    }
}

//! Which flags relays get (dir-spec 3.4.2): thresholds over all that are active, then each relay by
//! itself.

/// What is known of a relay that flags depend on.
#[derive(Clone, Debug)]
pub(super) struct Merits {
    /// It answered lately at all its addresses.
    pub(super) running: bool,
    /// It asked not to be used now.
    pub(super) hibernating: bool,
    /// Kilobytes a second that it says to have.
    pub(super) bandwidth: u32,
    /// Weighted mean time between failures, seconds.
    pub(super) mtbf: f64,
    /// Weighted fraction of the time in which it was up.
    pub(super) uptime: f64,
    /// For how many seconds it is known, weighted.
    pub(super) known: f64,
    /// Seconds since it came up.
    pub(super) up_for: u64,
    /// It answers directory requests over its links.
    pub(super) directory: bool,
    /// It lets streams out to ports 80 and 443 of some /8 each.
    pub(super) exits: bool,
    /// It stores descriptors of onion services.
    pub(super) onion_services: bool,
    /// What it published is more than 18 hours old.
    pub(super) stale: bool,
    /// It is this authority itself.
    pub(super) authority: bool,
}

/// How the authority judges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// Every relay that runs is fast and stable, and can be a guard as soon as it answers directory
    /// requests: in networks that live for minutes.
    pub young: bool,
    /// Kilobytes a second that make a guard in any case (C tor's AuthDirGuardBWGuarantee).
    pub guard_bandwidth: u32,
    /// Kilobytes a second that are fast in any case (AuthDirFastGuarantee).
    pub fast_bandwidth: u32,
    /// Seconds of uptime that a store of onion services needs (MinUptimeHidServDirectoryV2).
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

/// Relays with less do not count for thresholds, in kilobytes a second.
const LEAST_BANDWIDTH: u32 = 4;
/// So long a time between failures is stable in any case, in seconds.
const STABLE: f64 = 7.0 * 86_400.0;
/// So long a relay must be known, in seconds, and so much of the time be up, to be a guard in any
/// case.
const KNOWN: f64 = 8.0 * 86_400.0;
const UP: f64 = 0.98;

/// Every flag that may be given, in the order of a consensus.
pub(super) const KNOWN_FLAGS: &str =
    "Authority BadExit Exit Fast Guard HSDir MiddleOnly Running Stable StaleDesc Sybil V2Dir Valid";

/// The flags of a relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "dir-spec has them so")]
#[allow(missing_docs, reason = "dir-spec 3.4.2 says what each is")]
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
    /// The words of an `s` line, in the order of the alphabet.
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

/// What is asked of relays, by the others that there are.
#[derive(Clone, Debug)]
pub(super) struct Thresholds {
    fast: u32,
    stable: f64,
    guard_bandwidth: u32,
    guard_uptime: f64,
    guard_known: f64,
}

impl Thresholds {
    /// Of these relays.
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

    /// The flags of one relay.
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

/// The value that a share of all is below; 0 of none.
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

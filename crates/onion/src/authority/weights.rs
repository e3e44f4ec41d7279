//! The bandwidth weights of a consensus (dir-spec 3.8.3). They are factors for a relay's
//! bandwidth, by type of relay and position in a path, and prevent a position from getting too
//! little bandwidth.

/// The weight that stands for a factor of 1 (`bwweightscale`).
const SCALE: i64 = 10_000;

/// Sums of bandwidth by type of relay, in the units of a consensus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Totals {
    guard: i64,
    middle: i64,
    exit: i64,
    both: i64,
}

impl Default for Totals {
    /// Returns 1 for each type, so that the weights of a small network are also defined.
    fn default() -> Totals {
        Totals { guard: 1, middle: 1, exit: 1, both: 1 }
    }
}

impl Totals {
    /// Adds a relay's bandwidth. The caller passes `is_exit` as false for a bad exit.
    pub(super) fn add(&mut self, bandwidth: u32, is_guard: bool, is_exit: bool) {
        let kind = match (is_guard, is_exit) {
            (true, true) => &mut self.both,
            (true, false) => &mut self.guard,
            (false, true) => &mut self.exit,
            (false, false) => &mut self.middle,
        };
        *kind = kind.saturating_add(i64::from(bandwidth));
    }
}

/// Bandwidth weights. The first letter of a name is the position: guard, middle or exit. The
/// second letter is the type of relay: guard (g), exit (e) or both (d).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weights {
    gg: i64,
    gd: i64,
    mg: i64,
    me: i64,
    md: i64,
    ee: i64,
    ed: i64,
}

impl Weights {
    /// Computes the weights of a network from its totals.
    #[must_use]
    pub(super) fn of(totals: Totals) -> Weights {
        let Totals { guard: g, middle: m, exit: e, both: d } = totals;
        let third = (g + m + e + d) / 3;
        let weights = match (e >= third, g >= third) {
            (true, true) => neither_scarce(g, m, e),
            (false, false) => both_scarce(g, m, e, d, third),
            (true, false) => guards_scarce(g, m, e, d, third),
            (false, true) => exits_scarce(g, m, e, d, third),
        };
        weights.bounded()
    }

    /// Returns the `bandwidth-weights` line of a consensus, with the weights in the order of their
    /// names.
    #[must_use]
    pub(super) fn line(&self) -> String {
        let Weights { gg, gd, mg, me, md, ee, ed } = *self;
        let named = [
            ("Wbd", md),
            ("Wbe", me),
            ("Wbg", mg),
            ("Wbm", SCALE),
            ("Wdb", SCALE),
            ("Web", SCALE),
            ("Wed", ed),
            ("Wee", ee),
            ("Weg", ed),
            ("Wem", ee),
            ("Wgb", SCALE),
            ("Wgd", gd),
            ("Wgg", gg),
            ("Wgm", gg),
            ("Wmb", SCALE),
            ("Wmd", md),
            ("Wme", me),
            ("Wmg", mg),
            ("Wmm", SCALE),
        ];
        named.iter().fold("bandwidth-weights".to_owned(), |line, (name, weight)| {
            format!("{line} {name}={weight}")
        })
    }

    fn bounded(self) -> Weights {
        let within = |weight: i64| weight.clamp(0, SCALE);
        Weights {
            gg: within(self.gg),
            gd: within(self.gd),
            mg: within(self.mg),
            me: within(self.me),
            md: within(self.md),
            ee: within(self.ee),
            ed: within(self.ed),
        }
    }

    fn is_in_range(&self) -> bool {
        self.bounded() == *self
    }
}

/// Computes the weights of case 1 in dir-spec 3.8.3, in which neither guards nor exits are scarce.
fn neither_scarce(g: i64, m: i64, e: i64) -> Weights {
    let third = SCALE / 3;
    let ee = SCALE * (e + g + m) / (3 * e);
    let mg = SCALE * (2 * g - e - m) / (3 * g);
    Weights { gd: third, ed: third, md: third, ee, me: SCALE - ee, mg, gg: SCALE - mg }
}

/// Computes the weights of case 2 in dir-spec 3.8.3, in which guards and exits are both scarce.
fn both_scarce(g: i64, m: i64, e: i64, d: i64, third: i64) -> Weights {
    let full = Weights { gg: SCALE, ee: SCALE, ..Weights::default() };
    if g.min(e) + d < g.max(e) {
        return if e < g { Weights { ed: SCALE, ..full } } else { Weights { gd: SCALE, ..full } };
    }
    let ed = SCALE * (d - 2 * e + 4 * g - 2 * m) / (3 * d);
    let rest = (SCALE - ed) / 2;
    let balanced = Weights {
        ee: SCALE * (e - g + m) / e,
        ed,
        me: SCALE * (g - m) / e,
        mg: 0,
        gg: SCALE,
        md: rest,
        gd: rest,
    };
    if balanced.is_in_range() {
        return balanced;
    }
    let ed = SCALE * (d - 2 * e + g + m) / (3 * d);
    let md = if m > third { 0 } else { SCALE * (d - 2 * m + g + e) / (3 * d) };
    Weights { ed, md, gd: SCALE - ed - md, ..full }
}

/// Computes the weights of case 3 in dir-spec 3.8.3, if guards are scarce.
fn guards_scarce(g: i64, m: i64, e: i64, d: i64, third: i64) -> Weights {
    if g + d < third {
        let me = if e < m { 0 } else { SCALE * (e - m) / (2 * e) };
        return Weights { gg: SCALE, gd: SCALE, me, ee: SCALE - me, ..Weights::default() };
    }
    let gd = SCALE * (d - 2 * g + e + m) / (3 * d);
    let ee = SCALE * (e + m) / (2 * e);
    let rest = (SCALE - gd) / 2;
    Weights { gg: SCALE, gd, mg: 0, ee, me: SCALE - ee, md: rest, ed: rest }
}

/// Computes the weights of case 3 in dir-spec 3.8.3, if exits are scarce.
fn exits_scarce(g: i64, m: i64, e: i64, d: i64, third: i64) -> Weights {
    if e + d < third {
        let mg = if g < m { 0 } else { SCALE * (g - m) / (2 * g) };
        return Weights { ee: SCALE, ed: SCALE, mg, gg: SCALE - mg, ..Weights::default() };
    }
    let ed = SCALE * (d - 2 * e + g + m) / (3 * d);
    let gg = SCALE * (g + m) / (2 * g);
    let rest = (SCALE - ed) / 2;
    Weights { ee: SCALE, ed, me: 0, gg, mg: SCALE - gg, md: rest, gd: rest }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(g: i64, m: i64, e: i64, d: i64) -> Weights {
        Weights::of(Totals { guard: g, middle: m, exit: e, both: d })
    }

    /// Returns the bandwidth that each position gets with the weights `weights`.
    fn positions(weights: Weights, g: i64, m: i64, e: i64, d: i64) -> [i64; 3] {
        let Weights { gg, gd, mg, me, md, ee, ed } = weights;
        [(gg * g + gd * d), (SCALE * m + md * d + me * e + mg * g), (ee * e + ed * d)]
    }

    #[test]
    fn what_can_be_balanced_is() {
        for (g, m, e, d) in [
            (40_000, 10_000, 40_000, 10_000),
            (30_000, 5_000, 30_000, 35_000),
            (20_000, 30_000, 45_000, 30_000),
            (45_000, 30_000, 20_000, 30_000),
        ] {
            let weights = of(g, m, e, d);
            let totals = positions(weights, g, m, e, d);
            let (least, most) = (totals.iter().min().unwrap(), totals.iter().max().unwrap());
            assert!(most - least <= most / 1000, "{weights:?}: {totals:?}");
            assert!((weights.gd + weights.md + weights.ed - SCALE).abs() <= 2);
        }
    }

    #[test]
    fn what_is_scarce_is_kept_for_its_position() {
        let weights = of(1_000, 50_000, 40_000, 1_000);
        assert_eq!((weights.gg, weights.gd, weights.ed), (SCALE, SCALE, 0));
        let weights = of(40_000, 50_000, 1_000, 1_000);
        assert_eq!((weights.ee, weights.ed, weights.gd), (SCALE, SCALE, 0));
        let weights = of(20_000, 90_000, 1_000, 1_000);
        assert_eq!((weights.ed, weights.gd), (SCALE, 0), "both, and exits more than guards");
    }

    #[test]
    fn no_weight_is_out_of_bounds_whatever_the_network() {
        const STEPS: [i64; 5] = [1, 2, 1_000, 77_777, 40_000_000];
        for case in 0..STEPS.len().pow(4) {
            let [g, m, e, d] = [0, 1, 2, 3].map(|place| STEPS[case / 5usize.pow(place) % 5]);
            let weights = of(g, m, e, d);
            assert!(weights.is_in_range(), "{g} {m} {e} {d}: {weights:?}");
        }
    }

    #[test]
    fn the_line_names_all_nineteen() {
        let mut totals = Totals::default();
        totals.add(99, true, false);
        totals.add(99, false, true);
        let line = Weights::of(totals).line();
        assert!(line.starts_with("bandwidth-weights Wbd="));
        assert_eq!(line.split(' ').count(), 20);
    }
}

//! The page loads of the experiment, and their order.

use std::str::FromStr;
use std::time::Duration;

use anabranch_comps::{EVERY, FAR_END_EVERY, FAR_END_SCHEDULE, SCHEDULE};
use anabranch_multipath::seed;
use rand_chacha::rand_core::Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::super::runner;
use super::{RATE, RTTS, Site};

/// Approximate duration of a page load, including the start of its browser.
const LASTS: Duration = Duration::from_secs(8);

/// The settings of the page-load experiment: sites, HTTP version, paths and splitter options.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Sites to load: sites that the attacker wants to recognise (monitored sites), and others.
    pub sites: Vec<Site>,
    /// SHA-256 that identifies the local web of these sites ([`Web::digest`](super::Web::digest)).
    pub web: String,
    /// Number of loads of each monitored page, both split and unsplit. Other pages are loaded once
    /// split and once unsplit.
    pub loads: u32,
    /// Seed of the order of page loads, the HTTP versions and the splitter's random choices.
    pub seed: u64,
    /// HTTP version with which the browser loads the sites.
    pub http: Http,
    /// Additional arguments of the splitter for split page loads. If empty, the splitter's default
    /// schedule is used.
    pub splitter: Vec<String>,
    /// Additional arguments of the far end, which puts split traffic together in front of the
    /// tunnel's server. `None` if there is no far end.
    pub far_end: Option<Vec<String>>,
    /// True if split page loads use three circuits of an onion network to the far end, instead of
    /// the emulated paths.
    pub onion: bool,
    /// Rate of each emulated path in Mbit/s.
    pub rate: f64,
    /// Timeout for a page's load event, in seconds.
    pub patience: f64,
}

/// HTTP version with which the browser loads pages. The server supports all versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Http {
    /// HTTP/3 for one half of the sites and HTTP/2 for the other half. Each site always has the
    /// same version.
    Both,
    /// HTTP/2 (TCP) for all sites.
    H2,
    /// HTTP/3 (QUIC) for all sites.
    H3,
}

/// Mode of a page load: split over several paths, or undefended on one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The page load uses all paths; the splitter's schedule distributes the packets.
    Split,
    /// The page load uses only the first path.
    Undefended,
}

/// One page load of the plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// Site whose page is loaded.
    pub site: Site,
    /// Kind of page load: split over several paths, or undefended on one path.
    pub mode: Mode,
    /// Index of the repetition, from 0.
    pub repetition: u32,
}

impl Mode {
    /// Split and unsplit page loads.
    pub const ALL: [Mode; 2] = [Mode::Split, Mode::Undefended];

    /// Returns the name of this kind of page load. The file with the traces of all page loads of
    /// this kind has the same name.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Split => "split",
            Mode::Undefended => "undefended",
        }
    }

    /// Returns the number of paths that a page load of this kind uses, counted from the first
    /// path.
    pub fn paths(self) -> usize {
        match self {
            Mode::Split => RTTS.len(),
            Mode::Undefended => 1,
        }
    }
}

impl FromStr for Http {
    type Err = String;

    fn from_str(text: &str) -> Result<Http, String> {
        match text {
            "both" => Ok(Http::Both),
            "h2" => Ok(Http::H2),
            "h3" => Ok(Http::H3),
            _ => Err(format!("`{text}` is not a choice of HTTP versions; write h2, h3 or both")),
        }
    }
}

impl Settings {
    /// Returns the settings that must not change when the experiment is resumed. The numbers of
    /// pages and of page loads are left out, because they may be increased.
    pub fn header(&self) -> Value {
        let (schedule, every) = match self.far_end {
            Some(_) => (FAR_END_SCHEDULE, FAR_END_EVERY),
            None => (SCHEDULE, EVERY),
        };
        let mut header = json!({
            "experiment": "pages",
            "version": 3,
            "seed": self.seed,
            "web": self.web,
            "http": self.http,
            "splitter": self.splitter,
            "default": format!("{schedule} --every {every}"),
            "rtts": RTTS,
            "patience": self.patience,
        });
        // Settings with their default value are left out, so that data sets of earlier versions
        // can be resumed.
        let far_end = self.far_end.as_ref().map(|words| ("far_end", json!(words)));
        let rate = (self.rate != RATE).then(|| ("rate", json!(self.rate)));
        let onion = self.onion.then_some(("onion", json!(true)));
        for (name, value) in far_end.into_iter().chain(onion).chain(rate) {
            header[name] = value;
        }
        header
    }

    /// Returns whether `site` is loaded with HTTP/3. The result for a site does not depend on the
    /// other sites in the plan.
    pub fn is_http3(&self, site: &Site) -> bool {
        match self.http {
            Http::Both => {
                seed::stream(self.seed, 0, &format!("http {}", site.name)).next_u64() & 1 == 1
            }
            Http::H2 => false,
            Http::H3 => true,
        }
    }
}

impl Unit {
    /// Returns the seed of the splitter's random choices in this page load, derived from `seed`.
    /// Each page load has another seed.
    pub fn seed(&self, seed: u64) -> u64 {
        seed::stream(seed, 0, &runner::Unit::id(self)).next_u64()
    }
}

impl runner::Unit for Unit {
    fn id(&self) -> String {
        format!("{}/{}/{}", self.mode.name(), self.site.name, self.repetition)
    }

    fn lasts(&self) -> Duration {
        LASTS
    }
}

/// Returns all page loads in the order of execution: repetition by repetition. Each repetition has
/// all monitored pages and a part of the others, split and unsplit, in a seeded random order.
/// Without the random order, a temporarily busy machine could disturb the same page in all its
/// loads.
pub fn plan(settings: &Settings) -> Vec<Unit> {
    let mut rounds: Vec<Vec<Unit>> = (0..settings.loads.max(1)).map(|_| Vec::new()).collect();
    for (at, site) in settings.sites.iter().enumerate() {
        for mode in Mode::ALL {
            let unit = |repetition| Unit { site: site.clone(), mode, repetition };
            if site.monitored {
                (0..).zip(&mut rounds).for_each(|(n, round)| round.push(unit(n)));
            } else {
                let place = at % rounds.len();
                rounds[place].push(unit(0));
            }
        }
    }
    for round in &mut rounds {
        // Each load has its own random number, so that adding pages does not change the order of
        // the others.
        round.sort_by_cached_key(|unit| {
            seed::stream(settings.seed, 1, &runner::Unit::id(unit)).next_u64()
        });
    }
    rounds.concat()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::super::runner::Unit as _;
    use super::super::web::tests::site;
    use super::*;
    use std::collections::BTreeSet;

    pub(in super::super) fn settings(monitored: u32, other: u32, loads: u32) -> Settings {
        let sites = (0..monitored + other).map(|n| site(n, n < monitored)).collect();
        let (web, splitter) = ("web".to_owned(), Vec::new());
        Settings {
            sites,
            web,
            loads,
            seed: 1,
            http: Http::Both,
            splitter,
            far_end: None,
            onion: false,
            rate: RATE,
            patience: 30.0,
        }
    }

    #[test]
    fn the_usual_plan_has_all_loads_once_and_interleaved() {
        let units = plan(&settings(40, 300, 30));
        assert_eq!(units.len(), 2 * (40 * 30 + 300));
        let ids: BTreeSet<_> = units.iter().map(|unit| unit.id()).collect();
        assert_eq!(ids.len(), units.len(), "each id once");
        for part in units.chunks(100) {
            let of = |mode| part.iter().filter(|unit| unit.mode == mode).count();
            assert!((25..=75).contains(&of(Mode::Split)), "both modes everywhere");
            assert!(part.iter().any(|unit| !unit.site.monitored), "others everywhere");
        }
        assert_eq!(plan(&settings(40, 300, 30)), units, "a function of its settings");
        assert_ne!(plan(&Settings { seed: 2, ..settings(40, 300, 30) }), units);
    }

    #[test]
    fn another_rate_is_another_set_and_the_usual_one_is_what_it_was() {
        let usual = settings(4, 0, 2);
        assert!(usual.header().get("rate").is_none());
        let slow = Settings { rate: 0.5, ..usual.clone() };
        assert_eq!(slow.header()["rate"], 0.5);
        assert_eq!(plan(&slow), plan(&usual));
    }

    #[test]
    fn seeds_and_protocols_are_a_loads_and_a_sites_own() {
        let settings = settings(40, 0, 2);
        let seeds: BTreeSet<_> = plan(&settings).iter().map(|unit| unit.seed(1)).collect();
        assert_eq!(seeds.len(), 160);
        let quic = settings.sites.iter().filter(|site| settings.is_http3(site)).count();
        assert!((10..=30).contains(&quic), "{quic} of 40");
        let only = |http| Settings { http, ..settings.clone() };
        assert!(only(Http::H3).is_http3(&settings.sites[0]));
        assert!(!only(Http::H2).is_http3(&settings.sites[0]));
    }
}

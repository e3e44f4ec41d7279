//! Parser of scenario files.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anabranch_emulator::Span;
use anabranch_onion::LossyCongestion;
use anabranch_onion::circuitmux::Kind;
use anabranch_onion::conflux::{Design, LegScheduler};
use anabranch_os::toml_keys::{self, Section, TomlError};
use anabranch_sim::onion::{Common, Cpu, Crypto, LineRates, NetworkPlan, PlanError, RelaySample};
use anabranch_sim::{TcpConfig, UnknownCongestion};
use serde::Deserialize;
use toml::Spanned;

use super::consensus;
use super::drawn::{Delays, Rates};
use super::switches::{self, only};

const KEYS: &[Section<'_>] = &[
    Section {
        path: "",
        keys: &[
            "seeds",
            "network",
            "duration",
            "warm-up",
            "crypto",
            "delay",
            "queue",
            "congestion-control",
            "tcp",
            "relays",
            "servers",
            "clients",
        ],
    },
    Section {
        path: "relays",
        keys: &[
            "count",
            "exits",
            "consensus",
            "rate",
            "link",
            "quic-congestion",
            "mapping",
            "circuitmux",
            "cell-time",
            "circuit-time",
        ],
    },
    Section { path: "servers", keys: &["count", "rate"] },
    Section {
        path: "clients",
        keys: &[
            "web",
            "bulk",
            "pause",
            "rate",
            "selection",
            "attachment",
            "dirtiness",
            "topology",
            "legs",
            "merging",
            "multipath",
            "design",
            "schedule",
            "udp-or-congestion",
        ],
    },
];

/// Designs of multi-path onion routing that the simulator does not support, each with the reason.
const NOT_BUILT: [(&str, &str); 2] = [
    ("more", "the simulator has no circuits whose relays change with each message"),
    ("utor", "the simulator has it as a kind of link: write `link = \"utls\"` in [relays]"),
];

/// Name of the design with one circuit for each stream.
const TOR: &str = "tor";
/// Name of the design whose streams are TCP connections between client and exit, over one circuit.
const UDP_OR: &str = "udp-or";
/// Name of the design whose streams are TCP connections between client and exit, over several
/// circuits.
const MUDP_OR: &str = "mudp-or";

/// Maximum number of circuits that carry a stream together. It is the maximum of Tor's consensus
/// parameter `cfx_max_legs_set`.
const MAX_LEGS: i64 = 8;
/// Default number of circuits that carry a stream together. Tor's consensus parameter
/// `cfx_num_legs_set` and `anabranch client` have the same default.
const SET_LEGS: usize = 2;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawScenario {
    #[serde(default = "first_seed")]
    seeds: Spanned<Vec<u64>>,
    #[serde(default = "first_network")]
    network: u64,
    duration: Spanned<Span>,
    warm_up: Option<Spanned<Span>>,
    #[serde(default)]
    crypto: RawCrypto,
    delay: Delays,
    queue: Option<Span>,
    #[serde(default)]
    congestion_control: RawCongestionControl,
    tcp: Option<Spanned<String>>,
    relays: RawRelays,
    #[serde(default)]
    servers: RawServers,
    clients: Spanned<RawClients>,
}

fn first_seed() -> Spanned<Vec<u64>> {
    Spanned::new(0..0, vec![1])
}

fn first_network() -> u64 {
    1
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum RawCongestionControl {
    #[default]
    Vegas,
    Fixed,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RawCrypto {
    Full,
    #[default]
    Elided,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawRelays {
    count: Spanned<usize>,
    exits: Option<Spanned<usize>>,
    consensus: Option<Spanned<PathBuf>>,
    rate: Option<Rates>,
    link: Option<Spanned<String>>,
    quic_congestion: Option<Spanned<String>>,
    mapping: Option<Spanned<String>>,
    circuitmux: Option<Spanned<String>>,
    cell_time: Option<Span>,
    circuit_time: Option<Span>,
}

#[derive(Deserialize)]
struct RawServers {
    #[serde(default = "one_server")]
    count: Spanned<usize>,
    #[serde(default = "server_rate")]
    rate: Spanned<Rates>,
}

impl Default for RawServers {
    fn default() -> RawServers {
        RawServers { count: one_server(), rate: server_rate() }
    }
}

#[derive(Deserialize)]
struct RawClients {
    #[serde(default)]
    web: usize,
    #[serde(default)]
    bulk: usize,
    pause: Option<Span>,
    #[serde(default = "client_rate")]
    rate: Spanned<Rates>,
    selection: Option<Spanned<String>>,
    attachment: Option<Spanned<String>>,
    dirtiness: Option<Span>,
    topology: Option<Spanned<String>>,
    legs: Option<Spanned<i64>>,
    merging: Option<Spanned<String>>,
    #[serde(alias = "design")]
    multipath: Option<Spanned<String>>,
    schedule: Option<Spanned<String>>,
    #[serde(rename = "udp-or-congestion")]
    udp_or_congestion: Option<Spanned<String>>,
}

fn one_server() -> Spanned<usize> {
    Spanned::new(0..0, 1)
}

fn relay_rate() -> Rates {
    Rates::all(100)
}

fn server_rate() -> Spanned<Rates> {
    Spanned::new(0..0, Rates::all(1000))
}

fn client_rate() -> Spanned<Rates> {
    Spanned::new(0..0, Rates::all(50))
}

/// A parsed scenario file.
pub(super) struct ScenarioFile {
    pub(super) plan: NetworkPlan,
    pub(super) seeds: Vec<u64>,
}

impl ScenarioFile {
    /// Parses `text`, the content of the file `name`. Also reads the consensus that the file
    /// names. The path of the consensus is relative to the file's folder.
    ///
    /// # Errors
    /// The first mistake, with its line.
    pub(super) fn parse(text: &str, name: &str) -> Result<ScenarioFile, TomlError> {
        let raw: RawScenario = toml_keys::read(text, name, KEYS)?;
        let at = |span: Range<usize>, message: String| TomlError::at(text, name, span, message);
        if raw.seeds.get_ref().is_empty() {
            return Err(at(raw.seeds.span(), "`seeds` is empty; write `seeds = [1]`".to_owned()));
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = raw.seeds.get_ref().iter().find(|seed| !seen.insert(**seed)) {
            let message = format!("the seed {twice} is listed twice; write each seed once");
            return Err(at(raw.seeds.span(), message));
        }
        let folder = Path::new(name).parent().unwrap_or(Path::new(""));
        let plan = raw.plan(folder, &at)?;
        plan.check().map_err(|error| at(raw.place_of(error), error.to_string()))?;
        Ok(ScenarioFile { plan, seeds: raw.seeds.into_inner() })
    }
}

impl RawScenario {
    fn plan(
        &self,
        folder: &Path,
        at: &dyn Fn(Range<usize>, String) -> TomlError,
    ) -> Result<NetworkPlan, TomlError> {
        let (relays, servers, clients) = (&self.relays, &self.servers, self.clients.get_ref());
        relays.check(at)?;
        clients.check_topology(at)?;
        let (design, legs) = (clients.joined_design(at)?, clients.legs(at)?);
        let ([count, exits], sample) = relays.chosen(folder, at)?;
        let usual = Cpu::default();
        let cpu = Cpu {
            cell: relays.cell_time.map_or(usual.cell, |time| time.0),
            circuit: relays.circuit_time.map_or(usual.circuit, |time| time.0),
        };
        let link = switches::link(relays.link.as_ref(), at)?;
        let common = Common {
            link,
            quic_congestion: switches::quic_congestion(relays.quic_congestion.as_ref(), link, at)?,
            policy: relays.policy(at)?,
            design,
            legs,
            dealing: clients.dealing(at)?,
            udp_or: clients.udp_or(at)?,
            selection: switches::selection(clients.selection.as_ref(), at)?,
            dirtiness: clients.dirtiness.map(|time| time.0),
            leg_age: switches::leg_age(clients.attachment.as_ref(), (design, legs), at)?,
            cpu: Some(cpu),
            crypto: match self.crypto {
                RawCrypto::Full => Crypto::Full,
                RawCrypto::Elided => Crypto::Elided,
            },
            first_pause: Duration::from_secs(5),
            web_pause: clients.pause.map_or(Common::default().web_pause, |time| time.0),
            tcp: TcpConfig {
                congestion: switches::congestion(self.tcp.as_ref(), at)?,
                ..TcpConfig::default()
            },
            ..Common::default()
        };
        Ok(NetworkPlan {
            common,
            relays: count,
            exits,
            sample,
            servers: *servers.count.get_ref(),
            web: clients.web,
            bulk: clients.bulk,
            network: self.network,
            rates: self.rates(at)?,
            queue: self.queue.map_or(Duration::from_millis(50), |time| time.0),
            delays: self.delay.0.clone(),
            congestion_control: self.congestion_control == RawCongestionControl::Vegas,
            duration: self.duration.get_ref().0,
            warm_up: self.warm_up.as_ref().map_or(Duration::ZERO, |time| time.get_ref().0),
        })
    }

    fn rates(
        &self,
        at: &dyn Fn(Range<usize>, String) -> TomlError,
    ) -> Result<LineRates, TomlError> {
        let others = |rates: &Spanned<Rates>| {
            rates.get_ref().of_others().map_err(|message| at(rates.span(), message))
        };
        let [relays, exits] = self.relays.rate.clone().unwrap_or_else(relay_rate).of_relays();
        Ok(LineRates {
            relays,
            exits,
            servers: others(&self.servers.rate)?,
            clients: others(&self.clients.get_ref().rate)?,
        })
    }

    /// Returns the position in the file, as a range of bytes, of the value that causes `error`.
    fn place_of(&self, error: PlanError) -> Range<usize> {
        match error {
            PlanError::NoExit => {
                let relays = &self.relays;
                relays.exits.as_ref().map_or(relays.count.span(), Spanned::span)
            }
            PlanError::NoServer | PlanError::TooManyServers => self.servers.count.span(),
            PlanError::NoClient | PlanError::TooManyClients => self.clients.span(),
            PlanError::NoDuration => self.duration.span(),
            PlanError::NoCongestionControl(_) => {
                let clients = self.clients.get_ref();
                clients.multipath.as_ref().map_or(self.clients.span(), Spanned::span)
            }
            PlanError::WarmUp => self.warm_up.as_ref().map_or(0..0, Spanned::span),
            _ => self.relays.count.span(),
        }
    }
}

impl RawRelays {
    fn check(&self, at: &dyn Fn(Range<usize>, String) -> TomlError) -> Result<(), TomlError> {
        let lacks = "the simulator has one connection for each pair of relays, and all circuits \
                     between these relays use it";
        only(self.mapping.as_ref(), ("mapping", "n:1", lacks), at)
    }

    /// Returns the number of relays that are not exits, and the number of exits. If the file names
    /// a consensus, also returns a random sample of the consensus's relays, and the two numbers
    /// are those of the sample.
    fn chosen(
        &self,
        folder: &Path,
        at: &dyn Fn(Range<usize>, String) -> TomlError,
    ) -> Result<([usize; 2], Option<RelaySample>), TomlError> {
        let count = *self.count.get_ref();
        let (file, exits) = match (&self.consensus, &self.exits) {
            (None, Some(exits)) => return Ok(([count, *exits.get_ref()], None)),
            (None, None) => {
                let problem = "`exits` is missing in [relays]; write the number of exits, or the \
                               file of a `consensus`";
                return Err(at(self.count.span(), problem.to_owned()));
            }
            (Some(file), exits) => (file, exits),
        };
        if let Some(exits) = exits {
            let problem = "`exits` and `consensus` cannot be used together, because the consensus \
                           determines the exits; remove one of the two";
            return Err(at(exits.span(), problem.to_owned()));
        }
        let read = consensus::read(&folder.join(file.get_ref()));
        let consensus = read.map_err(|problem| at(file.span(), problem))?;
        let most = consensus.count();
        if count > most {
            let problem = format!(
                "`count` is {count}, but only {most} relays of the consensus have a bandwidth \
                 weight; write at most {most}"
            );
            return Err(at(self.count.span(), problem));
        }
        let counts = consensus.counts(count);
        let lines_by_weight = self.rate.is_none();
        Ok((counts, Some(RelaySample { consensus, lines_by_weight })))
    }

    fn policy(&self, at: &dyn Fn(Range<usize>, String) -> TomlError) -> Result<Kind, TomlError> {
        let Some(name) = &self.circuitmux else { return Ok(Kind::Kist) };
        let known = [
            ("kist", Kind::Kist),
            ("ewma", Kind::Ewma),
            ("round-robin", Kind::RoundRobin),
            ("random", Kind::Random),
        ];
        let found = known.iter().find(|(known, _)| known == name.get_ref());
        found.map(|(_, kind)| *kind).ok_or_else(|| {
            let names = known.map(|(name, _)| name).join(", ");
            let written = name.get_ref();
            at(
                name.span(),
                format!("there is no circuit scheduler `{written}`; choose one of {names}"),
            )
        })
    }
}

impl RawClients {
    fn check_topology(
        &self,
        at: &dyn Fn(Range<usize>, String) -> TomlError,
    ) -> Result<(), TomlError> {
        let lacks = "the simulator has no circuits whose relays change with each message";
        only(self.topology.as_ref(), ("topology", "partial-mesh", lacks), at)
    }

    /// Returns the design that two keys describe together. `multipath` is the name of the design,
    /// and `merging` is the relay at which the circuits of a stream join.
    fn joined_design(
        &self,
        at: &dyn Fn(Range<usize>, String) -> TomlError,
    ) -> Result<Design, TomlError> {
        let named = (self.design(at)?, self.multipath.is_some());
        switches::joining(self.merging.as_ref(), named, at)
    }

    /// Returns the number of circuits that carry a stream together: the value of the key `legs`,
    /// or its default.
    fn legs(&self, at: &dyn Fn(Range<usize>, String) -> TomlError) -> Result<usize, TomlError> {
        let Some(legs) = &self.legs else { return Ok(self.usual_legs()) };
        let count = *legs.get_ref();
        if self.is(TOR) && count != 1 {
            let message = "with `tor` each stream uses one circuit; write `legs = 1`, or a design \
                        with several circuits, such as `design = \"conflux\"`";
            return Err(at(legs.span(), message.to_owned()));
        }
        match usize::try_from(count) {
            Ok(fits) if (1..=MAX_LEGS).contains(&count) => Ok(fits),
            _ => Err(at(legs.span(), format!("`legs` is {count}; write 1 to {MAX_LEGS}"))),
        }
    }

    /// Returns the default of the key `legs`. If the file has the key `multipath` with a design of
    /// several circuits, or only the key `merging`, the default is [`SET_LEGS`]. Otherwise it is
    /// 1.
    fn usual_legs(&self) -> usize {
        let names_one = self.is(TOR) || self.is(UDP_OR);
        let names_set = self.multipath.is_some() || self.merging.is_some();
        if names_set && !names_one { SET_LEGS } else { 1 }
    }

    /// Returns whether the file names the design `name`.
    fn is(&self, name: &str) -> bool {
        self.multipath.as_ref().is_some_and(|written| written.get_ref() == name)
    }

    /// Returns the congestion control of the TCP connections between client and exit; `None` for
    /// designs without such TCP connections.
    fn udp_or(
        &self,
        at: &dyn Fn(Range<usize>, String) -> TomlError,
    ) -> Result<Option<LossyCongestion>, TomlError> {
        let control = self.udp_or_congestion.as_ref();
        if !self.is(UDP_OR) && !self.is(MUDP_OR) {
            let remedy = "applies only to the designs `udp-or` and `mudp-or`: remove it";
            return match control {
                Some(written) => Err(at(written.span(), format!("`udp-or-congestion` {remedy}"))),
                None => Ok(None),
            };
        }
        if let Some(legs) =
            self.legs.as_ref().filter(|legs| self.is(UDP_OR) && *legs.get_ref() != 1)
        {
            let message = "with `udp-or` each stream uses one circuit; write `legs = 1`, or use \
                        `mudp-or`";
            return Err(at(legs.span(), message.to_owned()));
        }
        let control = match control {
            None => LossyCongestion::BBR,
            Some(name) => {
                let parsed = name.get_ref().parse();
                parsed.map_err(|unknown: UnknownCongestion| at(name.span(), unknown.to_string()))?
            }
        };
        let windows = self.dealing(at)?.filter(|dealing| dealing.schedule.family().needs_windows);
        match (windows, &self.schedule) {
            (Some(dealing), Some(written)) if !control.supports_legs() => Err(at(
                written.span(),
                format!(
                    "the schedule `{}` needs a congestion window for each circuit, but `{}` has one \
                     window for all circuits; write `udp-or-congestion = \"bbr\"`, or `schedule = \
                     \"round-robin\"`",
                    dealing.schedule,
                    control.name()
                ),
            )),
            _ => Ok(Some(control)),
        }
    }

    fn design(&self, at: &dyn Fn(Range<usize>, String) -> TomlError) -> Result<Design, TomlError> {
        let Some(name) = &self.multipath else { return Ok(Design::default()) };
        if [TOR, UDP_OR, MUDP_OR].iter().any(|design| self.is(design)) {
            return Ok(Design::default());
        }
        if let Some((design, lacks)) = NOT_BUILT.iter().find(|(known, _)| known == name.get_ref()) {
            let built = [&[TOR], &Design::ALL.map(Design::name)[..], &[UDP_OR, MUDP_OR]]
                .concat()
                .join(", ");
            let message = format!(
                "the multipath design `{design}` cannot be simulated: {lacks}; choose one of \
                 {built}"
            );
            return Err(at(name.span(), message));
        }
        name.get_ref().parse().map_err(|error| at(name.span(), format!("{error}")))
    }

    /// Parses the schedule: its name and, after a space, the length of its runs (consecutive cells
    /// on one circuit). Without a length, a run has one cell (`1p`).
    fn dealing(
        &self,
        at: &dyn Fn(Range<usize>, String) -> TomlError,
    ) -> Result<Option<LegScheduler>, TomlError> {
        let Some(name) = &self.schedule else { return Ok(None) };
        let written = name.get_ref();
        let legs = self.legs(at)?;
        let whole = if written.contains(' ') { written.clone() } else { format!("{written} 1p") };
        LegScheduler::read(&whole, legs).map(Some).ok_or_else(|| {
            let problem = "is not a schedule for this number of circuits (`legs`); write one of \
                           docs/guide/paths.md, such as `eta` or `round-robin 1p`";
            at(name.span(), format!("`{written}` {problem}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use anabranch_sim::onion::{LinkLayer, QuicCongestion};

    use super::*;

    const GOOD: &str = "duration = '60s'\ndelay = '20ms'\nwarm-up = '10s'\n\
        [relays]\ncount = 6\nexits = 2\nrate = '100mbit'\n[clients]\nweb = 3\n";

    #[test]
    fn what_is_not_written_has_its_default() {
        let ScenarioFile { plan, seeds } = ScenarioFile::parse(GOOD, "s.toml").unwrap();
        assert_eq!((plan.relays, plan.exits, plan.servers, plan.web, plan.bulk), (6, 2, 1, 3, 0));
        assert_eq!(seeds, [1]);
        assert_eq!(plan.common.crypto, Crypto::Elided);
        let LineRates { relays, exits, servers, clients } = plan.rates;
        let rates = [relays, exits, servers, clients].map(|table| table.values().to_vec());
        assert_eq!(rates, [100, 100, 1000, 50].map(|megabits| vec![megabits * 1_000_000]));
        assert_eq!((plan.network, plan.congestion_control), (1, true));
    }

    #[test]
    fn rates_and_delays_are_one_value_a_list_or_a_named_table() {
        let of = |rate: &str, delay: &str| {
            let text = GOOD.replace("'100mbit'", rate).replace("'20ms'", delay);
            ScenarioFile::parse(&text, "s.toml").map(|file| file.plan)
        };
        let plan = of("['1mbit', '2mbit']", "['5ms', '7ms', '9ms']").unwrap();
        assert_eq!(plan.rates.relays.values(), [1_000_000, 2_000_000]);
        assert_eq!(plan.rates.exits, plan.rates.relays);
        assert_eq!(plan.delays.values(), [5_000_000, 7_000_000, 9_000_000]);
        let plan = of("'tor-2018-spare'", "'planetlab'").unwrap();
        assert_eq!([&plan.rates.relays, &plan.rates.exits].map(|t| t.values().len()), [100, 100]);
        assert_ne!(plan.rates.exits, plan.rates.relays);
        assert_eq!(plan.delays.values().len(), 100);
    }

    #[test]
    fn switches_of_the_taxonomy_reach_the_plan() {
        let more = "legs = 2\nmerging = 'middle'\nattachment = '30s'\nselection = 'rtt'\n\
                    pause = '60s'\ntopology = 'partial-mesh'\ndirtiness = '30s'\n";
        let text = format!("tcp = 'reno'\n{GOOD}{more}");
        let common = ScenarioFile::parse(&text, "s.toml").unwrap().plan.common;
        assert_eq!((common.design, common.legs), (Design::Merged, 2));
        assert_eq!(common.leg_age, Some(Duration::from_secs(30)));
        assert_eq!(common.selection, anabranch_onion::circmgr::Selection::Rtt);
        assert_eq!(common.web_pause, Duration::from_secs(60));
        assert_eq!(common.dirtiness, Some(Duration::from_secs(30)));
        assert_eq!(common.tcp.congestion, anabranch_sim::Congestion::RENO);
        let fixed = text.replace("attachment = '30s'", "attachment = 'fixed'");
        let fixed = fixed.replace("'middle'", "'exit'");
        let common = ScenarioFile::parse(&fixed, "s.toml").unwrap().plan.common;
        assert_eq!((common.design, common.leg_age), (Design::Conflux, None));
    }

    #[test]
    fn a_named_design_has_its_usual_number_of_circuits() {
        let legs = |keys: &str| {
            let file = ScenarioFile::parse(&format!("{GOOD}{keys}\n"), "s.toml");
            file.map(|file| file.plan.common.legs).map_err(|error| error.to_string())
        };
        assert_eq!(legs(""), Ok(1), "no design is named");
        for (design, wanted) in [(TOR, 1), (UDP_OR, 1), (MUDP_OR, SET_LEGS)] {
            assert_eq!(legs(&format!("design = '{design}'")), Ok(wanted), "{design}");
        }
        for design in Design::ALL.map(Design::name) {
            assert_eq!(legs(&format!("multipath = '{design}'")), Ok(SET_LEGS), "{design}");
            assert_eq!(legs(&format!("multipath = '{design}'\nlegs = 3")), Ok(3), "{design}");
        }
        assert_eq!(legs("merging = 'middle'"), Ok(SET_LEGS));
        assert_eq!(legs("schedule = 'eta'\nmultipath = 'conflux'"), Ok(SET_LEGS));
    }

    #[test]
    fn quic_links_have_their_congestion_control() {
        let of = |line: &str| {
            let text = GOOD.replace("count = 6", &format!("count = 6\n{line}"));
            let common = ScenarioFile::parse(&text, "s.toml").unwrap().plan.common;
            (common.link, common.quic_congestion)
        };
        let (cubic, bbr) = (QuicCongestion::Cubic, QuicCongestion::Bbr);
        assert_eq!(of("link = 'quic'"), (LinkLayer::Quic, cubic));
        assert_eq!(of("link = 'quic'\nquic-congestion = 'bbr'"), (LinkLayer::Quic, bbr));
        assert_eq!(of("link = 'utls'"), (LinkLayer::Utls, cubic));
    }

    #[test]
    fn every_congestion_control_is_accepted_and_stands_in_the_document() {
        let guide = include_str!("../../../../docs/simulator.md");
        let row = guide.lines().find(|line| line.starts_with("| `tcp` |")).expect("the row");
        for congestion in anabranch_sim::Congestion::all() {
            let text = format!("tcp = '{}'\n{GOOD}", congestion.name());
            let common = ScenarioFile::parse(&text, "s.toml").unwrap().plan.common;
            assert_eq!(common.tcp.congestion, congestion);
            assert!(row.contains(&format!("`{}`", congestion.name())), "{congestion:?}: {row}");
        }
    }

    /// Mistakes: a part of [`GOOD`], the text that replaces it, and a part of the error message.
    const MISTAKES: &[(&str, &str, &str)] = &[
        ("web = 3", "wbe = 3", "s.toml:9: unknown key `wbe` in [clients]; known: web, bulk"),
        ("web = 3", "web = 0", "s.toml:8: there is no client, so nothing would be simulated"),
        ("web = 3", "web = -3", "s.toml:9: "),
        ("'100mbit'", "'0mbit'", "s.toml:7: "),
        ("'100mbit'", "0", "s.toml:7: "),
        ("'20ms'", "'-20ms'", "s.toml:2: `delay`: `-20ms` is not a delay; write `20ms`"),
        ("'20ms'", "[]", "s.toml:2: `delay`: the list is empty"),
        ("'20ms'", "['20ms', 20]", "s.toml:2: `delay`: `20` is not a delay"),
        ("'100mbit'", "['1mbit', '0mbit']", "`0mbit` is not the rate of a network connection"),
        ("'100mbit'", "'tor-2019'", "`tor-2019` is not the rate of a network connection"),
        (
            "web = 3",
            "web = 3\nrate = 'tor-2018'",
            "s.toml:10: the table `tor-2018` has rates of relays",
        ),
        (
            "web = 3",
            "web = 3\nmultipath = 'udp-or'\nlegs = 2",
            "s.toml:11: with `udp-or` each stream uses one circuit; write `legs = 1`, or use",
        ),
        (
            "web = 3",
            "web = 3\nmultipath = 'mudp-or'\nschedule = 'eta'\nudp-or-congestion = 'cubic'",
            "s.toml:11: the schedule `eta` needs a congestion window for each circuit, but `cubic`",
        ),
        (
            "web = 3",
            "web = 3\nudp-or-congestion = 'cubic'",
            "s.toml:10: `udp-or-congestion` applies only to the designs `udp-or` and `mudp-or`",
        ),
        (
            "web = 3",
            "web = 3\ndesign = 'tor'\nlegs = 2",
            "s.toml:11: with `tor` each stream uses one circuit; write `legs = 1`, or a design",
        ),
        (
            "web = 3",
            "web = 3\nmultipath = 'more'",
            "s.toml:10: the multipath design `more` cannot be simulated: the simulator has no",
        ),
        (
            "web = 3",
            "web = 3\nselection = 'bandwidth'",
            "s.toml:10: no rule for selecting circuits is called 'bandwidth'; choose one of o",
        ),
        ("web = 3", "web = 3\npause = '-1s'", "s.toml:10: "),
        ("web = 3", "web = 3\ndirtiness = '-1s'", "s.toml:10: "),
        (
            "web = 3",
            "web = 3\ntopology = 'full-mesh'",
            "s.toml:10: `full-mesh` cannot be simulated: the simulator has no circuits whose",
        ),
        ("count = 6", "count = 6\nmapping = '1:1'", "s.toml:6: `1:1` cannot be simulated: the"),
        ("duration", "tcp = 'vegas'\nduration", "s.toml:1: no congestion control is called `vega"),
        (
            "web = 3",
            "web = 3\nattachment = '30s'",
            "s.toml:10: a circuit of a stream can be replaced only if the stream has several",
        ),
        (
            "web = 3",
            "web = 3\nlegs = 2\nattachment = '30s'",
            "s.toml:11: with `conflux` no circuit of a stream can be replaced, because all of",
        ),
        ("web = 3", "web = 3\nattachment = '0s'", "s.toml:10: `0s` is not valid; write the age"),
        ("web = 3", "web = 3\nattachment = 'often'", "s.toml:10: `often` is not valid; write"),
        ("web = 3", "web = 3\nmerging = 'guard'", "s.toml:10: `guard` is not a place where"),
        (
            "web = 3",
            "web = 3\nmultipath = 'mtor'\nmerging = 'middle'",
            "s.toml:11: with `mtor` the circuits of a stream join at the exit, not at a middle",
        ),
        (
            "web = 3",
            "web = 3\nmultipath = 'merged'\nmerging = 'exit'",
            "s.toml:11: with `merged` the circuits of a stream join at a middle relay, not at",
        ),
        ("exits = 2", "", "s.toml:5: `exits` is missing in [relays]; write the number"),
        ("count = 6", "count = 6\nconsensus = 'c'", "s.toml:7: `exits` and `consensus` cannot"),
        ("exits = 2", "consensus = 'none/c'", "s.toml:6: none/c: "),
        ("count = 6", "count = 6\nlink = 'dtls'", "s.toml:6: `dtls` cannot be simulated: the"),
        (
            "count = 6",
            "count = 6\nquic-congestion = 'bbr'",
            "s.toml:6: `quic-congestion` applies only to `link = \"quic\"`: remove it",
        ),
        (
            "count = 6",
            "count = 6\nlink = 'quic'\nquic-congestion = 'reno'",
            "s.toml:7: QUIC links have no congestion control `reno`; write `cubic` or `bbr`",
        ),
        (
            "duration",
            "congestion-control = 'fixed'\nduration",
            "the design `conflux` needs the circuits' round-trip times",
        ),
        ("duration", "congestion-control = 'x'\nduration", "s.toml:1: "),
        ("duration", "network = -1\nduration", "s.toml:1: "),
        ("exits = 2", "exits = 0", "s.toml:6: circuits end at an exit"),
        ("count = 6", "count = 1", "s.toml:5: these circuits need at least 2 relays"),
        ("count = 6", "count = 30000", "s.toml:5: there may be at most"),
        ("'10s'", "'60s'", "s.toml:3: the warm-up must be shorter"),
        ("web = 3", "web = 3\nlegs = 9", "s.toml:10: `legs` is 9; write 1 to 8"),
        ("web = 3", "web = 3\nlegs = 4", "s.toml:5: these circuits need at least 8 relays"),
        ("web = 3", "web = 3\nmultipath = 'x'", "s.toml:10: there is no multi-path design 'x'"),
        ("web = 3", "web = 3\nschedule = 'x'", "s.toml:10: `x` is not a schedule"),
        ("count = 6", "count = 6\ncircuitmux = 'x'", "s.toml:6: there is no circuit scheduler"),
        ("delay = '20ms'", "", "is missing"),
        ("duration", "seeds = []\nduration", "s.toml:1: `seeds` is empty; write `seeds = [1]`"),
        ("duration", "seeds = [1, 2, 1]\nduration", "s.toml:1: the seed 1 is listed twice; wri"),
        ("'60s'", "'0s'", "s.toml:1: the duration of the simulation must be above"),
        ("'100mbit'", "'1e300gbit'", "s.toml:7: `rate`: `1e300gbit` is not the rate of a net"),
        ("'100mbit'", "'1.1tbit'", "s.toml:7: `rate`: `1.1tbit` is not the rate of a net"),
        ("web = 3", "web = 9223372036854775807", "s.toml:8: there may be at most 1000000 cli"),
        (
            "[clients]",
            "[servers]\ncount = 70000\n[clients]",
            "s.toml:9: there may be at most 62500 web servers",
        ),
    ];

    #[test]
    fn a_mistake_is_named_with_its_line_and_remedy() {
        for (written, instead, wanted) in MISTAKES {
            let mut text = GOOD.replacen(*written, instead, 1);
            assert_ne!(text, GOOD);
            if instead.contains("'fixed'") {
                text += "legs = 2\n";
            }
            let error = ScenarioFile::parse(&text, "s.toml").map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(wanted), "{instead}: {error}");
            assert!(!error.contains('\n') && !error.contains("usize"), "{error}");
        }
    }
}

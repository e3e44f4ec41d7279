//! Scenario files.

use std::num::NonZeroU64;
use std::ops::Range;
use std::time::Duration;

use anabranch_emulator::Span;
use anabranch_onion::circuitmux::Kind;
use anabranch_onion::conflux::{Dealing, Design};
use anabranch_os::toml_keys::{self, Section, TomlError};
use anabranch_sim::onion::{Common, Cpu, Crypto, NetworkPlan, PlanError};
use serde::Deserialize;
use toml::Spanned;

const KEYS: &[Section<'_>] = &[
    Section {
        path: "",
        keys: &[
            "seeds", "duration", "warm-up", "crypto", "delay", "queue", "relays", "servers",
            "clients",
        ],
    },
    Section {
        path: "relays",
        keys: &["count", "exits", "rate", "circuitmux", "cell-time", "circuit-time"],
    },
    Section { path: "servers", keys: &["count", "rate"] },
    Section { path: "clients", keys: &["web", "bulk", "rate", "legs", "multipath", "schedule"] },
];

/// Most circuits of a set (`cfx_max_legs_set` allows no more).
const MAX_LEGS: i64 = 8;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawScenario {
    #[serde(default = "first_seed")]
    seeds: Spanned<Vec<u64>>,
    duration: Span,
    warm_up: Option<Spanned<Span>>,
    #[serde(default)]
    crypto: RawCrypto,
    delay: Span,
    queue: Option<Span>,
    relays: RawRelays,
    #[serde(default)]
    servers: RawServers,
    clients: Spanned<RawClients>,
}

fn first_seed() -> Spanned<Vec<u64>> {
    Spanned::new(0..0, vec![1])
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
    exits: Spanned<usize>,
    #[serde(default = "relay_rate")]
    rate: LineRate,
    circuitmux: Option<Spanned<String>>,
    cell_time: Option<Span>,
    circuit_time: Option<Span>,
}

#[derive(Deserialize)]
struct RawServers {
    #[serde(default = "one_server")]
    count: Spanned<usize>,
    #[serde(default = "server_rate")]
    rate: LineRate,
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
    #[serde(default = "client_rate")]
    rate: LineRate,
    legs: Option<Spanned<i64>>,
    multipath: Option<Spanned<String>>,
    schedule: Option<Spanned<String>>,
}

fn one_server() -> Spanned<usize> {
    Spanned::new(0..0, 1)
}

fn relay_rate() -> LineRate {
    LineRate(const { NonZeroU64::new(100_000_000).unwrap() })
}

fn server_rate() -> LineRate {
    LineRate(const { NonZeroU64::new(1_000_000_000).unwrap() })
}

fn client_rate() -> LineRate {
    LineRate(const { NonZeroU64::new(50_000_000).unwrap() })
}

/// Bits per second, as in `100mbit`.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "Written")]
struct LineRate(NonZeroU64);

/// A value as it stands in the file: a number is refused in the same words as a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Integer(i64),
    Other(serde::de::IgnoredAny),
}

impl TryFrom<Written> for LineRate {
    type Error = String;

    fn try_from(written: Written) -> Result<LineRate, String> {
        let text = match written {
            Written::Text(text) => text,
            Written::Integer(number) => number.to_string(),
            Written::Other(_) => "...".to_owned(),
        };
        let units = [("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3)];
        let rate = units.iter().find_map(|(unit, factor)| {
            let number: f64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
            // What is no number of bits becomes 0, which is refused.
            NonZeroU64::new((number * factor) as u64)
        });
        let problem = "is not the rate of a line, which is above zero; write `100mbit`, `1.5gbit`";
        rate.map(LineRate).ok_or_else(|| format!("`{text}` {problem}"))
    }
}

/// A scenario file as it was read.
pub(super) struct ScenarioFile {
    pub(super) plan: NetworkPlan,
    pub(super) seeds: Vec<u64>,
}

impl ScenarioFile {
    /// Reads `text`, the content of the file `name`.
    ///
    /// # Errors
    /// The first mistake, with its line.
    pub(super) fn parse(text: &str, name: &str) -> Result<ScenarioFile, TomlError> {
        let raw: RawScenario = toml_keys::read(text, name, KEYS)?;
        let at = |span: Range<usize>, message: String| TomlError::at(text, name, span, message);
        if raw.seeds.get_ref().is_empty() {
            return Err(at(raw.seeds.span(), "no seed; write `seeds = [1]`".to_owned()));
        }
        let plan = raw.plan(&at)?;
        plan.check().map_err(|error| at(raw.place_of(error), error.to_string()))?;
        Ok(ScenarioFile { plan, seeds: raw.seeds.into_inner() })
    }
}

impl RawScenario {
    fn plan(
        &self,
        at: &dyn Fn(Range<usize>, String) -> TomlError,
    ) -> Result<NetworkPlan, TomlError> {
        let (relays, servers, clients) = (&self.relays, &self.servers, self.clients.get_ref());
        let usual = Cpu::default();
        let cpu = Cpu {
            cell: relays.cell_time.map_or(usual.cell, |time| time.0),
            circuit: relays.circuit_time.map_or(usual.circuit, |time| time.0),
        };
        let common = Common {
            policy: relays.policy(at)?,
            design: clients.design(at)?,
            legs: clients.legs(at)?,
            dealing: clients.dealing(at)?,
            cpu: Some(cpu),
            crypto: match self.crypto {
                RawCrypto::Full => Crypto::Full,
                RawCrypto::Elided => Crypto::Elided,
            },
            first_pause: Duration::from_secs(5),
            ..Common::default()
        };
        Ok(NetworkPlan {
            common,
            relays: *relays.count.get_ref(),
            exits: *relays.exits.get_ref(),
            servers: *servers.count.get_ref(),
            web: clients.web,
            bulk: clients.bulk,
            rates: [relays.rate.0, servers.rate.0, clients.rate.0],
            queue: self.queue.map_or(Duration::from_millis(50), |time| time.0),
            delay: self.delay.0,
            duration: self.duration.0,
            warm_up: self.warm_up.as_ref().map_or(Duration::ZERO, |time| time.get_ref().0),
        })
    }

    /// The bytes of the file that an error is about.
    fn place_of(&self, error: PlanError) -> Range<usize> {
        match error {
            PlanError::NoExit => self.relays.exits.span(),
            PlanError::NoServer => self.servers.count.span(),
            PlanError::NoClient => self.clients.span(),
            PlanError::WarmUp => self.warm_up.as_ref().map_or(0..0, Spanned::span),
            _ => self.relays.count.span(),
        }
    }
}

impl RawRelays {
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
                format!("no circuit scheduler is called `{written}`; there are {names}"),
            )
        })
    }
}

impl RawClients {
    fn legs(&self, at: &dyn Fn(Range<usize>, String) -> TomlError) -> Result<usize, TomlError> {
        let Some(legs) = &self.legs else { return Ok(1) };
        let count = *legs.get_ref();
        match usize::try_from(count) {
            Ok(fits) if (1..=MAX_LEGS).contains(&count) => Ok(fits),
            _ => Err(at(legs.span(), format!("`legs` is {count}; write 1 to {MAX_LEGS}"))),
        }
    }

    fn design(&self, at: &dyn Fn(Range<usize>, String) -> TomlError) -> Result<Design, TomlError> {
        let Some(name) = &self.multipath else { return Ok(Design::default()) };
        name.get_ref().parse().map_err(|error| at(name.span(), format!("{error}")))
    }

    /// The schedule, with the length of its runs behind a space where it is not the schedule's own.
    fn dealing(
        &self,
        at: &dyn Fn(Range<usize>, String) -> TomlError,
    ) -> Result<Option<Dealing>, TomlError> {
        let Some(name) = &self.schedule else { return Ok(None) };
        let written = name.get_ref();
        let legs = self.legs(at)?;
        let whole = if written.contains(' ') { written.clone() } else { format!("{written} 1p") };
        Dealing::read(&whole, legs).map(Some).ok_or_else(|| {
            let problem = "is no schedule for these legs; write one of docs/guide/paths.md, such \
                           as `eta` or `round-robin 1p`";
            at(name.span(), format!("`{written}` {problem}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "duration = '60s'\ndelay = '20ms'\nwarm-up = '10s'\n\
        [relays]\ncount = 6\nexits = 2\nrate = '100mbit'\n[clients]\nweb = 3\n";

    #[test]
    fn what_is_not_written_has_its_default() {
        let ScenarioFile { plan, seeds } = ScenarioFile::parse(GOOD, "s.toml").unwrap();
        assert_eq!((plan.relays, plan.exits, plan.servers, plan.web, plan.bulk), (6, 2, 1, 3, 0));
        assert_eq!(seeds, [1]);
        assert_eq!(plan.common.crypto, Crypto::Elided);
        assert_eq!(plan.rates.map(NonZeroU64::get), [100_000_000, 1_000_000_000, 50_000_000]);
    }

    #[test]
    fn a_mistake_is_named_with_its_line_and_remedy() {
        for (written, instead, told) in [
            ("web = 3", "wbe = 3", "s.toml:9: unknown key `wbe` in [clients]; known: web, bulk"),
            ("web = 3", "web = 0", "s.toml:8: nothing happens without clients; add one"),
            ("web = 3", "web = -3", "s.toml:9: "),
            ("'100mbit'", "'0mbit'", "s.toml:7: "),
            ("'100mbit'", "0", "s.toml:7: "),
            ("'20ms'", "'-20ms'", "s.toml:2: "),
            ("exits = 2", "exits = 0", "s.toml:6: circuits end at an exit"),
            ("count = 6", "count = 1", "s.toml:5: these circuits need at least 2 relays"),
            ("count = 6", "count = 30000", "s.toml:5: there may be at most"),
            ("'10s'", "'60s'", "s.toml:3: the warm-up must be shorter"),
            ("web = 3", "web = 3\nlegs = 9", "s.toml:10: `legs` is 9; write 1 to 8"),
            ("web = 3", "web = 3\nlegs = 4", "s.toml:5: these circuits need at least 8 relays"),
            ("web = 3", "web = 3\nmultipath = 'x'", "s.toml:10: there is no multi-path design 'x'"),
            ("web = 3", "web = 3\nschedule = 'x'", "s.toml:10: `x` is no schedule"),
            ("count = 6", "count = 6\ncircuitmux = 'x'", "s.toml:6: no circuit scheduler"),
            ("delay = '20ms'", "", "is missing"),
            ("duration", "seeds = []\nduration", "s.toml:1: no seed; write `seeds = [1]`"),
        ] {
            let text = GOOD.replacen(written, instead, 1);
            assert_ne!(text, GOOD);
            let error = ScenarioFile::parse(&text, "s.toml").map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(told), "{instead}: {error}");
            assert!(!error.contains('\n') && !error.contains("usize"), "{error}");
        }
    }
}

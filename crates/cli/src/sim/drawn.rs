//! Rates and delays in a scenario file: a single value for all hosts, a list from which values are
//! drawn, or the name of a table.

use std::num::NonZeroU64;

use anabranch_emulator::Span;
use anabranch_sim::onion::{PublicRates, QuantileTable, planetlab_delays};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error;

/// Value of a key that selects the built-in table of delays between hosts of PlanetLab, a research
/// network.
const PLANETLAB: &str = "planetlab";

/// Maximum rate of a host's network line, in bits per second.
const MAX_RATE: u64 = 1_000_000_000_000;

/// Rates of hosts' access lines in a scenario: `"100mbit"`, a list of such texts, or the name of a
/// built-in table of rates, such as `tor-2018`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "OneOrMany")]
pub(super) enum Rates {
    /// A table of rates in bits per second, which hosts of all kinds can use.
    Table(QuantileTable),
    /// Rates of the relays of the public Tor network, which only relays can use.
    Public(PublicRates),
}

/// One-way delays in a scenario: `"20ms"`, a list of such texts, or `"planetlab"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "OneOrMany")]
pub(super) struct Delays(pub(super) QuantileTable);

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    Many(Vec<DrawnValue>),
    One(DrawnValue),
}

/// A value in the scenario file. Every TOML type is accepted here, so that a value of an
/// unsuitable type gets the same error message as an invalid text.
#[derive(Deserialize)]
#[serde(untagged)]
enum DrawnValue {
    Text(String),
    Integer(i64),
    Other(serde::de::IgnoredAny),
}

impl DrawnValue {
    fn text(self) -> String {
        match self {
            DrawnValue::Text(text) => text,
            DrawnValue::Integer(number) => number.to_string(),
            DrawnValue::Other(_) => "...".to_owned(),
        }
    }
}

impl Rates {
    /// Returns the same rate for all hosts: `megabits` Mbit/s.
    pub(super) fn all(megabits: u64) -> Rates {
        Rates::Table(QuantileTable::one(megabits * 1_000_000))
    }

    /// Returns the rates of relays that are not exits, and the rates of exits.
    pub(super) fn of_relays(&self) -> [QuantileTable; 2] {
        match self {
            Rates::Table(table) => [table.clone(), table.clone()],
            Rates::Public(public) => public.tables(),
        }
    }

    /// Returns the rates of hosts that are not relays.
    ///
    /// # Errors
    /// The rates are those of the public Tor network's relays, which other hosts cannot use.
    pub(super) fn of_others(&self) -> Result<QuantileTable, String> {
        match self {
            Rates::Table(table) => Ok(table.clone()),
            Rates::Public(public) => Err(format!(
                "the table `{}` has rates of relays, so it is allowed only in [relays]; write a \
                 rate, or a list of rates",
                public.name()
            )),
        }
    }
}

/// Parses a rate. Returns bits per second.
fn rate(text: &str) -> Result<u64, String> {
    let units = [("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3)];
    let rate = units.iter().find_map(|(unit, factor)| {
        let number: f64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
        // NaN and negative numbers become 0, which is refused later.
        NonZeroU64::new((number * factor) as u64).filter(|rate| rate.get() <= MAX_RATE)
    });
    let tables = PublicRates::ALL.map(|table| format!("`{}`", table.name())).join(", ");
    rate.map(NonZeroU64::get).ok_or_else(|| {
        format!(
            "`{text}` is not the rate of a network connection: write a rate above zero, up to \
             `1000gbit`, such as `100mbit` or `1.5gbit`, a list of rates, or for relays {tables}"
        )
    })
}

/// Parses a delay. Returns nanoseconds.
fn delay(text: &str) -> Result<u64, String> {
    let span: Result<Span, Error> = Span::deserialize(text.into_deserializer());
    let nanos = span.ok().and_then(|span| u64::try_from(span.0.as_nanos()).ok());
    nanos.ok_or_else(|| {
        format!("`{text}` is not a delay; write `20ms`, a list of delays, or `{PLANETLAB}`")
    })
}

fn table(
    many: Vec<DrawnValue>,
    read: fn(&str) -> Result<u64, String>,
) -> Result<QuantileTable, String> {
    let values: Result<Vec<u64>, String> =
        many.into_iter().map(|written| read(&written.text())).collect();
    QuantileTable::new(values?).ok_or_else(|| "the list is empty; write one value or more".into())
}

impl TryFrom<OneOrMany> for Rates {
    type Error = String;

    fn try_from(written: OneOrMany) -> Result<Rates, String> {
        let text = match written {
            OneOrMany::Many(many) => return table(many, rate).map(Rates::Table),
            OneOrMany::One(one) => one.text(),
        };
        match PublicRates::ALL.into_iter().find(|public| public.name() == text) {
            Some(public) => Ok(Rates::Public(public)),
            None => rate(&text).map(|rate| Rates::Table(QuantileTable::one(rate))),
        }
    }
}

impl TryFrom<OneOrMany> for Delays {
    type Error = String;

    fn try_from(written: OneOrMany) -> Result<Delays, String> {
        match written {
            OneOrMany::Many(many) => table(many, delay).map(Delays),
            OneOrMany::One(DrawnValue::Text(text)) if text == PLANETLAB => {
                Ok(Delays(planetlab_delays()))
            }
            OneOrMany::One(one) => {
                delay(&one.text()).map(|delay| Delays(QuantileTable::one(delay)))
            }
        }
    }
}

//! Numbers with units in topology files: `100mbit`, `10ms`, `250kB`.

use std::num::NonZeroU64;
use std::time::Duration;

use anabranch_netem::{Codel, DelayLaw, Loss};
use serde::Deserialize;

/// Maximum time span in a topology file: 1,000,000 s, about eleven days. Sums of time spans then
/// stay far below the range of a clock.
const LONGEST: f64 = 1e6;

/// A rate in bits per second; `None` if it is unlimited. The topology file contains a number with
/// a unit (`bit`, `kbit`, `mbit`, `gbit`: powers of 1000), or the word `unlimited`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "FileValue")]
pub struct Rate(pub Option<NonZeroU64>);

/// A time span of at most 1,000,000 s. The topology file contains a number with a unit: `ns`,
/// `us`, `ms` or `s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "FileValue")]
pub struct Span(pub Duration);

/// A size in bytes; `usize::MAX` if it is unlimited. The topology file contains a number with a
/// unit (`B`, `kB`, `MB`: powers of 1000; `KiB`, `MiB`: powers of 1024), or the word `unlimited`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "FileValue")]
pub struct Size(pub usize);

/// A distribution of delays, written in the topology file as the word `uniform` or `normal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "FileValue")]
pub struct LawRule(pub DelayLaw);

/// The text of a value in the topology file. A number or truth value is accepted too, and becomes
/// text, so that the later conversion to a value with a unit reports the error.
#[derive(Deserialize)]
#[serde(from = "RawValue")]
struct FileValue(String);

#[derive(Deserialize)]
#[serde(untagged)]
enum RawValue {
    Text(String),
    Integer(i64),
    Real(f64),
    Truth(bool),
    Other(serde::de::IgnoredAny),
}

impl From<RawValue> for FileValue {
    fn from(raw: RawValue) -> FileValue {
        FileValue(match raw {
            RawValue::Text(text) => text,
            RawValue::Integer(number) => number.to_string(),
            RawValue::Real(number) => number.to_string(),
            RawValue::Truth(truth) => truth.to_string(),
            RawValue::Other(_) => "...".to_owned(),
        })
    }
}

/// Setting for the queue of a link. The topology file contains a size or a table for CoDel. The
/// table is `{ codel = TARGET, interval, limit }`; `interval` and `limit` are optional.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "RawQueue")]
pub struct QueueRule {
    /// Maximum queue size in bytes.
    pub limit: usize,
    /// CoDel parameters; `None` if only the limit applies.
    pub codel: Option<Codel>,
}

/// Setting for the loss of packets on a link. The topology file contains one of three forms. The
/// first is the probability of a loss. The second is `{ to_bad, to_good, loss_good, loss_bad }`,
/// the probabilities of the Gilbert-Elliott model. The model has a good and a bad state: two
/// probabilities are for a change of state, and one for a loss in each state. The third is the
/// table `{ script = [..] }` with the indices of the packets to lose, counted from 0 as packets
/// enter the link.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "RawLoss")]
pub struct LossRule(pub Loss);

impl TryFrom<FileValue> for Rate {
    type Error = String;

    fn try_from(FileValue(text): FileValue) -> Result<Rate, String> {
        if text == "unlimited" {
            return Ok(Rate(None));
        }
        let units = [("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3), ("bit", 1.0)];
        let bits = quantity(&text.to_ascii_lowercase(), &units).map(|bits| bits as u64);
        let rate = bits.and_then(NonZeroU64::new);
        let problem = match bits {
            Some(0) => {
                "is a rate at which nothing passes; write `down = true` for a link that is down"
            }
            _ => "is not a rate above zero; write `100mbit`, `1.5gbit`, `unlimited`",
        };
        rate.map(|rate| Rate(Some(rate))).ok_or_else(|| format!("`{text}` {problem}"))
    }
}

impl TryFrom<FileValue> for Span {
    type Error = String;

    fn try_from(FileValue(text): FileValue) -> Result<Span, String> {
        let seconds = quantity(&text, &[("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)]);
        let span = seconds.filter(|&seconds| seconds <= LONGEST).map(Duration::from_secs_f64);
        let problem = "is not a time from 0 to 1000000s; write `10ms`, `250us`, `1.5s`";
        span.map(Span).ok_or_else(|| format!("`{text}` {problem}"))
    }
}

impl TryFrom<FileValue> for LawRule {
    type Error = String;

    fn try_from(FileValue(text): FileValue) -> Result<LawRule, String> {
        match &*text {
            "uniform" => Ok(LawRule(DelayLaw::Uniform)),
            "normal" => Ok(LawRule(DelayLaw::Normal)),
            _ => Err(format!(
                "`{text}` is not a distribution of delays; write `uniform` or `normal`"
            )),
        }
    }
}

impl TryFrom<FileValue> for Size {
    type Error = String;

    fn try_from(FileValue(text): FileValue) -> Result<Size, String> {
        if text == "unlimited" {
            return Ok(Size(usize::MAX));
        }
        let units =
            [("KiB", 1024.0), ("MiB", 1024.0 * 1024.0), ("kB", 1e3), ("MB", 1e6), ("B", 1.0)];
        let size = quantity(&text, &units).map(|bytes| Size(bytes as usize));
        size.ok_or_else(|| format!("`{text}` is not a size; write `250kB`, `64KiB`, `unlimited`"))
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawQueue {
    Bytes(String),
    Codel(RawCodel),
    Other(serde::de::IgnoredAny),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCodel {
    codel: FileValue,
    interval: Option<FileValue>,
    limit: Option<FileValue>,
}

/// Default limit of the queue of a link with CoDel, in bytes: 1,000 packets of 1,500 bytes, as in
/// Linux.
const CODEL_LIMIT: usize = 1_500_000;
const QUEUE: &str = "a queue is a size (`\"250kB\"`) or `{ codel = \"5ms\", interval = \"100ms\", \
                     limit = \"1MB\" }`";

impl TryFrom<RawQueue> for QueueRule {
    type Error = String;

    fn try_from(raw: RawQueue) -> Result<QueueRule, String> {
        let codel = match raw {
            RawQueue::Bytes(text) => {
                return Size::try_from(FileValue(text))
                    .map(|size| QueueRule { limit: size.0, codel: None });
            }
            RawQueue::Codel(codel) => codel,
            RawQueue::Other(_) => return Err(QUEUE.to_owned()),
        };
        let interval = codel.interval.map(Span::try_from).transpose()?.map(|span| span.0);
        let target = Span::try_from(codel.codel)?.0;
        let interval = interval.unwrap_or(Codel::default().interval);
        if target.is_zero() || target >= interval {
            return Err(format!(
                "codel's target, {target:?}, must be above 0 and below its interval, \
                 {interval:?}; RFC 8289 recommends 5 to 10 % of it"
            ));
        }
        let limit = codel.limit.map(Size::try_from).transpose()?;
        let codel = Some(Codel { target, interval });
        Ok(QueueRule { limit: limit.map_or(CODEL_LIMIT, |size| size.0), codel })
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawLoss {
    Probability(f64),
    Bursts(Bursts),
    Script(Script),
    Other(serde::de::IgnoredAny),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bursts {
    to_bad: f64,
    to_good: f64,
    #[serde(default)]
    loss_good: f64,
    loss_bad: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    script: Vec<u64>,
}

impl TryFrom<RawLoss> for LossRule {
    type Error = String;

    fn try_from(raw: RawLoss) -> Result<LossRule, String> {
        let rule = match raw {
            RawLoss::Probability(p) => Loss::Bernoulli(probability(p)?),
            RawLoss::Bursts(bursts) => Loss::GilbertElliott {
                to_bad: probability(bursts.to_bad)?,
                to_good: probability(bursts.to_good)?,
                loss_good: probability(bursts.loss_good)?,
                loss_bad: probability(bursts.loss_bad)?,
            },
            RawLoss::Script(Script { script }) => Loss::Script(script.into_iter().collect()),
            RawLoss::Other(_) => return Err(LOSS.to_owned()),
        };
        Ok(LossRule(rule))
    }
}

const LOSS: &str = "loss is a probability from 0 to 1, or `{ to_bad, to_good, loss_good, loss_bad \
                    }`, or `{ script = [numbers of lost packets] }`";

fn probability(p: f64) -> Result<f64, String> {
    if (0.0..=1.0).contains(&p) { Ok(p) } else { Err(format!("{p} is not a probability; {LOSS}")) }
}

/// Parses `text`, a number followed by the name of a unit, and returns the number times the unit's
/// value. `units` lists the units' names and values; the first unit whose name ends `text`
/// applies. Returns `None` if no name matches, or if the text before the name is not a finite
/// number from 0 upwards.
fn quantity(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, worth) =
        units.iter().find_map(|(unit, worth)| Some((text.strip_suffix(unit)?, worth)))?;
    let number: f64 = number.trim().parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number * worth)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> Option<Option<u64>> {
        Rate::try_from(FileValue(text.to_owned())).ok().map(|rate| rate.0.map(NonZeroU64::get))
    }

    fn span(text: &str) -> Option<Duration> {
        Span::try_from(FileValue(text.to_owned())).ok().map(|span| span.0)
    }

    fn size(text: &str) -> Option<usize> {
        Size::try_from(FileValue(text.to_owned())).ok().map(|size| size.0)
    }

    #[test]
    fn units_are_what_they_are_elsewhere() {
        assert_eq!(rate("100mbit"), Some(Some(100_000_000)));
        assert_eq!(rate("1.5Gbit"), Some(Some(1_500_000_000)));
        assert_eq!(rate("9600bit"), Some(Some(9600)));
        assert_eq!(rate("unlimited"), Some(None));
        assert_eq!(span("10ms"), Some(Duration::from_millis(10)));
        assert_eq!(span("2.5 s"), Some(Duration::from_millis(2500)));
        assert_eq!(span("250us"), Some(Duration::from_micros(250)));
        assert_eq!(size("250kB"), Some(250_000));
        assert_eq!(size("64KiB"), Some(65_536));
        assert_eq!(size("1500B"), Some(1500));
    }

    #[test]
    fn what_has_no_unit_or_no_sense_is_refused() {
        assert!(
            ["", "100", "0mbit", "-1mbit", "nanmbit", "fast"].iter().all(|t| rate(t).is_none())
        );
        assert!(
            ["", "10", "-1ms", "infs", "ms", "1e18s", "1000001s"].iter().all(|t| span(t).is_none())
        );
        assert!(["", "10", "-1kB", "10kb"].iter().all(|t| size(t).is_none()));
    }

    #[test]
    fn a_rate_of_nothing_is_told_how_a_link_is_cut() {
        for text in ["\"0bit\"", "\"0mbit\""] {
            let message = serde_json::from_str::<Rate>(text).map(drop).unwrap_err().to_string();
            assert!(message.contains("nothing passes; write `down = true`"), "{message}");
        }
    }

    #[test]
    fn what_is_no_text_is_refused_with_what_to_write() {
        let rate_error = |json: &str| {
            let [rate, span, size] = [
                serde_json::from_str::<Rate>(json).map(drop),
                serde_json::from_str::<Span>(json).map(drop),
                serde_json::from_str::<Size>(json).map(drop),
            ]
            .map(|read| read.unwrap_err().to_string());
            assert!(rate.contains("is not a rate above zero; write `100mbit`"), "{rate}");
            assert!(span.contains("is not a time from 0 to 1000000s; write `10ms`"), "{span}");
            assert!(size.contains("is not a size; write `250kB`"), "{size}");
            rate
        };
        for (json, shown) in [("0", "`0`"), ("-5", "`-5`"), ("1.5", "`1.5`"), ("true", "`true`")] {
            assert!(rate_error(json).starts_with(shown));
        }
        assert!(
            ["[\"1mbit\"]", "{}", "null"]
                .map(rate_error)
                .iter()
                .all(|error| error.starts_with("`...`"))
        );
    }

    #[test]
    fn a_queue_is_a_size_or_codel() {
        let read = |text: &str| serde_json::from_str::<QueueRule>(text);
        let ms = Duration::from_millis;
        assert_eq!(read(r#""250kB""#).unwrap(), QueueRule { limit: 250_000, codel: None });
        let codel = Some(Codel { target: ms(5), interval: ms(100) });
        let usual = QueueRule { limit: 1_500_000, codel };
        assert_eq!(read(r#"{"codel":"5ms"}"#).unwrap(), usual);
        let own = r#"{"codel":"2ms","interval":"40ms","limit":"1MB"}"#;
        let codel = Some(Codel { target: ms(2), interval: ms(40) });
        assert_eq!(read(own).unwrap(), QueueRule { limit: 1_000_000, codel });
        for (bad, message) in [
            ("7", "a queue is a size"),
            (r#"{"limit":"1MB"}"#, "a queue is a size"),
            (r#"{"codel":"5ms","intervall":"1s"}"#, "a queue is a size"),
            (r#"{"codel":"-5ms"}"#, "is not a time"),
            (r#"{"codel":5}"#, "`5` is not a time"),
            (r#"{"codel":"0ms"}"#, "must be above 0 and below its interval"),
            (r#"{"codel":"100ms"}"#, "must be above 0 and below its interval"),
            (r#"{"codel":"5ms","limit":"1"}"#, "is not a size"),
        ] {
            assert!(read(bad).unwrap_err().to_string().contains(message), "{bad}");
        }
    }

    #[test]
    fn loss_is_a_probability_a_burst_model_or_a_script() {
        let read = |text: &str| serde_json::from_str::<LossRule>(text).map(|rule| rule.0);
        assert_eq!(read("0.02").unwrap(), Loss::Bernoulli(0.02));
        assert_eq!(read("1").unwrap(), Loss::Bernoulli(1.0));
        assert_eq!(read(r#"{"script":[1,5]}"#).unwrap(), Loss::Script([1, 5].into()));
        let bursts = r#"{"to_bad":0.1,"to_good":0.5,"loss_bad":1}"#;
        assert!(matches!(read(bursts).unwrap(), Loss::GilbertElliott { .. }));
        for bad in ["1.1", "-0.1", "\"2%\"", r#"{"to_bad":2,"to_good":0.5,"loss_bad":1}"#, "{}"] {
            assert!(read(bad).unwrap_err().to_string().contains("probability"), "{bad}");
        }
    }
}

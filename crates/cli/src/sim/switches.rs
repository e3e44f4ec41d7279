//! Keys of a scenario file that correspond to the properties of designs in "Analysis of Multi-path
//! Onion Routing" (section 4). If the simulator does not support the value of a key, the error
//! gives the reason.

use std::ops::Range;
use std::time::Duration;

use anabranch_emulator::Span;
use anabranch_onion::circmgr::Selection;
use anabranch_onion::conflux::Design;
use anabranch_os::toml_keys::TomlError;
use anabranch_sim::onion::{LinkLayer, QuicCongestion};
use anabranch_sim::{Congestion, UnknownCongestion};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error;
use toml::Spanned;

/// Function that makes an error about a part of the scenario file, given as a range of bytes.
pub(super) type At<'a> = &'a dyn Fn(Range<usize>, String) -> TomlError;
/// Value of a key of the scenario file; `None` if the file lacks the key.
pub(super) type OptionalValue<'a> = Option<&'a Spanned<String>>;

/// Returns an error if `key` has another value than `known`, the only value that can be simulated.
/// A missing value is accepted. `lacks` is the reason in the error message.
pub(super) fn only(
    written: OptionalValue<'_>,
    (key, known, lacks): (&str, &str, &str),
    at: At<'_>,
) -> Result<(), TomlError> {
    match written.filter(|written| written.get_ref() != known) {
        None => Ok(()),
        Some(other) => Err(at(
            other.span(),
            format!(
                "`{}` cannot be simulated: {lacks}; write `{key} = \"{known}\"`",
                other.get_ref()
            ),
        )),
    }
}

/// Parses the key for the kind of connections between relays (`tls`, `utls` or `quic`).
pub(super) fn link(written: OptionalValue<'_>, at: At<'_>) -> Result<LinkLayer, TomlError> {
    match written.map(|written| (written, written.get_ref().as_str())) {
        None | Some((_, "tls")) => Ok(LinkLayer::Tls),
        Some((_, "utls")) => Ok(LinkLayer::Utls),
        Some((_, "quic")) => Ok(LinkLayer::Quic),
        Some((written, other)) => Err(at(
            written.span(),
            format!(
                "`{other}` cannot be simulated: the simulator has no such link; write `link = \
                 \"tls\"`, `\"utls\"` (records that are read out of order) or `\"quic\"`"
            ),
        )),
    }
}

/// Parses the congestion control of QUIC links, which only the link layer `quic` has.
pub(super) fn quic_congestion(
    written: OptionalValue<'_>,
    link: LinkLayer,
    at: At<'_>,
) -> Result<QuicCongestion, TomlError> {
    let Some(written) = written else { return Ok(QuicCongestion::default()) };
    let problem = match written.get_ref().as_str() {
        _ if link != LinkLayer::Quic => {
            "`quic-congestion` applies only to `link = \"quic\"`: remove it".to_owned()
        }
        "cubic" => return Ok(QuicCongestion::Cubic),
        "bbr" => return Ok(QuicCongestion::Bbr),
        other => format!("QUIC links have no congestion control `{other}`; write `cubic` or `bbr`"),
    };
    Err(at(written.span(), problem))
}

/// Parses the congestion control of all TCP connections.
pub(super) fn congestion(written: OptionalValue<'_>, at: At<'_>) -> Result<Congestion, TomlError> {
    let Some(written) = written else { return Ok(Congestion::default()) };
    let parsed = written.get_ref().parse();
    parsed.map_err(|unknown: UnknownCongestion| at(written.span(), unknown.to_string()))
}

/// Parses the rule for the selection of a stream's circuit.
pub(super) fn selection(written: OptionalValue<'_>, at: At<'_>) -> Result<Selection, TomlError> {
    let Some(written) = written else { return Ok(Selection::default()) };
    let read = written.get_ref().parse();
    read.map_err(|error| at(written.span(), format!("{error}")))
}

/// Returns `design` if its circuits join at the relay that `written` names (`exit` or `middle`),
/// or if the file names no relay. If `written` is `middle` and the file names no design, returns
/// [`Design::Merged`]. `is_named` is true if the file names a design.
pub(super) fn joining(
    written: OptionalValue<'_>,
    (design, is_named): (Design, bool),
    at: At<'_>,
) -> Result<Design, TomlError> {
    let Some(written) = written else { return Ok(design) };
    let name = design.name();
    let problem = match written.get_ref().as_str() {
        "exit" if !design.is_merged() => return Ok(design),
        "middle" if design.is_merged() || !is_named => return Ok(Design::Merged),
        "exit" => format!(
            "with `{name}` the circuits of a stream join at a middle relay, not at the exit; write \
             `merging = \"middle\"`, or another design"
        ),
        "middle" => format!(
            "with `{name}` the circuits of a stream join at the exit, not at a middle relay; write \
             `merging = \"exit\"`, or `multipath = \"merged\"`"
        ),
        other => format!(
            "`{other}` is not a place where circuits of a stream can join; write `exit` or \
             `middle` (relay)"
        ),
    };
    Err(at(written.span(), problem))
}

/// Parses the age at which a circuit of a stream is replaced by a new one. Returns `None` if
/// circuits are never replaced, because the value is `fixed` or missing.
pub(super) fn leg_age(
    written: OptionalValue<'_>,
    (design, legs): (Design, usize),
    at: At<'_>,
) -> Result<Option<Duration>, TomlError> {
    let Some(written) = written.filter(|written| written.get_ref() != "fixed") else {
        return Ok(None);
    };
    let text = written.get_ref().as_str();
    let age: Result<Span, Error> = Span::deserialize(text.into_deserializer());
    let problem = match age {
        Ok(Span(age)) if legs > 1 && design.is_resilient() && !age.is_zero() => {
            return Ok(Some(age));
        }
        Ok(Span(age)) if !age.is_zero() && legs == 1 => {
            "a circuit of a stream can be replaced only if the stream has several circuits; write \
             `legs = 2` or more"
                .to_owned()
        }
        Ok(Span(age)) if !age.is_zero() => format!(
            "with `{}` no circuit of a stream can be replaced, because all of them close when one \
             closes; write `multipath = \"anabranch\"` or `multipath = \"merged\"`",
            design.name()
        ),
        _ => format!(
            "`{text}` is not valid; write the age at which a circuit of a stream is replaced, such \
             as `30s`, or `fixed` to replace none"
        ),
    };
    Err(at(written.span(), problem))
}

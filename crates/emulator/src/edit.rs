//! The properties of a link, such as rate and delay: as a topology defines them, and as events
//! change them while the network runs.
//!
//! To add a property, add its line to the table in this file, the type of its value to `units.rs`,
//! and its setting to `LinkSettings` of `netem`. Topologies, events, commands, messages about
//! unknown keys and the help of `anabranch emulate` then include it.

use anabranch_netem::{LinkSettings, Loss};
use serde::Deserialize;

use super::units::{LawRule, LossRule, QueueRule, Rate, Span};

/// Name, syntax and description of a link's property, for topology files and the help.
#[derive(Clone, Copy, Debug)]
pub struct Impairment {
    /// The property's key in topology files and commands.
    pub name: &'static str,
    /// The property's key in topology files for the direction from the second end to the first;
    /// `None` if both directions always have the same value.
    pub back: Option<&'static str>,
    /// The syntax of the value, with units.
    pub form: &'static str,
    /// Description of the property in one line, for the help.
    pub about: &'static str,
}

/// Defines the properties of links: the fields of [`Edit`], their effects, and the table
/// [`IMPAIRMENTS`].
macro_rules! impairments {
    ($($name:ident $(/ $back:ident)?: $kind:ty, $form:literal, $about:literal, $set:expr;)*) => {
        /// Properties to set on a link; `None` leaves a property unchanged. Each property applies
        /// to both directions. If the field of the same name with `_back` is set, that field
        /// applies to the direction from the second end to the first instead.
        #[derive(Clone, Debug, Default, PartialEq, Deserialize)]
        #[serde(default)]
        pub struct Edit {
            $(
                #[doc = $about]
                pub $name: Option<$kind>,
                $(
                    #[doc = concat!("`", stringify!($name), "` from the second end to the first.")]
                    pub $back: Option<$kind>,
                )?
            )*
        }

        /// All properties of a link that topology files and commands can set.
        pub const IMPAIRMENTS: &[Impairment] = &[$(Impairment {
            name: stringify!($name),
            back: [$(Some(stringify!($back)),)? None][0],
            form: $form,
            about: $about,
        },)*];

        /// The keys of an [`Edit`] in a topology file, for messages about unknown keys.
        pub const EDIT_KEYS: &[&str] = &[$(stringify!($name), $(stringify!($back),)?)*];

        impl Edit {
            /// Writes all properties that are not `None` into `settings`, the settings of one
            /// direction. `back` is true for the direction from the second end to the first.
            pub fn apply(&self, settings: &mut LinkSettings, back: bool) {
                $(
                    let twin = None$(.or(self.$back.as_ref()))?;
                    if let Some(value) = twin.filter(|_| back).or(self.$name.as_ref()) {
                        let set: fn(&mut LinkSettings, &$kind) = $set;
                        set(settings, value);
                    }
                )*
            }
        }
    };
}

impairments! {
    rate / rate_back: Rate, "100mbit (bit, kbit, mbit, gbit) or unlimited",
        "Rate of the link.",
        |settings, rate| settings.rate = rate.0;
    delay / delay_back: Span, "10ms (ns, us, ms, s)",
        "Delay in one direction.",
        |settings, span| settings.delay = span.0;
    jitter / jitter_back: Span, "5ms (ns, us, ms, s)",
        "Random variation of the delay: half-width (uniform) or standard deviation (normal).",
        |settings, span| settings.jitter = span.0;
    jitter_law: LawRule, "uniform or normal",
        "Distribution of the random delay, whose width is set by jitter.",
        |settings, law| settings.law = law.0;
    loss / loss_back: LossRule, "0.02, { to_bad, to_good, loss_good, loss_bad } or { script }",
        "Packet loss: its probability, a model of loss in bursts, or a list of packets to lose.",
        |settings, rule| settings.loss = plain(&rule.0);
    queue / queue_back: QueueRule, "250kB (B, kB, MB, KiB, MiB), { codel, interval, limit } or unlimited",
        "Limit of the queue: bytes that wait to be sent or are being sent.",
        |settings, rule| (settings.queue, settings.codel) = (rule.limit, rule.codel);
    reorder: bool, "true or false",
        "If true, packets may overtake each other because of jitter.",
        |settings, reorder| settings.reorder = *reorder;
    down / down_back: bool, "true or false",
        "If true, the link is cut, so that all packets are lost.",
        |settings, down| settings.down = *down;
}

/// Replaces a loss probability of zero by [`Loss::None`], which draws no random numbers.
fn plain(rule: &Loss) -> Loss {
    if *rule == Loss::Bernoulli(0.0) { Loss::None } else { rule.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_netem::DelayLaw;
    use std::time::Duration;

    fn applied(json: &str, back: bool) -> LinkSettings {
        let mut settings = LinkSettings::with_rate(1000);
        serde_json::from_str::<Edit>(json).unwrap().apply(&mut settings, back);
        settings
    }

    #[test]
    fn a_key_holds_for_both_directions_and_its_twin_for_one() {
        let json = r#"{"delay":"10ms","delay_back":"30ms","loss":0.5}"#;
        let (forward, back) = (applied(json, false), applied(json, true));
        assert_eq!(forward.delay, Duration::from_millis(10));
        assert_eq!(back.delay, Duration::from_millis(30));
        assert_eq!((forward.loss, back.loss), (Loss::Bernoulli(0.5), Loss::Bernoulli(0.5)));
        assert_eq!(forward.rate, back.rate);
    }

    #[test]
    fn delays_are_spread_by_the_law_that_is_named() {
        assert_eq!(applied(r#"{"jitter":"5ms"}"#, true).law, DelayLaw::Uniform);
        assert_eq!(applied(r#"{"jitter_law":"normal"}"#, true).law, DelayLaw::Normal);
        let error = serde_json::from_str::<Edit>(r#"{"jitter_law":"pareto"}"#).unwrap_err();
        assert!(error.to_string().contains("write `uniform` or `normal`"), "{error}");
    }

    #[test]
    fn a_twin_alone_leaves_the_other_direction() {
        assert!(!applied(r#"{"down_back":true}"#, false).down);
        assert!(applied(r#"{"down_back":true}"#, true).down);
    }

    #[test]
    fn every_property_has_its_row_in_the_document() {
        let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/emulator.md");
        let document = std::fs::read_to_string(document).unwrap();
        let rows = document.lines().filter_map(|row| row.split_once(" | yes | "));
        let mut written: Vec<&str> = rows
            .flat_map(|(names, _)| names.trim_start_matches("| ").split(", "))
            .map(|name| name.trim_matches('`'))
            .collect();
        let mut known: Vec<&str> = IMPAIRMENTS.iter().map(|impairment| impairment.name).collect();
        written.sort_unstable();
        known.sort_unstable();
        assert_eq!(written, known);
        let without_twin = document.split_once(" have no\nsuch form").unwrap().0;
        let without_twin = without_twin.rsplit_once(". ").unwrap().1;
        for impairment in IMPAIRMENTS {
            let named = without_twin.contains(&format!("`{}`", impairment.name));
            assert_eq!(named, impairment.back.is_none(), "{}", impairment.name);
        }
    }
}

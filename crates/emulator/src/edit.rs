//! The properties of a link: as a topology defines them, and as events change them while the
//! network runs.

use anabranch_netem::{LinkSettings, Loss};
use serde::Deserialize;

use super::units::{LawRule, LossRule, QueueRule, Rate, Span};

/// Properties to set on a link; `None` leaves a property unchanged. Each property applies to both
/// directions. If its `_back` twin is set, that value applies to the direction from the second end
/// to the first instead.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Edit {
    /// Rate on the wire, in bits per second.
    pub rate: Option<Rate>,
    /// Rate in the direction from the second end to the first.
    pub rate_back: Option<Rate>,
    /// One-way delay.
    pub delay: Option<Span>,
    /// One-way delay from the second end to the first.
    pub delay_back: Option<Span>,
    /// Jitter: the half-width or standard deviation of the delay, depending on the distribution.
    pub jitter: Option<Span>,
    /// Jitter in the direction from the second end to the first.
    pub jitter_back: Option<Span>,
    /// Distribution of delays.
    pub jitter_law: Option<LawRule>,
    /// Rule of loss.
    pub loss: Option<LossRule>,
    /// Rule of loss in the direction from the second end to the first.
    pub loss_back: Option<LossRule>,
    /// Limit on the data that wait for transmission or are being transmitted.
    pub queue: Option<QueueRule>,
    /// Queue limit in the direction from the second end to the first.
    pub queue_back: Option<QueueRule>,
    /// Whether jitter may reorder packets.
    pub reorder: Option<bool>,
    /// Whether the link is down, so that packets vanish silently.
    pub down: Option<bool>,
    /// Whether the direction from the second end to the first is down.
    pub down_back: Option<bool>,
}

/// The keys of an [`Edit`] in a file, for messages about unknown keys.
pub const EDIT_KEYS: [&str; 14] = [
    "rate",
    "rate_back",
    "delay",
    "delay_back",
    "jitter",
    "jitter_back",
    "jitter_law",
    "loss",
    "loss_back",
    "queue",
    "queue_back",
    "reorder",
    "down",
    "down_back",
];

impl Edit {
    /// Writes all properties that are not `None` into `settings`, the settings of one direction.
    /// `back` means that this is the direction from the second end to the first.
    pub fn apply(&self, settings: &mut LinkSettings, back: bool) {
        let pick = Pick { back };
        pick.set(&self.rate, &self.rate_back, |rate| settings.rate = rate.0);
        pick.set(&self.delay, &self.delay_back, |span| settings.delay = span.0);
        pick.set(&self.jitter, &self.jitter_back, |span| settings.jitter = span.0);
        pick.set(&self.jitter_law, &None, |law| settings.law = law.0);
        pick.set(&self.loss, &self.loss_back, |rule| settings.loss = plain(&rule.0));
        pick.set(&self.queue, &self.queue_back, |rule| {
            (settings.queue, settings.codel) = (rule.limit, rule.codel);
        });
        pick.set(&self.reorder, &None, |reorder| settings.reorder = *reorder);
        pick.set(&self.down, &self.down_back, |down| settings.down = *down);
    }
}

/// Replaces a loss probability of zero by [`Loss::None`], which draws no random numbers.
fn plain(rule: &Loss) -> Loss {
    if *rule == Loss::Bernoulli(0.0) { Loss::None } else { rule.clone() }
}

struct Pick {
    back: bool,
}

impl Pick {
    fn set<T>(&self, both: &Option<T>, back: &Option<T>, set: impl FnOnce(&T)) {
        let own = back.as_ref().filter(|_| self.back);
        if let Some(value) = own.or(both.as_ref()) {
            set(value);
        }
    }
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
    fn every_key_is_listed_and_every_listed_key_is_one() {
        let debug = format!("{:?}", Edit::default());
        assert!(EDIT_KEYS.iter().all(|key| debug.contains(&format!("{key}: None"))));
        assert_eq!(debug.matches(": None").count(), EDIT_KEYS.len());
    }
}

//! Padding of links (padding-spec, "Connection-level padding"), and the closing of unused links
//! and circuits.
//!
//! Routers in the network between the two ends of a link keep records of flows. They begin a new
//! record after a flow was idle for some ten seconds. To reveal less in such records, a link with
//! users' circuits is never idle for that long. Each end sends a PADDING cell after a random idle
//! time, and chooses a new random time for each PADDING cell. Cells do not reset the padding
//! timer. The link only notes the time of its last cell, and the timer reads it on expiry.

use std::collections::BTreeMap;
use std::time::Duration;

use anabranch_multipath::Time;
use rand_core::{CryptoRng, Rng};

use crate::draw::below;
use crate::wire::link::Padding as PaddingRequest;

/// Minimum and maximum idle time before a PADDING cell is sent, in milliseconds. If both are 0, no
/// padding is sent.
pub type Silence = (u16, u16);

/// Minimum time after which a client's link without circuits is closed. A random time of up to
/// half of it is added (C tor's figure).
const CLIENTS_LINK: Duration = Duration::from_secs(180);

/// The `nf_…` parameters of a consensus (param-spec).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaddingParams {
    /// `nf_ito_low`, `nf_ito_high`: the idle times before a PADDING cell is sent.
    pub silence: Silence,
    /// `nf_ito_low_reduced`, `nf_ito_high_reduced`: the idle times for clients whose users want
    /// less padding.
    pub reduced: Silence,
    /// `nf_pad_before_usage`: true if padding of a link begins with the first circuits on it,
    /// false if it begins with the first user's stream.
    pub before_usage: bool,
    /// `nf_pad_relays`: true if links between relays have padding too.
    pub relays: bool,
    /// `nf_conntimeout_relays`: approximate time for which a link between relays stays open after
    /// its last circuit has closed.
    pub relays_link: Duration,
    /// `nf_conntimeout_clients`: minimum time for which an unused circuit that was built in
    /// advance stays open. A random time of up to the same length is added.
    pub spare_circuit: Duration,
}

impl PaddingParams {
    /// Reads the parameters of a consensus. Absent values get their defaults, and other values are
    /// clamped to their bounds.
    #[must_use]
    pub fn new(values: &BTreeMap<String, i32>) -> PaddingParams {
        let read = |name: &str, default: i32, least: i32, most: i32| {
            values.get(name).copied().unwrap_or(default).clamp(least, most)
        };
        let silence = |names: [&str; 2], defaults: [i32; 2]| {
            let low = read(names[0], defaults[0], 0, 60_000);
            let high = read(names[1], defaults[1].max(low), low, 60_000);
            let short = |value| u16::try_from(value).expect("values up to 60,000 fit into 16 bits");
            (short(low), short(high))
        };
        let seconds = |name, default, most| {
            let value = read(name, default, 60, most);
            Duration::from_secs(u64::try_from(value).expect("values from 60 on are not negative"))
        };
        PaddingParams {
            silence: silence(["nf_ito_low", "nf_ito_high"], [1500, 9500]),
            reduced: silence(["nf_ito_low_reduced", "nf_ito_high_reduced"], [9000, 14_000]),
            before_usage: read("nf_pad_before_usage", 1, 0, 1) == 1,
            relays: read("nf_pad_relays", 0, 0, 1) == 1,
            relays_link: seconds("nf_conntimeout_relays", 3600, 604_800),
            spare_circuit: seconds("nf_conntimeout_clients", 1800, 86_400),
        }
    }

    /// Returns a random time for which an unused circuit that was built in advance stays open.
    pub(crate) fn spare(&self, rng: &mut impl Rng) -> Duration {
        self.spare_circuit + part_of(self.spare_circuit, rng)
    }
}

impl Default for PaddingParams {
    fn default() -> PaddingParams {
        PaddingParams::new(&BTreeMap::new())
    }
}

/// Amount of padding that a client's user wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Amount {
    /// The amount that the consensus specifies, in both directions.
    #[default]
    Full,
    /// Less padding, and only from the client. This is for users who pay by the byte or run on a
    /// battery (C tor's ReducedConnectionPadding).
    Reduced,
    /// No padding.
    Off,
}

/// Kind of use of a link, in rising order. A link has the highest kind that occurred on it so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Usage {
    /// No circuits, or only one-hop circuits for directory requests.
    #[default]
    Directories,
    /// Circuits of several hops, but no streams of users.
    Circuits,
    /// Circuits with users' streams.
    Streams,
}

/// A client's or relay's rules for padding links and for closing unused links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) params: PaddingParams,
    pub(crate) amount: Amount,
}

/// The part of a link's state that determines its padding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkUse {
    /// True if one end of the link is a client.
    pub(crate) is_clients: bool,
    pub(crate) usage: Usage,
    pub(crate) requested: PaddingRequest,
}

impl Rules {
    /// Returns the idle times of a link in the state `seen`, after which padding is sent. Returns
    /// `None` if no padding is sent.
    pub(crate) fn silence(&self, seen: LinkUse) -> Option<Silence> {
        let params = &self.params;
        let enough = if params.before_usage { Usage::Circuits } else { Usage::Streams };
        let (low, high) = match self.amount {
            Amount::Full => params.silence,
            Amount::Reduced => params.reduced,
            Amount::Off => return None,
        };
        if high == 0 || seen.usage < enough || !(seen.is_clients || params.relays) {
            return None;
        }
        match seen.requested {
            PaddingRequest::Nothing => Some((low, high)),
            PaddingRequest::Stop => None,
            // A neighbour may not ask for more padding than the consensus specifies.
            PaddingRequest::Start(least, most) => Some((low.max(least), high.max(most).max(least))),
        }
    }

    /// Returns a random time for which a link stays open without circuits. `is_clients` is true if
    /// one end is a client.
    pub(crate) fn idle_timeout(&self, is_clients: bool, rng: &mut dyn CryptoRng) -> Duration {
        let whole = if is_clients {
            CLIENTS_LINK + part_of(CLIENTS_LINK / 2, rng)
        } else {
            let span = self.params.relays_link;
            span * 3 / 4 + part_of(span / 2, rng)
        };
        if self.amount == Amount::Full { whole } else { whole / 2 }
    }
}

/// State of a link's padding: its use, the times of its last cells, and the expiry of its timers.
#[derive(Debug, Default)]
pub(crate) struct IdleTimes {
    pub(crate) usage: Usage,
    /// Time at which the padding timer runs next; `None` if the timer is not set.
    pub(crate) watched: Option<Time>,
    /// Time for which the link stays open without circuits.
    pub(crate) idle_timeout: Duration,
    /// Time at which the node checks next whether the link has been without circuits for
    /// `idle_timeout`; `None` if no check is planned.
    pub(crate) idle_check: Option<Time>,
    /// Time at which the last cell was sent or received.
    moved: Time,
    /// Time at which the last cell other than padding was sent or received.
    used: Time,
    /// Start of the present idle period, if the time of its PADDING cell is already chosen;
    /// otherwise `None`.
    drawn: Option<Time>,
}

impl IdleTimes {
    /// Notes that a cell was sent or received at `now`.
    pub(crate) fn note(&mut self, now: Time, is_padding: bool) {
        self.moved = now;
        if !is_padding {
            self.used = now;
        }
    }

    /// Returns the time at which the link's padding timer runs first.
    pub(crate) fn first_look(&self, silence: Silence) -> Time {
        self.moved + millis(silence.0)
    }

    /// Returns whether a PADDING cell must be sent now, and the time at which the padding timer
    /// runs next. The random idle time is chosen only after the link has been idle for the minimum
    /// idle time. The timer of a busy link therefore runs at most once in this minimum. The
    /// resulting idle times have the same distribution as if a new random time were chosen at each
    /// cell.
    pub(crate) fn look(
        &mut self,
        now: Time,
        silence: Silence,
        rng: &mut dyn CryptoRng,
    ) -> (bool, Time) {
        let due = self.drawn.take() == Some(self.moved);
        if due {
            self.moved = now;
        }
        let least = self.first_look(silence);
        if least > now {
            return (due, least);
        }
        self.drawn = Some(self.moved);
        (due, (self.moved + draw(silence, rng)).max(now))
    }

    /// Returns the time at which the node closes the link if it then has no circuits.
    pub(crate) fn idle_deadline(&self) -> Time {
        self.used + self.idle_timeout
    }
}

/// Returns a random idle time: the larger of two uniform values (padding-spec, "Padding cell
/// timeout distribution"). The result is never 0.
fn draw((low, high): Silence, rng: &mut dyn CryptoRng) -> Duration {
    let width = u64::from(high.saturating_sub(low)).max(1);
    let longer = below(width, rng).max(below(width, rng));
    Duration::from_millis((u64::from(low) + longer).max(1))
}

fn part_of(span: Duration, rng: &mut (impl Rng + ?Sized)) -> Duration {
    let width = u64::try_from(span.as_millis()).unwrap_or(u64::MAX).max(1);
    Duration::from_millis(below(width, rng))
}

fn millis(count: u16) -> Duration {
    Duration::from_millis(u64::from(count))
}

#[cfg(test)]
mod tests {
    use anabranch_multipath::seed::stream;

    use super::*;

    const SEEN: LinkUse =
        LinkUse { is_clients: true, usage: Usage::Circuits, requested: PaddingRequest::Nothing };

    #[test]
    fn the_consensus_says_how_long_a_silence_may_be_within_bounds() {
        let pairs = [("nf_ito_low", 12_000), ("nf_ito_high_reduced", 70_000), ("nf_pad_relays", 1)];
        let values = pairs.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
        let params = PaddingParams::new(&values);
        assert_eq!((params.silence, params.reduced), ((12_000, 12_000), (9000, 60_000)));
        assert!(params.relays && params.before_usage);
        assert_eq!(PaddingParams::default().silence, (1500, 9500));
    }

    #[test]
    fn directories_and_relays_among_themselves_are_not_padded() {
        let rules = Rules::default();
        assert_eq!(rules.silence(SEEN), Some((1500, 9500)));
        assert_eq!(rules.silence(LinkUse { usage: Usage::Directories, ..SEEN }), None);
        assert_eq!(rules.silence(LinkUse { is_clients: false, ..SEEN }), None);
        let params = PaddingParams { relays: true, before_usage: false, ..rules.params };
        let late = Rules { params, ..rules };
        assert_eq!(late.silence(SEEN), None);
        let relays = LinkUse { is_clients: false, usage: Usage::Streams, ..SEEN };
        assert_eq!(late.silence(relays), Some((1500, 9500)));
    }

    #[test]
    fn a_client_may_ask_for_less_and_not_for_more() {
        let rules = Rules::default();
        let silence = |requested| rules.silence(LinkUse { requested, ..SEEN });
        assert_eq!(silence(PaddingRequest::Stop), None);
        assert_eq!(silence(PaddingRequest::Start(0, 0)), Some((1500, 9500)));
        assert_eq!(silence(PaddingRequest::Start(20_000, 30_000)), Some((20_000, 30_000)));
        assert_eq!(silence(PaddingRequest::Start(3000, 4000)), Some((3000, 9500)));
        let silent = PaddingParams { silence: (0, 0), ..rules.params };
        let rules = Rules { params: silent, ..rules };
        assert_eq!(
            rules.silence(LinkUse { requested: PaddingRequest::Start(2000, 3000), ..SEEN }),
            None
        );
        let reduced = Rules { amount: Amount::Reduced, ..Rules::default() };
        assert_eq!(reduced.silence(SEEN), Some((9000, 14_000)));
        assert_eq!(Rules { amount: Amount::Off, ..reduced }.silence(SEEN), None);
    }

    #[test]
    fn draws_are_the_larger_of_two_even_ones() {
        let mut rng = stream(1, 0, "padding");
        let draws = (0..20_000).map(|_| draw((1500, 9500), &mut rng).as_millis() as f64);
        let draws: Vec<f64> = draws.collect();
        assert!(draws.iter().all(|drawn| (1500.0..9500.0).contains(drawn)));
        // The mean of the larger of two uniform values lies at two thirds of the range.
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        assert!((mean - (1500.0 + 8000.0 * 2.0 / 3.0)).abs() < 60.0, "{mean}");
        assert_eq!(draw((0, 0), &mut rng), Duration::from_millis(1));
    }

    #[test]
    fn a_busy_link_is_looked_at_now_and_then_and_a_silent_one_padded() {
        let (mut quiet, mut rng) = (IdleTimes::default(), stream(2, 0, "padding"));
        let silence = (1500, 9500);
        let at = Time::from_millis;
        quiet.note(at(1000), false);
        assert_eq!(quiet.look(at(1500), silence, &mut rng), (false, at(2500)));
        let (due, drawn) = quiet.look(at(2500), silence, &mut rng);
        assert!(!due && drawn >= at(2500));
        quiet.note(at(2600), true);
        // A cell was sent in the meantime, so the chosen idle time does not count.
        let (due, next) = quiet.look(at(4000), silence, &mut rng);
        assert_eq!((due, next), (false, at(4100)));
        let (due, drawn) = quiet.look(at(4100), silence, &mut rng);
        assert!(!due && (at(4100)..at(2600 + 9500)).contains(&drawn));
        assert_eq!(quiet.look(drawn, silence, &mut rng), (true, drawn + millis(1500)));
        assert_eq!(quiet.used, at(1000));
    }
}

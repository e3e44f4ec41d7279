//! The designs of sets of circuits, and the differences between them.

use std::fmt;
use std::str::FromStr;

use anabranch_multipath::Every;

use super::adaptive::Adaptive;
use super::counted::CountedNumbering;
use super::dealing::LegScheduler;
use super::ends::{ConfluxEnd, Limits};
use super::explicit::ExplicitNumbering;
use super::numbering::Numbering;
use super::runs::Runs;
use crate::wire::ancestors::Ancestor;
use crate::wire::conflux::SetNonce;
use crate::wire::message::RelayCommand;

/// Number of consecutive cells on one leg (parallel circuit), in designs where each change of legs
/// costs one SWITCH cell. About 3 % of the cells are then SWITCH cells.
const RUN: Every = Every::Packets { mean: 31, random: false };

/// A design of sets of several circuits that carry the same streams (`docs/spec/ancestors.md`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Design {
    /// Proposal 329, as in C tor.
    #[default]
    Conflux,
    /// A design that is older than proposal 329, and the flow control of its circuits: fixed
    /// windows or congestion control.
    Ancestor(Ancestor, FlowControl),
    /// This project's design, in which circuits of the set may fail without loss of data
    /// (`docs/spec/resilient-legs.md`).
    Resilient,
    /// [`Design::Resilient`] with circuits that join at a middle relay. One circuit continues from
    /// there to the exit, which needs no support for sets (`docs/spec/middle-merge.md`).
    Merged,
}

/// Mechanism that limits the cells in flight on each circuit of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowControl {
    /// Fixed windows of 1,000 cells for a circuit and 500 cells for a stream, as on circuits
    /// without congestion control.
    Fixed,
    /// The congestion control of proposal 324.
    Vegas,
}

/// Fixed-size windows of streams, in designs that have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamWindows {
    /// A stream has one window for the whole set of circuits.
    One,
    /// A stream has a separate window on each leg (parallel circuit).
    EachLeg,
}

/// Error for an unknown name of a traffic-splitting design; contains that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownDesign(String);

impl Design {
    /// All traffic-splitting designs.
    pub const ALL: [Design; 7] = [
        Design::Conflux,
        Design::Resilient,
        Design::Merged,
        Design::Ancestor(Ancestor::Conflux2013, FlowControl::Fixed),
        Design::Ancestor(Ancestor::MTor, FlowControl::Fixed),
        Design::Ancestor(Ancestor::Conflux2013, FlowControl::Vegas),
        Design::Ancestor(Ancestor::MTor, FlowControl::Vegas),
    ];

    /// Returns the name of the traffic-splitting design, as configurations and messages contain
    /// it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Design::Conflux => "conflux",
            Design::Resilient => "anabranch",
            Design::Merged => "merged",
            Design::Ancestor(Ancestor::Conflux2013, FlowControl::Fixed) => "conflux-2013",
            Design::Ancestor(Ancestor::Conflux2013, FlowControl::Vegas) => "conflux-2013-vegas",
            Design::Ancestor(Ancestor::MTor, FlowControl::Fixed) => "mtor",
            Design::Ancestor(Ancestor::MTor, FlowControl::Vegas) => "mtor-vegas",
        }
    }

    /// Returns the published design older than proposal 329 that this design implements: Conflux
    /// of 2013, or mTor. Returns `None` for all other designs.
    #[must_use]
    pub const fn ancestor(self) -> Option<Ancestor> {
        match self {
            Design::Conflux | Design::Resilient | Design::Merged => None,
            Design::Ancestor(ancestor, _) => Some(ancestor),
        }
    }

    /// Returns the design that implements `ancestor`, which is older than proposal 329, on
    /// circuits with or without congestion control.
    #[must_use]
    pub const fn ancestor_over(ancestor: Ancestor, congestion_control: bool) -> Design {
        let windows = if congestion_control { FlowControl::Vegas } else { FlowControl::Fixed };
        Design::Ancestor(ancestor, windows)
    }

    /// Returns true if messages that were lost with a leg are sent again, so that the set of
    /// circuits continues without the leg.
    #[must_use]
    pub const fn is_resilient(self) -> bool {
        matches!(self, Design::Resilient | Design::Merged)
    }

    /// Returns true if the legs (parallel circuits) of this design join at a middle relay. The
    /// legs then carry whole cells of one circuit.
    #[must_use]
    pub const fn is_merged(self) -> bool {
        matches!(self, Design::Merged)
    }

    /// Returns the version of the subprotocol `Anabranch` that a relay must advertise for sets of
    /// circuits in this design; `None` for Tor's own design.
    #[must_use]
    pub const fn protocol(self) -> Option<u8> {
        match self {
            Design::Conflux => None,
            Design::Ancestor(..) => Some(1),
            Design::Resilient => Some(2),
            Design::Merged => Some(3),
        }
    }

    /// Returns the client's end of a new set of circuits.
    #[must_use]
    pub fn client_end(self, nonce: SetNonce, limits: Limits) -> ConfluxEnd {
        self.kept(ConfluxEnd::client(nonce, self.numbering(), limits))
    }

    /// Returns the exit's end of a new set of circuits.
    #[must_use]
    pub fn exit_end(self, nonce: SetNonce, limits: Limits) -> ConfluxEnd {
        self.kept(ConfluxEnd::exit(nonce, self.numbering(), limits))
    }

    fn kept(self, end: ConfluxEnd) -> ConfluxEnd {
        if self.is_resilient() { end.keeping() } else { end }
    }

    /// Returns true if circuits in sets of this design have congestion control.
    #[must_use]
    pub const fn has_congestion_control(self) -> bool {
        !matches!(self, Design::Ancestor(_, FlowControl::Fixed))
    }

    /// Returns this design's scheme for the sequence numbers of messages.
    #[must_use]
    pub fn numbering(self) -> Box<dyn Numbering> {
        match self {
            Design::Conflux => Box::new(CountedNumbering::new()),
            Design::Resilient => Box::new(Adaptive::new()),
            Design::Merged => Box::new(Runs::new()),
            Design::Ancestor(..) => Box::new(ExplicitNumbering::new()),
        }
    }

    /// Returns this design's scheduler, and the number of consecutive cells that it sends on one
    /// leg (parallel circuit). Returns `None` if the other end chooses both.
    #[must_use]
    pub fn dealing(self) -> Option<LegScheduler> {
        match self {
            Design::Conflux | Design::Resilient => None,
            // Runs are long because each change of legs costs a cell. `lowrtt` would send all
            // cells of a round trip on one leg, because only the exit's window limits it.
            Design::Merged => Some(LegScheduler { every: RUN, ..LegScheduler::of("pull") }),
            Design::Ancestor(Ancestor::Conflux2013, _) => Some(LegScheduler::of("conflux-2013")),
            Design::Ancestor(Ancestor::MTor, _) => Some(LegScheduler::of("pull")),
        }
    }

    /// Returns the kind of fixed-size windows that streams have in this traffic-splitting design.
    pub(crate) const fn stream_windows(self) -> StreamWindows {
        match self {
            Design::Ancestor(Ancestor::MTor, FlowControl::Fixed) => StreamWindows::EachLeg,
            _ => StreamWindows::One,
        }
    }

    /// Returns the maximum number of cells of one stream in flight over `legs` legs (parallel
    /// circuits), as limited by fixed windows. Returns 0 for designs with congestion control.
    pub(crate) const fn under_way(self, legs: usize) -> u64 {
        match (self.has_congestion_control(), self.stream_windows()) {
            (true, _) => 0,
            (false, StreamWindows::One) => 500,
            (false, StreamWindows::EachLeg) => 500 * legs as u64,
        }
    }

    /// Returns the three commands that link legs (parallel circuits) in this design, in the roles
    /// of LINK, LINKED and LINKED_ACK.
    #[must_use]
    pub const fn link_commands(self) -> [RelayCommand; 3] {
        match self {
            Design::Conflux => [
                RelayCommand::CONFLUX_LINK,
                RelayCommand::CONFLUX_LINKED,
                RelayCommand::CONFLUX_LINKED_ACK,
            ],
            Design::Ancestor(..) | Design::Resilient | Design::Merged => [
                RelayCommand::ANCESTOR_LINK,
                RelayCommand::ANCESTOR_LINKED,
                RelayCommand::ANCESTOR_LINKED_ACK,
            ],
        }
    }
}

impl fmt::Display for Design {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl FromStr for Design {
    type Err = UnknownDesign;

    fn from_str(text: &str) -> Result<Design, UnknownDesign> {
        let found = Design::ALL.into_iter().find(|design| design.name() == text);
        found.ok_or_else(|| UnknownDesign(text.to_owned()))
    }
}

impl fmt::Display for UnknownDesign {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Design::ALL.map(Design::name).join(", ");
        write!(out, "there is no multi-path design '{}'; choose one of {names}", self.0)
    }
}

impl std::error::Error for UnknownDesign {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_another_is_refused_with_all_of_them() {
        for design in Design::ALL {
            assert_eq!(design.to_string().parse(), Ok(design));
        }
        let error = "tor".parse::<Design>().unwrap_err().to_string();
        assert!(Design::ALL.iter().all(|design| error.contains(design.name())), "{error}");
    }

    #[test]
    fn only_mtor_without_congestion_control_has_windows_of_streams_on_each_leg() {
        let under_way = Design::ALL.map(|design| design.under_way(3));
        assert_eq!(under_way, [0, 0, 0, 500, 1_500, 0, 0]);
        let dealing = Design::ALL.map(|design| design.dealing().map(|dealing| dealing.to_string()));
        let [conflux, ours, merged, old, mtor, ..] = dealing;
        assert_eq!((conflux, ours, merged.as_deref()), (None, None, Some("pull 31p")));
        assert_eq!(old.as_deref(), Some("conflux-2013 1p"));
        assert_eq!(mtor.as_deref(), Some("pull 1p"));
    }
}

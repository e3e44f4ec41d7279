//! Wishes that could not be met, as people and machines are told of them. No destination is named:
//! logs outlive what they tell of.

use std::fmt;

use anabranch_onion::conflux::Design;
use anabranch_onion::directory::network::{NoRelay, Position};
use anabranch_proxy::Reason;

/// A wish that could not be met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The port of the destination; `None` for a question about a name or an address.
    pub port: Option<u16>,
    /// Why.
    pub why: Why,
    /// What the user can do about it.
    pub cure: Option<&'static str>,
}

/// Why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// No relay of the consensus that may be the last hop lets such streams out.
    NoExit(NoRelay, Exits),
    /// No three relays make a path: the position that nobody fits.
    NoPath(NoRelay),
    /// No circuit came to be in time; what there was instead.
    TimedOut(Lack),
    /// None of the exits that were asked answered in time.
    Unanswered,
    /// The exits that were asked do not let streams out to this address.
    Policy,
    /// It is an onion service.
    Onion,
}

/// Which relays may be the last hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exits {
    /// All exits.
    Any,
    /// Those that the user names.
    Named,
    /// Those that link sets of this design, perhaps only some that the user names.
    Linking(Design),
}

/// What a client lacked while a program waited in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// It knows no consensus.
    Consensus,
    /// The newest that it knows ended more than a day ago.
    LiveConsensus,
    /// It knows too few of the relays.
    Relays,
    /// No circuit could be built.
    Circuit,
}

impl Why {
    /// No path leads there: the position that nobody fits, and which relays may be the last hop.
    pub(super) fn no_path(none: NoRelay, exits: Exits) -> Why {
        match none.0 {
            Position::Exit(_) => Why::NoExit(none, exits),
            _ => Why::NoPath(none),
        }
    }

    /// In a word, for machines.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Why::NoExit(..) => "no_exit",
            Why::NoPath(_) => "no_path",
            Why::TimedOut(_) => "timed_out",
            Why::Unanswered => "unanswered",
            Why::Policy => "policy",
            Why::Onion => "onion",
        }
    }

    /// What the program is told in its protocol.
    pub(super) fn reason(&self) -> Reason {
        match self {
            Why::NoExit(..) => Reason::NoExit,
            Why::Policy => Reason::ExitPolicy,
            Why::NoPath(_) => Reason::NoPath,
            Why::TimedOut(_) => Reason::NoCircuit,
            Why::Unanswered => Reason::TimedOut,
            Why::Onion => Reason::NoService,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::NoExit(none, Exits::Any) => none.fmt(out),
            Why::NoExit(none, Exits::Named) => write!(out, "{none} of those in --exit"),
            Why::NoExit(none, Exits::Linking(design)) => {
                write!(out, "{none} of those that support --multipath {design}")
            }
            Why::NoPath(none) => {
                write!(
                    out,
                    "{none}: a circuit never uses two relays of one /16 network or of one family"
                )
            }
            Why::TimedOut(Lack::Consensus) => {
                out.write_str("no consensus (list of relays) arrived in time")
            }
            Why::TimedOut(Lack::LiveConsensus) => {
                out.write_str("the newest consensus expired more than a day ago")
            }
            Why::TimedOut(Lack::Relays) => {
                out.write_str("too few descriptions of relays arrived in time")
            }
            Why::TimedOut(Lack::Circuit) => out.write_str("no circuit could be built in time"),
            Why::Unanswered => out.write_str("no exit answered in time"),
            Why::Policy => out.write_str("the exits' policies refuse its address"),
            Why::Onion => out.write_str("onion services (.onion) are not supported yet"),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(out, "a stream to port {port} was refused: {}", self.why),
            None => write!(out, "a name look-up was refused: {}", self.why),
        }?;
        self.cure.map_or(Ok(()), |cure| write!(out, "; {cure}"))
    }
}

#[cfg(test)]
mod tests {
    use anabranch_onion::directory::network::Target;

    use super::*;

    #[test]
    fn a_refusal_names_port_and_reason_and_no_destination() {
        let none = NoRelay(Position::Exit(Target { port: 8000, v6: false }));
        let told = |why, cure| Refused { port: Some(8000), why, cure }.to_string();
        assert_eq!(
            told(Why::no_path(none, Exits::Any), None),
            "a stream to port 8000 was refused: no exit's policy allows port 8000"
        );
        assert!(told(Why::no_path(none, Exits::Named), None).ends_with(" of those in --exit"));
        let linking = Exits::Linking("mtor".parse().unwrap());
        assert!(told(Why::no_path(none, linking), None).ends_with("support --multipath mtor"));
        assert!(told(Why::Policy, Some("allow it by --exit")).ends_with("; allow it by --exit"));
        assert!(told(Why::Unanswered, None).ends_with(": no exit answered in time"));
        let near = Why::no_path(NoRelay(Position::Guard), Exits::Any);
        assert_eq!((near.word(), near.reason()), ("no_path", Reason::NoPath));
        assert!(told(near, None).contains("/16"));
        let question = Refused { port: None, why: Why::TimedOut(Lack::Consensus), cure: None };
        assert!(question.to_string().starts_with("a name look-up was refused"));
    }
}

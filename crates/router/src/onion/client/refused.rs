//! Refused requests of programs, described in texts for people and in machine-readable words. The
//! texts do not name destinations, because they may be logged.

use std::fmt;

use anabranch_onion::conflux::Design;
use anabranch_onion::directory::network::{NoRelay, Position};
use anabranch_proxy::Reason;

/// A program's request that the client refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRequest {
    /// Port of the destination; `None` for a name or address look-up.
    pub port: Option<u16>,
    /// Reason why the request was refused.
    pub why: RefusalReason,
    /// Remedy for the user; `None` if there is none.
    pub cure: Option<&'static str>,
}

/// Reason why a client refused a program's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// No relay that may be the last hop allows streams to this port. The fields state why there
    /// is no such relay, and which relays may be the last hop.
    NoExit(NoRelay, Exits),
    /// No three relays form a path. The field names the position for which there is no relay.
    NoPath(NoRelay),
    /// No circuit was built in time. The field is the reason.
    TimedOut(Lack),
    /// Several exits were tried, and none of them answered in time.
    Unanswered,
    /// Several exits were tried, and their exit policies refuse the destination's address.
    Policy,
    /// The destination is an onion service.
    Onion,
}

/// Relays that may be the last hop of a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exits {
    /// Any exit relay may be the last hop.
    Any,
    /// Only exits that the user has named may be the last hop.
    Named,
    /// Only exits that support this multipath design may be the last hop. If the user's settings
    /// name exits, the choice is limited to these exits.
    Linking(Design),
}

/// Resource without which a program's request timed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// A consensus: the client had none.
    Consensus,
    /// A usable consensus: the newest one expired more than a day ago.
    LiveConsensus,
    /// Relays: the client knew the descriptors of too few relays.
    Relays,
    /// A circuit: none could be built.
    Circuit,
}

impl RefusalReason {
    /// Creates the reason for a refusal from `none`, the position in a path for which there is no
    /// suitable relay. `exits` describes which relays may be the last hop.
    pub(super) fn no_path(none: NoRelay, exits: Exits) -> RefusalReason {
        match none.0 {
            Position::Exit(_) => RefusalReason::NoExit(none, exits),
            _ => RefusalReason::NoPath(none),
        }
    }

    /// Returns the machine-readable name of the reason.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            RefusalReason::NoExit(..) => "no_exit",
            RefusalReason::NoPath(_) => "no_path",
            RefusalReason::TimedOut(_) => "timed_out",
            RefusalReason::Unanswered => "unanswered",
            RefusalReason::Policy => "policy",
            RefusalReason::Onion => "onion",
        }
    }

    /// Returns the reason code, in the program's proxy protocol, for this refusal.
    pub(super) fn reason(&self) -> Reason {
        match self {
            RefusalReason::NoExit(..) => Reason::NoExit,
            RefusalReason::Policy => Reason::ExitPolicy,
            RefusalReason::NoPath(_) => Reason::NoPath,
            RefusalReason::TimedOut(_) => Reason::NoCircuit,
            RefusalReason::Unanswered => Reason::TimedOut,
            RefusalReason::Onion => Reason::NoService,
        }
    }
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RefusalReason::NoExit(none, Exits::Any) => none.fmt(out),
            RefusalReason::NoExit(none, Exits::Named) => {
                write!(out, "{none}, among the relays of --exit")
            }
            RefusalReason::NoExit(none, Exits::Linking(design)) => {
                write!(out, "{none}, among the exits that support --multipath {design}")
            }
            RefusalReason::NoPath(none) => {
                write!(
                    out,
                    "{none}: a circuit never uses two relays of one family, or of one /16 network \
                     unless the client has --share-subnets"
                )
            }
            RefusalReason::TimedOut(Lack::Consensus) => {
                out.write_str("no consensus (list of relays) arrived in time")
            }
            RefusalReason::TimedOut(Lack::LiveConsensus) => out.write_str(
                "the newest consensus (list of relays) expired more than a day ago, \
                               and no newer one arrived in time",
            ),
            RefusalReason::TimedOut(Lack::Relays) => {
                out.write_str("too few descriptions of relays arrived in time")
            }
            RefusalReason::TimedOut(Lack::Circuit) => {
                out.write_str("no circuit could be built in time")
            }
            RefusalReason::Unanswered => out.write_str("no exit answered in time"),
            RefusalReason::Policy => {
                out.write_str("no exit's policy allows the destination's address")
            }
            RefusalReason::Onion => out.write_str("onion services (.onion) are not supported yet"),
        }
    }
}

impl fmt::Display for RefusedRequest {
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
        let text_of = |why, cure| RefusedRequest { port: Some(8000), why, cure }.to_string();
        assert_eq!(
            text_of(RefusalReason::no_path(none, Exits::Any), None),
            "a stream to port 8000 was refused: no exit's policy allows port 8000"
        );
        assert!(
            text_of(RefusalReason::no_path(none, Exits::Named), None)
                .ends_with(", among the relays of --exit")
        );
        let linking = Exits::Linking("mtor".parse().unwrap());
        assert!(
            text_of(RefusalReason::no_path(none, linking), None)
                .ends_with("support --multipath mtor")
        );
        assert!(
            text_of(RefusalReason::Policy, Some("allow it by --exit"))
                .ends_with("; allow it by --exit")
        );
        assert!(text_of(RefusalReason::Unanswered, None).ends_with(": no exit answered in time"));
        let near = RefusalReason::no_path(NoRelay(Position::Guard), Exits::Any);
        assert_eq!((near.word(), near.reason()), ("no_path", Reason::NoPath));
        assert!(
            text_of(near, None).contains("one /16 network unless the client has --share-subnets")
        );
        let question = RefusedRequest {
            port: None,
            why: RefusalReason::TimedOut(Lack::Consensus),
            cure: None,
        };
        assert!(question.to_string().starts_with("a name look-up was refused"));
    }
}

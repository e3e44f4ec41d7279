//! Names that a screen (output for the user) needs to describe events: names of paths, and the
//! client and server of each session.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anabranch_comps::protocol::{Confidence, Finding};
use anabranch_comps::{CloseReason, DownReason, Event, Protocol, SessionId};
use anabranch_multipath::PathId;
use anabranch_splitter::split::ActiveSettings;

use super::advice;
use crate::text;

/// An open session: its client, its server and its protocol, as messages describe them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Session {
    pub(super) client: SocketAddr,
    /// Server that the client has chosen for this session; `None` for the server that all sessions
    /// share.
    pub(super) server: Option<SocketAddr>,
    /// Protocol of the session; `None` until it is recognised.
    pub(super) found: Option<Finding>,
    /// Protocol that was reported last; `None` if none was.
    shown: Option<Protocol>,
}

impl Session {
    fn new(client: SocketAddr, server: Option<SocketAddr>) -> Session {
        Session { client, server, found: None, shown: None }
    }

    /// Describes the session's protocol.
    pub(super) fn protocol(&self) -> String {
        match self.found {
            None => "not recognised yet".to_owned(),
            Some(Finding { protocol, confidence: Confidence::Likely })
                if protocol != Protocol::Other =>
            {
                format!("likely {}", protocol.name())
            }
            Some(found) => found.protocol.name().to_owned(),
        }
    }

    /// Stores the protocol of the session. Returns whether to report the protocol: if it differs
    /// from the last reported one. A protocol whose sessions stay on one path is reported only
    /// once it is certain.
    fn finds(&mut self, found: Finding) -> bool {
        self.found = Some(found);
        let protocol = found.protocol;
        let waits = protocol.keeps_to_one_path() && found.confidence == Confidence::Likely;
        !waits && self.shown.replace(protocol) != Some(protocol)
    }

    /// Describes client and server of the session.
    pub(super) fn ends(&self) -> String {
        ends(self.client, self.server)
    }
}

/// Names of the paths, and the open sessions.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionTable {
    paths: Vec<String>,
    /// Server that all sessions share, if there is one.
    server: Option<SocketAddr>,
    /// Whether the server that all sessions share is a far end. A far end answers even if the
    /// server that it forwards to does not.
    far_end: bool,
    pub(super) sessions: BTreeMap<u64, Session>,
}

impl SessionTable {
    pub(super) fn begin(&mut self, about: &ActiveSettings) {
        self.paths = about.egresses.iter().map(|egress| egress.name.clone()).collect();
        self.server = about.server;
        self.far_end = about.far_end;
    }

    /// Returns the number of paths that have names.
    pub(super) fn paths(&self) -> usize {
        self.paths.len()
    }

    /// Returns the server of a session: `server`, if the client has chosen one for the session, or
    /// the common server of all sessions.
    pub(super) fn server(&self, server: Option<SocketAddr>) -> Option<SocketAddr> {
        server.or(self.server)
    }

    /// Returns the name of the path `id`, or its number if it was never announced.
    pub(super) fn path(&self, id: PathId) -> String {
        self.paths.get(id.index()).cloned().unwrap_or_else(|| id.to_string())
    }

    pub(super) fn client(&self, id: SessionId) -> Option<SocketAddr> {
        self.sessions.get(&id.0).map(|session| session.client)
    }

    /// Stores new sessions and their protocols. Call this function before an event is shown.
    /// Returns whether the event should be shown.
    pub(super) fn open(&mut self, event: &Event) -> bool {
        match *event {
            Event::Opened { session, client, server } => {
                self.sessions.insert(session.0, Session::new(client, server));
                true
            }
            Event::Recognised { session, protocol, confidence } => {
                let found = Finding { protocol, confidence };
                self.sessions.get_mut(&session.0).is_none_or(|entry| entry.finds(found))
            }
            _ => true,
        }
    }

    /// Removes a closed session. Call this function after the event is shown.
    pub(super) fn close(&mut self, event: &Event) {
        if let Event::Closed { session, .. } = event {
            self.sessions.remove(&session.0);
        }
    }

    /// Describes `event` in words.
    pub(super) fn words(&self, event: &Event) -> String {
        match *event {
            Event::Opened { session, client, server } => {
                format!("session {}: opened by {}", session.0, ends(client, server))
            }
            Event::Recognised { session, protocol, .. } => {
                let kept = advice::one_path(protocol).filter(|_| !self.far_end);
                let kept = kept.unwrap_or_default();
                format!("session {}: carries {}{kept}", session.0, protocol.name())
            }
            Event::NumbersInClear { session, protocol } => {
                format!("session {}: {}", session.0, advice::numbers_in_clear(protocol))
            }
            Event::Unanswered { session, server, waited, last } => {
                let words = match self.far_end {
                    true => advice::server_unanswered(waited),
                    false => advice::unanswered(self.server(server), waited, last),
                };
                format!("session {}: {words}", session.0)
            }
            Event::Answered { session, server, waited } => {
                let words = advice::answered(self.server(server), waited);
                format!("session {}: {words}", session.0)
            }
            Event::Kept { session, path, why } => format!(
                "session {}: not split, all its datagrams use path '{}': {}",
                session.0,
                self.path(path),
                advice::kept(why)
            ),
            Event::TuplesCut { session, wanted, used } => format!(
                "session {}: QUIC uses only {used} of {wanted} combinations of path and source \
                 port, because --quic-tuples sets this limit",
                session.0
            ),
            Event::Pinned { session, path } => format!(
                "session {}: stays on path '{}' until its QUIC handshake is confirmed",
                session.0,
                self.path(path)
            ),
            Event::Released { session, rtt } => format!(
                "session {}: QUIC handshake confirmed{}; from now on the schedule chooses the \
                 paths",
                session.0,
                rtt.map_or_else(String::new, |rtt| format!(", RTT {}", text::millis(Some(rtt))))
            ),
            Event::Down { path, session, reason } => {
                let whom = session_name(session);
                format!("path '{}' down{whom}: {}", self.path(path), down(reason))
            }
            Event::Up { path, session } => {
                format!("path '{}' up again{}", self.path(path), session_name(session))
            }
            Event::Skewed { session, path, percent, followed } => format!(
                "session {}: {percent} % of the server's bytes arrive over path '{}'{} \
                 (docs/guide/any-program.md)",
                session.0,
                self.path(path),
                if followed { STAYS } else { STAYS_OR_SWALLOWED }
            ),
            Event::Closed { session, reason } => {
                format!("session {}: closed {}", session.0, closed(reason))
            }
            Event::Refused { client, datagrams } => format!(
                "dropped {datagrams} datagrams from new clients, the last from {client}: there are \
                 too many new clients at once, or too many sessions (raise --max-sessions)"
            ),
            Event::Loop { client } => format!(
                "routing loop: the splitter's own datagrams come back to it (from {client}), \
                 because a route sends these datagrams into the tunnel that is split: start the \
                 splitter with --fwmark and the tunnel's FwMark, so that its datagrams stay \
                 outside the tunnel"
            ),
        }
    }
}

/// End of a message about a server that answers on one path now, but has answered on another path
/// before.
const STAYS: &str = ": the server does not follow the client to other paths. The client's \
                     datagrams are still split. If the session is slow or stalls, the server also \
                     drops datagrams from the other paths";
/// End of a message about a server whose answers have come by only one path.
const STAYS_OR_SWALLOWED: &str = " only: the server does not follow the client to other paths, \
                                  or the other paths lose all datagrams";

fn ends(client: SocketAddr, server: Option<SocketAddr>) -> String {
    server.map_or_else(|| client.to_string(), |server| format!("{client} to {server}"))
}

fn session_name(session: Option<SessionId>) -> String {
    session.map_or_else(String::new, |session| format!(" for session {}", session.0))
}

fn down(reason: DownReason) -> &'static str {
    match reason {
        DownReason::Interface => "the path's interface or address has disappeared",
        DownReason::Unreachable => "the server cannot be reached over this path",
        DownReason::Dialling => "its connection to the far end is not open",
        DownReason::Proxy => "its proxy closed the connection or refuses to relay",
        DownReason::NoSocket => "the limit of open files is reached (ulimit -n)",
        DownReason::Silent => "packets were sent on this path for 1 s, but got no answer",
        DownReason::NeverAnswered => {
            "no answer has ever arrived on this path. Either the path loses all datagrams, or the \
             server answers only over another path. To keep using this path, add \
             --keep-silent-paths"
        }
        DownReason::DataUnanswered => {
            "the server does not answer data sent on this path, and few packets ever arrived on \
             it. Either the path loses most packets, or the server accepts data from one address \
             only"
        }
        DownReason::Unheard => "the far end does not answer on this path",
    }
}

fn closed(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::Idle => "because its client sent nothing",
        CloseReason::Evicted => "to make room for a new session",
        CloseReason::Unresolved => "because the server's name does not resolve",
        CloseReason::Unreachable => "because no path leads to the server",
        CloseReason::Shutdown => "because the splitter stops",
    }
}

/// Returns whether `event` is a warning, which is shown even with `--quiet`.
pub(super) fn is_warning(event: &Event) -> bool {
    match event {
        Event::Recognised { protocol, confidence, .. } => {
            protocol.keeps_to_one_path() && *confidence == Confidence::Certain
        }
        Event::NumbersInClear { .. }
        | Event::Unanswered { .. }
        | Event::Kept { .. }
        | Event::Down { reason: DownReason::NeverAnswered | DownReason::DataUnanswered, .. }
        | Event::Down { session: None, .. }
        | Event::Skewed { .. }
        | Event::Refused { .. }
        | Event::Loop { .. } => true,
        Event::Closed { reason, .. } => {
            matches!(
                reason,
                CloseReason::Evicted | CloseReason::Unresolved | CloseReason::Unreachable
            )
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_remembered_from_its_opening_to_its_close() {
        let mut session_table = SessionTable::default();
        let (session, client) = (SessionId(3), "127.0.0.1:9".parse().unwrap());
        session_table.open(&Event::Opened { session, client, server: None });
        let confidence = Confidence::Certain;
        session_table.open(&Event::Recognised { session, protocol: Protocol::Mosh, confidence });
        let found = Some(Finding { protocol: Protocol::Mosh, confidence });
        let shown = Some(Protocol::Mosh);
        assert_eq!(session_table.sessions[&3], Session { client, server: None, found, shown });
        let end = Event::Closed { session, reason: CloseReason::Idle };
        session_table.open(&end);
        assert_eq!(
            session_table.client(session),
            Some(client),
            "still known while its end is shown"
        );
        session_table.close(&end);
        assert!(session_table.sessions.is_empty());
    }

    #[test]
    fn a_confirmed_handshake_is_told_with_its_round_trip_if_it_was_measured() {
        let told = |rtt| {
            let event = Event::Released { session: SessionId(3), rtt };
            SessionTable::default().words(&event)
        };
        let end = "; from now on the schedule chooses the paths";
        let rtt = Some(std::time::Duration::from_micros(20_500));
        assert_eq!(told(rtt), format!("session 3: QUIC handshake confirmed, RTT 20.5 ms{end}"));
        assert_eq!(told(None), format!("session 3: QUIC handshake confirmed{end}"));
    }

    /// Returns, for each recognised protocol in `found`, whether it is shown and whether it is a
    /// warning.
    fn shown(found: &[(Protocol, Confidence)]) -> Vec<(bool, bool)> {
        let mut session_table = SessionTable::default();
        let session = SessionId(0);
        let client = "127.0.0.1:9".parse().unwrap();
        session_table.open(&Event::Opened { session, client, server: None });
        let each = found.iter().map(|&(protocol, confidence)| {
            let event = Event::Recognised { session, protocol, confidence };
            (session_table.open(&event), is_warning(&event))
        });
        each.collect()
    }

    #[test]
    fn a_protocol_has_one_line_and_one_that_is_not_split_a_warning() {
        let (likely, certain) = (Confidence::Likely, Confidence::Certain);
        let wireguard = Protocol::WireGuard;
        let twice = shown(&[(wireguard, likely), (wireguard, certain)]);
        assert_eq!(twice, [(true, false), (false, false)]);
        for protocol in [Protocol::Kcp, Protocol::Srt, Protocol::Enet, Protocol::Dtls] {
            let kept = shown(&[(protocol, likely), (protocol, certain)]);
            assert_eq!(kept, [(false, false), (true, true)]);
            let session_table = SessionTable::default();
            let event = Event::Recognised { session: SessionId(3), protocol, confidence: certain };
            let words = session_table.words(&event);
            assert!(
                words
                    .contains("stays on one path (to split it nevertheless, add --protocol any): "),
                "{words}"
            );
        }
        let fallen = shown(&[(Protocol::Stun, likely), (Protocol::Other, likely)]);
        assert_eq!(fallen, [(false, false), (true, false)]);
    }
}

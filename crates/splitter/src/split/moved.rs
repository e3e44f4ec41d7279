//! Repeated lookup of a server's name. When a server has become silent, its address may have
//! changed.
//!
//! Only WireGuard sessions change to the new address, because a WireGuard server recognises its
//! client by keys. QUIC and Mosh servers at the new address would receive packets of an unknown
//! connection. Clients of these protocols open a new session by themselves.

use std::collections::HashMap;
use std::net::SocketAddr;

use anabranch_comps::{Event, Input, Protocol, SessionId};
use anabranch_multipath::{Core as _, Time};

use super::driver::Driver;

/// The decision, after a repeated lookup of the server's name, with which address a session
/// continues.
#[derive(Debug, PartialEq, Eq)]
enum Move {
    /// The session keeps its server: the server is still one of the name's addresses, or the paths
    /// can reach none of the addresses found.
    Stays,
    /// The name has another address, and the session changes to this address.
    Goes(SocketAddr),
    /// The name has another address, but the session stays: only a new session of the client can
    /// use that address.
    Left(SocketAddr),
}

fn judge(
    present: SocketAddr,
    found: &[SocketAddr],
    suitable: Option<SocketAddr>,
    protocol: Option<Protocol>,
) -> Move {
    match suitable.filter(|_| !found.contains(&present)) {
        None => Move::Stays,
        Some(server) if protocol == Some(Protocol::WireGuard) => Move::Goes(server),
        Some(server) => Move::Left(server),
    }
}

/// Adds the session's server to an event that names no server. The address is the present address
/// of the server, which may differ from the initial one.
fn name_server(event: &mut Event, servers: &HashMap<SessionId, SocketAddr>) {
    if let Event::Unanswered { session, server, .. } | Event::Answered { session, server, .. } =
        event
    {
        *server = server.or_else(|| servers.get(session).copied());
    }
}

impl Driver<'_> {
    /// Handles an event that the protocol core reports: records the protocol of a session, or
    /// starts a lookup for a silent server. Adds the server's address to an event that lacks it.
    pub(super) fn follow_name(&mut self, now: Time, event: &mut Event) {
        match *event {
            Event::Recognised { session, protocol, .. } => {
                self.uplinks.protocols.insert(session, protocol);
            }
            Event::Unanswered { session, server: None, .. } => {
                let is_named = self.uplinks.literal.is_none() && self.tunnel.is_none();
                if is_named && self.uplinks.servers.contains_key(&session) {
                    self.uplinks.resolver.ask(now, session);
                }
            }
            _ => {}
        }
        if self.tunnel.is_none() {
            name_server(event, &self.uplinks.servers);
        }
    }

    /// Handles the result of a repeated lookup of the server's name, for one session. `found` has
    /// the addresses of the name. `suitable` is an address in `found` that the paths reach; `None`
    /// if there is none.
    pub(super) fn on_found_again(
        &mut self,
        now: Time,
        session: SessionId,
        found: &[SocketAddr],
        suitable: Option<SocketAddr>,
    ) {
        let Some(&present) = self.uplinks.servers.get(&session) else { return };
        let protocol = self.uplinks.protocols.get(&session).copied();
        let number = session.0;
        match judge(present, found, suitable, protocol) {
            Move::Stays => {}
            Move::Goes(server) => {
                self.report.screen.warn(&format!(
                    "session {number}: the server's address changed from {present} to {server}: \
                     the session continues at the new address"
                ));
                self.uplinks.servers.insert(session, server);
                self.uplinks.sockets.retire_session(now, session);
                let barred = self.uplinks.barred(server);
                self.core.handle(now, Input::Resolved { session, found: true, barred: &barred });
                self.settle(now);
            }
            Move::Left(server) => self.report.screen.warn(&format!(
                "session {number}: the server's address changed from {present} to {server}: \
                 restart the program whose traffic is split, so that it begins a new session"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_silent_server_is_named_by_the_address_in_use() {
        let [first, now] = ["192.0.2.1:9", "192.0.2.2:9"].map(|at| at.parse().unwrap());
        let servers = HashMap::from([(SessionId(7), now)]);
        let waited = Duration::from_secs(10);
        for (session, named, expected) in [
            (SessionId(7), None, Some(now)),
            (SessionId(7), Some(first), Some(first)),
            (SessionId(8), None, None),
        ] {
            let mut event = Event::Answered { session, server: named, waited };
            name_server(&mut event, &servers);
            assert_eq!(event, Event::Answered { session, server: expected, waited });
        }
    }

    #[test]
    fn only_wireguard_moves_and_only_from_an_address_that_is_gone() {
        let [old, new] = ["192.0.2.1:9", "192.0.2.2:9"].map(|at| at.parse().unwrap());
        let wireguard = Some(Protocol::WireGuard);
        assert_eq!(judge(old, &[new], Some(new), wireguard), Move::Goes(new));
        assert_eq!(judge(old, &[new, old], Some(new), wireguard), Move::Stays);
        assert_eq!(judge(old, &[], None, wireguard), Move::Stays, "the name does not resolve");
        assert_eq!(judge(old, &[new], None, wireguard), Move::Stays, "no path leads there");
        for protocol in [Some(Protocol::Quic), Some(Protocol::Mosh), Some(Protocol::Other), None] {
            assert_eq!(judge(old, &[new], Some(new), protocol), Move::Left(new));
        }
    }
}

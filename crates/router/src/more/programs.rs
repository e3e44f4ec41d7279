//! TCP connections of a MORE node: connections from local programs and, at an exit, connections to
//! destinations.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use anabranch_more::{Ending, Event, MoreNode, Refusal, StreamId};
use anabranch_multipath::Time;
use anabranch_onion::StreamKey;
use anabranch_onion::directory::policy::ExitPolicy;
use anabranch_onion::wire::message::EndReason;
use anabranch_os::poller::{Interest, Poller, Ready};
use anabranch_proxy::{Dialogue, Outcome, ProxyEnd, ProxyRequest, Reason, Service};

use crate::onion::external_socket::{CoreStream, ExternalEvent, ExternalSocket, IoEvent};
use crate::onion::is_passing;

/// Lowest poller token of a connection. Other sockets have smaller tokens.
const FIRST: u64 = 16;
/// Maximum number of open connections of one node.
const MOST: usize = 1_024;

/// A TCP connection of a MORE node, with a local program or a destination.
enum Program {
    /// A local program whose SOCKS or HTTP request is incomplete.
    Asking(TcpStream, Dialogue),
    /// A local program whose stream is being opened; it waits for the exit's answer.
    Waiting(TcpStream, Dialogue, StreamId),
    /// A connection that exchanges data with a stream: a local program's connection, or an exit's
    /// connection to a destination. The flag is true once the destination is connected.
    Flowing(ExternalSocket, StreamId, bool),
}

/// All TCP connections of a MORE node, by poller token.
pub(super) struct Programs {
    listener: Option<TcpListener>,
    policy: ExitPolicy,
    programs: BTreeMap<u64, Program>,
    tokens: BTreeMap<StreamId, u64>,
    next: u64,
}

/// Access to the protocol core's streams, for [`ExternalSocket`].
struct Streams<'n>(&'n mut MoreNode);

impl CoreStream for Streams<'_> {
    fn waiting(&self, stream: StreamKey) -> (&[u8], &[u8]) {
        self.0.peek(StreamId(stream.0))
    }

    fn accepted(&mut self, stream: StreamKey, bytes: usize) {
        self.0.consume(StreamId(stream.0), bytes);
    }

    fn give(&mut self, stream: StreamKey, bytes: &[u8]) -> usize {
        self.0.write(StreamId(stream.0), bytes)
    }
}

impl Programs {
    /// Creates an empty table of connections. Programs connect to `listener`, if there is one. If
    /// the node is an exit, it may connect to the destinations that `policy` allows.
    pub(super) fn new(listener: Option<TcpListener>, policy: ExitPolicy) -> Programs {
        let (programs, tokens) = Default::default();
        Programs { listener, policy, programs, tokens, next: FIRST }
    }

    /// Returns the address at which local programs connect; `None` if the node accepts no
    /// programs.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.listener.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Accepts waiting connections of local programs. Connections beyond the maximum [`MOST`] are
    /// closed.
    pub(super) fn accept(&mut self, poller: &Poller) {
        while let Some(Ok((socket, _))) = self.listener.as_ref().map(TcpListener::accept) {
            let is_ready = socket.set_nonblocking(true).and_then(|()| socket.set_nodelay(true));
            let token = self.token();
            if self.programs.len() < MOST
                && is_ready.and_then(|()| poller.add(&socket, token)).is_ok()
            {
                let dialogue = Dialogue::new(Service::Tor { extended: false });
                self.programs.insert(token, Program::Asking(socket, dialogue));
            }
        }
    }

    fn token(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Services the connection whose socket is `ready`.
    pub(super) fn take(&mut self, now: Time, core: &mut MoreNode, poller: &Poller, ready: Ready) {
        match self.programs.get(&ready.token) {
            Some(Program::Asking(..)) => self.listen_to(now, core, poller, ready.token),
            Some(Program::Waiting(_, _, id)) if ready.read || ready.error => {
                core.abort(*id);
                self.forget(ready.token);
            }
            Some(Program::Flowing(..)) => {
                self.service(core, poller, ready.token, IoEvent::Socket(ready));
            }
            _ => {}
        }
    }

    /// Processes an event that the protocol core reports for a stream.
    pub(super) fn event(&mut self, core: &mut MoreNode, poller: &Poller, event: Event) {
        match event {
            Event::Begun(id, target) => self.connect(core, poller, id, target),
            Event::Connected(id) => self.connected(core, poller, id),
            Event::Readable(id) => self.service_stream(core, poller, id, IoEvent::Readable),
            Event::Writable(id) => self.service_stream(core, poller, id, IoEvent::Room),
            Event::Ended(id, ending) => self.ended(id, ending),
        }
    }

    /// Reads from the program with the poller token `token` until its request is complete.
    fn listen_to(&mut self, now: Time, core: &mut MoreNode, poller: &Poller, token: u64) {
        let Some(Program::Asking(socket, dialogue)) = self.programs.get_mut(&token) else { return };
        let (mut buffer, mut replies) = ([0; 4096], Vec::new());
        let taken = match socket.read(&mut buffer) {
            Ok(0) => Err(ProxyEnd(Vec::new())),
            Ok(count) => dialogue.take(&buffer[..count], &mut replies),
            Err(error) if is_passing(&error) => return,
            Err(_) => Err(ProxyEnd(Vec::new())),
        };
        let (request, last) = match taken {
            Ok(request) => (request, None),
            Err(ProxyEnd(answer)) => (None, Some(answer)),
        };
        replies.extend(last.as_deref().unwrap_or_default());
        if socket.write_all(&replies).is_err() || last.is_some() {
            return self.forget(token);
        }
        if let Some(request) = request {
            self.open(now, core, poller, token, &request);
        }
    }

    /// Opens a stream for the `request` of the program with the poller token `token`.
    fn open(
        &mut self,
        now: Time,
        core: &mut MoreNode,
        poller: &Poller,
        token: u64,
        request: &ProxyRequest,
    ) {
        let Some(Program::Asking(mut socket, dialogue)) = self.programs.remove(&token) else {
            return;
        };
        let opened = match target(request) {
            Some(target) => core.open(now, target).map_err(|_| Reason::ResourceLimit),
            None => Err(Reason::ResolveFailed),
        };
        match opened {
            Ok(id) => {
                // Data that the program has sent already leaves with the stream's first packet.
                core.write(id, dialogue.rest());
                let quiet = Interest { read: false, write: false };
                let _ = poller.change(&socket, token, quiet);
                self.tokens.insert(id, token);
                self.programs.insert(token, Program::Waiting(socket, dialogue, id));
            }
            Err(reason) => {
                let _ = socket.write_all(&dialogue.answer(&Outcome::Failed(reason)));
            }
        }
    }

    /// Reports to a program that its stream is now connected to the destination.
    fn connected(&mut self, core: &mut MoreNode, poller: &Poller, id: StreamId) {
        let Some(&token) = self.tokens.get(&id) else { return };
        let Some(Program::Waiting(mut socket, dialogue, _)) = self.programs.remove(&token) else {
            return;
        };
        let greeted = socket.write_all(&dialogue.answer(&Outcome::Connected));
        match greeted.and_then(|()| ExternalSocket::of(StreamKey(id.0), socket)) {
            Ok(mut external) => {
                external.watch(poller, token);
                self.programs.insert(token, Program::Flowing(external, id, true));
            }
            Err(_) => {
                core.abort(id);
                self.forget(token);
            }
        }
    }

    /// As an exit, connects the stream `id` to its destination `target`, if the exit policy allows
    /// it.
    fn connect(&mut self, core: &mut MoreNode, poller: &Poller, id: StreamId, target: SocketAddr) {
        if !self.policy.allows(target.ip(), target.port()) {
            return core.refuse(id, Refusal::NotAllowed);
        }
        let token = self.token();
        let external = ExternalSocket::connect(StreamKey(id.0), target).and_then(|external| {
            poller.add_for(external.socket(), token, external.interest())?;
            Ok(external)
        });
        match external {
            Ok(external) if self.programs.len() < MOST => {
                self.programs.insert(token, Program::Flowing(external, id, false));
                self.tokens.insert(id, token);
            }
            _ => core.refuse(id, Refusal::Unreachable),
        }
    }

    fn service_stream(
        &mut self,
        core: &mut MoreNode,
        poller: &Poller,
        id: StreamId,
        what: IoEvent,
    ) {
        if let Some(&token) = self.tokens.get(&id) {
            self.service(core, poller, token, what);
        }
    }

    /// Moves bytes between a TCP connection and its stream. The connection has the poller token
    /// `token`.
    fn service(&mut self, core: &mut MoreNode, poller: &Poller, token: u64, what: IoEvent) {
        let Some(Program::Flowing(external, id, is_connected)) = self.programs.get_mut(&token)
        else {
            return;
        };
        let (id, was_connected) = (*id, *is_connected);
        let outcome = external.service(what, &mut Streams(core));
        external.watch(poller, token);
        match outcome {
            ExternalEvent::Nothing => {}
            ExternalEvent::Connected(_) => {
                *is_connected = true;
                core.connected(id);
            }
            ExternalEvent::Ended(reason) => {
                match (was_connected, reason) {
                    (false, EndReason::REFUSED) => core.refuse(id, Refusal::ConnectionRefused),
                    (false, _) => core.refuse(id, Refusal::Unreachable),
                    (true, EndReason::DONE) => core.close(id),
                    (true, _) => core.abort(id),
                }
                self.forget(token);
            }
        }
    }

    /// Closes the connection of the stream `id`, which the other end of the stream has ended.
    fn ended(&mut self, id: StreamId, ending: Ending) {
        let Some(token) = self.tokens.remove(&id) else { return };
        match self.programs.remove(&token) {
            Some(Program::Waiting(mut socket, dialogue, _)) => {
                let _ = socket.write_all(&dialogue.answer(&Outcome::Failed(reason(ending))));
            }
            Some(Program::Flowing(external, ..)) if ending != Ending::Closed => external.cut(),
            _ => {}
        }
    }

    fn forget(&mut self, token: u64) {
        match self.programs.remove(&token) {
            Some(Program::Waiting(_, _, id) | Program::Flowing(_, id, _)) => {
                self.tokens.remove(&id);
            }
            Some(Program::Asking(..)) | None => {}
        }
    }
}

/// Returns the destination address of a request. Returns `None` for a host name, because MORE has
/// no name resolution.
fn target(request: &ProxyRequest) -> Option<SocketAddr> {
    let ProxyRequest::Connect { host, port } = request else { return None };
    host.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, *port))
}

/// Returns the reason code of the program's proxy protocol for a stream that ended with `ending`
/// before it was connected.
fn reason(ending: Ending) -> Reason {
    match ending {
        Ending::Refused(Refusal::NotAllowed) => Reason::ExitPolicy,
        Ending::Refused(Refusal::ConnectionRefused) => Reason::Refused,
        Ending::Refused(Refusal::Unreachable) => Reason::NoRoute,
        Ending::TimedOut => Reason::TimedOut,
        _ => Reason::General,
    }
}

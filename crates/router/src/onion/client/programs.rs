//! Connections of local programs to a client, from a program's request to the end of its
//! connection.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, TcpStream};
use std::time::Duration;

use anabranch_multipath::{Core as _, Time};
use anabranch_onion::circmgr::{CircuitManager, Demand, Isolation, target_of_names};
use anabranch_onion::client::{CircuitKey, Client, Input};
use anabranch_onion::directory::network::Target;
use anabranch_onion::wire::message::{
    Answer, Begin, EndReason, IPV4_NOT_OKAY, IPV6_OKAY, IPV6_PREFERRED,
};
use anabranch_onion::{StreamKey, StreamOutput};
use anabranch_os::poller::{Interest, Ready};
use anabranch_proxy::{Dialogue, Family, Outcome, ProxyEnd, ProxyRequest, Reason, Service};

use super::names::{arpa, is_onion};
use super::refused::{Lack, RefusalReason, RefusedRequest};
use crate::onion::conn::is_passing;
use crate::onion::external_socket::{ExternalEvent, ExternalSocket, IoEvent};
use crate::onion::station::{CoreDriver, STREAMS};

/// Maximum number of circuits that are tried for a program's stream before its request fails.
const TRIES: u32 = 3;
/// Maximum number of connected local programs.
const MOST: usize = 4096;
/// Timeout for a program's request while the client has no consensus. This time suffices for a
/// first start over a slow Internet connection. It is shorter than the timeout for a circuit,
/// because a longer wait does not help if the authorities are unreachable.
const UNTIL_CONSENSUS: Duration = Duration::from_secs(15);

/// A local program that is connected to the client.
enum Program {
    /// The program's request is incomplete.
    Asking(TcpStream, Dialogue),
    /// The program's request waits for a circuit, or for the exit's answer.
    Waiting(Box<PendingProgram>),
    /// The program's stream is open.
    Streaming(StreamKey, ExternalSocket),
}

/// Returns the result of `request` if no circuit is needed for it; `None` otherwise. A look-up of
/// a name that is an IP address returns that address, as in C tor.
fn known(request: &ProxyRequest) -> Option<Outcome> {
    match request {
        ProxyRequest::Resolve(host) => host.parse().ok().map(Outcome::Address),
        _ => None,
    }
}

struct PendingProgram {
    since: Time,
    socket: TcpStream,
    dialogue: Dialogue,
    request: ProxyRequest,
    tries: u32,
    /// Exits that have refused the stream because of their policy. Further attempts avoid them.
    avoid: Vec<[u8; 20]>,
    /// Exits at which the stream failed for a reason other than the exit policy.
    failed_exits: Vec<[u8; 20]>,
}

impl PendingProgram {
    fn new(
        since: Time,
        socket: TcpStream,
        dialogue: Dialogue,
        request: ProxyRequest,
    ) -> PendingProgram {
        let (avoid, failed_exits) = (Vec::new(), Vec::new());
        PendingProgram { since, socket, dialogue, request, tries: 0, avoid, failed_exits }
    }
}

/// All connected local programs, by identifier. Identifiers are not reused.
#[derive(Default)]
pub(super) struct Programs {
    programs: BTreeMap<u64, Program>,
    last: u64,
    /// For each open stream: the identifier of its program, and its circuit.
    streams: BTreeMap<StreamKey, (u64, CircuitKey)>,
    service: Service,
    refused: Vec<RefusedRequest>,
    advice: Option<&'static str>,
    /// True if [`Programs::advice`] has already returned its advice against an outdated form of
    /// request.
    is_advised: bool,
}

impl Programs {
    /// Creates an empty table of connected programs. `extended` states whether to use Tor's
    /// extended SOCKS5 error codes ([`Service::Tor`]).
    pub(super) fn new(extended: bool) -> Programs {
        Programs { service: Service::Tor { extended }, ..Programs::default() }
    }

    /// Returns advice for the user if a program has used an outdated form of request, but only
    /// once per run. Otherwise returns `None`.
    pub(super) fn advice(&mut self) -> Option<&'static str> {
        let advice = self.advice.take().filter(|_| !self.is_advised);
        self.is_advised |= advice.is_some();
        advice
    }

    /// Returns the requests that were refused since the last call, for messages to the user.
    pub(super) fn refused(&mut self) -> Vec<RefusedRequest> {
        std::mem::take(&mut self.refused)
    }

    /// Returns the number of connected programs.
    pub(super) fn len(&self) -> usize {
        self.programs.len()
    }

    /// Returns the number of open streams of all programs.
    pub(super) fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Returns the number of programs that wait for a circuit or for an exit's answer.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        let waits = |program: &&Program| matches!(program, Program::Waiting(_));
        self.programs.values().filter(waits).count()
    }

    /// Accepts all waiting connections at the listening address with the index `place`.
    /// Connections beyond the maximum `MOST` are closed at once.
    ///
    /// # Errors
    /// A system call fails. The accepted connection is then closed.
    pub(super) fn accept(
        &mut self,
        station: &mut CoreDriver<Client>,
        place: usize,
    ) -> io::Result<()> {
        while let Some((socket, _)) = station.accept(place) {
            if self.programs.len() >= MOST {
                continue;
            }
            self.last += 1;
            socket.set_nonblocking(true)?;
            socket.set_nodelay(true)?;
            station.poller.add(&socket, STREAMS + self.last)?;
            let dialogue = Dialogue::new(self.service);
            self.programs.insert(self.last, Program::Asking(socket, dialogue));
        }
        Ok(())
    }

    /// Reads from and writes to the connection of the program with the identifier `number`, whose
    /// socket is ready.
    pub(super) fn take(
        &mut self,
        now: Time,
        station: &mut CoreDriver<Client>,
        circmgr: &mut CircuitManager,
        number: u64,
        ready: Ready,
    ) {
        match self.programs.get_mut(&number) {
            Some(Program::Asking(..)) => self.listen_to(now, station, circmgr, number),
            Some(Program::Waiting(_)) if ready.error || ready.read => {
                self.leave(now, station, circmgr, number);
            }
            Some(Program::Streaming(..)) => {
                self.move_bytes(now, station, circmgr, number, IoEvent::Socket(ready));
            }
            _ => {}
        }
    }

    /// Processes an output of the protocol core that concerns a stream.
    pub(super) fn service(
        &mut self,
        now: Time,
        station: &mut CoreDriver<Client>,
        circmgr: &mut CircuitManager,
        output: StreamOutput,
    ) {
        let (stream, what) = match output {
            StreamOutput::Readable { stream } => (stream, IoEvent::Readable),
            StreamOutput::Room { stream } => (stream, IoEvent::Room),
            StreamOutput::Ended { stream, reason, refused } => {
                return self.ended(now, circmgr, stream, (reason, refused));
            }
        };
        if let Some(&(number, _)) = self.streams.get(&stream) {
            self.move_bytes(now, station, circmgr, number, what);
        }
    }

    /// Opens the stream of program `number` on `circuit`. The circuit manager has chosen this
    /// circuit.
    pub(super) fn attach(
        &mut self,
        now: Time,
        station: &mut CoreDriver<Client>,
        circmgr: &mut CircuitManager,
        number: u64,
        circuit: CircuitKey,
    ) {
        let Some(Program::Waiting(waiting)) = self.programs.get(&number) else {
            return circmgr.stream_ended(circuit);
        };
        let core = &mut station.core;
        let opened = match &waiting.request {
            ProxyRequest::Connect { host, port } => {
                let flags = circmgr.begin_flags(circuit, *port);
                let flags = allowed(flags, waiting.dialogue.family());
                // The program may already have sent data after its request. The data was read
                // together with the request, so the new stream has room for it.
                let begin = Begin { host: host.clone(), port: *port, flags };
                core.begin_with(now, circuit, &begin, waiting.dialogue.rest())
            }
            ProxyRequest::Resolve(name) => core.resolve(now, circuit, name),
            ProxyRequest::Name(address) => core.resolve(now, circuit, &arpa(*address)),
        };
        match opened {
            Ok(stream) => {
                self.streams.insert(stream, (number, circuit));
            }
            Err(_) => self.again(now, circmgr, number, (circuit, false), Reason::General),
        }
    }

    /// Removes the stream of program `number` from a circuit that does not answer. The circuit
    /// manager is already looking for another circuit for this stream.
    pub(super) fn detach(&mut self, now: Time, station: &mut CoreDriver<Client>, number: u64) {
        if let Some(stream) = self.stream_of(number) {
            self.streams.remove(&stream);
            station.core.handle(now, Input::Ended { stream });
        }
    }

    fn stream_of(&self, number: u64) -> Option<StreamKey> {
        self.streams.iter().find(|(_, (owner, _))| *owner == number).map(|(stream, _)| *stream)
    }

    /// Refuses the request of program `number`, because there is no circuit for it. Records the
    /// reason `why` for messages to the user.
    pub(super) fn refuse(&mut self, number: u64, why: RefusalReason) {
        let Some(Program::Waiting(waiting)) = self.programs.get(&number) else { return };
        let port = match waiting.request {
            ProxyRequest::Connect { port, .. } => Some(port),
            ProxyRequest::Resolve(_) | ProxyRequest::Name(_) => None,
        };
        // If exits were tried and have refused the stream, their policies are the reason why no
        // exit is left.
        let by_policy = matches!(why, RefusalReason::NoExit(..)) && !waiting.avoid.is_empty();
        let why = if by_policy { RefusalReason::Policy } else { why };
        self.refused.push(RefusedRequest { port, why, cure: None });
        self.fail(number, why.reason());
    }

    /// Refuses the requests of programs that have waited for the client's first consensus for the
    /// time `UNTIL_CONSENSUS`.
    pub(super) fn refuse_waiting(&mut self, now: Time, circmgr: &mut CircuitManager) {
        let late = |program: &Program| match program {
            Program::Waiting(waiting) => now.since(waiting.since) >= UNTIL_CONSENSUS,
            Program::Asking(..) | Program::Streaming(..) => false,
        };
        let programs = self.programs.iter().filter(|(_, program)| late(program));
        let numbers: Vec<u64> = programs.map(|(&number, _)| number).collect();
        for number in numbers {
            circmgr.withdraw(number);
            self.refuse(number, RefusalReason::TimedOut(Lack::Consensus));
        }
    }

    /// Reports to a program that its stream is now connected to the destination.
    pub(super) fn connected(
        &mut self,
        now: Time,
        station: &mut CoreDriver<Client>,
        circmgr: &mut CircuitManager,
        stream: StreamKey,
    ) {
        let Some(&(number, circuit)) = self.streams.get(&stream) else { return };
        circmgr.answered(number);
        circmgr.last_answer(now, circuit);
        let Some(Program::Waiting(waiting)) = self.programs.remove(&number) else { return };
        let PendingProgram { mut socket, dialogue, .. } = *waiting;
        let greeted = socket.write_all(&dialogue.answer(&Outcome::Connected));
        match greeted.and_then(|()| ExternalSocket::of(stream, socket)) {
            Ok(mut external) => {
                external.watch(&station.poller, STREAMS + number);
                self.programs.insert(number, Program::Streaming(stream, external));
            }
            Err(_) => station.core.handle(now, Input::Ended { stream }),
        }
    }

    /// Answers a program's name or address look-up with `answers`.
    pub(super) fn resolved(
        &mut self,
        now: Time,
        circmgr: &mut CircuitManager,
        stream: StreamKey,
        answers: &[(Answer, u32)],
    ) {
        let Some((number, circuit)) = self.streams.remove(&stream) else { return };
        circmgr.answered(number);
        circmgr.last_answer(now, circuit);
        if may_resolve_elsewhere(answers) {
            return self.again(now, circmgr, number, (circuit, true), Reason::ResolveFailed);
        }
        circmgr.stream_ended(circuit);
        let Some(Program::Waiting(mut waiting)) = self.programs.remove(&number) else { return };
        let found = answers.iter().find_map(|(answer, _)| match answer {
            Answer::Address(address) => Some(Outcome::Address(*address)),
            Answer::Name(name) => Some(Outcome::Name(name.clone())),
            Answer::Later | Answer::Never => None,
        });
        let outcome = found.unwrap_or(Outcome::Failed(Reason::ResolveFailed));
        let _ = waiting.socket.write_all(&waiting.dialogue.answer(&outcome));
    }

    /// Reads from the program with the identifier `number` until its request is complete.
    fn listen_to(
        &mut self,
        now: Time,
        station: &CoreDriver<Client>,
        circmgr: &mut CircuitManager,
        number: u64,
    ) {
        let Some(Program::Asking(socket, dialogue)) = self.programs.get_mut(&number) else {
            return;
        };
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
        // Replies are short and the socket is new, so a partial write means that the program has
        // closed it.
        if socket.write_all(&replies).is_err() || last.is_some() {
            self.programs.remove(&number);
            return;
        }
        if let Some(request) = request {
            self.want(now, station, circmgr, number, request);
        }
    }

    /// Requests a circuit for the `request` of program `number` from the circuit manager.
    fn want(
        &mut self,
        now: Time,
        station: &CoreDriver<Client>,
        circmgr: &mut CircuitManager,
        number: u64,
        request: ProxyRequest,
    ) {
        let Some(Program::Asking(socket, dialogue)) = self.programs.remove(&number) else { return };
        self.advice = self.advice.or(dialogue.advice());
        if let Some(outcome) = known(&request) {
            // An error is ignored, because the program may have closed its connection meanwhile.
            let _ = (&socket).write_all(&dialogue.answer(&outcome));
            return;
        }
        // Until there is an answer, the poller watches only whether the program closes the
        // connection.
        let quiet = Interest { read: false, write: false };
        let _ = station.poller.change(&socket, STREAMS + number, quiet);
        let waiting = PendingProgram::new(now, socket, dialogue, request);
        self.programs.insert(number, Program::Waiting(Box::new(waiting)));
        self.seek(now, circmgr, number);
    }

    fn seek(&mut self, now: Time, circmgr: &mut CircuitManager, number: u64) {
        let Some(Program::Waiting(waiting)) = self.programs.get_mut(&number) else { return };
        waiting.tries += 1;
        let target = match &waiting.request {
            // Onion services cannot be reached through exits, and exits must not learn their
            // names.
            ProxyRequest::Connect { host, .. } | ProxyRequest::Resolve(host) if is_onion(host) => {
                return self.refuse(number, RefusalReason::Onion);
            }
            ProxyRequest::Connect { host, port } => {
                let only_v6 = waiting.dialogue.family() == Some(Family::OnlyV6);
                Target { port: *port, v6: only_v6 || host.parse::<Ipv6Addr>().is_ok() }
            }
            ProxyRequest::Resolve(_) | ProxyRequest::Name(_) => target_of_names(),
        };
        let isolation = Isolation(waiting.dialogue.isolation().to_vec());
        let (since, avoid, failed_exits) =
            (waiting.since, waiting.avoid.clone(), waiting.failed_exits.clone());
        circmgr.demand(now, Demand { number, target, isolation, since, avoid, failed_exits });
    }

    /// Requests another circuit for program `number`, if its stream was tried on fewer than
    /// `TRIES` circuits. If `by_exit` is true, the exit was at fault, and the new circuit avoids
    /// this exit.
    fn again(
        &mut self,
        now: Time,
        circmgr: &mut CircuitManager,
        number: u64,
        (circuit, by_exit): (CircuitKey, bool),
        reason: Reason,
    ) {
        circmgr.answered(number);
        circmgr.stream_ended(circuit);
        circmgr.retire(circuit);
        let exit = circmgr.path(circuit).filter(|_| by_exit).map(|path| path[2]);
        if let Some(Program::Waiting(waiting)) = self.programs.get_mut(&number) {
            waiting.failed_exits.extend(exit);
        }
        if self.may_try_again(number) {
            self.seek(now, circmgr, number);
        } else {
            self.fail(number, reason);
        }
    }

    /// Requests a circuit with another exit, because the policy of the exit of `circuit` refused
    /// the stream. If the stream was already tried on `TRIES` circuits, the request fails instead.
    /// If the exit has refused only `address`, the circuit stays in use for other streams.
    /// `address` is `None` if the exit has refused the whole request.
    fn elsewhere(
        &mut self,
        now: Time,
        circmgr: &mut CircuitManager,
        number: u64,
        circuit: CircuitKey,
        address: Option<IpAddr>,
    ) {
        circmgr.stream_ended(circuit);
        if address.is_none() {
            circmgr.retire(circuit);
        }
        if let Some(Program::Waiting(waiting)) = self.programs.get_mut(&number) {
            waiting.avoid.extend(circmgr.path(circuit).map(|path| path[2]));
        }
        if self.may_try_again(number) {
            self.seek(now, circmgr, number);
        } else {
            self.refuse(number, RefusalReason::Policy);
        }
    }

    fn may_try_again(&self, number: u64) -> bool {
        let program = self.programs.get(&number);
        matches!(program, Some(Program::Waiting(waiting)) if waiting.tries < TRIES)
    }

    /// Reports to the program with the identifier `number` that its request has failed for
    /// `reason`.
    fn fail(&mut self, number: u64, reason: Reason) {
        if let Some(Program::Waiting(mut waiting)) = self.programs.remove(&number) {
            let answer = waiting.dialogue.answer(&Outcome::Failed(reason));
            let _ = waiting.socket.write_all(&answer);
        }
    }

    fn move_bytes(
        &mut self,
        now: Time,
        station: &mut CoreDriver<Client>,
        circmgr: &mut CircuitManager,
        number: u64,
        what: IoEvent,
    ) {
        let Some(Program::Streaming(stream, external)) = self.programs.get_mut(&number) else {
            return;
        };
        let stream = *stream;
        if let ExternalEvent::Ended(_) = station.service(now, number, external, what) {
            self.leave_stream(now, station, circmgr, number, stream);
        }
    }

    /// Closes the stream of the program with the identifier `number`, because the program has
    /// closed its connection.
    fn leave_stream(
        &mut self,
        now: Time,
        station: &mut CoreDriver<Client>,
        circmgr: &mut CircuitManager,
        number: u64,
        stream: StreamKey,
    ) {
        self.programs.remove(&number);
        if let Some((_, circuit)) = self.streams.remove(&stream) {
            circmgr.stream_ended(circuit);
        }
        station.core.handle(now, Input::Ended { stream });
    }

    /// Removes program `number`, which has closed its connection before its request was answered.
    fn leave(
        &mut self,
        now: Time,
        station: &mut CoreDriver<Client>,
        circmgr: &mut CircuitManager,
        number: u64,
    ) {
        self.programs.remove(&number);
        circmgr.withdraw(number);
        if let Some(stream) = self.stream_of(number) {
            self.leave_stream(now, station, circmgr, number, stream);
        }
    }

    /// Handles the end of `stream`: the exit has ended it, or its circuit was closed. `refused` is
    /// the address that the exit's policy refuses, if the exit has named one.
    fn ended(
        &mut self,
        now: Time,
        circmgr: &mut CircuitManager,
        stream: StreamKey,
        (reason, refused): (EndReason, Option<IpAddr>),
    ) {
        let Some((number, circuit)) = self.streams.remove(&stream) else { return };
        circmgr.answered(number);
        match self.programs.get_mut(&number) {
            Some(Program::Waiting(_)) if reason == EndReason::EXIT_POLICY => {
                self.elsewhere(now, circmgr, number, circuit, refused);
            }
            Some(Program::Waiting(_)) if is_worth_another_try(reason) => {
                let by_exit = reason != EndReason::DESTROY;
                self.again(now, circmgr, number, (circuit, by_exit), reason_of(reason));
            }
            Some(Program::Waiting(_)) => {
                circmgr.stream_ended(circuit);
                self.fail(number, reason_of(reason));
            }
            _ => {
                circmgr.stream_ended(circuit);
                let program = self.programs.remove(&number);
                if let Some(Program::Streaming(_, external)) = program
                    && reason != EndReason::DONE
                {
                    external.cut();
                }
            }
        }
    }
}

/// Returns whether `reason` may be the exit's fault rather than the destination's, so that another
/// exit is tried. The list of such reasons is C tor's.
fn is_worth_another_try(reason: EndReason) -> bool {
    [
        EndReason::DESTROY,
        EndReason::RESOURCES,
        EndReason::HIBERNATING,
        EndReason::INTERNAL,
        EndReason::MISC,
        EndReason::PROTOCOL,
        EndReason::RESOLVE_FAILED,
        EndReason::TIMEOUT,
        EndReason::NO_ROUTE,
    ]
    .contains(&reason)
}

/// Returns the flags of the BEGIN message for a program that has requested the IP versions
/// `family`. If it has requested none, returns `flags`, the default for the exit.
fn allowed(flags: u32, family: Option<Family>) -> u32 {
    match family {
        None => flags,
        Some(Family::PreferV4) => flags & IPV6_OKAY,
        Some(Family::PreferV6) => IPV6_OKAY | IPV6_PREFERRED,
        Some(Family::OnlyV4) => 0,
        Some(Family::OnlyV6) => IPV6_OKAY | IPV4_NOT_OKAY,
    }
}

/// Returns whether `answers` mean that this exit's name servers failed, so that another exit may
/// be able to resolve the name.
fn may_resolve_elsewhere(answers: &[(Answer, u32)]) -> bool {
    !answers.is_empty() && answers.iter().all(|(answer, _)| *answer == Answer::Later)
}

fn reason_of(reason: EndReason) -> Reason {
    match reason {
        EndReason::RESOLVE_FAILED => Reason::ResolveFailed,
        EndReason::REFUSED => Reason::Refused,
        EndReason::EXIT_POLICY => Reason::ExitPolicy,
        EndReason::DESTROY => Reason::Destroyed,
        EndReason::DONE => Reason::Done,
        EndReason::TIMEOUT => Reason::TimedOut,
        EndReason::NO_ROUTE => Reason::NoRoute,
        EndReason::HIBERNATING => Reason::Hibernating,
        EndReason::INTERNAL => Reason::Internal,
        EndReason::RESOURCES => Reason::ResourceLimit,
        EndReason::RESET => Reason::Reset,
        EndReason::PROTOCOL => Reason::Protocol,
        EndReason::NOT_DIRECTORY => Reason::NotDirectory,
        _ => Reason::General,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_names_ip_versions_gets_those_and_no_others() {
        let both = IPV6_OKAY | IPV6_PREFERRED;
        assert_eq!((allowed(0, None), allowed(both, None)), (0, both));
        assert_eq!(allowed(both, Some(Family::PreferV4)), IPV6_OKAY);
        assert_eq!(allowed(0, Some(Family::PreferV4)), 0, "the exit has no IPv6");
        assert_eq!(allowed(0, Some(Family::PreferV6)), both);
        assert_eq!(allowed(both, Some(Family::OnlyV4)), 0);
        assert_eq!(allowed(0, Some(Family::OnlyV6)), IPV6_OKAY | IPV4_NOT_OKAY);
    }

    #[test]
    fn an_address_that_is_to_be_resolved_is_its_own_answer() {
        for text in ["192.0.2.7", "2001:db8::1"] {
            let answer = known(&ProxyRequest::Resolve(text.to_owned()));
            assert_eq!(answer, text.parse().ok().map(Outcome::Address), "{text}");
        }
        assert_eq!(known(&ProxyRequest::Resolve("example.org".to_owned())), None);
        let connect = ProxyRequest::Connect { host: "192.0.2.7".to_owned(), port: 80 };
        assert_eq!(known(&connect), None);
    }
}

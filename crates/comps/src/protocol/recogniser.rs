//! Recognition of one session's protocol from its first datagrams, and comparison with later ones.

use super::{Counter, HEAD, Mark, PacketNumberSearch, Protocol, Side, Verdict, dtls, quic};

/// Maximum number of a client's datagrams that are searched for the mark (fixed fields) of a known
/// protocol.
const LOOKS: u8 = 64;

/// The evidence for a session's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// Only one datagram has the fixed fields of the protocol, or no datagram has the fixed fields
    /// of any known protocol.
    Likely,
    /// A second datagram of the client, or an answer of the server, agrees with the protocol.
    Certain,
    /// The user specified the protocol.
    Configured,
}

impl Confidence {
    /// Returns the name of the confidence, in text output and in JSON output.
    pub fn name(self) -> &'static str {
        match self {
            Confidence::Likely => "likely",
            Confidence::Certain => "certain",
            Confidence::Configured => "told",
        }
    }
}

/// The result of recognition: a session's protocol, and the confidence in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The protocol.
    pub protocol: Protocol,
    /// The confidence in the protocol.
    pub confidence: Confidence,
}

/// A protocol that is not certain yet, because only one datagram has its mark (fixed fields).
/// Another datagram can confirm or contradict it.
#[derive(Debug)]
struct Candidate {
    protocol: Protocol,
    mark: Mark,
    head: [u8; HEAD],
    length: usize,
}

impl Candidate {
    fn new(protocol: Protocol, mark: Mark, datagram: &[u8]) -> Candidate {
        let length = datagram.len().min(HEAD);
        let mut head = [0; HEAD];
        head[..length].copy_from_slice(&datagram[..length]);
        Candidate { protocol, mark, head, length }
    }

    /// Compares a later `datagram` from `side` with the candidate, by the rules of the candidate's
    /// protocol ([`Family::follow`]).
    fn follow(&self, datagram: &[u8], side: Side) -> Verdict {
        (self.protocol.family().follow)(&self.head[..self.length], datagram, side)
    }
}

/// Recognises the protocol of one session, from the datagrams of client and server.
#[derive(Debug)]
pub struct Recogniser {
    candidate: Option<Candidate>,
    /// A protocol with only a weak mark ([`Mark::Weak`]) in a client's datagram, after another
    /// datagram of the client has confirmed it. The server's next datagram can still contradict
    /// it.
    unanswered: Option<Candidate>,
    finding: Option<Finding>,
    left: u8,
    numbers: PacketNumberSearch,
}

impl Default for Recogniser {
    fn default() -> Recogniser {
        Recogniser {
            candidate: None,
            unanswered: None,
            finding: None,
            left: LOOKS,
            numbers: PacketNumberSearch::default(),
        }
    }
}

impl Recogniser {
    /// Returns the protocol found so far; `None` if no protocol is known yet.
    pub fn finding(&self) -> Option<Finding> {
        self.finding
    }

    /// Inspects a client's datagram. Returns the finding (protocol and confidence) if it has
    /// changed.
    ///
    /// A datagram with a weak mark ([`Mark::Weak`]) yields no finding until another datagram
    /// agrees.
    pub fn on_client(&mut self, datagram: &[u8]) -> Option<Finding> {
        match self.hold(datagram, Side::Client) {
            Some(Verdict::Agrees) => return self.confirm(Side::Client),
            Some(Verdict::Open) => return None,
            Some(Verdict::Contradicts) => {
                self.candidate = None;
                return self.begin(datagram, true);
            }
            None => {}
        }
        match self.finding {
            Some(Finding { protocol, confidence: Confidence::Certain }) => {
                let turned = turns_out(protocol, datagram)?;
                self.find(turned, Confidence::Certain)
            }
            finding => self.begin(datagram, finding.is_some()),
        }
    }

    /// Inspects a server's datagram. Returns the finding (protocol and confidence) if it has
    /// changed.
    pub fn on_server(&mut self, datagram: &[u8]) -> Option<Finding> {
        if let Some(unanswered) = self.unanswered.take() {
            let is_other = unanswered.follow(datagram, Side::Server) == Verdict::Contradicts;
            // The client's further datagrams would suggest the same protocol again.
            self.left = if is_other { 0 } else { self.left };
            return is_other.then(|| self.find(Protocol::Other, Confidence::Likely)).flatten();
        }
        match self.hold(datagram, Side::Server)? {
            Verdict::Agrees => self.confirm(Side::Server),
            Verdict::Open => None,
            Verdict::Contradicts => {
                self.candidate = None;
                self.find(Protocol::Other, Confidence::Likely)
            }
        }
    }

    /// Returns whether further datagrams of the client can still change the finding, so that they
    /// have to be passed to [`Recogniser::on_client`].
    pub fn looks_at_clients(&self) -> bool {
        let settled = matches!(
            self.finding,
            Some(Finding { protocol, confidence: Confidence::Certain })
                if !matches!(protocol, Protocol::Dtls | Protocol::Other)
        );
        !settled
    }

    /// Returns whether a datagram of the server can still change the finding, so that it has to be
    /// passed to [`Recogniser::on_server`].
    pub fn looks_at_servers(&self) -> bool {
        self.candidate.is_some() || self.unanswered.is_some()
    }

    /// Searches a client's datagram for an unencrypted packet number. Returns true, once per
    /// session, when it is certain that the packets carry such a number.
    pub fn finds_numbers(&mut self, datagram: &[u8]) -> bool {
        let counter = self.finding.map_or(Counter::Looked, |it| it.protocol.family().counter);
        let is_certain = self.finding.is_some_and(|it| it.confidence != Confidence::Likely);
        match counter {
            Counter::Always if is_certain => self.numbers.end(),
            Counter::Looked => self.numbers.look(datagram),
            Counter::Always | Counter::Never => false,
        }
    }

    /// Returns whether the session's datagrams have to be passed to [`Recogniser::finds_numbers`],
    /// which may still find an unencrypted packet number.
    pub fn looks_for_numbers(&self) -> bool {
        let has_none = matches!(
            self.finding,
            Some(Finding { protocol, confidence: Confidence::Certain })
                if protocol.family().counter == Counter::Never
        );
        !has_none && !self.numbers.is_done()
    }

    /// Compares a datagram with the candidate (the protocol that an earlier datagram suggests).
    /// Returns `None` if there is no candidate.
    fn hold(&self, datagram: &[u8], side: Side) -> Option<Verdict> {
        self.candidate.as_ref().map(|candidate| candidate.follow(datagram, side))
    }

    /// Makes the candidate's protocol certain, because a datagram of `side` agrees with it.
    /// Returns the finding (protocol and confidence) if it has changed.
    fn confirm(&mut self, side: Side) -> Option<Finding> {
        let candidate = self.candidate.take()?;
        let protocol = candidate.protocol;
        if side == Side::Client && candidate.mark == Mark::Weak {
            self.unanswered = Some(candidate);
        }
        self.find(protocol, Confidence::Certain)
    }

    /// Searches `datagram` for the mark (fixed fields) of a protocol. Returns the finding
    /// (protocol and confidence) if it has changed. `knows` is true if the session already has a
    /// finding, or had a candidate that was contradicted. A session without a mark in its first
    /// datagrams may still be QUIC, because a restarted splitter sees only the later packets of a
    /// connection.
    fn begin(&mut self, datagram: &[u8], knows: bool) -> Option<Finding> {
        let marked = (self.left > 0).then(|| Protocol::recognise(datagram));
        self.left = self.left.saturating_sub(1);
        let turned = || Some((turns_out(Protocol::Other, datagram)?, Mark::Strong));
        let found = marked.filter(|(_, mark)| *mark != Mark::None).or_else(turned);
        let (protocol, mark) = found.unwrap_or((Protocol::Other, Mark::None));
        if mark != Mark::None {
            self.candidate = Some(Candidate::new(protocol, mark, datagram));
        }
        match mark {
            Mark::Strong | Mark::None => self.find(protocol, Confidence::Likely),
            Mark::Weak if knows => self.find(Protocol::Other, Confidence::Likely),
            Mark::Weak => None,
        }
    }

    fn find(&mut self, protocol: Protocol, confidence: Confidence) -> Option<Finding> {
        let finding = Finding { protocol, confidence };
        (self.finding.replace(finding) != Some(finding)).then_some(finding)
    }
}

/// Returns the right protocol if a client's later `datagram` shows that the session was wrongly
/// recognised as `protocol`; `None` otherwise.
fn turns_out(protocol: Protocol, datagram: &[u8]) -> Option<Protocol> {
    match protocol {
        Protocol::Other => quic::is_of_a_client(datagram).then_some(Protocol::Quic),
        Protocol::Dtls => dtls::names_its_connection(datagram).then_some(Protocol::DtlsCid),
        _ => None,
    }
}

#[cfg(test)]
mod tests;

//! Recognition of the session's protocol, and the consequences for the session.

use super::{Common, Session, splitter};
use crate::config::{Config, Guess};
use crate::protocol::{Confidence, Counter, Finding, Recogniser, wireguard};
use crate::{Batch, Event, Protocol};

/// The protocol of a session.
#[derive(Debug, Default)]
pub(super) struct Recognition {
    recogniser: Recogniser,
    /// The protocol whose rules apply to the session; `None` if it is unknown.
    protocol: Option<Protocol>,
}

impl Recognition {
    /// Returns the protocol whose rules apply to the session; `None` if it is unknown.
    pub(super) fn protocol(&self) -> Option<Protocol> {
        self.protocol
    }

    /// Returns whether the rules of `protocol` apply to the session.
    pub(super) fn is(&self, protocol: Protocol) -> bool {
        self.protocol == Some(protocol)
    }

    /// Returns whether servers of the protocol always answer on the path of the client's newest
    /// packet.
    pub(super) fn always_follows(&self) -> bool {
        self.protocol.is_some_and(Protocol::always_follows)
    }

    /// Returns whether the protocol keeps the session on one path. With a far end (our program in
    /// front of the server), no session must stay on one path, because the far end reassembles it.
    pub(super) fn keeps_to_one_path(&self, config: &Config) -> bool {
        !config.far_end && self.protocol.is_some_and(Protocol::keeps_to_one_path)
    }

    /// Returns whether a server answers `datagram`. A keepalive of WireGuard gets no answer.
    pub(super) fn is_answered(&self, datagram: &[u8]) -> bool {
        let is_keepalive =
            || wireguard::Message::of(datagram) == Some(wireguard::Message::Keepalive);
        !self.is(Protocol::WireGuard) || !is_keepalive()
    }

    /// Returns the protocol to name in the report that packet numbers are sent unencrypted.
    fn numbered(&self) -> Protocol {
        let seen = self.recogniser.finding();
        let certain = seen.filter(|finding| finding.confidence == Confidence::Certain);
        match self.protocol {
            Some(protocol) if protocol != Protocol::Other => protocol,
            _ => certain.map_or(Protocol::Other, |finding| finding.protocol),
        }
    }
}

impl Session {
    /// Determines from the client's datagrams which protocol the session carries, and whether its
    /// packets have unencrypted numbers. A protocol chosen by the user takes precedence.
    pub(super) fn recognise(&mut self, batch: &Batch<'_>, common: &mut Common) {
        if let (None, Guess::Is(protocol)) = (self.recognition.protocol, common.config.protocol) {
            self.carries(Finding { protocol, confidence: Confidence::Configured }, common);
        }
        if common.config.far_end {
            return;
        }
        let looks = common.config.protocol == Guess::Look;
        let needs_numbers = looks || common.config.protocol == Guess::Is(Protocol::Other);
        for index in 0..batch.count() {
            let numbers = needs_numbers && self.recognition.recogniser.looks_for_numbers();
            let marks = looks && self.recognition.recogniser.looks_at_clients();
            if !numbers && !marks {
                break;
            }
            let datagram = batch.datagram(index);
            let finding = self.recognition.recogniser.on_client(datagram);
            if let Some(finding) = finding.filter(|_| looks) {
                self.carries(finding, common);
            }
            if numbers
                && self.is_split(common)
                && self.recognition.recogniser.finds_numbers(datagram)
            {
                self.report_numbers(common);
            }
        }
    }

    /// Compares the server's datagrams with the protocol that the client's datagrams suggest. If
    /// the comparison settles the protocol, the session is treated as carrying that protocol.
    pub(super) fn recognise_answers(&mut self, batch: &Batch<'_>, common: &mut Common) {
        for index in 0..batch.count() {
            if !self.recognition.recogniser.looks_at_servers() {
                return;
            }
            let finding = self.recognition.recogniser.on_server(batch.datagram(index));
            let Some(finding) = finding.filter(|_| common.config.protocol == Guess::Look) else {
                continue;
            };
            self.carries(finding, common);
        }
    }

    /// Returns whether several paths may carry the session.
    fn is_split(&self, common: &Common) -> bool {
        self.paths.len() > 1 && !self.recognition.keeps_to_one_path(&common.config)
    }

    fn carries(&mut self, finding: Finding, common: &mut Common) {
        let Finding { protocol, confidence } = finding;
        let kept = self.recognition.keeps_to_one_path(&common.config);
        let before = self.recognition.protocol.replace(protocol);
        common.event(Event::Recognised { session: self.origin.id, protocol, confidence });
        if before == Some(protocol) {
            return;
        }
        let keeps = self.recognition.keeps_to_one_path(&common.config);
        if keeps != kept {
            self.splitter = splitter(self.origin.id, &common.config, keeps, None);
        }
        if before == Some(Protocol::Quic) {
            self.handshakes.forget_pins();
            self.paths.tuples.restore();
            self.refresh(common);
        }
        if protocol == Protocol::Quic {
            self.cut_to_quic(common);
        }
        let is_configured = confidence == Confidence::Configured && self.is_split(common);
        if is_configured && protocol.family().counter == Counter::Always {
            self.report_numbers(common);
        }
    }

    /// Limits the number of four-tuples if the session carries QUIC.
    fn cut_to_quic(&mut self, common: &mut Common) {
        let wanted = self.paths.tuples.in_use();
        self.cut_tuples(common);
        let used = self.paths.tuples.in_use();
        if used < wanted {
            common.event(Event::TuplesCut { session: self.origin.id, wanted, used });
        }
        self.refresh(common);
    }

    /// Reports that the packets of this session's protocol have unencrypted numbers. Each protocol
    /// is reported once.
    fn report_numbers(&mut self, common: &mut Common) {
        let protocol = self.recognition.numbered();
        if common.numbered.insert(protocol) {
            common.event(Event::NumbersInClear { session: self.origin.id, protocol });
        }
    }
}

//! Recognition of the session's protocol, and the consequences for the session.

use super::{Common, Session, splitter};
use crate::config::{Config, Guess};
use crate::protocol::{Confidence, Counter, Finding};
use crate::session::pins::Pins;
use crate::{Batch, Event, Protocol};

impl Session {
    /// Determines from the client's datagrams which protocol the session carries, and whether its
    /// packets are numbered in clear. A protocol chosen by the user takes precedence.
    pub(super) fn recognise(&mut self, batch: &Batch<'_>, common: &mut Common<'_>) {
        if let (None, Guess::Is(protocol)) = (self.protocol, common.config.protocol) {
            self.carries(Finding { protocol, confidence: Confidence::Told }, common);
        }
        if common.config.far_end {
            return;
        }
        let looks = common.config.protocol == Guess::Look;
        let tells = looks || common.config.protocol == Guess::Is(Protocol::Other);
        for index in 0..batch.count() {
            let numbers = tells && self.recogniser.looks_for_numbers();
            let marks = looks && self.recogniser.looks_at_clients();
            if !numbers && !marks {
                break;
            }
            let datagram = batch.datagram(index);
            let finding = self.recogniser.on_client(datagram);
            if let Some(finding) = finding.filter(|_| looks) {
                self.carries(finding, common);
            }
            if numbers && self.is_split(common) && self.recogniser.finds_numbers(datagram) {
                self.report_numbers(common);
            }
        }
    }

    /// Compares the server's datagrams with the protocol that the client's datagrams suggest.
    pub(super) fn recognise_answers(&mut self, batch: &Batch<'_>, common: &mut Common<'_>) {
        for index in 0..batch.count() {
            if !self.recogniser.looks_at_servers() {
                return;
            }
            let finding = self.recogniser.on_server(batch.datagram(index));
            let Some(finding) = finding.filter(|_| common.config.protocol == Guess::Look) else {
                continue;
            };
            self.carries(finding, common);
        }
    }

    /// Returns whether the session stays on one path. With a far end it need not: the far end
    /// reassembles sessions for servers that would not follow.
    pub(super) fn keeps_to_one_path(&self, config: &Config) -> bool {
        !config.far_end && self.protocol.is_some_and(Protocol::keeps_to_one_path)
    }

    /// Returns whether several paths may carry the session.
    fn is_split(&self, common: &Common<'_>) -> bool {
        self.health.len() > 1 && !self.keeps_to_one_path(common.config)
    }

    fn carries(&mut self, finding: Finding, common: &mut Common<'_>) {
        let Finding { protocol, confidence } = finding;
        let kept = self.keeps_to_one_path(common.config);
        let before = self.protocol.replace(protocol);
        common.event(Event::Recognised { session: self.id, protocol, confidence });
        if before == Some(protocol) {
            return;
        }
        let keeps = self.keeps_to_one_path(common.config);
        if keeps != kept {
            self.splitter = splitter(self.id, common.config, keeps, None);
        }
        if before == Some(Protocol::Quic) {
            (self.pins, self.pinned_to) = (Pins::default(), None);
            self.tuples.restore();
            self.refresh(common);
        }
        if protocol == Protocol::Quic {
            self.cut_to_quic(common);
        }
        let is_told = confidence == Confidence::Told && self.is_split(common);
        if is_told && protocol.family().counter == Counter::Always {
            self.report_numbers(common);
        }
    }

    /// Limits the number of four-tuples if the session carries QUIC.
    fn cut_to_quic(&mut self, common: &mut Common<'_>) {
        let wanted = self.tuples.in_use();
        self.cut_tuples(common);
        let used = self.tuples.in_use();
        if used < wanted {
            common.event(Event::TuplesCut { session: self.id, wanted, used });
        }
        self.refresh(common);
    }

    /// Reports that the packets of this session's protocol are numbered in clear. Each protocol is
    /// reported once.
    fn report_numbers(&mut self, common: &mut Common<'_>) {
        let seen = self.recogniser.finding();
        let certain = seen.filter(|finding| finding.confidence == Confidence::Certain);
        let protocol = match self.protocol {
            Some(protocol) if protocol != Protocol::Other => protocol,
            _ => certain.map_or(Protocol::Other, |finding| finding.protocol),
        };
        if common.numbered.insert(protocol) {
            common.event(Event::NumbersInClear { session: self.id, protocol });
        }
    }
}

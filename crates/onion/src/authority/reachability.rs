//! Reachability tests of relays: a state machine without I/O that opens links to relays' OR ports,
//! verifies the relays' identities, and closes the links.
//!
//! [`Reachability`] takes [`Probe`]s, each with a relay's identities and one address, and returns
//! the results. A relay counts as answering if the whole handshake of the link succeeds. In this
//! handshake, the CERTS cell proves both identities and binds them to the TLS certificate
//! (tor-spec, "Negotiating and initializing channels"). Half of the links are reserved for relays
//! that were running at the last probe, because a probe of a non-existent relay takes long to time
//! out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use anabranch_multipath::{Core, Time};
use rand_core::CryptoRng;

use super::probe_queue::Room;
use crate::StreamKey;
use crate::channel::{CellOutcome, Channel, Role, Start};
use crate::channels::{LinkId, is};
use crate::io::{LinkCore, LinkInput, LinkOutput};
use crate::wire::cell::Cells;
use crate::wire::extend::Target;

/// Timeout for the handshake of a probe: a third of the timeout of links that carry circuits.
const PATIENCE: Duration = Duration::from_secs(20);

/// A relay to probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The relay, and the address at which to probe it.
    pub target: Target,
    /// True if the relay answered the last probe.
    pub runs: bool,
}

/// An action for the driver (I/O code).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// An action on a link. The driver (I/O code) must limit the time that connection attempts
    /// take.
    Link(LinkOutput),
    /// A probe has finished.
    Probed {
        /// The relay, and the address at which it was probed.
        target: Target,
        /// True if the relay answered the probe and proved both its identities.
        answers: bool,
    },
}

/// Reachability tests of relays, with a limit on concurrent links.
pub struct Reachability {
    rng: Box<dyn CryptoRng + Send>,
    /// Maximum number of concurrent links.
    most: usize,
    waiting: VecDeque<Probe>,
    /// Probes whose links are being opened.
    dialled: Vec<Probe>,
    links: BTreeMap<LinkId, Attempt>,
    /// Targets of probes whose results are not reported yet.
    under_way: BTreeSet<Target>,
    outputs: VecDeque<Output>,
}

struct Attempt {
    probe: Probe,
    channel: Channel,
    until: Time,
    inbox: Vec<u8>,
    /// True if the result was already reported, and only the link is still open.
    over: bool,
}

impl Reachability {
    /// Creates a state machine without I/O that probes at most `most` relays at once. `rng` is its
    /// only source of randomness.
    #[must_use]
    pub fn new(most: usize, rng: Box<dyn CryptoRng + Send>) -> Reachability {
        let (waiting, dialled, outputs) = (VecDeque::new(), Vec::new(), VecDeque::new());
        let (links, under_way) = (BTreeMap::new(), BTreeSet::new());
        Reachability { rng, most, waiting, dialled, links, under_way, outputs }
    }

    /// Returns the number of additional probes that may start now.
    #[must_use]
    pub fn room(&self) -> Room {
        let links = self.links.values().map(|attempt| &attempt.probe);
        let all = self.waiting.iter().chain(&self.dialled).chain(links);
        let (all, others) =
            all.fold((0, 0), |(all, others), probe| (all + 1, others + usize::from(!probe.runs)));
        let running = self.most.saturating_sub(all);
        Room { running, others: self.most.div_ceil(2).saturating_sub(others).min(running) }
    }

    /// Closes links whose handshakes have timed out.
    fn expire(&mut self, now: Time) {
        let late = |attempt: &Attempt| !attempt.over && attempt.until <= now;
        let late: Vec<LinkId> =
            self.links.iter().filter(|(_, one)| late(one)).map(|(link, _)| *link).collect();
        late.into_iter().for_each(|link| self.finish(link, false));
    }

    fn dial(&mut self) {
        while self.dialled.len() + self.links.len() < self.most {
            let Some(probe) = self.waiting.pop_front() else { return };
            let target = probe.target.clone();
            self.dialled.push(probe);
            self.outputs.push_back(Output::Link(LinkOutput::Dial { target }));
        }
    }

    fn open(&mut self, link: LinkId, target: Option<Target>, start: Start) {
        let probe = target.and_then(|target| self.take_dialled(&target));
        let Some(probe) = probe else {
            return self.outputs.push_back(Output::Link(LinkOutput::Close { link }));
        };
        let (until, channel) = (start.now + PATIENCE, Channel::new(Role::Client, start));
        let attempt = Attempt { probe, channel, until, inbox: Vec::new(), over: false };
        self.links.insert(link, attempt);
        self.outputs.push_back(Output::Link(LinkOutput::Transmit { link }));
    }

    fn take_dialled(&mut self, target: &Target) -> Option<Probe> {
        let place = self.dialled.iter().position(|one| one.target == *target)?;
        Some(self.dialled.swap_remove(place))
    }

    fn report(&mut self, target: Target, answers: bool) {
        self.under_way.remove(&target);
        self.outputs.push_back(Output::Probed { target, answers });
    }

    fn receive(&mut self, link: LinkId, bytes: &[u8]) {
        let Some(attempt) = self.links.get_mut(&link).filter(|one| !one.over) else { return };
        attempt.inbox.extend_from_slice(bytes);
        let verdict = attempt.work(&mut *self.rng);
        self.outputs.push_back(Output::Link(LinkOutput::Transmit { link }));
        if let Some(answers) = verdict {
            self.finish(link, answers);
        }
    }

    /// Reports the result of a probe and closes its link after the last bytes are sent.
    fn finish(&mut self, link: LinkId, answers: bool) {
        let Some(attempt) = self.links.get_mut(&link) else { return };
        attempt.over = true;
        let target = attempt.probe.target.clone();
        self.report(target, answers);
        self.outputs.push_back(Output::Link(LinkOutput::Close { link }));
    }

    fn closed(&mut self, link: LinkId) {
        if let Some(Attempt { probe, over: false, .. }) = self.links.remove(&link) {
            self.report(probe.target, false);
        }
        self.dial();
    }

    fn unreachable(&mut self, target: Target) {
        if self.take_dialled(&target).is_some() {
            self.report(target, false);
        }
        self.dial();
    }
}

impl Attempt {
    /// Processes the complete cells that were received. Returns whether the relay has the target's
    /// identities, or `None` while this is unknown.
    fn work(&mut self, rng: &mut dyn CryptoRng) -> Option<bool> {
        let Attempt { probe: Probe { target, .. }, channel, inbox, .. } = self;
        let mut cells = Cells::new(inbox, channel.width(), channel.longest());
        let verdict = loop {
            let Ok(cell) = cells.next_cell() else { break Some(false) };
            let Some(cell) = cell else { break None };
            match channel.take(rng, &cell) {
                Ok(CellOutcome::Opened) => {
                    break Some(channel.identity().is_some_and(|who| is(&who, target)));
                }
                Ok(CellOutcome::Own) => cells.set_width(channel.width()),
                Ok(
                    CellOutcome::Circuit
                    | CellOutcome::Export(_)
                    | CellOutcome::Offered(..)
                    | CellOutcome::Pairing,
                )
                | Err(_) => break Some(false),
            }
        };
        let taken = cells.taken();
        inbox.drain(..taken);
        verdict
    }
}

impl Core for Reachability {
    type In<'a> = Probe;
    type Out = Output;

    /// Starts a probe at the target's address, or queues it if there are `most` links already.
    /// Does nothing if a probe of the same target is in progress.
    fn handle(&mut self, _: Time, probe: Probe) {
        if self.under_way.insert(probe.target.clone()) {
            self.waiting.push_back(probe);
            self.dial();
        }
    }

    fn poll(&mut self, now: Time) -> Option<Output> {
        self.expire(now);
        self.outputs.pop_front()
    }

    fn next_timeout(&self) -> Option<Time> {
        let open = self.links.values().filter(|one| !one.over);
        open.map(|one| one.until).min()
    }
}

impl LinkCore for Reachability {
    fn handle_link(&mut self, _: Time, input: LinkInput<'_>) {
        match input {
            LinkInput::Opened { link, target, start } => self.open(link, target, start),
            LinkInput::Bytes { link, bytes } => self.receive(link, bytes),
            LinkInput::Closed { link }
            | LinkInput::Broken { link, .. }
            | LinkInput::Lost { link } => self.closed(link),
            LinkInput::Unreachable { target } => self.unreachable(target),
            // A probe acts as a client: it does not authenticate itself, and requests no
            // `LinkView`. It has no sibling shards.
            LinkInput::Exported { .. }
            | LinkInput::Seen { .. }
            | LinkInput::Sibling { .. }
            | LinkInput::Elsewhere { .. }
            | LinkInput::QuicFailed { .. }
            | LinkInput::Lossy { .. }
            | LinkInput::RecordsFixed { .. } => {}
        }
    }

    fn transmit(&mut self, _: Time, link: LinkId, out: &mut Vec<u8>, _: usize) -> bool {
        if let Some(attempt) = self.links.get_mut(&link) {
            out.append(&mut attempt.channel.outbox);
        }
        false
    }

    // Links of probes carry no circuits, so there are no streams.
    fn write(&mut self, _: Time, _: StreamKey, bytes: &[u8]) -> usize {
        bytes.len()
    }

    fn read(&self, _: StreamKey) -> (&[u8], &[u8]) {
        (&[], &[])
    }

    fn consume(&mut self, _: Time, _: StreamKey, _: usize) {}
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;

    use anabranch_multipath::conformance;
    use anabranch_multipath::seed::stream;

    use super::*;
    use crate::test_keys::relay_keys;
    use crate::wire::keys::{RelayKeys, private_key};

    const UNIX: u64 = 1_800_000_000;
    const LINK: LinkId = LinkId::new(0, 7);

    fn keys(seed: u64) -> &'static RelayKeys {
        relay_keys(seed, "keys")
    }

    fn target(keys: &RelayKeys) -> Target {
        let addresses = vec!["192.0.2.1:9001".parse().unwrap()];
        Target { addresses, rsa: keys.rsa_identity(), ed25519: Some(keys.ed_identity()) }
    }

    fn probe(target: &Target) -> Probe {
        Probe { target: target.clone(), runs: true }
    }

    fn reachability(most: usize) -> Reachability {
        Reachability::new(most, Box::new(stream(1, 0, "prober")))
    }

    fn start(certificate: Option<[u8; 32]>) -> Start {
        let peer = IpAddr::from(Ipv4Addr::new(192, 0, 2, 1));
        Start { peer_certificate: certificate, ..Start::new(Time::ZERO, UNIX, peer) }
    }

    fn verdicts(reachability: &mut Reachability) -> Vec<bool> {
        let outputs = reachability.drain(Time::ZERO);
        outputs
            .filter_map(|output| match output {
                Output::Probed { answers, .. } => Some(answers),
                Output::Link(_) => None,
            })
            .collect()
    }

    /// Probes `wanted`, and exchanges the messages of the link with the relay that has the keys
    /// `there`. `other` is the SHA-256 of the TLS certificate that the relay presents; `None`
    /// stands for its own certificate.
    fn converse(
        reachability: &mut Reachability,
        wanted: Target,
        there: &RelayKeys,
        other: Option<[u8; 32]>,
    ) {
        let mut rng = stream(2, 0, "relay");
        let certificate = there.link_key(&mut rng, private_key(2), UNIX).unwrap().certificate;
        let credentials = there.credentials(&mut rng, &certificate, UNIX).unwrap();
        let shown = other.unwrap_or(credentials.tls_certificate);
        let mut relay = Channel::new(Role::Responder(Arc::new(credentials)), start(None));
        let opened =
            LinkInput::Opened { link: LINK, target: Some(wanted), start: start(Some(shown)) };
        reachability.handle_link(Time::ZERO, opened);
        for _ in 0..4 {
            let mut bytes = Vec::new();
            reachability.transmit(Time::ZERO, LINK, &mut bytes, usize::MAX);
            let mut cells = Cells::new(&mut bytes, relay.width(), relay.longest());
            while let Ok(Some(cell)) = cells.next_cell() {
                relay.take(&mut rng, &cell).unwrap();
                cells.set_width(relay.width());
            }
            let replies = std::mem::take(&mut relay.outbox);
            for piece in replies.chunks(100) {
                reachability.handle_link(Time::ZERO, LinkInput::Bytes { link: LINK, bytes: piece });
            }
        }
    }

    #[test]
    fn who_proves_both_identities_answers_and_nobody_else() {
        let (one, other) = (keys(1), keys(2));
        let half = Target { ed25519: Some(other.ed_identity()), ..target(one) };
        for (wanted, shown, answers) in [
            (target(one), None, true),
            (target(other), None, false),
            (half, None, false),
            (target(one), Some([9; 32]), false),
        ] {
            let mut reachability = reachability(1);
            reachability.handle(Time::ZERO, probe(&wanted));
            converse(&mut reachability, wanted, one, shown);
            assert_eq!(verdicts(&mut reachability), [answers]);
            reachability.handle_link(Time::ZERO, LinkInput::Closed { link: LINK });
            assert_eq!(verdicts(&mut reachability), [], "it is said once");
        }
    }

    #[test]
    fn who_is_away_or_says_nothing_does_not_answer() {
        let mut reachability = reachability(5);
        let (gone, cut, silent) = (target(keys(1)), target(keys(2)), target(keys(3)));
        [&gone, &cut, &silent, &gone]
            .into_iter()
            .for_each(|one| reachability.handle(Time::ZERO, probe(one)));
        reachability.handle_link(Time::ZERO, LinkInput::Unreachable { target: gone.clone() });
        reachability.handle_link(Time::ZERO, LinkInput::Unreachable { target: gone });
        assert_eq!(verdicts(&mut reachability), [false], "asked twice, probed once");
        for (link, one) in [(LINK, cut), (LinkId::new(0, 8), silent)] {
            let start = start(None);
            reachability
                .handle_link(Time::ZERO, LinkInput::Opened { link, target: Some(one), start });
        }
        reachability
            .handle_link(Time::ZERO, LinkInput::Bytes { link: LINK, bytes: b"HTTP/1.0 400" });
        reachability.handle_link(Time::ZERO, LinkInput::Closed { link: LINK });
        assert_eq!(verdicts(&mut reachability), [false]);
        let late = Time::ZERO + PATIENCE;
        assert_eq!(reachability.next_timeout(), Some(late));
        assert!(matches!(
            conformance::drain(&mut reachability, late)[..],
            [Output::Probed { answers: false, .. }, Output::Link(LinkOutput::Close { .. })]
        ));
        assert_eq!(reachability.next_timeout(), None);
    }

    #[test]
    fn some_are_probed_at_once_and_the_others_wait() {
        let mut reachability = reachability(2);
        let targets = [target(keys(1)), target(keys(2)), target(keys(3))];
        targets.iter().for_each(|one| reachability.handle(Time::ZERO, probe(one)));
        let dials = |reachability: &mut Reachability| {
            reachability
                .drain(Time::ZERO)
                .filter(|output| matches!(output, Output::Link(LinkOutput::Dial { .. })))
                .count()
        };
        assert_eq!(dials(&mut reachability), 2);
        reachability.handle_link(Time::ZERO, LinkInput::Unreachable { target: targets[0].clone() });
        assert_eq!(dials(&mut reachability), 1);
    }

    #[test]
    fn those_that_are_not_there_leave_half_of_the_links() {
        let mut reachability = reachability(4);
        assert_eq!(reachability.room(), Room { running: 4, others: 2 });
        for seed in 1..3 {
            reachability.handle(Time::ZERO, Probe { target: target(keys(seed)), runs: false });
        }
        assert_eq!(reachability.room(), Room { running: 2, others: 0 });
        (3..5).for_each(|seed| reachability.handle(Time::ZERO, probe(&target(keys(seed)))));
        assert_eq!(reachability.room(), Room { running: 0, others: 0 });
        reachability.handle_link(Time::ZERO, LinkInput::Unreachable { target: target(keys(1)) });
        assert_eq!(reachability.room(), Room { running: 1, others: 1 });
    }
}

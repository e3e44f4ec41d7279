//! Downloads of directory documents: what to request next, from which source, and how to process
//! the result. A client fetches the documents that it needs to build circuits. A cache fetches the
//! documents that it serves.
//!
//! The caller takes jobs from [`Directory::poll`], transfers their bytes, and passes each
//! [`Job`]'s outcome to [`Directory::done`]. A verified document is returned as an [`Event`] with
//! its text, for storage.

use std::collections::BTreeSet;
use std::time::Duration;

use anabranch_multipath::Time;
use base64ct::{Base64Unpadded, Encoding};
use rand_core::Rng;

use super::bridges::{self, BridgeIdentity, BridgeRequests};
use super::http::{HttpError, Response};
use super::network::Network;
use crate::draw::below;
use crate::moment::Moment;
use crate::wire::netdoc::{
    AuthorityCert, Bridge, Consensus, DocumentError, LONGEST_CONSENSUS, LONGEST_ITEM, Microdesc,
    Unproven, none_bad, parse_certs, parse_microdescs,
};
use crate::wire::text::hex;

/// Maximum number of microdescriptors in one request, so that every server accepts the request
/// line.
const BATCH: usize = 90;
/// Maximum number of downloads in progress at the same time.
const AT_ONCE: usize = 3;
/// Pause after a first failure, in milliseconds (dir-spec, "retries").
const FIRST_PAUSE: u64 = 500;
/// Maximum pause after a failure while there is a live consensus, in milliseconds.
const LONGEST_PAUSE: u64 = 600_000;
/// Maximum pause after a failure while there is no live consensus, in milliseconds.
const LONGEST_FIRST_PAUSE: u64 = 8_000;
/// Minimum and maximum interval in seconds between checks whether the consensus must be renewed.
/// The check is repeated because the system clock may change.
const LOOK: (u64, u64) = (1, 3_600);
/// Number of consecutive failures after which requests alternate between authorities and caches.
const CACHE_TRIES: u32 = 5;
/// Number of consecutive failures over circuits after which the authorities' directory ports are
/// used too. This applies only while there is no consensus.
const LINK_TRIES: u32 = 2;

/// An authority in the user's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityIdentity {
    /// The digest of the v3 identity key that signs consensuses.
    pub v3: [u8; 20],
    /// True if the authority can be asked over a one-hop circuit: its OR port is known, and this
    /// process builds circuits.
    pub by_circuit: bool,
}

/// The document that a job (download) requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobDocument {
    /// The descriptor of the bridge with this index.
    Bridge(usize),
    /// Certificates of the authorities whose signatures must be verified.
    Certificates,
    /// The consensus.
    Consensus,
    /// The microdescriptors with these digests.
    Microdescs(Vec<[u8; 32]>),
}

/// The server from which a job (download) requests its document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The bridge with this index, over a one-hop circuit.
    Bridge(usize),
    /// The authority with this index, over a one-hop circuit to its OR port.
    Authority(usize),
    /// The authority with this index, over plain HTTP to its directory port.
    Plain(usize),
    /// Any relay that is a directory cache, such as a guard. A client with bridges uses any known
    /// bridge instead.
    Cache,
}

/// A download that the caller must perform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Identifier of the job (download), to pass to [`Directory::done`].
    pub number: u64,
    /// The document to request.
    pub want: JobDocument,
    /// The server to ask.
    pub source: Source,
    /// The path of the request.
    pub path: String,
    /// Maximum number of bytes in a valid response.
    pub limit: usize,
}

/// The reason why a job (download) failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No server could be reached, or the stream closed too early.
    Unreachable,
    /// The server was reached, but sent nothing. Authorities do this until they have a consensus.
    Silent,
    /// The response is not valid HTTP.
    Http(HttpError),
    /// The server answered with this status instead of 200.
    Status(u16),
    /// The response is not the requested document, or its verification failed.
    Document(DocumentError),
}

impl JobDocument {
    /// Returns a short name of the document, for messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            JobDocument::Bridge(_) => "bridge's descriptor",
            JobDocument::Certificates => "certificates",
            JobDocument::Consensus => "consensus",
            JobDocument::Microdescs(_) => "microdescriptors",
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Unreachable => out.write_str("no server answered"),
            Failure::Silent => out.write_str(
                "the server was reached but sent nothing; an authority sends nothing before its \
                 first consensus",
            ),
            Failure::Http(error) => {
                write!(out, "the directory server's answer cannot be read: {error}")
            }
            Failure::Status(status) => write!(out, "the server answered {status}"),
            Failure::Document(error) => error.fmt(out),
        }
    }
}

/// A type of document that is stored on disk, so that the next process of this program can use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptDocument {
    /// The authorities' certificates.
    Certificates,
    /// The consensus of the flavour `microdesc`.
    Consensus,
    /// The microdescriptors.
    Microdescs,
    /// The consensus of full server descriptors, which only a directory cache stores.
    ServerConsensus,
    /// The full server descriptors, which only a directory cache stores.
    Servers,
    /// The extra-info documents, which only a directory cache stores.
    Extras,
}

/// The result of a job (download), or of restoring documents.
#[derive(Clone, Debug)]
pub enum Event {
    /// A stored document is damaged. Contains the error. The parts that are valid are still used.
    Damaged(KeptDocument, DocumentError),
    /// The descriptor of the bridge with this index was received, for the first time or again.
    Bridge(usize, Box<Bridge>),
    /// A consensus was verified. Contains its text, and the authorities whose certificates
    /// verified it.
    Consensus(String, Vec<[u8; 20]>),
    /// Certificates were received. Contains the text of all known certificates.
    Certificates(String),
    /// A microdescriptor was received. Contains its digest and text.
    Microdesc([u8; 32], String),
    /// The newest available consensus expired this number of seconds ago. The flag is true if this
    /// consensus is used nevertheless ([`Consensus::is_reasonably_live`]). Otherwise the relays in
    /// it only serve to fetch a newer consensus.
    Late(u64, bool),
    /// Circuits can be built from now on.
    Ready,
    /// A job (download) failed. It will be repeated.
    Failed(JobDocument, Source, Failure),
}

/// The function that verifies a consensus.
type Prove = fn(Unproven, &[[u8; 20]], &[AuthorityCert], u64) -> Result<Consensus, DocumentError>;

/// The state of all downloads of directory documents.
#[derive(Debug)]
pub struct Directory {
    authorities: Vec<AuthorityIdentity>,
    certs: Vec<AuthorityCert>,
    /// A consensus whose signatures cannot be verified until certificates arrive; `None` if no
    /// consensus waits.
    waiting: Option<String>,
    network: Option<Network>,
    share_subnets: bool,
    /// True if this is a directory cache, which also serves the documents.
    for_a_cache: bool,
    /// The bridges over which all documents are fetched; `None` if the client uses no bridges.
    bridges: Option<BridgeRequests>,
    under_way: Vec<Job>,
    next_number: u64,
    /// Number of consecutive failures, which determines the next pause and the source of the next
    /// request.
    failures: u32,
    /// Number of consecutive failures to reach authorities over circuits.
    unlinked: u32,
    /// The end of the pause after the last failure.
    paused_until: Time,
    /// The time in seconds since 1970 at which the next consensus is due.
    renew_at: u64,
    was_ready: bool,
}

impl Directory {
    /// Creates a directory that knows the authorities and no documents. `share_subnets` is the
    /// value of [`Network::share_subnets`].
    #[must_use]
    pub fn new(authorities: Vec<AuthorityIdentity>, share_subnets: bool) -> Directory {
        Directory {
            authorities,
            certs: Vec::new(),
            waiting: None,
            network: None,
            share_subnets,
            for_a_cache: false,
            bridges: None,
            under_way: Vec::new(),
            next_number: 0,
            failures: 0,
            unlinked: 0,
            paused_until: Time::ZERO,
            renew_at: 0,
            was_ready: false,
        }
    }

    /// Makes the directory fetch each consensus before clients do, in order to serve it to them.
    pub fn for_a_cache(&mut self) {
        self.for_a_cache = true;
    }

    /// Restricts the directory to these bridges, whose descriptors are fetched first. Authorities
    /// are never contacted.
    pub fn by_bridges(&mut self, identities: Vec<BridgeIdentity>) {
        self.bridges = Some(BridgeRequests::new(identities));
    }

    /// Makes the requests to all bridges without a known descriptor due at once. The caller does
    /// this when the network may be reachable again.
    pub fn ask_bridges(&mut self) {
        self.bridges.iter_mut().for_each(BridgeRequests::ask_now);
    }

    /// Restarts with other authorities. Keeps the bridges, and continues the sequence of job
    /// identifiers. Ignores the outcomes of jobs in progress, except bridges' descriptors.
    pub fn restart_with(&mut self, authorities: Vec<AuthorityIdentity>, share_subnets: bool) {
        let Directory { next_number, for_a_cache, .. } = *self;
        let anew = Directory::new(authorities, share_subnets);
        let bridges = self.bridges.take();
        let mut under_way = std::mem::take(&mut self.under_way);
        under_way.retain(|job| matches!(job.want, JobDocument::Bridge(_)));
        *self = Directory { next_number, for_a_cache, bridges, under_way, ..anew };
    }

    /// Returns the network, whose microdescriptors may be missing; `None` until a consensus is
    /// verified.
    #[must_use]
    pub fn network(&self) -> Option<&Network> {
        self.network.as_ref()
    }

    /// Returns whether circuits can be built.
    #[must_use]
    pub fn is_ready(&self, unix_now: u64) -> bool {
        self.is_live(unix_now) && self.network.as_ref().is_some_and(Network::is_enough)
    }

    fn is_live(&self, unix_now: u64) -> bool {
        self.network.as_ref().is_some_and(|one| one.consensus().is_reasonably_live(unix_now))
    }

    /// Returns the known certificates.
    #[must_use]
    pub fn certs(&self) -> &[AuthorityCert] {
        &self.certs
    }

    /// Restores documents that an earlier process of this program stored. An empty text means that
    /// the document is missing. Documents that cannot be verified are skipped, and damaged
    /// documents are reported. A consensus that expired long ago still provides relays from which
    /// a newer consensus can be fetched.
    pub fn restore(
        &mut self,
        certs: &str,
        consensus: &str,
        microdescs: &str,
        unix_now: u64,
        rng: &mut impl Rng,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        let damaged = |kept, error| Event::Damaged(kept, error);
        if !certs.is_empty() {
            let parsed = parse_certs(certs).and_then(|(certs, bad)| {
                self.add_certs(certs);
                none_bad(bad)
            });
            events.extend(parsed.err().map(|error| damaged(KeptDocument::Certificates, error)));
        }
        if !consensus.is_empty() {
            match self.adopt(consensus, Unproven::prove_old, unix_now, rng, &mut events) {
                Ok(()) => {}
                Err(Failure::Document(error)) if error.is_damage() => {
                    events.push(damaged(KeptDocument::Consensus, error));
                }
                // Other authorities may have signed it, or the clock was ahead when it was stored.
                Err(_) => {}
            }
        }
        if !microdescs.is_empty() {
            let parsed = parse_microdescs(microdescs).and_then(|(parsed, bad)| {
                self.learn(parsed, &mut events);
                none_bad(bad)
            });
            events.extend(parsed.err().map(|error| damaged(KeptDocument::Microdescs, error)));
        }
        self.waiting = None;
        self.report_ready(unix_now, &mut events);
        events
    }

    /// Returns the next request to make; `None` if there is none now.
    pub fn poll(&mut self, at: Moment, rng: &mut impl Rng) -> Option<Job> {
        if let Some(place) = self.bridges.as_mut().and_then(|bridges| bridges.poll(at.now)) {
            return Some(self.begin(JobDocument::Bridge(place), Source::Bridge(place)));
        }
        if self.is_busy() || at.now < self.paused_until {
            return None;
        }
        let want = self.next_want(at.unix)?;
        let source = self.source(at.unix, rng);
        Some(self.begin(want, source))
    }

    fn begin(&mut self, want: JobDocument, source: Source) -> Job {
        let (path, limit) = self.request(&want);
        let job = Job { number: self.next_number, want, source, path, limit };
        self.next_number += 1;
        self.under_way.push(job.clone());
        job
    }

    /// Returns true if the maximum number of jobs is in progress. Jobs for bridges' descriptors do
    /// not count.
    fn is_busy(&self) -> bool {
        let counts = |job: &&Job| !matches!(job.want, JobDocument::Bridge(_));
        self.under_way.iter().filter(counts).count() >= AT_ONCE
    }

    /// Returns the time at which [`Directory::poll`] must be called again, even if no job finishes
    /// before.
    #[must_use]
    pub fn next_timeout(&self, at: Moment) -> Time {
        let due = match self.next_want(at.unix) {
            Some(_) if !self.is_busy() => self.paused_until.max(at.now),
            _ => {
                let seconds = self.renew_at.saturating_sub(at.unix).clamp(LOOK.0, LOOK.1);
                at.now + Duration::from_secs(seconds)
            }
        };
        let bridges = self.bridges.as_ref().and_then(BridgeRequests::next_timeout);
        bridges.map_or(due, |bridges| due.min(bridges.max(at.now)))
    }

    /// Processes the outcome of a job (download).
    pub fn done(
        &mut self,
        number: u64,
        outcome: Result<Response, Failure>,
        at: Moment,
        rng: &mut impl Rng,
    ) -> Vec<Event> {
        let Some(place) = self.under_way.iter().position(|job| job.number == number) else {
            return Vec::new();
        };
        let job = self.under_way.remove(place);
        if let JobDocument::Bridge(place) = job.want {
            return vec![self.bridge_done(place, job, outcome, at)];
        }
        let mut events = Vec::new();
        self.note_way(job.source, &outcome);
        let outcome = outcome
            .and_then(|response| text_of(&response))
            .and_then(|text| self.take(&job.want, &text, at.unix, rng, &mut events));
        match outcome {
            Ok(()) => (self.failures, self.paused_until) = (0, Time::ZERO),
            Err(failure) => {
                self.pause(at, rng);
                events.push(Event::Failed(job.want, job.source, failure));
            }
        }
        self.report_ready(at.unix, &mut events);
        events
    }

    /// Processes the outcome of a request for a bridge's descriptor.
    fn bridge_done(
        &mut self,
        place: usize,
        job: Job,
        outcome: Result<Response, Failure>,
        at: Moment,
    ) -> Event {
        let bridges = self.bridges.as_mut().expect("a bridge was asked, so there are bridges");
        let was_known = bridges.is_any_known();
        let result = outcome.and_then(|response| text_of(&response)).and_then(|text| {
            bridges.receive(at.now, place, &text, at.unix).map_err(Failure::Document)
        });
        match result {
            Ok(bridge) => {
                if !was_known {
                    (self.failures, self.paused_until) = (0, Time::ZERO);
                }
                Event::Bridge(place, Box::new(bridge))
            }
            Err(failure) => {
                bridges.failed(at.now, place);
                Event::Failed(job.want, job.source, failure)
            }
        }
    }

    /// Updates the number of consecutive failures to reach authorities over circuits, given the
    /// source and the outcome of a job (download).
    fn note_way(&mut self, source: Source, outcome: &Result<Response, Failure>) {
        self.unlinked = match (source, outcome) {
            (Source::Authority(_), Err(Failure::Silent)) => 0,
            (Source::Authority(_), Err(_)) => self.unlinked + 1,
            // After a directory port failed, the next attempt uses a circuit again.
            (Source::Authority(_), Ok(_)) | (Source::Plain(_), Err(_)) => 0,
            (Source::Plain(_), Ok(_)) | (Source::Cache | Source::Bridge(_), _) => self.unlinked,
        };
    }

    fn next_want(&self, unix_now: u64) -> Option<JobDocument> {
        // A client with bridges uses no other source.
        if self.bridges.as_ref().is_some_and(|bridges| !bridges.is_any_known()) {
            return None;
        }
        let asked =
            |want: fn(&JobDocument) -> bool| self.under_way.iter().any(|job| want(&job.want));
        if self.waiting.is_some() {
            return (!asked(|want| *want == JobDocument::Certificates))
                .then_some(JobDocument::Certificates);
        }
        let old = self.network.is_none() || unix_now >= self.renew_at;
        if old
            && !self.precedes_consensus(unix_now)
            && !asked(|want| *want == JobDocument::Consensus)
        {
            return Some(JobDocument::Consensus);
        }
        let digests = self.missing();
        (!digests.is_empty()).then_some(JobDocument::Microdescs(digests))
    }

    /// Returns true if microdescriptors are fetched before a newer consensus, because circuits can
    /// then be built sooner. After a failure the consensus comes first, because only a newer
    /// consensus may help.
    fn precedes_consensus(&self, unix_now: u64) -> bool {
        let lacks = |network: &Network| !network.is_enough() && network.missing().next().is_some();
        self.failures == 0 && self.is_live(unix_now) && self.network.as_ref().is_some_and(lacks)
    }

    /// Returns the digests of missing microdescriptors that no job in progress requests.
    fn missing(&self) -> Vec<[u8; 32]> {
        let asked = self.under_way.iter().flat_map(|job| match &job.want {
            JobDocument::Microdescs(asked) => &asked[..],
            JobDocument::Bridge(_) | JobDocument::Certificates | JobDocument::Consensus => &[],
        });
        let asked: BTreeSet<&[u8; 32]> = asked.collect();
        let network = self.network.iter().flat_map(Network::missing);
        network.filter(|digest| !asked.contains(digest)).take(BATCH).collect()
    }

    /// Chooses the source of the next request. Before the first consensus, asks authorities. A
    /// client that has a consensus but cannot build circuits alternates between authorities and
    /// caches, so that one dead authority cannot block it. Otherwise asks caches first, to reduce
    /// the load on the authorities. After [`CACHE_TRIES`] failures, alternates between authorities
    /// and caches. A client with bridges always asks a bridge ([`Source::Cache`]).
    fn source(&self, unix_now: u64, rng: &mut impl Rng) -> Source {
        if self.bridges.is_some() {
            return Source::Cache;
        }
        let ready = self.is_ready(unix_now);
        let asks_cache = match ready {
            true => self.failures < CACHE_TRIES || self.failures.is_multiple_of(2),
            false => self.network.is_some() && !self.failures.is_multiple_of(2),
        };
        if asks_cache {
            return Source::Cache;
        }
        let place = below(self.authorities.len().max(1) as u64, rng) as usize;
        let by_circuit = self.authorities.get(place).is_some_and(|one| one.by_circuit);
        match by_circuit && (ready || self.unlinked < LINK_TRIES) {
            true => Source::Authority(place),
            false => Source::Plain(place),
        }
    }

    fn request(&self, want: &JobDocument) -> (String, usize) {
        match want {
            JobDocument::Bridge(_) => (bridges::PATH.to_owned(), LONGEST_ITEM),
            JobDocument::Consensus => {
                let mut ids: Vec<String> =
                    self.authorities.iter().map(|one| hex(&one.v3)).collect();
                ids.sort();
                let path = "/tor/status-vote/current/consensus-microdesc";
                (format!("{path}/{}.z", ids.join("+")), LONGEST_CONSENSUS)
            }
            JobDocument::Certificates => {
                let mut pairs: Vec<String> =
                    self.wanted_certs().iter().map(|(id, key)| hex(id) + "-" + &hex(key)).collect();
                pairs.sort();
                let limit = LONGEST_ITEM * pairs.len().max(1);
                (format!("/tor/keys/fp-sk/{}.z", pairs.join("+")), limit)
            }
            JobDocument::Microdescs(digests) => {
                let mut names: Vec<String> = digests.iter().map(base64).collect();
                names.sort();
                (format!("/tor/micro/d/{}.z", names.join("-")), LONGEST_ITEM * digests.len())
            }
        }
    }

    /// Returns the certificates of known authorities that are needed to verify the waiting
    /// consensus.
    fn wanted_certs(&self) -> Vec<([u8; 20], [u8; 20])> {
        let waiting = self.waiting.as_deref().and_then(|text| Unproven::parse(text).ok());
        let signers = waiting.map(|consensus| consensus.signers()).unwrap_or_default();
        let known = |keys: &([u8; 20], [u8; 20])| self.certs.iter().any(|one| one.keys() == *keys);
        let ours = |id: &[u8; 20]| self.authorities.iter().any(|one| one.v3 == *id);
        signers.into_iter().filter(|keys| ours(&keys.0) && !known(keys)).collect()
    }

    fn take(
        &mut self,
        want: &JobDocument,
        text: &str,
        unix_now: u64,
        rng: &mut impl Rng,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        match want {
            // [`Directory::bridge_done`] processes these.
            JobDocument::Bridge(_) => Ok(()),
            JobDocument::Consensus => self.adopt(text, Unproven::prove, unix_now, rng, events),
            JobDocument::Certificates => {
                let (certs, _) = parse_certs(text).map_err(Failure::Document)?;
                self.add_certs(certs);
                let all = self.certs.iter().map(AuthorityCert::text).collect();
                events.push(Event::Certificates(all));
                let Some(waiting) = self.waiting.take() else { return Ok(()) };
                // If signers are still missing, the consensus is dropped and requested again.
                let outcome = self.adopt(&waiting, Unproven::prove, unix_now, rng, events);
                self.waiting = None;
                outcome
            }
            JobDocument::Microdescs(_) => self.add_microdescs(text, events),
        }
    }

    fn adopt(
        &mut self,
        text: &str,
        prove: Prove,
        unix_now: u64,
        rng: &mut impl Rng,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let unproven = Unproven::parse(text).map_err(Failure::Document)?;
        let ids: Vec<[u8; 20]> = self.authorities.iter().map(|one| one.v3).collect();
        let signers: Vec<[u8; 20]> = unproven.signers().into_iter().map(|keys| keys.0).collect();
        self.waiting = Some(text.to_owned());
        let lacks = !self.wanted_certs().is_empty();
        let proven = match prove(unproven, &ids, &self.certs, unix_now) {
            // Fetch the certificates of the signers first, then verify the consensus again.
            Err(DocumentError::TooFewSigners(..)) if lacks => return Ok(()),
            outcome => {
                self.waiting = None;
                outcome.map_err(Failure::Document)?
            }
        };
        let late = unix_now.saturating_sub(proven.valid_until);
        // A consensus older than ours is useless and may be an attack. Our own consensus is
        // useless too if it has expired.
        let is_old_news = |ours: &Network| match ours.consensus().valid_after {
            ours if ours == proven.valid_after => late > 0,
            ours => ours > proven.valid_after,
        };
        if self.network.as_ref().is_some_and(is_old_news) {
            return Err(Failure::Document(DocumentError::Expired));
        }
        let times = [proven.valid_after, proven.fresh_until, proven.valid_until];
        self.renew_at = match self.for_a_cache {
            true => cache_renewal(times, unix_now, rng),
            false => renewal(proven.fresh_until, proven.valid_until, unix_now, rng),
        };
        let is_used = proven.is_reasonably_live(unix_now);
        let mut fresh = match self.network.take() {
            Some(network) => network.renewed(proven),
            None => Network::new(proven),
        };
        fresh.share_subnets = self.share_subnets;
        self.network = Some(fresh);
        let known = |id: &[u8; 20]| ids.contains(id);
        events.push(Event::Consensus(text.to_owned(), signers.into_iter().filter(known).collect()));
        events.extend((late > 0).then_some(Event::Late(late, is_used)));
        Ok(())
    }

    fn add_certs(&mut self, certs: Vec<AuthorityCert>) {
        for cert in certs {
            let ours = self.authorities.iter().any(|one| one.v3 == cert.keys().0);
            if ours && !self.certs.iter().any(|known| known.keys() == cert.keys()) {
                self.certs.push(cert);
            }
        }
    }

    fn add_microdescs(&mut self, text: &str, events: &mut Vec<Event>) -> Result<(), Failure> {
        let (parsed, _) = parse_microdescs(text).map_err(Failure::Document)?;
        if self.network.is_none() || self.learn(parsed, events) {
            return Ok(());
        }
        let nothing =
            DocumentError::Malformed("it contains none of the requested documents".to_owned());
        Err(Failure::Document(nothing))
    }

    /// Adds the microdescriptors that the consensus lists. Returns whether any of them was new.
    fn learn(&mut self, parsed: Vec<(Microdesc, &str)>, events: &mut Vec<Event>) -> bool {
        let Some(network) = &mut self.network else { return false };
        let before = events.len();
        for (microdesc, own) in parsed {
            let digest = microdesc.digest;
            if network.learn(microdesc) {
                events.push(Event::Microdesc(digest, own.to_owned()));
            }
        }
        events.len() > before
    }

    fn report_ready(&mut self, unix_now: u64, events: &mut Vec<Event>) {
        let ready = self.is_ready(unix_now);
        if ready && !self.was_ready {
            events.push(Event::Ready);
        }
        self.was_ready = ready;
    }

    /// Begins a pause after a failure. The length of the pause is random, up to a maximum that
    /// triples with each further failure.
    fn pause(&mut self, at: Moment, rng: &mut impl Rng) {
        let bound = FIRST_PAUSE.saturating_mul(3u64.saturating_pow(self.failures.min(10)));
        // Pauses are short without a live consensus: there is nothing else to do, and the
        // authorities of a new network have no consensus yet.
        let longest = if self.is_live(at.unix) { LONGEST_PAUSE } else { LONGEST_FIRST_PAUSE };
        let bound = bound.min(longest);
        self.failures = self.failures.saturating_add(1);
        let pause = bound / 2 + rng.next_u64() % (bound / 2 + 1);
        self.paused_until = at.now + Duration::from_millis(pause);
    }
}

/// Encodes a digest in base64 without padding, as in the paths of requests.
pub(super) fn base64(digest: &[u8; 32]) -> String {
    Base64Unpadded::encode_string(digest)
}

/// Returns a random time at which a client fetches the next consensus, so that clients do not all
/// fetch at once (dir-spec, "when to download"). The time lies in the first half of the period
/// from `fresh_until` to `valid_until`.
fn renewal(fresh_until: u64, valid_until: u64, unix_now: u64, rng: &mut impl Rng) -> u64 {
    let from = fresh_until.max(unix_now);
    let room = (valid_until.saturating_sub(from) / 2).max(1);
    from + rng.next_u64() % room
}

/// Returns a random time at which a cache fetches the next consensus (dir-spec, "Directory
/// caches"; C tor's values). The first argument contains valid-after, fresh-until and valid-until
/// of the present consensus. The earliest time is shortly (up to two minutes) after fresh-until,
/// when authorities have the next consensus. The latest time is half an interval after the
/// earliest.
pub(super) fn cache_renewal(
    [after, fresh, until]: [u64; 3],
    unix_now: u64,
    rng: &mut impl Rng,
) -> u64 {
    let interval = fresh.saturating_sub(after);
    let slack = (interval / 16).clamp(1, 120);
    let from = (fresh + slack).max(unix_now);
    let room = (interval / 2).min(until.saturating_sub(from)).max(1);
    from + rng.next_u64() % room
}

fn text_of(response: &Response) -> Result<String, Failure> {
    if response.status != 200 {
        return Err(Failure::Status(response.status));
    }
    String::from_utf8(response.body.clone())
        .map_err(|_| Failure::Document(DocumentError::Malformed("it is not text".to_owned())))
}

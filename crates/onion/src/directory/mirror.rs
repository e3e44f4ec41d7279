//! Downloads of the documents that a directory cache needs in addition to those of a client, in
//! order to answer every request in dir-spec. They are the consensus of the flavour `ns`, the
//! server descriptors that it lists, and the extra-info documents that the descriptors name.
//!
//! The caller takes a request from [`Mirror::poll`], sends it to an authority, and passes the
//! outcome to [`Mirror::done`]. A verified text is returned as a [`Document`]. The caller stores
//! the texts; the mirror only records which documents were fetched.

use std::collections::{BTreeMap, BTreeSet};

use rand_core::Rng;

use super::extra::ExtraDigests;
use super::fetch::{Failure, KeptDocument};
use super::http::Response;
use crate::wire::netdoc::{
    AuthorityCert, DocumentError, LONGEST_CONSENSUS, Server, ServerList, check_server, divided,
    none_bad, prove_server_list,
};
use crate::wire::text::hex;

/// Number of documents in one request (C tor's value).
const BATCH: usize = 96;
/// Maximum length in bytes of a server descriptor that authorities accept.
const LONGEST_SERVER: usize = 20_000;
/// Maximum length in bytes of an extra-info document that authorities accept.
const LONGEST_EXTRA: usize = 50_000;
/// Maximum total bytes of descriptors, and separately of extra-info documents. Above this limit no
/// more of them are fetched.
const MOST_BYTES: usize = 128 << 20;
/// Pause after a first failure, in milliseconds.
const FIRST_PAUSE: u64 = 1_000;
/// Maximum pause after a failure, in milliseconds.
const LONGEST_PAUSE: u64 = 600_000;

/// The documents to request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorRequest {
    /// The consensus of flavour `ns`.
    Consensus,
    /// The server descriptors with these digests.
    Servers(Vec<[u8; 20]>),
    /// The extra-info documents with these digests.
    Extras(Vec<[u8; 20]>),
}

impl MirrorRequest {
    /// Returns a short name of the requested documents, for messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            MirrorRequest::Consensus => "consensus with descriptors",
            MirrorRequest::Servers(_) => "server descriptors",
            MirrorRequest::Extras(_) => "extra-info documents",
        }
    }

    /// Returns the path of the request.
    #[must_use]
    pub fn path(&self) -> String {
        let list = |digests: &[[u8; 20]]| {
            let names: Vec<String> = digests.iter().map(|digest| hex(digest)).collect();
            names.join("+")
        };
        match self {
            MirrorRequest::Consensus => "/tor/status-vote/current/consensus.z".to_owned(),
            MirrorRequest::Servers(digests) => format!("/tor/server/d/{}.z", list(digests)),
            MirrorRequest::Extras(digests) => format!("/tor/extra/d/{}.z", list(digests)),
        }
    }

    /// Returns the maximum number of bytes in a valid response.
    #[must_use]
    pub fn limit(&self) -> usize {
        match self {
            MirrorRequest::Consensus => LONGEST_CONSENSUS,
            MirrorRequest::Servers(digests) => LONGEST_SERVER * digests.len(),
            MirrorRequest::Extras(digests) => LONGEST_EXTRA * digests.len(),
        }
    }

    fn digests(&self) -> &[[u8; 20]] {
        match self {
            MirrorRequest::Consensus => &[],
            MirrorRequest::Servers(digests) | MirrorRequest::Extras(digests) => digests,
        }
    }
}

/// A verified document: its text, and the values that identify it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// The consensus, and the authorities that signed it.
    Consensus(String, Vec<[u8; 20]>),
    /// A server descriptor: the relay's RSA identity, the descriptor's digest, and the text.
    Server([u8; 20], [u8; 20], String),
    /// An extra-info document: the relay's RSA identity, the document's digest, and the text.
    Extra([u8; 20], [u8; 20], String),
}

/// A stored document that is damaged, and the error.
pub type Damage = (KeptDocument, DocumentError);

/// A server descriptor that this directory cache has fetched.
#[derive(Clone, Copy, Debug)]
struct MirroredDescriptor {
    relay: [u8; 20],
    extra: Option<ExtraDigests>,
    bytes: usize,
}

/// State of a directory cache's additional downloads: the documents that it has, and the documents
/// that are missing.
#[derive(Debug, Default)]
pub struct Mirror {
    authorities: Vec<[u8; 20]>,
    list: ServerList,
    servers: BTreeMap<[u8; 20], MirroredDescriptor>,
    /// The size in bytes of each fetched extra-info document, by SHA-1.
    extras: BTreeMap<[u8; 20], usize>,
    /// Documents that were requested but not received, by digest: the number of requests, and the
    /// time in milliseconds before which the document is not requested again.
    late: BTreeMap<[u8; 20], (u32, u64)>,
    pending: Option<MirrorRequest>,
    failures: u32,
    paused_until: u64,
}

impl Mirror {
    /// Creates the state of a directory cache without documents. It accepts documents that are
    /// signed by a majority of the authorities `authorities`, given by their v3 identities.
    #[must_use]
    pub fn new(authorities: Vec<[u8; 20]>) -> Mirror {
        Mirror { authorities, ..Mirror::default() }
    }

    /// Returns the next request to make; `None` if there is none now. Only one request may be in
    /// progress at a time. `newest` is the time from which the caller's consensus of the flavour
    /// `microdesc` is valid (0 if there is none). `now` is the time of any monotonic clock in
    /// milliseconds.
    pub fn poll(&mut self, now: u64, newest: u64) -> Option<MirrorRequest> {
        if self.pending.is_some() || now < self.paused_until {
            return None;
        }
        self.pending = self.wanted(now, newest);
        self.pending.clone()
    }

    /// Returns the number of milliseconds from `now` after which [`Mirror::poll`] may return a
    /// request. Returns `None` if no request is needed until there is a newer consensus.
    #[must_use]
    pub fn wait(&self, now: u64, newest: u64) -> Option<u64> {
        if self.wanted(now, newest).is_some() {
            return Some(self.paused_until.saturating_sub(now));
        }
        let soonest = self.late.values().map(|(_, until)| until.saturating_sub(now)).min();
        soonest.map(|wait| wait.max(self.paused_until.saturating_sub(now)))
    }

    /// Returns true if the mirror has no request to make at `now`. Documents that were not
    /// available do not count until the pause before their next request has ended.
    #[must_use]
    pub fn is_whole(&self, now: u64, newest: u64) -> bool {
        self.wanted(now, newest).is_none()
    }

    /// Processes the outcome of the request in progress; `certs` are the authorities'
    /// certificates.
    ///
    /// # Errors
    /// Returns the [`Failure`] if the request failed or its response is invalid. The request will
    /// be repeated.
    pub fn done(
        &mut self,
        outcome: Result<Response, Failure>,
        certs: &[AuthorityCert],
        now: u64,
        unix_now: u64,
        rng: &mut impl Rng,
    ) -> Result<Vec<Document>, Failure> {
        let Some(request) = self.pending.take() else { return Ok(Vec::new()) };
        let taken = outcome.and_then(|response| match (response.status, &request) {
            (200, _) => self.take(&request, &response.body, certs, unix_now),
            // A server that has none of these documents may still have others.
            (404, MirrorRequest::Servers(_) | MirrorRequest::Extras(_)) => Ok(Vec::new()),
            (status, _) => Err(Failure::Status(status)),
        });
        match taken {
            Ok(_) => (self.failures, self.paused_until) = (0, 0),
            Err(_) => {
                self.paused_until = now + pause(self.failures, rng);
                self.failures = self.failures.saturating_add(1);
            }
        }
        if taken.is_ok() {
            self.note_late(&request, now, rng);
        }
        taken
    }

    /// Restores documents that an earlier process of this program stored. An empty text means that
    /// the document is missing. Documents that cannot be verified, or that no other document names
    /// any more, are skipped. Without a valid consensus, all are skipped; [`Mirror::take_up`] can
    /// add them once a valid consensus is known. Damaged documents are reported.
    pub fn restore(
        &mut self,
        [consensus, servers, extras]: [&str; 3],
        certs: &[AuthorityCert],
        unix_now: u64,
    ) -> (Vec<Document>, Vec<Damage>) {
        if consensus.is_empty() {
            return Default::default();
        }
        match self.take_consensus(consensus, certs, unix_now) {
            Ok(mut documents) => {
                let (others, damage) = self.take_up(servers, extras);
                documents.extend(others);
                (documents, damage)
            }
            Err(error) => {
                let damaged = error.is_damage().then_some((KeptDocument::ServerConsensus, error));
                (Vec::new(), damaged.into_iter().collect())
            }
        }
    }

    /// Adds the descriptors and extra-info documents that the present consensus names. Damaged
    /// documents are reported.
    pub fn take_up(&mut self, servers: &str, extras: &str) -> (Vec<Document>, Vec<Damage>) {
        let bad = divided(servers, "router").filter(|text| check_server(text).is_err()).count();
        let mut damage = Vec::new();
        for (kept, text, keyword, bad) in [
            (KeptDocument::Servers, servers, "router", bad),
            (KeptDocument::Extras, extras, "extra-info", 0),
        ] {
            let whole: usize = divided(text, keyword).map(str::len).sum();
            let strange = usize::from(whole < text.len());
            damage.extend(none_bad(bad + strange).err().map(|error| (kept, error)));
        }
        let mut documents = self.take_servers(servers);
        documents.extend(self.take_extras(extras));
        (documents, damage)
    }

    /// Returns the relays whose descriptors the consensus lists.
    #[must_use]
    pub fn relays(&self) -> BTreeSet<[u8; 20]> {
        self.list.servers.values().copied().collect()
    }

    fn wanted(&self, now: u64, newest: u64) -> Option<MirrorRequest> {
        if self.list.valid_after < newest {
            return Some(MirrorRequest::Consensus);
        }
        let is_due = |digest: &&[u8; 20]| self.late.get(*digest).is_none_or(|(_, at)| *at <= now);
        let bytes: usize = self.servers.values().map(|held| held.bytes).sum();
        if bytes < MOST_BYTES {
            let named = self.list.servers.keys();
            let missing = named.filter(|digest| !self.servers.contains_key(*digest));
            let batch: Vec<_> = missing.filter(is_due).take(BATCH).copied().collect();
            if !batch.is_empty() {
                return Some(MirrorRequest::Servers(batch));
            }
        }
        let bytes: usize = self.extras.values().sum();
        let named = self.servers.values().filter_map(|held| held.extra.as_ref());
        let missing =
            named.map(|extra| &extra.sha1).filter(|digest| !self.extras.contains_key(*digest));
        let batch: Vec<_> = missing.filter(is_due).take(BATCH).copied().collect();
        (bytes < MOST_BYTES && !batch.is_empty()).then_some(MirrorRequest::Extras(batch))
    }

    fn take(
        &mut self,
        request: &MirrorRequest,
        body: &[u8],
        certs: &[AuthorityCert],
        unix_now: u64,
    ) -> Result<Vec<Document>, Failure> {
        let malformed = |what: &str| Failure::Document(DocumentError::Malformed(what.to_owned()));
        let text = std::str::from_utf8(body).map_err(|_| malformed("it is not text"))?;
        let documents = match request {
            MirrorRequest::Consensus => {
                self.take_consensus(text, certs, unix_now).map_err(Failure::Document)?
            }
            MirrorRequest::Servers(_) => self.take_servers(text),
            MirrorRequest::Extras(_) => self.take_extras(text),
        };
        if documents.is_empty() {
            Err(malformed("it contains none of the requested documents"))
        } else {
            Ok(documents)
        }
    }

    fn take_consensus(
        &mut self,
        text: &str,
        certs: &[AuthorityCert],
        unix_now: u64,
    ) -> Result<Vec<Document>, DocumentError> {
        let list = prove_server_list(text, &self.authorities, certs, unix_now)?;
        // A consensus older than ours is useless and may be an attack.
        if list.valid_after < self.list.valid_after {
            return Err(DocumentError::Expired);
        }
        let signers = list.signers.clone();
        self.servers.retain(|digest, _| list.servers.contains_key(digest));
        let extras = self.servers.values().filter_map(|held| Some(held.extra?.sha1));
        let extras: BTreeSet<[u8; 20]> = extras.collect();
        self.extras.retain(|digest, _| extras.contains(digest));
        self.late.retain(|digest, _| list.servers.contains_key(digest) || extras.contains(digest));
        self.list = list;
        Ok(vec![Document::Consensus(text.to_owned(), signers)])
    }

    /// Adds descriptors that the consensus lists. A descriptor's digest does not cover the last
    /// signature in it, so this signature is verified as well.
    fn take_servers(&mut self, text: &str) -> Vec<Document> {
        let mut documents = Vec::new();
        for text in divided(text, "router").filter(|text| text.len() <= LONGEST_SERVER) {
            let Ok(Server { id, digest, extra }) = check_server(text) else { continue };
            let is_named = self.list.servers.get(&digest) == Some(&id);
            if is_named && !self.servers.contains_key(&digest) {
                // A document cannot be verified without a digest of its whole text.
                let extra = extra.filter(|extra| extra.sha256.is_some());
                self.servers
                    .insert(digest, MirroredDescriptor { relay: id, extra, bytes: text.len() });
                documents.push(Document::Server(id, digest, text.to_owned()));
            }
        }
        documents
    }

    /// Adds extra-info documents whose two digests both match a relay's descriptor. The second
    /// digest covers the whole text with its signatures, so the signatures are not verified again.
    fn take_extras(&mut self, text: &str) -> Vec<Document> {
        let named = self.servers.values().filter_map(|held| Some((held.relay, held.extra?)));
        let named: BTreeMap<[u8; 20], ([u8; 20], ExtraDigests)> =
            named.map(|(relay, extra)| (extra.sha1, (relay, extra))).collect();
        let mut documents = Vec::new();
        for text in divided(text, "extra-info").filter(|text| text.len() <= LONGEST_EXTRA) {
            let digest = ExtraDigests::of(text).sha1;
            let Some((relay, extra)) = named.get(&digest) else { continue };
            if extra.fit(text) && self.extras.insert(digest, text.len()).is_none() {
                documents.push(Document::Extra(*relay, digest, text.to_owned()));
            }
        }
        documents
    }

    /// Schedules another request for documents that were requested but not received. The pauses
    /// grow with each failure.
    fn note_late(&mut self, request: &MirrorRequest, now: u64, rng: &mut impl Rng) {
        let mut pauses = BTreeMap::new();
        for digest in request.digests() {
            if self.servers.contains_key(digest) || self.extras.contains_key(digest) {
                self.late.remove(digest);
                continue;
            }
            let (tries, until) = self.late.entry(*digest).or_default();
            // Documents with the same number of failures get the same pause, and so stay in one
            // batch.
            *until = now + *pauses.entry(*tries).or_insert_with(|| pause(*tries, rng));
            *tries = tries.saturating_add(1);
        }
    }
}

/// Returns a random pause in milliseconds, between half of a maximum and that maximum. The maximum
/// triples with each failure, up to [`LONGEST_PAUSE`].
fn pause(failures: u32, rng: &mut impl Rng) -> u64 {
    let bound = FIRST_PAUSE.saturating_mul(3u64.saturating_pow(failures.min(10)));
    let bound = bound.min(LONGEST_PAUSE);
    bound / 2 + rng.next_u64() % (bound / 2 + 1)
}

#[cfg(test)]
mod tests;

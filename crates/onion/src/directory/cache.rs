//! Answers to directory requests of clients, relays and caches (dir-spec, "Directory caches"). The
//! path in a request determines the documents. A relay serves documents that it has verified. An
//! authority serves documents that it has made or accepted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64ct::{Base64Unpadded, Encoding as _};

use super::http::Request;
use super::reply::Reply;
use crate::wire::netdoc::{AuthorityCert, Microdesc};
use crate::wire::text::hex;
use document_store::DocumentStore;
use flavour::Flavour;

mod document_store;
mod flavour;

/// Prefix of the path of requests for the consensus. The name of the flavour follows, and then a
/// list of authorities. The cache answers only if more than half of the listed authorities signed
/// the consensus.
pub const CONSENSUS: &str = "/tor/status-vote/current/consensus";
/// Maximum number of documents in one request, as in C tor's clients.
const MOST_ITEMS: usize = 500;

/// The documents that a directory cache serves.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    microdesc: Flavour,
    ns: Flavour,
    certs: Vec<AuthorityCert>,
    /// The digests of the two keys in our own certificate (identity key, signing key), if we are
    /// an authority.
    own_cert: Option<([u8; 20], [u8; 20])>,
    microdescs: BTreeMap<[u8; 32], Arc<str>>,
    /// Our own RSA identity; `None` before [`Cache::we_are`] sets it.
    own: Option<[u8; 20]>,
    servers: DocumentStore,
    extras: DocumentStore,
    edition: u64,
}

impl Cache {
    /// Stores a verified consensus of either flavour, and the authorities that signed it. Server
    /// descriptors and extra-info documents that a relay has replaced are kept until three further
    /// consensuses are stored, for clients with an older consensus.
    pub fn consensus(&mut self, text: &str, signers: Vec<[u8; 20]>) {
        let is_microdesc = text.starts_with("network-status-version 3 microdesc");
        if is_microdesc {
            self.microdesc.put(text, signers);
        } else {
            self.ns.put(text, signers);
            self.servers.turn();
            self.extras.turn();
        }
    }

    /// Returns whether no consensus is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.microdesc.is_empty() && self.ns.is_empty()
    }

    /// Stores the authorities' certificates.
    pub fn certs(&mut self, certs: Vec<AuthorityCert>) {
        self.certs = certs;
    }

    /// Stores the certificates of the authority that runs this cache. The newest of them is its
    /// current certificate.
    pub fn own_certs(&mut self, certs: Vec<AuthorityCert>) {
        let newest = certs.iter().max_by_key(|cert| cert.holds());
        self.own_cert = newest.map(AuthorityCert::keys);
        self.certs = certs;
    }

    /// Stores a microdescriptor and its text.
    pub fn microdesc(&mut self, microdesc: &Microdesc, text: &str) {
        self.microdescs.insert(microdesc.digest, text.into());
    }

    /// Stores the text of a microdescriptor under `digest`, its SHA-256.
    pub fn microdesc_text(&mut self, digest: [u8; 32], text: &str) {
        self.microdescs.insert(digest, text.into());
    }

    /// Removes all stored microdescriptors whose digests are not in `named`.
    pub fn keep_microdescs(&mut self, named: &BTreeSet<[u8; 32]>) {
        self.microdescs.retain(|digest, _| named.contains(digest));
    }

    /// Sets our own RSA identity.
    pub fn we_are(&mut self, id: [u8; 20]) {
        self.own = Some(id);
    }

    /// Stores a relay's descriptor and its extra-info document, each with its digest. The relay's
    /// previous documents are kept as old versions. If `extra` is absent, the relay's extra-info
    /// documents are removed.
    pub fn relay(
        &mut self,
        id: [u8; 20],
        server: (&str, [u8; 20]),
        extra: Option<(&str, [u8; 20])>,
    ) {
        let server = self.servers.put(id, server);
        let extra = match extra {
            Some(extra) => self.extras.put(id, extra),
            None => self.extras.remove(&id),
        };
        self.edition += u64::from(server || extra);
    }

    /// Stores a descriptor and its digest from another cache. A descriptor of the relay that runs
    /// this cache counts as old, because the stored one is at least as new.
    pub fn server(&mut self, id: [u8; 20], server: (&str, [u8; 20])) {
        let put = if self.own == Some(id) { DocumentStore::put_old } else { DocumentStore::put };
        self.edition += u64::from(put(&mut self.servers, id, server));
    }

    /// Stores an extra-info document and its digest from another cache.
    pub fn extra(&mut self, id: [u8; 20], extra: (&str, [u8; 20])) {
        let put = if self.own == Some(id) { DocumentStore::put_old } else { DocumentStore::put };
        self.edition += u64::from(put(&mut self.extras, id, extra));
    }

    /// Removes a relay's documents.
    pub fn forget_relay(&mut self, id: &[u8; 20]) {
        let (server, extra) = (self.servers.remove(id), self.extras.remove(id));
        self.edition += u64::from(server || extra);
    }

    /// Marks the documents of all relays that are not in `known` as old, except those of our own
    /// relay.
    pub fn keep_relays(&mut self, known: &BTreeSet<[u8; 20]>) {
        let known = known.iter().copied().chain(self.own).collect();
        let servers = self.servers.keep(&known);
        let extras = self.extras.keep(&known);
        self.edition += u64::from(servers || extras);
    }

    /// Returns all relays' present descriptors, concatenated.
    #[must_use]
    pub fn servers(&self) -> String {
        self.servers.present().map(|text| &**text).collect()
    }

    /// Returns all relays' present extra-info documents, concatenated.
    #[must_use]
    pub fn extras(&self) -> String {
        self.extras.present().map(|text| &**text).collect()
    }

    /// Returns a version number that changes whenever relays' documents change.
    #[must_use]
    pub fn edition(&self) -> u64 {
        self.edition
    }

    /// Returns the bytes of the response to a request.
    #[must_use]
    pub fn answer(&self, request: &Request) -> Vec<u8> {
        self.find(request).bytes()
    }

    /// Returns the response to a request.
    #[must_use]
    pub fn find(&self, request: &Request) -> Reply {
        if !request.get {
            return NOT_FOUND.into();
        }
        if let Some(rest) = request.path.strip_prefix(CONSENSUS) {
            return self.consensus_for(rest, request).unwrap_or_else(Reply::from);
        }
        match self.text(request) {
            Ok(texts) => Reply::ok(texts.concat().as_bytes(), request.encoding),
            Err(refusal) => refusal.into(),
        }
    }

    /// Returns the number of bytes that must be compressed to answer `request`; 0 if the answer is
    /// an error or is stored in compressed form.
    #[must_use]
    pub fn unpacked(&self, request: &Request) -> usize {
        let texts = self.text(request).unwrap_or_default();
        texts.iter().map(|text| text.len()).sum()
    }

    fn text(&self, request: &Request) -> Result<Vec<&str>, Refusal> {
        let path = &request.path;
        let found = match path.strip_prefix("/tor/").and_then(|path| path.split_once('/')) {
            Some(("micro", rest)) => self.microdescs_of(rest)?,
            Some(("keys", rest)) => self.certs_of(rest, request.since)?,
            Some(("server", rest)) => self.documents_of(&self.servers, rest)?,
            Some(("extra", rest)) => self.documents_of(&self.extras, rest)?,
            _ => return Err(NOT_FOUND),
        };
        if found.is_empty() { Err(NOT_FOUND) } else { Ok(found) }
    }

    fn documents_of<'a>(
        &'a self,
        store: &'a DocumentStore,
        rest: &str,
    ) -> Result<Vec<&'a str>, Refusal> {
        let found = match rest {
            "authority" => self.own.and_then(|own| store.of(&own)).into_iter().collect(),
            _ => store.find(rest)?,
        };
        Ok(found.into_iter().map(|text| &**text).collect())
    }

    /// Returns the consensus. If the client has an older consensus, returns a diff from it if
    /// possible.
    fn consensus_for(&self, rest: &str, request: &Request) -> Result<Reply, Refusal> {
        let (flavour, rest) = rest.split_once('/').unwrap_or((rest, ""));
        match flavour {
            "-microdesc" => self.microdesc.find(rest, request),
            "" | "-ns" => self.ns.find(rest, request),
            _ => Err(NOT_FOUND),
        }
    }

    fn microdescs_of(&self, rest: &str) -> Result<Vec<&str>, Refusal> {
        let items = items(rest.strip_prefix("d/").ok_or(NOT_FOUND)?, '-')?;
        let digests = items.iter().filter_map(|item| {
            let digest = Base64Unpadded::decode_vec(item).ok()?;
            <[u8; 32]>::try_from(digest).ok()
        });
        let digests: BTreeSet<[u8; 32]> = digests.collect();
        let found = digests.iter().filter_map(|digest| self.microdescs.get(digest));
        Ok(found.map(|text| &**text).collect())
    }

    /// Returns the authority certificates that a request names in `rest`, the last part of its
    /// path. Leaves out certificates older than `since`, the time of `If-Modified-Since`.
    fn certs_of(&self, rest: &str, since: Option<u64>) -> Result<Vec<&str>, Refusal> {
        let found = match rest.split_once('/') {
            None if rest == "all" => self.certs.iter().collect(),
            None if rest == "authority" => {
                self.certs.iter().filter(|cert| Some(cert.keys()) == self.own_cert).collect()
            }
            Some(("fp", list)) => {
                let ids = upper(list)?;
                self.newest().filter(|cert| ids.contains(&hex(&cert.keys().0))).collect()
            }
            Some((kind @ ("sk" | "fp-sk"), list)) => {
                let names = upper(list)?;
                let name = |(id, key): ([u8; 20], [u8; 20])| match kind {
                    "sk" => hex(&key),
                    _ => format!("{}-{}", hex(&id), hex(&key)),
                };
                self.certs.iter().filter(|cert| names.contains(&name(cert.keys()))).collect()
            }
            _ => return Err((400, "Bad request")),
        };
        let found: Vec<&AuthorityCert> = found;
        let is_news = |cert: &&&AuthorityCert| since.is_none_or(|since| cert.holds().0 >= since);
        let news: Vec<&str> = found.iter().filter(is_news).map(|cert| cert.text()).collect();
        if news.is_empty() && !found.is_empty() { Err((304, "Not modified")) } else { Ok(news) }
    }

    /// Returns the newest certificate of each authority.
    fn newest(&self) -> impl Iterator<Item = &AuthorityCert> {
        let mut newest: BTreeMap<[u8; 20], &AuthorityCert> = BTreeMap::new();
        for cert in &self.certs {
            let known = newest.entry(cert.keys().0).or_insert(cert);
            if cert.holds() > known.holds() {
                *known = cert;
            }
        }
        newest.into_values()
    }
}

/// Returns the hexadecimal names in `list`, converted to upper case.
fn upper(list: &str) -> Result<BTreeSet<String>, Refusal> {
    Ok(items(list, '+')?.into_iter().map(str::to_uppercase).collect())
}

/// The HTTP status of a refused request, and the reason.
type Refusal = (u16, &'static str);

const NOT_FOUND: Refusal = (404, "Not found");

impl From<Refusal> for Reply {
    fn from((status, reason): Refusal) -> Reply {
        Reply::new(status, reason)
    }
}

fn items(list: &str, between: char) -> Result<Vec<&str>, Refusal> {
    let items: Vec<&str> = list.split(between).collect();
    if items.len() > MOST_ITEMS { Err((400, "Too many")) } else { Ok(items) }
}

//! Answers to directory requests (dir-spec, "Directory caches"), by the paths that clients, relays and caches ask for: a relay hands on what
//! it has proven itself, an authority what it made and took.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64ct::{Base64Unpadded, Encoding as _};

use super::descriptor::hex;
use super::http::Request;
use super::reply::Reply;
use crate::wire::netdoc::{AuthorityCert, Microdesc};
use flavour::Flavour;
use shelf::Shelf;

mod flavour;
mod shelf;

/// Where the consensus is asked for; the flavour and the authorities that must have signed it follow.
pub const CONSENSUS: &str = "/tor/status-vote/current/consensus";
/// The most items that one request may name: what a client packs into one.
const MOST_ITEMS: usize = 500;

/// What a cache has to give.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    microdesc: Flavour,
    ns: Flavour,
    certs: Vec<AuthorityCert>,
    microdescs: BTreeMap<[u8; 32], Arc<str>>,
    own: Option<Arc<str>>,
    servers: Shelf,
    extras: Shelf,
    edition: u64,
}

impl Cache {
    /// Takes a proven consensus of either flavour, and the authorities that signed it. Microdescriptors that it does not
    /// name stay for those who come with an older one, until the next but one.
    pub fn consensus(&mut self, text: &str, signers: Vec<[u8; 20]>) {
        let is_microdesc = text.starts_with("network-status-version 3 microdesc");
        let flavour = if is_microdesc { &mut self.microdesc } else { &mut self.ns };
        flavour.put(text, signers);
    }

    /// Whether there is no consensus to give.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.microdesc.is_empty() && self.ns.is_empty()
    }

    /// Takes the authorities' certificates.
    pub fn certs(&mut self, certs: Vec<AuthorityCert>) {
        self.certs = certs;
    }

    /// Takes a microdescriptor and its text.
    pub fn microdesc(&mut self, microdesc: &Microdesc, text: &str) {
        self.microdescs.insert(microdesc.digest, text.into());
    }

    /// Takes a microdescriptor's text and its SHA-256.
    pub fn microdesc_text(&mut self, digest: [u8; 32], text: &str) {
        self.microdescs.insert(digest, text.into());
    }

    /// Forgets microdescriptors that are not among these.
    pub fn keep_microdescs(&mut self, named: &BTreeSet<[u8; 32]>) {
        self.microdescs.retain(|digest, _| named.contains(digest));
    }

    /// Takes our own descriptor.
    pub fn own_descriptor(&mut self, text: String) {
        self.own = Some(text.into());
    }

    /// Takes a relay's descriptor and its digest, and the same of its extra-info document; the ones before are forgotten.
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

    /// Forgets a relay.
    pub fn forget_relay(&mut self, id: &[u8; 20]) {
        let (server, extra) = (self.servers.remove(id), self.extras.remove(id));
        self.edition += u64::from(server || extra);
    }

    /// Forgets relays that are not among these.
    pub fn keep_relays(&mut self, known: &BTreeSet<[u8; 20]>) {
        let servers = self.servers.keep(known);
        let extras = self.extras.keep(known);
        self.edition += u64::from(servers || extras);
    }

    /// A number that changes with relays' documents.
    #[must_use]
    pub fn edition(&self) -> u64 {
        self.edition
    }

    /// The bytes that answer a request.
    #[must_use]
    pub fn answer(&self, request: &Request) -> Vec<u8> {
        self.find(request).bytes()
    }

    /// The answer to a request.
    #[must_use]
    pub fn find(&self, request: &Request) -> Reply {
        if !request.get {
            return NOT_FOUND.into();
        }
        if let Some(rest) = request.path.strip_prefix(CONSENSUS) {
            return self.consensus_for(rest, request).unwrap_or_else(Reply::from);
        }
        match self.text(&request.path) {
            Ok(texts) => Reply::ok(texts.concat().as_bytes(), request.encoding),
            Err(refusal) => refusal.into(),
        }
    }

    fn text(&self, path: &str) -> Result<Vec<&str>, Refusal> {
        let found = match path.strip_prefix("/tor/").and_then(|path| path.split_once('/')) {
            Some(("micro", rest)) => self.microdescs_of(rest)?,
            Some(("keys", rest)) => self.certs_of(rest)?,
            Some(("server", "authority")) => self.own.as_deref().into_iter().collect(),
            Some(("server", rest)) => self.servers.find(rest)?,
            Some(("extra", rest)) => self.extras.find(rest)?,
            _ => return Err(NOT_FOUND),
        };
        if found.is_empty() { Err(NOT_FOUND) } else { Ok(found) }
    }

    /// The consensus, or what is new in it.
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
        let found = items.iter().filter_map(|item| {
            let digest = Base64Unpadded::decode_vec(item).ok()?;
            self.microdescs.get(&<[u8; 32]>::try_from(digest).ok()?)
        });
        Ok(found.map(|text| &**text).collect())
    }

    fn certs_of(&self, rest: &str) -> Result<Vec<&str>, Refusal> {
        let wanted: Box<dyn Fn(&AuthorityCert) -> bool> = match rest.split_once('/') {
            None if rest == "all" || rest == "authority" => Box::new(|_| true),
            Some((kind @ ("fp" | "sk" | "fp-sk"), list)) => {
                let ids: BTreeSet<String> =
                    items(list, '+')?.into_iter().map(str::to_uppercase).collect();
                Box::new(move |cert| {
                    let (id, key) = cert.keys();
                    ids.contains(&match kind {
                        "fp" => hex(&id),
                        "sk" => hex(&key),
                        _ => format!("{}-{}", hex(&id), hex(&key)),
                    })
                })
            }
            _ => return Err(NOT_FOUND),
        };
        Ok(self.certs.iter().filter(|cert| wanted(cert)).map(AuthorityCert::text).collect())
    }
}

/// A status and why.
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

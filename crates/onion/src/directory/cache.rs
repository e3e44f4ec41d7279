//! A relay's answers to directory requests (dir-spec, "Directory caches"): it hands on what it has
//! proven itself, by the paths that clients ask for.

use std::collections::{BTreeMap, BTreeSet};

use base64ct::{Base64Unpadded, Encoding};

use super::descriptor::hex;
use super::http::{Request, answer};
use crate::wire::netdoc::{AuthorityCert, Microdesc};

/// The most items that one request may name: what a client packs into one.
const MOST_ITEMS: usize = 500;

/// What a cache has to give.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    consensus: Option<(String, Vec<[u8; 20]>)>,
    certs: Vec<AuthorityCert>,
    microdescs: BTreeMap<[u8; 32], String>,
    own: Option<String>,
}

impl Cache {
    /// Takes a proven consensus, and the authorities that signed it. Microdescriptors that it does not
    /// name stay for those who come with an older one, until the next but one.
    pub fn consensus(&mut self, text: String, signers: Vec<[u8; 20]>) {
        self.consensus = Some((text, signers));
    }

    /// Takes the authorities' certificates.
    pub fn certs(&mut self, certs: Vec<AuthorityCert>) {
        self.certs = certs;
    }

    /// Takes a microdescriptor and its text.
    pub fn microdesc(&mut self, microdesc: &Microdesc, text: &str) {
        self.microdescs.insert(microdesc.digest, text.to_owned());
    }

    /// Forgets microdescriptors that are not among these.
    pub fn keep_microdescs(&mut self, named: &BTreeSet<[u8; 32]>) {
        self.microdescs.retain(|digest, _| named.contains(digest));
    }

    /// Takes our own descriptor.
    pub fn own_descriptor(&mut self, text: String) {
        self.own = Some(text);
    }

    /// The bytes that answer a request.
    #[must_use]
    pub fn answer(&self, request: &Request) -> Vec<u8> {
        if !request.get {
            return answer(404, "Not found", b"", false);
        }
        match self.find(&request.path) {
            Ok(body) => answer(200, "OK", body.as_bytes(), request.deflate),
            Err((status, reason)) => answer(status, reason, b"", false),
        }
    }

    fn find(&self, path: &str) -> Result<String, (u16, &'static str)> {
        const CONSENSUS: &str = "/tor/status-vote/current/consensus-microdesc";
        if let Some(rest) = path.strip_prefix(CONSENSUS) {
            return self.consensus_for(rest);
        }
        if let Some(rest) = path.strip_prefix("/tor/micro/d/") {
            return self.microdescs_of(rest);
        }
        if let Some(rest) = path.strip_prefix("/tor/keys/") {
            return self.certs_of(rest);
        }
        match path {
            "/tor/server/authority" => self.own.clone().ok_or(NOT_FOUND),
            _ => Err(NOT_FOUND),
        }
    }

    /// The consensus, if more than half of the authorities that the client names signed it.
    fn consensus_for(&self, rest: &str) -> Result<String, (u16, &'static str)> {
        let (text, signers) = self.consensus.as_ref().ok_or(NOT_FOUND)?;
        let Some(list) = rest.strip_prefix('/') else {
            return if rest.is_empty() { Ok(text.clone()) } else { Err(NOT_FOUND) };
        };
        let asked: Vec<&str> = list.split('+').collect();
        let signed = asked.iter().filter(|prefix| {
            // Clients may cut fingerprints to three bytes.
            signers
                .iter()
                .any(|id| prefix.len() >= 6 && hex(id).starts_with(&prefix.to_uppercase()))
        });
        if signed.count() * 2 > asked.len() { Ok(text.clone()) } else { Err(NOT_FOUND) }
    }

    fn microdescs_of(&self, list: &str) -> Result<String, (u16, &'static str)> {
        let items: Vec<&str> = list.split('-').collect();
        if items.len() > MOST_ITEMS {
            return Err((400, "Too many"));
        }
        let found = items.iter().filter_map(|item| {
            let digest = Base64Unpadded::decode_vec(item).ok()?;
            self.microdescs.get(&<[u8; 32]>::try_from(digest).ok()?)
        });
        some(found.map(String::as_str).collect())
    }

    fn certs_of(&self, rest: &str) -> Result<String, (u16, &'static str)> {
        let wanted: Box<dyn Fn(&AuthorityCert) -> bool> = match rest.split_once('/') {
            None if rest == "all" => Box::new(|_| true),
            Some(("fp", list)) => {
                let ids: BTreeSet<String> = list.split('+').map(str::to_uppercase).collect();
                Box::new(move |cert| ids.contains(&hex(&cert.keys().0)))
            }
            Some(("sk", list)) => {
                let ids: BTreeSet<String> = list.split('+').map(str::to_uppercase).collect();
                Box::new(move |cert| ids.contains(&hex(&cert.keys().1)))
            }
            Some(("fp-sk", list)) => {
                let ids: BTreeSet<String> = list.split('+').map(str::to_uppercase).collect();
                Box::new(move |cert| {
                    let (id, key) = cert.keys();
                    ids.contains(&format!("{}-{}", hex(&id), hex(&key)))
                })
            }
            _ => return Err(NOT_FOUND),
        };
        some(self.certs.iter().filter(|cert| wanted(cert)).map(AuthorityCert::text).collect())
    }
}

const NOT_FOUND: (u16, &str) = (404, "Not found");

fn some(text: String) -> Result<String, (u16, &'static str)> {
    if text.is_empty() { Err(NOT_FOUND) } else { Ok(text) }
}

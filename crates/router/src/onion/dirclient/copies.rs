//! Documents that a caching relay fetches and stores only to serve them to directory clients: see
//! [`anabranch_onion::directory::mirror`].

use std::sync::Arc;

use anabranch_onion::directory::cache::Cache;
use anabranch_onion::directory::fetch::Failure;
use anabranch_onion::directory::http::get;
use anabranch_onion::directory::mirror::{Document, Mirror, MirrorRequest};
use anabranch_onion::wire::netdoc::AuthorityCert;
use rand_chacha::rand_core::Rng;

use super::{DirThread, FetchReport, News, Response, ask, unix};

/// File name of the stored consensus (C tor's name).
pub(super) const CONSENSUS: &str = "cached-consensus";
/// File name of the stored server descriptors (C tor's name).
pub(super) const SERVERS: &str = "cached-descriptors";
/// File name of the stored extra-info documents (C tor's name).
pub(super) const EXTRAS: &str = "cached-extrainfo";
/// Names of the files in which a caching relay stores documents for directory clients.
pub(super) const FILES: [&str; 3] = [CONSENSUS, SERVERS, EXTRAS];

/// Documents that a caching relay serves to directory clients, and the state of their files.
#[derive(Default)]
pub(super) struct Copies {
    mirror: Mirror,
    /// True if the stored documents were not read from disk yet. They are read once a consensus
    /// that lists them is known.
    unread: bool,
    /// True if documents have arrived since the last write to disk.
    unwritten: bool,
}

impl Copies {
    /// Creates an empty collection of documents. The consensus must be signed by `authorities`.
    pub(super) fn new(authorities: Vec<[u8; 20]>) -> Copies {
        Copies { mirror: Mirror::new(authorities), unread: false, unwritten: false }
    }
}

impl DirThread {
    /// Reads from disk the documents that an earlier run of this caching relay stored, in order to
    /// serve them to directory clients.
    pub(super) fn restore_copies(&mut self) {
        if !self.settings.cache {
            return;
        }
        let kept = FILES.map(|name| self.kept_text(name));
        let texts = kept.each_ref().map(|text| &text[..]);
        let certs = self.directory.certs();
        let (documents, damage) = self.copies.mirror.restore(texts, certs, unix());
        damage.iter().for_each(|(kept, why)| self.set_aside(*kept, why));
        self.copies.unread = documents.is_empty();
        self.shelve(&documents);
    }

    /// Requests from a random authority the next documents that directory clients may want and
    /// this caching relay lacks. Returns false if no request is due.
    pub(super) fn copy_some(&mut self) -> bool {
        let (now, newest) = (self.millis(), self.newest());
        let wanted = match self.settings.cache {
            true => self.copies.mirror.poll(now, newest),
            false => None,
        };
        let Some(wanted) = wanted else { return false };
        let (from, outcome) = self.ask_any(&wanted);
        let certs: &[AuthorityCert] = self.directory.certs();
        let now = self.millis();
        let done = self.copies.mirror.done(outcome, certs, now, unix(), &mut self.rng);
        let (what, is_good) = (wanted.name(), done.is_ok());
        self.news_sender.send(News::Fetched(FetchReport {
            what,
            from,
            by_circuit: false,
            is_good,
        }));
        match done {
            Ok(documents) => self.take_copies(&documents),
            Err(failure) => self.complain(what, &failure),
        }
        true
    }

    /// Returns the milliseconds until the next request for missing documents is due.
    pub(super) fn copies_wait(&self) -> u64 {
        let wait = self.copies.mirror.wait(self.millis(), self.newest());
        wait.filter(|_| self.settings.cache).unwrap_or(u64::MAX)
    }

    /// Returns the time `valid-after` of the newest known consensus of flavour microdesc, in
    /// seconds since 1970; 0 if there is none or it is too old.
    fn newest(&self) -> u64 {
        let newest = self.directory.network().map(|network| network.consensus());
        let live = newest.filter(|newest| newest.is_reasonably_live(unix()));
        live.map_or(0, |newest| newest.valid_after)
    }

    fn ask_any(&mut self, wanted: &MirrorRequest) -> (Option<String>, Result<Response, Failure>) {
        let authorities = &self.settings.authorities;
        let place = (self.rng.next_u64() % authorities.len().max(1) as u64) as usize;
        let Some(authority) = authorities.get(place) else {
            return (None, Err(Failure::Unreachable));
        };
        let outcome = ask(authority.directory, &get(&wanted.path()), wanted.limit());
        (Some(authority.name.clone()), outcome)
    }

    /// Starts to serve new `documents` to directory clients. Writes all documents to disk once no
    /// document is missing.
    fn take_copies(&mut self, documents: &[Document]) {
        for document in documents {
            match document {
                Document::Consensus(text, _) => self.keep(CONSENSUS, text),
                Document::Server(..) | Document::Extra(..) => self.copies.unwritten = true,
            }
        }
        self.shelve(documents);
        // A consensus is needed to identify the documents on disk, so they are read with the first
        // consensus since the start.
        if std::mem::take(&mut self.copies.unread) {
            let kept = [SERVERS, EXTRAS].map(|name| self.kept_text(name));
            let (documents, damage) = self.copies.mirror.take_up(&kept[0], &kept[1]);
            damage.iter().for_each(|(kept, why)| self.set_aside(*kept, why));
            self.shelve(&documents);
        }
        let whole = self.copies.mirror.is_whole(self.millis(), self.newest());
        if whole && std::mem::take(&mut self.copies.unwritten) {
            let (servers, extras) = (self.cache.servers(), self.cache.extras());
            self.keep(SERVERS, &servers);
            self.keep(EXTRAS, &extras);
        }
    }

    fn shelve(&mut self, documents: &[Document]) {
        if documents.is_empty() {
            return;
        }
        let relays = self.copies.mirror.relays();
        let cache: &mut Cache = self.cache_mut();
        for document in documents {
            match document {
                Document::Consensus(text, signers) => {
                    cache.consensus(text, signers.clone());
                    cache.keep_relays(&relays);
                }
                Document::Server(id, digest, text) => cache.server(*id, (text, *digest)),
                Document::Extra(id, digest, text) => cache.extra(*id, (text, *digest)),
            }
        }
        self.served.show(Arc::clone(&self.cache));
    }
}

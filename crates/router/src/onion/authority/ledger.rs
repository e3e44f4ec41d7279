//! An authority's state, its files, and the documents that it serves to clients. Each change is
//! written to disk before clients can see it.

use std::net::IpAddr;
use std::sync::Arc;

use anabranch_onion::authority::{Authority, Refusal, Settings, UploadOutcome};
use anabranch_onion::directory::cache::Cache;
use anabranch_onion::wire::dirkeys::SignatureError;
use anabranch_onion::wire::netdoc::AuthorityCert;

use super::authority_files::AuthorityFiles;
use super::wall_clock::steady;
use super::{AuthorityEvent, EventFn};
use crate::onion::store::StoreError;

/// State of the authority's main thread: the protocol core, the files, and the documents to serve.
pub(super) struct Ledger {
    pub(super) authority: Authority,
    authority_files: AuthorityFiles,
    /// Documents to serve. Threads that answer requests may hold an `Arc` of an earlier version,
    /// which never changes.
    cache: Arc<Cache>,
    /// True if `cache` has changed since [`Ledger::changed`] last returned it.
    changed: bool,
    on_event: EventFn,
}

impl Ledger {
    /// Wraps `authority`, whose state must already be restored from disk, and its files.
    /// `certificates` are the key certificates to serve.
    pub(super) fn new(
        authority: Authority,
        authority_files: AuthorityFiles,
        certificates: Vec<AuthorityCert>,
        on_event: EventFn,
        unix_now: u64,
    ) -> Ledger {
        let cache = Arc::new(Cache::default());
        let mut ledger = Ledger { authority, authority_files, cache, changed: true, on_event };
        let us = ledger.authority.relay();
        ledger.cache().we_are(us);
        ledger.certify(certificates);
        ledger.show_documents();
        ledger.show_relays(unix_now);
        ledger
    }

    /// Returns the documents to serve if they have changed since the last call; `None` otherwise.
    pub(super) fn changed(&mut self) -> Option<Arc<Cache>> {
        std::mem::take(&mut self.changed).then(|| Arc::clone(&self.cache))
    }

    /// Reports an event to the operator.
    pub(super) fn report(&mut self, event: AuthorityEvent) {
        (self.on_event)(event);
    }

    /// Processes the descriptor `text` that a relay has published. `peer` is the sender's address,
    /// if it is known.
    ///
    /// # Errors
    /// [`Refusal`]: the descriptor was refused.
    pub(super) fn upload(
        &mut self,
        unix_now: u64,
        text: &str,
        peer: Option<IpAddr>,
    ) -> Result<UploadOutcome, Refusal> {
        let taken = self.authority.upload(unix_now, text, peer);
        match &taken {
            Ok(UploadOutcome::New(id)) => {
                self.keep_relay(*id);
                self.drop_relays();
                let known = self.authority.known();
                self.report(AuthorityEvent::Relay(*id, known));
            }
            Ok(UploadOutcome::Known) => {}
            Err(refusal) if refusal.is_no_news() => {}
            Err(refusal) => self.report(AuthorityEvent::Refused(refusal.to_string())),
        }
        taken
    }

    /// Makes and signs a consensus at the time `unix_now`, in seconds since 1970.
    ///
    /// # Errors
    /// The key cannot sign. The last consensus stays in use then.
    pub(super) fn publish(&mut self, unix_now: u64) -> Result<(), SignatureError> {
        let documents = self.authority.publish(unix_now)?;
        let (relays, times) = (documents.ns.matches("\nr ").count(), documents.times);
        self.keep(unix_now);
        self.show_documents();
        self.show_relays(unix_now);
        if let Some(times) = times {
            self.report(AuthorityEvent::Consensus(relays, times));
        }
        Ok(())
    }

    /// Drops relays that were not seen for a long time. Then writes to disk the state that is not
    /// written at each change: the last consensus, and the relays' identities and reliability.
    pub(super) fn keep(&mut self, unix_now: u64) {
        self.authority.forget(unix_now, steady());
        self.drop_relays();
        let kept = self.authority_files.keep(&self.authority);
        self.complain(kept);
    }

    /// Adds `by` seconds to all recorded times, because the machine's clock was set or the machine
    /// slept. So this does not count as time during which relays were unreachable.
    pub(super) fn shift(&mut self, unix_now: u64, by: i64) {
        self.authority.shift(unix_now, by);
        self.show_relays(unix_now);
    }

    /// Applies new `settings`, and drops all data about the relays that they ban.
    pub(super) fn adopt(&mut self, unix_now: u64, settings: Settings, contact: String) {
        self.authority.adopt(unix_now, settings, contact);
        self.drop_relays();
    }

    /// Replaces the key certificates that the authority serves.
    pub(super) fn certify(&mut self, certificates: Vec<AuthorityCert>) {
        self.cache().own_certs(certificates);
    }

    fn cache(&mut self) -> &mut Cache {
        self.changed = true;
        Arc::make_mut(&mut self.cache)
    }

    fn keep_relay(&mut self, id: [u8; 20]) {
        self.changed = true;
        let Some((server, digest)) = self.authority.descriptor(&id) else { return };
        let extra = self.authority.extra(&id);
        let kept = self.authority_files.put(id, server, extra.map(|(text, _)| text));
        Arc::make_mut(&mut self.cache).relay(id, (server, digest), extra);
        self.complain(kept);
    }

    /// Removes the files and documents of the descriptors that the authority has dropped.
    fn drop_relays(&mut self) {
        for id in self.authority.dropped() {
            self.authority_files.remove(&id);
            self.cache().forget_relay(&id);
        }
    }

    fn complain(&mut self, kept: Result<(), StoreError>) {
        if let Err(error) = kept {
            self.report(AuthorityEvent::Trouble(format!(
                "{error}; the authority continues, but this file is not saved to disk"
            )));
        }
    }

    fn show_documents(&mut self) {
        let documents = self.authority.documents();
        let Some(identity) = documents.times.map(|_| self.authority.identity()) else { return };
        self.changed = true;
        let cache = Arc::make_mut(&mut self.cache);
        for text in [&documents.ns, &documents.microdesc] {
            cache.consensus(text, vec![identity]);
        }
        let named = documents.microdescs.keys().copied().collect();
        cache.keep_microdescs(&named);
        for (digest, (text, _)) in &documents.microdescs {
            cache.microdesc_text(*digest, text);
        }
    }

    /// Updates the cache, so that it serves exactly the descriptors that the authority has now.
    fn show_relays(&mut self, unix_now: u64) {
        self.changed = true;
        let cache = Arc::make_mut(&mut self.cache);
        let known = self.authority.descriptors(unix_now).map(|(id, ..)| *id).collect();
        cache.keep_relays(&known);
        for (id, digest, server) in self.authority.descriptors(unix_now) {
            cache.relay(*id, (server, digest), self.authority.extra(id));
        }
    }
}

//! The authority with its files and what it gives out: whatever changes is on disk before anybody
//! is told.

use std::net::IpAddr;
use std::sync::Arc;

use anabranch_onion::authority::{Authority, Refusal, Settings, UploadOutcome};
use anabranch_onion::directory::cache::Cache;
use anabranch_onion::wire::dirkeys::SignatureError;
use anabranch_onion::wire::netdoc::AuthorityCert;

use super::vault::Vault;
use super::wall_clock::steady;
use super::{AuthorityEvent, Tell};
use crate::onion::store::StoreError;

/// All that the registry keeps.
pub(super) struct Ledger {
    pub(super) authority: Authority,
    vault: Vault,
    /// Who answers from it has another pointer to it, and sees no change.
    cache: Arc<Cache>,
    /// It has changed since it was last given out.
    changed: bool,
    tell: Tell,
}

impl Ledger {
    /// An authority with the state of an earlier run, and the certificates that it gives out.
    pub(super) fn new(
        authority: Authority,
        vault: Vault,
        certificates: Vec<AuthorityCert>,
        tell: Tell,
        unix_now: u64,
    ) -> Ledger {
        let cache = Arc::new(Cache::default());
        let mut ledger = Ledger { authority, vault, cache, changed: true, tell };
        let us = ledger.authority.relay();
        ledger.cache().we_are(us);
        ledger.certify(certificates);
        ledger.show_documents();
        ledger.show_relays(unix_now);
        ledger
    }

    /// What is to be given out, if it has changed since the last call.
    pub(super) fn changed(&mut self) -> Option<Arc<Cache>> {
        std::mem::take(&mut self.changed).then(|| Arc::clone(&self.cache))
    }

    /// Tells the operator.
    pub(super) fn tell(&mut self, told: AuthorityEvent) {
        (self.tell)(told);
    }

    /// Takes what a relay published.
    ///
    /// # Errors
    /// [`Refusal`].
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
                self.tell(AuthorityEvent::Relay(*id, known));
            }
            Ok(UploadOutcome::Known) => {}
            Err(refusal) if refusal.is_no_news() => {}
            Err(refusal) => self.tell(AuthorityEvent::Refused(refusal.to_string())),
        }
        taken
    }

    /// Makes a consensus.
    ///
    /// # Errors
    /// The key does not sign: the last one stays.
    pub(super) fn publish(&mut self, unix_now: u64) -> Result<(), SignatureError> {
        let documents = self.authority.publish(unix_now)?;
        let (relays, times) = (documents.ns.matches("\nr ").count(), documents.times);
        self.keep(unix_now);
        self.show_documents();
        self.show_relays(unix_now);
        if let Some(times) = times {
            self.tell(AuthorityEvent::Consensus(relays, times));
        }
        Ok(())
    }

    /// Writes all that is not written when it comes.
    pub(super) fn keep(&mut self, unix_now: u64) {
        self.authority.forget(unix_now, steady());
        self.drop_relays();
        let kept = self.vault.keep(&self.authority);
        self.complain(kept);
    }

    /// The machine's clock was set, or the machine slept.
    pub(super) fn shift(&mut self, unix_now: u64, by: i64) {
        self.authority.shift(unix_now, by);
        self.show_relays(unix_now);
    }

    /// The authority goes by other settings. Of relays that they ban nothing is left.
    pub(super) fn adopt(&mut self, unix_now: u64, settings: Settings, contact: String) {
        self.authority.adopt(unix_now, settings, contact);
        self.drop_relays();
    }

    /// Gives out these certificates.
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
        let kept = self.vault.put(id, server, extra.map(|(text, _)| text));
        Arc::make_mut(&mut self.cache).relay(id, (server, digest), extra);
        self.complain(kept);
    }

    /// Of a descriptor that was given up nothing is left.
    fn drop_relays(&mut self) {
        for id in self.authority.dropped() {
            self.vault.remove(&id);
            self.cache().forget_relay(&id);
        }
    }

    fn complain(&mut self, kept: Result<(), StoreError>) {
        if let Err(error) = kept {
            self.tell(AuthorityEvent::Trouble(format!(
                "{error}; continuing, but this is not saved to disk"
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

    /// Has the cache give out the descriptors of these days, and no others.
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

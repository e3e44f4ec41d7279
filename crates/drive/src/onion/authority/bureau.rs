//! Who takes descriptors and answers requests, whichever port they come by.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_onion::authority::{Authority, LONGEST_UPLOAD, Refusal, Taken};
use anabranch_onion::directory::cache::{CONSENSUS, Cache};
use anabranch_onion::directory::http::Request;
use anabranch_onion::directory::reply::{Answers, Reply};
use anabranch_onion::wire::dirkeys::SignatureError;
use anabranch_onion::wire::netdoc::AuthorityCert;

use super::vault::Vault;
use super::wall::steady;
use super::{Tell, Told};
use crate::onion::store::StoreError;

/// The authority and what it has to give, shared by the threads of both ports.
pub(super) struct Bureau {
    state: Mutex<State>,
}

/// What the lock guards.
pub(super) struct State {
    pub(super) authority: Authority,
    vault: Vault,
    /// Behind a pointer: who answers from it does not hold the lock meanwhile.
    cache: Arc<Cache>,
    tell: Tell,
}

impl Bureau {
    /// An authority with the state of an earlier run, and the certificates that it gives out.
    pub(super) fn new(
        authority: Authority,
        vault: Vault,
        certificates: Vec<AuthorityCert>,
        tell: Tell,
        unix_now: u64,
    ) -> Bureau {
        let mut cache = Cache::default();
        cache.certs(certificates);
        let mut state = State { authority, vault, cache: Arc::new(cache), tell };
        state.show_documents();
        state.show_relays(unix_now);
        Bureau { state: Mutex::new(state) }
    }

    /// The state, for the authority's own thread.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Nothing is left half done where code can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, request: &Request, peer: Option<IpAddr>, unix_now: u64) -> Reply {
        let Ok(text) = std::str::from_utf8(&request.body) else {
            return Reply::new(400, "A descriptor is text");
        };
        match self.state().upload(unix_now, text, peer) {
            Ok(Taken::New(_)) => Reply::new(200, "OK"),
            // The words that C tor's relays know.
            Ok(Taken::Known) => Reply::new(200, "OK").header("X-Descriptor-Not-New", "Yes"),
            Err(refusal) if refusal.is_no_news() => {
                Reply::new(200, "OK").header("X-Descriptor-Not-New", "Yes")
            }
            Err(refusal) => Reply::new(400, &refusal.to_string()),
        }
    }
}

impl Answers for Bureau {
    /// A consensus is waited for until there is the first: tors complain of each answer that is none.
    fn reply(&self, request: &Request, peer: Option<IpAddr>, unix_now: u64) -> Option<Reply> {
        let reply = match (request.get, &request.path[..]) {
            (true, path) => {
                let cache = Arc::clone(&self.state().cache);
                if cache.is_empty() && path.starts_with(CONSENSUS) {
                    return None;
                }
                cache.find(request)
            }
            (false, "/tor/") => self.publish(request, peer, unix_now),
            (false, _) => Reply::new(404, "Not found"),
        };
        Some(reply.told(unix_now, peer))
    }

    fn longest(&self) -> usize {
        LONGEST_UPLOAD
    }
}

impl fmt::Debug for Bureau {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Bureau").finish_non_exhaustive()
    }
}

impl State {
    /// Tells the operator.
    pub(super) fn tell(&mut self, told: Told) {
        (self.tell)(told);
    }

    /// Takes what a relay published: on disk before it is answered.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(super) fn upload(
        &mut self,
        unix_now: u64,
        text: &str,
        peer: Option<IpAddr>,
    ) -> Result<Taken, Refusal> {
        let taken = self.authority.upload(unix_now, text, peer);
        match &taken {
            Ok(Taken::New(id)) => {
                self.keep_relay(*id);
                let known = self.authority.descriptors(unix_now).count();
                self.tell(Told::Relay(*id, known));
            }
            Ok(Taken::Known) => {}
            Err(refusal) if refusal.is_no_news() => {}
            Err(refusal) => self.tell(Told::Refused(refusal.to_string())),
        }
        taken
    }

    /// Makes a consensus and keeps it.
    ///
    /// # Errors
    /// The key does not sign: the last one stays.
    pub(super) fn publish(&mut self, unix_now: u64) -> Result<(), SignatureError> {
        let documents = self.authority.publish(unix_now)?;
        let (relays, times) = (documents.ns.matches("\nr ").count(), documents.times);
        self.show_documents();
        self.show_relays(unix_now);
        self.keep(unix_now);
        if let Some(times) = times {
            self.tell(Told::Consensus(relays, times));
        }
        Ok(())
    }

    /// Writes all that is not written when it comes.
    pub(super) fn keep(&mut self, unix_now: u64) {
        let dropped = self.authority.forget(unix_now, steady());
        let kept = self.vault.keep(&self.authority, &dropped);
        self.complain(kept);
    }

    /// The machine's clock was set.
    pub(super) fn shift(&mut self, unix_now: u64, by: i64) {
        self.authority.shift(unix_now, by);
        self.show_relays(unix_now);
    }

    /// Gives out these certificates.
    pub(super) fn certify(&mut self, certificates: Vec<AuthorityCert>) {
        Arc::make_mut(&mut self.cache).certs(certificates);
    }

    /// Our own descriptor: taken like any other, and given to who asks for it by that name.
    pub(super) fn own_descriptor(&mut self, unix_now: u64, text: String) -> Result<Taken, Refusal> {
        let taken = self.upload(unix_now, &text, None)?;
        Arc::make_mut(&mut self.cache).own_descriptor(text);
        Ok(taken)
    }

    fn keep_relay(&mut self, id: [u8; 20]) {
        let Some((server, digest)) = self.authority.descriptor(&id) else { return };
        let extra = self.authority.extra(&id);
        Arc::make_mut(&mut self.cache).relay(id, (server, digest), extra);
        let kept = self.vault.put(id, server, extra.map(|(text, _)| text));
        self.complain(kept);
    }

    fn complain(&mut self, kept: Result<(), StoreError>) {
        if let Err(error) = kept {
            self.tell(Told::Trouble(format!("{error}; going on without it on disk")));
        }
    }

    fn show_documents(&mut self) {
        let documents = self.authority.documents();
        let Some(identity) = documents.times.map(|_| self.authority.identity()) else { return };
        let cache = Arc::make_mut(&mut self.cache);
        for text in [&documents.ns, &documents.microdesc] {
            cache.consensus(text.clone(), vec![identity]);
        }
        let named = documents.microdescs.keys().copied().collect();
        cache.keep_microdescs(&named);
        for (digest, (text, _)) in &documents.microdescs {
            cache.microdesc_text(*digest, text);
        }
    }

    /// Has the cache give out the descriptors of these days, and no others.
    fn show_relays(&mut self, unix_now: u64) {
        let cache = Arc::make_mut(&mut self.cache);
        let known = self.authority.descriptors(unix_now).map(|(id, ..)| *id).collect();
        cache.keep_relays(&known);
        for (id, digest, server) in self.authority.descriptors(unix_now) {
            cache.relay(*id, (server, digest), self.authority.extra(id));
        }
    }
}

//! Replies to directory requests, and acceptance of descriptors, for the directory port and the
//! relay's port. No call here waits for a disk, for compression or for the program that reads this
//! process's log. If the work is slow, the reply is a [`Promise`], which the registry's thread or
//! a compression thread fulfils.

use std::fmt;
use std::net::IpAddr;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use anabranch_onion::authority::{LONGEST_UPLOAD, Room};
use anabranch_onion::directory::cache::{CONSENSUS, Cache};
use anabranch_onion::directory::http::Request;
use anabranch_onion::directory::reply::Reply;
use anabranch_onion::wire::extend::Target;

use super::Changes;
use crate::onion::answers::{Answer, Answers, Promise};
use crate::onion::compressed::CompressedBodies;
use crate::onion::dirclient::{News, NewsSender};

/// Message to the registry, the authority's main thread.
pub(super) enum RegistryMessage {
    /// A client has uploaded a relay's descriptor. `from` is the client's address, if it is known.
    /// `promise` will get the reply.
    Upload { body: Vec<u8>, from: Option<IpAddr>, promise: Promise },
    /// A probe of the relay `target` has ended, at `at` in seconds since 1970. `answers` states
    /// whether the relay answered.
    Probed { target: Target, answers: bool, at: u64 },
    /// The number of further probes (test connections to relays) that may be started now.
    Room(Room),
    /// The operator has changed the settings.
    Settings(Box<Changes>),
    /// The directory port's thread has failed; the text is the reason.
    Ends(String),
}

/// State that the directory port, the relay's port and the registry's thread share.
pub(super) struct SharedAnswers {
    /// Documents to serve. The lock is held only while the pointer is copied.
    current: Mutex<Arc<Cache>>,
    messages: Mutex<Sender<RegistryMessage>>,
    compressed: CompressedBodies,
    /// Wakers of the directory port's thread and of the relay, used when there are new replies.
    wakers: Mutex<[NewsSender; 2]>,
    me: Weak<SharedAnswers>,
}

impl SharedAnswers {
    /// Creates the shared state, without documents. `messages` sends to the registry's thread.
    /// `wakers` wake the directory port's thread and the relay.
    pub(super) fn new(
        messages: Sender<RegistryMessage>,
        wakers: [NewsSender; 2],
    ) -> Arc<SharedAnswers> {
        Arc::new_cyclic(|me| SharedAnswers {
            current: Mutex::default(),
            messages: Mutex::new(messages),
            compressed: CompressedBodies::default(),
            wakers: Mutex::new(wakers),
            me: me.clone(),
        })
    }

    /// Replaces the documents that are served by those in `cache`.
    pub(super) fn show(&self, cache: Arc<Cache>) {
        *lock(&self.current) = cache;
    }

    /// Wakes the threads whose clients wait for replies.
    pub(super) fn wake(&self) {
        let Some(me) = self.me.upgrade() else { return };
        for signal in lock(&self.wakers).iter_mut() {
            signal.send(News::Cache(Arc::clone(&me) as Arc<dyn Answers>));
        }
    }

    /// Sends a message to the registry's thread.
    pub(super) fn write(&self, letter: RegistryMessage) {
        // If there is no receiver, the authority has ended.
        let _ = lock(&self.messages).send(letter);
    }

    fn look_up(&self, request: &Request) -> Answer {
        let cache = Arc::clone(&lock(&self.current));
        if cache.is_empty() && request.path.starts_with(CONSENSUS) {
            // Tor logs a warning for each answer without a consensus, so the request waits for the
            // first consensus.
            return Answer::Later;
        }
        self.compressed.answer_for(&cache, request, &self.me, SharedAnswers::wake)
    }
}

impl Answers for SharedAnswers {
    fn answer(&self, request: &Request, peer: Option<IpAddr>) -> Answer {
        match (request.get, &request.path[..]) {
            (true, _) => self.look_up(request),
            (false, "/tor/") => {
                let (body, promise) = (request.body.clone(), Promise::default());
                self.write(RegistryMessage::Upload { body, from: peer, promise: promise.clone() });
                Answer::Promised(promise)
            }
            (false, _) => Answer::Reply(Reply::new(404, "Not found")),
        }
    }

    fn longest(&self) -> usize {
        LONGEST_UPLOAD
    }
}

impl fmt::Debug for SharedAnswers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SharedAnswers").finish_non_exhaustive()
    }
}

/// Locks `mutex`. Ignores poisoning: each change is complete before anything can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! The directory documents that a caching relay serves: the latest versions, and their compressed
//! forms.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use anabranch_onion::directory::cache::Cache;
use anabranch_onion::directory::http::Request;

use super::answers::{Answer, Answers};
use super::compressed::CompressedBodies;
use super::dirclient::news::{News, NewsSender};

/// The latest directory documents, which all threads that answer requests share.
pub(super) struct ServedDocuments {
    /// Documents to serve. The lock is held only while the pointer is copied.
    current: Mutex<Arc<Cache>>,
    compressed: CompressedBodies,
    /// Sender of wake-ups to the relay's threads whose clients may wait for replies.
    signal: Mutex<NewsSender>,
    me: Weak<ServedDocuments>,
}

impl ServedDocuments {
    /// Creates a source of replies without documents. `signal` wakes the threads that answer
    /// requests.
    pub(super) fn new(signal: NewsSender) -> Arc<ServedDocuments> {
        Arc::new_cyclic(|me| ServedDocuments {
            current: Mutex::default(),
            compressed: CompressedBodies::default(),
            signal: Mutex::new(signal),
            me: me.clone(),
        })
    }

    /// Replaces the documents that are served by those in `cache`.
    pub(super) fn show(&self, cache: Arc<Cache>) {
        *lock(&self.current) = cache;
    }

    /// Wakes the threads that answer requests, so that they check waiting requests again.
    pub(super) fn wake(&self) {
        let Some(me) = self.me.upgrade() else { return };
        lock(&self.signal).send(News::Cache(me as Arc<dyn Answers>));
    }
}

impl Answers for ServedDocuments {
    fn answer(&self, request: &Request, _: Option<IpAddr>) -> Answer {
        let cache = Arc::clone(&lock(&self.current));
        self.compressed.answer_for(&cache, request, &self.me, ServedDocuments::wake)
    }
}

impl fmt::Debug for ServedDocuments {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ServedDocuments").finish_non_exhaustive()
    }
}

/// Locks `mutex`. Ignores poisoning: each change is complete before anything can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

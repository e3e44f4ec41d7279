//! What onion services publish at this relay: one store for all its shards.

use std::sync::{Arc, Mutex, PoisonError};

use anabranch_onion::directory::hsdir::HsDir;
use anabranch_onion::directory::http::Request;
use anabranch_onion::directory::reply::Reply;

/// The store. It is locked for as long as it takes to check one descriptor, or to write one.
#[derive(Clone, Default)]
pub(super) struct SharedHsDir(Arc<Mutex<HsDir>>);

impl SharedHsDir {
    /// The answer to a request, if it is one for this store. `by_relay` as [`HsDir::answer`] has
    /// it.
    pub(super) fn answer(&self, request: &Request, by_relay: bool, unix: u64) -> Option<Reply> {
        if !HsDir::is_asked(request) {
            return None;
        }
        // Each change is whole before anything can panic.
        let mut store = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Some(store.answer(request, by_relay, unix))
    }
}

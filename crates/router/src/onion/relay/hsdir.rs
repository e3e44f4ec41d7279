//! Store of the onion service descriptors that are published at this relay. All shards share it.

use std::sync::{Arc, Mutex, PoisonError};

use anabranch_onion::directory::hsdir::HsDir;
use anabranch_onion::directory::http::Request;
use anabranch_onion::directory::reply::Reply;

/// The store of descriptors. It is locked while a descriptor is checked or written.
#[derive(Clone, Default)]
pub(super) struct SharedHsDir(Arc<Mutex<HsDir>>);

impl SharedHsDir {
    /// Returns the answer to `request` if it is about onion service descriptors; `None` otherwise.
    /// [`HsDir::answer`] describes `by_relay`.
    pub(super) fn answer(&self, request: &Request, by_relay: bool, unix: u64) -> Option<Reply> {
        if !HsDir::is_asked(request) {
            return None;
        }
        // Each change is complete before anything can panic.
        let mut store = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Some(store.answer(request, by_relay, unix))
    }
}

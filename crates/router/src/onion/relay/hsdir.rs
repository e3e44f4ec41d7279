//! Descriptors of onion services that are published at this relay. All of the relay's threads
//! share them.

use std::sync::{Arc, Mutex, PoisonError};

use anabranch_onion::directory::hsdir::HsDir;
use anabranch_onion::directory::http::Request;
use anabranch_onion::directory::reply::Reply;

/// Store of onion service descriptors. It is locked while a descriptor is checked or written.
#[derive(Clone, Default)]
pub(super) struct SharedHsDir(Arc<Mutex<HsDir>>);

impl SharedHsDir {
    /// Returns the reply to `request` if the request is about onion service descriptors; `None`
    /// otherwise. [`HsDir::answer`] explains `by_relay`.
    pub(super) fn answer(&self, request: &Request, by_relay: bool, unix: u64) -> Option<Reply> {
        if !HsDir::is_asked(request) {
            return None;
        }
        // Each change is complete before anything can panic.
        let mut store = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Some(store.answer(request, by_relay, unix))
    }
}

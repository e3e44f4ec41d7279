//! Compression of long directory replies, each on its own thread. A reply with the documents of
//! all relays is compressed once and shared until the documents change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use anabranch_onion::directory::cache::Cache;
use anabranch_onion::directory::http::Request;
use anabranch_onion::directory::reply::{Encoding, Reply};

use crate::onion::answers::{Answer, Promise};

/// Request paths whose replies are compressed once and shared.
const PATHS: [&str; 2] = ["/tor/server/all", "/tor/extra/all"];
/// Maximum size in bytes of a reply that the event loop compresses itself, which takes a few
/// milliseconds. Larger replies are compressed on other threads.
const QUICK: usize = 256 << 10;
/// Maximum number of replies that are compressed at the same time. Requests for further replies
/// wait.
const MOST_AT_ONCE: usize = 2;
/// Maximum total size of stored compressed replies, in bytes.
const MOST_BYTES: usize = 32 << 20;

/// Identification of a compressible reply: the path of the directory request, and the encoding of
/// the reply.
type Kind = (String, Encoding);

/// Compressed directory replies of a relay or authority.
#[derive(Debug, Default)]
pub(super) struct CompressedBodies(Arc<Mutex<CompressedState>>);

#[derive(Debug, Default)]
struct CompressedState {
    /// Version number of the cached documents from which the replies in `ready` were made. If it
    /// changes, these replies are outdated.
    edition: u64,
    ready: BTreeMap<Kind, Reply>,
    /// Replies that other threads are compressing, by version of the cached documents, path and
    /// encoding.
    coming: BTreeMap<(u64, Kind), Promise>,
}

impl CompressedBodies {
    /// Returns the reply to `request`, or a promise while the reply is being compressed. Once the
    /// reply is ready, another thread calls `wake` on `owner`, if `owner` still exists.
    pub(super) fn answer_for<O: Send + Sync + 'static>(
        &self,
        cache: &Arc<Cache>,
        request: &Request,
        owner: &Weak<O>,
        wake: fn(&O),
    ) -> Answer {
        let owner = owner.clone();
        let wake = move || {
            if let Some(owner) = owner.upgrade() {
                wake(&owner);
            }
        };
        let long = self.answer(cache, request, wake);
        long.unwrap_or_else(|| Answer::Reply(cache.find(request)))
    }

    /// Returns the answer to a request whose reply takes long to compress; `None` for other
    /// requests. Once the reply is ready, another thread calls `wake`.
    fn answer(
        &self,
        cache: &Arc<Cache>,
        request: &Request,
        wake: impl FnOnce() + Send + 'static,
    ) -> Option<Answer> {
        if !PATHS.contains(&&request.path[..]) && cache.unpacked(request) <= QUICK {
            return None;
        }
        let (edition, kind) = (cache.edition(), (request.path.clone(), request.encoding));
        let mut state = self.lock();
        if let Some(reply) = state.ready(edition, &kind) {
            return Some(Answer::Reply(reply));
        }
        if let Some(promise) = state.coming.get(&(edition, kind.clone())) {
            return Some(Answer::Promised(promise.clone()));
        }
        if state.coming.len() >= MOST_AT_ONCE {
            return Some(Answer::Later);
        }
        let promise = state.coming.entry((edition, kind.clone())).or_default().clone();
        drop(state);
        let (state, cache, request) = (Arc::clone(&self.0), Arc::clone(cache), request.clone());
        let (kept, made, mine) = (promise.clone(), CompressedBodies(state), kind.clone());
        let work = move || {
            let reply = cache.find(&request);
            made.lock().put(edition, mine, &reply);
            kept.keep(reply);
            wake();
        };
        if thread::Builder::new().name("packing".into()).spawn(work).is_err() {
            self.lock().coming.remove(&(edition, kind));
            return Some(Answer::Reply(Reply::new(503, "Busy")));
        }
        Some(Answer::Promised(promise))
    }

    fn lock(&self) -> MutexGuard<'_, CompressedState> {
        // Each change is complete before anything can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CompressedState {
    fn ready(&mut self, edition: u64, kind: &Kind) -> Option<Reply> {
        if self.edition != edition {
            (self.edition, self.ready) = (edition, BTreeMap::new());
        }
        self.ready.get(kind).cloned()
    }

    /// Stores a compressed `reply` for later requests, if its path is in [`PATHS`]. `edition` is
    /// the version of the documents from which it was made. Does not store a reply of an old
    /// version, or a reply for which there is no room ([`MOST_BYTES`]).
    fn put(&mut self, edition: u64, kind: Kind, reply: &Reply) {
        self.coming.remove(&(edition, kind.clone()));
        let bytes: usize = self.ready.values().map(Reply::length).sum();
        let is_asked_often = PATHS.contains(&&kind.0[..]);
        if is_asked_often && self.edition == edition && bytes + reply.length() <= MOST_BYTES {
            self.ready.insert(kind, reply.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn request(path: &str, encoding: Encoding) -> Request {
        Request {
            get: true,
            path: path.into(),
            encoding,
            since: None,
            has: Vec::new(),
            body: Vec::new(),
        }
    }

    fn cache(relays: u8) -> Arc<Cache> {
        let mut cache = Cache::default();
        let text = "router ".repeat(1_000);
        (0..relays).for_each(|id| cache.relay([id; 20], (&text, [id; 20]), None));
        Arc::new(cache)
    }

    #[test]
    fn an_answer_is_packed_once_until_descriptors_change() {
        let (compressed, mut cache) = (CompressedBodies::default(), cache(3));
        let (wake, wake_ups) = channel();
        let ask = |cache: &Arc<Cache>, encoding| {
            let wake = wake.clone();
            compressed.answer(cache, &request(PATHS[0], encoding), move || wake.send(()).unwrap())
        };
        let Some(Answer::Promised(promise)) = ask(&cache, Encoding::Zstd) else { panic!() };
        wake_ups.recv().unwrap();
        let first = promise.kept().unwrap();
        let Some(Answer::Reply(again)) = ask(&cache, Encoding::Zstd) else { panic!() };
        assert!(first.shares(&again), "the same bytes, not packed anew");
        assert!(first.length() < 1_000, "packed");
        assert!(matches!(ask(&cache, Encoding::Identity), Some(Answer::Promised(_))));
        wake_ups.recv().unwrap();
        Arc::make_mut(&mut cache).relay([1; 20], ("router another", [9; 20]), None);
        let Some(Answer::Promised(promise)) = ask(&cache, Encoding::Zstd) else { panic!() };
        wake_ups.recv().unwrap();
        assert!(!first.shares(&promise.kept().unwrap()));
        assert_eq!(compressed.lock().ready.len(), 1, "what was is forgotten");
        assert!(
            compressed.answer(&cache, &request("/tor/keys/all", Encoding::Zstd), || ()).is_none()
        );
    }

    #[test]
    fn a_long_list_is_packed_elsewhere_and_not_kept() {
        let (compressed, (wake, wake_ups)) = (CompressedBodies::default(), channel());
        let list = |ids: std::ops::Range<u8>| {
            let names: Vec<String> = ids.map(|id| format!("{id:02x}").repeat(20)).collect();
            request(&format!("/tor/server/fp/{}", names.join("+")), Encoding::Deflate)
        };
        let cache = cache(90);
        assert!(compressed.answer(&cache, &list(0..30), || ()).is_none(), "210 kB");
        let wake = move || wake.send(()).unwrap();
        let Some(Answer::Promised(promise)) = compressed.answer(&cache, &list(0..80), wake) else {
            panic!("560 kB are promised");
        };
        wake_ups.recv().unwrap();
        assert_eq!((promise.kept().unwrap().status(), compressed.lock().ready.len()), (200, 0));
    }

    #[test]
    fn what_is_too_long_to_be_kept_is_told_all_the_same() {
        let mut state = CompressedState::default();
        let reply = Reply::ok(&vec![0; MOST_BYTES - 1], Encoding::Identity);
        let kind = |place: usize, encoding| (PATHS[place].to_owned(), encoding);
        state.put(0, kind(0, Encoding::Identity), &reply);
        state.put(0, kind(1, Encoding::Identity), &reply);
        assert_eq!(state.ready.len(), 1);
        state.put(7, kind(1, Encoding::Gzip), &Reply::new(200, "OK"));
        assert_eq!(state.ready.len(), 1, "it is of another edition");
    }
}

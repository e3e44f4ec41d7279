//! Answers that hold the documents of all relays: long to pack, so that each is packed once for all who ask before something changes, by a
//! thread of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anabranch_onion::directory::cache::Cache;
use anabranch_onion::directory::http::Request;
use anabranch_onion::directory::reply::{Encoding, Reply};

use crate::onion::answers::{Answer, Promise};

/// What has such answers.
const PATHS: [&str; 2] = ["/tor/server/all", "/tor/extra/all"];
/// Answers that are packed at once; who wants another one waits.
const MOST_AT_ONCE: usize = 2;
/// Bytes of all answers that are kept.
const MOST_BYTES: usize = 64 << 20;

/// The place of its path, and how it is packed.
type Kind = (usize, Encoding);

/// The answers.
#[derive(Debug, Default)]
pub(super) struct Wholes(Arc<Mutex<Shelf>>);

#[derive(Debug, Default)]
struct Shelf {
    /// Of which edition of the cache `ready` is.
    edition: u64,
    ready: BTreeMap<Kind, Reply>,
    /// Those that are being made, of whatever edition.
    coming: BTreeMap<(u64, Kind), Promise>,
}

impl Wholes {
    /// What becomes of this request, if it is one of these. `ring` is called when there is something new, by another thread.
    pub(super) fn answer(
        &self,
        cache: &Arc<Cache>,
        request: &Request,
        ring: impl FnOnce() + Send + 'static,
    ) -> Option<Answer> {
        let path = PATHS.iter().position(|path| request.path == *path)?;
        let (edition, kind) = (cache.edition(), (path, request.encoding));
        let mut shelf = self.shelf();
        if let Some(reply) = shelf.ready(edition, kind) {
            return Some(Answer::Reply(reply));
        }
        if let Some(promise) = shelf.coming.get(&(edition, kind)) {
            return Some(Answer::Promised(promise.clone()));
        }
        if shelf.coming.len() >= MOST_AT_ONCE {
            return Some(Answer::Later);
        }
        let promise = shelf.coming.entry((edition, kind)).or_default().clone();
        drop(shelf);
        let (shelf, cache, request) = (Arc::clone(&self.0), Arc::clone(cache), request.clone());
        let (kept, made) = (promise.clone(), Wholes(shelf));
        let work = move || {
            let reply = cache.find(&request);
            made.shelf().put(edition, kind, &reply);
            kept.keep(reply);
            ring();
        };
        if thread::Builder::new().name("packing".into()).spawn(work).is_err() {
            self.shelf().coming.remove(&(edition, kind));
            return Some(Answer::Reply(Reply::new(503, "Busy")));
        }
        Some(Answer::Promised(promise))
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        // Each change is whole before anything can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    fn ready(&mut self, edition: u64, kind: Kind) -> Option<Reply> {
        if self.edition != edition {
            (self.edition, self.ready) = (edition, BTreeMap::new());
        }
        self.ready.get(&kind).cloned()
    }

    /// Keeps what was made, if it is of these days and there is room.
    fn put(&mut self, edition: u64, kind: Kind, reply: &Reply) {
        self.coming.remove(&(edition, kind));
        let bytes: usize = self.ready.values().map(Reply::length).sum();
        if self.edition == edition && bytes + reply.length() <= MOST_BYTES {
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
        let (wholes, mut cache) = (Wholes::default(), cache(3));
        let (rung, rings) = channel();
        let ask = |cache: &Arc<Cache>, encoding| {
            let rung = rung.clone();
            wholes.answer(cache, &request(PATHS[0], encoding), move || rung.send(()).unwrap())
        };
        let Some(Answer::Promised(promise)) = ask(&cache, Encoding::Zstd) else { panic!() };
        rings.recv().unwrap();
        let first = promise.kept().unwrap();
        let Some(Answer::Reply(again)) = ask(&cache, Encoding::Zstd) else { panic!() };
        assert!(first.shares(&again), "the same bytes, not packed anew");
        assert!(first.length() < 1_000, "packed");
        assert!(matches!(ask(&cache, Encoding::Identity), Some(Answer::Promised(_))));
        rings.recv().unwrap();
        Arc::make_mut(&mut cache).relay([1; 20], ("router another", [9; 20]), None);
        let Some(Answer::Promised(promise)) = ask(&cache, Encoding::Zstd) else { panic!() };
        rings.recv().unwrap();
        assert!(!first.shares(&promise.kept().unwrap()));
        assert_eq!(wholes.shelf().ready.len(), 1, "what was is forgotten");
        assert!(wholes.answer(&cache, &request("/tor/keys/all", Encoding::Zstd), || ()).is_none());
    }

    #[test]
    fn what_is_too_long_to_be_kept_is_told_all_the_same() {
        let mut shelf = Shelf::default();
        let reply = Reply::ok(&vec![0; MOST_BYTES - 1], Encoding::Identity);
        shelf.put(0, (0, Encoding::Identity), &reply);
        shelf.put(0, (1, Encoding::Identity), &reply);
        assert_eq!(shelf.ready.len(), 1);
        shelf.put(7, (1, Encoding::Gzip), &Reply::new(200, "OK"));
        assert_eq!(shelf.ready.len(), 1, "it is of another edition");
    }
}

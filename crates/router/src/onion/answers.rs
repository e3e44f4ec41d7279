//! Answers to directory requests, either immediate or deferred. Slow work is done on other threads,
//! so that it does not block an event loop.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use anabranch_onion::directory::cache::Cache;
use anabranch_onion::directory::http::Request;
use anabranch_onion::directory::reply::Reply;

/// Result of a directory request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The answer is ready.
    Reply(Reply),
    /// There is no answer yet. The caller must ask again after the next notification.
    Later,
    /// Another thread is preparing the answer.
    Promised(Promise),
}

/// An answer that another thread prepares. That thread has to notify the waiting thread after
/// [`Promise::keep`].
#[derive(Clone, Debug, Default)]
pub struct Promise(Arc<OnceLock<Reply>>);

impl Promise {
    /// Stores the answer `reply`; later calls have no effect.
    pub fn keep(&self, reply: Reply) {
        let _ = self.0.set(reply);
    }

    /// Returns the answer if it is stored already; `None` otherwise.
    #[must_use]
    pub fn kept(&self) -> Option<Reply> {
        self.0.get().cloned()
    }
}

/// A source of answers to directory requests.
pub trait Answers: fmt::Debug + Send + Sync {
    /// Answers `request`. `peer` is the client's address, if it is known. An implementation must
    /// not block: it may take no longer than a table look-up.
    fn answer(&self, request: &Request, peer: Option<IpAddr>) -> Answer;

    /// Returns the maximum length of a request's body that is accepted, in bytes.
    fn longest(&self) -> usize {
        32 << 10
    }
}

impl Answers for Cache {
    fn answer(&self, request: &Request, _: Option<IpAddr>) -> Answer {
        Answer::Reply(self.find(request))
    }
}

/// A request that has not been answered yet.
#[derive(Debug)]
pub struct PendingRequest {
    request: Request,
    promise: Option<Promise>,
}

impl PendingRequest {
    /// Wraps a request that has arrived.
    #[must_use]
    pub fn new(request: Request) -> PendingRequest {
        PendingRequest { request, promise: None }
    }

    /// Returns the answer if there is one now, with the headers that every directory adds.
    /// `unix_now` is the time for the `Date` header, in seconds since 1970. `peer` is the client's
    /// address, if it is known.
    pub fn look(
        &mut self,
        answers: &dyn Answers,
        peer: Option<IpAddr>,
        unix_now: u64,
    ) -> Option<Reply> {
        let reply = match &self.promise {
            Some(promise) => promise.kept()?,
            None => match answers.answer(&self.request, peer) {
                Answer::Reply(reply) => reply,
                Answer::Later => return None,
                Answer::Promised(promise) => {
                    let kept = promise.kept();
                    self.promise = Some(promise);
                    kept?
                }
            },
        };
        Some(reply.with_common_headers(unix_now, peer))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Promises an answer at the second request, and counts them.
    #[derive(Debug, Default)]
    struct Slow {
        asked: AtomicUsize,
        promise: Promise,
    }

    impl Answers for Slow {
        fn answer(&self, _: &Request, _: Option<IpAddr>) -> Answer {
            match self.asked.fetch_add(1, Ordering::Relaxed) {
                0 => Answer::Later,
                _ => Answer::Promised(self.promise.clone()),
            }
        }
    }

    #[test]
    fn what_was_promised_is_not_asked_for_again() {
        let slow = Slow::default();
        let request = Request {
            get: true,
            path: "/".into(),
            encoding: Default::default(),
            since: None,
            has: Vec::new(),
            body: Vec::new(),
        };
        let mut waiting = PendingRequest::new(request);
        let mut look = || waiting.look(&slow, None, 1_800_000_000);
        assert_eq!((look(), look(), look()), (None, None, None));
        slow.promise.keep(Reply::new(200, "OK"));
        assert_eq!(look().unwrap().status(), 200);
        assert_eq!(slow.asked.load(Ordering::Relaxed), 2);
    }
}

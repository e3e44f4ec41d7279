//! Replies to directory requests, either immediate or deferred. Slow work is done on other
//! threads, so that it does not block an event loop.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use anabranch_onion::directory::cache::Cache;
use anabranch_onion::directory::http::Request;
use anabranch_onion::directory::reply::Reply;

/// Result of passing a directory request to an implementation of [`Answers`]: the reply, or how to
/// get it later.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The reply is ready.
    Reply(Reply),
    /// The reply is not available yet. The caller must ask again once its thread is notified of
    /// new replies.
    Later,
    /// Another thread is preparing the reply.
    Promised(Promise),
}

/// A reply that another thread is preparing. After the preparing thread has called
/// [`Promise::keep`], it must notify the thread that waits for the reply.
#[derive(Clone, Debug, Default)]
pub struct Promise(Arc<OnceLock<Reply>>);

impl Promise {
    /// Stores `reply` for the waiting thread; later calls have no effect.
    pub fn keep(&self, reply: Reply) {
        let _ = self.0.set(reply);
    }

    /// Returns the reply if [`Promise::keep`] has stored it; `None` otherwise.
    #[must_use]
    pub fn kept(&self) -> Option<Reply> {
        self.0.get().cloned()
    }
}

/// A source of replies to directory requests.
pub trait Answers: fmt::Debug + Send + Sync {
    /// Returns the reply to `request`, or how to get the reply later. `peer` is the client's
    /// address, if it is known. An implementation must not block: it may take no longer than a
    /// table look-up.
    fn answer(&self, request: &Request, peer: Option<IpAddr>) -> Answer;

    /// Returns the maximum length, in bytes, of a request body that is accepted.
    fn longest(&self) -> usize {
        32 << 10
    }
}

impl Answers for Cache {
    fn answer(&self, request: &Request, _: Option<IpAddr>) -> Answer {
        Answer::Reply(self.find(request))
    }
}

/// A directory request that has not been answered yet.
#[derive(Debug)]
pub struct PendingRequest {
    request: Request,
    promise: Option<Promise>,
}

impl PendingRequest {
    /// Wraps a directory request that has arrived.
    #[must_use]
    pub fn new(request: Request) -> PendingRequest {
        PendingRequest { request, promise: None }
    }

    /// Returns the reply if `answers` has it now, and `None` otherwise. The reply includes the
    /// headers that every directory adds. `unix_now` is the time for the `Date` header, in seconds
    /// since 1970. `peer` is the client's address, if it is known.
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

    /// A source that promises an answer at the second request, and counts requests.
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

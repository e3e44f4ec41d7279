//! Who answers directory requests, at once or after a while: what takes long is done by others, so
//! that no thread that moves bytes waits for it.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use anabranch_onion::directory::cache::Cache;
use anabranch_onion::directory::http::Request;
use anabranch_onion::directory::reply::Reply;

/// What becomes of a request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// This.
    Reply(Reply),
    /// It is worth waiting: ask again when there is something new.
    Later,
    /// Somebody makes it.
    Promised(Promise),
}

/// An answer that somebody makes. Who has kept it says that there is something new.
#[derive(Clone, Debug, Default)]
pub struct Promise(Arc<OnceLock<Reply>>);

impl Promise {
    /// Gives the answer; the first one counts.
    pub fn keep(&self, reply: Reply) {
        let _ = self.0.set(reply);
    }

    /// The answer, once it is there.
    #[must_use]
    pub fn kept(&self) -> Option<Reply> {
        self.0.get().cloned()
    }
}

/// Who answers directory requests.
pub trait Answers: fmt::Debug + Send + Sync {
    /// What becomes of a request from `peer`, if that is known. Takes no longer than looking
    /// something up.
    fn answer(&self, request: &Request, peer: Option<IpAddr>) -> Answer;

    /// The longest body of a request that is taken, in bytes.
    fn longest(&self) -> usize {
        32 << 10
    }
}

impl Answers for Cache {
    fn answer(&self, request: &Request, _: Option<IpAddr>) -> Answer {
        Answer::Reply(self.find(request))
    }
}

/// A request that has no answer yet.
#[derive(Debug)]
pub struct PendingRequest {
    request: Request,
    promise: Option<Promise>,
}

impl PendingRequest {
    /// A request that came.
    #[must_use]
    pub fn new(request: Request) -> PendingRequest {
        PendingRequest { request, promise: None }
    }

    /// The answer, if it is there by now; with what every directory says besides, at `unix_now`.
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
        Some(reply.told(unix_now, peer))
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

//! Who answers requests and takes descriptors, whichever port they come by. Nothing here waits for
//! a disk, for packing or for a reader of our lines: what takes time is promised, and done by the
//! registry or a thread that packs.

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

/// What the registry is told.
pub(super) enum Letter {
    /// A relay, or somebody from there, published this.
    Upload { body: Vec<u8>, from: Option<IpAddr>, promise: Promise },
    /// A probe is over; when it was, in seconds since 1970.
    Probed { target: Target, answers: bool, at: u64 },
    /// There is room for probes.
    Room(Room),
    /// The operator wants something else.
    Settings(Box<Changes>),
    /// The directory port's thread ends; why.
    Ends(String),
}

/// What both ports have in common.
pub(super) struct SharedAnswers {
    /// Held for no longer than it takes to copy a pointer.
    shown: Mutex<Arc<Cache>>,
    letters: Mutex<Sender<Letter>>,
    compressed: CompressedBodies,
    /// Who is told that there is something new: the directory port's thread, and the relay.
    bells: Mutex<[NewsSender; 2]>,
    me: Weak<SharedAnswers>,
}

impl SharedAnswers {
    /// With nothing to give yet. Letters go to the registry, news to the directory port's thread
    /// and to the relay.
    pub(super) fn new(letters: Sender<Letter>, bells: [NewsSender; 2]) -> Arc<SharedAnswers> {
        Arc::new_cyclic(|me| SharedAnswers {
            shown: Mutex::default(),
            letters: Mutex::new(letters),
            compressed: CompressedBodies::default(),
            bells: Mutex::new(bells),
            me: me.clone(),
        })
    }

    /// Gives out this from now on.
    pub(super) fn show(&self, cache: Arc<Cache>) {
        *lock(&self.shown) = cache;
    }

    /// Tells everybody who waits for an answer to look again.
    pub(super) fn ring(&self) {
        let Some(me) = self.me.upgrade() else { return };
        for bell in lock(&self.bells).iter_mut() {
            bell.tell(News::Cache(Arc::clone(&me) as Arc<dyn Answers>));
        }
    }

    /// Tells the registry.
    pub(super) fn write(&self, letter: Letter) {
        // Nobody reads it once the authority ends.
        let _ = lock(&self.letters).send(letter);
    }

    fn look_up(&self, request: &Request) -> Answer {
        let cache = Arc::clone(&lock(&self.shown));
        if cache.is_empty() && request.path.starts_with(CONSENSUS) {
            // Tors complain of each answer that is none.
            return Answer::Later;
        }
        self.compressed.answer_for(&cache, request, &self.me, SharedAnswers::ring)
    }
}

impl Answers for SharedAnswers {
    fn answer(&self, request: &Request, peer: Option<IpAddr>) -> Answer {
        match (request.get, &request.path[..]) {
            (true, _) => self.look_up(request),
            (false, "/tor/") => {
                let (body, promise) = (request.body.clone(), Promise::default());
                self.write(Letter::Upload { body, from: peer, promise: promise.clone() });
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
        out.debug_struct("Bureau").finish_non_exhaustive()
    }
}

/// Each change is whole before anything can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

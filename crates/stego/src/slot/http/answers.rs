//! What answers are, tier by tier: the one place for what differs between bodies that are made of
//! hidden bytes, pictures, and objects of a site.

use anabranch_multipath::Time;

use super::body::Body;
use super::head::{ANSWER_MOST, AnswerHead, Heads};
use super::site::Object;
use super::{Hidden, MOST, NotCover, RESERVE, Tier};

/// How a server hides bytes in its answers.
#[derive(Debug)]
pub(super) enum Answers {
    /// In bodies that are made of them.
    Made,
    /// In pictures: that of the next answer, and how many answers there were.
    Pictures { picture: usize, answers: usize },
    /// In objects of a site.
    Objects(Course),
}

/// Where in a site a client is.
#[derive(Debug, Default)]
pub(super) struct Course {
    /// The object that was asked for, and the one that is to be asked for next.
    object: usize,
    next: usize,
    /// What chooses where a site has several, drawn from what clients hide, which is random.
    turn: u64,
}

/// What an answer is to say beside what it hides.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadFacts {
    pub(super) now: Time,
    /// Whether the connection closes behind it.
    pub(super) closes: bool,
    /// Since when there is the file that was asked for [seconds since 1970]; a POST asks for none.
    pub(super) modified: Option<u64>,
}

impl Answers {
    pub(super) fn of(tier: Tier) -> Answers {
        match tier {
            Tier::Opaque | Tier::Text => Answers::Made,
            Tier::Image => Answers::Pictures { picture: 0, answers: 0 },
            Tier::Site => Answers::Objects(Course::default()),
        }
    }

    /// A request came for this path, with these hidden bytes: of a site the object is answered that
    /// was asked for.
    pub(super) fn asked(&mut self, heads: &Heads, path: &str, hidden: &[u8]) {
        if let Answers::Objects(course) = self {
            let drawn = hidden.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
            // Knuth's generator: pages must not follow the count of answers.
            let next = course.turn.wrapping_add(drawn).wrapping_mul(6_364_136_223_846_793_005);
            course.turn = next.wrapping_add(1_442_695_040_888_963_407);
            let turn = (course.turn >> 33) as usize;
            course.object = heads.site().at(path, turn);
            course.next = heads.site().next(course.object, turn);
        }
    }

    /// Hidden bytes that the next answer takes, where a message may have so many.
    pub(super) fn room(&self, heads: &Heads, message: usize) -> usize {
        let body = message.saturating_sub(ANSWER_MOST);
        match self {
            Answers::Made => heads.tier.capacity(body).min(MOST),
            // A picture is longer than what it hides: it may wait for the socket.
            _ if body == 0 => 0,
            Answers::Pictures { answers, .. } => {
                heads.pictures().room(*answers).saturating_sub(RESERVE)
            }
            Answers::Objects(course) => {
                heads.site().room(course.object, course.next).saturating_sub(RESERVE)
            }
        }
    }

    /// The hidden bytes of the answer that carries so many, padding among them.
    pub(super) fn fit(&mut self, heads: &Heads, hidden: usize) -> usize {
        // An answer that says nothing still says that it is ours.
        let hidden = hidden.max(RESERVE);
        match self {
            Answers::Made => hidden,
            Answers::Pictures { picture, answers } => {
                let (chosen, capacity) = heads.pictures().choose(hidden, *answers);
                (*picture, *answers) = (chosen, *answers + 1);
                capacity
            }
            Answers::Objects(course) => heads.site().room(course.object, course.next),
        }
    }

    /// The body of the answer with these hidden bytes.
    pub(super) fn body(&self, heads: &Heads, hidden: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        match self {
            Answers::Made => heads.tier.write(hidden, heads.words(), &mut body),
            Answers::Pictures { picture, .. } => {
                heads.pictures().write(*picture, hidden, &mut body);
            }
            Answers::Objects(course) => {
                let objects = heads.site().objects();
                let next = objects.get(course.next).map_or("/", Object::path);
                let hidden = heads.notes().write(hidden, next);
                body = objects.get(course.object).map_or(body, |one| one.changed(&hidden));
            }
        }
        body
    }

    /// Appends the head of the answer whose body has this length.
    pub(super) fn head(&self, heads: &Heads, facts: HeadFacts, length: usize, out: &mut Vec<u8>) {
        let HeadFacts { now, closes, modified } = facts;
        match self {
            Answers::Objects(course) => heads.object(now, course.object, (length, closes), out),
            _ => {
                let before = out.len();
                heads.ok(now, (length, closes), modified, out);
                debug_assert!(out.len() - before <= ANSWER_MOST);
            }
        }
    }
}

/// The body of an answer with this head.
///
/// # Errors
/// It is none of the tier's.
pub(super) fn body(tier: Tier, answer: &AnswerHead) -> Result<Body, NotCover> {
    match tier {
        Tier::Site => Body::of_site(&answer.kind, answer.length),
        tier => Body::new(tier, answer.length),
    }
}

/// Gives to `each` what an answer has said, and keeps in `told` the path that is to be asked for
/// next, where the tier says one.
///
/// # Errors
/// It should say one, and does not.
pub(super) fn hear(
    heads: &Heads,
    said: Hidden<'_>,
    told: &mut Option<String>,
    each: &mut dyn FnMut(Hidden<'_>),
) -> Result<(), NotCover> {
    match said {
        Hidden::Bytes(all) if heads.tier == Tier::Site => {
            let (path, hidden) = heads.notes().read(all)?;
            *told = Some(path);
            each(Hidden::Bytes(&hidden));
        }
        said => each(said),
    }
    Ok(())
}

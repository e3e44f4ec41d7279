//! The answers of a server, by the kind of body that hides bytes: generated bodies, pictures, or
//! objects (files) of a web site. All differences between these kinds of answers are in this
//! module.

use anabranch_multipath::Time;

use super::body::Body;
use super::head::{ANSWER_MOST, AnswerHead, Heads};
use super::site::Object;
use super::{Hidden, MOST, NotCover, RESERVE, Tier};

/// The kind of answers in which a server hides bytes, with the state of choosing them.
#[derive(Debug)]
pub(super) enum Answers {
    /// The server hides bytes in bodies that it generates.
    Made,
    /// The server hides bytes in pictures. The fields are the index of the next answer's picture,
    /// and the number of answers so far.
    Pictures { picture: usize, answers: usize },
    /// The server hides bytes in objects (files) of a web site. The field is the client's position
    /// in the site.
    Objects(SitePosition),
}

/// A client's position in a web site, whose objects (files) it requests one after the other.
#[derive(Debug, Default)]
pub(super) struct SitePosition {
    /// Index of the object (file of the site) that the client has requested.
    object: usize,
    /// Index of the object that the client is to request next.
    next: usize,
    /// State of the pseudorandom generator that chooses among several objects (files of the site).
    /// Its input consists of the hidden bytes of requests, which look random.
    turn: u64,
}

/// The values that determine the head (status line and headers) of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadFacts {
    pub(super) now: Time,
    /// Whether the connection closes after the answer.
    pub(super) closes: bool,
    /// Modification time of the requested file, in seconds since 1970; `None` for a POST.
    pub(super) modified: Option<u64>,
}

impl Answers {
    pub(super) fn of(tier: Tier) -> Answers {
        match tier {
            Tier::Opaque | Tier::Text => Answers::Made,
            Tier::Image => Answers::Pictures { picture: 0, answers: 0 },
            Tier::Site => Answers::Objects(SitePosition::default()),
        }
    }

    /// Processes a request for the URL path `path`, which contains the `hidden` bytes. If bytes
    /// are hidden in objects of a site, chooses the object of the answer.
    pub(super) fn take_request(&mut self, heads: &Heads, path: &str, hidden: &[u8]) {
        if let Answers::Objects(position) = self {
            let drawn = hidden.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
            // The constants are those of Knuth's generator, which makes the choice of pages
            // independent of the number of answers.
            let next = position.turn.wrapping_add(drawn).wrapping_mul(6_364_136_223_846_793_005);
            position.turn = next.wrapping_add(1_442_695_040_888_963_407);
            let turn = (position.turn >> 33) as usize;
            position.object = heads.site().at(path, turn);
            position.next = heads.site().next(position.object, turn);
        }
    }

    /// Returns the number of bytes that the next answer can hide, if head and body together have
    /// at most `message` bytes.
    pub(super) fn room(&self, heads: &Heads, message: usize) -> usize {
        let body = message.saturating_sub(ANSWER_MOST);
        match self {
            Answers::Made => heads.tier.capacity(body).min(MOST),
            // A picture is longer than its hidden bytes, so it may have to wait for room in the
            // socket.
            _ if body == 0 => 0,
            Answers::Pictures { answers, .. } => {
                heads.pictures().room(*answers).saturating_sub(RESERVE)
            }
            Answers::Objects(position) => {
                heads.site().room(position.object, position.next).saturating_sub(RESERVE)
            }
        }
    }

    /// Returns how many bytes the answer that carries `hidden` bytes has to hide, including
    /// padding. If bytes are hidden in pictures, chooses the picture of the answer.
    pub(super) fn fit(&mut self, heads: &Heads, hidden: usize) -> usize {
        // An answer without data still contains a sealed block, so that the client recognises the
        // server.
        let hidden = hidden.max(RESERVE);
        match self {
            Answers::Made => hidden,
            Answers::Pictures { picture, answers } => {
                let (chosen, capacity) = heads.pictures().choose(hidden, *answers);
                (*picture, *answers) = (chosen, *answers + 1);
                capacity
            }
            Answers::Objects(position) => heads.site().room(position.object, position.next),
        }
    }

    /// Builds the body of the answer that contains the `hidden` bytes.
    pub(super) fn body(&self, heads: &Heads, hidden: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        match self {
            Answers::Made => heads.tier.write(hidden, heads.words(), &mut body),
            Answers::Pictures { picture, .. } => {
                heads.pictures().write(*picture, hidden, &mut body);
            }
            Answers::Objects(position) => {
                let objects = heads.site().objects();
                let next = objects.get(position.next).map_or("/", Object::path);
                let hidden = heads.notes().write(hidden, next);
                body = objects.get(position.object).map_or(body, |one| one.changed(&hidden));
            }
        }
        body
    }

    /// Appends the head (status line and headers) of an answer whose body has `length` bytes.
    pub(super) fn head(&self, heads: &Heads, facts: HeadFacts, length: usize, out: &mut Vec<u8>) {
        let HeadFacts { now, closes, modified } = facts;
        match self {
            Answers::Objects(position) => heads.object(now, position.object, (length, closes), out),
            _ => {
                let before = out.len();
                heads.ok(now, (length, closes), modified, out);
                debug_assert!(out.len() - before <= ANSWER_MOST);
            }
        }
    }
}

/// Creates the parser of the body that follows this head of an answer.
///
/// # Errors
/// In this tier (kind of body that hides bytes), no body has the length that the head states.
pub(super) fn body(tier: Tier, answer: &AnswerHead) -> Result<Body, NotCover> {
    match tier {
        Tier::Site => Body::of_site(&answer.kind, answer.length),
        tier => Body::new(tier, answer.length),
    }
}

/// Passes the hidden bytes of an answer to `each`. If bytes are hidden in objects of a site,
/// stores the URL path of the next request in `next_path`.
///
/// # Errors
/// Bytes are hidden in objects of a site, but the answer contains no valid path.
pub(super) fn read_hidden(
    heads: &Heads,
    message: Hidden<'_>,
    next_path: &mut Option<String>,
    each: &mut dyn FnMut(Hidden<'_>),
) -> Result<(), NotCover> {
    match message {
        Hidden::Bytes(all) if heads.tier == Tier::Site => {
            let (path, hidden) = heads.notes().read(all)?;
            *next_path = Some(path);
            each(Hidden::Bytes(&hidden));
        }
        message => each(message),
    }
    Ok(())
}

//! The covers `http-*`: bytes are hidden in requests and answers of HTTP/1.1 over persistent
//! connections.
//!
//! A request carries its hidden bytes in the query of a GET, or, if there are many, in the body of
//! a POST. An answer carries them in its body. `body` has the tiers, which are kinds of bodies.
//! `answers` has the other differences between tiers. `head` writes and parses heads, and `names`
//! has the words in them.

mod answers;
mod body;
mod date;
mod head;
mod jpeg;
mod names;
mod pictures;
mod site;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use anabranch_multipath::Time;

use super::family::{ACK_ROOM, Family, LITTLE_ACK_ROOM, MANY, SHORT};
use super::{ClientEnd, Hidden, NotCover, RESERVE, ServerEnd, SharedContext, Slot};
use answers::{Answers, HeadFacts};
use body::Body;
pub use body::Tier;
use head::{ANSWER_MOST, Heads, RequestHead};
pub use jpeg::NotPicture;
pub(crate) use names::Names;
pub use pictures::Pictures;
pub(crate) use site::Notes;
pub use site::{Hiding, Object, Refusal, Site};

/// Profile whose bodies are hidden bytes without encoding.
pub(super) const OPAQUE: Family = Family {
    name: "http-opaque",
    about: "HTTP; data hidden as binary bodies, such as videos",
    connections: 6,
    idle_connections: 2,
    max_bytes: None,
    wants_site: true,
    wants_pictures: false,
    wants_objects: false,
    answer: Some(16 << 10),
    coalesces: true,
    streams: false,
    chunk: 4_096,
    // With this padding, a HELLO is no longer than a GET of a later exchange may be.
    padding: 48,
    ack_room: ACK_ROOM,
    pauses: |_| Duration::ZERO,
    client: |family, context, _, _| client(family, context, Tier::Opaque),
    server: |family, context| server(family, context, Tier::Opaque),
};
/// Profile whose bodies are hidden bytes without encoding, in many short connections.
pub(super) const OPAQUE_SHORT: Family = Family {
    name: "http-opaque-short",
    about: "HTTP; data hidden as binary bodies, in many short connections",
    connections: MANY,
    max_bytes: SHORT,
    answer: Some(8 << 10),
    chunk: 2_600,
    ..OPAQUE
};
/// Profile whose bodies are JSON.
pub(super) const TEXT: Family = Family {
    name: "http-text",
    about: "HTTP; data hidden as text",
    client: |family, context, _, _| client(family, context, Tier::Text),
    server: |family, context| server(family, context, Tier::Text),
    ..OPAQUE
};
/// Profile whose bodies are JSON, in many short connections.
pub(super) const TEXT_SHORT: Family = Family {
    name: "http-text-short",
    about: "HTTP; data hidden as text, in many short connections",
    connections: MANY,
    max_bytes: SHORT,
    answer: Some(8 << 10),
    chunk: 2_600,
    ..TEXT
};
/// Profile whose answers are pictures. The client does not know in advance how many bytes a
/// picture hides.
pub(super) const IMAGE: Family = Family {
    name: "http-image",
    about: "HTTP; data hidden in your pictures",
    wants_pictures: true,
    answer: Some(1 << 10),
    client: |family, context, _, _| client(family, context, Tier::Image),
    server: |family, context| server(family, context, Tier::Image),
    ..OPAQUE
};
/// Profile whose answers are objects (files of any type) of a web site. The client does not know
/// in advance how many bytes an object hides.
pub(super) const SITE: Family = Family {
    name: "http-site",
    about: "HTTP; data hidden in the files of your web site",
    wants_objects: true,
    answer: Some(1 << 10),
    ack_room: LITTLE_ACK_ROOM,
    client: |family, context, _, _| client(family, context, Tier::Site),
    server: |family, context| server(family, context, Tier::Site),
    ..OPAQUE
};

fn client(family: &Family, context: &Arc<SharedContext>, tier: Tier) -> Box<dyn ClientEnd> {
    Box::new(ClientSlot::new(Arc::clone(context), tier, family.max_bytes))
}

fn server(family: &Family, context: &Arc<SharedContext>, tier: Tier) -> Box<dyn ServerEnd> {
    Box::new(ServerSlot::new(Arc::clone(context), tier, family.max_bytes))
}

/// Maximum number of bytes that a GET hides without padding. Encoded, they are 150 characters, so
/// the GET is no longer than a browser's requests.
const SMALL: usize = 112;
/// Possible numbers of bytes that a longer GET hides, including padding. Larger messages use a
/// POST. 704 bytes become 939 characters, and can contain a cell of Tor within TLS and an
/// acknowledgement. On sites with cookies, a browser's requests have a similar length.
const GETS: [usize; 4] = [192, 256, 448, 704];
/// Maximum number of bytes that one HTTP request or answer hides.
const MOST: usize = 64 << 10;
/// Maximum bytes of the body of an HTTP request or answer.
const LARGEST: usize = 128 << 10;
/// Maximum time for which a server delays its answer to a request while it has no data to send.
const HOLD: Duration = Duration::from_secs(4);
/// Maximum number of requests per connection; servers have such limits, too (nginx: 1,000).
const REQUESTS: u32 = 900;
/// Minimum remaining volume of a connection in bytes, in each direction, for a further exchange
/// (request and answer).
const LEAST: usize = 3_000;

/// The remaining volume of a connection: bytes in each direction, and requests.
#[derive(Clone, Copy, Debug)]
struct Left {
    bytes: Option<[usize; 2]>,
    requests: u32,
}

impl Left {
    fn new(most: Option<usize>) -> Left {
        Left { bytes: most.map(|most| [most; 2]), requests: REQUESTS }
    }

    fn take(&mut self, way: usize, bytes: usize) {
        if let Some(left) = &mut self.bytes {
            left[way] = left[way].saturating_sub(bytes);
        }
    }

    /// Returns the maximum bytes of a message in the direction `way` (0 from the client, 1 from
    /// the server), if the socket has room for `socket` bytes.
    fn message(&self, way: usize, socket: usize) -> usize {
        self.bytes.map_or(socket, |left| left[way].min(socket))
    }

    fn is_spent(&self) -> bool {
        self.requests == 0 || self.bytes.is_some_and(|left| left.iter().any(|&left| left < LEAST))
    }
}

/// The client's end of an HTTP connection that hides bytes in requests and answers.
#[derive(Debug)]
pub(super) struct ClientSlot {
    heads: Heads,
    left: Left,
    inbox: Vec<u8>,
    stage: ClientStage,
    /// Whether the server has announced that it closes the connection after its answer.
    closes: bool,
    /// The URL path to request next: the path in the last answer that contained such a path, on
    /// any connection of the link. `None` if no answer contained one.
    next_path: Option<String>,
}

#[derive(Debug)]
enum ClientStage {
    Idle,
    Head,
    Body(Body),
}

impl ClientSlot {
    /// Creates the client's end of a connection. It may carry `most` bytes in each direction, or
    /// any number if `most` is `None`.
    pub(super) fn new(context: Arc<SharedContext>, tier: Tier, most: Option<usize>) -> ClientSlot {
        let (heads, left) = (Heads::new(context, tier), Left::new(most));
        let (inbox, stage, next_path) = (Vec::new(), ClientStage::Idle, None);
        ClientSlot { heads, left, inbox, stage, closes: false, next_path }
    }

    fn is_idle(&self) -> bool {
        matches!(self.stage, ClientStage::Idle)
    }
}

impl Slot for ClientSlot {
    fn receive(
        &mut self,
        _now: Time,
        bytes: &[u8],
        each: &mut dyn FnMut(Hidden<'_>),
    ) -> Result<(), NotCover> {
        self.left.take(1, bytes.len());
        let mut bytes = bytes;
        if matches!(self.stage, ClientStage::Head) {
            let Some(head) = head::gather(&mut self.inbox, &mut bytes)? else { return Ok(()) };
            let answer = self.heads.answer(&head)?;
            self.closes = answer.closes;
            self.stage = ClientStage::Body(answers::body(self.heads.tier, &answer)?);
        }
        let ClientStage::Body(body) = &mut self.stage else { return Err(NotCover) };
        let (heads, next_path, mut last_arrival) = (&self.heads, &mut self.next_path, Ok(()));
        let mut take = |one: Hidden<'_>| {
            let result = answers::read_hidden(heads, one, next_path, each);
            last_arrival = last_arrival.and(result);
        };
        let whole = body.take(&mut bytes, heads.words(), &mut take)?;
        last_arrival?;
        if whole {
            self.stage = ClientStage::Idle;
            each(Hidden::End);
        }
        if bytes.is_empty() { Ok(()) } else { Err(NotCover) }
    }

    fn room(&self, socket: usize) -> usize {
        if !self.is_idle() || self.is_spent() {
            return 0;
        }
        let message = self.left.message(0, socket);
        let body = message.saturating_sub(self.heads.request_most());
        self.heads.tier.upwards().capacity(body).min(MOST)
    }

    fn fit(&mut self, hidden: usize) -> usize {
        let fits = |one: &&usize| **one == hidden || **one >= hidden + RESERVE;
        let padded = GETS.iter().find(fits).filter(|_| hidden > SMALL);
        padded.copied().unwrap_or(hidden)
    }

    fn send(&mut self, now: Time, hidden: &[u8], out: &mut Vec<u8>) {
        let before = out.len();
        if hidden.len() <= GETS[GETS.len() - 1] {
            self.heads.get(now, (self.next_path.take(), hidden), out);
        } else {
            let mut body = Vec::new();
            self.heads.tier.upwards().write(hidden, self.heads.words(), &mut body);
            self.heads.post(body.len(), out);
            out.extend_from_slice(&body);
        }
        self.left.take(0, out.len() - before);
        self.left.requests = self.left.requests.saturating_sub(1);
        self.stage = ClientStage::Head;
    }

    fn is_spent(&self) -> bool {
        self.is_idle() && (self.closes || self.left.is_spent())
    }
}

impl ClientEnd for ClientSlot {
    fn begins(&self) -> bool {
        self.is_idle() && !self.is_spent()
    }

    fn hold(&self) -> Duration {
        HOLD
    }

    fn share_hint(&mut self, next_path: &mut Option<String>) {
        match &self.next_path {
            Some(_) => next_path.clone_from(&self.next_path),
            None => self.next_path.clone_from(next_path),
        }
    }
}

/// The server's end of an HTTP connection that hides bytes in requests and answers.
#[derive(Debug)]
pub(super) struct ServerSlot {
    heads: Heads,
    left: Left,
    inbox: Vec<u8>,
    stage: ServerStage,
    /// Modification time of the requested file, in seconds since 1970; `None` for a POST.
    modified: Option<u64>,
    answers: Answers,
}

#[derive(Debug)]
enum ServerStage {
    Head,
    Body(Body),
    /// A complete request waits for its answer. The field is the time at which the request was
    /// complete.
    Whole(Time),
}

impl ServerSlot {
    /// Creates the server's end of a connection. The arguments have the same meaning as for
    /// [`ClientSlot::new`].
    pub(super) fn new(context: Arc<SharedContext>, tier: Tier, most: Option<usize>) -> ServerSlot {
        let (heads, left) = (Heads::new(context, tier), Left::new(most));
        let (inbox, stage, modified) = (Vec::new(), ServerStage::Head, None);
        ServerSlot { heads, left, inbox, stage, modified, answers: Answers::of(tier) }
    }

    fn whole(&mut self, now: Time, each: &mut dyn FnMut(Hidden<'_>)) {
        self.stage = ServerStage::Whole(now);
        each(Hidden::End);
    }
}

impl Slot for ServerSlot {
    fn receive(
        &mut self,
        now: Time,
        bytes: &[u8],
        each: &mut dyn FnMut(Hidden<'_>),
    ) -> Result<(), NotCover> {
        self.left.take(0, bytes.len());
        let mut bytes = bytes;
        if matches!(self.stage, ServerStage::Head) {
            let Some(head) = head::gather(&mut self.inbox, &mut bytes)? else { return Ok(()) };
            self.left.requests = self.left.requests.saturating_sub(1);
            match self.heads.request(&head)? {
                RequestHead::Get(path, hidden) => {
                    self.modified = Some(self.heads.modified(now, &path));
                    self.answers.take_request(&self.heads, &path, &hidden);
                    each(Hidden::Bytes(&hidden));
                    self.whole(now, each);
                }
                RequestHead::Post(length) => {
                    self.modified = None;
                    self.answers.take_request(&self.heads, "", &[]);
                    self.stage = ServerStage::Body(Body::new(self.heads.tier.upwards(), length)?);
                }
            }
        }
        if let ServerStage::Body(body) = &mut self.stage
            && body.take(&mut bytes, self.heads.words(), each)?
        {
            self.whole(now, each);
        }
        // A client of this bridge waits for an answer before its next request.
        if bytes.is_empty() { Ok(()) } else { Err(NotCover) }
    }

    fn room(&self, socket: usize) -> usize {
        if self.holds_since().is_none() {
            return 0;
        }
        self.answers.room(&self.heads, self.left.message(1, socket))
    }

    fn fit(&mut self, hidden: usize) -> usize {
        self.answers.fit(&self.heads, hidden)
    }

    fn send(&mut self, now: Time, hidden: &[u8], out: &mut Vec<u8>) {
        let body = self.answers.body(&self.heads, hidden);
        self.left.take(1, body.len() + ANSWER_MOST);
        let facts = HeadFacts { now, closes: self.left.is_spent(), modified: self.modified };
        self.answers.head(&self.heads, facts, body.len(), out);
        out.extend_from_slice(&body);
        self.stage = ServerStage::Head;
    }

    fn due(&self) -> Option<Time> {
        self.holds_since().map(|since| since + HOLD)
    }

    fn is_spent(&self) -> bool {
        self.holds_since().is_none() && self.left.is_spent()
    }
}

impl ServerEnd for ServerSlot {
    fn has_answered(&self) -> bool {
        matches!(self.stage, ServerStage::Head)
    }

    fn holds_since(&self) -> Option<Time> {
        match self.stage {
            ServerStage::Whole(since) => Some(since),
            _ => None,
        }
    }
}

//! A directory request on a stream, and its reply.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use anabranch_multipath::Time;
use anabranch_onion::directory::http::RequestReader;
use anabranch_onion::directory::reply::{Reply, ResponseStream};
use anabranch_onion::{LinkCore, StreamKey};

use super::hsdir::SharedHsDir;
use crate::onion::answers::{Answers, PendingRequest};
use crate::onion::dirclient::unix;

/// Maximum number of bytes in all directory replies that are being sent. Further clients receive
/// status 503.
const MOST_REPLY_BYTES: usize = 64 << 20;

/// Limit on the memory for directory replies that are being sent. The key of a map entry
/// identifies the body of a reply ([`Reply::body_number`]). The value is the number of clients
/// that receive the body, and its length in bytes. A body that several clients receive counts only
/// once.
#[derive(Clone, Default)]
pub(super) struct ReplyBudget(Rc<RefCell<BTreeMap<usize, (usize, usize)>>>);

impl ReplyBudget {
    /// Returns the response to send: `reply`, or status 503 if there is no memory for it. The
    /// caller must keep the returned [`Recipient`] while the response is being sent.
    fn admit(&self, reply: Reply) -> (ResponseStream, Recipient) {
        let (number, length) = (reply.body_number(), reply.length());
        let mut bodies = self.0.borrow_mut();
        let bytes: usize = bodies.values().map(|(_, bytes)| bytes).sum();
        if bodies.contains_key(&number) || bytes + length <= MOST_REPLY_BYTES {
            bodies.entry(number).or_insert((0, length)).0 += 1;
            let recipient = Recipient { all: Some(self.clone()), number };
            return (reply.into_stream(), recipient);
        }
        let busy = Reply::new(503, "Directory busy, try again later");
        (busy.into_stream(), Recipient { all: None, number })
    }
}

/// Reference that a client holds to a reply's body while it receives the reply. When the last
/// reference to a body is dropped, the body no longer counts towards the limit.
pub(super) struct Recipient {
    all: Option<ReplyBudget>,
    number: usize,
}

impl Drop for Recipient {
    fn drop(&mut self) {
        let Some(all) = &self.all else { return };
        let mut bodies = all.0.borrow_mut();
        if let Some((recipients, _)) = bodies.get_mut(&self.number) {
            *recipients -= 1;
            if *recipients == 0 {
                bodies.remove(&self.number);
            }
        }
    }
}

/// Sources from which replies to directory requests are taken.
pub(super) struct ReplySources<'a> {
    /// Source of documents about relays.
    pub(super) cache: &'a dyn Answers,
    /// Source of descriptors of onion services.
    pub(super) hsdir: &'a SharedHsDir,
    pub(super) budget: &'a ReplyBudget,
}

/// State of a directory request on a stream.
pub(super) enum Answering {
    /// The request is incomplete. The flag is true if the request arrived over a circuit from
    /// another relay, and not directly from a client.
    Reading(RequestReader, bool),
    /// The request is complete, but the reply is not ready yet.
    Waiting(PendingRequest),
    /// The reply is being sent.
    Sending { answer: ResponseStream, _recipient: Recipient },
}

impl Answering {
    /// Begins to read a request whose body has at most `longest` bytes. `by_relay` is true if the
    /// request arrived over a circuit from another relay, and not directly from a client.
    pub(super) fn new(longest: usize, by_relay: bool) -> Answering {
        Answering::Reading(RequestReader::new(longest), by_relay)
    }

    fn sending((answer, recipient): (ResponseStream, Recipient)) -> Answering {
        Answering::Sending { answer, _recipient: recipient }
    }

    /// Reads the request, and writes as much of the reply as the stream has room for. Returns true
    /// once the whole reply is written. A malformed request receives status 400.
    pub(super) fn progress(
        &mut self,
        now: Time,
        core: &mut impl LinkCore,
        stream: StreamKey,
        from: &ReplySources<'_>,
    ) -> bool {
        let (first, second) = core.read(stream);
        let bytes = [first, second].concat();
        core.consume(now, stream, bytes.len());
        if let Answering::Reading(reader, by_relay) = self {
            *self = match reader.push(&bytes) {
                Ok(None) => return false,
                Ok(Some(request)) => match from.hsdir.answer(&request, *by_relay, unix()) {
                    Some(reply) => Answering::sending(
                        from.budget.admit(reply.with_common_headers(unix(), None)),
                    ),
                    None => Answering::Waiting(PendingRequest::new(request)),
                },
                Err(_) => Answering::sending(from.budget.admit(Reply::new(400, "Bad request"))),
            };
        }
        // The client's address is not passed on, because the circuit does not reveal it.
        if let Answering::Waiting(waiting) = self
            && let Some(reply) = waiting.look(from.cache, None, unix())
        {
            *self = Answering::sending(from.budget.admit(reply));
        }
        let Answering::Sending { answer, .. } = self else { return false };
        while !answer.next().is_empty() {
            match core.write(now, stream, answer.next()) {
                0 => return false,
                bytes => answer.advance(bytes),
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_onion::directory::cache::Cache;
    use anabranch_onion::directory::http::{ResponseReader, get, post};
    use anabranch_onion::directory::reply::Encoding;
    use anabranch_onion::{LinkId, LinkInput};

    const LONGEST: usize = 32 << 10;

    /// A core with a single stream. The stream accepts at most a hundred bytes in each write.
    #[derive(Default)]
    struct Pipe {
        received: Vec<u8>,
        sent: Vec<u8>,
    }

    impl LinkCore for Pipe {
        fn handle_link(&mut self, _: Time, _: LinkInput<'_>) {}

        fn transmit(&mut self, _: Time, _: LinkId, _: &mut Vec<u8>, _: usize) -> bool {
            false
        }

        fn write(&mut self, _: Time, _: StreamKey, bytes: &[u8]) -> usize {
            let taken = bytes.len().min(100);
            self.sent.extend_from_slice(&bytes[..taken]);
            taken
        }

        fn read(&self, _: StreamKey) -> (&[u8], &[u8]) {
            (&self.received, &[])
        }

        fn consume(&mut self, _: Time, _: StreamKey, bytes: usize) {
            self.received.drain(..bytes);
        }
    }

    fn conversation(request: &[u8]) -> (u16, Vec<u8>) {
        let (mut pipe, mut answering, mut cache) =
            (Pipe::default(), Answering::new(LONGEST, true), Cache::default());
        let budget = ReplyBudget::default();
        cache.we_are([1; 20]);
        cache.relay([1; 20], (&"router ".repeat(100), [2; 20]), None);
        let hsdir = SharedHsDir::default();
        let sources = ReplySources { cache: &cache, hsdir: &hsdir, budget: &budget };
        for piece in request.chunks(10) {
            pipe.received.extend_from_slice(piece);
            if answering.progress(Time::ZERO, &mut pipe, StreamKey(1), &sources) {
                break;
            }
        }
        let mut rounds = 0;
        while !answering.progress(Time::ZERO, &mut pipe, StreamKey(1), &sources) && rounds < 50 {
            rounds += 1;
        }
        let mut reader = ResponseReader::new(1 << 20);
        reader.push(&pipe.sent).unwrap();
        let response = reader.finish().unwrap();
        (response.status, response.body)
    }

    #[test]
    fn what_is_asked_for_is_said_piece_by_piece() {
        let (status, body) = conversation(&get("/tor/server/authority"));
        assert_eq!((status, body.len()), (200, 700));
    }

    #[test]
    fn answers_that_nobody_takes_fill_no_more_than_their_room() {
        let (budget, mut kept) = (ReplyBudget::default(), Vec::new());
        let answer = |bytes: usize| Reply::ok(&vec![b'x'; bytes], Encoding::Identity);
        let status =
            |spoken: &ResponseStream| String::from_utf8_lossy(&spoken.next()[9..12]).into_owned();
        let shared = answer(MOST_REPLY_BYTES / 2);
        for _ in 0..10 {
            kept.push(budget.admit(shared.clone()));
        }
        kept.push(budget.admit(answer(MOST_REPLY_BYTES / 2)));
        assert!(kept.iter().all(|(spoken, _)| status(spoken) == "200"), "ten hear the same");
        let (busy, _) = budget.admit(answer(1));
        assert_eq!(status(&busy), "503");
        assert_eq!(status(&budget.admit(shared.clone()).0), "200", "it exists already");
        kept.pop();
        assert_eq!(status(&budget.admit(answer(MOST_REPLY_BYTES / 2)).0), "200");
        kept.clear();
        assert!(budget.0.borrow().is_empty());
    }

    #[test]
    fn what_is_no_request_is_told_so() {
        assert_eq!(conversation(b"\x16\x03\x01 no HTTP at all\r\n\r\n").0, 400);
        assert_eq!(conversation(&[b'x'; LONGEST + 1]).0, 400);
        assert_eq!(conversation(&get("/nothing/here")).0, 404);
        assert_eq!(conversation(&post("/tor/hs/3/publish", "x", b"no descriptor")).0, 400);
    }
}

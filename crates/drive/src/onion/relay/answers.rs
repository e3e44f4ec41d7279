//! A directory request by a stream, and its answer.

use anabranch_multipath::Time;
use anabranch_onion::directory::http::RequestReader;
use anabranch_onion::directory::reply::{Reply, Spoken};
use anabranch_onion::{Core, StreamKey};

use crate::onion::answers::{Answers, Waiting};
use crate::onion::office::unix;

/// Where a conversation stands.
pub(super) enum Answering {
    /// The request is not whole.
    Reading(RequestReader),
    /// The answer is worth waiting for.
    Waiting(Waiting),
    /// The answer is being said.
    Saying(Spoken),
}

impl Answering {
    /// At the beginning, with the longest request that is taken.
    pub(super) fn new(longest: usize) -> Answering {
        Answering::Reading(RequestReader::new(longest))
    }

    /// Reads what came, and says as much as there is room for; true if all is said. A request that is none is
    /// told so.
    pub(super) fn go_on(
        &mut self,
        now: Time,
        core: &mut impl Core,
        stream: StreamKey,
        cache: &dyn Answers,
    ) -> bool {
        let (first, second) = core.read(stream);
        let bytes = [first, second].concat();
        core.consume(now, stream, bytes.len());
        if let Answering::Reading(reader) = self {
            *self = match reader.push(&bytes) {
                Ok(None) => return false,
                Ok(Some(request)) => Answering::Waiting(Waiting::new(request)),
                Err(_) => Answering::Saying(Reply::new(400, "Bad request").spoken()),
            };
        }
        // Where the client is, the circuit does not say.
        if let Answering::Waiting(waiting) = self
            && let Some(reply) = waiting.look(cache, None, unix())
        {
            *self = Answering::Saying(reply.spoken());
        }
        let Answering::Saying(answer) = self else { return false };
        while !answer.next().is_empty() {
            match core.write(now, stream, answer.next()) {
                0 => return false,
                bytes => answer.said(bytes),
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_onion::directory::cache::Cache;
    use anabranch_onion::directory::http::{ResponseReader, get};
    use anabranch_onion::{LinkId, LinkInput};

    const LONGEST: usize = 32 << 10;

    /// A core of one stream that takes a hundred bytes at a time.
    #[derive(Default)]
    struct Pipe {
        came: Vec<u8>,
        said: Vec<u8>,
    }

    impl Core for Pipe {
        fn handle_link(&mut self, _: Time, _: LinkInput<'_>) {}

        fn next_timeout(&self) -> Option<Time> {
            None
        }

        fn transmit(&mut self, _: Time, _: LinkId, _: &mut Vec<u8>, _: usize) -> bool {
            false
        }

        fn write(&mut self, _: Time, _: StreamKey, bytes: &[u8]) -> usize {
            let taken = bytes.len().min(100);
            self.said.extend_from_slice(&bytes[..taken]);
            taken
        }

        fn read(&self, _: StreamKey) -> (&[u8], &[u8]) {
            (&self.came, &[])
        }

        fn consume(&mut self, _: Time, _: StreamKey, bytes: usize) {
            self.came.drain(..bytes);
        }
    }

    fn conversation(request: &[u8]) -> (u16, Vec<u8>) {
        let (mut pipe, mut answering, mut cache) =
            (Pipe::default(), Answering::new(LONGEST), Cache::default());
        cache.own_descriptor("router ".repeat(100));
        for piece in request.chunks(10) {
            pipe.came.extend_from_slice(piece);
            if answering.go_on(Time::ZERO, &mut pipe, StreamKey(1), &cache) {
                break;
            }
        }
        let mut rounds = 0;
        while !answering.go_on(Time::ZERO, &mut pipe, StreamKey(1), &cache) && rounds < 50 {
            rounds += 1;
        }
        let mut reader = ResponseReader::new(1 << 20);
        reader.push(&pipe.said).unwrap();
        let response = reader.finish().unwrap();
        (response.status, response.body)
    }

    #[test]
    fn what_is_asked_for_is_said_piece_by_piece() {
        let (status, body) = conversation(&get("/tor/server/authority"));
        assert_eq!((status, body.len()), (200, 700));
    }

    #[test]
    fn what_is_no_request_is_told_so() {
        assert_eq!(conversation(b"\x16\x03\x01 no HTTP at all\r\n\r\n").0, 400);
        assert_eq!(conversation(&[b'x'; LONGEST + 1]).0, 400);
        assert_eq!(conversation(&get("/nothing/here")).0, 404);
    }
}

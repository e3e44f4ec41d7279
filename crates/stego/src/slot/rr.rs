//! The profile `nosteg-rr`: one request and one answer per connection. The server delays the
//! answer by 100 ms, as in the original StegoTorus (its `nosteg_rr`). It is for comparison with
//! the paper's measurements.

use std::time::Duration;

use anabranch_multipath::Time;

use super::family::{ACK_ROOM, Family};
use super::{ClientEnd, Hidden, NotCover, RESERVE, ServerEnd, Slot};

/// The profile `nosteg-rr`: random bytes, with one request and one answer per connection.
pub(super) const FAMILY: Family = Family {
    name: "nosteg-rr",
    about: "random bytes, with one request and one answer for each connection",
    connections: 8,
    idle_connections: 1,
    max_bytes: None,
    wants_site: false,
    wants_pictures: false,
    wants_objects: false,
    answer: None,
    coalesces: false,
    streams: false,
    chunk: 1_200,
    padding: 1,
    ack_room: ACK_ROOM,
    pauses: |_| Duration::ZERO,
    client: |_, _, _, _| Box::new(ClientSlot::default()),
    server: |_, _| Box::new(ServerSlot::default()),
};

/// Maximum number of hidden bytes in a request. The cookies of the original StegoTorus have at
/// most 768.
const REQUEST: usize = 2_048;
/// Maximum number of hidden bytes in an answer.
const ANSWER: usize = 16_384;
/// Minimum time from a complete request to its answer, as in the original StegoTorus.
const WAIT: Duration = Duration::from_millis(100);
/// Maximum time for which a server delays its answer to a request until it has data to send.
const HOLD: Duration = Duration::from_secs(2);

/// The client's end of a connection with one request and one answer.
#[derive(Debug, Default)]
pub(super) struct ClientSlot {
    has_sent: bool,
}

impl Slot for ClientSlot {
    fn receive(
        &mut self,
        _now: Time,
        bytes: &[u8],
        each: &mut dyn FnMut(Hidden<'_>),
    ) -> Result<(), NotCover> {
        if !self.has_sent {
            return Err(NotCover);
        }
        each(Hidden::Bytes(bytes));
        Ok(())
    }

    fn room(&self, _socket: usize) -> usize {
        if self.has_sent { 0 } else { REQUEST - RESERVE }
    }

    fn fit(&mut self, _hidden: usize) -> usize {
        REQUEST
    }

    fn send(&mut self, _now: Time, hidden: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(hidden);
        self.has_sent = true;
    }

    fn is_spent(&self) -> bool {
        false
    }
}

impl ClientEnd for ClientSlot {
    fn begins(&self) -> bool {
        !self.has_sent
    }

    fn hold(&self) -> Duration {
        HOLD
    }
}

/// The server's end of a connection with one request and one answer.
#[derive(Debug, Default)]
pub(super) struct ServerSlot {
    received: usize,
    /// Time at which the request was complete; `None` before.
    whole: Option<Time>,
    /// Whether the delay before the answer is over.
    ready: bool,
    answered: bool,
}

impl Slot for ServerSlot {
    fn receive(
        &mut self,
        now: Time,
        bytes: &[u8],
        each: &mut dyn FnMut(Hidden<'_>),
    ) -> Result<(), NotCover> {
        self.received += bytes.len();
        each(Hidden::Bytes(bytes));
        match self.received {
            REQUEST => {
                self.whole = Some(now);
                each(Hidden::End);
                Ok(())
            }
            0..REQUEST => Ok(()),
            _ => Err(NotCover),
        }
    }

    fn room(&self, _socket: usize) -> usize {
        if self.ready && !self.answered { ANSWER } else { 0 }
    }

    fn wait(&mut self, now: Time) -> Option<Time> {
        let ready = self.whole? + WAIT;
        self.ready = now >= ready;
        (!self.ready).then_some(ready)
    }

    fn fit(&mut self, hidden: usize) -> usize {
        // An answer without data still contains a sealed block, so that the client recognises the
        // server.
        hidden.max(RESERVE)
    }

    fn send(&mut self, _now: Time, hidden: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(hidden);
        self.answered = true;
    }

    fn due(&self) -> Option<Time> {
        self.whole.filter(|_| !self.answered).map(|whole| whole + HOLD)
    }

    fn is_spent(&self) -> bool {
        self.answered
    }
}

impl ServerEnd for ServerSlot {
    fn has_answered(&self) -> bool {
        self.answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_one_answer_a_tenth_of_a_second_later() {
        let (mut near, mut far, now) =
            (ClientSlot::default(), ServerSlot::default(), Time::from_secs(1));
        let (mut request, mut answer) = (Vec::new(), Vec::new());
        assert!(near.begins() && near.room(9) == REQUEST - RESERVE && near.fit(5) == REQUEST);
        near.send(now, &[1; REQUEST], &mut request);
        assert_eq!(near.room(9), 0);
        let mut seen = 0;
        let mut each = |hidden: Hidden<'_>| match hidden {
            Hidden::Bytes(bytes) => seen += bytes.len(),
            Hidden::End => seen += 1_000_000,
        };
        far.receive(now, &request[..9], &mut each).unwrap();
        assert_eq!(far.wait(now), None);
        far.receive(now, &request[9..], &mut each).unwrap();
        assert_eq!(seen, 1_000_000 + REQUEST);
        assert_eq!((far.wait(now), far.room(0)), (Some(now + WAIT), 0));
        assert_eq!((far.wait(now + WAIT), far.room(0)), (None, ANSWER));
        assert_eq!(far.due(), Some(now + HOLD));
        far.send(now, b"answer", &mut answer);
        assert!(far.has_answered() && far.is_spent() && far.room(0) == 0);
        assert_eq!(far.receive(now, b"more", &mut |_| {}), Err(NotCover));
        near.receive(now, &answer, &mut |_| {}).unwrap();
    }
}

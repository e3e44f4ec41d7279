//! Web servers. The client's request determines the length of the answer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anabranch_multipath::Time;

use super::documents::WEB_PORT;
use crate::simulation::{HostProgram, Io};
use crate::stack::{ConnId, TcpEvent};

/// Length of a request in bytes. The first eight bytes are the length of the answer.
const REQUEST: usize = 350;

/// Number of unsent bytes in a connection at which a server pauses writing. It continues when some
/// of them have been sent. If a server wrote a whole answer at once, the send buffer would grow to
/// the answer's length, and occupy that memory until the end of TIME_WAIT.
const AHEAD: u32 = 32 << 10;
/// Number of unsent segments in a connection at which a server pauses writing. The larger of this
/// limit and [`AHEAD`] applies, so this limit matters if segments are long. With fewer unsent
/// bytes than a segment, the server would send short segments, whose acknowledgements the receiver
/// delays.
const AHEAD_SEGMENTS: u32 = 22;

/// The content of all answers.
static ZEROS: [u8; 16 << 10] = [0; 16 << 10];

/// Returns a request for an answer of `bytes` bytes.
pub(super) fn request(bytes: u64) -> Vec<u8> {
    let mut request = bytes.to_be_bytes().to_vec();
    request.resize(REQUEST, 0);
    request
}

/// Times that a web server takes for its work, in addition to the time that TCP takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WebTimes {
    /// Interval at which the server looks for new connections. It reads no request before it has
    /// accepted the connection. Zero if it accepts a connection at once.
    pub look: Duration,
    /// Time to prepare a mebibyte of an answer. The answer begins when all of it is prepared.
    pub mebibyte: Duration,
}

impl WebTimes {
    /// Returns the first time at or after `now` at which the server looks for new connections.
    fn accepts_at(self, now: Time) -> Time {
        let look = self.look.as_nanos() as u64;
        let wait = if look == 0 { 0 } else { now.nanos().next_multiple_of(look) - now.nanos() };
        now + Duration::from_nanos(wait)
    }

    /// Returns the time to prepare an answer of `bytes` bytes.
    fn prepares(self, bytes: u64) -> Duration {
        let nanos = (self.mebibyte.as_nanos() * u128::from(bytes)) >> 20;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// A server that answers one request on each connection, and then closes the connection.
#[derive(Debug, Default)]
pub struct WebServer {
    times: WebTimes,
    conns: BTreeMap<ConnId, Answer>,
    /// Connections whose answers are delayed as in [`WebTimes`], each with the time at which its
    /// answer continues.
    due: BTreeSet<(Time, ConnId)>,
    answers: u64,
}

#[derive(Debug, Default)]
struct Answer {
    request: Vec<u8>,
    /// Earliest time at which the answer may continue. At this time, the server accepts the
    /// connection or has prepared the answer.
    begins: Time,
    /// Number of bytes still to be sent; `None` before the request has been read.
    left: Option<u64>,
}

impl WebServer {
    pub(super) fn new(times: WebTimes) -> WebServer {
        WebServer { times, ..WebServer::default() }
    }

    /// Returns the number of requests that were answered in full.
    pub fn answers(&self) -> u64 {
        self.answers
    }

    fn work(&mut self, io: &mut Io<'_>, conn: ConnId) {
        let Some(answer) = self.conns.get_mut(&conn) else { return };
        if answer.left.is_none() && answer.begins <= io.now {
            io.tcp.read_all(conn, &mut answer.request);
            if answer.request.len() >= REQUEST {
                answer.left = answer.request.first_chunk().map(|first| u64::from_be_bytes(*first));
                answer.begins = io.now + self.times.prepares(answer.left.unwrap_or_default());
            }
        }
        if answer.begins > io.now {
            self.due.insert((answer.begins, conn));
            return;
        }
        let Some(left) = &mut answer.left else { return };
        while *left > 0 {
            let view = io.tcp.view(io.now, conn);
            if view.is_some_and(|it| it.notsent >= AHEAD.max(AHEAD_SEGMENTS * it.mss)) {
                return;
            }
            let length = usize::try_from(*left).unwrap_or(usize::MAX).min(ZEROS.len());
            let taken = io.tcp.write(conn, &ZEROS[..length]);
            *left -= taken as u64;
            if taken == 0 {
                return;
            }
        }
        self.conns.remove(&conn);
        self.answers += 1;
        io.tcp.close(conn);
    }
}

impl HostProgram for WebServer {
    fn start(&mut self, io: &mut Io<'_>) {
        io.tcp.listen(WEB_PORT);
    }

    fn handle(&mut self, io: &mut Io<'_>, event: TcpEvent) {
        match event {
            TcpEvent::Accepted { conn, .. } => {
                let begins = self.times.accepts_at(io.now);
                self.conns.insert(conn, Answer { begins, ..Answer::default() });
                self.work(io, conn);
            }
            TcpEvent::Opened { conn } | TcpEvent::Progress { conn } => self.work(io, conn),
            TcpEvent::Closed { conn, .. } => {
                self.conns.remove(&conn);
            }
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        self.due.first().map(|(time, _)| *time)
    }

    fn expire(&mut self, io: &mut Io<'_>) {
        while let Some(&(time, conn)) = self.due.first().filter(|(time, _)| *time <= io.now) {
            self.due.remove(&(time, conn));
            self.work(io, conn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_accepts_when_it_looks_and_prepares_in_proportion() {
        let ms = Duration::from_millis;
        let times = WebTimes { look: ms(5), mebibyte: ms(4) };
        let accepts = [0, 1, 5, 12].map(|at| times.accepts_at(Time::from_millis(at)));
        assert_eq!(accepts, [0, 5, 5, 15].map(Time::from_millis));
        assert_eq!(times.prepares(256 << 10), ms(1));
        let none = WebTimes::default();
        assert_eq!(none.accepts_at(Time::from_millis(3)), Time::from_millis(3));
        assert_eq!(none.prepares(1 << 20), Duration::ZERO);
    }
}

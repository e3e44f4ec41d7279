//! Web servers. The client's request determines the length of the answer.

use std::collections::BTreeMap;

use anabranch_multipath::Time;

use super::documents::WEB_PORT;
use crate::simulation::{HostProgram, Io};
use crate::stack::{ConnId, TcpEvent};

/// Length of a request in bytes. The first eight bytes are the length of the answer.
const REQUEST: usize = 350;

/// Number of unsent bytes in a connection at which a server pauses writing until some are sent. If
/// a server wrote a whole answer at once, the send buffer would grow to the answer's length, and
/// occupy that memory until the end of TIME_WAIT.
const AHEAD: u32 = 32 << 10;

/// The content of all answers.
static ZEROS: [u8; 16 << 10] = [0; 16 << 10];

/// Returns a request for an answer of `bytes` bytes.
pub(super) fn request(bytes: u64) -> Vec<u8> {
    let mut request = bytes.to_be_bytes().to_vec();
    request.resize(REQUEST, 0);
    request
}

/// A server that answers one request on each connection, and then closes the connection.
#[derive(Debug, Default)]
pub struct WebServer {
    conns: BTreeMap<ConnId, Answer>,
    answers: u64,
}

#[derive(Debug, Default)]
struct Answer {
    request: Vec<u8>,
    /// Number of bytes still to be sent; `None` before the request has arrived.
    left: Option<u64>,
}

impl WebServer {
    /// Returns the number of requests that were answered in full.
    pub fn answers(&self) -> u64 {
        self.answers
    }

    fn work(&mut self, io: &mut Io<'_>, conn: ConnId) {
        let Some(answer) = self.conns.get_mut(&conn) else { return };
        if answer.left.is_none() {
            io.tcp.read_all(conn, &mut answer.request);
            if answer.request.len() >= REQUEST {
                answer.left = answer.request.first_chunk().map(|first| u64::from_be_bytes(*first));
            }
        }
        let Some(left) = &mut answer.left else { return };
        while *left > 0 {
            if io.tcp.view(io.now, conn).is_some_and(|view| view.notsent >= AHEAD) {
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
                self.conns.insert(conn, Answer::default());
                self.work(io, conn);
            }
            TcpEvent::Opened { conn } | TcpEvent::Progress { conn } => self.work(io, conn),
            TcpEvent::Closed { conn, .. } => {
                self.conns.remove(&conn);
            }
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        None
    }

    fn expire(&mut self, _: &mut Io<'_>) {}
}

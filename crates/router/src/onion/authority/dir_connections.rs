//! Plain HTTP connections to an authority's directory port. Each carries one request and one
//! reply. The number, duration and size of these connections are limited.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_onion::directory::http::RequestReader;
use anabranch_onion::directory::reply::{Reply, ResponseStream};
use anabranch_os::poller::{Interest, Poller, Ready};

use crate::onion::answers::{Answers, PendingRequest};
use crate::onion::conn::is_passing;
use crate::onion::dirclient::unix;
use crate::onion::station::STREAMS;

/// Maximum number of open connections to the directory port. Further connections are closed
/// without a reply.
const MOST: usize = 2_000;
/// Maximum number of open connections from one client address.
const MOST_OF_ONE: usize = 200;
/// Time without progress after which a connection to the directory port is closed.
const SILENCE: Duration = Duration::from_secs(30);
/// Maximum lifetime of a connection to the directory port.
const LONGEST: Duration = Duration::from_secs(600);
const PIECE: usize = 16 << 10;

/// All open connections to the directory port, by identifier.
#[derive(Default)]
pub(super) struct DirConnections {
    visitors: BTreeMap<u64, Visitor>,
    last: u64,
}

struct Visitor {
    socket: TcpStream,
    peer: IpAddr,
    stage: Stage,
    begun: Time,
    moved: Time,
}

enum Stage {
    /// The client's request is incomplete.
    Asking(RequestReader),
    /// The request is complete, but there is no reply yet.
    Waiting(PendingRequest),
    /// The reply is being sent.
    Answered(ResponseStream),
    /// The reply is sent. Input is still read and dropped. Closing a socket with unread input
    /// would reset the connection, and the client would lose the reply.
    Leaving,
}

impl DirConnections {
    /// Adds the connection `socket` of a client. `longest` is the maximum length of its request's
    /// body in bytes.
    ///
    /// # Errors
    /// A system call fails.
    pub(super) fn enter(
        &mut self,
        now: Time,
        poller: &Poller,
        (socket, peer): (TcpStream, SocketAddr),
        longest: usize,
    ) -> io::Result<()> {
        let peer = peer.ip();
        let same = self.visitors.values().filter(|visitor| visitor.peer == peer).count();
        if self.visitors.len() >= MOST || same >= MOST_OF_ONE {
            return Ok(());
        }
        socket.set_nonblocking(true)?;
        self.last += 1;
        poller.add(&socket, STREAMS + self.last)?;
        let stage = Stage::Asking(RequestReader::new(longest));
        self.visitors.insert(self.last, Visitor { socket, peer, stage, begun: now, moved: now });
        Ok(())
    }

    /// Reads from and writes to the connection with the identifier `number` after the poller
    /// reported `ready`.
    pub(super) fn serve(
        &mut self,
        now: Time,
        poller: &Poller,
        number: u64,
        ready: Ready,
        answers: &dyn Answers,
    ) {
        let Some(visitor) = self.visitors.get_mut(&number) else { return };
        visitor.moved = now;
        let goes_on = visitor.progress(ready, answers).unwrap_or(false);
        let interest = visitor.interest();
        if !goes_on || poller.change(&visitor.socket, STREAMS + number, interest).is_err() {
            self.visitors.remove(&number);
        }
    }

    /// Sends the replies that were not available before: checks each request without a reply
    /// again.
    pub(super) fn call(&mut self, now: Time, poller: &Poller, answers: &dyn Answers) {
        let waits = |visitor: &Visitor| matches!(visitor.stage, Stage::Waiting(_));
        let waiting = self.visitors.iter().filter(|(_, visitor)| waits(visitor));
        let numbers: Vec<u64> = waiting.map(|(number, _)| *number).collect();
        let nothing = Ready { token: 0, read: false, write: false, error: false };
        for number in numbers {
            self.serve(now, poller, number, nothing, answers);
        }
    }

    /// Closes connections that were idle or open for too long.
    pub(super) fn expire(&mut self, now: Time) {
        self.visitors.retain(|_, visitor| {
            let waits = matches!(visitor.stage, Stage::Waiting(_));
            let silent = !waits && now.since(visitor.moved) >= SILENCE;
            !silent && now.since(visitor.begun) < LONGEST
        });
    }
}

impl Visitor {
    fn interest(&self) -> Interest {
        let answered = matches!(self.stage, Stage::Answered(..));
        Interest { read: !answered, write: answered }
    }

    /// Reads and writes as much as possible without blocking. Returns false if the connection is
    /// to be closed.
    fn progress(&mut self, ready: Ready, answers: &dyn Answers) -> io::Result<bool> {
        if ready.read && !matches!(self.stage, Stage::Answered(..)) && !self.read_more()? {
            return Ok(false);
        }
        if let Stage::Waiting(waiting) = &mut self.stage
            && let Some(reply) = waiting.look(answers, Some(self.peer), unix())
        {
            self.stage = Stage::Answered(reply.into_stream());
        }
        self.write_more()?;
        Ok(true)
    }

    /// Reads from the socket once. Returns false if the client has closed the connection.
    fn read_more(&mut self) -> io::Result<bool> {
        let mut buffer = [0; PIECE];
        let count = match self.socket.read(&mut buffer) {
            Ok(0) => return Ok(false),
            Ok(count) => count,
            Err(error) if is_passing(&error) => return Ok(true),
            Err(error) => return Err(error),
        };
        let Stage::Asking(reader) = &mut self.stage else { return Ok(true) };
        match reader.push(&buffer[..count]) {
            Ok(None) => {}
            Ok(Some(request)) => self.stage = Stage::Waiting(PendingRequest::new(request)),
            Err(error) => {
                let reply = Reply::new(400, &error.to_string())
                    .with_common_headers(unix(), Some(self.peer));
                self.stage = Stage::Answered(reply.into_stream());
            }
        }
        Ok(true)
    }

    fn write_more(&mut self) -> io::Result<()> {
        let Stage::Answered(answer) = &mut self.stage else { return Ok(()) };
        while !answer.next().is_empty() {
            match self.socket.write(answer.next()) {
                Ok(count) => answer.advance(count),
                Err(error) if is_passing(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.stage = Stage::Leaving;
        self.socket.shutdown(Shutdown::Write)
    }
}

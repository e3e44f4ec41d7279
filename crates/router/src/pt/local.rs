//! Local connections: TCP connections between our transport and other programs. At a client, these
//! are the programs that use the transport. At a server, these are a relay or another server. A
//! link through the transport carries the bytes of one local connection.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_os::poller::{Interest, Poller, Ready};
use anabranch_pt::ExtOrClient;
use anabranch_stego::Ending;
use socket2::SockRef;

use super::backlog::Backlog;
use super::socket_watch::SocketWatch;
use crate::onion::{connecting_from, is_passing};

/// Smallest poller token of a local connection. The token is this value plus the identifier of the
/// connection's link.
pub(super) const LOCALS: u64 = 1 << 62;
/// Number of bytes that are read in one call, and maximum number of bytes that are queued for the
/// program.
const PIECE: usize = 64 << 10;

/// A stream that a client of our transport has opened, and the source address of the first
/// connection that carried the stream.
#[derive(Debug)]
pub struct Arrival {
    pub(super) socket: TcpStream,
    pub(super) from: Option<SocketAddr>,
}

/// Returns the two ends of a private TCP connection on this machine. With a pair of Unix sockets,
/// the program could not distinguish a reset from the regular end of a stream.
pub(super) fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    near.set_nodelay(true)?;
    let own = near.local_addr()?;
    loop {
        let (far, peer) = listener.accept()?;
        if peer == own {
            far.set_nodelay(true)?;
            far.set_nonblocking(true)?;
            return Ok((near, far));
        }
    }
}

/// This side's end of a link (a pair of byte streams between a client and a server of our
/// transport). The trait has the operations that the link's local connection needs.
pub(super) trait LinkEnd {
    /// Returns the number of bytes that the link accepts now.
    fn room(&self) -> usize;
    /// Writes `bytes` to the link. There must be room for all of them.
    fn write(&mut self, bytes: &[u8]);
    /// Ends the stream that this side sends on the link.
    fn finish(&mut self);
    /// Returns the next bytes from the other side; `None` if there are none now.
    fn read(&mut self, now: Time) -> Option<Vec<u8>>;
    /// Returns whether the other side's stream has ended and was read completely.
    fn has_ended(&self) -> bool;
}

/// The local connection of a link: the TCP connection whose bytes the link carries. "Program"
/// means the program or relay at the other end of this connection.
pub(super) struct Local {
    socket: TcpStream,
    connected: bool,
    /// Dialogue with a relay's Extended ORPort. `None` if there is no such port, or once the
    /// dialogue is complete.
    greeting: Option<ExtOrClient>,
    out: Backlog,
    /// True if the socket may have input.
    readable: bool,
    /// True if the program has ended its stream: it sends nothing more.
    ended: bool,
    /// True if we have closed our sending side.
    shut: bool,
    watched: SocketWatch,
}

impl Local {
    /// Wraps a connection that a program has opened to us. The socket must be non-blocking, and be
    /// watched for input.
    pub(super) fn of(socket: TcpStream) -> Local {
        Local::new(socket, None, SocketWatch::of(Interest::READ))
    }

    /// Wraps a connection whose socket must still be registered with a poller.
    pub(super) fn unwatched(socket: TcpStream) -> Local {
        Local::new(socket, None, SocketWatch::default())
    }

    /// Opens a connection to the address `to`, from the local address `from` if one is given. The
    /// connection begins with the dialogue `greeting`, if there is one.
    ///
    /// # Errors
    /// A system call fails.
    pub(super) fn connect(
        (to, from): (SocketAddr, Option<IpAddr>),
        greeting: Option<ExtOrClient>,
    ) -> io::Result<Local> {
        let socket = connecting_from(to, from)?;
        socket.set_nodelay(true)?;
        Ok(Local { connected: false, ..Local::new(socket, greeting, SocketWatch::default()) })
    }

    fn new(socket: TcpStream, greeting: Option<ExtOrClient>, watched: SocketWatch) -> Local {
        Local {
            socket,
            connected: true,
            greeting,
            out: Backlog::default(),
            readable: true,
            ended: false,
            shut: false,
            watched,
        }
    }

    /// Starts to watch the connection, which we have opened, with `poller`.
    ///
    /// # Errors
    /// A system call fails.
    pub(super) fn add_to(&mut self, poller: &Poller, link: u64) -> io::Result<()> {
        self.watch_for(poller, link, self.interest(0))
    }

    /// Updates the events for which the socket is watched. `room` is the number of bytes that the
    /// link accepts.
    pub(super) fn watch(&mut self, poller: &Poller, link: u64, room: usize) {
        // If this fails, the old events stay in use.
        let _ = self.watch_for(poller, link, self.interest(room));
    }

    fn watch_for(&mut self, poller: &Poller, link: u64, wanted: Interest) -> io::Result<()> {
        self.watched.set(poller, (&self.socket, LOCALS + link), wanted)
    }

    fn interest(&self, room: usize) -> Interest {
        let read = self.connected && !self.ended && (room > 0 || self.greeting.is_some());
        Interest { read, write: !self.connected || !self.out.is_empty() }
    }

    /// Queues `bytes` for the program. The bytes are sent before any data of the link.
    pub(super) fn queue_answer(&mut self, bytes: &[u8]) {
        self.out.push(bytes);
    }

    /// Records that the socket is ready for the events in `ready`.
    pub(super) fn ready(&mut self, ready: Ready) -> io::Result<()> {
        self.readable |= ready.read;
        if !self.connected && ready.write {
            if let Some(error) = self.socket.take_error()? {
                return Err(error);
            }
            self.connected = true;
        }
        Ok(())
    }

    /// Moves bytes between the connection and `link`. Returns whether any bytes were moved.
    ///
    /// # Errors
    /// The socket reports an error, or the relay refuses the connection. The connection has ended
    /// then.
    pub(super) fn service(&mut self, now: Time, link: &mut dyn LinkEnd) -> io::Result<bool> {
        if !self.connected {
            return Ok(false);
        }
        if self.greeting.is_some() {
            self.greet(link)?;
            self.out.flush(&self.socket)?;
            return Ok(self.greeting.is_none());
        }
        let filled = self.fill(link)?;
        Ok(self.drain(now, link)? || filled)
    }

    /// Writes queued bytes. Returns whether the queue is empty.
    ///
    /// # Errors
    /// The socket reports an error.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        self.out.flush(&self.socket)?;
        Ok(self.out.is_empty())
    }

    /// Returns whether the streams in both directions of the connection have ended.
    pub(super) fn is_over(&self) -> bool {
        self.ended && self.shut && self.out.is_empty()
    }

    /// Resets the connection, because data was lost. After an orderly close, the program would
    /// assume that it had received all bytes.
    pub(super) fn cut(self) {
        // If this fails, the connection is closed in an orderly way.
        let _ = SockRef::from(&self.socket).set_linger(Some(Duration::ZERO));
    }

    fn greet(&mut self, link: &mut dyn LinkEnd) -> io::Result<()> {
        let mut buffer = [0; 512];
        while let Some(greeting) = &mut self.greeting {
            let count = match self.socket.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(error) if is_passing(&error) => return Ok(()),
                Err(error) => return Err(error),
            };
            let mut replies = Vec::new();
            let open = greeting.take(&buffer[..count], &mut replies);
            self.out.push(&replies);
            if open.map_err(io::Error::other)? {
                link.write(&greeting.rest());
                self.greeting = None;
            }
        }
        Ok(())
    }

    /// Reads from the program, up to the number of bytes for which `link` has room. Returns
    /// whether any bytes were read.
    fn fill(&mut self, link: &mut dyn LinkEnd) -> io::Result<bool> {
        let room = link.room().min(PIECE);
        if !self.readable || self.ended || room == 0 {
            return Ok(false);
        }
        let mut buffer = vec![0; room];
        match self.socket.read(&mut buffer) {
            Ok(0) => {
                self.ended = true;
                link.finish();
            }
            Ok(count) => link.write(&buffer[..count]),
            Err(error) if is_passing(&error) => {
                self.readable = false;
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Writes data of `link` to the program, until the program accepts no more. Returns whether
    /// any bytes were written.
    fn drain(&mut self, now: Time, link: &mut dyn LinkEnd) -> io::Result<bool> {
        let mut moved = false;
        loop {
            while self.out.len() < PIECE
                && let Some(bytes) = link.read(now)
            {
                self.out.push(&bytes);
                moved = true;
            }
            if self.out.is_empty() {
                break;
            }
            self.out.flush(&self.socket)?;
            if !self.out.is_empty() {
                return Ok(moved);
            }
        }
        if link.has_ended() && !self.shut {
            self.shut = true;
            // The connection may be gone already.
            let _ = self.socket.shutdown(Shutdown::Write);
        }
        Ok(moved)
    }
}

/// Local connections whose links have ended, but that still have data queued for the program.
#[derive(Default)]
pub(super) struct Leaving(BTreeMap<u64, Local>);

impl Leaving {
    /// Adds the local connection of `link`, which has ended for the reason `ending`. If both
    /// streams of the link have ended ([`Ending::Done`]), the program receives the queued data.
    /// Otherwise the connection is reset.
    pub(super) fn add(&mut self, poller: &Poller, link: u64, mut local: Local, ending: Ending) {
        let written = local.flush();
        match (ending, written) {
            (Ending::Done, Ok(false)) => {
                if local.watch_for(poller, link, Interest { read: false, write: true }).is_ok() {
                    self.0.insert(link, local);
                }
            }
            (Ending::Done, _) => {}
            _ => local.cut(),
        }
    }

    /// Returns whether no local connection with queued data is left.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes queued data to the local connection of `link`, whose socket is ready.
    pub(super) fn ready(&mut self, link: u64) {
        if self.0.get_mut(&link).is_some_and(|local| local.flush().unwrap_or(true)) {
            self.0.remove(&link);
        }
    }

    /// Resets connections whose programs have read nothing for a minute. Otherwise these
    /// connections would stay open forever.
    pub(super) fn sweep(&mut self, now: Time) {
        for (_, local) in self.0.extract_if(.., |_, local| local.out.is_stuck(now)) {
            local.cut();
        }
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        std::mem::take(&mut self.0).into_values().for_each(Local::cut);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A link whose other side has ended its stream, with room for the given number of bytes.
    struct MuteLink {
        room: usize,
        finished: bool,
    }

    impl LinkEnd for MuteLink {
        fn room(&self) -> usize {
            self.room
        }

        fn write(&mut self, bytes: &[u8]) {
            self.room -= bytes.len();
        }

        fn finish(&mut self) {
            self.finished = true;
        }

        fn read(&mut self, _now: Time) -> Option<Vec<u8>> {
            None
        }

        fn has_ended(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_program_that_never_reads_is_cut_a_minute_after_its_link_ended_and_one_that_reads_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (poller, mut leaving) = (Poller::new(8).unwrap(), Leaving::default());
        let mut programs: Vec<TcpStream> = Vec::new();
        for link in [1, 2] {
            programs.push(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
            let socket = listener.accept().unwrap().0;
            socket.set_nonblocking(true).unwrap();
            poller.add(&socket, LOCALS + link).unwrap();
            let mut local = Local::of(socket);
            // This is more data than the kernel's buffers hold.
            local.queue_answer(&vec![7; 32 << 20]);
            leaving.add(&poller, link, local, Ending::Done);
        }
        assert_eq!(leaving.0.len(), 2);
        // A program that reads a little now and then is slow, and keeps its connection.
        for second in [100, 130, 159] {
            leaving.sweep(Time::from_secs(second));
            assert_eq!(leaving.0.len(), 2, "{second} s");
            let before = leaving.0[&2].out.len();
            while leaving.0[&2].out.len() == before {
                programs[1].read_exact(&mut vec![0; 256 << 10]).unwrap();
                leaving.ready(2);
            }
        }
        leaving.sweep(Time::from_secs(160));
        assert_eq!(leaving.0.keys().collect::<Vec<_>>(), [&2]);
        // The reset shows the program that it has not received all data.
        let error = programs[0].read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        leaving.sweep(Time::from_secs(219));
        assert_eq!(leaving.0.len(), 1);
        leaving.sweep(Time::from_secs(220));
        assert!(leaving.0.is_empty());
    }

    #[test]
    fn a_connection_that_both_ends_have_ended_keeps_no_station_busy() {
        for room in [9, 3] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut program = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let socket = listener.accept().unwrap().0;
            socket.set_nonblocking(true).unwrap();
            let (mut poller, mut link) =
                (Poller::new(8).unwrap(), MuteLink { room, finished: false });
            poller.add(&socket, LOCALS + 7).unwrap();
            let mut local = Local::of(socket);
            program.write_all(b"words").unwrap();
            drop(program);
            // All bytes of the program are read, or as many as the link accepts.
            while !link.finished && link.room > 0 {
                let ready: Vec<Ready> = poller.wait(None).unwrap().collect();
                local.ready(ready[0]).unwrap();
                while local.service(Time::ZERO, &mut link).unwrap() {}
                local.watch(&poller, 7, link.room);
            }
            let count = poller.wait(Some(Duration::from_millis(100))).unwrap().count();
            assert_eq!((count, link.finished), (0, room == 9));
            // With room again, the poller reports the rest, if there is any.
            local.watch(&poller, 7, 9);
            let count = poller.wait(Some(Duration::from_millis(100))).unwrap().count();
            assert_eq!(count, usize::from(room == 3));
        }
    }
}

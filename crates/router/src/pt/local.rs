//! The connection of a program, or to a relay, whose bytes a link carries.

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

/// The least token of a local connection: its link's number added to this.
pub(super) const LOCALS: u64 = 1 << 62;
/// Bytes read and written at once.
const PIECE: usize = 64 << 10;

/// A stream that a client has opened, and where the first connection that carried it came from.
#[derive(Debug)]
pub struct Arrival {
    pub(super) socket: TcpStream,
    pub(super) from: Option<SocketAddr>,
}

/// The two ends of a connection on this machine that nobody else has. A pair of Unix sockets would
/// not tell the end of a stream from a cut.
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

/// The end of a link that a local connection belongs to.
pub(super) trait LinkEnd {
    /// Bytes that it takes now.
    fn room(&self) -> usize;
    /// Takes bytes, as many as there is room for.
    fn write(&mut self, bytes: &[u8]);
    /// Nothing more will be written.
    fn finish(&mut self);
    /// The next bytes of the other end.
    fn read(&mut self, now: Time) -> Option<Vec<u8>>;
    /// Whether the other end's stream has ended, and all of it was read.
    fn has_ended(&self) -> bool;
}

/// One connection.
pub(super) struct Local {
    socket: TcpStream,
    connected: bool,
    /// What is first said to a relay's Extended ORPort.
    greeting: Option<ExtOrClient>,
    out: Backlog,
    /// It may have something to read.
    readable: bool,
    /// Its last word has come, and ours was said.
    ended: bool,
    shut: bool,
    watched: SocketWatch,
}

impl Local {
    /// A connection that a program opened to us, which does not block, and is watched for something
    /// to read.
    pub(super) fn of(socket: TcpStream) -> Local {
        Local::new(socket, None, SocketWatch::of(Interest::READ))
    }

    /// The same of a connection that nobody watches yet.
    pub(super) fn unwatched(socket: TcpStream) -> Local {
        Local::new(socket, None, SocketWatch::default())
    }

    /// A connection to this address, from one of ours if that is named; `greeting` is said first.
    ///
    /// # Errors
    /// The kernel's.
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

    /// Begins to watch a connection of ours.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn add_to(&mut self, poller: &Poller, link: u64) -> io::Result<()> {
        self.watch_for(poller, link, self.interest(0))
    }

    /// Watches it for what is of use, where its link takes so many bytes.
    pub(super) fn watch(&mut self, poller: &Poller, link: u64, room: usize) {
        // Where that is refused, it is watched for what it was.
        let _ = self.watch_for(poller, link, self.interest(room));
    }

    fn watch_for(&mut self, poller: &Poller, link: u64, wanted: Interest) -> io::Result<()> {
        self.watched.set(poller, (&self.socket, LOCALS + link), wanted)
    }

    fn interest(&self, room: usize) -> Interest {
        let read = self.connected && !self.ended && (room > 0 || self.greeting.is_some());
        Interest { read, write: !self.connected || !self.out.is_empty() }
    }

    /// Says something to the program before anything of the link.
    pub(super) fn say(&mut self, bytes: &[u8]) {
        self.out.push(bytes);
    }

    /// The socket is ready.
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

    /// Moves bytes between it and its link; whether any moved.
    ///
    /// # Errors
    /// The socket's, or a relay's that does not want us: it is over.
    pub(super) fn stir(&mut self, now: Time, link: &mut dyn LinkEnd) -> io::Result<bool> {
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

    /// Writes what waits for it; whether nothing does any more.
    ///
    /// # Errors
    /// The socket's.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        self.out.flush(&self.socket)?;
        Ok(self.out.is_empty())
    }

    /// Whether both its ends are done: nothing more comes or goes.
    pub(super) fn is_over(&self) -> bool {
        self.ended && self.shut && self.out.is_empty()
    }

    /// Ends it by a reset: a plain end would pass for that of all its bytes.
    pub(super) fn cut(self) {
        // Where that is refused, the plain end is all there is.
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
            let mut said = Vec::new();
            let open = greeting.take(&buffer[..count], &mut said);
            self.out.push(&said);
            if open.map_err(io::Error::other)? {
                link.write(&greeting.rest());
                self.greeting = None;
            }
        }
        Ok(())
    }

    /// Takes what the program says, no more than the link has room for.
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

    /// Gives the program what came for it, until it takes no more.
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
            // It may have gone meanwhile.
            let _ = self.socket.shutdown(Shutdown::Write);
        }
        Ok(moved)
    }
}

/// Connections whose links are over, and that have not taken all yet.
#[derive(Default)]
pub(super) struct Leaving(BTreeMap<u64, Local>);

impl Leaving {
    /// A link is over: its connection takes what still waits for it, or sees that it was cut.
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

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The socket of one of them is ready.
    pub(super) fn ready(&mut self, link: u64) {
        if self.0.get_mut(&link).is_some_and(|local| local.flush().unwrap_or(true)) {
            self.0.remove(&link);
        }
    }

    /// Cuts those whose programs read nothing any more: they would be kept for ever.
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

    /// A link whose other end has ended, with room for so many bytes.
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
            // More than the kernel's buffers hold.
            local.say(&vec![7; 32 << 20]);
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
        // What it missed does not pass for all there was.
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
            // All that it says is read, or as much as the link takes.
            while !link.finished && link.room > 0 {
                let ready: Vec<Ready> = poller.wait(None).unwrap().collect();
                local.ready(ready[0]).unwrap();
                while local.stir(Time::ZERO, &mut link).unwrap() {}
                local.watch(&poller, 7, link.room);
            }
            let told = poller.wait(Some(Duration::from_millis(100))).unwrap().count();
            assert_eq!((told, link.finished), (0, room == 9));
            // With room again the rest is told of, and nothing where there is none.
            local.watch(&poller, 7, 9);
            let told = poller.wait(Some(Duration::from_millis(100))).unwrap().count();
            assert_eq!(told, usize::from(room == 3));
        }
    }
}

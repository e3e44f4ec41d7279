//! Our transport as a library: byte streams for programs that use this crate.
//!
//! [`dial`] and [`listen`] work like `anabranch pt client` and `anabranch pt server`, except that
//! the calling program reads and writes the streams itself. Each dialled stream and each
//! [`Listener`] has a separate thread. Calls block, as in the standard library.
//!
//! ```
//! use std::io::{Read, Write};
//!
//! use anabranch_os::entropy::generator;
//! use anabranch_router::pt::{ListenSettings, ServerKey, dial, listen};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let key = ServerKey::generate(&mut generator()?);
//! let server = listen(ListenSettings::new("127.0.0.1:0".parse()?, key), |_| ())?;
//!
//! // Elsewhere, with the line of the server: Bridge::parse(line)?
//! let near = dial(server.bridge())?;
//! (&near).write_all(b"words")?;
//! near.finish()?;
//!
//! let (far, _from) = server.accept()?;
//! let mut said = Vec::new();
//! (&far).read_to_end(&mut said)?;
//! assert_eq!(said, b"words");
//! # Ok(())
//! # }
//! ```

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_multipath::schedule::Spec;
use anabranch_stego::{Covers, Profile, ServerKey, Shapes};

use super::bridge::{Bridge, PROFILE};
use super::client::{ClientSettings, PtClient};
use super::inside::StationThread;
use super::local::{Arrival, pair};
use super::managed::Limits;
use super::server::{Onward, PtServer, ServerSettings};
use super::{PtEvent, SCHEDULE, Station, StopConditions, carry_while};

/// Maximum time for which data is still sent after its stream was dropped.
const PARTING: Duration = Duration::from_secs(60);

/// A stream of bytes through our transport. Reads and writes block.
///
/// After the stream is dropped, data that was written before is still sent for at most a minute,
/// while the program runs. If the other side's data was not read, or arrives later, the stream is
/// reset. To be sure that all written data has arrived, call [`Stream::finish`] and read until the
/// other side has finished, too. Reads of a stream that was reset fail with
/// [`io::ErrorKind::ConnectionReset`].
#[derive(Debug)]
pub struct Stream {
    socket: TcpStream,
    /// Reference that keeps the thread for this stream alive. Once the stream is dropped, the
    /// thread ends after at most [`PARTING`]. `None` for a stream of a [`Listener`], which uses
    /// the thread of the listener.
    _owned: Option<Arc<()>>,
}

impl Stream {
    /// Ends the stream that this side sends. The other side then reads the end of the stream.
    ///
    /// # Errors
    /// A system call fails.
    pub fn finish(&self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)
    }

    /// Returns the socket of the stream, for example to set timeouts. It is one end of a
    /// connection within this machine; the transport holds the other end. Clones of the socket do
    /// not keep the stream open.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.socket).read(buffer)
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&self.socket).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&self.socket).flush()
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

/// Opens a stream to the server `bridge`. If the bridge's profile uses connection shapes, the
/// server must use the built-in shapes, because this function uses them.
///
/// # Errors
/// The server does not answer within 30 s, or a system call fails.
pub fn dial(bridge: &Bridge) -> io::Result<Stream> {
    let (near, far) = pair()?;
    let (owned, bridge) = (Arc::new(()), bridge.clone());
    let (owner, (reporter, news)) = (Arc::downgrade(&owned), channel());
    let run = move || {
        let up = |outcome| drop(reporter.send(outcome));
        let open = || {
            let settings =
                ClientSettings { listen: Vec::new(), schedule: pull(), shapes: Shapes::default() };
            let mut station = PtClient::new(settings)?;
            station.adopt(far, &bridge)?;
            Ok((station, UnixStream::pair()?))
        };
        let (mut station, (_never, stop)) = match open() {
            Ok(opened) => opened,
            Err(error) => return up(Err(error)),
        };
        let conditions = StopConditions { stop: &stop, with_input: false };
        let mut since: Option<Time> = None;
        let goes_on = |station: &PtClient| {
            let now = station.clock().now();
            if owner.strong_count() == 0 {
                since.get_or_insert(now);
            }
            !station.is_idle() && since.is_none_or(|since| now.since(since) < PARTING)
        };
        let mut watch = |event| match event {
            PtEvent::Up(_) => up(Ok(())),
            PtEvent::Trouble(why) => up(Err(io::Error::other(why))),
            PtEvent::Over(..) | PtEvent::Stranger => {}
        };
        // After an error the socket is closed, so the reader of the stream notices the error.
        let _ = carry_while(&mut station, &conditions, &mut watch, goes_on);
    };
    thread::Builder::new().name("transport".into()).spawn(run)?;
    news.recv().unwrap_or_else(|_| Err(io::ErrorKind::ConnectionAborted.into()))?;
    Ok(Stream { socket: near, _owned: Some(owned) })
}

/// Settings of a server of our transport that is used as a library.
#[derive(Clone, Debug)]
pub struct ListenSettings {
    /// Address at which clients connect.
    pub address: SocketAddr,
    /// Key pair of the server. [`super::server_key`] stores a key pair in a file.
    pub key: ServerKey,
    /// Camouflage profile: the protocol that the server's connections imitate.
    pub profile: Profile,
    /// A web server that answers peers that are not clients; `None` for no answer. HTTP profiles
    /// require a web server.
    pub site: Option<SocketAddr>,
    /// Covers (web objects in which answers hide bytes), if the profile uses any.
    pub covers: Covers,
    /// Limits of the server's links.
    pub limits: Limits,
}

impl ListenSettings {
    /// Creates settings of a server whose connections look like random bytes.
    #[must_use]
    pub fn new(address: SocketAddr, key: ServerKey) -> ListenSettings {
        let profile = PROFILE.parse().expect("the default profile exists");
        let (covers, limits) = (Covers::default(), Limits::default());
        ListenSettings { address, key, profile, site: None, covers, limits }
    }
}

/// A server of our transport for use as a library: the program accepts the clients' streams with
/// [`Listener::accept`]. Dropping it resets all of its streams.
pub struct Listener {
    bridge: Bridge,
    taken: Receiver<Arrival>,
    _station: StationThread,
}

impl Listener {
    /// Returns the server's address, key and profile, which clients need. The text form of the
    /// returned value is a bridge line.
    #[must_use]
    pub fn bridge(&self) -> &Bridge {
        &self.bridge
    }

    /// Waits for the next stream. Also returns the source address of the first connection that
    /// carried it; `None` if the address is unknown.
    ///
    /// # Errors
    /// The server has ended, so there are no more streams.
    pub fn accept(&self) -> io::Result<(Stream, Option<SocketAddr>)> {
        let taken = self.taken.recv().map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok((Stream { socket: taken.socket, _owned: None }, taken.from))
    }
}

/// Starts a server, which accepts streams of clients. Passes the server's events to `watch`, on
/// another thread.
///
/// # Errors
/// The process cannot listen on the address, `settings` lacks a web server or covers that the
/// profile needs, or a system call fails.
pub fn listen(
    settings: ListenSettings,
    watch: impl FnMut(PtEvent) + Send + 'static,
) -> io::Result<Listener> {
    let (reporter, taken) = channel();
    let ListenSettings { address, key, profile, site, covers, limits } = settings;
    let settings = ServerSettings {
        listen: address,
        key,
        profile,
        onward: Onward::Program(reporter),
        site,
        schedule: pull(),
        memory: limits.memory,
        links: limits.links,
        covers,
    };
    let open = || {
        let station = PtServer::new(settings)?;
        let bridge = station.bridge().clone();
        Ok((station, bridge))
    };
    let (station, bridge) = StationThread::start(open, watch, |_| ())?;
    Ok(Listener { bridge, taken, _station: station })
}

fn pull() -> Spec {
    Spec::over_windows(SCHEDULE).expect("the default schedule exists")
}

//! Our transport as a library: streams of bytes through it, for programs that are no proxies.
//!
//! [`dial`] and [`listen`] are what `anabranch pt client` and `anabranch pt server` do, with a
//! socket of the calling program in place of one that others reach. Each stream that was dialled
//! has a thread, and each [`Listener`] one; calls block, as those of the standard library do.
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
use super::client::{ClientSettings, ClientStation};
use super::inside::StationThread;
use super::local::{Arrival, pair};
use super::managed::Limits;
use super::server::{Onward, ServerSettings, ServerStation};
use super::{Ends, PtEvent, SCHEDULE, Station, carry_while};

/// How long what was written may take to go once its stream was dropped.
const PARTING: Duration = Duration::from_secs(60);

/// A stream of bytes through our transport. Reads and writes block.
///
/// What was written goes on its way when this is dropped, for a minute at most, while the program
/// runs and the other side says nothing: what nobody reads cuts the stream. Who has to know that
/// all has come calls [`Stream::finish`] and reads until the end, which the other side says in its
/// turn. A stream that was cut ends with [`io::ErrorKind::ConnectionReset`].
#[derive(Debug)]
pub struct Stream {
    socket: TcpStream,
    /// While it is kept, the thread that carries what is written waits for more.
    _owned: Option<Arc<()>>,
}

impl Stream {
    /// Nothing more will be written; the other side reads its end.
    ///
    /// # Errors
    /// The kernel's.
    pub fn finish(&self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)
    }

    /// The socket by which it is reached, for time-outs and the like: its addresses are of this
    /// machine alone, and no copy of it makes the stream outlive this.
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

/// Opens a stream to a server of our transport, with the shapes of connections that come with the
/// program where its profile has any.
///
/// # Errors
/// It does not answer within 30 s, or the kernel's.
pub fn dial(bridge: &Bridge) -> io::Result<Stream> {
    let (near, far) = pair()?;
    let (owned, bridge) = (Arc::new(()), bridge.clone());
    let (owner, (teller, news)) = (Arc::downgrade(&owned), channel());
    let run = move || {
        let up = |outcome| drop(teller.send(outcome));
        let open = || {
            let settings =
                ClientSettings { listen: Vec::new(), schedule: pull(), shapes: Shapes::default() };
            let mut station = ClientStation::new(settings)?;
            station.adopt(far, &bridge)?;
            Ok((station, UnixStream::pair()?))
        };
        let (mut station, (_never, stop)) = match open() {
            Ok(opened) => opened,
            Err(error) => return up(Err(error)),
        };
        let ends = Ends { stop: &stop, with_input: false };
        let mut since: Option<Time> = None;
        let goes_on = |station: &ClientStation| {
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
        // Whoever reads sees that the socket is gone.
        let _ = carry_while(&mut station, &ends, &mut watch, goes_on);
    };
    thread::Builder::new().name("transport".into()).spawn(run)?;
    news.recv().unwrap_or_else(|_| Err(io::ErrorKind::ConnectionAborted.into()))?;
    Ok(Stream { socket: near, _owned: Some(owned) })
}

/// What a server of our transport is made of.
#[derive(Clone, Debug)]
pub struct ListenSettings {
    /// Where clients come in.
    pub address: SocketAddr,
    /// Its key pair: [`super::server_key`] keeps one in a file.
    pub key: ServerKey,
    /// What its connections look like.
    pub profile: Profile,
    /// A server of the web that answers whoever is no client; http profiles want one.
    pub site: Option<SocketAddr>,
    /// What answers hide bytes in, where the profile wants any.
    pub covers: Covers,
    /// What its links may take.
    pub limits: Limits,
}

impl ListenSettings {
    /// A server whose connections show random bytes.
    #[must_use]
    pub fn new(address: SocketAddr, key: ServerKey) -> ListenSettings {
        let profile = PROFILE.parse().expect("it is one of ours");
        let (covers, limits) = (Covers::default(), Limits::default());
        ListenSettings { address, key, profile, site: None, covers, limits }
    }
}

/// A server of our transport. Its streams are cut when it is dropped.
pub struct Listener {
    bridge: Bridge,
    taken: Receiver<Arrival>,
    _station: StationThread,
}

impl Listener {
    /// What clients are told of it; as text it is a bridge line.
    #[must_use]
    pub fn bridge(&self) -> &Bridge {
        &self.bridge
    }

    /// Waits for the next stream, and where the first connection that carried it came from.
    ///
    /// # Errors
    /// There will be none any more.
    pub fn accept(&self) -> io::Result<(Stream, Option<SocketAddr>)> {
        let taken = self.taken.recv().map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok((Stream { socket: taken.socket, _owned: None }, taken.from))
    }
}

/// Takes streams of clients; `watch` is told what happens, in a thread of its own.
///
/// # Errors
/// The address cannot be listened on, the profile lacks what it wants, or the kernel's.
pub fn listen(
    settings: ListenSettings,
    watch: impl FnMut(PtEvent) + Send + 'static,
) -> io::Result<Listener> {
    let (teller, taken) = channel();
    let ListenSettings { address, key, profile, site, covers, limits } = settings;
    let settings = ServerSettings {
        listen: address,
        key,
        profile,
        onward: Onward::Program(teller),
        site,
        schedule: pull(),
        memory: limits.memory,
        links: limits.links,
        covers,
    };
    let open = || {
        let station = ServerStation::new(settings)?;
        let bridge = station.bridge().clone();
        Ok((station, bridge))
    };
    let (station, bridge) = StationThread::start(open, watch, |_| ())?;
    Ok(Listener { bridge, taken, _station: station })
}

fn pull() -> Spec {
    Spec::over_windows(SCHEDULE).expect("it is one of ours")
}

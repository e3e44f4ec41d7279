//! The Extended ORPort of a bridge (ext-orport-spec). Pluggable transports connect to it, and
//! forward the connections of the bridge's clients together with the clients' addresses.
//! Handshakes run on their own thread, so that event loops that move cells do not wait for
//! handshakes.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_os::clock::Clock;
use anabranch_os::entropy::generator;
use anabranch_os::files::SpareDescriptor;
use anabranch_os::poller::{Poller, Ready};
use anabranch_pt::{COOKIE_FILE, ConnectionInfo, ExtOrServer};
use rand_core::Rng;

use crate::onion::is_passing;
use crate::onion::store::{StoreError, replace};

/// Name of the file with the Extended ORPort's authentication cookie, as in C tor.
const COOKIE: &str = "extended_orport_auth_cookie";
/// Timeout of a handshake on the Extended ORPort.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of handshakes on the Extended ORPort at the same time.
const MOST: usize = 1024;
/// Interval between checks for handshakes that take too long.
const LOOK: Duration = Duration::from_secs(1);
/// Poller token of the socket that becomes readable when the thread must end.
const STOP: u64 = 0;
/// Poller token of the listener.
const LISTENER: u64 = 1;
/// First poller token of connections.
const FIRST: u64 = 2;

/// An Extended ORPort, the port for pluggable transports, before its thread is started.
pub struct ExtendedPort {
    listener: TcpListener,
    at: SocketAddr,
    cookie: [u8; 32],
    file: PathBuf,
}

/// Connection of a client that arrived through a pluggable transport, after the handshake between
/// the transport and this relay.
pub(super) struct TransportedConnection {
    pub(super) socket: TcpStream,
    /// Address of the client if the transport has reported it. Otherwise, address from which the
    /// transport has connected.
    pub(super) peer: SocketAddr,
}

impl ExtendedPort {
    /// Opens an Extended ORPort on loopback, and writes its cookie to a file in the folder `data`.
    ///
    /// # Errors
    /// The file cannot be written, or a system call fails.
    pub fn open(data: &Path) -> Result<ExtendedPort, StoreError> {
        let file = data.join(COOKIE);
        let to_error = |error| StoreError::File(file.clone(), error);
        let mut cookie = [0; 32];
        generator().map_err(to_error)?.fill_bytes(&mut cookie);
        replace(&file, &[&COOKIE_FILE[..], &cookie].concat())?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(to_error)?;
        listener.set_nonblocking(true).map_err(to_error)?;
        let at = listener.local_addr().map_err(to_error)?;
        Ok(ExtendedPort { listener, at, cookie, file })
    }

    /// Returns the address of the Extended ORPort, and the path of the file with its cookie.
    #[must_use]
    pub fn place(&self) -> (SocketAddr, PathBuf) {
        (self.at, self.file.clone())
    }
}

/// Handle of the thread that performs handshakes on the Extended ORPort. The thread ends when the
/// handle is dropped.
pub(super) struct ExtendedHandle {
    brought: Receiver<TransportedConnection>,
    waker: UnixStream,
    /// Socket that ends the thread when it is closed; `None` once it is closed.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl ExtendedHandle {
    /// Starts the thread that performs handshakes on `port`.
    ///
    /// # Errors
    /// A system call fails.
    pub(super) fn start(port: ExtendedPort) -> io::Result<ExtendedHandle> {
        let (waker, signal) = UnixStream::pair()?;
        waker.set_nonblocking(true)?;
        signal.set_nonblocking(true)?;
        let (stop, end) = UnixStream::pair()?;
        let (sender, brought) = channel();
        let handshakes = HandshakeThread {
            port,
            end,
            spare: SpareDescriptor::new(),
            clock: Clock::start(),
            dialogues: BTreeMap::new(),
            next: FIRST,
            sender,
            signal,
        };
        let thread =
            thread::Builder::new().name("extended".into()).spawn(move || handshakes.run())?;
        Ok(ExtendedHandle { brought, waker, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns a socket that becomes readable when a handshake is complete.
    pub(super) fn waker(&self) -> &UnixStream {
        &self.waker
    }

    /// Returns the clients' connections whose handshakes have completed since the last call.
    pub(super) fn take(&mut self) -> Vec<TransportedConnection> {
        let mut wake_ups = [0; 64];
        while self.waker.read(&mut wake_ups).is_ok_and(|count| count == wake_ups.len()) {}
        self.brought.try_iter().collect()
    }
}

impl Drop for ExtendedHandle {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// State of the thread that performs handshakes on the Extended ORPort.
struct HandshakeThread {
    port: ExtendedPort,
    end: UnixStream,
    spare: SpareDescriptor,
    clock: Clock,
    dialogues: BTreeMap<u64, Dialogue>,
    next: u64,
    sender: Sender<TransportedConnection>,
    signal: UnixStream,
}

/// A handshake with a pluggable transport, which reports the address of one client.
struct Dialogue {
    socket: TcpStream,
    from: SocketAddr,
    core: ExtOrServer,
    begun: Time,
}

impl HandshakeThread {
    fn run(mut self) {
        let Ok(mut poller) = Poller::new(64) else { return };
        let watched =
            poller.add(&self.end, STOP).and_then(|()| poller.add(&self.port.listener, LISTENER));
        if watched.is_err() {
            return;
        }
        loop {
            let ready: Vec<Ready> = match poller.wait(Some(LOOK)) {
                Ok(ready) => ready.collect(),
                Err(_) => return,
            };
            let now = self.clock.now();
            for one in ready {
                match one.token {
                    STOP => return,
                    LISTENER => self.accept(&poller, now),
                    token => self.read_more(&poller, token),
                }
            }
            self.dialogues.retain(|_, dialogue| now.since(dialogue.begun) < PATIENCE);
        }
    }

    fn accept(&mut self, poller: &Poller, now: Time) {
        while let Some((socket, from)) = self.spare.accept(&self.port.listener) {
            if self.dialogues.len() >= MOST {
                continue;
            }
            let Ok(mut rng) = generator() else { return };
            let (mut nonce, mut message) = ([0; 32], Vec::new());
            rng.fill_bytes(&mut nonce);
            let core = ExtOrServer::new(self.port.cookie, nonce, &mut message);
            let dialogue = Dialogue { socket, from, core, begun: now };
            let number = self.next;
            self.next += 1;
            let begun = dialogue.socket.set_nonblocking(true).is_ok()
                && poller.add(&dialogue.socket, number).is_ok()
                && write_all(&dialogue.socket, &message);
            if begun {
                self.dialogues.insert(number, dialogue);
            }
        }
    }

    fn read_more(&mut self, poller: &Poller, number: u64) {
        let Some(mut dialogue) = self.dialogues.remove(&number) else { return };
        match dialogue.read_handshake() {
            Some(None) => drop(self.dialogues.insert(number, dialogue)),
            Some(Some(info)) => {
                let peer = info.user.unwrap_or(dialogue.from);
                // Another thread reads the socket from now on, so this thread's poller must not
                // watch it.
                if poller.remove(&dialogue.socket).is_err() {
                    return;
                }
                let _ = self.sender.send(TransportedConnection { socket: dialogue.socket, peer });
                // If the pipe is full, a wake-up is pending already.
                let _ = (&self.signal).write(&[1]);
            }
            None => {}
        }
    }
}

impl Dialogue {
    /// Reads from the transport once. Returns the client's connection details once the handshake
    /// is complete, and `Some(None)` before that. Returns `None` if the handshake has failed.
    fn read_handshake(&mut self) -> Option<Option<ConnectionInfo>> {
        let mut buffer = [0; 512];
        let count = match self.socket.read(&mut buffer) {
            Ok(0) => return None,
            Ok(count) => count,
            Err(error) if is_passing(&error) => return Some(None),
            Err(_) => return None,
        };
        let mut replies = Vec::new();
        let result = self.core.take(&buffer[..count], &mut replies);
        let sent = write_all(&self.socket, &replies);
        // The client's data must not arrive before we have accepted the client.
        let early = matches!(result, Ok(Some(_))) && !self.core.rest().is_empty();
        result.ok().filter(|_| sent && !early)
    }
}

/// Writes `words` to a new socket, whose send buffer always has room for these few bytes. Returns
/// false if writing fails.
fn write_all(mut socket: &TcpStream, words: &[u8]) -> bool {
    socket.write_all(words).is_ok()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use anabranch_pt::ExtOrClient;

    use super::*;

    /// Performs a handshake with the port at `at` like a transport with the cookie file `file`.
    /// Returns the connection, and whether the handshake succeeded.
    fn bring(at: SocketAddr, file: &[u8], info: ConnectionInfo) -> (TcpStream, bool) {
        let mut socket = TcpStream::connect(at).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut client = ExtOrClient::new(file, [7; 32], info).unwrap();
        let mut buffer = [0; 256];
        loop {
            let count = socket.read(&mut buffer).unwrap_or(0);
            let mut replies = Vec::new();
            match client.take(&buffer[..count], &mut replies) {
                _ if count == 0 => return (socket, false),
                Ok(true) => return (socket, true),
                Ok(false) => socket.write_all(&replies).unwrap(),
                Err(_) => return (socket, false),
            }
        }
    }

    fn brought(extended: &mut ExtendedHandle) -> Vec<TransportedConnection> {
        let begun = Instant::now();
        loop {
            let brought = extended.take();
            if !brought.is_empty() || begun.elapsed() > Duration::from_secs(10) {
                return brought;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn who_has_the_cookie_brings_a_connection_and_says_whose_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let port = ExtendedPort::open(folder.path()).unwrap();
        let (at, file) = port.place();
        let cookie = std::fs::read(file).unwrap();
        let mut extended = ExtendedHandle::start(port).unwrap();
        let user = "192.0.2.9:4321".parse().ok();
        let info = ConnectionInfo { user, transport: Some("x".to_owned()) };
        let (mut near, is_through) = bring(at, &cookie, info);
        assert!(is_through);
        near.write_all(b"hello").unwrap();
        let mut newcomer = brought(&mut extended).remove(0);
        assert_eq!(Some(newcomer.peer), user);
        newcomer.socket.set_nonblocking(false).unwrap();
        let mut words = [0; 5];
        newcomer.socket.read_exact(&mut words).unwrap();
        assert_eq!(&words, b"hello");
        let (near, is_through) = bring(at, &cookie, ConnectionInfo::default());
        assert!(is_through);
        assert_eq!(brought(&mut extended)[0].peer, near.local_addr().unwrap());
    }

    #[test]
    fn who_has_another_cookie_or_talks_nonsense_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let port = ExtendedPort::open(folder.path()).unwrap();
        let at = port.place().0;
        let mut extended = ExtendedHandle::start(port).unwrap();
        let other = [&COOKIE_FILE[..], &[9; 32]].concat();
        assert!(!bring(at, &other, ConnectionInfo::default()).1);
        let mut socket = TcpStream::connect(at).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut output = Vec::new();
        // The relay may reset the connection, because it has not read all of our bytes.
        let _ = socket.read_to_end(&mut output);
        assert!(output.len() <= 2, "{output:?}");
        assert!(extended.take().is_empty());
    }
}

//! A SOCKS5 proxy that relays UDP over loopback, or misbehaves in a chosen manner.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Behaviour of the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Relays for any client.
    Open,
    /// Relays for `anna` with the password `secret`.
    Login,
    /// Does not support UDP ASSOCIATE.
    NoUdp,
    /// Relays for at most this number of associations at once, and refuses further ones.
    Few(usize),
    /// Sends these bytes, whatever it receives, and closes the connection.
    Says(&'static [u8]),
    /// Never sends anything.
    Mute,
    /// Relays as `Open`. Before each answer of the server, it also sends a fragment of the answer,
    /// one from another address, and garbage.
    Noisy,
}

/// A running proxy. Dropping it closes every connection.
pub struct Socks {
    pub at: SocketAddr,
    state: Arc<State>,
}

struct State {
    manner: Manner,
    listener: TcpListener,
    dead: AtomicUsize,
    relays: AtomicUsize,
    connections: Mutex<Vec<TcpStream>>,
    /// Source addresses towards servers, one for each granted association.
    outer: Mutex<Vec<SocketAddr>>,
}

impl Socks {
    /// Starts a proxy at a free port.
    pub fn start(manner: Manner) -> Socks {
        Socks::start_at("127.0.0.1:0".parse().unwrap(), manner)
    }

    pub fn start_at(at: SocketAddr, manner: Manner) -> Socks {
        let listener = TcpListener::bind(at).unwrap();
        let at = listener.local_addr().unwrap();
        let state = Arc::new(State {
            manner,
            listener,
            dead: AtomicUsize::new(0),
            relays: AtomicUsize::new(0),
            connections: Mutex::default(),
            outer: Mutex::default(),
        });
        let serving = Arc::clone(&state);
        thread::spawn(move || serve(&serving));
        Socks { at, state }
    }

    /// Returns the source addresses towards servers, one for each granted association.
    pub fn outer(&self) -> Vec<SocketAddr> {
        self.state.outer.lock().unwrap().clone()
    }
}

impl Drop for Socks {
    fn drop(&mut self) {
        self.state.dead.store(1, Ordering::SeqCst);
        // This wakes the accepting thread, so that it closes the port.
        let _ = TcpStream::connect(self.at);
        for connection in self.state.connections.lock().unwrap().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
        while Arc::strong_count(&self.state) > 1 {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn serve(state: &Arc<State>) {
    while let Ok((connection, _)) = state.listener.accept() {
        if state.dead.load(Ordering::SeqCst) > 0 {
            return;
        }
        state.connections.lock().unwrap().push(connection.try_clone().unwrap());
        let state = Arc::clone(state);
        // If a client closes its connection, its thread ends with an error, which is no failure.
        thread::spawn(move || _ = converse(&state, connection));
    }
}

fn converse(state: &State, mut client: TcpStream) -> io::Result<()> {
    match state.manner {
        Manner::Says(words) => {
            client.write_all(words)?;
            client.shutdown(Shutdown::Write)?;
            return client.read_to_end(&mut Vec::new()).map(drop);
        }
        Manner::Mute => return client.read_to_end(&mut Vec::new()).map(drop),
        _ => {}
    }
    let methods = message(&mut client)?;
    let wanted = if state.manner == Manner::Login { 2 } else { 0 };
    if !methods.contains(&wanted) {
        return client.write_all(b"\x05\xff");
    }
    client.write_all(&[5, wanted])?;
    if wanted == 2 {
        let user = message(&mut client)?;
        let password = counted(&mut client)?;
        if (&user[..], &password[..]) != (b"anna", b"secret") {
            return client.write_all(b"\x01\x01");
        }
        client.write_all(b"\x01\0")?;
    }
    let mut request = [0; 10];
    client.read_exact(&mut request)?;
    assert_eq!(&request[..4], b"\x05\x03\0\x01", "UDP ASSOCIATE, for an IPv4 client");
    let number = state.relays.fetch_add(1, Ordering::SeqCst);
    match state.manner {
        Manner::NoUdp => client.write_all(b"\x05\x07\0\x01\0\0\0\0\0\0"),
        Manner::Few(most) if number >= most => client.write_all(b"\x05\x02\0\x01\0\0\0\0\0\0"),
        _ => relay(state, client),
    }
}

/// Reads a message of one ignored byte and a field that is preceded by its length. Returns the
/// field.
fn message(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    client.read_exact(&mut [0])?;
    counted(client)
}

fn counted(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0];
    client.read_exact(&mut length)?;
    let mut field = vec![0; usize::from(length[0])];
    client.read_exact(&mut field)?;
    Ok(field)
}

/// Relays until the client closes the connection.
fn relay(state: &State, mut client: TcpStream) -> io::Result<()> {
    let inner = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let four = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 9), 0))?;
    let six = UdpSocket::bind("[::1]:0").ok();
    state.outer.lock().unwrap().push(four.local_addr()?);
    let port = inner.local_addr()?.port().to_be_bytes();
    // The address is unspecified, so the client has to use the proxy's own.
    client.write_all(&[&b"\x05\0\0\x01\0\0\0\0"[..], &port].concat())?;
    client.set_nonblocking(true)?;
    for socket in [Some(&inner), Some(&four), six.as_ref()].into_iter().flatten() {
        socket.set_read_timeout(Some(Duration::from_millis(1)))?;
    }
    let (mut known, mut buffer) = (None, vec![0; 65_536]);
    loop {
        if matches!(client.read(&mut [0]), Ok(0)) {
            return Ok(());
        }
        if let Ok((length, from)) = inner.recv_from(&mut buffer) {
            known = Some(from);
            let (server, payload) = opened(&buffer[..length]);
            let outer = if server.is_ipv4() { Some(&four) } else { six.as_ref() };
            let _ = outer.map(|outer| outer.send_to(payload, server));
        }
        for outer in [Some(&four), six.as_ref()].into_iter().flatten() {
            let Ok((length, from)) = outer.recv_from(&mut buffer) else { continue };
            let answer = wrapped(from, &buffer[..length]);
            let to = known.expect("servers speak to those who spoke to them");
            if state.manner == Manner::Noisy {
                for bad in noise(from, &answer) {
                    let _ = inner.send_to(&bad, to);
                }
            }
            let _ = inner.send_to(&answer, to);
        }
    }
}

fn noise(server: SocketAddr, answer: &[u8]) -> [Vec<u8>; 3] {
    let mut fragment = answer.to_vec();
    fragment[2] = 1;
    let other = SocketAddr::new(server.ip(), server.port() ^ 1);
    [fragment, wrapped(other, b"from a stranger"), b"nonsense".to_vec()]
}

fn opened(datagram: &[u8]) -> (SocketAddr, &[u8]) {
    assert_eq!(&datagram[..3], [0; 3], "no fragment");
    let (ip, rest) = match datagram[3] {
        1 => (<[u8; 4]>::try_from(&datagram[4..8]).unwrap().into(), &datagram[8..]),
        4 => (<[u8; 16]>::try_from(&datagram[4..20]).unwrap().into(), &datagram[20..]),
        other => panic!("an address of type {other}"),
    };
    (SocketAddr::new(ip, u16::from_be_bytes([rest[0], rest[1]])), &rest[2..])
}

fn wrapped(from: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0, 0, 0];
    match from {
        SocketAddr::V4(from) => {
            datagram.push(1);
            datagram.extend(from.ip().octets());
        }
        SocketAddr::V6(from) => {
            datagram.push(4);
            datagram.extend(from.ip().octets());
        }
    }
    datagram.extend(from.port().to_be_bytes());
    datagram.extend(payload);
    datagram
}

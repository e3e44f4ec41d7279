//! A stream of a program, from its request to its end.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::content::{Content, Hash, PIECE};
use super::failure::Failure;
use super::server::Request;
use super::socks;

/// Timeout for opening a stream. Like C tor, a client waits two minutes for a circuit, and tries
/// three circuits.
const OPENING: Duration = Duration::from_secs(180);
/// Time without any data after which a stream counts as hanging. The slowest streams carry a byte
/// per second.
const STALL: Duration = Duration::from_secs(90);

/// A stream that a program opens.
#[derive(Clone, Debug)]
pub(crate) struct StreamRequest {
    /// Request to the server.
    pub(crate) request: Request,
    /// Name and port of the destination.
    pub(crate) to: (String, u16),
    /// SOCKS user name. Streams of different users share no circuit.
    pub(crate) user: Option<&'static str>,
    /// Pause after each piece, for programs that read slowly.
    pub(crate) pause: Duration,
}

/// Result of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// Whether the destination was reached.
    pub(crate) opened: bool,
    /// Bytes received.
    pub(crate) received: u64,
    /// Total duration.
    pub(crate) elapsed: Duration,
    /// Success, or the failure.
    pub(crate) end: Result<(), Failure>,
}

/// Runs a stream through the proxy at `at`.
pub(crate) fn run(at: SocketAddr, wish: &StreamRequest) -> Outcome {
    let begun = Instant::now();
    let mut outcome = Outcome { opened: false, received: 0, elapsed: Duration::ZERO, end: Ok(()) };
    outcome.end = attempt(at, wish, &mut outcome);
    outcome.elapsed = begun.elapsed();
    outcome
}

fn attempt(at: SocketAddr, wish: &StreamRequest, outcome: &mut Outcome) -> Result<(), Failure> {
    let mut socket = TcpStream::connect(at)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(OPENING))?;
    let (host, port) = &wish.to;
    socks::connect(&mut socket, wish.user, host, *port)?;
    outcome.opened = true;
    socket.set_read_timeout(Some(STALL))?;
    socket.set_write_timeout(Some(STALL))?;
    socket.write_all(wish.request.line().as_bytes())?;
    let (length, hash) = match wish.request {
        Request::Get { number, length } | Request::Drip { number, length, .. } => {
            (length, Content::new(number, length).hash())
        }
        Request::Put { number, length } => {
            let hash = Content::new(number, length).hash();
            send(&mut socket, number, length, wish.pause)?;
            (hash.len() as u64, Sha256::digest(hash).into())
        }
    };
    receive(&mut socket, (length, hash), wish.pause, &mut outcome.received)?;
    // An error means that the proxy has already closed the connection.
    let _ = socket.shutdown(Shutdown::Both);
    Ok(())
}

fn send(socket: &mut TcpStream, number: u64, length: u64, pause: Duration) -> Result<(), Failure> {
    let (mut content, mut piece) = (Content::new(number, length), [0; PIECE]);
    loop {
        match content.read(&mut piece)? {
            0 => return Ok(()),
            count => socket.write_all(&piece[..count])?,
        }
        thread::sleep(pause);
    }
}

/// Reads to the end, and checks that there are `length` bytes with `hash`.
fn receive(
    socket: &mut TcpStream,
    (length, hash): (u64, Hash),
    pause: Duration,
    received: &mut u64,
) -> Result<(), Failure> {
    let (mut piece, mut hasher) = ([0; PIECE], Sha256::new());
    loop {
        let count = socket.read(&mut piece)?;
        if count == 0 {
            break;
        }
        *received += count as u64;
        hasher.update(&piece[..count]);
        if *received > length {
            return Err(Failure::Wrong);
        }
        thread::sleep(pause);
    }
    if *received < length {
        return Err(Failure::Short);
    }
    let is_right = <Hash>::from(hasher.finalize()) == hash;
    if is_right { Ok(()) } else { Err(Failure::Wrong) }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Returns the result of a stream of `of` bytes whose server sends `sent` and closes.
    fn received(sent: &[u8], of: u64) -> Result<(), Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        listener.accept().unwrap().0.write_all(sent).unwrap();
        receive(&mut socket, (of, Content::new(1, of).hash()), Duration::ZERO, &mut 0)
    }

    #[test]
    fn only_all_bytes_and_the_right_ones_are_complete() {
        let mut bytes = Vec::new();
        Content::new(1, 1000).read_to_end(&mut bytes).unwrap();
        assert_eq!(received(&bytes, 1000), Ok(()));
        assert_eq!(received(&bytes[..999], 1000), Err(Failure::Short));
        assert_eq!(received(&bytes, 999), Err(Failure::Wrong), "one too many");
        bytes[500] ^= 1;
        assert_eq!(received(&bytes, 1000), Err(Failure::Wrong));
    }
}

//! Server to which exits connect. It sends content by number, at once or slowly, and answers
//! uploads with their hash.
//!
//! A request is a line: `get NUMBER LENGTH`, `drip NUMBER LENGTH SECONDS`, or `put NUMBER LENGTH`
//! followed by LENGTH bytes. The server closes after its answer, so that the end of a stream is
//! tested, too.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::content::{Content, PIECE};

/// Timeout for a silent peer. It may be silent because its relay was killed without closing the
/// connection.
const SILENCE: Duration = Duration::from_secs(180);
/// Stack size in bytes of threads that do little.
pub(crate) const STACK: usize = 256 << 10;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Asks for `length` bytes of a number's content.
    Get { number: u64, length: u64 },
    /// Asks for the same in `seconds` pieces, one per second.
    Drip { number: u64, length: u64, seconds: u64 },
    /// Sends `length` bytes; their SHA-256 hash is the answer.
    Put { number: u64, length: u64 },
}

impl Request {
    /// Returns the line of the request.
    pub(crate) fn line(self) -> String {
        match self {
            Request::Get { number, length } => format!("get {number} {length}\n"),
            Request::Drip { number, length, seconds } => {
                format!("drip {number} {length} {seconds}\n")
            }
            Request::Put { number, length } => format!("put {number} {length}\n"),
        }
    }

    fn parse(line: &str) -> Option<Request> {
        let mut words = line.split_whitespace();
        let verb = words.next()?;
        let values: Vec<u64> = words.map(str::parse).collect::<Result<_, _>>().ok()?;
        match (verb, values.as_slice()) {
            ("get", &[number, length]) => Some(Request::Get { number, length }),
            ("drip", &[number, length, seconds]) if seconds > 0 => {
                Some(Request::Drip { number, length, seconds })
            }
            ("put", &[number, length]) => Some(Request::Put { number, length }),
            _ => None,
        }
    }
}

/// Starts the server on a loopback port (0 for any), and returns its address. The server runs until
/// the process ends.
///
/// # Errors
/// The port cannot be bound, or the thread cannot be started.
pub(crate) fn start(port: u16) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    let address = listener.local_addr()?;
    let serve = move || {
        for socket in listener.incoming().flatten() {
            let small = thread::Builder::new().stack_size(STACK);
            // An error means that the network has cut the connection, which its program reports.
            let _ = small.spawn(move || answer(socket));
        }
    };
    thread::Builder::new().name("server".into()).spawn(serve)?;
    Ok(address)
}

fn answer(socket: TcpStream) -> io::Result<()> {
    socket.set_read_timeout(Some(SILENCE))?;
    socket.set_write_timeout(Some(SILENCE))?;
    let mut reader = BufReader::new(&socket);
    let mut line = String::new();
    reader.by_ref().take(100).read_line(&mut line)?;
    match Request::parse(&line).ok_or(io::ErrorKind::InvalidData)? {
        Request::Get { number, length } => send(&socket, &mut Content::new(number, length)),
        Request::Drip { number, length, seconds } => {
            let mut content = Content::new(number, length);
            for _ in 0..seconds {
                send(&socket, &mut content.by_ref().take(length.div_ceil(seconds)))?;
                thread::sleep(Duration::from_secs(1));
            }
            Ok(())
        }
        Request::Put { length, .. } => {
            let hash = hash_of(&mut reader.take(length), length)?;
            (&socket).write_all(&hash)
        }
    }
}

fn send(mut socket: &TcpStream, content: &mut impl Read) -> io::Result<()> {
    let mut piece = [0; PIECE];
    loop {
        match content.read(&mut piece)? {
            0 => return Ok(()),
            count => socket.write_all(&piece[..count])?,
        }
    }
}

fn hash_of(reader: &mut impl Read, mut left: u64) -> io::Result<[u8; 32]> {
    let (mut piece, mut hasher) = ([0; PIECE], Sha256::new());
    while left > 0 {
        let count = reader.read(&mut piece)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        hasher.update(&piece[..count]);
        left -= count as u64;
    }
    Ok(hasher.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_written_and_nothing_else_is() {
        for request in [
            Request::Get { number: 1, length: 0 },
            Request::Drip { number: 2, length: 3, seconds: 4 },
            Request::Put { number: u64::MAX, length: 5 },
        ] {
            assert_eq!(Request::parse(&request.line()), Some(request));
        }
        for line in ["", "get 1\n", "get 1 2 3\n", "drip 1 2 0\n", "get -1 2\n", "fetch 1 2\n"] {
            assert_eq!(Request::parse(line), None, "{line}");
        }
    }
}

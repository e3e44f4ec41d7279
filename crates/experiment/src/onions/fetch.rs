//! Fetches through a SOCKS proxy as applications make them, and the web servers that answer.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Default timeout of a fetch (an HTTP download through a SOCKS proxy).
pub(in super::super) const PATIENCE: Duration = Duration::from_secs(60);
/// Time for which a web server waits for a request.
const IDLE: Duration = Duration::from_secs(300);
/// Greetings of a SOCKS5 client: without authentication, and with a user name (RFC 1928, section
/// 3).
const GREETINGS: [[u8; 3]; 2] = [[5, 1, 0], [5, 1, 2]];
/// Reply of a SOCKS5 server to an accepted user name (RFC 1929, section 2).
const NAMED: [u8; 2] = [1, 0];
/// Start of a SOCKS5 request to connect to an IPv4 address (RFC 1928, section 4).
const CONNECT: [u8; 4] = [5, 1, 0, 1];
/// Length in bytes of a SOCKS5 reply with an IPv4 address (RFC 1928, section 6).
const ANSWER: usize = 10;
/// End of an HTTP response's header.
const HEAD_END: &[u8] = b"\r\n\r\n";
/// Pause of a test web server after a failed attempt to accept a connection.
const LOOK: Duration = Duration::from_millis(50);
/// Interval at which a test web server looks for new connections, and checks whether it is to
/// stop.
pub(in super::super) const ACCEPT_INTERVAL: Duration = Duration::from_millis(5);
/// Interval between the pieces of a response that is sent at a limited rate.
const BEAT: Duration = Duration::from_millis(50);

/// Times of a fetch in seconds since the SOCKS request; without a proxy, since the start of the
/// connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) struct FetchTimes {
    /// Time to the first byte of the server's response.
    pub(in super::super) first_byte: f64,
    /// Time to the last byte of the server's response.
    pub(in super::super) whole: f64,
}

/// A fetch of `length` bytes from a server, through a SOCKS proxy or directly.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Fetch<'a> {
    /// Address of the SOCKS proxy; `None` for a direct connection to the server.
    pub(in super::super) proxy: Option<SocketAddr>,
    pub(in super::super) server: SocketAddrV4,
    pub(in super::super) length: usize,
    /// Maximum rate at which the server sends, in bytes per second; `None` if it is unlimited.
    pub(in super::super) rate: Option<u32>,
    /// Counter of the received bytes of the response's body, which other threads can read; `None`
    /// if no thread needs it.
    pub(in super::super) received: Option<&'a AtomicU64>,
    /// True if the HTTP request is sent together with the SOCKS request, as in Tor Browser,
    /// without waiting for the proxy's reply.
    pub(in super::super) optimistic: bool,
    /// SOCKS user name, if any. Fetches with different names use different circuits.
    pub(in super::super) name: Option<&'a str>,
    /// Timeout of the fetch.
    pub(in super::super) patience: Duration,
}

impl Fetch<'_> {
    /// Creates a fetch through a proxy. The HTTP request waits for the SOCKS reply, and there is
    /// no user name.
    pub(in super::super) fn new(
        proxy: SocketAddr,
        server: SocketAddrV4,
        length: usize,
    ) -> Fetch<'static> {
        Fetch { proxy: Some(proxy), ..Fetch::straight(server, length) }
    }

    /// Creates a fetch without a proxy.
    pub(in super::super) fn straight(server: SocketAddrV4, length: usize) -> Fetch<'static> {
        Fetch {
            proxy: None,
            server,
            length,
            rate: None,
            received: None,
            optimistic: false,
            name: None,
            patience: PATIENCE,
        }
    }

    /// Makes the fetch, and returns its times to the first and the last byte.
    ///
    /// # Errors
    /// The connection fails, the fetch takes too long, the proxy refuses, or a received byte
    /// differs from the byte that the server sends.
    pub(in super::super) fn run(self) -> io::Result<FetchTimes> {
        let until = Instant::now() + self.patience;
        let (mut link, began) = self.open(until)?;
        let mut received = AnswerCheck::default();
        let mut room = [0; 65_536];
        let mut first_byte = None;
        loop {
            link.set_read_timeout(Some(left(until)?))?;
            let count = link.read(&mut room)?;
            if count == 0 {
                break;
            }
            first_byte.get_or_insert_with(|| began.elapsed().as_secs_f64());
            received.take(&room[..count])?;
            if let Some(counter) = self.received {
                counter.store(received.length as u64, Ordering::Relaxed);
            }
        }
        let whole = began.elapsed().as_secs_f64();
        match (first_byte, received.length == self.length) {
            (Some(first_byte), true) => Ok(FetchTimes { first_byte, whole }),
            _ => Err(io::Error::other(format!(
                "the server sent {} of {} bytes",
                received.length, self.length
            ))),
        }
    }

    /// Opens the connection and sends the request. Returns the connection and the start time.
    fn open(&self, until: Instant) -> io::Result<(TcpStream, Instant)> {
        let Some(proxy) = self.proxy else {
            let began = Instant::now();
            let mut link = TcpStream::connect_timeout(&self.server.into(), self.patience)?;
            link.set_nodelay(true)?;
            link.write_all(self.request().as_bytes())?;
            return Ok((link, began));
        };
        let mut link = TcpStream::connect_timeout(&proxy, self.patience)?;
        link.set_nodelay(true)?;
        link.set_read_timeout(Some(left(until)?))?;
        self.greet(&mut link)?;
        let began = Instant::now();
        self.ask(&mut link)?;
        Ok((link, began))
    }

    fn request(&self) -> String {
        let rate = self.rate.map(|rate| format!("?rate={rate}")).unwrap_or_default();
        format!("GET /{}{rate} HTTP/1.0\r\nHost: {}\r\n\r\n", self.length, self.server.ip())
    }

    fn greet(&self, link: &mut TcpStream) -> io::Result<()> {
        let greeting = GREETINGS[usize::from(self.name.is_some())];
        link.write_all(&greeting)?;
        let mut greeted = [0; 2];
        link.read_exact(&mut greeted)?;
        if greeted != [5, greeting[2]] {
            return Err(io::Error::other("the proxy does not answer as a SOCKS5 proxy"));
        }
        let Some(name) = self.name else { return Ok(()) };
        let length = u8::try_from(name.len()).map_err(io::Error::other)?;
        // The user name is also the password.
        let word = [&[length], name.as_bytes()].concat();
        link.write_all(&[&[1][..], &word, &word].concat())?;
        link.read_exact(&mut greeted)?;
        if greeted == NAMED {
            Ok(())
        } else {
            Err(io::Error::other("the proxy refused the user name"))
        }
    }

    fn ask(&self, link: &mut TcpStream) -> io::Result<()> {
        let server = self.server;
        let request = self.request();
        let mut connect = CONNECT.to_vec();
        connect.extend(server.ip().octets());
        connect.extend(server.port().to_be_bytes());
        if self.optimistic {
            connect.extend(request.as_bytes());
        }
        link.write_all(&connect)?;
        let mut answer = [0; ANSWER];
        link.read_exact(&mut answer)?;
        if answer[1] != 0 {
            return Err(io::Error::other(format!(
                "the SOCKS proxy refused the connection with the reply code {}",
                answer[1]
            )));
        }
        if self.optimistic { Ok(()) } else { link.write_all(request.as_bytes()) }
    }
}

/// Returns the time left until `until`. Fails if no time is left.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Returns the byte at offset `place` of every response. The bytes are pseudo-random, so that
/// compression on the path cannot make the response shorter. SplitMix64 computes each group of
/// eight bytes from the index of the group.
fn byte(place: usize) -> u8 {
    let mut word = ((place / 8) as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ (word >> 31)).to_le_bytes()[place % 8]
}

/// Checker of a response's content, byte by byte as the response arrives. Each byte of the body
/// must equal the byte that the server sends at this offset.
#[derive(Default)]
struct AnswerCheck {
    head: Vec<u8>,
    in_body: bool,
    length: usize,
}

impl AnswerCheck {
    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.in_body {
            return self.body(bytes);
        }
        self.head.extend_from_slice(bytes);
        let end = self.head.windows(HEAD_END.len()).position(|four| four == HEAD_END);
        let Some(end) = end else { return Ok(()) };
        self.in_body = true;
        let body = self.head.split_off(end + HEAD_END.len());
        self.body(&body)
    }

    fn body(&mut self, bytes: &[u8]) -> io::Result<()> {
        let wrong = bytes.iter().zip(self.length..).find(|(one, place)| **one != byte(*place));
        self.length += bytes.len();
        match wrong {
            None => Ok(()),
            Some((_, place)) => Err(io::Error::other(format!(
                "byte {place} of the answer differs from what the server sent"
            ))),
        }
    }
}

/// A test web server on a thread. The path in a request contains the number of bytes to send;
/// `?rate=` gives the maximum number of bytes per second. The server is stopped on drop.
pub(in super::super) struct Server {
    pub(in super::super) address: SocketAddrV4,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a web server in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The address is not one of this host.
    pub(in super::super) fn start(ip: Ipv4Addr, port: u16) -> io::Result<Server> {
        let listener = TcpListener::bind((ip, port))?;
        listener.set_nonblocking(true)?;
        let SocketAddr::V4(address) = listener.local_addr()? else {
            return Err(io::Error::other("the listener has no IPv4 address"));
        };
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = Some(thread::spawn(move || serve(&listener, &flag)));
        Ok(Server { address, stop, thread })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

fn serve(listener: &TcpListener, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            // Errors are ignored, because they mean that the client has disconnected.
            Ok((link, _)) => drop(thread::spawn(move || answer(&link))),
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(ACCEPT_INTERVAL),
            Err(_) => thread::sleep(LOOK),
        }
    }
}

fn answer(link: &TcpStream) -> io::Result<()> {
    link.set_nonblocking(false)?;
    link.set_nodelay(true)?;
    link.set_read_timeout(Some(IDLE))?;
    let mut lines = BufReader::new(link).lines();
    let line = lines.next().transpose()?.unwrap_or_default();
    let path = line.strip_prefix("GET /").and_then(|rest| rest.split(' ').next());
    let (length, rate) = wanted(path.unwrap_or_default());
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {length}\r\n\r\n");
    let body: Vec<u8> = (0..length).map(byte).collect();
    match rate {
        None => (&*link).write_all(&[head.as_bytes(), &body].concat()),
        Some(rate) => {
            (&*link).write_all(head.as_bytes())?;
            at_rate(link, &body, rate)
        }
    }
}

/// Parses the path of a request. Returns the length of the response in bytes, and the rate in
/// bytes per second; `None` if the path has no rate.
fn wanted(path: &str) -> (usize, Option<f64>) {
    let (length, rate) = path.split_once("?rate=").unwrap_or((path, ""));
    (length.parse().unwrap_or_default(), rate.parse().ok())
}

/// Sends `body` in equal pieces, at `rate` bytes per second. After a delay, sends faster until the
/// average rate is reached again.
fn at_rate(mut link: &TcpStream, body: &[u8], rate: f64) -> io::Result<()> {
    let began = Instant::now();
    let piece = ((rate * BEAT.as_secs_f64()) as usize).max(1);
    for (piece, turn) in body.chunks(piece).zip(1..) {
        let due = BEAT * turn;
        thread::sleep(due.saturating_sub(began.elapsed()));
        link.write_all(piece)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Delay of the proxy's answer to a request.
    const WAIT: Duration = Duration::from_millis(50);

    /// Runs a SOCKS proxy for one request to `to`. Returns the data that arrived with the request.
    fn proxy(listener: &TcpListener, to: SocketAddrV4) -> io::Result<Vec<u8>> {
        let (mut near, _) = listener.accept()?;
        let mut room = [0; 4096];
        near.read_exact(&mut room[..3])?;
        let method = room[2];
        near.write_all(&[5, method])?;
        if method == 2 {
            near.read_exact(&mut room[..9])?;
            assert_eq!(room[..9], *b"\x01\x03one\x03one");
            near.write_all(&NAMED)?;
        }
        let count = near.read(&mut room)?;
        let early = room[ANSWER..count].to_vec();
        // The wait follows the request. It is therefore part of the time that the fetch measures,
        // even if the fetch's thread runs late.
        thread::sleep(WAIT);
        near.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])?;
        let mut far = TcpStream::connect(to)?;
        let mut request = early.clone();
        while !request.ends_with(HEAD_END) {
            let count = near.read(&mut room)?;
            request.extend_from_slice(&room[..count]);
        }
        far.write_all(&request)?;
        io::copy(&mut far, &mut near)?;
        Ok(early)
    }

    #[test]
    fn all_bytes_come_with_optimistic_data_and_without() {
        let server = Server::start(Ipv4Addr::LOCALHOST, 0).unwrap();
        let cases = [(0, false), (1, true), (327_680, false), (1_048_576, true)];
        for ((length, optimistic), name) in cases.into_iter().zip([None, Some("one")].repeat(2)) {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let (at, to) = (listener.local_addr().unwrap(), server.address);
            let proxied = thread::spawn(move || proxy(&listener, to));
            let fetch = Fetch { optimistic, name, ..Fetch::new(at, to, length) };
            let fetched = fetch.run().unwrap();
            assert!(fetched.first_byte > WAIT.as_secs_f64() && fetched.first_byte <= fetched.whole);
            let early = proxied.join().unwrap().unwrap();
            assert_eq!(!early.is_empty(), optimistic);
        }
    }

    #[test]
    fn what_comes_at_a_rate_takes_its_time_and_is_counted_meanwhile() {
        let server = Server::start(Ipv4Addr::LOCALHOST, 0).unwrap();
        let received = AtomicU64::new(0);
        let fetch = Fetch::straight(server.address, 200_000);
        let fetched =
            Fetch { rate: Some(100_000), received: Some(&received), ..fetch }.run().unwrap();
        assert!(fetched.whole >= 2.0 && fetched.first_byte < 2.0, "{fetched:?}");
        assert_eq!(received.load(Ordering::Relaxed), 200_000);
        assert_eq!(wanted("7"), (7, None));
        assert_eq!(wanted("7?rate=1"), (7, Some(1.0)));
    }

    #[test]
    fn a_fetch_that_takes_too_long_is_cut() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (at, nobody) = (listener.local_addr().unwrap(), SocketAddrV4::new([0; 4].into(), 1));
        let patience = Duration::from_millis(50);
        let cut = Fetch { patience, ..Fetch::new(at, nobody, 1) }.run().unwrap_err();
        assert!(matches!(cut.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{cut}");
    }

    #[test]
    fn a_byte_that_is_another_one_and_a_short_answer_are_told() {
        let mut received = AnswerCheck::default();
        received.take(b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r").unwrap();
        received.take(&[b'\n', byte(0), byte(1)]).unwrap();
        assert_eq!((received.length, received.in_body), (2, true));
        assert!(received.take(&[!byte(2)]).unwrap_err().to_string().contains("byte 2"));
    }
}

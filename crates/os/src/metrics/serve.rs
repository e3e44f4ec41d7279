//! A minimal HTTP server for Prometheus (RFC 9112), with one page and one request per connection.
//!
//! Clients can use only bounded resources: the number of connections, the bytes of a request and
//! the time for the whole exchange are limited. Further connections are closed at once.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::format::Format;

/// Maximum number of simultaneous connections.
const PLACES: usize = 8;
/// Maximum duration of a connection, in total.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum bytes of a request, followed by the maximum number of its header lines.
const REQUEST: (usize, usize) = (8 << 10, 64);
/// Pause between a failure of `accept` and the next call.
const PAUSE: Duration = Duration::from_millis(100);
/// A function that returns the content of the metrics page. It is called for each request.
type Page = dyn Fn() -> String + Send + Sync;

/// An HTTP server for the metrics page, on its own thread. The thread ends when this value is
/// dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    over: Arc<AtomicBool>,
}

impl Server {
    /// Serves `page` at `/metrics`.
    ///
    /// # Errors
    /// The address cannot be bound, or no thread can be started.
    pub fn start(
        address: SocketAddr,
        page: impl Fn() -> String + Send + Sync + 'static,
    ) -> io::Result<Server> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let over = Arc::new(AtomicBool::new(false));
        let (until, page): (_, Arc<Page>) = (Arc::clone(&over), Arc::new(page));
        let work = move || serve(&listener, &page, &until);
        thread::Builder::new().name("metrics".to_owned()).spawn(work)?;
        Ok(Server { address, over })
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a warning that other machines can read certain information from the metrics. `what`
    /// names this information, such as "how much you send". Returns `None` if the server listens
    /// on a loopback address.
    pub fn exposure(&self, what: &str) -> Option<String> {
        let at = Some(self.address).filter(|at| !at.ip().is_loopback())?;
        Some(format!(
            "metrics are served on {at}: anyone who reaches that address can read \
                      {what}, and when"
        ))
    }
}

impl Drop for Server {
    /// Ends the server's thread. The thread blocks in `accept`, so this function connects to the
    /// server once.
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect_timeout(&self.address, PAUSE);
    }
}

fn serve(listener: &TcpListener, page: &Arc<Page>, over: &AtomicBool) {
    // The thread of each connection holds one more reference.
    let places = Arc::new(());
    for connection in listener.incoming() {
        if over.load(Ordering::SeqCst) {
            return;
        }
        let Ok(connection) = connection else {
            thread::sleep(PAUSE);
            continue;
        };
        if Arc::strong_count(&places) > PLACES {
            continue;
        }
        let (page, place) = (Arc::clone(page), Arc::clone(&places));
        let work = move || {
            // An invalid request or a lost connection affects only that client.
            let _ = ClientConnection::new(connection).and_then(|talk| talk.answer(&*page));
            drop(place);
        };
        // If no thread can be started, the connection is dropped with the closure.
        let _ = thread::Builder::new().name("scrape".to_owned()).spawn(work);
    }
}

/// A connection of a client.
struct ClientConnection {
    stream: TcpStream,
    end: Instant,
}

impl ClientConnection {
    fn new(stream: TcpStream) -> io::Result<ClientConnection> {
        stream.set_nodelay(true)?;
        Ok(ClientConnection { stream, end: Instant::now() + PATIENCE })
    }

    fn answer(mut self, page: &Page) -> io::Result<()> {
        let plain = Format::Text.content_type();
        let (status, kind, body) = match self.request()? {
            Request::Page(format) => {
                ("200 OK", format.content_type(), format.of(&page()).into_owned())
            }
            Request::Head(format) => ("200 OK", format.content_type(), String::new()),
            Request::Elsewhere => ("404 Not Found", plain, "see /metrics\n".to_owned()),
            Request::Otherwise => ("405 Method Not Allowed", plain, "GET only\n".to_owned()),
            Request::Unreadable => ("400 Bad Request", plain, "not an HTTP request\n".to_owned()),
        };
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
             Vary: Accept\r\nAllow: GET, HEAD\r\nConnection: close\r\n\r\n"
        );
        self.write(&(head + &body).into_bytes())
    }

    fn request(&mut self) -> io::Result<Request> {
        let mut bytes = Vec::new();
        while bytes.len() < REQUEST.0 {
            let mut part = [0; 1024];
            self.stream.set_read_timeout(Some(self.left()?))?;
            let length = self.stream.read(&mut part)?;
            bytes.extend_from_slice(&part[..length]);
            match Request::of(&bytes) {
                Some(request) => return Ok(request),
                None if length == 0 => return Err(ErrorKind::UnexpectedEof.into()),
                None => {}
            }
        }
        Ok(Request::Unreadable)
    }

    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.stream.set_write_timeout(Some(self.left()?))?;
            let written = self.stream.write(bytes)?;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// Returns the time that is left for the connection, if it is above zero.
    ///
    /// # Errors
    /// `TimedOut` if no time is left.
    fn left(&self) -> io::Result<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Request {
    Page(Format),
    /// A HEAD request for the metrics page: the answer has only the headers.
    Head(Format),
    Elsewhere,
    Otherwise,
    Unreadable,
}

impl Request {
    /// Classifies a request. Returns `None` if it is not complete yet.
    fn of(bytes: &[u8]) -> Option<Request> {
        let mut headers = [httparse::EMPTY_HEADER; REQUEST.1];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(bytes) {
            Ok(httparse::Status::Partial) => return None,
            Ok(httparse::Status::Complete(_)) => {}
            Err(_) => return Some(Request::Unreadable),
        }
        let path = request.path.unwrap_or_default();
        let is_page = path.split('?').next() == Some("/metrics");
        let format = format_of(request.headers);
        Some(match request.method {
            Some("GET") if is_page => Request::Page(format),
            Some("HEAD") if is_page => Request::Head(format),
            Some("GET" | "HEAD") => Request::Elsewhere,
            _ => Request::Otherwise,
        })
    }
}

/// Returns the format that `headers` request. An `Accept` header whose value is not valid UTF-8 is
/// ignored.
fn format_of(headers: &[httparse::Header<'_>]) -> Format {
    let accepts = headers.iter().filter(|header| header.name.eq_ignore_ascii_case("accept"));
    Format::wanted(accepts.filter_map(|header| std::str::from_utf8(header.value).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Server {
        Server::start("127.0.0.1:0".parse().unwrap(), || "page 1\n".to_owned()).unwrap()
    }

    fn ask(server: &Server, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        // A server that rejects a connection may reset it, so a read error is ignored.
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn there_is_one_page_and_all_else_is_an_error() {
        let server = server();
        let page = ask(&server, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with("\r\n\r\npage 1\n"));
        assert!(page.contains("\r\nContent-Type: text/plain; version=0.0.4;"), "{page}");
        let asked = b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n";
        let page = ask(&server, asked);
        assert!(page.contains("\r\nContent-Type: application/openmetrics-text; version=1.0.0;"));
        let head = ask(&server, b"HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        for (request, status) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", "400"),
            (&[b'A'; REQUEST.0], "400"),
        ] {
            let answer = ask(&server, request);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        }
    }

    #[test]
    fn those_who_say_nothing_hold_a_few_places_for_a_while_and_no_more() {
        let server = server();
        let silent: Vec<_> =
            (0..3 * PLACES).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
        let start = Instant::now();
        let page = b"GET /metrics HTTP/1.0\r\n\r\n";
        while !ask(&server, page).starts_with("HTTP/1.1 200") {
            assert!(start.elapsed() < 3 * PATIENCE, "nobody is served any more");
            thread::sleep(PAUSE);
        }
        assert!(start.elapsed() >= PATIENCE / 2, "all places were taken");
        drop(silent);
    }

    #[test]
    fn a_dropped_server_gives_its_port_back() {
        let server = server();
        let address = server.address();
        drop(server);
        let start = Instant::now();
        while TcpListener::bind(address).is_err() {
            assert!(start.elapsed() < PATIENCE);
            thread::sleep(PAUSE);
        }
    }
}

//! The proxy command, which connects ssh to the server and reports the server's address.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::Family;

/// Timeout for connecting to one address, before the next address is tried. The kernel's own
/// timeout is over two minutes.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time after which the user is notified that the connection is not established yet.
const NOTICE: Duration = Duration::from_secs(3);

/// Hint in messages about a failed or slow connection. A possible cause is a `ProxyJump` in
/// ssh_config(5): our `ProxyCommand` on ssh's command line overrides the `ProxyJump`, so this
/// program connects directly.
const JUMP: &str = "if ssh reaches the server through another machine (ProxyJump), add \
                    --remote-ip remote";

/// Implements a `ProxyCommand` of ssh_config(5): connects to `host`, and copies standard input to
/// the host, and the host's answers to standard output. Before copying, prints `MOSH IP ADDRESS`
/// on standard error. Mosh's datagrams must go to the printed address, where the server is known
/// to be reachable.
///
/// # Errors
/// The name has no address of the accepted IP versions, no address answers, or a copy fails.
pub fn carry(host: &str, port: u16, family: Family) -> io::Result<()> {
    let find = || reach(&family.sorted((host, port).to_socket_addrs()?), PATIENCE);
    let notice = format!("still connecting to {host} port {port}; {JUMP}");
    // A failed write is ignored: the reader may be gone.
    let send = move || _ = writeln!(io::stderr(), "{notice}");
    let explained = |error: io::Error| io::Error::new(error.kind(), format!("{error}; {JUMP}"));
    let server = with_notice(NOTICE, send, find).map_err(explained)?;
    writeln!(io::stderr(), "MOSH IP {}", server.peer_addr()?.ip())?;
    let mut up = server.try_clone()?;
    // This function does not wait for the thread, because standard input may stay open after the
    // server has closed.
    thread::spawn(move || {
        // The other side sees an error here as the end of the stream.
        let _ = copy(&mut io::stdin().lock(), &mut up);
        let _ = up.shutdown(Shutdown::Write);
    });
    copy(&mut &server, &mut io::stdout().lock())
}

/// Runs `work`, and returns its result. If `work` takes longer than `after`, another thread calls
/// `send` to notify the user.
fn with_notice<R>(
    after: Duration,
    send: impl FnOnce() + Send + 'static,
    work: impl FnOnce() -> R,
) -> R {
    let (done, waits) = mpsc::channel::<()>();
    thread::spawn(move || {
        if waits.recv_timeout(after) == Err(RecvTimeoutError::Timeout) {
            send();
        }
    });
    let result = work();
    drop(done);
    result
}

fn reach(addresses: &[SocketAddr], patience: Duration) -> io::Result<TcpStream> {
    let mut outcome = Err(io::Error::new(
        io::ErrorKind::NotFound,
        "the name has no address of the requested kind, IPv4 (-4) or IPv6 (-6)",
    ));
    for address in addresses {
        outcome = TcpStream::connect_timeout(address, patience);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

/// Copies bytes, and flushes after each read, because the other side may wait for them.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let length = match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        to.write_all(&buffer[..length])?;
        to.flush()?;
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn only_a_way_that_takes_long_is_explained() {
        let is_explained = |after: u64, takes: u64| {
            let (sender, receiver) = mpsc::channel();
            let wait = || thread::sleep(Duration::from_millis(takes));
            with_notice(Duration::from_millis(after), move || sender.send(()).unwrap(), wait);
            receiver.recv_timeout(Duration::from_secs(5)).is_ok()
        };
        assert!(is_explained(10, 300));
        assert!(!is_explained(60_000, 1));
    }

    #[test]
    fn an_address_that_does_not_answer_gives_way_to_the_next() {
        let patience = Duration::from_millis(200);
        let [dead, alive] = ["127.0.0.1:0"; 2].map(|any| TcpListener::bind(any).unwrap());
        // Connections are never accepted, so the kernel drops further ones once the backlog is
        // full.
        rustix::net::listen(&dead, 0).unwrap();
        let (dead_at, alive_at) = (dead.local_addr().unwrap(), alive.local_addr().unwrap());
        let connect = |_| TcpStream::connect_timeout(&dead_at, patience).ok();
        let queued: Vec<_> = (0..8).map_while(connect).collect();
        assert!(queued.len() < 8, "the queue is never full");
        assert_eq!(reach(&[dead_at, alive_at], patience).unwrap().peer_addr().unwrap(), alive_at);
        let error = reach(&[dead_at], patience).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}

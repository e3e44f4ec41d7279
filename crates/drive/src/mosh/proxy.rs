//! ssh's way to the server, which tells where it led.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::thread;

use super::Family;

/// Does what ssh expects of a `ProxyCommand` (ssh_config(5)): connects to `host`, copies standard input to
/// it and what comes back to standard output. Before that it says `MOSH IP ADDRESS` on standard error: the
/// address that answered, which is where the session's datagrams have to go too.
///
/// # Errors
/// The name has no address of the family, or none of them answers; or a copy fails.
pub fn carry(host: &str, port: u16, family: Family) -> io::Result<()> {
    let server = reach(&family.sorted((host, port).to_socket_addrs()?))?;
    writeln!(io::stderr(), "MOSH IP {}", server.peer_addr()?.ip())?;
    let mut up = server.try_clone()?;
    // Not waited for: standard input may stay open when the server has gone.
    thread::spawn(move || {
        // An end or a failure here shows to the other side as the end that it is.
        let _ = copy(&mut io::stdin().lock(), &mut up);
        let _ = up.shutdown(Shutdown::Write);
    });
    copy(&mut &server, &mut io::stdout().lock())
}

fn reach(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut outcome = Err(io::Error::new(io::ErrorKind::NotFound, "no address of this family"));
    for address in addresses {
        outcome = TcpStream::connect(address);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

/// Hands on each piece at once: a dialogue waits for every one.
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

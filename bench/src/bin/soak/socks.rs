//! Client side of SOCKS5 (RFC 1928), with a user name (RFC 1929) for streams that are to be
//! isolated from others.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use super::failure::Failure;

const VERSION: u8 = 5;
const PLAIN: u8 = 0;
const PASSWORD: u8 = 2;
const CONNECT: u8 = 1;
const NAME: u8 = 3;

/// Asks the proxy at the other end of `socket` for a connection.
///
/// # Errors
/// The proxy refuses it, closes the connection, or does not answer before the socket's timeout.
pub(crate) fn connect(
    socket: &mut TcpStream,
    user: Option<&str>,
    host: &str,
    port: u16,
) -> Result<(), Failure> {
    let method = if user.is_some() { PASSWORD } else { PLAIN };
    socket.write_all(&[VERSION, 1, method])?;
    expect(socket, [VERSION, method])?;
    if let Some(user) = user {
        socket.write_all(&[&[1], &*counted(user), &*counted("x")].concat())?;
        expect(socket, [1, 0])?;
    }
    let head = [VERSION, CONNECT, 0, NAME];
    socket.write_all(&[&head[..], &counted(host), &port.to_be_bytes()].concat())?;
    let mut answer = [0; 4];
    socket.read_exact(&mut answer)?;
    let [_, reply, _, kind] = answer;
    if reply != 0 {
        return Err(Failure::Refused(reply));
    }
    let address = match kind {
        1 => 4,
        4 => 16,
        _ => return Err(Failure::from(io::Error::from(io::ErrorKind::InvalidData))),
    };
    Ok(socket.read_exact(&mut vec![0; address + 2])?)
}

/// Returns a short text preceded by its length.
fn counted(text: &str) -> Vec<u8> {
    [&[text.len() as u8], text.as_bytes()].concat()
}

fn expect(socket: &mut TcpStream, wanted: [u8; 2]) -> Result<(), Failure> {
    let mut answer = [0; 2];
    socket.read_exact(&mut answer)?;
    if answer == wanted { Ok(()) } else { Err(Failure::Refused(answer[1])) }
}

//! Initial TCP sequence numbers of connections, and the kernel's identifiers of sockets.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use anabranch_os::socket_option;

/// Socket option that makes a listening socket save SYN packets, from `linux/tcp.h`.
const TCP_SAVE_SYN: i32 = 27;
/// Socket option that returns a connection's saved SYN packet, from `linux/tcp.h`.
const TCP_SAVED_SYN: i32 = 28;
/// Maximum size in bytes of a packet's IP and TCP headers, including options.
const HEADERS: usize = 512;

/// The kernel's identifier of a socket (`SO_COOKIE`), which is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::onion) struct Cookie(pub(super) u64);

impl Cookie {
    /// Returns the kernel's identifier of `socket`.
    ///
    /// # Errors
    /// A system call fails.
    pub(super) fn of(socket: BorrowedFd<'_>) -> io::Result<Cookie> {
        let mut cookie = [0; 8];
        socket_option::get(socket, [libc::SOL_SOCKET, libc::SO_COOKIE], &mut cookie)?;
        Ok(Cookie(u64::from_ne_bytes(cookie)))
    }
}

/// Makes the kernel save the SYN packets of the connections that `listener` accepts. [`saved_syn`]
/// reads them.
///
/// # Errors
/// A system call fails.
pub(in crate::onion) fn save_syns(listener: impl AsFd) -> io::Result<()> {
    socket_option::set(listener.as_fd(), [libc::IPPROTO_TCP, TCP_SAVE_SYN], &1_i32.to_ne_bytes())
}

/// Returns the TCP sequence number of the SYN that opened an accepted connection. Returns `None`
/// if the kernel has not saved the SYN, for example during a SYN flood, and at each further call
/// for the same connection.
pub(in crate::onion) fn saved_syn(socket: impl AsFd) -> Option<u32> {
    let mut headers = [0; HEADERS];
    let length =
        socket_option::get(socket.as_fd(), [libc::IPPROTO_TCP, TCP_SAVED_SYN], &mut headers)
            .ok()?;
    number_of(headers.get(..length)?)
}

/// Returns the TCP sequence number in a packet's IP and TCP headers; `None` if the headers are
/// incomplete or have IPv6 extension headers.
fn number_of(headers: &[u8]) -> Option<u32> {
    let tcp = match headers.first()? >> 4 {
        4 => usize::from(headers[0] & 15) * 4,
        6 if *headers.get(6)? == 6 => 40,
        _ => return None,
    };
    headers.get(tcp + 4..)?.first_chunk().copied().map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_syn_of_a_connection_that_came_is_kept_and_told_once() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(host).unwrap();
            save_syns(&listener).unwrap();
            let _near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (far, _) = listener.accept().unwrap();
            assert!(saved_syn(&far).is_some(), "{host}");
            assert_eq!(saved_syn(&far), None, "{host}");
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        assert_eq!(saved_syn(&far), None, "nobody asked for it");
        let [near, far] = [&near, &far].map(|socket| Cookie::of(socket.as_fd()).unwrap());
        assert_ne!(near, far);
    }

    #[test]
    fn headers_that_are_cut_or_of_other_protocols_have_no_number() {
        let mut v4 = [0; 40];
        v4[0] = 0x45;
        v4[24..28].copy_from_slice(&0x102_u32.to_be_bytes());
        assert_eq!(number_of(&v4), Some(0x102));
        let mut v6 = [0; 60];
        (v6[0], v6[6]) = (0x60, 6);
        assert_eq!(number_of(&v6), Some(0));
        v6[6] = 17;
        assert_eq!(number_of(&v6), None);
        assert_eq!(
            [&v4[..27], &[], &[0x20, 1]].map(|headers: &[u8]| number_of(headers)),
            [None; 3]
        );
    }
}

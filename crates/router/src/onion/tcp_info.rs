//! State of a TCP connection in the kernel, as the socket option `TCP_INFO` returns it.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Duration;

use anabranch_multipath::LinkView;

use anabranch_os::socket_option;

/// Number of bytes to read with `TCP_INFO`. Newer kernels have a longer structure, and return its
/// first bytes.
const ROOM: usize = 192;

/// Reads the kernel's state of the connection of `socket`. Fields that the kernel does not have
/// are 0.
///
/// # Errors
/// A system call fails.
pub(super) fn look(socket: &TcpStream) -> io::Result<LinkView> {
    let mut fields = [0_u8; ROOM];
    socket_option::get(socket.as_fd(), [libc::IPPROTO_TCP, libc::TCP_INFO], &mut fields)?;
    Ok(view(&fields))
}

/// Parses the bytes of `struct tcp_info` (`linux/tcp.h`). The offsets never change, because
/// kernels only append fields. The structure in the `libc` crate lacks the delivery rate and later
/// fields.
fn view(bytes: &[u8; ROOM]) -> LinkView {
    let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    LinkView {
        mss: word(16),
        unacked: word(24),
        since_ack: Duration::from_millis(word(56).into()),
        rtt: Duration::from_micros(word(68).into()),
        snd_cwnd: word(80),
        notsent: word(144),
        delivery_rate: long(160),
        ..LinkView::default()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_kernel_tells_what_was_delivered_and_what_is_under_way() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let before = look(&near).unwrap();
        assert_eq!((before.unacked, before.notsent), (0, 0));
        assert!(before.mss > 500 && before.snd_cwnd > 0, "{before:?}");

        let sent = vec![0; 1 << 20];
        let reader = std::thread::spawn(move || {
            let mut got = vec![0; 1 << 20];
            far.read_exact(&mut got).unwrap();
            far
        });
        near.write_all(&sent).unwrap();
        let far = reader.join().unwrap();
        let after = look(&near).unwrap();
        assert!(after.delivery_rate > 0 && after.rtt > Duration::ZERO, "{after:?}");
        assert!(after.rtt < Duration::from_secs(1), "{after:?}");

        // The peer does not read, so its receive window fills, and further data stays unsent.
        near.set_nonblocking(true).unwrap();
        while near.write(&sent).is_ok() {}
        let stuck = look(&near).unwrap();
        assert!(stuck.notsent > 0, "{stuck:?}");
        drop(far);
    }
}

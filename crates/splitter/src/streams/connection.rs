//! A stream's socket, with the partially received packet, and the packets that wait for room.

use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anabranch_multipath::Time;
use anabranch_os::poller::{Interest, Poller};
use anabranch_tunnel::carrier::{PacketQueue, QueueCount, Unframer};
use socket2::{Socket, TcpKeepalive};

use super::ending::Ending;
use super::tls::TlsStream;
use super::wire::{Wire, is_passing};

/// Default maximum time for which packets wait for room in the socket. A longer wait is useless:
/// the other end's resequencer waits at most 250 ms for late packets, and TCP inside the tunnel
/// would take the delay for a full queue.
pub const AGE: Duration = Duration::from_millis(200);
/// Maximum bytes that wait for one stream: the data of `AGE` at 80 Mbit/s.
const MOST: usize = 2 << 20;
/// Maximum unsent bytes in the socket (`TCP_NOTSENT_LOWAT`), 9 ms at 30 Mbit/s. Further packets
/// wait in our queue, where old packets can be dropped.
const UNSENT: u32 = 32 << 10;
/// Maximum number of packets written to the socket at once.
const AT_ONCE: usize = 64;
/// Idle time before the first TCP keep-alive. With this and the next two constants, a dead peer is
/// noticed after 20 s.
const KEEPALIVE: Duration = Duration::from_secs(8);
/// Interval between TCP keep-alives while they are not answered.
const KEEPALIVE_AGAIN: Duration = Duration::from_secs(4);
/// Number of unanswered TCP keep-alives after which the connection fails.
const KEEPALIVES: u32 = 3;

/// A stream that carries packets of the tunnel.
pub(crate) struct Connection {
    wire: Wire,
    unframer: Unframer,
    queue: PacketQueue,
    /// Received bytes after decryption, if the stream uses TLS (a reused buffer).
    content: Vec<u8>,
    /// Whether the poller watches for the socket to become writable.
    awaits_room: bool,
}

impl Connection {
    /// Creates a stream on `socket`, with TLS if `tls` is given. Received packets have at most
    /// `longest` bytes. Packets to send wait at most `age` for room.
    ///
    /// # Errors
    /// A system call failed.
    pub(crate) fn new(
        socket: Socket,
        tls: Option<Box<dyn TlsStream>>,
        (longest, age): (usize, Duration),
    ) -> io::Result<Connection> {
        let (unframer, queue) = (Unframer::new(longest), PacketQueue::new(age, MOST));
        let (wire, content) = (Wire::new(socket, tls)?, Vec::new());
        Ok(Connection { wire, unframer, queue, content, awaits_room: false })
    }

    /// Sets the maximum length of received packets to `longest` bytes.
    pub(crate) fn allow(&mut self, longest: usize) {
        self.unframer.allow(longest);
    }

    /// Returns the byte stream that carries the packets.
    pub(crate) fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }

    /// Returns whether packets can be transferred. With TLS, this is the case after the handshake;
    /// without TLS, always.
    pub(crate) fn is_open(&self) -> bool {
        self.wire.is_open()
    }

    /// Processes bytes of the stream that were already read (together with a proxy's answer, or
    /// during the TLS handshake). Calls `each` with every packet.
    ///
    /// # Errors
    /// A packet's length is out of bounds.
    pub(crate) fn take(&mut self, bytes: &[u8], each: impl FnMut(&[u8])) -> Result<(), Ending> {
        self.unframer.take(bytes, each).map_err(Ending::Length)
    }

    /// Reads what has arrived, up to the size of `buffer`, and calls `each` with every packet.
    ///
    /// # Errors
    /// The stream has ended.
    pub(crate) fn read(
        &mut self,
        buffer: &mut [u8],
        each: impl FnMut(&[u8]),
    ) -> Result<(), Ending> {
        self.content.clear();
        self.wire.read(buffer, &mut self.content)?;
        self.unframer.take(&self.content, each).map_err(Ending::Length)
    }

    /// Returns the bytes that the last [`Connection::read`] has read, even if they were invalid.
    pub(crate) fn last_read(&self) -> &[u8] {
        &self.content
    }

    /// Reads what has arrived, up to the size of `buffer`, and drops it.
    ///
    /// # Errors
    /// The stream has ended.
    pub(crate) fn skip(&mut self, buffer: &mut [u8]) -> Result<(), Ending> {
        self.content.clear();
        self.wire.read(buffer, &mut self.content)
    }

    /// Appends a packet, which the next [`Connection::flush`] sends. If `lasts`, the packet is not
    /// dropped, however long it waits. Returns false if the queue is full.
    pub(crate) fn push(&mut self, now: Time, packet: &[u8], lasts: bool) -> bool {
        match lasts {
            true => self.queue.push_lasting(packet),
            false => self.queue.push(now, packet),
        }
    }

    /// Drops packets that are too old, and writes the others to the socket until the socket is
    /// full. If packets are left, `poller` watches for room in the socket, under the token
    /// `token`.
    ///
    /// # Errors
    /// The stream has ended.
    pub(crate) fn flush(&mut self, now: Time, poller: &Poller, token: u64) -> Result<(), Ending> {
        self.queue.drop_aged(now);
        while !self.queue.is_empty() {
            let slices: Vec<_> = self.queue.chunks().take(AT_ONCE).map(IoSlice::new).collect();
            match self.wire.write(&slices) {
                Ok(taken) => self.queue.advance(taken),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_passing(&error) => break,
                Err(error) => return Err(Ending::Broken(error)),
            }
        }
        if self.wire.has_unsent() {
            self.wire.push().map_err(Ending::Broken)?;
        }
        // Until the TLS handshake is complete, only the handshake's bytes need room.
        let awaits = self.wire.has_unsent() || (self.is_open() && !self.queue.is_empty());
        self.await_room(awaits, poller, token).map_err(Ending::Broken)
    }

    fn await_room(&mut self, awaits: bool, poller: &Poller, token: u64) -> io::Result<()> {
        if self.awaits_room == awaits {
            return Ok(());
        }
        self.awaits_room = awaits;
        poller.change(&self.wire, token, Interest { read: true, write: awaits })
    }

    /// Returns the number of bytes that wait for room in the socket.
    pub(crate) fn queued(&self) -> usize {
        self.queue.bytes()
    }

    /// Returns the counters since the stream was opened.
    pub(crate) fn count(&self) -> QueueCount {
        self.queue.count()
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wire.as_fd()
    }
}

/// Sets the options of a TCP connection that carries packets.
///
/// # Errors
/// A system call failed.
pub(crate) fn prepare(socket: &Socket) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(UNSENT)?;
    let often = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE_AGAIN);
    socket.set_tcp_keepalive(&often.with_retries(KEEPALIVES))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use anabranch_tunnel::carrier::LONGEST;

    use super::*;

    const TOKEN: u64 = 7;

    fn pair() -> (Connection, Connection, Poller) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (other, _) = listener.accept().unwrap();
        let made = [one, other].map(|stream| {
            let socket = Socket::from(stream);
            prepare(&socket).unwrap();
            Connection::new(socket, None, (LONGEST, AGE)).unwrap()
        });
        let [one, other] = made;
        let poller = Poller::new(8).unwrap();
        poller.add(&one, TOKEN).unwrap();
        (one, other, poller)
    }

    fn lengths(connection: &mut Connection, packets: usize) -> Vec<usize> {
        let (mut buffer, mut found) = (vec![0; 64 << 10], Vec::new());
        while found.len() < packets {
            connection.read(&mut buffer, |packet| found.push(packet.len())).unwrap();
        }
        found
    }

    #[test]
    fn packets_pass_and_an_end_is_noticed() {
        let (mut one, mut other, poller) = pair();
        for length in [25, 1_400, 60] {
            assert!(one.push(Time::ZERO, &vec![1; length], false));
        }
        one.flush(Time::ZERO, &poller, TOKEN).unwrap();
        assert_eq!(lengths(&mut other, 3), [25, 1_400, 60]);
        drop(one);
        let mut buffer = [0; 64];
        let ending = loop {
            if let Err(ending) = other.read(&mut buffer, |_| {}) {
                break ending;
            }
        };
        assert!(matches!(ending, Ending::Closed), "{ending}");
    }

    /// If the other end does not read, only packets that are too old are lost, and memory is
    /// bounded.
    #[test]
    fn an_end_that_does_not_read_makes_packets_age_and_is_told_of_as_room() {
        let (mut one, mut other, mut poller) = pair();
        let mut now = Time::ZERO;
        for _ in 0..20_000 {
            now += Duration::from_millis(1);
            one.push(now, &[1; 1_400], false);
            one.flush(now, &poller, TOKEN).unwrap();
        }
        let count = one.count();
        assert!(count.aged > 0, "{count:?}");
        // One packet is queued per millisecond, for at most 200 ms. The queue also has the rest of
        // a packet that was sent in part.
        assert!(one.queued() <= 202 * 1_402, "{}", one.queued());
        let ready: Vec<_> = poller.wait(Some(Duration::ZERO)).unwrap().collect();
        assert!(ready.iter().all(|ready| !ready.write), "there is no room: {ready:?}");
        // The packets that the socket accepted before arrive complete.
        assert!(lengths(&mut other, count.sent as usize).iter().all(|&length| length == 1_400));
        let ready: Vec<_> = poller.wait(Some(Duration::from_secs(5))).unwrap().collect();
        assert!(ready.iter().any(|ready| ready.token == TOKEN && ready.write), "{ready:?}");
    }

    #[test]
    fn what_is_no_end_of_ours_is_told_by_its_lengths() {
        let (mut one, _other, _poller) = pair();
        let ending = one.take(b"HTTP/1.1 400 Bad Request", |_| {}).map(|()| "taken");
        // 'HT' is a length of 18,516 bytes. The rest of the banner is the beginning of that
        // packet.
        assert!(ending.is_ok());
        let (mut one, _other, _poller) = pair();
        let ending = one.take(&[0, 0, 1], |_| {}).unwrap_err().to_string();
        assert!(ending.contains("announces a packet of 0 bytes"), "{ending}");
    }
}

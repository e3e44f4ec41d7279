//! Sending of datagrams, as references to their bytes. Adjacent datagrams of one size are
//! combined, and all are passed to the kernel with one `sendmmsg`.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::AsFd;

use super::error::Fault;
use super::socket::UdpSocket;
use super::sys::{self, Message};
use super::{MAX_BYTES, MAX_SEGMENTS};

/// One or more datagrams to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagrams<'a> {
    /// The datagrams, one directly after the other. Empty if there is one datagram without
    /// payload.
    pub bytes: &'a [u8],
    /// Length in bytes of each datagram; the last one may be shorter. 0 means that `bytes` is one
    /// datagram.
    pub stride: usize,
    /// ECN bits of the sent datagrams (RFC 3168). Higher bits are ignored.
    pub ecn: u8,
    /// Destination of the datagrams; `None` on a connected socket.
    pub to: Option<SocketAddr>,
    /// Local address from which the datagrams are sent. `None` lets the socket and the route
    /// determine it. An address of the other IP version is ignored.
    pub source: Option<IpAddr>,
}

impl<'a> Datagrams<'a> {
    /// Creates a single datagram for a connected socket.
    pub fn one(bytes: &'a [u8]) -> Self {
        Self { bytes, stride: bytes.len(), ecn: 0, to: None, source: None }
    }
}

/// Datagrams that the kernel refused, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendFailure {
    /// The kernel's error number; [`Fault::of`] returns its meaning.
    pub errno: i32,
    /// Index of the first refused datagram, counted from 0 over all datagrams of the batch.
    pub first: usize,
    /// Number of refused datagrams.
    pub datagrams: usize,
    /// Total bytes of the refused datagrams' payload.
    pub bytes: usize,
}

/// The result of sending a batch. Each datagram of the batch counts either in `sent` or in one of
/// the failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendReport<'q> {
    /// Number of datagrams that the kernel accepted.
    pub sent: usize,
    /// Total bytes of the accepted datagrams' payload.
    pub sent_bytes: usize,
    /// Refused datagrams, in order. Adjacent datagrams with the same error form one entry.
    pub failures: &'q [SendFailure],
    /// Error number of a datagram that was sent *earlier*, such as `ECONNREFUSED` for a closed
    /// port. The kernel reports the error at the next attempt to send, and refuses that attempt.
    /// A second attempt then determines the result of the current datagram. `None` if there was no
    /// error of an earlier datagram.
    pub earlier: Option<i32>,
}

impl SendReport<'_> {
    /// Returns the number of datagrams that the kernel refused.
    pub fn failed(&self) -> usize {
        self.failures.iter().map(|failure| failure.datagrams).sum()
    }

    /// Returns the index ranges of the datagrams in `within` that the kernel accepted, in order.
    /// Indices count from 0 over the whole batch.
    pub fn accepted(&self, within: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let Range { start, end } = within;
        let refused = self.failures.iter().map(move |failure| {
            let after = failure.first + failure.datagrams;
            failure.first.clamp(start, end)..after.clamp(start, end)
        });
        let mut next = start;
        let fence = std::iter::once(end..end);
        let between = refused.chain(fence).map(move |refused| {
            let gone = next..refused.start;
            next = refused.end;
            gone
        });
        between.filter(|gone| !gone.is_empty())
    }

    /// Returns the number of datagrams that were refused because of `fault`.
    pub fn failed_by(&self, fault: Fault) -> usize {
        let matching = self.failures.iter().filter(|failure| Fault::of(failure.errno) == fault);
        matching.map(|failure| failure.datagrams).sum()
    }
}

/// Reusable memory in which one thread builds batches of datagrams.
#[derive(Debug, Default)]
pub struct SendQueue {
    messages: Vec<Message>,
    /// Reusable memory for the pieces (references to bytes) of a batch. The vector is empty
    /// between batches.
    pieces: Vec<IoSlice<'static>>,
    failures: Vec<SendFailure>,
}

impl SendQueue {
    /// Creates a queue. Its memory grows with the first batches, and is then reused.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a batch for `socket`. If the batch is dropped without [`SendBatch::send`], nothing
    /// is sent.
    pub fn batch<'q, 'a>(&'q mut self, socket: &'q UdpSocket) -> SendBatch<'q, 'a> {
        self.messages.clear();
        self.failures.clear();
        let pieces = recycle(std::mem::take(&mut self.pieces));
        SendBatch { queue: self, socket, pieces, segments: socket.segments() }
    }
}

/// A batch of datagrams for one socket. They are sent in the order of the calls of
/// [`push`](Self::push).
#[derive(Debug)]
#[must_use = "a batch is sent only by calling `send`"]
pub struct SendBatch<'q, 'a> {
    queue: &'q mut SendQueue,
    socket: &'q UdpSocket,
    pieces: Vec<IoSlice<'a>>,
    segments: bool,
}

impl<'q, 'a> SendBatch<'q, 'a> {
    /// Returns whether the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.queue.messages.is_empty()
    }

    /// Appends datagrams to the batch without copying them.
    pub fn push(&mut self, datagrams: Datagrams<'a>) {
        let mut rest = datagrams.bytes;
        let stride = if datagrams.stride == 0 { rest.len() } else { datagrams.stride };
        loop {
            let room = self.room(&datagrams, rest.len(), stride);
            let (run, tail) = rest.split_at(rest.len().min(room.saturating_mul(stride)));
            self.append(run);
            rest = tail;
            if rest.is_empty() {
                return;
            }
        }
    }

    /// Sends the batch without waiting. Datagrams for which the socket's buffer has no room are
    /// dropped and reported.
    pub fn send(self) -> SendReport<'q> {
        let Self { queue, socket, pieces, .. } = self;
        let mut sender = Sender::new(socket, &mut queue.failures);
        sender.send(&queue.messages, &pieces);
        let Sender { sent, sent_bytes, earlier, .. } = sender;
        queue.pieces = recycle(pieces);
        SendReport { sent, sent_bytes, failures: &queue.failures, earlier }
    }

    /// Returns the number of datagrams of `stride` bytes that fit into the batch's last message
    /// (one segmented send). Begins a new message if no datagram fits, so the result is at least
    /// one. `len` is the total length in bytes of the datagrams still to be added.
    fn room(&mut self, datagrams: &Datagrams<'_>, len: usize, stride: usize) -> usize {
        let to = datagrams.to.map(sys::canonical);
        let source = datagrams.source.map(|source| source.to_canonical());
        let ecn = datagrams.ecn & 3;
        if let Some(last) = self.queue.messages.last() {
            let alike = (last.to, last.source, last.ecn) == (to, source, ecn);
            let room = if alike && self.segments { room_behind(last, len, stride) } else { 0 };
            if room > 0 {
                return room;
            }
        }
        let (at, segment) = (self.pieces.len(), stride.min(len));
        let message = Message { pieces: at..at, segment, segments: 0, bytes: 0, to, source, ecn };
        self.queue.messages.push(message);
        if self.segments { (MAX_BYTES / stride.max(1)).clamp(1, MAX_SEGMENTS) } else { 1 }
    }

    /// Appends the datagrams in `run` to the batch's last message (one segmented send), which must
    /// have room for them.
    fn append(&mut self, run: &'a [u8]) {
        self.pieces.push(IoSlice::new(run));
        let last = self
            .queue
            .messages
            .last_mut()
            .expect("`room` has left at least one message in the queue");
        last.pieces.end = self.pieces.len();
        last.segments += run.len().div_ceil(last.segment.max(1)).max(1);
        last.bytes += run.len();
    }
}

/// Returns the number of datagrams of `stride` bytes that can follow the datagrams of `last` in
/// one segmented send. All segments except the last must have the same size, and no segment may be
/// empty.
fn room_behind(last: &Message, len: usize, stride: usize) -> usize {
    let open = last.bytes == last.segments * last.segment;
    if !open || len == 0 {
        return 0;
    }
    let free = MAX_BYTES.saturating_sub(last.bytes);
    let room = (free / stride).min(MAX_SEGMENTS - last.segments);
    match stride == last.segment {
        true => room,
        // A single shorter datagram may be the last one of the run.
        false if len <= stride && len < last.segment => room.min(1),
        false => 0,
    }
}

/// Progress of a batch that is being sent: counts of the sent datagrams, and the refused
/// datagrams.
struct Sender<'s> {
    socket: &'s UdpSocket,
    failures: &'s mut Vec<SendFailure>,
    sent: usize,
    sent_bytes: usize,
    refused: usize,
    earlier: Option<i32>,
}

impl<'s> Sender<'s> {
    fn new(socket: &'s UdpSocket, failures: &'s mut Vec<SendFailure>) -> Self {
        Self { socket, failures, sent: 0, sent_bytes: 0, refused: 0, earlier: None }
    }

    /// Sends `messages` in order. After its first error, a message is tried again, because the
    /// error may belong to an earlier datagram.
    fn send(&mut self, messages: &[Message], pieces: &[IoSlice<'_>]) {
        let mut rest = messages;
        let mut first_error = None;
        while let Some(first) = rest.first() {
            match sys::send(self.socket.as_fd(), self.socket.is_v6(), rest, pieces) {
                Ok(taken) => {
                    let (done, tail) = rest.split_at(taken);
                    done.iter().for_each(|message| self.succeed(message));
                    self.earlier = first_error.take().or(self.earlier);
                    rest = tail;
                }
                Err(error) => match (errno(&error), first_error) {
                    // The buffer is full for all remaining messages, too.
                    (libc::EAGAIN, _) => {
                        return rest.iter().for_each(|m| self.fail(m, libc::EAGAIN));
                    }
                    // The error may belong to an earlier datagram. It is cleared now that it was
                    // reported.
                    (errno, None) if Fault::of(errno) != Fault::Full => first_error = Some(errno),
                    (errno, _) => {
                        self.refuse(first, pieces, errno);
                        first_error = None;
                        rest = &rest[1..];
                    }
                },
            }
        }
    }

    /// Handles a message that the kernel has refused. If segmentation may be the reason, sends the
    /// message's datagrams again one by one.
    fn refuse(&mut self, message: &Message, pieces: &[IoSlice<'_>], errno: i32) {
        let segmentation = matches!(errno, libc::EIO | libc::EINVAL | libc::EMSGSIZE);
        if message.segments < 2 || !segmentation {
            return self.fail(message, errno);
        }
        let (messages, pieces) = apart(message, pieces);
        let before = self.sent;
        self.send(&messages[..1], &pieces);
        if self.sent > before {
            // A single datagram of full size was accepted, so segmentation was the problem.
            self.socket.stop_segmenting();
        }
        self.send(&messages[1..], &pieces);
    }

    fn succeed(&mut self, message: &Message) {
        self.sent += message.segments;
        self.sent_bytes += message.bytes;
    }

    fn fail(&mut self, message: &Message, errno: i32) {
        let (datagrams, bytes) = (message.segments, message.bytes);
        // Messages are processed in the order of the calls of `push`, so all earlier datagrams are
        // counted.
        let first = self.sent + self.refused;
        self.refused += datagrams;
        match self.failures.last_mut() {
            Some(last) if last.errno == errno && last.first + last.datagrams == first => {
                last.datagrams += datagrams;
                last.bytes += bytes;
            }
            _ => self.failures.push(SendFailure { errno, first, datagrams, bytes }),
        }
    }
}

/// Splits a message into messages of one datagram each, and its `pieces` (references to bytes)
/// into one piece for each datagram.
fn apart<'p>(run: &Message, pieces: &'p [IoSlice<'_>]) -> (Vec<Message>, Vec<IoSlice<'p>>) {
    let whole = pieces[run.pieces.clone()].iter();
    let singles = whole.flat_map(|piece| piece.chunks(run.segment));
    singles
        .enumerate()
        .map(|(i, datagram)| {
            let bytes = datagram.len();
            let single = Message { pieces: i..i + 1, segments: 1, bytes, ..run.clone() };
            (single, IoSlice::new(datagram))
        })
        .unzip()
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Returns an empty vector that reuses the memory of `pieces`, for references with another
/// lifetime. The standard library collects a vector's own iterator in place, so this function
/// neither allocates nor copies.
fn recycle<'a>(mut pieces: Vec<IoSlice<'_>>) -> Vec<IoSlice<'a>> {
    pieces.clear();
    pieces.into_iter().map(|_| IoSlice::new(&[])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recycling_keeps_the_memory() {
        let bytes = [0u8; 4];
        let mut pieces = Vec::with_capacity(100);
        pieces.push(IoSlice::new(&bytes));
        let at = pieces.as_ptr() as usize;
        let recycled: Vec<IoSlice<'static>> = recycle(pieces);
        assert_eq!((recycled.len(), recycled.as_ptr() as usize), (0, at));
        assert!(recycled.capacity() >= 100);
    }
}

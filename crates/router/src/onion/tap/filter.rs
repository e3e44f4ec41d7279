//! The packet tap that uses a socket filter, whose eBPF code is in [`program`](super::program). A
//! packet tap delivers TCP segments out of order.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use anabranch_os::bpf::{Mapping, create_map, load_filter, page};
use anabranch_os::socket_option;

use super::Segment;
use super::program::{ENTRY, HEAD, SOCKETS, program};
use super::syn::Cookie;

/// Size in bytes of the ring buffer between the kernel and this program. The size is twice the
/// number of bytes beyond a lost segment that a link may decrypt out of order.
const RING: usize = 1 << 21;
/// `BPF_MAP_TYPE_ARRAY` of `linux/bpf.h`.
const ARRAY: u32 = 2;
/// `BPF_MAP_TYPE_RINGBUF` of `linux/bpf.h`.
const RING_BUFFER: u32 = 27;
/// `BPF_F_MMAPABLE` of `linux/bpf.h`: the array can be mapped into memory.
const CAN_BE_MAPPED: u32 = 1 << 10;
/// `BPF_RINGBUF_BUSY_BIT` in an entry's length: the entry is still being written.
const BUSY: u32 = 1 << 31;
/// `BPF_RINGBUF_DISCARD_BIT` in an entry's length: the entry is to be skipped.
const DISCARDED: u32 = 1 << 30;
/// `BPF_RINGBUF_HDR_SZ`: length in bytes of the kernel's header of an entry.
const BEFORE: usize = 8;
/// `SO_ATTACH_BPF` of `asm/socket.h`.
const SO_ATTACH_BPF: i32 = 50;

/// The loaded eBPF program, its table of sockets, and its ring buffer.
#[derive(Debug)]
pub(super) struct Filter {
    program: OwnedFd,
    ring: OwnedFd,
    sockets: Mapping,
    /// Shared memory with our reading position in the ring buffer.
    ours: Mapping,
    /// Shared memory with the kernel's writing position in the ring buffer, and then the buffer's
    /// data, mapped twice in a row.
    theirs: Mapping,
}

impl Filter {
    /// Loads the eBPF program, and creates its table and ring buffer.
    ///
    /// # Errors
    /// A system call fails: CAP_BPF is missing, or the kernel is older than 5.8.
    pub(super) fn open() -> io::Result<Filter> {
        let sockets = create_map([ARRAY, 4, ENTRY as u32, SOCKETS as u32, CAN_BE_MAPPED])?;
        let ring = create_map([RING_BUFFER, 0, 0, RING as u32, 0])?;
        let program = load_filter(&program(sockets.as_raw_fd(), ring.as_raw_fd()))?;
        let sockets = Mapping::new(sockets.as_fd(), 0, SOCKETS * ENTRY, true)?;
        let ours = Mapping::new(ring.as_fd(), 0, page(), true)?;
        let theirs = Mapping::new(ring.as_fd(), page(), page() + 2 * RING, false)?;
        Ok(Filter { program, ring, sockets, ours, theirs })
    }

    /// Attaches the socket filter to `socket`, and returns the socket's cookie (the kernel's
    /// identifier).
    ///
    /// # Errors
    /// A system call fails.
    pub(super) fn attach(&self, socket: BorrowedFd<'_>) -> io::Result<Cookie> {
        let file = self.program.as_raw_fd().to_ne_bytes();
        socket_option::set(socket, [libc::SOL_SOCKET, SO_ATTACH_BPF], &file)?;
        Cookie::of(socket)
    }

    /// Adds the socket with `cookie` to the table, so that its out-of-order segments are
    /// delivered. `number` is the TCP sequence number of the next byte. Returns false if another
    /// socket occupies the same slot of the table.
    pub(super) fn begin(&self, cookie: Cookie, number: u32) -> bool {
        let at = place(cookie);
        let holder = self.sockets.long(at).load(Ordering::Relaxed);
        if holder != 0 && holder != cookie.0 {
            return false;
        }
        self.sockets.word(at + 8).store(number, Ordering::Relaxed);
        self.sockets.long(at).store(cookie.0, Ordering::Release);
        true
    }

    /// Records that the bytes before the TCP sequence number `number` were read from the socket.
    /// Has no effect if the eBPF program has seen later bytes in order.
    pub(super) fn advance(&self, cookie: Cookie, number: u32) {
        let at = place(cookie);
        let next = self.sockets.word(at + 8);
        let is_ours = self.sockets.long(at).load(Ordering::Relaxed) == cookie.0;
        if is_ours && (number.wrapping_sub(next.load(Ordering::Relaxed)) as i32) > 0 {
            next.store(number, Ordering::Relaxed);
        }
    }

    /// Removes the socket with `cookie` from the table, so that another socket can use its slot.
    pub(super) fn end(&self, cookie: Cookie) {
        let holder = self.sockets.long(place(cookie));
        if holder.load(Ordering::Relaxed) == cookie.0 {
            holder.store(0, Ordering::Relaxed);
        }
    }

    /// Calls `show` for each entry of the ring buffer, until it is empty or its next entry is
    /// still being written.
    pub(super) fn drain(&self, show: &mut dyn FnMut(Segment<'_>)) {
        let ours = self.ours.long(0);
        let mut position = ours.load(Ordering::Relaxed);
        while position < self.theirs.long(0).load(Ordering::Acquire) {
            let at = page() + (position as usize & (RING - 1));
            let length = self.theirs.word(at).load(Ordering::Acquire);
            if length & BUSY != 0 {
                return;
            }
            let bytes = (length & !DISCARDED) as usize;
            if length & DISCARDED == 0
                && let Some(segment) = segment(self.theirs.bytes(at + BEFORE, bytes))
            {
                show(segment);
            }
            position += (bytes + BEFORE).next_multiple_of(8) as u64;
            ours.store(position, Ordering::Release);
        }
    }
}

impl AsFd for Filter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

/// Returns the offset, in the table, of the slot for the socket with `cookie`.
fn place(cookie: Cookie) -> usize {
    (cookie.0 as usize & (SOCKETS - 1)) * ENTRY
}

/// Parses an entry of the ring buffer, in the format in which the eBPF program writes it. Returns
/// `None` if the entry is too short.
fn segment(entry: &[u8]) -> Option<Segment<'_>> {
    let (head, bytes) = entry.split_first_chunk::<HEAD>()?;
    let cookie = Cookie(u64::from_ne_bytes(*head.first_chunk()?));
    let word = |at: usize| head[at..].first_chunk().copied().map(u32::from_ne_bytes);
    let (number, length) = (word(8)?, word(12)? as usize);
    let bytes = if length == 0 { None } else { Some(bytes.get(..length)?) };
    Some(Segment { cookie, number, bytes })
}

//! System calls for eBPF socket filters: bpf(2), and mmap(2) of eBPF maps. No crate has safe
//! bindings for them.

#![allow(unsafe_code, reason = "bpf(2) and mmap(2) of its maps have no safe bindings")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Command of bpf(2) that creates a map (`BPF_MAP_CREATE`).
const MAP_CREATE: libc::c_int = 0;
/// Command of bpf(2) that loads a program (`BPF_PROG_LOAD`).
const PROG_LOAD: libc::c_int = 5;
/// Program type of socket filters (`BPF_PROG_TYPE_SOCKET_FILTER`).
const SOCKET_FILTER: u32 = 1;
/// Licence that the eBPF programs declare to the kernel. They call no GPL-only helper function.
const LICENCE: &[u8] = b"MIT\0";

/// Creates a map from its type (`enum bpf_map_type`), the sizes of a key and of a value in bytes,
/// the maximum number of entries, and the flags.
///
/// # Errors
/// `EPERM` without CAP_BPF; `EINVAL` if the kernel does not support maps of this type.
pub fn create_map([kind, key, value, entries, flags]: [u32; 5]) -> io::Result<OwnedFd> {
    let mut attributes = [kind, key, value, entries, flags];
    // SAFETY: the kernel reads the attributes, whose size is passed.
    unsafe { bpf(MAP_CREATE, (&raw mut attributes).cast(), size_of_val(&attributes)) }
}

/// The attributes of `BPF_PROG_LOAD` (a command of bpf(2)) that this module sets.
#[repr(C)]
struct Load {
    kind: u32,
    count: u32,
    code: u64,
    licence: u64,
    log: [u64; 2],
}

/// Loads a socket filter from `code`, its instructions of 8 bytes each (`struct bpf_insn`).
///
/// # Errors
/// `EPERM` without CAP_BPF; `EINVAL`, `EACCES` if the kernel rejects the program.
pub fn load_filter(code: &[u64]) -> io::Result<OwnedFd> {
    let mut attributes = Load {
        kind: SOCKET_FILTER,
        count: code.len() as u32,
        code: code.as_ptr() as u64,
        licence: LICENCE.as_ptr() as u64,
        log: [0; 2],
    };
    // SAFETY: the kernel reads the attributes, whose size is passed, and the memory that they point
    // to: `count` instructions, and a terminated string. All live until the call returns.
    unsafe { bpf(PROG_LOAD, (&raw mut attributes).cast(), size_of::<Load>()) }
}

/// Makes the system call bpf(2) with `command`. Returns the file descriptor of the map or the eBPF
/// program that the kernel created.
///
/// # Safety
/// `attributes` must point to `length` bytes in the form that `command` requires.
unsafe fn bpf(
    command: libc::c_int,
    attributes: *mut libc::c_void,
    length: usize,
) -> io::Result<OwnedFd> {
    // SAFETY: the caller guarantees the form of the attributes.
    let file = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, length) };
    match libc::c_int::try_from(file) {
        // SAFETY: the kernel has just opened the file, and it has no other owner.
        Ok(file) if file >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(file) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A mapping of an eBPF map: memory that the kernel shares with the process.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping is memory of the process; words that the kernel may change are read
// atomically.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `length` bytes of `file`, the descriptor of an eBPF map, beginning at `offset`.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn new(
        file: BorrowedFd<'_>,
        offset: usize,
        length: usize,
        writable: bool,
    ) -> io::Result<Mapping> {
        let access = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: a new mapping, at an address of the kernel's choice, harms no other memory.
        let start = unsafe {
            libc::mmap(null_mut(), length, access, libc::MAP_SHARED, file.as_raw_fd(), offset)
        };
        match NonNull::new(start.cast()).filter(|_| start != libc::MAP_FAILED) {
            Some(start) => Ok(Mapping { start, length }),
            None => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the 8 bytes at offset `at` of the mapping, as an integer in shared memory.
    ///
    /// # Panics
    /// The bytes exceed the mapping or are not aligned.
    pub fn long(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.length, "within the mapping");
        // SAFETY: the bytes are within the mapping, which lives as long as `self`; mappings are
        // page-aligned. Any other writer writes atomically.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(at).cast()) }
    }

    /// Returns the 4 bytes at offset `at` of the mapping, as an integer in shared memory.
    ///
    /// # Panics
    /// The bytes exceed the mapping or are not aligned.
    pub fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.length, "within the mapping");
        // SAFETY: as in [`Mapping::long`].
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(at).cast()) }
    }

    /// Returns `length` bytes of the mapping from offset `at`. The kernel must not change these
    /// bytes while they are borrowed.
    ///
    /// # Panics
    /// The bytes exceed the mapping.
    pub fn bytes(&self, at: usize, length: usize) -> &[u8] {
        assert!(at.checked_add(length).is_some_and(|end| end <= self.length), "within the mapping");
        // SAFETY: the bytes are within the mapping; the kernel does not touch an entry of a ring
        // until the reader's position is past it.
        unsafe { slice::from_raw_parts(self.start.as_ptr().add(at), length) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no borrow of it is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Returns the size of a page of memory, in bytes.
pub fn page() -> usize {
    // SAFETY: the call reads a constant of the system.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4_096)
}

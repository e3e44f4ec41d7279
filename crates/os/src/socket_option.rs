//! Socket options without a safe binding (setsockopt(2), getsockopt(2)).

#![allow(unsafe_code, reason = "setsockopt and getsockopt have no safe binding for any option")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sets the option `name` of `level` to `value`, which must have the kernel's format.
///
/// # Errors
/// An error of the kernel.
pub fn set(socket: BorrowedFd<'_>, [level, name]: [i32; 2], value: &[u8]) -> io::Result<()> {
    let length = value.len() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes, which is the length of `value`.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads the option `name` of `level` into `into`. Returns the number of bytes that the kernel
/// wrote.
///
/// # Errors
/// An error of the kernel.
pub fn get(socket: BorrowedFd<'_>, [level, name]: [i32; 2], into: &mut [u8]) -> io::Result<usize> {
    let mut length = into.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the length of `into`, and their number into
    // `length`; both live until the call returns, and any bytes are a valid `[u8]`.
    let result = unsafe {
        let into = into.as_mut_ptr().cast();
        libc::getsockopt(socket.as_raw_fd(), level, name, into, &raw mut length)
    };
    if result == 0 { Ok(length as usize) } else { Err(io::Error::last_os_error()) }
}

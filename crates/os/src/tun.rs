//! TUN interfaces. A program reads the packets that a namespace sends through its TUN interface.
//! Packets that the program writes arrive in the namespace.

#![allow(unsafe_code, reason = "no safe wrapper supports the ioctl TUNSETIFF")]

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::netlink;

/// A TUN interface of IP packets without additional headers and without offloads. It is not
/// persistent: the interface is removed when this handle is dropped.
#[derive(Debug)]
pub struct Tun {
    file: File,
    index: u32,
}

impl Tun {
    /// Creates the interface `name` in the calling thread's namespace. The interface is switched
    /// off.
    ///
    /// # Errors
    /// `ENOENT` or `EACCES` without a usable `/dev/net/tun`; `EPERM` without `CAP_NET_ADMIN` in
    /// the namespace; `EBUSY` if the name is used already; `InvalidInput` if it is not a valid
    /// interface name.
    pub fn create(name: &str) -> io::Result<Tun> {
        let mut request = request(name)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")?;
        // SAFETY: TUNSETIFF reads and writes one ifreq, which outlives the call; the descriptor is
        // open.
        let rc = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
        if rc < 0 {
            return Err(io::Error::last_os_error());
        }
        let link = netlink::link_named(name)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(Tun { file, index: link.index })
    }

    /// Returns the interface's index in its namespace.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Reads one packet into `buffer`, and returns its length. Returns `None` if no packet waits.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.file).read(buffer) {
            Ok(len) => Ok(Some(len)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Passes `packet` to the namespace, as if it had arrived through the interface.
    ///
    /// # Errors
    /// `EIO` while the interface is switched off; `EINVAL` if `packet` is not an IP packet.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        (&self.file).write(packet).map(drop)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: an ifreq consists of numbers, for which zero is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    if name.is_empty() || name.len() > room || !name.bytes().all(|b| b.is_ascii_graphic()) {
        let text = format!("`{name}` is not an interface name (1 to {room} ASCII characters)");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    Ok(request)
}

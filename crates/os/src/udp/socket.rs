//! Sockets: their creation, and their properties.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::error::QueuedError;
use super::sys;

/// `SO_NETNS_COOKIE`, which the `libc` crate lacks.
const NETNS_COOKIE: i32 = 71;

/// Options for opening a socket. `Default` has those of a path of the splitter.
#[derive(Clone, Debug)]
pub struct UdpOptions {
    /// Interface that the socket is bound to (`SO_BINDTODEVICE`; needs no privilege since Linux
    /// 5.7).
    pub device: Option<String>,
    /// Mark of each packet, for policy routing (`SO_MARK`; needs `CAP_NET_ADMIN`).
    pub mark: Option<u32>,
    /// Bytes that may wait for [`RecvBatch::recv`](super::RecvBatch::recv). If the process may not
    /// exceed the system's limit (`net.core.rmem_max`), the kernel reduces the number silently;
    /// [`UdpSocket::memory`] returns the actual one.
    pub recv_buffer: usize,
    /// Bytes that may wait for the interface; further ones fail with
    /// [`Fault::Full`](super::Fault::Full). Large values only lengthen the queue before a slow
    /// link.
    pub send_buffer: usize,
    /// Whether runs of datagrams are received joined (`UDP_GRO`) and sent joined (`UDP_SEGMENT`).
    /// If not, each datagram passes the kernel separately; everything else stays the same.
    pub offload: bool,
    /// Whether errors are queued for [`UdpSocket::take_error`] (`IP_RECVERR`). Without it, a
    /// connected socket learns only of closed ports, not of routers without a route. With it, the
    /// socket polls as failed until the queue is read. Unconnected sockets never queue errors:
    /// those of one client must not affect another.
    pub error_queue: bool,
    /// Whether other sockets with this option may have the same address and port (`SO_REUSEPORT`).
    /// The kernel assigns all datagrams from one peer's port to the same socket, or follows
    /// [`UdpSocket::choose_by`].
    pub share_port: bool,
}

impl Default for UdpOptions {
    fn default() -> Self {
        Self {
            device: None,
            mark: None,
            recv_buffer: 4 << 20,
            send_buffer: 1 << 20,
            offload: true,
            error_queue: true,
            share_port: false,
        }
    }
}

/// Kernel memory of a socket, in bytes of the kernel's own accounting (`SO_MEMINFO`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Bytes of datagrams that wait to be received.
    pub receive: u32,
    /// Maximum of `receive`.
    pub receive_limit: u32,
    /// Bytes of datagrams that wait to leave.
    pub send: u32,
    /// Maximum of `send`.
    pub send_limit: u32,
    /// Datagrams dropped on arrival since the socket was opened, for lack of memory or a bad
    /// checksum.
    pub drops: u32,
}

/// A non-blocking UDP socket, closed on `exec`.
#[derive(Debug)]
pub struct UdpSocket {
    fd: OwnedFd,
    v6: bool,
    /// Whether segmented sends are worth trying; cleared permanently when the kernel refuses one.
    segmentation: AtomicBool,
}

impl UdpSocket {
    /// Opens an unconnected socket at `local`, for many peers.
    ///
    /// Each datagram is received with the address that it was sent to
    /// ([`Received::to`](super::Received::to)), so that the answer can leave from there. `[::]`
    /// listens for IPv4, too, if that is the system's default (`net.ipv6.bindv6only`).
    ///
    /// # Errors
    /// The kernel's: the port is taken, the address is not on this machine, the interface does not
    /// exist.
    pub fn bind(local: SocketAddr, options: &UdpOptions) -> io::Result<Self> {
        let socket = Self::open(local.is_ipv6(), options)?;
        socket.set_both(
            (libc::IPPROTO_IP, libc::IP_PKTINFO, 1),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1),
        )?;
        rustix::net::bind(&socket.fd, &local)?;
        Ok(socket)
    }

    /// Attaches a program that chooses among the sockets with this one's port for each datagram. It
    /// is classic BPF, which runs on the datagram after its UDP header, and returns a socket's
    /// number in the order of binding. Datagrams for which it returns a number without a socket are
    /// distributed as if there were no program.
    ///
    /// # Errors
    /// The kernel's: it is older than 4.5, or the program is invalid.
    pub fn choose_by(&self, program: &[libc::sock_filter]) -> io::Result<()> {
        sys::attach_choice(self.as_fd(), program)
    }

    /// Opens a socket to one `peer`, from `local` or from an address that the route determines; the
    /// kernel chooses a port for 0. IPv4 addresses inside IPv6 are treated as IPv4.
    ///
    /// # Errors
    /// Same as [`bind`](Self::bind), and if no route leads to `peer`. `InvalidInput` if `local` is
    /// of the other family.
    pub fn connect(
        local: Option<SocketAddr>,
        peer: SocketAddr,
        options: &UdpOptions,
    ) -> io::Result<Self> {
        let (local, peer) = (local.map(sys::canonical), sys::canonical(peer));
        if local.is_some_and(|local| local.is_ipv6() != peer.is_ipv6()) {
            let message = "the source address and the peer's are of different families";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let socket = Self::open(peer.is_ipv6(), options)?;
        if options.error_queue {
            socket.set_both(
                (libc::IPPROTO_IP, libc::IP_RECVERR, 1),
                (libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1),
            )?;
        }
        if let Some(local) = local {
            rustix::net::bind(&socket.fd, &local)?;
        }
        rustix::net::connect(&socket.fd, &peer)?;
        Ok(socket)
    }

    fn open(v6: bool, options: &UdpOptions) -> io::Result<Self> {
        let family = if v6 { AddressFamily::INET6 } else { AddressFamily::INET };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
        let socket = Self { fd, v6, segmentation: AtomicBool::new(options.offload) };
        socket.configure(options)?;
        Ok(socket)
    }

    fn configure(&self, options: &UdpOptions) -> io::Result<()> {
        let fd = self.as_fd();
        if let Some(device) = &options.device {
            sys::set_bytes(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, device.as_bytes())?;
        }
        if let Some(mark) = options.mark {
            sys::set(fd, libc::SOL_SOCKET, libc::SO_MARK, mark as i32)?;
        }
        self.set_buffer(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, options.recv_buffer)?;
        self.set_buffer(libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, options.send_buffer)?;
        if options.share_port {
            sys::set(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
        }
        if options.offload {
            // Kernels before 5.0 lack it; then datagrams arrive one by one.
            let _ = sys::set(fd, libc::SOL_UDP, libc::UDP_GRO, 1);
        }
        self.allow_fragments(false)?;
        self.set_both(
            (libc::IPPROTO_IP, libc::IP_RECVTOS, 1),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1),
        )
    }

    /// Sets a buffer's size beyond the system's limit if the process may, otherwise up to the
    /// limit.
    fn set_buffer(&self, forced: i32, plain: i32, bytes: usize) -> io::Result<()> {
        // The kernel doubles the number, so only half of the range is usable.
        let bytes = bytes.min(i32::MAX as usize / 2) as i32;
        sys::set(self.as_fd(), libc::SOL_SOCKET, forced, bytes)
            .or_else(|_| sys::set(self.as_fd(), libc::SOL_SOCKET, plain, bytes))
    }

    /// Sets an option for IPv4, and also for IPv6 on a socket of that family, which may transfer
    /// IPv4, too.
    fn set_both(&self, v4: (i32, i32, i32), v6: (i32, i32, i32)) -> io::Result<()> {
        sys::set(self.as_fd(), v4.0, v4.1, v4.2)?;
        if self.v6 {
            sys::set(self.as_fd(), v6.0, v6.1, v6.2)?;
        }
        Ok(())
    }

    /// The address and port that the socket is bound to.
    ///
    /// # Errors
    /// The kernel's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        address(rustix::net::getsockname(&self.fd)?)
    }

    /// The address and port that the socket is connected to.
    ///
    /// # Errors
    /// `NotConnected` for a bound socket.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        address(rustix::net::getpeername(&self.fd)?.ok_or(io::ErrorKind::NotConnected)?)
    }

    /// The MTU of a connected socket's route in bytes, IP header included (`IP_MTU`): the
    /// interface's, or less if a router has reported that.
    ///
    /// # Errors
    /// `NotConnected` for a bound socket.
    pub fn mtu(&self) -> io::Result<u32> {
        let (level, name) = match self.v6 {
            true => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
            false => (libc::IPPROTO_IP, libc::IP_MTU),
        };
        sys::option::<1>(self.as_fd(), level, name).map(|[mtu]| mtu)
    }

    /// Maximum bytes of UDP payload in a datagram that fits the [`mtu`](Self::mtu).
    ///
    /// # Errors
    /// Same as [`mtu`](Self::mtu).
    pub fn max_datagram(&self) -> io::Result<u32> {
        let headers = if self.v6 { 48 } else { 28 };
        Ok(self.mtu()?.saturating_sub(headers).min(super::MAX_BYTES as u32))
    }

    /// Kernel memory that the socket holds, and the number of datagrams dropped on arrival.
    ///
    /// # Errors
    /// The kernel's.
    pub fn memory(&self) -> io::Result<Memory> {
        let info: [u32; 9] = sys::option(self.as_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO)?;
        let at = |index: i32| info[index as usize];
        Ok(Memory {
            receive: at(libc::SK_MEMINFO_RMEM_ALLOC),
            receive_limit: at(libc::SK_MEMINFO_RCVBUF),
            send: at(libc::SK_MEMINFO_WMEM_ALLOC),
            send_limit: at(libc::SK_MEMINFO_SNDBUF),
            drops: at(libc::SK_MEMINFO_DROPS),
        })
    }

    /// The kernel's number for the network namespace of the socket, which is unique until the
    /// machine restarts (`SO_NETNS_COOKIE`).
    ///
    /// # Errors
    /// The kernel's: before Linux 5.14 it has none.
    pub fn namespace(&self) -> io::Result<u64> {
        let [low, high] = sys::option(self.as_fd(), libc::SOL_SOCKET, NETNS_COOKIE)?;
        Ok(u64::from(high) << 32 | u64::from(low))
    }

    /// Sets whether datagrams larger than the path's MTU are fragmented. Otherwise, and by default,
    /// they are refused with [`Fault::TooBig`](super::Fault::TooBig).
    ///
    /// # Errors
    /// The kernel's.
    pub fn allow_fragments(&self, allow: bool) -> io::Result<()> {
        let (four, six) = match allow {
            true => (libc::IP_PMTUDISC_DONT, libc::IPV6_PMTUDISC_DONT),
            false => (libc::IP_PMTUDISC_PROBE, libc::IPV6_PMTUDISC_PROBE),
        };
        self.set_both(
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, four),
            (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, six),
        )
    }

    /// Takes one entry from the error queue; `None` when it is empty. Call it until then: while
    /// entries wait, the socket polls as failed.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take_error(&self) -> io::Result<Option<QueuedError>> {
        Ok(sys::take_error(self.as_fd())?.map(QueuedError::from_raw))
    }

    /// Whether runs leave as one segmented send: it was requested, and the kernel has not refused
    /// it so far.
    pub fn segments(&self) -> bool {
        self.segmentation.load(Ordering::Relaxed)
    }

    pub(super) fn stop_segmenting(&self) {
        self.segmentation.store(false, Ordering::Relaxed);
    }

    pub(super) fn is_v6(&self) -> bool {
        self.v6
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Converts an address to the standard library's type; IPv4 inside IPv6 becomes IPv4.
fn address(any: rustix::net::SocketAddrAny) -> io::Result<SocketAddr> {
    let address = SocketAddr::try_from(any).map_err(io::Error::from)?;
    Ok(sys::canonical(address))
}

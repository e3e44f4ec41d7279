//! UDP sockets with their options and properties.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::error::QueuedError;
use super::sys;

/// `SO_NETNS_COOKIE`, which the `libc` crate lacks.
const NETNS_COOKIE: i32 = 71;

/// Options for opening a socket. The defaults suit a network path of the splitter, which spreads
/// sessions over several paths.
#[derive(Clone, Debug)]
pub struct UdpOptions {
    /// Interface that the socket is bound to (`SO_BINDTODEVICE`; this needs no privilege since
    /// Linux 5.7). `None` means any interface.
    pub device: Option<String>,
    /// Mark of each packet, for policy routing (`SO_MARK`; this needs `CAP_NET_ADMIN`). `None`
    /// means no mark.
    pub mark: Option<u32>,
    /// Size of the receive buffer in bytes (`SO_RCVBUF`), which the kernel doubles for its
    /// overhead. If the process may not exceed the system's limit (`net.core.rmem_max`), the
    /// kernel silently reduces the size. [`UdpSocket::memory`] returns the actual size.
    pub recv_buffer: usize,
    /// Size of the send buffer in bytes (`SO_SNDBUF`). Datagrams that do not fit fail with
    /// [`Fault::Full`](super::Fault::Full). Large values only lengthen the queue before a slow
    /// link.
    pub send_buffer: usize,
    /// True if the kernel joins consecutive datagrams on reception (`UDP_GRO`) and sends them
    /// joined (`UDP_SEGMENT`). If false, each datagram passes the kernel separately; nothing else
    /// changes.
    pub offload: bool,
    /// True if errors are queued for [`UdpSocket::take_error`] (`IP_RECVERR`). Without this
    /// option, a connected socket reports only closed ports, and not that a router has no route.
    /// With this option, the poller reports an error until the queue has been read. Unconnected
    /// sockets never queue errors, so that errors of one client do not affect another.
    pub error_queue: bool,
    /// True if other sockets with this option may have the same address and port (`SO_REUSEPORT`).
    /// The BPF program of [`UdpSocket::choose_by`] then selects the socket for each datagram.
    /// Without a BPF program, the kernel assigns all datagrams from one port of a peer to the same
    /// socket.
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

/// Kernel memory that a socket uses, in bytes as the kernel counts them (`SO_MEMINFO`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Bytes of datagrams that wait to be received.
    pub receive: u32,
    /// Maximum of `receive`.
    pub receive_limit: u32,
    /// Bytes of datagrams that wait to be sent.
    pub send: u32,
    /// Maximum of `send`.
    pub send_limit: u32,
    /// Number of datagrams dropped on arrival since the socket was opened, for lack of memory or
    /// because of a bad checksum.
    pub drops: u32,
}

/// A non-blocking UDP socket, which is closed on `exec`.
#[derive(Debug)]
pub struct UdpSocket {
    fd: OwnedFd,
    v6: bool,
    /// True if segmented sends are used. The value becomes false permanently when the kernel
    /// refuses a segmented send.
    segmentation: AtomicBool,
}

impl UdpSocket {
    /// Opens an unconnected socket at `local`, for datagrams of many peers.
    ///
    /// Each received datagram has the local address that it was sent to
    /// ([`Received::to`](super::Received::to)), so that the answer can be sent from that address.
    /// `[::]` listens for IPv4, too, if that is the system's default (`net.ipv6.bindv6only`).
    ///
    /// # Errors
    /// An error of the kernel: the port is in use, the address is not on this machine, or the
    /// interface does not exist.
    pub fn bind(local: SocketAddr, options: &UdpOptions) -> io::Result<Self> {
        let socket = Self::open(local.is_ipv6(), options)?;
        socket.set_both(
            (libc::IPPROTO_IP, libc::IP_PKTINFO, 1),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1),
        )?;
        rustix::net::bind(&socket.fd, &local)?;
        Ok(socket)
    }

    /// Attaches a program in classic BPF that chooses, for each datagram, one of the sockets that
    /// share this socket's port (`SO_ATTACH_REUSEPORT_CBPF`). The program reads the UDP payload,
    /// and returns the index of a socket. Indices count from 0 in the order in which the sockets
    /// were bound. If no socket has the returned index, the kernel chooses as if there were no
    /// program.
    ///
    /// # Errors
    /// An error of the kernel, if the program is invalid or the kernel is older than Linux 4.5.
    pub fn choose_by(&self, program: &[libc::sock_filter]) -> io::Result<()> {
        sys::attach_choice(self.as_fd(), program)
    }

    /// Opens a socket that is connected to `peer`. It is bound to `local`; if that is `None`, the
    /// route determines the local address. If the local port is 0, the kernel chooses a port. IPv4
    /// addresses inside IPv6 are treated as IPv4.
    ///
    /// # Errors
    /// The errors of [`bind`](Self::bind), and an error if no route leads to `peer`.
    /// `InvalidInput` if `local` has another IP version.
    pub fn connect(
        local: Option<SocketAddr>,
        peer: SocketAddr,
        options: &UdpOptions,
    ) -> io::Result<Self> {
        let (local, peer) = (local.map(sys::canonical), sys::canonical(peer));
        if local.is_some_and(|local| local.is_ipv6() != peer.is_ipv6()) {
            let message = "the source address and the peer's address must both be IPv4 or both \
                           be IPv6";
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
            // Kernels before 5.0 do not support this option. Datagrams then arrive one by one.
            let _ = sys::set(fd, libc::SOL_UDP, libc::UDP_GRO, 1);
        }
        self.allow_fragments(false)?;
        self.set_both(
            (libc::IPPROTO_IP, libc::IP_RECVTOS, 1),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1),
        )
    }

    /// Sets a buffer's size with the option `forced`, which may exceed the system's limit but
    /// needs privilege. Without the privilege, uses the option `plain`.
    fn set_buffer(&self, forced: i32, plain: i32, bytes: usize) -> io::Result<()> {
        // The kernel doubles the number, so only half of the range is usable.
        let bytes = bytes.min(i32::MAX as usize / 2) as i32;
        sys::set(self.as_fd(), libc::SOL_SOCKET, forced, bytes)
            .or_else(|_| sys::set(self.as_fd(), libc::SOL_SOCKET, plain, bytes))
    }

    /// Sets an option that differs between IPv4 and IPv6. `v4` and `v6` are the option's level,
    /// name and value for each. On an IPv6 socket, sets both forms, because the socket may carry
    /// IPv4, too.
    fn set_both(&self, v4: (i32, i32, i32), v6: (i32, i32, i32)) -> io::Result<()> {
        sys::set(self.as_fd(), v4.0, v4.1, v4.2)?;
        if self.v6 {
            sys::set(self.as_fd(), v6.0, v6.1, v6.2)?;
        }
        Ok(())
    }

    /// Returns the socket's local address and port.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        address(rustix::net::getsockname(&self.fd)?)
    }

    /// Returns the address and port of the peer.
    ///
    /// # Errors
    /// `NotConnected` if the socket is not connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        address(rustix::net::getpeername(&self.fd)?.ok_or(io::ErrorKind::NotConnected)?)
    }

    /// Returns the MTU of a connected socket's route in bytes, including the IP header (`IP_MTU`).
    /// It is the interface's MTU, or a smaller value from a router.
    ///
    /// # Errors
    /// `NotConnected` if the socket is not connected.
    pub fn mtu(&self) -> io::Result<u32> {
        let (level, name) = match self.v6 {
            true => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
            false => (libc::IPPROTO_IP, libc::IP_MTU),
        };
        sys::option::<1>(self.as_fd(), level, name).map(|[mtu]| mtu)
    }

    /// Returns the maximum bytes of UDP payload in a datagram that does not exceed the
    /// [`mtu`](Self::mtu).
    ///
    /// # Errors
    /// The errors of [`mtu`](Self::mtu).
    pub fn max_datagram(&self) -> io::Result<u32> {
        let headers = if self.v6 { 48 } else { 28 };
        Ok(self.mtu()?.saturating_sub(headers).min(super::MAX_BYTES as u32))
    }

    /// Returns the kernel memory that the socket uses, and the number of datagrams dropped on
    /// arrival.
    ///
    /// # Errors
    /// An error of the kernel.
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

    /// Returns the cookie of the socket's network namespace, which is unique until the machine
    /// restarts (`SO_NETNS_COOKIE`).
    ///
    /// # Errors
    /// An error of the kernel. Before Linux 5.14, the kernel does not have this option.
    pub fn namespace(&self) -> io::Result<u64> {
        let [low, high] = sys::option(self.as_fd(), libc::SOL_SOCKET, NETNS_COOKIE)?;
        Ok(u64::from(high) << 32 | u64::from(low))
    }

    /// Sets whether datagrams may be fragmented. By default they may not be fragmented, and a
    /// datagram larger than the interface's MTU is refused with
    /// [`Fault::TooBig`](super::Fault::TooBig).
    ///
    /// # Errors
    /// An error of the kernel.
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

    /// Removes and returns one entry of the error queue; `None` if the queue is empty. Call this
    /// function until it returns `None`, because the poller reports an error while entries wait.
    ///
    /// # Errors
    /// An error of the kernel.
    pub fn take_error(&self) -> io::Result<Option<QueuedError>> {
        Ok(sys::take_error(self.as_fd())?.map(QueuedError::from_raw))
    }

    /// Returns whether several datagrams leave as one segmented send: [`UdpOptions::offload`] was
    /// set, and the kernel has not refused segmentation so far.
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

/// Converts an address to the standard library's type. An IPv4 address inside IPv6 becomes IPv4.
fn address(any: rustix::net::SocketAddrAny) -> io::Result<SocketAddr> {
    let address = SocketAddr::try_from(any).map_err(io::Error::from)?;
    Ok(sys::canonical(address))
}

//! The system calls for sending and receiving. They are the only unsafe code of [`udp`](super).
//!
//! Every function of this module is safe to call: it takes slices and owned values, builds the
//! kernel's structures on its own stack for one call, and returns plain data. No function keeps a
//! raw pointer.

#![allow(unsafe_code, reason = "recvmmsg, sendmmsg and control messages have no safe binding")]

use std::io::{self, IoSlice};
use std::mem::{self, MaybeUninit};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use libc::{c_int, c_void};

/// `SO_ATTACH_REUSEPORT_CBPF`, which the `libc` crate lacks.
const ATTACH_REUSEPORT_CBPF: c_int = 51;
/// Maximum number of messages that one system call receives or sends.
pub(super) const MESSAGES: usize = 64;

/// Addresses, ECN bits and sizes of a received message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) from: SocketAddr,
    /// Local destination address of the message; `None` unless the socket requests it.
    pub(super) to: Option<IpAddr>,
    pub(super) ecn: u8,
    pub(super) len: usize,
    /// Length in bytes of each datagram, if the kernel has joined several; else `None`.
    pub(super) segment: Option<usize>,
}

/// A message to be sent: consecutive datagrams of `segment` bytes each. The last datagram may be
/// shorter. The range `pieces` selects references to bytes, each to one or more whole datagrams.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) pieces: Range<usize>,
    pub(super) segment: usize,
    pub(super) segments: usize,
    pub(super) bytes: usize,
    pub(super) to: Option<SocketAddr>,
    pub(super) source: Option<IpAddr>,
    pub(super) ecn: u8,
}

/// An entry of a socket's error queue, as the kernel writes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawError {
    pub(super) errno: i32,
    pub(super) origin: u8,
    pub(super) kind: u8,
    pub(super) code: u8,
    pub(super) info: u32,
    pub(super) offender: Option<IpAddr>,
    /// Destination of the datagram that caused the error; `None` if the kernel does not report it.
    pub(super) about: Option<SocketAddr>,
}

/// Buffer for the control data of one message. The control data of a received message have at most
/// 112 bytes: a packet info (40), a traffic class (24), a type of service (24) and a segment size
/// (24).
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 128]);

/// Buffer for the control data of an entry of the error queue: a `sock_extended_err` with its
/// offender (64 bytes), and the data of [`Control`].
#[repr(C, align(8))]
struct ErrorControl([u8; 256]);

/// A socket address of either IP version, in the kernel's form.
#[repr(C)]
#[derive(Clone, Copy)]
union Name {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

/// Sets an option whose value is an integer.
pub(super) fn set(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
    set_bytes(fd, level, name, &value.to_ne_bytes())
}

/// Sets an option whose value is a string of bytes.
pub(super) fn set_bytes(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &[u8],
) -> io::Result<()> {
    let length = value.len() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes from a slice of that length.
    let status =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast(), length) };
    checked(status as isize).map(drop)
}

/// Attaches a program that chooses, for each datagram, one of the sockets that share this socket's
/// port.
pub(super) fn attach_choice(fd: BorrowedFd<'_>, program: &[libc::sock_filter]) -> io::Result<()> {
    let too_long = |_| io::ErrorKind::InvalidInput;
    let program = libc::sock_fprog {
        len: program.len().try_into().map_err(too_long)?,
        filter: program.as_ptr().cast_mut(),
    };
    let length = size_of_val(&program) as libc::socklen_t;
    // SAFETY: the kernel reads a `sock_fprog`, and the number of instructions that it states from
    // its pointer, which is to a slice of that length. The kernel keeps a copy, and writes to
    // neither.
    let status = unsafe {
        let value = (&raw const program).cast();
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, ATTACH_REUSEPORT_CBPF, value, length)
    };
    checked(status as isize).map(drop)
}

/// Reads an option that consists of 32-bit numbers. Numbers that the kernel does not return are 0.
pub(super) fn option<const N: usize>(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
) -> io::Result<[u32; N]> {
    let mut value = [0u32; N];
    let mut length = mem::size_of_val(&value) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, the size of `value`, and every bit pattern
    // is valid for it.
    let status = unsafe {
        libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &mut length)
    };
    checked(status as isize)?;
    Ok(value)
}

/// Receives with one `recvmmsg` into `buffers`, which are divided into parts of `slot` bytes. Each
/// part receives one message. Appends an [`Arrival`] to `arrivals` for each message, in order.
pub(super) fn receive(
    fd: BorrowedFd<'_>,
    buffers: &mut [u8],
    slot: usize,
    arrivals: &mut Vec<Arrival>,
) -> io::Result<()> {
    arrivals.clear();
    let mut names = [const { MaybeUninit::<Name>::uninit() }; MESSAGES];
    let mut controls = [const { MaybeUninit::<Control>::uninit() }; MESSAGES];
    let mut iovecs = [const { MaybeUninit::<libc::iovec>::uninit() }; MESSAGES];
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MESSAGES];
    let mut count = 0;
    for (i, buffer) in buffers.chunks_exact_mut(slot).take(MESSAGES).enumerate() {
        let base = buffer.as_mut_ptr().cast();
        let iovec = iovecs[i].write(libc::iovec { iov_base: base, iov_len: slot });
        let name = (names[i].as_mut_ptr().cast(), mem::size_of::<Name>());
        let control = (controls[i].as_mut_ptr().cast(), mem::size_of::<Control>());
        headers[i].write(header(name, (iovec, 1), control));
        count += 1;
    }
    // Flags are signed in glibc and unsigned in musl.
    let (fd, now) = (fd.as_raw_fd(), libc::MSG_DONTWAIT as _);
    let received = uninterrupted(|| {
        let first = headers.as_mut_ptr().cast();
        // SAFETY: the first `count` headers are written, and each points to storage that outlives
        // the call.
        let taken = unsafe { libc::recvmmsg(fd, first, count, now, ptr::null_mut()) };
        taken as isize
    })?;
    for header in &headers[..received] {
        // SAFETY: the headers were written above, and the kernel has filled in as many as it
        // reported.
        let header = unsafe { header.assume_init_ref() };
        arrivals.push(arrival(header));
    }
    Ok(())
}

/// Sends `messages` with one `sendmmsg`, which may stop before the last message. Returns the
/// number of messages that the kernel accepted, which is at least one.
///
/// A returned error concerns the first message in `messages`. `v6` is true if the socket is an
/// IPv6 socket.
pub(super) fn send(
    fd: BorrowedFd<'_>,
    v6: bool,
    messages: &[Message],
    pieces: &[IoSlice<'_>],
) -> io::Result<usize> {
    let mut names = [const { MaybeUninit::<Name>::uninit() }; MESSAGES];
    let mut controls = [const { MaybeUninit::<Control>::uninit() }; MESSAGES];
    let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MESSAGES];
    let mut count = 0;
    for (i, message) in messages.iter().take(MESSAGES).enumerate() {
        let name = message.to.map_or((ptr::null_mut(), 0), |to| write_name(&mut names[i], to, v6));
        let control = write_control(&mut controls[i], message, v6);
        let gathered = &pieces[message.pieces.clone()];
        // An `IoSlice` has the layout of an `iovec`, as the standard library promises.
        let iovec = gathered.as_ptr().cast_mut().cast();
        headers[i].write(header(name, (iovec, gathered.len()), control));
        count += 1;
    }
    uninterrupted(|| {
        let first = headers.as_mut_ptr().cast();
        // SAFETY: the first `count` headers are written, each points to storage that outlives the
        // call, and the kernel only reads names, pieces and control data when it sends.
        unsafe { libc::sendmmsg(fd.as_raw_fd(), first, count, libc::MSG_DONTWAIT as _) as isize }
    })
}

/// Removes and returns one entry of the socket's error queue; `None` if it is empty.
pub(super) fn take_error(fd: BorrowedFd<'_>) -> io::Result<Option<RawError>> {
    let mut name = MaybeUninit::<Name>::uninit();
    let mut control = MaybeUninit::<ErrorControl>::uninit();
    let mut message = header(
        (name.as_mut_ptr().cast(), mem::size_of::<Name>()),
        (ptr::null_mut(), 0),
        (control.as_mut_ptr().cast(), mem::size_of::<ErrorControl>()),
    );
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    let received = uninterrupted(|| {
        // SAFETY: the header points to storage that outlives the call; the call asks for no
        // payload.
        unsafe { libc::recvmsg(fd.as_raw_fd(), &mut message.msg_hdr, flags) }
    });
    match received {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
        Ok(_) => Ok(raw_error(&message.msg_hdr)),
    }
}

/// Builds a message header from a socket address (`name`), an array of byte ranges and control
/// data, each with its length.
fn header(
    (name, name_len): (*mut c_void, usize),
    (iovec, pieces): (*mut libc::iovec, usize),
    (control, control_len): (*mut c_void, usize),
) -> libc::mmsghdr {
    // SAFETY: null pointers and zero lengths are a valid header; some systems pad it with private
    // fields.
    let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
    header.msg_hdr.msg_name = name;
    header.msg_hdr.msg_namelen = name_len as _;
    header.msg_hdr.msg_iov = iovec;
    header.msg_hdr.msg_iovlen = pieces as _;
    header.msg_hdr.msg_control = control;
    header.msg_hdr.msg_controllen = control_len as _;
    header
}

/// Reads the properties of a received message from its header.
fn arrival(header: &libc::mmsghdr) -> Arrival {
    let mut arrival = Arrival {
        from: name(&header.msg_hdr).unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into()),
        to: None,
        ecn: 0,
        len: header.msg_len as usize,
        segment: None,
    };
    each_control(&header.msg_hdr, |level, kind, data| match (level, kind) {
        (libc::IPPROTO_IP, libc::IP_TOS) => arrival.ecn = data[0] & 3,
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => arrival.ecn = number(data) as u8 & 3,
        (libc::SOL_UDP, libc::UDP_GRO) => arrival.segment = Some(number(data) as usize),
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            // The second word is the address from which to answer. The third is the destination in
            // the packet's header. Only the second is an address of this machine even for a
            // broadcast.
            arrival.to = octets::<4>(data, 4).map(IpAddr::from);
        }
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            let to = octets::<16>(data, 0).map(|to| Ipv6Addr::from(to).to_canonical());
            arrival.to = to.filter(|to| !to.is_multicast());
        }
        _ => {}
    });
    arrival
}

/// Reads an entry of the error queue. Returns `None` if it contains no extended error
/// (`IP_RECVERR`, `IPV6_RECVERR`).
fn raw_error(header: &libc::msghdr) -> Option<RawError> {
    const HEAD: usize = mem::size_of::<libc::sock_extended_err>();
    let mut found = None;
    each_control(header, |level, kind, data| {
        let v4 = (level, kind) == (libc::IPPROTO_IP, libc::IP_RECVERR);
        let v6 = (level, kind) == (libc::IPPROTO_IPV6, libc::IPV6_RECVERR);
        if !(v4 || v6) || data.len() < HEAD {
            return;
        }
        found = Some(RawError {
            errno: number(data) as i32,
            origin: data[4],
            kind: data[5],
            code: data[6],
            info: number(&data[8..]),
            offender: offender(&data[HEAD..]),
            about: name(header),
        });
    });
    found
}

/// Reads the IP address in the `sockaddr` that follows an extended error; `None` if it has none.
fn offender(data: &[u8]) -> Option<IpAddr> {
    match i32::from(u16::from_ne_bytes(octets(data, 0)?)) {
        libc::AF_INET => octets::<4>(data, 4).map(IpAddr::from),
        libc::AF_INET6 => octets::<16>(data, 8).map(|ip| Ipv6Addr::from(ip).to_canonical()),
        _ => None,
    }
}

/// Returns `N` bytes of `data` from offset `at`; `None` if `data` is too short.
fn octets<const N: usize>(data: &[u8], at: usize) -> Option<[u8; N]> {
    data.get(at..)?.first_chunk().copied()
}

/// Returns the first four bytes of `data` as a number in native byte order.
fn number(data: &[u8]) -> u32 {
    octets(data, 0).map_or(0, u32::from_ne_bytes)
}

/// Calls `visit(level, kind, data)` for each control message that the kernel wrote.
fn each_control(header: &libc::msghdr, mut visit: impl FnMut(c_int, c_int, &[u8])) {
    // SAFETY: the macros stay within `msg_controllen`, which the kernel has set to the bytes
    // written; the data of each message is as long as its header states, and initialised.
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(header);
        while let Some(message) = next.as_ref() {
            let whole: usize = message.cmsg_len as _;
            let length = whole.saturating_sub(libc::CMSG_LEN(0) as usize);
            if length > 0 {
                let data = std::slice::from_raw_parts(libc::CMSG_DATA(message), length);
                visit(message.cmsg_level, message.cmsg_type, data);
            }
            next = libc::CMSG_NXTHDR(header, message);
        }
    }
}

/// Returns the socket address in the header of a received message; `None` if there is none. An
/// IPv4 address inside IPv6 becomes IPv4.
fn name(header: &libc::msghdr) -> Option<SocketAddr> {
    if (header.msg_namelen as usize) < mem::size_of::<libc::sockaddr_in>() {
        return None;
    }
    let name: *const Name = header.msg_name.cast();
    // SAFETY: the pointer is to a `Name` of this function's caller. The kernel has written its
    // first `msg_namelen` bytes: the family, and the whole address structure of that family.
    unsafe {
        match i32::from((*name).v4.sin_family) {
            libc::AF_INET => {
                let v4 = (*name).v4;
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 if header.msg_namelen as usize >= mem::size_of::<Name>() => {
                let v6 = (*name).v6;
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                let whole = SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id);
                Some(canonical(whole.into()))
            }
            _ => None,
        }
    }
}

/// Converts `address` to IPv4 if it is an IPv4 address inside IPv6; otherwise returns it unchanged.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

/// Writes `to` into `name`, in the form that a socket requires. `v6` is true for an IPv6 socket.
/// Returns the location and the length of the written address.
fn write_name(name: &mut MaybeUninit<Name>, to: SocketAddr, v6: bool) -> (*mut c_void, usize) {
    let (form, length) = match to {
        SocketAddr::V4(to) if !v6 => (v4_name(to), mem::size_of::<libc::sockaddr_in>()),
        SocketAddr::V4(to) => {
            let mapped = SocketAddrV6::new(to.ip().to_ipv6_mapped(), to.port(), 0, 0);
            (v6_name(mapped), mem::size_of::<libc::sockaddr_in6>())
        }
        SocketAddr::V6(to) => (v6_name(to), mem::size_of::<libc::sockaddr_in6>()),
    };
    (ptr::from_mut(name.write(form)).cast(), length)
}

fn v4_name(to: SocketAddrV4) -> Name {
    let sin_addr = libc::in_addr { s_addr: u32::from_ne_bytes(to.ip().octets()) };
    let sin_port = to.port().to_be();
    let sin_family = libc::AF_INET as libc::sa_family_t;
    Name { v4: libc::sockaddr_in { sin_family, sin_port, sin_addr, sin_zero: [0; 8] } }
}

fn v6_name(to: SocketAddrV6) -> Name {
    Name {
        v6: libc::sockaddr_in6 {
            sin6_family: libc::AF_INET6 as libc::sa_family_t,
            sin6_port: to.port().to_be(),
            sin6_flowinfo: to.flowinfo(),
            sin6_addr: libc::in6_addr { s6_addr: to.ip().octets() },
            sin6_scope_id: to.scope_id(),
        },
    }
}

/// Writes the control data that `message` needs. Returns a null pointer if it needs none.
fn write_control(
    space: &mut MaybeUninit<Control>,
    message: &Message,
    v6: bool,
) -> (*mut c_void, usize) {
    // On an IPv6 socket, messages to an IPv4 address take IPv4's options.
    let v6 = message.to.map_or(v6, |to| to.is_ipv6());
    let plain = message.segments < 2 && message.ecn == 0 && message.source.is_none();
    if plain {
        return (ptr::null_mut(), 0);
    }
    let mut writer = Writer { space: &mut space.write(Control([0; 128])).0, used: 0 };
    if message.segments > 1 {
        writer.put(libc::SOL_UDP, libc::UDP_SEGMENT, &(message.segment as u16).to_ne_bytes());
    }
    if message.ecn != 0 {
        let (level, kind) = match v6 {
            true => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
            false => (libc::IPPROTO_IP, libc::IP_TOS),
        };
        writer.put(level, kind, &c_int::from(message.ecn).to_ne_bytes());
    }
    match message.source {
        Some(IpAddr::V4(source)) if !v6 => {
            // The fields are the interface (which the route determines), the source, and a field
            // that only reception uses.
            let mut info = [0; 12];
            info[4..8].copy_from_slice(&source.octets());
            writer.put(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
        }
        Some(IpAddr::V6(source)) if v6 => {
            let mut info = [0; 20];
            info[..16].copy_from_slice(&source.octets());
            writer.put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
        }
        _ => {}
    }
    let used = writer.used;
    (space.as_mut_ptr().cast(), used)
}

/// A writer of control messages, one after the other.
struct Writer<'a> {
    space: &'a mut [u8; 128],
    used: usize,
}

impl Writer<'_> {
    fn put(&mut self, level: c_int, kind: c_int, data: &[u8]) {
        // SAFETY: pure arithmetic, and a header of zeros is valid; some systems pad it with
        // private fields.
        let (whole, length, mut head) = unsafe {
            let size = data.len() as u32;
            (libc::CMSG_SPACE(size) as usize, libc::CMSG_LEN(size) as usize, mem::zeroed())
        };
        let entry = &mut self.space[self.used..self.used + whole];
        let libc::cmsghdr { cmsg_len, cmsg_level, cmsg_type, .. } = &mut head;
        (*cmsg_len, *cmsg_level, *cmsg_type) = (length as _, level, kind);
        // SAFETY: an entry is longer than its header.
        unsafe { entry.as_mut_ptr().cast::<libc::cmsghdr>().write_unaligned(head) };
        entry[length - data.len()..length].copy_from_slice(data);
        self.used += whole;
    }
}

/// Repeats `call` as long as signals interrupt it.
fn uninterrupted(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        match checked(call()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn checked(status: isize) -> io::Result<usize> {
    usize::try_from(status).map_err(|_| io::Error::last_os_error())
}

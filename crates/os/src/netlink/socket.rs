//! Requests to the kernel over netlink, and their answers.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// Buffer size in bytes, larger than any datagram that the kernel builds for a dump (at most 32
/// KiB).
const DATAGRAM: usize = 64 * 1024;

/// Requests all objects of one kind, such as all routes (`NLM_F_DUMP`), and returns them.
pub(super) fn dump(request: Message) -> io::Result<Vec<Message>> {
    exchange(request, NLM_F_DUMP)
}

/// Requests one object, such as the route to an address. An error of the kernel is returned as its
/// errno.
pub(super) fn ask(request: Message) -> io::Result<Vec<Message>> {
    exchange(request, NLM_F_ACK)
}

/// Requests a change, such as the addition of a route, and waits until the kernel has made it.
/// `flags` are flags such as `NLM_F_CREATE`.
pub(super) fn order(request: Message, flags: u16) -> io::Result<()> {
    exchange(request, NLM_F_ACK | flags).map(drop)
}

/// Opens a socket for rtnetlink.
pub(super) fn open() -> io::Result<Socket> {
    open_for(NETLINK_ROUTE)
}

/// Opens a netlink socket in the calling thread's namespace, bound to an address that the kernel
/// chooses.
pub(super) fn open_for(protocol: isize) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    Ok(socket)
}

fn exchange(request: Message, flags: u16) -> io::Result<Vec<Message>> {
    let socket = open()?;
    socket.send_to(&encode(request, flags), &SocketAddr::new(0, 0), 0)?;
    let (mut buffer, mut answers) = (vec![0; DATAGRAM], Vec::new());
    loop {
        let datagram = receive(&socket, &mut buffer)?;
        if collect(datagram, &mut answers)? {
            return Ok(answers);
        }
    }
}

/// Receives one datagram from the kernel. Skips datagrams of other processes.
pub(super) fn receive<'b>(socket: &Socket, buffer: &'b mut [u8]) -> io::Result<&'b [u8]> {
    loop {
        let (len, sender) = match socket.recv_from(&mut &mut *buffer, 0) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => result?,
        };
        if sender.port_number() == 0 {
            return Ok(&buffer[..len]);
        }
    }
}

fn encode(request: Message, flags: u16) -> Vec<u8> {
    let mut message = NetlinkMessage::from(request);
    message.header.flags = NLM_F_REQUEST | flags;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Appends the objects in the kernel's answer `datagram` to `answers`. Returns true if `datagram`
/// is the last one of the answer. If the kernel reports an error in `datagram`, returns that
/// error.
fn collect(datagram: &[u8], answers: &mut Vec<Message>) -> io::Result<bool> {
    for message in messages(datagram) {
        match message?.payload {
            NetlinkPayload::InnerMessage(answer) => answers.push(answer),
            NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
            NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok(true),
            _ => {}
        }
    }
    Ok(false)
}

/// Returns the messages in a datagram, up to the first truncated one.
pub(super) fn messages(
    mut rest: &[u8],
) -> impl Iterator<Item = io::Result<NetlinkMessage<Message>>> {
    std::iter::from_fn(move || {
        let length = NetlinkBuffer::new_checked(&rest).ok()?.length() as usize;
        let (bytes, after) = rest.split_at(length);
        // Messages begin at multiples of four bytes.
        rest = after.get(length.next_multiple_of(4) - length..).unwrap_or_default();
        Some(NetlinkMessage::deserialize(bytes).map_err(io::Error::other))
    })
}

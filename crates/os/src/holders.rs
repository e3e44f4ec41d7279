//! The programs that use a port of this machine, for error messages. They are found in /proc.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use crate::netlink;

/// A transport protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
}

/// Returns the program that uses the port of `address`, with name and process number, as in `socat
/// (process 17)`. Returns `None` if /proc does not show the program. This happens if the port
/// belongs to another user's program, or to the kernel itself (the `ListenPort` of a WireGuard
/// interface).
pub fn holder(transport: Transport, address: SocketAddr) -> Option<String> {
    let tables = match transport {
        Transport::Udp => ["/proc/net/udp", "/proc/net/udp6"],
        Transport::Tcp => ["/proc/net/tcp", "/proc/net/tcp6"],
    };
    let read = |table: &str| fs::read_to_string(table).unwrap_or_default();
    let inodes: Vec<_> =
        tables.iter().flat_map(|table| inodes(&read(table), address.port())).collect();
    let sockets: Vec<_> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let numbered =
        processes.filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit());
    let process = numbered.map(|entry| entry.path()).find(|process| holds(process, &sockets))?;
    let name = fs::read_to_string(process.join("comm")).ok()?;
    Some(format!("{} (process {})", name.trim_end(), process.file_name()?.display()))
}

/// Returns an error message that the port of `address` is in use. The message names the program
/// that uses it, if /proc shows it.
pub fn taken(transport: Transport, address: SocketAddr) -> String {
    let own = format!("(process {})", std::process::id());
    let by = match holder(transport, address) {
        Some(by) if by.ends_with(&own) => "this process itself".to_owned(),
        Some(by) => by,
        None => "another program, or a WireGuard interface".to_owned(),
    };
    format!("the port is taken by {by}; choose another")
}

/// Returns an error message that explains why `address` cannot be bound, and suggests a remedy.
pub fn unbindable(transport: Transport, address: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => taken(transport, address),
        io::ErrorKind::AddrNotAvailable => {
            let own = netlink::addresses().unwrap_or_default();
            let own = own.iter().map(|own| own.ip);
            let own = own.filter(|own| own.is_ipv4() == address.is_ipv4());
            let own: Vec<String> = own.map(|own| own.to_string()).collect();
            let there = match own.is_empty() {
                true => String::new(),
                false => format!("; choose one of {}", own.join(", ")),
            };
            format!("no interface of this machine has the address {}{there}", address.ip())
        }
        io::ErrorKind::PermissionDenied if address.port() < 1024 => format!(
            "ports below 1024, such as {}, are for root only: choose a higher one, or give the \
             program CAP_NET_BIND_SERVICE",
            address.port()
        ),
        _ => error.to_string(),
    }
}

/// Lists the inodes of the sockets whose local port is `port`. `table` is the content of a file
/// such as `/proc/net/udp`.
fn inodes(table: &str, port: u16) -> Vec<String> {
    let inode = |line: &str| {
        let mut fields = line.split_whitespace();
        let (_, local) = fields.nth(1)?.rsplit_once(':')?;
        let inode = fields.nth(7)?;
        (u16::from_str_radix(local, 16).ok()? == port && inode != "0").then(|| inode.to_owned())
    };
    table.lines().skip(1).filter_map(inode).collect()
}

fn holds(process: &Path, sockets: &[String]) -> bool {
    let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let mut targets = files.filter_map(|file| fs::read_link(file.path()).ok());
    targets.any(|target| sockets.iter().any(|socket| Path::new(socket) == target))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn a_port_of_our_own_is_found_by_its_transport() {
        let (udp, tcp) = (UdpSocket::bind("127.0.0.1:0"), TcpListener::bind("127.0.0.1:0"));
        let (udp, tcp) = (udp.unwrap(), tcp.unwrap());
        let ours = Some(format!("(process {})", std::process::id()));
        let found = |transport, address| {
            let text: Option<String> = holder(transport, address);
            text.map(|text| text[text.find('(').unwrap()..].to_owned())
        };
        assert_eq!(found(Transport::Udp, udp.local_addr().unwrap()), ours);
        assert_eq!(found(Transport::Tcp, tcp.local_addr().unwrap()), ours);
    }

    #[test]
    fn an_address_that_is_given_twice_is_the_runs_own() {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let message = taken(Transport::Tcp, first.local_addr().unwrap());
        assert_eq!(message, "the port is taken by this process itself; choose another");
    }

    #[test]
    fn an_address_that_cannot_be_listened_on_is_told_with_its_cure() {
        let why = |address: &str, kind: io::ErrorKind| {
            unbindable(Transport::Udp, address.parse().unwrap(), &io::Error::from(kind))
        };
        // From the block for benchmarks (RFC 2544), which no interface has.
        let absent = why("198.18.255.7:4500", io::ErrorKind::AddrNotAvailable);
        assert!(absent.starts_with("no interface of this machine has the address 198.18"));
        assert!(absent.contains("; choose one of ") && absent.contains("127.0.0.1"), "{absent}");
        let low = why("127.0.0.1:53", io::ErrorKind::PermissionDenied);
        assert!(low.starts_with("ports below 1024, such as 53, are for root only"), "{low}");
        let high = why("127.0.0.1:5353", io::ErrorKind::PermissionDenied);
        assert_eq!(high, "permission denied");
    }

    #[test]
    fn inodes_are_read_by_the_local_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   \
                     uid  timeout inode ref pointer drops\n \
                     817: 0100007F:CA6C 00000000:0000 07 00000000:00000000 00:00000000 00000000     \
                     0        0 5501 2 0000000000000000 0\n \
                     818: 0100007F:CA6D 00000000:CA6C 07 00000000:00000000 00:00000000 00000000     \
                     0        0 5502 2 0000000000000000 0\n";
        assert_eq!(inodes(table, 51820), ["5501"]);
        assert_eq!(inodes("garbage\n:\n1: x y\n", 1), [""; 0]);
    }
}

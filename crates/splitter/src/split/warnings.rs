//! Warnings that are shown only once, because their cause may recur with every datagram.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::replace;
use std::net::{IpAddr, SocketAddr};

use anabranch_multipath::PathId;

use anabranch_os::packet;
use anabranch_os::udp::{Fault, Origin, QueuedError};

/// Number of overlong datagrams on one path at which a warning is shown. Fewer overlong datagrams
/// may be a program's path MTU probes (QUIC: RFC 9000, section 14.3).
const PROBES: u64 = 20;

/// The warnings shown so far. Each method returns its warning, or `None` if it was shown before.
#[derive(Debug, Default)]
pub(super) struct Warnings {
    no_files: bool,
    unsuitable: bool,
    unsplit: bool,
    narrow: BTreeSet<PathId>,
    /// Number of overlong datagrams on each path.
    too_long: BTreeMap<PathId, u64>,
}

impl Warnings {
    /// Forgets the warnings about paths, because the paths' indices have changed.
    pub(super) fn forget_paths(&mut self) {
        self.narrow.clear();
        self.too_long.clear();
    }

    /// Returns the warning that all of the `limit` file descriptors are in use; `None` if it was
    /// shown before.
    pub(super) fn no_files(&mut self, limit: u64) -> Option<String> {
        (!replace(&mut self.no_files, true)).then(|| {
            format!(
                "no file descriptors left ({limit} allowed), so new sessions cannot use all \
                 paths: raise the limit (ulimit -n)"
            )
        })
    }

    /// Returns the warning that the server's name now resolves only to addresses that the paths do
    /// not reach; `None` if it was shown before.
    pub(super) fn unsuitable(
        &mut self,
        found: &[SocketAddr],
        chosen_for: SocketAddr,
    ) -> Option<String> {
        (!replace(&mut self.unsuitable, true)).then(|| {
            let list: Vec<String> = found.iter().map(SocketAddr::to_string).collect();
            format!(
                "the server's name now resolves to {}, which no path reaches (the paths were \
                 chosen for {chosen_for}): restart the splitter; until then new sessions get no \
                 answer",
                list.join(", ")
            )
        })
    }

    /// Counts `datagrams` of `length` bytes each that `path` could not send, because its interface
    /// accepts at most `room` bytes. Returns a warning when the total for the path reaches
    /// [`PROBES`]. `name` is the name of the path.
    pub(super) fn too_long(
        &mut self,
        (path, name): (PathId, &str),
        datagrams: u64,
        length: u64,
        room: u32,
    ) -> Option<String> {
        let count = self.too_long.entry(path).or_default();
        let before = replace(count, count.saturating_add(datagrams));
        (before < PROBES && *count >= PROBES).then(|| {
            format!(
                "path '{name}': datagrams of {length} bytes are lost, because its interface \
                 carries {room} bytes at most: lower the MTU of the tunnel or program"
            )
        })
    }

    /// Returns the MTU in bytes that a router reports in `error`; `None` if `error` is not a
    /// report of an MTU.
    pub(super) fn narrowed(error: &QueuedError) -> Option<u32> {
        let by_router = matches!(error.origin, Origin::Icmp { .. });
        error.mtu.filter(|_| by_router && error.fault == Fault::TooBig)
    }

    /// Returns the warning that a route leads `packet` into the interface, although the splitter
    /// does not split such traffic; `None` if it was shown before. The warning names a remedy.
    pub(super) fn unsplit(&mut self, packet: &[u8]) -> Option<String> {
        (!replace(&mut self.unsplit, true)).then(|| {
            let what = packet::describe(packet);
            let cure = match what.strip_prefix("UDP to port ") {
                Some(port) => {
                    format!("add --udp {port} to split this traffic, or change the route")
                }
                None => "change the route, or add --route, which keeps each of these connections \
                         on one path"
                    .to_owned(),
            };
            format!(
                "a route sends {what} into the splitter's interface (--tun), which refuses it: \
                 {cure}"
            )
        })
    }

    /// Returns the warning that a router on `path` reports a small MTU in `error`; `None` if
    /// `error` has no such report, or the warning was shown before. `name` is the name of the
    /// path, and `headers` the number of bytes in the headers before a datagram on it. The
    /// splitter does not change the path's MTU, because the report may be forged.
    pub(super) fn narrow(
        &mut self,
        path: PathId,
        name: &str,
        headers: u32,
        error: &QueuedError,
    ) -> Option<String> {
        let mtu = Warnings::narrowed(error)?;
        self.narrow.insert(path).then(|| {
            let router = error.offender.map_or_else(|| "a router".to_owned(), router);
            format!(
                "path '{name}': {router} reports an MTU of {mtu}, so datagrams of more than {} \
                 bytes may be lost: if transfers stall, lower the MTU of the tunnel or program",
                mtu.saturating_sub(headers)
            )
        })
    }
}

fn router(ip: IpAddr) -> String {
    format!("the router {ip}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(origin: Origin) -> QueuedError {
        QueuedError {
            fault: Fault::TooBig,
            errno: libc::EMSGSIZE,
            origin,
            offender: Some("192.0.2.254".parse().unwrap()),
            about: None,
            mtu: Some(1400),
        }
    }

    #[test]
    fn a_packet_that_is_not_split_is_named_with_what_to_do_and_once() {
        let mut packet = Vec::new();
        let ends = ["10.0.0.1:9", "192.0.2.1:5000"].map(|end| end.parse().unwrap());
        packet::write(&mut packet, ends[0], ends[1], 0, b"x").unwrap();
        let mut warnings = Warnings::default();
        let message = "a route sends UDP to port 5000 into the splitter's interface (--tun), which \
                    refuses it: add --udp 5000 to split this traffic, or change the route";
        assert_eq!(warnings.unsplit(&packet).as_deref(), Some(message));
        assert_eq!(warnings.unsplit(&packet), None);
        packet[9] = 47;
        let message = Warnings::default().unsplit(&packet).unwrap();
        assert!(message.contains("IP protocol 47") && message.contains("--route"), "{message}");
    }

    #[test]
    fn a_routers_claim_is_told_once_for_each_path() {
        let (mut warnings, headers) = (Warnings::default(), 28);
        let icmp = claim(Origin::Icmp { kind: 3, code: 4 });
        let text = warnings.narrow(PathId(0), "a", headers, &icmp).unwrap();
        assert!(text.starts_with("path 'a': the router 192.0.2.254 reports an MTU of 1400,"));
        assert!(text.contains("datagrams of more than 1372 bytes"), "{text}");
        assert_eq!(warnings.narrow(PathId(0), "a", headers, &icmp), None);
        let other = warnings.narrow(PathId(1), "b", 48, &icmp).unwrap();
        assert!(other.contains("datagrams of more than 1352 bytes"), "{other}");
    }

    #[test]
    fn datagrams_that_are_too_long_are_told_of_once_a_path_and_probes_are_not() {
        let mut warnings = Warnings::default();
        let mut lose = |path, count| warnings.too_long((PathId(path), "a"), count, 1_480, 1_472);
        assert_eq!((lose(0, 5), lose(0, 14), lose(1, 1)), (None, None, None));
        let text = lose(0, 4).unwrap();
        assert!(
            text.contains("datagrams of 1480 bytes") && text.contains("carries 1472 bytes at most"),
            "{text}"
        );
        assert_eq!(lose(0, 100), None);
        assert!(lose(1, 30).is_some());
    }

    #[test]
    fn our_own_refusal_of_a_large_datagram_is_no_routers_claim() {
        let (mut warnings, headers) = (Warnings::default(), 28);
        assert_eq!(warnings.narrow(PathId(0), "a", headers, &claim(Origin::Local)), None);
        let closed =
            QueuedError { fault: Fault::Refused, ..claim(Origin::Icmp { kind: 3, code: 3 }) };
        assert_eq!(warnings.narrow(PathId(0), "a", headers, &closed), None);
    }

    #[test]
    fn a_server_that_moved_out_of_reach_is_told_with_both_addresses() {
        let mut warnings = Warnings::default();
        let (found, wanted) = ("[2001:db8::1]:9".parse().unwrap(), "192.0.2.1:9".parse().unwrap());
        let text = warnings.unsuitable(&[found], wanted).unwrap();
        assert!(text.contains("[2001:db8::1]:9") && text.contains("192.0.2.1:9"), "{text}");
        assert_eq!(warnings.unsuitable(&[found], wanted), None);
    }
}

//! The check whether a relay counts as an exit, by its exit policy.

use std::net::{IpAddr, Ipv4Addr};

use crate::directory::policy::ExitPolicy;

/// Ports that an exit must permit (dir-spec 3.4.2).
const PORTS: [u16; 2] = [80, 443];

/// Returns true if `policy` permits streams to port 80 of at least one /8 network, and to port 443
/// of at least one /8 network. Each /8 network is sampled at 4,096 evenly spaced addresses.
pub(super) fn exits(policy: &ExitPolicy) -> bool {
    let open = |first: u32, port: u16| {
        (0..4096u32).all(|place| {
            let address = Ipv4Addr::from_bits(first << 24 | place << 12 | 0x7f);
            policy.allows(IpAddr::V4(address), port)
        })
    };
    PORTS.iter().all(|&port| (1..224).any(|first| open(first, port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exits_by(rules: &[&str]) -> bool {
        exits(&ExitPolicy::parse(rules).unwrap())
    }

    #[test]
    fn both_ports_must_be_open_somewhere() {
        assert!(exits_by(&["accept *:80", "accept *:443", "reject *:*"]));
        assert!(exits_by(&["accept 5.0.0.0/8:80", "accept 127.0.0.0/8:443", "reject *:*"]));
        assert!(!exits_by(&["accept *:80", "reject *:*"]));
        assert!(!exits_by(&["accept 5.0.0.0/9:*", "reject *:*"]));
        assert!(!exits_by(&["reject *:*"]));
    }
}

//! Host names that need special handling: names of onion services, and names for reverse look-ups.

use std::net::IpAddr;

/// Returns whether `host` is the name of an onion service.
pub(super) fn is_onion(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host.ends_with(".onion")
}

/// Returns the name for a reverse look-up of `address` (RFC 1035, section 3.5; RFC 3596, section
/// 2.5).
pub(super) fn arpa(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, c, d] = v4.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(v6) => {
            let nibbles = v6.octets().into_iter().rev().flat_map(|byte| [byte & 15, byte >> 4]);
            nibbles.map(|nibble| format!("{nibble:x}.")).collect::<String>() + "ip6.arpa"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_asked_for_by_the_names_of_arpa() {
        assert_eq!(arpa("192.0.2.1".parse().unwrap()), "1.2.0.192.in-addr.arpa");
        let v6 = arpa("2001:db8::1".parse().unwrap());
        assert!(v6.starts_with("1.0.0.0.") && v6.ends_with("8.b.d.0.1.0.0.2.ip6.arpa"), "{v6}");
    }

    #[test]
    fn onion_names_are_known_in_any_dress() {
        assert!(["x.onion", "X.ONION", "x.onion."].into_iter().all(is_onion));
        assert!(!["onion", "x.onion.example", "xonion"].into_iter().any(is_onion));
    }
}

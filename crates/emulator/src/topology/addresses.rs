//! Validation of an interface's addresses.

use std::net::IpAddr;

use anabranch_os::netlink::{Prefix, PrefixError};

/// Parses an address for an interface that already has the addresses `before`.
///
/// # Errors
/// A message that describes the mistake and gives a valid form. The kernel accepts most of these
/// mistakes silently, but then no packet arrives.
pub(super) fn read(text: &str, before: &[Prefix]) -> Result<Prefix, String> {
    let address: Prefix =
        text.parse().map_err(|error: PrefixError| format!("{error}; write `10.0.0.1/24`"))?;
    if before.iter().any(|other| other.ip == address.ip) {
        return Err(format!(
            "the address `{}` is listed twice for one interface; remove one",
            address.ip
        ));
    }
    if let Some(kind) = unusable(address.ip) {
        return Err(format!("`{text}` is {kind}; no interface can have it, write `10.0.0.1/24`"));
    }
    if address.len == 0 {
        return Err(format!(
            "`{text}` covers all addresses; write a smaller network, such as `10.0.0.1/24`"
        ));
    }
    Ok(address)
}

/// Returns a name for the kind of `ip` if it cannot be the address of a single host; otherwise
/// `None`.
fn unusable(ip: IpAddr) -> Option<&'static str> {
    let this_network = |ip: IpAddr| matches!(ip, IpAddr::V4(ip) if ip.octets()[0] == 0);
    let broadcast = |ip: IpAddr| matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    match ip {
        ip if ip.is_multicast() => Some("a multicast address"),
        ip if ip.is_loopback() => Some("a loopback address, which each host has already"),
        ip if ip.is_unspecified() || this_network(ip) => Some("an unspecified address"),
        ip if broadcast(ip) => Some("the broadcast address"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_has_addresses_of_its_own() {
        let before: Vec<Prefix> = vec!["10.0.0.1/24".parse().unwrap()];
        assert_eq!(read("10.0.0.2/24", &before), Ok("10.0.0.2/24".parse().unwrap()));
        assert_eq!(read("fd00::1", &before), Ok("fd00::1/128".parse().unwrap()));
        for (bad, message) in [
            ("10.0.0.1/16", "the address `10.0.0.1` is listed twice for one interface; remove one"),
            ("224.0.0.1/24", "`224.0.0.1/24` is a multicast address; no interface can"),
            ("ff02::1/64", "`ff02::1/64` is a multicast address; no interface can"),
            ("127.0.0.1/8", "`127.0.0.1/8` is a loopback address, which each host has already; no"),
            ("::1", "`::1` is a loopback address"),
            ("0.0.0.0/0", "`0.0.0.0/0` is an unspecified address"),
            ("0.1.2.3/8", "`0.1.2.3/8` is an unspecified address"),
            ("::/64", "`::/64` is an unspecified address"),
            ("255.255.255.255", "`255.255.255.255` is the broadcast address"),
            (
                "10.0.0.2/0",
                "`10.0.0.2/0` covers all addresses; write a smaller network, such as `10",
            ),
            ("10.0.0/24", "`10.0.0` is not an IP address; write `10.0.0.1/24`"),
            (
                "10.0.0.2/33",
                "the prefix length of `10.0.0.2/33`, after the slash, is not a number from 0 to 32 \
                 (for IPv6 to 128); write `10.0.0.1/24`",
            ),
        ] {
            let error = read(bad, &before).unwrap_err();
            assert!(error.starts_with(message), "{error}");
        }
    }
}

//! The emulator's requirements, and a check of whether this machine meets them.

use std::io;

use anabranch_os::pid_namespace::PidNamespace;

use super::{Namespace, setup};

/// A requirement of the emulator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// Description of the requirement.
    pub what: &'static str,
    /// The feature of a topology that depends on this requirement; `None` if every topology does.
    pub only_for: Option<&'static str>,
    /// The reason why the machine does not meet the requirement, and the remedy; `None` if it
    /// meets it.
    pub missing: Option<String>,
}

/// Tests all requirements of the emulator. The effects of the tests are undone.
pub fn check() -> Vec<Need> {
    let namespace = Namespace::new();
    let inside = |work: fn() -> io::Result<()>| match &namespace {
        Ok(namespace) => namespace.run(work).err(),
        Err(_) => Some(io::Error::other("not tested, because no network namespace can be made")),
    };
    let tun = inside(setup::try_interface);
    let cubic = inside(setup::try_cubic);
    let ipv6 = inside(setup::try_ipv6);
    let nobody = "run as root, or allow unprivileged user namespaces";
    let device = "load the kernel module `tun`, and allow access to /dev/net/tun";
    let translation = inside(setup::try_translation);
    let shut = "run outside a container that hides parts of /proc";
    let own_kernel = "boot a kernel that has IPv6, without the option ipv6.disable=1";
    vec![
        need("network namespaces", namespace.err(), nobody),
        need("TUN interfaces", tun, device),
        need("TCP congestion control cubic", cubic, "load the kernel module `tcp_cubic`"),
        Need { only_for: Some("IPv6 addresses"), ..need("IPv6", ipv6, own_kernel) },
        Need {
            only_for: Some("[[program]]"),
            ..need("PID namespaces", PidNamespace::new().err(), shut)
        },
        Need {
            only_for: Some("`nat = true`"),
            ..need("address translation", translation, "use a kernel that has nf_tables with NAT")
        },
    ]
}

fn need(what: &'static str, error: Option<io::Error>, help: &str) -> Need {
    Need { what, only_for: None, missing: error.map(|error| format!("{error}; {help}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_topologies_with_ipv6_addresses_need_ipv6() {
        let needs = check();
        let ipv6 = needs.iter().find(|need| need.what == "IPv6").unwrap();
        assert_eq!(ipv6.only_for, Some("IPv6 addresses"));
        let general: Vec<_> =
            needs.iter().filter(|need| need.only_for.is_none()).map(|need| need.what).collect();
        let wanted = ["network namespaces", "TUN interfaces", "TCP congestion control cubic"];
        assert_eq!(general, wanted);
    }
}

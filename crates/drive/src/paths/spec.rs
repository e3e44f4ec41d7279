//! A path as the user wrote it.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;

use super::SpecError;
use crate::wg_quick::interface_name;

/// Characters that a path's name may have; it becomes a file name.
pub const MAX_NAME: usize = 32;
/// Source ports that one path may rotate over.
pub const MAX_PORTS: u16 = 64;

/// One path: `NAME=KIND[,KIND]…`, where a kind is `if:DEVICE`, `wg:FILE`, `addr:ADDRESS` or `ports:N`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathSpec {
    /// Letters, digits, `_`, `.` and `-`, not only dots; at most [`MAX_NAME`] of them.
    pub name: String,
    /// The interface that its sockets are bound to (`if:`, or what `wg:` names).
    pub device: Option<String>,
    /// The wg-quick file whose tunnel the interface is (`wg:`); the file itself is not read.
    pub tunnel: Option<String>,
    /// The address that its sockets are bound to (`addr:`).
    pub source: Option<IpAddr>,
    /// Source ports that it rotates over (`ports:`), from 1 to [`MAX_PORTS`].
    pub ports: u16,
}

impl PathSpec {
    /// A path of these parts; `ports` counts as a kind of its own even where it is 1.
    ///
    /// # Errors
    /// A part is malformed, or none is given.
    pub fn new(
        name: &str,
        device: Option<&str>,
        source: Option<IpAddr>,
        ports: Option<u16>,
    ) -> Result<PathSpec, SpecError> {
        check_name(name)?;
        device.map(check_device).transpose()?;
        if device.is_none() && source.is_none() && ports.is_none() {
            return Err(SpecError::NoKind(name.into()));
        }
        let ports = check_ports(ports.unwrap_or(1))?;
        let device = device.map(str::to_owned);
        Ok(PathSpec { name: name.into(), device, tunnel: None, source, ports })
    }

    /// A path through the tunnel that wg-quick makes of the file `tunnel`.
    ///
    /// # Errors
    /// A part is malformed, or wg-quick would refuse the file's name.
    pub fn through(
        name: &str,
        tunnel: &str,
        source: Option<IpAddr>,
        ports: Option<u16>,
    ) -> Result<PathSpec, SpecError> {
        let device = interface_name(Path::new(tunnel));
        let device = device.ok_or_else(|| SpecError::Tunnel(tunnel.into()))?;
        let spec = PathSpec::new(name, Some(device), source, ports)?;
        Ok(PathSpec { tunnel: Some(tunnel.into()), ..spec })
    }
}

fn check_name(name: &str) -> Result<(), SpecError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let good = (1..=MAX_NAME).contains(&name.len())
        && name.chars().all(allowed)
        && name.chars().any(|c| c != '.');
    if good { Ok(()) } else { Err(SpecError::Name(name.into())) }
}

/// The kernel's own rule for interface names (IFNAMSIZ is 16 with the final zero).
fn check_device(device: &str) -> Result<(), SpecError> {
    let forbidden = |c: char| c == '/' || c == ':' || c.is_whitespace();
    let good = (1..16).contains(&device.len()) && !device.contains(forbidden);
    if good { Ok(()) } else { Err(SpecError::Device(device.into())) }
}

fn check_ports(ports: u16) -> Result<u16, SpecError> {
    let good = (1..=MAX_PORTS).contains(&ports);
    if good { Ok(ports) } else { Err(SpecError::Ports(ports.to_string())) }
}

impl FromStr for PathSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<PathSpec, SpecError> {
        let (name, kinds) = text.split_once('=').ok_or_else(|| SpecError::Form(text.into()))?;
        let (mut device, mut tunnel, mut source, mut ports) = (None, None, None, None);
        for kind in kinds.split(',') {
            let (word, value) = kind.split_once(':').ok_or_else(|| SpecError::Kind(kind.into()))?;
            let before = match word {
                "if" => device.replace(value).is_some(),
                "wg" => tunnel.replace(value).is_some(),
                "addr" => source.replace(address(value)?).is_some(),
                "ports" => ports.replace(number(value)?).is_some(),
                _ => return Err(SpecError::Kind(kind.into())),
            };
            if before {
                return Err(SpecError::Twice(word.into()));
            }
        }
        match tunnel {
            Some(_) if device.is_some() => Err(SpecError::Both(name.into())),
            Some(tunnel) => PathSpec::through(name, tunnel, source, ports),
            None => PathSpec::new(name, device, source, ports),
        }
    }
}

fn address(text: &str) -> Result<IpAddr, SpecError> {
    text.parse().map_err(|_| SpecError::Address(text.into()))
}

fn number(text: &str) -> Result<u16, SpecError> {
    text.parse().map_err(|_| SpecError::Ports(text.into()))
}

impl fmt::Display for PathSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = match &self.tunnel {
            Some(tunnel) => Some(format!("wg:{tunnel}")),
            None => self.device.as_ref().map(|device| format!("if:{device}")),
        };
        let source = self.source.map(|source| format!("addr:{source}"));
        let alone = device.is_none() && source.is_none();
        let ports = (alone || self.ports > 1).then(|| format!("ports:{}", self.ports));
        let kinds: Vec<_> = [device, source, ports].into_iter().flatten().collect();
        write!(f, "{}={}", self.name, kinds.join(","))
    }
}

/// Refuses an empty list and names that two paths share; letter case does not tell names apart, as
/// not all file systems do.
pub fn distinct(specs: &[PathSpec]) -> Result<(), SpecError> {
    if specs.is_empty() {
        return Err(SpecError::None);
    }
    let mut seen = BTreeSet::new();
    match specs.iter().find(|spec| !seen.insert(spec.name.to_ascii_lowercase())) {
        Some(spec) => Err(SpecError::SameName(spec.name.clone())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<PathSpec, SpecError> {
        text.parse()
    }

    #[test]
    fn what_is_written_reads_back() {
        for text in [
            "wlan=if:wlan0",
            "lte=if:wwan0,ports:4",
            "home=addr:192.0.2.7",
            "six=if:eth0,addr:2001:db8::7,ports:2",
            "rot=ports:8",
            "one=ports:1",
            "vpn=wg:/etc/wireguard/vpn.conf,ports:2",
        ] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn each_mistake_has_its_own_error() {
        assert_eq!(parse("wlan0"), Err(SpecError::Form("wlan0".into())));
        assert_eq!(parse("a=wlan0"), Err(SpecError::Kind("wlan0".into())));
        assert_eq!(parse("a=dev:wlan0"), Err(SpecError::Kind("dev:wlan0".into())));
        assert_eq!(parse("a=if:x,if:y"), Err(SpecError::Twice("if".into())));
        assert_eq!(parse("a=addr:192.0.2"), Err(SpecError::Address("192.0.2".into())));
        for ports in ["0", "65", "70000", "x"] {
            assert_eq!(parse(&format!("a=ports:{ports}")), Err(SpecError::Ports(ports.into())));
        }
        assert_eq!(parse("a=if:a/b"), Err(SpecError::Device("a/b".into())));
        assert_eq!(PathSpec::new("a", None, None, None), Err(SpecError::NoKind("a".into())));
        assert_eq!(parse("a=wg:x,wg:y"), Err(SpecError::Twice("wg".into())));
        assert_eq!(parse("a=wg:vpn.conf,if:vpn"), Err(SpecError::Both("a".into())));
        assert_eq!(parse("a=wg:vpn"), Err(SpecError::Tunnel("vpn".into())));
    }

    #[test]
    fn a_tunnel_is_the_interface_that_wg_quick_names_after_its_file() {
        let spec = parse("vpn=wg:conf.d/home.conf").unwrap();
        assert_eq!(spec.device.as_deref(), Some("home"));
        assert_eq!(spec.tunnel.as_deref(), Some("conf.d/home.conf"));
    }

    #[test]
    fn names_that_make_no_good_file_name_are_refused() {
        let long = "x".repeat(MAX_NAME + 1);
        for name in ["", "a b", "a/b", "..", "ä", &long] {
            assert_eq!(parse(&format!("{name}=ports:1")), Err(SpecError::Name(name.into())));
        }
    }

    #[test]
    fn two_paths_of_one_name_are_refused() {
        let specs = ["A=ports:1", "b=ports:1", "a=ports:2"].map(|text| parse(text).unwrap());
        assert_eq!(distinct(&specs), Err(SpecError::SameName("a".into())));
        assert_eq!(distinct(&specs[..2]), Ok(()));
        assert_eq!(distinct(&[]), Err(SpecError::None));
    }
}

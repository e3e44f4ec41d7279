//! A path in the user's notation.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::str::FromStr;

use super::{SpecError, StreamKind};
use crate::socks::Proxy;
use crate::wg_quick::interface_name;

/// Maximum number of characters of a path's name, which becomes a file name.
pub const MAX_NAME: usize = 32;
/// Maximum number of source ports that a path uses in turn.
pub const MAX_PORTS: u16 = 64;
/// Keyword of the setting that names a path's proxy.
const PROXY: &str = "socks5";
/// Keywords of a path's settings, except those that make the path a stream.
const KINDS: [&str; 5] = ["if", "wg", "addr", "ports", PROXY];

/// A path: `NAME=KIND[,KIND]…`, where a kind is `if:DEVICE`, `wg:FILE`, `addr:ADDRESS`, `ports:N`,
/// `socks5:[USER[:PASSWORD]@]HOST:PORT` or one of [`StreamKind`]. A password may contain commas: a
/// proxy ends at the next comma that is followed by a known kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathSpec {
    /// Name of the path: at most [`MAX_NAME`] letters, digits, `_`, `.` and `-`, not only dots.
    pub name: String,
    /// Interface that the path's sockets are bound to (`if:`, or derived from `wg:`); `None` if
    /// the user names none.
    pub device: Option<String>,
    /// Name of a wg-quick file (`wg:`), whose tunnel is the path's interface; `None` without
    /// `wg:`. The file is not read.
    pub tunnel: Option<String>,
    /// Source address that the path's sockets are bound to (`addr:`); `None` if the user names
    /// none.
    pub source: Option<IpAddr>,
    /// Number of source ports that the path uses in turn (`ports:`), from 1 to [`MAX_PORTS`].
    pub ports: u16,
    /// The proxy of the path (`socks5:`); `None` for a path without a proxy. With a proxy,
    /// `device` and `source` apply to the connection to the proxy.
    pub proxy: Option<Proxy>,
    /// The kind of stream that the path is; `None` for a path of datagrams. For a stream, `device`
    /// and `source` apply to the connection to the stream's first hop (the proxy or far end).
    pub stream: Option<StreamKind>,
}

impl PathSpec {
    /// Creates a path from its parts. A path with only `ports` uses the kernel's route, even if
    /// `ports` is 1.
    ///
    /// # Errors
    /// A part is malformed, or no part is given.
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
        let (tunnel, proxy, stream) = (None, None, None);
        Ok(PathSpec { name: name.into(), device, tunnel, source, ports, proxy, stream })
    }

    /// Creates a path through the tunnel that wg-quick makes of the file `tunnel`.
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

    /// Returns this path with `proxy` added. `device` and `source` then apply to the connection to
    /// the proxy.
    pub fn by(self, proxy: Proxy) -> PathSpec {
        PathSpec { proxy: Some(proxy), ..self }
    }

    /// Returns this path, changed to a stream of `kind`. `device` and `source` then apply to the
    /// connection to the stream's first hop (the proxy or far end).
    pub fn streaming(self, kind: StreamKind) -> PathSpec {
        PathSpec { stream: Some(kind), ..self }
    }
}

fn check_name(name: &str) -> Result<(), SpecError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let good = (1..=MAX_NAME).contains(&name.len())
        && name.chars().all(allowed)
        && name.chars().any(|c| c != '.');
    if good { Ok(()) } else { Err(SpecError::Name(name.into())) }
}

/// Returns an error if the kernel does not allow `device` as the name of an interface (`IFNAMSIZ`
/// is 16 with the final zero).
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
        let (name, kinds) = text.split_once('=').ok_or_else(|| SpecError::Form(hide(text)))?;
        let mut parts = Parts::default();
        for (word, value) in split(kinds)? {
            let before = match word {
                "if" => parts.device.replace(value).is_some(),
                "wg" => parts.tunnel.replace(value).is_some(),
                "addr" => parts.source.replace(address(value)?).is_some(),
                "ports" => parts.ports.replace(number(value)?).is_some(),
                PROXY => parts.proxy.replace(value.parse().map_err(SpecError::Proxy)?).is_some(),
                _ => match StreamKind::read(word, value) {
                    Some(kind) => parts.stream.replace(kind?).is_some(),
                    None => return Err(SpecError::Kind(hide(&format!("{word}:{value}")))),
                },
            };
            if before {
                return Err(SpecError::Twice(word.into()));
            }
        }
        let Parts { device, tunnel, source, mut ports, proxy, stream } = parts;
        if stream.is_some() && (proxy.is_some() || ports.replace(1).is_some()) {
            return Err(SpecError::StreamAnd(name.into()));
        }
        if proxy.is_some() && ports.replace(1).is_some() {
            return Err(SpecError::ProxyPorts);
        }
        let is_bound = device.is_some() || tunnel.is_some() || source.is_some();
        if is_bound && matches!(stream, Some(StreamKind::Ssh(_))) {
            return Err(SpecError::SshBound(name.into()));
        }
        let way = match tunnel {
            Some(_) if device.is_some() => Err(SpecError::Both(name.into())),
            Some(tunnel) => PathSpec::through(name, tunnel, source, ports),
            None => PathSpec::new(name, device, source, ports),
        }?;
        Ok(PathSpec { proxy, stream, ..way })
    }
}

#[derive(Default)]
struct Parts<'t> {
    device: Option<&'t str>,
    tunnel: Option<&'t str>,
    source: Option<IpAddr>,
    ports: Option<u16>,
    proxy: Option<Proxy>,
    stream: Option<StreamKind>,
}

/// Splits the comma-separated settings ("kinds") of a path into pairs of keyword and value. In a
/// proxy, a comma that is not followed by a known keyword belongs to the password.
fn split(kinds: &str) -> Result<Vec<(&str, &str)>, SpecError> {
    let mut found = Vec::new();
    let mut rest = kinds;
    loop {
        let (word, tail) = rest.split_once(':').ok_or_else(|| SpecError::Kind(hide(rest)))?;
        let commas = tail.match_indices(',').map(|(at, _)| at);
        let ends =
            |at: &usize| !has_password(word) || words().any(|kind| starts(&tail[at + 1..], kind));
        let end = commas.into_iter().find(ends);
        found.push((word, &tail[..end.unwrap_or(tail.len())]));
        match end {
            Some(end) => rest = &tail[end + 1..],
            None => return Ok(found),
        }
    }
}

/// Returns the keywords of all settings that a path can have.
fn words() -> impl Iterator<Item = &'static str> {
    KINDS.into_iter().chain(StreamKind::WORDS)
}

/// Returns whether the setting with the keyword `word` can contain a password, which may have
/// commas.
fn has_password(word: &str) -> bool {
    [PROXY, "socks5-tcp", "http"].contains(&word)
}

fn starts(text: &str, kind: &str) -> bool {
    text.strip_prefix(kind).is_some_and(|rest| rest.starts_with(':'))
}

/// Returns `text` without a proxy's password: everything before the last `@` is replaced by three
/// dots.
fn hide(text: &str) -> String {
    text.rsplit_once('@').map_or_else(|| text.to_owned(), |(_, tail)| format!("...@{tail}"))
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
        let proxy = self.proxy.as_ref().map(|proxy| format!("{PROXY}:{proxy}"));
        let stream = self.stream.as_ref().map(|kind| format!("{}:{kind}", kind.word()));
        let alone = [&device, &source, &proxy, &stream].into_iter().all(|kind| kind.is_none());
        let ports = (alone || self.ports > 1).then(|| format!("ports:{}", self.ports));
        let kinds: Vec<_> = [device, source, ports, proxy, stream].into_iter().flatten().collect();
        write!(f, "{}={}", self.name, kinds.join(","))
    }
}

/// Returns an error if the list is empty, or if two paths have the same name. Names that differ
/// only in case count as equal, because paths' names become file names.
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
            "prx=socks5:proxy.example.net:1080",
            "prx=if:wwan0,addr:192.0.2.7,socks5:anna@[2001:db8::1]:1080",
            "t=tcp:vpn.example.net:443",
            "t=if:wwan0,tcp:",
            "s=addr:192.0.2.7,socks5-tcp:anna@[2001:db8::1]:1080",
            "h=http:anna:@secrets/proxy@proxy.example.net:3128",
            "s=ssh:anna@relay.example.net:2222",
            "o=onion:3",
            "e=if:wwan0,tls:far.example.net:443",
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
    fn a_proxy_combines_with_how_it_is_reached_but_not_with_ports() {
        let spec = parse("prx=socks5:anna:a,b@192.0.2.1:1080,if:wwan0").unwrap();
        assert_eq!(spec.device.as_deref(), Some("wwan0"));
        let credentials = spec.proxy.as_ref().unwrap().credentials().unwrap().unwrap();
        assert_eq!(credentials.password, "a,b");
        assert_eq!(spec.to_string(), "prx=if:wwan0,socks5:anna:...@192.0.2.1:1080");
        assert_eq!(parse("prx=socks5:192.0.2.1:1080,ports:4"), Err(SpecError::ProxyPorts));
        assert_eq!(parse("prx=socks5:h:1,socks5:h:2"), Err(SpecError::Twice("socks5".into())));
    }

    #[test]
    fn a_stream_excludes_ports_and_a_relay_of_datagrams() {
        for text in ["a=tcp:h:1,ports:4", "a=socks5:h:1,tcp:", "a=ports:1,onion:2"] {
            assert_eq!(parse(text), Err(SpecError::StreamAnd("a".into())), "{text}");
        }
        assert_eq!(parse("a=tcp:h:1,ssh:h"), Err(SpecError::Twice("ssh".into())));
        for text in ["a=tcp:h", "a=ssh:-x", "a=onion:0", "a=tls:", "a=tls:h"] {
            assert!(matches!(parse(text), Err(SpecError::Stream(_))), "{text}");
        }
        let spec = parse("a=http:anna:a,b@h:1,if:wwan0").unwrap();
        assert_eq!(spec.to_string(), "a=if:wwan0,http:anna:...@h:1");
    }

    /// `ssh -B` binds only to an address of the interface; the routing table still chooses the
    /// interface.
    #[test]
    fn openssh_is_not_bound_to_an_interface() {
        for way in ["if:wwan0", "wg:vpn.conf", "addr:192.0.2.7"] {
            let error = parse(&format!("s={way},ssh:relay"));
            assert_eq!(error, Err(SpecError::SshBound("s".into())), "{way}");
        }
    }

    #[test]
    fn no_error_repeats_a_password() {
        for text in [
            "prx=socks5-tcp:anna:secret@host",
            "prx=http:anna:secret@host:1,http:anna:secret@host:2",
            "prx=ssh:anna:secret@host",
            "prx=socks5:anna:secret@host",
            "prx=sox5:anna:secret@host:1",
            "socks5:anna:secret@host:1",
            "prx=anna;secret@host",
            "prx=socks5:anna:secret@host:1,if:eth0,if:eth1",
            "prx=if:eth0,anna:secret@host:1",
        ] {
            let shown = parse(text).unwrap_err().to_string();
            assert!(!shown.contains("secret"), "{text}: {shown}");
        }
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

//! Paths that are byte streams, in the user's notation.

use std::fmt;
use std::str::FromStr;

use anabranch_os::target::Target;
use rand::RngExt;

use super::SpecError;
use crate::socks::{Login, Password, Proxy};

/// Maximum number of circuits of one `onion:` path.
pub const MAX_CIRCUITS: u8 = 16;
/// Default port of SSH.
const SSH_PORT: u16 = 22;

/// Transport of a path's stream to the far end (our program in front of the server).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// `tcp:[HOST:PORT]`: a TCP connection to the far end, at this address if it is given.
    Tcp(Option<Target>),
    /// `socks5-tcp:[USER[:PASSWORD]@]HOST:PORT`: a TCP connection through a SOCKS5 proxy.
    Socks5(Proxy),
    /// `http:[USER[:PASSWORD]@]HOST:PORT`: a connection through an HTTP proxy, by the method
    /// CONNECT.
    Http(Proxy),
    /// `ssh:[USER@]HOST[:PORT]`: a connection that the system's OpenSSH client forwards through
    /// this host.
    Ssh(SshHost),
    /// `tls:HOST:PORT`: a TLS connection to the far end, which listens at this address.
    Tls(Target),
    /// `onion:K`: K circuits of an onion network's client, each a separate path.
    Onion(Circuits),
}

/// A host that OpenSSH logs in to, or its name in OpenSSH's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshHost {
    /// The user name; `None` for the user name in OpenSSH's configuration.
    pub user: Option<String>,
    /// Host name or address, without the brackets of an IPv6 address.
    pub host: String,
    /// The port; `None` for the port in OpenSSH's configuration.
    pub port: Option<u16>,
}

/// The value of a path's setting `onion:`: circuits of an onion network's client, which carry the
/// path's streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Circuits {
    /// Number of circuits. Each becomes a separate path.
    Count(u8),
    /// One circuit, reached by the SOCKS port of the onion network's client with a separate user
    /// name. The client uses separate circuits for different user names.
    One(Proxy),
}

impl StreamKind {
    /// Keywords of the kinds of streams, in the order of the enum.
    pub const WORDS: [&'static str; 6] = ["tcp", "socks5-tcp", "http", "ssh", "tls", "onion"];

    /// Returns the keyword of this kind of stream.
    pub fn word(&self) -> &'static str {
        let place = match self {
            StreamKind::Tcp(_) => 0,
            StreamKind::Socks5(_) => 1,
            StreamKind::Http(_) => 2,
            StreamKind::Ssh(_) => 3,
            StreamKind::Tls(_) => 4,
            StreamKind::Onion(_) => 5,
        };
        StreamKind::WORDS[place]
    }

    /// Parses `value` as the kind with the keyword `word`; `None` if no kind of stream has this
    /// keyword.
    pub(super) fn read(word: &str, value: &str) -> Option<Result<StreamKind, SpecError>> {
        let proxy = || value.parse().map_err(SpecError::Proxy);
        let target =
            || value.parse::<Target>().map_err(|error| SpecError::Stream(error.to_string()));
        Some(match word {
            "tcp" if value.is_empty() => Ok(StreamKind::Tcp(None)),
            "tcp" => target().map(|target| StreamKind::Tcp(Some(target))),
            "tls" => target().map(StreamKind::Tls),
            "socks5-tcp" => proxy().map(StreamKind::Socks5),
            "http" => proxy().map(StreamKind::Http),
            "ssh" => value.parse().map(StreamKind::Ssh),
            "onion" => count(value).map(|count| StreamKind::Onion(Circuits::Count(count))),
            _ => return None,
        })
    }

    /// Returns the proxy of the stream; `None` if the stream uses no proxy.
    pub fn proxy(&self) -> Option<&Proxy> {
        match self {
            StreamKind::Socks5(proxy)
            | StreamKind::Http(proxy)
            | StreamKind::Onion(Circuits::One(proxy)) => Some(proxy),
            StreamKind::Tcp(_)
            | StreamKind::Tls(_)
            | StreamKind::Ssh(_)
            | StreamKind::Onion(Circuits::Count(_)) => None,
        }
    }

    /// Returns the target of our own TCP connection for this stream: the proxy or the far end
    /// `far`. Returns `None` if OpenSSH makes the connection.
    pub fn first_hop<'s>(&'s self, far: &'s Target) -> Option<&'s Target> {
        match self {
            StreamKind::Tcp(at) => Some(at.as_ref().unwrap_or(far)),
            StreamKind::Tls(at) => Some(at),
            StreamKind::Ssh(_) => None,
            other => other.proxy().map(|proxy| &proxy.at),
        }
    }

    /// Returns the stream's intermediary as text: the proxy with our user name on it, or the ssh
    /// host. Returns `None` for a direct connection. Streams with different intermediaries have
    /// different observers, even on the same interface.
    pub(super) fn intermediary(&self) -> Option<String> {
        match self {
            StreamKind::Tcp(_) | StreamKind::Tls(_) => None,
            other => Some(format!("{}:{other}", other.word())),
        }
    }
}

impl fmt::Display for StreamKind {
    /// Writes the value of the setting in the user's notation, without the keyword. Three dots
    /// replace a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamKind::Tcp(at) => at.as_ref().map_or(Ok(()), |at| at.fmt(f)),
            StreamKind::Tls(at) => at.fmt(f),
            StreamKind::Socks5(proxy) | StreamKind::Http(proxy) => proxy.fmt(f),
            StreamKind::Ssh(host) => host.fmt(f),
            StreamKind::Onion(Circuits::Count(count)) => count.fmt(f),
            StreamKind::Onion(Circuits::One(proxy)) => proxy.fmt(f),
        }
    }
}

fn count(text: &str) -> Result<u8, SpecError> {
    let count = text.parse().ok().filter(|count| (1..=MAX_CIRCUITS).contains(count));
    count.ok_or_else(|| {
        SpecError::Stream(format!(
            "'{text}' is not a number of circuits: write 1 to {MAX_CIRCUITS}"
        ))
    })
}

impl Circuits {
    /// Changes the user name at the SOCKS port of the onion network's client. The client then
    /// builds another circuit, because it uses separate circuits for different user names.
    pub(crate) fn renew(&mut self, dice: &mut impl RngExt) {
        let Circuits::One(Proxy { login: Some(login), .. }) = self else { return };
        let own = login.user().split('+').next().unwrap_or_default();
        let user = format!("{own}+{:08x}", dice.random::<u32>());
        if let Ok(other) = login.of_user(&user) {
            *login = other;
        }
    }
}

/// Returns `count` streams through the SOCKS port `at` of an onion network's client. Each stream
/// has a separate user name, so that the client puts each on a separate circuit. `run` is a text
/// that differs at each start of the program, and makes the user names unique.
pub fn circuits(count: u8, at: &Target, run: &str) -> Vec<StreamKind> {
    let user = |n: u8| format!("anabranch-{run}-{n}");
    let login = |n| Login::new(&user(n), Password::Text("stream".into()));
    let proxies = (1..=count).map(|n| Proxy { at: at.clone(), login: login(n).ok() });
    proxies.map(|proxy| StreamKind::Onion(Circuits::One(proxy))).collect()
}

impl FromStr for SshHost {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<SshHost, SpecError> {
        // The text before the host may be a password, which must not be shown.
        let shown =
            || text.rsplit_once('@').map_or_else(|| text.to_owned(), |(_, at)| format!("...@{at}"));
        let error = || {
            SpecError::Stream(format!(
                "'{}' is not a host for ssh: write HOST, USER@HOST or USER@HOST:PORT, without a \
                 password",
                shown()
            ))
        };
        let (user, at) = match text.rsplit_once('@') {
            Some((user, at)) => (Some(user), at),
            None => (None, text),
        };
        // The port may be missing; `Target` parses both forms alike.
        let whole = at.parse::<Target>().or_else(|_| format!("{at}:{SSH_PORT}").parse::<Target>());
        let Target { host, port } = whole.map_err(|_| error())?;
        let has_port = at.parse::<Target>().is_ok();
        // A text that begins with '-' would be an option.
        let plain = |text: &str| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || "_.-:%".contains(c);
            !text.is_empty() && !text.starts_with('-') && text.chars().all(allowed)
        };
        let good = plain(&host) && user.is_none_or(|user| plain(user) && !user.contains(':'));
        let user = user.map(str::to_owned);
        let port = has_port.then_some(port);
        if good { Ok(SshHost { user, host, port }) } else { Err(error()) }
    }
}

impl fmt::Display for SshHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SshHost { user, host, port } = self;
        user.as_ref().map_or(Ok(()), |user| write!(f, "{user}@"))?;
        match host.contains(':') {
            true => write!(f, "[{host}]")?,
            false => f.write_str(host)?,
        }
        port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use anabranch_multipath::seed::stream;

    use super::*;

    fn ssh(text: &str) -> Result<SshHost, SpecError> {
        text.parse()
    }

    #[test]
    fn a_host_of_ssh_has_a_user_and_a_port_only_if_they_are_given() {
        for text in ["relay", "anna@relay.example.net", "anna@192.0.2.1:2222", "[2001:db8::1]:22"] {
            assert_eq!(ssh(text).unwrap().to_string(), text);
        }
        let host = ssh("anna@relay").unwrap();
        assert_eq!((host.user.as_deref(), host.port), (Some("anna"), None));
    }

    #[test]
    fn nothing_that_ssh_would_take_for_an_option_passes() {
        for text in ["", "-oProxyCommand=x", "anna@-x", "-x@host", "a b", "host:0", "a:secret@host"]
        {
            assert!(ssh(text).is_err(), "{text}");
        }
        assert!(!ssh("anna:secret@host").unwrap_err().to_string().contains("secret"));
    }

    #[test]
    fn each_circuit_is_a_user_of_its_own() {
        let at = "127.0.0.1:9050".parse().unwrap();
        let found = circuits(3, &at, "5f");
        let users: Vec<_> = found
            .iter()
            .map(|kind| kind.proxy().unwrap().credentials().unwrap().unwrap().user)
            .collect();
        assert_eq!(users, ["anabranch-5f-1", "anabranch-5f-2", "anabranch-5f-3"]);
        assert!(found[0].intermediary() != found[1].intermediary());
    }

    #[test]
    fn another_circuit_is_another_user_at_the_same_place() {
        let found = circuits(1, &"127.0.0.1:9050".parse().unwrap(), "5f");
        let StreamKind::Onion(mut circuit) = found[0].clone() else { panic!("no circuit") };
        let mut dice = stream(7, 0, "users");
        let mut users = BTreeSet::new();
        for _ in 0..3 {
            circuit.renew(&mut dice);
            let Circuits::One(proxy) = &circuit else { panic!("no circuit") };
            let login = proxy.credentials().unwrap().unwrap();
            assert_eq!((proxy.at.port, login.password.as_str()), (9050, "stream"));
            let kept = login.user.strip_prefix("anabranch-5f-1+");
            assert_eq!(kept.map(str::len), Some(8), "{}", login.user);
            users.insert(login.user);
        }
        assert_eq!(users.len(), 3);
    }

    #[test]
    fn only_a_straight_stream_is_seen_as_its_interface_is() {
        let read = |word, value| StreamKind::read(word, value).unwrap().unwrap();
        assert_eq!(read("tcp", "192.0.2.1:443").intermediary(), None);
        assert!(read("http", "192.0.2.1:443").intermediary().is_some());
        let far: Target = "far.example.net:443".parse().unwrap();
        assert_eq!(read("tcp", "").first_hop(&far), Some(&far));
        assert_eq!(read("ssh", "relay").first_hop(&far), None);
        assert_eq!(read("http", "192.0.2.1:80").first_hop(&far).unwrap().port, 80);
        for count in ["0", "17", "x", ""] {
            assert!(StreamKind::read("onion", count).unwrap().is_err(), "{count}");
        }
        assert!(StreamKind::read("if", "eth0").is_none());
    }
}

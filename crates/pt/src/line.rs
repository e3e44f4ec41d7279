//! The lines with which a pluggable transport reports to its manager. The transport's standard
//! output must contain nothing else.

use std::fmt;
use std::iter::Peekable;
use std::net::SocketAddr;

use crate::args::Args;

/// Maximum length in bytes of a line that a transport prints.
pub(crate) const LONGEST: usize = 8 << 10;

/// The protocol that programs use to connect to a transport at a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// SOCKS4. [`SocksClient`](crate::SocksClient) does not support it.
    Socks4,
    /// SOCKS5.
    Socks5,
}

/// Severity of a message that a transport logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// An event that prevents an operation of the transport.
    Error,
    /// An event that may prevent an operation of the transport.
    Warning,
    /// An event of interest to every user.
    Notice,
    /// An event of interest to some users.
    Info,
    /// An event of interest to developers.
    Debug,
}

/// A line with which a transport reports to its manager on standard output.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Line {
    /// The transport uses this version of the protocol between manager and transport.
    Version(String),
    /// The transport supports none of the protocol versions that the manager offered, for this
    /// reason.
    VersionError(String),
    /// The transport's environment is invalid, for this reason.
    EnvError(String),
    /// The transport uses the proxy from its environment.
    ProxyDone,
    /// The transport does not use the proxy from its environment, for this reason.
    ProxyError(String),
    /// The client's transport of this name is ready at this address.
    ClientMethod(String, Protocol, SocketAddr),
    /// The client's transport of this name is not ready, for this reason.
    ClientMethodError(String, String),
    /// The transport program at a client has reported all its transports, so none follows.
    ClientMethodsDone,
    /// The bridge's transport of this name listens at this address; clients need these arguments.
    ServerMethod(String, SocketAddr, Args),
    /// The bridge's transport of this name does not listen, for this reason.
    ServerMethodError(String, String),
    /// The transport program at a bridge has reported all its transports, so none follows.
    ServerMethodsDone,
    /// A message for the operator.
    Log(Severity, String),
    /// The status of a transport, in the transport's own words.
    Status(String),
    /// A line that only later versions of the protocol define. It is ignored.
    Unknown,
}

/// Returns whether a word may be the name of a transport, by the rules for names in C.
#[must_use]
pub fn is_name(word: &str) -> bool {
    let is_letter = |one: char| one.is_ascii_alphabetic() || one == '_';
    word.starts_with(is_letter) && word.chars().all(|one| is_letter(one) || one.is_ascii_digit())
}

impl Severity {
    const ALL: [(Severity, &'static str); 5] = [
        (Severity::Error, "error"),
        (Severity::Warning, "warning"),
        (Severity::Notice, "notice"),
        (Severity::Info, "info"),
        (Severity::Debug, "debug"),
    ];
}

impl Line {
    /// Parses a line without its line break; `None` if it is malformed.
    #[must_use]
    pub fn read(line: &str) -> Option<Line> {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.contains(['\r', '\n']) {
            return None;
        }
        let (keyword, rest) = line.split_once(' ').unwrap_or((line, ""));
        let owned = rest.to_owned();
        Some(match keyword {
            "VERSION" => Line::Version(owned),
            "VERSION-ERROR" => Line::VersionError(owned),
            "ENV-ERROR" => Line::EnvError(owned),
            "PROXY" => (rest == "DONE").then_some(Line::ProxyDone)?,
            "PROXY-ERROR" => Line::ProxyError(owned),
            "CMETHOD" => client_method(rest)?,
            "CMETHOD-ERROR" => method_error(rest, Line::ClientMethodError)?,
            "CMETHODS" => (rest == "DONE").then_some(Line::ClientMethodsDone)?,
            "SMETHOD" => server_method(rest)?,
            "SMETHOD-ERROR" => method_error(rest, Line::ServerMethodError)?,
            "SMETHODS" => (rest == "DONE").then_some(Line::ServerMethodsDone)?,
            // A malformed log message is ignored, so that the transport stays usable.
            "LOG" => log(rest).unwrap_or(Line::Unknown),
            "STATUS" => Line::Status(owned),
            _ => Line::Unknown,
        })
    }
}

fn client_method(rest: &str) -> Option<Line> {
    let mut words = rest.split(' ');
    let name = words.next().filter(|name| is_name(name))?.to_owned();
    let protocol = match words.next()? {
        "socks4" => Protocol::Socks4,
        "socks5" => Protocol::Socks5,
        _ => return None,
    };
    Some(Line::ClientMethod(name, protocol, words.next()?.parse().ok()?))
}

fn server_method(rest: &str) -> Option<Line> {
    let mut words = rest.split(' ');
    let name = words.next().filter(|name| is_name(name))?.to_owned();
    let address = words.next()?.parse().ok()?;
    // Options of later versions are ignored.
    let args = words.find_map(|word| word.strip_prefix("ARGS:")).unwrap_or_default();
    Some(Line::ServerMethod(name, address, Args::from_smethod(args).ok()?))
}

fn method_error(rest: &str, line: fn(String, String) -> Line) -> Option<Line> {
    let (name, why) = rest.split_once(' ').unwrap_or((rest, ""));
    is_name(name).then(|| line(name.to_owned(), why.to_owned()))
}

/// Parses the part `SEVERITY=word MESSAGE="words"` of a LOG line; `None` if it is malformed.
fn log(rest: &str) -> Option<Line> {
    let (word, message) = rest.strip_prefix("SEVERITY=")?.split_once(" MESSAGE=")?;
    let (severity, _) = Severity::ALL.into_iter().find(|(_, name)| *name == word)?;
    Some(Line::Log(severity, unquote(message)?))
}

/// Decodes a C string (Tor's control-spec, section 2.1.1), or a word without quotes. Returns
/// `None` if the text is malformed.
fn unquote(text: &str) -> Option<String> {
    let Some(quoted) = text.strip_prefix('"') else { return Some(text.to_owned()) };
    let (mut out, mut all) = (Vec::new(), quoted.bytes().peekable());
    loop {
        match all.next()? {
            b'"' => return Some(String::from_utf8_lossy(&out).into_owned()),
            b'\\' => out.push(match all.next()? {
                b'n' => b'\n',
                b't' => b'\t',
                b'r' => b'\r',
                first @ b'0'..=b'7' => octal(first, &mut all)?,
                one => one,
            }),
            one => out.push(one),
        }
    }
}

/// Decodes an escape of up to three octal digits. `first` is the first digit. Returns `None` if
/// the value exceeds 255. Transports in Go write quoted text this way, with each byte beyond ASCII
/// as an escape.
fn octal(first: u8, rest: &mut Peekable<impl Iterator<Item = u8>>) -> Option<u8> {
    let mut value = u16::from(first - b'0');
    for _ in 0..2 {
        let Some(digit) = rest.next_if(|one| (b'0'..=b'7').contains(one)) else { break };
        value = value * 8 + u16::from(digit - b'0');
    }
    u8::try_from(value).ok()
}

fn quote(text: &str, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    out.write_str("\"")?;
    for one in text.chars() {
        match one {
            '"' | '\\' => write!(out, "\\{one}")?,
            '\n' => out.write_str("\\n")?,
            '\t' => out.write_str("\\t")?,
            '\r' => out.write_str("\\r")?,
            one => write!(out, "{one}")?,
        }
    }
    out.write_str("\"")
}

/// Replaces line breaks in a reason by spaces, because a reason extends to the end of its line.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

impl fmt::Display for Line {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Version(version) => write!(out, "VERSION {}", one_line(version)),
            Line::VersionError(why) => write!(out, "VERSION-ERROR {}", one_line(why)),
            Line::EnvError(why) => write!(out, "ENV-ERROR {}", one_line(why)),
            Line::ProxyDone => out.write_str("PROXY DONE"),
            Line::ProxyError(why) => write!(out, "PROXY-ERROR {}", one_line(why)),
            Line::ClientMethod(name, protocol, address) => {
                let protocol = match protocol {
                    Protocol::Socks4 => "socks4",
                    Protocol::Socks5 => "socks5",
                };
                write!(out, "CMETHOD {name} {protocol} {address}")
            }
            Line::ClientMethodError(name, why) => {
                write!(out, "CMETHOD-ERROR {name} {}", one_line(why))
            }
            Line::ClientMethodsDone => out.write_str("CMETHODS DONE"),
            Line::ServerMethod(name, address, args) => {
                write!(out, "SMETHOD {name} {address}")?;
                match args.is_empty() {
                    true => Ok(()),
                    false => write!(out, " ARGS:{}", args.to_smethod()),
                }
            }
            Line::ServerMethodError(name, why) => {
                write!(out, "SMETHOD-ERROR {name} {}", one_line(why))
            }
            Line::ServerMethodsDone => out.write_str("SMETHODS DONE"),
            Line::Log(severity, message) => {
                let name = Severity::ALL.into_iter().find(|(one, _)| one == severity);
                write!(out, "LOG SEVERITY={} MESSAGE=", name.map_or("notice", |(_, name)| name))?;
                quote(message, out)
            }
            Line::Status(words) => write!(out, "STATUS {}", one_line(words)),
            Line::Unknown => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_are_written() {
        let args = Args(vec![("a,b".to_owned(), "c=d".to_owned())]);
        let at: SocketAddr = "127.0.0.1:9".parse().unwrap();
        let six: SocketAddr = "[::1]:9".parse().unwrap();
        let words = || "some words".to_owned();
        for line in [
            Line::Version("1".to_owned()),
            Line::VersionError("no-version".to_owned()),
            Line::EnvError(words()),
            Line::ProxyDone,
            Line::ProxyError(words()),
            Line::ClientMethod("obfs4".to_owned(), Protocol::Socks5, at),
            Line::ClientMethod("old".to_owned(), Protocol::Socks4, six),
            Line::ClientMethodError("x".to_owned(), words()),
            Line::ClientMethodsDone,
            Line::ServerMethod("obfs4".to_owned(), six, args),
            Line::ServerMethod("x".to_owned(), at, Args::default()),
            Line::ServerMethodError("x".to_owned(), words()),
            Line::ServerMethodsDone,
            Line::Log(Severity::Warning, "a \"b\"\n\\c".to_owned()),
            Line::Status("TRANSPORT=x ADDRESS=y".to_owned()),
        ] {
            assert_eq!(Line::read(&line.to_string()), Some(line.clone()), "{line}");
            assert_eq!(line.to_string().lines().count(), 1);
        }
    }

    #[test]
    fn what_is_malformed_is_none_and_what_is_later_is_passed_over() {
        for line in [
            "PROXY",
            "CMETHODS",
            "CMETHOD",
            "CMETHOD x",
            "CMETHOD x http 127.0.0.1:9",
            "CMETHOD x-y socks5 127.0.0.1:9",
            "CMETHOD x socks5 127.0.0.1",
            "SMETHOD x y",
            "SMETHOD x 127.0.0.1:9 ARGS:k",
            "CMETHOD-ERROR 9x why",
        ] {
            assert_eq!(Line::read(line), None, "{line}");
        }
        for line in [
            "CMETHODX a b",
            "LOG SEVERITY=loud MESSAGE=x",
            "LOG SEVERITY=info MESSAGE=\"x",
            "LOG SEVERITY=info MESSAGE=\"\\777\"",
            "LOG x",
        ] {
            assert_eq!(Line::read(line), Some(Line::Unknown), "{line}");
        }
        let options = "SMETHOD x 127.0.0.1:9 LATER:1 ARGS:k=v";
        assert!(
            matches!(Line::read(options), Some(Line::ServerMethod(_, _, args)) if !args.is_empty())
        );
        let go = "LOG SEVERITY=info MESSAGE=\"open \\042a\\134\\303\\274\\042\\0\\18\"";
        let text = "open \"a\\\u{fc}\"\0\u{1}8".to_owned();
        assert_eq!(Line::read(go), Some(Line::Log(Severity::Info, text)));
        let plain = Line::read("LOG SEVERITY=info MESSAGE=word\r");
        assert_eq!(plain, Some(Line::Log(Severity::Info, "word".to_owned())));
    }
}

//! Lines that name the program of each transport, as in torrc's `ClientTransportPlugin` and
//! `ServerTransportPlugin`.

use std::fmt;
use std::net::SocketAddr;

use crate::line::{Protocol, is_name};

/// A line that names transports, and the program that provides them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginLine {
    /// The transports' names.
    pub transports: Vec<String>,
    /// The program that provides the transports.
    pub place: PluginPlace,
}

/// The program that provides transports: to be started, or already running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PluginPlace {
    /// A program that has to be started: its path and arguments.
    Program(Vec<String>),
    /// A program that already runs, and listens at this address.
    Proxy(Protocol, SocketAddr),
}

/// Error: a line is not a valid [`PluginLine`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PluginError {
    /// The line is empty, or contains only spaces.
    Empty,
    /// This word is not a transport's name.
    Name(String),
    /// This word stands where `exec` or `socks5` should be.
    Kind(String),
    /// No program follows `exec`.
    NoProgram,
    /// This word stands where the program's address with a port should be.
    Address(String),
    /// This word follows the address, where the line should end.
    Rest(String),
}

impl fmt::Display for PluginError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PluginError::Empty => out.write_str("the line is empty"),
            PluginError::Name(word) => {
                write!(out, "'{word}' is not a valid name of a transport (letters, digits and _)")
            }
            PluginError::Kind(word) => {
                write!(
                    out,
                    "'{word}' is not a way to reach the transport: write 'exec PROGRAM' or 'socks5 \
                     ADDRESS:PORT'"
                )
            }
            PluginError::NoProgram => out.write_str("a program is missing after 'exec'"),
            PluginError::Address(word) => write!(out, "'{word}' is not ADDRESS:PORT"),
            PluginError::Rest(word) => {
                write!(out, "there is unexpected text after the address: remove '{word}'")
            }
        }
    }
}

impl std::error::Error for PluginError {}

impl PluginLine {
    /// Parses a line, optionally with the word `ClientTransportPlugin` or `ServerTransportPlugin`
    /// before it, as in torrc. Spaces separate words, and there is no quoting, as in torrc.
    ///
    /// # Errors
    /// [`PluginError`] if the line has another form.
    pub fn parse(line: &str) -> Result<PluginLine, PluginError> {
        let mut words = line.split_whitespace().peekable();
        let is_keyword = |word: &&str| {
            ["clienttransportplugin", "servertransportplugin"]
                .iter()
                .any(|keyword| word.eq_ignore_ascii_case(keyword))
        };
        words.next_if(is_keyword);
        let names = words.next().ok_or(PluginError::Empty)?;
        let named = |name: &str| match is_name(name) {
            true => Ok(name.to_owned()),
            false => Err(PluginError::Name(name.to_owned())),
        };
        let transports = names.split(',').map(named).collect::<Result<Vec<_>, _>>()?;
        let mut word = || words.next().unwrap_or_default();
        let place = match word() {
            "exec" => {
                let program: Vec<String> = words.map(str::to_owned).collect();
                let program = Some(program).filter(|program| !program.is_empty());
                PluginPlace::Program(program.ok_or(PluginError::NoProgram)?)
            }
            // SOCKS4 is not supported: programs that use it date from 2012.
            "socks5" => {
                let at = word();
                let address = at.parse::<SocketAddr>().ok().filter(|at| at.port() > 0);
                let address = address.ok_or_else(|| PluginError::Address(at.to_owned()))?;
                match words.next() {
                    Some(rest) => return Err(PluginError::Rest(rest.to_owned())),
                    None => PluginPlace::Proxy(Protocol::Socks5, address),
                }
            }
            other => return Err(PluginError::Kind(other.to_owned())),
        };
        Ok(PluginLine { transports, place })
    }
}

impl fmt::Display for PluginLine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ", self.transports.join(","))?;
        match &self.place {
            PluginPlace::Program(words) => write!(out, "exec {}", words.join(" ")),
            PluginPlace::Proxy(_, at) => write!(out, "socks5 {at}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_torrc_has_them() {
        for line in [
            "obfs4 exec /usr/bin/obfs4proxy",
            "obfs3,obfs4 exec /usr/bin/obfs4proxy -enableLogging -logLevel DEBUG",
            "snowflake socks5 127.0.0.1:1984",
            "x socks5 [::1]:1984",
        ] {
            assert_eq!(PluginLine::parse(line).unwrap().to_string(), line);
            let torrc = format!(" ClientTransportPlugin {line}");
            assert_eq!(PluginLine::parse(&torrc), PluginLine::parse(line));
        }
    }

    #[test]
    fn every_mistake_is_told() {
        let wrong = |line: &str| PluginLine::parse(line).unwrap_err();
        assert_eq!(wrong(" "), PluginError::Empty);
        assert_eq!(wrong("ServerTransportPlugin"), PluginError::Empty);
        assert_eq!(wrong("a-b exec x"), PluginError::Name("a-b".to_owned()));
        assert_eq!(wrong("a, exec x"), PluginError::Name(String::new()));
        assert_eq!(wrong("obfs4 /usr/bin/x"), PluginError::Kind("/usr/bin/x".to_owned()));
        assert_eq!(wrong("obfs4"), PluginError::Kind(String::new()));
        assert_eq!(wrong("obfs4 exec"), PluginError::NoProgram);
        for word in ["", "here", "127.0.0.1:0"] {
            assert_eq!(wrong(&format!("x socks5 {word}")), PluginError::Address(word.to_owned()));
        }
        assert_eq!(wrong("x socks5 127.0.0.1:9 y"), PluginError::Rest("y".to_owned()));
    }
}

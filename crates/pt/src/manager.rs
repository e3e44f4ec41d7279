//! The managing side of a pluggable transport that runs as a separate program: interprets the
//! transport's output.

use std::fmt;
use std::net::SocketAddr;

use crate::args::Args;
use crate::line::{LONGEST, Line, Protocol, Severity};

/// A transport that is ready for use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method {
    /// Name of the transport.
    pub name: String,
    /// The transport's SOCKS port at a client, or its listening address at a bridge.
    pub address: SocketAddr,
    /// The protocol that programs use to connect to the transport at a client; `None` at a bridge.
    pub protocol: Option<Protocol>,
    /// Arguments that clients of the bridge need; empty at a client.
    pub args: Args,
}

/// Error: a transport's program is unusable, and has to be stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The transport supports none of the versions of the managed-transport protocol that the
    /// manager offered.
    Version(String),
    /// The transport reports that its settings are invalid.
    Environment(String),
    /// The transport cannot or will not use the proxy that the manager has set.
    Proxy(String),
    /// The transport printed this line, which violates the protocol.
    Line(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Version(why) => {
                write!(
                    out,
                    "the transport's program supports only another version of the protocol for \
                     pluggable transports: {why}"
                )
            }
            Failure::Environment(why) => {
                write!(out, "the transport's program reports wrong settings: {why}")
            }
            Failure::Proxy(why) => {
                write!(
                    out,
                    "the transport's program cannot use the proxy that it was given for \
                             its connections: {why}"
                )
            }
            Failure::Line(line) => {
                write!(
                    out,
                    "the transport's program wrote '{line}', which breaks the protocol for \
                     pluggable transports"
                )
            }
        }
    }
}

impl std::error::Error for Failure {}

/// The state of a transport's program, derived from its standard output.
///
/// [`Manager::take`] processes the transport's standard output. Once [`Manager::is_ready`], the
/// list of methods is complete. Later output contains log messages, which [`Manager::messages`]
/// returns.
#[derive(Debug, Default)]
pub struct Manager {
    inbox: Vec<u8>,
    wants_proxy: bool,
    versioned: bool,
    ready: bool,
    methods: Vec<Method>,
    refused: Vec<(String, String)>,
    messages: Vec<(Severity, String)>,
}

impl Manager {
    /// Creates the manager of a transport's program that was just started. `wants_proxy` is true
    /// if the program has to use a proxy for its connections.
    #[must_use]
    pub fn new(wants_proxy: bool) -> Manager {
        Manager { wants_proxy, ..Manager::default() }
    }

    /// Processes bytes of the transport's standard output.
    ///
    /// # Errors
    /// After a [`Failure`], the transport has to be stopped.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.inbox.extend_from_slice(bytes);
        while let Some(end) = self.inbox.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.inbox.drain(..=end).take(end).collect();
            self.on_line(&String::from_utf8_lossy(&line))?;
        }
        match self.inbox.len() > LONGEST {
            true => Err(Failure::Line(String::from_utf8_lossy(&self.inbox[..80]).into_owned())),
            false => Ok(()),
        }
    }

    fn on_line(&mut self, text: &str) -> Result<(), Failure> {
        let shown = || text.chars().take(80).collect::<String>();
        let line = Line::read(text).ok_or_else(|| Failure::Line(shown()))?;
        match line {
            Line::Log(severity, message) => self.messages.push((severity, message)),
            Line::Status(_) | Line::Unknown => {}
            Line::Version(version) if version == "1" => self.versioned = true,
            Line::Version(version) => return Err(Failure::Version(version)),
            Line::VersionError(why) => return Err(Failure::Version(why)),
            Line::EnvError(why) => return Err(Failure::Environment(why)),
            Line::ProxyError(why) => return Err(Failure::Proxy(why)),
            // Before it reports its version, and after it is ready, a transport may write only the
            // lines above.
            _ if self.ready || !self.versioned => return Err(Failure::Line(shown())),
            Line::ProxyDone => self.wants_proxy = false,
            Line::ClientMethod(name, protocol, address) => {
                let (protocol, args) = (Some(protocol), Args::default());
                self.methods.push(Method { name, address, protocol, args });
            }
            Line::ServerMethod(name, address, args) => {
                self.methods.push(Method { name, address, protocol: None, args });
            }
            Line::ClientMethodError(name, why) | Line::ServerMethodError(name, why) => {
                self.refused.push((name, why));
            }
            Line::ClientMethodsDone | Line::ServerMethodsDone if self.wants_proxy => {
                return Err(Failure::Proxy(
                    "the program did not confirm that it uses the proxy".to_owned(),
                ));
            }
            Line::ClientMethodsDone | Line::ServerMethodsDone => self.ready = true,
        }
        Ok(())
    }

    /// Returns whether the transport's program has reported all its methods (transports).
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Returns the methods (transports) that are ready for use.
    #[must_use]
    pub fn methods(&self) -> &[Method] {
        &self.methods
    }

    /// Returns the names of the methods (transports) that failed, with the reasons.
    #[must_use]
    pub fn refused(&self) -> &[(String, String)] {
        &self.refused
    }

    /// Removes and returns the messages that the transport has logged since the last call.
    pub fn messages(&mut self) -> Vec<(Severity, String)> {
        std::mem::take(&mut self.messages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(text: &str) -> Result<Manager, Failure> {
        let mut manager = Manager::default();
        manager.take(text.as_bytes()).map(|()| manager)
    }

    #[test]
    fn a_transport_is_ready_when_it_has_told_of_all_however_its_bytes_come() {
        let text = "VERSION 1\nLOG SEVERITY=notice MESSAGE=\"hello\"\nCMETHOD-ERROR b why not\n\
                    CMETHOD a socks5 127.0.0.1:9\nLATER x\nCMETHODS DONE\nSTATUS x\n";
        let mut manager = Manager::default();
        for byte in text.bytes() {
            manager.take(&[byte]).unwrap();
        }
        assert!(manager.is_ready());
        assert_eq!(manager.methods()[0].name, "a");
        assert_eq!(manager.refused(), [("b".to_owned(), "why not".to_owned())]);
        assert_eq!(manager.messages(), [(Severity::Notice, "hello".to_owned())]);
        assert_eq!(manager.messages(), []);
        let bridge = heard("VERSION 1\nSMETHOD a 0.0.0.0:9 ARGS:k=v\nSMETHODS DONE\n").unwrap();
        assert_eq!(bridge.methods()[0].args.get("k"), Some("v"));
    }

    #[test]
    fn one_that_breaks_the_protocol_is_told_with_its_words() {
        let failure = |text: &str| heard(text).unwrap_err();
        assert_eq!(failure("VERSION 2\n"), Failure::Version("2".to_owned()));
        let none = Failure::Version("no-version".to_owned());
        assert_eq!(failure("VERSION-ERROR no-version\n"), none);
        assert!(matches!(failure("ENV-ERROR x\n"), Failure::Environment(_)));
        let early = Failure::Line("CMETHODS DONE".to_owned());
        assert_eq!(failure("CMETHODS DONE\n"), early);
        let late = failure("VERSION 1\nCMETHODS DONE\nCMETHOD a socks5 127.0.0.1:9\n");
        assert!(matches!(late, Failure::Line(_)));
        assert!(matches!(failure("VERSION 1\nCMETHOD a\n"), Failure::Line(_)));
        assert!(matches!(failure(&"x".repeat(9_000)), Failure::Line(_)));
        let mut proxied = Manager::new(true);
        let done = proxied.take(b"VERSION 1\nCMETHODS DONE\n");
        assert!(matches!(done, Err(Failure::Proxy(_))));
        let mut proxied = Manager::new(true);
        proxied.take(b"VERSION 1\nPROXY DONE\nCMETHODS DONE\n").unwrap();
        assert!(proxied.is_ready());
    }
}

//! A bridge operator's settings for a transport, in one line. They correspond to torrc's
//! `ServerTransportPlugin`, `ServerTransportListenAddr` and `ServerTransportOptions`.

use std::fmt;
use std::net::SocketAddr;

use crate::args::{Args, ArgsError};
use crate::line::is_name;

/// A transport that a bridge offers to clients: `NAME ADDRESS:PORT [KEY=VALUE ...] [exec PROGRAM
/// ARGS]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferLine {
    /// Name of the transport.
    pub transport: String,
    /// Listening address of the transport.
    pub listen: SocketAddr,
    /// Options for the transport, as pairs of key and value.
    pub options: Args,
    /// The program that implements the transport, with its arguments; `None` if the line names
    /// none.
    pub program: Option<Vec<String>>,
}

/// Error: a line is not a valid [`OfferLine`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OfferError {
    /// The line is empty, or contains only spaces.
    Empty,
    /// The line's first word is not a transport's name.
    Name(String),
    /// This word stands where the transport's listening address should be.
    Address(String),
    /// A word after the address is not an option.
    Options(ArgsError),
    /// No program follows `exec`.
    NoProgram,
}

impl fmt::Display for OfferError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OfferError::Empty => out.write_str("the line is empty"),
            OfferError::Name(word) => {
                write!(out, "'{word}' is not a valid name of a transport (letters, digits and _)")
            }
            OfferError::Address(word) => {
                write!(
                    out,
                    "'{word}' is not ADDRESS:PORT: write the address at which the transport shall \
                     listen"
                )
            }
            OfferError::Options(error) => {
                write!(
                    out,
                    "the transport's options are invalid: {error}; to start a program instead, \
                     write exec PROGRAM ARGS"
                )
            }
            OfferError::NoProgram => out.write_str("a program is missing after 'exec'"),
        }
    }
}

impl std::error::Error for OfferError {}

impl OfferLine {
    /// Parses a line. Spaces separate words, and there is no quoting.
    ///
    /// # Errors
    /// [`OfferError`] if the line has another form.
    pub fn parse(line: &str) -> Result<OfferLine, OfferError> {
        let mut words = line.split_whitespace();
        let name = words.next().ok_or(OfferError::Empty)?;
        if !is_name(name) {
            return Err(OfferError::Name(name.to_owned()));
        }
        let at = words.next().unwrap_or_default();
        let listen = at.parse().map_err(|_| OfferError::Address(at.to_owned()))?;
        let (mut options, mut program) = (Args::default(), None);
        while let Some(word) = words.next() {
            if word == "exec" {
                let all: Vec<String> = words.by_ref().map(str::to_owned).collect();
                program =
                    Some(Some(all).filter(|all| !all.is_empty()).ok_or(OfferError::NoProgram)?);
                break;
            }
            options.add_plain(word).map_err(OfferError::Options)?;
        }
        Ok(OfferLine { transport: name.to_owned(), listen, options, program })
    }
}

impl fmt::Display for OfferLine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.transport, self.listen)?;
        self.options.0.iter().try_for_each(|(key, value)| write!(out, " {key}={value}"))?;
        self.program.iter().try_for_each(|words| write!(out, " exec {}", words.join(" ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_are_written() {
        for line in [
            "anabranch 0.0.0.0:443",
            "anabranch [::]:80 profile=http-opaque site=127.0.0.1:8080",
            "obfs4 192.0.2.1:443 iat-mode=1 exec /usr/bin/obfs4proxy -enableLogging k=v",
        ] {
            assert_eq!(OfferLine::parse(line).unwrap().to_string(), line);
        }
    }

    #[test]
    fn every_mistake_is_told() {
        let wrong = |line: &str| OfferLine::parse(line).unwrap_err();
        assert_eq!(wrong(" "), OfferError::Empty);
        assert_eq!(wrong("a-b 0.0.0.0:1"), OfferError::Name("a-b".to_owned()));
        for word in ["", "exec", "0.0.0.0", "example.net:80"] {
            assert_eq!(wrong(&format!("x {word}")), OfferError::Address(word.to_owned()));
        }
        let rocks = OfferError::Options(ArgsError::NoKey("/usr/bin/x".to_owned()));
        assert_eq!(wrong("x 0.0.0.0:1 /usr/bin/x"), rocks);
        assert_eq!(wrong("x 0.0.0.0:1 k=v exec"), OfferError::NoProgram);
    }
}

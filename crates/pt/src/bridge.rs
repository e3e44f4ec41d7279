//! Bridge lines, in the form in which users receive them and torrc's `Bridge` option expects them.

use std::fmt;
use std::net::SocketAddr;

use base64ct::{Base64Unpadded, Encoding};

use crate::args::{Args, ArgsError};
use crate::line::is_name;

/// Prefix of an ed25519 identity in a bridge line.
const ED25519: &str = "ed25519:";

/// A bridge line: `[TRANSPORT] ADDRESS:PORT [FINGERPRINT] [ed25519:KEY] [KEY=VALUE ...]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeLine {
    /// The transport through which clients reach the bridge; `None` if they connect to it without
    /// a transport.
    pub transport: Option<String>,
    /// The bridge's address. Some transports ignore it, and find the bridge by the arguments.
    pub address: SocketAddr,
    /// The bridge's RSA identity. If it is `None`, a client accepts any identity at the address.
    pub fingerprint: Option<[u8; 20]>,
    /// The bridge's ed25519 identity, which arti supports and C tor does not. `None` if the line
    /// contains none.
    pub ed25519: Option<[u8; 32]>,
    /// Arguments for the bridge's transport.
    pub args: Args,
}

/// Error: a line is not a bridge line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BridgeError {
    /// The line is empty, or contains only spaces.
    Empty,
    /// This word stands where the address and port of the bridge should be.
    Address(String),
    /// The line ends after this word, without an address with a port.
    NoAddress(String),
    /// This word after the address is not a fingerprint: its length is wrong, or it is not
    /// hexadecimal.
    Fingerprint(String),
    /// The text after `ed25519:` is not a key.
    Ed25519(String),
    /// This word is a second RSA or a second ed25519 identity, and a line may have only one of
    /// each.
    Twice(String),
    /// The line has arguments, but no transport that could take them.
    NoTransport,
    /// An argument (`KEY=VALUE`) is invalid, for this reason.
    Args(ArgsError),
}

impl fmt::Display for BridgeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BridgeError::Empty => out.write_str("the line is empty"),
            BridgeError::Address(word) => {
                write!(out, "'{word}' is not ADDRESS:PORT (write an IPv6 address in brackets)")
            }
            BridgeError::NoAddress(word) => {
                write!(out, "'{word}' has no address after it: write {word} ADDRESS:PORT ...")
            }
            BridgeError::Fingerprint(word) => {
                write!(
                    out,
                    "'{word}' is neither a fingerprint (40 hexadecimal digits) nor KEY=VALUE"
                )
            }
            BridgeError::Ed25519(word) => {
                write!(out, "'{word}' is not an ed25519 key (43 characters of base64)")
            }
            BridgeError::Twice(word) => {
                write!(out, "'{word}' is a second fingerprint or ed25519 key: remove one")
            }
            BridgeError::NoTransport => out.write_str(
                "the bridge line has arguments (KEY=VALUE) but no transport: write the transport's \
                 name before the address",
            ),
            BridgeError::Args(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for BridgeError {}

impl BridgeLine {
    /// Parses a line, optionally with the word `Bridge` before it, as in torrc.
    ///
    /// # Errors
    /// [`BridgeError`] if the line is not a bridge line.
    pub fn parse(line: &str) -> Result<BridgeLine, BridgeError> {
        let mut words = line.split_whitespace().peekable();
        words.next_if(|word| word.eq_ignore_ascii_case("bridge"));
        let first = words.next().ok_or(BridgeError::Empty)?;
        // An address contains a dot or a colon, which a transport's name cannot contain.
        let transport = is_name(first).then(|| first.to_owned());
        let address = match transport {
            Some(_) => words.next().ok_or_else(|| BridgeError::NoAddress(first.to_owned()))?,
            None => first,
        };
        let address = address
            .parse::<SocketAddr>()
            .ok()
            .filter(|address| address.port() > 0)
            .ok_or_else(|| BridgeError::Address(address.to_owned()))?;
        let [mut fingerprint, mut ed25519] = [None, None];
        while let Some(word) = words.next_if(|word| is_identity(word)) {
            let place = if word.starts_with(ED25519) { &mut ed25519 } else { &mut fingerprint };
            if place.replace(word).is_some() {
                return Err(BridgeError::Twice(word.to_owned()));
            }
        }
        let fingerprint = fingerprint.map(|word| {
            // Like torrc, accepts the dollar sign that precedes fingerprints elsewhere.
            let digits = word.strip_prefix('$').unwrap_or(word);
            identity(digits).ok_or_else(|| BridgeError::Fingerprint(word.to_owned()))
        });
        let ed25519 = ed25519.map(|word| {
            let wrong = || BridgeError::Ed25519(word.to_owned());
            key(&word[ED25519.len()..]).ok_or_else(wrong)
        });
        let mut args = Args::default();
        for word in words {
            args.add_plain(word).map_err(BridgeError::Args)?;
        }
        if transport.is_none() && !args.is_empty() {
            return Err(BridgeError::NoTransport);
        }
        args.to_socks().map_err(BridgeError::Args)?;
        let (fingerprint, ed25519) = (fingerprint.transpose()?, ed25519.transpose()?);
        Ok(BridgeLine { transport, address, fingerprint, ed25519, args })
    }
}

/// Returns whether a word after the address is the bridge's identity (fingerprint or ed25519 key)
/// rather than an argument. An ed25519 key may also contain `=`.
fn is_identity(word: &str) -> bool {
    word.starts_with(ED25519) || !word.contains('=')
}

/// Decodes a 32-byte key from base64, with or without the final `=`. Returns `None` if `text` has
/// another form.
fn key(text: &str) -> Option<[u8; 32]> {
    let mut key = [0; 32];
    let text = text.strip_suffix('=').unwrap_or(text);
    let read = Base64Unpadded::decode(text, &mut key).ok()?;
    (read.len() == key.len()).then_some(key)
}

fn identity(digits: &str) -> Option<[u8; 20]> {
    if digits.len() != 40 || !digits.is_ascii() {
        return None;
    }
    let mut id = [0; 20];
    for (place, byte) in id.iter_mut().enumerate() {
        // The filter excludes a plus sign, which `from_str_radix` would accept.
        let two = digits.get(2 * place..2 * place + 2).filter(|two| !two.starts_with('+'))?;
        *byte = u8::from_str_radix(two, 16).ok()?;
    }
    Some(id)
}

impl fmt::Display for BridgeLine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(transport) = &self.transport {
            write!(out, "{transport} ")?;
        }
        self.address.fmt(out)?;
        if let Some(fingerprint) = self.fingerprint {
            out.write_str(" ")?;
            fingerprint.iter().try_for_each(|byte| write!(out, "{byte:02X}"))?;
        }
        if let Some(key) = self.ed25519 {
            write!(out, " {ED25519}{}", Base64Unpadded::encode_string(&key))?;
        }
        self.args.0.iter().try_for_each(|(key, value)| write!(out, " {key}={value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789ABCDEF0123456789ABCDEF01234567";

    #[test]
    fn lines_are_read_as_they_are_written() {
        for line in [
            "192.0.2.1:443".to_owned(),
            format!("192.0.2.1:443 {ID}"),
            format!("[2001:db8::1]:9001 {ID}"),
            format!("obfs4 192.0.2.1:443 {ID} cert=ab+/cd iat-mode=0"),
            format!("192.0.2.1:443 {ID} ed25519:{}", "A".repeat(43)),
            format!("obfs4 192.0.2.1:443 {ID} ed25519:{} cert=x", "A".repeat(43)),
            "webtunnel [2001:db8::1]:443 url=https://example.net/a?b=c ver=0.0.1".to_owned(),
        ] {
            let bridge = BridgeLine::parse(&line).unwrap();
            assert_eq!(bridge.to_string(), line);
        }
        let torrc = BridgeLine::parse(&format!("  Bridge 192.0.2.1:443  ${}", ID.to_lowercase()));
        assert_eq!(torrc.unwrap().to_string(), format!("192.0.2.1:443 {ID}"));
        let other = BridgeLine::parse(&format!("192.0.2.1:443 ed25519:{}= {ID}", "A".repeat(43)));
        let written = format!("192.0.2.1:443 {ID} ed25519:{}", "A".repeat(43));
        assert_eq!(other.unwrap().to_string(), written);
    }

    #[test]
    fn every_mistake_is_told() {
        let wrong = |line: &str| BridgeLine::parse(line).unwrap_err();
        assert_eq!(wrong(" "), BridgeError::Empty);
        assert_eq!(wrong("Bridge"), BridgeError::Empty);
        assert_eq!(wrong("obfs4"), BridgeError::NoAddress("obfs4".to_owned()));
        for line in ["192.0.2.1", "2001:db8::1:443x", "192.0.2.1:0", "obfs4 example.net:443"] {
            assert!(matches!(wrong(line), BridgeError::Address(_)), "{line}");
        }
        for word in ["0123", &format!("{ID}0"), &format!("+1{}", &ID[2..]), "iat-mode"] {
            let line = format!("obfs4 192.0.2.1:443 {word}");
            assert_eq!(wrong(&line), BridgeError::Fingerprint(word.to_owned()));
        }
        for word in ["ed25519:", "ed25519:AAAA", &format!("ed25519:{}", "A".repeat(44))] {
            assert_eq!(
                wrong(&format!("192.0.2.1:443 {word}")),
                BridgeError::Ed25519(word.to_owned())
            );
        }
        let twice = wrong(&format!("192.0.2.1:443 {ID} {ID}"));
        assert_eq!(twice, BridgeError::Twice(ID.to_owned()));
        assert_eq!(wrong("192.0.2.1:443 cert=x"), BridgeError::NoTransport);
        let line = format!("obfs4 192.0.2.1:443 {ID} cert=x rocks");
        assert!(matches!(wrong(&line), BridgeError::Args(ArgsError::NoKey(_))));
        let line = format!("obfs4 192.0.2.1:443 k={}", "x".repeat(600));
        assert!(matches!(wrong(&line), BridgeError::Args(ArgsError::TooLong(_))));
    }
}

//! Bridge lines of our pluggable transport, and the file that stores a server's key.

use std::net::SocketAddr;
use std::path::Path;
use std::{fmt, fs};

use anabranch_os::entropy::generator;
use anabranch_os::toml_keys::unknown;
use anabranch_pt::{Args, BridgeError, BridgeLine};
use anabranch_stego::{BridgeKey, Pictures, Profile, ProfileError, ServerKey, Shapes};
use base64ct::{Base64UrlUnpadded, Encoding};

use crate::onion::store::{StoreError, replace};

/// Name of our pluggable transport in bridge lines and torrc.
pub const TRANSPORT: &str = "anabranch";
/// Camouflage profile (the protocol that connections imitate) if a bridge line has no `profile=`.
pub const PROFILE: &str = "nosteg";
/// Permitted keys of the arguments in our transport's bridge lines.
const KEYS: [&str; 3] = ["key", "profile", "host"];

/// A server of our transport, as a bridge line describes it to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bridge {
    /// Address of the server.
    pub address: SocketAddr,
    /// Public key of the server.
    pub key: BridgeKey,
    /// Camouflage profile: the protocol that the server's connections imitate.
    pub profile: Profile,
    /// Host name for the `Host` header, if the profile imitates HTTP; `None` to use the server's
    /// address.
    pub host: Option<String>,
}

/// Reason why a line is not a bridge line of our transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BridgeFault {
    /// The line is malformed.
    Line(BridgeError),
    /// The line names another transport, or no transport.
    Transport(String),
    /// The line has an unknown key, or one key twice.
    Args(KeyFault),
    /// The key `key=` is missing.
    NoKey,
    /// The value of `key=` is not a bridge's public key.
    Key,
    /// The profile in the line does not exist.
    Profile(ProfileError),
    /// The value of `host=` is not a host name.
    Host(String),
}

impl fmt::Display for BridgeFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BridgeFault::Line(error) => error.fmt(out),
            BridgeFault::Transport(name) => {
                write!(
                    out,
                    "the bridge's transport is '{name}': only '{TRANSPORT}' is supported here"
                )
            }
            BridgeFault::Args(fault) => fault.fmt(out),
            BridgeFault::NoKey => {
                out.write_str("the bridge line lacks key= with the bridge's key of 43 characters")
            }
            BridgeFault::Key => {
                out.write_str("the value of key= is not a bridge's key, which has 43 characters")
            }
            BridgeFault::Profile(error) => error.fmt(out),
            BridgeFault::Host(text) => write!(out, "host={text}: not a host name"),
        }
    }
}

impl std::error::Error for BridgeFault {}

/// An unknown or duplicate key in a bridge line. These keys must not be ignored, because a
/// misspelt `profile` would silently select the profile that looks like random bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyFault {
    /// An unknown key. The fields are the key, and the known keys.
    Unknown(String, &'static [&'static str]),
    /// A key that occurs twice.
    Twice(String),
}

impl fmt::Display for KeyFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyFault::Unknown(key, known) => {
                out.write_str(&unknown(&key.escape_debug().to_string(), &[], known))
            }
            KeyFault::Twice(key) => write!(out, "{key}= is given twice: remove one"),
        }
    }
}

impl std::error::Error for KeyFault {}

/// Refuses keys that are not in `known`, and keys that occur twice.
///
/// # Errors
/// Returns a [`KeyFault`] for the first such key.
pub(super) fn check_keys(args: &Args, known: &'static [&'static str]) -> Result<(), KeyFault> {
    for (place, (key, _)) in args.0.iter().enumerate() {
        if !known.contains(&&**key) {
            return Err(KeyFault::Unknown(key.clone(), known));
        }
        if args.0[..place].iter().any(|(other, _)| other == key) {
            return Err(KeyFault::Twice(key.clone()));
        }
    }
    Ok(())
}

impl Bridge {
    /// Creates a bridge from its address and the arguments of its bridge line.
    ///
    /// # Errors
    /// Returns a [`BridgeFault`] if an argument is invalid or missing.
    pub fn of(address: SocketAddr, args: &Args) -> Result<Bridge, BridgeFault> {
        check_keys(args, &KEYS).map_err(BridgeFault::Args)?;
        let key = args.get("key").ok_or(BridgeFault::NoKey)?;
        let key = key.parse().map_err(|_| BridgeFault::Key)?;
        let profile = args.get("profile").unwrap_or(PROFILE);
        let profile = profile.parse().map_err(BridgeFault::Profile)?;
        let host = args.get("host").map(str::to_owned);
        if let Some(text) = host.as_ref().filter(|text| !is_host(text)) {
            return Err(BridgeFault::Host(text.clone()));
        }
        Ok(Bridge { address, key, profile, host })
    }

    /// Returns the host name for the `Host` header of HTTP requests: `host`, or else the address.
    #[must_use]
    pub fn called(&self) -> String {
        let by_address = || match self.address {
            SocketAddr::V4(four) if four.port() == 80 => four.ip().to_string(),
            SocketAddr::V6(six) if six.port() == 80 => format!("[{}]", six.ip()),
            other => other.to_string(),
        };
        self.host.clone().unwrap_or_else(by_address)
    }

    /// Parses a whole bridge line.
    ///
    /// # Errors
    /// Returns a [`BridgeFault`] if the line is malformed, or if it is not a line of our
    /// transport.
    pub fn parse(line: &str) -> Result<Bridge, BridgeFault> {
        let line = BridgeLine::parse(line).map_err(BridgeFault::Line)?;
        match line.transport.as_deref() {
            Some(TRANSPORT) => Bridge::of(line.address, &line.args),
            other => Err(BridgeFault::Transport(other.unwrap_or("no transport").to_owned())),
        }
    }

    /// Returns the arguments of the bridge line for this server.
    #[must_use]
    pub fn args(&self) -> Args {
        let pair = |key: &str, value: String| (key.to_owned(), value);
        let (key, profile) = (self.key.to_string(), self.profile.to_string());
        let host = self.host.clone().map(|host| pair("host", host));
        Args([pair("key", key), pair("profile", profile)].into_iter().chain(host).collect())
    }
}

impl fmt::Display for Bridge {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = Some(TRANSPORT.to_owned());
        let (address, args) = (self.address, self.args());
        BridgeLine { transport, address, fingerprint: None, ed25519: None, args }.fmt(out)
    }
}

/// Reads the pictures in `folder` in which bytes can be hidden. Also returns the number of files
/// that are not such pictures.
///
/// # Errors
/// The folder or a file cannot be read.
pub fn pictures(folder: &Path) -> Result<(Pictures, usize), StoreError> {
    let to_error = |error| StoreError::File(folder.to_owned(), error);
    let (mut pictures, mut refused) = (Pictures::default(), 0);
    let mut files: Vec<_> = fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
        .map_err(to_error)?;
    files.sort();
    for file in files {
        if file.is_file() {
            let bytes = fs::read(&file).map_err(|error| StoreError::File(file, error))?;
            refused += usize::from(pictures.add(&bytes).is_err());
        }
    }
    Ok((pictures, refused))
}

/// Returns a message that `refused` files are not usable pictures; `None` if `refused` is 0.
#[must_use]
pub fn unusable_pictures(refused: usize) -> Option<String> {
    match refused {
        0 => None,
        1 => Some("1 file is left out: it is not a baseline JPEG that can hide bytes".to_owned()),
        _ => Some(format!(
            "{refused} files are left out: they are not baseline JPEGs that can hide bytes"
        )),
    }
}

/// Reads a file of connection shapes. A shape is a recorded sequence of message lengths and
/// pauses, which a camouflaged connection imitates (`docs/formats.md`).
///
/// # Errors
/// The file cannot be read, or is malformed.
pub fn shapes(path: &Path) -> Result<Shapes, StoreError> {
    let to_error = |error| StoreError::File(path.to_owned(), error);
    let text = fs::read_to_string(path).map_err(to_error)?;
    Shapes::parse(&text).map_err(|fault| to_error(std::io::Error::other(fault)))
}

/// Returns whether `text` is valid in a `Host` header: a name or an address, with an optional
/// port.
fn is_host(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    (1..=255).contains(&text.len()) && text.bytes().all(plain)
}

/// Reads a server's key from the file `path`: 43 characters of base64url. Generates the key if
/// there is no file.
///
/// # Errors
/// The file cannot be read or written, or contains no key.
pub fn server_key(path: &Path) -> Result<ServerKey, StoreError> {
    let file = |error| StoreError::File(path.to_owned(), error);
    match fs::read_to_string(path) {
        Ok(text) => {
            let mut secret = [0; 32];
            let read = Base64UrlUnpadded::decode(text.trim_end(), &mut secret);
            let whole = read.is_ok_and(|read| read.len() == 32);
            let none = || {
                file(std::io::Error::other(
                    "this file does not contain a bridge's key: restore it from a backup, or \
                     remove the file. A new key is then made, and clients need the new bridge \
                     line",
                ))
            };
            whole.then(|| ServerKey::of(secret)).ok_or_else(none)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let key = ServerKey::generate(&mut generator().map_err(file)?);
            let text = Base64UrlUnpadded::encode_string(key.secret());
            replace(path, format!("{text}\n").as_bytes())?;
            Ok(key)
        }
        Err(error) => Err(file(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_stands_in_the_bridge_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bridge.key");
        let key = server_key(&path).unwrap().public();
        assert_eq!(server_key(&path).unwrap().public(), key);
        let (address, profile) = ("192.0.2.1:443".parse().unwrap(), "nosteg-rr".parse().unwrap());
        let host = Some("media.example.net".to_owned());
        let bridge = Bridge { address, key, profile, host };
        assert_eq!(bridge.called(), "media.example.net");
        assert_eq!(Bridge::parse(&bridge.to_string()), Ok(bridge));
        fs::write(&path, "no key\n").unwrap();
        assert!(
            server_key(&path).unwrap_err().to_string().contains("does not contain a bridge's key")
        );
    }

    #[test]
    fn every_mistake_in_a_line_is_told() {
        let key = "A".repeat(42) + "E";
        let wrong = |line: &str| Bridge::parse(line).unwrap_err();
        assert_eq!(wrong("anabranch 192.0.2.1:443"), BridgeFault::NoKey);
        // The keys are: empty; too short; of the right length but invalid; with excess bits at the
        // end; in another alphabet.
        for none in ["", "AAAA", &"A".repeat(43), &("A".repeat(42) + "B"), &("+".repeat(42) + "E")]
        {
            let fault = wrong(&format!("anabranch 192.0.2.1:443 key={none}"));
            assert_eq!(fault, BridgeFault::Key, "{none}");
            assert!(!fault.to_string().contains("missing"), "{fault}");
        }
        assert!(matches!(wrong("192.0.2.1:443"), BridgeFault::Transport(_)));
        assert!(wrong("obfs4 192.0.2.1:443 cert=x").to_string().contains("'obfs4'"));
        let line = format!("anabranch 192.0.2.1:443 key={key} profile=x");
        assert!(matches!(wrong(&line), BridgeFault::Profile(_)));
        assert!(matches!(wrong("anabranch here"), BridgeFault::Line(_)));
        let short = Bridge::parse(&format!("anabranch 192.0.2.1:443 key={key}")).unwrap();
        assert_eq!((&*short.profile.to_string(), &*short.called()), (PROFILE, "192.0.2.1:443"));
        let line = format!("anabranch [2001:db8::1]:80 key={key} host=a/b");
        assert_eq!(wrong(&line), BridgeFault::Host("a/b".to_owned()));
        let plain = Bridge::parse(line.strip_suffix(" host=a/b").unwrap()).unwrap();
        assert_eq!(plain.called(), "[2001:db8::1]");
    }

    #[test]
    fn a_line_that_says_what_is_not_known_or_says_it_twice_is_refused_with_the_key() {
        let key = format!("key={}E", "A".repeat(42));
        let text_of = |rest: &str| {
            let line = format!("anabranch 192.0.2.1:443 {key} {rest}");
            Bridge::parse(&line).map(drop).map_err(|fault| fault.to_string())
        };
        let near = "unknown key `profil`; did you mean `profile`?";
        assert_eq!(text_of("profil=http-opaque"), Err(near.to_owned()));
        let far = "unknown key `cert`; known: key, profile, host";
        assert_eq!(text_of("profile=nosteg cert=x"), Err(far.to_owned()));
        assert_eq!(text_of(&key), Err("key= is given twice: remove one".to_owned()));
        let twice = Err("host= is given twice: remove one".to_owned());
        assert_eq!(text_of("host=a profile=nosteg host=b"), twice);
        assert_eq!(text_of("host=a profile=nosteg"), Ok(()));
    }
}

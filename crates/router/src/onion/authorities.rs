//! Directory authorities as users configure them: `DirAuthority` lines in the format of `torrc`.

use std::fmt;
use std::net::SocketAddr;

use anabranch_onion::wire::extend::Target;
use anabranch_onion::wire::text::twenty;

/// A directory authority, from a `DirAuthority` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// Nickname of the authority.
    pub name: String,
    /// Address of the authority's HTTP directory port.
    pub directory: SocketAddr,
    /// OR port of the authority, at the IP address of `directory`; `None` if the `DirAuthority`
    /// line has no `orport`.
    pub orport: Option<u16>,
    /// Digest of the authority's identity key (`v3ident`). That key certifies the keys that sign
    /// consensuses.
    pub v3: [u8; 20],
    /// Fingerprint of the authority's own relay.
    pub fingerprint: [u8; 20],
}

/// Error for a malformed `DirAuthority` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityError {
    line: String,
    what: &'static str,
}

impl fmt::Display for AuthorityError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.line.escape_debug();
        write!(
            out,
            "authority '{line}': {}; write NAME orport=PORT v3ident=ID ADDRESS:PORT FINGERPRINT",
            self.what
        )
    }
}

impl std::error::Error for AuthorityError {}

impl Authority {
    /// Returns the OR address and the identity of the authority's relay, as a destination for
    /// links; `None` if the line has no `orport`. The line contains only the relay's RSA identity,
    /// so `ed25519` is `None`.
    #[must_use]
    pub fn target(&self) -> Option<Target> {
        let address = SocketAddr::new(self.directory.ip(), self.orport?);
        Some(Target { addresses: vec![address], rsa: self.fingerprint, ed25519: None })
    }

    /// Parses `[DirAuthority] NAME [orport=N] [no-v2] v3ident=HEX ADDRESS:PORT FINGERPRINT`, the
    /// format of `torrc`.
    ///
    /// # Errors
    /// A part is missing or malformed. The error names that part.
    pub fn parse(line: &str) -> Result<Authority, AuthorityError> {
        let to_error = |what| AuthorityError { line: line.to_owned(), what };
        let mut words = line.split_whitespace().skip_while(|&word| word == "DirAuthority");
        let name = words.next().ok_or_else(|| to_error("a name is missing"))?.to_owned();
        let (mut directory, mut orport, mut v3) = (None, None, None);
        let mut fingerprint = String::new();
        for word in words {
            match word.split_once('=') {
                Some(("orport", port)) => {
                    orport = Some(port.parse().map_err(|_| to_error("orport= is not a port"))?);
                }
                Some(("v3ident", id)) => v3 = digest(id),
                Some(_) => {}
                None if directory.is_some() => fingerprint += word,
                None => directory = word.parse().ok(),
            }
        }
        Ok(Authority {
            name,
            directory: directory.ok_or_else(|| to_error("ADDRESS:PORT is missing"))?,
            orport,
            v3: v3.ok_or_else(|| to_error("v3ident= with 40 hexadecimal digits is missing"))?,
            fingerprint: digest(&fingerprint)
                .ok_or_else(|| to_error("a fingerprint of 40 hexadecimal digits is missing"))?,
        })
    }
}

/// Parses 40 hexadecimal digits into 20 bytes; Tor's `$` before fingerprints is optional. Returns
/// `None` if `text` has another form.
#[must_use]
pub fn digest(text: &str) -> Option<[u8; 20]> {
    twenty(text.strip_prefix('$').unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const V3: &str = "58B28C8453BD3D30F90366370CD500B3C900A73A";

    #[test]
    fn a_line_of_torrc_is_read_with_and_without_its_keyword() {
        let line = format!(
            "auth0 orport=37681 no-v2 v3ident={V3} 127.0.0.1:57615 \
             8FD4B66C1B1B8F0D0309261EE008DCA855E42BD8"
        );
        let read = Authority::parse(&line).unwrap();
        assert_eq!((read.name.as_str(), read.orport), ("auth0", Some(37681)));
        assert_eq!(read.directory, "127.0.0.1:57615".parse().unwrap());
        assert_eq!((read.v3[0], read.fingerprint[19]), (0x58, 0xd8));
        let target = read.target().unwrap();
        assert_eq!(target.addresses, ["127.0.0.1:37681".parse().unwrap()]);
        assert_eq!((target.rsa, target.ed25519), (read.fingerprint, None));
        assert_eq!(Authority::parse(&format!("DirAuthority {line}")), Ok(read.clone()));
        let spaced = line.replace("8FD4B66C1B1B", "8FD4 B66C 1B1B ");
        assert_eq!(Authority::parse(&spaced), Ok(read));
    }

    #[test]
    fn what_a_line_lacks_is_told() {
        for (line, what) in [
            ("", "name"),
            ("a", "ADDRESS:PORT"),
            ("a 127.0.0.1:1", "v3ident"),
            (&format!("a v3ident={V3} 127.0.0.1:1"), "fingerprint"),
            (&format!("a v3ident={V3} orport=x 127.0.0.1:1 {V3}"), "orport"),
            ("a v3ident=é8B28C8453BD3D30F90366370CD500B3C900A73 127.0.0.1:1", "v3ident"),
        ] {
            let error = Authority::parse(line).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}

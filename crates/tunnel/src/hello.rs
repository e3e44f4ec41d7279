//! The messages of a handshake, before they are encrypted with keys from the far end's public key.
//!
//! ```text
//! INIT   = 1 · cookie (16, or zeros) · Noise message 1 (hello)
//! ANSWER = 2 · Noise message 2 (welcome)
//! COOKIE = 3 · cookie (16)
//! hello  = version (1) · run (8) · first (8) · stamp (8) · paths (1) · aes (1) · length (1) · label
//!          · zeros
//! welcome = version (1) · run (8) · first (8) · paths (1) · aes (1) · zeros
//! ```
//!
//! The number of zeros after a payload is random, so that handshakes have no fixed length.

use rand_core::CryptoRng;

/// Version of the handshake messages. Messages of another version are rejected.
const VERSION: u8 = 1;
/// Maximum length in bytes of the label (name) of a server at a far end.
pub const LONGEST_LABEL: usize = 32;
/// Maximum number of copies of one handshake message (INIT) that the far end answers. A client
/// sends copies on several paths.
pub(crate) const MOST_COPIES: usize = 128;
/// Exclusive upper bound of the number of zeros that pad a handshake message.
const ZEROS: u8 = 64;
/// Exclusive upper bound of the number of packets in a session.
const MOST_SENT: u64 = 1 << 62;

/// Proof that the sender of a handshake receives packets at an address.
pub(crate) type Cookie = [u8; 16];

/// A parsed handshake message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message<'a> {
    Init { cookie: Cookie, noise: &'a [u8] },
    Answer { noise: &'a [u8] },
    Cookie(Cookie),
}

impl<'a> Message<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Message<'a>> {
        let (&kind, rest) = bytes.split_first()?;
        match kind {
            1 => {
                let (cookie, noise) = rest.split_first_chunk()?;
                Some(Message::Init { cookie: *cookie, noise })
            }
            2 => Some(Message::Answer { noise: rest }),
            3 => Some(Message::Cookie(rest.try_into().ok()?)),
            _ => None,
        }
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        match self {
            Message::Init { cookie, noise } => [&[1][..], cookie, noise].concat(),
            Message::Answer { noise } => [&[2][..], noise].concat(),
            Message::Cookie(cookie) => [&[3][..], cookie].concat(),
        }
    }
}

/// The near end's (client's) encrypted payload in the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// Random identifier that the near end chooses at its start. If the identifier has changed,
    /// the near end was restarted, and its packet numbers begin at 0 again.
    pub(crate) run: [u8; 8],
    /// The packet number of the near end's next packet.
    pub(crate) first: u64,
    /// Time in milliseconds since 1970. Each later handshake with the same key has a greater
    /// value.
    pub(crate) stamp: u64,
    /// The number of paths of the near end.
    pub(crate) paths: u8,
    /// Whether AES is fast on the near end's machine.
    pub(crate) aes: bool,
    /// The label of the requested server, which the far end's user has chosen. Empty if the far
    /// end has only one server.
    pub(crate) label: String,
}

impl Hello {
    pub(crate) fn read(bytes: &[u8]) -> Option<Hello> {
        let (&[VERSION], rest) = bytes.split_first_chunk()? else { return None };
        let (run, rest) = rest.split_first_chunk()?;
        let (first, rest) = rest.split_first_chunk()?;
        let (stamp, rest) = rest.split_first_chunk()?;
        let (&[paths, aes, length], rest) = rest.split_first_chunk()?;
        let label = rest.get(..usize::from(length)).filter(|label| label.len() <= LONGEST_LABEL)?;
        let label = std::str::from_utf8(label).ok()?.to_owned();
        let (first, stamp) = (u64::from_be_bytes(*first), u64::from_be_bytes(*stamp));
        // No session sends 2^62 packets. The bound leaves room for the numbers after `first`.
        let (sound, aes) = (paths > 0 && first < MOST_SENT, aes == 1);
        sound.then_some(Hello { run: *run, first, stamp, paths, aes, label })
    }

    pub(crate) fn write(&self, rng: &mut impl CryptoRng) -> Vec<u8> {
        let label = self.label.as_bytes();
        let length = u8::try_from(label.len()).expect("a label is shorter than 256 bytes");
        let (first, stamp) = (self.first.to_be_bytes(), self.stamp.to_be_bytes());
        let last = [self.paths, u8::from(self.aes), length];
        let head = [&[VERSION][..], &self.run, &first, &stamp, &last, label];
        padded(head.concat(), rng)
    }
}

/// The far end's encrypted payload in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Welcome {
    /// Random identifier that the far end has given to the session. If the identifier has changed,
    /// the far end has a new session, and its packet numbers begin at 0 again.
    pub(crate) run: [u8; 8],
    /// The packet number of the far end's next packet.
    pub(crate) first: u64,
    /// The number of paths that the far end accepts.
    pub(crate) paths: u8,
    /// Whether packets are encrypted with AES.
    pub(crate) aes: bool,
}

impl Welcome {
    pub(crate) fn read(bytes: &[u8]) -> Option<Welcome> {
        let (&[VERSION], rest) = bytes.split_first_chunk()? else { return None };
        let (run, rest) = rest.split_first_chunk()?;
        let (first, rest) = rest.split_first_chunk()?;
        let (first, [paths, aes]) = (u64::from_be_bytes(*first), *rest.first_chunk()?);
        let (sound, aes) = (paths > 0 && first < MOST_SENT, aes == 1);
        sound.then_some(Welcome { run: *run, first, paths, aes })
    }

    pub(crate) fn write(self, rng: &mut impl CryptoRng) -> Vec<u8> {
        let first = self.first.to_be_bytes();
        let last = [self.paths, u8::from(self.aes)];
        padded([&[VERSION][..], &self.run, &first, &last].concat(), rng)
    }
}

fn padded(mut bytes: Vec<u8>, rng: &mut impl CryptoRng) -> Vec<u8> {
    let mut zeros = [0];
    rng.fill_bytes(&mut zeros);
    bytes.resize(bytes.len() + usize::from(zeros[0] % ZEROS), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use anabranch_multipath::seed::stream;

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let rng = &mut stream(1, 0, "hello");
        let label = "home".to_owned();
        let hello = Hello { run: [7; 8], first: 9, stamp: 1 << 41, paths: 3, aes: true, label };
        assert_eq!(Hello::read(&hello.write(rng)), Some(hello));
        let welcome = Welcome { run: [1; 8], first: 3, paths: 2, aes: true };
        assert_eq!(Welcome::read(&welcome.write(rng)), Some(welcome));
        let noise = &[1, 2, 3][..];
        for message in [
            Message::Init { cookie: [4; 16], noise },
            Message::Answer { noise },
            Message::Cookie([5; 16]),
        ] {
            assert_eq!(Message::read(&message.write()), Some(message));
        }
    }

    #[test]
    fn later_versions_and_what_is_cut_are_none() {
        let rng = &mut stream(2, 0, "hello");
        let label = "ab".to_owned();
        let hello = Hello { run: [7; 8], first: 0, stamp: 1, paths: 1, aes: false, label };
        let mut bytes = hello.write(rng);
        (0..30).for_each(|length| assert_eq!(Hello::read(&bytes[..length]), None, "{length}"));
        bytes[0] = 2;
        assert_eq!(Hello::read(&bytes), None);
        assert_eq!(Welcome::read(&[1]), None);
        assert_eq!(Message::read(&[9, 0]), None);
    }
}

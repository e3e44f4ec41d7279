//! Parser of a login's output, which contains mosh-server's answer among lines of ssh and of the
//! server's shell.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Length of a key in characters: 16 bytes in base64 without its two `=`.
const KEY_LENGTH: usize = 22;

/// A session's key. It gives access to the session, so only [`Key::expose`] reveals it.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

/// Error: a text is not a key. The error does not contain the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyError;

impl Key {
    /// Returns the key as text, for mosh-client's environment.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Key, KeyError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '/';
        let good = text.len() == KEY_LENGTH && text.chars().all(allowed);
        if good { Ok(Key(text.to_owned())) } else { Err(KeyError) }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "this is not a Mosh key: write the {KEY_LENGTH} characters that mosh-server printed"
        )
    }
}

impl std::error::Error for KeyError {}

/// The meaning of one line of a login's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerLine {
    /// The line is not a part of mosh-server's answer. It may be meant for the user.
    Other,
    /// The line is a part of mosh-server's answer.
    Part,
    /// The line begins like a part of mosh-server's answer, but is malformed.
    Malformed,
}

/// The parts of mosh-server's answer that a login has received so far. A field is `None` until its
/// part has arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The UDP port and the key of the session (`MOSH CONNECT PORT KEY`).
    pub connect: Option<(u16, Key)>,
    /// The address that ssh connected to (`MOSH IP ADDRESS`, printed by the proxy command).
    pub reached: Option<IpAddr>,
    /// The server's address at which the ssh connection arrived, from `MOSH SSH_CONNECTION CLIENT
    /// PORT SERVER PORT`.
    pub remote: Option<IpAddr>,
}

impl Answer {
    /// Processes a line of a login's output, with or without its line break. A later line never
    /// changes a value that an earlier line has set, because after the server's first answer only
    /// the output of a shell follows.
    pub fn take(&mut self, line: &str) -> AnswerLine {
        let line = line.trim_end();
        if let Some(rest) = line.strip_prefix("MOSH CONNECT ") {
            return keep(&mut self.connect, connect(rest));
        }
        if let Some(rest) = line.strip_prefix("MOSH SSH_CONNECTION ") {
            return keep(&mut self.remote, rest.split(' ').nth(2).and_then(|ip| ip.parse().ok()));
        }
        if let Some(rest) = line.strip_prefix("MOSH IP ") {
            return keep(&mut self.reached, rest.parse().ok());
        }
        AnswerLine::Other
    }
}

fn keep<T>(place: &mut Option<T>, value: Option<T>) -> AnswerLine {
    let Some(value) = value else { return AnswerLine::Malformed };
    place.get_or_insert(value);
    AnswerLine::Part
}

fn connect(text: &str) -> Option<(u16, Key)> {
    let (port, key) = text.split_once(' ')?;
    let port = port.parse().ok().filter(|port| *port > 0)?;
    Some((port, key.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key that no session uses: letters in order.
    const KEY: &str = "abcdefghijklmnopqrstuv";

    #[test]
    fn an_answer_is_read_from_among_other_lines() {
        let mut answer = Answer::default();
        assert_eq!(answer.take("Warning: Permanently added 'h'.\r\n"), AnswerLine::Other);
        assert_eq!(answer.take("MOSH IP 2001:db8::1\n"), AnswerLine::Part);
        assert_eq!(
            answer.take("MOSH SSH_CONNECTION 192.0.2.7 5000 192.0.2.1 22\r\n"),
            AnswerLine::Part
        );
        assert_eq!(answer.take(&format!("MOSH CONNECT 60001 {KEY}\r\n")), AnswerLine::Part);
        let (port, key) = answer.connect.clone().unwrap();
        assert_eq!((port, key.expose()), (60001, KEY));
        assert_eq!(answer.reached, "2001:db8::1".parse().ok());
        assert_eq!(answer.remote, "192.0.2.1".parse().ok());
        assert!(!format!("{answer:?}").contains(KEY));
    }

    #[test]
    fn the_first_answer_counts() {
        let mut answer = Answer::default();
        answer.take("MOSH IP 192.0.2.1");
        assert_eq!(answer.take("MOSH IP 192.0.2.2"), AnswerLine::Part);
        assert_eq!(answer.reached, "192.0.2.1".parse().ok());
    }

    #[test]
    fn what_is_malformed_is_no_answer() {
        for line in [
            "MOSH CONNECT 60001",
            "MOSH CONNECT 0 abcdefghijklmnopqrstuv",
            "MOSH CONNECT 70000 abcdefghijklmnopqrstuv",
            "MOSH CONNECT 60001 short",
            "MOSH CONNECT 60001 abcdefghijklmnopqrstu;",
            "MOSH IP here",
            "MOSH SSH_CONNECTION 192.0.2.7 5000",
        ] {
            let mut answer = Answer::default();
            assert_eq!(
                (answer.take(line), answer),
                (AnswerLine::Malformed, Answer::default()),
                "{line}"
            );
        }
        assert_eq!(Answer::default().take(" MOSH IP 192.0.2.1"), AnswerLine::Other);
    }
}

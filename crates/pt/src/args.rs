//! Arguments that a pluggable transport needs for a bridge, as pairs of key and value, and their
//! encodings.

use std::fmt;

/// Maximum bytes of a SOCKS5 user name or password (RFC 1929).
const FIELD: usize = 255;

/// Arguments of a transport: pairs of key and value, in the given order. A key may occur more than
/// once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Args(pub Vec<(String, String)>);

/// Error: a text is not a list of pairs of key and value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgsError {
    /// This part of the text has no key: it has no `=`, or nothing before the `=`.
    NoKey(String),
    /// The text ends in a backslash, which must be followed by the character that it escapes.
    Unended,
    /// The text is not valid UTF-8.
    NoText,
    /// The encoded pairs have this length in bytes, and exceed the 510 bytes of a SOCKS5 user name
    /// and password.
    TooLong(usize),
}

impl fmt::Display for ArgsError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArgsError::NoKey(part) => write!(out, "'{part}' is not KEY=VALUE"),
            ArgsError::Unended => out.write_str(
                "the value of the last KEY=VALUE argument ends in a backslash: remove the \
                 backslash",
            ),
            ArgsError::NoText => out.write_str("it is not text"),
            ArgsError::TooLong(length) => {
                write!(
                    out,
                    "the KEY=VALUE arguments have {length} bytes in all, but SOCKS5 carries at \
                     most 510: shorten them"
                )
            }
        }
    }
}

impl std::error::Error for ArgsError {}

impl Args {
    /// Returns the first value of `key`; `None` if there is none.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(one, _)| one == key).map(|(_, value)| &**value)
    }

    /// Returns whether there are no arguments.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a pair from a bridge line: `KEY=VALUE`, without escapes.
    ///
    /// # Errors
    /// [`ArgsError::NoKey`] if `word` has no key.
    pub fn add_plain(&mut self, word: &str) -> Result<(), ArgsError> {
        let (key, value) = word
            .split_once('=')
            .filter(|(key, _)| !key.is_empty())
            .ok_or_else(|| ArgsError::NoKey(word.to_owned()))?;
        self.0.push((key.to_owned(), value.to_owned()));
        Ok(())
    }

    /// Encodes the pairs as a SOCKS5 user name and password, both non-empty.
    ///
    /// # Errors
    /// [`ArgsError::TooLong`] if the pairs do not fit.
    pub fn to_socks(&self) -> Result<(Vec<u8>, Vec<u8>), ArgsError> {
        let text = self.escaped(';').into_bytes();
        if text.len() > 2 * FIELD {
            return Err(ArgsError::TooLong(text.len()));
        }
        // A field that consists of a single NUL would be decoded as an empty one.
        let alone = text.get(FIELD..) == Some(&[0]);
        let (user, password) = text.split_at(text.len().min(FIELD - usize::from(alone)));
        let or_nul = |field: &[u8]| if field.is_empty() { vec![0] } else { field.to_vec() };
        Ok((or_nul(user), or_nul(password)))
    }

    /// Decodes the pairs from a SOCKS5 user name and password.
    ///
    /// # Errors
    /// User name and password, joined, are not a list of `KEY=VALUE` pairs.
    pub fn from_socks(user: &[u8], password: &[u8]) -> Result<Args, ArgsError> {
        // A single NUL stands for an empty field, as RFC 1929 requires at least one byte.
        let password = if password == [0] { &[][..] } else { password };
        let user = if user == [0] { &[][..] } else { user };
        let all = [user, password].concat();
        let text = String::from_utf8(all).map_err(|_| ArgsError::NoText)?;
        Args::parse(&text, ';')
    }

    /// Encodes the pairs for an `SMETHOD` line, in which they follow `ARGS:`.
    #[must_use]
    pub fn to_smethod(&self) -> String {
        self.escaped(',')
    }

    /// Encodes the pairs for `TOR_PT_SERVER_TRANSPORT_OPTIONS`, as options of the transport
    /// `name`.
    #[must_use]
    pub fn to_options(&self, name: &str) -> String {
        let one = |(key, value): &(String, String)| {
            let pair = Args(vec![(key.clone(), value.clone())]).escaped(';').replace(':', "\\:");
            format!("{name}:{pair}")
        };
        self.0.iter().map(one).collect::<Vec<_>>().join(";")
    }

    /// Decodes the pairs that follow `ARGS:` in an `SMETHOD` line.
    ///
    /// # Errors
    /// The text is not a list of pairs.
    pub fn from_smethod(text: &str) -> Result<Args, ArgsError> {
        Args::parse(text, ',')
    }

    /// Encodes each pair as `KEY=VALUE`, and joins the pairs with the separator `between`. In a
    /// pair, puts a backslash before each backslash, `=` and `between`.
    fn escaped(&self, between: char) -> String {
        let mut text = String::new();
        for (place, (key, value)) in self.0.iter().enumerate() {
            if place > 0 {
                text.push(between);
            }
            escape(key, between, &mut text);
            text.push('=');
            escape(value, between, &mut text);
        }
        text
    }

    pub(crate) fn parse(text: &str, between: char) -> Result<Args, ArgsError> {
        let mut args = Args::default();
        if text.is_empty() {
            return Ok(args);
        }
        for part in split(text, between) {
            let mut halves = split(part, '=');
            let key = unescape(halves.next().unwrap_or_default())?;
            let rest: Vec<&str> = halves.collect();
            if key.is_empty() || rest.is_empty() {
                return Err(ArgsError::NoKey(part.to_owned()));
            }
            // A value may contain an unescaped `=`: base64 ends with it, and not every program
            // escapes it.
            args.0.push((key, unescape(&rest.join("="))?));
        }
        Ok(args)
    }
}

fn escape(text: &str, between: char, out: &mut String) {
    for one in text.chars() {
        if matches!(one, '\\' | '=') || one == between {
            out.push('\\');
        }
        out.push(one);
    }
}

fn unescape(text: &str) -> Result<String, ArgsError> {
    let mut out = String::with_capacity(text.len());
    let mut all = text.chars();
    while let Some(one) = all.next() {
        match one {
            '\\' => out.push(all.next().ok_or(ArgsError::Unended)?),
            one => out.push(one),
        }
    }
    Ok(out)
}

/// Splits a text at each separator `between` that is not escaped by a backslash.
pub(crate) fn split(text: &str, between: char) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let all = rest?;
        let mut escaped = false;
        let end = all.char_indices().find(|(_, one)| {
            let ends = *one == between && !escaped;
            escaped = *one == '\\' && !escaped;
            ends
        });
        let Some((end, _)) = end else { return rest.take() };
        rest = Some(&all[end + between.len_utf8()..]);
        Some(&all[..end])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(pairs: &[(&str, &str)]) -> Args {
        Args(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn what_socks_carries_comes_back_whatever_it_holds() {
        let long = "x".repeat(300);
        let ends_in_nul = format!("{}\0", "x".repeat(253));
        for pairs in [
            &[][..],
            &[("cert", "ab+/c="), ("iat-mode", "0")],
            &[("a;b", "c\\d"), ("e=f", "g,h;")],
            &[("k", &long)],
            &[("k", &ends_in_nul)],
            &[("k", "")],
            &[("ü", "ß")],
        ] {
            let all = args(pairs);
            let (user, password) = all.to_socks().unwrap();
            assert!((1..=255).contains(&user.len()) && (1..=255).contains(&password.len()));
            assert_eq!(Args::from_socks(&user, &password), Ok(all.clone()));
            assert_eq!(Args::from_smethod(&all.to_smethod()), Ok(all));
        }
        let (user, password) = args(&[("k", "v")]).to_socks().unwrap();
        assert_eq!((&*user, &*password), (&b"k=v"[..], &[0][..]));
        assert_eq!(args(&[("k", &"x".repeat(509))]).to_socks(), Err(ArgsError::TooLong(511)));
    }

    #[test]
    fn values_may_hold_the_sign_itself_and_nonsense_is_told() {
        assert_eq!(Args::parse("cert=ab==;x=y", ';'), Ok(args(&[("cert", "ab=="), ("x", "y")])));
        assert_eq!(Args::parse("rocks", ';'), Err(ArgsError::NoKey("rocks".to_owned())));
        assert_eq!(Args::parse("=v", ';'), Err(ArgsError::NoKey("=v".to_owned())));
        assert_eq!(Args::parse("k=v\\", ';'), Err(ArgsError::Unended));
        assert_eq!(Args::from_socks(&[0xff], &[0]), Err(ArgsError::NoText));
        let mut plain = Args::default();
        assert!(plain.add_plain("url=https://a/?b=c").is_ok() && plain.add_plain("no").is_err());
        assert_eq!(plain.get("url"), Some("https://a/?b=c"));
    }
}

//! "Finder 1": the rule that finds the positions in a site's bodies at which bytes can be hidden.
//! The receiver applies this rule to the changed body and finds the same positions, so the two
//! ends need no common database.

use base64ct::{Base64UrlUnpadded, Encoding};

use super::super::NotCover;
use super::super::jpeg::Picture;

/// Minimum number of characters in a quoted string that can hide bytes.
const RUN: usize = 32;
/// Threshold of the chi-square statistic with 255 degrees of freedom. For random bytes the
/// statistic is 255 on average, and above 380 once in a million.
const CHI_SQUARE: f64 = 380.0;
/// Minimum length in bytes of a body whose randomness the chi-square test can judge.
const TELLING: usize = 1_024;

/// The part of an answer's body that hides bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hiding {
    /// The whole body is replaced by hidden bytes. This suits encrypted media and archives.
    Opaque,
    /// Quoted strings of 32 or more characters of base64url hide bytes, in JSON and JavaScript.
    Text,
    /// Bits in the coded data of a baseline JPEG hide bytes.
    Image,
}

impl Hiding {
    /// Returns which part of a body with this content type may hide bytes; `None` if no part may.
    /// For such a type, the receiver of a body assumes [`Hiding::Opaque`].
    pub(in super::super) fn of(content_type: &str) -> Option<Hiding> {
        let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let texts = ["application/json", "text/json", "application/javascript", "text/javascript"];
        match &*kind {
            "image/jpeg" => Some(Hiding::Image),
            text if texts.contains(&text) || text.ends_with("+json") => Some(Hiding::Text),
            "application/octet-stream" | "application/vnd.apple.mpegurl" => Some(Hiding::Opaque),
            media if media.starts_with("video/") || media.starts_with("audio/") => {
                Some(Hiding::Opaque)
            }
            _ => None,
        }
    }

    /// Returns the bytes that are hidden in a body.
    ///
    /// # Errors
    /// The body is not of this kind.
    pub(in super::super) fn find(self, body: &[u8]) -> Result<Vec<u8>, NotCover> {
        match self {
            Hiding::Opaque => Ok(body.to_vec()),
            Hiding::Image => Picture::read(body).map(|one| one.hidden()).map_err(|_| NotCover),
            Hiding::Text => {
                let mut hidden = Vec::new();
                for (start, length) in runs(body) {
                    let mut buffer = vec![0; length / 4 * 3];
                    let text = &body[start..start + length];
                    let read = Base64UrlUnpadded::decode(text, &mut buffer);
                    hidden.extend_from_slice(read.map_err(|_| NotCover)?);
                }
                Ok(hidden)
            }
        }
    }
}

/// Returns whether the frequencies of byte values in `body` are those of encrypted bytes, by a
/// chi-square test.
pub(super) fn is_random(body: &[u8]) -> bool {
    let mut counts = [0_u32; 256];
    body.iter().for_each(|&byte| counts[usize::from(byte)] += 1);
    let expected = body.len() as f64 / 256.0;
    let square = |count: &u32| (f64::from(*count) - expected).powi(2) / expected;
    body.len() >= TELLING && counts.iter().map(square).sum::<f64>() < CHI_SQUARE
}

/// Returns the position and length of each string that can hide bytes. Such strings are in quotes,
/// consist of base64url characters, and are not followed by a colon (which would make them names
/// of JSON members). A length is a multiple of 4.
pub(super) fn runs(body: &[u8]) -> Vec<(usize, usize)> {
    let (mut runs, mut at) = (Vec::new(), 0);
    while at < body.len() {
        let quote = body[at];
        at += 1;
        if !matches!(quote, b'"' | b'\'') {
            continue;
        }
        let plain = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let length = body[at..].iter().take_while(plain).count();
        let end = at + length;
        if length < RUN || body.get(end) != Some(&quote) {
            at = end;
            continue;
        }
        let next = body[end + 1..].iter().find(|byte| !byte.is_ascii_whitespace());
        if next != Some(&b':') {
            runs.push((at, length / 4 * 4));
        }
        at = end + 1;
    }
    runs
}

/// Appends `body` with the bytes `hidden` in the strings that `runs` lists by position and length.
/// Drops the bytes for which these strings have no room.
pub(super) fn fill(body: &[u8], runs: &[(usize, usize)], hidden: &[u8], out: &mut Vec<u8>) {
    let (mut hidden, begins) = (hidden, out.len());
    out.extend_from_slice(body);
    for &(start, length) in runs {
        // Three bytes make four characters; a remainder below three is dropped.
        let (part, rest) = hidden.split_at((length / 4 * 3).min(hidden.len() / 3 * 3));
        let text = Base64UrlUnpadded::encode_string(part);
        out[begins + start..][..text.len()].copy_from_slice(text.as_bytes());
        hidden = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_stay_where_they_are_whatever_is_hidden() {
        let long = "Ab3_-".repeat(9);
        let text = format!(
            "{{\"{long}\" : 1, \"k\":\"{long}\", 'x':'{long}', \"short\":\"Ab3\", \"no\":\"{long}=\",\
             \"y\":\"{long}'\", \"z\":\"{long}\"}}"
        );
        let found = runs(text.as_bytes());
        assert_eq!(found.len(), 3);
        assert!(found.iter().all(|(_, length)| *length == 44));
        for byte in [0, 0x55, 0xff] {
            let (hidden, mut changed) = (vec![byte; 99], Vec::new());
            fill(text.as_bytes(), &found, &hidden, &mut changed);
            assert_eq!(runs(&changed), found);
            assert_eq!(Hiding::Text.find(&changed), Ok(hidden));
            assert_eq!(changed.len(), text.len());
        }
    }

    #[test]
    fn what_is_encrypted_is_random_and_texts_are_not() {
        let mut state = 9_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let noise: Vec<u8> = (0..9_000).map(|_| next()).collect();
        assert!(is_random(&noise) && !is_random(&noise[..900]));
        assert!(!is_random(&[noise, vec![0; 300]].concat()) && !is_random(&b"text ".repeat(900)));
    }

    #[test]
    fn types_say_what_hides() {
        for (kind, hiding) in [
            ("image/jpeg", Some(Hiding::Image)),
            ("Application/JSON; charset=utf-8", Some(Hiding::Text)),
            ("application/ld+json", Some(Hiding::Text)),
            ("text/javascript", Some(Hiding::Text)),
            ("video/iso.segment", Some(Hiding::Opaque)),
            ("text/html", None),
            ("image/png", None),
            ("", None),
        ] {
            assert_eq!(Hiding::of(kind), hiding, "{kind}");
        }
    }
}

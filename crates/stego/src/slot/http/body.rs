//! Bodies of HTTP requests and answers, by tier (the way in which a body hides bytes).

use base64ct::{Base64UrlUnpadded, Encoding};

use super::jpeg::Picture;
use super::site::Hiding;
use super::{Hidden, LARGEST, NotCover};

/// Number of hidden bytes in one string of a JSON list.
const PIECE: usize = 768;
/// Number of characters in one string of a JSON list. Base64url encodes 3 bytes as 4 characters.
const CHARACTERS: usize = PIECE / 3 * 4;

/// The way in which the bodies of HTTP messages hide bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// The body consists of hidden bytes without encoding, as in encrypted video.
    Opaque,
    /// The body is JSON, with a list of strings in base64url.
    Text,
    /// Answers are pictures. Requests have the form of [`Tier::Opaque`].
    Image,
    /// Answers are objects (files of any type) of a web site. Requests have the form of
    /// [`Tier::Opaque`].
    Site,
}

impl Tier {
    /// Returns the content type of answers.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Tier::Opaque | Tier::Site => "video/mp4",
            Tier::Text => "application/json",
            Tier::Image => "image/jpeg",
        }
    }

    /// Returns the content type of a POST's body.
    pub(super) fn upload_type(self) -> &'static str {
        match self {
            Tier::Opaque | Tier::Image | Tier::Site => "application/octet-stream",
            Tier::Text => "application/json",
        }
    }

    /// Returns the tier (the way of hiding bytes) of the requests in connections whose answers
    /// have this tier.
    pub(super) fn upwards(self) -> Tier {
        if matches!(self, Tier::Image | Tier::Site) { Tier::Opaque } else { self }
    }

    /// Returns the number of bytes that any body of `body` bytes can hide. It is 0 for pictures
    /// and objects of a site, whose capacities differ.
    pub(super) fn capacity(self, body: usize) -> usize {
        match self {
            Tier::Opaque => body,
            Tier::Image | Tier::Site => 0,
            Tier::Text => {
                // At most 32 bytes surround the list, and 3 bytes surround each string.
                let (texts, rest) = (
                    body.saturating_sub(32) / (CHARACTERS + 3),
                    body.saturating_sub(32) % (CHARACTERS + 3),
                );
                texts * PIECE + rest.saturating_sub(3) / 4 * 3
            }
        }
    }

    /// Appends a body that contains the `hidden` bytes. `list` is the name of the JSON member
    /// whose strings hide the bytes.
    pub(super) fn write(self, hidden: &[u8], list: &str, out: &mut Vec<u8>) {
        if self != Tier::Text {
            return out.extend_from_slice(hidden);
        }
        out.extend_from_slice(open(list).as_bytes());
        for (place, piece) in hidden.chunks(PIECE).enumerate() {
            out.extend_from_slice(if place == 0 { b"\"" } else { b",\"" });
            out.extend_from_slice(Base64UrlUnpadded::encode_string(piece).as_bytes());
            out.push(b'"');
        }
        out.extend_from_slice(b"]}");
    }
}

fn open(list: &str) -> String {
    format!("{{\"{list}\":[")
}

/// A body that is being received.
#[derive(Debug)]
pub(super) struct Body {
    left: usize,
    kind: Kind,
}

/// The kind of the body, and its received bytes that are not processed yet.
#[derive(Debug)]
enum Kind {
    Opaque,
    Text(Text),
    /// A picture, which is read as a whole.
    Image(Vec<u8>),
    /// An object (file) of a site, which is read as a whole. The first field states which part of
    /// the object hides bytes.
    Site(Hiding, Vec<u8>),
}

/// A JSON text that is being received, in the only form that [`Tier::write`] produces.
#[derive(Debug, Default)]
struct Text {
    received: Vec<u8>,
    stage: TextStage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TextStage {
    #[default]
    Opening,
    List,
    Closing,
}

impl Body {
    /// Creates the parser of a body of `length` bytes.
    ///
    /// # Errors
    /// No body of this kind has this length.
    pub(super) fn new(tier: Tier, length: usize) -> Result<Body, NotCover> {
        if !(1..=LARGEST).contains(&length) {
            return Err(NotCover);
        }
        let kind = match tier {
            Tier::Opaque => Kind::Opaque,
            Tier::Text => Kind::Text(Text::default()),
            Tier::Image => Kind::Image(Vec::new()),
            Tier::Site => Kind::Site(Hiding::Opaque, Vec::new()),
        };
        Ok(Body { left: length, kind })
    }

    /// Creates the parser of a body that is an object (file) of a site, with the content type
    /// `kind` and `length` bytes.
    ///
    /// # Errors
    /// No object of a site has this length.
    pub(super) fn of_site(kind: &str, length: usize) -> Result<Body, NotCover> {
        let mut body = Body::new(Tier::Site, length)?;
        body.kind = Kind::Site(Hiding::of(kind).unwrap_or(Hiding::Opaque), Vec::new());
        Ok(body)
    }

    /// Parses the part of `bytes` that belongs to the body, removes it from `bytes`, and passes
    /// its hidden bytes to `each`. Returns whether the body is complete.
    ///
    /// # Errors
    /// The bytes are not a body of the expected kind.
    pub(super) fn take(
        &mut self,
        bytes: &mut &[u8],
        list: &str,
        each: &mut dyn FnMut(Hidden<'_>),
    ) -> Result<bool, NotCover> {
        let (part, rest) = bytes.split_at(self.left.min(bytes.len()));
        *bytes = rest;
        self.left -= part.len();
        match &mut self.kind {
            Kind::Opaque if part.is_empty() => {}
            Kind::Opaque => each(Hidden::Bytes(part)),
            Kind::Image(received) => {
                received.extend_from_slice(part);
                if self.left == 0 {
                    let picture = Picture::read(received).map_err(|_| NotCover)?;
                    each(Hidden::Bytes(&picture.hidden()));
                }
            }
            Kind::Site(hiding, received) => {
                received.extend_from_slice(part);
                if self.left == 0 {
                    each(Hidden::Bytes(&hiding.find(received)?));
                }
            }
            Kind::Text(text) => {
                text.received.extend_from_slice(part);
                while text.step(list, each)? {}
                let whole = text.stage == TextStage::Closing && text.received == b"}";
                if self.left == 0 && !whole {
                    return Err(NotCover);
                }
            }
        }
        Ok(self.left == 0)
    }
}

impl Text {
    /// Processes the next part of the text. Returns false if more bytes are needed.
    fn step(&mut self, list: &str, each: &mut dyn FnMut(Hidden<'_>)) -> Result<bool, NotCover> {
        match self.stage {
            TextStage::Opening => {
                let opening = open(list);
                if self.received.len() < opening.len() {
                    return Ok(false);
                }
                let whole = self.received.starts_with(opening.as_bytes());
                whole.then(|| self.received.drain(..opening.len())).ok_or(NotCover)?;
                self.stage = TextStage::List;
            }
            TextStage::List => {
                let ends = |byte: &u8| matches!(byte, b',' | b']');
                let Some(end) = self.received.iter().position(ends) else {
                    let fits = self.received.len() <= CHARACTERS + 2;
                    return if fits { Ok(false) } else { Err(NotCover) };
                };
                let last = self.received[end] == b']';
                each(Hidden::Bytes(&read_piece(&self.received[..end], last)?));
                self.received.drain(..=end);
                self.stage = if last { TextStage::Closing } else { TextStage::List };
            }
            TextStage::Closing => return Ok(false),
        }
        Ok(true)
    }
}

/// Decodes a string of the list. If `last` is false, the string must have [`CHARACTERS`]
/// characters; the last string may be shorter.
fn read_piece(quoted: &[u8], last: bool) -> Result<Vec<u8>, NotCover> {
    let characters = quoted.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    let characters = characters.ok_or(NotCover)?;
    let least = if last { 1 } else { CHARACTERS };
    if !(least..=CHARACTERS).contains(&characters.len()) {
        return Err(NotCover);
    }
    let mut buffer = [0; PIECE];
    let read = Base64UrlUnpadded::decode(characters, &mut buffer).map_err(|_| NotCover)?;
    Ok(read.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &[u8], list: &str) -> Result<Vec<u8>, NotCover> {
        let (mut body, mut hidden) = (Body::new(Tier::Text, text.len())?, Vec::new());
        let mut whole = false;
        for byte in text {
            whole = body.take(&mut &[*byte][..], list, &mut |one| {
                if let Hidden::Bytes(bytes) = one {
                    hidden.extend_from_slice(bytes);
                }
            })?;
        }
        if whole { Ok(hidden) } else { Err(NotCover) }
    }

    #[test]
    fn a_text_has_one_form() {
        for length in [1, 2, 3, PIECE, PIECE + 1, 3 * PIECE] {
            let (hidden, mut text) = (vec![0xa5; length], Vec::new());
            Tier::Text.write(&hidden, "rows", &mut text);
            assert_eq!(read_text(&text, "rows"), Ok(hidden));
            assert_eq!(read_text(&text, "row"), Err(NotCover));
            assert!(text.is_ascii() && Tier::Text.capacity(text.len()) <= length);
            assert_eq!(read_text(&text[..text.len() - 1], "rows"), Err(NotCover), "cut");
        }
        let wrong: [&[u8]; 8] = [
            b"",
            b"{\"rows\":[\"AAAA\"]}}",
            b"{\"rows\":[]}",
            b"{\"rows\":[\"\"]}",
            b"{\"rows\":[\"AAA=\"]}",
            b"{\"rows\":[\"AAAA\",\"AAAA\"]}",
            b"{\"rows\":[\"AAAA\"] }",
            b"{\"rows\":[\"AA\"AA\"]}",
        ];
        for text in wrong {
            assert_eq!(read_text(text, "rows"), Err(NotCover), "{text:?}");
        }
    }

    #[test]
    fn a_body_of_any_length_holds_what_it_says() {
        for tier in [Tier::Opaque, Tier::Text] {
            for body in (0..9_000).step_by(7) {
                let mut text = Vec::new();
                let capacity = tier.capacity(body);
                tier.write(&vec![1; capacity], "a-list-of-a-long-name", &mut text);
                assert!(capacity == 0 || text.len() <= body, "{tier:?} {body}");
            }
        }
    }
}

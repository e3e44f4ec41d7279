//! A web site whose answers hide bytes. It consists of objects (files such as pictures and
//! scripts), in the order in which its pages request them.

mod finder;
mod notes;

use std::fmt;

use super::jpeg::Picture;
pub use finder::Hiding;
pub(crate) use notes::Notes;

/// Maximum bytes of an object of the site (a file, sent as the body of an answer).
const LONGEST: usize = 120_000;
/// Minimum number of bytes that an object (a file of the site) must be able to hide.
const LEAST: usize = 512;
/// Maximum bytes of an object's URL path.
const PATH: usize = 200;
/// Maximum bytes of the recorded headers of an object's answer.
const HEAD: usize = 3_000;
/// Maximum number of recorded headers of an object's answer.
const LINES: usize = 40;

/// The reason why an object (a file of a web site) cannot hide bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Refusal {
    /// The object's URL path is longer than 200 bytes or has special characters.
    Path,
    /// A line of the object's head is invalid, or there are too many lines.
    Head,
    /// Bodies with the object's content type cannot hide bytes.
    Type,
    /// The object is longer than 120,000 bytes.
    Long,
    /// The object hides fewer than 512 bytes.
    Little,
    /// The object is not a baseline JPEG of one scan.
    Picture,
    /// The object's content does not look random, so hidden bytes in it would be conspicuous.
    Random,
    /// A test with the object failed: bytes hidden in it were not found again.
    Lost,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Path => "a path of more than 200 bytes or with special characters",
            Refusal::Head => "an invalid header",
            Refusal::Type => "a content type that cannot hide bytes",
            Refusal::Long => "longer than 120,000 bytes",
            Refusal::Little => "room for fewer than 512 hidden bytes",
            Refusal::Picture => "not a baseline JPEG of one scan",
            Refusal::Random => "not encrypted",
            Refusal::Lost => "hidden bytes cannot be read back",
        })
    }
}

impl std::error::Error for Refusal {}

/// The positions in a body that hide bytes.
#[derive(Clone, Debug)]
enum Slots {
    Opaque,
    Text(Vec<u8>, Vec<(usize, usize)>),
    Image(Box<Picture>),
}

/// An object (a file such as a picture or a script) of a web site. Answers with the object can
/// hide bytes in it.
#[derive(Clone, Debug)]
pub struct Object {
    path: String,
    headers: Vec<(String, String)>,
    slots: Slots,
    capacity: usize,
}

impl Object {
    /// Creates an object from its path, the headers of its answer in order, and its body. Each
    /// answer sets its own values of `Date`, `Content-Length` and `Connection`, at the positions
    /// of these headers in `headers`.
    ///
    /// # Errors
    /// [`Refusal`] if the object cannot hide bytes.
    pub fn new(path: &str, headers: Vec<(String, String)>, body: &[u8]) -> Result<Object, Refusal> {
        path_is_plain(path).then_some(()).ok_or(Refusal::Path)?;
        head_is_usual(&headers).then_some(()).ok_or(Refusal::Head)?;
        let mut kinds =
            headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let kind = kinds.next().and_then(|(_, kind)| Hiding::of(kind)).ok_or(Refusal::Type)?;
        kinds.next().is_none().then_some(()).ok_or(Refusal::Head)?;
        (body.len() <= LONGEST).then_some(()).ok_or(Refusal::Long)?;
        let (slots, capacity) = match kind {
            Hiding::Opaque if !finder::is_random(body) => return Err(Refusal::Random),
            Hiding::Opaque => (Slots::Opaque, body.len()),
            Hiding::Text => {
                let runs = finder::runs(body);
                let capacity = runs.iter().map(|(_, length)| length / 4 * 3).sum();
                (Slots::Text(body.to_vec(), runs), capacity)
            }
            Hiding::Image => {
                let picture = Picture::read(body).map_err(|_| Refusal::Picture)?;
                let capacity = picture.capacity();
                (Slots::Image(Box::new(picture)), capacity)
            }
        };
        (capacity >= LEAST).then_some(()).ok_or(Refusal::Little)?;
        let object = Object { path: path.to_owned(), headers, slots, capacity };
        // The tested bytes are the two extremes and one value between them. Each must be read back
        // unchanged.
        let found = |hidden: &Vec<u8>| kind.find(&object.changed(hidden)).as_ref() == Ok(hidden);
        let noise = (0..capacity).map(|at| (at ^ at >> 7).wrapping_mul(167) as u8).collect();
        let whole = [vec![0; capacity], vec![0xff; capacity], noise].iter().all(found);
        whole.then_some(object).ok_or(Refusal::Lost)
    }

    /// Returns the URL path of the object.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the headers of the answer that contains the object, in order.
    #[must_use]
    pub fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// Returns the number of bytes that the object can hide.
    #[must_use]
    pub fn hides(&self) -> usize {
        self.capacity
    }

    /// Returns the part of the object's body that hides bytes.
    #[must_use]
    pub fn hiding(&self) -> Hiding {
        match self.slots {
            Slots::Opaque => Hiding::Opaque,
            Slots::Text(..) => Hiding::Text,
            Slots::Image(_) => Hiding::Image,
        }
    }

    /// Builds the object's body with the bytes `hidden` in it. Their count must be the result of
    /// [`Object::hides`].
    #[must_use]
    pub fn changed(&self, hidden: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match &self.slots {
            Slots::Opaque => out.extend_from_slice(hidden),
            Slots::Text(body, runs) => finder::fill(body, runs, hidden, &mut out),
            Slots::Image(picture) => picture.write(hidden, &mut out),
        }
        out
    }

    /// Appends the head of the answer with the object, for a body of `length` bytes, at this
    /// `date`.
    pub(in crate::slot::http) fn head(
        &self,
        date: &str,
        (length, closes): (usize, bool),
        out: &mut Vec<u8>,
    ) {
        let connection = if closes { "close" } else { "keep-alive" };
        let (tag, length) = (self.tag(length), length.to_string());
        let (mut written, mut text) = ([false; 2], "HTTP/1.1 200 OK\r\n".to_owned());
        for (name, value) in &self.headers {
            let value = match &*name.to_ascii_lowercase() {
                "date" => date,
                "content-length" => {
                    written[0] = true;
                    &length
                }
                "connection" => {
                    written[1] = true;
                    connection
                }
                "etag" => tag.as_deref().unwrap_or(value),
                _ => value,
            };
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if !written[0] {
            text.push_str(&format!("Content-Length: {length}\r\n"));
        }
        if !written[1] && closes {
            text.push_str("Connection: close\r\n");
        }
        text.push_str("\r\n");
        out.extend_from_slice(text.as_bytes());
    }

    /// Returns an `ETag` for a body of `length` bytes: the recorded response's tag, in which
    /// `length` replaces the length of the recorded body. Returns `None` if the recorded tag does
    /// not end with that length, as nginx's tags do.
    fn tag(&self, length: usize) -> Option<String> {
        let value_of = |name: &str| {
            let line = self.headers.iter().find(|(of, _)| of.eq_ignore_ascii_case(name));
            line.map(|(_, value)| value)
        };
        let recorded: usize = value_of("content-length")?.parse().ok()?;
        let time = value_of("etag")?.strip_suffix(&format!("-{recorded:x}\""))?;
        Some(format!("{time}-{length:x}\""))
    }
}

/// Returns whether `path` is valid as the URL path of an object: it begins with `/`, is short, and
/// has only printable characters.
fn path_is_plain(path: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#');
    path.starts_with('/') && path.len() <= PATH && path.bytes().all(plain)
}

/// Returns whether `headers` are valid lines of a head, and none contradicts the length of the
/// body.
fn head_is_usual(headers: &[(String, String)]) -> bool {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let line = |(name, value): &(String, String)| {
        let foreign = ["transfer-encoding", "content-encoding", "set-cookie", "content-range"];
        !name.is_empty()
            && name.bytes().all(token)
            && value.bytes().all(|byte| (0x20..0x7f).contains(&byte))
            && !foreign.contains(&&*name.to_ascii_lowercase())
    };
    // Headers that each answer rewrites may occur only once. If one of them occurred twice, a
    // reader might use either value.
    let ours = ["content-length", "connection", "date"];
    let times = |name: &str| headers.iter().filter(|(of, _)| of.eq_ignore_ascii_case(name)).count();
    let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
    headers.len() <= LINES
        && bytes <= HEAD
        && headers.iter().all(line)
        && ours.into_iter().all(|name| times(name) <= 1)
}

/// A web site: objects (files) that hide bytes, grouped by page.
#[derive(Clone, Debug, Default)]
pub struct Site {
    objects: Vec<Object>,
    /// For each page, the indices of its objects in `objects`, in the order in which they are
    /// requested.
    pages: Vec<Vec<usize>>,
}

impl Site {
    /// Adds a page that consists of these objects. If the site already has an object with the same
    /// path, that object is used instead of the new one. An empty page is ignored.
    pub fn add(&mut self, page: Vec<Object>) {
        let mut places = Vec::new();
        for object in page {
            let place = self.objects.iter().position(|other| other.path == object.path);
            places.push(place.unwrap_or(self.objects.len()));
            if place.is_none() {
                self.objects.push(object);
            }
        }
        self.pages.extend((!places.is_empty()).then_some(places));
    }

    /// Returns whether the site has no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Returns all objects.
    #[must_use]
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// Returns the index of the object with the URL path `path`. For an unknown path, returns a
    /// picture or, if there are none, the first object of a page; `turn` chooses among several.
    pub(in crate::slot::http) fn at(&self, path: &str, turn: usize) -> usize {
        if let Some(place) = self.objects.iter().position(|object| object.path == path) {
            return place;
        }
        let pictures = |place: &usize| self.objects[*place].hiding() == Hiding::Image;
        let pictures: Vec<usize> = (0..self.objects.len()).filter(pictures).collect();
        let first = |page: &Vec<usize>| page[0];
        let firsts = || self.pages.get(turn % self.pages.len().max(1)).map_or(0, first);
        pictures.get(turn % pictures.len().max(1)).copied().unwrap_or_else(firsts)
    }

    /// Returns the index of the object to request after `object`: the next object on a page that
    /// contains `object`. If `object` is the last object of that page, returns the first object of
    /// any page. `turn` chooses among several possible pages.
    pub(in crate::slot::http) fn next(&self, object: usize, turn: usize) -> usize {
        let next_index = |page: &Vec<usize>| {
            let at = page.iter().position(|one| *one == object)?;
            Some(page.get(at + 1).copied())
        };
        let all: Vec<Option<usize>> = self.pages.iter().filter_map(next_index).collect();
        let (of, turn) = (turn % all.len().max(1), turn / all.len().max(1));
        let page = || self.pages.get(turn % self.pages.len().max(1)).map_or(0, |page| page[0]);
        all.get(of).copied().flatten().unwrap_or_else(page)
    }

    /// Returns the number of bytes that an answer with `object` can hide, in addition to the URL
    /// path of the object `next`, which the client is to request next.
    pub(in crate::slot::http) fn room(&self, object: usize, next: usize) -> usize {
        let path = self.objects.get(next).map_or(0, |next| next.path.len());
        let whole = self.objects.get(object).map_or(0, Object::hides);
        whole.saturating_sub(Notes::LENGTH + path)
    }
}

#[cfg(test)]
mod tests {
    use super::super::jpeg::tests::COLOUR;
    use super::*;

    fn head(kind: &str) -> Vec<(String, String)> {
        let line = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        vec![
            line("Server", "Caddy"),
            line("Date", "x"),
            line("Content-Type", kind),
            line("X-Own", "1"),
            line("Content-Length", "7"),
        ]
    }

    fn text(runs: usize) -> Vec<u8> {
        format!("[{}\"\"]", format!("\"{}\",", "aB3_".repeat(60)).repeat(runs)).into_bytes()
    }

    #[test]
    fn an_object_has_the_head_that_was_recorded() {
        let object = Object::new("/a.jpg", head("image/jpeg"), COLOUR).unwrap();
        let mut out = Vec::new();
        object.head("now", (99, true), &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "HTTP/1.1 200 OK\r\nServer: Caddy\r\nDate: now\r\nContent-Type: image/jpeg\r\n\
             X-Own: 1\r\nContent-Length: 99\r\nConnection: close\r\n\r\n"
        );
        assert_eq!((object.hiding(), object.path()), (Hiding::Image, "/a.jpg"));
    }

    #[test]
    fn an_etag_of_nginx_says_the_length_that_is_sent() {
        for (recorded, sent) in [
            ("\"65f0a1b2-7\"", "\"65f0a1b2-63\""),
            ("\"65f0a1b2-70\"", "\"65f0a1b2-70\""),
            ("\"own\"", "\"own\""),
        ] {
            let tagged = vec![("ETag".to_owned(), recorded.to_owned())];
            let head = [head("image/jpeg"), tagged].concat();
            let (object, mut out) = (Object::new("/a.jpg", head, COLOUR).unwrap(), Vec::new());
            object.head("now", (0x63, false), &mut out);
            let text = String::from_utf8(out).unwrap();
            assert!(text.ends_with(&format!("\r\nETag: {sent}\r\n\r\n")), "{text}");
        }
    }

    #[test]
    fn what_hides_nothing_is_refused_with_the_reason() {
        let json = "application/json";
        let refused = |path: &str, kind: &str, body: &[u8]| {
            Object::new(path, head(kind), body).map(|object| object.hides()).unwrap_err()
        };
        assert_eq!(refused("a.json", json, &text(9)), Refusal::Path);
        assert_eq!(refused("/a b", json, &text(9)), Refusal::Path);
        assert_eq!(refused("/a?b", json, &text(9)), Refusal::Path);
        assert_eq!(refused("/a", "text/html", &text(9)), Refusal::Type);
        assert_eq!(refused("/a", json, &text(2)), Refusal::Little);
        assert_eq!(refused("/a", json, &text(900)), Refusal::Long);
        assert_eq!(refused("/a", "image/jpeg", &text(9)), Refusal::Picture);
        assert_eq!(refused("/a", "video/mp4", &text(9)), Refusal::Random);
        let two = [head(json), head(json)].concat();
        assert_eq!(Object::new("/a", two, &text(9)).map(drop), Err(Refusal::Head));
        for (name, value) in [("Set-Cookie", "a=b"), ("a b", "c"), ("A", "b\r\nC: d")] {
            let more = [head(json), vec![(name.to_owned(), value.to_owned())]].concat();
            assert_eq!(Object::new("/a", more, &text(9)).map(drop), Err(Refusal::Head));
        }
        for name in ["Date", "Connection", "Content-Length"] {
            let twice = [name.to_lowercase(), name.to_owned()].map(|name| (name, "1".to_owned()));
            let twice = [head(json), twice.to_vec()].concat();
            assert_eq!(Object::new("/a", twice, &text(9)).map(drop), Err(Refusal::Head), "{name}");
        }
    }

    #[test]
    fn pages_are_gone_through_in_their_order() {
        let object = |path: &str| Object::new(path, head("application/json"), &text(9)).unwrap();
        let mut site = Site::default();
        site.add(vec![object("/a"), object("/b")]);
        site.add(Vec::new());
        site.add(vec![object("/c"), object("/a")]);
        assert_eq!((site.objects().len(), site.pages.len()), (3, 2));
        assert_eq!((site.at("/b", 0), site.at("/x", 0), site.at("/x", 1)), (1, 0, 2));
        assert_eq!((site.next(0, 0), site.next(1, 1), site.next(2, 0)), (1, 2, 0));
        // The object 0 is also the last object of the second page.
        assert_eq!((site.next(0, 1), site.next(0, 3)), (0, 2));
        assert_eq!(site.room(0, 1), 9 * 180 - Notes::LENGTH - 2);
    }
}

//! Covers of an operator's own: HAR files, captures, pages, profiles and bodies that hide bytes.
//! Whatever they are, they are taken or refused; what is taken has been changed and found again.

use anabranch_stego::Object;

/// The first byte says what the rest is.
pub fn check(bytes: &[u8]) {
    let Some((&kind, rest)) = bytes.split_first() else { return };
    match kind % 7 {
        4 => object("application/json", rest),
        5 => object("image/jpeg", rest),
        6 => object("video/mp4", rest),
        // A source's kind, and its bytes.
        _ => anabranch_router::crawl::fuzz(bytes),
    }
}

fn object(kind: &str, body: &[u8]) {
    let head = vec![("Content-Type".to_owned(), kind.to_owned())];
    if let Ok(object) = Object::new("/a", head, body) {
        let same = object.changed(&vec![7; object.hides()]);
        // Stuffed bytes come and go, one for each byte of the body that has a hidden bit at most.
        assert!(same.len().abs_diff(body.len()) <= 8 * object.hides());
    }
}

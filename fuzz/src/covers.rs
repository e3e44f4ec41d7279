//! Covers from an operator's own site: HAR files, captures, pages, profiles and bodies that hide
//! bytes. Any of them is either accepted or refused; hidden bytes are found again in accepted
//! ones.

use anabranch_stego::Object;

/// Checks an input; the first byte selects the check.
pub fn check(bytes: &[u8]) {
    let Some((&kind, rest)) = bytes.split_first() else { return };
    match kind % 7 {
        4 => object("application/json", rest),
        5 => object("image/jpeg", rest),
        6 => object("video/mp4", rest),
        // Type of a source, and its content.
        _ => anabranch_router::crawl::fuzz(bytes),
    }
}

fn object(kind: &str, body: &[u8]) {
    let head = vec![("Content-Type".to_owned(), kind.to_owned())];
    if let Ok(object) = Object::new("/a", head, body) {
        let same = object.changed(&vec![7; object.hides()]);
        // Stuffed bytes may appear and disappear, at most one for each byte of the body with a
        // hidden bit.
        assert!(same.len().abs_diff(body.len()) <= 8 * object.hides());
    }
}

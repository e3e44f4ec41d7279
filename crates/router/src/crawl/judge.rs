//! Selection of the web objects in which bytes can be hidden. Strict parsers must accept an object
//! both before and after bytes are hidden in it.

use std::collections::BTreeMap;

use anabranch_stego::{Hiding, Object};
use serde::de::IgnoredAny;

use super::{FetchedObject, SiteContent};

/// A web object in which bytes can be hidden.
#[derive(Clone, Debug)]
pub struct HidingObject {
    /// Index of the object in [`SiteContent::objects`].
    pub place: usize,
    /// The object, with the places where bytes can be hidden.
    pub object: Object,
}

impl HidingObject {
    /// Returns whether only a browser can check that the object is still valid after bytes are
    /// hidden in it. This is true for scripts; [`judge`] checks JSON with a strict parser.
    #[must_use]
    pub fn wants_browser(&self, found: &SiteContent) -> bool {
        self.object.hiding() == Hiding::Text && !is_json(&found.objects[self.place])
    }
}

/// Objects of a site in which bytes can be hidden, and the reasons why this is impossible in other
/// objects.
#[derive(Clone, Debug, Default)]
pub struct HidingObjects {
    /// Objects in which bytes can be hidden.
    pub kept: Vec<HidingObject>,
    /// Reasons why no bytes can be hidden in some objects, with the number of objects for each
    /// reason.
    pub refused: BTreeMap<String, usize>,
}

impl HidingObjects {
    /// Counts one more object in which no bytes can be hidden, for the reason `why`.
    pub fn refuse(&mut self, why: &str) {
        *self.refused.entry(why.to_owned()).or_default() += 1;
    }

    /// Keeps only the objects for which `keeps` returns true. Counts each removed object as an
    /// object in which no bytes can be hidden, for the reason `why`.
    pub fn retain(&mut self, why: &str, mut keeps: impl FnMut(&HidingObject) -> bool) {
        let before = self.kept.len();
        self.kept.retain(|kept| keeps(kept));
        for _ in self.kept.len()..before {
            self.refuse(why);
        }
    }
}

/// Finds the objects in `found` in which bytes can be hidden, and counts the reasons why others
/// are unsuitable.
#[must_use]
pub fn judge(found: &SiteContent) -> HidingObjects {
    let mut judged = HidingObjects::default();
    for (place, fetched) in found.objects.iter().enumerate() {
        match object(fetched) {
            Ok(object) => judged.kept.push(HidingObject { place, object }),
            Err(why) => judged.refuse(&why),
        }
    }
    judged
}

/// Parses `fetched` into an object in which bytes can be hidden. The error is the reason why this
/// is impossible.
pub(super) fn object(fetched: &FetchedObject) -> Result<Object, String> {
    let FetchedObject { path, headers, body } = fetched;
    let object = Object::new(path, headers.clone(), body).map_err(|why| why.to_string())?;
    if is_json(fetched) {
        let strict = |bytes: &[u8]| serde_json::from_slice::<IgnoredAny>(bytes).is_ok();
        let changed = object.changed(&vec![0xa5; object.hides()]);
        if !strict(body) || !strict(&changed) {
            return Err("invalid JSON".to_owned());
        }
    }
    Ok(object)
}

fn is_json(fetched: &FetchedObject) -> bool {
    let kind = fetched.content_type().to_ascii_lowercase();
    kind.ends_with("/json") || kind.ends_with("+json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetched(path: &str, kind: &str, body: &str) -> FetchedObject {
        let headers = vec![("Content-Type".to_owned(), kind.to_owned())];
        FetchedObject { path: path.to_owned(), headers, body: body.as_bytes().to_vec() }
    }

    #[test]
    fn an_object_stays_only_if_parsers_take_it_changed_too() {
        let text = format!("[{}1]", format!("\"{}\",", "aB3_".repeat(60)).repeat(9));
        let found = SiteContent {
            objects: vec![
                fetched("/a.json", "application/json", &text),
                fetched("/b.json", "application/json", &text[..text.len() - 1]),
                fetched("/c.js", "text/javascript", &format!("let x={text}")),
                fetched("/d.html", "text/html", &text),
            ],
            ..SiteContent::default()
        };
        let mut judged = judge(&found);
        assert_eq!(judged.kept.len(), 2);
        assert_eq!(judged.refused["invalid JSON"], 1);
        let wants: Vec<bool> = judged.kept.iter().map(|one| one.wants_browser(&found)).collect();
        assert_eq!(wants, [false, true]);
        judged.retain("why", |kept| kept.place == 0);
        assert_eq!((judged.kept.len(), judged.refused["why"]), (1, 1));
    }
}

//! Folders of covers. Covers are the web objects of a site in which camouflage hides data. A
//! folder has an index, `covers.json`, and the bodies of the objects in which bytes can be hidden
//! (`docs/formats.md`).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anabranch_os::toml_keys::in_plain_words;
use anabranch_stego::{Hiding, Object, Site};
use serde::{Deserialize, Serialize};

use super::judge::object;
use super::{CrawlError, FetchedObject, HidingObjects, OBJECTS, SiteContent, read_file};

/// Name of the format in the index of a folder of covers. The version is `VERSION`.
const FORMAT: &str = "anabranch covers";
/// Version of the format in the index of a folder of covers.
const VERSION: u32 = 1;
/// Version of the rule that finds the places in an object where bytes can be hidden. Both ends of
/// a camouflaged link must use the same version.
const FINDER: u32 = 1;
/// File name of the index in a folder of covers. The bodies of the objects are in the subfolder
/// `BODIES`.
const INDEX: &str = "covers.json";
/// Name of the subfolder with the bodies of a folder of covers.
const BODIES: &str = "bodies";

/// Contents of `covers.json`, the index of a folder of covers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    format: String,
    version: u32,
    finder: u32,
    /// Headers of a browser's request for a page, in their order.
    request: Vec<(String, String)>,
    objects: Vec<Entry>,
    pages: Vec<PageEntry>,
    /// Reasons for leaving objects out of the covers, with the number of objects for each reason.
    left_out: BTreeMap<String, usize>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    path: String,
    headers: Vec<(String, String)>,
    bytes: usize,
    /// Places in the object where bytes can be hidden; `None` if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slots: Option<SlotsEntry>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SlotsEntry {
    hiding: String,
    hides: usize,
    /// File name of the object's body, in the folder of bodies.
    body: String,
    /// True if a browser has accepted the object after bytes were hidden in it.
    browser: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PageEntry {
    path: String,
    objects: Vec<usize>,
    pause_ms: u64,
}

fn name(hiding: Hiding) -> &'static str {
    match hiding {
        Hiding::Opaque => "opaque",
        Hiding::Text => "text",
        Hiding::Image => "image",
    }
}

/// Writes covers (web objects in which bytes can be hidden) to a new folder, completely or not at
/// all. `found` has all objects of the site, and `judged` the objects in which bytes can be
/// hidden. `browser` states whether a browser has accepted these objects after bytes were hidden
/// in them.
///
/// # Errors
/// The folder exists already, or cannot be written. If the disk is full, the new files
/// are removed.
pub fn write(
    folder: &Path,
    found: &SiteContent,
    judged: &HidingObjects,
    browser: bool,
) -> Result<(), CrawlError> {
    let to_error = |error| CrawlError::File(folder.to_owned(), error);
    if folder.symlink_metadata().is_ok() {
        return Err(to_error(io::Error::new(io::ErrorKind::AlreadyExists, "it exists already")));
    }
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    // The folder is private: other users must not see which pages the visitors of a site have
    // loaded.
    let own = fs::Permissions::from_mode(0o700);
    let mut draft = tempfile::Builder::new();
    let draft = draft.prefix(".covers-").permissions(own).tempdir_in(parent).map_err(to_error)?;
    let bodies = draft.path().join(BODIES);
    fs::create_dir(&bodies).map_err(to_error)?;
    let mut objects: Vec<Entry> = found.objects.iter().map(entry).collect();
    for kept in &judged.kept {
        let body = format!("{:05}", kept.place);
        fs::write(bodies.join(&body), &found.objects[kept.place].body).map_err(to_error)?;
        let (hiding, hides) = (name(kept.object.hiding()).to_owned(), kept.object.hides());
        let browser = browser && kept.object.hiding() != Hiding::Opaque;
        objects[kept.place].slots = Some(SlotsEntry { hiding, hides, body, browser });
    }
    let mut left_out = found.left_out.clone();
    judged
        .refused
        .iter()
        .for_each(|(why, count)| *left_out.entry(why.clone()).or_default() += count);
    let page = |page: &super::Page| PageEntry {
        path: page.path.clone(),
        objects: page.objects.clone(),
        pause_ms: u64::try_from(page.pause.as_millis()).unwrap_or(u64::MAX),
    };
    let document = Document {
        format: FORMAT.to_owned(),
        version: VERSION,
        finder: FINDER,
        request: found.request.clone(),
        objects,
        pages: found.pages.iter().map(page).collect(),
        left_out,
    };
    let text = serde_json::to_string_pretty(&document).map_err(|error| to_error(error.into()))?;
    fs::write(draft.path().join(INDEX), text + "\n").map_err(to_error)?;
    fs::rename(draft.path(), folder).map_err(to_error)?;
    let _ = draft.keep();
    Ok(())
}

fn entry(fetched: &FetchedObject) -> Entry {
    let FetchedObject { path, headers, body } = fetched.clone();
    Entry { path, headers, bytes: body.len(), slots: None }
}

/// Parses `bytes` as `covers.json`, the index of a folder of covers (web objects in which bytes
/// can be hidden).
///
/// # Errors
/// The index is malformed; the error is one line.
pub(super) fn parse(bytes: &[u8]) -> Result<Document, String> {
    let document: Document = serde_json::from_slice(bytes).map_err(|error| {
        format!("the file is not an index of covers: {}", in_plain_words(&error.to_string()))
    })?;
    let Document { format, version, finder, objects, pages, .. } = &document;
    if format != FORMAT || *version != VERSION || *finder != FINDER {
        return Err(format!(
            "the covers were made by another version of this program ('{format}' {version}, \
             content scanner {finder}; expected '{FORMAT}' {VERSION}, content scanner {FINDER}): \
             make them again with 'anabranch pt crawl'"
        ));
    }
    if objects.len() > OBJECTS || pages.len() > OBJECTS {
        return Err("the index of covers has more than 20,000 files or pages: make the covers \
                    again with 'anabranch pt crawl'"
            .to_owned());
    }
    let known = |place: &usize| *place < objects.len();
    if let Some(page) = pages.iter().find(|page| !page.objects.iter().all(known)) {
        return Err(format!(
            "page {}: the index of covers lacks files of this page: make the covers again with \
             'anabranch pt crawl'",
            page.path
        ));
    }
    let digits = |slots: &SlotsEntry| {
        slots.body.len() == 5 && slots.body.bytes().all(|byte| byte.is_ascii_digit())
    };
    let wrong = |one: &&Entry| one.slots.as_ref().is_some_and(|slots| !digits(slots));
    match objects.iter().find(wrong) {
        Some(one) => Err(format!(
            "{}: the index gives this cover a file whose name is not five digits: make the covers \
             again with 'anabranch pt crawl'",
            one.path
        )),
        None => Ok(document),
    }
}

/// Reads covers from `folder`. Covers are web objects of a site, and bytes can be hidden in only
/// some of them. The returned [`SiteContent`] has all objects; the body of an object in which no
/// bytes can be hidden is empty. The returned [`HidingObjects`] has only the objects in which
/// bytes can be hidden.
///
/// # Errors
/// The covers cannot be read or are invalid, or an object cannot hide as much as the
/// index states.
pub fn read(folder: &Path) -> Result<(SiteContent, HidingObjects), CrawlError> {
    let index = folder.join(INDEX);
    let wrong = |why: String| CrawlError::Source(index.clone(), why);
    let document = parse(&read_file(&index)?).map_err(wrong)?;
    let (mut found, mut judged) = (SiteContent::default(), HidingObjects::default());
    for (place, one) in document.objects.into_iter().enumerate() {
        let (path, headers) = (one.path, one.headers);
        let Some(slots) = one.slots else {
            found.objects.push(FetchedObject { path, headers, body: Vec::new() });
            continue;
        };
        let file = folder.join(BODIES).join(&slots.body);
        let body = read_file(&file)?;
        let fetched = FetchedObject { path, headers, body };
        let object = checked(&fetched, &slots, one.bytes)
            .map_err(|why| CrawlError::Source(file, format!("{}: {why}", fetched.path)))?;
        found.objects.push(fetched);
        judged.kept.push(super::HidingObject { place, object });
    }
    found.request = document.request;
    let page = |page: PageEntry| super::Page {
        path: page.path,
        objects: page.objects,
        pause: std::time::Duration::from_millis(page.pause_ms),
    };
    found.pages = document.pages.into_iter().map(page).collect();
    found.left_out = document.left_out;
    Ok((found, judged))
}

/// Parses a cover (a web object in which bytes can be hidden), and compares it with its entry in
/// the index of the folder. The length of the object's body must be `bytes`. The number of bytes
/// that can be hidden in the object, and the method of hiding, must match `slots`. The error is
/// one line.
fn checked(fetched: &FetchedObject, slots: &SlotsEntry, bytes: usize) -> Result<Object, String> {
    if fetched.body.len() != bytes {
        return Err(format!(
            "the file has {} bytes, but its entry in the index has {bytes}: make the covers again \
             with 'anabranch pt crawl'",
            fetched.body.len()
        ));
    }
    let object = object(fetched)?;
    let own = (name(object.hiding()), object.hides());
    if own != (&slots.hiding, slots.hides) {
        let (hiding, hides) = (&slots.hiding, slots.hides);
        return Err(format!(
            "the cover has {} content that can hide {} bytes, but its entry in the index has \
             {hiding} content that can hide {hides} bytes: make the covers again with 'anabranch \
             pt crawl'",
            own.0, own.1
        ));
    }
    Ok(object)
}

/// Reads a folder of covers (web objects in which bytes can be hidden). Returns them as the web
/// site that a camouflage server serves.
///
/// # Errors
/// The covers cannot be read or are invalid, or bytes can be hidden in none of the objects.
pub fn site(folder: &Path) -> Result<Site, CrawlError> {
    let (found, judged) = read(folder)?;
    let objects: BTreeMap<usize, Object> =
        judged.kept.into_iter().map(|kept| (kept.place, kept.object)).collect();
    let mut site = Site::default();
    for page in &found.pages {
        site.add(page.objects.iter().filter_map(|place| objects.get(place).cloned()).collect());
    }
    match site.is_empty() {
        true => Err(CrawlError::Source(
            PathBuf::from(folder),
            "bytes can be hidden in none of its files: make other covers with 'anabranch pt crawl'"
                .to_owned(),
        )),
        false => Ok(site),
    }
}

#[cfg(test)]
mod tests {
    use super::super::judge;
    use super::*;

    fn found() -> SiteContent {
        let body = format!("[{}1]", format!("\"{}\",", "aB3_".repeat(60)).repeat(9));
        let of = |path: &str, kind: &str, body: &str| FetchedObject {
            path: path.to_owned(),
            headers: vec![("Content-Type".to_owned(), kind.to_owned())],
            body: body.as_bytes().to_vec(),
        };
        let mut found = SiteContent::default();
        let pause = std::time::Duration::from_secs(3);
        found.follow(vec![
            (of("/", "text/html", "page"), std::time::Duration::ZERO),
            (of("/a.json", "application/json", &body), pause),
        ]);
        found
    }

    #[test]
    fn covers_are_read_as_they_were_written_and_never_twice_to_a_place() {
        let (at, found) = (tempfile::tempdir().unwrap(), found());
        let (folder, judged) = (at.path().join("own"), judge(&found));
        write(&folder, &found, &judged, false).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        let (read_found, read_judged) = read(&folder).unwrap();
        assert_eq!(read_found.pages, found.pages);
        assert_eq!(read_found.objects[1], found.objects[1]);
        assert_eq!(read_found.left_out["a content type that cannot hide bytes"], 1);
        assert_eq!(read_judged.kept.len(), 1);
        assert_eq!(site(&folder).unwrap().objects().len(), 1);
        let again = write(&folder, &found, &judged, false).unwrap_err().to_string();
        assert!(again.ends_with("own: it exists already"), "{again}");
        let nowhere = write(&at.path().join("a/b"), &found, &judged, false).unwrap_err();
        assert!(!nowhere.to_string().contains('\n'));
        let left: Vec<_> = fs::read_dir(at.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "no draft stays");
        write(&at.path().join("none"), &found, &HidingObjects::default(), false).unwrap();
        let none = site(&at.path().join("none")).unwrap_err().to_string();
        assert!(none.contains("bytes can be hidden in none of its files"), "{none}");
    }

    #[test]
    fn covers_of_an_earlier_program_are_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = folder.join("../../tests/formats/0e0b824b/covers");
        let (covers, judged) = read(&folder).unwrap();
        let mut wanted = found();
        // The page of the file was loaded after this pause.
        wanted.pages[0].pause = std::time::Duration::from_secs(3);
        assert_eq!(covers.pages, wanted.pages);
        assert_eq!(covers.objects[1].body, wanted.objects[1].body);
        assert_eq!(covers.objects[1].headers, wanted.objects[1].headers);
        assert_eq!(covers.request, [("Accept".to_owned(), "*/*".to_owned())]);
        assert_eq!(covers.left_out["a type that hides nothing"], 1);
        let kept: Vec<usize> = judged.kept.iter().map(|kept| kept.object.hides()).collect();
        assert_eq!(kept, [1620]);
        assert_eq!(site(&folder).unwrap().objects().len(), 1);
    }

    #[test]
    fn covers_that_were_tampered_with_are_refused_in_one_line() {
        let (at, found) = (tempfile::tempdir().unwrap(), found());
        let folder = at.path().join("own");
        write(&folder, &found, &judge(&found), false).unwrap();
        let (index, body) = (folder.join(INDEX), folder.join("bodies/00001"));
        let (good, bytes) = (fs::read_to_string(&index).unwrap(), fs::read(&body).unwrap());
        let says = |what: &str| {
            let why = site(&folder).unwrap_err().to_string();
            assert!(why.contains(what) && !why.contains('\n'), "{what}: {why}");
        };
        for (from, to, what) in [
            ("\"format\"", "\"farmat\"", "not an index of covers"),
            ("\"finder\": 1", "\"finder\": 2", "content scanner 2"),
            ("      1\n", "      2\n", "the index of covers lacks files of this page"),
            ("\"00001\"", "\"../01\"", "five digits"),
            ("\"00001\"", "\"00007\"", "00007"),
            ("\"text\"", "\"image\"", "but its entry in the index has image"),
            (
                "\"hides\": 1620",
                "\"hides\": 99",
                "but its entry in the index has text content that can hide 99 bytes",
            ),
            ("/a.json", "/a json", "a path of more than 200 bytes or with special characters"),
        ] {
            assert!(good.contains(from), "{from}");
            fs::write(&index, good.replace(from, to)).unwrap();
            says(what);
        }
        fs::write(&index, &good[..good.len() / 2]).unwrap();
        says("not an index of covers");
        fs::write(&index, &good).unwrap();
        fs::write(&body, &bytes[1..]).unwrap();
        says("but its entry in the index has");
        fs::write(&body, [&b"x"[..], &bytes[1..]].concat()).unwrap();
        says("invalid JSON");
        fs::remove_file(&body).unwrap();
        says("00001");
    }
}

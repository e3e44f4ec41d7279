//! A site's folder, as nginx would serve it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::{CrawlError, Fetched, Found, LARGEST, OBJECTS, Page, html};

/// Bytes of a file at most: longer ones hide nothing, and no page is so long.
const LONGEST: u64 = 4 << 20;

/// Types by the ends of names, as nginx's own list has them.
const TYPES: [(&str, &str); 19] = [
    ("html", "text/html"),
    ("htm", "text/html"),
    ("css", "text/css"),
    ("js", "application/javascript"),
    ("json", "application/json"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("png", "image/png"),
    ("gif", "image/gif"),
    ("svg", "image/svg+xml"),
    ("webp", "image/webp"),
    ("ico", "image/x-icon"),
    ("woff2", "font/woff2"),
    ("txt", "text/plain"),
    ("pdf", "application/pdf"),
    ("mp4", "video/mp4"),
    ("ts", "video/mp2t"),
    ("m4s", "video/iso.segment"),
    ("mp3", "audio/mpeg"),
];

/// Reads a folder: all files, and what each of its pages pulls in. What cannot be read in it is
/// left out, as is what is too much.
///
/// # Errors
/// The folder itself cannot be read.
pub(super) fn read(folder: &Path) -> Result<Found, CrawlError> {
    fs::read_dir(folder).map_err(|error| CrawlError::File(folder.to_owned(), error))?;
    let (mut found, mut objects, mut bytes) = (Found::default(), BTreeMap::new(), 0);
    for (path, file) in files(folder, &mut found) {
        match fetched(path, &file) {
            Err(_) => found.leave_out("a file that cannot be read"),
            Ok(None) => found.leave_out("a file of more than 4 MiB"),
            Ok(Some(_)) if objects.len() == OBJECTS => found.leave_out("more than 20,000 objects"),
            Ok(Some(one)) if bytes + one.body.len() as u64 > LARGEST => {
                found.leave_out("more than 512 MiB");
            }
            Ok(Some(one)) => {
                bytes += one.body.len() as u64;
                objects.insert(one.path.clone(), found.add(one));
            }
        }
    }
    let pages = pages(&found, &objects);
    found.pages.extend(pages);
    Ok(found)
}

/// A file as it would be answered, unless it is too long.
fn fetched(path: String, file: &Path) -> io::Result<Option<Fetched>> {
    let about = fs::metadata(file)?;
    if about.len() > LONGEST {
        return Ok(None);
    }
    let (body, modified) = (fs::read(file)?, about.modified()?);
    let modified = modified.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let headers = headers(&path, &body, modified);
    Ok(Some(Fetched { path, headers, body }))
}

/// All files below a folder, by their paths on the site. Hidden ones are none of it, and links may
/// lead anywhere.
fn files(folder: &Path, found: &mut Found) -> BTreeMap<String, PathBuf> {
    let (mut files, mut left) = (BTreeMap::new(), VecDeque::from([folder.to_owned()]));
    while let Some(next) = left.pop_front() {
        let Ok(entries) = fs::read_dir(&next) else {
            found.leave_out("a folder that cannot be read");
            continue;
        };
        for entry in entries.flatten() {
            let (path, kind) = (entry.path(), entry.file_type());
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            let (Ok(within), Ok(kind)) = (path.strip_prefix(folder), kind) else { continue };
            if kind.is_dir() && !hidden {
                left.push_back(path);
            } else if kind.is_file() && !hidden {
                files.insert(format!("/{}", within.to_string_lossy()), path);
            }
        }
    }
    files
}

/// The head that nginx gives a file.
fn headers(path: &str, body: &[u8], modified: u64) -> Vec<(String, String)> {
    let end = path.rsplit_once('.').map_or("", |(_, end)| end).to_ascii_lowercase();
    let kind = TYPES.iter().find(|(one, _)| *one == end);
    let kind = kind.map_or("application/octet-stream", |(_, kind)| kind);
    let date = i64::try_from(modified).ok().and_then(|at| chrono::DateTime::from_timestamp(at, 0));
    let date =
        date.map_or_else(String::new, |at| at.format("%a, %d %b %Y %H:%M:%S GMT").to_string());
    let length = body.len();
    [
        ("Server", "nginx".to_owned()),
        ("Date", date.clone()),
        ("Content-Type", kind.to_owned()),
        ("Content-Length", length.to_string()),
        ("Last-Modified", date),
        ("Connection", "keep-alive".to_owned()),
        ("ETag", format!("\"{modified:x}-{length:x}\"")),
        ("Accept-Ranges", "bytes".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

/// Pages, and what they pull in; what no page does is a page of its own.
fn pages(found: &Found, objects: &BTreeMap<String, usize>) -> Vec<Page> {
    let (mut pages, mut pulled) = (Vec::new(), BTreeSet::new());
    for (path, &place) in objects {
        let object = &found.objects[place];
        if object.content_type() != "text/html" {
            continue;
        }
        let (parts, _) = html::parts(path, &String::from_utf8_lossy(&object.body));
        let parts = parts.iter().filter_map(|part| objects.get(part).copied());
        let objects: Vec<usize> = std::iter::once(place).chain(parts).collect();
        pulled.extend(objects.iter().copied());
        pages.push(Page { path: path.clone(), objects, ..Page::default() });
    }
    let rest: Vec<usize> =
        objects.values().copied().filter(|place| !pulled.contains(place)).collect();
    if !rest.is_empty() {
        pages.push(Page { path: "/".to_owned(), objects: rest, ..Page::default() });
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_its_files_and_what_pages_pull_in() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("img")).unwrap();
        for (name, text) in [
            ("index.html", "<img src=img/a.jpg><script src=/x.js></script><img src=gone.jpg>"),
            ("img/a.jpg", "no picture"),
            ("x.js", "1"),
            ("more.json", "{}"),
            (".hidden", "x"),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let found = read(folder.path()).unwrap();
        assert_eq!(found.objects.len(), 4);
        let names = |page: &Page| -> Vec<String> {
            page.objects.iter().map(|&place| found.objects[place].path.clone()).collect()
        };
        assert_eq!(names(&found.pages[0]), ["/index.html", "/img/a.jpg", "/x.js"]);
        assert_eq!(names(&found.pages[1]), ["/more.json"]);
        let etag = &found.objects.iter().find(|one| one.path == "/x.js").unwrap().headers[6];
        assert!(etag.0 == "ETag" && etag.1.ends_with("-1\""), "{etag:?}");
        fs::write(folder.path().join("long.ts"), vec![0; (4 << 20) + 1]).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link.txt")).unwrap();
        let found = read(folder.path()).unwrap();
        assert_eq!((found.objects.len(), found.left_out["a file of more than 4 MiB"]), (4, 1));
        let gone = read(&folder.path().join("gone")).unwrap_err().to_string();
        assert!(gone.contains("gone") && !gone.contains('\n'));
    }
}

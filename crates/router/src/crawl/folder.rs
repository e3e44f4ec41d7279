//! Objects from a site's folder, each with the HTTP headers that nginx would send.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::{CrawlError, FetchedObject, LARGEST, OBJECTS, Page, SiteContent, html};

/// Maximum size of a file in bytes. Larger files are left out of the covers (the web objects of a
/// site): no bytes can be hidden in them, and no web page is that large.
const LONGEST: u64 = 4 << 20;

/// Content types with their file name extensions, as in nginx's list. Other files are
/// `application/octet-stream`. The list must be complete, because a type that differs from nginx's
/// would reveal that bytes are hidden in the object.
const TYPES: &[(&str, &[&str])] = &[
    ("text/html", &["html", "htm", "shtml"]),
    ("text/css", &["css"]),
    ("text/xml", &["xml"]),
    ("text/plain", &["txt"]),
    ("text/mathml", &["mml"]),
    ("text/vnd.sun.j2me.app-descriptor", &["jad"]),
    ("text/vnd.wap.wml", &["wml"]),
    ("text/x-component", &["htc"]),
    ("image/jpeg", &["jpeg", "jpg"]),
    ("image/png", &["png"]),
    ("image/gif", &["gif"]),
    ("image/svg+xml", &["svg", "svgz"]),
    ("image/webp", &["webp"]),
    ("image/avif", &["avif"]),
    ("image/tiff", &["tif", "tiff"]),
    ("image/x-icon", &["ico"]),
    ("image/x-jng", &["jng"]),
    ("image/x-ms-bmp", &["bmp"]),
    ("image/vnd.wap.wbmp", &["wbmp"]),
    ("font/woff", &["woff"]),
    ("font/woff2", &["woff2"]),
    ("application/javascript", &["js"]),
    ("application/json", &["json"]),
    ("application/wasm", &["wasm"]),
    ("application/pdf", &["pdf"]),
    ("application/rtf", &["rtf"]),
    ("application/postscript", &["ps", "eps", "ai"]),
    ("application/atom+xml", &["atom"]),
    ("application/rss+xml", &["rss"]),
    ("application/xhtml+xml", &["xhtml"]),
    ("application/xspf+xml", &["xspf"]),
    ("application/zip", &["zip"]),
    ("application/x-7z-compressed", &["7z"]),
    ("application/x-rar-compressed", &["rar"]),
    ("application/x-stuffit", &["sit"]),
    ("application/x-sea", &["sea"]),
    ("application/mac-binhex40", &["hqx"]),
    ("application/java-archive", &["jar", "war", "ear"]),
    ("application/x-java-archive-diff", &["jardiff"]),
    ("application/x-java-jnlp-file", &["jnlp"]),
    ("application/x-redhat-package-manager", &["rpm"]),
    ("application/x-xpinstall", &["xpi"]),
    ("application/x-makeself", &["run"]),
    ("application/x-perl", &["pl", "pm"]),
    ("application/x-tcl", &["tcl", "tk"]),
    ("application/x-cocoa", &["cco"]),
    ("application/x-pilot", &["prc", "pdb"]),
    ("application/x-shockwave-flash", &["swf"]),
    ("application/x-x509-ca-cert", &["der", "pem", "crt"]),
    ("application/msword", &["doc"]),
    ("application/vnd.ms-excel", &["xls"]),
    ("application/vnd.ms-powerpoint", &["ppt"]),
    ("application/vnd.ms-fontobject", &["eot"]),
    ("application/vnd.wap.wmlc", &["wmlc"]),
    ("application/vnd.apple.mpegurl", &["m3u8"]),
    ("application/vnd.google-earth.kml+xml", &["kml"]),
    ("application/vnd.google-earth.kmz", &["kmz"]),
    ("application/vnd.oasis.opendocument.graphics", &["odg"]),
    ("application/vnd.oasis.opendocument.presentation", &["odp"]),
    ("application/vnd.oasis.opendocument.spreadsheet", &["ods"]),
    ("application/vnd.oasis.opendocument.text", &["odt"]),
    ("application/vnd.openxmlformats-officedocument.presentationml.presentation", &["pptx"]),
    ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", &["xlsx"]),
    ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", &["docx"]),
    ("audio/midi", &["mid", "midi", "kar"]),
    ("audio/mpeg", &["mp3"]),
    ("audio/ogg", &["ogg"]),
    ("audio/x-m4a", &["m4a"]),
    ("audio/x-realaudio", &["ra"]),
    ("video/3gpp", &["3gpp", "3gp"]),
    ("video/mp2t", &["ts"]),
    ("video/mp4", &["mp4"]),
    ("video/mpeg", &["mpeg", "mpg"]),
    ("video/quicktime", &["mov"]),
    ("video/webm", &["webm"]),
    ("video/x-flv", &["flv"]),
    ("video/x-m4v", &["m4v"]),
    ("video/x-mng", &["mng"]),
    ("video/x-ms-asf", &["asx", "asf"]),
    ("video/x-ms-wmv", &["wmv"]),
    ("video/x-msvideo", &["avi"]),
];

/// Reads the site in `folder`: all files, and for each page the objects that it loads. Leaves out
/// unreadable files, and files larger than `LONGEST`.
///
/// # Errors
/// The folder itself cannot be read.
pub(super) fn read(folder: &Path) -> Result<SiteContent, CrawlError> {
    fs::read_dir(folder).map_err(|error| CrawlError::File(folder.to_owned(), error))?;
    let (mut found, mut objects, mut bytes) = (SiteContent::default(), BTreeMap::new(), 0);
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

/// Reads `file` and makes the headers that nginx would send with it. Returns `None` if the file is
/// larger than `LONGEST`.
fn fetched(path: String, file: &Path) -> io::Result<Option<FetchedObject>> {
    let about = fs::metadata(file)?;
    if about.len() > LONGEST {
        return Ok(None);
    }
    let (body, modified) = (fs::read(file)?, about.modified()?);
    let modified = modified.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let headers = headers(&path, &body, modified);
    Ok(Some(FetchedObject { path, headers, body }))
}

/// Returns all files below `folder`, with the path of each on the web site. Hidden files are
/// skipped. Symbolic links are left out, because they may point to files outside the folder.
fn files(folder: &Path, found: &mut SiteContent) -> BTreeMap<String, PathBuf> {
    let (mut files, mut left) = (BTreeMap::new(), VecDeque::from([folder.to_owned()]));
    while let Some(next) = left.pop_front() {
        let Ok(entries) = fs::read_dir(&next) else {
            found.leave_out("a folder that cannot be read");
            continue;
        };
        for entry in entries {
            let about = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)));
            let Ok((path, kind)) = about else {
                found.leave_out("a file that cannot be read");
                continue;
            };
            let name = path.file_name().unwrap_or_default();
            let hidden = name.as_encoded_bytes().starts_with(b".");
            match path.strip_prefix(folder) {
                Ok(_) if hidden => {}
                Ok(_) if kind.is_dir() => left.push_back(path),
                Ok(within) if kind.is_file() => {
                    files.insert(format!("/{}", within.to_string_lossy()), path);
                }
                _ => found.leave_out("a symbolic link, or not a regular file"),
            }
        }
    }
    files
}

/// Returns the content type that nginx would send for the file at `path`.
fn content_type(path: &str) -> &'static str {
    let name = path.rsplit('/').next().unwrap_or_default();
    let end = name.rsplit_once('.').map_or("", |(_, end)| end).to_ascii_lowercase();
    let kind = TYPES.iter().find(|(_, ends)| ends.contains(&&*end));
    kind.map_or("application/octet-stream", |(kind, _)| kind)
}

/// Returns the HTTP headers that nginx would send for a file. `modified` is the file's
/// modification time in seconds since 1970.
fn headers(path: &str, body: &[u8], modified: u64) -> Vec<(String, String)> {
    let kind = content_type(path);
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

/// Returns the pages of a site, each with the objects that it loads. Objects that no page loads
/// form one more page. `objects` maps each path to its index in [`SiteContent::objects`].
fn pages(found: &SiteContent, objects: &BTreeMap<String, usize>) -> Vec<Page> {
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
    fn files_have_the_types_that_nginx_gives_them() {
        for (path, kind) in [
            ("/a/b.JPG", "image/jpeg"),
            ("/a.zip", "application/zip"),
            ("/a.tar.gz", "application/octet-stream"),
            ("/a.m4s", "application/octet-stream"),
            ("/a.m3u8", "application/vnd.apple.mpegurl"),
            ("/v1.json/blob", "application/octet-stream"),
            ("/", "application/octet-stream"),
        ] {
            assert_eq!(content_type(path), kind, "{path}");
        }
        let ends: Vec<&str> = TYPES.iter().flat_map(|(_, ends)| ends.iter().copied()).collect();
        let once = |end: &&&str| ends.iter().filter(|other| other == end).count() == 1;
        assert_eq!(ends.iter().filter(once).count(), ends.len(), "no end has two types");
    }

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
        assert_eq!(found.left_out["a symbolic link, or not a regular file"], 1);
        let gone = read(&folder.path().join("gone")).unwrap_err().to_string();
        assert!(gone.contains("gone") && !gone.contains('\n'));
    }
}

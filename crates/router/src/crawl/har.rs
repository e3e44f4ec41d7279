//! HAR files (HTTP Archive 1.2), as browsers' developer tools write them.

use std::time::Duration;

use base64ct::{Base64, Encoding};
use chrono::{DateTime, FixedOffset};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::{Fetched, Found, is_of_transfer};

#[derive(Deserialize)]
struct File {
    log: Log,
}

#[derive(Deserialize)]
struct Log {
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(deserialize_with = "moment")]
    started_date_time: DateTime<FixedOffset>,
    request: Request,
    response: Response,
}

#[derive(Deserialize)]
struct Request {
    method: String,
    url: String,
    headers: Vec<Header>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    status: i64,
    #[serde(default)]
    http_version: String,
    headers: Vec<Header>,
    content: Content,
}

#[derive(Deserialize)]
struct Header {
    name: String,
    value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    #[serde(default)]
    mime_type: String,
    text: Option<String>,
    encoding: Option<String>,
}

/// A time as RFC 3339 writes it.
fn moment<'de, D: Deserializer<'de>>(from: D) -> Result<DateTime<FixedOffset>, D::Error> {
    let text = String::deserialize(from)?;
    DateTime::parse_from_rfc3339(&text).map_err(D::Error::custom)
}

/// Reads a file: the GETs of the first host, each with its body.
///
/// # Errors
/// It is no HAR file, or has no such request.
pub(super) fn read(bytes: &[u8]) -> Result<Found, String> {
    let file: File =
        serde_json::from_slice(bytes).map_err(|error| format!("it is not a HAR file: {error}"))?;
    let mut entries = file.log.entries;
    entries.sort_by_key(|entry| entry.started_date_time);
    let host = entries.iter().find_map(|entry| Some(split(&entry.request.url)?.0.to_owned()));
    let host = host.ok_or("it has no request of http or https")?;
    let (mut found, mut fetched, began) =
        (Found::default(), Vec::new(), entries.first().map(|entry| entry.started_date_time));
    for entry in &entries {
        match take(entry, &host) {
            Ok(object) => {
                let at = began.and_then(|began| (entry.started_date_time - began).to_std().ok());
                if found.request.is_empty() && object.content_type() == "text/html" {
                    found.request = heads(&entry.request.headers, false);
                }
                fetched.push((object, at.unwrap_or(Duration::ZERO)));
            }
            Err(why) => found.leave_out(why),
        }
    }
    found.follow(fetched);
    Ok(found)
}

/// The object of an entry, or why it is none.
fn take(entry: &Entry, host: &str) -> Result<Fetched, &'static str> {
    let (own, path) = split(&entry.request.url).ok_or("no address of http or https")?;
    (own == host).then_some(()).ok_or("of another host")?;
    (entry.request.method == "GET").then_some(()).ok_or("no GET")?;
    (entry.response.status == 200).then_some(()).ok_or("no answer with 200")?;
    let content = &entry.response.content;
    let text = content.text.as_ref().ok_or("the file has no body of it")?;
    let body = match content.encoding.as_deref() {
        None | Some("") => text.clone().into_bytes(),
        Some("base64") => Base64::decode_vec(text).map_err(|_| "a body that is not base64")?,
        Some(_) => return Err("a body of an unknown encoding"),
    };
    // Names of HTTP/2 and 3 are in small letters; those of HTTP/1 begin with great ones.
    let version = &entry.response.http_version;
    let first = version.get(..6).is_some_and(|one| one.eq_ignore_ascii_case("http/1"));
    let small = !first && !version.is_empty();
    let mut headers = heads(&entry.response.headers, small);
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        headers.push(("Content-Type".to_owned(), content.mime_type.clone()));
    }
    Ok(Fetched { path: path.to_owned(), headers, body })
}

fn heads(headers: &[Header], small: bool) -> Vec<(String, String)> {
    let own = headers.iter().filter(|header| !is_of_transfer(&header.name));
    let name = |name: &str| if small { capitals(name) } else { name.to_owned() };
    own.map(|header| (name(&header.name), header.value.clone())).collect()
}

/// `content-type` as `Content-Type`, and `etag` as `ETag`.
fn capitals(name: &str) -> String {
    let word = |word: &str| match word {
        "etag" => "ETag".to_owned(),
        "xss" => "XSS".to_owned(),
        _ => {
            let mut letters = word.chars();
            let first = letters.next().map(|letter| letter.to_ascii_uppercase());
            first.into_iter().chain(letters).collect()
        }
    };
    name.split('-').map(word).collect::<Vec<_>>().join("-")
}

/// Host and path of an address, without its query.
fn split(url: &str) -> Option<(&str, &str)> {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"))?;
    let rest = rest.split(['?', '#']).next()?;
    let at = rest.find('/').unwrap_or(rest.len());
    let (host, path) = rest.split_at(at);
    (!host.is_empty()).then_some((host, if path.is_empty() { "/" } else { path }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(second: u32, url: &str, kind: &str, content: &str) -> String {
        format!(
            r#"{{"startedDateTime":"2026-03-01T10:00:{second:02}.5+01:00","request":{{"method":"GET",
            "url":"{url}","headers":[{{"name":"Host","value":"a"}}]}},"response":{{"status":200,
            "httpVersion":"h2","headers":[{{"name":":status","value":"200"}},
            {{"name":"server","value":"x"}},{{"name":"content-encoding","value":"br"}},
            {{"name":"content-type","value":"{kind}"}}],"content":{{{content}}}}}}}"#
        )
    }

    fn file(entries: &[String]) -> String {
        format!(r#"{{"log":{{"version":"1.2","entries":[{}]}}}}"#, entries.join(","))
    }

    #[test]
    fn pages_come_with_their_objects_heads_and_think_times() {
        let found = read(
            file(&[
                entry(7, "https://a.net/two", "text/html", r#""text":"two""#),
                entry(1, "https://a.net", "text/html", r#""text":"one""#),
                entry(
                    2,
                    "https://a.net/p.jpg?x=1",
                    "image/jpeg",
                    r#""text":"AAEC","encoding":"base64""#,
                ),
                entry(3, "https://b.net/q.jpg", "image/jpeg", r#""text":"x""#),
                entry(8, "https://a.net/p.jpg", "image/jpeg", r#""text":"y""#),
            ])
            .as_bytes(),
        )
        .unwrap();
        let paths: Vec<&str> = found.objects.iter().map(|one| &*one.path).collect();
        assert_eq!(paths, ["/", "/p.jpg", "/two"]);
        assert_eq!(found.objects[1].body, [0, 1, 2]);
        let head = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let usual = [head("Server", "x"), head("Content-Type", "image/jpeg")];
        assert_eq!(found.objects[1].headers, usual);
        assert_eq!((found.pages.len(), &*found.pages[1].objects), (2, &[2, 1][..]));
        assert_eq!(found.pages[0].pause, Duration::from_secs(5));
        assert_eq!(found.request, [head("Host", "a")]);
        assert_eq!(found.left_out["of another host"], 1);
    }

    #[test]
    fn every_mistake_is_told_in_one_line_or_counted() {
        let good = file(&[entry(1, "http://a/", "text/html", r#""text":"x""#)]);
        for cut in (0..good.len()).step_by(7) {
            let why = read(&good.as_bytes()[..cut]).unwrap_err();
            assert!(why.starts_with("it is not a HAR file") && !why.contains('\n'), "{why}");
        }
        for (text, what) in [
            ("[]", "no HAR"),
            ("{}", "`log`"),
            (r#"{"log":{}}"#, "`entries`"),
            (r#"{"log":{"entries":[]}}"#, "no request"),
            (r#"{"log":{"entries":[7]}}"#, "no HAR"),
            (&*good.replace("10:00", "25:00"), "no HAR"),
            (&*good.replace("200,", "\"200\","), "no HAR"),
            (&*good.replace("http://a/", "ftp://a/"), "no request"),
        ] {
            let why = read(text.as_bytes()).unwrap_err();
            assert!(why.contains(what) && !why.contains('\n'), "{text}: {why}");
        }
        for (from, to, what) in [
            ("GET", "POST", "no GET"),
            (":200", ":304", "no answer with 200"),
            (r#""text":"x""#, r#""size":4"#, "the file has no body of it"),
            (r#""text":"x""#, r#""text":"x","encoding":"base64""#, "a body that is not base64"),
            (r#""text":"x""#, r#""text":"x","encoding":"rot13""#, "a body of an unknown encoding"),
        ] {
            let found = read(good.replace(from, to).as_bytes()).unwrap();
            assert_eq!((found.left_out.get(what), found.objects.len()), (Some(&1), 0), "{what}");
        }
    }
}

//! HAR files (HTTP Archive 1.2), as written by the developer tools of browsers and by proxies.
//!
//! Programs differ in how they write HAR files. If a part is missing or malformed, only the entry
//! that contains it is left out.

use std::time::Duration;

use anabranch_os::toml_keys::in_plain_words;
use base64ct::{Base64, Encoding};
use chrono::{DateTime, NaiveDateTime};
use serde_json::Value;

use super::hosts::{Exchange, of_host, plain};
use super::{FetchedObject, SiteContent, is_of_transfer};

/// UTF-8 byte order mark, which some editors write.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads a HAR file: the GET requests with their response bodies. Only requests to `host` are
/// used. If `host` is `None`, only requests to the host of the first HTML page are used.
///
/// # Errors
/// The bytes are no HAR file, or have no GET request to that host.
pub(super) fn read(bytes: &[u8], host: Option<&str>) -> Result<SiteContent, String> {
    let text = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let file: Value = serde_json::from_slice(text).map_err(|error| {
        format!("the file is not a HAR file: {}", in_plain_words(&error.to_string()))
    })?;
    let entries = file["log"]["entries"].as_array();
    let entries = entries.ok_or("the file is not a HAR file: it has no list `log.entries`")?;
    let (mut found, mut exchanges) = (SiteContent::default(), Vec::new());
    for entry in entries {
        match exchange(entry) {
            Ok(one) => exchanges.push(one),
            Err(why) => found.leave_out(why),
        }
    }
    if exchanges.is_empty() {
        let why = found.left_out.iter().map(|(why, count)| format!(": {count} × {why}"));
        return Err(format!(
            "the HAR file has no request of http or https{}",
            why.collect::<String>()
        ));
    }
    of_host(exchanges, host, found)
}

/// Parses one entry of a HAR file. The error is the reason for leaving the entry out.
fn exchange(entry: &Value) -> Result<Exchange, &'static str> {
    let at = entry["startedDateTime"].as_str().and_then(moment);
    let at = at.ok_or("an entry whose time (startedDateTime) cannot be read")?;
    let (request, response) = (&entry["request"], &entry["response"]);
    let url = request["url"].as_str().ok_or("an entry without a URL")?;
    let (host, path) = split(url).ok_or("an entry whose URL is neither http nor https")?;
    Ok(Exchange {
        host: plain(host),
        at,
        request: heads(&request["headers"], false),
        fetched: object(request, response, path),
    })
}

/// Parses a time in RFC 3339 format, with a zone such as `+0530`, or without a zone (UTC). Returns
/// the time since 1970; `None` if `text` is malformed or the time is before 1970.
fn moment(text: &str) -> Option<Duration> {
    let text = text.trim();
    let zoned = DateTime::parse_from_rfc3339(text)
        .or_else(|_| DateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f%z"))
        .map(|at| at.to_utc());
    let plain = || NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f").ok();
    let at = zoned.ok().or_else(|| plain().map(|at| at.and_utc()))?;
    (at - DateTime::UNIX_EPOCH).to_std().ok()
}

/// Returns the web object in the `response` of a HAR entry, or the reason why it has none.
fn object(request: &Value, response: &Value, path: &str) -> Result<FetchedObject, &'static str> {
    (request["method"] == "GET").then_some(()).ok_or("not a GET request")?;
    (number(&response["status"]) == Some(200)).then_some(()).ok_or("not answered with 200")?;
    let content = &response["content"];
    let text = content["text"].as_str().ok_or("an answer whose body is not in the HAR file")?;
    let body = match content["encoding"].as_str() {
        None | Some("") => text.as_bytes().to_vec(),
        Some("base64") => Base64::decode_vec(text).map_err(|_| "a body that is not base64")?,
        Some(_) => return Err("an answer whose body has an encoding other than base64"),
    };
    // HTTP/2 and HTTP/3 have lower-case header names. They are capitalised as in HTTP/1.
    let version = response["httpVersion"].as_str().unwrap_or_default();
    let first = version.get(..6).is_some_and(|one| one.eq_ignore_ascii_case("http/1"));
    let mut headers = heads(&response["headers"], !first && !version.is_empty());
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        let kind = content["mimeType"].as_str().unwrap_or_default();
        headers.push(("Content-Type".to_owned(), kind.to_owned()));
    }
    Ok(FetchedObject { path: path.to_owned(), headers, body })
}

/// Parses a JSON value as an integer. Accepts also the forms `"200"` and `200.0` that some
/// programs write. Returns `None` for other values.
fn number(value: &Value) -> Option<i64> {
    let of_text = || value.as_str().and_then(|text| text.trim().parse().ok());
    let rounded = || value.as_f64().filter(|it| it.fract() == 0.0 && it.abs() < 1e9);
    value.as_i64().or_else(of_text).or_else(|| rounded().map(|it| it as i64))
}

/// Returns the headers in the list `headers` of a HAR entry. Leaves out headers without a name or
/// a value, and headers that concern only the transfer. `small` is true if the names in the list
/// are in lower case; the returned names are then capitalised as in HTTP/1. Returns an empty list
/// if `headers` is not a list.
fn heads(headers: &Value, small: bool) -> Vec<(String, String)> {
    let all = headers.as_array().map(Vec::as_slice).unwrap_or_default().iter();
    let line = |header: &Value| {
        let (name, value) = (header["name"].as_str()?, header["value"].as_str()?);
        let shown = if small { capitals(name) } else { name.to_owned() };
        (!is_of_transfer(name)).then(|| (shown, value.to_owned()))
    };
    all.filter_map(line).collect()
}

/// Capitalises a header name: `content-type` becomes `Content-Type`, and `etag` becomes `ETag`.
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

/// Splits `url` into its host and its path, and drops the query. Returns `None` if `url` is
/// neither http nor https, or has no host.
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

    fn read(bytes: &[u8]) -> Result<SiteContent, String> {
        super::read(bytes, None)
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
            assert!(why.starts_with("the file is not a HAR file") && !why.contains('\n'), "{why}");
        }
        for (text, what) in [
            ("[]", "not a HAR"),
            ("{}", "`log.entries`"),
            (r#"{"log":{}}"#, "`log.entries`"),
            (r#"{"log":{"entries":[]}}"#, "no request"),
            (
                r#"{"log":{"entries":[7]}}"#,
                "1 × an entry whose time (startedDateTime) cannot be read",
            ),
            (
                &*good.replace("10:00", "25:00"),
                "1 × an entry whose time (startedDateTime) cannot be read",
            ),
            (&*good.replace("\"url\"", "\"uri\""), "1 × an entry without a URL"),
            (&*good.replace("http://a/", "ftp://a/"), "no request"),
        ] {
            let why = read(text.as_bytes()).unwrap_err();
            assert!(why.contains(what) && !why.contains('\n'), "{text}: {why}");
        }
        for (from, to, what) in [
            ("GET", "POST", "not a GET request"),
            (":200", ":304", "not answered with 200"),
            (r#""text":"x""#, r#""size":4"#, "an answer whose body is not in the HAR file"),
            (r#""text":"x""#, r#""text":"x","encoding":"base64""#, "a body that is not base64"),
            (
                r#""text":"x""#,
                r#""text":"x","encoding":"rot13""#,
                "an answer whose body has an encoding other than base64",
            ),
        ] {
            let why = read(good.replace(from, to).as_bytes()).unwrap_err();
            assert!(why.ends_with(&format!(": 1 × {what}")), "{what}: {why}");
            let second = entry(2, "http://a/b", "text/html", r#""text":"y""#);
            let both = good.replace(from, to).replace("]}}", &format!(",{second}]}}}}"));
            let found = read(both.as_bytes()).unwrap();
            assert_eq!((found.left_out.get(what), found.objects.len()), (Some(&1), 1), "{what}");
        }
    }

    #[test]
    fn what_writers_write_otherwise_costs_no_entry_or_its_own_alone() {
        let good = file(&[
            entry(1, "http://a/", "text/html", r#""text":"x""#),
            entry(2, "http://a/b", "text/html", r#""text":"y","mimeType":"text/html""#),
        ]);
        let objects = |text: &str| read(text.as_bytes()).unwrap().objects;
        let headers = good[good.rfind(r#""headers":[{"name":":status""#).unwrap()..].to_owned();
        let headers = &headers[..headers.find("],").unwrap() + 2];
        let date = "2026-03-01T10:00:02.5+01:00";
        for (from, to) in [
            (date, "2026-03-01T14:30:02.5+0530"),
            (date, "2026-03-01T09:00:02.5"),
            (date, "2026-03-01T09:00:02.5Z"),
            ("\"status\":200", "\"status\":\"200\""),
            ("\"status\":200", "\"status\":200.0"),
            ("\"httpVersion\":\"h2\",", ""),
            ("\"httpVersion\":\"h2\"", "\"httpVersion\":null"),
            ("\"value\":\"x\"", "\"value\":null"),
            (headers, ""),
            (headers, r#""headers":null,"#),
        ] {
            assert!(good.contains(from), "{from}");
            let paths: Vec<String> =
                objects(&good.replace(from, to)).into_iter().map(|one| one.path).collect();
            assert_eq!(paths, ["/", "/b"], "{from} as {to}");
        }
        assert_eq!(objects(&format!("\u{feff}{good}")).len(), 2, "a byte order mark");
        for (from, to) in [(date, "today"), (date, ""), (r#""method":"GET""#, r#""method":7"#)] {
            let at = good.rfind(from).unwrap();
            let odd = format!("{}{to}{}", &good[..at], &good[at + from.len()..]);
            let found = read(odd.as_bytes()).unwrap();
            assert_eq!((found.objects.len(), found.left_out.len()), (1, 1), "{from} as {to}");
        }
    }
}

//! Selection of one host among all hosts that a browser contacted. Covers (web objects in which
//! bytes can be hidden) are made from the objects of this host.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{FetchedObject, SiteContent};

/// Hosts that browsers and operating systems contact to detect captive portals. A page of such a
/// host does not count as the first page that the user visited.
const CHECKS: [&str; 3] =
    ["detectportal.firefox.com", "captive.apple.com", "conncheck.opensuse.org"];

/// An HTTP request and its result, from a packet capture or a HAR file.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    /// Host name of the request in lower case, without the default port.
    pub(super) host: String,
    pub(super) at: Duration,
    /// Headers of the request.
    pub(super) request: Vec<(String, String)>,
    /// The object in the response, or the reason why there is none.
    pub(super) fetched: Result<FetchedObject, &'static str>,
}

/// Converts a host name to lower case, and removes the default port.
pub(super) fn plain(host: &str) -> String {
    let host = host.trim().to_ascii_lowercase();
    let bare = host.strip_suffix(":80").or_else(|| host.strip_suffix(":443"));
    bare.map_or(host.clone(), str::to_owned)
}

/// Adds the objects of one host to `found`. The host is `wanted` or, if that is `None`, the host
/// of the first page. Without a page, it is the only host with objects. The first page is the
/// first response to a GET with status 200 and type `text/html`. Redirects before it do not count.
///
/// # Errors
/// The host has no objects. If `wanted` is `None` and there is no page, it is also an error that
/// the objects are from several hosts. The error is one line that names hosts with objects, if
/// there are any.
pub(super) fn of_host(
    mut exchanges: Vec<Exchange>,
    wanted: Option<&str>,
    mut found: SiteContent,
) -> Result<SiteContent, String> {
    exchanges.sort_by_key(|exchange| exchange.at);
    let host = match wanted.map(plain) {
        Some(host) => host,
        None => of_first_page(&exchanges)?,
    };
    if !exchanges.iter().any(|one| one.host == host && one.fetched.is_ok()) {
        return Err(nothing_of(&host, &exchanges));
    }
    let mut others = with_objects(&exchanges);
    others.remove(&*host);
    found.others = counted(&others);
    let began = exchanges.first().map_or(Duration::ZERO, |first| first.at);
    let mut fetched = Vec::new();
    for Exchange { host: own, at, request, fetched: taken } in exchanges {
        match taken {
            _ if own != host => found.leave_out("of another host"),
            Ok(object) => {
                if found.request.is_empty() && object.content_type() == "text/html" {
                    found.request = request;
                }
                fetched.push((object, at.saturating_sub(began)));
            }
            Err(why) => found.leave_out(why),
        }
    }
    found.follow(fetched);
    Ok(found)
}

/// Returns the host of the first HTML page. If there is no page, but all objects (successful
/// responses to GET requests) are from one host, returns that host. Otherwise, the error is a
/// message that there are no objects, or that they are from several hosts.
fn of_first_page(exchanges: &[Exchange]) -> Result<String, String> {
    let is_page = |one: &&Exchange| {
        let page = |object: &FetchedObject| object.content_type().eq_ignore_ascii_case("text/html");
        !CHECKS.contains(&&*one.host) && one.fetched.as_ref().is_ok_and(page)
    };
    if let Some(page) = exchanges.iter().find(is_page) {
        return Ok(page.host.clone());
    }
    let with = with_objects(exchanges);
    match with.iter().next() {
        None => Err(format!(
            "no GET request was answered with status 200 and a body: {}",
            reasons(exchanges)
        )),
        Some((host, _)) if with.len() == 1 => Ok((*host).to_owned()),
        Some(_) => Err(format!(
            "the recording has no HTML page. Its hosts, each with its number of files: {}. Choose \
             one of them with --host",
            counted(&with)
        )),
    }
}

/// Returns the number of objects (successful responses to GET requests) of each host in
/// `exchanges`. Hosts without an object are left out.
fn with_objects(exchanges: &[Exchange]) -> BTreeMap<&str, usize> {
    let mut hosts = BTreeMap::new();
    for one in exchanges.iter().filter(|one| one.fetched.is_ok()) {
        *hosts.entry(&*one.host).or_default() += 1;
    }
    hosts
}

fn nothing_of(host: &str, exchanges: &[Exchange]) -> String {
    let with = with_objects(exchanges);
    match with.is_empty() {
        true => format!(
            "no GET request was answered with status 200 and a body: {}",
            reasons(exchanges)
        ),
        false => format!(
            "the recording has no file of the host '{host}'. Its hosts, each with its number of \
             files: {}. Choose one of them with --host",
            counted(&with)
        ),
    }
}

/// Returns as text the five hosts with the most objects and their numbers of objects, such as
/// `b.net (12), a.net (3)`, followed by the number of further hosts.
fn counted(hosts: &BTreeMap<&str, usize>) -> String {
    let mut hosts: Vec<(&str, usize)> = hosts.iter().map(|(host, count)| (*host, *count)).collect();
    hosts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let named = hosts.iter().take(5).map(|(host, count)| format!("{host} ({count})"));
    let mut named: Vec<String> = named.collect();
    if hosts.len() > 5 {
        named.push(format!("and {} more", hosts.len() - 5));
    }
    named.join(", ")
}

fn reasons(exchanges: &[Exchange]) -> String {
    let mut all = BTreeMap::<&str, usize>::new();
    for why in exchanges.iter().filter_map(|one| one.fetched.as_ref().err()) {
        *all.entry(why).or_default() += 1;
    }
    let each = all.iter().map(|(why, count)| format!("{count} × {why}"));
    if all.is_empty() {
        "the recording has no request".to_owned()
    } else {
        each.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(at: u64, host: &str, kind: Result<&str, &'static str>) -> Exchange {
        let object = |kind: &str| FetchedObject {
            path: format!("/{at}"),
            headers: vec![("Content-Type".to_owned(), kind.to_owned())],
            body: vec![1],
        };
        let (host, at) = (plain(host), Duration::from_secs(at));
        Exchange { host, at, request: Vec::new(), fetched: kind.map(object) }
    }

    fn paths(exchanges: &[Exchange], wanted: Option<&str>) -> Result<Vec<String>, String> {
        let found = of_host(exchanges.to_vec(), wanted, SiteContent::default())?;
        Ok(found.objects.into_iter().map(|object| object.path).collect())
    }

    #[test]
    fn the_first_page_says_which_host_and_redirects_and_checks_do_not() {
        let visit = [
            exchange(9, "a.net", Ok("image/jpeg")),
            exchange(1, "update.example", Ok("application/json")),
            exchange(2, "detectportal.firefox.com", Ok("text/html")),
            exchange(3, "www.a.net", Err("not answered with 200")),
            exchange(4, "A.net:443", Ok("text/html; charset=utf-8")),
            exchange(5, "b.net", Ok("text/html")),
        ];
        assert_eq!(paths(&visit, None).unwrap(), ["/4", "/9"]);
        assert_eq!(paths(&visit, Some("B.net:80")).unwrap(), ["/5"]);
        let found = of_host(visit.to_vec(), None, SiteContent::default()).unwrap();
        assert_eq!(found.left_out["of another host"], 4);
        assert_eq!(found.others, "b.net (1), detectportal.firefox.com (1), update.example (1)");
    }

    #[test]
    fn where_nothing_is_found_hosts_to_be_named_are_said() {
        let no_page = [
            exchange(1, "a.net", Ok("image/jpeg")),
            exchange(2, "b.net", Ok("image/jpeg")),
            exchange(3, "b.net", Ok("image/png")),
        ];
        assert_eq!(paths(&no_page[1..], None).unwrap(), ["/2", "/3"], "the only one");
        let why = paths(&no_page, None).unwrap_err();
        assert_eq!(
            why,
            "the recording has no HTML page. Its hosts, each with its number of files: b.net (2), \
             a.net (1). Choose one of them with --host"
        );
        let why = paths(&no_page, Some("c.net")).unwrap_err();
        assert_eq!(
            why,
            "the recording has no file of the host 'c.net'. Its hosts, each with its number of \
             files: b.net (2), a.net (1). Choose one of them with --host"
        );
        let why = paths(&[exchange(1, "a.net", Err("not a GET request"))], None).unwrap_err();
        assert_eq!(
            why,
            "no GET request was answered with status 200 and a body: 1 × not a GET request"
        );
        let none = paths(&[], None).unwrap_err();
        assert!(none.ends_with(": the recording has no request"), "{none}");
    }
}

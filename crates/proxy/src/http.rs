//! The head of an HTTP request to a proxy (RFC 9110). Proposal 365 defines Tor's headers.

use std::net::{IpAddr, Ipv6Addr};

use base64ct::{Base64, Encoding};

use crate::answer::{HttpAnswer, Method, ProxyEnd, failed};
use crate::names::name;
use crate::{Family, Service};

/// Maximum bytes of the head of an HTTP request.
const LONGEST: usize = 8192;
/// Maximum number of header lines in a request.
const MOST_HEADERS: usize = 64;
/// HTML page for a browser whose user opens the proxy's address as if it were a web server.
const PAGE: &str = "<!doctype html><title>Not a web server</title>\
    <h1>This is the proxy port of an onion network's client</h1>\
    <p>It accepts SOCKS5, SOCKS4a and HTTP CONNECT. Set it as the SOCKS5 proxy of your program, \
    and let the proxy resolve names; in curl: <code>--proxy socks5h://ADDRESS:PORT</code>.\n";

/// A parsed request.
pub(crate) enum HttpRequest {
    /// A CONNECT request.
    Connect(Connect),
    /// The answer to a request with a method other than CONNECT. The program may send a further
    /// request on the same connection.
    Answered(Vec<u8>),
}

/// A CONNECT request for a stream.
pub(crate) struct Connect {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Values of the isolation headers, each preceded by its length. Streams with different values
    /// never share a circuit.
    pub(crate) isolation: Vec<u8>,
    pub(crate) family: Option<Family>,
    /// True if `Proxy-Authorization` has a form that applications should no longer use: any form
    /// except Basic with the user `tor-iso`.
    pub(crate) is_old_authorization: bool,
}

/// Parses the request at the front of `bytes`. Returns the length of the request's head, and the
/// request. Returns `None` while the head is incomplete.
///
/// # Errors
/// The request is invalid or not allowed, and no other request can follow on the connection. The
/// error contains the proxy's answer, which is empty if the proxy must not answer.
pub(crate) fn read(
    bytes: &[u8],
    service: Service,
) -> Result<Option<(usize, HttpRequest)>, ProxyEnd> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut head = httparse::Request::new(&mut headers);
    let length = match head.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length <= LONGEST => length,
        Ok(httparse::Status::Partial) if bytes.len() <= LONGEST => return Ok(None),
        _ => return Err(bad_request(service, Method::Other)),
    };
    let headers = Headers(head.headers);
    let method = head.method.unwrap_or_default();
    // This protects against DNS rebinding: a hostile page must not learn that a proxy listens
    // here.
    if method != "CONNECT" && !headers.first("host").is_some_and(is_local) {
        return Err(ProxyEnd(Vec::new()));
    }
    let target = head.path.unwrap_or_default();
    let request = match method {
        "CONNECT" => HttpRequest::Connect(connect(target, &headers, service)?),
        "OPTIONS" => HttpRequest::Answered(options(target, &headers, service)?),
        _ => return Err(not_allowed(method, service)),
    };
    Ok(Some((length, request)))
}

/// The headers of a request.
struct Headers<'head>(&'head [httparse::Header<'head>]);

impl<'head> Headers<'head> {
    /// Returns the value of the first header with this name; `None` if there is none. Later
    /// headers with the name are ignored (proposal 365).
    fn first(&self, name: &str) -> Option<&'head [u8]> {
        let is_it = |header: &&httparse::Header<'_>| header.name.eq_ignore_ascii_case(name);
        self.0.iter().find(is_it).map(|header| header.value)
    }
}

fn connect(target: &str, headers: &Headers<'_>, service: Service) -> Result<Connect, ProxyEnd> {
    let (host, port) = authority(target).ok_or_else(|| bad_request(service, Method::Connect))?;
    let authorization = headers.first("proxy-authorization");
    let Service::Tor { .. } = service else {
        let isolation = tuple([authorization, None, None]);
        return Ok(Connect { host, port, isolation, family: None, is_old_authorization: false });
    };
    if headers.first("tor-rpc-target").is_some() {
        return Err(ProxyEnd(failed(service, "501 Not Implemented", "anabranch/NO_RPC")));
    }
    let [new, old] = ["tor-stream-isolation", "x-tor-stream-isolation"];
    let isolation = tuple([authorization, headers.first(new), headers.first(old)]);
    let is_old_authorization = authorization.is_some_and(|value| !is_for_isolation(value));
    let family = headers.first("tor-family-preference").map(family);
    Ok(Connect { host, port, isolation, family, is_old_authorization })
}

/// Joins the values of the isolation headers unambiguously: each value is preceded by its length.
/// A missing header and an empty header have different encodings.
fn tuple(values: [Option<&[u8]>; 3]) -> Vec<u8> {
    let parts = values.into_iter().flat_map(|value| {
        let length = value.map_or(u16::MAX, |value| u16::try_from(value.len()).unwrap_or(u16::MAX));
        [&length.to_be_bytes(), value.unwrap_or_default()].concat()
    });
    parts.collect()
}

/// Returns whether the value of `Proxy-Authorization` has the scheme Basic, the user `tor-iso` and
/// any password (RFC 7617).
fn is_for_isolation(value: &[u8]) -> bool {
    let Ok(value) = std::str::from_utf8(value) else { return false };
    let Some((scheme, token)) = value.trim().split_once(' ') else { return false };
    let decoded = Base64::decode_vec(token.trim_start()).unwrap_or_default();
    scheme.eq_ignore_ascii_case("basic") && decoded.starts_with(b"tor-iso:")
}

/// Parses the value of `Tor-Family-Preference`. An unknown value is treated as the default of
/// proposal 365.
fn family(value: &[u8]) -> Family {
    match value.trim_ascii() {
        b"ipv6-preferred" => Family::PreferV6,
        b"ipv4-only" => Family::OnlyV4,
        b"ipv6-only" => Family::OnlyV6,
        _ => Family::PreferV4,
    }
}

/// Builds the answer to an OPTIONS request, with which programs query the proxy's capabilities
/// (proposal 365).
fn options(target: &str, headers: &Headers<'_>, service: Service) -> Result<Vec<u8>, ProxyEnd> {
    let has_body = headers.first("content-type").is_some()
        || headers.first("transfer-encoding").is_some()
        || headers.first("content-length").is_some_and(|length| length.trim_ascii() != b"0");
    if has_body || (target != "*" && authority(target).is_none()) {
        return Err(bad_request(service, Method::Other));
    }
    let answer = HttpAnswer::new(service, Method::Other, "200 OK");
    Ok(answer.header("Allow", "OPTIONS, CONNECT").empty())
}

fn not_allowed(method: &str, service: Service) -> ProxyEnd {
    let page = if method == "HEAD" { "" } else { PAGE };
    let answer = HttpAnswer::new(service, Method::Other, "405 Method Not Allowed")
        .header("Allow", "OPTIONS, CONNECT")
        .header("Content-Type", "text/html");
    ProxyEnd(answer.last(page))
}

fn bad_request(service: Service, method: Method) -> ProxyEnd {
    const STATUS: &str = "400 Bad Request";
    ProxyEnd(match method {
        Method::Connect => failed(service, STATUS, "anabranch/BAD_REQUEST"),
        Method::Other => HttpAnswer::new(service, method, STATUS).last(""),
    })
}

/// Returns whether the value of a `Host` header is a name of this machine: `localhost`, or a
/// loopback address.
fn is_local(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let host = host.trim();
    let name = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok());
    let name = name.map_or(host, |(name, _)| name);
    let bare = host.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let address = bare.map_or(name, |(address, _)| address);
    let is_loopback = |text: &str| text.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    name.eq_ignore_ascii_case("localhost") || is_loopback(address) || is_loopback(host)
}

/// Parses `HOST:PORT` or `[ADDRESS]:PORT`; returns `None` if the text has another form.
fn authority(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|&port| port != 0)?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = match bare {
        Some(address) => address.parse::<Ipv6Addr>().ok()?.to_string(),
        None => name(host.as_bytes()).filter(|host| !host.contains(':'))?,
    };
    Some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOR: Service = Service::Tor { extended: false };

    fn connected(headers: &str) -> Connect {
        let bytes = format!("CONNECT example.com:443 HTTP/1.1\r\n{headers}\r\n");
        match read(bytes.as_bytes(), TOR) {
            Ok(Some((length, HttpRequest::Connect(connect)))) if length == bytes.len() => connect,
            _ => panic!("{headers}"),
        }
    }

    fn hangup(request: &str) -> String {
        match read(request.as_bytes(), TOR) {
            Err(ProxyEnd(answer)) => String::from_utf8(answer).unwrap(),
            _ => panic!("{request}"),
        }
    }

    #[test]
    fn each_of_three_headers_keeps_streams_apart_and_none_passes_for_another() {
        let heads = [
            "",
            "Tor-Stream-Isolation: \r\n",
            "Tor-Stream-Isolation: a\r\n",
            "tor-stream-isolation: b\r\n",
            "X-Tor-Stream-Isolation: a\r\n",
            "Proxy-Authorization: a\r\n",
            "Proxy-Authorization: a\r\nTor-Stream-Isolation: b\r\n",
            "Proxy-Authorization: a\r\nX-Tor-Stream-Isolation: b\r\n",
            "Tor-Stream-Isolation: a\r\nX-Tor-Stream-Isolation: b\r\n",
            "Proxy-Authorization: ab\r\nTor-Stream-Isolation: \r\n",
        ];
        for (at, one) in heads.iter().enumerate() {
            assert_eq!(connected(one).isolation, connected(one).isolation);
            for other in &heads[..at] {
                assert_ne!(connected(one).isolation, connected(other).isolation, "{one}{other}");
            }
        }
        let twice = connected("Tor-Stream-Isolation: a\r\nTor-Stream-Isolation: b\r\n");
        assert_eq!(twice.isolation, connected("Tor-Stream-Isolation: a\r\n").isolation);
    }

    #[test]
    fn an_authorization_that_is_not_meant_for_isolation_is_noticed() {
        let old = |value: &str| {
            connected(&format!("Proxy-Authorization: {value}\r\n")).is_old_authorization
        };
        // The decoded values are `tor-iso:` and `tor-iso:password`.
        assert!(!old("Basic dG9yLWlzbzo=") && !old("basic  dG9yLWlzbzpwYXNzd29yZA=="));
        assert!(old("Basic YTpi") && old("Bearer dG9yLWlzbzo=") && old("Basic") && old("Basic !"));
        assert!(!connected("").is_old_authorization);
    }

    #[test]
    fn ip_versions_are_read_and_unknown_ones_mean_the_default() {
        let family =
            |value: &str| connected(&format!("Tor-Family-Preference: {value}\r\n")).family.unwrap();
        assert_eq!(family("ipv4-preferred"), Family::PreferV4);
        assert_eq!(family("ipv6-preferred"), Family::PreferV6);
        assert_eq!(family("ipv4-only"), Family::OnlyV4);
        assert_eq!(family("ipv6-only"), Family::OnlyV6);
        assert_eq!(family("ipv8"), Family::PreferV4);
        assert_eq!(connected("").family, None);
    }

    #[test]
    fn options_tells_what_is_understood() {
        let ask = "OPTIONS * HTTP/1.1\r\nHost: localhost:9250\r\n\r\nCONNECT";
        let Ok(Some((length, HttpRequest::Answered(answer)))) = read(ask.as_bytes(), TOR) else {
            panic!("no answer");
        };
        assert_eq!(&ask[length..], "CONNECT");
        let answer = String::from_utf8(answer).unwrap();
        for line in [
            "HTTP/1.1 200 OK",
            "Allow: OPTIONS, CONNECT",
            "Tor-Capabilities: Proxy-Authorization Tor-Family-Preference Tor-Stream-Isolation \
             X-Tor-Stream-Isolation",
            "Content-Length: 0",
        ] {
            assert!(answer.lines().any(|is| is == line), "{line} in {answer}");
        }
        assert!(answer.contains("\r\nServer: tor/1.0 (Anabranch "), "{answer}");
        for wrong in ["/ HTTP/1.1\r\n", "* HTTP/1.1\r\nContent-Length: 1\r\n"] {
            let answer = hangup(&format!("OPTIONS {wrong}Host: localhost\r\n\r\n"));
            assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        }
    }

    #[test]
    fn a_page_from_elsewhere_learns_nothing() {
        let ask = |method: &str, host: &str| hangup(&format!("{method} * HTTP/1.1\r\n{host}\r\n"));
        for host in ["a.example", "a.example:9250", "192.0.2.1", "[2001:db8::1]:80", "localhost.a"]
        {
            for method in ["GET", "HEAD", "POST", "OPTIONS"] {
                assert_eq!(ask(method, &format!("Host: {host}\r\n")), "", "{method} {host}");
            }
        }
        assert_eq!(ask("GET", ""), "", "a browser names its host");
        for host in ["localhost", "LOCALHOST:9250", "127.0.0.1:9250", "127.1.2.3", "[::1]:9250"] {
            assert!(ask("GET", &format!("Host: {host}\r\n")).starts_with("HTTP/1.1 405"), "{host}");
        }
    }

    #[test]
    fn an_rpc_target_is_refused_as_there_is_no_rpc() {
        let answer = hangup("CONNECT a.example:80 HTTP/1.1\r\nTor-RPC-Target: 1\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 501"), "{answer}");
        assert!(answer.contains("\r\nVia: tor/1.0 tor-network (Anabranch "), "{answer}");
    }

    #[test]
    fn a_transport_claims_to_be_no_tor_and_reads_none_of_its_headers() {
        let head = "CONNECT a.example:80 HTTP/1.1\r\nTor-RPC-Target: 1\r\n\r\n";
        assert!(matches!(read(head.as_bytes(), Service::Transport), Ok(Some(_))));
        let answer = read(b"CONNECT a HTTP/1.1\r\n\r\n", Service::Transport);
        let Err(ProxyEnd(answer)) = answer else { panic!("it was read") };
        assert!(!String::from_utf8(answer).unwrap().contains("or/1.0"));
    }
}

//! The proxy's answers to programs that use it, in the protocol of each program: SOCKS4, SOCKS5 or
//! HTTP.

use std::net::IpAddr;

use crate::{Outcome, Service};

/// SOCKS4's reply code for success.
pub(crate) const GRANTED_4: u8 = 0x5a;
/// SOCKS4's reply code for refusal.
pub(crate) const REJECTED_4: u8 = 0x5b;
/// Request headers that this proxy supports, as the value of `Tor-Capabilities`. Proposal 365 uses
/// a header's name also as the name of the capability to process it.
const CAPABILITIES: &str =
    "Proxy-Authorization Tor-Family-Preference Tor-Stream-Isolation X-Tor-Stream-Isolation";
/// Name and version of this program, for the HTTP headers `Via` and `Server`.
const SOFTWARE: &str = concat!("Anabranch ", env!("CARGO_PKG_VERSION"));

/// Error: a dialogue with a program ended before the program made a valid request. The contained
/// bytes must be sent to the program before the connection is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyEnd(pub Vec<u8>);

pub(crate) fn socks_answer(outcome: &Outcome) -> Vec<u8> {
    match outcome {
        Outcome::Connected => socks_reply(0),
        Outcome::Address(IpAddr::V4(address)) => {
            [&[5, 0, 0, 1][..], &address.octets(), &[0, 0]].concat()
        }
        Outcome::Address(IpAddr::V6(address)) => {
            [&[5, 0, 0, 4][..], &address.octets(), &[0, 0]].concat()
        }
        Outcome::Name(name) => {
            let name = &name.as_bytes()[..name.len().min(255)];
            let length = u8::try_from(name.len()).expect("the name was cut to 255 bytes");
            [&[5, 0, 0, 3, length][..], name, &[0, 0]].concat()
        }
        Outcome::Failed(reason) => socks_reply(reason.codes().socks),
    }
}

/// Builds a SOCKS5 reply with the reply code `code` and the address 0.0.0.0:0.
pub(crate) fn socks_reply(code: u8) -> Vec<u8> {
    vec![5, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

pub(crate) fn socks4_answer(outcome: &Outcome) -> Vec<u8> {
    match outcome {
        Outcome::Connected => socks4_reply(GRANTED_4, [0; 4]),
        Outcome::Address(IpAddr::V4(address)) => socks4_reply(GRANTED_4, address.octets()),
        // A SOCKS4 reply has no room for IPv6 addresses or names.
        Outcome::Address(IpAddr::V6(_)) | Outcome::Name(_) | Outcome::Failed(_) => {
            socks4_reply(REJECTED_4, [0; 4])
        }
    }
}

pub(crate) fn socks4_reply(code: u8, [a, b, c, d]: [u8; 4]) -> Vec<u8> {
    vec![0, code, 0, 0, a, b, c, d]
}

/// Method of the HTTP request to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Connect,
    /// Any other method, or none that could be parsed.
    Other,
}

/// An HTTP answer under construction.
pub(crate) struct HttpAnswer {
    head: String,
}

impl HttpAnswer {
    /// Starts an answer. For programs that use a Tor client, adds the headers of proposal 365.
    /// `Tor-Capabilities` lists the proxy's capabilities. `Via` (after CONNECT) or `Server` (after
    /// other methods) names this proxy's software.
    pub(crate) fn new(service: Service, method: Method, status: &str) -> HttpAnswer {
        let answer = HttpAnswer { head: format!("HTTP/1.1 {status}\r\n") };
        match (service, method) {
            (Service::Transport, _) => answer,
            (Service::Tor { .. }, Method::Connect) => answer
                .header("Tor-Capabilities", CAPABILITIES)
                .header("Via", &format!("tor/1.0 tor-network ({SOFTWARE})")),
            (Service::Tor { .. }, Method::Other) => answer
                .header("Tor-Capabilities", CAPABILITIES)
                .header("Server", &format!("tor/1.0 ({SOFTWARE})")),
        }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> HttpAnswer {
        self.head.extend([name, ": ", value, "\r\n"]);
        self
    }

    /// Completes the head of an answer. After this head, the connection carries the bytes of the
    /// program's stream.
    pub(crate) fn stream(self) -> Vec<u8> {
        (self.head + "\r\n").into_bytes()
    }

    /// Completes an answer without a body, after which another request may follow.
    pub(crate) fn empty(self) -> Vec<u8> {
        self.header("Content-Length", "0").stream()
    }

    /// Completes an answer with the body `page`, after which the connection is closed.
    pub(crate) fn last(self, page: &str) -> Vec<u8> {
        let length = page.len().to_string();
        let answer = self.header("Content-Length", &length).header("Connection", "close");
        (answer.head + "\r\n" + page).into_bytes()
    }
}

/// Builds the HTTP answer that reports `outcome` to a program that sent a CONNECT request.
pub(crate) fn http_answer(service: Service, outcome: &Outcome) -> Vec<u8> {
    let Outcome::Failed(reason) = outcome else {
        return HttpAnswer::new(service, Method::Connect, "200 Connection established").stream();
    };
    let codes = reason.codes();
    failed(service, codes.status, codes.token)
}

/// Builds an answer that refuses a CONNECT request. `token` is the value of `Tor-Request-Failed`;
/// the part of `token` after the slash is added to the status line.
pub(crate) fn failed(service: Service, status: &str, token: &str) -> Vec<u8> {
    let Service::Tor { .. } = service else {
        return HttpAnswer::new(service, Method::Connect, status).last("");
    };
    let (_, name) = token.split_once('/').unwrap_or(("", token));
    let answer = HttpAnswer::new(service, Method::Connect, &format!("{status} ({name})"));
    answer.header("Tor-Request-Failed", token).last("")
}

//! Answers in each protocol that programs speak.

use std::net::IpAddr;

use crate::{Outcome, Reason};

/// SOCKS4's code of success.
pub(crate) const GRANTED_4: u8 = 0x5a;
/// SOCKS4's code of refusal.
pub(crate) const REJECTED_4: u8 = 0x5b;

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
            let length = u8::try_from(name.len()).expect("it was cut to 255");
            [&[5, 0, 0, 3, length][..], name, &[0, 0]].concat()
        }
        Outcome::Failed(Reason::General | Reason::NoService) => socks_reply(1),
        Outcome::Failed(Reason::Forbidden) => socks_reply(2),
        Outcome::Failed(Reason::Unreachable) => socks_reply(4),
        Outcome::Failed(Reason::Refused) => socks_reply(5),
        Outcome::Failed(Reason::TimedOut) => socks_reply(6),
    }
}

/// A reply without an address.
pub(crate) fn socks_reply(code: u8) -> Vec<u8> {
    vec![5, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

pub(crate) fn socks4_answer(outcome: &Outcome) -> Vec<u8> {
    match outcome {
        Outcome::Connected => socks4_reply(GRANTED_4, [0; 4]),
        Outcome::Address(IpAddr::V4(address)) => socks4_reply(GRANTED_4, address.octets()),
        // It has no room for others, nor for names.
        Outcome::Address(IpAddr::V6(_)) | Outcome::Name(_) | Outcome::Failed(_) => {
            socks4_reply(REJECTED_4, [0; 4])
        }
    }
}

pub(crate) fn socks4_reply(code: u8, [a, b, c, d]: [u8; 4]) -> Vec<u8> {
    vec![0, code, 0, 0, a, b, c, d]
}

pub(crate) fn http_answer(outcome: &Outcome) -> Vec<u8> {
    match outcome {
        Outcome::Failed(Reason::Forbidden) => http_reply("403 Forbidden", ""),
        Outcome::Failed(Reason::NoService) => http_reply("501 Not Implemented", ""),
        Outcome::Failed(Reason::TimedOut) => http_reply("504 Gateway Timeout", ""),
        Outcome::Failed(_) => http_reply("502 Bad Gateway", ""),
        _ => b"HTTP/1.1 200 Connection established\r\n\r\n".to_vec(),
    }
}

/// `status` may have headers behind it.
pub(crate) fn http_reply(status: &str, page: &str) -> Vec<u8> {
    let length = page.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{page}")
        .into_bytes()
}

//! The SOCKS5 dialogue with a proxy: authentication, and the request for a UDP relay. It blocks,
//! and works over any byte stream.

use std::io::{Read, Write};
use std::net::SocketAddr;

use anabranch_proxy::client::{Credentials, SocksDialogue, SocksGrant, SocksRequest};

use super::fault::ProxyFault;

/// Asks the proxy at the other end of `stream` to relay UDP (RFC 1928, sections 3, 4 and 7).
/// Returns the relay's address as the proxy reports it; the unspecified address stands for the
/// proxy's own address. `v6` is true if the proxy was reached over IPv6.
///
/// # Errors
/// The proxy refuses to relay, or sends an invalid answer.
pub fn converse(
    stream: &mut (impl Read + Write),
    credentials: Option<&Credentials>,
    v6: bool,
) -> Result<SocketAddr, ProxyFault> {
    let (mut out, request) = (Vec::new(), SocksRequest::Associate { v6 });
    let mut client = SocksDialogue::new(request, credentials.cloned(), &mut out);
    loop {
        write_message(stream, &std::mem::take(&mut out))?;
        let mut bytes = vec![0; client.missing()];
        stream.read_exact(&mut bytes).map_err(ProxyFault::of_stream)?;
        if let Some(grant) = client.take(&bytes, &mut out)? {
            return relay_of(grant);
        }
    }
}

fn relay_of(grant: SocksGrant) -> Result<SocketAddr, ProxyFault> {
    match grant {
        SocksGrant::Socket(relay) if relay.port() == 0 => {
            Err(ProxyFault::Garbage("an address for UDP packets without a port".into()))
        }
        SocksGrant::Socket(relay) => Ok(relay),
        SocksGrant::Name => Err(ProxyFault::Garbage(
            "a host name where the address for UDP packets is expected".into(),
        )),
    }
}

/// Writes a message with one system call, so that it is sent in one TCP segment.
fn write_message(stream: &mut impl Write, message: &[u8]) -> Result<(), ProxyFault> {
    if message.is_empty() {
        return Ok(());
    }
    stream.write_all(message).and_then(|()| stream.flush()).map_err(ProxyFault::of_stream)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// A proxy that sends a fixed sequence of bytes, regardless of its input.
    struct Script {
        output: io::Cursor<Vec<u8>>,
        input: Vec<u8>,
    }

    impl Read for Script {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            // The text is read byte by byte, because messages may arrive in pieces of any length.
            let length = buffer.len().min(1);
            self.output.read(&mut buffer[..length])
        }
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.input.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn with(output: &[&[u8]], login: bool) -> (Result<SocketAddr, ProxyFault>, Vec<u8>) {
        let mut script = Script { output: io::Cursor::new(output.concat()), input: Vec::new() };
        let anna = Credentials { user: "anna".into(), password: "secret".into() };
        let result = converse(&mut script, login.then_some(&anna), false);
        (result, script.input)
    }

    fn fault(output: &[&[u8]], login: bool) -> String {
        with(output, login).0.unwrap_err().to_string()
    }

    const RELAY: &[u8] = b"\x05\0\0\x01\xc0\0\x02\x09\x04\xd2";

    #[test]
    fn without_a_login_two_messages_make_a_relay() {
        let (relay, input) = with(&[b"\x05\0", RELAY], false);
        assert_eq!(relay.unwrap(), "192.0.2.9:1234".parse().unwrap());
        assert_eq!(input, b"\x05\x01\0\x05\x03\0\x01\0\0\0\0\0\0");
    }

    #[test]
    fn a_login_is_offered_and_given_where_the_proxy_wants_it() {
        let (relay, input) = with(&[b"\x05\x02", b"\x01\0", RELAY], true);
        assert!(relay.is_ok());
        let expected = b"\x05\x02\x02\0\x01\x04anna\x06secret\x05\x03\0\x01\0\0\0\0\0\0";
        assert_eq!(input, expected);
        let (relay, input) = with(&[b"\x05\0", RELAY], true);
        assert!(relay.is_ok() && !input.windows(6).any(|part| part == b"secret"));
    }

    #[test]
    fn each_refusal_has_its_own_words() {
        let cases: [(&[&[u8]], bool, &str); 11] = [
            (&[b"\x05\xff"], false, "wants a user name and a password"),
            (&[b"\x05\x02"], false, "wants a user name and a password"),
            (&[b"\x05\xff"], true, "accepts neither"),
            (&[b"\x05\x01"], true, "did not offer"),
            (&[b"\x05\x02", b"\x01\x01"], true, "refuses the user name or the password"),
            (&[b"\x05\0", b"\x05\x07\0\x01\0\0\0\0\0\0"], false, "does not relay UDP"),
            (&[b"\x05\0", b"\x05\x02\0\x01\0\0\0\0\0\0"], false, "not allowed by its rules"),
            (&[b"\x05\0", b"\x05\x2a\0\x01\0\0\0\0\0\0"], false, "unknown reason 0x2a"),
            (&[b"\x05\0", b"\x05\0\0\x01\xc0\0\x02\x09\0\0"], false, "without a port"),
            (&[b"\x05\0", b"\x05\0\0\x03\x01x\0\x09"], false, "a host name where the address"),
            (&[b"\x05\0", b"\x05\0\0\x07"], false, "unknown type 0x07"),
        ];
        for (answers, login, words) in cases {
            let message = fault(answers, login);
            assert!(message.contains(words), "{answers:?}: {message}");
        }
    }

    #[test]
    fn what_is_no_proxy_is_told_by_its_first_byte() {
        assert!(fault(&[b"HTTP/1.1 400 Bad Request\r\n"], false).contains("0x48"));
        assert!(fault(&[b"\x05\0", b"SSH-2.0-x"], false).contains("0x53"));
    }

    #[test]
    fn an_end_anywhere_in_the_dialogue_is_a_hang_up() {
        let whole = [b"\x05\x02\x01\0", RELAY].concat();
        for length in 0..whole.len() {
            let (result, _) = with(&[&whole[..length]], true);
            assert!(matches!(result, Err(ProxyFault::HungUp)), "after {length} bytes: {result:?}");
        }
        assert!(with(&[&whole], true).0.is_ok());
    }
}

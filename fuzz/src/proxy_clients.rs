//! Replies of a proxy to our clients of SOCKS5 and HTTP CONNECT. Splitting them anywhere changes
//! nothing, each error is one plain line, and a password is sent only to proxies that ask for it.

use anabranch_proxy::SocksAddress;
use anabranch_proxy::client::{
    ClientFault, Credentials, Destination, HttpDialogue, SocksDialogue, SocksRequest,
};

/// Checks an input. The first byte is the length of the pieces; the rest is a proxy's replies.
pub fn check(input: &[u8]) {
    let Some((&piece, says)) = input.split_first() else { return };
    for login in [None, Some(anna())] {
        alike(says, piece, |says, piece| socks(says, piece, login.clone()));
        alike(says, piece, |says, piece| http(says, piece, login.as_ref()));
    }
    if let Ok(Some((address, length))) = SocksAddress::read(says) {
        let mut written = Vec::new();
        address.write(&mut written);
        assert_eq!(written, says[..length]);
    }
}

/// Outcome of a dialogue: whether a stream is open, the bytes after it, and the bytes sent.
type DialogueOutcome = (Result<bool, ClientFault>, Vec<u8>, Vec<u8>);

fn alike(says: &[u8], piece: u8, talk: impl Fn(&[u8], usize) -> DialogueOutcome) {
    let whole = talk(says, says.len().max(1));
    let cut = talk(says, usize::from(piece) + 1);
    match (&whole.0, &cut.0) {
        // An earlier look at an endless reply may find that it is malformed, too.
        (Err(_), Err(_)) => {}
        _ => assert_eq!(whole, cut),
    }
    if let Err(fault) = &whole.0 {
        let message = fault.to_string();
        assert!(!message.is_empty() && !message.chars().any(char::is_control), "{message:?}");
        assert!(!message.contains("secret"), "{message}");
    }
    if whole.0 == Ok(true) {
        assert!(says.ends_with(&whole.1), "what follows is handed on as it came");
    }
}

fn anna() -> Credentials {
    Credentials { user: "anna".into(), password: "secret".into() }
}

fn far() -> Destination {
    Destination::new("far.example.net", 443).expect("a name and a port")
}

fn socks(says: &[u8], piece: usize, login: Option<Credentials>) -> DialogueOutcome {
    let mut sent = Vec::new();
    let mut client = SocksDialogue::new(SocksRequest::Connect(far()), login, &mut sent);
    let mut open = Ok(false);
    for bytes in says.chunks(piece) {
        match client.take(bytes, &mut sent) {
            Ok(grant) => open = open.map(|before| before || grant.is_some()),
            Err(fault) => {
                open = Err(fault);
                break;
            }
        }
        assert!(open == Ok(true) || client.rest().len() < 262, "a reply has no more bytes");
    }
    assert_eq!(open == Ok(true), client.missing() == 0);
    let sends_password = sent.windows(6).any(|part| part == b"secret");
    assert!(!sends_password || says.starts_with(&[5, 2]), "the password went to a stranger");
    (open, client.rest().to_vec(), sent)
}

fn http(says: &[u8], piece: usize, login: Option<&Credentials>) -> DialogueOutcome {
    let mut sent = Vec::new();
    let client = HttpDialogue::new(&far(), login, &mut sent);
    let (mut client, mut open) = (client.expect("the login is sound"), Ok(false));
    for bytes in says.chunks(piece) {
        open = client.take(bytes);
        if open.is_err() {
            break;
        }
        assert!(open == Ok(true) || client.rest().len() <= 8_192, "memory is bounded");
    }
    (open, client.rest().to_vec(), sent)
}

//! Pluggable transports: lines of bridges, programs and transports, arguments, output and input of
//! a transport, SOCKS to a transport, and the Extended ORPort from either side. Accepted texts
//! read back the same, and reads are bounded.

use anabranch_pt::{
    Args, BridgeLine, COOKIE_FILE, ConnectionInfo, Environment, ExtOrClient, ExtOrServer,
};
use anabranch_pt::{Line, Manager, OfferLine, PluginLine, SocksClient};

/// Checks an input; the first byte selects the check.
pub fn check(bytes: &[u8]) {
    let Some((&kind, bytes)) = bytes.split_first() else { return };
    match kind % 8 {
        0 => text(bytes, bridge),
        1 => text(bytes, |text| arguments(&Args::from_smethod(text).ok())),
        2 => socks(bytes),
        3 => written(bytes),
        4 => text(bytes, environment),
        6 => text(bytes, plugin),
        7 => to_transport(bytes),
        _ => extended(bytes),
    }
}

fn text(bytes: &[u8], of: impl Fn(&str)) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        of(text);
    }
}

fn bridge(text: &str) {
    match BridgeLine::parse(text) {
        Ok(bridge) => {
            assert_eq!(BridgeLine::parse(&bridge.to_string()).as_ref(), Ok(&bridge), "{text:?}");
            assert!(bridge.address.port() > 0 && bridge.args.to_socks().is_ok(), "{text:?}");
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "more than one line: {text:?}"),
    }
}

fn plugin(text: &str) {
    match OfferLine::parse(text) {
        Ok(line) => assert_eq!(OfferLine::parse(&line.to_string()).as_ref(), Ok(&line)),
        Err(error) => assert!(!error.to_string().contains('\n'), "more than one line: {text:?}"),
    }
    match PluginLine::parse(text) {
        Ok(line) => assert_eq!(PluginLine::parse(&line.to_string()).as_ref(), Ok(&line)),
        Err(error) => assert!(!error.to_string().contains('\n'), "more than one line: {text:?}"),
    }
}

/// Checks that a transport's answers in pieces are read as at once, and that no more is sent than
/// allowed.
fn to_transport(bytes: &[u8]) {
    let args = Args(vec![("k".to_owned(), "v".to_owned())]);
    for args in [Args::default(), args] {
        let dialogue = |step: usize| {
            let mut out = Vec::new();
            let to = "192.0.2.1:443".parse().expect("a socket address");
            let mut client = SocksClient::new(to, &args, &mut out).expect("they are short");
            let end = bytes.chunks(step).map(|piece| client.take(piece, &mut out));
            (end.take_while(Result::is_ok).last(), out, client.rest())
        };
        let (whole, pieces) = (dialogue(bytes.len().max(1)), dialogue(1));
        assert!(whole.1.len() < 40 && pieces.1.len() < 40);
        if whole.0 == Some(Ok(true)) {
            assert_eq!(whole, pieces);
        }
    }
}

fn arguments(args: &Option<Args>) {
    let Some(args) = args else { return };
    assert_eq!(Args::from_smethod(&args.to_smethod()).as_ref(), Ok(args));
    if let Ok((user, password)) = args.to_socks() {
        assert!((1..=255).contains(&user.len()) && (1..=255).contains(&password.len()));
        assert_eq!(Args::from_socks(&user, &password).as_ref(), Ok(args));
    }
}

fn socks(bytes: &[u8]) {
    let (user, password) = bytes.split_at(bytes.len() / 2);
    arguments(&Args::from_socks(user, password).ok());
}

/// Checks that a transport's output in pieces is read as at once.
fn written(bytes: &[u8]) {
    for line in bytes.split(|byte| *byte == b'\n') {
        let Ok(line) = std::str::from_utf8(line) else { continue };
        let Some(read) = Line::read(line).filter(|read| *read != Line::Unknown) else { continue };
        assert_eq!(Line::read(&read.to_string()), Some(read), "{line:?}");
    }
    let (mut whole, mut pieces) = (Manager::new(false), Manager::new(false));
    let at_once = whole.take(bytes);
    let in_pieces = bytes.chunks(3).try_for_each(|piece| pieces.take(piece));
    if at_once.is_ok() && in_pieces.is_ok() {
        assert_eq!(whole.methods(), pieces.methods());
        assert_eq!(whole.is_ready(), pieces.is_ready());
    }
}

/// Checks variables, given as `NAME=VALUE` lines: an error is one line.
fn environment(text: &str) {
    let of = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once('='));
        lines.find(|(one, _)| *one == name).map(|(_, value)| value.to_owned())
    };
    if let Err(refused) = Environment::read(of) {
        assert_eq!(refused.0.to_string().lines().count(), 1, "{text:?}");
    }
}

fn extended(bytes: &[u8]) {
    let mut out = Vec::new();
    let mut server = ExtOrServer::new([7; 32], [1; 32], &mut out);
    let result = server.take(bytes, &mut out);
    assert!(!matches!(result, Ok(Some(_))), "nobody guesses the cookie");
    let file = [&COOKIE_FILE[..], &[7; 32]].concat();
    let client = ExtOrClient::new(&file, [2; 32], ConnectionInfo::default());
    let is_open = client.expect("it is a cookie").take(bytes, &mut out);
    assert_ne!(is_open, Ok(true), "nobody guesses the cookie");
    assert!(out.len() < 1_000, "answers are bounded");
}

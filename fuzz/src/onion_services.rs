//! Messages of onion services and their clients to a relay: nothing panics, nothing unsigned is
//! accepted, and a directory returns descriptors as they were stored.

use anabranch_onion::directory::hsdir::HsDir;
use anabranch_onion::directory::http::RequestReader;
use anabranch_onion::wire::hsdesc::{HsDescOuter, LONGEST, put_blinded_key, read_blinded_key};
use anabranch_onion::wire::rend::{
    EstablishIntro, IntroLimit, NONCE, read_establish_rendezvous, read_introduce1, read_rendezvous1,
};

use crate::documents::NOW;

/// Nonce of the circuit for which seeds are made.
pub const CIRCUIT: [u8; NONCE] = [7; NONCE];

/// Checks an input; the first byte selects the check.
pub fn check(bytes: &[u8]) {
    let Some((&kind, rest)) = bytes.split_first() else { return };
    match kind % 4 {
        0 => descriptor(rest),
        1 => request(rest),
        2 => establish(rest),
        _ => introduce(rest),
    }
}

fn descriptor(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(outer) = HsDescOuter::check(text, NOW) {
        assert!(text.len() <= LONGEST && (30..=720).contains(&outer.lifetime));
        let mut dir = HsDir::default();
        dir.publish(text, NOW).expect("it was checked");
        assert_eq!(dir.find(&outer.blinded_key, NOW).as_deref(), Some(text));
        assert!(dir.publish(text, NOW).is_err(), "a replay");
        let named = put_blinded_key(&outer.blinded_key);
        assert_eq!(read_blinded_key(&named), Some(outer.blinded_key));
    }
}

fn request(bytes: &[u8]) {
    let Ok(Some(request)) = RequestReader::new(LONGEST).push(bytes) else { return };
    let mut dir = HsDir::new(1_000);
    let reply = dir.answer(&request, true, NOW);
    assert!([200, 400, 404].contains(&reply.status()));
    assert_eq!(dir.answer(&request, false, NOW).status(), 503);
    assert!(dir.len() <= 1);
}

fn establish(bytes: &[u8]) {
    if let Some(wish) = EstablishIntro::check(bytes, &CIRCUIT) {
        assert!(EstablishIntro::check(bytes, &[8; NONCE]).is_none(), "for this circuit alone");
        if let IntroLimit::Rate { rate, burst } = wish.limit {
            assert!(rate > 0 && burst >= rate);
        }
    }
}

fn introduce(bytes: &[u8]) {
    if let Some(key) = read_introduce1(bytes) {
        assert_eq!(key, bytes[23..55]);
    }
    if let Some(cookie) = read_establish_rendezvous(bytes) {
        assert_eq!(cookie, bytes);
    }
    if let Some((cookie, rest)) = read_rendezvous1(bytes) {
        assert_eq!([&cookie[..], rest].concat(), bytes);
    }
}

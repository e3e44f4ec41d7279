//! Directory documents and key files of any origin: accepted ones have the properties that callers
//! rely on.

use anabranch_onion::directory::cache::Cache;
use anabranch_onion::directory::http::{RequestReader, ResponseReader};
use anabranch_onion::directory::policy::ExitPolicy;
use anabranch_onion::wire::family::FamilyKey;
use anabranch_onion::wire::keys::RelayKeys;
use anabranch_onion::wire::netdoc::{
    DocumentError, LONGEST_ITEM, Unproven, check_bridge, check_descriptor, parse_certs,
    parse_microdescs,
};

/// Time at which all seeds are valid.
pub const NOW: u64 = 1_800_000_000;

/// Checks an input; the first byte selects the check.
pub fn check(bytes: &[u8]) {
    let Some((&kind, rest)) = bytes.split_first() else { return };
    match kind % 8 {
        4 => return key_files(rest),
        5 => return response(rest),
        6 => return request(rest),
        _ => {}
    }
    let Ok(text) = std::str::from_utf8(rest) else { return };
    match kind % 8 {
        0 => consensus(text),
        1 => certificates(text),
        2 => microdescriptors(text),
        3 => descriptor(text),
        _ => exit_policy(text),
    }
}

/// Checks that no consensus is proven, because no authority's keys are known here.
fn consensus(text: &str) {
    let Ok(parsed) = Unproven::parse(text) else { return };
    let claimed: Vec<[u8; 20]> = parsed.signers().into_iter().map(|(who, _)| who).collect();
    let answer = parsed.prove(&claimed, &[], NOW);
    assert!(answer.is_err(), "proven without a certificate");
}

fn certificates(text: &str) {
    let Ok((certs, _)) = parse_certs(text) else { return };
    for cert in certs {
        assert!(text.contains(cert.text()), "a certificate out of nothing");
        let (again, bad) = parse_certs(cert.text()).expect("it was parsed before");
        assert_eq!((again.len(), bad), (1, 0), "its text is the certificate");
        assert_eq!(again[0].keys(), cert.keys());
    }
}

fn microdescriptors(text: &str) {
    let Ok((parsed, _)) = parse_microdescs(text) else { return };
    for (one, own) in parsed {
        assert!(own.len() <= LONGEST_ITEM && text.contains(own), "text out of nothing");
        let (again, _) = parse_microdescs(own).expect("it was parsed before");
        assert_eq!(again[0].0.digest, one.digest, "the digest is that of the text");
    }
}

fn descriptor(text: &str) {
    match check_descriptor(text, NOW) {
        Err(DocumentError::TooFewSigners(..)) => panic!("nobody signs for a relay"),
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(described) => {
            assert!(!described.addresses.is_empty(), "it is nowhere");
            let bridge = check_bridge(text, NOW).expect("it is a descriptor");
            assert_eq!(bridge.status.rsa_identity, described.rsa_identity);
            assert!(!bridge.microdesc.exits(), "nobody exits by a bridge");
        }
    }
}

/// Checks key files whose contents are all the same: no panic, and a message that names the file.
fn key_files(content: &[u8]) {
    let error = RelayKeys::from_files(|_| Some(content.to_vec())).expect_err("they differ in form");
    if let Ok(family) = FamilyKey::from_file(content) {
        assert_eq!(family.id().len(), 43, "32 bytes without padding");
    }
    assert!(!error.to_string().is_empty());
}

const LIMIT: usize = 100_000;

fn response(bytes: &[u8]) {
    let read = |piece: usize| {
        let mut reader = ResponseReader::new(LIMIT);
        bytes.chunks(piece).try_for_each(|piece| reader.push(piece))?;
        reader.finish()
    };
    let (whole, cut) = (read(bytes.len().max(1)), read(7));
    assert_eq!(whole, cut, "how it is cut changes nothing");
    assert!(whole.is_ok_and(|response| response.body.len() <= LIMIT) || cut.is_err());
}

/// Checks that an empty cache answers any request with valid HTTP.
fn request(bytes: &[u8]) {
    let mut reader = RequestReader::new(LIMIT);
    let Ok(Some(request)) = reader.push(bytes) else { return };
    let mut reader = ResponseReader::new(LIMIT);
    reader.push(&Cache::default().answer(&request)).expect("a short answer");
    assert!(matches!(reader.finish().expect("an answer of ours").status, 400 | 404));
}

fn exit_policy(text: &str) {
    let rules: Vec<&str> = text.lines().collect();
    let Ok(policy) = ExitPolicy::parse(&rules) else { return };
    let written: Vec<String> = policy.rules().collect();
    let again = ExitPolicy::parse(&written).expect("what is written can be read");
    let address = std::net::IpAddr::from([192, 0, 2, 1]);
    for port in [0, 1, 80, 65_535] {
        assert_eq!(policy.allows(address, port), again.allows(address, port), "{text:?}");
    }
}

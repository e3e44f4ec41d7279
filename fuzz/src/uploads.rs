//! Documents that any relay may publish at an authority. A relay signs with its own keys, so its
//! signature proves nothing about the content. Whatever its descriptor contains, the consensus
//! remains valid for clients, and lists only accepted relays.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::OnceLock;

use anabranch_multipath::seed::stream;
use anabranch_onion::authority::{
    About, Authority, Room, Rules, Settings, UploadOutcome, measured,
};
use anabranch_onion::directory::descriptor::Description;
use anabranch_onion::directory::diff::diff;
use anabranch_onion::wire::dirkeys::{AuthorityKeys, IdentityKey};
use anabranch_onion::wire::keys::RelayKeys;
use anabranch_onion::wire::netdoc::{Unproven, parse_microdescs};
use base64ct::{Base64, Base64Unpadded, Encoding};

use crate::documents::NOW;

/// Prefix of the data that the Ed25519 signature of a descriptor covers (dir-spec,
/// "router-sig-ed25519").
const SIGNED_FOR: &[u8] = b"Tor router descriptor signature v1";

/// Separator of an input of two texts.
const BETWEEN: &str = "\n----\n";

/// Checks an input; the first byte selects the check.
pub fn check(bytes: &[u8]) {
    let Some((&kind, rest)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    match kind % 6 {
        0 => uploaded(text),
        1 => uploaded(&signed(text)),
        2 => bandwidths(text),
        3 => taken_up(text),
        4 => differs(text),
        _ => keys(text),
    }
}

/// Returns a descriptor signed with fixed keys. The first two lines are the values of `platform`
/// and `proto`; the others follow the keys.
pub fn signed(lines: &str) -> String {
    let mut parts = lines.splitn(3, '\n');
    let mut part = || parts.next().unwrap_or_default();
    let fields = [("platform", part()), ("proto", part())];
    let mut text = plain().to_owned();
    for (keyword, rest) in fields {
        let place = text.find(&format!("\n{keyword} ")).expect("every descriptor has it") + 1;
        let end = place + text[place..].find('\n').expect("a whole line");
        text.replace_range(place..end, &format!("{keyword} {rest}"));
    }
    let place = text.find("\nntor-onion-key ").expect("every descriptor has this key") + 1;
    text.truncate(place + text[place..].find('\n').expect("a whole line"));
    text += &format!("\n{}\nrouter-sig-ed25519 ", part().trim_end_matches('\n'));
    let keys = relay();
    let signature = keys.sign_digest(SIGNED_FOR, text.as_bytes());
    text += &format!("{}\nrouter-signature\n", Base64Unpadded::encode_string(&signature));
    let signature = keys.sign_sha1(text.as_bytes()).expect("a key that signs");
    let signature = Base64::encode_string(&signature);
    let rows: Vec<&str> = (0..signature.len())
        .step_by(64)
        .map(|start| &signature[start..signature.len().min(start + 64)])
        .collect();
    text + &format!("-----BEGIN SIGNATURE-----\n{}\n-----END SIGNATURE-----\n", rows.join("\n"))
}

/// Returns a normal descriptor of this relay.
fn plain() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let at = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 7), 9001);
        let plain = Description::new("stranger".to_owned(), at, "Tor 0.4.9.11 on Linux".to_owned());
        plain.sign(relay(), NOW).expect("a plain description")
    })
}

fn uploaded(text: &str) {
    let mut authority = authority();
    match authority.upload(NOW, text, Some([192, 0, 2, 7].into())) {
        Err(refusal) => assert!(!refusal.to_string().is_empty()),
        Ok(UploadOutcome::Known) => panic!("nobody was known"),
        Ok(UploadOutcome::New(id)) => listed(authority, id),
    }
}

fn taken_up(text: &str) {
    let mut authority = authority();
    if let Ok(UploadOutcome::New(id)) = authority.take_up(NOW, text) {
        assert!(authority.descriptor(&id).is_some(), "what was taken is there");
    }
    assert!(authority.restore(NOW, [text, text], text).is_err(), "nobody else signs for us");
}

/// Checks a relay that answers probes: it is the only one in the next consensus, and both flavours
/// can be read.
fn listed(mut authority: Authority, id: [u8; 20]) {
    let probes = authority.probes(NOW, Room { running: 8, others: 8 });
    for probe in &probes {
        assert_eq!(probe.target.rsa, id, "somebody else is probed");
        authority.probed(NOW, &probe.target, true);
    }
    let documents = authority.publish(NOW).expect("our keys hold").clone();
    for text in [&documents.ns, &documents.microdesc] {
        let rows = text.lines().filter(|line| line.starts_with("r ")).count();
        assert!(rows <= 1, "a stranger lists others");
        assert_eq!(text.matches("\ndirectory-footer\n").count(), 1);
        // A relay that hibernates is not listed, and no client accepts an empty list: the
        // authority's owner waits until the authority itself is listed.
        if rows == 1 && std::ptr::eq(text, &documents.microdesc) {
            let parsed = Unproven::parse(text).expect("clients can read it");
            assert_eq!(parsed.signers().len(), 1, "we alone sign");
        }
    }
    let texts: String = documents.microdescs.values().map(|(text, _)| &text[..]).collect();
    let (parsed, bad) = parse_microdescs(&texts).expect("clients can read them");
    assert_eq!((parsed.len(), bad), (documents.microdescs.len(), 0));
}

fn bandwidths(text: &str) {
    match measured::read(text, NOW) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(found) => {
            assert!(found.len() < text.lines().count(), "the first line is a time");
            authority().measure(found);
        }
    }
}

/// Checks the diff between two texts: if there is one, it converts the first to the second.
fn differs(text: &str) {
    let Some((old, new)) = text.split_once(BETWEEN) else { return };
    let Some(diff) = diff(old, new) else { return };
    let made = patched(&old.lines().collect::<Vec<&str>>(), &diff);
    assert_eq!(made, new.lines().collect::<Vec<&str>>(), "{diff:?}");
}

/// Applies a diff to lines (dir-spec, appendix E): commands of ed, from back to front.
fn patched<'a>(old: &[&'a str], diff: &'a str) -> Vec<&'a str> {
    let mut made = old.to_vec();
    let mut lines = diff.lines().skip(2);
    while let Some(command) = lines.next() {
        let split = command.len() - 1;
        let (range, verb) = command.split_at(split);
        let (first, last) = range.split_once(',').unwrap_or((range, range));
        let first: usize = first.parse().expect("a number of a line");
        let last = if last == "$" { made.len() } else { last.parse().expect("a number of a line") };
        let lines = lines.by_ref().take_while(|line| verb != "d" && *line != ".");
        match verb {
            "a" => drop(made.splice(first..first, lines).count()),
            "c" => drop(made.splice(first - 1..last, lines).count()),
            _ => drop(made.drain(first - 1..last)),
        }
    }
    made
}

/// Checks a signing key and its certificate as file contents.
fn keys(text: &str) {
    let (signing, certificate) = text.split_once(BETWEEN).unwrap_or((text, ""));
    if let Err(error) = AuthorityKeys::from_files(signing, certificate) {
        assert!(!error.to_string().is_empty());
    }
    if let Err(error) = IdentityKey::from_pem(signing) {
        assert!(!error.to_string().is_empty());
    }
}

/// Creates the keys that all inputs share. With a sanitizer this takes half a minute, which is
/// more than an input may take.
pub fn prepare() {
    plain();
    authority();
}

fn relay() -> &'static RelayKeys {
    static KEYS: OnceLock<RelayKeys> = OnceLock::new();
    KEYS.get_or_init(|| RelayKeys::generate(&mut stream(7, 0, "relay"), NOW).expect("keys"))
}

fn authority() -> Authority {
    static FILES: OnceLock<([u8; 20], String, String)> = OnceLock::new();
    let (identity, signing, certificate) = FILES.get_or_init(|| {
        let identity = IdentityKey::generate(&mut stream(1, 0, "identity")).expect("a key");
        let keys = identity.certify(&mut stream(1, 0, "signing"), NOW - 100, NOW + 90_000);
        let keys = keys.expect("a certificate");
        (identity.identity(), keys.to_pem().expect("PEM"), keys.certificate().to_owned())
    });
    let keys = AuthorityKeys::from_files(signing, certificate).expect("files of ours");
    let about = About {
        nickname: "dam".to_owned(),
        identity: *identity,
        relay: [1; 20],
        address: Ipv4Addr::new(192, 0, 2, 99),
        dir_port: 9030,
        or_port: 9001,
        contact: "somebody".to_owned(),
    };
    let rules = Rules { allow_private: true, ..Default::default() };
    Authority::new(about, Settings { rules, ..Settings::default() }, keys)
}

//! A directory authority for tests, which certifies its keys and signs a consensus of given
//! relays, but does not vote. Its documents follow dir-spec and share no code with
//! `anabranch_onion`, so they test the parsers of that crate.

use anabranch_onion::directory::civil::utc;
use anabranch_onion::wire::keys::{sha1, sha256};
use anabranch_onion::wire::text::hex;
use base64ct::{Base64Unpadded, Encoding};
use rand::CryptoRng;
use rsa::pkcs1::EncodeRsaPublicKey;
use rsa::{Pkcs1v15Sign, RsaPrivateKey, rand_core};

use crate::netdoc::{line, object};

/// Size in bits of the test authority's RSA keys. The size is small, because generating keys takes
/// most of a test's time.
const BITS: usize = 1024;

/// Keys of one directory authority for tests.
pub struct Authority {
    name: String,
    identity: RsaPrivateKey,
    signing: RsaPrivateKey,
}

/// One relay of a consensus for a test.
#[derive(Clone, Debug)]
pub struct TestRelay {
    /// Nickname of the relay.
    pub nickname: String,
    /// RSA identity of the relay.
    pub rsa_identity: [u8; 20],
    /// Text of the relay's microdescriptor.
    pub microdesc: String,
    /// Address and port of the relay, as in `192.0.2.1 9001`. The address is IPv4.
    pub at: String,
    /// Flags of the relay, as in an `s` line of a consensus.
    pub flags: String,
    /// Subprotocols of the relay, as in a `pr` line of a consensus.
    pub protocols: String,
    /// Bandwidth weight of the relay in the consensus.
    pub bandwidth: u32,
}

impl Authority {
    /// Creates an authority with new keys.
    pub fn generate<R: CryptoRng>(name: &str, rng: &mut R) -> Authority {
        let mut key = || RsaPrivateKey::new(&mut OldRng(&mut *rng), BITS).unwrap();
        Authority { name: name.to_owned(), identity: key(), signing: key() }
    }

    /// Returns the authority's identity (v3ident).
    #[must_use]
    pub fn identity(&self) -> [u8; 20] {
        digest(&self.identity)
    }

    /// Returns the authority's key certificate, valid from `from` to `until`, in seconds since
    /// 1970 (dir-spec 3.1).
    #[must_use]
    pub fn certificate(&self, from: u64, until: u64) -> String {
        let id = self.identity();
        let mut text = "dir-key-certificate-version 3\n".to_owned();
        line(&mut text, &format!("fingerprint {}", hex(&id)));
        line(&mut text, &format!("dir-key-published {}", utc(from)));
        line(&mut text, &format!("dir-key-expires {}", utc(until)));
        line(&mut text, "dir-identity-key");
        object(&mut text, "RSA PUBLIC KEY", &public(&self.identity));
        line(&mut text, "dir-signing-key");
        object(&mut text, "RSA PUBLIC KEY", &public(&self.signing));
        line(&mut text, "dir-key-crosscert");
        object(&mut text, "ID SIGNATURE", &sign(&self.signing, &id));
        line(&mut text, "dir-key-certification");
        let certified = sign(&self.identity, &sha1(text.as_bytes()));
        object(&mut text, "SIGNATURE", &certified);
        text
    }

    /// Signs the consensus `unsigned`, which has no signatures. Returns the `directory-signature`
    /// item to append.
    #[must_use]
    pub fn signature(&self, unsigned: &str) -> String {
        let signed = format!("{unsigned}directory-signature ");
        let keys = format!("{} {}", hex(&self.identity()), hex(&digest(&self.signing)));
        let mut text = format!("directory-signature sha256 {keys}\n");
        object(&mut text, "SIGNATURE", &sign(&self.signing, &sha256(signed.as_bytes())));
        text
    }
}

/// Returns the public part of `key` in DER (PKCS#1).
fn public(key: &RsaPrivateKey) -> Vec<u8> {
    key.to_public_key().to_pkcs1_der().unwrap().into_vec()
}

/// Returns the digest that identifies `key` in directory documents.
fn digest(key: &RsaPrivateKey) -> [u8; 20] {
    sha1(&public(key))
}

/// Signs `digest` as Tor does: with PKCS#1 padding that does not name the digest's algorithm.
fn sign(key: &RsaPrivateKey, digest: &[u8]) -> Vec<u8> {
    key.sign(Pkcs1v15Sign::new_unprefixed(), digest).unwrap()
}

/// Adapter that implements the older generator trait of the RSA library for the generator `R`.
struct OldRng<'a, R>(&'a mut R);

impl<R: CryptoRng> rand_core::RngCore for OldRng<'_, R> {
    fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), rand_core::Error> {
        self.0.fill_bytes(bytes);
        Ok(())
    }
}

impl<R: CryptoRng> rand_core::CryptoRng for OldRng<'_, R> {}

impl TestRelay {
    /// Returns an entry for a relay that is both a guard and an exit, with this identity and
    /// microdescriptor.
    #[must_use]
    pub fn exit(nickname: &str, rsa_identity: [u8; 20], microdesc: String) -> TestRelay {
        TestRelay {
            nickname: nickname.to_owned(),
            rsa_identity,
            microdesc,
            at: "192.0.2.1 9001".to_owned(),
            flags: "Exit Fast Guard Running Stable V2Dir Valid".to_owned(),
            protocols: "FlowCtrl=1-2 Link=4-5 Relay=2-4".to_owned(),
            bandwidth: 77,
        }
    }
}

/// Returns an unsigned consensus of `authorities` that lists `relays`. The times are those of the
/// lines `valid-after`, `fresh-until` and `valid-until`, in seconds since 1970.
#[must_use]
pub fn unsigned_consensus(
    authorities: &[Authority],
    relays: &[TestRelay],
    [after, fresh, until]: [u64; 3],
    params: &str,
) -> String {
    let mut text = head([after, fresh, until], params);
    let mut authorities: Vec<&Authority> = authorities.iter().collect();
    authorities.sort_by_key(|authority| authority.identity());
    for authority in authorities {
        let id = hex(&authority.identity());
        line(&mut text, &format!("dir-source {} {id} 127.0.0.1 127.0.0.1 1 1", authority.name));
        line(&mut text, "contact nobody");
        line(&mut text, &format!("vote-digest {id}"));
    }
    let mut relays: Vec<&TestRelay> = relays.iter().collect();
    relays.sort_by_key(|relay| relay.rsa_identity);
    relays.into_iter().for_each(|relay| listed(&mut text, relay));
    line(&mut text, "directory-footer");
    line(
        &mut text,
        "bandwidth-weights Wbd=3333 Wbe=0 Wbg=0 Wbm=10000 Wdb=10000 Web=10000 Wed=3333 Wee=10000 \
         Weg=3333 Wem=10000 Wgb=10000 Wgd=3333 Wgg=10000 Wgm=10000 Wmb=10000 Wmd=3333 Wme=0 Wmg=0 \
         Wmm=10000",
    );
    text
}

/// Returns the text of a microdescriptor with these keys; `rest` has further lines.
#[must_use]
pub fn microdescriptor(tap: &[u8], ntor: &[u8; 32], ed_identity: &[u8; 32], rest: &str) -> String {
    let mut text = "onion-key\n".to_owned();
    object(&mut text, "RSA PUBLIC KEY", tap);
    line(&mut text, &format!("ntor-onion-key {}", Base64Unpadded::encode_string(ntor)));
    text.push_str(rest);
    line(&mut text, &format!("id ed25519 {}", Base64Unpadded::encode_string(ed_identity)));
    text
}

/// Returns the microdescriptor of an exit that allows ports 80 and 443.
#[must_use]
pub fn exit_microdescriptor(tap: &[u8], ntor: &[u8; 32], ed_identity: &[u8; 32]) -> String {
    microdescriptor(tap, ntor, ed_identity, "p accept 80,443\n")
}

fn head([after, fresh, until]: [u64; 3], params: &str) -> String {
    const REQUIRED: &str = "Cons=2 Desc=2 FlowCtrl=1 Link=4-5 Microdesc=2 Relay=2";
    let mut text = "network-status-version 3 microdesc\nvote-status consensus\n".to_owned();
    line(&mut text, "consensus-method 33");
    line(&mut text, &format!("valid-after {}", utc(after)));
    line(&mut text, &format!("fresh-until {}", utc(fresh)));
    line(&mut text, &format!("valid-until {}", utc(until)));
    line(&mut text, "voting-delay 2 2\nclient-versions\nserver-versions");
    line(&mut text, "known-flags Authority BadExit Exit Fast Guard Running Stable V2Dir Valid");
    for who in ["recommended-client", "recommended-relay", "required-client", "required-relay"] {
        line(&mut text, &format!("{who}-protocols {REQUIRED}"));
    }
    line(&mut text, &format!("params {params}"));
    text
}

fn listed(text: &mut String, relay: &TestRelay) {
    let id = Base64Unpadded::encode_string(&relay.rsa_identity);
    line(text, &format!("r {} {id} 2038-01-01 00:00:00 {} 0", relay.nickname, relay.at));
    let digest = Base64Unpadded::encode_string(&sha256(relay.microdesc.as_bytes()));
    line(text, &format!("m {digest}"));
    line(text, &format!("s {}", relay.flags));
    line(text, "v Tor 0.4.9.11");
    line(text, &format!("pr {}", relay.protocols));
    line(text, &format!("w Bandwidth={}", relay.bandwidth));
}

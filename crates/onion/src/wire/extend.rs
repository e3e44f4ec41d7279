//! Circuit extension: the bodies of CREATE2, CREATED2, EXTEND2 and EXTENDED2, link specifiers, and
//! the extensions of ntor-v3.

use std::net::SocketAddr;

use tor_bytes::{Reader, Writer};
use tor_cell::relaycell::extend::{CcRequest, CcResponse, CircRequestExt, CircResponseExt};
use tor_cell::relaycell::msg::{Body as _, Extend2};
use tor_linkspec::{EncodedLinkSpec, LinkSpec, LinkSpecType};

/// Placeholder for an unknown RSA identity of a bridge, if the bridge line has no fingerprint.
pub const UNKNOWN_RSA: [u8; 20] = [0; 20];

/// The handshake type of CREATE2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(pub u16);

impl Kind {
    /// ntor: curve25519 and SHA-256.
    pub const NTOR: Kind = Kind(2);
    /// ntor-v3: curve25519, SHA3-256, and messages in both directions.
    pub const NTOR_V3: Kind = Kind(3);
}

/// A relay's addresses and identities, as in EXTEND2 (tor-spec, "EXTEND and EXTENDED cells").
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The relay's OR addresses and ports, in the order received.
    pub addresses: Vec<SocketAddr>,
    /// SHA-1 of the relay's RSA identity key; [`UNKNOWN_RSA`] if a client accepts any relay at the
    /// address.
    pub rsa: [u8; 20],
    /// The relay's Ed25519 identity key, if known.
    pub ed25519: Option<[u8; 32]>,
}

/// A client's request to extend its circuit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extend {
    /// The relay to extend to.
    pub target: Target,
    /// The type of the handshake with the relay to extend to.
    pub kind: Kind,
    /// The handshake data for CREATE2.
    pub handshake: Vec<u8>,
}

impl Extend {
    /// Parses the data of EXTEND2. Returns `None` if the data is malformed: it must have an
    /// address, exactly one RSA identity, and at most one Ed25519 identity.
    pub fn read(data: &[u8]) -> Option<Extend> {
        let message = Extend2::decode_from_reader(&mut Reader::from_slice(data)).ok()?;
        let mut target = Target::default();
        let mut rsa = None;
        for specifier in message.linkspecs() {
            match specifier.parse().ok()? {
                LinkSpec::OrPort(address, port) => {
                    // Take one address of each family, which is what clients send. Otherwise a
                    // client could make us connect to many addresses.
                    let address = SocketAddr::from((address, port));
                    if !target.addresses.iter().any(|other| other.is_ipv4() == address.is_ipv4()) {
                        target.addresses.push(address);
                    }
                }
                LinkSpec::RsaId(id) if rsa.is_none() => rsa = Some(id.to_bytes()),
                LinkSpec::Ed25519Id(id) if target.ed25519.is_none() => {
                    target.ed25519 = Some(id.into());
                }
                LinkSpec::RsaId(_) | LinkSpec::Ed25519Id(_) => return None,
                _ => {}
            }
        }
        // A relay extends only to a relay whose identity it can verify.
        target.rsa = rsa.filter(|id| !target.addresses.is_empty() && *id != UNKNOWN_RSA)?;
        let kind = Kind(message.handshake_type().into());
        Some(Extend { target, kind, handshake: message.handshake().to_vec() })
    }

    /// Returns the data of EXTEND2, with the link specifiers in C tor's order.
    pub fn write(&self) -> Vec<u8> {
        let target = &self.target;
        let (v4, v6): (Vec<_>, Vec<_>) = target.addresses.iter().partition(|a| a.is_ipv4());
        let port = |address: &&SocketAddr| LinkSpec::from(**address);
        let mut specifiers: Vec<LinkSpec> = v4.iter().map(port).collect();
        specifiers.push(LinkSpec::RsaId(target.rsa.into()));
        specifiers.extend(target.ed25519.map(|id| LinkSpec::Ed25519Id(id.into())));
        specifiers.extend(v6.iter().map(port));
        let encoded = specifiers.iter().map(encode).collect();
        let message = Extend2::new(encoded, self.kind.0.into(), self.handshake.clone());
        let mut data = Vec::new();
        message.encode_onto(&mut data).expect("a handshake is shorter than 64 KiB");
        data
    }
}

fn encode(specifier: &LinkSpec) -> EncodedLinkSpec {
    specifier.encode().unwrap_or_else(|_| EncodedLinkSpec::new(LinkSpecType::RSAID, []))
}

/// Returns the body of CREATE2: type, length, handshake.
pub fn put_create2(kind: Kind, handshake: &[u8]) -> Vec<u8> {
    let mut body = kind.0.to_be_bytes().to_vec();
    body.extend(put_created2(handshake));
    body
}

/// Parses the body of CREATE2. Returns `None` if the handshake is longer than the cell.
pub fn read_create2(body: &[u8]) -> Option<(Kind, &[u8])> {
    let (kind, rest) = body.split_first_chunk()?;
    Some((Kind(u16::from_be_bytes(*kind)), read_created2(rest)?))
}

/// Returns the body of CREATED2, which is also the data of EXTENDED2: length, handshake.
///
/// # Panics
/// If the handshake is longer than 64 KiB.
pub fn put_created2(handshake: &[u8]) -> Vec<u8> {
    let length = u16::try_from(handshake.len()).expect("our handshakes fit into a cell");
    [&length.to_be_bytes(), handshake].concat()
}

/// Parses the body of CREATED2, or the data of EXTENDED2. Returns the handshake data; `None` if it
/// is truncated.
pub fn read_created2(body: &[u8]) -> Option<&[u8]> {
    let (length, rest) = body.split_first_chunk()?;
    rest.get(..usize::from(u16::from_be_bytes(*length)))
}

/// An extension of the ntor-v3 handshake that this crate knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extension {
    /// The client requests congestion control.
    CongestionRequest,
    /// The relay grants congestion control. Contains the number of cells that one SENDME
    /// acknowledges (`sendme_inc`).
    CongestionAnswer(u8),
    /// The client requests these subprotocols (proposal 346): pairs of a protocol's identifier and
    /// a version, in ascending order.
    Subprotocols(Vec<(u8, u8)>),
    /// The client requests, or the relay grants, keys for lossy cells (sent in datagrams; see
    /// `docs/spec/lossy-circuits.md`).
    Lossy,
}

/// Type of the extension [`Extension::Lossy`], in both directions (`docs/spec/numbers.md`).
const LOSSY: u8 = 208;

/// Encodes an extension list.
pub fn put_extensions(extensions: &[Extension]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.write_u8(extensions.len() as u8);
    for extension in extensions {
        match extension {
            Extension::CongestionRequest => bytes.write_all(&[1, 0]),
            Extension::CongestionAnswer(sendme_inc) => bytes.write_all(&[2, 1, *sendme_inc]),
            Extension::Subprotocols(wanted) => {
                bytes.write_all(&[3, 2 * wanted.len() as u8]);
                wanted.iter().for_each(|&(kind, version)| bytes.write_all(&[kind, version]));
            }
            Extension::Lossy => bytes.write_all(&[LOSSY, 0]),
        }
    }
    bytes
}

/// Parses the extension list in a client's ntor-v3 message. Returns the extensions that this crate
/// knows; `None` if the list is malformed.
pub fn read_requests(message: &[u8]) -> Option<Vec<Extension>> {
    let extensions = CircRequestExt::decode(message).ok()?;
    let known = extensions.iter().filter_map(|extension| match extension {
        CircRequestExt::CcRequest(CcRequest { .. }) => Some(Extension::CongestionRequest),
        CircRequestExt::SubprotocolRequest(_) => Some(Extension::Subprotocols(pairs(message))),
        _ => None,
    });
    Some(known.chain(lossy(message)).collect())
}

/// Parses the extension list in a relay's ntor-v3 message. Returns the extensions that this crate
/// knows; `None` if the list is malformed.
pub fn read_answers(message: &[u8]) -> Option<Vec<Extension>> {
    let extensions = CircResponseExt::decode(message).ok()?;
    let known = extensions.iter().filter_map(|extension| match extension {
        CircResponseExt::CcResponse(answer) => Some(granted(answer)),
        _ => None,
    });
    Some(known.chain(lossy(message)).collect())
}

/// Returns the subprotocols that the extension list `message` requests, because the parser of the
/// crate `tor-cell` does not return them. That parser must have accepted `message`.
fn pairs(message: &[u8]) -> Vec<(u8, u8)> {
    let body = body_of(message, 3).unwrap_or_default();
    body.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
}

/// Returns [`Extension::Lossy`] if the extension list `message`, already parsed without error,
/// contains it. Ignores the extension's body, which only later versions may define.
fn lossy(message: &[u8]) -> Option<Extension> {
    body_of(message, LOSSY).map(|_| Extension::Lossy)
}

/// Returns the body of the first extension of type `wanted` in the extension list `message`, which
/// was already parsed without error. Returns `None` if there is none.
fn body_of(message: &[u8], wanted: u8) -> Option<&[u8]> {
    let mut rest = message.get(1..)?;
    while let Some((&[kind, length], tail)) = rest.split_first_chunk() {
        let (body, next) = tail.split_at_checked(length.into()).unwrap_or((tail, &[]));
        if kind == wanted {
            return Some(body);
        }
        rest = next;
    }
    None
}

fn granted(answer: &CcResponse) -> Extension {
    Extension::CongestionAnswer(answer.sendme_inc())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extend() -> Extend {
        let target = Target {
            addresses: vec![
                "192.0.2.7:9001".parse().unwrap(),
                "[2001:db8::7]:9001".parse().unwrap(),
            ],
            rsa: [3; 20],
            ed25519: Some([4; 32]),
        };
        Extend { target, kind: Kind::NTOR, handshake: vec![5; 84] }
    }

    #[test]
    fn an_extend_message_comes_back_as_it_was_written() {
        let data = extend().write();
        assert_eq!(data[..9], [4, 0, 6, 192, 0, 2, 7, 0x23, 0x29]);
        assert_eq!(Extend::read(&data), Some(extend()));
    }

    #[test]
    fn an_extend_message_must_say_where_and_who() {
        let mut nowhere = extend();
        nowhere.target.addresses.clear();
        assert_eq!(Extend::read(&nowhere.write()), None);
        // The link specifiers contain one address, and no identity.
        assert_eq!(Extend::read(&[1, 0, 6, 1, 2, 3, 4, 0, 80, 0, 2, 0, 0]), None);
    }

    #[test]
    fn a_cut_extend_message_is_malformed() {
        let data = extend().write();
        assert!((0..data.len()).all(|cut| Extend::read(&data[..cut]).is_none()));
    }

    #[test]
    fn a_create_cell_says_its_length() {
        let body = put_create2(Kind::NTOR_V3, &[9; 30]);
        assert_eq!(read_create2(&body), Some((Kind::NTOR_V3, &[9; 30][..])));
        assert_eq!(read_create2(&body[..33]), None);
    }
}

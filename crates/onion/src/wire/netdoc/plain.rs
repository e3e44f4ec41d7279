//! The documents that a directory cache verifies and clients do not use: the consensus of the
//! flavour `ns`, and the server descriptors that it lists.

use std::collections::BTreeMap;

use tor_checkable::{ExternallySigned, Timebound};
use tor_netdoc::doc::authcert::AuthCert;
use tor_netdoc::doc::netstatus::{PlainConsensus, UnvalidatedPlainConsensus};

use super::{
    AuthorityCert, DocumentError, LONGEST_CONSENSUS, REASONABLY_LIVE, check_descriptor, current,
    fits, malformed, unix,
};
use crate::directory::civil::from_utc;
use crate::directory::extra::ExtraDigests;
use crate::wire::text::signed_digest;

/// The descriptors listed in a consensus of the flavour `ns` that enough authorities signed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerList {
    /// The time from which the consensus is valid, in seconds since 1970.
    pub valid_after: u64,
    /// The time at which the consensus expires, in seconds since 1970.
    pub valid_until: u64,
    /// Identities (`v3ident`) of the known authorities that signed the consensus.
    pub signers: Vec<[u8; 20]>,
    /// The relays' RSA identities, by the digests of their descriptors.
    pub servers: BTreeMap<[u8; 20], [u8; 20]>,
}

/// Parses and verifies a consensus of the flavour `ns`. The consensus must be reasonably live at
/// `unix_now`, and more than half of `authorities` must have signed it with keys that `certs`
/// certify.
///
/// # Errors
/// Returns a [`DocumentError`] if the consensus is too long, malformed, not valid yet, expired too
/// long ago, wrongly signed, or signed by too few authorities.
pub fn prove_server_list(
    text: &str,
    authorities: &[[u8; 20]],
    certs: &[AuthorityCert],
    unix_now: u64,
) -> Result<ServerList, DocumentError> {
    fits(text, LONGEST_CONSENSUS)?;
    let (_, _, unchecked) = PlainConsensus::parse(text).map_err(malformed)?;
    // The times are checked below, where "too early" and "expired" can be distinguished.
    let document = unchecked.dangerously_assume_timely();
    let lifetime = document.peek_lifetime();
    let (valid_after, valid_until) = (unix(lifetime.valid_after()), unix(lifetime.valid_until()));
    if unix_now < valid_after {
        return Err(DocumentError::TooEarly);
    }
    if unix_now > valid_until.saturating_add(REASONABLY_LIVE) {
        return Err(DocumentError::Expired);
    }
    let certs = current(certs, authorities, unix_now);
    let signers = signers(&document, &certs);
    let must = authorities.len() / 2 + 1;
    if signers.len() < must {
        return Err(DocumentError::TooFewSigners(signers.len(), must));
    }
    let document = document.set_n_authorities(authorities.len());
    document.is_well_signed(&certs).map_err(|_| DocumentError::BadSignature)?;
    let document = document.dangerously_assume_wellsigned();
    let named = document.relays().iter();
    let servers = named.map(|relay| (*relay.rd_digest(), relay.rsa_identity().to_bytes()));
    Ok(ServerList { valid_after, valid_until, signers, servers: servers.collect() })
}

/// Returns the authorities that the consensus names as signers and that have certificates in
/// `certs`, without duplicates.
fn signers(document: &UnvalidatedPlainConsensus, certs: &[AuthCert]) -> Vec<[u8; 20]> {
    let claimed: Vec<_> = document.signing_cert_ids().collect();
    let has = |cert: &&AuthCert| claimed.contains(&cert.key_ids());
    let mut ids: Vec<[u8; 20]> =
        certs.iter().filter(has).map(|cert| cert.id_fingerprint().to_bytes()).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// A server descriptor with verified signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// The relay's RSA identity.
    pub id: [u8; 20],
    /// The digest that names the descriptor in a consensus.
    pub digest: [u8; 20],
    /// The digests of the relay's extra-info document; `None` if the descriptor contains none.
    pub extra: Option<ExtraDigests>,
}

/// Parses a server descriptor of any age, and verifies all its signatures.
///
/// # Errors
/// Returns a [`DocumentError`] if the descriptor is too long, malformed or wrongly signed.
pub fn check_server(text: &str) -> Result<Server, DocumentError> {
    let field = |keyword: &str| text.lines().find_map(|line| line.strip_prefix(keyword));
    let published = field("published ").and_then(from_utc);
    let described = check_descriptor(text, published.unwrap_or_default())?;
    Ok(Server {
        id: described.rsa_identity,
        digest: signed_digest(text),
        extra: field("extra-info-digest ").and_then(ExtraDigests::named),
    })
}

/// Splits concatenated documents. Each document extends from the line that begins with `keyword`
/// to the end of its RSA signature. Skips text between documents, and a document without a
/// complete signature.
pub fn divided<'a>(text: &'a str, keyword: &'a str) -> impl Iterator<Item = &'a str> {
    const END: &str = "\n-----END SIGNATURE-----\n";
    let mut rest = text;
    std::iter::from_fn(move || {
        let start = begins(rest, keyword)?;
        let body = &rest[start..];
        let mark = body.find("\nrouter-signature\n")?;
        let end = mark + body[mark..].find(END)? + END.len();
        rest = &body[end..];
        Some(&body[..end])
    })
}

/// Returns the position of the first line that begins with the word `keyword`; `None` if there is
/// none.
fn begins(text: &str, keyword: &str) -> Option<usize> {
    let is_one = |place: usize| {
        text[place..].strip_prefix(keyword).is_some_and(|rest| rest.starts_with(' '))
    };
    let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(place, _)| place + 1));
    lines.into_iter().find(|place| is_one(*place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_divided_at_their_signatures() {
        let one = "router a\nx\nrouter-signature\n-----BEGIN SIGNATURE-----\nA\n-----END SIGNATURE-----\n";
        let two = one.replace("router a", "router b");
        let text = format!("@note\n{one}junk\nrouterx\n{two}router c\nrouter-signature\n");
        assert_eq!(divided(&text, "router").collect::<Vec<_>>(), [one, &two]);
        assert_eq!(divided("", "router").count() + divided("router", "router").count(), 0);
    }
}

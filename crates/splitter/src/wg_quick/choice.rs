//! The user's choice of a peer in a WireGuard configuration file, and the interface name that
//! wg-quick derives from the file's name.

use std::path::Path;
use std::str::FromStr;

use super::peer::Peer;

/// A user's choice of one of the peers in a wg-quick file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerChoice {
    /// The peer at this position among the peers of the file, from 1.
    Number(usize),
    /// The peer with this public key, in base64.
    Key(String),
}

impl FromStr for PeerChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<PeerChoice, String> {
        match text.parse() {
            Ok(number) if number > 0 => Ok(PeerChoice::Number(number)),
            // This is the length of 32 bytes in base64.
            _ if text.len() == 44 && text.ends_with('=') => Ok(PeerChoice::Key(text.to_owned())),
            _ => Err(format!(
                "'{text}' names no peer: write the peer's position among the peers of the file (1, \
                 2, …), or its public key"
            )),
        }
    }
}

impl PeerChoice {
    /// Returns the chosen peer. The error is a message that there is no such peer, or that it has
    /// no endpoint.
    pub(super) fn among<'p>(&self, peers: &'p [Peer]) -> Result<&'p Peer, String> {
        let chosen = match self {
            PeerChoice::Number(number) => peers.iter().find(|peer| peer.number == *number),
            PeerChoice::Key(key) => peers.iter().find(|peer| peer.public_key == *key),
        };
        let name = match self {
            PeerChoice::Number(number) => number.to_string(),
            PeerChoice::Key(key) => key.clone(),
        };
        let found = chosen.ok_or_else(|| {
            format!("no peer '{name}' in this file; peers with an Endpoint: {}", peer_list(peers))
        })?;
        if found.endpoint.is_none() {
            let list = peer_list(peers);
            return Err(format!("peer '{name}' has no Endpoint; peers with an Endpoint: {list}"));
        }
        Ok(found)
    }
}

/// Returns the only peer with an endpoint. The error is a message that no peer, or several peers,
/// have an endpoint.
pub(super) fn only(peers: &[Peer]) -> Result<&Peer, String> {
    let mut ends = peers.iter().filter(|peer| peer.endpoint.is_some());
    match (ends.next(), ends.next()) {
        (Some(peer), None) => Ok(peer),
        (Some(_), Some(_)) => Err(format!(
            "several peers have an Endpoint; choose one with --peer: {}",
            peer_list(peers)
        )),
        _ => Err("no peer has an Endpoint, so there is no server to split to: add an Endpoint"
            .to_owned()),
    }
}

/// Lists the peers that can be chosen, as text for an error message.
fn peer_list(peers: &[Peer]) -> String {
    let ends = peers.iter().filter_map(|peer| Some((peer, peer.endpoint.as_ref()?)));
    let lines = ends.map(|(Peer { number, public_key, .. }, endpoint)| {
        format!("{number} ({public_key}, {endpoint})")
    });
    let lines: Vec<_> = lines.collect();
    if lines.is_empty() { "none".to_owned() } else { lines.join(", ") }
}

/// Returns the interface that wg-quick makes from the file at `path`. The interface's name is the
/// file's name without `.conf`: 1 to 15 letters, digits and `_=+.-` (wg-quick(8)). Returns `None`
/// if wg-quick would refuse the name.
pub fn interface_name(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?.strip_suffix(".conf")?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_=+.-".contains(c);
    // No interface can have these names, which denote directories.
    let good =
        (1..=15).contains(&name.len()) && name.chars().all(allowed) && name != "." && name != "..";
    good.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_called_as_its_file() {
        let name = |path: &'static str| interface_name(Path::new(path));
        assert_eq!(name("/etc/wireguard/wg0.conf"), Some("wg0"));
        assert_eq!(name("fifteen-letters.conf"), Some("fifteen-letters"));
        for path in
            ["wg0", "sixteen-letters1.conf", ".conf", "a b.conf", "..conf", "/", "wg0.conf/.."]
        {
            assert_eq!(name(path), None, "{path}");
        }
    }

    #[test]
    fn a_peer_is_named_by_number_or_key() {
        assert_eq!("2".parse(), Ok(PeerChoice::Number(2)));
        let key = format!("{}=", "k".repeat(43));
        assert_eq!(key.parse(), Ok(PeerChoice::Key(key.clone())));
        for text in ["", "0", "-1", "kkkk="] {
            assert!(text.parse::<PeerChoice>().is_err(), "{text}");
        }
    }
}

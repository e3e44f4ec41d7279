//! The description of a MORE network (JSON), and the files of private keys.
//!
//! The description contains the nodes' public keys, which encrypt the packets. It is not signed,
//! so its distributor must be trusted.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anabranch_more::{Config, KEY, Network, Peer, SecretKey};
use anabranch_onion::wire::text::hex;
use rand_core::Rng;
use serde::{Deserialize, Serialize};

/// Description of a MORE network (an anonymity network in which each packet takes its own path).
/// It is stored as a JSON file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkFile {
    /// Time at which the network began, in seconds since 1970. Ticks (periods of 30 s, in which
    /// packets are valid) are counted from this time.
    pub begins: u64,
    /// Number of content bytes in each packet.
    pub payload: usize,
    /// Number of nodes, including the exit, on a path from the client to the exit.
    pub hops: usize,
    /// Nodes of the network.
    pub nodes: Vec<NodeEntry>,
}

/// A node in the description of a MORE network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeEntry {
    /// Public key of the node, as 64 hexadecimal digits.
    pub key: String,
    /// Address of the node's UDP socket.
    pub address: SocketAddr,
    /// Relative share of packets that this node relays; 0 if it relays none.
    #[serde(default = "one")]
    pub weight: u32,
    /// True if the node is an exit: it connects streams to destinations.
    #[serde(default)]
    pub exit: bool,
}

fn one() -> u32 {
    1
}

impl NetworkFile {
    /// Generates keys for nodes at `addresses`; the last `exits` nodes are exits. Returns the
    /// network's description, and the private keys in the order of the addresses.
    pub fn draw(
        begins: u64,
        config: &Config,
        addresses: &[SocketAddr],
        exits: usize,
        rng: &mut dyn Rng,
    ) -> (NetworkFile, Vec<SecretKey>) {
        let draw = |_: &SocketAddr| {
            let mut bytes = [0; KEY];
            rng.fill_bytes(&mut bytes);
            SecretKey::from_bytes(bytes)
        };
        let keys: Vec<SecretKey> = addresses.iter().map(draw).collect();
        let relays = addresses.len().saturating_sub(exits);
        let nodes = keys.iter().zip(addresses).enumerate();
        let nodes = nodes.map(|(at, (key, &address))| NodeEntry {
            key: hex(&key.public()),
            address,
            weight: 1,
            exit: at >= relays,
        });
        let nodes = nodes.collect();
        (NetworkFile { begins, payload: config.payload, hops: config.hops, nodes }, keys)
    }

    /// Reads the description of a MORE network from the file `path`.
    ///
    /// # Errors
    /// The file cannot be read or is malformed. The error names the file and the fault.
    pub fn read(path: &Path) -> Result<NetworkFile, String> {
        let text = fs::read_to_string(path).map_err(|error| named(path, &error))?;
        serde_json::from_str(&text).map_err(|error| named(path, &error))
    }

    /// Writes the description of the MORE network to the file `path`.
    ///
    /// # Errors
    /// The file cannot be written. The error names the file and the fault.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        let text = serde_json::to_string_pretty(self).map_err(|error| named(path, &error))?;
        fs::write(path, text + "\n").map_err(|error| named(path, &error))
    }

    /// Converts the description into a network that the protocol core uses.
    ///
    /// # Errors
    /// A node's public key is malformed, or two nodes have the same key or the same address. The
    /// error names the nodes.
    pub fn network(&self) -> Result<Network, String> {
        let peer = |node: &NodeEntry| {
            let key = unhex(&node.key).ok_or_else(|| {
                format!("the node at {}: write its key in 64 hexadecimal digits", node.address)
            })?;
            Ok(Peer { key, address: node.address, weight: node.weight, is_exit: node.exit })
        };
        let peers = self.nodes.iter().map(peer).collect::<Result<_, String>>()?;
        Network::new(peers).map_err(|error| error.to_string())
    }
}

/// Reads a node's private key from the file `path`.
///
/// # Errors
/// The file cannot be read or is malformed. The error names the file and the fault.
pub fn read_key(path: &Path) -> Result<SecretKey, String> {
    let text = fs::read_to_string(path).map_err(|error| named(path, &error))?;
    let key = unhex(text.trim()).map(SecretKey::from_bytes);
    key.ok_or_else(|| named(path, &"a private key has 64 hexadecimal digits"))
}

/// Writes a private key to a new file that only its owner can read.
///
/// # Errors
/// The file exists already, or cannot be written. An existing file is not changed. The error names
/// the file and the fault.
pub fn write_key(path: &Path, key: &SecretKey) -> Result<(), String> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| -> io::Result<()> {
        file.write_all(format!("{}\n", hex(&key.to_bytes())).as_bytes())
    });
    written.map_err(|error| named(path, &error))
}

fn named(path: &Path, what: &dyn std::fmt::Display) -> String {
    format!("{}: {what}", path.display())
}

fn unhex(text: &str) -> Option<[u8; KEY]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let bytes: Option<Vec<u8>> =
        pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect();
    bytes.filter(|_| rest.is_empty())?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use anabranch_os::entropy::generator;

    use super::*;

    fn addresses() -> Vec<SocketAddr> {
        (1..=5).map(|host| SocketAddr::from(([127, 0, 0, host], 9_000))).collect()
    }

    #[test]
    fn a_drawn_network_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut rng = generator().unwrap();
        let (drawn, keys) = NetworkFile::draw(7, &Config::default(), &addresses(), 2, &mut rng);
        let path = folder.path().join("network.json");
        drawn.write(&path).unwrap();
        assert_eq!(NetworkFile::read(&path).unwrap(), drawn);
        let network = drawn.network().unwrap();
        let exits: Vec<bool> = network.peers().iter().map(|peer| peer.is_exit).collect();
        assert_eq!(exits, [false, false, false, true, true]);
        let path = folder.path().join("key");
        write_key(&path, &keys[2]).unwrap();
        assert_eq!(network.find(&read_key(&path).unwrap().public()), Some(2));
        let error = write_key(&path, &keys[0]).unwrap_err();
        assert!(error.contains("key: File exists"), "{error}");
    }

    #[test]
    fn mistakes_name_their_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("network.json");
        fs::write(&path, "{\"begins\": 1,\n\"node\": []}").unwrap();
        let error = NetworkFile::read(&path).unwrap_err();
        assert!(error.contains("network.json: unknown field `node`") && error.contains("line 2"));
        let mut rng = generator().unwrap();
        let (mut drawn, _) = NetworkFile::draw(7, &Config::default(), &addresses(), 1, &mut rng);
        drawn.nodes[3].key.pop();
        let error = drawn.network().unwrap_err();
        assert!(error.starts_with("the node at 127.0.0.4:9000: "), "{error}");
        fs::write(&path, "zz").unwrap();
        assert!(read_key(&path).unwrap_err().ends_with("64 hexadecimal digits"));
    }
}

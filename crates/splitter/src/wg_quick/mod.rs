//! Parser and editor of wg-quick's configuration files, according to wg-quick(8) and wg(8). Only
//! the intended lines change; all other lines stay the same byte for byte.
//!
//! A file holds private keys. No private key appears in a message, a [`Change`] or the `Debug`
//! form. Only [`ChangedFile::text`] contains them, because it is the whole file.
//!
//! ```
//! use anabranch_splitter::wg_quick::{Changes, WgQuick};
//!
//! let text = "[Interface]\nPrivateKey = …\n[Peer]\nPublicKey = …\nEndpoint = vpn.example.net:51820 # home\n";
//! let file = WgQuick::parse(text, "tunnel.conf").unwrap();
//! let peer = file.peer(None).unwrap();
//! let changes = Changes { endpoint: "127.0.0.1:51820".parse().unwrap(), mtu: None, fwmark: None };
//! assert_eq!(file.changed(peer, &changes).text, text.replace("vpn.example.net", "127.0.0.1"));
//! ```

mod choice;
mod edit;
mod error;
mod keys;
mod parse;
mod peer;
mod store;

pub use choice::{PeerChoice, interface_name};
pub use edit::{Change, ChangedFile, Changes};
pub use error::ConfError;
pub use parse::WgQuick;
pub use peer::Peer;
pub use store::{Write, invocation};

/// The mark that wg-quick sets on a full tunnel's own packets if the file names no mark. wg-quick
/// gives the routing table for all other packets the same number.
pub const FULL_TUNNEL_MARK: u32 = 51820;

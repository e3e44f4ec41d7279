//! Around a censor: the circumvention of CoMPS (PETS 2022), section 3.3, Figure 4.
//!
//! A censor on the way to a server cuts every connection whose ClientHello names the server, over
//! TCP and QUIC. The client has a VPN beside that way, slower and farther. With `anabranch split
//! --handshake vpn` the handshake goes by the VPN, where nobody reads its name, and all the rest by
//! the direct path, where nobody is told it.
//!
//! ```text
//!  client ─ uplink ─ border, the censor ─ direct ─────────── server
//!   quic-client,          └─ abroad ─ exit, the VPN ─ back ─────┘
//!   wireguard-go           wireguard-go, address translation
//! ```
//!
//! The paper did not measure it; here it is. Each measurement is one fetch on a network of its own:
//! without censor and without splitter (what the others are compared with), straight into the
//! censor, all by the VPN, and with its handshake by the VPN.
//!
//! * [`Settings`] and [`plan`]: which measurements, in which order;
//! * [`Bench`]: carries out one of them;
//! * [`Reached`]: what came of it;
//! * [`summary`]: what all of them amount to.

mod bench;
mod place;
mod plan;
mod reached;
pub mod summary;
mod tls;

pub use bench::Bench;
pub use place::{BLOCKED, RATES, RTTS};
pub use plan::{Access, Server, Settings, Unit, plan};
pub use reached::{Reached, columns};

//! Circumvention of a censor: the use case of CoMPS (PETS 2022), section 3.3, Figure 4.
//!
//! A censor between the client and a server drops every connection whose ClientHello names the
//! server, over TCP and QUIC. The client also has a VPN that avoids the censor, but is slower and
//! has a longer round trip. With `anabranch split --handshake vpn`, the handshake uses the VPN,
//! where no censor reads the name. All other packets use the direct path, and the name does not
//! appear in them.
//!
//! ```text
//!  client ─ uplink ─ border, the censor ─ direct ─────────── server
//!   quic-client,          └─ abroad ─ exit, the VPN ─ back ─────┘
//!   wireguard-go           wireguard-go, address translation
//! ```
//!
//! The paper has no measurements of this use case. Each measurement here is one fetch on its own
//! network. There are four routes: without censor and splitter (the baseline), directly through
//! the censor, entirely through the VPN, and with only the handshake through the VPN.
//!
//! * [`Settings`] and [`plan`]: the measurements and their order;
//! * [`Bench`]: executes one measurement;
//! * [`FetchResult`]: the result of a measurement;
//! * [`summary`]: all results together.

mod bench;
mod place;
mod plan;
mod reached;
pub mod summary;
mod tls;

pub use bench::Bench;
pub use place::{BLOCKED, RATES, RTTS};
pub use plan::{Access, Server, Settings, Unit, plan};
pub use reached::{FetchResult, columns};

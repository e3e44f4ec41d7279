//! An emulated network on one machine: hosts are network namespaces, links are
//! [`anabranch_netem::Link`]s between two TUN interfaces.

mod namespace;
mod tun;

pub use namespace::Namespace;
pub use tun::Tun;

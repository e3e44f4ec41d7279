//! drive
pub mod capture;
pub mod clock;
pub mod emulate;
pub mod metrics;
pub mod mosh;
pub mod netlink;
pub mod packet;
pub mod paths;
pub mod poller;
pub mod socks;
pub mod split;
pub mod steer;
pub mod target;
pub mod toml_keys;
pub mod tun;
pub mod udp;
pub mod wg_quick;

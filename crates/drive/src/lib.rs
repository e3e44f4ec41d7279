//! drive
pub mod capture;
pub mod clock;
pub mod emulate;
pub mod netlink;
pub mod paths;
pub mod poller;
pub mod split;
pub mod toml_keys;
pub mod udp;
pub mod wg_quick;

//! drive
pub mod capture;
pub mod clock;
pub mod emulate;
pub mod netlink;
pub mod poller;
pub mod toml_keys;
pub mod udp;
pub mod paths;

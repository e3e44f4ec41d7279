//! drive
pub mod emulate;
pub mod netlink;

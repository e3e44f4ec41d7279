//! Event loops of a splitter and of a far end, which is our program in front of a server. The
//! logic of a splitter is `anabranch_comps::Core`, and the logic of a far end is
//! `anabranch_tunnel::FarSide`. This crate adds sockets, timers and routes to both.
//!
//! * **The splitter.** [`split`] is its driver. [`paths`] parses a user's `--path` and finds the
//!   route out of this machine; [`socks`] implements the dialogue with SOCKS5 proxies.
//!   [`wg_quick`] edits a user's WireGuard configuration, and [`mosh`] logs a user in with Mosh,
//!   so that the packets of WireGuard and Mosh go to the splitter. [`metered`] exports the
//!   counters to Prometheus.
//! * **A far end.** [`merge`] is the driver in front of a server. [`far_end`] has the settings of
//!   both ends and the key files. [`streams`] implements paths that are TCP connections, for both
//!   ends. The calling program provides TLS through the trait [`streams::TlsEnd`].
//! * **Any program** (`--tun`). [`steer`] routes traffic into the splitter's interface, and
//!   removes the routes when the splitter ends.
//!
//! The crate depends on no resolver, no asynchronous runtime, no TLS library and no onion network.
//!
//! Start reading at [`split::run`], then `split/driver.rs`, whose loop has four steps.

pub mod far_end;
pub mod merge;
pub mod metered;
pub mod mosh;
pub mod paths;
pub mod socks;
pub mod split;
pub mod steer;
pub mod streams;
pub mod wg_quick;

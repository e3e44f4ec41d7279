//! The splitter around `anabranch_comps::Core`, and the far end around `anabranch_tunnel::Far`.
//!
//! * **The splitter.** [`split`] is its driver. [`paths`] parses a user's `--path` and finds the
//!   route out of this machine; [`socks`] has the paths through proxies. [`wg_quick`] and [`mosh`]
//!   prepare a user's own tunnel or login. [`metered`] exports the counters to Prometheus.
//! * **A far end.** [`merge`] is the driver in front of a server. [`far_end`] has the settings of
//!   both ends and the key files. [`streams`] implements paths that are TCP connections, for both
//!   ends. The calling program provides TLS through the trait [`streams::TlsEnd`].
//! * **Any program** (`--tun`). [`steer`] routes traffic into an interface, and removes the routes
//!   at the end.
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

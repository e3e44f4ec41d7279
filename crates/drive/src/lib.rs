//! What the cores need of a machine: sockets, clocks, files, TUN, namespaces and threads.
//!
//! A core decides, this crate does. The tour, by what a user runs:
//!
//! * **The splitter.** [`split`] is its driver around `anabranch_comps::Core`. [`paths`] reads what
//!   a user calls a path and finds its way out of this machine; [`socks`] is the paths by proxies.
//!   [`udp`] carries datagrams in batches. [`wg_quick`] and [`mosh`] prepare a user's own tunnel or
//!   login. [`target`] is a host and a port as users write them.
//! * **A far end.** [`merge`] is the driver around `anabranch_tunnel::Far`, in front of a server;
//!   [`far_end`] is what both ends are told, key files above all.
//! * **Any program** (`--tun`). [`tun`] is the interface, [`packet`] what comes by it, [`steer`]
//!   leads traffic into it and undoes that, [`netlink`] asks and tells the kernel.
//! * **The onion network.** [`onion`] has the loops of client, relay and authority, and their
//!   files. [`pt`] is a pluggable transport of ours: links of [`anabranch_stego`] over sockets;
//!   [`crawl`] makes covers for it of what an operator has.
//! * **What observers see.** [`capture`] writes it down for each path; [`metrics`] counts for
//!   Prometheus, and [`status`] tells a run's owner how it goes.
//! * **An emulated network.** [`emulate`] makes hosts of namespaces and links of
//!   `anabranch_netem::Link`; [`censor`] is a middlebox in one.
//! * **Ground.** [`poller`] waits for files and deadlines, [`clock`] is the monotonic clock as a
//!   run's time line, [`entropy`] seeds a core's generator, [`files`] counts open files,
//!   [`shell`] reads words as a shell does, and [`toml_keys`] reads configuration whose mistakes
//!   are told with file and line.
//!
//! To begin reading: [`split::run`], then `split/driver.rs`, whose loop has four steps.

#[cfg(feature = "onion")]
pub mod crawl;
#[cfg(feature = "onion")]
pub mod onion;
#[cfg(feature = "onion")]
pub mod pt;

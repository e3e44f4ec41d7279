//! What the cores need of a machine: sockets, clocks, files, TUN and namespaces. The only crate
//! with `unsafe`.
//!
//! * **Loops.** [`poller`] waits for files and deadlines, [`clock`] is the monotonic clock as a
//!   run's time line, [`entropy`] seeds a core's generator, [`hangup`] takes SIGHUP, [`manager`]
//!   notifies systemd, and [`status`] shows a run's state to its owner; [`threads`] share out work.
//! * **Files.** [`files`] counts open ones, [`file_lock`] keeps two runs apart, [`toml_keys`] reads
//!   settings whose mistakes are reported with file and line.
//! * **Datagrams and packets.** [`udp`] carries datagrams in batches, [`tun`] is an interface of
//!   ours, [`packet`] reads and writes what passes it.
//! * **The kernel's tables.** [`netlink`] has addresses, routes and rules; [`holders`] names the
//!   program that has a port.
//! * **Namespaces.** [`namespace`] is a network of its own, [`pid_namespace`] ends with us.
//! * **Metrics.** [`metrics`] serves a page to Prometheus.
//! * **System calls without a safe binding.** [`socket_option`], and [`bpf`] for socket filters.
//! * **Texts.** [`shell`] reads words as a shell does, [`target`] is a host and a port as users
//!   write them; [`cpu`] has the processor's abilities.

pub mod bpf;
pub mod clock;
pub mod cpu;
pub mod entropy;
pub mod file_lock;
pub mod files;
pub mod hangup;
pub mod holders;
pub mod manager;
pub mod metrics;
pub mod namespace;
pub mod netlink;
pub mod packet;
pub mod pid_namespace;
pub mod poller;
pub mod shell;
pub mod socket_option;
pub mod status;
pub mod target;
pub mod threads;
pub mod toml_keys;
pub mod tun;
pub mod udp;

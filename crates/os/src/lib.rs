//! Operating system services for the cores: sockets, clocks, files, TUN and namespaces. This is the
//! only crate with `unsafe`.
//!
//! * **Loops.** [`poller`] waits for files and deadlines. [`clock`] is the monotonic clock as a
//!   run's time line. [`entropy`] seeds a core's random generator. [`hangup`] receives SIGHUP.
//!   [`manager`] notifies systemd. [`status`] publishes a run's state to its owner. [`threads`]
//!   divides work among threads.
//! * **Files.** [`files`] has the limit on open files. [`file_lock`] ensures that only one process
//!   uses a file. [`toml_keys`] reads settings and reports mistakes with file and line.
//! * **Datagrams and packets.** [`udp`] transfers datagrams in batches, [`tun`] is a TUN interface,
//!   [`packet`] parses and builds the packets that pass it.
//! * **The kernel's tables.** [`netlink`] has addresses, routes and rules; [`holders`] names the
//!   program that uses a port.
//! * **Namespaces.** [`namespace`] is a network namespace, [`pid_namespace`] a PID namespace that
//!   ends with this process.
//! * **Metrics.** [`metrics`] serves a page to Prometheus.
//! * **System calls without a safe binding.** [`socket_option`], and [`bpf`] for socket filters.
//! * **Texts.** [`shell`] quotes words for a shell, [`target`] is a host and a port as users write
//!   them. [`cpu`] has the processor's capabilities.

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

//! Operating system services for the protocol cores, which are state machines without I/O:
//! sockets, clocks, files, TUN and namespaces. This is the only crate with `unsafe`.
//!
//! * **Event loops.** [`poller`] waits for files and deadlines. [`clock`] is a monotonic clock
//!   that starts at zero. [`entropy`] creates a core's random generator. [`hangup`] receives
//!   SIGHUP. [`manager`] notifies systemd. [`status`] publishes the state of the process to its
//!   owner. [`threads`] distributes work over several threads.
//! * **Files.** [`files`] raises the limit on open files, and handles connections beyond it.
//!   [`file_lock`] ensures that only one process uses a file. [`toml_keys`] reads settings and
//!   reports mistakes with file and line.
//! * **Datagrams and packets.** [`udp`] sends and receives datagrams in batches. [`tun`] is a TUN
//!   interface, and [`packet`] parses and builds the packets on that interface.
//! * **The kernel's tables.** [`netlink`] reads and changes addresses, routes and rules;
//!   [`holders`] names the program that uses a port.
//! * **Namespaces.** [`namespace`] is a network namespace, [`pid_namespace`] a PID namespace that
//!   ends with this process.
//! * **Metrics.** [`metrics`] serves a page to Prometheus.
//! * **System calls without a safe binding.** [`socket_option`], and [`bpf`] for socket filters.
//! * **Texts.** [`shell`] quotes words for a shell, [`target`] is a host and a port as users write
//!   them. [`cpu`] detects features of the processor.

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

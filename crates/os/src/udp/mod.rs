//! Batched UDP: many datagrams per system call, without a copy between reception and sending.
//!
//! * [`UdpSocket`] is a non-blocking socket. It is either *bound* (a listener, which answers from
//!   the local address that a client used) or *connected* (for one network path, whose errors are
//!   reported).
//! * [`RecvBatch`] owns the buffers of one thread and fills them with one `recvmmsg`. With UDP
//!   GRO, one [`Received`] contains up to 64 consecutive datagrams of one sender.
//! * [`SendQueue`] lends a [`SendBatch`], which collects references to received bytes and passes
//!   them to the kernel with one `sendmmsg`. The datagrams of one [`Received`] leave as one
//!   segmented send (UDP GSO). Adjacent single datagrams of one size are combined, so datagrams
//!   that arrive one by one benefit, too.
//!
//! None of these types blocks, panics because of its input, or allocates memory after the first
//! calls.
//!
//! ```no_run
//! use anabranch_os::udp::{RecvBatch, SendQueue, UdpOptions, UdpSocket};
//! # fn main() -> std::io::Result<()> {
//! let listener = UdpSocket::bind("127.0.0.1:5000".parse().unwrap(), &UdpOptions::default())?;
//! let path = UdpSocket::connect(None, "127.0.0.1:6000".parse().unwrap(), &UdpOptions::default())?;
//! let (mut received, mut queue) = (RecvBatch::new(32), SendQueue::new());
//! let mut out = queue.batch(&path);
//! for run in received.recv(&listener)? {
//!     out.push(run.onward());
//! }
//! let report = out.send();
//! println!("{} sent, {} failed", report.sent, report.failed());
//! # Ok(())
//! # }
//! ```
//!
//! # Why the *don't fragment* bit is always set, and the path MTU is ignored
//!
//! All sockets use `IP_PMTUDISC_PROBE` and its IPv6 counterpart, unless
//! [`UdpSocket::allow_fragments`] was called. They must not fragment: many NATs drop fragments
//! without ports, fragments make a session recognisable, and QUIC forbids them. Of the two modes
//! that set the bit, `DO` also rejects datagrams beyond the path MTU that an ICMP message has
//! claimed. Any host on the Internet can forge an ICMP message by guessing a port, and the effect
//! of the message lasts ten minutes. The message may claim an MTU of only 552 bytes over IPv4,
//! below QUIC's smallest packet, so an off-path attacker could block a path. `PROBE` rejects only
//! datagrams beyond the *interface's* MTU, with `EMSGSIZE` ([`Fault::TooBig`]). The error queue
//! ([`UdpSocket::take_error`]) and [`UdpSocket::mtu`] report the path MTU that a router claims,
//! for statistics and display. QUIC's own probing (RFC 9000, section 14.2.1) continues above this
//! layer undisturbed.

mod error;
mod recv;
mod send;
mod socket;
mod sys;
#[cfg(test)]
mod tests;

pub use error::{Fault, Origin, QueuedError};
pub use recv::{Batch, Received, RecvBatch};
pub use send::{Datagrams, SendBatch, SendFailure, SendQueue, SendReport};
pub use socket::{Memory, UdpOptions, UdpSocket};

/// Maximum number of segments in one segmented send: `UDP_MAX_SEGMENTS` of kernels before 6.9.
/// Later kernels have only raised it.
pub const MAX_SEGMENTS: usize = 64;

/// Maximum bytes in one send: the payload of an IPv4 packet without the IP and UDP headers.
pub const MAX_BYTES: usize = 65_507;

//! What splitting costs in throughput: the runs of CoMPS (PETS 2022), sections 4.4 and 6, Figure 8.
//!
//! A download through `anabranch split` over two or three emulated paths, weighted random, at one
//! switching interval after the other and without switching; WireGuard (wireguard-go at both ends),
//! Mosh, and QUIC servers, all unaltered.
//!
//! ```text
//!  client host                                        server host
//!  wireguard-go, mosh-client, ─ anabranch ─┬─ p0 ─┬─ wireguard-go, mosh-server,
//!  quic-client                    split    ├─ p1 ─┤  a QUIC server
//!                                          └─ p2 ─┘
//! ```
//!
//! * [`Settings`] and [`plan`]: which measurements, in which order;
//! * [`Bench`]: carries out one of them, in a network of its own;
//! * [`Measured`]: what came of it, and whether it counts;
//! * [`summary`]: what all of them amount to, beside the paper.

mod bench;
mod measured;
mod mosh;
mod paper;
mod plan;
mod quic;
mod session;
pub mod summary;
mod transfer;
mod wireguard;

pub use bench::Bench;
pub use measured::{Measured, columns};
pub use paper::{Claim, claims};
pub use plan::{EVERY, Kind, Net, Settings, System, Unit, plan};
pub use transfer::Limit;

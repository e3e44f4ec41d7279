//! Throughput cost of splitting: the measurements of CoMPS (PETS 2022), sections 4.4 and 6, and
//! Figure 8.
//!
//! A download goes through `anabranch split` over two or three emulated paths. The splitter
//! chooses paths at random by weight. The download is repeated for each switching interval, and
//! without switching. The measured software is WireGuard (`wireguard-go` at both ends), Mosh, and
//! QUIC servers, all unmodified.
//!
//! ```text
//!  client host                                        server host
//!  wireguard-go, mosh-client, ─ anabranch ─┬─ p0 ─┬─ wireguard-go, mosh-server,
//!  quic-client                    split    ├─ p1 ─┤  a QUIC server
//!                                          └─ p2 ─┘
//! ```
//!
//! * [`Settings`] and [`plan`]: the measurements and their order;
//! * [`Bench`]: executes one measurement, in its own network;
//! * [`Measured`]: the result of a measurement, and whether it counts;
//! * [`summary`]: all results together, compared with the paper.

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

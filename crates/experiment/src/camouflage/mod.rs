//! Camouflage: Weinberg et al., "StegoTorus: A Camouflage Proxy for the Tor Anonymity System" (CCS
//! 2012), section 6: Table 3, Figures 6 and 7.
//!
//! A client at home, behind a line that is slow and long; beyond it a bridge, a private Tor network
//! and a web server, on one host and without limits. Downloads and streams of a fixed rate:
//! straight, by Tor alone, and by Tor through pluggable transports; and through ours without Tor
//! inside. Counted is what crosses the client's line.
//!
//! * [`Settings`] and [`plan`]: which measurements, in which order;
//! * [`Bench`] and [`Town`]: carry out one of them;
//! * [`Measured`]: what came of it;
//! * [`summary`]: what all of them amount to, beside [`paper`];
//! * [`claims`]: which of the paper's claims hold;
//! * [`bars`]: whether ours costs no more than it may.

mod bare;
pub mod bars;
mod bench;
pub mod claims;
mod measured;
pub mod paper;
mod place;
mod plan;
mod streams;
pub mod summary;
mod way;
mod webtunnel;

pub use bench::{Bench, Folders, Town};
pub use measured::{Download, Measured, Stream, columns, stream_columns};
pub use place::{DOWN_KBIT, Place, QUEUE_KB, UP_KBIT};
pub use plan::{Arm, DOWNLOADS, LENGTHS, LONGEST, RTT, Settings, Unit, What, plan};

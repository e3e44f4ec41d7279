//! Camouflage: Weinberg et al., "StegoTorus: A Camouflage Proxy for the Tor Anonymity System" (CCS
//! 2012), section 6: Table 3, Figures 6 and 7.
//!
//! A client has a slow access line with a long delay. At the other end of the line, a bridge, a
//! private Tor network and a web server share one host without a rate limit. The client fetches
//! downloads, and streams (downloads at a fixed rate), in several ways: directly, through Tor
//! alone, through Tor with pluggable transports, and through our transport without Tor inside. The
//! experiment counts the traffic on the access line.
//!
//! * [`Settings`] and [`plan`]: the measurements and their order;
//! * [`Bench`] and [`SharedServers`]: execute one measurement;
//! * [`Measured`]: the result of a measurement;
//! * [`summary`]: all results together, compared with [`paper`];
//! * [`claims`]: verdicts on the paper's claims;
//! * [`bars`]: limits that the cost of our transport must respect.

pub mod bars;
mod bench;
mod bridged_client;
pub mod claims;
mod measured;
pub mod paper;
mod plan;
mod streams;
pub mod summary;
mod test_network;
mod webtunnel;
mod without_tor;

pub use bench::{Bench, Folders, SharedServers};
pub use measured::{Download, Measured, Stream, columns, stream_columns};
pub use plan::{Arm, DOWNLOADS, LENGTHS, LONGEST, MeasurementKind, RTT, Settings, Unit, plan};
pub use test_network::{DOWN_KBIT, QUEUE_KB, TestNetwork, UP_KBIT};

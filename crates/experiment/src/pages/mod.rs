//! Page loads as the observer of each path sees them: a data set for traffic analysis in the lab,
//! this project's Python part.
//!
//! Chromium loads a page of a local web, with an empty cache, through a WireGuard tunnel.
//! `anabranch split` splits the tunnel's packets over three emulated paths. The undefended
//! counterpart of a page load is another page load that uses only the first path. Both ends of the
//! tunnel, the browser and the web server are unmodified. A far end (the program `anabranch
//! merge`) may put the split packets together in front of the tunnel's server. The paths to the
//! far end may be three circuits of an onion network on the client's host.
//!
//! ```text
//!  client host                                            server host
//!  Chromium ─ wireguard-go ─ anabranch ─┬─ p0, 20 ms ─┬─ wireguard-go ─ Caddy: an address for each site
//!                              split    ├─ p1, 35 ms ─┤
//!                               │       └─ p2, 60 ms ─┘
//!                             trace
//! ```
//!
//! * [`Web`]: the sites, in the layout of `scripts/web`;
//! * [`Settings`] and [`plan`]: the loads and their order;
//! * [`Bench`]: executes the loads, with a given number of browsers at once;
//! * [`LoadResult`]: the result of a load; [`Set`]: all loads as two traces and a table;
//! * [`summary`]: all results together.

mod bench;
mod browser;
mod caddy;
mod circuits;
mod far_end;
mod loaded;
mod plan;
mod set;
mod setup;
pub mod summary;
mod test_bed;
mod visit;
mod web;

pub use bench::Bench;
pub use loaded::{LoadResult, columns};
pub use plan::{Http, Mode, Settings, Unit, plan};
pub use set::{Set, SetError};
pub use web::{Site, Web, WebError};

/// Round-trip times of the paths, in milliseconds.
pub const RTTS: [u32; 3] = [20, 35, 60];

/// Default rate of each path, in Mbit/s.
pub const RATE: f64 = 100.0;

/// Returns the queue size in bytes of an emulated path with a rate of `rate` Mbit/s.
#[must_use]
pub fn queue_of(rate: f64) -> f64 {
    super::stage::queue((rate * 1e6) as u64) as f64
}

/// Maximum number of attempts at each page load.
pub const TRIES: u32 = 3;

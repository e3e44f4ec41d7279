//! Page loads as an observer of each path sees them: a data set for the lab.
//!
//! Chromium loads a page of a local web, with nothing in its cache, through a WireGuard tunnel that
//! `anabranch split` splits over three emulated paths; the undefended twin of a load is another
//! load by the first path alone. Both ends of the tunnel, the browser and the web server are
//! unaltered; before the tunnel's server a far end (`anabranch merge`) may stand.
//!
//! ```text
//!  client host                                            server host
//!  Chromium ─ wireguard-go ─ anabranch ─┬─ p0, 20 ms ─┬─ wireguard-go ─ Caddy: an address for each site
//!                              split    ├─ p1, 35 ms ─┤
//!                               │       └─ p2, 60 ms ─┘
//!                             trace
//! ```
//!
//! * [`Web`]: the sites, as `scripts/web` lays them out;
//! * [`Settings`] and [`plan`]: which loads, in which order;
//! * [`Bench`]: carries them out, with as many browsers at once as it is told;
//! * [`Loaded`]: what came of one; [`Set`]: all of them as two traces and a table;
//! * [`summary`]: what they amount to.

mod bench;
mod browser;
mod caddy;
mod far_end;
mod house;
mod loaded;
mod plan;
mod set;
mod setup;
pub mod summary;
mod visit;
mod web;

pub use bench::Bench;
pub use loaded::{Loaded, columns};
pub use plan::{Http, Mode, Settings, Unit, plan};
pub use set::{Set, SetError};
pub use web::{Site, Web, WebError};

/// The round-trip times of the paths in milliseconds.
pub const RTTS: [u32; 3] = [20, 35, 60];

/// Megabits a second that each path carries where nobody says.
pub const RATE: f64 = 100.0;

/// Bytes that the queue of a path of so many megabits a second holds.
#[must_use]
pub fn queue_of(rate: f64) -> f64 {
    super::stage::queue((rate * 1e6) as u64) as f64
}

/// How often a load is tried before it is given up.
pub const TRIES: u32 = 3;

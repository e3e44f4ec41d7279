//! What hostile relays learn of clients with several paths: "Analysis of Multi-path Onion Routing"
//! (DBSec 2019), section 6, on consensuses of the public Tor network.
//!
//! Nothing is sent here: the analysis is [`anabranch_anonymity`]'s, with the client's own guards
//! and path choice. This is its plan, in units of seconds, so that hours of it can be stopped and
//! gone on with.
//!
//! * [`Settings`] and [`plan`]: which consensuses, adversaries and numbers of clients;
//! * [`Bench`]: carries out one unit;
//! * [`Analysed`]: what came of it;
//! * [`summary`]: what all of them amount to;
//! * [`claims`]: what the paper said, what came out here, and whether it holds.

mod bench;
pub mod claims;
mod plan;
mod record;
pub mod summary;

pub use bench::{Bench, Reader, open};
pub use plan::{Analysis, Named, SHARES, Settings, Unit, VARIANTS, Variant, plan};
pub use record::{Analysed, Listing, Outcome, columns};

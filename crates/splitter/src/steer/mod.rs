//! Steers a machine's packets to the splitter's interface, and pins other flows to paths.
//!
//! `--tun` makes an interface; `--route` routes traffic into it. UDP that the splitter can split
//! ([`Ports`], and WireGuard on any port) goes into the interface. Each other flow is pinned to
//! one path: a conntrack mark names it, a rule by mark leads to the path's own table, and the flow
//! gets the path's address. Destinations with a more specific route than the default in the main
//! table (the local network, another tunnel's network) are not affected. Neither are packets that
//! a WireGuard interface takes by its default route: its own packets pass here again, and are
//! split.
//!
//! With a namespace of its own (`--netns`), this applies only to the programs inside. A virtual
//! cable connects the namespace to the machine, for traffic that is not split.
//!
//! * [`Plan::look`] decides what to do, and changes nothing;
//! * [`Steering::raise`] makes the changes, after it has recorded how to undo them;
//! * [`Steering::follow`] adapts them when paths are added or removed;
//! * [`Steering::keep`] restores changes that others remove (a firewall that flushes all rules, a
//!   network manager that removes foreign ones), or ends with everything closed;
//! * [`Steering::lower`] undoes them; so does the next start if the process was killed.
//!
//! Invariants:
//!
//! * Each change is recorded before it is made.
//! * Every table ends in "unreachable", so that packets of a removed path, or of a killed
//!   splitter, go nowhere.
//! * All names, marks, tables and priorities are fixed (`slot.rs`). Undoing therefore needs only
//!   the settings' old values, and may be done twice.
//! * A setting of the machine that several runs need is restored by the last of them.
//! * The object that a name stood for is recorded too: the name may belong to another one at the
//!   time of the undo.

mod claim;
mod error;
mod fence;
mod launch;
mod lead;
mod ledger;
mod named;
mod nft;
mod plan;
mod ports;
mod raise;
mod ruleset;
mod slot;
mod sysctl;
mod tally;
mod undo;

pub use error::SteerError;
pub use launch::{RunAs, launch, namespaces};
pub use plan::{Exit, Out, Plan, Request};
pub use ports::{PortRange, PortRangeError, Ports};
pub use raise::{Steering, UPLINK, Upkeep};
pub use slot::Slot;
pub use undo::restore;

#[cfg(test)]
mod tests;

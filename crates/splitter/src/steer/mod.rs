//! What brings a machine's packets to the splitter's interface, and what becomes of the others.
//!
//! `--tun` makes an interface; `--route` leads traffic into it. UDP that the splitter can split
//! ([`Ports`], and WireGuard on any port) goes into the interface. Each other flow is pinned to one
//! path: a conntrack mark names it, a rule by mark leads to the path's own table, and the flow gets
//! the path's address. Whoever has a more specific route than the default in the main table (the
//! local network, another tunnel's network) is left alone, and so is what a WireGuard interface
//! takes by its default route: its own packets come by here again, and are split.
//!
//! With a namespace of its own (`--netns`), that happens to the programs inside alone; a virtual
//! cable leads what is not split out to the machine.
//!
//! * [`Plan::look`] finds out what is to be done, and changes nothing;
//! * [`Steering::raise`] does it, after it has written down how to undo it;
//! * [`Steering::follow`] keeps up with paths that come and go;
//! * [`Steering::keep`] sets again what others take away (a firewall that flushes all rules, a
//!   network manager that removes foreign ones), or ends with everything closed;
//! * [`Steering::lower`], and the end of the process's life otherwise the next start, undoes it.
//!
//! The invariants: nothing is changed that is not written down first; every table ends in
//! "unreachable", so that a path that is gone, or a splitter that was killed, leads nowhere; all
//! names, marks, tables and priorities are fixed (`slot.rs`), so undoing needs no memory but the
//! settings' old values, and may be done twice. What several runs need (settings of the machine)
//! the last of them puts back. What a name stood for is written down with it: it may be somebody
//! else's when it is undone.

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

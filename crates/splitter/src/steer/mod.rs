//! Routes a machine's packets into the splitter's interface, and pins other flows to paths.
//!
//! `--tun` makes an interface; `--route` routes traffic into it. UDP that the splitter can split
//! ([`Ports`], and WireGuard on any port) goes into the interface. Each other flow is pinned to
//! one path: a conntrack mark identifies the path, a rule for this mark selects the path's routing
//! table, and the flow gets the path's address.
//!
//! Two kinds of packets are not affected. The first are packets for which the main table has a
//! more specific route than the default (the local network, another tunnel's network). The second
//! are packets that a WireGuard interface takes by its default route; the packets of the tunnel
//! itself are split afterwards.
//!
//! With a separate namespace (`--netns`), only the traffic of programs in the namespace is split
//! or pinned. A virtual cable (a veth pair) connects the namespace to the machine, for traffic
//! that is not split.
//!
//! * [`Plan::look`] decides which changes to make, and makes none;
//! * [`Steering::raise`] makes the changes, after recording how to undo them;
//! * [`Steering::follow`] adapts the changes when paths are added or removed;
//! * [`Steering::keep`] restores changes that other programs undo (a firewall that flushes all
//!   rules, a network manager that removes foreign rules), or ends with all traffic blocked;
//! * [`Steering::lower`] undoes the changes. If the process was killed, the next start undoes
//!   them.
//!
//! Invariants:
//!
//! * Each change is recorded before it is made.
//! * Every table ends in "unreachable", so that packets of a removed path, or of a killed
//!   splitter, go nowhere.
//! * All names, marks, tables and priorities are fixed (`slot.rs`). Therefore only the old values
//!   of settings are needed to undo the changes, and the undo may be repeated.
//! * If several splitters need a setting of the machine, the last of them restores it.
//! * The record identifies a namespace also by its number, and a file by its content, because at
//!   the time of the undo the name may belong to another object.

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
pub use named::{MountPoint, place};
pub use plan::{Exit, PathExit, Plan, Request};
pub use ports::{PortRange, PortRangeError, Ports};
pub use raise::{Steering, UPLINK, Upkeep};
pub use slot::Slot;
pub use undo::restore;

#[cfg(test)]
mod tests;

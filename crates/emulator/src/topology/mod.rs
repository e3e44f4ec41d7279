//! Topologies: descriptions of emulated networks, read from files.

mod addresses;
mod reader;
mod rounds;
mod routing;

use std::net::IpAddr;
use std::time::Duration;

use anabranch_netem::LinkSettings;
use anabranch_os::netlink::Prefix;
use anabranch_os::toml_keys::TomlError;
use serde::Deserialize;

use super::edit::Edit;
use super::program::Program;
use reader::Reader;

/// A validated topology: every name is unique, and every link has two ends on two different hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// Seed of all random numbers, which determine losses and jitter.
    pub seed: u64,
    /// TCP congestion control of all hosts.
    pub tcp: TcpControl,
    /// The hosts, at least one.
    pub hosts: Vec<Host>,
    /// The links, each between two hosts.
    pub links: Vec<Cable>,
    /// Changes of links while the network runs, in order of time.
    pub events: Vec<Event>,
    /// Programs that run in the hosts.
    pub programs: Vec<Program>,
}

/// Congestion control of TCP connections, as the kernel implements it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TcpControl {
    /// Reno (RFC 5681).
    Reno,
    /// CUBIC (RFC 9438), which was used in the papers whose results are compared with ours.
    #[default]
    Cubic,
    /// BBR, in the kernel's version.
    Bbr,
}

impl TcpControl {
    /// Returns the kernel's name for the congestion control.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TcpControl::Reno => "reno",
            TcpControl::Cubic => "cubic",
            TcpControl::Bbr => "bbr",
        }
    }
}

/// A machine, emulated by a network namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Unique name of the host.
    pub name: String,
    /// Addresses of the host's loopback interface.
    pub address: Vec<Prefix>,
    /// True if the host forwards packets.
    pub forward: bool,
    /// Server names to which this host blocks connections ([`crate::censor`]).
    pub censor: Vec<String>,
}

/// A link, which is a TUN interface of the same name in each of two hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Cable {
    /// Unique name of the link, and of its interface at both ends.
    pub name: String,
    /// The two ends of the link.
    pub ends: [End; 2],
    /// Properties of the direction from the first end to the second.
    pub forward: LinkSettings,
    /// Properties of the direction from the second end to the first.
    pub back: LinkSettings,
    /// MTU of the interfaces at both ends, in bytes.
    pub mtu: u32,
}

/// One end of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    /// Index into [`Topology::hosts`].
    pub host: usize,
    /// Addresses of the interface at this end.
    pub address: Vec<Prefix>,
    /// Routes over this interface.
    pub routes: Vec<Route>,
    /// Source addresses for packets on the routes of this end, at most one for each IP version.
    pub prefsrc: Vec<IpAddr>,
    /// Metric of the routes of this end; the kernel prefers the route with the smallest metric.
    /// `None` means the kernel's default.
    pub metric: Option<u32>,
    /// True if packets that leave by this interface get the interface's address as their source.
    pub nat: bool,
    /// Line of the topology file that names the host at this end, counted from 1.
    pub line: usize,
}

/// A route of one end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination of the route.
    pub to: Prefix,
    /// Gateway, which is an address of the next host on this link. `None` means the host at the
    /// other end.
    pub via: Option<IpAddr>,
    /// Line of the route in the topology file, counted from 1.
    pub line: usize,
}

/// A scheduled change of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Time of the change, counted from the time at which the network is up.
    pub at: Duration,
    /// Index of the link in [`Topology::links`].
    pub link: usize,
    /// Properties that the change sets.
    pub edit: Edit,
}

impl Topology {
    /// Parses `text`, the content of the topology file with the name `file`.
    ///
    /// # Errors
    /// The text is not a valid topology. The error has the file, the line and, for an unknown
    /// name, the most similar valid name.
    pub fn parse(text: &str, file: &str) -> Result<Topology, TomlError> {
        let topology = Reader { text, file }.topology()?;
        let error = |(line, message)| TomlError { file: file.to_owned(), line, message };
        routing::check(&topology).and_then(|map| rounds::check(&map)).map_err(error)?;
        Ok(topology)
    }
}

#[cfg(test)]
mod tests;

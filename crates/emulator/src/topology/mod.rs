//! Topologies: files that describe an emulated network.

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

/// A validated topology: every name is unique, every link has two ends on two hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// Seed of all random numbers, used for loss and jitter.
    pub seed: u64,
    /// TCP congestion control of all hosts.
    pub tcp: TcpControl,
    /// Hosts, at least one.
    pub hosts: Vec<Host>,
    /// Links, each between two hosts.
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
    /// RFC 5681.
    Reno,
    /// RFC 9438, used by the papers that results are compared with.
    #[default]
    Cubic,
    /// BBR in the kernel's version.
    Bbr,
}

impl TcpControl {
    /// Returns the kernel's name for it.
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
    /// Unique name.
    pub name: String,
    /// Addresses of its loopback interface.
    pub address: Vec<Prefix>,
    /// Whether it forwards packets.
    pub forward: bool,
    /// Host names to which it blocks connections ([`crate::censor`]).
    pub censor: Vec<String>,
}

/// A link: a TUN interface of the same name in each of two hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Cable {
    /// Unique name, also of both interfaces.
    pub name: String,
    /// Both ends.
    pub ends: [End; 2],
    /// Properties from the first end to the second.
    pub forward: LinkSettings,
    /// Properties from the second end to the first.
    pub back: LinkSettings,
    /// MTU of both interfaces, in bytes.
    pub mtu: u32,
}

/// One end of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    /// Index into [`Topology::hosts`].
    pub host: usize,
    /// Addresses of the interface.
    pub address: Vec<Prefix>,
    /// Routes over this interface.
    pub routes: Vec<Route>,
    /// Source addresses of those routes, at most one for each family.
    pub prefsrc: Vec<IpAddr>,
    /// Metric of those routes; the smallest is preferred.
    pub metric: Option<u32>,
    /// Whether packets that leave by this interface get its address as their source.
    pub nat: bool,
    /// Line of its host's name in the file, counted from 1.
    pub line: usize,
}

/// A route of one end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destination of the route.
    pub to: Prefix,
    /// Gateway, an address of the next host on this link. `None`: the host at the other end.
    pub via: Option<IpAddr>,
    /// Line in the file, counted from 1.
    pub line: usize,
}

/// A scheduled change of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Time since the network is up.
    pub at: Duration,
    /// Index into [`Topology::links`].
    pub link: usize,
    /// Properties to change.
    pub edit: Edit,
}

impl Topology {
    /// Parses `text`, the content of `file`.
    ///
    /// # Errors
    /// The error has the file, the line and, for an unknown name, the most similar valid one.
    pub fn parse(text: &str, file: &str) -> Result<Topology, TomlError> {
        let topology = Reader { text, file }.topology()?;
        let error = |(line, message)| TomlError { file: file.to_owned(), line, message };
        routing::check(&topology).and_then(|map| rounds::check(&map)).map_err(error)?;
        Ok(topology)
    }
}

#[cfg(test)]
mod tests;

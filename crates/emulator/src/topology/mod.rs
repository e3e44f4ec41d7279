//! The file that describes an emulated network.

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

/// An emulated network, checked: every name is there once, every link has two ends on two hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// Of all chances: loss and jitter.
    pub seed: u64,
    /// How all hosts' TCP behaves.
    pub tcp: TcpControl,
    /// At least one.
    pub hosts: Vec<Host>,
    /// Each joins two hosts.
    pub links: Vec<Cable>,
    /// Changes of links while the network runs, in the order of time.
    pub events: Vec<Event>,
    /// What runs in the hosts.
    pub programs: Vec<Program>,
}

/// The kernel's congestion control of TCP connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TcpControl {
    /// RFC 5681.
    Reno,
    /// RFC 9438: what papers used that results are compared with.
    #[default]
    Cubic,
    /// BBR, of the kernel's version.
    Bbr,
}

impl TcpControl {
    /// The kernel's name for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            TcpControl::Reno => "reno",
            TcpControl::Cubic => "cubic",
            TcpControl::Bbr => "bbr",
        }
    }
}

/// A machine: a network namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Unique.
    pub name: String,
    /// On its loopback interface.
    pub address: Vec<Prefix>,
    /// Whether it passes on packets for others.
    pub forward: bool,
    /// Names of hosts to which it lets no connection pass ([`crate::censor`]).
    pub censor: Vec<String>,
}

/// A link: a TUN interface of the same name in each of two hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Cable {
    /// Unique; the name of both interfaces.
    pub name: String,
    /// Where it ends.
    pub ends: [End; 2],
    /// From the first end to the second.
    pub forward: LinkSettings,
    /// From the second end to the first.
    pub back: LinkSettings,
    /// Of both interfaces, in bytes.
    pub mtu: u32,
}

/// One end of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    /// Index into [`Topology::hosts`].
    pub host: usize,
    /// Of the interface.
    pub address: Vec<Prefix>,
    /// Destinations that this interface leads to.
    pub routes: Vec<Route>,
    /// The source address of those routes, at most one for each family.
    pub prefsrc: Vec<IpAddr>,
    /// Of those routes: the smaller is preferred.
    pub metric: Option<u32>,
    /// Whether packets that leave by this interface get its address as their source.
    pub nat: bool,
    /// Of its host's name in the file, counted from 1.
    pub line: usize,
}

/// A route of one end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where it leads.
    pub to: Prefix,
    /// The next host, by its address on this link. `None`: whoever is at the other end.
    pub via: Option<IpAddr>,
    /// In the file, counted from 1.
    pub line: usize,
}

/// A change of a link that happens by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Since the network was up.
    pub at: Duration,
    /// Index into [`Topology::links`].
    pub link: usize,
    /// What changes.
    pub edit: Edit,
}

impl Topology {
    /// Reads `text`, the content of `file`.
    ///
    /// # Errors
    /// With file, line and, for mistyped names, the nearest right one.
    pub fn parse(text: &str, file: &str) -> Result<Topology, TomlError> {
        let topology = Reader { text, file }.topology()?;
        let error = |(line, message)| TomlError { file: file.to_owned(), line, message };
        routing::check(&topology).and_then(|map| rounds::check(&map)).map_err(error)?;
        Ok(topology)
    }
}

#[cfg(test)]
mod tests;

//! The plan of the interface, routes and rules to set up. It contains all decisions. Making a plan
//! changes nothing on the machine.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anabranch_os::namespace::Namespace;
use anabranch_os::netlink;
use anabranch_os::netlink::policy::{self, Family, FoundRoute};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities};

use super::ledger::{CreatedFile, Notes};
use super::slot::MOST_PATHS;
use super::sysctl::{self, AddedForwarding, Setting};
use super::{Ports, Slot, SteerError, ledger, named, nft};
use crate::far_end::Inner;

/// The user's settings for the interface and for the traffic that is routed into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Name of the interface.
    pub tun: String,
    /// Name of the namespace to be made for the interface; `None` for no namespace.
    pub netns: Option<String>,
    /// Whether traffic is routed into the interface.
    pub route: bool,
    /// The UDP ports whose traffic is split.
    pub ports: Ports,
    /// Name servers for the namespace; if empty, the machine's are used.
    pub dns: Vec<IpAddr>,
    /// The interface's addresses, if all packets go to a far end (our program in front of the
    /// servers); `None` otherwise. With a far end, all traffic is split, so no connection is kept
    /// on one path.
    pub inner: Option<Inner>,
}

impl Request {
    /// Returns whether connections that are not split are pinned, that is, routed and each kept on
    /// one path.
    pub(crate) fn pins(&self) -> bool {
        self.route && self.inner.is_none()
    }
}

/// The exit of a path (interface, router and source address), for connections that are not split
/// but kept on this path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Index of the path.
    pub index: usize,
    /// The outgoing interface of the path.
    pub device: String,
    /// The exit (interface, router and source address) for IPv4; `None` if it is not available.
    pub four: Option<PathExit>,
    /// The exit (interface, router and source address) for IPv6; `None` if it is not available.
    pub six: Option<PathExit>,
}

/// An exit of a path (interface, router and source address) for packets of one IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathExit {
    /// Index of the outgoing interface.
    pub oif: u32,
    /// The next router; `None` if the interface leads directly to servers.
    pub gateway: Option<IpAddr>,
    /// The source address that the user gave for the path; `None` if the user gave none.
    pub source: Option<IpAddr>,
}

impl Exit {
    /// Returns the exit (interface, router and source address) for `family`; `None` if it is not
    /// available.
    pub fn way(&self, family: Family) -> Option<PathExit> {
        match family {
            Family::Four => self.four,
            Family::Six => self.six,
        }
    }

    pub(crate) fn sources(&self) -> Vec<IpAddr> {
        [self.four, self.six].iter().flatten().filter_map(|out| out.source).collect()
    }
}

/// The plan of a setup: interface, routes and rules. [`Steering::raise`](super::Steering::raise)
/// carries out the plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The user's settings.
    pub request: Request,
    /// The slot (a set of numbers for routing tables, rules and marks) of the splitter. If another
    /// splitter takes this slot in the meantime, the plan changes to another slot.
    pub slot: Slot,
    /// MTU of the interface in bytes: the smallest MTU of all paths or, with a far end, the length
    /// of the longest packet that fits into the tunnel.
    pub mtu: u32,
    /// Firewall mark of the splitter's own packets.
    pub own: u32,
    pub(crate) exits: Vec<Exit>,
    pub(crate) nameservers: Vec<IpAddr>,
    pub(crate) nft: Option<PathBuf>,
}

impl Plan {
    /// Examines the machine and returns a plan. `exits` lists the outgoing interface and source
    /// addresses of each path that has an interface. `mtu` is the interface's MTU in bytes. `mark`
    /// is the mark that the user chose for the splitter's packets, if any.
    ///
    /// # Errors
    /// The settings are not possible on this machine. Only errors that can be found without
    /// permissions are reported.
    pub fn look(
        request: Request,
        exits: Vec<Exit>,
        mtu: u32,
        mark: Option<u32>,
    ) -> Result<Plan, SteerError> {
        let slot = ledger::likely(namespace_number()?).ok_or(SteerError::Slots)?;
        if request.pins() && exits.is_empty() {
            return Err(SteerError::NoExit);
        }
        if exits.iter().any(|exit| exit.index >= MOST_PATHS) {
            return Err(SteerError::Paths);
        }
        let nft = nft::find();
        if request.pins() && nft.is_none() {
            return Err(SteerError::NoNft);
        }
        let nameservers = match (&request.netns, request.dns.is_empty()) {
            (Some(_), true) => nameservers(),
            _ => request.dns.clone(),
        };
        let own = mark.unwrap_or(slot.own());
        Ok(Plan { request, slot, mtu, own, exits, nameservers, nft })
    }

    /// Returns whether any path has an exit (interface, router and source address) for `family`.
    pub(crate) fn has(&self, family: Family) -> bool {
        self.exits.iter().any(|exit| exit.way(family).is_some())
    }

    /// Returns the outgoing interfaces of the paths, without repetitions.
    pub(crate) fn devices(&self) -> Vec<String> {
        let mut devices: Vec<_> = self.exits.iter().map(|exit| exit.device.clone()).collect();
        devices.sort_unstable();
        devices.dedup();
        devices
    }

    /// Returns the machine's settings (sysctl) to change, and the kinds of packet forwarding
    /// (IPv4, IPv6) that these settings switch on.
    ///
    /// `noted` are the original values of settings that other splitters have already changed.
    pub(crate) fn settings(&self, noted: &[Setting]) -> (Vec<Setting>, AddedForwarding) {
        if !self.request.pins() {
            return (Vec::new(), AddedForwarding::default());
        }
        let devices = self.devices();
        let (mut settings, added_forwarding) = match self.request.netns {
            Some(_) => sysctl::forwarding(&devices, self.has(Family::Six), noted),
            None => (Vec::new(), AddedForwarding::default()),
        };
        settings.extend(sysctl::answers(&devices, noted));
        (settings, added_forwarding)
    }

    /// Returns the file with the name servers for programs in the namespace (`ip netns exec`
    /// mounts it over `/etc/resolv.conf`). Returns `None` if there is no namespace, or no name
    /// server is known.
    pub(crate) fn resolver(&self) -> Option<CreatedFile> {
        let name = self.request.netns.as_ref().filter(|_| !self.nameservers.is_empty())?;
        let path = Path::new("/etc/netns").join(name).join("resolv.conf");
        let lines = self.nameservers.iter().map(|server| format!("nameserver {server}\n"));
        Some(CreatedFile { path, text: lines.collect() })
    }

    /// Describes the changes of the plan, in one line for each kind of change.
    pub fn describe(&self) -> Vec<String> {
        let Request { tun, netns, route, ports, .. } = &self.request;
        let place =
            netns.as_ref().map_or(String::new(), |name| format!(" in the new namespace '{name}'"));
        let mut lines = vec![
            format!("interface '{tun}'{place}, MTU {}", self.mtu),
            match &self.request.inner {
                None => format!("split: UDP to the ports {ports}, and WireGuard to any port"),
                Some(Inner { four, six }) => {
                    format!(
                        "split: all packets, in a tunnel to the far end; the interface has the \
                         addresses {four} and {six}"
                    )
                }
            },
        ];
        if self.request.pins() {
            lines.extend(self.describe_routes());
        } else if *route {
            lines.push("routes: all traffic of the namespace goes into the interface".to_owned());
        } else {
            lines.push("routes: unchanged (--route changes them)".to_owned());
        }
        if let Some(CreatedFile { path, .. }) = self.resolver() {
            let servers: Vec<_> = self.nameservers.iter().map(IpAddr::to_string).collect();
            lines.push(format!(
                "name servers: {} (written to {})",
                servers.join(", "),
                path.display()
            ));
        }
        lines
    }

    fn describe_routes(&self) -> Vec<String> {
        let slot = self.slot;
        let (priorities, tables) = (slot.priorities(), slot.tables());
        let whose =
            if self.request.netns.is_some() { "of the namespace" } else { "of this machine" };
        let mut lines = vec![
            format!(
                "traffic {whose} that is not split: each connection stays on one of the interfaces \
                 {}",
                self.devices().join(", ")
            ),
            format!(
                "routing rules of priority {} to {}, routing tables {:#x} to {:#x}, firewall marks \
                 of the same numbers",
                priorities.start,
                priorities.start + 2,
                tables.start,
                tables.end - 1
            ),
            format!(
                "two nftables tables: inet {}, and (only while the splitter runs) inet {}",
                slot.ruleset(),
                slot.guard()
            ),
        ];
        if self.request.netns.is_some() {
            let (here, _) = slot.ends4();
            lines.push(format!("virtual Ethernet pair '{}', network {here}/30", slot.cable()));
        }
        lines.extend(
            self.settings(&[])
                .0
                .iter()
                .map(|setting| format!("setting {} = {}", setting.name, setting.value)),
        );
        lines
    }

    /// Checks that the process has the required permissions.
    ///
    /// # Errors
    /// The process lacks a permission.
    pub(crate) fn check_rights(&self) -> Result<(), SteerError> {
        check_rights(self.request.netns.is_some())
    }

    /// Checks for obstacles to the plan, and changes nothing. A running splitter with the same
    /// interface is not an obstacle, because this plan may be for a splitter that replaces it.
    ///
    /// # Errors
    /// Those errors of [`Steering::raise`](super::Steering::raise) that can be found without
    /// permissions.
    pub fn check_obstacles(&self) -> Result<(), SteerError> {
        // The records of another user's splitters may not be readable.
        let Ok(survey) = ledger::survey(namespace_number()?) else { return Ok(()) };
        if survey.held.iter().any(|(_, notes)| self.is_same(notes)) {
            return Ok(());
        }
        let left: Vec<_> = survey.left.into_iter().map(|(_, notes)| notes).collect();
        self.check(&left)
    }

    /// Returns whether `notes` are the record of a splitter with the same interface name and
    /// namespace name (or no namespace) as this plan.
    pub(crate) fn is_same(&self, notes: &Notes) -> bool {
        notes.tun == self.request.tun && notes.netns == self.request.netns
    }

    /// Changes the plan to another slot (a set of numbers for routing tables, rules and marks).
    pub(crate) fn take(&mut self, slot: Slot) {
        if self.own == self.slot.own() {
            self.own = slot.own();
        }
        self.slot = slot;
    }

    /// Checks that objects of other programs do not occupy the names and numbers of this plan.
    /// `left` are the records of killed splitters, whose objects will be removed.
    ///
    /// # Errors
    /// An object exists already that this program did not make.
    pub(crate) fn check(&self, left: &[Notes]) -> Result<(), SteerError> {
        let is_left = |name: &String| {
            left.iter().any(|notes| {
                notes.netns.as_ref() == Some(name) && named::is_still(name, notes.netns_number)
            })
        };
        match &self.request.netns {
            Some(name) if named::file(name).exists() && !is_left(name) => {
                return Err(SteerError::Namespace(name.clone()));
            }
            Some(_) => {}
            None => self.check_interface()?,
        }
        let is_ours = |path: &PathBuf| {
            left.iter().flat_map(|notes| &notes.files).any(|it| it.path == *path && it.is_still())
        };
        let resolver = self.resolver().map(|made| made.path);
        if let Some(file) = resolver.filter(|file| file.exists() && !is_ours(file)) {
            return Err(SteerError::Resolver(file));
        }
        if self.request.pins() { self.check_routes() } else { Ok(()) }
    }

    fn check_interface(&self) -> Result<(), SteerError> {
        let tun = &self.request.tun;
        match netlink::link_named(tun).map_err(SteerError::system("cannot list interfaces"))? {
            Some(_) => Err(SteerError::Interface(tun.clone())),
            None => Ok(()),
        }
    }

    fn check_routes(&self) -> Result<(), SteerError> {
        let ask = SteerError::system("cannot list routes and rules");
        let (tables, priorities) = (self.slot.tables(), self.slot.priorities());
        let routes = policy::routes_in(tables).map_err(&ask)?;
        if let Some(FoundRoute { table, .. }) = routes.iter().find(|route| !route.ours) {
            return Err(SteerError::Occupied(format!(
                "the routing table {table:#x} already contains a route that no splitter made ('ip \
                 route show table {table:#x}' shows it)"
            )));
        }
        let rules = policy::rules().map_err(&ask)?;
        let strange = |rule: &&policy::FoundRule| !rule.ours && priorities.contains(&rule.priority);
        if let Some(rule) = rules.iter().find(strange) {
            return Err(SteerError::Occupied(format!(
                "a routing rule of priority {} already exists that no splitter made ('ip rule \
                 show' shows it)",
                rule.priority
            )));
        }
        let network = self.slot.ends4().0.into();
        // A cable (veth pair) left by a killed splitter is not an obstacle.
        let needed = self.request.netns.is_some()
            && netlink::link_named(&self.slot.cable()).map_err(&ask)?.is_none();
        let taken = needed && policy::leads_directly(network).map_err(&ask)?;
        if taken {
            return Err(SteerError::Occupied(format!(
                "the splitter needs the network {network}/30 for its virtual Ethernet pair, but \
                 this machine already has a route to this network ('ip route show' shows it)"
            )));
        }
        Ok(())
    }
}

/// Checks that the process has the required capabilities, including those for a namespace if
/// `with_namespace`.
fn check_rights(with_namespace: bool) -> Result<(), SteerError> {
    let mut needed = CapabilitySet::NET_ADMIN;
    if with_namespace {
        needed |= CapabilitySet::SYS_ADMIN;
    }
    let has = |sets: CapabilitySets| sets.effective.contains(needed);
    if capabilities(None).is_ok_and(has) { Ok(()) } else { Err(SteerError::Forbidden) }
}

/// Returns whether the process may change the machine's network.
pub(crate) fn may_configure() -> bool {
    check_rights(false).is_ok()
}

/// Returns a number that identifies this process's network namespace.
pub(crate) fn namespace_number() -> Result<u64, SteerError> {
    named::number().map_err(SteerError::system("cannot identify the network namespace"))
}

/// Returns the machine's name servers that can be reached from other namespaces. If resolv.conf
/// names only a local name server, such as systemd-resolved, its upstream servers are read from
/// systemd-resolved's own file.
fn nameservers() -> Vec<IpAddr> {
    let files = ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"];
    let read =
        |file: &&str| fs::read_to_string(file).map_or_else(|_| Vec::new(), |text| servers(&text));
    files.iter().map(read).find(|found| !found.is_empty()).unwrap_or_default()
}

/// Returns the name servers in the text of a resolv.conf(5), except servers with loopback
/// addresses.
fn servers(text: &str) -> Vec<IpAddr> {
    let values = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    let parsed = values.filter_map(|value| value.trim().parse::<IpAddr>().ok());
    parsed.filter(|ip| !ip.is_loopback()).collect()
}

/// Runs `work` in `namespace`, or in this process's namespace if that is `None`.
pub(crate) fn within<R: Send>(
    namespace: Option<&Namespace>,
    work: impl FnOnce() -> io::Result<R> + Send,
) -> io::Result<R> {
    match namespace {
        Some(namespace) => namespace.run(work),
        None => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_name_servers_that_a_namespace_can_reach_count() {
        let text = "# nameserver 192.0.2.9\nnameserver 127.0.0.53\nnameserver 192.0.2.53 \n\
                    options edns0\nnameserver ::1\nnameserver 2001:db8::53\n";
        let wanted: [IpAddr; 2] = ["192.0.2.53".parse().unwrap(), "2001:db8::53".parse().unwrap()];
        assert_eq!(servers(text), wanted);
        assert_eq!(servers(""), [] as [IpAddr; 0]);
    }
}

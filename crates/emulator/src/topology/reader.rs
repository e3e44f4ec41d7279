//! Conversion of a topology file's text into a [`Topology`], with the checks that the deserializer
//! (serde) does not make.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anabranch_netem::LinkSettings;
use anabranch_os::netlink::{Prefix, PrefixError};
use anabranch_os::toml_keys::{self, Section, TomlError};
use serde::Deserialize;
use toml::Spanned;

use super::{Cable, End, Event, Host, Route, TcpControl, Topology, addresses};
use crate::edit::{EDIT_KEYS, Edit};
use crate::program::{Expect, Program};
use crate::units::Span;

const HOST_KEYS: &[&str] = &["name", "address", "forward", "censor"];
const END_KEYS: &[&str] = &["host", "address", "routes", "prefsrc", "metric", "nat"];
const PROGRAM_KEYS: &[&str] =
    &["name", "host", "command", "environment", "directory", "start", "background", "expect"];
/// Names that no interface can have: directories, the loopback interface, and entries of
/// `/proc/sys/net` that are not interfaces.
const TAKEN: [&str; 5] = [".", "..", "lo", "all", "default"];
/// Range of an interface's MTU in bytes: from the minimum of IPv6 (RFC 8200, section 5) to the
/// maximum of a TUN interface.
const MTU: std::ops::RangeInclusive<i64> = 1280..=65_535;

#[derive(Deserialize)]
struct RawTopology {
    #[serde(default = "one")]
    seed: u64,
    #[serde(default)]
    tcp: TcpControl,
    #[serde(default)]
    host: Vec<RawHost>,
    #[serde(default)]
    link: Vec<RawLink>,
    #[serde(default)]
    event: Vec<RawEvent>,
    #[serde(default)]
    program: Vec<RawProgram>,
}

#[derive(Deserialize)]
struct RawHost {
    name: Spanned<String>,
    #[serde(default)]
    address: Vec<Spanned<String>>,
    #[serde(default)]
    forward: bool,
    #[serde(default)]
    censor: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
struct RawLink {
    name: Spanned<String>,
    ends: Spanned<Vec<RawEnd>>,
    mtu: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
struct RawEnd {
    host: Spanned<String>,
    #[serde(default)]
    address: Vec<Spanned<String>>,
    #[serde(default)]
    routes: Vec<Spanned<RawRoute>>,
    #[serde(default)]
    prefsrc: Vec<Spanned<String>>,
    metric: Option<u32>,
    #[serde(default)]
    nat: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawRoute {
    Direct(String),
    Via { to: String, via: String },
    Other(serde::de::IgnoredAny),
}

#[derive(Deserialize)]
struct RawEvent {
    at: Span,
    link: Spanned<String>,
}

#[derive(Deserialize)]
struct RawProgram {
    name: Option<Spanned<String>>,
    host: Spanned<String>,
    command: Spanned<Vec<String>>,
    #[serde(default)]
    environment: BTreeMap<Spanned<String>, String>,
    directory: Option<PathBuf>,
    start: Option<Span>,
    #[serde(default)]
    background: bool,
    expect: Option<Spanned<Expect>>,
}

/// The tables `link` and `event` of the topology file, parsed a second time for the keys that
/// events can change. With serde's `flatten`, one pass would suffice, but error messages would
/// lack the positions of the values.
#[derive(Deserialize)]
struct RawEdits {
    #[serde(default)]
    link: Vec<Edit>,
    #[serde(default)]
    event: Vec<Edit>,
}

pub(super) struct Reader<'r> {
    pub(super) text: &'r str,
    pub(super) file: &'r str,
}

impl Reader<'_> {
    /// Converts the topology file into a [`Topology`], and checks names and values.
    pub(super) fn topology(&self) -> Result<Topology, TomlError> {
        let raw: RawTopology = self.read()?;
        let edits: RawEdits = self.read()?;
        let hosts = self.hosts(raw.host)?;
        let links = self.links(raw.link, &edits.link, &hosts)?;
        let events = self.events(raw.event, edits.event, &links)?;
        let programs = self.programs(raw.program, &hosts)?;
        Ok(Topology { seed: raw.seed, tcp: raw.tcp, hosts, links, events, programs })
    }

    fn read<T: serde::de::DeserializeOwned>(&self) -> Result<T, TomlError> {
        // serde requires static lists of keys. Only the keys of `Edit` are added at run time.
        let with_edits = |own: &[&'static str]| [own, EDIT_KEYS].concat();
        let sections = [
            Section { path: "", keys: &["seed", "tcp", "host", "link", "event", "program"] },
            Section { path: "host", keys: HOST_KEYS },
            Section { path: "link", keys: &with_edits(&["name", "ends", "mtu"]) },
            Section { path: "link.ends", keys: END_KEYS },
            Section { path: "link.ends.routes", keys: &["to", "via"] },
            Section { path: "event", keys: &with_edits(&["at", "link"]) },
            Section { path: "program", keys: PROGRAM_KEYS },
        ];
        let read = toml_keys::read(self.text, self.file, &sections);
        read.map_err(|error| self.or_splitters(error))
    }

    /// Returns `error`, if necessary with a hint. The hint is added if `error` is about an unknown
    /// key that exists in configurations of `anabranch split`, because the file may be such a
    /// configuration.
    fn or_splitters(&self, error: TomlError) -> TomlError {
        let keys = ["listen", "to", "tun", "path", "wg", "schedule", "every"];
        if !keys.iter().any(|key| error.message.starts_with(&format!("unknown key `{key}`;"))) {
            return error;
        }
        let message = format!(
            "{}; if this is a splitter's file, run anabranch split {}",
            error.message, self.file
        );
        TomlError { message, ..error }
    }

    fn error(&self, span: Range<usize>, message: impl Into<String>) -> TomlError {
        TomlError::at(self.text, self.file, span, message)
    }

    fn hosts(&self, raw: Vec<RawHost>) -> Result<Vec<Host>, TomlError> {
        if raw.is_empty() {
            return Err(self.error(0..0, "there is no [[host]]; a network needs at least one"));
        }
        let mut hosts: Vec<Host> = Vec::new();
        for RawHost { name, address, forward, censor } in raw {
            if hosts.iter().any(|host| host.name == *name.get_ref()) {
                let message = format!(
                    "a second host is called `{}`; give each host its own name",
                    name.get_ref()
                );
                return Err(self.error(name.span(), message));
            }
            let (address, censor) = (self.addresses(address)?, self.censor(censor, forward)?);
            hosts.push(Host { name: name.into_inner(), address, forward, censor });
        }
        Ok(hosts)
    }

    /// Checks the server names that a host blocks as a censor. Such a host must forward packets,
    /// because it would see no connections of others otherwise.
    fn censor(&self, raw: Vec<Spanned<String>>, forward: bool) -> Result<Vec<String>, TomlError> {
        let name = |name: Spanned<String>| {
            let span = name.span();
            let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            let is_host = !name.get_ref().is_empty()
                && name.get_ref().chars().all(good)
                && name.get_ref().split('.').all(|label| !label.is_empty());
            if !is_host {
                let message = format!(
                    "`{}` is not a host name; write one such as `blocked.example`, which \
                     includes all names below it",
                    name.get_ref()
                );
                return Err(self.error(span, message));
            }
            if !forward {
                let message = "`censor` blocks only packets that the host forwards; add `forward \
                               = true`";
                return Err(self.error(span, message));
            }
            Ok(name.into_inner())
        };
        raw.into_iter().map(name).collect()
    }

    fn links(
        &self,
        raw: Vec<RawLink>,
        edits: &[Edit],
        hosts: &[Host],
    ) -> Result<Vec<Cable>, TomlError> {
        let mut links: Vec<Cable> = Vec::new();
        for (raw, edit) in raw.into_iter().zip(edits) {
            let span = raw.name.span();
            let cable = self.cable(raw, edit, hosts)?;
            if links.iter().any(|other| other.name == cable.name) {
                return Err(self.error(
                    span,
                    format!(
                        "a second link is called `{}`; give each link its own name",
                        cable.name
                    ),
                ));
            }
            links.push(cable);
        }
        Ok(links)
    }

    /// Returns the events in order of time. Events at the same time keep their order in the
    /// topology file.
    fn events(
        &self,
        raw: Vec<RawEvent>,
        edits: Vec<Edit>,
        links: &[Cable],
    ) -> Result<Vec<Event>, TomlError> {
        let event = |(raw, edit): (RawEvent, Edit)| {
            let link =
                self.index("link", &raw.link, links.iter().map(|link| link.name.as_str()))?;
            if edit == Edit::default() {
                return Err(self.error(
                    raw.link.span(),
                    "this [[event]] changes nothing; add a property of its link, such as `down = \
                     true`",
                ));
            }
            Ok(Event { at: raw.at.0, link, edit })
        };
        let mut events: Vec<Event> =
            raw.into_iter().zip(edits).map(event).collect::<Result<_, _>>()?;
        events.sort_by_key(|event| event.at);
        Ok(events)
    }

    fn programs(&self, raw: Vec<RawProgram>, hosts: &[Host]) -> Result<Vec<Program>, TomlError> {
        let mut programs: Vec<Program> = Vec::new();
        for raw in raw {
            let span = raw.name.as_ref().map_or(raw.command.span(), Spanned::span);
            let program = self.program(raw, hosts)?;
            if programs.iter().any(|other| other.name == program.name) {
                let message = format!(
                    "a second program is called `{}`; give it another `name`",
                    program.name
                );
                return Err(self.error(span, message));
            }
            programs.push(program);
        }
        Ok(programs)
    }

    fn program(&self, raw: RawProgram, hosts: &[Host]) -> Result<Program, TomlError> {
        let host = self.index("host", &raw.host, hosts.iter().map(|host| host.name.as_str()))?;
        let wrong = |name: &&Spanned<String>| !is_variable(name.get_ref());
        if let Some(name) = raw.environment.keys().find(wrong) {
            let message = format!(
                "`{}` cannot be the name of an environment variable; write one without `=`",
                name.get_ref()
            );
            return Err(self.error(name.span(), message));
        }
        let expect = match raw.expect {
            Some(expect) if *expect.get_ref() == Expect::Running && !raw.background => {
                let message = "the emulation waits until this program ends, so the program cannot \
                               run until the emulation ends; add `background = true`";
                return Err(self.error(expect.span(), message));
            }
            Some(expect) => expect.into_inner(),
            None if raw.background => Expect::Running,
            None => Expect::Success,
        };
        Ok(Program {
            name: self.program_name(raw.name, &raw.command)?,
            host,
            line: self.line(raw.command.span()),
            command: raw.command.into_inner(),
            environment: raw.environment.into_iter().map(|(k, v)| (k.into_inner(), v)).collect(),
            directory: raw.directory,
            start: raw.start.map_or(Duration::ZERO, |span| span.0),
            background: raw.background,
            expect,
        })
    }

    /// Returns the program's name in the topology file or, if the file gives none, the file name
    /// of the program's command. The program's log files have the same name.
    fn program_name(
        &self,
        name: Option<Spanned<String>>,
        command: &Spanned<Vec<String>>,
    ) -> Result<String, TomlError> {
        let Some(first) = command.get_ref().first().filter(|first| !first.is_empty()) else {
            return Err(self.error(
                command.span(),
                "`command` is empty; write [\"PROGRAM\", \"ARGUMENT\", ...]",
            ));
        };
        let (span, name) = match name {
            Some(name) => (name.span(), name.into_inner()),
            None => {
                let file = Path::new(first).file_name().unwrap_or_default();
                (command.span(), file.to_string_lossy().into_owned())
            }
        };
        let letters =
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte));
        if !letters || !(1..=64).contains(&name.len()) || name.starts_with('.') {
            let message = format!(
                "`{name}` cannot be the name of a log file; give the program a `name` with 1 to \
                 64 of a-z A-Z 0-9 - _ . +"
            );
            return Err(self.error(span, message));
        }
        Ok(name)
    }

    /// Returns the index of `name` in `names`. If `names` lacks it, the error states that no
    /// `what` (for example, no host) has this name.
    fn index<'n>(
        &self,
        what: &str,
        name: &Spanned<String>,
        names: impl Iterator<Item = &'n str> + Clone,
    ) -> Result<usize, TomlError> {
        let found = names.clone().position(|other| other == name.get_ref());
        found.ok_or_else(|| {
            let near = toml_keys::hint(name.get_ref(), names.clone());
            let all = || format!("; choose one of {}", names.collect::<Vec<_>>().join(", "));
            let hint = if near.is_empty() { all() } else { near };
            self.error(name.span(), format!("there is no {what} `{}`{hint}", name.get_ref()))
        })
    }

    fn cable(&self, raw: RawLink, edit: &Edit, hosts: &[Host]) -> Result<Cable, TomlError> {
        let name = self.interface_name(raw.name)?;
        let ends_span = raw.ends.span();
        let ends: Result<Vec<End>, TomlError> =
            raw.ends.into_inner().into_iter().map(|end| self.end(end, hosts)).collect();
        let two = <[End; 2]>::try_from(ends?).ok().filter(|ends| ends[0].host != ends[1].host);
        let ends = two.ok_or_else(|| {
            self.error(ends_span, "a link needs two `ends`, on two different hosts")
        })?;
        let mtu = raw.mtu.map_or(Ok(1500), |mtu| self.mtu(&mtu))?;
        let both = LinkSettings { mtu: mtu as usize, ..LinkSettings::default() };
        let (mut forward, mut back) = (both.clone(), both);
        edit.apply(&mut forward, false);
        edit.apply(&mut back, true);
        Ok(Cable { name, ends, forward, back, mtu })
    }

    fn interface_name(&self, name: Spanned<String>) -> Result<String, TomlError> {
        let span = name.span();
        let name = name.into_inner();
        let letters =
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if !letters || !(1..=15).contains(&name.len()) {
            let message =
                format!("`{name}` is not an interface name; write 1 to 15 of a-z A-Z 0-9 - _ .");
            return Err(self.error(span, message));
        }
        if TAKEN.contains(&name.as_str()) {
            let message = format!(
                "the kernel reserves the name `{name}`, so no interface can have it; write another \
                 name"
            );
            return Err(self.error(span, message));
        }
        Ok(name)
    }

    fn mtu(&self, mtu: &Spanned<i64>) -> Result<u32, TomlError> {
        let wrong = || format!("`mtu` is out of range; write {} to {}", MTU.start(), MTU.end());
        let fits = u32::try_from(*mtu.get_ref()).ok().filter(|_| MTU.contains(mtu.get_ref()));
        fits.ok_or_else(|| self.error(mtu.span(), wrong()))
    }

    fn end(&self, raw: RawEnd, hosts: &[Host]) -> Result<End, TomlError> {
        let RawEnd { host, address, routes, prefsrc, metric, nat } = raw;
        let line = self.line(host.span());
        let host = self.index("host", &host, hosts.iter().map(|host| host.name.as_str()))?;
        let (address, prefsrc) = (self.addresses(address)?, self.prefsrc(&prefsrc)?);
        let routes = routes.iter().map(|route| self.route(route)).collect::<Result<_, _>>()?;
        Ok(End { host, address, routes, prefsrc, metric, nat, line })
    }

    /// Parses the addresses of one interface.
    fn addresses(&self, raw: Vec<Spanned<String>>) -> Result<Vec<Prefix>, TomlError> {
        let mut addresses: Vec<Prefix> = Vec::new();
        for text in raw {
            let address = addresses::read(text.get_ref(), &addresses);
            addresses.push(address.map_err(|message| self.error(text.span(), message))?);
        }
        Ok(addresses)
    }

    /// Parses the source addresses of an end's routes, at most one for each IP version.
    fn prefsrc(&self, raw: &[Spanned<String>]) -> Result<Vec<IpAddr>, TomlError> {
        let mut sources: Vec<IpAddr> = Vec::new();
        for text in raw {
            let error = |message| self.error(text.span(), message);
            let source: IpAddr = text.get_ref().parse().map_err(|_| {
                error(format!("`{}` is not an IP address; write `10.0.0.1`", text.get_ref()))
            })?;
            if let Some(other) = sources.iter().find(|other| other.is_ipv4() == source.is_ipv4()) {
                let message = format!(
                    "`prefsrc` has two addresses of the same kind (IPv4 or IPv6), {other} and \
                     {source}; remove one"
                );
                return Err(error(message));
            }
            sources.push(source);
        }
        Ok(sources)
    }

    fn route(&self, raw: &Spanned<RawRoute>) -> Result<Route, TomlError> {
        let error = |message: String| self.error(raw.span(), message);
        let (to, via) = match raw.get_ref() {
            RawRoute::Direct(to) => (to, None),
            RawRoute::Via { to, via } => (to, Some(via)),
            RawRoute::Other(_) => {
                let forms = "this is not a route; write `\"10.0.0.0/8\"` or `{ to = \
                             \"10.0.0.0/8\", via = \"10.1.0.1\" }`";
                return Err(error(forms.to_owned()));
            }
        };
        let to = to.parse().map_err(|e: PrefixError| error(e.to_string()))?;
        let via =
            via.map(|via| via.parse().map_err(|_| error(format!("`{via}` is not an IP address"))));
        Ok(Route { to, via: via.transpose()?, line: self.line(raw.span()) })
    }

    fn line(&self, span: Range<usize>) -> usize {
        self.error(span, "").line
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

fn one() -> u64 {
    1
}

//! The file that describes an emulated network.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anabranch_netem::Settings;
use serde::Deserialize;
use serde::de::Deserializer;
use toml::Spanned;

use super::edit::{EDIT_KEYS, Edit};
use super::program::{Expect, Program};
use super::units::Span;
use crate::netlink::Prefix;
use crate::toml_keys::{self, Section, TomlError};

/// An emulated network, checked: every name is there once, every link has two ends on two hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// Of all chances: loss and jitter.
    pub seed: u64,
    /// At least one.
    pub hosts: Vec<Host>,
    /// Each joins two hosts.
    pub links: Vec<Cable>,
    /// Changes of links while the network runs, in the order of time.
    pub events: Vec<Event>,
    /// What runs in the hosts.
    pub programs: Vec<Program>,
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
}

/// A link: a TUN interface of the same name in each of two hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Cable {
    /// Unique; the name of both interfaces.
    pub name: String,
    /// Where it ends.
    pub ends: [End; 2],
    /// From the first end to the second.
    pub forward: Settings,
    /// From the second end to the first.
    pub back: Settings,
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
    pub routes: Vec<Prefix>,
    /// The source address of those routes, at most one for each family.
    pub prefsrc: Vec<IpAddr>,
    /// Of those routes: the smaller is preferred.
    pub metric: Option<u32>,
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

const HOST_KEYS: &[&str] = &["name", "address", "forward"];
const END_KEYS: &[&str] = &["host", "address", "routes", "prefsrc", "metric"];
const PROGRAM_KEYS: &[&str] =
    &["name", "host", "command", "environment", "directory", "start", "background", "expect"];
/// The smallest MTU that IPv6 allows (RFC 8200, section 5), and the largest of a TUN interface.
const MTU: std::ops::RangeInclusive<u32> = 1280..=65_535;

#[derive(Deserialize)]
struct RawTopology {
    #[serde(default = "one")]
    seed: u64,
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
    #[serde(default, deserialize_with = "texts")]
    address: Vec<Prefix>,
    #[serde(default)]
    forward: bool,
}

#[derive(Deserialize)]
struct RawLink {
    name: Spanned<String>,
    ends: Spanned<Vec<RawEnd>>,
    mtu: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
struct RawEnd {
    host: Spanned<String>,
    #[serde(default, deserialize_with = "texts")]
    address: Vec<Prefix>,
    #[serde(default, deserialize_with = "texts")]
    routes: Vec<Prefix>,
    #[serde(default)]
    prefsrc: Vec<IpAddr>,
    metric: Option<u32>,
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

/// The same tables again, for the keys that can also be changed later. Two passes keep the position
/// of
/// each value, which serde's `flatten` would lose.
#[derive(Deserialize)]
struct RawEdits {
    #[serde(default)]
    link: Vec<Edit>,
    #[serde(default)]
    event: Vec<Edit>,
}

impl Topology {
    /// Reads `text`, the content of `file`.
    ///
    /// # Errors
    /// With file, line and, for mistyped names, the nearest right one.
    pub fn parse(text: &str, file: &str) -> Result<Topology, TomlError> {
        let reader = Reader { text, file };
        let raw: RawTopology = reader.read()?;
        let edits: RawEdits = reader.read()?;
        let hosts = reader.hosts(raw.host)?;
        let links = reader.links(raw.link, &edits.link, &hosts)?;
        let events = reader.events(raw.event, edits.event, &links)?;
        let programs = reader.programs(raw.program, &hosts)?;
        Ok(Topology { seed: raw.seed, hosts, links, events, programs })
    }
}

struct Reader<'r> {
    text: &'r str,
    file: &'r str,
}

impl Reader<'_> {
    fn read<T: serde::de::DeserializeOwned>(&self) -> Result<T, TomlError> {
        // The table of keys is static but for those that come from `Edit`.
        let with_edits = |own: &[&'static str]| [own, &EDIT_KEYS].concat();
        let sections = [
            Section { path: "", keys: &["seed", "host", "link", "event", "program"] },
            Section { path: "host", keys: HOST_KEYS },
            Section { path: "link", keys: &with_edits(&["name", "ends", "mtu"]) },
            Section { path: "link.ends", keys: END_KEYS },
            Section { path: "event", keys: &with_edits(&["at", "link"]) },
            Section { path: "program", keys: PROGRAM_KEYS },
        ];
        toml_keys::read(self.text, self.file, &sections)
    }

    fn error(&self, span: Range<usize>, message: impl Into<String>) -> TomlError {
        TomlError::at(self.text, self.file, span, message)
    }

    fn hosts(&self, raw: Vec<RawHost>) -> Result<Vec<Host>, TomlError> {
        if raw.is_empty() {
            return Err(self.error(0..0, "no [[host]]"));
        }
        let mut hosts: Vec<Host> = Vec::new();
        for RawHost { name, address, forward } in raw {
            if hosts.iter().any(|host| host.name == *name.get_ref()) {
                let message =
                    format!("a second host `{}`; hosts have names of their own", name.get_ref());
                return Err(self.error(name.span(), message));
            }
            hosts.push(Host { name: name.into_inner(), address, forward });
        }
        Ok(hosts)
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
                    format!("a second link `{}`; links have names of their own", cable.name),
                ));
            }
            links.push(cable);
        }
        Ok(links)
    }

    /// In the order of time; those of one time in the file's order.
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
                return Err(self.error(raw.link.span(), "this [[event]] changes nothing"));
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
                let message = format!("a second program `{}`; give it a `name`", program.name);
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
            let message = format!("`{}` is no name of a variable", name.get_ref());
            return Err(self.error(name.span(), message));
        }
        let expect = match raw.expect {
            Some(expect) if *expect.get_ref() == Expect::Running && !raw.background => {
                let message = "the emulation waits for this program, so it cannot run until the \
                               emulation ends; add `background = true`";
                return Err(self.error(expect.span(), message));
            }
            Some(expect) => expect.into_inner(),
            None if raw.background => Expect::Running,
            None => Expect::Success,
        };
        Ok(Program {
            name: self.program_name(raw.name, &raw.command)?,
            host,
            line: self.error(raw.command.span(), "").line,
            command: raw.command.into_inner(),
            environment: raw.environment.into_iter().map(|(k, v)| (k.into_inner(), v)).collect(),
            directory: raw.directory,
            start: raw.start.map_or(Duration::ZERO, |span| span.0),
            background: raw.background,
            expect,
        })
    }

    /// The name that was given, or the command's file name. It names the logs.
    fn program_name(
        &self,
        name: Option<Spanned<String>>,
        command: &Spanned<Vec<String>>,
    ) -> Result<String, TomlError> {
        let Some(first) = command.get_ref().first().filter(|first| !first.is_empty()) else {
            return Err(self.error(command.span(), "`command` is [\"PROGRAM\", \"ARGUMENT\", ...]"));
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
                "`{name}` cannot name a log; give the program a `name` (1 to 64 of a-z A-Z 0-9 - _ . +)"
            );
            return Err(self.error(span, message));
        }
        Ok(name)
    }

    /// The place of a name among those that there are.
    fn index<'n>(
        &self,
        what: &str,
        name: &Spanned<String>,
        names: impl Iterator<Item = &'n str> + Clone,
    ) -> Result<usize, TomlError> {
        let found = names.clone().position(|other| other == name.get_ref());
        found.ok_or_else(|| {
            let near = toml_keys::hint(name.get_ref(), names.clone());
            let all = || format!("; there is {}", names.collect::<Vec<_>>().join(", "));
            let hint = if near.is_empty() { all() } else { near };
            self.error(name.span(), format!("no {what} `{}`{hint}", name.get_ref()))
        })
    }

    fn cable(&self, raw: RawLink, edit: &Edit, hosts: &[Host]) -> Result<Cable, TomlError> {
        let name = self.interface_name(raw.name)?;
        let ends_span = raw.ends.span();
        let ends: Result<Vec<End>, TomlError> =
            raw.ends.into_inner().into_iter().map(|end| self.end(end, hosts)).collect();
        let two = <[End; 2]>::try_from(ends?).ok().filter(|ends| ends[0].host != ends[1].host);
        let ends =
            two.ok_or_else(|| self.error(ends_span, "`ends` are two, on two different hosts"))?;
        let mtu = raw.mtu.map_or(Ok(1500), |mtu| self.mtu(&mtu))?;
        let both = Settings { mtu: mtu as usize, ..Settings::default() };
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
        if !letters || !(1..=15).contains(&name.len()) || [".", "..", "lo"].contains(&name.as_str())
        {
            let message = format!("`{name}` is no interface name (1 to 15 of a-z A-Z 0-9 - _ .)");
            return Err(self.error(span, message));
        }
        Ok(name)
    }

    fn mtu(&self, mtu: &Spanned<u32>) -> Result<u32, TomlError> {
        if MTU.contains(mtu.get_ref()) {
            return Ok(*mtu.get_ref());
        }
        let message = format!("`mtu` is from {} to {}", MTU.start(), MTU.end());
        Err(self.error(mtu.span(), message))
    }

    fn end(&self, raw: RawEnd, hosts: &[Host]) -> Result<End, TomlError> {
        let RawEnd { host, address, routes, prefsrc, metric } = raw;
        let host = self.index("host", &host, hosts.iter().map(|host| host.name.as_str()))?;
        Ok(End { host, address, routes, prefsrc, metric })
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

fn one() -> u64 {
    1
}

/// A list of texts, each parsed.
fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Prefix>, D::Error> {
    let texts: Vec<String> = Vec::deserialize(deserializer)?;
    texts.iter().map(|text| text.parse().map_err(serde::de::Error::custom)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_netem::Loss;
    use std::time::Duration;

    const GOOD: &str = r#"
        seed = 7
        [[host]]
        name = "client"
        [[host]]
        name = "server"
        address = ["10.99.0.1/32", "fd99::1/128"]
        [[link]]
        name = "p0"
        ends = [
            { host = "client", address = ["10.77.0.2/24"], routes = ["10.99.0.1"], metric = 100 },
            { host = "server", routes = ["10.77.0.0/24"], prefsrc = ["10.99.0.1", "fd99::1"] },
        ]
        rate = "100mbit"
        delay = "10ms"
        delay_back = "20ms"
        loss = 0.0
        queue = "250kB"
        mtu = 1500
    "#;

    fn mistake(from: &str, to: &str) -> String {
        assert!(GOOD.contains(from));
        Topology::parse(&GOOD.replace(from, to), "t.toml").unwrap_err().to_string()
    }

    #[test]
    fn a_topology_is_read_with_its_units() {
        let topology = Topology::parse(GOOD, "t.toml").unwrap();
        assert_eq!((topology.seed, topology.hosts.len()), (7, 2));
        let cable = &topology.links[0];
        assert_eq!((cable.ends[0].host, cable.ends[1].host, cable.mtu), (0, 1, 1500));
        assert_eq!(cable.ends[0].routes, ["10.99.0.1/32".parse().unwrap()]);
        assert_eq!(cable.forward.rate.unwrap().get(), 100_000_000);
        assert_eq!(cable.forward.delay, Duration::from_millis(10));
        assert_eq!(cable.back.delay, Duration::from_millis(20));
        assert_eq!((cable.back.queue, &cable.back.loss), (250_000, &Loss::None));
    }

    #[test]
    fn mistyped_keys_are_told_at_every_depth() {
        assert!(mistake("seed =", "sede =").starts_with("t.toml:2: unknown key `sede`"));
        let link = "t.toml:15: unknown key `dleay` in [link]; did you mean `delay`?";
        assert_eq!(mistake("        delay =", "dleay ="), link);
        let end = "t.toml:11: unknown key `route` in [link.ends]; did you mean `routes`?";
        assert_eq!(mistake("routes = [\"10.99.0.1\"]", "route = []"), end);
    }

    #[test]
    fn wrong_values_are_told_with_their_line() {
        assert!(mistake("100mbit", "fast").starts_with("t.toml:14: `fast` is no rate"));
        assert!(mistake("loss = 0.0", "loss = 2").starts_with("t.toml:17: 2 is no probability"));
        assert!(mistake("10.77.0.2/24", "10.77.0/24").starts_with("t.toml:11: `10.77.0` is not"));
        assert!(mistake("mtu = 1500", "mtu = 500").starts_with("t.toml:19: `mtu` is from 1280"));
        assert!(mistake("\"p0\"", "\"a/b\"").starts_with("t.toml:9: `a/b` is no interface name"));
    }

    #[test]
    fn events_come_in_the_order_of_time() {
        let events = "[[event]]\nat = '3s'\nlink = 'p0'\ndown = true\n\
                      [[event]]\nat = '500ms'\nlink = 'p0'\nrate = '1mbit'\nqueue = '5kB'\n";
        let topology = Topology::parse(&format!("{GOOD}{events}"), "t.toml").unwrap();
        let times: Vec<_> = topology.events.iter().map(|event| event.at.as_millis()).collect();
        assert_eq!(times, [500, 3000]);
        assert_eq!((topology.events[1].link, topology.events[1].edit.down), (0, Some(true)));
        for (from, to, message) in [
            ("'p0'\ndown", "'p9'\ndown", "t.toml:22: no link `p9`; there is p0"),
            ("\ndown = true", "", "t.toml:22: this [[event]] changes nothing"),
            ("'3s'", "'-3s'", "t.toml:21: `-3s` is no time"),
            ("down", "mtu", "t.toml:23: unknown key `mtu` in [event]"),
        ] {
            let text = format!("{GOOD}{}", events.replacen(from, to, 1));
            let error = Topology::parse(&text, "t.toml").unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }

    const PROGRAMS: &str = r#"
        [[program]]
        host = "server"
        command = ["/usr/bin/iperf3", "-s"]
        background = true
        [[program]]
        name = "load"
        host = "client"
        command = ["iperf3", "-c", "10.99.0.1"]
        environment = { LC_ALL = "C" }
        directory = "/tmp"
        start = "500ms"
        expect = "any"
    "#;

    fn with_programs(from: &str, to: &str) -> Result<Topology, String> {
        assert!(PROGRAMS.contains(from));
        let text = format!("{GOOD}{}", PROGRAMS.replacen(from, to, 1));
        Topology::parse(&text, "t.toml").map_err(|error| error.to_string())
    }

    #[test]
    fn programs_are_read_with_their_defaults() {
        let [server, load] =
            <[Program; 2]>::try_from(with_programs("", "").unwrap().programs).unwrap();
        assert_eq!((server.name.as_str(), server.host, server.line), ("iperf3", 1, 23));
        assert_eq!((server.background, server.expect), (true, Expect::Running));
        assert_eq!((load.name.as_str(), load.host, load.background), ("load", 0, false));
        assert_eq!((load.start.as_millis(), load.expect), (500, Expect::Any));
        assert_eq!(load.environment["LC_ALL"], "C");
        let plain = with_programs("expect = \"any\"", "").unwrap();
        assert_eq!(plain.programs[1].expect, Expect::Success);
    }

    #[test]
    fn mistakes_in_programs_are_told_with_their_line() {
        for (from, to, message) in [
            ("\"client\"", "\"clinet\"", "t.toml:27: no host `clinet`; did you mean `client`?"),
            ("\"load\"", "\"iperf3\"", "t.toml:26: a second program `iperf3`; give it a `name`"),
            ("\"load\"", "\"../load\"", "t.toml:26: `../load` cannot name a log"),
            ("[\"/usr/bin/iperf3\", \"-s\"]", "[]", "t.toml:23: `command` is [\"PROGRAM\""),
            ("LC_ALL", "\"A=B\"", "t.toml:29: `A=B` is no name of a variable"),
            ("500ms", "-500ms", "t.toml:31: `-500ms` is no time"),
            ("\"any\"", "\"running\"", "t.toml:32: the emulation waits for this program"),
            ("\"any\"", "\"runing\"", "t.toml:32: unknown variant"),
            ("directory", "dir", "t.toml:30: unknown key `dir` in [program]; did you mean"),
        ] {
            let error = with_programs(from, to).unwrap_err();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn hosts_and_ends_must_fit() {
        let unknown = "t.toml:11: no host `clinet`; did you mean `client`?";
        assert_eq!(mistake("host = \"client\"", "host = \"clinet\""), unknown);
        let ends = "t.toml:10: `ends` are two, on two different hosts";
        assert_eq!(mistake("host = \"client\"", "host = \"server\""), ends);
        let second = "t.toml:6: a second host `client`; hosts have names of their own";
        assert_eq!(mistake("name = \"server\"", "name = \"client\""), second);
        assert!(Topology::parse("", "t.toml").unwrap_err().to_string().contains("no [[host]]"));
    }
}

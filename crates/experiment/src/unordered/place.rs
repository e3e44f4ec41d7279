//! The emulated network of a measurement: three relays in a row, a client, an authority and a web
//! server.

use std::fmt::Write as _;
use std::io;
use std::net::Ipv4Addr;
use std::process::Command;

use super::super::onions::HostSlot;
use super::super::stage::Stage;
use super::plan::{Direction, Line, SegmentOrder};

/// Mean one-way delay of each emulated network line on the path, in ms.
pub const DELAY_MS: u32 = 50;
/// Rate of each emulated network line in each direction, in Mbit/s.
pub const RATE_MBIT: u32 = 100;
/// Queue length of an emulated network line, as the time in ms for which a full queue delays a
/// packet.
pub const QUEUE_MS: u32 = 100;

/// Number of parallel emulated network lines between middle and exit, the last hop of the path. If
/// there are two, both have the same properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastLines {
    One,
    /// Two network lines. The kernel's MPTCP path manager announces the address of the second line
    /// to peers, so that connections use both lines.
    Two,
}

/// Address of the web server, on the exit's host.
pub(super) const WEB: Ipv4Addr = Ipv4Addr::new(10, 40, 0, 1);

/// Role of a program in the emulated network, except the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The directory authority, which makes the consensus. It has separate network lines, and no
    /// circuit uses it.
    Authority,
    Guard,
    Middle,
    /// The exit, whose host also has the web server.
    Exit,
}

impl Role {
    /// Roles of the three relays, in the order of a circuit's hops.
    pub(super) const RELAYS: [Role; 3] = [Role::Guard, Role::Middle, Role::Exit];

    /// Returns the name of the program with this role, which is also the name of its host.
    pub(super) fn name(self) -> &'static str {
        match self {
            Role::Authority => "server",
            Role::Guard => "guard",
            Role::Middle => "middle",
            Role::Exit => "exit",
        }
    }

    /// Returns the IP address of the program with this role. Addresses are in different /16
    /// networks, because a circuit may not contain two relays in the same /16 network.
    pub(super) fn address(self) -> Ipv4Addr {
        let network = match self {
            Role::Authority => 1,
            Role::Guard => 10,
            Role::Middle => 20,
            Role::Exit => 30,
        };
        Ipv4Addr::new(10, network, 0, 1)
    }

    /// Returns the address of the program on the second network line between middle and exit;
    /// `None` for programs on other hosts.
    pub(super) fn second(self) -> Option<Ipv4Addr> {
        match self {
            Role::Authority | Role::Guard => None,
            Role::Middle => Some(Ipv4Addr::new(10, 21, 0, 1)),
            Role::Exit => Some(Ipv4Addr::new(10, 31, 0, 1)),
        }
    }

    pub(super) fn slot(self, stage: &Stage) -> HostSlot<'_> {
        HostSlot { name: self.name().to_owned(), ip: self.address(), host: stage.host(self.name()) }
    }
}

/// Builds the emulated network. `seed` determines the random loss and delay of its network lines.
///
/// # Errors
/// A step of the set-up fails.
pub(super) fn build(line: Line, seed: u64, last: LastLines) -> io::Result<Stage> {
    let stage = Stage::of(&topology(line, seed, last), Vec::new())?;
    if last == LastLines::Two {
        for role in [Role::Middle, Role::Exit] {
            stage.host(role.name()).run(|| announce(role))?;
        }
    }
    Ok(stage)
}

/// Configures a host's kernel to announce the address of its second network line to MPTCP peers.
/// The peer that opened the connection then opens a subflow to that address.
fn announce(role: Role) -> io::Result<()> {
    let Some(second) = role.second() else { return Ok(()) };
    // Two subflows are allowed, because the other end also tries to open one. That attempt fails,
    // because nothing listens on the port of the side that opened the connection.
    mptcp(&["limits", "set", "subflows", "2", "add_addr_accepted", "1"])?;
    mptcp(&["endpoint", "add", &second.to_string(), "signal"])
}

fn mptcp(words: &[&str]) -> io::Result<()> {
    let cannot = |error| io::Error::other(format!("ip mptcp (package iproute2): {error}"));
    let output =
        Command::new("ip").arg("mptcp").args(words).output().map_err(|e| cannot(e.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(cannot(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

/// Builds an emulated network that has only the path's last network line. The host `client` stands
/// for the middle, and the host `server` for the exit.
///
/// # Errors
/// A step of the set-up fails.
pub(super) fn build_line(line: Line, seed: u64) -> io::Result<Stage> {
    let mut text = head(line, seed);
    // The congestion control is set on the routes, because a kernel may not let a host choose it.
    let [one, two] = [("client", "10.77.0.1", LINE_END), ("server", LINE_END, "10.77.0.1")].map(
        |(host, own, other)| {
            text += &format!("[[host]]\nname = '{host}'\naddress = ['{own}/32']\n");
            format!("routes = ['{other}/32'], prefsrc = ['{own}']")
        },
    );
    text += &link("last", [("client", &one), ("server", &two)], &on_path(line, true));
    Stage::of(&text, Vec::new())
}

/// IP address of the exit in the emulated network that has only the path's last network line.
pub(super) const LINE_END: &str = "10.77.0.2";

fn head(line: Line, seed: u64) -> String {
    // The seed is shifted because TOML integers are signed.
    format!("seed = {}\ntcp = '{}'\n", seed >> 1, line.congestion)
}

/// Returns the properties of an emulated network line on the path, as text of a topology file.
/// Only the last line loses segments.
fn on_path(line: Line, is_last: bool) -> String {
    let loss = if is_last { f64::from(line.loss) / 100.0 } else { 0.0 };
    let (out, back) = match line.direction {
        Direction::ToExit => (loss, 0.0),
        Direction::FromExit => (0.0, loss),
    };
    let reorder = line.order == SegmentOrder::Reordered;
    format!(
        "delay = '{DELAY_MS}ms'\njitter = '{}ms'\njitter_law = 'normal'\nreorder = {reorder}\nloss = {out}\n\
         loss_back = {back}\nrate = '{RATE_MBIT}mbit'\nqueue = '{}kB'\n",
        line.deviation,
        RATE_MBIT * QUEUE_MS / 8
    )
}

fn link(name: &str, [one, two]: [(&str, &str); 2], like: &str) -> String {
    let ((one, more), (two, back)) = (one, two);
    format!(
        "[[link]]\nname = '{name}'\nends = [\n{{ host = '{one}', {more} }},\n\
         {{ host = '{two}', {back} }},\n]\n{like}"
    )
}

/// Returns the emulated network as the text of a topology file: client, guard, middle and exit in
/// a row. The authority has a network line to each of them, and forwards packets between hosts
/// that are not neighbours.
fn topology(line: Line, seed: u64, last: LastLines) -> String {
    let mut text = head(line, seed) + "[[host]]\nname = 'client'\n";
    for role in [Role::Authority, Role::Guard, Role::Middle, Role::Exit] {
        let (name, ip) = (role.name(), role.address());
        let forward = role == Role::Authority;
        let mut own = format!("'{ip}/32'");
        if role == Role::Exit {
            own += &format!(", '{WEB}/32'");
        }
        if let Some(second) = role.second().filter(|_| last == LastLines::Two) {
            own += &format!(", '{second}/32'");
        }
        let own = format!("address = [{own}]\nforward = {forward}");
        writeln!(text, "[[host]]\nname = '{name}'\n{own}")
            .expect("writing to a string does not fail");
    }
    let to = |roles: &[Role], and: &str| {
        let listed: String =
            roles.iter().map(|role| format!("'{}/32', ", role.address())).collect();
        format!("routes = [{listed}{and}]")
    };
    let from = |role: Role| format!("prefsrc = ['{}']", role.address());
    let [guard, middle, exit] = Role::RELAYS;
    let near = format!("address = ['10.98.0.2/24'], {}", to(&[guard], ""));
    let far = format!("routes = ['10.98.0.0/24'], {}", from(guard));
    text += &link("entry", [("client", &near), ("guard", &far)], &on_path(line, false));
    for (name, one, two) in [("inner", guard, middle), ("last", middle, exit)] {
        let near = format!("{}, {}", to(&[two], ""), from(one));
        let far = format!("{}, {}", to(&[one], ""), from(two));
        let ends = [(one.name(), &*near), (two.name(), &*far)];
        text += &link(name, ends, &on_path(line, name == "last"));
    }
    if let (LastLines::Two, Some(one), Some(two)) = (last, middle.second(), exit.second()) {
        let near = format!("routes = ['{two}/32'], prefsrc = ['{one}']");
        let far = format!("routes = ['{one}/32'], prefsrc = ['{two}']");
        let ends = [(middle.name(), &*near), (exit.name(), &*far)];
        text += &link("last-too", ends, &on_path(line, true));
    }
    let core = "delay = '1ms'\n";
    let authority = Role::Authority;
    let near = format!("address = ['10.99.0.2/24'], {}", to(&[authority, middle, exit], ""));
    let far = format!("routes = ['10.99.0.0/24'], {}", from(authority));
    text += &link("core", [("client", &near), ("server", &far)], core);
    let others: [(Role, &[Role], &str); 3] = [
        (guard, &[authority, exit], ""),
        (middle, &[authority], "'10.99.0.0/24'"),
        (exit, &[authority, guard], "'10.99.0.0/24'"),
    ];
    for (role, roles, and) in others {
        let near = format!("{}, {}", to(roles, and), from(role));
        let far = format!("{}, {}", to(&[role], ""), from(authority));
        let name = format!("core-{role}", role = role.name());
        text += &link(&name, [(role.name(), &near), ("server", &far)], core);
    }
    text
}

#[cfg(test)]
mod tests {
    use anabranch_emulator::{Cable, TcpControl, Topology};
    use anabranch_netem::{DelayLaw, Loss};

    use super::super::plan::Congestion;
    use super::*;

    fn line(direction: Direction) -> Line {
        Line {
            loss: 5,
            direction,
            deviation: 10,
            congestion: Congestion::Bbr,
            order: SegmentOrder::Kept,
        }
    }

    #[test]
    fn segments_overtake_others_where_that_is_asked_for() {
        let kept = line(Direction::ToExit);
        for order in [SegmentOrder::Kept, SegmentOrder::Reordered] {
            let text = topology(Line { order, ..kept }, 1, LastLines::One);
            let parsed = Topology::parse(&text, "t").unwrap();
            let of_path = parsed.links.iter().filter(|link| link.forward.delay.as_millis() == 50);
            let mut count = 0;
            for link in of_path {
                assert_eq!(link.forward.reorder, order == SegmentOrder::Reordered, "{}", link.name);
                count += 1;
            }
            assert!(count >= 3, "{count}");
        }
    }

    #[test]
    fn the_last_line_alone_loses_and_in_one_direction() {
        for direction in [Direction::ToExit, Direction::FromExit] {
            let text = topology(line(direction), u64::MAX, LastLines::One);
            let topology = Topology::parse(&text, "t").unwrap();
            assert_eq!((topology.hosts.len(), topology.links.len()), (5, 7));
            assert_eq!(topology.tcp, TcpControl::Bbr);
            let losing = |link: &&Cable| {
                [&link.forward, &link.back].iter().any(|way| way.loss != Loss::None)
            };
            let found: Vec<_> = topology.links.iter().filter(losing).collect();
            assert_eq!(found.len(), 1);
            let to_exit = direction == Direction::ToExit;
            let ways = [&found[0].forward, &found[0].back];
            assert_eq!(ways[usize::from(!to_exit)].loss, Loss::Bernoulli(0.05));
            assert_eq!(ways[usize::from(to_exit)].loss, Loss::None);
        }
    }

    #[test]
    fn a_second_last_line_is_like_the_first() {
        let text = topology(line(Direction::FromExit), 1, LastLines::Two);
        let topology = Topology::parse(&text, "t").unwrap();
        let named = |name: &str| topology.links.iter().find(|link| link.name == name).unwrap();
        let [first, second] = ["last", "last-too"].map(named);
        assert_eq!((&first.forward, &first.back), (&second.forward, &second.back));
        assert_eq!(second.back.loss, Loss::Bernoulli(0.05));
        assert_eq!(topology.links.len(), 8);
    }

    #[test]
    fn three_lines_have_the_normal_delay_that_is_said() {
        let text = topology(line(Direction::ToExit), 1, LastLines::One);
        let topology = Topology::parse(&text, "t").unwrap();
        let slow = topology.links.iter().flat_map(|link| [&link.forward, &link.back]);
        let slow: Vec<_> = slow.filter(|way| way.delay.as_millis() == 50).collect();
        assert_eq!(slow.len(), 6);
        assert!(slow.iter().all(|way| way.law == DelayLaw::Normal && !way.reorder));
        assert!(slow.iter().all(|way| way.jitter.as_millis() == 10));
    }
}

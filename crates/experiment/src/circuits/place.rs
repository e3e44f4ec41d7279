//! The emulated network of a measurement: its addresses, hosts and lines.

use std::fmt::Write as _;
use std::io;
use std::net::Ipv4Addr;

use super::super::onions::HostSlot;
use super::super::stage::Stage;
use super::plan::{LOADED, Layout};
use anabranch_emulator::Namespace;

/// Emulated network lines of the three guards. The first number is the rate in Mbit/s in each
/// direction. The second is the round-trip time in ms that the guard adds between the measuring
/// client and the core host, where all other programs run. Each guard has a line to the client and
/// a line to the core host, each with half of this time.
pub const LINES: [(u32, u32); 3] = [(20, 20), (20, 40), (10, 60)];
/// Queue length of an emulated network line, as the time in ms for which a full queue delays a
/// packet.
pub(super) const QUEUE_MS: u32 = 100;

/// Role of a program in a measured network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The directory authority, which makes the consensus.
    Authority,
    /// One of the three guards.
    Guard(u8),
    /// One of the three middles.
    Middle(u8),
    /// The exit, where all circuits end.
    Exit,
    /// The four web servers, which share one host.
    Web,
    /// The client whose downloads are measured.
    Client,
    /// One of the load clients, which only create load in the network.
    Load(u8),
}

impl Role {
    /// The roles of the seven relays: three guards, three middles, one exit.
    pub(super) const RELAYS: [Role; 7] = [
        Role::Guard(0),
        Role::Guard(1),
        Role::Guard(2),
        Role::Middle(0),
        Role::Middle(1),
        Role::Middle(2),
        Role::Exit,
    ];

    /// Returns the place for the program with this role: its name, address and host.
    pub(super) fn slot(self, place: Layout, stage: &Stage) -> HostSlot<'_> {
        let host = self.host(place, stage);
        HostSlot { name: self.name(), ip: self.address(place), host }
    }

    /// Returns the name of the program with this role. Its files have the same name.
    fn name(self) -> String {
        match self {
            Role::Authority => "authority".to_owned(),
            Role::Guard(number) => format!("guard{number}"),
            Role::Middle(number) => format!("middle{number}"),
            Role::Exit => "exit".to_owned(),
            Role::Web => "web".to_owned(),
            Role::Client => "client".to_owned(),
            Role::Load(number) => format!("load{number}"),
        }
    }

    /// Returns the second octet of the address of the program with this role. The octet differs
    /// between roles, because a circuit may not contain two relays in the same /16 network.
    fn network(self) -> u8 {
        match self {
            Role::Authority => 1,
            Role::Guard(number) => 10 + number,
            Role::Middle(number) => 20 + number,
            Role::Exit => 30,
            Role::Web => 40,
            Role::Client => 50,
            Role::Load(_) => 51,
        }
    }

    /// Returns the IP address of the program with this role.
    pub(super) fn address(self, place: Layout) -> Ipv4Addr {
        match (place, self) {
            (Layout::Loopback, _) => Ipv4Addr::new(127, self.network(), 0, 1),
            (_, Role::Client | Role::Load(_)) => Ipv4Addr::LOCALHOST,
            _ => Ipv4Addr::new(10, self.network(), 0, 1),
        }
    }

    /// Returns the host on which the program with this role runs.
    pub(super) fn host(self, place: Layout, stage: &Stage) -> &Namespace {
        match (place, self) {
            (Layout::Loopback, _) => stage.server(),
            (_, Role::Guard(number)) => stage.host(&format!("guard{number}")),
            (_, Role::Client) => stage.client(),
            _ => stage.server(),
        }
    }
}

/// Builds the hosts and emulated network lines for the topology `place`.
///
/// # Errors
/// A step of the set-up fails.
pub(super) fn build(place: Layout) -> io::Result<Stage> {
    Stage::of(&topology(place), Vec::new())
}

/// Returns the topology `place` as text for the emulator. On loopback all programs share one host.
/// Otherwise the guards and the measuring client have their own hosts, and all other programs are
/// at `server`, the core. Each guard has a line to the core and a line to the client. The client
/// has another line to the core, to fetch the directory.
fn topology(place: Layout) -> String {
    if place == Layout::Loopback {
        return "[[host]]\nname = 'server'\n[[host]]\nname = 'client'\n".to_owned();
    }
    let of_core = [Role::Authority, Role::Middle(0), Role::Middle(1), Role::Middle(2)];
    let of_core = of_core.into_iter().chain([Role::Exit, Role::Web]);
    let core: Vec<Ipv4Addr> = of_core.map(|role| role.address(place)).collect();
    let listed = |all: &[Ipv4Addr], router: &str| -> String {
        all.iter().map(|one| format!("'{one}{router}', ")).collect()
    };
    let mut text = format!(
        "[[host]]\nname = 'client'\n[[host]]\nname = 'server'\naddress = [{}]\n",
        listed(&core, "/32")
    );
    let mut link = |name: &str,
                    (client, more): (&str, &str),
                    (server, back): (&str, &str),
                    rate: u32,
                    delay: f64| {
        let queue = rate * QUEUE_MS / 8;
        write!(
            text,
            "[[link]]\nname = '{name}'\nends = [\n{{ host = '{client}', {more} }},\n\
             {{ host = '{server}', {back} }},\n]\nrate = '{rate}mbit'\ndelay = '{delay}ms'\nqueue = '{queue}kB'\n"
        )
        .expect("writing to a string does not fail");
    };
    let to_core = format!("routes = [{}]", listed(&core, "/32"));
    let more = format!("address = ['10.99.0.2/24'], {to_core}");
    let back = format!("routes = ['10.99.0.0/24'], prefsrc = ['{}']", core[0]);
    link("core", ("client", &more), ("server", &back), 100, 10.0);
    let lines = if place == Layout::Line { [LOADED; 3] } else { LINES };
    for (number, (rate, rtt)) in (0..).zip(lines) {
        let (guard, own) = (format!("guard{number}"), Role::Guard(number).address(place));
        let delay = f64::from(rtt) / 4.0;
        let more = format!("address = ['10.98.{number}.2/24'], routes = ['{own}/32']");
        let back = format!("routes = ['10.98.{number}.0/24'], prefsrc = ['{own}']");
        link(&format!("near{number}"), ("client", &more), (&guard, &back), rate, delay);
        let back = format!("routes = ['{own}/32'], prefsrc = ['{}']", core[0]);
        let more = format!("{to_core}, prefsrc = ['{own}']");
        link(&format!("far{number}"), (&guard, &more), ("server", &back), rate, delay);
    }
    for number in 0..LINES.len() as u8 {
        let own = Role::Guard(number).address(place);
        write!(text, "[[host]]\nname = 'guard{number}'\naddress = ['{own}/32']\n")
            .expect("writing to a string does not fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use anabranch_emulator::Topology;

    use super::*;

    #[test]
    fn guards_have_two_lines_each_and_together_the_delay_that_is_said() {
        let topology = Topology::parse(&topology(Layout::Lines), "t").unwrap();
        assert_eq!((topology.hosts.len(), topology.links.len()), (5, 7));
        for (number, (rate, rtt)) in LINES.iter().enumerate() {
            let names = [format!("near{number}"), format!("far{number}")];
            let found: Vec<_> = topology.links.iter().filter(|l| names.contains(&l.name)).collect();
            let delay: f64 = found.iter().map(|l| l.forward.delay.as_secs_f64() * 2e3).sum();
            assert!((delay - f64::from(*rtt)).abs() < 1e-9);
            assert!(
                found.iter().all(|l| l.forward.rate.unwrap().get() == u64::from(*rate) * 1_000_000)
            );
        }
        assert!(Topology::parse(&super::topology(Layout::Loopback), "t").unwrap().links.is_empty());
    }

    #[test]
    fn the_lines_that_are_loaded_are_equal() {
        let topology = Topology::parse(&topology(Layout::Line), "t").unwrap();
        let of_guards: Vec<_> = topology.links.iter().filter(|link| link.name != "core").collect();
        assert_eq!(of_guards.len(), 6);
        for link in of_guards {
            assert_eq!(link.forward.rate.unwrap().get(), 20_000_000, "{}", link.name);
            assert!((link.forward.delay.as_secs_f64() * 4e3 - 20.0).abs() < 1e-9);
        }
    }

    #[test]
    fn no_two_relays_are_of_one_network() {
        for place in Layout::ALL {
            let mut nets: Vec<_> = Role::RELAYS
                .iter()
                .map(|role| role.address(place).octets()[..2].to_vec())
                .collect();
            nets.sort();
            nets.dedup();
            assert_eq!(nets.len(), Role::RELAYS.len());
        }
    }
}

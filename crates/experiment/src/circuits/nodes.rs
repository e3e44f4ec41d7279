//! The programs of a network: our authority, seven relays and clients, of ours or of C tor's.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::super::stage::Stage;
use super::place::Role;
use super::plan::{Design, Place};
use anabranch_drive::emulate::Member;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Seconds from one consensus to the next: stock clients want it short, or they wait for one that
/// has all relays.
const INTERVAL: &str = "20";
const ONION: u16 = 9_001;
const DIRECTORY: u16 = 9_030;
const SOCKS: u16 = 9_100;
/// How long all relays together, or a client, may take to be ready.
const READY: Duration = Duration::from_secs(150);
/// Ticks a second in what the kernel tells of processes (USER_HZ of every Linux).
const TICKS: f64 = 100.0;
const LOOK: Duration = Duration::from_millis(50);

/// A program, with what it has written so far.
pub(super) struct Node<'a> {
    role: Role,
    process: Member<'a>,
    written: Arc<Mutex<Vec<String>>>,
}

/// Which programs, and where.
#[derive(Clone, Copy)]
pub(super) struct Makers<'a> {
    pub(super) stage: &'a Stage,
    pub(super) place: Place,
    pub(super) anabranch: &'a Path,
    pub(super) tor: &'a Path,
}

/// A network that clients can use.
pub(super) struct Nodes<'a> {
    makers: Makers<'a>,
    authority: Node<'a>,
    pub(super) relays: Vec<Node<'a>>,
    /// The relays' identities, in their order.
    fingerprints: Vec<String>,
    /// Who makes the consensus.
    line: String,
}

impl Node<'_> {
    /// What it has written so far, to look at.
    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last event of a name that it told by `--json`.
    fn event(&self, name: &str) -> Option<Value> {
        let lines = self.lines();
        let mut told = lines.iter().rev().filter_map(|line| serde_json::from_str(line).ok());
        told.find(|event: &Value| event["event"] == name)
    }

    /// Waits until `found` gives something.
    ///
    /// # Errors
    /// It ended before, or takes too long; the error has its last words.
    fn wait<R>(
        &mut self,
        what: &str,
        mut found: impl FnMut(&Node<'_>) -> io::Result<Option<R>>,
    ) -> io::Result<R> {
        let began = Instant::now();
        loop {
            if let Some(found) = found(self)? {
                return Ok(found);
            }
            let ended = self.process.try_wait()?;
            if ended.is_some() || began.elapsed() > READY {
                let last = self.lines().last().cloned().unwrap_or_default();
                let name = self.role.name();
                return Err(io::Error::other(format!("{name}: no {what}; it said: {last}")));
            }
            thread::sleep(LOOK);
        }
    }

    /// CPU seconds that it has taken so far.
    pub(super) fn cpu(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id()));
        stat.ok().and_then(|stat| ticks(&stat)).unwrap_or_default() / TICKS
    }

    pub(super) fn is(&self, role: Role) -> bool {
        self.role == role
    }
}

/// Ticks of a process in user and kernel mode (proc(5): fields 14 and 15, behind the name).
fn ticks(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let [user, kernel]: [f64; 2] = [fields.next()?.parse().ok()?, fields.next()?.parse().ok()?];
    Some(user + kernel)
}

impl<'a> Makers<'a> {
    /// Starts a program in its role's host.
    fn start(&self, role: Role, command: &mut Command) -> io::Result<Node<'a>> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = self.stage.crew.start(role.host(self.place, self.stage), command)?;
        let stdout = process.stdout.take().expect("it was given a pipe");
        let written = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&written);
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Ok(Node { role, process, written })
    }

    fn address(&self, role: Role) -> Ipv4Addr {
        role.address(self.place)
    }

    /// The folder of a role, as the crew's programs see it.
    fn folder(&self, role: Role) -> io::Result<String> {
        self.stage.crew.among_files(|files| {
            let folder = files.join(role.name());
            fs::create_dir_all(&folder)?;
            Ok(folder.display().to_string())
        })
    }

    fn ours(&self, command: &str, role: Role) -> io::Result<Command> {
        let mut ours = Command::new(self.anabranch);
        ours.args([command, "--json", "--data", &format!("{}/state", self.folder(role)?)]);
        Ok(ours)
    }

    fn authority(&self) -> io::Result<Node<'a>> {
        let ip = self.address(Role::Authority);
        let mut command = self.ours("authority", Role::Authority)?;
        command.args(["--nickname", "authority", "--address", &ip.to_string()]);
        command.args(["--listen", &format!("{ip}:{ONION}")]);
        command.args(["--listen-dir", &format!("{ip}:{DIRECTORY}")]);
        command.args(["--contact", "authority@example.invalid", "--interval", INTERVAL]);
        let relays = Role::RELAYS.len().to_string();
        command.args(["--young", "--allow-private", "--expect", &relays]);
        self.start(Role::Authority, &mut command)
    }

    fn relay(&self, role: Role, line: &str) -> io::Result<Node<'a>> {
        let ip = self.address(role);
        let file = self.stage.crew.write(&format!("{}.lines", role.name()), line.as_bytes())?;
        let mut command = self.ours("relay", role)?;
        command.args(["--nickname", &role.name(), "--address", &ip.to_string()]);
        command.args(["--listen", &format!("{ip}:{ONION}"), "--threads", "1"]);
        command.args(["--allow-private", "--grace", "0", "--authorities"]).arg(file);
        // Stock relays are not held to a rate either.
        command.args(["--rate", "1000000000"]);
        if role == Role::Exit {
            command.args(["--exit", "accept *:*"]);
        }
        self.start(role, &mut command)
    }

    /// C tor, with these lines of its own.
    fn stock(&self, role: Role, line: &str, own: &str) -> io::Result<Node<'a>> {
        let rules = self.torrc(role, line, own)?;
        let mut command = Command::new(self.tor);
        command.arg("-f").arg(self.stage.crew.write(&torrc_name(role), rules.as_bytes())?);
        self.start(role, &mut command)
    }

    fn torrc(&self, role: Role, line: &str, own: &str) -> io::Result<String> {
        Ok(format!(
            "TestingTorNetwork 1\nDataDirectory {}/state\nShutdownWaitLength 0\nLog notice stdout\n\
             {line}\n{own}",
            self.folder(role)?
        ))
    }

    fn stock_relay(&self, role: Role, line: &str) -> io::Result<Node<'a>> {
        let (name, ip) = (role.name(), self.address(role));
        let exit =
            if role == Role::Exit { "ExitRelay 1\nExitPolicy accept *:*" } else { "ExitRelay 0" };
        let own = format!(
            "Nickname {name}\nAddress {ip}\nORPort {ip}:{ONION}\nSocksPort 0\nAssumeReachable 1\n\
             ContactInfo {name}@example.invalid\n{exit}\n"
        );
        self.stock(role, line, &own)
    }

    fn fingerprint(&self, node: &mut Node<'a>, stock: bool) -> io::Result<String> {
        let file = format!("{}/state/fingerprint", self.folder(node.role)?);
        node.wait("fingerprint", |node| {
            if stock {
                let read = self.stage.crew.among_files(|_| Ok(fs::read_to_string(&file).ok()))?;
                let last = read.as_deref().and_then(|text| text.split_whitespace().nth(1));
                return Ok(last.map(str::to_owned));
            }
            Ok(node.event("fingerprint").and_then(|event| Some(event["what"].as_str()?.to_owned())))
        })
    }
}

fn torrc_name(role: Role) -> String {
    format!("{}.torrc", role.name())
}

impl<'a> Nodes<'a> {
    /// Starts authority and relays, and waits until the consensus has them all.
    ///
    /// # Errors
    /// A program ends, or takes too long.
    pub(super) fn start(makers: Makers<'a>, stock: bool) -> io::Result<Nodes<'a>> {
        let mut authority = makers.authority()?;
        let line = authority.wait("line of its own", |node| {
            Ok(node.event("authority").and_then(|event| Some(event["what"].as_str()?.to_owned())))
        })?;
        let relay = |role| match stock {
            true => makers.stock_relay(role, &line),
            false => makers.relay(role, &line),
        };
        let mut relays = Role::RELAYS.into_iter().map(relay).collect::<io::Result<Vec<_>>>()?;
        let fingerprints = relays
            .iter_mut()
            .map(|relay| makers.fingerprint(relay, stock))
            .collect::<io::Result<_>>()?;
        let mut nodes = Nodes { makers, authority, relays, fingerprints, line };
        nodes.wait_for_all()?;
        Ok(nodes)
    }

    fn wait_for_all(&mut self) -> io::Result<()> {
        let makers = self.makers;
        let at = SocketAddr::from((makers.address(Role::Authority), DIRECTORY));
        let host = Role::Authority.host(makers.place, makers.stage);
        self.authority.wait("consensus with all relays", |_| {
            let text = host.run(|| Ok(consensus(at).unwrap_or_default()))?;
            // The authority is a relay itself, and no circuit's.
            let is_one = |line: &&str| line.contains(" Running") && !line.contains(" Authority");
            let running = text.lines().filter(|line| line.starts_with("s ")).filter(is_one);
            Ok((running.count() == Role::RELAYS.len()).then_some(()))
        })
    }

    /// The relays that may be at each of the three places of a circuit.
    fn pins(&self) -> [String; 3] {
        let of = |from: usize, to: usize| self.fingerprints[from..to].join(",");
        [of(0, 3), of(3, 6), of(6, 7)]
    }

    /// Starts a client; it is ready by [`Nodes::wait_ready`].
    ///
    /// # Errors
    /// The program cannot be started.
    pub(super) fn client(&self, role: Role, design: Design, legs: u32) -> io::Result<Node<'a>> {
        match design.is_stock() {
            true => self.stock_client(role, design),
            false => self.our_client(role, design, legs),
        }
    }

    /// Where a client's SOCKS port is.
    pub(super) fn proxy(&self, role: Role) -> SocketAddr {
        let number = if let Role::Load(number) = role { u16::from(number) + 1 } else { 0 };
        SocketAddr::from((self.makers.address(role), SOCKS + number))
    }

    fn our_client(&self, role: Role, design: Design, legs: u32) -> io::Result<Node<'a>> {
        let makers = self.makers;
        let file = makers.stage.crew.write("clients.lines", self.line.as_bytes())?;
        let mut command = makers.ours("client", role)?;
        command.args(["--listen", &self.proxy(role).to_string(), "--authorities"]).arg(file);
        command.args(["--legs", &legs.to_string()]);
        for (option, pins) in ["--entry", "--middle", "--exit"].into_iter().zip(self.pins()) {
            pins.split(',').for_each(|pin| _ = command.args([option, pin]));
        }
        let words: &[&str] = match design {
            Design::Conflux2013 => &["--multipath", "conflux-2013"],
            Design::Conflux2013Turns => {
                &["--multipath", "conflux-2013", "--schedule", "round-robin"]
            }
            Design::MTor => &["--multipath", "mtor"],
            Design::MTorTurns => &["--multipath", "mtor", "--schedule", "round-robin"],
            Design::Ours => &["--multipath", "anabranch"],
            Design::OursTurns => &["--multipath", "anabranch", "--schedule", "round-robin"],
            Design::Merged => &["--multipath", "merged"],
            Design::MergedBatches => {
                &["--multipath", "merged", "--schedule", "weighted:4", "--every", "50-70p"]
            }
            Design::Tor | Design::Conflux | Design::Stock | Design::StockConflux => &[],
        };
        makers.start(role, command.args(words))
    }

    fn stock_client(&self, role: Role, design: Design) -> io::Result<Node<'a>> {
        self.makers.stock(role, &self.line, &self.client_rules(role, design))
    }

    fn client_rules(&self, role: Role, design: Design) -> String {
        let conflux = u8::from(design == Design::StockConflux);
        let mut rules = format!("SocksPort {}\nConfluxEnabled {conflux}\n", self.proxy(role));
        // On loopback it learns to give circuits 26 ms, and a busy machine then costs connections.
        rules += "LearnCircuitBuildTimeout 0\n";
        rules
    }

    /// Waits until a client can fetch, by circuits of the relays that belong to each place.
    ///
    /// # Errors
    /// It ends, or takes too long.
    pub(super) fn wait_ready(&self, node: &mut Node<'a>, design: Design) -> io::Result<()> {
        if !design.is_stock() {
            return node.wait("circuit", |node| Ok(node.event("circuit_built").map(drop)));
        }
        node.wait("bootstrap", |node| {
            Ok(node.lines().iter().any(|line| line.contains("Bootstrapped 100%")).then_some(()))
        })?;
        // With its hops named from the start C tor often finds nobody to ask for the directory.
        let (role, makers) = (node.role, self.makers);
        let mut rules = self.client_rules(role, design);
        for (word, pins) in ["EntryNodes", "MiddleNodes", "ExitNodes"].into_iter().zip(self.pins())
        {
            writeln!(rules, "{word} {pins}").expect("writing to a string does not fail");
        }
        let rules = makers.torrc(role, &self.line, &rules)?;
        makers.stage.crew.write(&torrc_name(role), rules.as_bytes())?;
        let pid = i32::try_from(node.process.id()).ok().and_then(Pid::from_raw);
        Ok(kill_process(pid.ok_or_else(|| io::Error::other("it has no number"))?, Signal::HUP)?)
    }
}

/// The consensus that an authority serves now.
fn consensus(at: SocketAddr) -> io::Result<String> {
    use std::io::{Read, Write};
    let mut link = std::net::TcpStream::connect_timeout(&at, Duration::from_secs(2))?;
    link.set_read_timeout(Some(Duration::from_secs(2)))?;
    link.write_all(b"GET /tor/status-vote/current/consensus HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    link.read_to_string(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_read_behind_a_name_with_spaces_and_brackets() {
        let stat = "42 (a ) b) S 1 2 3 4 5 6 7 8 9 10 111 22 0 0 20 0";
        assert_eq!(ticks(stat), Some(133.0));
        assert_eq!(ticks("42 (short) S 1"), None);
    }
}

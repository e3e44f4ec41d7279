//! The emulated network of a measurement, and the start of the measurement's splitter and far end.
//! The far end is the program that puts split traffic together again.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::Programs;
use anabranch_emulator::{GroupProcess, Namespace, Network, ProcessGroup, Topology};
use serde_json::Value;

/// IP address of the server on all paths.
pub(super) const SERVER: &str = "10.99.0.1";

/// Timeout until a started program listens.
const READY: Duration = Duration::from_secs(15);
/// Timeout until an onion network, or a splitter's circuits, are ready.
pub(super) const CIRCUITS_READY: Duration = Duration::from_secs(60);

/// An emulated network: a client and a server with a few paths between them, and processes on
/// both.
///
/// Processes and network are removed on drop, and also when this process ends for any reason.
pub(super) struct Stage {
    // This field is the first one, so that the processes end before their network is removed.
    pub(super) processes: ProcessGroup,
    network: Network,
    links: Vec<String>,
}

/// Bytes of IP packets that each path has carried in each direction, counted at the first end of
/// its link.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PathTraffic {
    pub(super) up: Vec<u64>,
    pub(super) down: Vec<u64>,
}

impl Stage {
    /// Builds an emulated network with a path of 100 Mbit/s for each round-trip time in `rtts`, in
    /// milliseconds. The paths' interfaces are `p0`, `p1`, ...
    ///
    /// # Errors
    /// A step of the set-up fails.
    pub(super) fn build(rtts: &[u32]) -> io::Result<Stage> {
        Stage::with_rate(USUAL_RATE, rtts)
    }

    /// Builds an emulated network with a path of `rate` bits per second for each round-trip time
    /// in `rtts`, in milliseconds.
    ///
    /// # Errors
    /// A step of the set-up fails.
    pub(super) fn with_rate(rate: u64, rtts: &[u32]) -> io::Result<Stage> {
        let links = (0..rtts.len()).map(|path| format!("p{path}")).collect();
        Stage::of(&topology(rate, rtts), links)
    }

    /// Builds the emulated network that the text `topology` describes, with hosts named `client`
    /// and `server`. [`Stage::traffic`] counts only the links in `links`.
    ///
    /// # Errors
    /// The topology is invalid, or a step of the set-up fails.
    pub(super) fn of(topology: &str, links: Vec<String>) -> io::Result<Stage> {
        let topology = Topology::parse(topology, "stage").map_err(io::Error::other)?;
        let network = Network::start(&topology).map_err(io::Error::other)?;
        Ok(Stage { processes: ProcessGroup::new()?, network, links })
    }

    pub(super) fn client(&self) -> &Namespace {
        self.host("client")
    }

    pub(super) fn server(&self) -> &Namespace {
        self.host("server")
    }

    /// Returns the host called `name` of the emulated network.
    pub(super) fn host(&self, name: &str) -> &Namespace {
        self.network.host(name).expect("the emulated network has a host of this name")
    }

    /// Returns the number of packets that a censor at the second end of `link` has dropped.
    pub(super) fn censored(&self, link: &str) -> u64 {
        self.network.stats().get(link).map_or(0, |link| link.forward.dropped.censored)
    }

    /// Returns the bytes that the counted links have carried so far.
    pub(super) fn traffic(&self) -> PathTraffic {
        let stats = self.network.stats();
        let links = self.links.iter().filter_map(|name| stats.get(name));
        let (up, down) = links.map(|link| (link.forward.bytes, link.back.delivered.bytes)).unzip();
        PathTraffic { up, down }
    }

    /// Starts the splitter (`anabranch split`) on the client's host. The splitter listens on
    /// `port`, and sends to the same port of the server.
    ///
    /// # Errors
    /// The splitter ended before it listened. The error includes its output.
    pub(super) fn split(
        &self,
        program: &Path,
        port: u16,
        words: &[String],
    ) -> io::Result<GroupProcess<'_>> {
        self.split_to(program, (port, port), words)
    }

    /// Starts the splitter (`anabranch split`) on the client's host. The splitter listens on port
    /// `here`, and sends to the server's port `there`.
    ///
    /// # Errors
    /// The splitter ended before it listened. The error includes its output.
    pub(super) fn split_to(
        &self,
        program: &Path,
        (here, there): (u16, u16),
        words: &[String],
    ) -> io::Result<GroupProcess<'_>> {
        let mut command = split(program, (here, there), words);
        self.start("the splitter", self.client(), &mut command, (READY, listens))
    }

    /// Starts the splitter as [`Stage::split_to`] does, and waits until the splitter has `paths`
    /// usable paths.
    pub(super) fn split_over(
        &self,
        program: &Path,
        ports: (u16, u16),
        words: &[String],
        paths: usize,
    ) -> io::Result<GroupProcess<'_>> {
        let mut up = BTreeSet::new();
        let ready = move |event: &Value| {
            if event["event"] == "path" && event["state"] == "up" {
                up.insert(event["path"].to_string());
            }
            up.len() >= paths
        };
        let mut command = split(program, ports, words);
        self.start("the splitter", self.client(), &mut command, (CIRCUITS_READY, ready))
    }

    /// Starts a far end (the program that puts split traffic together again) on the server's host.
    /// It listens on port `here` and forwards the traffic to port `server`.
    ///
    /// # Errors
    /// The far end ended before it listened. The error includes its output.
    pub(super) fn merge(
        &self,
        program: &Path,
        (here, server): (u16, u16),
        words: &[String],
    ) -> io::Result<GroupProcess<'_>> {
        let mut command = Command::new(program);
        command.args(["merge", "--json", "--listen", &format!("{SERVER}:{here}")]);
        command.args(["--to", &format!("127.0.0.1:{server}")]).args(words);
        self.start("the far end", self.server(), &mut command, (READY, listens))
    }

    /// Starts one of our programs, and waits until it is ready, for at most `patience`. The
    /// program is ready once the function `ready` returns true for one of its events.
    ///
    /// # Errors
    /// The program ended before it was ready, or was not ready within `patience`. If the program
    /// ended, the error includes its standard error.
    pub(super) fn start(
        &self,
        what: &str,
        host: &Namespace,
        command: &mut Command,
        (patience, mut ready): (Duration, impl FnMut(&Value) -> bool + Send + 'static),
    ) -> io::Result<GroupProcess<'_>> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = self.processes.start(host, command)?;
        let stdout = program.stdout.take().expect("the program's input and output are pipes");
        let (sender, receiver) = mpsc::channel();
        // The output must be read completely, because the splitter would otherwise drop lines.
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if serde_json::from_str::<Value>(&line).is_ok_and(|event| ready(&event)) {
                    let _ = sender.send(());
                }
            }
        });
        match receiver.recv_timeout(patience) {
            Ok(()) => Ok(program),
            Err(RecvTimeoutError::Timeout) => Err(io::Error::other(format!(
                "{what} was not ready within {} s",
                patience.as_secs()
            ))),
            Err(RecvTimeoutError::Disconnected) => {
                let stderr = program.finish()?.stderr;
                let stderr = String::from_utf8_lossy(&stderr).trim().to_owned();
                Err(io::Error::other(format!("{what} exited: {stderr}")))
            }
        }
    }

    /// Waits until a program has bound the UDP port `port` on the server's host. `process` is this
    /// program, and `who` its name for the error message.
    ///
    /// # Errors
    /// The program has ended, or takes too long. The error includes the cause.
    pub(super) fn wait_bound(
        &self,
        who: &str,
        process: &mut GroupProcess<'_>,
        port: u16,
    ) -> io::Result<()> {
        self.wait_port(who, process, ("udp", &|line| port_of(line) == Some(port)))
    }

    /// Waits until the program `process`, called `who`, listens on the TCP port `port` of the
    /// server's host.
    pub(super) fn wait_listens(
        &self,
        who: &str,
        process: &mut GroupProcess<'_>,
        port: u16,
    ) -> io::Result<()> {
        // In this table, 0A is the state LISTEN.
        let listens = |line: &str| line.split_whitespace().nth(3) == Some("0A");
        self.wait_port(who, process, ("tcp", &|line| listens(line) && port_of(line) == Some(port)))
    }

    /// Waits until the program `process` has the right socket: a line in a kernel table of
    /// sockets, such as `/proc/net/udp`, for which `is_it` returns true.
    fn wait_port(
        &self,
        who: &str,
        process: &mut GroupProcess<'_>,
        (table, is_it): (&str, &(dyn Fn(&str) -> bool + Sync)),
    ) -> io::Result<()> {
        wait_for(&format!("{who} to listen"), || {
            if let Some(status) = process.try_wait()? {
                return Err(io::Error::other(format!("{who} exited with {status}")));
            }
            let read = |table: &str| fs::read_to_string(format!("/proc/thread-self/net/{table}"));
            self.server().run(|| {
                let all = read(table)? + &read(&format!("{table}6")).unwrap_or_default();
                Ok(all.lines().any(is_it))
            })
        })
    }
}

/// Returns the command of a splitter that listens on port `here` and sends to the server's port
/// `there`.
fn split(program: &Path, (here, there): (u16, u16), words: &[String]) -> Command {
    let mut command = Command::new(program);
    command.args(["split", "--json", "--listen", &format!("127.0.0.1:{here}")]);
    command.args(["--to", &format!("{SERVER}:{there}")]).args(words);
    command
}

fn listens(event: &Value) -> bool {
    event["event"] == "listening"
}

/// Returns a command that starts the program `name`, still without arguments.
pub(super) fn command(programs: &Programs, name: &'static str) -> Command {
    let mut command = Command::new(programs.path(name));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Waits until `ready` returns true. `what` describes the awaited event in the error after the
/// timeout.
///
/// # Errors
/// `ready` fails, or it does not return true in time.
pub(super) fn wait_for(what: &str, mut ready: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    let begun = Instant::now();
    while !ready()? {
        if begun.elapsed() > READY {
            let message = format!("waited {} s for {what}, without success", READY.as_secs());
            return Err(io::Error::other(message));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

impl PathTraffic {
    /// Returns the bytes that the paths have carried since the earlier counts `before`.
    pub(super) fn since(&self, before: &PathTraffic) -> PathTraffic {
        let less = |now: &[u64], then: &[u64]| -> Vec<u64> {
            now.iter().zip(then).map(|(now, then)| now.saturating_sub(*then)).collect()
        };
        PathTraffic { up: less(&self.up, &before.up), down: less(&self.down, &before.down) }
    }
}

/// Default rate of a path, in bits per second.
pub(super) const USUAL_RATE: u64 = 100_000_000;

/// Returns the size in bytes of the queue of a path with `rate` bits per second. The queue holds
/// the bytes of 20 ms at that rate, but at least 32,000 bytes. With room for fewer than about
/// twenty full packets in the queue, TCP could not grow its window.
pub(super) fn queue(rate: u64) -> u64 {
    (rate / 8 / 50).max(32_000)
}

/// Returns the emulated network as the text of a topology file. The client has an address on each
/// path, and the server has a single address.
fn topology(rate: u64, rtts: &[u32]) -> String {
    let queue = queue(rate);
    let mut text = format!(
        "[[host]]\nname = 'client'\n[[host]]\nname = 'server'\naddress = ['{SERVER}/32']\n"
    );
    for (path, &rtt) in rtts.iter().enumerate() {
        let delay = f64::from(rtt) / 2.0;
        let metric = 100 + path;
        write!(
            text,
            "[[link]]\nname = 'p{path}'\nends = [\n\
             {{ host = 'client', address = ['10.77.{path}.2/24'], routes = ['{SERVER}'], metric = {metric} }},\n\
             {{ host = 'server', routes = ['10.77.{path}.0/24'], prefsrc = ['{SERVER}'] }},\n]\n\
             rate = '{rate}bit'\ndelay = '{delay}ms'\nqueue = '{queue}B'\n"
        )
        .expect("writing to a string does not fail");
    }
    text
}

/// Parses the local port in a line of a kernel table such as `/proc/net/udp`. Returns `None` for
/// the table's header.
fn port_of(line: &str) -> Option<u16> {
    let local = line.split_whitespace().nth(1)?;
    u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_its_delay_and_100_mbits() {
        for (rtts, delays) in
            [([20, 20, 20], [10.0, 10.0, 10.0]), ([20, 35, 60], [10.0, 17.5, 30.0])]
        {
            let topology = Topology::parse(&topology(USUAL_RATE, &rtts), "t").unwrap();
            let found: Vec<f64> =
                topology.links.iter().map(|l| l.forward.delay.as_secs_f64() * 1e3).collect();
            assert_eq!(found, delays);
            assert!(topology.links.iter().all(|l| l.forward.rate.unwrap().get() == 100_000_000));
            assert_eq!(topology.hosts.len(), 2);
        }
        let slow = Topology::parse(&topology(500_000, &[20, 35]), "t").unwrap();
        assert_eq!(slow.links.len(), 2);
        assert!(slow.links.iter().all(|l| l.forward.rate.unwrap().get() == 500_000));
        assert_eq!([queue(USUAL_RATE), queue(500_000)], [250_000, 32_000]);
    }

    #[test]
    fn bound_ports_are_read_from_the_kernels_table() {
        let table = "  sl  local_address rem_address   st\n\
                     123: 0100007F:CA6C 00000000:0000 07 0\n 7: 00000000:1151 00000000:0000 07\n";
        let ports: Vec<_> = table.lines().map(port_of).collect();
        assert_eq!(ports, [None, Some(51820), Some(4433)]);
        assert_eq!(port_of(""), None);
    }

    #[test]
    fn what_was_carried_is_a_difference() {
        let before = PathTraffic { up: vec![1, 2], down: vec![3, 4] };
        let after = PathTraffic { up: vec![2, 4], down: vec![9, 4] };
        assert_eq!(after.since(&before), PathTraffic { up: vec![1, 2], down: vec![6, 0] });
    }
}

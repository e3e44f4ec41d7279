//! Starts, watches and ends a sender, a forwarder and a receiver on loopback.

use std::io::{self, BufRead, BufReader, Read};
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anabranch_bench::proc::{self, Sockets, Usage};
use anabranch_bench::report;
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;

/// Maximum time in which a program has to start or to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Forwarder between sender and receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// None.
    Direct,
    /// The naive forwarder of `crates/os/examples/forward.rs`, over three source addresses.
    Naive,
    /// `anabranch split` with this number of paths, each with a source address.
    Split(u8),
    /// `anabranch split --key` with three paths to a far end.
    Near,
    /// `anabranch merge`, the far end of such a splitter.
    Far,
}

impl Subject {
    /// Returns the name in the table.
    pub(crate) fn name(self) -> String {
        match self {
            Subject::Direct => "direct".into(),
            Subject::Naive => "naive, 3 paths".into(),
            Subject::Split(1) => "split, 1 path".into(),
            Subject::Split(paths) => format!("split, {paths} paths"),
            Subject::Near => "split, far end".into(),
            Subject::Far => "merge".into(),
        }
    }

    /// Returns whether targets apply to it.
    pub(crate) fn counts(self) -> bool {
        self == Subject::Split(3)
    }
}

/// Traffic of the sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Total datagrams per second; 0 for the maximum.
    pub(crate) rate: f64,
    /// Datagrams sent at a time.
    pub(crate) burst: usize,
    /// Sessions that take turns.
    pub(crate) sessions: usize,
    /// Whether sender and receiver work without GSO and GRO.
    pub(crate) plain: bool,
}

/// Results of one run.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) blast: report::Blast,
    pub(crate) sink: report::Sink,
    /// Resources of the forwarder before the first datagram and after the last; zeros if there is
    /// none.
    pub(crate) usage: [Usage; 2],
    /// UDP sockets before the first datagram and under load.
    pub(crate) sockets: [Sockets; 2],
}

impl Measured {
    /// Returns the forwarder's CPU time for each received datagram, in microseconds.
    pub(crate) fn cpu_per_packet(&self) -> f64 {
        (self.usage[1].cpu - self.usage[0].cpu) * 1e6 / self.sink.received as f64
    }

    /// Returns the number of datagrams that were sent and did not arrive.
    pub(crate) fn lost(&self) -> u64 {
        self.blast.sent.saturating_sub(self.sink.received) + self.blast.refused
    }
}

/// The programs, and the settings of runs.
pub(crate) struct Rig {
    programs: PathBuf,
    /// Subjects to measure, in this order.
    pub(crate) subjects: Vec<Subject>,
    /// Number of runs.
    pub(crate) runs: usize,
    seconds: f64,
}

impl Rig {
    /// Checks that the programs exist.
    pub(crate) fn new(
        programs: PathBuf,
        subjects: Vec<Subject>,
        runs: usize,
        seconds: f64,
    ) -> io::Result<Rig> {
        let rig = Rig { programs, subjects, runs, seconds };
        for name in ["udp-blast", "udp-sink"] {
            rig.program(name)?;
        }
        for subject in rig.subjects.iter().filter(|&&subject| subject != Subject::Direct) {
            rig.program(forwarder(*subject))?;
        }
        Ok(rig)
    }

    fn program(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.programs.join(name);
        let missing = || io::Error::other(format!("{} is not built", path.display()));
        if Path::is_file(&path) { Ok(path) } else { Err(missing()) }
    }

    /// Runs `load` through `subject` once.
    pub(crate) fn measure(&self, subject: Subject, load: Load) -> io::Result<Measured> {
        let mut sink = self.sink(load)?;
        let target = sink.ready()?;
        let forwarder = match subject {
            Subject::Direct => None,
            Subject::Near | Subject::Far => Some(self.tunnel(subject, target)?),
            _ => Some(self.forwarder(subject, target)?),
        };
        let to = forwarder.as_ref().map_or(target, |chain| chain.listen);
        let watch = || match &forwarder {
            None => Ok(Usage::default()),
            Some(chain) => Usage::of(chain.watched.child.id()),
        };
        let (usage, sockets) = (watch()?, Sockets::now()?);
        let mut blast = self.blast(to, load)?;
        std::thread::sleep(Duration::from_secs_f64(self.seconds * 0.7));
        let sockets = [sockets, Sockets::now()?];
        let blast = blast.result()?;
        // In this pause, data in flight arrives. The forwarder does not close its sessions yet.
        std::thread::sleep(Duration::from_millis(50));
        let usage = [usage, watch()?];
        let sink = sink.result()?;
        if let Some(chain) = forwarder {
            chain.watched.interrupt()?;
            chain.other.map_or(Ok(()), Running::interrupt)?;
        }
        Ok(Measured { blast, sink, usage, sockets })
    }

    fn sink(&self, load: Load) -> io::Result<Running> {
        let mut command = Command::new(self.program("udp-sink")?);
        command.arg("127.0.0.1:0").args(load.plain.then_some("--plain"));
        Running::start(command, Stdio::piped())
    }

    fn blast(&self, to: SocketAddr, load: Load) -> io::Result<Running> {
        let mut command = Command::new(self.program("udp-blast")?);
        command.arg(to.to_string()).args(load.plain.then_some("--plain"));
        let Load { rate, burst, sessions, .. } = load;
        command.arg(format!("--seconds={}", self.seconds)).arg(format!("--rate={rate}"));
        command.arg(format!("--burst={burst}")).arg(format!("--sessions={sessions}"));
        Running::start(command, Stdio::piped())
    }

    /// Starts a splitter and its far end.
    fn tunnel(&self, subject: Subject, to: SocketAddr) -> io::Result<Chain> {
        let program = || self.program("anabranch").map(Command::new);
        let keys = std::env::temp_dir().join(format!("anabranch-bench-{}", std::process::id()));
        std::fs::create_dir_all(&keys)?;
        let [far_key, near_key] = ["far.key", "near.key"].map(|name| keys.join(name));
        let made =
            program()?.arg("key").arg(&far_key).arg(&near_key).stdout(Stdio::null()).status();
        let [far_at, listen] = [free_port()?, free_port()?];
        let [mut merge, mut split] = [program()?, program()?];
        merge.args(["merge", "--json", "--every", "100ms"]).arg("--key").arg(&far_key);
        merge.arg(format!("--listen={far_at}")).arg(format!("--to={to}"));
        split.args(["split", "--same-egress", "--schedule", "weighted", "--every", "100ms"]);
        split.arg("--json").arg("--key").arg(&near_key);
        split.arg(format!("--listen={listen}")).arg(format!("--to={far_at}"));
        split.args((0..3).map(|i| format!("--path=p{i}=addr:127.0.0.{}", i + 2)));
        let mut merge = Running::start(merge, Stdio::null())?;
        merge.wait_for(far_at.port())?;
        let mut split = Running::start(split, Stdio::null())?;
        split.wait_for(listen.port())?;
        // A handshake over loopback takes a millisecond.
        std::thread::sleep(Duration::from_millis(300));
        std::fs::remove_dir_all(&keys)?;
        if !made?.success() {
            return Err(io::Error::other("anabranch key failed"));
        }
        let (watched, other) = match subject {
            Subject::Far => (merge, split),
            _ => (split, merge),
        };
        Ok(Chain { watched, other: Some(other), listen })
    }

    fn forwarder(&self, subject: Subject, to: SocketAddr) -> io::Result<Chain> {
        let listen = free_port()?;
        let mut command = Command::new(self.program(forwarder(subject))?);
        match subject {
            Subject::Split(paths) => {
                command.args(["split", "--same-egress", "--schedule", "weighted"]);
                command.args(["--every", "100ms", "--json"]);
                command.arg(format!("--listen={listen}")).arg(format!("--to={to}"));
                command.args((0..paths).map(|i| format!("--path=p{i}=addr:127.0.0.{}", i + 2)));
            }
            _ => {
                command.args([listen.to_string(), to.to_string(), "100".into()]);
                command.args(["127.0.0.2", "127.0.0.3", "127.0.0.4"]);
            }
        }
        let mut running = Running::start(command, Stdio::null())?;
        running.wait_for(listen.port())?;
        Ok(Chain { watched: running, other: None, listen })
    }
}

/// Running forwarder.
struct Chain {
    /// Program whose CPU time is measured.
    watched: Running,
    /// Other end of the tunnel.
    other: Option<Running>,
    /// Address to which the sender sends.
    listen: SocketAddr,
}

/// Returns the program of a subject, in our folder of programs.
fn forwarder(subject: Subject) -> &'static str {
    match subject {
        Subject::Split(_) | Subject::Near | Subject::Far => "anabranch",
        _ => "examples/forward",
    }
}

fn free_port() -> io::Result<SocketAddr> {
    UdpSocket::bind("127.0.0.1:0")?.local_addr()
}

/// A program of ours, which is killed when this is dropped.
struct Running {
    name: String,
    child: Child,
    output: Option<BufReader<std::process::ChildStdout>>,
}

impl Running {
    fn start(mut command: Command, output: Stdio) -> io::Result<Running> {
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = command.stdin(Stdio::null()).stdout(output).spawn()?;
        let output = child.stdout.take().map(BufReader::new);
        Ok(Running { name, child, output })
    }

    fn error(&self, what: &str) -> io::Error {
        io::Error::other(format!("{} {what}", self.name))
    }

    /// Returns the address in the first line of a sink.
    fn ready(&mut self) -> io::Result<SocketAddr> {
        let mut line = String::new();
        self.output.as_mut().map_or(Ok(0), |output| output.read_line(&mut line))?;
        let address = line.trim().strip_prefix("ready ").and_then(|address| address.parse().ok());
        address.ok_or_else(|| self.error("did not get ready"))
    }

    /// Waits until the program has bound `port`.
    fn wait_for(&mut self, port: u16) -> io::Result<()> {
        let start = Instant::now();
        while !proc::bound(port)? {
            if let Some(status) = self.child.try_wait()? {
                return Err(self.error(&format!("ended at its start with {status}")));
            }
            if start.elapsed() > PATIENCE {
                return Err(self.error(&format!("did not bind port {port}")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Returns the JSON that the program prints at its end.
    fn result<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let mut text = String::new();
        self.output.as_mut().map_or(Ok(0), |output| output.read_to_string(&mut text))?;
        let status = self.child.wait()?;
        if !status.success() {
            return Err(self.error(&format!("ended with {status}")));
        }
        Ok(serde_json::from_str(&text)?)
    }

    /// Interrupts the program as a user would, and checks that it ends.
    fn interrupt(mut self) -> io::Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            kill_process(pid, Signal::INT)?;
        }
        let start = Instant::now();
        while self.child.try_wait()?.is_none() {
            if start.elapsed() > PATIENCE {
                return Err(self.error("does not end when interrupted"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both calls fail only if the program has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

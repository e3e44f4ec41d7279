//! An emulated network with a tunnel and a web server, in which pages are loaded one after
//! another.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};

use super::super::stage::Stage;
use super::super::tunnel::{self, Tunnel};
use super::super::{Disturbance, Probe};
use super::browser::Browser;
use super::caddy;
use super::circuits::Circuits;
use super::far_end::{self, FarEnd};
use super::loaded::LoadResult;
use super::setup::Setup;
use super::visit::Visit;
use super::{Mode, RTTS, Settings, Unit, Web};
use anabranch_capture::Trace;
use anabranch_emulator::GroupProcess;

/// Timeout of the first connection through a new splitter (`anabranch split`). The connection may
/// have to wait for the tunnel's handshake.
const PATIENCE: Duration = Duration::from_secs(15);
/// Pause between the first connection and the page load. The connection's last packets arrive
/// during this pause, so they do not count towards the page load.
const CALM: Duration = Duration::from_millis(250);
/// Maximum time that a stopped splitter may take to complete its trace.
const ENDING: Duration = Duration::from_secs(15);

/// An emulated network with a tunnel and a web server. Pages are loaded in it one after another.
pub(super) struct TestBed<'a> {
    setup: &'a Setup,
    stage: &'a Stage,
    pin: String,
    far_end: Option<FarEnd<'a>>,
    /// The onion network whose circuits are the paths; `None` if the paths are emulated.
    circuits: Option<Circuits<'a>>,
    _tunnel: Tunnel<'a>,
    _caddy: GroupProcess<'a>,
}

/// Traffic of one page load, as counted in its trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LoadTraffic {
    pub(super) up: Vec<u64>,
    pub(super) down: Vec<u64>,
    pub(super) up_packets: Vec<u64>,
    pub(super) down_packets: Vec<u64>,
}

impl<'a> TestBed<'a> {
    /// Builds the emulated network, without starting programs in it.
    ///
    /// # Errors
    /// A step of the set-up fails.
    pub(super) fn stage(settings: &Settings) -> io::Result<Stage> {
        Stage::with_rate((settings.rate * 1e6) as u64, &RTTS)
    }

    /// Starts the tunnel and the web server. If the settings require it, also starts a far end,
    /// which puts split traffic together in front of the tunnel.
    ///
    /// # Errors
    /// A program does not start.
    pub(super) fn open(setup: &'a Setup, stage: &'a Stage) -> io::Result<TestBed<'a>> {
        let far = setup.settings.far_end.is_some();
        let mtu = if far { tunnel::MTU_FAR } else { tunnel::MTU };
        let tunnel = Tunnel::open(stage, &setup.programs, mtu)?;
        let Web { folder, sites, .. } = &setup.web;
        let (server, pin) = caddy::serve(stage, &setup.programs, (folder, sites))?;
        let words = setup.settings.far_end.as_ref();
        let far_end = words.map(|words| FarEnd::open(stage, &setup.splitter, words)).transpose()?;
        let circuits = setup.settings.onion.then(|| Circuits::open(stage, &setup.splitter));
        let circuits = circuits.transpose()?;
        Ok(TestBed { setup, stage, pin, far_end, circuits, _tunnel: tunnel, _caddy: server })
    }

    /// Makes one page load, and returns its record. If the load fails, the record contains the
    /// reason. If `stop` is set, the load ends soon, and its record is useless.
    pub(super) fn load(&self, unit: &Unit, attempt: u32, stop: &AtomicBool) -> LoadResult {
        let begun = Instant::now();
        let mut loaded = self.setup.blank(unit, attempt);
        if let Err(error) = self.try_to_load(unit, &mut loaded, stop) {
            loaded.error = error.to_string();
        }
        loaded.elapsed = begun.elapsed().as_secs_f64();
        loaded
    }

    fn try_to_load(
        &self,
        unit: &Unit,
        loaded: &mut LoadResult,
        stop: &AtomicBool,
    ) -> io::Result<()> {
        let options = options(unit, &self.pin, loaded.http == "h3");
        let profile = format!("profile-{}", unit.site.number);
        let programs = &self.setup.programs;
        // The browser starts before the splitter, because its start takes long and the tunnel must
        // not become idle.
        let mut browser = Browser::start(self.stage, programs, &profile, &options, stop)?;
        let trace = self.setup.traces.join(loaded.trace());
        let splitter = self.split(unit.mode, loaded.seed, &trace)?;
        self.warm_up()?;
        let probe = Probe::start();
        let patience = Duration::from_secs_f64(self.setup.settings.patience);
        let visited = browser.visit(&unit.site.url(), patience, stop);
        let machine = probe.finish();
        end(splitter)?;
        let (visit, started) = visited?;
        note(loaded, &visit, started, machine);
        if let Some(fault) = visit.fault(&loaded.http) {
            return Err(io::Error::other(fault));
        }
        loaded.count(&traffic(&trace, started, unit.mode.paths())?)
    }

    fn split(&self, mode: Mode, seed: u64, trace: &Path) -> io::Result<GroupProcess<'a>> {
        let by_circuits = mode == Mode::Split && self.circuits.is_some();
        let interfaces =
            (0..mode.paths()).flat_map(|path| ["--path".into(), format!("p{path}=if:p{path}")]);
        let mut words = if by_circuits { Circuits::words() } else { interfaces.collect() };
        match mode {
            Mode::Split => words.extend(self.setup.settings.splitter.iter().cloned()),
            Mode::Undefended => {
                words.extend(["--schedule", "round-robin", "--every", "never"].map(str::to_owned));
            }
        }
        words.extend(["--seed".to_owned(), seed.to_string()]);
        words.extend(["--replace".to_owned(), "--trace".to_owned(), trace.display().to_string()]);
        let far_end = self.far_end.as_ref().filter(|_| mode == Mode::Split);
        words.extend(far_end.iter().flat_map(|end| end.words()));
        let ports = (tunnel::PORT, far_end.map_or(tunnel::PORT, |_| far_end::PORT));
        match by_circuits {
            true => self.stage.split_over(&self.setup.splitter, ports, &words, mode.paths()),
            false => self.stage.split_to(&self.setup.splitter, ports, &words),
        }
    }

    /// Opens a connection in the tunnel, so that the tunnel uses the new splitter before the page
    /// is loaded.
    fn warm_up(&self) -> io::Result<()> {
        let address = SocketAddr::from((tunnel::SERVER, 443));
        let connected = self.stage.client().run(|| TcpStream::connect_timeout(&address, PATIENCE));
        connected.map_err(|e| {
            io::Error::new(e.kind(), format!("cannot connect through the tunnel: {e}"))
        })?;
        thread::sleep(CALM);
        Ok(())
    }
}

impl LoadResult {
    fn count(&mut self, carried: &LoadTraffic) -> io::Result<()> {
        let LoadTraffic { up, down, up_packets, down_packets } = carried.clone();
        if down.iter().sum::<u64>() == 0 {
            return Err(io::Error::other("the trace has no packet of the page"));
        }
        (self.up, self.down) = (up, down);
        (self.up_packets, self.down_packets) = (up_packets, down_packets);
        Ok(())
    }
}

/// Returns the browser's options for one site: the site's address, trust in the key of its
/// certificate, and its HTTP version. Other host names do not resolve, so the browser cannot send
/// requests to other hosts.
fn options(unit: &Unit, pin: &str, http3: bool) -> Vec<String> {
    let (host, address) = (unit.site.host(), unit.site.address());
    let protocol = match http3 {
        true => format!("--origin-to-force-quic-on={host}:443"),
        false => "--disable-quic".to_owned(),
    };
    vec![
        format!("--host-resolver-rules=MAP {host} {address}, MAP * ~NOTFOUND"),
        format!("--ignore-certificate-errors-spki-list={pin}"),
        protocol,
    ]
}

fn note(loaded: &mut LoadResult, visit: &Visit, started: SystemTime, machine: Disturbance) {
    loaded.started = started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    loaded.seconds = visit.seconds.unwrap_or(0.0);
    (loaded.requests, loaded.refused) = (visit.requests, visit.refused);
    loaded.machine = machine;
}

/// Stops a splitter (`anabranch split`), and waits until its trace is complete.
fn end(mut splitter: GroupProcess<'_>) -> io::Result<()> {
    let pid = i32::try_from(splitter.id()).ok().and_then(Pid::from_raw);
    kill_process(
        pid.ok_or_else(|| io::Error::other("the splitter has no valid process ID"))?,
        Signal::INT,
    )?;
    let begun = Instant::now();
    while begun.elapsed() < ENDING {
        match splitter.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => {
                let stderr = splitter.finish()?.stderr;
                let stderr = String::from_utf8_lossy(&stderr).trim().to_owned();
                return Err(io::Error::other(format!(
                    "the splitter exited with {status}: {stderr}"
                )));
            }
            None => thread::sleep(Duration::from_millis(10)),
        }
    }
    Err(io::Error::other("the splitter did not exit when it was stopped"))
}

/// Counts the traffic on each of `paths` paths since `started`, from the trace file `trace`.
fn traffic(trace: &Path, started: SystemTime, paths: usize) -> io::Result<LoadTraffic> {
    let trace = Trace::open(trace).map_err(io::Error::other)?;
    let offset = since(&trace, started)?;
    let none = vec![0; paths];
    let mut sums = LoadTraffic {
        up: none.clone(),
        down: none.clone(),
        up_packets: none.clone(),
        down_packets: none,
    };
    let counted = trace.for_each(|row| {
        let path =
            usize::try_from(row.path).ok().filter(|&path| path < paths && row.time >= offset);
        let Some(path) = path else { return };
        let (bytes, packets) = match row.size > 0 {
            true => (&mut sums.up, &mut sums.up_packets),
            false => (&mut sums.down, &mut sums.down_packets),
        };
        bytes[path] += u64::from(row.size.unsigned_abs());
        packets[path] += 1;
    });
    counted.map_err(io::Error::other)?;
    Ok(sums)
}

/// Converts `moment` to seconds since the start of the trace.
pub(super) fn since(trace: &Trace, moment: SystemTime) -> io::Result<f64> {
    let start = trace.facts().start;
    let offset = start.and_then(|start| moment.duration_since(start).ok());
    let offset =
        offset.ok_or_else(|| io::Error::other("the trace starts after the page was opened"))?;
    Ok(offset.as_secs_f64())
}

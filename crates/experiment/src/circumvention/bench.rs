//! Execution of one measurement of the circumvention experiment.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use super::super::quic::{self, ClientReport, QuicLibrary};
use super::super::runner::Unit as _;
use super::super::stage::{SERVER, Stage};
use super::super::tunnel::{self, CLIENT_END};
use super::super::{Missing, Probe, Programs};
use super::place::{self, NAME, UPLINK};
use super::{Access, FetchResult, Settings, Unit, tls};
use anabranch_emulator::GroupProcess;

/// Scheduling priority (niceness) of all measured programs. They have priority over other work of
/// the machine, but not over the emulator's thread, which forwards the packets.
const NICE: i32 = -5;
/// Program for address translation at the VPN's exit, and the package that contains it.
const NFT: (&str, &str) = ("nft", "package nftables");

/// Executor of measurements. Each measurement has its own emulated network, which is removed
/// afterwards.
#[derive(Debug)]
pub struct Bench {
    programs: Programs,
    splitter: PathBuf,
    settings: Settings,
}

impl Bench {
    /// Creates an executor of measurements for `settings`. `splitter` is the `anabranch` under
    /// test, and `programs` an optional directory with third-party programs.
    ///
    /// # Errors
    /// Required programs were not found. The error names all of them.
    pub fn new(
        settings: &Settings,
        splitter: PathBuf,
        programs: Option<&Path>,
    ) -> Result<Bench, Missing> {
        let mut found = Programs::new(programs);
        let makers = settings.servers.iter().filter_map(|server| server.maker());
        let mut wanted: Vec<_> = makers.flat_map(QuicLibrary::needs).collect();
        wanted.extend([tunnel::NEEDS, tls::NEEDS, &[NFT]].concat());
        wanted.sort_unstable();
        wanted.dedup();
        found.find(&wanted)?;
        Ok(Bench { programs: found, splitter, settings: settings.clone() })
    }

    /// Returns the third-party programs that were found.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Makes the measurement `unit`. If `stop` is set, the measurement ends soon, and its result
    /// is useless.
    ///
    /// # Errors
    /// A step of the set-up fails. A fetch that the censor blocks is no error.
    pub fn measure(&self, unit: &Unit, stop: &AtomicBool) -> Result<FetchResult, String> {
        self.run(unit, stop).map_err(|error| error.to_string())
    }

    fn run(&self, unit: &Unit, stop: &AtomicBool) -> io::Result<FetchResult> {
        // All threads and programs of the measurement inherit this niceness. Without privilege,
        // the niceness does not change.
        let _ = rustix::process::setpriority_process(None, NICE);
        let stage = place::build(unit.access)?;
        let _vpn = place::vpn(&stage, &self.programs, unit.access)?;
        let measured = Measurement { bench: self, stage: &stage, unit, stop };
        match unit.server.maker() {
            Some(maker) => measured.quic(maker),
            None => measured.tls(),
        }
    }
}

/// A measurement in progress.
struct Measurement<'a> {
    bench: &'a Bench,
    stage: &'a Stage,
    unit: &'a Unit,
    stop: &'a AtomicBool,
}

impl<'a> Measurement<'a> {
    fn quic(&self, maker: QuicLibrary) -> io::Result<FetchResult> {
        let Bench { programs, settings, .. } = self.bench;
        let server = quic::Server::start(maker, self.stage, programs, settings.bytes)?;
        let splitter = match self.unit.access {
            Access::Handshake => Some(self.split()?),
            _ => None,
        };
        let there: IpAddr = SERVER.parse().expect("the server's address is valid");
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let to = SocketAddr::new(if splitter.is_some() { here } else { there }, quic::PORT);
        self.fetch(settings.bytes, || {
            server.fetch((self.stage, programs), (to, NAME), settings.patience, self.stop)
        })
    }

    fn tls(&self) -> io::Result<FetchResult> {
        let _server = tls::serve(self.stage, &self.bench.programs)?;
        self.fetch(1, || tls::fetch(self.stage, &self.bench.programs, self.stop))
    }

    fn split(&self) -> io::Result<GroupProcess<'a>> {
        let Settings { seed, splitter: further, .. } = &self.bench.settings;
        let mut words = ["--handshake", "vpn", "--seed"].map(str::to_owned).to_vec();
        words.push(self.unit.seed(*seed).to_string());
        for path in [format!("vpn=if:{CLIENT_END}"), format!("direct=if:{UPLINK}")] {
            words.extend(["--path".to_owned(), path]);
        }
        words.extend(further.iter().cloned());
        self.stage.split(&self.bench.splitter, quic::PORT, &words)
    }

    /// Runs the fetch `work`, which should receive `wanted` bytes of content, and returns its
    /// result.
    fn fetch(
        &self,
        wanted: u64,
        work: impl FnOnce() -> io::Result<ClientReport>,
    ) -> io::Result<FetchResult> {
        let (before, probe) = (self.stage.traffic(), Probe::start());
        let cut = self.stage.censored(UPLINK);
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let report = work()?;
        let machine = probe.finish();
        let carried = self.stage.traffic().since(&before);
        let through = report.bytes >= wanted && report.error.is_empty();
        Ok(FetchResult {
            unit: self.unit.id(),
            server: self.unit.server,
            access: self.unit.access,
            repetition: self.unit.repetition,
            started: started.as_secs_f64(),
            through,
            first_byte: report.first_byte_s,
            seconds: report.seconds,
            bytes: report.bytes,
            direct: [carried.up[0], carried.down[0]],
            vpn: [carried.up[1], carried.down[1]],
            censored: self.stage.censored(UPLINK) - cut,
            error: report.error,
            machine,
        })
    }
}

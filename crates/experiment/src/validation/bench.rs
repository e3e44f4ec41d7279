//! Execution of a run (a measurement or simulation of one design), in the emulator or in the
//! simulator.

use std::io;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anabranch_multipath::seed;
use anabranch_sim::onion::ClientLoad;
use rand_chacha::rand_core::Rng;

use super::super::circuits::Pace;
use super::super::circuits::load::{Fetched, Loader};
use super::super::machine::Cores;
use super::super::onions::fetch::Server;
use super::super::onions::{TOR, TestPrograms, WEB_PORT, own_cpu};
use super::super::runner::Unit as _;
use super::super::stage::{PathTraffic, Stage};
use super::super::{Disturbance, Missing, Probe, Programs};
use super::measured::{Measured, RelayUse, Transfer, relay_use};
use super::nodes::{self, PROXY};
use super::place::{self, Role};
use super::plan::{RunSource, Settings, Unit};
use super::scenario::WideNetwork;
use super::simulated;

/// Interval at which a run checks whether it is to stop.
const LOOK: Duration = Duration::from_millis(100);

/// Executor of runs. Each measured run has its own emulated network, which is removed afterwards.
#[derive(Debug)]
pub struct Bench {
    programs: Programs,
    anabranch: PathBuf,
    settings: Settings,
    network: WideNetwork,
}

impl Bench {
    /// Creates an executor of runs for `settings`. `anabranch` is the program under test, and
    /// `programs` an optional directory that may contain C tor.
    ///
    /// # Errors
    /// A run needs C tor, which was not found.
    pub fn new(
        settings: &Settings,
        anabranch: PathBuf,
        programs: Option<&Path>,
    ) -> Result<Bench, Missing> {
        let mut found = Programs::new(programs);
        if settings.designs.iter().any(|design| design.is_stock()) {
            found.find(&[TOR])?;
        }
        let network = settings.network();
        Ok(Bench { programs: found, anabranch, settings: settings.clone(), network })
    }

    /// Returns the third-party programs that were found.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Executes the run `unit`.
    ///
    /// # Errors
    /// The network or its clients could not be started, no download completed, or `stop` was set.
    pub fn measure(&self, unit: &Unit, stop: &AtomicBool) -> Result<Measured, String> {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut run = match unit.source {
            RunSource::Emulated(_) => self.emulate(unit, stop).map_err(|error| error.to_string()),
            RunSource::Simulated(seed) => self.simulate(unit, seed, stop),
        }?;
        run.started = started.as_secs_f64();
        if stop.load(Ordering::Relaxed) {
            return Err("the measurement was stopped".to_owned());
        }
        if run.transfers.is_empty() {
            return Err(format!("no download completed: {}", run.error));
        }
        Ok(run)
    }

    fn simulate(&self, unit: &Unit, seed: u64, stop: &AtomicBool) -> Result<Measured, String> {
        let of = (unit.arm, seed);
        let run = simulated::simulate(&self.settings, &self.network, of, stop);
        let run = run.ok_or("the measurement was stopped")?;
        let empty = empty(unit);
        Ok(Measured { transfers: run.transfers, failed: run.failed, relays: run.relays, ..empty })
    }

    fn emulate(&self, unit: &Unit, stop: &AtomicBool) -> io::Result<Measured> {
        let stage = place::build(&self.network)?;
        let stock = unit.arm.design.is_stock();
        let tor = if stock { self.programs.path(TOR.0) } else { PathBuf::new() };
        let makers = TestPrograms { stage: &stage, anabranch: &self.anabranch, tor: &tor };
        let programs = nodes::Programs::start(makers, &self.network, unit.arm)?;
        let servers = self.serve(&stage)?;
        let servers: Vec<SocketAddrV4> = servers.iter().map(|server| server.address).collect();
        EmulatedRun { bench: self, stage: &stage, programs: &programs, unit, stop }.run(&servers)
    }

    fn serve(&self, stage: &Stage) -> io::Result<Vec<Server>> {
        let start = |number| {
            let slot = Role::Server(number).slot(stage);
            slot.host.run(|| Server::start(slot.ip, WEB_PORT))
        };
        (0..self.network.servers.len()).map(start).collect()
    }
}

/// Returns the record of a run with its settings, but without downloads.
fn empty(unit: &Unit) -> Measured {
    let (simulated, number) = Measured::number_of(unit.source);
    Measured {
        unit: unit.id(),
        design: unit.arm.design,
        legs: unit.arm.legs,
        simulated,
        number,
        started: 0.0,
        transfers: Vec::new(),
        failed: 0,
        error: String::new(),
        relays: Vec::new(),
        clients_cpu: 0.0,
        own_cpu: 0.0,
        busy: 0.0,
        machine: Disturbance::default(),
    }
}

/// A run in the emulator whose programs are ready to make downloads.
struct EmulatedRun<'a> {
    bench: &'a Bench,
    stage: &'a Stage,
    programs: &'a nodes::Programs<'a>,
    unit: &'a Unit,
    stop: &'a AtomicBool,
}

/// A fetch that has ended: the client's index, and the fetch.
type Ended = (usize, Fetched);

impl EmulatedRun<'_> {
    /// Lets all clients download from `servers`, and measures from the end of the warm-up on.
    fn run(&self, servers: &[SocketAddrV4]) -> io::Result<Measured> {
        let (ended, end) = (Mutex::new(Vec::<Ended>::new()), AtomicBool::new(false));
        let began = Instant::now();
        let (run, window) = thread::scope(|scope| {
            let (ended, end) = (&ended, &end);
            let start = |number| scope.spawn(move || self.download(number, servers, (ended, end)));
            let clients: Vec<_> = (0..self.programs.clients.len()).map(start).collect();
            self.wait(self.bench.settings.warm_up);
            let (from, before) = (Instant::now(), Use::now(self));
            self.wait(self.bench.settings.seconds);
            let run = before.until_now(self);
            let window = (began, from, Instant::now());
            end.store(true, Ordering::Relaxed);
            for client in clients {
                client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            Ok::<_, io::Error>((run, window))
        })?;
        let ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(self.counted(run, ended, window))
    }

    /// Lets the client with the index `number` download until `end` is set, and adds its fetches
    /// to `ended`.
    fn download(
        &self,
        number: usize,
        servers: &[SocketAddrV4],
        (ended, end): (&Mutex<Vec<Ended>>, &AtomicBool),
    ) -> io::Result<()> {
        self.loader(number).run(servers, end, |fetched| {
            ended.lock().unwrap_or_else(PoisonError::into_inner).push((number, fetched));
        })
    }

    fn loader(&self, number: usize) -> Loader<'_> {
        let is_bulk = self.bench.network.clients[number].is_bulk;
        let settings = &self.bench.settings;
        let ClientLoad { bytes, timeout, .. } = simulated::load(settings, is_bulk);
        Loader {
            host: self.stage.host(&Role::Client(number).name()),
            proxy: PROXY,
            number: number as u8,
            seed: seed::stream(settings.seed, 0, &self.unit.id()).next_u64(),
            pace: Pace::Pause(if is_bulk { 0.0 } else { settings.pause }),
            length: bytes as usize,
            patience: timeout,
        }
    }

    fn wait(&self, seconds: u32) {
        let until = Instant::now() + Duration::from_secs(seconds.into());
        while Instant::now() < until && !self.stop.load(Ordering::Relaxed) {
            thread::sleep(LOOK.min(until.saturating_duration_since(Instant::now())));
        }
    }

    /// Adds to `run` the downloads that ended from `from` until `until`. `began` is the time at
    /// which all clients started.
    fn counted(
        &self,
        mut run: Measured,
        ended: Vec<Ended>,
        (began, from, until): (Instant, Instant, Instant),
    ) -> Measured {
        for (client, one) in ended.into_iter().filter(|(_, it)| (from..until).contains(&it.ended)) {
            let is_bulk = self.bench.network.clients[client].is_bulk;
            match one.times {
                Ok(times) => {
                    let asked = (one.began - began).as_secs_f64();
                    let times = [times.first_byte, times.whole];
                    run.transfers.push(Transfer::new((client, is_bulk), asked, times));
                }
                Err(error) => (run.failed, run.error) = (run.failed + 1, error.to_string()),
            }
        }
        run
    }
}

/// Values of the counters of CPU time and of line traffic at one moment.
struct Use {
    relays: Vec<f64>,
    clients: f64,
    own: f64,
    traffic: PathTraffic,
    cores: Cores,
    probe: Probe,
    at: Instant,
}

impl Use {
    fn now(run: &EmulatedRun<'_>) -> Use {
        Use {
            relays: run.programs.relays_cpu(),
            clients: run.programs.clients_cpu(),
            own: own_cpu(),
            traffic: run.stage.traffic(),
            cores: Cores::now(),
            probe: Probe::start(),
            at: Instant::now(),
        }
    }

    /// Returns a record without downloads, with the use of CPUs and lines since `self` was read.
    fn until_now(self, run: &EmulatedRun<'_>) -> Measured {
        let seconds = self.at.elapsed().as_secs_f64();
        let traffic = run.stage.traffic().since(&self.traffic);
        let used = |(relay, (now, before)): (usize, (f64, &f64))| {
            let carried = ([traffic.up[relay], traffic.down[relay]], seconds);
            relay_use(&run.bench.network, relay, carried, (now - before) / seconds)
        };
        let relays = run.programs.relays_cpu().into_iter().zip(&self.relays);
        let relays: Vec<RelayUse> = relays.enumerate().map(used).collect();
        Measured {
            relays,
            clients_cpu: (run.programs.clients_cpu() - self.clients) / seconds,
            own_cpu: (own_cpu() - self.own) / seconds,
            busy: self.cores.busy_since(),
            machine: self.probe.finish(),
            ..empty(run.unit)
        }
    }
}

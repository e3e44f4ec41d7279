//! Measurement of one design (a way to split streams over circuits) in one network.

use std::io;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anabranch_multipath::seed;
use rand::RngExt;

use super::super::machine::Cores;
use super::super::onions::fetch::{self, Fetch, Server};
use super::super::onions::{TOR, TestPrograms, WEB_PORT};
use super::super::runner::Unit as _;
use super::super::stage::Stage;
use super::super::{Missing, Probe, Programs};
use super::load::{Fetched, LoadCounters, Loader};
use super::measured::{MIB, Measured, Repetition};
use super::nodes::Nodes;
use super::place::{self, Role};
use super::plan::{Settings, Unit, WEB};

const SERVERS: u16 = 4;
/// Range of the random pause between two repetitions of the fetches, in seconds.
const BETWEEN: std::ops::Range<f64> = 0.05..0.25;
/// Time for which a failed first fetch is tried again. The first fetch can fail because the client
/// must first build its circuits.
const WARM: Duration = Duration::from_secs(90);
/// Number of repetitions at the start whose results are discarded. During these repetitions, the
/// client builds all circuits over which it splits streams.
const FIRST: u32 = 3;
/// Number of failed fetches after which a measurement is abandoned.
const FAILURES: u32 = 10;

/// Executor of measurements. Each measurement has its own emulated network, which is removed
/// afterwards.
#[derive(Debug)]
pub struct Bench {
    programs: Programs,
    anabranch: PathBuf,
    settings: Settings,
}

impl Bench {
    /// Creates an executor of measurements for `settings`. `anabranch` is the program under test,
    /// and `programs` an optional directory that may contain C tor.
    ///
    /// # Errors
    /// A measurement needs C tor, which was not found.
    pub fn new(
        settings: &Settings,
        anabranch: PathBuf,
        programs: Option<&Path>,
    ) -> Result<Bench, Missing> {
        let mut found = Programs::new(programs);
        if settings.designs.iter().any(|design| design.is_stock()) {
            found.find(&[TOR])?;
        }
        Ok(Bench { programs: found, anabranch, settings: settings.clone() })
    }

    /// Returns the third-party programs that were found.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Makes the measurement `unit`. If `stop` is set, the measurement ends early, and its result
    /// is incomplete.
    ///
    /// # Errors
    /// The network or its clients could not be started. Failed fetches are no error.
    pub fn measure(&self, unit: &Unit, stop: &AtomicBool) -> Result<Measured, String> {
        self.run(unit, stop).map_err(|error| error.to_string())
    }

    fn run(&self, unit: &Unit, stop: &AtomicBool) -> io::Result<Measured> {
        let stage = place::build(unit.place)?;
        let (anabranch, stock) = (&*self.anabranch, unit.design.is_stock());
        let tor = if stock { self.programs.path(TOR.0) } else { PathBuf::new() };
        let makers = TestPrograms { stage: &stage, anabranch, tor: &tor };
        let roles = (0..self.settings.clients).map(|number| Role::Load(number as u8));
        let roles: Vec<Role> = std::iter::once(Role::Client).chain(roles).collect();
        let nodes = Nodes::start(makers, unit, &roles)?;
        let servers = self.serve(unit, &stage)?;
        let at: Vec<_> = servers.iter().map(|server| server.address).collect();
        let load = self.settings.load;
        let start = |role: &Role| nodes.client(*role, unit, load);
        let mut clients = roles.iter().map(start).collect::<io::Result<Vec<_>>>()?;
        for (role, client) in roles.iter().zip(&mut clients) {
            let Some(client) = client else { continue };
            nodes.wait_ready(*role, client, unit, load)?;
        }
        Measurement { bench: self, stage: &stage, nodes: &nodes, servers: &at, unit, stop }
            .under_load(&roles[1..])
    }

    fn serve(&self, unit: &Unit, stage: &Stage) -> io::Result<Vec<Server>> {
        let ip = Role::Web.address(unit.place);
        Role::Web
            .host(unit.place, stage)
            .run(|| (0..SERVERS).map(|number| Server::start(ip, WEB_PORT + number)).collect())
    }
}

/// A measurement in progress.
struct Measurement<'a> {
    bench: &'a Bench,
    stage: &'a Stage,
    nodes: &'a Nodes<'a>,
    servers: &'a [SocketAddrV4],
    unit: &'a Unit,
    stop: &'a AtomicBool,
}

impl Measurement<'_> {
    fn under_load(&self, load: &[Role]) -> io::Result<Measured> {
        let (done, end) = (LoadCounters::default(), AtomicBool::new(false));
        let settings = &self.bench.settings;
        let (place, seed) = (self.unit.place, self.unit.seed(settings.seed));
        thread::scope(|scope| {
            for role in load {
                let Role::Load(number) = *role else { continue };
                let (host, proxy) = (role.host(place, self.stage), self.nodes.proxy(*role));
                let Some(pace) = settings.pace(self.unit) else { continue };
                let (length, patience) = (WEB, fetch::PATIENCE);
                let loader = Loader { host, proxy, number, seed, pace, length, patience };
                let (servers, done, end) = (self.servers, &done, &end);
                scope.spawn(move || {
                    let count = |fetched: Fetched| done.count(fetched.times.is_ok());
                    if loader.run(servers, end, count).is_err() {
                        done.count(false);
                    }
                });
            }
            let measured = Role::Client.host(place, self.stage).run(|| self.repeat(&done));
            end.store(true, Ordering::Relaxed);
            measured
        })
    }

    fn repeat(&self, done: &LoadCounters) -> io::Result<Measured> {
        self.warm()?;
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let count = || {
            let [fetches, failures] = [&done.fetches, &done.failures];
            (fetches.load(Ordering::Relaxed), failures.load(Ordering::Relaxed))
        };
        let (before, cpu, cores, probe) = (count(), self.nodes.cpu(), Cores::now(), Probe::start());
        let began = Instant::now();
        let settings = &self.bench.settings;
        let mut dice = seed::stream(self.unit.seed(settings.seed), 0, "repetitions");
        let (mut repetitions, mut failed, mut error) = (Vec::new(), 0, String::new());
        for number in 0..settings.repetitions {
            if self.stop.load(Ordering::Relaxed) || failed > FAILURES {
                break;
            }
            match self.one(number) {
                Ok(one) => repetitions.push(one),
                Err(why) => (failed, error) = (failed + 1, why.to_string()),
            }
            thread::sleep(Duration::from_secs_f64(dice.random_range(BETWEEN)));
        }
        let (seconds, machine, after) = (began.elapsed().as_secs_f64(), probe.finish(), count());
        let own = repetitions.len() as u64 * (WEB + self.bulk()) as u64;
        let mut spent = self.nodes.cpu();
        spent.iter_mut().zip(cpu).for_each(|(now, then)| *now -= then);
        let Unit { design, legs, place, level, round, .. } = *self.unit;
        Ok(Measured {
            unit: self.unit.id(),
            design,
            legs,
            place,
            load: settings.load,
            level,
            round,
            started: started.as_secs_f64(),
            repetitions,
            failed,
            seconds,
            bytes: own + (after.0 - before.0) * WEB as u64,
            load_failed: after.1 - before.1,
            cpu: spent,
            busy: cores.busy_since(),
            error,
            machine,
        })
    }

    /// Fetches until a fetch succeeds, then [`FIRST`] - 1 more times, so that all circuits exist.
    /// None of these fetches count as results.
    fn warm(&self) -> io::Result<()> {
        let began = Instant::now();
        let mut left = FIRST;
        while left > 0 && !self.stop.load(Ordering::Relaxed) {
            match self.one(left) {
                Ok(_) => left -= 1,
                Err(error) if began.elapsed() > WARM => return Err(error),
                Err(_) => thread::sleep(Duration::from_secs(1)),
            }
        }
        Ok(())
    }

    /// Returns the size of a bulk download in bytes.
    fn bulk(&self) -> usize {
        self.bench.settings.bulk as usize * MIB
    }

    fn one(&self, number: u32) -> io::Result<Repetition> {
        let proxy = self.nodes.proxy(Role::Client);
        let server = self.servers[number as usize / 2 % self.servers.len()];
        let optimistic = number % 2 == 1;
        let fetch = |length| Fetch { optimistic, ..Fetch::new(proxy, server, length) }.run();
        let (page, bulk) = (fetch(WEB)?, fetch(self.bulk())?);
        let fetch::FetchTimes { first_byte, whole: web } = page;
        Ok(Repetition { optimistic, first_byte, web, bulk: bulk.whole })
    }
}

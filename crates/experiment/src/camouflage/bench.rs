//! Execution of one measurement of the camouflage experiment.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::super::machine::Cores;
use super::super::onions::fetch::{Fetch, Server};
use super::super::onions::{OnionNetwork, RelaySlot, TOR, TestPrograms, WEB_PORT};
use super::super::runner::Unit as _;
use super::super::{Missing, Probe, Programs};
use super::bridged_client::{self, BridgedClient, OBFS4, TransportInputs};
use super::measured::{Download, Measured, Stream};
use super::plan::{Arm, MeasurementKind, RTT, Settings, Unit};
use super::streams::{self, Pace};
use super::test_network::{AUTHORITY, RELAYS, TestNetwork, WEB};
use super::webtunnel::{NGINX, PROGRAMS};
use super::without_tor::TransportPair;

/// Timeout of one attempt at the first fetch, for which a Tor circuit must be built.
const FIRST: Duration = Duration::from_secs(60);
/// Maximum number of attempts at the first fetch, which fails while the Tor client has no circuit.
const TRIES: u32 = 5;
/// Time after the end of a download during which packets on the client's access line still count
/// towards that download.
const LINGER: Duration = Duration::from_millis(300);
/// Threshold below which the client's access line counts as quiet: both directions together carry
/// at most this number of bytes in this interval.
const QUIET: (u64, Duration) = (1_500, Duration::from_millis(500));
/// Maximum time to wait until the client's access line is quiet.
const QUIET_BY: Duration = Duration::from_secs(10);

/// Settings and programs for the measurements of the camouflage experiment.
#[derive(Debug)]
pub struct Bench {
    programs: Programs,
    tor: PathBuf,
    anabranch: PathBuf,
    folders: Folders,
    settings: Settings,
}

/// Directories with cover data (pictures, recorded sites) for our transport.
#[derive(Clone, Debug, Default)]
pub struct Folders {
    /// Directory of the JPEG files for the profile [`Arm::Image`], if they are given.
    pub pictures: Option<PathBuf>,
    /// Directory of the recorded site for the profile [`Arm::Site`], if it is given. `anabranch pt
    /// crawl` writes such directories.
    pub covers: Option<PathBuf>,
}

/// The relays and the web server of a [`TestNetwork`]. All measurements share them. The servers
/// start with the first measurement, and restart after a failed measurement.
pub struct SharedServers<'a> {
    bench: &'a Bench,
    test_network: &'a TestNetwork,
    network: RefCell<Option<OnionNetwork<'a>>>,
    web: RefCell<Option<Server>>,
    /// Number of client and server pairs started so far. It makes the names of each new pair
    /// unique.
    number: Cell<u32>,
}

/// Data of one measurement's downloads and streams, without the measurement's settings and times.
#[derive(Default)]
struct Outcome {
    downloads: Vec<Download>,
    streams: Vec<Stream>,
    error: String,
}

impl Bench {
    /// Creates an executor of measurements for `settings`. `anabranch` is the program under test,
    /// `programs` an optional directory with other programs, and `folders` the cover data.
    ///
    /// # Errors
    /// A program that a measurement needs was not found.
    pub fn new(
        settings: &Settings,
        anabranch: PathBuf,
        programs: Option<&Path>,
        folders: Folders,
    ) -> Result<Bench, Missing> {
        let mut found = Programs::new(programs);
        let needs = settings.arms.iter().flat_map(|arm| needs(*arm));
        found.find(&needs.copied().collect::<Vec<_>>())?;
        let tor = found.path(TOR.0);
        Ok(Bench { programs: found, tor, anabranch, folders, settings: settings.clone() })
    }

    /// Returns the missing programs that measurements of the method `arm` need; `None` if none is
    /// missing.
    #[must_use]
    pub fn lacks(arm: Arm, programs: Option<&Path>) -> Option<Missing> {
        Programs::new(programs).find(needs(arm)).err()
    }

    /// Returns the third-party programs that were found.
    #[must_use]
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Builds the network that all measurements share, with an access line for each round-trip
    /// time.
    ///
    /// # Errors
    /// A step of the set-up fails.
    pub fn test_network(&self) -> io::Result<TestNetwork> {
        TestNetwork::build([&[RTT], &*self.settings.rtts].concat())
    }

    /// Prepares relays and a web server on `test_network`. The first measurement starts them.
    #[must_use]
    pub fn servers<'a>(&'a self, test_network: &'a TestNetwork) -> SharedServers<'a> {
        let (network, web) = (RefCell::new(None), RefCell::new(None));
        SharedServers { bench: self, test_network, network, web, number: Cell::new(0) }
    }
}

/// Returns the programs that measurements of the method `arm` need. Each program is followed by
/// its source (a package or a project).
fn needs(arm: Arm) -> &'static [(&'static str, &'static str)] {
    match arm {
        Arm::Direct => &[],
        Arm::Obfs4 => &[TOR, OBFS4],
        Arm::Webtunnel => &[TOR, PROGRAMS[0], PROGRAMS[1], NGINX],
        _ => &[TOR],
    }
}

impl<'a> SharedServers<'a> {
    /// Makes the measurement `unit`. If `stop` is set, the measurement ends soon, and its result
    /// is useless.
    ///
    /// # Errors
    /// The network or the client could not be started. A failed download is no error.
    pub fn measure(&self, unit: &Unit, stop: &AtomicBool) -> Result<Measured, String> {
        let measured = self.measure_with(unit, stop);
        if measured.is_err() {
            self.network.replace(None);
        }
        measured.map_err(|error| error.to_string())
    }

    fn measure_with(&self, unit: &Unit, stop: &AtomicBool) -> io::Result<Measured> {
        let test_network = self.test_network;
        if self.web.borrow().is_none() {
            let web = test_network
                .stage
                .server()
                .run(|| Server::start(Ipv4Addr::UNSPECIFIED, WEB_PORT))?;
            self.web.replace(Some(web));
        }
        if unit.arm == Arm::Direct {
            let server = SocketAddrV4::new(test_network.far_end(unit.rtt), WEB_PORT);
            return self.timed(unit, 0.0, &Fetch::straight(server, 1), stop);
        }
        if unit.what == MeasurementKind::Bare {
            let (inputs, folder) = (self.bench.inputs(), format!("bare{}", self.next_number()));
            let bare = TransportPair::open(
                self.makers(),
                test_network,
                inputs,
                (unit.arm, unit.rtt, &folder),
            )?;
            return self.timed(unit, 0.0, &Fetch::straight(bare.entrance(), 1), stop);
        }
        let mut network = self.network.borrow_mut();
        let network = match &mut *network {
            Some(network) => network,
            none => none.insert(self.start()?),
        };
        let number = self.next_number();
        let way = BridgedClient::open(
            network,
            test_network,
            self.bench.inputs(),
            (unit.arm, unit.rtt, number),
        )?;
        let fetch = Fetch::new(bridged_client::proxy(), SocketAddrV4::new(WEB, WEB_PORT), 1);
        let measured = self.timed(unit, way.bootstrap, &fetch, stop)?;
        way.close(network)?;
        Ok(measured)
    }

    fn next_number(&self) -> u32 {
        self.number.replace(self.number.get() + 1)
    }

    fn makers(&self) -> TestPrograms<'a> {
        let (bench, test_network) = (self.bench, self.test_network);
        TestPrograms { stage: &test_network.stage, anabranch: &bench.anabranch, tor: &bench.tor }
    }

    /// Starts the directory authority and the relays.
    fn start(&self) -> io::Result<OnionNetwork<'a>> {
        let test_network = self.test_network;
        let relays = RELAYS.map(|(name, ip)| RelaySlot {
            slot: test_network.far_slot(name, ip),
            is_exit: name == "exit",
            words: &[],
        });
        let authority = test_network.far_slot("authority", AUTHORITY);
        OnionNetwork::start(self.makers(), &authority, &relays, true)
    }

    /// Runs the downloads or streams of `unit`. Records their duration, and the load of the
    /// machine by other work.
    fn timed(
        &self,
        unit: &Unit,
        bootstrap: f64,
        fetch: &Fetch<'_>,
        stop: &AtomicBool,
    ) -> io::Result<Measured> {
        self.warm(fetch, stop)?;
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (cores, probe, began) = (Cores::now(), Probe::start(), Instant::now());
        let Outcome { downloads, streams, error } = match unit.what {
            MeasurementKind::Downloads | MeasurementKind::Bare => {
                self.downloads(unit, fetch, stop)?
            }
            MeasurementKind::Streams => self.streams(unit, fetch, stop)?,
        };
        let (seconds, machine) = (began.elapsed().as_secs_f64(), probe.finish());
        Ok(Measured {
            unit: unit.id(),
            what: unit.what,
            arm: unit.arm,
            rtt: unit.rtt,
            round: unit.round,
            started: started.as_secs_f64(),
            bootstrap,
            downloads,
            streams,
            seconds,
            busy: cores.busy_since(),
            error,
            machine,
        })
    }

    /// Fetches one byte, so that the Tor circuit and the transport's connection, if used, exist
    /// before the measurement starts.
    fn warm(&self, fetch: &Fetch<'_>, stop: &AtomicBool) -> io::Result<()> {
        let mut tries = 0;
        loop {
            tries += 1;
            let first = Fetch { patience: FIRST, ..*fetch };
            match self.test_network.stage.client().run(|| Ok(first.run()))? {
                Err(error) if tries == TRIES => return Err(error),
                Err(_) if !stop.load(Ordering::Relaxed) => thread::sleep(Duration::from_secs(1)),
                _ => return Ok(()),
            }
        }
    }

    fn downloads(&self, unit: &Unit, fetch: &Fetch<'_>, stop: &AtomicBool) -> io::Result<Outcome> {
        let mut outcome = Outcome::default();
        for bytes in unit.lengths(self.bench.settings.seed) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            self.wait_quiet(unit.rtt, stop);
            let before = self.test_network.traffic(unit.rtt);
            let patience = Duration::from_secs(self.bench.settings.cut.into());
            let fetch = Fetch { length: bytes as usize, patience, ..*fetch };
            let fetched = self.test_network.stage.client().run(|| Ok(fetch.run()))?;
            thread::sleep(LINGER);
            let after = self.test_network.traffic(unit.rtt);
            let [up, down] = [0, 1].map(|at| after[at] - before[at]);
            let times = fetched.as_ref().ok();
            let (first_byte, whole) = (times.map(|t| t.first_byte), times.map(|t| t.whole));
            outcome.downloads.push(Download { bytes, first_byte, whole, up, down });
            outcome.note(fetched.err().map(|error| error.to_string()));
        }
        Ok(outcome)
    }

    fn streams(&self, unit: &Unit, fetch: &Fetch<'_>, stop: &AtomicBool) -> io::Result<Outcome> {
        let (mut outcome, settings) = (Outcome::default(), &self.bench.settings);
        for rate in unit.rates(settings) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            self.wait_quiet(unit.rtt, stop);
            let pace = Pace { fetch: *fetch, rtt: unit.rtt, rate, seconds: settings.seconds };
            let (stream, error) = streams::carry(self.test_network, pace, stop)?;
            outcome.streams.push(stream);
            outcome.note(Some(error).filter(|error| !error.is_empty()));
        }
        Ok(outcome)
    }

    /// Waits until the client's access line carries no more traffic of earlier fetches, but at
    /// most [`QUIET_BY`].
    fn wait_quiet(&self, rtt: u32, stop: &AtomicBool) {
        let until = Instant::now() + QUIET_BY;
        let mut before = self.test_network.traffic(rtt);
        while Instant::now() < until && !stop.load(Ordering::Relaxed) {
            thread::sleep(QUIET.1);
            let now = self.test_network.traffic(rtt);
            let crossed = now[0] - before[0] + now[1] - before[1];
            if crossed <= QUIET.0 {
                return;
            }
            before = now;
        }
    }
}

impl Bench {
    fn inputs(&self) -> TransportInputs<'_> {
        let [pictures, covers] =
            [&self.folders.pictures, &self.folders.covers].map(|folder| folder.as_deref());
        TransportInputs { programs: &self.programs, anabranch: &self.anabranch, pictures, covers }
    }
}

impl Outcome {
    /// Stores `error`, the reason for a failure, if no earlier reason is stored.
    fn note(&mut self, error: Option<String>) {
        if let (Some(error), true) = (error, self.error.is_empty()) {
            self.error = error;
        }
    }
}

//! Execution of page loads by several browsers in parallel.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::super::together::Turns;
use super::super::{Missing, Programs, tunnel};
use super::setup::Setup;
use super::test_bed::TestBed;
use super::{LoadResult, Settings, Unit, Web, browser, caddy};

/// Scheduling priority (niceness) of browsers, tunnel and server. They have priority over other
/// work of the machine, but not over the emulator's thread, which forwards the packets.
const NICE: i32 = -5;
/// Number of failed page loads in a row after which the emulated network is rebuilt.
const FAILURES: u32 = 6;
/// Number of consecutive emulated networks without any successful page load after which the
/// experiment ends.
const NETWORKS: u32 = 2;

/// Reason why a browser's work on one emulated network ends.
enum Departure {
    /// No page loads are left, or the experiment was stopped.
    Done,
    /// Too many page loads failed in a row. `good` is the number of successful page loads on this
    /// network. `fresh` is true if some of the failed page loads were first attempts, so they had
    /// never failed on another network.
    Failing { good: u32, fresh: bool },
}

/// Executor of page loads. Each browser has its own network, tunnel and web server.
#[derive(Debug)]
pub struct Bench {
    setup: Setup,
}

impl Bench {
    /// Creates an executor of page loads for `settings`, whose sites belong to `web`. `splitter`
    /// is the `anabranch` under test, and `programs` an optional directory with third-party
    /// programs. Traces of single loads are written to the directory `traces`, an absolute path.
    /// `browsers` is the number of browsers.
    ///
    /// # Errors
    /// Required programs were not found. The error names all of them.
    pub fn new(
        settings: Settings,
        web: Web,
        (splitter, programs): (PathBuf, Option<&Path>),
        (traces, browsers): (PathBuf, u32),
    ) -> Result<Bench, Missing> {
        let mut found = Programs::new(programs);
        found.find(&[browser::NEEDS, caddy::NEEDS, tunnel::NEEDS].concat())?;
        let programs = found;
        let setup = Setup { programs, splitter, web, settings, traces, browsers };
        Ok(Bench { setup })
    }

    /// Returns the third-party programs that were found.
    pub fn programs(&self) -> &Programs {
        &self.setup.programs
    }

    /// Makes page loads one after another with one browser, until no loads are left.
    pub fn work(&self, turns: &Turns<'_, Unit, LoadResult>, stop: &AtomicBool) {
        // All programs inherit this niceness. Without privilege, the niceness does not change.
        let _ = rustix::process::setpriority_process(None, NICE);
        let mut fruitless = 0;
        while !turns.stopped() {
            let why = match self.load_on_one_network(turns, stop) {
                Ok(Departure::Done) => return,
                Ok(Departure::Failing { good: 1.., .. }) => {
                    fruitless = 0;
                    continue;
                }
                // All of these loads have failed before, on other networks. At the end of a plan,
                // only such loads may be left, so their failures do not show that this network is
                // faulty.
                Ok(Departure::Failing { fresh: false, .. }) => continue,
                Ok(Departure::Failing { .. }) => {
                    format!(
                        "{FAILURES} page loads in a row failed; the experiment's journal file has \
                         the reasons"
                    )
                }
                Err(error) => error.to_string(),
            };
            fruitless += 1;
            if fruitless == NETWORKS {
                return turns.give_up(
                    "pages",
                    format!(
                        "{why}; this happened in {NETWORKS} emulated networks in a row, so the \
                         experiment was stopped"
                    ),
                );
            }
        }
    }

    /// Makes page loads on a new emulated network until none is left, too many fail in a row, or
    /// the experiment is stopped.
    fn load_on_one_network(
        &self,
        turns: &Turns<'_, Unit, LoadResult>,
        stop: &AtomicBool,
    ) -> io::Result<Departure> {
        let stage = TestBed::stage(&self.setup.settings)?;
        let test_bed = TestBed::open(&self.setup, &stage)?;
        let (mut good, mut failures, mut fresh) = (0, 0, false);
        while failures < FAILURES {
            let Some((unit, attempt)) = turns.next() else { return Ok(Departure::Done) };
            let begun = Instant::now();
            let loaded = test_bed.load(unit, attempt, stop);
            if turns.stopped() {
                return Ok(Departure::Done);
            }
            let failed = !loaded.error.is_empty();
            (good, failures) = if failed { (good, failures + 1) } else { (good + 1, 0) };
            fresh = failed && (fresh || attempt == 1);
            turns.done(unit, loaded, begun.elapsed());
        }
        Ok(Departure::Failing { good, fresh })
    }
}

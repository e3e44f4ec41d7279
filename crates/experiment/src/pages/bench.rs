//! Carries out loads, with some browsers at once.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::super::together::Turns;
use super::super::{Missing, Programs, tunnel};
use super::house::House;
use super::setup::Setup;
use super::{Loaded, Settings, Unit, Web, browser, caddy};

/// Of browsers, tunnel and server: before other work of the machine, behind the thread that carries
/// the packets.
const NICE: i32 = -5;
/// After so many failures in a row a network is built anew.
const FAILURES: u32 = 6;
/// After so many networks in a row in which no load was good, the run ends.
const HOUSES: u32 = 2;

/// Why a network was left.
enum Left {
    /// There is no more to do, or somebody said stop.
    Done,
    /// Too many loads failed in a row, after so many good ones; some of them for the first time.
    Failing { good: u32, fresh: bool },
}

/// Makes loads. Each browser has a network, a tunnel and a web server of its own.
#[derive(Debug)]
pub struct Bench {
    setup: Setup,
}

impl Bench {
    /// A bench for `settings`, whose sites are of `web`; `splitter` is the `anabranch` under test,
    /// `programs` a folder that may hold the strangers' programs. Traces of single loads go to the
    /// folder `traces`, an absolute path.
    ///
    /// # Errors
    /// Programs that it takes are nowhere; all of them are named.
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

    /// What was found for it.
    pub fn programs(&self) -> &Programs {
        &self.setup.programs
    }

    /// Takes loads as long as there are any: the work of one browser.
    pub fn work(&self, turns: &Turns<'_, Unit, Loaded>, stop: &AtomicBool) {
        // All programs have it from this thread. Without privilege it stays as it is.
        let _ = rustix::process::setpriority_process(None, NICE);
        let mut fruitless = 0;
        while !turns.stopped() {
            let why = match self.inhabit(turns, stop) {
                Ok(Left::Done) => return,
                Ok(Left::Failing { good: 1.., .. }) => {
                    fruitless = 0;
                    continue;
                }
                // They have failed in other networks: at the end of a plan only such loads may be
                // left.
                Ok(Left::Failing { fresh: false, .. }) => continue,
                Ok(Left::Failing { .. }) => {
                    format!(
                        "{FAILURES} loads in a row failed; the experiment's journal file has \
                             the reasons"
                    )
                }
                Err(error) => error.to_string(),
            };
            fruitless += 1;
            if fruitless == HOUSES {
                return turns.give_up(
                    "pages",
                    format!(
                        "{why}; this happened in {HOUSES} emulated networks, one after the other"
                    ),
                );
            }
        }
    }

    /// Makes loads in one house, until there are no more or too many fail in a row.
    fn inhabit(&self, turns: &Turns<'_, Unit, Loaded>, stop: &AtomicBool) -> io::Result<Left> {
        let stage = House::stage(&self.setup.settings)?;
        let house = House::open(&self.setup, &stage)?;
        let (mut good, mut failures, mut fresh) = (0, 0, false);
        while failures < FAILURES {
            let Some((unit, attempt)) = turns.next() else { return Ok(Left::Done) };
            let begun = Instant::now();
            let loaded = house.load(unit, attempt, stop);
            if turns.stopped() {
                return Ok(Left::Done);
            }
            let failed = !loaded.error.is_empty();
            (good, failures) = if failed { (good, failures + 1) } else { (good + 1, 0) };
            fresh = failed && (fresh || attempt == 1);
            turns.done(unit, loaded, begun.elapsed());
        }
        Ok(Left::Failing { good, fresh })
    }
}

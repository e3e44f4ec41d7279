//! Execution of one unit (a part of the work that takes seconds) of the anonymity analysis.

use std::cell::RefCell;
use std::path::Path;

use anabranch_anonymity::Workers;
use anabranch_anonymity::consensus::{ListedConsensus, decode};
use anabranch_anonymity::fingerprints::{FingerprintSettings, fingerprints};
use anabranch_anonymity::hostile::Spread;
use anabranch_anonymity::paths::{PathSettings, draw};
use anabranch_anonymity::population::entries;
use anabranch_anonymity::year::{Part, tally};
use anabranch_onion::directory::civil::utc;
use anabranch_onion::guards::GuardParams;
use anabranch_os::threads::share_out;

use super::super::origin::digest;
use super::super::runner::Unit as _;
use super::{Analysis, Listing, NamedConsensus, Outcome, SHARES, Settings, Unit, UnitResult};

/// Destination port of the streams for which clients choose exits.
const PORT: u16 = 443;

/// Function that returns the bytes of the consensus in `file`. If `file` is an archive, `hour`
/// selects the consensus by its valid-after time; otherwise `hour` is `None`.
pub type Reader = fn(file: &Path, hour: Option<&str>) -> Result<Vec<u8>, String>;

/// Executor of the anonymity analysis, which is divided into units (parts that take seconds). It
/// keeps the last consensus in memory, because consecutive units often need the same one.
#[derive(Debug)]
pub struct Bench {
    settings: Settings,
    read: Reader,
    current: RefCell<Option<(String, ListedConsensus)>>,
}

/// Reads the consensus in `file`. If `file` is an archive, `hour` selects the consensus by its
/// valid-after time.
///
/// # Errors
/// The file cannot be read, is no consensus, or lists too few relays. The message has the
/// file's name and the reason.
pub fn open(
    file: &Path,
    hour: Option<&str>,
    read: Reader,
) -> Result<(NamedConsensus, ListedConsensus), String> {
    let with_file = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
    let bytes = read(file, hour).map_err(|error| with_file(&error))?;
    let listed = decode(&bytes).map_err(|error| with_file(&error))?;
    // No adversary is drawn here. This only checks that there are enough guards and exits.
    let legs = SHARES.map(|(_, legs)| legs).into_iter().max().unwrap_or(1);
    let settings = PathSettings { legs, port: PORT, ..PathSettings::default() };
    draw(&listed.network, &settings, 0..0).map_err(|error| with_file(&error))?;
    let after = utc(listed.network.consensus().valid_after);
    let name = after.get(..13).unwrap_or(&after).replace(' ', "T");
    let in_use = listed.network.params().guards.primary_to_use;
    let hash = digest(&bytes);
    let hour = hour.map(str::to_owned);
    Ok((NamedConsensus { name, file: file.to_owned(), hour, hash, in_use }, listed))
}

impl Bench {
    /// Creates an executor for the analyses in `settings`. It reads consensus files with `read`.
    #[must_use]
    pub fn new(settings: &Settings, read: Reader) -> Bench {
        Bench { settings: settings.clone(), read, current: RefCell::new(None) }
    }

    /// Executes one unit (a part that takes seconds) of the analysis.
    ///
    /// # Errors
    /// The consensus of `unit` has changed since the start of the analysis, or a setting is
    /// invalid for this consensus.
    pub fn analyse(&self, unit: &Unit) -> Result<UnitResult, String> {
        self.load(&unit.consensus)?;
        let current = self.current.borrow();
        let (_, listed) = current.as_ref().ok_or("this is a bug: no consensus was loaded")?;
        let outcome = self.outcome(listed, &unit.analysis)?;
        let listing = Listing::of(&unit.consensus, listed);
        Ok(UnitResult { unit: unit.id(), listing, outcome })
    }

    fn load(&self, name: &str) -> Result<(), String> {
        let mut current = self.current.borrow_mut();
        if current.as_ref().is_some_and(|(loaded, _)| loaded == name) {
            return Ok(());
        }
        let known = self.settings.consensuses.iter().find(|one| one.name == name);
        let known = known.ok_or_else(|| {
            format!(
                "the experiment's folder has results for the consensus {name}: give the file of \
                 that consensus, too, with --consensus"
            )
        })?;
        let (now, listed) = open(&known.file, known.hour.as_deref(), self.read)?;
        if now != *known {
            return Err(format!(
                "{}: the file has changed since the experiment started; restore it, and run the \
                 command again",
                known.file.display()
            ));
        }
        *current = Some((name.to_owned(), listed));
        Ok(())
    }

    fn outcome(&self, listed: &ListedConsensus, analysis: &Analysis) -> Result<Outcome, String> {
        let weights: Vec<u64> =
            entries(&listed.network).iter().map(|(_, weight)| *weight).collect();
        let params = |in_use: usize| GuardParams {
            primary_to_use: in_use,
            ..listed.network.params().guards.clone()
        };
        let to_error = |error: anabranch_anonymity::BadSetting| error.to_string();
        match analysis {
            Analysis::Paths { share, legs } => {
                let draws = draw(&listed.network, &self.paths(*share, *legs), 0..self.draws());
                Ok(Outcome::Paths { share: *share, draws: draws.map_err(to_error)? })
            }
            Analysis::Year { variant, clients, draws, in_use } => {
                let year = self.settings.year(variant, clients.end);
                let part = Part { clients: clients.clone(), draws: draws.clone() };
                let tallies = tally(&weights, &params(*in_use), &year, &part).map_err(to_error)?;
                let (variant, days) = (variant.name.to_owned(), year.days);
                Ok(Outcome::Year { variant, in_use: *in_use, days, tallies })
            }
            Analysis::Fingerprints { in_use } => {
                let rows = fingerprints(&weights, &params(*in_use), &self.fingerprints());
                Ok(Outcome::Fingerprints { in_use: *in_use, rows: rows.map_err(to_error)? })
            }
        }
    }

    fn draws(&self) -> u64 {
        self.settings.draws as u64
    }

    fn paths(&self, share: f64, legs: usize) -> PathSettings {
        PathSettings {
            entry_share: share,
            exit_share: share,
            spread: Spread::Random,
            legs,
            port: PORT,
            circuits: self.settings.circuits,
            draws: self.draws(),
            seed: self.settings.seed,
            workers: Workers { threads: self.settings.threads, run: share_out },
        }
    }

    fn fingerprints(&self) -> FingerprintSettings {
        FingerprintSettings {
            clients: self.settings.fingerprints,
            legs: 3,
            draws: self.settings.populations,
            seed: self.settings.seed,
            workers: Workers { threads: self.settings.threads, run: share_out },
        }
    }
}

//! The anonymity analysis of consensuses: the share of multi-path clients that hostile relays
//! compromise. Python users call it through `anabranch.anonymity`.

use anabranch_anonymity::consensus::{ListedConsensus, decode};
use anabranch_anonymity::figures::Band;
use anabranch_anonymity::fingerprints::{FingerprintSettings, Sharing};
use anabranch_anonymity::hostile::Spread;
use anabranch_anonymity::paths::{Chance, PathRow, PathSettings};
use anabranch_anonymity::population::entries;
use anabranch_anonymity::year::{self, Adversary, CompromisedShares, YearSettings};
use anabranch_anonymity::{Workers, fingerprints, paths};
use anabranch_onion::guards::GuardParams;
use anabranch_os::threads::share_out;
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;

use crate::split::refuse;

/// A one-dimensional array of fractions. The Python code gives it the dimensions that the types
/// below describe.
type Flat<'py> = Bound<'py, PyArray1<f64>>;
/// Result of the Python function `paths`, which computes the probabilities that hostile relays
/// compromise a stream. "Rows" are the numbers of circuits per stream, from 1. "Kinds" are the
/// kinds of compromise in [`PathRow`]: any, all, merge, entries. `closed` is the probability of
/// compromise by the closed formula. `drawn` is the share of simulated sets of circuits that were
/// compromised. `low` and `high` are the bounds of the 95 % interval of `drawn`. The elements are:
///
/// * the adversary's share of entries, exits and middles, and its number of relays
/// * probabilities of compromise: rows × kinds × (closed, drawn, low, high)
/// * shares of sets of circuits by their number of hostile entries: rows × (1 + most circuits)
/// * shares of bytes that hostile entries see: rows
/// * numbers of sets of circuits that were built and that could not be built: rows × (built, not
///   built)
type Paths<'py> = ((f64, f64, f64, f64), Flat<'py>, Flat<'py>, Flat<'py>, Vec<(u64, u64)>);
/// Result of the Python function `year`, which simulates how many clients hostile relays
/// compromise in the course of a year. "Rows" are 1, 2 and 3 circuits per stream, and clients that
/// are a mixture of these three ([`year::rows`]). "Kinds" are the fields of [`CompromisedShares`].
/// `any` means at least one hostile entry. `all` means at least `m` hostile entries at the same
/// time, where `m` is the number of circuits per stream. `now` refers to one day of the year, and
/// `ever` to any time until that day. `low` and `high` are the 5 % and 95 % quantiles over the
/// random adversaries. The elements are:
///
/// * guards in use: rows (`None` for the mixture)
/// * number of different guards: rows
/// * shares of compromised clients: rows × days × kinds × (mean, low, high)
/// * shares of compromised clients for each random adversary: adversaries × days × (1, 2 and 3
///   circuits) × kinds
type Year<'py> = (Vec<Option<usize>>, Vec<f64>, Flat<'py>, Flat<'py>);
/// Result of the Python function `fingerprints`, which determines how many clients have the same
/// set of guards. "Rows" are the numbers of circuits per stream. The measures are the fields of
/// [`Sharing`], in the order of `measures`. `low` and `high` are the 5 % and 95 % quantiles over
/// the random draws. The elements are:
///
/// * guards in use: rows
/// * number of clients per set of guards, by the formula of "Analysis of Multi-path Onion
///   Routing", section 6.2: rows
/// * measures of how many clients share a set of guards, first if each client draws its own
///   guards, then if the sets are fixed: rows × (drawn, fixed) × measures × (mean, low, high)
type Fingerprints<'py> = (Vec<usize>, Vec<f64>, Flat<'py>);

/// A consensus of the Tor network in memory.
#[pyclass(frozen, module = "anabranch._core")]
pub(crate) struct Consensus {
    listed: ListedConsensus,
}

#[pymethods]
impl Consensus {
    /// Reads a consensus from the bytes of a file: a document of the directory protocol or a table
    /// (`docs/formats.md`).
    #[new]
    fn new(py: Python<'_>, data: &[u8]) -> PyResult<Consensus> {
        py.detach(|| decode(data)).map(|listed| Consensus { listed }).map_err(refuse)
    }

    /// Start of the consensus's validity (`valid-after`), in seconds since 1970.
    #[getter]
    fn valid_after(&self) -> u64 {
        self.listed.network.consensus().valid_after
    }

    /// Number of relays in the consensus.
    #[getter]
    fn relays(&self) -> usize {
        self.listed.network.relays().count()
    }

    #[getter]
    fn has_policies(&self) -> bool {
        self.listed.has_policies
    }

    #[getter]
    fn has_families(&self) -> bool {
        self.listed.has_families
    }

    /// Number of guards (first relays) that a client with one circuit per stream uses at a time.
    #[getter]
    fn guards_in_use(&self) -> usize {
        self.listed.network.params().guards.primary_to_use
    }

    /// Returns the bandwidth weights (uint64) of the relays that clients may choose as entries
    /// (first relays). Relays with the weight 0 are left out.
    fn entry_weights<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u64>> {
        self.weights().into_pyarray(py)
    }

    #[pyo3(signature = (entries, exits, heaviest, legs, port, circuits, draws, seed, threads))]
    #[expect(clippy::too_many_arguments, reason = "settings by name")]
    fn paths<'py>(
        &self,
        py: Python<'py>,
        entries: f64,
        exits: f64,
        heaviest: bool,
        legs: usize,
        port: u16,
        circuits: u64,
        draws: u64,
        seed: u64,
        threads: usize,
    ) -> PyResult<Paths<'py>> {
        let (entry_share, exit_share, spread) = (entries, exits, spread(heaviest));
        let settings = PathSettings {
            entry_share,
            exit_share,
            spread,
            legs,
            port,
            circuits,
            draws,
            seed,
            workers: Workers { threads, run: share_out },
        };
        let drawn = py.detach(|| paths::paths(&self.listed.network, &settings));
        let (holding, rows) = drawn.map_err(refuse)?;
        let most = rows.len() + 1;
        let seen = rows.iter().flat_map(|row| padded(&row.hostile_entries, most));
        Ok((
            (holding.entry, holding.exit, holding.middle, holding.relays),
            rows.iter().flat_map(chances).collect::<Vec<f64>>().into_pyarray(py),
            seen.collect::<Vec<f64>>().into_pyarray(py),
            rows.iter().map(|row| row.bytes).collect::<Vec<f64>>().into_pyarray(py),
            rows.iter().map(|row| (row.circuits, row.unbuilt)).collect(),
        ))
    }

    #[pyo3(signature = (
        clients, draws, share, adds, heaviest, churn, hostile_churn, days, in_use, seed, threads
    ))]
    #[expect(clippy::too_many_arguments, reason = "settings by name")]
    fn year<'py>(
        &self,
        py: Python<'py>,
        clients: usize,
        draws: usize,
        share: f64,
        adds: Option<usize>,
        heaviest: bool,
        churn: Option<f64>,
        hostile_churn: bool,
        days: Vec<u64>,
        in_use: Option<usize>,
        seed: u64,
        threads: usize,
    ) -> PyResult<Year<'py>> {
        let adversary = adds.map_or(Adversary::Replaces(spread(heaviest)), Adversary::Adds);
        let settings = YearSettings {
            clients,
            draws,
            share,
            adversary,
            churn,
            hostile_churn,
            days,
            seed,
            workers: Workers { threads, run: share_out },
        };
        let params = self.params(in_use);
        let whole = settings.whole();
        let tallies = py.detach(|| year::tally(&self.weights(), &params, &settings, &whole));
        let tallies = tallies.map_err(refuse)?;
        let rows = year::rows(&params, &tallies);
        let bands = rows.iter().flat_map(|row| &row.at).flat_map(kinds).flat_map(band);
        let shares = tallies.iter().flat_map(|tally| {
            let clients = tally.clients as f64;
            tally.compromised.iter().flatten().flatten().map(move |count| *count as f64 / clients)
        });
        Ok((
            rows.iter().map(|row| row.in_use).collect(),
            rows.iter().map(|row| row.guards).collect(),
            bands.collect::<Vec<f64>>().into_pyarray(py),
            shares.collect::<Vec<f64>>().into_pyarray(py),
        ))
    }

    #[pyo3(signature = (clients, legs, draws, in_use, seed, threads))]
    #[expect(clippy::too_many_arguments, reason = "settings by name")]
    fn fingerprints<'py>(
        &self,
        py: Python<'py>,
        clients: usize,
        legs: usize,
        draws: usize,
        in_use: Option<usize>,
        seed: u64,
        threads: usize,
    ) -> PyResult<Fingerprints<'py>> {
        let workers = Workers { threads, run: share_out };
        let settings = FingerprintSettings { clients, legs, draws, seed, workers };
        let params = self.params(in_use);
        let drawn = py.detach(|| fingerprints::fingerprints(&self.weights(), &params, &settings));
        let rows = drawn.map_err(refuse)?;
        let sharings = rows.iter().flat_map(|row| [&row.own, &row.fixed]);
        let bands = sharings.flat_map(measures).flat_map(band);
        Ok((
            rows.iter().map(|row| row.in_use).collect(),
            rows.iter().map(|row| row.formula).collect(),
            bands.collect::<Vec<f64>>().into_pyarray(py),
        ))
    }
}

impl Consensus {
    fn weights(&self) -> Vec<u64> {
        entries(&self.listed.network).into_iter().map(|(_, weight)| weight).collect()
    }

    fn params(&self, in_use: Option<usize>) -> GuardParams {
        let params = self.listed.network.params().guards.clone();
        GuardParams { primary_to_use: in_use.unwrap_or(params.primary_to_use), ..params }
    }
}

/// Returns two probabilities for a stream over `legs` circuits, whose relays are drawn
/// independently. The first is that the common exit and at least one entry are hostile. The second
/// is that the exit and all entries are hostile. Each entry is hostile with the probability
/// `entry`, and the exit with the probability `exit`.
#[pyfunction]
pub(crate) fn closed_form(entry: f64, exit: f64, legs: usize) -> (f64, f64) {
    paths::closed_form(entry, exit, legs)
}

fn spread(heaviest: bool) -> Spread {
    if heaviest { Spread::Heaviest } else { Spread::Random }
}

fn chances(row: &PathRow) -> Vec<f64> {
    let all = [row.any, row.all, row.merge_point, row.entries];
    let of = |Chance { closed, drawn }| [closed, drawn.value, drawn.low, drawn.high];
    all.into_iter().flat_map(of).collect()
}

fn padded(shares: &[f64], most: usize) -> Vec<f64> {
    let mut all = shares.to_vec();
    all.resize(most, 0.0);
    all
}

fn kinds(at: &CompromisedShares) -> [Band; 4] {
    [at.any_ever, at.all_ever, at.any_now, at.all_now]
}

fn measures(of: &Sharing) -> [Band; 6] {
    [of.over_sets, of.over_clients, of.median, of.unique, of.largest, of.effective]
}

fn band(band: Band) -> [f64; 3] {
    [band.mean, band.low, band.high]
}

//! Splitting of many recorded page loads over network paths in one call.

use std::fmt::Display;
use std::ops::Range;
use std::str::FromStr;

use anabranch_multipath::trace::{self, Delay, Entity, TraceError};
use anabranch_multipath::{Jitter, seed};
use numpy::{Element, IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Settings for splitting traces. Python users set them through `anabranch.splitting.Split`.
///
/// The packets of all page loads are concatenated in flat arrays: page load k has the packets from
/// `offsets[k]` up to, but not including, `offsets[k + 1]`.
#[pyclass(frozen, module = "anabranch._core")]
pub(crate) struct TraceSplit {
    core: trace::TraceSplit,
}

/// Packets in the order in which an observer sees them: indices in the flat arrays, and times in
/// seconds.
type ObservedOrder<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<f64>>);

/// Packets that one end sends: their times in seconds, sizes in bytes, and path indices.
type Sent<'py> = (Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<i32>>, Bound<'py, PyArray1<i16>>);

#[pymethods]
impl TraceSplit {
    /// Creates the settings of a split. `mode` states how the server chooses paths. With
    /// "together", one schedule serves both directions. With "independent", each direction has its
    /// own schedule. With "follow:20ms", the server uses the path of the newest client packet that
    /// has reached it. A packet reaches the server 20 ms plus the path's uplink delay after it was
    /// sent. "follow" means "follow:20ms".
    ///
    /// `delays` has (up, down) in seconds for each path; None means no delays. `draw` states when
    /// the schedule draws its probabilities: for each page load ("load"), for every 20 page loads
    /// ("session:20"), or after each silence of at least 1 s ("silence:1s").
    #[new]
    #[pyo3(signature = (schedule, every, paths, mode="together", seed=0, delays=None, draw="load"))]
    fn new(
        schedule: &str,
        every: &str,
        paths: usize,
        mode: &str,
        seed: u64,
        delays: Option<Vec<(f64, f64)>>,
        draw: &str,
    ) -> PyResult<TraceSplit> {
        let spec = schedule.parse().map_err(|error| named("schedule", error))?;
        let every = every.parse().map_err(|error| named("every", error))?;
        let mode = mode.parse().map_err(|error| named("mode", error))?;
        let draw = draw.parse().map_err(|error| named("draw", error))?;
        let plan = trace::TraceSplit::new(spec, every, paths, mode, seed);
        let plan = plan.map(|plan| plan.drawn(draw));
        let core = match delays {
            Some(delays) => {
                let delays = delays.into_iter().map(|(up, down)| Delay { up, down }).collect();
                plan.and_then(|plan| plan.delayed(delays))
            }
            None => plan,
        };
        let setting = |error: &TraceError| match error {
            TraceError::Paths(_) => "paths",
            TraceError::Delays(..) | TraceError::Delay(_) => "delays",
            _ => "schedule",
        };
        Ok(TraceSplit { core: core.map_err(|error| named(setting(&error), error))? })
    }

    /// Splits each page load, and returns the path of each packet (int16). Each value of `replica`
    /// gives another random split of the same page loads.
    ///
    /// `load` (int64) has the number of each page load, and `run` (int32) the number of the
    /// experiment's repetition that the page load belongs to. `offsets` (int64) has the position
    /// of each page load's first packet in the flat arrays, and finally the end of the last page
    /// load. `times` (float64, seconds) and `sizes` (int32, + up, - down) have the time and the
    /// size of each packet.
    #[pyo3(signature = (load, run, offsets, times, sizes, replica=0))]
    #[expect(clippy::too_many_arguments, reason = "columns of one table")]
    fn assign<'py>(
        &self,
        py: Python<'py>,
        load: PyReadonlyArray1<'py, i64>,
        run: PyReadonlyArray1<'py, i32>,
        offsets: PyReadonlyArray1<'py, i64>,
        times: PyReadonlyArray1<'py, f64>,
        sizes: PyReadonlyArray1<'py, i32>,
        replica: u32,
    ) -> PyResult<Bound<'py, PyArray1<i16>>> {
        let (load, run) = (flat(&load)?, flat(&run)?);
        let (times, sizes) = (flat(&times)?, flat(&sizes)?);
        let bounds = bounds(flat(&offsets)?, &[times.len(), sizes.len()])?;
        if load.len() != bounds.len() || run.len() != bounds.len() {
            return Err(PyValueError::new_err("load and run: give one value for each load"));
        }
        let names = load.iter().zip(run).map(|(&load, &run)| Entity { load, run, replica });
        let work: Vec<(Entity, Range<usize>)> = names.zip(bounds).collect();
        let paths = py.detach(|| self.assign_all(work, times, sizes))?;
        Ok(paths.into_pyarray(py))
    }

    /// Applies the delays of the paths. Returns the order (int64, indices into the flat arrays) in
    /// which an observer sees the packets of each page load, and the times (float64, seconds) at
    /// which they are seen. `paths` (int16) is the result of `assign`.
    fn delay<'py>(
        &self,
        py: Python<'py>,
        offsets: PyReadonlyArray1<'py, i64>,
        times: PyReadonlyArray1<'py, f64>,
        sizes: PyReadonlyArray1<'py, i32>,
        paths: PyReadonlyArray1<'py, i16>,
    ) -> PyResult<ObservedOrder<'py>> {
        let (times, sizes, paths) = (flat(&times)?, flat(&sizes)?, flat(&paths)?);
        let bounds = bounds(flat(&offsets)?, &[times.len(), sizes.len(), paths.len()])?;
        if let Some(path) = paths.iter().find(|&&path| !self.has(path)) {
            return Err(PyValueError::new_err(format!("paths: this split has no path {path}")));
        }
        let (order, seen) = py.detach(|| self.delay_all(bounds, times, sizes, paths));
        Ok((order.into_pyarray(py), seen.into_pyarray(py)))
    }
}

/// Returns the times (float64, seconds) at which packets of one direction leave one end of a split
/// session. This end delays each packet by a random time from the range `jitter`, such as
/// `0-20ms`.
///
/// `times` (float64, seconds, sorted) and `sizes` (int32, signed bytes) have the time and the size
/// of each arriving packet.
#[pyfunction]
pub(crate) fn delayed<'py>(
    py: Python<'py>,
    jitter: &str,
    seed: u64,
    times: PyReadonlyArray1<'py, f64>,
    sizes: PyReadonlyArray1<'py, i32>,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let (times, sizes) = (flat(&times)?, flat(&sizes)?);
    let jitter = text(jitter)?;
    let stream = seed::stream(seed, 0, "trace jitter");
    let left = py.detach(|| trace::delayed(jitter, stream, times, sizes)).map_err(refuse)?;
    Ok(left.into_pyarray(py))
}

/// Returns the mean of the random delay that `jitter` gives a packet, in seconds.
#[pyfunction]
pub(crate) fn mean_delay(jitter: &str) -> PyResult<f64> {
    let jitter: Jitter = text(jitter)?;
    Ok(jitter.mean().as_secs_f64())
}

/// Returns the decoys (dummy packets) that one end sends in addition to the packets of a page
/// load. The result has their times (float64, seconds), bytes (int32) and paths (int16), in order
/// of time.
///
/// `budget` has the syntax of `anabranch split --decoys`. `times` (float64, seconds, sorted),
/// `sizes` (int32, signed bytes) and `at` (int16, paths from 0 to `paths` - 1) describe the
/// packets of the page load.
#[pyfunction]
pub(crate) fn decoys<'py>(
    py: Python<'py>,
    budget: &str,
    seed: u64,
    paths: usize,
    times: PyReadonlyArray1<'py, f64>,
    sizes: PyReadonlyArray1<'py, i32>,
    at: PyReadonlyArray1<'py, i16>,
) -> PyResult<Sent<'py>> {
    let packets = (flat(&times)?, flat(&sizes)?, flat(&at)?);
    let budget = text(budget)?;
    let stream = seed::stream(seed, 0, "trace decoys");
    let sent = py.detach(|| trace::decoys(budget, stream, paths, packets)).map_err(refuse)?;
    let times: Vec<f64> = sent.iter().map(|decoy| decoy.time).collect();
    let bytes: Vec<i32> = sent.iter().map(|decoy| decoy.bytes).collect();
    let at: Vec<i16> = sent.iter().map(|decoy| decoy.path).collect();
    Ok((times.into_pyarray(py), bytes.into_pyarray(py), at.into_pyarray(py)))
}

impl TraceSplit {
    fn has(&self, path: i16) -> bool {
        usize::try_from(path).is_ok_and(|path| path < self.core.paths())
    }

    fn assign_all(
        &self,
        work: Vec<(Entity, Range<usize>)>,
        times: &[f64],
        sizes: &[i32],
    ) -> PyResult<Vec<i16>> {
        let mut paths = vec![0; times.len()];
        for (entity, packets) in work {
            let out = &mut paths[packets.clone()];
            let done = self.core.assign(entity, &times[packets.clone()], &sizes[packets], out);
            done.map_err(|error| {
                refuse(format!("page load {} of run {}: {error}", entity.load, entity.run))
            })?;
        }
        Ok(paths)
    }

    fn delay_all(
        &self,
        bounds: Vec<Range<usize>>,
        times: &[f64],
        sizes: &[i32],
        paths: &[i16],
    ) -> (Vec<i64>, Vec<f64>) {
        let (mut order, mut seen) =
            (Vec::with_capacity(times.len()), Vec::with_capacity(times.len()));
        for packets in bounds {
            let of = packets.clone();
            let (own, at) = self.core.delay(&times[of.clone()], &sizes[of.clone()], &paths[of]);
            order.extend(own.into_iter().map(|place| packets.start as i64 + i64::from(place)));
            seen.extend(at);
        }
        (order, seen)
    }
}

fn flat<'a, T: Element>(array: &'a PyReadonlyArray1<'_, T>) -> PyResult<&'a [T]> {
    array.as_slice().map_err(refuse)
}

/// Returns, for each page load, the range of its packets in the flat arrays. `lengths` are the
/// lengths of these arrays, which must be equal.
fn bounds(offsets: &[i64], lengths: &[usize]) -> PyResult<Vec<Range<usize>>> {
    let place = |&offset: &i64| usize::try_from(offset).ok();
    let places: Option<Vec<usize>> = offsets.iter().map(place).collect();
    let places = places.unwrap_or_default();
    let rises = places.windows(2).all(|pair| pair[0] <= pair[1]);
    if !rises || places.first() != Some(&0) {
        return Err(PyValueError::new_err("offsets: must begin with 0 and never decrease"));
    }
    if lengths.iter().any(|length| Some(length) != places.last()) {
        return Err(PyValueError::new_err(
            "offsets: must end with the number of packets, which must be the length of every \
             array",
        ));
    }
    Ok(places.windows(2).map(|pair| pair[0]..pair[1]).collect())
}

/// Makes a `ValueError` for an invalid setting, with the setting's name.
fn named(setting: &str, error: impl Display) -> PyErr {
    PyValueError::new_err(format!("{setting}: {error}"))
}

/// Parses a Rust value, such as a scheduler, from the notation of the command line.
pub(crate) fn text<T: FromStr<Err: Display>>(text: &str) -> PyResult<T> {
    text.parse().map_err(refuse)
}

/// Converts an error of the Rust code to a `ValueError`.
pub(crate) fn refuse(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

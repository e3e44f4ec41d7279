//! Random draws of a scheduler without recorded traffic: the paths that it chooses, and the
//! lengths of runs. A run is a sequence of consecutive packets on one path.

use anabranch_multipath::schedule::Spec;
use anabranch_multipath::{Boundary, Every, PathView, Time, seed};
use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::split::{refuse, text};

/// Draws the paths of the first `runs` runs of a session over `paths` open paths. A run is a
/// sequence of consecutive packets on one path. Returns the indices of the paths (int16).
#[pyfunction]
#[pyo3(signature = (schedule, paths, runs, seed, entity=0))]
pub(crate) fn draw_paths<'py>(
    py: Python<'py>,
    schedule: &str,
    paths: usize,
    runs: usize,
    seed: u64,
    entity: u64,
) -> PyResult<Bound<'py, PyArray1<i16>>> {
    if !(1..=anabranch_multipath::trace::MOST_PATHS).contains(&paths) {
        return Err(refuse(anabranch_multipath::trace::TraceError::Paths(paths)));
    }
    let spec: Spec = text(schedule)?;
    let mut scheduler =
        spec.build(paths, seed::stream(seed, entity, "scheduler")).map_err(refuse)?;
    let views = vec![PathView::open(); paths];
    let path = |_| scheduler.choose(Time::ZERO, &views).map_or(-1, |path| path.0 as i16);
    Ok((0..runs).map(path).collect::<Vec<_>>().into_pyarray(py))
}

/// Draws the lengths of `runs` runs (sequences of consecutive packets on one path). `every` is the
/// length or range of lengths in packets, such as `50p`. Returns the lengths in packets (uint64).
#[pyfunction]
#[pyo3(signature = (every, runs, seed, entity=0))]
pub(crate) fn draw_run_packets<'py>(
    py: Python<'py>,
    every: &str,
    runs: usize,
    seed: u64,
    entity: u64,
) -> PyResult<Bound<'py, PyArray1<u64>>> {
    let every = text(every)?;
    if !matches!(every, Every::Packets { .. } | Every::PacketRange { .. }) {
        return Err(PyValueError::new_err(format!(
            "'{every}' is not a number of packets between changes of the path: write one such as \
             50p or 50-70p"
        )));
    }
    let mut boundary = Boundary::new(every, seed::stream(seed, entity, "boundary"));
    let length = |_| {
        boundary.begin(Time::ZERO);
        boundary.packets_left()
    };
    Ok((0..runs).map(length).collect::<Vec<_>>().into_pyarray(py))
}

/// Draws the lengths of `runs` runs (sequences of consecutive packets on one path). `every` is the
/// length or range of lengths in time, such as `20ms`. Returns the lengths in seconds (float64).
/// With `grow:`, runs become longer in the course of a page load. In this case, each result is the
/// length of a load's first run.
#[pyfunction]
#[pyo3(signature = (every, runs, seed, entity=0))]
pub(crate) fn draw_run_seconds<'py>(
    py: Python<'py>,
    every: &str,
    runs: usize,
    seed: u64,
    entity: u64,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let every = text(every)?;
    if !matches!(every, Every::Time { .. } | Every::TimeRange { .. } | Every::Growing { .. }) {
        return Err(PyValueError::new_err(format!(
            "'{every}' is not a time between changes of the path: write one such as 20ms"
        )));
    }
    let mut boundary = Boundary::new(every, seed::stream(seed, entity, "boundary"));
    let length = |_| {
        boundary.begin(Time::ZERO);
        boundary.ends().secs_f64()
    };
    Ok((0..runs).map(length).collect::<Vec<_>>().into_pyarray(py))
}

//! The Python module `anabranch._core`: the schedulers and the trace splitter of
//! `anabranch-multipath`, simulations of Maybenot, the anonymity analysis, and the convolutions of
//! MiniRocket (an attack that classifies page loads).
//!
//! The module only converts arguments and results. Arrays are one-dimensional, contiguous NumPy
//! arrays. Each error of the Rust crates becomes a `ValueError` with the error's message.
//! Splitting a trace releases the interpreter lock.

mod anonymity;
mod convolutions;
mod draws;
mod maybenot;
mod split;

use anabranch_multipath::schedule::without_windows;
use pyo3::prelude::*;

/// Description of a family of schedulers: its name, its syntax, a line of help, and the run length
/// (consecutive packets on one path) with which it was published, or `None`.
type Described = (&'static str, &'static str, &'static str, Option<&'static str>);

/// Maximum time of a packet that Python passes to this module, in seconds. Unix times (seconds
/// since 1970) are below this maximum. The maximum prevents overflows: sums of such times fit
/// 32-bit floats and a `Duration`.
const LATEST: f64 = 1e10;

/// The Python module `anabranch._core`. Its type stubs are in `lab/src/anabranch/_core.pyi`.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    maybenot::hush_caught_panics();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("MOST_PATHS", anabranch_multipath::trace::MOST_PATHS)?;
    module.add("LATEST", LATEST)?;
    module.add("DEFAULT_SCHEDULE", anabranch_comps::SCHEDULE)?;
    module.add("DEFAULT_EVERY", anabranch_comps::EVERY)?;
    module.add_class::<split::TraceSplit>()?;
    module.add_function(wrap_pyfunction!(split::decoys, module)?)?;
    module.add_function(wrap_pyfunction!(split::delayed, module)?)?;
    module.add_function(wrap_pyfunction!(split::mean_delay, module)?)?;
    module.add_function(wrap_pyfunction!(families, module)?)?;
    module.add_function(wrap_pyfunction!(draws::draw_paths, module)?)?;
    module.add_function(wrap_pyfunction!(draws::draw_run_packets, module)?)?;
    module.add_function(wrap_pyfunction!(draws::draw_run_seconds, module)?)?;
    module.add_function(wrap_pyfunction!(convolutions::slots_above, module)?)?;
    module.add_class::<anonymity::Consensus>()?;
    module.add_function(wrap_pyfunction!(anonymity::closed_form, module)?)?;
    module.add_function(wrap_pyfunction!(maybenot::maybenot_check, module)?)?;
    module.add_function(wrap_pyfunction!(maybenot::maybenot_defend, module)?)
}

/// Lists the families of schedulers that need no congestion windows, as (name, syntax, help,
/// published run length or None).
#[pyfunction]
fn families() -> Vec<Described> {
    let describe = |family: &anabranch_multipath::schedule::Family| {
        (family.name, family.syntax, family.about, family.every)
    };
    without_windows().map(describe).collect()
}

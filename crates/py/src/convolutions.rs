//! Convolutions of packet counts per time slot, for the classifier MiniRocket (Dempster, Schmidt
//! and Webb, KDD 2021). Its kernels have nine taps (coefficients): three of weight 2, six of
//! weight -1. The functions count the time slots with a result above each threshold in one pass
//! over memory; NumPy needs a dozen passes.

use std::collections::BTreeMap;

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Number of taps (coefficients) of a convolution kernel. `HEAVY` of them have weight 2, the
/// others weight -1.
const TAPS: usize = 9;
/// Number of taps (coefficients) with weight 2 in a convolution kernel.
const HEAVY: usize = 3;
/// Number of thresholds with which each result of a convolution kernel is compared.
const THRESHOLDS: usize = 4;

/// A convolution kernel: the taps with weight 2, and the thresholds for its results.
struct Kernel {
    /// Index of the kernel in the arrays that Python passes, and of the kernel's counts in the
    /// result.
    place: usize,
    heavy: [usize; HEAVY],
    thresholds: [f32; THRESHOLDS],
}

/// Convolution kernels, grouped by channel and dilation (distance between adjacent taps). All
/// kernels of a group read the same nine values at each time slot.
struct Kernels {
    by_taps: BTreeMap<(usize, usize), Vec<Kernel>>,
    count: usize,
}

impl Kernels {
    fn new(
        heavy: &[i64],
        dilations: &[i64],
        channels: &[i64],
        thresholds: &[f32],
        (most_channels, slots): (usize, usize),
    ) -> Result<Kernels, &'static str> {
        let count = dilations.len();
        let sizes = [heavy.len(), channels.len(), thresholds.len()];
        if sizes != [count * HEAVY, count, count * THRESHOLDS] {
            return Err(
                "for each kernel, give three values of `heavy`, one of `dilations`, one of \
                 `of_channels` and four of `thresholds`",
            );
        }
        let mut kernels = Kernels { by_taps: BTreeMap::new(), count };
        for place in 0..count {
            let within =
                |value: i64, most: usize| usize::try_from(value).ok().filter(|value| *value < most);
            let mut taps = [0; HEAVY];
            for (tap, given) in taps.iter_mut().zip(&heavy[place * HEAVY..]) {
                *tap = within(*given, TAPS)
                    .ok_or("`heavy`: each value must be a number from 0 to 8")?;
            }
            let channel = within(channels[place], most_channels)
                .ok_or("`of_channels`: each value must be the index of a channel")?;
            let dilation = within(dilations[place], slots.max(2)).filter(|dilation| *dilation > 0);
            let dilation =
                dilation.ok_or("each dilation must be at least 1 and less than `slots`")?;
            let mut levels = [0.0; THRESHOLDS];
            levels.copy_from_slice(&thresholds[place * THRESHOLDS..][..THRESHOLDS]);
            let kernel = Kernel { place, heavy: taps, thresholds: levels };
            kernels.by_taps.entry((channel, dilation)).or_default().push(kernel);
        }
        Ok(kernels)
    }

    /// Counts, for each kernel and threshold, the time slots with a result above the threshold.
    /// `sequence` has one row per channel and one column per time slot. Stores the counts in
    /// `out`, ordered by kernel.
    fn count(&self, sequence: &[f32], slots: usize, scratch: &mut Scratch, out: &mut [f64]) {
        for (&(channel, dilation), kernels) in &self.by_taps {
            let row = &sequence[channel * slots..][..slots];
            scratch.spread(row, dilation);
            for kernel in kernels {
                let counts = scratch.above(kernel, slots, dilation);
                let to = &mut out[kernel.place * THRESHOLDS..][..THRESHOLDS];
                to.iter_mut().zip(counts).for_each(|(to, count)| *to = f64::from(count));
            }
        }
    }
}

/// Reusable buffers for the convolutions of one channel (values per time slot) with one dilation.
#[derive(Default)]
struct Scratch {
    /// Input of the convolutions: values per time slot, padded on both sides with zeros by half of
    /// the kernel's width.
    wide: Vec<f32>,
    /// Sum of the nine values that a kernel reads, for each time slot from `first` to `end`. At
    /// other time slots the sum is zero.
    total: Vec<f32>,
    first: usize,
    end: usize,
}

impl Scratch {
    fn spread(&mut self, row: &[f32], dilation: usize) {
        let (slots, reach) = (row.len(), dilation * (TAPS / 2));
        let busy = |count: &f32| *count != 0.0;
        let from = row.iter().position(busy).unwrap_or(slots);
        let to = row.iter().rposition(busy).map_or(from, |last| last + 1);
        self.first = from.saturating_sub(reach).min(slots);
        self.end = if from < to { (to + reach).min(slots) } else { self.first };
        self.wide.clear();
        self.wide.resize(slots + 2 * reach, 0.0);
        self.wide[reach..reach + slots].copy_from_slice(row);
        self.total.clear();
        self.total.resize(self.end - self.first, 0.0);
        for tap in 0..TAPS {
            let shifted = self.wide[tap * dilation + self.first..].iter();
            self.total.iter_mut().zip(shifted).for_each(|(sum, count)| *sum += count);
        }
    }

    /// Counts the time slots at which the result of `kernel` is above each threshold. `dilation`
    /// is the distance in slots between two adjacent taps (coefficients). Adds in the same order
    /// as NumPy does for `3 * (a + b + c) - sum`, so that both have bit-identical results.
    fn above(&self, kernel: &Kernel, slots: usize, dilation: usize) -> [u32; THRESHOLDS] {
        let length = self.end - self.first;
        let [a, b, c] = kernel.heavy.map(|tap| &self.wide[tap * dilation + self.first..][..length]);
        let total = &self.total[..length];
        let [one, two, three, four] = kernel.thresholds;
        let idle = (slots - length) as u32;
        let mut counts = kernel.thresholds.map(|level| if 0.0 > level { idle } else { 0 });
        for at in 0..length {
            let result = 3.0 * (a[at] + b[at] + c[at]) - total[at];
            counts[0] += u32::from(result > one);
            counts[1] += u32::from(result > two);
            counts[2] += u32::from(result > three);
            counts[3] += u32::from(result > four);
        }
        counts
    }
}

/// Convolves sequences with kernels of nine taps (coefficients), and counts the time slots at
/// which the result is above each threshold of a kernel. Returns float64 counts: sequences x
/// kernels x 4.
///
/// `series` (float32) is sequences x channels x slots. For each kernel, `heavy` has the three taps
/// of weight 2, numbered from 0 to 8. `dilations` has the distance in slots between two adjacent
/// taps of each kernel. `of_channels` has the channel of each kernel, and `thresholds` has four
/// thresholds for each kernel. Each channel is padded with zeros at both ends.
#[pyfunction]
#[pyo3(signature = (series, channels, slots, heavy, dilations, of_channels, thresholds))]
#[allow(clippy::too_many_arguments, reason = "the caller in Python passes one-dimensional arrays")]
pub(crate) fn slots_above<'py>(
    py: Python<'py>,
    series: PyReadonlyArray1<'py, f32>,
    channels: usize,
    slots: usize,
    heavy: PyReadonlyArray1<'py, i64>,
    dilations: PyReadonlyArray1<'py, i64>,
    of_channels: PyReadonlyArray1<'py, i64>,
    thresholds: PyReadonlyArray1<'py, f32>,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let series = series.as_slice()?;
    let size = channels.saturating_mul(slots).max(1);
    if series.len() % size != 0 {
        return Err(PyValueError::new_err("series: its length is no multiple of channels × slots"));
    }
    let (dilations, of_channels) = (dilations.as_slice()?, of_channels.as_slice()?);
    let (heavy, thresholds) = (heavy.as_slice()?, thresholds.as_slice()?);
    let kernels = Kernels::new(heavy, dilations, of_channels, thresholds, (channels, slots));
    let kernels = kernels.map_err(PyValueError::new_err)?;
    let counts = py.detach(|| {
        let each = kernels.count * THRESHOLDS;
        let mut scratch = Scratch::default();
        let mut counts = vec![0.0; series.len() / size * each];
        let sequences = series.chunks_exact(size);
        for (sequence, out) in sequences.zip(counts.chunks_exact_mut(each.max(1))) {
            kernels.count(sequence, slots, &mut scratch, out);
        }
        counts
    });
    Ok(counts.into_pyarray(py))
}

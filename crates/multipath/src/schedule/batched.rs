//! The scheduler "batched weighted random".

use super::{BuildResult, Family, weighted};
use crate::seed::Stream;

/// The scheduler family `batched[:ALPHA]`: syntax, help texts and default run length.
pub(super) const FAMILY: Family = Family {
    name: "batched",
    syntax: "batched[:ALPHA]",
    example: "batched",
    about: "like weighted, with runs of 50 to 70 packets (\"batched weighted random\" of the paper \
            TrafficSliver)",
    plain: "a path is chosen at random for each batch, with random probabilities that differ \
            between sessions",
    every: Some("50-70p"),
    needs_windows: false,
    build,
};

/// Builds TrafficSliver's scheduler "batched weighted random" (De la Cadena et al., CCS 2020,
/// "BWR").
///
/// The client draws probabilities from a Dirichlet distribution once per page load, as `weighted`
/// does. It draws a path for each batch of cells. The length of a batch is uniform from 50 to 70
/// cells. In this crate a batch is a run (consecutive units on one path), with the default length
/// `50-70p`. The middle node does the same for the other direction, with its own probabilities.
///
/// The published simulator draws a length for each cell, and ends a batch if that length divides
/// the number of cells sent. In that simulator the mean length is the same, but lengths vary more.
/// This function follows the paper's text.
fn build(argument: Option<&str>, paths: usize, stream: Stream) -> BuildResult {
    weighted::build_dirichlet(argument, paths, stream)
}

#[cfg(test)]
mod tests {
    use crate::schedule::Spec;
    use crate::seed::stream;
    use crate::{Assignment, Boundary, PathView, Splitter, Time};

    #[test]
    fn a_session_goes_in_batches_of_50_to_70() {
        let spec: Spec = "batched".parse().unwrap();
        let every = spec.family().every.unwrap().parse().unwrap();
        let mut splitter = Splitter::new(
            spec.build(3, stream(1, 0, "scheduler")).unwrap(),
            Boundary::new(every, stream(1, 0, "boundary")),
        );
        let batches =
            (0..500).map(|_| match splitter.assign(Time::ZERO, &[PathView::open(); 3], u64::MAX) {
                Assignment::Send { units, fresh: true, .. } => units,
                other => panic!("each batch is a fresh run, not {other:?}"),
            });
        let mut lengths: Vec<u64> = batches.collect();
        lengths.sort_unstable();
        assert_eq!((lengths[0], lengths[499]), (50, 70));
    }
}

//! A scheduler that draws random paths, with probabilities drawn for each session.

use rand::RngExt;
use rand::seq::SliceRandom;

use super::{BuildResult, Family, Weighted, no_argument};
use crate::seed::Stream;

/// The scheduler `hywf`: syntax, help texts and default run length.
pub(super) const FAMILY: Family = Family {
    name: "hywf",
    syntax: "hywf",
    example: "hywf",
    about: "a random path for each run of 20 packets on average. The probabilities of the paths \
            are drawn for each session (the method of the paper HyWF)",
    plain: "paths are chosen at random, with random probabilities that differ between sessions",
    every: Some("~20p"),
    needs_windows: false,
    build,
};

/// Builds HyWF (Henri et al., PoPETs 2020). A session draws a probability uniformly from 0 to 1.
/// Each run uses the first of two networks with this probability, and otherwise the second. Runs
/// have a random length with a mean of 20 packets (`~20p`, this family's own run length). Each
/// direction has its own draws.
///
/// The paper has two paths. For more paths, we cut the remaining probability uniformly, again and
/// again, and assign the pieces to the paths at random. For two paths this equals the paper's
/// draw.
fn build(argument: Option<&str>, paths: usize, mut stream: Stream) -> BuildResult {
    no_argument("hywf", argument)?;
    let chances = cut(paths, &mut stream);
    Ok(Box::new(Weighted::fixed(chances, stream)?))
}

/// Divides the probability 1 into `pieces` random parts (stick-breaking), and shuffles the parts.
fn cut(pieces: usize, stream: &mut Stream) -> Vec<f64> {
    let mut left = 1.0;
    let mut chances: Vec<f64> = (1..pieces)
        .map(|_| {
            let piece = left * stream.random::<f64>();
            left -= piece;
            piece
        })
        .collect();
    chances.push(left);
    chances.shuffle(stream);
    chances
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::stream;

    /// Returns the probabilities of path `path` in 4,000 sessions over `paths` paths, sorted.
    fn draws(paths: usize, path: usize) -> Vec<f64> {
        let draw = |session| cut(paths, &mut stream(1, session, "scheduler"))[path];
        let mut draws: Vec<f64> = (0..4_000).map(draw).collect();
        draws.sort_by(f64::total_cmp);
        draws
    }

    #[test]
    fn with_two_paths_the_chance_is_drawn_evenly_from_0_to_1() {
        let draws = draws(2, 0);
        let distance = |(rank, draw): (usize, &f64)| (draw - rank as f64 / 4_000.0).abs();
        let largest = draws.iter().enumerate().map(distance).fold(0.0, f64::max);
        assert!(largest < 1.95 / 4_000f64.sqrt(), "Kolmogorov-Smirnov at 1 in 1,000: {largest}");
    }

    #[test]
    fn no_path_is_favoured_and_the_chances_sum_to_1() {
        for path in 0..5 {
            let mean = draws(5, path).iter().sum::<f64>() / 4_000.0;
            assert!((mean - 0.2).abs() < 0.02, "path {path}: {mean}, standard error 0.004");
        }
        let sum: f64 = cut(5, &mut stream(1, 0, "scheduler")).iter().sum();
        assert!((sum - 1.0).abs() < 1e-12);
    }
}

//! Plans decoys (dummy packets) for a recorded page load that is split over several paths.

use super::{MOST_PATHS, TraceError, check, time};
use crate::seed::Stream;
use crate::{DecoyBudget, Decoys, PathId, Time};

/// A decoy: its time, bytes and path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decoy {
    /// Time in seconds, in the same time base as the `times` of the packets.
    pub time: f64,
    /// Size in bytes, without a sign: a decoy has the direction of the packets passed in.
    pub bytes: i32,
    /// Index of the path, from 0.
    pub path: i16,
}

/// Returns the decoys that one end of a tunnel sends in addition to its packets of a page load, in
/// the order of time. A real tunnel uses the same code with the same limits.
///
/// `times` are seconds, not negative and sorted. `sizes` are signed; their absolute values are
/// bytes. `at` is the path of each packet, less than `paths`.
///
/// # Errors
/// The errors of [`TraceSplit::assign`](super::TraceSplit::assign), or a packet's path is not less
/// than `paths`.
pub fn decoys(
    budget: DecoyBudget,
    stream: Stream,
    paths: usize,
    (times, sizes, at): (&[f64], &[i32], &[i16]),
) -> Result<Vec<Decoy>, TraceError> {
    check(times, sizes)?;
    if !(1..=MOST_PATHS).contains(&paths) {
        return Err(TraceError::Paths(paths));
    }
    if at.len() != times.len() {
        return Err(TraceError::Lengths(times.len(), at.len()));
    }
    let mut decoys = Decoys::new(budget, stream);
    let mut sent = Vec::new();
    for ((&seconds, &size), &path) in times.iter().zip(sizes).zip(at) {
        let now = time(seconds);
        send(&mut decoys, now, &mut sent);
        let path = usize::try_from(path).ok().filter(|path| *path < paths);
        let path = PathId::at(path.ok_or(TraceError::Paths(paths))?);
        decoys.on_sent(now, (path, size.unsigned_abs() as usize), paths, |_| true);
    }
    send(&mut decoys, Time::MAX, &mut sent);
    Ok(sent)
}

/// Appends to `sent` the decoys that are due by `until`, each with its time.
fn send(decoys: &mut Decoys, until: Time, sent: &mut Vec<Decoy>) {
    while let Some(due) = decoys.next_due().filter(|due| *due <= until) {
        let Some((path, bytes)) = decoys.poll(due) else { return };
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        sent.push(Decoy { time: due.secs_f64(), bytes, path: path.0 as i16 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::stream;

    fn sent(packets: u32, paths: usize) -> Vec<Decoy> {
        let times: Vec<f64> = (0..packets).map(|packet| f64::from(packet) / 1e3).collect();
        let sizes = vec![-1_500; times.len()];
        let at: Vec<i16> = (0..packets).map(|packet| (packet / 20 % 3) as i16).collect();
        let budget = "20%".parse().unwrap();
        decoys(budget, stream(1, 0, "decoys"), paths, (&times, &sizes, &at)).unwrap()
    }

    #[test]
    fn they_are_in_the_order_of_time_on_other_paths_and_within_the_budget() {
        let sent = sent(3_000, 3);
        let bytes: i32 = sent.iter().map(|decoy| decoy.bytes).sum();
        assert!((3_000 * 1_500 / 10..=3_000 * 1_500 / 5).contains(&bytes), "{bytes}");
        assert!(sent.windows(2).all(|two| two[0].time <= two[1].time));
        assert!(sent.iter().all(|decoy| (0..3).contains(&decoy.path) && decoy.bytes == 1_500));
        let real = |decoy: &Decoy| (decoy.time * 1e3 + 1e-6) as i64 / 20 % 3;
        let during = sent.iter().filter(|decoy| decoy.time < 3.0);
        assert!(during.clone().all(|decoy| real(decoy) != i64::from(decoy.path)));
    }

    #[test]
    fn what_is_no_split_load_is_refused() {
        let budget = "20%".parse().unwrap();
        let of = |paths, at: &[i16]| {
            decoys(budget, stream(1, 0, "decoys"), paths, (&[0.0, 1.0], &[1, 1], at))
        };
        assert_eq!(of(0, &[0, 0]), Err(TraceError::Paths(0)));
        assert_eq!(of(2, &[0, 2]), Err(TraceError::Paths(2)));
        assert_eq!(of(2, &[0, -1]), Err(TraceError::Paths(2)));
        assert_eq!(of(2, &[0]), Err(TraceError::Lengths(2, 1)));
    }
}

//! Applies random delays to the packets of a recorded trace, before they are split over paths.

use super::{TraceError, check, time};
use crate::seed::Stream;
use crate::{DELAYED_BYTES, DelayQueue, Jitter, Time};

/// Returns the times, in seconds, at which packets of one direction leave the delay queue. The
/// packets arrive at `times`. `anabranch split` uses the same queue with the same limits.
///
/// `times` are seconds, not negative and sorted. `sizes` are signed; their absolute values are
/// bytes.
///
/// # Errors
/// The errors of [`TraceSplit::assign`](super::TraceSplit::assign).
pub fn delayed(
    jitter: Jitter,
    stream: Stream,
    times: &[f64],
    sizes: &[i32],
) -> Result<Vec<f64>, TraceError> {
    check(times, sizes)?;
    let mut queue = DelayQueue::new(jitter, stream);
    let mut left = Vec::with_capacity(times.len());
    for (&received, &size) in times.iter().zip(sizes) {
        let now = time(received);
        leave(&mut queue, now, &mut left);
        queue.push(now, ((), size.unsigned_abs() as usize), DELAYED_BYTES);
        while queue.pop(now).is_some() {
            left.push(now.secs_f64());
        }
    }
    leave(&mut queue, Time::MAX, &mut left);
    Ok(left)
}

/// Appends to `left` the times of the packets that leave by `until`.
fn leave(queue: &mut DelayQueue<()>, until: Time, left: &mut Vec<f64>) {
    while let Some(due) = queue.next_due().filter(|due| *due <= until) {
        queue.pop(due);
        left.push(due.secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::stream;

    fn left(times: &[f64], size: i32) -> Vec<f64> {
        let sizes = vec![size; times.len()];
        let jitter = "0-20ms".parse().unwrap();
        delayed(jitter, stream(1, 0, "jitter"), times, &sizes).unwrap()
    }

    #[test]
    fn each_packet_leaves_within_the_range_and_in_order() {
        let times: Vec<f64> =
            (0..3_000).map(|packet| f64::from(packet * packet % 89 + packet) / 1e3).collect();
        let mut sorted = times;
        sorted.sort_by(f64::total_cmp);
        let left = left(&sorted, -1500);
        assert!(left.windows(2).all(|pair| pair[0] <= pair[1]));
        let late = sorted.iter().zip(&left).map(|(received, left)| left - received);
        assert!(late.clone().all(|late| (-1e-9..0.02 + 1e-9).contains(&late)));
        assert!(late.fold(0.0, f64::max) > 0.019);
    }

    #[test]
    fn what_is_too_much_to_wait_is_not_delayed() {
        // Four units of 1 MiB wait. When the fifth arrives, the first leaves at once.
        let times = [0.0; 9];
        let left = left(&times, 1 << 20);
        assert_eq!(left[..5], [0.0; 5]);
        assert!(left[5..].iter().any(|left| *left > 0.0), "{left:?}");
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        let jitter = "0-20ms".parse().unwrap();
        let refused = delayed(jitter, stream(1, 0, "jitter"), &[1.0, 0.5], &[1, 1]);
        assert_eq!(refused, Err(TraceError::Unsorted(1)));
    }
}

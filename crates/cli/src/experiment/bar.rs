//! Progress of an experiment on standard error. On a terminal, one line is rewritten. Elsewhere,
//! each finished measurement gets a line.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use anabranch_experiment::Progress;
use rustix::termios::tcgetwinsize;

/// Width of the progress bar in columns.
const CELLS: usize = 24;

/// Output of an experiment's progress on standard error.
pub(super) struct Bar {
    live: bool,
}

impl Bar {
    /// Creates a bar, which is rewritten in place if standard error is a terminal.
    pub(super) fn new() -> Bar {
        Bar { live: io::stderr().is_terminal() }
    }

    /// Shows that the measurement `what` has begun.
    pub(super) fn begun(&mut self, progress: &Progress, what: &str) {
        if self.live {
            self.show(&line(progress, what));
        }
    }

    /// Shows that the measurement `what` is done.
    pub(super) fn done(&mut self, progress: &Progress, what: &str) {
        if self.live {
            self.show(&line(progress, what));
        } else {
            let (done, total) = progress.counts();
            let left = remaining(progress.left());
            let _ = writeln!(io::stderr(), "{done}/{total} {what}; {left} left");
        }
    }

    /// Prints a line that is not rewritten later.
    pub(super) fn note(&mut self, text: &str) {
        let clear = if self.live { "\r\x1b[K" } else { "" };
        let _ = writeln!(io::stderr(), "{clear}{text}");
    }

    /// Ends the rewritten line.
    pub(super) fn end(self) {
        if self.live {
            let _ = writeln!(io::stderr());
        }
    }

    /// Rewrites the line on the terminal. Ignores write errors, because a closed standard error
    /// should not stop the experiment.
    fn show(&self, text: &str) {
        let width = tcgetwinsize(io::stderr()).map_or(80, |size| usize::from(size.ws_col)).max(20);
        let cut: String = text.chars().take(width - 1).collect();
        let mut out = io::stderr();
        let _ = write!(out, "\r\x1b[K{cut}").and_then(|()| out.flush());
    }
}

fn line(progress: &Progress, what: &str) -> String {
    let (done, total) = progress.counts();
    let full = (CELLS * done).checked_div(total).unwrap_or(CELLS);
    let (full, empty) = ("█".repeat(full), "░".repeat(CELLS - full));
    format!("{full}{empty} {done}/{total}, {} left · {what}", remaining(progress.left()))
}

/// Formats a remaining time: in seconds below 100 s, in minutes below 100 minutes, otherwise in
/// hours and minutes.
pub(super) fn remaining(left: Duration) -> String {
    let seconds = left.as_secs_f64().round() as u64;
    match seconds {
        0..100 => format!("{seconds} s"),
        100..6000 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_many_how_long_and_what() {
        let mut progress = Progress::new(1, [Duration::from_secs(600); 3].into_iter());
        assert_eq!(line(&progress, "quinn"), "██████░░░░░░░░░░░░░░░░░░ 1/4, 30 min left · quinn");
        for _ in 0..3 {
            progress.done(Duration::from_secs(600), Duration::from_secs(600));
        }
        assert_eq!(line(&progress, "quinn"), "████████████████████████ 4/4, 0 s left · quinn");
    }

    #[test]
    fn time_is_told_in_two_units_at_most() {
        let all = [7, 99, 100, 5999, 6000, 7260].map(|s| remaining(Duration::from_secs(s)));
        assert_eq!(all, ["7 s", "99 s", "2 min", "100 min", "1 h 40 min", "2 h 1 min"]);
    }
}

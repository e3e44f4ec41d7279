//! A notice that looking up host names takes long. Without a network, a resolver waits for
//! seconds.

use std::io::{self, Write};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// Duration of a name lookup after which a notice about the lookup is printed.
const PATIENCE: Duration = Duration::from_secs(1);

/// Timer of a host name lookup. If this value exists longer than [`PATIENCE`], a notice that the
/// lookup is in progress is printed to standard error.
pub(crate) struct LookingUp {
    _answered: Sender<()>,
}

impl LookingUp {
    /// Starts the timer of a lookup of `names`. Returns `None` if there are no names, or if the
    /// timer's thread cannot be started.
    pub(crate) fn of(names: &[String]) -> Option<LookingUp> {
        LookingUp::reporting(names, |line| {
            // A failure means that standard error is closed, so nobody reads the line.
            let _ = writeln!(io::stderr(), "{line}");
        })
    }

    fn reporting(names: &[String], report: impl Fn(&str) + Send + 'static) -> Option<LookingUp> {
        let line = match names {
            [] => return None,
            names => format!("looking up {} ...", names.join(", ")),
        };
        let (answered, answer) = mpsc::channel::<()>();
        let wait = move || {
            if answer.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                report(&line);
            }
        };
        thread::Builder::new().name("lookup notice".to_owned()).spawn(wait).ok()?;
        Some(LookingUp { _answered: answered })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lookup_is_reported_after_a_second_and_a_quick_one_never() {
        let (sender, lines) = mpsc::channel();
        let waiting = |name: &str| {
            let sender = sender.clone();
            LookingUp::reporting(&[name.to_owned()], move |line| {
                let _ = sender.send(line.to_owned());
            })
        };
        drop(waiting("quick"));
        let slow = waiting("slow");
        let line = lines.recv_timeout(20 * PATIENCE);
        assert_eq!(line.as_deref(), Ok("looking up slow ..."));
        drop(slow);
        assert!(lines.try_recv().is_err());
        assert!(LookingUp::of(&[]).is_none());
    }
}

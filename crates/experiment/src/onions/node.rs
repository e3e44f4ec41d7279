//! A running program of a test network.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anabranch_emulator::GroupProcess;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Timeout for the start of all relays together, and for the start of a client.
const READY: Duration = Duration::from_secs(150);
/// Ticks per second in the kernel's process statistics (USER_HZ of every Linux).
const TICKS: f64 = 100.0;
/// Interval between checks of a program's output in [`Node::wait`].
const LOOK: Duration = Duration::from_millis(50);

/// A running program of a test network, and the lines of its output so far.
pub(in super::super) struct Node<'a> {
    name: String,
    process: GroupProcess<'a>,
    written: Arc<Mutex<Vec<String>>>,
}

impl<'a> Node<'a> {
    /// Creates a node from a started process, and collects the lines of its standard output, a
    /// pipe.
    pub(super) fn new(name: String, mut process: GroupProcess<'a>) -> Node<'a> {
        let stdout = process.stdout.take().expect("the program's input and output are pipes");
        let written = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&written);
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Node { name, process, written }
    }

    /// Returns the program's name.
    pub(in super::super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the lines that the program has written so far.
    pub(super) fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the latest event called `name` in the program's `--json` output; `None` if there is
    /// none.
    pub(in super::super) fn event(&self, name: &str) -> Option<Value> {
        latest(self.lines().iter().map(String::as_str), name)
    }

    /// Waits until `found` returns a value, and calls `found` repeatedly. `what` describes the
    /// awaited state in error messages.
    ///
    /// # Errors
    /// The program has ended, or takes too long. The error includes the last lines of its output.
    pub(in super::super) fn wait<R>(
        &mut self,
        what: &str,
        mut found: impl FnMut(&Node<'_>) -> io::Result<Option<R>>,
    ) -> io::Result<R> {
        let began = Instant::now();
        loop {
            if let Some(found) = found(self)? {
                return Ok(found);
            }
            let ended = self.process.try_wait()?;
            if ended.is_some() || began.elapsed() > READY {
                let last = self.lines().last().cloned().unwrap_or_default();
                let name = &self.name;
                return Err(io::Error::other(format!(
                    "{name} exited, or did not report its {what} in time; its last output: {last}"
                )));
            }
            thread::sleep(LOOK);
        }
    }

    /// Makes the program read its configuration again.
    pub(super) fn reload(&self) -> io::Result<()> {
        let pid = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        Ok(kill_process(
            pid.ok_or_else(|| io::Error::other("the process has no valid ID"))?,
            Signal::HUP,
        )?)
    }

    /// Returns the CPU time that the program has used so far, in seconds.
    pub(in super::super) fn cpu(&self) -> f64 {
        cpu_of(&self.process.id().to_string())
    }
}

/// Returns the CPU time that this process has used so far, in seconds.
pub(in super::super) fn own_cpu() -> f64 {
    cpu_of("self")
}

fn cpu_of(process: &str) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"));
    stat.ok().and_then(|stat| ticks(&stat)).unwrap_or_default() / TICKS
}

/// Returns the latest event called `name` in `lines`, the output of `--json`; `None` if there is
/// none.
fn latest<'a>(lines: impl DoubleEndedIterator<Item = &'a str>, name: &str) -> Option<Value> {
    let mut events = lines.rev().filter_map(|line| serde_json::from_str(line).ok());
    events.find(|event: &Value| event["event"] == name)
}

/// Parses the CPU ticks of a process, in user and kernel mode, from `/proc/PID/stat` (proc(5):
/// fields 14 and 15). Returns `None` if a field is missing or malformed.
fn ticks(stat: &str) -> Option<f64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let [user, kernel]: [f64; 2] = [fields.next()?.parse().ok()?, fields.next()?.parse().ok()?];
    Some(user + kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that output of commit 0e0b824b is still understood, because an experiment may run
    /// programs of another version.
    #[test]
    fn lines_of_earlier_programs_have_what_is_read() {
        let relay = include_str!("../../../../tests/formats/0e0b824b/events/relay.jsonl");
        let client = include_str!("../../../../tests/formats/0e0b824b/events/client.jsonl");
        let authority = include_str!("../../../../tests/formats/0e0b824b/events/authority.jsonl");
        let event = |text: &str, name| latest(text.lines(), name).unwrap();
        let numbers = event(relay, "numbers");
        assert_eq!(
            (&numbers["tap"], &numbers["early_records"]),
            (&"socket filter".into(), &500.into())
        );
        let number = |of: &str, name: &str| numbers[of][name].as_u64().unwrap();
        assert_eq!((number("quic", "links"), number("quic", "circuits")), (2, 17));
        assert_eq!((number("per_circuit", "links"), number("mptcp", "links")), (12, 3));
        assert_eq!(number("mptcp", "subflows"), 5);
        assert_eq!(event(relay, "fingerprint")["what"], "A".repeat(40));
        assert_eq!(event(client, "circuit_built")["circuit"], 4);
        assert!(
            event(authority, "authority")["what"].as_str().unwrap().starts_with("DirAuthority ")
        );
        assert_eq!(latest(client.lines(), "numbers_in_clear"), None);
    }

    #[test]
    fn cpu_is_read_behind_a_name_with_spaces_and_brackets() {
        let stat = "42 (a ) b) S 1 2 3 4 5 6 7 8 9 10 111 22 0 0 20 0";
        assert_eq!(ticks(stat), Some(133.0));
        assert_eq!(ticks("42 (short) S 1"), None);
    }
}

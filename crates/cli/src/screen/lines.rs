//! Lines for a reader who may be slow, or leave.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::SIGTERM;
use signal_hook::low_level::raise;

/// Bytes that may wait for the reader: room for the ends of all sessions at once, as a shutdown
/// tells them.
const ROOM: usize = 1 << 20;
/// How long the end of a run waits for the reader.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two tries on a file that somebody else made non-blocking.
const RETRY: Duration = Duration::from_millis(10);

/// Lines that a thread of their own writes, as soon as the reader takes them. Who says a line never
/// waits: what finds no room is lost and counted. Dropped, it waits for the reader, but not long.
pub(crate) struct Lines {
    shared: Arc<Shared>,
}

impl Lines {
    /// Lines to stdout. When its reader is gone (EPIPE), the run is told to end as SIGTERM would
    /// tell it, so that captures are completed. After any other error the run goes on without them.
    ///
    /// # Errors
    /// No thread or no file for it can be had.
    pub(crate) fn stdout() -> io::Result<Lines> {
        let out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Lines::to(out, |error| {
            if error.kind() != ErrorKind::BrokenPipe {
                let _ = writeln!(
                    io::stderr(),
                    "warning: no more output is shown: writing to standard output failed: \
                     {error}"
                );
                return;
            }
            // Can only fail for a signal that does not exist.
            let _ = raise(SIGTERM);
        })
    }

    /// Lines to stderr. Nobody has to read them.
    ///
    /// # Errors
    /// No thread or no file for it can be had.
    pub(crate) fn stderr() -> io::Result<Lines> {
        Lines::to(File::from(io::stderr().as_fd().try_clone_to_owned()?), |_| {})
    }

    /// Lines to a file of their own; after an error the run goes on without them.
    ///
    /// # Errors
    /// No thread can be had.
    pub(crate) fn file(file: File) -> io::Result<Lines> {
        Lines::to(file, |_| {})
    }

    /// Lines to `out`, until that fails; then `failed` is called, once.
    fn to(out: impl Write + Send + 'static, failed: fn(&io::Error)) -> io::Result<Lines> {
        let shared = Arc::new(Shared::default());
        let (writer, name) = (shared.clone(), "lines".to_owned());
        thread::Builder::new().name(name).spawn(move || writer.write_to(out, failed))?;
        Ok(Lines { shared })
    }

    /// Tells `text` as one line or, where it has line ends, several. Where lines were lost before
    /// it, the line that `lost` makes of their number comes first.
    pub(crate) fn say(&self, text: &str, lost: impl FnOnce(u64) -> String) {
        self.shared.lock().add(text, lost);
        self.shared.changed.notify_all();
    }

    /// The same for the last line of all: the reader has a second to take what was said before and
    /// this.
    pub(crate) fn last(&self, text: &str, lost: impl FnOnce(u64) -> String) {
        let deadline = Instant::now() + PATIENCE;
        self.shared.settle(deadline);
        self.say(text, lost);
        self.shared.settle(deadline);
        self.shared.end();
    }

    /// Waits until the reader has taken everything, but not for long. Whether there is nothing more
    /// to take.
    pub(crate) fn flush(&self) -> bool {
        self.shared.settle(Instant::now() + PATIENCE)
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        self.flush();
        self.shared.end();
    }
}

/// What [`Lines`] and their thread share.
#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    /// What waits to be written.
    text: Vec<u8>,
    /// Lines that found no room since the last that did.
    lost: u64,
    /// The thread has taken what it writes now.
    writing: bool,
    /// Nobody writes or says anything more.
    over: bool,
}

impl Queue {
    /// Once lines are lost, further ones are lost until the thread takes those that wait: then the
    /// notice says of one gap what many small ones would say.
    fn add(&mut self, text: &str, lost: impl FnOnce(u64) -> String) {
        let no_room = self.lost > 0 || self.text.len() + text.len() >= ROOM;
        if self.over || (no_room && !self.text.is_empty()) {
            self.lost += text.lines().count() as u64;
            return;
        }
        if self.lost > 0 {
            self.push(&lost(self.lost));
            self.lost = 0;
        }
        self.push(text);
    }

    fn push(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
        self.text.push(b'\n');
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Whoever panicked while holding it has left at worst a line without its end.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread.
    fn write_to(&self, mut out: impl Write, failed: fn(&io::Error)) {
        let mut text = Vec::new();
        while self.take(&mut text) {
            if let Err(error) = write_all(&mut out, &text) {
                failed(&error);
                self.end();
            }
        }
    }

    /// Waits for something to write, and puts it in the place of `text`, which was written. False
    /// at the end.
    fn take(&self, text: &mut Vec<u8>) -> bool {
        text.clear();
        let mut queue = self.lock();
        queue.writing = false;
        self.changed.notify_all();
        let idle = |queue: &mut Queue| queue.text.is_empty() && !queue.over;
        queue = self.changed.wait_while(queue, idle).unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut queue.text, text);
        queue.writing = !queue.over;
        !queue.over
    }

    fn settle(&self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let busy = |queue: &mut Queue| !queue.over && (queue.writing || !queue.text.is_empty());
        let waited = self.changed.wait_timeout_while(self.lock(), left, busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn end(&self) {
        self.lock().over = true;
        self.changed.notify_all();
    }
}

/// As the method of that name, also on a file that does not block.
fn write_all(out: &mut impl Write, mut text: &[u8]) -> io::Result<()> {
    while !text.is_empty() {
        match out.write(text) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => text = &text[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(RETRY),
            Err(error) => return Err(error),
        }
    }
    out.flush()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{PipeReader, Read, pipe};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Lines that `show` says, as their reader reads them.
    pub(crate) fn told(show: impl FnOnce(Lines)) -> String {
        let (mut reader, lines) = piped(|error| panic!("{error}"));
        let reading = thread::spawn(move || rest(&mut reader));
        show(lines);
        reading.join().unwrap()
    }

    fn piped(failed: fn(&io::Error)) -> (PipeReader, Lines) {
        let (reader, writer) = pipe().unwrap();
        (reader, Lines::to(writer, failed).unwrap())
    }

    fn rest(reader: &mut PipeReader) -> String {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    }

    fn notice(lines: u64) -> String {
        format!("lost {lines}")
    }

    #[test]
    fn a_reader_who_pauses_stops_nobody_and_learns_what_was_lost() {
        let (mut reader, lines) = piped(|error| panic!("{error}"));
        let start = Instant::now();
        for number in 0..50_000 {
            lines.say(&format!("{number:099}"), notice);
        }
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "saying 5 MB took {:?}",
            start.elapsed()
        );
        let reading = thread::spawn(move || rest(&mut reader));
        lines.last("the end", notice);
        drop(lines);
        let text = reading.join().unwrap();
        let (mut kept, mut next) = (0, 0);
        for line in text.strip_suffix("the end\n").unwrap().lines() {
            match line.strip_prefix("lost ") {
                // There may be several gaps, as the thread took what filled the queue before.
                Some(lost) => next += lost.parse::<usize>().unwrap(),
                None => {
                    assert_eq!(line.parse(), Ok(next), "out of order");
                    (kept, next) = (kept + 1, next + 1);
                }
            }
        }
        assert_eq!(next, 50_000);
        // A full queue, what the thread had taken before, and what fits into a pipe.
        assert!((ROOM / 100..3 * ROOM / 100).contains(&kept), "{kept} kept");
    }

    #[test]
    fn a_reader_who_never_reads_delays_the_end_by_a_second_at_most() {
        let (_reader, lines) = piped(|error| panic!("{error}"));
        (0..20_000).for_each(|_| lines.say(&"-".repeat(99), notice));
        let start = Instant::now();
        lines.last("the end", notice);
        drop(lines);
        let waited = start.elapsed();
        assert!(waited >= PATIENCE && waited < 3 * PATIENCE, "{waited:?}");
    }

    #[test]
    fn a_failure_is_told_once_and_ends_the_lines() {
        static FAILURES: AtomicUsize = AtomicUsize::new(0);
        let full = File::options().write(true).open("/dev/full").unwrap();
        let lines = Lines::to(full, |error| {
            assert_eq!(error.kind(), ErrorKind::StorageFull);
            FAILURES.fetch_add(1, Ordering::Relaxed);
        });
        let lines = lines.unwrap();
        for _ in 0..10 {
            lines.say("a line", notice);
            lines.flush();
        }
        drop(lines);
        assert_eq!(FAILURES.load(Ordering::Relaxed), 1);
    }
}

//! Output of lines to a reader (terminal, pipe or file) that may be slow or close its end.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::SIGTERM;
use signal_hook::low_level::raise;

/// Maximum number of bytes queued for the reader. The queue is longest when the program ends,
/// because the ends of all sessions are reported at once.
const ROOM: usize = 1 << 20;
/// Maximum time for which the program waits for the reader before it ends.
const PATIENCE: Duration = Duration::from_secs(1);
/// Delay before a write is repeated. A repetition is necessary if another program has made the
/// file non-blocking.
const RETRY: Duration = Duration::from_millis(10);

/// Queue of lines that a separate thread writes as soon as the reader accepts them. Adding a line
/// never blocks. Lines for which there is no room are dropped and counted. Dropping this value
/// waits at most [`PATIENCE`] for the reader.
pub(crate) struct Lines {
    shared: Arc<Shared>,
}

impl Lines {
    /// Creates a queue whose lines are written to standard output. If the reader is gone (EPIPE),
    /// the program ends as after SIGTERM, so that captures are completed. After any other error
    /// the program continues without output.
    ///
    /// # Errors
    /// The thread or the file descriptor cannot be created.
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
            // `raise` only fails for a signal that does not exist.
            let _ = raise(SIGTERM);
        })
    }

    /// Creates a queue whose lines are written to standard error. If writing fails, for example
    /// because standard error is closed, the program continues without this output.
    ///
    /// # Errors
    /// The thread or the file descriptor cannot be created.
    pub(crate) fn stderr() -> io::Result<Lines> {
        Lines::to(File::from(io::stderr().as_fd().try_clone_to_owned()?), |_| {})
    }

    /// Creates a queue whose lines are written to `file`. After an error, the program continues
    /// without this output.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub(crate) fn file(file: File) -> io::Result<Lines> {
        Lines::to(file, |_| {})
    }

    /// Creates a queue whose lines are written to `out`. If writing fails, calls `failed` once.
    fn to(out: impl Write + Send + 'static, failed: fn(&io::Error)) -> io::Result<Lines> {
        let shared = Arc::new(Shared::default());
        let (writer, name) = (shared.clone(), "lines".to_owned());
        thread::Builder::new().name(name).spawn(move || writer.write_to(out, failed))?;
        Ok(Lines { shared })
    }

    /// Queues `text`, which may be several lines. If lines were dropped before, first queues the
    /// notice that `lost` returns for their number.
    pub(crate) fn print(&self, text: &str, lost: impl FnOnce(u64) -> String) {
        self.shared.lock().add(text, lost);
        self.shared.changed.notify_all();
    }

    /// Queues the last line of the output. Waits at most [`PATIENCE`] until the reader has
    /// accepted all lines.
    pub(crate) fn last(&self, text: &str, lost: impl FnOnce(u64) -> String) {
        let deadline = Instant::now() + PATIENCE;
        self.shared.settle(deadline);
        self.print(text, lost);
        self.shared.settle(deadline);
        self.shared.end();
    }

    /// Waits at most [`PATIENCE`] until the reader has accepted all lines. Returns whether the
    /// reader has accepted them.
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

/// State that [`Lines`] and its thread share.
#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Bytes of the lines that are queued.
    text: Vec<u8>,
    /// Number of lines dropped for lack of room since a line was last queued successfully.
    lost: u64,
    /// Whether the thread is writing the lines that it has taken.
    writing: bool,
    /// Whether the output has ended. If so, no further lines are queued or written.
    over: bool,
}

impl Queue {
    /// Queues `text`, or counts its lines as dropped if there is no room. An empty queue accepts a
    /// text of any length. Once a line is dropped, further lines are dropped until the thread has
    /// taken the queue. So the dropped lines are consecutive, and one notice reports their number.
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
        // A panic of another thread that held the lock is ignored. At worst, a line is incomplete.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes queued lines to `out` until the output ends. This is the main function of the
    /// thread.
    fn write_to(&self, mut out: impl Write, failed: fn(&io::Error)) {
        let mut text = Vec::new();
        while self.take(&mut text) {
            if let Err(error) = write_all(&mut out, &text) {
                failed(&error);
                self.end();
            }
        }
    }

    /// Waits for queued lines, and moves them into `text`, whose previous content has been
    /// written. Returns false once the output has ended.
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

/// Writes all of `text` to `out`. If `out` is a non-blocking file without room, tries again after
/// [`RETRY`].
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

    /// Returns the text that a reader receives from the lines that `show` queues.
    pub(crate) fn printed(show: impl FnOnce(Lines)) -> String {
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
            lines.print(&format!("{number:099}"), notice);
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
                // There may be several gaps, because the thread takes the queue now and then.
                Some(lost) => next += lost.parse::<usize>().unwrap(),
                None => {
                    assert_eq!(line.parse(), Ok(next), "out of order");
                    (kept, next) = (kept + 1, next + 1);
                }
            }
        }
        assert_eq!(next, 50_000);
        // Lines that are not dropped are in the queue, with the thread, or in the pipe.
        assert!((ROOM / 100..3 * ROOM / 100).contains(&kept), "{kept} kept");
    }

    #[test]
    fn a_reader_who_never_reads_delays_the_end_by_a_second_at_most() {
        let (_reader, lines) = piped(|error| panic!("{error}"));
        (0..20_000).for_each(|_| lines.print(&"-".repeat(99), notice));
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
            lines.print("a line", notice);
            lines.flush();
        }
        drop(lines);
        assert_eq!(FAILURES.load(Ordering::Relaxed), 1);
    }
}

//! A thread that writes the batches of a capture, so that the thread that forwards datagrams does
//! not wait for the disk.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Maximum time for which a driver (the loop that forwards datagrams) waits for a slow disk. After
/// this time, the capture ends with an error.
pub const PATIENCE: Duration = Duration::from_millis(500);

/// Number of batches in circulation: one being filled, one being written, and one in between.
const POOL: usize = 3;

/// A consumer of batches on the writing thread, which encodes the batches and writes them to
/// files.
pub(super) trait Sink: Send + 'static {
    /// A batch of data. Its default is empty, and its buffers are reused.
    type Batch: Default + Send + 'static;

    /// Writes `batch` and empties it.
    fn write(&mut self, batch: &mut Self::Batch) -> io::Result<()>;

    /// Completes the files.
    fn commit(&mut self) -> io::Result<()>;

    /// Makes the files readable as far as they were written. The worker calls this function if
    /// writing or completing the files has failed, or if they will not be completed.
    fn keep(&mut self) {}
}

enum SinkCommand<B> {
    Write(B),
    Commit,
}

/// A [`Sink`] on its own thread. A fixed number of batches circulates between this value and the
/// thread, which bounds memory.
pub(super) struct Worker<S: Sink> {
    /// Maximum time to wait until the thread returns an empty batch. It is [`PATIENCE`], except in
    /// tests that must not fail on a slow disk.
    pub(super) patience: Duration,
    /// Channel of commands to the thread; `None` once the thread has to end. Closing the channel
    /// ends the thread.
    orders: Option<Sender<SinkCommand<S::Batch>>>,
    spare: Receiver<S::Batch>,
    /// Handle of the thread; `None` once its result was taken, or if it hangs and must not be
    /// joined.
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl<S: Sink> Worker<S> {
    /// Starts a thread named `name` that runs `sink`.
    pub(super) fn start(name: &str, sink: S) -> io::Result<Worker<S>> {
        let (orders, incoming) = mpsc::channel();
        let (recycle, spare) = mpsc::channel();
        for _ in 1..POOL {
            recycle
                .send(S::Batch::default())
                .expect("the receiver lives until this function returns");
        }
        let body = move || serve(sink, incoming, recycle);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(body)?;
        Ok(Worker { patience: PATIENCE, orders: Some(orders), spare, thread: Some(thread) })
    }

    /// Passes `full` to the thread, and replaces it with an empty batch.
    ///
    /// # Errors
    /// A write failed earlier, or the disk is so slow that the thread did not return an empty
    /// batch within `patience`.
    pub(super) fn swap(&mut self, full: &mut S::Batch) -> io::Result<()> {
        self.order(SinkCommand::Write(std::mem::take(full)))?;
        *full = match self.spare.recv_timeout(self.patience) {
            Ok(batch) => batch,
            Err(RecvTimeoutError::Disconnected) => return Err(self.cause()),
            Err(RecvTimeoutError::Timeout) => return Err(self.give_up()),
        };
        Ok(())
    }

    /// Writes the `last` batch, completes the files, and waits until the thread ends.
    pub(super) fn finish(mut self, last: S::Batch) -> io::Result<()> {
        self.order(SinkCommand::Write(last))?;
        self.order(SinkCommand::Commit)?;
        self.orders = None;
        self.result()
    }

    fn order(&mut self, order: SinkCommand<S::Batch>) -> io::Result<()> {
        let sent = self.orders.as_ref().is_some_and(|orders| orders.send(order).is_ok());
        if sent { Ok(()) } else { Err(self.cause()) }
    }

    /// Returns the error that has ended the writing thread early. Waits for the end of the thread.
    fn cause(&mut self) -> io::Error {
        self.orders = None;
        self.result()
            .err()
            .unwrap_or_else(|| io::Error::other("writing the capture failed earlier"))
    }

    fn result(&mut self) -> io::Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the capture's thread panicked")))
    }

    /// Abandons a thread that hangs in a write, because joining the thread would make the driver
    /// hang, too. Returns the error to report: the disk is too slow.
    fn give_up(&mut self) -> io::Error {
        self.orders = None;
        self.thread = None;
        let why = format!(
            "the disk is too slow: writing is more than {} ms behind the packets, so nothing more \
             is recorded; record to a faster disk",
            self.patience.as_millis()
        );
        io::Error::new(io::ErrorKind::TimedOut, why)
    }
}

impl<S: Sink> Drop for Worker<S> {
    /// Ends the thread, and waits until it has removed its unfinished files or made them readable.
    fn drop(&mut self) {
        self.orders = None;
        // There is no caller to report an error to.
        let _ = self.result();
    }
}

fn serve<S: Sink>(
    mut sink: S,
    orders: Receiver<SinkCommand<S::Batch>>,
    recycle: Sender<S::Batch>,
) -> io::Result<()> {
    for order in orders {
        let SinkCommand::Write(mut batch) = order else {
            return sink.commit().inspect_err(|_| sink.keep());
        };
        sink.write(&mut batch).inspect_err(|_| sink.keep())?;
        // The other side may be gone. Its next command shows whether it wanted to commit.
        let _ = recycle.send(batch);
    }
    sink.keep();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::SyncSender;

    /// A sink that forwards each batch. It fails on a batch that begins with 13, and hangs on a
    /// batch that begins with 99 until the test ends.
    struct Probe(SyncSender<Vec<u8>>, Receiver<()>);

    impl Sink for Probe {
        type Batch = Vec<u8>;

        fn write(&mut self, batch: &mut Vec<u8>) -> io::Result<()> {
            match batch.first() {
                Some(13) => return Err(io::Error::other("thirteen")),
                Some(99) => drop(self.1.recv()),
                _ => {}
            }
            self.0.send(std::mem::take(batch)).map_err(io::Error::other)
        }

        fn commit(&mut self) -> io::Result<()> {
            self.0.send(b"end".to_vec()).map_err(io::Error::other)
        }
    }

    /// A sink that cannot be completed, and reports when `keep` is called.
    struct Full(SyncSender<()>);

    impl Sink for Full {
        type Batch = Vec<u8>;

        fn write(&mut self, batch: &mut Vec<u8>) -> io::Result<()> {
            batch.clear();
            Ok(())
        }

        fn commit(&mut self) -> io::Result<()> {
            Err(io::Error::from(io::ErrorKind::StorageFull))
        }

        fn keep(&mut self) {
            let _ = self.0.send(());
        }
    }

    #[test]
    fn what_cannot_be_completed_is_kept() {
        let (out, kept) = mpsc::sync_channel(1);
        let worker = Worker::start("full", Full(out)).unwrap();
        let error = worker.finish(vec![1]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(kept.recv(), Ok(()));
    }

    fn probe() -> (Worker<Probe>, Receiver<Vec<u8>>, Sender<()>) {
        let (out, seen) = mpsc::sync_channel(100);
        let (release, gate) = mpsc::channel();
        (Worker::start("probe", Probe(out, gate)).unwrap(), seen, release)
    }

    #[test]
    fn batches_arrive_in_order_and_then_the_end() {
        let (mut worker, seen, _release) = probe();
        for n in 0..10u8 {
            let mut batch = vec![n];
            worker.swap(&mut batch).unwrap();
            assert!(batch.is_empty());
        }
        worker.finish(vec![10]).unwrap();
        let seen: Vec<_> = seen.iter().collect();
        let sent = (0..=10u8).map(|n| vec![n]).chain([b"end".to_vec()]);
        assert_eq!(seen, sent.collect::<Vec<_>>());
    }

    #[test]
    fn a_dropped_worker_does_not_commit() {
        let (mut worker, seen, _release) = probe();
        worker.swap(&mut vec![1]).unwrap();
        drop(worker);
        assert_eq!(seen.iter().collect::<Vec<_>>(), [[1]]);
    }

    #[test]
    fn the_error_comes_out_of_a_later_call() {
        let (mut worker, _seen, _release) = probe();
        let error = (0..10).find_map(|_| worker.swap(&mut vec![13]).err()).unwrap();
        assert_eq!(error.to_string(), "thirteen");
        assert!(worker.swap(&mut vec![1]).is_err());
        let (worker, _seen, _release) = probe();
        assert_eq!(worker.finish(vec![13]).unwrap_err().to_string(), "thirteen");
    }

    #[test]
    fn a_hanging_disk_stops_nobody() {
        let (mut worker, _seen, release) = probe();
        let error = (0..10).find_map(|_| worker.swap(&mut vec![99]).err()).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        // The call returns although the thread still hangs in its write.
        drop(worker);
        drop(release);
    }
}

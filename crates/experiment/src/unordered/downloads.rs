//! Downloads that start at the same time, each over its own circuit.

use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::super::onions::fetch::Fetch;
use super::measured::Download;

/// Timeout for building the circuits of all downloads together.
const WARM: Duration = Duration::from_secs(240);
/// Timeout of the first fetch over a circuit. After this time, the fetch is tried again.
const TRY: Duration = Duration::from_secs(60);

/// Downloads of different lengths through a SOCKS proxy.
pub(super) struct Downloads<'a> {
    pub(super) proxy: SocketAddr,
    pub(super) server: SocketAddrV4,
    pub(super) lengths: &'a [u32],
    pub(super) cut: Duration,
}

impl Downloads<'_> {
    /// Builds a circuit for each download, by fetching one byte over it.
    ///
    /// # Errors
    /// A circuit is not built in time.
    pub(super) fn warm(&self, stop: &AtomicBool) -> io::Result<()> {
        let until = Instant::now() + WARM;
        let warmed = self.each(&|name, _| {
            loop {
                let fetch = Fetch::new(self.proxy, self.server, 1);
                match (Fetch { name: Some(name), patience: TRY, ..fetch }).run() {
                    Ok(_) => return Ok(()),
                    Err(error) if Instant::now() > until => return Err(error),
                    Err(_) if stop.load(Ordering::Relaxed) => return Ok(()),
                    Err(_) => thread::sleep(Duration::from_millis(500)),
                }
            }
        });
        warmed.into_iter().collect()
    }

    /// Runs all downloads at the same time, in the network namespace of the calling thread.
    /// Returns the downloads with their times, and the reason for the first failure.
    pub(super) fn run(&self) -> (Vec<Download>, String) {
        let together = Barrier::new(self.lengths.len());
        let fetched = self.each(&|name, length| {
            let fetch = Fetch::new(self.proxy, self.server, length as usize);
            together.wait();
            Fetch { name: Some(name), patience: self.cut, ..fetch }.run()
        });
        let failed = fetched.iter().find_map(|one| Some(one.as_ref().err()?.to_string()));
        let ended = fetched.into_iter().map(|one| one.ok().map(|times| times.whole));
        let download = |(&bytes, whole)| Download { bytes, whole };
        (self.lengths.iter().zip(ended).map(download).collect(), failed.unwrap_or_default())
    }

    /// Calls `work` for each download on a separate thread, with the name that selects its circuit
    /// and its length in bytes. Returns the results in the order of the downloads.
    fn each<R: Send>(&self, work: &(dyn Fn(&str, u32) -> R + Sync)) -> Vec<R> {
        thread::scope(|scope| {
            let spawn = |(number, &length): (usize, &u32)| {
                scope.spawn(move || work(&format!("d{number}"), length))
            };
            let all: Vec<_> = self.lengths.iter().enumerate().map(spawn).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, R>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            all.into_iter().map(join).collect()
        })
    }
}

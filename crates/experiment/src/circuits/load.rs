//! Clients that load the network while another one measures.

use std::net::{SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anabranch_emulator::Namespace;
use anabranch_multipath::seed;
use rand::RngExt;

use super::super::onions::fetch::Fetch;
use super::measured::WEB;

/// How often one that pauses looks whether it is to end.
const LOOK: Duration = Duration::from_millis(20);

/// What the clients have done so far.
#[derive(Default)]
pub(super) struct LoadCounters {
    pub(super) fetches: AtomicU64,
    pub(super) failures: AtomicU64,
}

/// One client: where its proxy is, which number it has, and the seed of its pauses.
pub(super) struct Loader<'a> {
    pub(super) host: &'a Namespace,
    pub(super) proxy: SocketAddr,
    pub(super) number: u8,
    pub(super) seed: u64,
    /// Seconds between the end of a fetch and the next one, in the mean (exponential).
    pub(super) pause: f64,
}

impl Loader<'_> {
    /// Fetches a web page, pauses, and again, until `stop` is set.
    pub(super) fn run(&self, servers: &[SocketAddrV4], done: &LoadCounters, stop: &AtomicBool) {
        let mut dice = seed::stream(self.seed, self.number.into(), "pauses");
        let mut turn = usize::from(self.number);
        let looped = self.host.run(|| {
            while !stop.load(Ordering::Relaxed) {
                let pause = -self.pause * (1.0 - dice.random::<f64>()).ln();
                sleep(Duration::from_secs_f64(pause), stop);
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let server = servers[turn % servers.len()];
                turn += 1;
                let count = match Fetch::new(self.proxy, server, WEB).run() {
                    Ok(_) => &done.fetches,
                    Err(_) => &done.failures,
                };
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        if looped.is_err() {
            done.failures.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn sleep(time: Duration, stop: &AtomicBool) {
    let until = Instant::now() + time;
    while !stop.load(Ordering::Relaxed) && Instant::now() < until {
        thread::sleep(LOOK.min(until.saturating_duration_since(Instant::now())));
    }
}

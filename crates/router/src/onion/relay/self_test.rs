//! A relay's self-test: a circuit through other relays that ends at this relay. The test shows
//! that other relays can open links to this relay. DROP cells along the circuit yield a first
//! observed bandwidth, as in C tor. Without the test, a new relay would advertise no bandwidth,
//! and in a network without bandwidth measurements no client would choose it.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use anabranch_links::tls::Context;
use anabranch_multipath::{Core as _, Time};
use anabranch_onion::circmgr::testing_path;
use anabranch_onion::circuitmux;
use anabranch_onion::client::{CircuitKey, Client, Config, Hop, HopKey, Input, Output};
use anabranch_onion::conflux::Design;
use anabranch_onion::congestion::Params;
use anabranch_onion::directory::descriptor::Description;
use anabranch_onion::directory::network::Network;
use anabranch_onion::padding::Amount;
use anabranch_onion::wire::cell::CELL;
use anabranch_onion::wire::extend::Target;
use anabranch_onion::wire::keys::RelayKeys;
use anabranch_os::clock::Clock;
use rand_chacha::ChaCha20Rng;

use crate::onion::dirclient::unix;
use crate::onion::meter::Meter;
use crate::onion::mptcp::TcpKind;
use crate::onion::station::{CoreDriver, Token};

/// Maximum number of DROP cells in a bandwidth self-test. If they arrive within ten seconds, their
/// rate is at least 51.4 kB/s, with 514 bytes per cell, which exceeds [`ENOUGH`].
const CELLS: u64 = 1000;
/// Duration in seconds that limits the number of a self-test's cells. The test sends at most as
/// many cells as the relay's rate limit allows in this time.
const SPAN_S: u64 = 10;
/// Minimum observed bandwidth in bytes per second at which no self-test is needed (C tor's value).
const ENOUGH: u64 = 51_200;
/// Timeout for building the self-test's circuit. The same timeout applies to the cells that
/// follow.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause before the next self-test after a failure. The pause doubles with each further failure,
/// up to [`DAILY`].
const AGAIN: Duration = Duration::from_secs(60);
/// Maximum pause between self-tests after failures, and pause after a success.
const DAILY: Duration = Duration::from_secs(12 * 3600);
/// Identifier of a self-test's circuit. There is only one circuit.
const CIRCUIT: CircuitKey = CircuitKey(0);

/// Bytes received and sent on the links of a self-test. The test's thread has only a weak pointer
/// to this value. It ends once the last owning pointer is dropped.
type TestTraffic = [AtomicU64; 2];

/// Schedule of a relay's self-tests, and the test in progress.
#[derive(Default)]
pub(super) struct SelfTest {
    due: Time,
    failures: u32,
    under_way: Option<RunningTest>,
    /// Bytes received and sent on the links of self-tests that have ended.
    transferred: [u64; 2],
}

struct RunningTest {
    outcome: Receiver<Result<(), String>>,
    transferred: Arc<TestTraffic>,
    /// Names of the relays on the self-test's circuit before this relay, for messages.
    through: Vec<String>,
}

/// Properties of the relay that tests itself.
pub(super) struct TestedRelay<'a> {
    pub(super) network: &'a Network,
    pub(super) keys: &'a RelayKeys,
    pub(super) description: &'a Description,
    pub(super) clock: Clock,
    /// Rate limits of the relay's links, for receiving and sending. They also apply to the
    /// self-test.
    pub(super) meters: &'a [Meter; 2],
}

impl SelfTest {
    /// Starts a self-test if it is due and the observed bandwidth `observed`, in bytes per second,
    /// is below [`ENOUGH`]. Returns a message when a test has ended or cannot start; `None`
    /// otherwise. Must be called about once a second.
    pub(super) fn turn(
        &mut self,
        now: Time,
        observed: u64,
        relay: &TestedRelay<'_>,
    ) -> Option<String> {
        if self.under_way.is_some() {
            return self.ended(now);
        }
        if now < self.due || observed >= ENOUGH || !relay.network.is_enough() {
            return None;
        }
        match begin(relay) {
            Ok(under_way) => {
                self.under_way = under_way;
                // There is no other relay yet; one may appear later.
                self.due = now + AGAIN;
                None
            }
            Err(error) => {
                self.put_off(now);
                Some(format!(
                    "the self-test, which checks that others can reach this relay, cannot start \
                     and is tried again later: {error}"
                ))
            }
        }
    }

    /// Ends the test in progress without a result. The test's circuit closes within a second.
    pub(super) fn cancel(&mut self) {
        self.transferred = self.transferred();
        self.under_way = None;
    }

    /// Returns the bytes received and sent on the links of all self-tests so far.
    pub(super) fn transferred(&self) -> [u64; 2] {
        let now = self.under_way.as_ref().map_or([0; 2], |test| read(&test.transferred));
        [0, 1].map(|way| self.transferred[way] + now[way])
    }

    fn ended(&mut self, now: Time) -> Option<String> {
        let outcome = match self.under_way.as_ref()?.outcome.try_recv() {
            Ok(outcome) => outcome,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => {
                Err("the thread of the self-test has panicked".to_owned())
            }
        };
        self.transferred = self.transferred();
        let through = self.under_way.take()?.through.join(" and ");
        Some(match outcome {
            Ok(()) => {
                (self.failures, self.due) = (0, now + DAILY);
                format!("self-test: a circuit through {through} has reached this relay")
            }
            Err(why) => {
                let pause = self.put_off(now).as_secs();
                format!(
                    "self-test: no circuit through {through} has reached this relay: {why}; \
                     next try in {pause} s"
                )
            }
        })
    }

    fn put_off(&mut self, now: Time) -> Duration {
        let pause = (AGAIN * 2_u32.pow(self.failures.min(10))).min(DAILY);
        (self.failures, self.due) = (self.failures + 1, now + pause);
        pause
    }
}

/// Starts the thread of a self-test. Returns `None` if there is no other relay for its circuit.
fn begin(relay: &TestedRelay<'_>) -> io::Result<Option<RunningTest>> {
    let mut rng = anabranch_os::entropy::generator()?;
    let Some(path) = testing_path(relay.network, ourselves(relay), &mut rng) else {
        return Ok(None);
    };
    let before_us = path[..path.len() - 1].iter().map(|hop| &hop.target.rsa);
    let through = before_us.filter_map(|id| Some(relay.network.status(id)?.nickname.clone()));
    let through = through.collect();
    let parts = Parts {
        rng,
        params: crate::onion::params(relay.network),
        clock: relay.clock,
        meters: relay.meters.clone(),
        cells: (relay.description.bandwidth[0] * SPAN_S / CELL as u64).clamp(1, CELLS),
    };
    let transferred = Arc::<TestTraffic>::default();
    let (watched, (bring, outcome)) = (Arc::downgrade(&transferred), sync_channel(1));
    // If there is no receiver, the relay has ended meanwhile.
    let work = move || drop(bring.send(run(parts, path, &watched)));
    thread::Builder::new().name("self-test".into()).spawn(work)?;
    Ok(Some(RunningTest { outcome, transferred, through }))
}

fn ourselves(relay: &TestedRelay<'_>) -> Hop {
    let Description { address, orport, .. } = *relay.description;
    let target = Target {
        addresses: vec![(address, orport).into()],
        rsa: relay.keys.rsa_identity(),
        ed25519: Some(relay.keys.ed_identity()),
    };
    Hop { target, key: HopKey::Ntor(relay.keys.ntor().1) }
}

/// Values that the thread of a self-test needs to build and use its circuit.
struct Parts {
    rng: ChaCha20Rng,
    params: Arc<Params>,
    clock: Clock,
    meters: [Meter; 2],
    /// Number of DROP cells that the self-test sends.
    cells: u64,
}

fn run(parts: Parts, path: Vec<Hop>, transferred: &Weak<TestTraffic>) -> Result<(), String> {
    let cells = parts.cells;
    let station = station(parts).map_err(|error| error.to_string())?;
    Circuit { station, cells, cells_since: None }.run(path, transferred)
}

fn station(parts: Parts) -> io::Result<CoreDriver<Client>> {
    let config = Config {
        params: parts.params,
        policy: circuitmux::Kind::default(),
        max_cells: 2 * CELLS as usize,
        design: Design::default(),
        dealing: None,
        padding: Amount::Off,
    };
    let core = Client::new(config, Box::new(parts.rng));
    let context = Context::new(unix()).map_err(io::Error::other)?;
    let mut station =
        CoreDriver::new(parts.clock, core, context, (TcpKind::Single, &[]), Vec::new())?;
    station.carriers.limit(&parts.meters);
    Ok(station)
}

/// Circuit of one self-test, with the core and the links that it uses.
struct Circuit {
    station: CoreDriver<Client>,
    cells: u64,
    /// Time at which the DROP cells were queued; `None` before that.
    cells_since: Option<Time>,
}

impl Circuit {
    /// Builds the circuit along `path`, sends the cells, and waits until they should have arrived.
    /// Ends early, without a result, once all owning pointers to `transferred` are dropped.
    fn run(mut self, path: Vec<Hop>, transferred: &Weak<TestTraffic>) -> Result<(), String> {
        let begun = self.station.clock.now();
        self.station.core.handle(begun, Input::Build { circuit: CIRCUIT, hops: path });
        loop {
            self.turn()?;
            let Some(transferred) = transferred.upgrade() else { return Ok(()) };
            let bytes = self.station.transferred();
            (0..2).for_each(|way| transferred[way].store(bytes[way], Ordering::Relaxed));
            let now = self.station.clock.now();
            let since = self.cells_since.unwrap_or(begun);
            let late = now.since(since) >= PATIENCE;
            match self.cells_since {
                None if late => return Err("building the test circuit took too long".to_owned()),
                Some(_) if late || self.cells_have_left(now, bytes[1]) => return Ok(()),
                _ => {}
            }
        }
    }

    /// Returns whether the circuit may be closed: all cells are written, and five seconds have
    /// passed since they were queued. In this time the cells in flight arrive. An earlier close
    /// would overtake queued cells, which would then be lost.
    fn cells_have_left(&self, now: Time, sent: u64) -> bool {
        let pause = Duration::from_secs(5);
        let waited = self.cells_since.is_some_and(|since| now.since(since) >= pause);
        waited && sent >= self.cells * CELL as u64
    }

    fn turn(&mut self) -> Result<(), String> {
        let ready = self.station.wait(None).map_err(|error| error.to_string())?;
        let now = self.station.clock.now();
        for event in ready {
            if let Token::Carrier(carrier, file) = Token::of(event.token) {
                self.station.receive(now, (carrier, file), event);
            }
        }
        self.station.resume(now);
        self.execute(now)
    }

    fn execute(&mut self, now: Time) -> Result<(), String> {
        while let Some(output) = self.station.core.poll(now) {
            match output {
                Output::Link(output) => self.station.execute(now, output),
                Output::Built { .. } => {
                    self.cells_since = Some(now);
                    let cells = self.cells as u32;
                    self.station.core.handle(now, Input::Drop { circuit: CIRCUIT, cells });
                }
                Output::CircuitClosed { hops, cause, .. } => {
                    return Err(format!("the circuit ended after {hops} relays: {cause}"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn read(transferred: &TestTraffic) -> [u64; 2] {
    [0, 1].map(|way| transferred[way].load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_from_a_minute_to_half_a_day() {
        let mut test = SelfTest::default();
        let pauses: Vec<u64> = (0..12).map(|_| test.put_off(Time::ZERO).as_secs()).collect();
        assert_eq!(pauses[..4], [60, 120, 240, 480]);
        assert_eq!(pauses[10..], [DAILY.as_secs(); 2]);
        assert_eq!(test.due, Time::ZERO + DAILY);
    }

    #[test]
    fn a_cancelled_test_ends_and_its_bytes_count() {
        let (_bring, outcome) = sync_channel(1);
        let transferred = Arc::new([AtomicU64::new(3), AtomicU64::new(4)]);
        let watched = Arc::downgrade(&transferred);
        let under_way = Some(RunningTest { outcome, transferred, through: Vec::new() });
        let mut test = SelfTest { under_way, transferred: [10, 20], ..SelfTest::default() };
        for _ in 0..2 {
            test.cancel();
            assert!(watched.upgrade().is_none(), "the thread sees that it is to end");
            assert_eq!(test.transferred(), [13, 24]);
        }
    }
}

//! The splitter's core with any sequence of events: batches of clients and servers, failures,
//! broken paths, passing time.
//!
//! The input is a script: a few bytes of settings, then a byte for each event and its arguments.
//! `Ledger` keeps an independent record and checks the core's promises.

mod datagrams;
mod ledger;
mod settings;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::time::Duration;

use anabranch_comps::{Batch, Core, DownReason, Failure, Input as CoreInput, Output, SessionId};
use anabranch_comps::{Config, Event, TupleId};
use anabranch_multipath::conformance::check_at_rest;
use anabranch_multipath::{Core as _, PathId, Time};

use self::datagrams::Datagrams;
use self::ledger::{Cause, Ends, Ledger};
use crate::input::Input;

/// Maximum events of one script, which limits its duration.
const EVENTS: usize = 256;
/// Number of clients in a script, which exceeds any limit of sessions that the script sets.
const CLIENTS: usize = 6;
/// Maximum wake-ups that the core may request in one step of time; more would be a busy loop.
const WAKES: usize = 100_000;

const FAILURES: [Failure; 5] =
    [Failure::Full, Failure::TooBig, Failure::Refused, Failure::Unreachable, Failure::Interface];

/// Checks that the core keeps its promises, and that a second run is the same.
pub fn check(script: &[u8]) {
    assert_eq!(run(script).0, run(script).0, "a run is a function of its scenario and its seed");
}

/// Executes a script; returns a hash of all outputs of the core, and its events.
fn run(script: &[u8]) -> (u64, Vec<Event>) {
    let mut script = Input::new(script);
    let config = settings::read(&mut script);
    let Ok(core) = Core::new(config.clone()) else { return (0, Vec::new()) };
    let mut play = Play {
        core,
        ledger: Ledger::new(&config),
        config,
        now: Time::ZERO,
        unresolved: Vec::new(),
        hash: DefaultHasher::new(),
    };
    for _ in 0..EVENTS {
        if script.is_empty() {
            break;
        }
        play.event(&mut script);
    }
    play.feed(CoreInput::Shutdown);
    play.ledger.is_settled(&play.core.snapshot());
    (play.hash.finish(), play.ledger.events)
}

struct Play {
    core: Core,
    ledger: Ledger,
    config: Config,
    now: Time,
    unresolved: Vec<SessionId>,
    hash: DefaultHasher,
}

impl Play {
    fn event(&mut self, script: &mut Input<'_>) {
        match script.below(16) {
            0..=4 => self.client(script),
            5..=7 => self.server(script),
            8 => self.resolve(script),
            9 => self.fail(script),
            10 => self.path(script),
            11 | 12 => self.pass(Duration::from_micros(u64::from(script.word()) * 4)),
            13 => self.pass(Duration::from_millis(u64::from(script.word()) * 4)),
            14 => self.socket(script),
            _ => match script.below(8) {
                7 => self.reconfigure(script),
                session => self.stranger(SessionId(session as u64), script),
            },
        }
        self.ledger.is_bounded(&self.core.snapshot());
    }

    fn client(&mut self, script: &mut Input<'_>) {
        let (client, server) = ends(script.below(CLIENTS));
        let sent = Datagrams::read(script, false);
        let batch = sent.batch();
        self.ledger.takes((client, server), &batch);
        self.core.handle(self.now, CoreInput::Client { client, server, local: None, batch });
        self.drain(Cause::Client(&batch));
    }

    /// Delivers a server's answer on a tuple that was used for sending.
    fn server(&mut self, script: &mut Input<'_>) {
        let Some((session, tuple)) = self.ledger.used(script.below(256)) else { return };
        let sent = Datagrams::read(script, true);
        self.answer(session, tuple, &sent.batch());
    }

    /// Delivers a datagram for a session and a tuple that may not exist. The driver never does
    /// that, but a socket may deliver its last datagrams after its session has ended.
    fn stranger(&mut self, session: SessionId, script: &mut Input<'_>) {
        let tuple = TupleId(script.below(24) as u16);
        let sent = Datagrams::read(script, true);
        self.answer(session, tuple, &sent.batch());
    }

    /// Applies another configuration with existing and new paths. Then delivers a late answer on a
    /// path that may have been removed.
    fn reconfigure(&mut self, script: &mut Input<'_>) {
        let config = settings::read(script);
        let mut places: Vec<_> = (0..self.config.ports.len()).map(PathId::at).collect();
        let mut before = Vec::new();
        for _ in 0..config.ports.len() {
            let place = script.below(places.len() + 1);
            before.push((place < places.len()).then(|| places.remove(place)));
        }
        let Ok(numbers) = self.core.reconfigure(self.now, config.clone(), &before) else { return };
        self.ledger.reconfigured(&config, &numbers, &before);
        self.config = config;
        self.drain(Cause::Time);
        for (session, barred) in self.ledger.resolved_sessions() {
            self.feed(CoreInput::Resolved { session, found: true, barred: &barred });
        }
        let sent = Datagrams::read(script, true);
        let session = SessionId(script.below(8) as u64);
        self.core.handle(self.now, CoreInput::Late { session, batch: sent.batch() });
        self.drain(Cause::Server(session));
    }

    fn answer(&mut self, session: SessionId, tuple: TupleId, batch: &Batch<'_>) {
        self.core.handle(self.now, CoreInput::Server { session, tuple, batch: *batch });
        self.drain(Cause::Server(session));
    }

    fn resolve(&mut self, script: &mut Input<'_>) {
        if self.unresolved.is_empty() {
            return;
        }
        let session = self.unresolved.remove(script.below(self.unresolved.len().min(256)));
        let outcome = script.below(8);
        let found = outcome != 7;
        let paths = self.config.ports.len();
        let barred: Vec<PathId> = match outcome {
            5 => (0..paths).map(PathId::at).collect(),
            6 => vec![PathId::at(paths - 1)],
            _ => Vec::new(),
        };
        self.ledger.resolved(session, found, &barred);
        self.feed(CoreInput::Resolved { session, found, barred: &barred });
    }

    fn fail(&mut self, script: &mut Input<'_>) {
        let Some((session, tuple)) = self.ledger.used(script.below(256)) else { return };
        let failure = script.pick(&FAILURES);
        let (datagrams, bytes) =
            if script.coin() { self.ledger.loses(session, tuple) } else { (0, 0) };
        self.feed(CoreInput::Failed { session, tuple, failure, datagrams, bytes });
    }

    fn path(&mut self, script: &mut Input<'_>) {
        let path = script.below(self.config.ports.len());
        let broken =
            script.pick(&[None, Some(DownReason::Interface), Some(DownReason::Unreachable)]);
        self.ledger.broken[path] = broken.is_some();
        self.feed(CoreInput::Path { path: PathId::at(path), broken });
    }

    /// Opens or closes a socket, sometimes at the address of a client, as in a routing loop.
    fn socket(&mut self, script: &mut Input<'_>) {
        let local = client(script.below(2 * CLIENTS));
        self.feed(match script.coin() {
            true => CoreInput::Opened { local },
            false => CoreInput::Shut { local },
        });
    }

    /// Advances the time by `span`, and wakes the core whenever it has requested that.
    fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        for _ in 0..WAKES {
            let Some(due) = self.core.next_timeout().filter(|&due| due <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(due);
            self.drain(Cause::Time);
        }
        panic!("the core asked to be woken {WAKES} times within {span:?}");
    }

    fn feed(&mut self, input: CoreInput<'_>) {
        self.core.handle(self.now, input);
        self.drain(Cause::Time);
    }

    fn drain(&mut self, cause: Cause<'_>) {
        while let Some(output) = self.core.poll(self.now) {
            format!("{:?} {output:?}", self.now).hash(&mut self.hash);
            if let Output::Resolve { session, .. } = output {
                self.unresolved.push(session);
            }
            self.ledger.sees(output, &cause);
        }
        check_at_rest(&mut self.core, self.now);
    }
}

/// Returns the address of a client, and the server that it names. Every second client has the
/// address of another client, but names another server.
fn ends(number: usize) -> Ends {
    let server = SocketAddr::from(([192, 0, 2, 1], 443));
    (client(number / 2), (number % 2 == 1).then_some(server))
}

fn client(number: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 10_000 + number as u16))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use anabranch_comps::Protocol;

    use super::*;

    /// Returns the events that the core reports during a committed script.
    fn events_of(name: &str) -> Vec<Event> {
        let corpus =
            Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("corpus/core_driver");
        run(&fs::read(corpus.join(name)).unwrap()).1
    }

    fn check_events(name: &str, wanted: fn(&Event) -> bool) {
        let events = events_of(name);
        assert!(events.iter().any(wanted), "{name}: {events:?}");
    }

    #[test]
    fn the_scripts_reach_what_they_are_named_for() {
        for quic in ["quic", "quic-apart"] {
            check_events(quic, |event| matches!(event, Event::Pinned { .. }));
            check_events(quic, |event| matches!(event, Event::Released { .. }));
        }
        for tunnel in ["tunnel", "tunnel-apart"] {
            check_events(tunnel, |event| {
                matches!(event, Event::Recognised { protocol: Protocol::WireGuard, .. })
            });
            check_events(tunnel, |event| matches!(event, Event::Up { session: None, .. }));
        }
        check_events("no-path", |event| {
            matches!(event, Event::Down { reason: DownReason::Interface, .. })
        });
        check_events("silence", |event| {
            matches!(event, Event::Down { reason: DownReason::Silent, .. })
        });
    }
}

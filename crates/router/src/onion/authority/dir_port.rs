//! The thread that serves an authority's directory port and probes relays. It never waits for the
//! registry's thread.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use anabranch_links::tls::Context;
use anabranch_multipath::{Core as _, Time};
use anabranch_onion::authority::reachability::{Output, Probe, Reachability};
use anabranch_os::clock::Clock;
use anabranch_os::poller::Ready;

use super::dir_connections::DirConnections;
use super::shared_answers::{RegistryMessage, SharedAnswers};
use crate::onion::answers::Answers;
use crate::onion::dirclient::{DirClient, unix};
use crate::onion::mptcp::TcpKind;
use crate::onion::station::{CoreDriver, TICK, Token};

/// Maximum number of concurrent probes (test connections) to relays. Half of the probes are
/// reserved for relays that answered the last probe, so that the other relays cannot use up all
/// probes. The maximum is high, because many relays may not answer.
const PROBES: usize = 400;
/// Timeout for a probe's connection to a relay's port.
const OPENING: Duration = Duration::from_secs(10);
/// Poller token of the waker. It signals that new replies to directory requests are available.
const WAKER: u64 = 0;

/// State of the thread that serves the directory port and probes relays.
pub(super) struct DirPort {
    station: CoreDriver<Reachability>,
    dir_connections: DirConnections,
    shared_answers: Arc<SharedAnswers>,
    /// Receiver of the notification that new replies to directory requests are available.
    news: DirClient,
    /// Receiver of the relays to probe, that is, to open test connections to.
    probes: Receiver<Vec<Probe>>,
    ticked: Time,
}

impl DirPort {
    /// Creates the state of the directory port's thread, and listens on the addresses in `listen`.
    /// Also returns the bound addresses.
    ///
    /// # Errors
    /// The process cannot listen on an address, or a system call fails.
    pub(super) fn new(
        listen: &[SocketAddr],
        shared_answers: Arc<SharedAnswers>,
        news: DirClient,
        probes: Receiver<Vec<Probe>>,
    ) -> io::Result<(DirPort, Vec<SocketAddr>)> {
        let context = Context::new(unix()).map_err(io::Error::other)?;
        let reachability = Reachability::new(PROBES, Box::new(anabranch_os::entropy::generator()?));
        let mut station = CoreDriver::new(
            Clock::start(),
            reachability,
            context,
            (TcpKind::Single, listen),
            Vec::new(),
        )?;
        station.carriers.tcp.patience = OPENING;
        station.watch(news.waker(), WAKER)?;
        let at = station.addresses()?;
        let (dir_connections, ticked) = (DirConnections::default(), Time::ZERO);
        Ok((DirPort { station, dir_connections, shared_answers, news, probes, ticked }, at))
    }

    /// Serves the directory port until the registry (the authority's main thread) has ended.
    pub(super) fn run(mut self) {
        loop {
            match self.turn() {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    return self.shared_answers.write(RegistryMessage::Ends(error.to_string()));
                }
            }
        }
    }

    fn turn(&mut self) -> io::Result<bool> {
        let ready = self.station.wait(None)?;
        let now = self.station.clock.now();
        for event in ready {
            self.take(now, event);
        }
        self.station.resume(now);
        let goes_on = self.take_probes(now);
        self.execute(now);
        if now.since(self.ticked) >= TICK {
            self.ticked = now;
            self.dir_connections.expire(now);
            self.shared_answers.write(RegistryMessage::Room(self.station.core.room()));
        }
        Ok(goes_on)
    }

    fn take(&mut self, now: Time, ready: Ready) {
        match Token::of(ready.token) {
            Token::File(_) => {
                // A wake-up does not identify a request, so all waiting requests are checked.
                self.news.take();
                self.dir_connections.call(now, &self.station.poller, &*self.shared_answers);
            }
            Token::Listener(place) => self.accept(now, place),
            Token::Carrier(carrier, file) => self.station.receive(now, (carrier, file), ready),
            Token::Stream(number) => {
                self.dir_connections.serve(
                    now,
                    &self.station.poller,
                    number,
                    ready,
                    &*self.shared_answers,
                );
            }
        }
        self.execute(now);
    }

    fn accept(&mut self, now: Time, place: usize) {
        while let Some(visitor) = self.station.accept(place) {
            let poller = &self.station.poller;
            // If the poller cannot watch the connection, it is closed.
            let _ = self.dir_connections.enter(now, poller, visitor, self.shared_answers.longest());
        }
    }

    /// Starts the probes (test connections to relays) that the registry, the authority's main
    /// thread, has requested. Returns false once the registry has ended.
    fn take_probes(&mut self, now: Time) -> bool {
        loop {
            match self.probes.try_recv() {
                Ok(probes) => {
                    let core = &mut self.station.core;
                    probes.into_iter().for_each(|probe| core.handle(now, probe));
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// Executes the outputs of the protocol core that probes relays.
    fn execute(&mut self, now: Time) {
        while let Some(output) = self.station.core.poll(now) {
            match output {
                Output::Link(output) => self.station.execute(now, output),
                Output::Probed { target, answers } => {
                    self.shared_answers.write(RegistryMessage::Probed {
                        target,
                        answers,
                        at: unix(),
                    });
                }
            }
        }
    }
}

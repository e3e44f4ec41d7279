//! Our pluggable transport: sockets and a clock around the cores of [`anabranch_stego`]. Tor can
//! start the transport (pt-spec), and it also runs without Tor.
//!
//! * [`Bridge`]: parsed bridge lines. `managed`: the dialogue with the program that started us.
//! * [`PtClient`]: a link for each program that connects by SOCKS, or to a port for one
//!   bridge.
//! * [`PtServer`]: the links of all clients. Each link is connected to a relay or another
//!   server.
//! * [`Plugin`]: an external program with transports, which is started and kept running; `inside`:
//!   our transport on a thread; `stream`: streams for programs that use this library ([`dial`],
//!   [`listen`]).
//! * `wires`: the TCP connections over which links send their data. `local`: the local connections
//!   whose bytes links carry.
//!
//! Each client and each server has one thread and one `epoll` set.

mod backlog;
mod bridge;
mod client;
mod inside;
mod local;
mod managed;
mod plugin;
mod server;
mod socket_watch;
mod stream;
mod wires;

#[cfg(test)]
mod tests;

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anabranch_multipath::Time;

use crate::onion::is_passing;
use anabranch_os::clock::Clock;
use anabranch_os::holders::{self, Transport};
use anabranch_os::poller::{Poller, Ready};

pub use anabranch_pt::{BridgeLine, OfferLine, Outbound, PluginLine, PluginPlace};
pub use anabranch_stego::slot::FAMILIES as PROFILES;
pub use anabranch_stego::{
    Covers, Ending, Profile, ProfileError, ServerKey, Shape, ShapeFault, Shapes, Site,
};
pub use bridge::{
    Bridge, BridgeFault, KeyFault, PROFILE, TRANSPORT, pictures, server_key, shapes,
    unusable_pictures,
};
pub use client::{ClientSettings, ListenerKind, PtClient};
pub use inside::TransportThread;
pub use local::Arrival;
pub use managed::{Limits, Managed, ManagedFailure, log_line, managed, server_settings};
pub use plugin::{Plugin, PluginFailure, PluginSettings, ServerPlugin};
pub use server::{Onward, PtServer, ServerSettings};
pub use stream::{ListenSettings, Listener, Stream, dial, listen};

/// Default scheduler, which distributes a link's chunks of data among its TCP connections. The
/// connection with the most room in its send queue takes the next chunk.
pub const SCHEDULE: &str = "pull";
/// Poller token of the socket that stops a client or server of our transport.
const STOP: u64 = 0;
/// Poller token of standard input, whose end may also stop a client or server.
const PARENT: u64 = 1;
/// Smallest poller token of a listening socket. The token is this value plus the socket's index.
const LISTENERS: u64 = 16;
/// Interval of checks for which there are no events, such as for timeouts.
const TICK: Duration = Duration::from_secs(1);

/// Event of a client or server of our transport. A link is a pair of byte streams between a client
/// and a server, which one or more TCP connections carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PtEvent {
    /// A link to a bridge, or from a client, has opened. At a client, the field is the bridge's
    /// address.
    Up(Option<SocketAddr>),
    /// A link has ended. At a client, the first field is the bridge's address.
    Over(Option<SocketAddr>, Ending),
    /// Connection of a peer that did not prove to be a client of our transport, for example of a
    /// censor's probe.
    Stranger,
    /// Failure to open a link, or to connect it to its destination. The field is the reason.
    Trouble(String),
}

/// Conditions under which a client or server stops running.
pub struct StopConditions<'a, S> {
    /// Socket that becomes readable when the client or server should stop.
    pub stop: &'a S,
    /// True if the client or server also stops at the end of standard input.
    pub with_input: bool,
}

impl<S: AsFd> StopConditions<'_, S> {
    fn watch(&self, poller: &Poller) -> io::Result<()> {
        poller.add(self.stop, STOP)?;
        if self.with_input {
            // An error is ignored: standard input may be a file, which cannot be polled and is no
            // pipe from a parent.
            let _ = poller.add(io::stdin(), PARENT);
        }
        Ok(())
    }

    /// Returns whether an event with the poller token `token` is a reason to stop.
    fn is_stop(&self, token: u64) -> bool {
        match token {
            STOP => true,
            PARENT => match io::stdin().read(&mut [0; 512]) {
                Ok(count) => count == 0,
                // Other errors end the run. For example, a closed terminal would be ready forever.
                Err(error) => !is_passing(&error),
            },
            _ => false,
        }
    }
}

/// A client or server of our transport, with the operations that the event loop calls.
trait Station {
    fn clock(&self) -> Clock;

    fn poller(&mut self) -> &mut Poller;

    /// Returns the time at which [`Station::work`] must be called if there is no event before;
    /// `None` if nothing is scheduled.
    fn next_timeout(&self) -> Option<Time>;

    /// Handles the event `ready` of a socket that the poller has reported.
    fn take(&mut self, now: Time, ready: Ready);

    /// Runs periodic checks, which do not depend on events. It is called once in each [`TICK`].
    fn sweep(&mut self, now: Time);

    /// Executes all pending outputs of the protocol core (a state machine without I/O), and moves
    /// bytes until no socket is ready.
    fn work(&mut self, now: Time);

    /// Returns the events since the last call.
    fn events(&mut self) -> Vec<PtEvent>;
}

/// Runs `station` until a condition in `ends` is met. Passes the station's events to `watch`.
///
/// # Errors
/// A system call fails.
fn carry<S: AsFd>(
    station: &mut impl Station,
    conditions: &StopConditions<'_, S>,
    watch: &mut dyn FnMut(PtEvent),
) -> io::Result<()> {
    carry_while(station, conditions, watch, |_| true)
}

/// Runs `station` as [`carry`] does, but also stops when `goes_on` returns false. `goes_on` is
/// called at least once in each [`TICK`].
fn carry_while<S: AsFd, T: Station>(
    station: &mut T,
    conditions: &StopConditions<'_, S>,
    watch: &mut dyn FnMut(PtEvent),
    mut goes_on: impl FnMut(&T) -> bool,
) -> io::Result<()> {
    conditions.watch(station.poller())?;
    let clock = station.clock();
    let mut swept = clock.now();
    loop {
        let due = station.next_timeout();
        let pause = due.map_or(TICK, |due| due.since(clock.now()).min(TICK));
        let ready: Vec<Ready> = station.poller().wait(Some(pause))?.collect();
        let now = clock.now();
        for ready in ready {
            if conditions.is_stop(ready.token) {
                return Ok(());
            }
            station.take(now, ready);
        }
        if now.since(swept) >= TICK {
            swept = now;
            station.sweep(now);
        }
        station.work(now);
        station.events().into_iter().for_each(&mut *watch);
        if !goes_on(station) {
            return Ok(());
        }
    }
}

/// Returns the time at which `clock` showed 0, in seconds since 1970. It is computed as the
/// machine's present time minus the time on `clock`. Later calls can return other values: the
/// machine's time may be set, and `clock` stops while the machine sleeps.
fn wall(clock: Clock) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(clock.now().since(Time::ZERO)).as_secs()
}

fn bind(at: SocketAddr) -> io::Result<TcpListener> {
    let named = |error: io::Error| {
        let why = holders::unbindable(Transport::Tcp, at, &error);
        io::Error::new(error.kind(), format!("{at}: {why}"))
    };
    let listener = TcpListener::bind(at).map_err(named)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

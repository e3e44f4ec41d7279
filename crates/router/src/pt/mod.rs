//! Camouflage on a machine: sockets and a clock around [`anabranch_stego`], as a pluggable
//! transport that tor starts, or by itself.
//!
//! * [`Bridge`]: what a bridge line says. `managed`: the dialogue with the program that started us.
//! * [`ClientStation`]: a link for each program that comes by SOCKS, or by a port that leads to one
//!   bridge.
//! * [`ServerStation`]: the links of all clients, each led to a relay or another server.
//! * [`Plugin`]: a program of somebody's with transports, started and kept running; `inside`: ours
//!   without a program; `stream`: streams for a program that calls us ([`dial`], [`listen`]).
//! * `wires`: the connections that carry links. `local`: those whose bytes links carry.
//!
//! Each station is one thread and one `epoll` set.

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
pub use anabranch_stego::{
    Covers, Ending, Profile, ProfileError, ServerKey, Shape, ShapeFault, Shapes, Site,
};
pub use bridge::{
    Bridge, BridgeFault, KeyFault, PROFILE, TRANSPORT, pictures, server_key, shapes,
    told_of_pictures,
};
pub use client::{ClientSettings, ClientStation, Entrance};
pub use inside::Inside;
pub use local::Arrival;
pub use managed::{Limits, Managed, ManagedFailure, log_line, managed, server_settings};
pub use plugin::{Plugin, PluginFailure, PluginSettings, ServerPlugin};
pub use server::{Onward, ServerSettings, ServerStation};
pub use stream::{ListenSettings, Listener, Stream, dial, listen};

/// Which connection takes the next chunk: the one that has most room.
pub const SCHEDULE: &str = "pull";
/// Tokens of single files, and of the first listener.
const STOP: u64 = 0;
const PARENT: u64 = 1;
const LISTENERS: u64 = 16;
/// Between two looks at what no file tells.
const TICK: Duration = Duration::from_secs(1);

/// What happens at a station.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PtEvent {
    /// A link is up; at a client the bridge's address.
    Up(Option<SocketAddr>),
    /// A link is over; at a client the bridge's address.
    Over(Option<SocketAddr>, Ending),
    /// Somebody came who is no client of ours.
    Stranger,
    /// A link could not be had, or led on; why.
    Trouble(String),
}

/// What ends a run.
pub struct Ends<'a, S> {
    /// Becomes readable when the program is told to end.
    pub stop: &'a S,
    /// Whether the end of standard input does, too.
    pub with_input: bool,
}

impl<S: AsFd> Ends<'_, S> {
    fn watch(&self, poller: &Poller) -> io::Result<()> {
        poller.add(self.stop, STOP)?;
        if self.with_input {
            // It may be a file, which never has to be waited for and is no parent's.
            let _ = poller.add(io::stdin(), PARENT);
        }
        Ok(())
    }

    /// Whether a token tells the end.
    fn is_told(&self, token: u64) -> bool {
        match token {
            STOP => true,
            PARENT => match io::stdin().read(&mut [0; 512]) {
                Ok(count) => count == 0,
                // As of a terminal that is gone: it would be told of without an end.
                Err(error) => !is_passing(&error),
            },
            _ => false,
        }
    }
}

/// What the loop of a station is made of.
trait Station {
    fn clock(&self) -> Clock;

    fn poller(&mut self) -> &mut Poller;

    /// When [`Station::work`] is to be called though nothing happens.
    fn next_timeout(&self) -> Option<Time>;

    /// A file is ready.
    fn take(&mut self, now: Time, ready: Ready);

    /// Looks at what no file tells, each [`TICK`].
    fn sweep(&mut self, now: Time);

    /// Does what links want done, until none does.
    fn work(&mut self, now: Time);

    /// What has happened since the last call.
    fn events(&mut self) -> Vec<PtEvent>;
}

/// Carries until it is told to end.
///
/// # Errors
/// The kernel's.
fn carry<S: AsFd>(
    station: &mut impl Station,
    ends: &Ends<'_, S>,
    watch: &mut dyn FnMut(PtEvent),
) -> io::Result<()> {
    carry_while(station, ends, watch, |_| true)
}

/// The same as long as it `goes_on`, which it is asked each [`TICK`] at least.
fn carry_while<S: AsFd, T: Station>(
    station: &mut T,
    ends: &Ends<'_, S>,
    watch: &mut dyn FnMut(PtEvent),
    mut goes_on: impl FnMut(&T) -> bool,
) -> io::Result<()> {
    ends.watch(station.poller())?;
    let clock = station.clock();
    let mut swept = clock.now();
    loop {
        let due = station.next_timeout();
        let pause = due.map_or(TICK, |due| due.since(clock.now()).min(TICK));
        let ready: Vec<Ready> = station.poller().wait(Some(pause))?.collect();
        let now = clock.now();
        for ready in ready {
            if ends.is_told(ready.token) {
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

/// Seconds since 1970 when a station began, by what the machine's clock says now: it may have been
/// set since, and a run's own clock stands still while the machine sleeps.
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

//! Our pluggable transport on a thread of the program that uses it, instead of in a separate
//! process.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};

use anabranch_multipath::schedule::Spec;

use super::bridge::{Bridge, TRANSPORT};
use super::client::{ClientSettings, ListenerKind, PtClient};
use super::server::{PtServer, ServerSettings};
use super::{PtEvent, Shapes, Station, StopConditions, carry};
use crate::onion::bridge_routes::Transports;

/// A client or server of our transport on a thread. The thread ends when this value is dropped.
pub struct TransportThread {
    _thread: StationThread,
}

impl TransportThread {
    /// Starts a client of our transport. The client's address and messages are stored in
    /// `transports`.
    ///
    /// # Errors
    /// A system call fails.
    pub fn client(schedule: Spec, transports: Transports) -> io::Result<TransportThread> {
        let any = (SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ListenerKind::Socks);
        let settings = ClientSettings { listen: vec![any], schedule, shapes: Shapes::default() };
        let open = || {
            let station = PtClient::new(settings)?;
            let at = station.addresses()?[0];
            Ok((station, at))
        };
        let (inside, at) = TransportThread::start(transports.clone(), open)?;
        transports.ready(TRANSPORT, at);
        Ok(inside)
    }

    /// Starts a server of our transport for a bridge's clients. Also returns the server's bridge
    /// line.
    ///
    /// # Errors
    /// The errors of [`PtServer::new`].
    pub fn server(
        settings: ServerSettings,
        transports: Transports,
    ) -> io::Result<(TransportThread, Bridge)> {
        TransportThread::start(transports, || {
            let station = PtServer::new(settings)?;
            let bridge = station.bridge().clone();
            Ok((station, bridge))
        })
    }

    fn start<S: Station, T: Send + 'static>(
        transports: Transports,
        open: impl FnOnce() -> io::Result<(S, T)> + Send + 'static,
    ) -> io::Result<(TransportThread, T)> {
        let log = transports.clone();
        let watch = move |event| {
            if let PtEvent::Trouble(why) = event {
                log.log(format!("transport {TRANSPORT}: {why}"));
            }
        };
        let broken = move |error| {
            transports.gone(TRANSPORT);
            transports.log(format!("transport {TRANSPORT} stopped working: {error}"));
        };
        let (thread, about) = StationThread::start(open, watch, broken)?;
        Ok((TransportThread { _thread: thread }, about))
    }
}

/// Thread of a client or server of our transport. The thread ends when this value is dropped.
pub(super) struct StationThread {
    /// Socket that is closed in order to end the thread; `None` once it is closed.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl StationThread {
    /// Starts a thread, and runs on it the client or server that `open` returns. `open` is called
    /// on the new thread, because a client or server cannot move to another thread. `watch`
    /// receives its events, and `broken` receives the error if it fails.
    pub(super) fn start<S: Station, T: Send + 'static>(
        open: impl FnOnce() -> io::Result<(S, T)> + Send + 'static,
        mut watch: impl FnMut(PtEvent) + Send + 'static,
        broken: impl FnOnce(io::Error) + Send + 'static,
    ) -> io::Result<(StationThread, T)> {
        let (stop, stopped) = UnixStream::pair()?;
        let (opened, news) = channel();
        let run = move || {
            let mut station = match open() {
                Ok((station, about)) => {
                    // The thread that started this one waits for the message.
                    let _ = opened.send(Ok(about));
                    station
                }
                Err(error) => return drop(opened.send(Err(error))),
            };
            let conditions = StopConditions { stop: &stopped, with_input: false };
            if let Err(error) = carry(&mut station, &conditions, &mut watch) {
                broken(error);
            }
        };
        let thread = thread::Builder::new().name("transport".into()).spawn(run)?;
        let about = news.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?;
        Ok((StationThread { stop: Some(stop), thread: Some(thread) }, about))
    }
}

impl Drop for StationThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

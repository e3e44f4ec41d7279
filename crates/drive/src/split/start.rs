//! From settings to a driver that is ready for clients.

use std::collections::HashMap;
use std::io;
use std::os::unix::net::UnixStream;

use anabranch_comps::Core;

use super::driver::{Driver, EVENTS, LISTENER, NAMES, NETWORK, PROXIES, RELOAD, STOP};
use super::files;
use super::manager;
use super::proxies::Proxies;
use super::reload::Reread;
use super::resolver::Resolver;
use super::signals::signals;
use super::sockets::Sockets;
use super::taps::Taps;
use super::told::Told;
use super::trial::try_paths;
use super::ways::Ways;
use super::{Failure, Listening, Screen, Settings};
use crate::clock::Clock;
use crate::netlink::Monitor;
use crate::poller::Poller;
use crate::udp::{SendQueue, UdpOptions, UdpSocket};

/// Receive buffer of the listener, in bytes: it is shared by all clients.
const LISTENER_BUFFER: usize = 16 << 20;

impl<'s> Driver<'s> {
    /// Everything opened, in an order that leaves nothing behind where it ends early.
    pub(super) fn new(
        settings: Settings,
        reread: Option<Reread<'s>>,
        screen: &'s mut dyn Screen,
        stop: Option<UnixStream>,
    ) -> Result<Driver<'s>, Failure> {
        let mut about = Listening::look(&settings)?;
        let mut warnings = try_paths(&about.egresses, settings.fwmark)?;
        files::raise_limit();
        let system = |what| move |error| Failure::System(what, error);
        let proxies = Proxies::start(&settings.specs, &about.egresses, settings.fwmark)
            .map_err(system("starting a thread for proxies"))??;
        warnings.extend(files::shortage(&settings.core, proxies.len(), files::limit()));
        let core = Core::new(settings.core.clone())
            .expect("the settings' schedule was checked against its paths");
        let options = UdpOptions {
            recv_buffer: LISTENER_BUFFER,
            error_queue: false,
            ..UdpOptions::default()
        };
        let listener = UdpSocket::bind(settings.listen, &options);
        let listener = listener.map_err(|error| Failure::Listen(settings.listen, error))?;
        about.listen =
            listener.local_addr().map_err(system("asking for the listener's address"))?;
        let clock = Clock::start();
        // Before the captures: a signal must not leave their unfinished files behind.
        let watched = stop.map_or_else(|| signals(reread.is_some()), |stop| Ok((stop, None)));
        let (stop, hangup) = watched.map_err(system("watching for signals"))?;
        let taps = Taps::create(&settings, &clock).map_err(Failure::Capture)?;
        let mut driver = Driver {
            core,
            clock,
            poller: Poller::new(EVENTS).map_err(system("opening an epoll set"))?,
            listener,
            sockets: Sockets::new(settings.fwmark),
            ways: Ways::new(settings.specs.clone(), about.egresses.clone(), settings.fwmark),
            literal: settings.to.literal(),
            resolver: Resolver::start(settings.to.clone())
                .map_err(system("starting the resolver"))?,
            proxies,
            servers: HashMap::new(),
            monitor: Monitor::open().map_err(system("watching the machine's network"))?,
            stop,
            hangup,
            reread,
            settings,
            about,
            taps,
            queue: SendQueue::new(),
            next_snapshot: clock.now() + screen.interval(),
            screen,
            told: Told::default(),
            counted: 0,
            missed: 0,
            not_returned: 0,
            foreign: 0,
            stopped: false,
        };
        driver.watch_all().map_err(system("filling the epoll set"))?;
        driver.screen.listening(&driver.about);
        driver.proxies.paths().into_iter().for_each(|path| driver.watch_spare(path));
        manager::ready(&driver.about);
        warnings.iter().for_each(|warning| driver.screen.warn(warning));
        Ok(driver)
    }

    fn watch_all(&self) -> io::Result<()> {
        self.poller.add(&self.listener, LISTENER)?;
        self.poller.add(&self.stop, STOP)?;
        self.hangup.as_ref().map_or(Ok(()), |hangup| self.poller.add(hangup, RELOAD))?;
        self.poller.add(&self.monitor, NETWORK)?;
        self.poller.add(&self.resolver, NAMES)?;
        self.poller.add(&self.proxies, PROXIES)
    }
}

//! Starts the splitter: turns settings into a driver that is ready for clients.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;

use anabranch_comps::Core;
use anabranch_os::clock::Clock;
use anabranch_os::files;
use anabranch_os::holders::{self, Transport};
use anabranch_os::poller::Poller;
use anabranch_os::udp::{UdpOptions, UdpSocket};

use super::control::Control;
use super::driver::{
    DIALS, Driver, EVENTS, LISTENER, LOOKED_UP, NAMES, NETWORK, PROXIES, RELOAD, STEERED, STOP,
};
use super::egress_table::EgressTable;
use super::ingress::Ingress;
use super::manager;
use super::needed;
use super::proxies::Proxies;
use super::report::Report;
use super::resolver::Resolver;
use super::streams::{Streams, Terms};
use super::taps::Taps;
use super::trial::try_paths;
use super::tunnel::Tunnel;
use super::uplinks::Uplinks;
use super::{ActiveSettings, Entrance, Failure, Reread, Screen, Settings, Target};
use crate::steer::Steering;

/// Receive buffer in bytes of the socket at which clients' datagrams arrive. All clients share it.
const LISTENER_BUFFER: usize = 16 << 20;

impl<'s> Driver<'s> {
    /// Opens the sockets, interfaces and captures that the driver needs. If a step fails, undoes
    /// the changes to the machine's routes and rules.
    pub(super) fn new(
        settings: Settings,
        reread: Option<Reread<'s>>,
        screen: &'s mut dyn Screen,
        stop: Option<UnixStream>,
    ) -> Result<Driver<'s>, Failure> {
        let mut about = ActiveSettings::look(&settings)?;
        let mut warnings = try_paths(&about.egresses, settings.fwmark)?;
        files::raise_limit();
        let system = |what| move |error| Failure::System(what, error);
        let proxies = Proxies::start(&settings.specs, &about.egresses, settings.fwmark)
            .map_err(system("cannot start a thread for proxies"))??;
        warnings.extend(needed::shortage(&settings.core, proxies.len(), files::limit()));
        let core = Core::new(settings.core.clone())
            .expect("the schedule in the settings was checked against the paths");
        let clock = Clock::start();
        // Signals are handled from here on, before the captures begin, so that a signal does not
        // leave unfinished files.
        let control = Control::start(reread, stop)?;
        let taps = Taps::create(&settings, &clock).map_err(Failure::Capture)?;
        let to = settings.entrance.to().cloned();
        let literal = to.as_ref().and_then(Target::literal);
        let resolver = Resolver::start(to).map_err(system("cannot start the resolver of names"))?;
        let poller = Poller::new(EVENTS).map_err(system("cannot create an epoll instance"))?;
        let far_end = settings.far_end.as_ref();
        let tunnel = far_end.map(|far| Tunnel::new(far, &settings, &about, clock.now()));
        let tunnel = tunnel.transpose().map_err(system("cannot prepare the tunnel"))?;
        // This step changes the machine, so it follows the steps that are likely to fail. If a
        // later step fails, dropping `ingress` undoes the changes.
        let (ingress, egress_table, warning) = open_door(&settings, &mut about)?;
        warnings.extend(warning);
        let fwmark = mark(&settings, &about);
        let far = settings.to_tcp.as_ref().or(settings.entrance.to());
        let records = settings.trace.is_some() || settings.pcap.is_some();
        let (tls, age) = (settings.tls.clone(), settings.stream_age);
        let terms = Terms { fwmark, tls, age, records };
        let streams = Streams::new(&settings.specs, far, terms, settings.core.seed);
        let streams = streams.map_err(system("cannot open a pair of sockets"))?;
        let uplinks = Uplinks::new((egress_table, fwmark), (proxies, streams), (resolver, literal));
        let report = Report::new(screen, taps, clock.now());
        let in_parts = false;
        let mut driver = Driver {
            core,
            clock,
            poller,
            ingress,
            uplinks,
            tunnel,
            control,
            report,
            settings,
            about,
            in_parts,
        };
        driver.begin(&warnings).map_err(system("cannot watch a socket (epoll)"))?;
        Ok(driver)
    }

    /// Adds all file descriptors to the poller, reports that clients can connect, and starts to
    /// look up the far end, if there is one.
    fn begin(&mut self, warnings: &[String]) -> io::Result<()> {
        self.watch_all()?;
        self.report.screen.listening(&self.about);
        self.uplinks.proxies.paths().into_iter().for_each(|path| self.watch_spare(path));
        manager::ready(&self.about);
        warnings.iter().for_each(|warning| self.report.screen.warn(warning));
        let now = self.clock.now();
        self.seek_far_end(now);
        self.uplinks.streams.paths().into_iter().for_each(|path| self.report_stream(now, path));
        Ok(())
    }

    fn watch_all(&self) -> io::Result<()> {
        self.poller.add(&self.ingress, LISTENER)?;
        self.poller.add(&self.control.stop, STOP)?;
        self.control.hangup.as_ref().map_or(Ok(()), |hangup| self.poller.add(hangup, RELOAD))?;
        self.poller.add(&self.control.monitor, NETWORK)?;
        self.ingress
            .watched()
            .into_iter()
            .try_for_each(|watched| self.poller.add(watched, STEERED))?;
        self.poller.add(&self.uplinks.resolver, NAMES)?;
        self.poller.add(&self.control.lookup, LOOKED_UP)?;
        self.poller.add(&self.uplinks.proxies, PROXIES)?;
        self.poller.add(&self.uplinks.streams, DIALS)
    }
}

/// Opens the local port or the interface at which clients' datagrams arrive. Returns the warnings
/// for the user.
fn open_door(
    settings: &Settings,
    about: &mut ActiveSettings,
) -> Result<(Ingress, EgressTable, Vec<String>), Failure> {
    match (&settings.entrance, about.tun.take()) {
        (Entrance::Port { listen, .. }, _) => {
            let listener = open_port(*listen)?;
            let asking = |error| Failure::System("cannot read the listener's address", error);
            about.listen = Some(listener.local_addr().map_err(asking)?);
            let (specs, fwmark) = (settings.specs.clone(), settings.fwmark);
            let egress_table = EgressTable::new(specs, about.egresses.clone(), fwmark);
            Ok((Ingress::Port(listener), egress_table, Vec::new()))
        }
        (Entrance::Packets { .. }, plan) => {
            let plan = plan.expect("settings with an interface (--tun) always have a plan");
            let (specs, fwmark) = (settings.specs.clone(), settings.fwmark);
            let egress_table = EgressTable::new(specs, about.egresses.clone(), fwmark);
            let (steering, tun, warnings) = Steering::raise(plan)?;
            about.tun = Some(steering.plan().clone());
            Ok((Ingress::tun(tun, steering), egress_table, warnings))
        }
        (Entrance::Tun(_), plan) => {
            let plan = plan.expect("settings with an interface (--tun) always have a plan");
            let egress_table = EgressTable::anywhere(settings)?;
            let (steering, tun, warnings) = Steering::raise(plan)?;
            let egress_table = egress_table.marked(steering.plan().own);
            about.tun = Some(steering.plan().clone());
            Ok((Ingress::tun(tun, steering), egress_table, warnings))
        }
    }
}

fn open_port(listen: SocketAddr) -> Result<UdpSocket, Failure> {
    let options =
        UdpOptions { recv_buffer: LISTENER_BUFFER, error_queue: false, ..UdpOptions::default() };
    UdpSocket::bind(listen, &options).map_err(|error| {
        let why = holders::unbindable(Transport::Udp, listen, &error);
        Failure::Listen(listen, io::Error::new(error.kind(), why))
    })
}

/// Returns the mark of our own packets. With [`Entrance::Tun`] it is the mark in the plan, so that
/// rules keep these packets out of the interface. Otherwise it is the mark that the user has
/// chosen, or `None`.
fn mark(settings: &Settings, about: &ActiveSettings) -> Option<u32> {
    match settings.entrance {
        Entrance::Tun(_) => about.tun.as_ref().map(|plan| plan.own),
        _ => settings.fwmark,
    }
}

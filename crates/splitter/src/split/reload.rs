//! Changes the settings of a running splitter. On SIGHUP, the splitter reads its settings again.
//! It adopts either all changes or none.

use std::io;
use std::net::SocketAddr;

use anabranch_comps::{Input, SessionId};
use anabranch_multipath::{Core as _, PathId, Time};
use anabranch_os::files;
use anabranch_os::manager::reloading;
use anabranch_os::target::Target;

use super::driver::Driver;
use super::lookup::LookupResults;
use super::trial::try_paths;
use super::{ActiveSettings, Entrance, Failure, Settings, manager, needed};
use crate::paths::{self, Egress, PathSpec};

impl Driver<'_> {
    /// Reads the settings again. If the new settings have mistakes, reports the mistakes, and the
    /// old settings stay in force.
    pub(super) fn on_reload(&mut self) {
        let Some(reread) = &mut self.control.reread else { return };
        reloading();
        self.control.lookup.dismiss();
        let read = reread(&self.settings).and_then(|settings| {
            refuse_fixed(&self.settings, &settings)?;
            self.report.taps.may_have(&settings)?;
            Ok(settings)
        });
        let far = self.settings.to_tcp.as_ref().or(self.settings.entrance.to()).cloned();
        let names =
            |settings: &Settings| names(&self.settings.specs, &settings.specs, far.as_ref());
        match read.map(|settings| (names(&settings), settings)) {
            Ok((names, settings)) if names.is_empty() => {
                self.take_over(settings, &LookupResults::new())
            }
            Ok((names, settings)) => {
                if let Err(error) = self.control.lookup.begin(settings, names) {
                    self.end_reload(Err(format!(
                        "the names of the proxies cannot be looked up: {error}"
                    )));
                }
            }
            Err(why) => self.end_reload(Err(why)),
        }
    }

    /// Continues a change of settings after the names of new first hops (proxies, far ends) were
    /// looked up. Sessions continue during the lookup.
    pub(super) fn on_looked_up(&mut self) {
        if let Some((settings, found)) = self.control.lookup.answer() {
            self.take_over(settings, &found);
        }
    }

    fn take_over(&mut self, settings: Settings, found: &LookupResults) {
        let done = self.adopt(settings, found);
        self.end_reload(done);
    }

    fn end_reload(&mut self, done: Result<(), String>) {
        if let Err(why) = done {
            self.report.screen.warn(&format!("{why}; the current settings stay"));
        }
        manager::ready(&self.about);
    }

    fn adopt(&mut self, settings: Settings, found: &LookupResults) -> Result<(), String> {
        let now = self.clock.now();
        let before = matching_paths(&self.settings.specs, &settings.specs);
        let egresses = self.egresses(&settings, &before, found);
        let egresses = egresses.map_err(|failure| failure.to_string())?;
        // Shows the last counters of paths that are removed.
        let missed = self.uplinks.sockets.missed(now);
        let snapshot = self.snapshot(missed);
        self.report.screen.snapshot(now, &snapshot);
        self.leave_proxies(now, |path| before.contains(&Some(path)));
        let numbers = self.core.reconfigure(now, settings.core.clone(), &before);
        let numbers = numbers.map_err(|error| format!("schedule: {error}"))?;
        let taps = &self.report.taps;
        self.uplinks.sockets.renumber(now, &numbers, |path| taps.number(path));
        self.report.taps.renumber(&settings);
        self.renumber_proxies(&numbers, &settings.specs);
        self.report.warnings.forget_paths();
        let others = std::mem::take(&mut self.about.others);
        let ends = (self.about.listen, self.about.server);
        let tun = self.about.tun.take();
        if tun.is_none() {
            self.uplinks.egress_table.replace(now, settings.specs.clone(), egresses.clone());
        }
        self.about = ActiveSettings::about(&settings, ends, tun, (egresses, others));
        self.uplinks.streams.set_tls(settings.tls.clone());
        self.settings = settings;
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.keep_windows(&self.settings.core.schedule);
            self.lead_tunnel(now, &before);
        }
        self.report.screen.reloaded(now, &self.about);
        needed::shortage(&self.settings.core, self.uplinks.proxies.len(), files::limit())
            .into_iter()
            .for_each(|warning| self.report.screen.warn(&warning));
        self.resolve_again(now);
        Ok(())
    }

    /// Sets up the tunnel's new paths after a reload. `before` has each path's index before the
    /// reload; `None` for a new path. A new path may be a stream or a path of datagrams.
    fn lead_tunnel(&mut self, now: Time, before: &[Option<PathId>]) {
        let ports = &self.settings.core.ports;
        self.tunnel.iter_mut().for_each(|tunnel| tunnel.renumber(ports));
        let changed = before.iter().enumerate().filter(|(_, before)| before.is_none());
        for path in changed.map(|(place, _)| PathId::at(place)).collect::<Vec<_>>() {
            self.uplinks.streams.replace(now, path, &self.settings.specs[path.index()]);
            let broken = self.uplinks.streams.broken(path);
            self.report_path(now, path, broken);
            if let Some(tunnel) = self.tunnel.as_mut().filter(|_| broken.is_none()) {
                tunnel.on_path(now, path);
            }
        }
    }

    /// Returns the egress (interface, source address and route) of each path in the settings. New
    /// paths are looked up. Paths that existed before keep their egress, even if they are down
    /// now.
    fn egresses(
        &mut self,
        settings: &Settings,
        before: &[Option<PathId>],
        found: &LookupResults,
    ) -> Result<Vec<Egress>, Failure> {
        let server = self.uplinks.egress_table.server();
        let mut egresses = Vec::new();
        for (spec, before) in settings.specs.iter().zip(before) {
            let egress = match before {
                Some(path) => {
                    Egress { ports: spec.ports, ..self.uplinks.egress_table.of(*path).clone() }
                }
                None => self.look_at(spec, server, found)?,
            };
            egresses.push(egress);
        }
        if !settings.same_egress {
            paths::refuse_same(&egresses)?;
        }
        Ok(egresses)
    }

    fn look_at(
        &mut self,
        spec: &PathSpec,
        server: SocketAddr,
        found: &LookupResults,
    ) -> Result<Egress, Failure> {
        let known = |name: &Target| match found.iter().find(|(looked_up, _)| looked_up == name) {
            Some((_, Ok(addresses))) => Ok(addresses.clone()),
            Some((_, Err(error))) => Err(io::Error::new(error.kind(), error.to_string())),
            // An address needs no look-up.
            None => name.resolve(),
        };
        let (specs, mark) = (std::slice::from_ref(spec), self.settings.fwmark);
        let egresses = paths::resolve_by(specs, &[server], mark, true, &known)?;
        let warnings = try_paths(&egresses, self.settings.fwmark)?;
        warnings.iter().for_each(|warning| self.report.screen.warn(warning));
        Ok(egresses.into_iter().next().expect("a path without an error has an egress"))
    }

    /// Reports to the protocol core again which paths lead to each session's server, and executes
    /// the core's outputs.
    pub(super) fn resolve_again(&mut self, now: Time) {
        let mut sessions: Vec<SessionId> = self.uplinks.servers.keys().copied().collect();
        sessions.sort_unstable();
        for session in sessions {
            let barred = self.uplinks.barred(self.uplinks.servers[&session]);
            self.core.handle(now, Input::Resolved { session, found: true, barred: &barred });
        }
        self.tend(now);
    }
}

/// Returns the names of new first hops that must be looked up: proxies, the far end `far` (`None`
/// without a far end), and other targets of streams.
fn names(old: &[PathSpec], new: &[PathSpec], far: Option<&Target>) -> Vec<Target> {
    let fresh = new.iter().zip(matching_paths(old, new)).filter(|(_, place)| place.is_none());
    let hops = fresh.filter_map(|(spec, _)| match &spec.stream {
        Some(kind) => kind.first_hop(far?).cloned(),
        None => Some(spec.proxy.as_ref()?.at.clone()),
    });
    hops.filter(|at| at.literal().is_none()).collect()
}

/// Returns, for each path of `new`, the index of the same path in `old`, or `None`. Paths are the
/// same if they differ at most in their number of source ports.
fn matching_paths(old: &[PathSpec], new: &[PathSpec]) -> Vec<Option<PathId>> {
    let same =
        |one: &PathSpec, other: &PathSpec| PathSpec { ports: other.ports, ..one.clone() } == *other;
    let place = |spec| old.iter().position(|old| same(old, spec)).map(PathId::at);
    new.iter().map(place).collect()
}

/// Returns whether the paths in both lists have the same names in the same order.
fn are_named_alike(old: &[PathSpec], new: &[PathSpec]) -> bool {
    old.iter().map(|spec| &spec.name).eq(new.iter().map(|spec| &spec.name))
}

/// Returns an error if a setting differs that cannot change while the splitter runs, because
/// sessions or files depend on it.
fn refuse_fixed(old: &Settings, new: &Settings) -> Result<(), String> {
    let Settings { entrance, specs, core: _, far_end, fwmark, .. } = old;
    let Settings { same_egress: _, trace, pcap, pcap_limits, .. } = old;
    let listen = |settings: &Settings| match settings.entrance {
        Entrance::Port { listen, .. } => Some(listen),
        Entrance::Tun(_) | Entrance::Packets { .. } => None,
    };
    let is_interface = !matches!(entrance, Entrance::Port { .. });
    let changed = [
        ("listen", listen(old) != listen(new)),
        ("to", entrance.to() != new.entrance.to()),
        ("to-tcp", old.to_tcp != new.to_tcp),
        ("stream-age", old.stream_age != new.stream_age),
        ("tun", *entrance != new.entrance),
        ("decoys", far_end.is_some() && new.far_end.is_some() && old.decoys() != new.decoys()),
        ("key", *far_end != new.far_end),
        // The machine's routes depend on the paths. A far end knows the number of paths, and
        // identifies each path by its index.
        ("path", is_interface && *specs != new.specs),
        ("path (names and order)", far_end.is_some() && !are_named_alike(specs, &new.specs)),
        ("fwmark", *fwmark != new.fwmark),
        ("trace", *trace != new.trace),
        ("pcap", *pcap != new.pcap),
        ("pcap-size", *pcap_limits != new.pcap_limits),
    ];
    match changed.iter().find(|(_, changed)| *changed) {
        Some((name, _)) => Err(format!(
            "'{name}' cannot change while the splitter runs: undo the change in the settings \
             file, or restart the splitter"
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn specs(texts: &[&str]) -> Vec<PathSpec> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn only_new_proxies_that_have_a_name_are_looked_up() {
        let old = specs(&["a=if:eth0", "b=socks5:old.example:1080"]);
        let new = specs(&["b=socks5:old.example:1080", "c=socks5:192.0.2.1:1080"]);
        assert_eq!(names(&old, &new, None), []);
        let new = specs(&["c=socks5:new.example:1080", "d=if:eth1"]);
        assert_eq!(names(&old, &new, None), ["new.example:1080".parse().unwrap()]);
        let far: Target = "far.example:443".parse().unwrap();
        let new = specs(&["a=tcp:", "b=http:web.example:3128", "c=ssh:relay.example"]);
        let web: Target = "web.example:3128".parse().unwrap();
        assert_eq!(names(&old, &new, Some(&far)), [far.clone(), web]);
    }

    #[test]
    fn a_far_end_knows_paths_by_their_places() {
        let old = specs(&["a=if:eth0", "b=if:eth1"]);
        assert!(are_named_alike(&old, &specs(&["a=tcp:192.0.2.1:443", "b=if:eth1"])));
        for other in [&["b=if:eth1", "a=if:eth0"][..], &["a=if:eth0"], &["a=if:eth0", "c=if:eth1"]]
        {
            assert!(!are_named_alike(&old, &specs(other)), "{other:?}");
        }
    }

    #[test]
    fn a_path_of_the_same_name_and_way_out_is_the_same_path() {
        let old = specs(&["a=if:eth0", "b=if:eth1,ports:4", "c=addr:192.0.2.7"]);
        let new = specs(&["c=addr:192.0.2.8", "b=if:eth1", "d=if:eth0", "a=if:eth0"]);
        assert_eq!(matching_paths(&old, &new), [None, Some(PathId(1)), None, Some(PathId(0))]);
    }
}

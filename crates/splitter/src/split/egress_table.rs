//! The paths' egresses (interfaces, source addresses, routes). They are looked up again whenever
//! the machine's network changes.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anabranch_comps::DownReason;
use anabranch_multipath::{PathId, Time};

use super::{Failure, Settings};
use crate::paths::{self, Egress, Fault, PathError, PathSpec};
use crate::steer::{Exit, PathExit};

/// Minimum interval between two lookups of the paths' routes. The kernel reports each changed
/// address and route separately, and a routing daemon may change thousands.
const PAUSE: Duration = Duration::from_millis(100);
/// Delay until the next lookup of the paths' routes if the kernel did not answer the last lookup
/// for every path.
const RETRY: Duration = Duration::from_secs(1);

/// The result of a repeated lookup of one path's route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RouteLookup {
    pub(super) path: PathId,
    /// Reason why the path is down; `None` if the path works.
    pub(super) broken: Option<DownReason>,
    /// The change of the path's interface or source address; `None` if neither has changed.
    pub(super) moved: Option<RouteChange>,
}

/// A change of a path's interface or source address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RouteChange {
    /// The source addresses before and after the change; `None` if the kernel does not report
    /// them.
    addresses: [Option<IpAddr>; 2],
    /// The new interface; `None` if it is the same as before.
    device: Option<String>,
}

impl RouteChange {
    fn between(before: &Egress, now: &Egress) -> Option<RouteChange> {
        is_elsewhere(before, now).then(|| RouteChange {
            addresses: [before.sends_as, now.sends_as],
            device: now.device.clone().filter(|_| before.index != now.index),
        })
    }
}

impl fmt::Display for RouteChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.addresses {
            [Some(before), Some(now)] if before != now => {
                write!(f, "its address changed from {before} to {now}")?;
            }
            [None, Some(now)] => write!(f, "its address is {now}")?,
            _ => f.write_str("its route to the server changed")?,
        }
        match &self.device {
            Some(device) => write!(f, ", now over the interface {device}"),
            None => Ok(()),
        }
    }
}

/// The egresses (interfaces, source addresses and routes) of all paths, and the times at which
/// they are looked up again.
#[derive(Debug)]
pub(super) struct EgressTable {
    specs: Vec<PathSpec>,
    egresses: Vec<Egress>,
    /// Each path's available egresses (interface, source address and route) for IPv4 and for IPv6.
    /// The field is `None` if all clients share one server, which is the case with a local port or
    /// a far end.
    families: Option<Vec<[Option<Egress>; 2]>>,
    /// The last known egress of each path for IPv4 and for IPv6, to which the path's sockets are
    /// bound. Empty if `families` is `None`.
    last: Vec<[Option<Egress>; 2]>,
    fwmark: Option<u32>,
    /// Time at which the routes are looked up next; `None` if no lookup is needed.
    due: Option<Time>,
    /// Time before which the routes are not looked up again: [`PAUSE`] after the last lookup.
    rested: Time,
}

impl EgressTable {
    pub(super) fn new(
        specs: Vec<PathSpec>,
        egresses: Vec<Egress>,
        fwmark: Option<u32>,
    ) -> EgressTable {
        let (families, due, rested) = (None, None, Time::ZERO);
        EgressTable { specs, egresses, families, last: Vec::new(), fwmark, due, rested }
    }

    /// Looks up the egresses (interfaces, source addresses and routes) of the paths, for servers
    /// that clients will name later.
    ///
    /// # Errors
    /// A path has no route to public addresses, or two paths use the same interface with the same
    /// source address.
    pub(super) fn anywhere(settings: &Settings) -> Result<EgressTable, Failure> {
        let answers = paths::anywhere(&settings.specs, settings.fwmark);
        let answers = answers.map_err(|error| Failure::System("cannot look up routes", error))?;
        let (mut specs, mut egresses, mut families) = (Vec::new(), Vec::new(), Vec::new());
        for (spec, [four, six]) in settings.specs.iter().zip(answers) {
            let six = six.ok();
            let (primary, four) = match (four, &six) {
                (Ok(four), _) => (four.clone(), Some(four)),
                (Err(_), Some(six)) => (six.clone(), None),
                (Err(error), None) => return Err(error.into()),
            };
            let device = primary.device.clone().or_else(|| spec.device.clone());
            specs.push(PathSpec { device, ..spec.clone() });
            egresses.push(primary);
            families.push([four, six]);
        }
        if !settings.same_egress {
            for family in 0..2 {
                paths::refuse_same(families.iter().filter_map(|both| both[family].as_ref()))?;
            }
        }
        let egress_table = EgressTable::new(specs, egresses, settings.fwmark);
        Ok(EgressTable { last: families.clone(), families: Some(families), ..egress_table })
    }

    /// Returns this table, changed to use the firewall mark `fwmark` in later route lookups.
    pub(super) fn marked(self, fwmark: u32) -> EgressTable {
        EgressTable { fwmark: Some(fwmark), ..self }
    }

    /// Returns the number of paths.
    pub(super) fn len(&self) -> usize {
        self.egresses.len()
    }

    /// Returns the egress (interface, source address and route) of `path` to `server`; `None` if
    /// the path does not lead to `server`.
    pub(super) fn towards(&self, path: PathId, server: SocketAddr) -> Option<&Egress> {
        match &self.families {
            None => Some(self.of(path)),
            Some(families) => families[path.index()][usize::from(server.is_ipv6())].as_ref(),
        }
    }

    /// Returns the paths that do not reach servers of `server`'s IP version, but reach servers of
    /// the other IP version.
    pub(super) fn barred(&self, server: SocketAddr) -> Vec<PathId> {
        let (its, other) = (usize::from(server.is_ipv6()), usize::from(server.is_ipv4()));
        let families = self.families.iter().flatten().enumerate();
        let lacking = families.filter(|(_, both)| both[its].is_none() && both[other].is_some());
        lacking.map(|(index, _)| PathId::at(index)).collect()
    }

    /// Returns, for each path, whether it reaches IPv4 servers, and whether it reaches IPv6
    /// servers. Returns an empty list if all clients share one server, as with a local port or a
    /// far end.
    pub(super) fn led(&self) -> Vec<[bool; 2]> {
        let families = self.families.iter().flatten();
        families.map(|both| both.each_ref().map(Option::is_some)).collect()
    }

    /// Returns each path's exit (its outgoing interface and source address), for connections that
    /// are kept on one path.
    pub(super) fn exits(&self) -> Vec<Exit> {
        let families = self.families.iter().flatten().zip(&self.egresses).enumerate();
        let exits = families.filter_map(|(index, (both, last))| {
            let out = |egress: &Egress| PathExit {
                oif: egress.index,
                gateway: egress.gateway,
                source: egress.source,
            };
            let device = last.device.clone()?;
            let [four, six] = both.each_ref().map(|egress| egress.as_ref().map(out));
            Some(Exit { index, device, four, six })
        });
        exits.collect()
    }

    /// Returns two lists of egresses (interfaces and routes). The first has one egress for each
    /// path. The second has the IPv6 egresses of the paths that have egresses for both IP
    /// versions.
    pub(super) fn primary_and_others(&self) -> (Vec<Egress>, Vec<Egress>) {
        let families = self.families.iter().flatten();
        let others = families.filter_map(|both| both[0].as_ref().and(both[1].clone()));
        (self.egresses.clone(), others.collect())
    }

    /// Returns all egresses of all paths.
    pub(super) fn all(&self) -> Vec<Egress> {
        let (primary, others) = self.primary_and_others();
        [primary, others].concat()
    }

    /// Replaces the paths. Schedules a lookup of their routes, at the later of `now` and [`PAUSE`]
    /// after the last lookup.
    pub(super) fn replace(&mut self, now: Time, specs: Vec<PathSpec>, egresses: Vec<Egress>) {
        (self.specs, self.egresses) = (specs, egresses);
        self.on_change(now);
    }

    /// Returns the last known egress (interface, source address and route) of `path`, also if the
    /// path is down.
    pub(super) fn of(&self, path: PathId) -> &Egress {
        &self.egresses[path.index()]
    }

    /// Returns the server for which the paths' egresses were looked up.
    pub(super) fn server(&self) -> SocketAddr {
        self.egresses.first().expect("the core requires at least one path").server
    }

    /// Returns the present server's address if `found` contains it, or else the first address in
    /// `found` that all paths reach. Returns `None` if there is neither.
    pub(super) fn suitable(&self, found: &[SocketAddr]) -> Option<SocketAddr> {
        let wanted = self.server();
        let reached =
            |address: &&SocketAddr| self.egresses.iter().all(|egress| egress.leads_to(**address));
        found
            .iter()
            .find(|address| **address == wanted)
            .or_else(|| found.iter().find(reached))
            .copied()
    }

    /// Schedules a lookup of the routes after a change of the network, at the later of `now` and
    /// [`PAUSE`] after the last lookup.
    pub(super) fn on_change(&mut self, now: Time) {
        self.due = Some(now.max(self.rested));
    }

    /// Returns when to call [`EgressTable::look_again`]; `None` if no lookup is needed.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.due
    }

    /// Looks up the route of every path again if a lookup is due. Returns the results, or an empty
    /// list if no lookup is due.
    pub(super) fn look_again(&mut self, now: Time) -> Vec<RouteLookup> {
        if self.due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        self.rested = now + PAUSE;
        if self.families.is_some() {
            let answers = paths::anywhere(&self.specs, self.fwmark);
            return self.learn_anywhere(now, answers);
        }
        let answers = paths::again(&self.specs, &self.egresses, self.fwmark);
        self.learn(now, answers)
    }

    /// Stores the results of the lookups of all paths' routes. If a lookup failed for lack of file
    /// descriptors or memory, the path keeps its state, and its route is looked up again later.
    fn learn(
        &mut self,
        now: Time,
        answers: io::Result<Vec<Result<Egress, PathError>>>,
    ) -> Vec<RouteLookup> {
        let answers = answers.unwrap_or_default();
        let expected = self.egresses.len();
        let numbered = answers.into_iter().enumerate();
        let looks: Vec<RouteLookup> =
            numbered.filter_map(|(index, answer)| self.judge(index, answer)).collect();
        self.due = (looks.len() < expected).then_some(now + RETRY);
        looks
    }

    /// Changes a path to a new address of its proxy or first hop. `found` has the addresses to
    /// use, from a new lookup of the name. Returns the change; `None` if the path's interface
    /// reaches none of them.
    pub(super) fn redirect(&mut self, path: PathId, found: &[SocketAddr]) -> Option<RouteLookup> {
        let index = path.index();
        let (spec, before) = (&self.specs[index], &self.egresses[index]);
        let now = paths::redirect(spec, before, found, self.fwmark)?;
        let addresses = [before.sends_as, now.sends_as];
        self.egresses[index] = now;
        Some(RouteLookup {
            path,
            broken: None,
            moved: Some(RouteChange { addresses, device: None }),
        })
    }

    fn learn_anywhere(
        &mut self,
        now: Time,
        answers: io::Result<Vec<[Result<Egress, PathError>; 2]>>,
    ) -> Vec<RouteLookup> {
        let Ok(answers) = answers else {
            self.due = Some(now + RETRY);
            return Vec::new();
        };
        let is_passing = |answer: &Result<Egress, PathError>| {
            answer.as_ref().is_err_and(|error| error.fault.is_passing())
        };
        let unanswered = answers.iter().flatten().any(is_passing);
        self.due = unanswered.then_some(now + RETRY);
        let numbered = answers.into_iter().enumerate();
        numbered.map(|(index, both)| self.judge_both(index, both)).collect()
    }

    /// Applies the results of looking up a path's routes for IPv4 and IPv6. The path works if it
    /// has a route for at least one of the two.
    fn judge_both(&mut self, index: usize, answers: [Result<Egress, PathError>; 2]) -> RouteLookup {
        let path = PathId::at(index);
        let families = self
            .families
            .as_mut()
            .expect("only a splitter with an interface (--tun) looks up both families");
        let (mut moved, mut fault) = (None, None);
        let places = families[index].iter_mut().zip(&mut self.last[index]);
        for ((place, last), answer) in places.zip(answers) {
            match answer {
                Ok(egress) => {
                    let change =
                        last.as_ref().and_then(|before| RouteChange::between(before, &egress));
                    moved = moved.or(change);
                    *last = Some(egress.clone());
                    *place = Some(egress);
                }
                Err(error) if error.fault.is_passing() => {}
                Err(error) => {
                    fault.get_or_insert(reason(&error.fault));
                    *place = None;
                }
            }
        }
        if let Some(egress) = families[index].iter().flatten().next() {
            self.egresses[index] = egress.clone();
            fault = None;
        }
        RouteLookup { path, broken: fault, moved }
    }

    fn judge(&mut self, index: usize, answer: Result<Egress, PathError>) -> Option<RouteLookup> {
        let path = PathId::at(index);
        match answer {
            Ok(egress) => {
                let before = &self.egresses[index];
                let moved = RouteChange::between(before, &egress);
                self.egresses[index] = egress;
                Some(RouteLookup { path, broken: None, moved })
            }
            Err(error) if error.fault.is_passing() => None,
            Err(error) => {
                Some(RouteLookup { path, broken: Some(reason(&error.fault)), moved: None })
            }
        }
    }
}

fn is_elsewhere(before: &Egress, now: &Egress) -> bool {
    (before.index, before.sends_as) != (now.index, now.sends_as)
}

fn reason(fault: &Fault) -> DownReason {
    match fault {
        Fault::NoRouteBy(..) | Fault::Route(..) => DownReason::Unreachable,
        _ => DownReason::Interface,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_os::netlink::RouteError;

    const AT: Time = Time::from_secs(5);

    /// Returns a table with two paths over loopback.
    fn egress_table() -> EgressTable {
        let specs: Vec<PathSpec> =
            ["a=addr:127.0.0.2", "b=addr:127.0.0.3"].map(|text| text.parse().unwrap()).into();
        let server = "127.0.0.1:9".parse().unwrap();
        let egresses = paths::resolve(&specs, &[server], None, false).unwrap();
        EgressTable::new(specs, egresses, None)
    }

    fn error(fault: Fault) -> PathError {
        PathError { path: "a".into(), fault }
    }

    #[test]
    fn a_question_that_failed_takes_no_path_down_and_is_asked_again() {
        let mut egress_table = egress_table();
        let no_files = || io::Error::from_raw_os_error(libc::EMFILE);
        assert_eq!(egress_table.learn(AT, Err(no_files())), []);
        assert_eq!(egress_table.next_timeout(), Some(AT + RETRY));
        let server = egress_table.egresses[0].server.ip();
        let unanswered = error(Fault::Route(server, RouteError::Io(no_files())));
        let down = error(Fault::DeviceDown("lo".into()));
        let looks = egress_table.learn(AT, Ok(vec![Err(unanswered), Err(down)]));
        let broken = Some(DownReason::Interface);
        assert_eq!(looks, [RouteLookup { path: PathId::at(1), broken, moved: None }]);
        assert_eq!(egress_table.next_timeout(), Some(AT + RETRY));
        let looks = egress_table.look_again(AT + RETRY);
        assert!(looks.len() == 2 && looks.iter().all(|look| look.broken.is_none()), "{looks:?}");
        assert_eq!(egress_table.next_timeout(), None);
    }

    #[test]
    fn no_route_takes_a_path_down_without_another_look() {
        let mut egress_table = egress_table();
        let server = egress_table.egresses[0].server.ip();
        let same = egress_table.egresses[1].clone();
        let looks = egress_table
            .learn(AT, Ok(vec![Err(error(Fault::NoRouteBy(server, "lo".into()))), Ok(same)]));
        assert_eq!(looks[0].broken, Some(DownReason::Unreachable));
        assert_eq!(looks[1], RouteLookup { path: PathId::at(1), broken: None, moved: None });
        assert_eq!(egress_table.next_timeout(), None);
    }

    #[test]
    fn a_path_whose_address_changed_is_told_with_both() {
        let mut egress_table = egress_table();
        let mut other = egress_table.egresses.clone();
        other[1].sends_as = "127.0.0.9".parse().ok();
        let looks = egress_table.learn(AT, Ok(other.clone().into_iter().map(Ok).collect()));
        let moves_of = |looks: &[RouteLookup]| -> Vec<Option<String>> {
            looks.iter().map(|look| look.moved.as_ref().map(ToString::to_string)).collect()
        };
        let changed = "its address changed from 127.0.0.3 to 127.0.0.9".to_owned();
        assert_eq!(moves_of(&looks), [None, Some(changed)]);
        (other[1].index, other[1].device) = (7, Some("wlan1".to_owned()));
        let looks = egress_table.learn(AT, Ok(other.into_iter().map(Ok).collect()));
        let moved = "its route to the server changed, now over the interface wlan1".to_owned();
        assert_eq!(moves_of(&looks), [None, Some(moved)]);
    }

    #[test]
    fn a_burst_of_changes_costs_two_looks() {
        let mut egress_table = egress_table();
        assert_eq!(egress_table.look_again(AT), [], "none is due");
        let mut looks = 0;
        for ms in 0..90 {
            let now = AT + Duration::from_millis(ms);
            egress_table.on_change(now);
            looks += usize::from(!egress_table.look_again(now).is_empty());
        }
        assert_eq!((looks, egress_table.next_timeout()), (1, Some(AT + PAUSE)));
        assert_eq!(egress_table.look_again(AT + PAUSE).len(), 2, "the last change is not missed");
        assert_eq!(egress_table.next_timeout(), None);
    }
}

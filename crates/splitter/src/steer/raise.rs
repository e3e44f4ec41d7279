//! Sets up the interface, routes and rules of a plan, restores them if other programs change them,
//! and undoes them at the end.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};

use anabranch_comps::Pinned;
use anabranch_os::namespace::Namespace;
use anabranch_os::netlink::configure::{self, NewRoute};
use anabranch_os::netlink::policy::{self, Family};
use anabranch_os::netlink::{self, Change, Monitor, Prefix};
use anabranch_os::tun::Tun;

use super::claim::Claim;
use super::fence::Fence;
use super::lead::{self, Routing};
use super::ledger::{self, Ledger, Notes};
use super::nft::OwnedTable;
use super::plan::{namespace_number, within};
use super::ruleset::{self, RulesetParameters};
use super::slot::NOBODY;
use super::sysctl::{AddedForwarding, Setting};
use super::tally::Tally;
use super::undo::{remove_cable, undo};
use super::{Exit, Plan, Request, Slot, SteerError, named};

/// The kernel's index of the loopback interface, the same in every namespace.
const LO: u32 = 1;
/// Name of the virtual Ethernet pair's end inside the namespace.
pub const UPLINK: &str = "uplink";

/// The routes, rules and interface of a running splitter. Dropping the value undoes all changes.
#[derive(Debug)]
pub struct Steering {
    pub(super) plan: Plan,
    notes: Notes,
    /// The record of the splitter's changes; `None` once all changes are undone.
    ledger: Option<Ledger>,
    namespace: Option<Namespace>,
    /// Index of the interface; 0 until the interface exists.
    tun: u32,
    added_forwarding: AddedForwarding,
    /// The splitter's nftables tables, in the machine's namespace and in the interface's
    /// namespace.
    fences: Vec<Fence>,
    /// The table that blocks packets while another program has flushed the other tables; `None` if
    /// there is no such table.
    guard: Option<OwnedTable>,
    /// Monitor of network changes in the namespace; `None` without a namespace.
    inside: Option<Monitor>,
    /// Counters of the connections that are not split, but each kept on one path; `None` if these
    /// connections are not routed by the splitter.
    tally: Option<Tally>,
}

/// The result of [`Steering::keep`], which restores changes that other programs have undone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upkeep {
    /// One-line messages about changes that other programs had undone. Each message reports
    /// whether the change could be restored.
    pub messages: Vec<String>,
    /// Whether an interface in the namespace has changed.
    pub network: bool,
    /// Whether the check must be repeated soon, because the system is short of file descriptors or
    /// memory.
    pub again: bool,
}

impl Steering {
    /// Undoes or adopts what killed splitters have left, records the changes of this splitter, and
    /// makes the changes. Returns the new setup, the interface (switched on), and warnings for the
    /// user.
    ///
    /// # Errors
    /// A step failed. All changes of this splitter have been undone. The routes and rules of a
    /// killed splitter may remain.
    pub fn raise(mut plan: Plan) -> Result<(Steering, Tun, Vec<String>), SteerError> {
        plan.check_rights()?;
        let making = SteerError::system("cannot make a network namespace");
        let namespace = plan.request.netns.is_some().then(Namespace::new).transpose();
        let namespace = namespace.map_err(&making)?;
        let number = namespace.as_ref().map(|namespace| namespace.run(named::number)).transpose();
        let claim = Claim::take(&mut plan, number.map_err(making)?)?;
        let Claim { ledger, notes, settings, added_forwarding, adopted, others, mut warnings } =
            claim;
        let (ledger, fences, guard, inside) = (Some(ledger), Vec::new(), None, None);
        let (tun, tally) = (0, None);
        let mut steering = Steering {
            plan,
            notes,
            ledger,
            namespace,
            tun,
            added_forwarding,
            fences,
            guard,
            inside,
            tally,
        };
        let tun = steering.set_up(&settings).and_then(|tun| {
            steering.undo_others(others)?;
            Ok(tun)
        });
        if tun.is_err() && adopted {
            // A splitter that fails to start must not unblock traffic that a killed splitter has
            // left blocked.
            steering.keep_setup();
        }
        let tun = tun?;
        warnings.extend(steering.stand_guard().err().map(unguarded));
        warnings.extend(steering.count().err().map(|error| {
            format!(
                "cannot count the traffic of connections that are not split, so the statistics \
                 lack it: {error}"
            )
        }));
        Ok((steering, tun, warnings))
    }

    /// Returns the IPv4 and IPv6 source addresses for the splitter's ICMP errors. These are the
    /// addresses of the virtual Ethernet pair on the machine's side.
    pub fn here(&self) -> (Ipv4Addr, Ipv6Addr) {
        (self.plan.slot.ends4().0, self.plan.slot.ends6().0)
    }

    /// Returns the traffic of connections that are kept on one path, with an entry for each path;
    /// empty if there are none. The counters are at most a second old. If `now` is true, reads the
    /// counters again, which takes some milliseconds.
    pub fn pinned(&self, now: bool) -> Vec<Pinned> {
        let Some(tally) = &self.tally else { return Vec::new() };
        if now {
            tally.refresh();
        }
        tally.pinned()
    }

    /// Returns the plan that was carried out.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Adapts to the present exits (outgoing interfaces and source addresses) of the paths:
    /// updates their routes, and assigns new connections only to paths with an exit.
    ///
    /// # Errors
    /// A system call or `nft` failed. The packets of a path whose route could not be set go
    /// nowhere.
    pub fn follow(&mut self, exits: Vec<Exit>) -> io::Result<()> {
        if !self.plan.request.pins() {
            return Ok(());
        }
        let (slot, is_other) = (self.plan.slot, exits != self.plan.exits);
        self.plan.exits = exits;
        let mut result = lead::set_exit_routes(slot, &self.plan.exits);
        result = result
            .and(within(self.namespace.as_ref(), || lead::set_inbound_routes(slot, self.tun)));
        if let (true, Some(nft)) = (is_other, &self.plan.nft) {
            let choice = ruleset::rechoice(slot, &self.plan.exits);
            let fence =
                self.fences.first_mut().expect("a splitter with --route has an nftables table");
            // The rule to change may have been removed. Then the whole table is set again.
            let set = fence.set(nft, slot, &choice).or_else(|_| self.fence_off(0));
            result = result.and(set);
        }
        result
    }

    /// Returns descriptors to poll. When one is readable, the caller calls [`Steering::keep`].
    pub fn watched(&self) -> Vec<BorrowedFd<'_>> {
        let inside = self.inside.iter().map(AsFd::as_fd);
        self.fences.iter().map(AsFd::as_fd).chain(inside).collect()
    }

    /// Returns whether `change`, a change in the machine's network, may affect the splitter's
    /// routes and rules.
    pub fn concerns(&self, change: &Change) -> bool {
        match change {
            Change::Route { table, .. } => self.plan.slot.tables().contains(table),
            Change::Rule | Change::Overrun => true,
            _ => false,
        }
    }

    /// Returns whether the guard table still exists, or was never made. The guard table blocks
    /// packets while another program has flushed the splitter's main nftables table. The kernel
    /// does not report the guard table's removal.
    pub fn is_guarded(&mut self) -> bool {
        self.guard.as_mut().is_none_or(OwnedTable::stands)
    }

    /// Restores changes that other programs have undone: rules, routing tables, and the nftables
    /// table.
    ///
    /// # Errors
    /// A change could not be restored. All traffic then stays blocked, as if this splitter had
    /// been killed; the error names the remedy.
    pub fn keep(&mut self) -> Result<Upkeep, SteerError> {
        if !self.plan.request.pins() {
            return Ok(Upkeep::default());
        }
        match self.restore() {
            Err(error) if is_passing(&error) => Ok(Upkeep { again: true, ..Upkeep::default() }),
            Err(error) => {
                let shut = lead::block_unmarked(self.plan.slot, &self.origin());
                self.keep_setup();
                Err(SteerError::Lost(shut.err().unwrap_or(error)))
            }
            Ok(kept) => Ok(kept),
        }
    }

    fn restore(&mut self) -> io::Result<Upkeep> {
        let mut kept = Upkeep::default();
        let changes = self.inside.as_mut().map(Monitor::drain).transpose()?;
        kept.network = changes.is_some_and(|changes| !changes.is_empty());
        let mut missing = self.led_here().ensure()?;
        if let Some(namespace) = &self.namespace {
            missing += namespace.run(|| Routing::only_in(self.plan.slot).ensure())?;
        }
        if missing > 0 {
            kept.messages.push(format!(
                "another program removed {missing} of the splitter's routing rules and routes: \
                 the splitter has restored them"
            ));
        }
        let nft = self.plan.nft.clone().expect("a plan with --route has the path of nft");
        for number in 0..self.fences.len() {
            if !self.fences[number].is_whole(&nft, self.plan.slot)? {
                self.fence_off(number)?;
                let table = self.plan.slot.ruleset();
                kept.messages.push(format!(
                    "another program changed or removed the nftables table inet {table}: the \
                     splitter has restored it"
                ));
            }
        }
        if !self.is_guarded() {
            self.guard = None;
            kept.messages.extend(self.stand_guard().err().map(unguarded));
        }
        Ok(kept)
    }

    /// Undoes all changes of this splitter: interface, routes, rules and settings.
    ///
    /// # Errors
    /// A change could not be undone; the next splitter will try it again.
    pub fn lower(mut self) -> io::Result<()> {
        self.undo()
    }

    /// Ends as if by SIGKILL: releases the lock, and undoes nothing.
    #[cfg(test)]
    pub(super) fn kill(mut self) {
        self.keep_setup();
    }

    /// Causes the routes and rules to stay when this value is dropped. The next start or
    /// `--restore` will undo them.
    fn keep_setup(&mut self) {
        drop(self.ledger.take());
        self.guard = None;
    }

    fn undo(&mut self) -> io::Result<()> {
        let Some(ledger) = self.ledger.take() else { return Ok(()) };
        // The guard is dropped first, because it would block packets that no longer belong to this
        // splitter.
        self.guard = None;
        let _alone = ledger::alone()?;
        let number = namespace_number().map_err(io::Error::other)?;
        let needed = ledger::survey(number)?.needed(self.plan.slot);
        undo(self.plan.slot, &self.notes, &needed)?;
        ledger.discard()
    }

    fn undo_others(&mut self, others: Vec<(Ledger, Notes)>) -> Result<(), SteerError> {
        if others.is_empty() {
            return Ok(());
        }
        let undoing = SteerError::system("cannot undo the network changes of a killed splitter");
        let _alone = ledger::alone().map_err(&undoing)?;
        let needed = ledger::survey(namespace_number()?).map_err(&undoing)?.needed(NOBODY);
        for (ledger, notes) in others {
            undo(ledger.slot, &notes, &needed).map_err(&undoing)?;
            ledger.discard().map_err(&undoing)?;
        }
        Ok(())
    }

    /// Creates the interface and sets the routes and rules. The nftables rules come after the
    /// routes that they need, because packets arrive as soon as the rules are set.
    fn set_up(&mut self, settings: &[Setting]) -> Result<Tun, SteerError> {
        if let (Some(name), Some(namespace)) = (&self.plan.request.netns, &self.namespace) {
            let step = format!("cannot make the namespace '{name}'");
            named::give(name, namespace).map_err(SteerError::system(&step))?;
        }
        let step = format!("cannot make the interface '{}'", self.plan.request.tun);
        let tun = self.interface().map_err(SteerError::system(&step))?;
        self.tun = tun.index();
        if self.plan.request.pins() {
            self.lead(settings).map_err(SteerError::system("cannot set up routes"))?;
        }
        self.write_resolver().map_err(SteerError::system("cannot write below /etc/netns"))?;
        Ok(tun)
    }

    fn interface(&self) -> io::Result<Tun> {
        let Plan { request: Request { tun, .. }, mtu, slot, .. } = &self.plan;
        let (four, six) = match self.plan.request.inner {
            Some(inner) => (inner.four, inner.six),
            None => slot.own_addresses(),
        };
        let with6 = self.plan.request.inner.is_some() || self.plan.has(Family::Six);
        within(self.namespace.as_ref(), || {
            let tun = Tun::create(tun)?;
            configure::set_mtu(tun.index(), *mtu)?;
            // Answers arrive on this interface from servers whose routes use other interfaces.
            Setting::new(format!("ipv4/conf/{}/rp_filter", self.plan.request.tun), "2").set()?;
            configure::set_up(tun.index(), true)?;
            configure::add_address(tun.index(), full(four.into()))?;
            if with6 {
                configure::add_address(tun.index(), full(six.into()))?;
            }
            if self.plan.request.netns.is_some() {
                configure::set_up(LO, true)?;
            }
            if self.plan.request.inner.is_some() && self.plan.request.route {
                all_into(tun.index())?;
            }
            Ok(tun)
        })
    }

    /// Sets up the routing into the interface and to the paths. With a namespace, first sets the
    /// rules that prevent forwarding for other programs, then switches on forwarding, then makes
    /// the virtual Ethernet pair.
    fn lead(&mut self, settings: &[Setting]) -> io::Result<()> {
        let slot = self.plan.slot;
        self.led_here().ensure()?;
        lead::set_exit_routes(slot, &self.plan.exits)?;
        self.fences.push(Fence::open(None)?);
        let Some(namespace) = self.namespace.as_ref().map(Namespace::try_clone).transpose()? else {
            lead::set_inbound_routes(slot, self.tun)?;
            self.fence_off(0)?;
            // Removes leftovers of a killed splitter: routes of other paths, and of a namespace
            // that it did not record.
            self.led_here().sweep()?;
            remove_cable(slot)?;
            return settings.iter().try_for_each(Setting::set);
        };
        self.fence_off(0)?;
        settings.iter().try_for_each(Setting::set)?;
        self.lay_cable(&namespace)?;
        namespace.run(|| {
            Routing::only_in(slot).ensure()?;
            lead::set_inbound_routes(slot, self.tun)
        })?;
        self.inside = Some(namespace.run(Monitor::open)?);
        self.fences.push(Fence::open(Some(namespace))?);
        self.fence_off(1)
    }

    /// Makes the nftables table of this process's namespace (`number` 0) or of the interface's
    /// namespace (1). Replaces an existing table.
    fn fence_off(&mut self, number: usize) -> io::Result<()> {
        let nft = self.plan.nft.clone().expect("a plan with --route has the path of nft");
        let parameters = self.ruleset_parameters();
        let text = match (number, &self.namespace) {
            (0, None) => ruleset::of_machine(&parameters),
            (0, Some(_)) => ruleset::of_cable(&parameters),
            _ => ruleset::of_namespace(&parameters),
        };
        self.fences[number].set(&nft, self.plan.slot, &text)
    }

    fn count(&mut self) -> io::Result<()> {
        let (Some(nft), true) = (&self.plan.nft, self.plan.request.pins()) else { return Ok(()) };
        let paths = self.plan.exits.iter().map(|exit| exit.index + 1).max().unwrap_or_default();
        self.tally = Some(Tally::begin(nft, self.plan.slot, paths)?);
        Ok(())
    }

    fn stand_guard(&mut self) -> io::Result<()> {
        let (Some(nft), true) = (&self.plan.nft, self.plan.request.pins()) else { return Ok(()) };
        let (parameters, name) = (self.ruleset_parameters(), self.plan.slot.guard());
        let body = match self.namespace {
            None => ruleset::guard_of_machine(&parameters),
            Some(_) => ruleset::guard_of_cable(&parameters),
        };
        self.guard = Some(OwnedTable::create(nft, &name, &body)?);
        Ok(())
    }

    /// Returns the rules and routing tables of this process's namespace.
    fn led_here(&self) -> Routing {
        let led = Routing::out(self.plan.slot, &self.plan.exits);
        if self.namespace.is_some() { led } else { led.and_in() }
    }

    /// Returns the interface from which routed packets arrive: the virtual Ethernet pair, or "lo"
    /// for packets of this machine.
    fn origin(&self) -> String {
        self.namespace.as_ref().map_or("lo".to_owned(), |_| self.plan.slot.cable())
    }

    fn ruleset_parameters(&self) -> RulesetParameters<'_> {
        let Plan { slot, request: Request { tun, ports, .. }, own, exits, .. } = &self.plan;
        RulesetParameters {
            slot: *slot,
            tun,
            ports,
            own: *own,
            exits,
            added_forwarding: &self.added_forwarding,
        }
    }

    /// Makes the virtual Ethernet pair, with an address at each end, and a default route inside
    /// the namespace.
    fn lay_cable(&self, namespace: &Namespace) -> io::Result<()> {
        let Plan { slot, mtu, .. } = self.plan;
        let with6 = self.plan.has(Family::Six);
        let name = slot.cable();
        policy::add_cable(&name, UPLINK, namespace.as_fd(), mtu)?;
        let ends = ends(slot, with6);
        let here = index_of(&name)?;
        for (ip, _, len) in &ends {
            configure::add_address(here, Prefix { ip: *ip, len: *len })?;
        }
        Setting::new(format!("ipv4/conf/{name}/forwarding"), "1").set()?;
        let forced = Setting::new(format!("ipv6/conf/{name}/force_forwarding"), "1");
        forced.now().filter(|_| with6).map_or(Ok(()), |_| forced.set())?;
        configure::set_up(here, true)?;
        namespace.run(|| {
            let there = index_of(UPLINK)?;
            configure::set_up(there, true)?;
            Setting::new(format!("ipv4/conf/{UPLINK}/rp_filter"), "2").set()?;
            ends.iter().try_for_each(|end| lead::join(there, *end))
        })
    }

    fn write_resolver(&self) -> io::Result<()> {
        let Some(file) = self.plan.resolver() else { return Ok(()) };
        fs::create_dir_all(
            file.path.parent().expect("the file is in the folder of the namespace"),
        )?;
        fs::write(file.path, file.text)
    }
}

impl Drop for Steering {
    /// Undoes all changes of this splitter, also on a panic. Changes that cannot be undone now
    /// stay in the record.
    fn drop(&mut self) {
        let _ = self.undo();
    }
}

#[expect(clippy::needless_pass_by_value, reason = "passed to `Option::map`")]
fn unguarded(error: io::Error) -> String {
    format!(
        "cannot create the nftables table that blocks traffic while another program flushes the \
         firewall rules ({error}): during a flush, traffic can bypass the splitter for an instant"
    )
}

/// Returns whether an error means only that the system is short of resources at present.
fn is_passing(error: &io::Error) -> bool {
    let passing =
        [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS, libc::EAGAIN, libc::EBUSY];
    error.raw_os_error().is_some_and(|errno| passing.contains(&errno))
}

/// Returns the addresses of the virtual Ethernet pair for IPv4 and, if `with6`, for IPv6: on the
/// machine's side, on the namespace's side, and the length of their network's prefix.
fn ends(slot: Slot, with6: bool) -> Vec<(IpAddr, IpAddr, u8)> {
    let (here4, there4) = slot.ends4();
    let (here6, there6) = slot.ends6();
    let six = with6.then_some((here6.into(), there6.into(), 64));
    [(here4.into(), there4.into(), 30)].into_iter().chain(six).collect()
}

/// Routes all packets of the calling thread's namespace to the interface with the index `oif`.
fn all_into(oif: u32) -> io::Result<()> {
    let all = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    all.into_iter().try_for_each(|ip: IpAddr| {
        let dst = Prefix { ip, len: 0 };
        let (gateway, prefsrc, metric, congestion_control) = (None, None, None, None);
        configure::add_route(NewRoute { dst, oif, gateway, prefsrc, metric, congestion_control })
    })
}

fn index_of(name: &str) -> io::Result<u32> {
    let link = netlink::link_named(name)?;
    link.map(|link| link.index).ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn full(ip: IpAddr) -> Prefix {
    Prefix { ip, len: if ip.is_ipv4() { 32 } else { 128 } }
}

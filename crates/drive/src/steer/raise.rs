//! Doing what a plan says, keeping up with the paths, and undoing it.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::ledger::{self, Ledger, Notes};
use super::plan::{namespace_number, within};
use super::ruleset::{self, Subject};
use super::slot::MASK;
use super::sysctl::Setting;
use super::undo::{missing_folders, undo};
use super::{Exit, Plan, Request, Slot, SteerError, named, nft};
use crate::emulate::Namespace;
use crate::netlink::configure::{self, NewRoute};
use crate::netlink::policy::{self, Family, Rule, Way};
use crate::netlink::{self, Prefix};
use crate::tun::Tun;

/// The kernel's number for the loopback interface of every namespace.
const LO: u32 = 1;
/// The number of the main routing table.
const MAIN: u32 = 254;
/// The cable's end inside the namespace, a name that no other interface there can have.
pub const UPLINK: &str = "uplink";

/// What a run has set up. Dropping it undoes it.
#[derive(Debug)]
pub struct Steering {
    plan: Plan,
    notes: Notes,
    /// `None` once all is undone.
    ledger: Option<Ledger>,
    namespace: Option<Namespace>,
    /// The interface's number, once it is there.
    tun: u32,
}

impl Steering {
    /// Undoes what killed runs left behind, writes down what this one is about to do, and does it. Gives the interface,
    /// switched on, and what the user should know.
    ///
    /// # Errors
    /// Something could not be had; nothing is left behind then.
    pub fn raise(mut plan: Plan) -> Result<(Steering, Tun, Vec<String>), SteerError> {
        plan.check_rights()?;
        let (ledger, warnings) = take_slot(&mut plan)?;
        if let Err(error) = plan.check(&[]) {
            let _ = ledger.discard();
            return Err(error);
        }
        let (settings, lent) = plan.settings();
        let notes = notes(&plan, &settings);
        let mut steering = Steering { plan, notes, ledger: Some(ledger), namespace: None, tun: 0 };
        steering.write_down()?;
        let tun = steering.set_up(&settings, &lent)?;
        Ok((steering, tun, warnings))
    }

    /// The address that the interface's side speaks from, in each family.
    pub fn here(&self) -> (Ipv4Addr, Ipv6Addr) {
        (self.plan.slot.ends4().0, self.plan.slot.ends6().0)
    }

    /// What it was made for.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The paths' ways out as they are now: routes are set where they are missing, and new flows go to paths that lead
    /// somewhere.
    ///
    /// # Errors
    /// The kernel's, or those of `nft`. What is not set leads nowhere.
    pub fn follow(&mut self, exits: Vec<Exit>) -> io::Result<()> {
        if !self.plan.request.route {
            return Ok(());
        }
        let slot = self.plan.slot;
        for exit in &exits {
            set_routes(slot, exit)?;
        }
        within(self.namespace.as_ref(), || lead_back(slot, self.tun))?;
        if let Some(nft) = self.plan.nft.as_ref().filter(|_| exits != self.plan.exits) {
            nft::run(nft, &ruleset::rechoice(slot, &exits))?;
            self.plan.exits = exits;
        }
        Ok(())
    }

    /// Undoes everything.
    ///
    /// # Errors
    /// Something could not be undone; the next run will try again.
    pub fn lower(mut self) -> io::Result<()> {
        self.undo()
    }

    /// Ends as by SIGKILL: the lock goes, and nothing is undone.
    #[cfg(test)]
    pub(super) fn kill(mut self) {
        drop(self.ledger.take());
    }

    fn undo(&mut self) -> io::Result<()> {
        let Some(ledger) = self.ledger.take() else { return Ok(()) };
        undo(self.plan.slot, &self.notes)?;
        ledger.discard()
    }

    fn write_down(&mut self) -> Result<(), SteerError> {
        let ledger = self.ledger.as_mut().expect("nothing is undone yet");
        ledger.write(&self.notes).map_err(SteerError::system("writing to /run/anabranch"))
    }

    /// The rules come last: from then on, packets come.
    fn set_up(&mut self, settings: &[Setting], lent: &[String]) -> Result<Tun, SteerError> {
        if let Some(name) = &self.plan.request.netns {
            let namespace = named::create(name);
            let step = format!("making the namespace '{name}'");
            self.namespace = Some(namespace.map_err(SteerError::system(&step))?);
        }
        settings.iter().try_for_each(Setting::set).map_err(SteerError::system("a setting"))?;
        let step = format!("making the interface '{}'", self.plan.request.tun);
        let tun = self.interface().map_err(SteerError::system(&step))?;
        self.tun = tun.index();
        if self.plan.request.route {
            self.lead(&tun, lent).map_err(SteerError::system("setting up routes"))?;
        }
        self.write_resolver().map_err(SteerError::system("writing below /etc/netns"))?;
        Ok(tun)
    }

    fn interface(&self) -> io::Result<Tun> {
        let Plan { request: Request { tun, .. }, mtu, slot, .. } = &self.plan;
        let (four, six) = slot.own_addresses();
        let with6 = self.plan.has(Family::Six);
        within(self.namespace.as_ref(), || {
            let tun = Tun::create(tun)?;
            configure::set_mtu(tun.index(), *mtu)?;
            // Answers come by it from servers to which the routes lead elsewhere.
            Setting::new(format!("ipv4/conf/{}/rp_filter", self.plan.request.tun), "2").set()?;
            configure::set_up(tun.index(), true)?;
            configure::add_address(tun.index(), full(four.into()))?;
            if with6 {
                configure::add_address(tun.index(), full(six.into()))?;
            }
            if self.plan.request.netns.is_some() {
                configure::set_up(LO, true)?;
            }
            Ok(tun)
        })
    }

    fn lead(&self, tun: &Tun, lent: &[String]) -> io::Result<()> {
        let slot = self.plan.slot;
        let nft = self.plan.nft.as_ref().expect("a plan with routes has looked for it");
        let subject = self.subject(lent);
        for exit in &self.plan.exits {
            set_routes(slot, exit)?;
        }
        for family in Family::BOTH {
            policy::set_default(family, slot.nowhere(), Way::Nowhere)?;
        }
        add_rules(slot, &self.plan.exits)?;
        let Some(namespace) = &self.namespace else {
            lead_into(slot, tun)?;
            return nft::run(nft, &ruleset::of_machine(&subject));
        };
        self.lay_cable(namespace)?;
        nft::run(nft, &ruleset::of_cable(&subject))?;
        namespace.run(|| {
            lead_into(slot, tun)?;
            nft::run(nft, &ruleset::of_namespace(&subject))
        })
    }

    fn subject<'a>(&'a self, lent: &'a [String]) -> Subject<'a> {
        let Plan { slot, request: Request { tun, ports, .. }, own, exits, .. } = &self.plan;
        Subject { slot: *slot, tun, ports, own: *own, exits, lent }
    }

    /// The cable, with an address at each end and a default route inside.
    fn lay_cable(&self, namespace: &Namespace) -> io::Result<()> {
        use std::os::fd::AsFd;
        let Plan { slot, mtu, .. } = self.plan;
        let with6 = self.plan.has(Family::Six);
        let name = slot.cable();
        policy::add_cable(&name, UPLINK, namespace.as_fd(), mtu)?;
        let (here4, there4) = slot.ends4();
        let (here6, there6) = slot.ends6();
        let mut ends: Vec<(IpAddr, IpAddr, u8)> = vec![(here4.into(), there4.into(), 30)];
        if with6 {
            ends.push((here6.into(), there6.into(), 64));
        }
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
            ends.iter().try_for_each(|end| join(there, *end))
        })
    }

    fn write_resolver(&self) -> io::Result<()> {
        let Some(file) = self.plan.resolver() else { return Ok(()) };
        let lines = self.plan.nameservers.iter().map(|server| format!("nameserver {server}\n"));
        fs::create_dir_all(file.parent().expect("the file lies in a folder of the namespace"))?;
        fs::write(file, lines.collect::<String>())
    }
}

impl Drop for Steering {
    /// Also when the run panics. What cannot be undone now stays written down.
    fn drop(&mut self) {
        let _ = self.undo();
    }
}

/// A slot, after undoing what killed runs left: that of the first of them, or a free one. Nothing is undone for a run that
/// cannot come about: what was left still keeps packets from leaving.
fn take_slot(plan: &mut Plan) -> Result<(Ledger, Vec<String>), SteerError> {
    let asking = SteerError::system("using /run/anabranch");
    let number = namespace_number()?;
    let survey = ledger::survey(number).map_err(&asking)?;
    if let Some(notes) = survey.held.iter().find(|notes| plan.is_same(notes)) {
        return Err(SteerError::Running(plan.request.tun.clone(), notes.process));
    }
    let (mut ledgers, left): (Vec<Ledger>, Vec<Notes>) = survey.left.into_iter().unzip();
    if ledgers.is_empty() {
        ledgers.push(ledger::claim(number).map_err(&asking)?.ok_or(SteerError::Slots)?);
    }
    plan.take(ledgers[0].slot);
    if let Err(error) = plan.check(&left) {
        if left.is_empty() {
            let _ = ledgers.remove(0).discard();
        }
        return Err(error);
    }
    for (ledger, notes) in ledgers.iter().zip(&left) {
        undo(ledger.slot, notes).map_err(SteerError::system("undoing what a run left behind"))?;
    }
    let ledger = ledgers.remove(0);
    ledgers.into_iter().try_for_each(Ledger::discard).map_err(&asking)?;
    // Also where nothing was written: somebody may have removed the file, and all that is ours is known by its numbers.
    undo(ledger.slot, &Notes::default()).map_err(SteerError::system("clearing the way"))?;
    let undone = |notes: &Notes| {
        let Notes { process, tun, .. } = notes;
        format!("undid what process {process} left behind when it was killed (--tun {tun})")
    };
    Ok((ledger, left.iter().map(undone).collect()))
}

fn notes(plan: &Plan, settings: &[Setting]) -> Notes {
    let resolver = plan.resolver();
    Notes {
        process: std::process::id(),
        tun: plan.request.tun.clone(),
        netns: plan.request.netns.clone(),
        settings: settings.iter().filter_map(Setting::now).collect(),
        folders: resolver.as_deref().map(missing_folders).unwrap_or_default(),
        files: resolver.into_iter().collect(),
    }
}

/// What is marked for the interface goes there, and nowhere else.
fn lead_into(slot: Slot, tun: &Tun) -> io::Result<()> {
    for family in Family::BOTH {
        policy::set_default(family, slot.tun(), Way::Nowhere)?;
        policy::set_default(family, slot.tun(), Way::Out(tun.index(), None))?;
        add_rule_to(slot, family, slot.tun())?;
    }
    Ok(())
}

/// What an interface that was switched off has lost is set again once it is on.
fn lead_back(slot: Slot, tun: u32) -> io::Result<()> {
    if !netlink::links()?.iter().any(|link| link.index == tun && link.up) {
        return Ok(());
    }
    let found = policy::defaults_of(slot.tun())?;
    for family in Family::BOTH {
        let way = Way::Out(tun, None);
        if !found.contains(&(family, way)) {
            policy::set_default(family, slot.tun(), way)?;
        }
    }
    Ok(())
}

/// Specific routes first, then the table that the mark names.
fn add_rules(slot: Slot, exits: &[Exit]) -> io::Result<()> {
    for family in Family::BOTH {
        let priority = slot.priorities().start;
        let mark = (slot.base(), MASK);
        policy::add_rule(Rule { family, priority, mark, table: MAIN, only_specific: true })?;
        for exit in exits {
            add_rule_to(slot, family, slot.path(exit.index))?;
        }
        add_rule_to(slot, family, slot.nowhere())?;
    }
    Ok(())
}

fn add_rule_to(slot: Slot, family: Family, table: u32) -> io::Result<()> {
    let (priority, mark) = (slot.priorities().start + 1, (table, u32::MAX));
    policy::add_rule(Rule { family, priority, mark, table, only_specific: false })
}

/// A path's table: its way out while it has one, and the last resort. Nothing is done where it is so already: each
/// change makes the kernel tell of one, and us look again.
fn set_routes(slot: Slot, exit: &Exit) -> io::Result<()> {
    let table = slot.path(exit.index);
    let found = policy::defaults_of(table)?;
    for family in Family::BOTH {
        let wanted = exit.way(family).map(|out| Way::Out(out.oif, out.gateway));
        let there: Vec<Way> =
            found.iter().filter(|(its, _)| *its == family).map(|(_, way)| *way).collect();
        let stale = there.iter().any(|way| *way != Way::Nowhere && Some(*way) != wanted);
        if stale {
            policy::remove_ways_out(family, table)?;
        }
        if !there.contains(&Way::Nowhere) {
            policy::set_default(family, table, Way::Nowhere)?;
        }
        if let Some(way) = wanted.filter(|way| !there.contains(way)) {
            policy::set_default(family, table, way)?;
        }
    }
    Ok(())
}

/// Gives the cable's end in the namespace its address, and the way out.
fn join(index: u32, (here, there, len): (IpAddr, IpAddr, u8)) -> io::Result<()> {
    configure::add_address(index, Prefix { ip: there, len })?;
    let any =
        if here.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    configure::add_route(NewRoute {
        dst: Prefix { ip: any, len: 0 },
        oif: index,
        gateway: Some(here),
        prefsrc: None,
        metric: None,
        congestion_control: None,
    })
}

fn index_of(name: &str) -> io::Result<u32> {
    let link = netlink::link_named(name)?;
    link.map(|link| link.index).ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn full(ip: IpAddr) -> Prefix {
    Prefix { ip, len: if ip.is_ipv4() { 32 } else { 128 } }
}

//! Selection of a slot (a set of numbers for routing tables, rules and marks) for a new splitter.
//! Includes the clean-up after killed splitters, which have left their changes in this slot or in
//! others.
//!
//! A killed splitter's setup (its routes and rules) is *adopted* if it routes the traffic of the
//! whole machine. Its rules, routing tables and nftables table then stay until the new splitter
//! replaces them, so that no packet leaves unprotected. The setup of a splitter with a namespace
//! is undone before the new setup is made. The namespace is then cut off from the network. Only
//! its nftables table stays until the new splitter replaces it.

use super::ledger::{self, CreatedFile, Ledger, Notes, Survey};
use super::plan::namespace_number;
use super::slot::NOBODY;
use super::sysctl::{AddedForwarding, Setting};
use super::undo::{missing_folders, undo, undo_within};
use super::{Plan, SteerError};

/// The slot (a set of numbers for routing tables, rules and marks) that this splitter has locked,
/// and the splitter's changes to the machine. Also has the changes of killed splitters, which this
/// splitter has to undo.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) ledger: Ledger,
    /// The record of the changes that this splitter has to undo at its end.
    pub(super) notes: Notes,
    /// Settings of the machine (sysctl) that this splitter changes.
    pub(super) settings: Vec<Setting>,
    /// The packet forwarding that `settings` (sysctl) switch on.
    pub(super) added_forwarding: AddedForwarding,
    /// Whether a killed splitter's setup in this slot was adopted (kept until this splitter
    /// replaces it), so that it still blocks packets.
    pub(super) adopted: bool,
    /// Setups (routes and rules) of killed splitters in other slots, to be undone once this
    /// splitter is up.
    pub(super) others: Vec<(Ledger, Notes)>,
    /// Warnings for the user.
    pub(super) warnings: Vec<String>,
}

impl Claim {
    /// Takes the slot of a killed splitter, or a free slot. `namespace` is the kernel's number of
    /// the new network namespace; `None` if the plan has none. Checks for obstacles before it
    /// undoes anything, so that after a failure the setup (routes and rules) of a killed splitter
    /// still blocks packets.
    ///
    /// # Errors
    /// Another splitter uses the interface, or an object of another program has a name or number
    /// that the new splitter needs.
    pub(super) fn take(plan: &mut Plan, namespace: Option<u64>) -> Result<Claim, SteerError> {
        let asking = SteerError::system("cannot use /run/anabranch");
        let here = namespace_number()?;
        let _alone = ledger::alone().map_err(&asking)?;
        let survey = ledger::survey(here).map_err(&asking)?;
        if let Some((_, notes)) = survey.held.iter().find(|(_, notes)| plan.is_same(notes)) {
            return Err(SteerError::Running(plan.request.tun.clone(), notes.process));
        }
        let needed = survey.needed(NOBODY);
        let Survey { mut left, .. } = survey;
        let warnings = left.iter().map(|(_, notes)| undone(notes)).collect();
        let place = left.iter().position(|(_, notes)| adopts(plan, notes)).unwrap_or(0);
        if left.is_empty() {
            let free = ledger::claim(here).map_err(&asking)?.ok_or(SteerError::Slots)?;
            left.push((free, Notes::default()));
        }
        let (ledger, before) = left.remove(place);
        let mut claim = Claim {
            ledger,
            notes: before,
            settings: Vec::new(),
            added_forwarding: AddedForwarding::default(),
            adopted: false,
            others: left,
            warnings,
        };
        match claim.fill(plan, namespace, needed) {
            Err(error) if claim.warnings.is_empty() => {
                let _ = claim.ledger.discard();
                Err(error)
            }
            other => other.map(|()| claim),
        }
    }

    fn fill(
        &mut self,
        plan: &mut Plan,
        namespace: Option<u64>,
        mut noted: Vec<Setting>,
    ) -> Result<(), SteerError> {
        plan.take(self.ledger.slot);
        let left = self.others.iter().map(|(_, notes)| notes).chain([&self.notes]);
        plan.check(&left.cloned().collect::<Vec<_>>())?;
        self.clear(plan, &noted)
            .map_err(SteerError::system("cannot undo the network changes of a killed splitter"))?;
        plan.check(&[])?;
        noted.extend(self.notes.settings.iter().cloned());
        noted.extend(self.others.iter().flat_map(|(_, notes)| notes.settings.clone()));
        (self.settings, self.added_forwarding) = plan.settings(&noted);
        let wanted = self.settings.iter();
        let before = |wanted: &Setting| {
            let found = noted.iter().find(|setting| setting.name == wanted.name).cloned();
            found.or_else(|| wanted.now())
        };
        let mut settings: Vec<Setting> = wanted.filter_map(before).collect();
        let is_new = |setting: &Setting| settings.iter().all(|ours| ours.name != setting.name);
        let more: Vec<_> = self.notes.settings.iter().filter(|it| is_new(it)).cloned().collect();
        settings.extend(more);
        self.notes = Notes { settings, netns_number: namespace, ..notes(plan) };
        self.ledger.write(&self.notes).map_err(SteerError::system("cannot write to /run/anabranch"))
    }

    /// Undoes the setup (routes and rules) of a killed splitter in this slot, unless it is adopted
    /// (left in place until the new setup replaces it). Also undoes such setups in other slots if
    /// they have a namespace, which cuts these namespaces off.
    fn clear(&mut self, plan: &Plan, needed: &[Setting]) -> std::io::Result<()> {
        self.adopted = adopts(plan, &self.notes);
        if !self.adopted {
            // The undo runs even if nothing was recorded, because the record may have been
            // removed. Our objects are identified by their numbers.
            let again = plan.request.pins() && plan.request.netns.is_some();
            let undoing = if again && self.notes.netns.is_some() { undo_within } else { undo };
            undoing(self.ledger.slot, &self.notes, needed)?;
            self.notes = Notes::default();
        }
        let around_namespaces = self.others.extract_if(.., |(_, notes)| notes.netns.is_some());
        for (ledger, notes) in around_namespaces {
            undo(ledger.slot, &notes, needed)?;
            ledger.discard()?;
        }
        Ok(())
    }
}

/// Returns whether the setup (routes and rules) that a killed splitter has left blocks the same
/// packets as the setup of `plan` will. This is the case if both are for the whole machine.
fn adopts(plan: &Plan, left: &Notes) -> bool {
    plan.request.pins() && plan.request.netns.is_none() && left.netns.is_none()
}

fn undone(notes: &Notes) -> String {
    let Notes { process, tun, .. } = notes;
    format!(
        "undid the changes to this machine's network that the splitter of process {process} (--tun \
         {tun}) left when it was killed"
    )
}

/// Returns the record of the changes that a splitter with `plan` has to undo at its end. The
/// record does not include settings of the machine.
fn notes(plan: &Plan) -> Notes {
    let resolver = plan.resolver();
    let folders = resolver.as_ref().map(|made| missing_folders(&made.path)).unwrap_or_default();
    Notes {
        process: std::process::id(),
        tun: plan.request.tun.clone(),
        netns: plan.request.netns.clone(),
        files: resolver.into_iter().collect::<Vec<CreatedFile>>(),
        folders,
        ..Notes::default()
    }
}

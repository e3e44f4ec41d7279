//! Undoes a splitter's changes to the machine's network when the splitter ends, or after it was
//! killed.

use std::fs;
use std::io;
use std::path::Path;

use anabranch_os::netlink::{self, policy};

use super::ledger::{self, Notes};
use super::plan::namespace_number;
use super::slot::NOBODY;
use super::sysctl::Setting;
use super::{Slot, SteerError, named, nft, ruleset};

/// Undoes the network changes of all killed splitters in this network namespace. Returns the names
/// of the splitters' interfaces.
///
/// # Errors
/// A permission is missing, or a change could not be undone.
pub fn restore() -> Result<Vec<String>, SteerError> {
    let asking = SteerError::system("cannot use /run/anabranch");
    let number = namespace_number()?;
    if !ledger::any() {
        return Ok(Vec::new());
    }
    let _alone = ledger::alone().map_err(&asking)?;
    let survey = ledger::survey(number).map_err(&asking)?;
    let mut restored = Vec::new();
    let needed = survey.needed(NOBODY);
    for (ledger, notes) in survey.left {
        let undone = undo(ledger.slot, &notes, &needed);
        undone
            .map_err(SteerError::system("cannot undo the network changes of a killed splitter"))?;
        ledger.discard().map_err(&asking)?;
        restored.push(notes.tun);
    }
    Ok(restored)
}

/// Removes all routes, rules, tables and interfaces with the slot's names and numbers. Restores
/// the settings in `notes`, except those `needed` by running splitters. After a failure, continues
/// with the rest.
///
/// A namespace is cut off first. The rules against forwarding other traffic are removed only after
/// forwarding is off. So packets that must not leave are blocked during the whole undo.
///
/// # Errors
/// The first failure.
pub(crate) fn undo(slot: Slot, notes: &Notes, needed: &[Setting]) -> io::Result<()> {
    let result = cut_off(slot, notes, needed).and(remove_fence(slot));
    result.and(remove_policy(slot))
}

/// Undoes a splitter's changes like [`undo`], but keeps the nftables table, which the next
/// splitter replaces.
pub(crate) fn undo_within(slot: Slot, notes: &Notes, needed: &[Setting]) -> io::Result<()> {
    cut_off(slot, notes, needed).and(remove_policy(slot))
}

fn cut_off(slot: Slot, notes: &Notes, needed: &[Setting]) -> io::Result<()> {
    let mut result = remove_cable(slot);
    if let Some(name) = &notes.netns
        && named::is_still(name, notes.netns_number)
    {
        result = result.and(named::remove(name));
    }
    result = result.and(put_back(&notes.settings, needed));
    for made in notes.files.iter().filter(|made| made.is_still()) {
        result = result.and(absent_is_well(fs::remove_file(&made.path)));
    }
    for folder in &notes.folders {
        // This fails if other programs have put files into the directory.
        let _ = fs::remove_dir(folder);
    }
    result
}

fn remove_policy(slot: Slot) -> io::Result<()> {
    policy::remove_rules(slot.priorities()).and(policy::remove_routes(slot.tables()))
}

/// Restores settings in reverse order, except those `needed` by running splitters.
fn put_back(settings: &[Setting], needed: &[Setting]) -> io::Result<()> {
    let mut result = Ok(());
    for setting in settings.iter().rev() {
        let is_needed = needed.iter().any(|its| its.name == setting.name);
        // The settings of a removed interface no longer exist.
        if !is_needed && setting.now().is_some() {
            result = result.and(setting.set());
        }
    }
    result
}

/// Removes the nftables table. If `nft` is not installed, there was no table.
fn remove_fence(slot: Slot) -> io::Result<()> {
    nft::find().map_or(Ok(()), |nft| nft::run(&nft, &ruleset::removal(slot)))
}

pub(crate) fn remove_cable(slot: Slot) -> io::Result<()> {
    let cable = netlink::link_named(&slot.cable())?;
    cable.map_or(Ok(()), |link| policy::remove_link(link.index))
}

fn absent_is_well(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Returns the missing directories above `file`, the lowest first.
pub(crate) fn missing_folders(file: &Path) -> Vec<std::path::PathBuf> {
    let above = file.ancestors().skip(1);
    above.take_while(|folder| !folder.exists()).map(Path::to_path_buf).collect()
}

//! Undoing, at the end of a run or of another's that was killed.

use std::fs;
use std::io;
use std::path::Path;

use super::ledger::{self, Notes};
use super::plan::namespace_number;
use super::{Slot, SteerError, named, nft, ruleset};
use crate::netlink::{self, policy};

/// Undoes all that runs left behind which were killed in this network namespace; gives the names of their interfaces.
///
/// # Errors
/// A right is missing, or something could not be undone.
pub fn restore() -> Result<Vec<String>, SteerError> {
    let survey =
        ledger::survey(namespace_number()?).map_err(SteerError::system("/run/anabranch"))?;
    let mut restored = Vec::new();
    for (ledger, notes) in survey.left {
        undo(ledger.slot, &notes).map_err(SteerError::system("undoing what a run left behind"))?;
        ledger.discard().map_err(SteerError::system("/run/anabranch"))?;
        restored.push(notes.tun);
    }
    Ok(restored)
}

/// Takes away all that has the slot's names and numbers, and puts back what `notes` tells. Nothing is left out because
/// something else failed.
///
/// # Errors
/// The first.
pub(crate) fn undo(slot: Slot, notes: &Notes) -> io::Result<()> {
    let mut result = remove_rules(slot);
    result = result.and(policy::remove_rules(slot.priorities()));
    result = result.and(policy::remove_routes(slot.tables()));
    result = result.and(remove_cable(slot));
    if let Some(name) = &notes.netns {
        result = result.and(named::remove(name));
    }
    for setting in notes.settings.iter().rev() {
        // An interface that is gone has taken its settings along.
        result = result.and(setting.now().map_or(Ok(()), |_| setting.set()));
    }
    for file in &notes.files {
        result = result.and(absent_is_well(fs::remove_file(file)));
    }
    for folder in &notes.folders {
        // Somebody else may have put something in.
        let _ = fs::remove_dir(folder);
    }
    result
}

/// Where there is no `nft`, there were no rules.
fn remove_rules(slot: Slot) -> io::Result<()> {
    nft::find().map_or(Ok(()), |nft| nft::run(&nft, &ruleset::removal(slot)))
}

fn remove_cable(slot: Slot) -> io::Result<()> {
    let cable = netlink::link_named(&slot.cable())?;
    cable.map_or(Ok(()), |link| policy::remove_link(link.index))
}

fn absent_is_well(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The folders above `file` that are not there yet, the lowest first.
pub(crate) fn missing_folders(file: &Path) -> Vec<std::path::PathBuf> {
    let above = file.ancestors().skip(1);
    above.take_while(|folder| !folder.exists()).map(Path::to_path_buf).collect()
}

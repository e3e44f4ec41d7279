//! Third-party programs that a test needs.

#![allow(unreachable_pub, reason = "a module of several test programs")]

use std::process::Command;

/// Returns whether all `programs` are installed. If not, prints that the test is skipped, and which
/// program is missing.
pub fn are_here(programs: &[&str]) -> bool {
    let starts = |program: &&&str| Command::new(program).arg("--version").output().is_ok();
    let missing: Vec<&str> = programs.iter().filter(|program| !starts(program)).copied().collect();
    if !missing.is_empty() {
        println!("skipped: {} missing here", missing.join(", "));
    }
    missing.is_empty()
}

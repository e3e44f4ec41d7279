//! Other people's programs that a test needs.

#![allow(unreachable_pub, reason = "a module of several test programs")]

use std::process::Command;

/// Whether all of them can be started here; prints that the test is skipped, and for want of which,
/// if not.
pub fn are_here(programs: &[&str]) -> bool {
    let starts = |program: &&&str| Command::new(program).arg("--version").output().is_ok();
    let missing: Vec<&str> = programs.iter().filter(|program| !starts(program)).copied().collect();
    if !missing.is_empty() {
        println!("skipped: {} missing here", missing.join(", "));
    }
    missing.is_empty()
}

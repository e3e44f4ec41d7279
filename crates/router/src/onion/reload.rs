//! New settings under live circuits: read again on SIGHUP, put into force whole or not at all.

use std::fmt;
use std::io;

use anabranch_os::hangup::Hangup;
use anabranch_os::manager::reloading;

/// Reads the settings again; else says in one line what is wrong and where.
pub type Reread<'r, T> = Box<dyn FnMut() -> Result<Renewed<T>, String> + 'r>;

/// Settings that were read again.
#[derive(Debug)]
pub struct Renewed<T> {
    /// What is in force from now on.
    pub settings: T,
    /// What differs from before.
    pub names: Names,
}

/// The names of settings that differ from those before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Those that are in force.
    pub changed: Vec<&'static str>,
    /// Those that want a restart: the old ones hold.
    pub restart: Vec<&'static str>,
}

impl fmt::Display for Names {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changed = match self.changed.is_empty() {
            true => "nothing has changed".to_owned(),
            false => format!("changed: {}", self.changed.join(", ")),
        };
        write!(out, "settings read again; {changed}")?;
        match self.restart.is_empty() {
            true => Ok(()),
            false => write!(out, "; restart to apply: {}", self.restart.join(", ")),
        }
    }
}

/// What came of reading settings again: what has changed; or what is wrong with them, and those in
/// force stay.
pub type Outcome = Result<Names, String>;

/// The same in one line.
#[must_use]
pub fn in_words(outcome: &Outcome) -> String {
    match outcome {
        Ok(names) => names.to_string(),
        Err(why) => format!("{why}; the current settings stay"),
    }
}

/// SIGHUP, and what it asks for.
pub struct Reload<'r, T> {
    pub(super) hangup: Hangup,
    reread: Reread<'r, T>,
    /// The end of the terminal that the program was started on is its end, too.
    ends_with_terminal: bool,
}

/// What SIGHUP asked for.
pub(super) enum Asked<T> {
    /// The end.
    End,
    /// Settings to be put into force.
    Adopt(Renewed<T>),
    /// Nothing: why the settings that were read are not to be put into force.
    Keep(String),
}

impl<'r, T> Reload<'r, T> {
    /// Takes SIGHUP from now on, and reads settings so.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(reread: Reread<'r, T>) -> io::Result<Reload<'r, T>> {
        Ok(Reload { hangup: Hangup::watch()?, reread, ends_with_terminal: false })
    }

    /// The same for a program that ends with its terminal.
    #[must_use]
    pub fn ending_with_terminal(mut self) -> Reload<'r, T> {
        self.ends_with_terminal = true;
        self
    }

    /// Takes all signals so far.
    pub(super) fn take(&mut self) -> Asked<T> {
        if self.hangup.take() && self.ends_with_terminal {
            return Asked::End;
        }
        reloading();
        match (self.reread)() {
            Ok(renewed) => Asked::Adopt(renewed),
            Err(why) => Asked::Keep(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_names_what_has_changed_and_what_has_not() {
        let names = Names { changed: vec!["exit", "rate"], restart: vec!["listen"] };
        let told = "settings read again; changed: exit, rate; restart to apply: listen";
        assert_eq!(in_words(&Ok(names)), told);
        assert_eq!(in_words(&Ok(Names::default())), "settings read again; nothing has changed");
        let told = in_words(&Err("river.toml:3: it is not TOML".to_owned()));
        assert_eq!(told, "river.toml:3: it is not TOML; the current settings stay");
    }
}

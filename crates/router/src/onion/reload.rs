//! Reading settings again on SIGHUP, while circuits continue. New settings are applied completely
//! or not at all.

use std::fmt;
use std::io;

use anabranch_os::hangup::Hangup;
use anabranch_os::manager::reloading;

/// Callback that reads the settings again. Its error is one line that names the mistake and its
/// place in the settings.
pub type Reread<'r, T> = Box<dyn FnMut() -> Result<ReloadedSettings<T>, String> + 'r>;

/// Settings that were read again after SIGHUP.
#[derive(Debug)]
pub struct ReloadedSettings<T> {
    /// The settings to apply.
    pub settings: T,
    /// Names of the settings that have changed.
    pub names: Names,
}

/// Names of the settings that have changed, for messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Names of changed settings whose new values are used now.
    pub changed: Vec<&'static str>,
    /// Names of changed settings that need a restart. Until then, their old values are used.
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

/// Result of reading the settings again: the names of the changed settings, or an error. After an
/// error, the old settings stay in use.
pub type Outcome = Result<Names, String>;

/// Formats as one line of text the result of reading the settings again.
#[must_use]
pub fn in_words(outcome: &Outcome) -> String {
    match outcome {
        Ok(names) => names.to_string(),
        Err(why) => format!("{why}; the current settings stay"),
    }
}

/// Handler of SIGHUP, which reads the settings again.
pub struct Reload<'r, T> {
    pub(super) hangup: Hangup,
    reread: Reread<'r, T>,
    /// True if the program ends when SIGHUP was sent because its terminal was closed.
    ends_with_terminal: bool,
}

/// Action to take after SIGHUP.
pub(super) enum ReloadAction<T> {
    /// End the program, because its terminal was closed.
    End,
    /// Apply these settings, which were read again.
    Adopt(ReloadedSettings<T>),
    /// Keep the old settings, because the new settings are invalid for this reason.
    Keep(String),
}

impl<'r, T> Reload<'r, T> {
    /// Starts to handle SIGHUP. `reread` is called to read the settings.
    ///
    /// # Errors
    /// A system call fails.
    pub fn new(reread: Reread<'r, T>) -> io::Result<Reload<'r, T>> {
        Ok(Reload { hangup: Hangup::watch()?, reread, ends_with_terminal: false })
    }

    /// Makes the program end when SIGHUP was sent because its terminal was closed.
    #[must_use]
    pub fn ending_with_terminal(mut self) -> Reload<'r, T> {
        self.ends_with_terminal = true;
        self
    }

    /// Handles all SIGHUP signals since the last call, and returns the action to take.
    pub(super) fn take(&mut self) -> ReloadAction<T> {
        if self.hangup.take() && self.ends_with_terminal {
            return ReloadAction::End;
        }
        reloading();
        match (self.reread)() {
            Ok(renewed) => ReloadAction::Adopt(renewed),
            Err(why) => ReloadAction::Keep(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_names_what_has_changed_and_what_has_not() {
        let names = Names { changed: vec!["exit", "rate"], restart: vec!["listen"] };
        let message = "settings read again; changed: exit, rate; restart to apply: listen";
        assert_eq!(in_words(&Ok(names)), message);
        assert_eq!(in_words(&Ok(Names::default())), "settings read again; nothing has changed");
        let message = in_words(&Err("river.toml:3: it is not TOML".to_owned()));
        assert_eq!(message, "river.toml:3: it is not TOML; the current settings stay");
    }
}

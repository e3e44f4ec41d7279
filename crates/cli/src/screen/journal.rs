//! Prefix of each line of output: the line's priority if systemd's journal reads the output, and
//! the name that the user has given to the running program.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;

use anabranch_os::toml_keys::without_codes;

/// Priority of a line (sd-daemon(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// An error that ends the program.
    Error = 3,
    /// A problem that does not end the program.
    Warning = 4,
    /// A normal event.
    Information = 6,
}

/// Prefix of each line that a running program prints: a priority for systemd's journal and a name.
/// Both are optional.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Journal {
    /// Whether each line begins with its priority, so that systemd's journal can filter lines.
    priorities: bool,
    /// Name of the running program (`--name`), which distinguishes its lines in a log that several
    /// programs share; `None` if the user gave none.
    name: Option<String>,
}

impl Journal {
    /// Empty prefix, for a program without a name (`--name`) whose output systemd's journal does
    /// not read.
    pub(crate) const NONE: Journal = Journal { priorities: false, name: None };

    /// Returns the prefix for standard output.
    pub(crate) fn of_stdout() -> Journal {
        Journal::of(io::stdout().as_fd())
    }

    /// Returns the prefix for standard error.
    pub(crate) fn of_stderr() -> Journal {
        Journal::of(io::stderr().as_fd())
    }

    /// Returns the prefix for lines in `file`. They have priorities if systemd's journal reads
    /// `file`. This is so if `file` has the device and inode in `JOURNAL_STREAM`
    /// (systemd.exec(5)).
    fn of(file: BorrowedFd<'_>) -> Journal {
        let named = std::env::var("JOURNAL_STREAM").ok();
        let own = || {
            let about = File::from(file.try_clone_to_owned().ok()?).metadata().ok()?;
            Some(format!("{}:{}", about.dev(), about.ino()))
        };
        Journal { priorities: named.is_some() && named == own(), name: None }
    }

    /// Returns this prefix with the name of the running program added, if the user gave one.
    pub(crate) fn of_run(self, name: Option<&str>) -> Journal {
        Journal { name: name.map(str::to_owned), ..self }
    }

    /// Returns whether systemd's journal reads the lines.
    pub(crate) fn is_there(&self) -> bool {
        self.priorities
    }

    /// Adds the prefix to each line of `text`.
    pub(crate) fn line(&self, priority: Priority, text: &str) -> String {
        let text = without_codes(text);
        let priority = self.priorities.then(|| format!("<{}>", priority as u8));
        let name = self.name.as_ref().map(|name| format!("[{name}] "));
        let head = priority.unwrap_or_default() + &name.unwrap_or_default();
        if head.is_empty() {
            return text;
        }
        let lines: Vec<_> = text.lines().map(|line| format!("{head}{line}")).collect();
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_bears_its_priority_in_the_journal_and_none_elsewhere() {
        let journal = Journal { priorities: true, name: None };
        assert_eq!(journal.line(Priority::Warning, "a\nb"), "<4>a\n<4>b");
        assert_eq!(journal.line(Priority::Information, "a"), "<6>a");
        assert_eq!(Journal::NONE.line(Priority::Error, "a\nb"), "a\nb");
        let message = "path 'a': Network is down (os error 100)";
        assert_eq!(Journal::NONE.line(Priority::Error, message), "path 'a': Network is down");
    }

    #[test]
    fn each_line_of_a_run_begins_with_its_name() {
        let named = |journal: Journal| journal.of_run(Some("home"));
        assert_eq!(named(Journal::NONE).line(Priority::Error, "a\nb"), "[home] a\n[home] b");
        let journal = Journal { priorities: true, name: None };
        assert_eq!(named(journal).line(Priority::Warning, "a"), "<4>[home] a");
    }
}
